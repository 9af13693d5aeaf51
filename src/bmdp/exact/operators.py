"""The two Bellman operators of budgeted Q-functions, on tables.

A budgeted Q-function has a reward and a cost, each a table `[S, A, B]`: entry (s, a, b) is what
playing a at s and then holding budget `beta_grid[b]` promises. It does not depend on the budget
held at s, so the points of all actions and next budgets at a state have one frontier, which serves
every budget.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from bmdp.arrays import MAGNITUDE, FloatArray, real_array, require_finite
from bmdp.errors import BudgetError
from bmdp.exact.model import FiniteBMDP
from bmdp.frontier import frontier_values


class QTables(NamedTuple):
    """A budgeted Q-function."""

    q_r: FloatArray  # [S, A, B]
    q_c: FloatArray  # [S, A, B]


def checked_grid(beta_grid: ArrayLike) -> FloatArray:
    """Returns a grid of budgets `[B]`, checked to be finite and strictly increasing.

    Raises:
        BudgetError: naming the first offending budget.
    """
    grid = real_array("beta_grid", beta_grid).astype(np.float64)
    if grid.ndim != 1 or len(grid) == 0:
        raise BudgetError(f"beta_grid must have shape [B]; got {list(grid.shape)}.")
    require_finite("beta_grid", grid, limit=MAGNITUDE, error=BudgetError)
    steps = np.flatnonzero(np.diff(grid) <= 0)
    if len(steps):
        i = int(steps[0]) + 1
        raise BudgetError(
            "beta_grid must be strictly increasing; "
            f"got {grid[i]:g} after {grid[i - 1]:g} at [{i}]."
        )
    return grid


def zero_q(model: FiniteBMDP, beta_grid: FloatArray) -> QTables:
    """The Q-function that promises nothing, where value iteration begins (Algorithm 1, line 1)."""
    zeros = np.zeros((*model.shape, len(beta_grid)))
    return QTables(zeros, zeros.copy())


def greedy_values(
    model: FiniteBMDP, q: QTables, beta_grid: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns reward and cost of the greedy policy at every state and budget, each `[S, B]`.

    Paper: the sum over a' in Eq. 11, with the greedy policy of Eq. 12 as Algorithm 3 finds it.
    """
    costs, rewards = (t.reshape(model.n_states, -1) for t in (q.q_c, q.q_r))
    return frontier_values(costs, rewards, beta_grid)


def backup(model: FiniteBMDP, v_r: FloatArray, v_c: FloatArray) -> QTables:
    """Returns R + gamma P V, tables `[S, A, B]`, given values `[S, B]` at the next state.

    Terminal states are worth nothing, whatever is given for them.
    """
    live = ~model.terminal[:, None]
    q_r, q_c = model.expected_next(v_r * live), model.expected_next(v_c * live)
    q_r *= model.gamma
    q_r += model.reward[:, :, None]
    q_c *= model.cost_gamma
    q_c += model.cost[:, :, None]
    return QTables(q_r, q_c)


def optimality_operator(model: FiniteBMDP, q: QTables, beta_grid: FloatArray) -> QTables:
    """Applies T, the budgeted Bellman optimality operator.

    Paper: Eq. 11. T is no contraction (Theorem 2).
    """
    return backup(model, *greedy_values(model, q, beta_grid))


def expectation_operator(model: FiniteBMDP, q: QTables, policy: sparse.csr_array) -> QTables:
    """Applies T^pi, the budgeted Bellman expectation operator of a policy.

    Args:
        model: the BMDP.
        q: tables `[S, A, B]`.
        policy: probabilities `[S*B, S*A*B]`, row s*B + b over columns (s*A + a)*B + b', zero at
            other states: at state s with budget b, play a and hold b'.

    Paper: Eq. 6. T^pi is a gamma-contraction (Proposition 1).
    """
    n_budgets = q.q_r.shape[2]
    v_r, v_c = ((policy @ t.reshape(-1)).reshape(model.n_states, n_budgets) for t in q)
    return backup(model, v_r, v_c)


def distance(left: QTables, right: QTables) -> float:
    """Largest absolute difference of two Q-functions, rewards and costs alike."""
    return max(float(abs(a - b).max()) for a, b in zip(left, right, strict=True))
