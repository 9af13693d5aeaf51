"""Curves of a report: what is paid and earned at each budget or price, with intervals.

Of several seeds, the mean of each seed counts once: a point is the mean of these means, and its
interval is Student's over seeds. Of one seed, intervals are over its episodes. Each interval holds
by itself, as those that were published do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from bmdp.arrays import FloatArray
from bmdp.errors import DataError
from bmdp.evaluation import Evaluation
from bmdp.evaluation.statistics import Interval, mean_interval

CONFIDENCE = 0.95

Over = Literal["seeds", "episodes", "published"]
"""The sample that intervals are over."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Means of `M` points in the (cost, reward) plane, with intervals; both are discounted."""

    label: str  # in legends
    settings: FloatArray  # [M], budgets asked for, or prices of cost
    cost: Interval
    reward: Interval
    over: Over  # what intervals are over
    n_seeds: int
    cost_by_seed: FloatArray  # [seeds, M], means; without rows if they are not known
    reward_by_seed: FloatArray

    def between_seeds(self, name: Literal["cost", "reward"]) -> FloatArray:
        """Returns the standard deviation of seeds' means, `[M]`; NaN if there are fewer than 2."""
        by_seed: FloatArray = getattr(self, f"{name}_by_seed")
        if len(by_seed) < 2:
            return np.full(len(self.settings), np.nan)
        deviation: FloatArray = by_seed.std(axis=0, ddof=1)
        return deviation


def budget_curve(label: str, evaluations: Sequence[Evaluation]) -> Curve:
    """Returns the curve of evaluations, one of each seed, at the same budgets.

    Raises:
        DataError: if there is none, or budgets differ.
    """
    if not evaluations:
        raise DataError("a curve must be of at least one seed; got none.")
    settings = evaluations[0].budgets
    for i, other in enumerate(evaluations):
        if not np.array_equal(other.budgets, settings):
            raise DataError(f"budgets must be the same for all seeds; those of [{i}] differ.")
    cost, reward = (
        [Interval(*(getattr(e, f"{name}_{end}") for end in Interval._fields)) for e in evaluations]
        for name in ("dial_cost", "discounted_reward")
    )
    return _curve(label, settings, cost, reward)


def bare_curve(label: str, settings: ArrayLike, cost: ArrayLike, reward: ArrayLike) -> Curve:
    """Returns a curve without intervals, such as a forecast."""
    means = [np.asarray(values, np.float64) for values in (settings, cost, reward)]
    unknown = np.full(len(means[0]), np.nan)
    cost_of, reward_of = (Interval(mean, unknown, unknown) for mean in means[1:])
    return _curve(label, means[0], [cost_of], [reward_of])


def foretold_curve(budgets: FloatArray, said: Mapping[str, Any]) -> Curve:
    """Returns a forecast at budgets, with intervals if it has some.

    Args:
        budgets: `[M]`.
        said: columns of the forecast: `budgets`, `cost`, `reward`, and ends such as `cost_low`.
    """

    def at_budgets(name: str) -> FloatArray:
        values = np.array(said.get(name) or np.full(len(said["budgets"]), np.nan), np.float64)
        return np.interp(budgets, said["budgets"], values)

    cost, reward = (
        Interval(*(at_budgets(name + end) for end in ("", "_low", "_high")))
        for name in ("cost", "reward")
    )
    return _curve("forecast", budgets, [cost], [reward])


def bands(curve: Curve) -> str:
    """Returns what the intervals of a curve mean."""
    return {
        "seeds": f"Student's 95 % intervals over {curve.n_seeds} seeds of each seed's mean, each "
        "by itself",
        "episodes": "95 % intervals over the episodes of one seed, each by itself",
        "published": "1.96 standard errors over 4 or 5 seeds (on the road, a number that is not "
        "known) of each seed's mean, as published",
    }[curve.over]


def _curve(
    label: str, settings: FloatArray, cost: Sequence[Interval], reward: Sequence[Interval]
) -> Curve:
    by_seed = [np.stack([interval.mean for interval in found]) for found in (cost, reward)]
    if len(cost) == 1:
        return Curve(label, settings, cost[0], reward[0], "episodes", 1, *by_seed)
    costs, rewards = (mean_interval(means.T, confidence=CONFIDENCE) for means in by_seed)
    return Curve(label, settings, costs, rewards, "seeds", len(cost), *by_seed)
