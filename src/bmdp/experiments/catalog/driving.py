"""BFTQ against FTQ(lambda) on the two-way road: reward against cost, both discounted.

Paper: the second experiment of Section 5 and its figure on the right, and the animations of the
appendix.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from bmdp.envs.scripted import RULES, ScriptedPolicy
from bmdp.evaluation.rollouts import Evaluation
from bmdp.experiments.experiment import Experiment, Piece, Work
from bmdp.experiments.parts.measuring import Trials, evaluation_piece, evenly
from bmdp.experiments.parts.prices import Settings, all_at_once, bftq, ftq, one_by_one
from bmdp.experiments.parts.training import changed, explored
from bmdp.learn.presets import preset
from bmdp.learn.spec import EnvConfig, TrainingSpec
from bmdp.models import KernelModel

PAPER_PRICES = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0)
"""Of a unit of cost, in the paper's figure."""

PRICES = (*PAPER_PRICES, 30.0, 50.0)
"""More of them at the cautious end."""

BUDGETS = tuple(
    sorted({*evenly(21), *(0.1 * 11 ** (np.arange(30) / 29) - 0.1).clip(0, 1).round(12).tolist()})
)
"""Those of the paper's figure: 21 in equal steps, and 30 that crowd at 0."""


def scripts(settings: Settings, work: Work) -> None:
    """Measures policies that were written by hand; they read the kinematics of cars."""
    kept = {
        name: value
        for name, value in explored(settings.budgeted)[0].settings.items()
        if name not in ("observation", "observe_time", "ttc_seconds")
    }
    env = EnvConfig("two-way", kept)
    n_episodes = settings.testing.n_episodes
    work.piece("scripts", lambda: _scripts_piece(env, n_episodes, work.seed))


def _scripts_piece(env: EnvConfig, n_episodes: int, seed: int) -> Piece:
    """What each of them earns and pays: fields of `bmdp.Evaluation`, each over the scripts."""
    names = [name for name in RULES if name.startswith("two-way/")]
    every = [evaluation_piece(ScriptedPolicy(name), env, [0.0], n_episodes, seed) for name in names]
    ends = ("_mean", "_low", "_high")
    columns = [field.name for field in fields(Evaluation) if field.name.endswith(ends)]
    return {
        "names": [name.removeprefix("two-way/") for name in names],
        **{column: [found[column][0] for found in every] for column in columns},
        "n_episodes": n_episodes,
        "gamma": every[0]["gamma"],
    }


def _paper() -> Settings:
    """The paper's tables: a network for each lambda."""
    return Settings(
        n_seeds=10,
        budgeted=preset("paper-driving"),
        priced=one_by_one("paper-driving-ftq", PAPER_PRICES),
        testing=Trials(BUDGETS, 150, evenly(21), n_shown=3),
    )


def _ours(n_seeds: int, spec: TrainingSpec, testing: Trials) -> Settings:
    """Settings of our own, at some size."""
    return Settings(n_seeds, spec, all_at_once(spec, PRICES), testing)


def _best() -> Settings:
    """Our preset, with as many episodes as the paper's."""
    return _ours(10, _explored(10, 150), Trials(BUDGETS, 2_000, evenly(21), 3))


def _quick() -> Settings:
    """Our preset with fewer episodes, and with fewer bumps."""
    model = KernelModel(200, (2.0, 4.0, 8.0), (1e-3, 1e-2, 1e-1))
    spec = changed(_explored(6, 300), {"model": model}, {})
    return _ours(2, spec, Trials(evenly(21), 1000, evenly(21), 3))


def _explored(rounds: int, episodes: int) -> TrainingSpec:
    """Our preset with so many episodes; the last round has the same share of random actions."""
    spec = preset("two-way")
    _, how = explored(spec)
    decay = how.decay * how.rounds * how.episodes / (rounds * episodes)
    return changed(spec, {}, {"rounds": rounds, "episodes": episodes, "decay": decay})


def _smoke() -> Settings:
    """Hardly anything."""
    learner = {"n_budgets": 5, "model": KernelModel(20, (4.0,), (1e-1,))}
    spec = changed(preset("two-way"), learner, {"rounds": 2, "episodes": 50, "decay": 0.02})
    return _ours(2, spec, Trials((0.0, 0.25, 0.5, 1.0), 100, evenly(5), 3))


EXPERIMENT = Experiment(
    name="driving",
    title="Driving on a two-way road",
    question="Does one policy that takes a budget do as well on the road as a policy for each of "
    "several prices of cost?",
    parts={"": bftq, "ftq": ftq},
    common={"scripts": scripts},
    presets={"smoke": _smoke(), "quick": _quick(), "paper": _paper(), "best": _best()},
)
