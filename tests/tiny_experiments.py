"""Experiments that take a moment, which processes of tests find as `tiny_experiments:NAME`."""

import os
import signal
from dataclasses import dataclass, replace

import bmdp
import training
from bmdp.learn import Iterations, TrainingSpec, resume, train
from bmdp.models import Regression
from bmdp.paper.runner import ExperimentSpec


@dataclass(frozen=True)
class Tiny:
    """An experiment as an object: what a module of `bmdp.paper` has."""

    SETTINGS: dict
    doing: dict
    """Functions by the names of parts."""
    COMMON: tuple[str, ...] = ()

    @property
    def PARTS(self):
        return tuple(part for part in self.doing if part not in self.COMMON)

    def run(self, settings, work):
        self.doing[work.part](settings, work)


@dataclass(frozen=True)
class Settings:
    training: TrainingSpec
    n_seeds: int = 2


@dataclass(frozen=True)
class Size:
    size: object
    unit: tuple[str, ...] = ("cm", "kg")


def _truth(settings, work):
    work.piece("truth", lambda: {"seed": work.seed})


def _train(settings, work):
    """A training run, and how good it is."""
    if (work.folder / "spec.json").exists():
        policy = resume(work.folder)
    else:
        policy = train(settings.training, work.folder, seed=work.seed, device=work.device)
    work.piece("evaluation", lambda: _evaluated(policy, settings, work))


def _evaluated(policy, settings, work):
    how = {"budgets": [0.0, 0.5], "n_episodes": 20, "seed": work.seed}
    found = bmdp.evaluate(policy, settings.training.env.spec(), **how)
    return {"reward": found.reward_mean.tolist(), "cost": found.cost_mean.tolist()}


def _count(settings, work):
    """Something that needs no time."""
    threads = os.environ.get("OMP_NUM_THREADS")
    said = {"seed": work.seed, "size": settings.size, "by": os.getpid(), "threads": threads}
    work.piece("number", lambda: said)


def _error(settings, work):
    _count(settings, work)
    if work.seed == 1:
        raise bmdp.DataError("the data are\nwrong.")


def _bug(settings, work):
    raise ZeroDivisionError("nobody thought of this")


def _death(settings, work):
    if work.seed == 0:
        os.kill(os.getpid(), signal.SIGKILL)


_LONGER = replace(
    training.SPEC,
    learner=replace(
        training.LEARNER,
        model=replace(training.LEARNER.model, regression=Regression(steps=120)),
        schedule=Iterations(4, settled=0.0),
    ),
    exploration=replace(training.SPEC.exploration, rounds=3),
)
_SIZES = {"smoke": Size(1), "quick": Size(2)}
TRAINING = Tiny(
    {"smoke": Settings(_LONGER), "quick": Settings(training.SPEC, n_seeds=3)},
    {"truth": _truth, "": _train},
    COMMON=("truth",),
)
COUNTING = Tiny(_SIZES, {"once": _count, "": _count, "again": _count}, COMMON=("once",))
FAILING = Tiny(_SIZES, {"error": _error, "bug": _bug, "death": _death, "good": _count})
ERRING = Tiny(_SIZES, {"error": _error, "bug": _bug, "good": _count})
DYING = Tiny(_SIZES, {"": _death})
UNSPEAKABLE = Tiny({"smoke": Size(print)}, {"": _count})

LONG = ExperimentSpec("tiny_experiments:TRAINING", "smoke", (0, 1))
"""Seconds of training for each of two seeds."""
SHORT = ExperimentSpec("tiny_experiments:TRAINING", "quick", (0,))
COUNT = ExperimentSpec("tiny_experiments:COUNTING", "smoke", (0, 1))
DEATH = ExperimentSpec("tiny_experiments:DYING", "smoke", (0,))
FAIL = ExperimentSpec("tiny_experiments:FAILING", "smoke", (0, 1))


def run_inline(do, jobs, *, workers, threads):
    """Does the jobs of `run_jobs` in this process."""
    for position, job in enumerate(jobs):
        yield None
        yield position, do(job)


def results(folder):
    """Policies, pieces and episodes that a run has found, but not when or by whom."""
    aside = ("records.jsonl", "finished.json", "spec.json", "lock")
    names = training.content(folder).items()
    kept = {name: data for name, data in names if name.split("/")[-1] not in aside}
    return {name: data for name, data in kept.items() if not name.startswith(".locks")}
