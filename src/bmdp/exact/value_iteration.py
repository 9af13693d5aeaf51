"""Budgeted value iteration (Algorithm 1): apply T to Q = 0, again and again.

T is no contraction (Theorem 2), so neither that it converges nor what it converges to is
guaranteed. The result says how it went: all residuals, and whether the last was small enough. Where
there is a horizon of H steps, H applications give the values exactly, one Q-function for each step
to go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bmdp.arrays import FloatArray, read_only
from bmdp.errors import ConfigError, ConvergenceError
from bmdp.exact.model import FiniteBMDP
from bmdp.exact.operators import QTables, checked_grid, distance, optimality_operator, zero_q
from bmdp.frontier import Frontier
from bmdp.kinds import checked
from bmdp.policies.hull import HullPolicy, TabularQ


@checked
@dataclass(frozen=True, eq=False)
class Solution:
    """The Q-function of budgeted value iteration, its residuals, and whether it converged.

    Paper: Q* of Algorithm 1.

    >>> from bmdp.exact.textbook import branches
    >>> solution = budgeted_value_iteration(branches().model, [0.0, 0.5, 1.0])
    >>> solution.residuals.tolist(), solution.q_r.shape
    ([10.0, 5.5, 0.0], (4, 2, 3))
    >>> solution.policy().frontier(0).rewards.tolist()
    [0.0, 5.5]
    """

    q_r: FloatArray  # [S, A, B], at the first step
    q_c: FloatArray  # [S, A, B], expected discounted cost
    beta_grid: FloatArray  # [B], budgets that can be handed on
    residuals: FloatArray  # [iterations], largest change of a Q-value in each
    converged: bool  # whether the last of them was small enough
    stages: QTables | None = None  # [H, S, A, B] each, if there is a horizon

    def policy(self) -> HullPolicy:
        """Returns the greedy policy; with a horizon, one that counts steps.

        >>> from bmdp.exact.textbook import payments
        >>> policy = budgeted_value_iteration(payments(2).model, [0.0, 0.5, 1.0, 1.5]).policy()
        >>> [policy.frontier(0, step).costs.tolist() for step in (0, 1)]
        [[0.0, 0.5, 1.5], [0.0, 1.0]]
        """
        tables = (self.q_r, self.q_c) if self.stages is None else self.stages
        return HullPolicy(TabularQ(*tables), self.beta_grid)

    def frontier(self, state: int) -> Frontier:
        """Returns the frontier that the solution promises from a state."""
        return HullPolicy(TabularQ(self.q_r, self.q_c), self.beta_grid).frontier(state)

    def raise_for_convergence(self) -> None:
        """Raises if the iteration stopped early.

        Raises:
            ConvergenceError: with the last residual.
        """
        if not self.converged:
            raise ConvergenceError(
                "Budgeted value iteration did not converge: residual "
                f"{self.residuals[-1]:.3g} after {len(self.residuals)} iterations. The operator is "
                "not a contraction in general (Theorem 2); see Solution.residuals."
            )


@checked
def budgeted_value_iteration(
    model: FiniteBMDP,
    beta_grid: ArrayLike,
    *,
    tol: float = 1e-8,
    max_iterations: int = 10_000,
    progress: Callable[[int, float], None] | None = None,
) -> Solution:
    """Solves a finite BMDP by the paper's budgeted value iteration: the limit of T^k 0.

    Args:
        model: the BMDP.
        beta_grid: budgets `[B]` that can be held, rising, in expected discounted cost. It should
            span the costs of all states: see `cost_range`.
        tol: stops when no Q-value changes by more.
        max_iterations: stops then, converged or not.
        progress: called with the number of each iteration and its residual.

    Returns:
        Solution. With a horizon of H it takes H iterations, and has converged if it could.

    Raises:
        BudgetError: if the grid does not rise, or is not finite.

    Paper: Algorithm 1; "until convergence" is read as a change of at most `tol` in the sup norm.

    >>> from bmdp.exact.textbook import branches
    >>> solution = budgeted_value_iteration(branches().model, [0.0, 0.5, 1.0], tol=1e-9)
    >>> solution.converged, float(solution.frontier(0).reward_at(0.5))
    (True, 2.75)
    """
    grid = checked_grid(beta_grid)
    if not tol >= 0 or max_iterations < 1:
        raise ConfigError(
            f"tol must be from 0 on and max_iterations from 1 on; got {tol} and {max_iterations}."
        )
    n_steps = max_iterations if model.horizon is None else min(model.horizon, max_iterations)
    q = zero_q(model, grid)
    residuals: list[float] = []
    stages: list[QTables] = []
    converged = False
    while len(residuals) < n_steps and not converged:
        following = optimality_operator(model, q, grid)
        residuals.append(distance(following, q))
        q = following
        if model.horizon is None:
            converged = residuals[-1] <= tol
        else:
            stages.insert(0, q)
            converged = len(stages) == model.horizon
        if progress is not None:
            progress(len(residuals), residuals[-1])
    by_step = QTables(*(np.stack(t) for t in zip(*stages, strict=True))) if stages else None
    return Solution(q.q_r, q.q_c, grid, read_only(np.array(residuals)), converged, by_step)
