"""Experiments that take a moment, which processes of tests find as `tiny_experiments:NAME`."""

import os
import signal
from dataclasses import dataclass, replace

import bmdp
import training
from bmdp.experiments.experiment import Experiment
from bmdp.experiments.running.spec import ExperimentSpec
from bmdp.experiments.running.tasks import attempt
from bmdp.learn import Iterations, TrainingSpec, resume, train
from bmdp.models import Regression


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
TRAINING = Experiment(
    name="training",
    title="Training",
    question="Can it be killed?",
    parts={"": _train},
    presets={"smoke": Settings(_LONGER), "quick": Settings(training.SPEC, n_seeds=3)},
    common={"truth": _truth},
)
COUNTING = Experiment(
    name="counting",
    title="Counting",
    question="Who does what?",
    parts={"": _count, "again": _count},
    presets={"smoke": Size(1), "quick": Size(2)},
    common={"once": _count},
)
FAILING = replace(
    COUNTING, parts={"error": _error, "bug": _bug, "death": _death, "good": _count}, common={}
)
ERRING = replace(COUNTING, parts={"error": _error, "bug": _bug, "good": _count}, common={})
DYING = replace(COUNTING, parts={"": _death}, common={})
UNSPEAKABLE = replace(COUNTING, presets={"smoke": Size(print)})

LONG = ExperimentSpec("tiny_experiments:TRAINING", "smoke", (0, 1))
"""Seconds of training for each of two seeds."""
SHORT = ExperimentSpec("tiny_experiments:TRAINING", "quick", (0,))
COUNT = ExperimentSpec("tiny_experiments:COUNTING", "smoke", (0, 1))
DEATH = ExperimentSpec("tiny_experiments:DYING", "smoke", (0,))
FAIL = ExperimentSpec("tiny_experiments:FAILING", "smoke", (0, 1))


def run_inline(jobs, *, workers, threads):
    """Does the work of processes in this one."""
    for job in jobs:
        yield None
        yield job, attempt(job)


def results(folder):
    """What a run has found, policies, pieces and episodes, but not when or by whom."""
    aside = ("records.jsonl", "finished.json", "spec.json", "lock")
    names = training.content(folder).items()
    kept = {name: data for name, data in names if name.split("/")[-1] not in aside}
    return {name: data for name, data in kept.items() if not name.startswith(".locks")}
