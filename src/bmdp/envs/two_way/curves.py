"""Curves of the two-way road with its default settings, measured once and shipped with the package.

`curves.json`, beside this module, is written by

    python examples/two_way.py --curves --out src/bmdp/envs/two_way

A curve with thousands of vertices is shipped with few of them. What is left out is above the lines
between the others by 0.001 of reward at most.
"""

from __future__ import annotations

import json
from dataclasses import fields
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from bmdp.arrays import FloatArray, IntArray
from bmdp.checks import require_name
from bmdp.envs.tasks import TrueFrontier
from bmdp.envs.two_way.reference import MeasuredCurve, ReferenceCurve
from bmdp.envs.two_way.replanning import ReplanningDriver
from bmdp.envs.two_way.task import TwoWay
from bmdp.frontier import Frontier, upper_frontier
from bmdp.policies.portfolio import Portfolio

KNOWN_CURVES = ("clairvoyant", "equal-budget", "replanning")
"""Names of the curves of the two-way road that are shipped."""

_FILE = "curves.json"
_LOSS = 0.001  # of reward, by vertices that are left out
_DIGITS = 5
_TABLE = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4)  # costs at which rewards are recorded, with errors


def known_curve(name: str) -> TrueFrontier:
    """Returns a curve of the two-way road with its default settings, to score policies against.

    - "clairvoyant": drivers who know the future, each situation at its own best cost. Nobody can
      do better, up to what the search misses.
    - "equal-budget": drivers who know the future and have the same budget in every situation. That
      is the most that the operator T of the paper can reach.
    - "replanning": `ReplanningDriver`, which sees cars within 200 m, and knows the rules of the
      road. It has no foresight, so a learned driver can do as well.

    Args:
        name: one of `KNOWN_CURVES`.

    Returns:
        TrueFrontier. `reward_error` is the largest standard error of the reward at a cost, over
        situations, from cost 0.05 on; `settings` has that of each vertex, a table, how the curve
        was found, and the task. Below 0.05 curves are steep, and the error is one of cost.

    Raises:
        ConfigError: if there is no such curve.

    >>> found = known_curve("replanning")
    >>> found.settings["n_situations"], found.reward_error < 0.06
    (1000, True)
    >>> [round(known_curve(name).frontier.reward_at(0.1), 2) for name in KNOWN_CURVES]
    [5.79, 5.55, 5.61]
    """
    require_name("curve", name, KNOWN_CURVES)
    shipped = _shipped()
    kept = dict(shipped["curves"][name])
    frontier = Frontier(np.array(kept.pop("costs")), np.array(kept.pop("rewards")))
    settings = {**kept, "curve": name, "task": shipped["task"], "command": shipped["command"]}
    errors = np.array(kept["reward_errors"])[frontier.costs >= _TABLE[0]]
    return TrueFrontier(frontier, float(errors.max()), settings)


def replanning_dial() -> Portfolio:
    """Returns a policy that takes budgets: a coin at the start between two replanning drivers.

    Costs and rewards of the drivers are those of the shipped curve "replanning". The road must be
    the default one, with `features="full"`.

    >>> dial = replanning_dial()
    >>> dial.curve.costs[[0, -1]].round(3).tolist()
    [0.007, 0.544]
    """
    settings = known_curve("replanning").settings
    points, width = settings["points"], settings["width"]
    drivers = tuple(ReplanningDriver(price, width) for price in points["prices"])
    which, nothing = np.arange(len(drivers)), np.zeros(len(drivers))
    costs, rewards = np.array(points["costs"]), np.array(points["rewards"])
    return Portfolio(drivers, which, nothing, costs, rewards)


def curve_record(curve: ReferenceCurve | MeasuredCurve, **settings: Any) -> dict[str, Any]:
    """Returns a curve as `curves.json` has it.

    Args:
        curve: one of the three.
        settings: how it was found.
    """
    frontier = thinned(curve.frontier, _LOSS)
    costs, rewards = frontier.costs.round(_DIGITS), frontier.rewards.round(_DIGITS)
    frontier = upper_frontier(costs, rewards)  # without vertices that rounding made equal
    errors = curve.reward_error_at(np.append(curve.frontier.costs[0], frontier.costs[1:]))
    least, table = curve.least_costs, np.array(_TABLE)
    rows = {"costs": table, "rewards": curve.frontier.reward_at(table)}
    rows["reward_errors"] = curve.reward_error_at(table)
    return {
        "costs": frontier.costs.tolist(),
        "rewards": frontier.rewards.tolist(),
        "reward_errors": errors.round(_DIGITS).tolist(),
        "smallest_cost_error": round(float(least.std(ddof=1) / np.sqrt(len(least))), _DIGITS),
        "n_situations": len(least),
        "table": {name: values.round(_DIGITS).tolist() for name, values in rows.items()},
        **settings,
    }


def point_record(curve: MeasuredCurve) -> dict[str, list[float]]:
    """Returns the points of a curve whose dial are prices, as `curves.json` has them."""
    columns = {
        "prices": curve.dial,
        "costs": curve.cost_means,
        "cost_errors": curve.cost_errors,
        "rewards": curve.reward_means,
        "reward_errors": curve.reward_errors,
    }
    return {name: values.round(_DIGITS).tolist() for name, values in columns.items()}


def task_record(task: TwoWay) -> dict[str, Any]:
    """Returns the settings of a task, as JSON has them."""
    settings = {f.name: getattr(task, f.name) for f in fields(task) if f.init}
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    return plain


def thinned(frontier: Frontier, loss: float) -> Frontier:
    """Returns a frontier with fewer vertices, below the other one by `loss` of reward at most.

    >>> x = np.linspace(0, 1, 101)
    >>> few = thinned(Frontier(x, x - x**2 / 2), 0.01)
    >>> len(few), bool((x - x**2 / 2 - few.reward_at(x)).max() <= 0.01)
    (5, True)
    """
    costs, rewards = frontier.costs, frontier.rewards
    kept: list[int] = [0]
    while kept[-1] < len(costs) - 1:
        first, last = kept[-1], kept[-1] + 1
        while last + 1 < len(costs) and _loss(costs, rewards, first, last + 1) <= loss:
            last += 1
        kept.append(last)
    index: IntArray = np.array(kept)
    return Frontier(costs[index], rewards[index])


def _loss(costs: FloatArray, rewards: FloatArray, first: int, last: int) -> float:
    """Reward that the line between two vertices is below those between them, at most."""
    between = slice(first + 1, last)
    line = np.interp(costs[between], costs[[first, last]], rewards[[first, last]])
    return float((rewards[between] - line).max())


@cache
def _shipped() -> dict[str, Any]:
    text = resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8")
    shipped: dict[str, Any] = json.loads(text)
    return shipped
