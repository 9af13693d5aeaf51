"""The greedy policy of a budgeted Q-function: the mixture that spends the budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import FloatArray, IntArray, read_only, real_array, require_finite, require_shape
from bmdp.errors import DataError
from bmdp.frontier import Frontier, Mixtures, best_mixtures, mixtures_at, upper_frontier
from bmdp.policies.decisions import Decision, Decisions, Options
from bmdp.policies.greedy import PLAIN, GreedyRule
from bmdp.policies.protocol import OneStepPolicy
from bmdp.policies.stored import storable

QFunction: TypeAlias = Callable[[NDArray[Any]], tuple[FloatArray, FloatArray]]
"""From states `[N, ...]` to (q_r, q_c), each `[N, A, B]`, the last axis being the budget handed
on."""


@storable
@dataclass(frozen=True, eq=False)
class TabularQ:
    """Q-values of a finite model, a table of each. States are whole numbers.

    Q_r is in rewards, Q_c in costs, both expected and discounted.

    >>> q = TabularQ(q_r=[[[0.0], [10.0]], [[0.0], [1.0]]], q_c=[[[0.0], [1.0]], [[0.0], [1.0]]])
    >>> q_r, q_c = q(np.array([1]))
    >>> q_r.tolist(), q_c.tolist()
    ([[[0.0], [1.0]]], [[[0.0], [1.0]]])
    """

    q_r: FloatArray  # [S, A, B]
    q_c: FloatArray  # [S, A, B]

    def __post_init__(self) -> None:
        """Checks the tables and makes them read-only."""
        q_r, q_c = real_array("TabularQ.q_r", self.q_r), real_array("TabularQ.q_c", self.q_c)
        require_shape("TabularQ.q_r", q_r, (None, None, None), "[S, A, B]")
        require_shape("TabularQ.q_c", q_c, q_r.shape, "[S, A, B]")
        require_finite("TabularQ.q_r", q_r)
        require_finite("TabularQ.q_c", q_c)
        object.__setattr__(self, "q_r", read_only(q_r))
        object.__setattr__(self, "q_c", read_only(q_c))

    def __call__(self, states: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c) of the states `[N]`, each `[N, A, B]`."""
        rows = _state_numbers(states, len(self.q_r))
        return self.q_r[rows], self.q_c[rows]


@storable
@dataclass(frozen=True, eq=False)
class HullPolicy(OneStepPolicy):
    """Plays the best mixture of augmented actions (a, beta_a) that the budget affords.

    Any Q-function will do: a table, or a function of continuous states.

    Paper: Algorithm 3, which is the greedy policy of Eq. 12 by Proposition 3.
    Differs: a budget below the frontier plays the cheapest augmented action (status INFEASIBLE).

    >>> q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    >>> policy = HullPolicy(q, beta_grid=[0.0, 1.0])
    >>> policy.options(np.array([0]), np.array([0.25])).probability.tolist()
    [[0.75, 0.25]]
    >>> policy.frontier(0).reward_at(0.25)
    2.5
    """

    q_function: QFunction  # from states [N, ...] to (q_r, q_c), each [N, A, B]
    beta_grid: FloatArray  # [B], budgets that can be handed on, rising
    rule: GreedyRule = PLAIN  # how Q-values become points

    def __post_init__(self) -> None:
        """Checks the grid and makes it read-only."""
        grid = real_array("HullPolicy.beta_grid", self.beta_grid).astype(np.float64)
        require_shape("HullPolicy.beta_grid", grid, (None,), "[B]")
        require_finite("HullPolicy.beta_grid", grid)
        if len(grid) == 0 or (np.diff(grid) <= 0).any():
            raise DataError("HullPolicy.beta_grid must hold at least one budget and rise strictly.")
        object.__setattr__(self, "beta_grid", read_only(grid))

    @property
    def budget_range(self) -> tuple[float, float]:
        """Ends of the grid."""
        return float(self.beta_grid[0]), float(self.beta_grid[-1])

    @property
    def n_draws(self) -> int:
        """One: which of the two vertices is played."""
        return 1

    def choose(self, states: NDArray[Any], budgets: FloatArray, uniforms: FloatArray) -> Decisions:
        """Draws from the best mixture at each state."""
        mixtures = best_mixtures(*self._points(states), budgets)
        point = np.where(uniforms[:, 0] < mixtures.p_upper, mixtures.upper, mixtures.lower)
        return Decision(*augmented_actions(point, self.beta_grid), mixtures.status)

    def options(self, states: NDArray[Any], budgets: FloatArray) -> Options:
        """Returns the two augmented actions of each mixture, and their probabilities."""
        return self._options(best_mixtures(*self._points(states), budgets))

    def options_at(self, states: NDArray[Any], budgets: FloatArray) -> Options:
        """Returns the mixtures of each state at all budgets `[L]`, from its one frontier."""
        return self._options(mixtures_at(*self._points(states), budgets))

    def frontier(self, state: ArrayLike) -> Frontier:
        """Returns what the policy expects to be able to get; `index` is a * B + b of a vertex."""
        costs, rewards = self._points(np.asarray(state)[None])
        return upper_frontier(costs[0], rewards[0])

    def _options(self, found: Mixtures[NDArray[Any]]) -> Options:
        """Both augmented actions of each mixture, on a new last axis."""
        points = np.stack((found.lower, found.upper), axis=-1)
        chances = np.stack((1 - found.p_upper, found.p_upper), axis=-1)
        return Options(*augmented_actions(points, self.beta_grid), chances)

    def _points(self, states: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Costs and rewards of all augmented actions, `[N, A * B]`."""
        q_r, q_c = self.q_function(states)
        wanted = (len(states), None, len(self.beta_grid))
        require_shape("q_r", q_r, wanted, f"[{len(states)}, A, {len(self.beta_grid)}]")
        require_shape("q_c", q_c, q_r.shape, "of q_r")
        return self.rule.points(q_r, q_c)


def augmented_actions(points: IntArray, beta_grid: FloatArray) -> tuple[IntArray, FloatArray]:
    """Actions and next budgets of points, which are numbered a * B + b."""
    return points // len(beta_grid), beta_grid[points % len(beta_grid)]


def _state_numbers(states: NDArray[Any], n_states: int) -> IntArray:
    """Checks the numbers of states of a finite model."""
    require_shape("states", states, (None,), "[N]")
    if states.dtype.kind not in "iu":
        raise DataError(f"states must be whole numbers; got type {states.dtype}.")
    outside = np.flatnonzero((states < 0) | (states >= n_states))
    if len(outside):
        i = int(outside[0])
        raise DataError(f"states must be from 0 to {n_states - 1}; got {states[i]} at [{i}].")
    return states
