"""BFTQ against FTQ(lambda) on the two-way road: reward against cost, both discounted.

Parts and pieces are those of `bmdp.paper.pricing`, and scripts/scripts.json, what policies earn and
pay that were written by hand: `names`, and means and intervals of an evaluation, one a policy.

Paper: the second experiment of Section 5 and its figure on the right, and the animations of the
appendix.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from bmdp.envs.scripted import RULES, ScriptedPolicy
from bmdp.evaluation import Evaluation, Interval
from bmdp.learn.presets import preset
from bmdp.learn.spec import EnvConfig, TrainingSpec
from bmdp.models import ForestModel
from bmdp.paper import pricing
from bmdp.paper.measuring import Trials, evaluation_piece, evenly, show
from bmdp.paper.pricing import PricingSettings
from bmdp.paper.results import Results, columns, seed_curve
from bmdp.paper.runner import Piece, Work
from bmdp.paper.training import changed, explored, trained
from bmdp.report.curves import ALONE, Drawn
from bmdp.report.section import Data, Section

TITLE = "Driving on a two-way road"
QUESTION = (
    "Does one policy that takes a budget do as well on the road as a policy for each of several "
    "prices of cost?"
)
PARTS, COMMON = ("", "ftq"), ("scripts",)

PAPER_PRICES = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0)
"""Prices of a unit of cost in the paper's figure."""

BUDGETS = tuple(
    sorted({*evenly(21), *(0.1 * 11 ** (np.arange(30) / 29) - 0.1).clip(0, 1).round(12).tolist()})
)
"""Those of the paper's figure: 21 in equal steps, and 30 that crowd at 0."""


def _ours(n_seeds: int, spec: TrainingSpec, testing: Trials) -> PricingSettings:
    return PricingSettings(n_seeds, spec, pricing.all_at_once(spec), testing)


def explored_for(rounds: int, episodes: int, features: str = "full") -> TrainingSpec:
    """Our preset with so many episodes; the last round has the same share of random actions.

    Args:
        rounds: of exploring.
        episodes: of a round.
        features: of the road that are seen.
    """
    spec = preset("two-way")
    env, how = explored(spec)
    decay = how.decay * how.rounds * how.episodes / (rounds * episodes)
    seen = replace(env, settings={**env.settings, "features": features})
    every = {"rounds": rounds, "episodes": episodes, "decay": decay}
    return changed(replace(spec, env=seen), {}, every)


_SMOKE = {"budgets": (0.0, 0.1, 0.3, 0.6, 1.0), "model": ForestModel(3, leaf=10)}
_QUICK = {"model": ForestModel(10)}

SETTINGS = {
    "smoke": _ours(
        2,
        changed(preset("two-way"), _SMOKE, {"rounds": 2, "episodes": 50, "decay": 0.02}),
        Trials((0.0, 0.25, 0.5, 1.0), 100, evenly(5), 3),
    ),
    "quick": _ours(
        2, changed(explored_for(6, 300), _QUICK, {}), Trials(evenly(21), 1000, evenly(21), 3)
    ),
    "paper": PricingSettings(
        10,
        preset("paper-driving"),
        pricing.one_by_one("paper-driving-ftq", PAPER_PRICES),
        Trials(BUDGETS, 150, evenly(21), 3),
    ),
    "best": _ours(10, explored_for(10, 150), Trials(BUDGETS, 2_000, evenly(21), 3)),
    "time-to-collision": _ours(
        10, explored_for(10, 150, "time-to-collision"), Trials(BUDGETS, 2_000, evenly(21), 3)
    ),
}


def run(settings: PricingSettings, work: Work) -> None:
    """Learns budgets, or prices; or plays policies that were written by hand."""
    if work.part == "ftq":
        pricing.run_ftq(settings, work)
    elif work.part == "scripts":
        work.piece("scripts", lambda: _scripts(settings, work.seed))
    else:
        env, _ = explored(settings.budgeted)
        show(trained(settings.budgeted, work), env, settings.testing, work)


def _scripts(settings: PricingSettings, seed: int) -> Piece:
    """Policies that were written by hand read the kinematics of cars."""
    seen = ("features", "observe_time", "ttc_seconds")
    road = explored(settings.budgeted)[0].settings
    env = EnvConfig("two-way", {name: value for name, value in road.items() if name not in seen})
    names = [name for name in RULES if name.startswith("two-way/")]
    n_episodes = settings.testing.n_episodes
    every = [evaluation_piece(ScriptedPolicy(name), env, [0.0], n_episodes, seed) for name in names]
    ends = ("_mean", "_low", "_high")
    kept = [field.name for field in fields(Evaluation) if field.name.endswith(ends)]
    return {
        "names": [name.removeprefix("two-way/") for name in names],
        **{column: [found[column][0] for found in every] for column in kept},
        "n_episodes": n_episodes,
        "gamma": every[0]["gamma"],
    }


def scripts_of(piece: Data) -> Drawn:
    """Returns policies that were written by hand, as points."""
    cost, reward = (
        Interval(*columns(piece, *(f"discounted_{what}_{end}" for end in Interval._fields)))
        for what in ("cost", "reward")
    )
    names = tuple(map(str, piece["names"]))
    if not len(names) == len(cost.mean) == len(reward.mean):
        raise ValueError("names, costs and rewards must be as many")
    points = seed_curve(np.arange(len(names), dtype=np.float64), cost, reward)
    return Drawn(replace(points, label="written by hand"), ALONE, names)


def analyse(results: Results, anchor: str) -> Section:
    """Returns the section of a report, as far as parts are done."""
    scripts = results.common("scripts", scripts_of)
    words = ("highway", "the two-way road", "A policy on the road")
    return pricing.price_section(results, anchor, *words, [scripts] if scripts is not None else [])
