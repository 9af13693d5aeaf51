"""The geometry of one state: points in the (cost, reward) plane, and mixtures of them.

A point is what one augmented action (a, beta_a) promises: x = Q_c, y = Q_r. A mixture of actions
promises the mixture of their points, so all that a policy can get at a state is the convex hull,
and all that it should want is the hull's upper left part: the *frontier*, concave and increasing
from the cheapest point (best paid, on a tie) to the best-paid point (cheapest, on a tie).

For a budget beta between two neighbouring vertices the best mixture plays these two, so that its
expected cost is beta. Below the cheapest vertex no mixture is affordable, above the last one
nothing better can be bought.

This module is exact: which points are vertices is decided without rounding errors, at any scale. It
is the reference for the batched modules, which decide in floating point.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import overload

import numpy as np
from numpy.typing import ArrayLike

from bmdp.arrays import FloatArray, IntArray, read_only, real_array, require_finite, require_shape
from bmdp.errors import BudgetError, DataError
from bmdp.kinds import checked

_ROUNDING = 4 * np.finfo(np.float64).eps  # of a cross product of differences, over its two terms
_TINY = np.finfo(np.float64).tiny  # products below this may have lost digits


class BudgetStatus(IntEnum):
    """Where a budget lies on a frontier: below it, on it, or beyond its top.

    >>> frontier = upper_frontier(costs=[0.2, 1.0], rewards=[0.0, 10.0])
    >>> [hull_mixture(frontier, beta).status.name for beta in (0.1, 0.6, 1.0)]
    ['INFEASIBLE', 'TIGHT', 'SLACK']
    """

    INFEASIBLE = 0
    """Below the cheapest vertex: that vertex is played, and costs more than the budget."""
    TIGHT = 1
    """Spent exactly."""
    SLACK = 2
    """At or above the last vertex: that vertex is played."""


@checked
@dataclass(frozen=True, eq=False)
class Frontier:
    """Vertices of an upper concave frontier, by rising cost.

    Costs and rewards are expected discounted ones: a budget is in the unit of costs.

    Paper: F_Q of Algorithm 3, line 3.
    """

    costs: FloatArray  # [K], strictly increasing
    rewards: FloatArray  # [K], strictly increasing, strictly concave in costs
    index: IntArray | None = None  # [K], positions among the points; None if there were none

    def __post_init__(self) -> None:
        """Checks the vertices and makes them read-only."""
        costs, rewards = _points("Frontier.costs", self.costs, "Frontier.rewards", self.rewards)
        for name, values in (("costs", costs), ("rewards", rewards)):
            steps = np.flatnonzero(values[1:] <= values[:-1])
            if len(steps):
                raise DataError(
                    f"Frontier.{name} must be strictly increasing; "
                    f"got {values[steps[0]]:g}, then {values[steps[0] + 1]:g} at [{steps[0] + 1}]."
                )
        x, y = costs.tolist(), rewards.tolist()
        for k in range(1, len(x) - 1):
            if not _is_above_chord((x[k], y[k]), (x[k - 1], y[k - 1]), (x[k + 1], y[k + 1])):
                raise DataError(
                    f"Frontier.rewards must be strictly concave in costs; vertex [{k}] is not "
                    "above the line between its neighbours. Use upper_frontier to drop such points."
                )
        object.__setattr__(self, "costs", read_only(costs))
        object.__setattr__(self, "rewards", read_only(rewards))
        if self.index is not None:
            index = np.asarray(self.index)
            require_shape("Frontier.index", index, costs.shape, "[K]")
            object.__setattr__(self, "index", read_only(index))

    def __len__(self) -> int:
        return len(self.costs)

    @overload
    def reward_at(self, cost: float) -> float: ...
    @overload
    def reward_at(self, cost: FloatArray) -> FloatArray: ...
    def reward_at(self, cost: float | FloatArray) -> float | FloatArray:
        """Returns the best expected reward for an expected cost of `cost` at most.

        That is minus infinity below the cheapest vertex, and the last reward above the last vertex.

        >>> upper_frontier([0, 1], [0, 10]).reward_at(np.array([-1, 0.5, 7])).tolist()
        [-inf, 5.0, 10.0]
        """
        budgets = real_array("cost", cost)
        if np.isnan(budgets).any():
            raise BudgetError("cost must be a number; got nan.")
        # Not np.interp: a slope may be too large or too small for a number.
        lower = (np.searchsorted(self.costs, budgets, "right") - 1).clip(0)
        upper = (lower + 1).clip(max=len(self) - 1)
        run = np.where(upper > lower, self.costs[upper] - self.costs[lower], 1)
        within = budgets.clip(self.costs[0], self.costs[-1])
        share = ((within - self.costs[lower]) / run).clip(0, 1)
        rewards = self.rewards[lower] + share * (self.rewards[upper] - self.rewards[lower])
        rewards = np.where(budgets < self.costs[0], -np.inf, rewards)
        return float(rewards) if np.ndim(cost) == 0 else rewards


@checked
@dataclass(frozen=True)
class Mixture:
    """Plays vertex `upper` with probability `p_upper`, else vertex `lower`.

    Paper: (a1, a2, p) of Algorithm 3, lines 4 to 8.

    >>> frontier = upper_frontier(costs=[0.0, 0.5, 1.0], rewards=[0.0, 8.0, 10.0])
    >>> found = hull_mixture(frontier, 0.75)
    >>> found.lower, found.upper, found.p_upper, found.reward
    (1, 2, 0.5, 9.0)
    """

    lower: int  # number of a vertex of the frontier
    upper: int  # the next one, or the same
    p_upper: float  # from 0 to 1
    status: BudgetStatus  # of the budget
    cost: float  # expected
    reward: float  # expected


@checked
def upper_frontier(costs: ArrayLike, rewards: ArrayLike) -> Frontier:
    """Returns the upper concave frontier of `K` points.

    Vertices are exact: no point lies above the frontier, and none of its vertices on a line between
    two others.

    Args:
        costs: x of the points, `[K]`, in any order.
        rewards: y of the points, `[K]`.

    Returns:
        The vertices, with their positions among the points (the lowest, of equal points).

    Raises:
        DataError: if there is no point, or shapes differ, or a value is not finite.

    Paper: Algorithm 3, lines 1 to 3.

    >>> frontier = upper_frontier(costs=[0.0, 0.0, 1.0, 0.5], rewards=[0.0, 1.0, 3.0, 1.5])
    >>> frontier.costs.tolist(), frontier.rewards.tolist(), frontier.index.tolist()
    ([0.0, 1.0], [1.0, 3.0], [1, 2])
    """
    costs, rewards = _points("costs", costs, "rewards", rewards)
    x, y = costs.tolist(), rewards.tolist()
    kept: list[int] = []
    for i in np.lexsort((-rewards, costs)).tolist():  # cheapest first; of those, best paid first
        if kept and y[i] <= y[kept[-1]]:
            continue  # another point costs no more and pays no less
        while len(kept) > 1:
            left, middle = kept[-2], kept[-1]
            if _is_above_chord((x[middle], y[middle]), (x[left], y[left]), (x[i], y[i])):
                break
            kept.pop()
        kept.append(i)
    index = np.array(kept, dtype=np.int64)
    return Frontier(costs[index], rewards[index], index)


@checked
def hull_mixture(frontier: Frontier, beta: float) -> Mixture:
    """Returns the best-paid mixture of vertices whose expected cost is within `beta`.

    Between neighbouring vertices q1, q2 with q1.cost <= beta < q2.cost it plays q2 with probability
    (beta - q1.cost) / (q2.cost - q1.cost): the budget is spent exactly.

    Args:
        frontier: what the state offers.
        beta: the budget held, in the unit of costs, and compared with them in their own precision.

    Raises:
        BudgetError: if `beta` is not a finite number.

    Paper: Algorithm 3, lines 4 to 8, which is the greedy policy of Eq. 12 by Proposition 3.
    Differs: below the cheapest vertex that vertex is returned, INFEASIBLE; the last line of the
        printed algorithm would return the most expensive one.

    >>> hull_mixture(upper_frontier([0, 1], [0, 10]), 0.25)
    Mixture(lower=0, upper=1, p_upper=0.25, status=<BudgetStatus.TIGHT: 1>, cost=0.25, reward=2.5)
    """
    held = np.asarray(real_array("beta", beta), frontier.costs.dtype)
    require_shape("beta", held, (), "[]")
    require_finite("beta", held, error=BudgetError)
    budget = float(held)
    x, y = frontier.costs.tolist(), frontier.rewards.tolist()
    n_affordable = int(np.searchsorted(frontier.costs, held, side="right"))
    if n_affordable == 0:
        return Mixture(0, 0, 0.0, BudgetStatus.INFEASIBLE, x[0], y[0])
    lower = n_affordable - 1
    if n_affordable == len(x):
        return Mixture(lower, lower, 0.0, BudgetStatus.SLACK, x[lower], y[lower])
    p_upper = (budget - x[lower]) / (x[lower + 1] - x[lower])
    reward = y[lower] + p_upper * (y[lower + 1] - y[lower])
    return Mixture(lower, lower + 1, p_upper, BudgetStatus.TIGHT, budget, reward)


def _points(
    cost_name: str, costs: ArrayLike, reward_name: str, rewards: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Checks `K` points and gives both coordinates the same precision."""
    x, y = real_array(cost_name, costs), real_array(reward_name, rewards)
    require_shape(cost_name, x, (None,), "[K]")
    require_shape(reward_name, y, x.shape, "[K]")
    if x.size == 0:
        raise DataError(f"{cost_name} must have at least one point; got shape [0].")
    require_finite(cost_name, x)
    require_finite(reward_name, y)
    both = np.result_type(x, y)
    return x.astype(both, copy=False), y.astype(both, copy=False)


def _is_above_chord(
    point: tuple[float, float], left: tuple[float, float], right: tuple[float, float]
) -> bool:
    """Whether a point lies strictly above the line from `left` to `right`, exactly.

    Decided in floating point where rounding cannot change the answer, else in fractions.
    """
    (x, y), (x0, y0), (x1, y1) = point, left, right
    rise, line = (y - y0) * (x1 - x0), (y1 - y0) * (x - x0)
    if abs(rise - line) > _ROUNDING * (abs(rise) + abs(line)) + _TINY:
        return rise > line
    fx0, fy0 = Fraction(x0), Fraction(y0)
    return (Fraction(y) - fy0) * (Fraction(x1) - fx0) > (Fraction(y1) - fy0) * (Fraction(x) - fx0)
