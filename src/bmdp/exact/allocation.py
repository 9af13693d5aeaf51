"""Budgets that depend on the next state: the optimal frontier of every state, and how to follow it.

Boutilier and Lu (UAI 2016) give each state s a concave, piecewise linear frontier V_s: the most
reward that a budget buys from there. Playing action a at s with budget beta leaves (beta - cost) /
gamma to be handed out among the next states, in expectation. The best way to do so fills the
steepest edges first, over all next states together: the frontier of (s, a) is the Minkowski sum of
the frontiers V_s', scaled by gamma P(s' | s, a), which has the edges of all of them by falling
slope. V_s is the upper frontier of all actions' frontiers.

Each iteration from some policy's values is the frontier of policies that can be played. For every
price lambda the best value of reward - lambda cost obeys the ordinary Bellman equation, so the
iteration contracts, unlike the paper's operator. Vertices multiply with each iteration, and most
of them are within a hair of their neighbours' chord: those are dropped, always to the inside.

Distances are measured as reward - lambda cost, over 1 + lambda, at the worst lambda.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bmdp.arrays import FloatArray, read_only
from bmdp.checks import require_count
from bmdp.errors import ConfigError, ConvergenceError
from bmdp.exact.allocation_policy import AllocationPolicy
from bmdp.exact.minkowski import Dynamics, Frontiers, backup, distance, dynamics_of
from bmdp.exact.model import FiniteBMDP
from bmdp.exact.multiplier import best_paid_policy, cheapest_policy
from bmdp.frontier import Frontier, upper_frontier
from bmdp.kinds import checked


@checked
@dataclass(frozen=True, eq=False)
class AllocationSolution:
    """The optimal frontier of every state.

    >>> from bmdp.exact.textbook import branches
    >>> solution = allocate_budgets(branches().model)
    >>> solution.converged, solution.frontier(0).rewards.tolist()
    (True, [0.0, 5.0, 5.5])
    """

    stages: tuple[Frontiers, ...]  # one for each step; a single one without a horizon
    dynamics: Dynamics = field(repr=False)  # the model, as the solver has it
    residuals: FloatArray  # [iterations], largest change of a frontier
    converged: bool  # whether it came to its end
    error: float  # bound on the distance to the optimum; 0 with a horizon, else inf if gamma is 1

    def frontier(self, state: int) -> Frontier:
        """Returns the optimal frontier of a state at the first step."""
        first, costs, rewards = self.stages[0]
        if not 0 <= state < len(first) - 1:
            raise ConfigError(f"state must be from 0 to {len(first) - 2}; got {state}.")
        mine = slice(first[state], first[state + 1])
        found = upper_frontier(costs[mine], rewards[mine])
        return Frontier(found.costs, found.rewards)

    def policy(self) -> AllocationPolicy:
        """Returns the policy that follows the frontiers, in episode form."""
        n_vertices = [len(stage.costs) for stage in self.stages]
        return AllocationPolicy(
            *self.dynamics,
            first=np.stack([stage.first for stage in self.stages]),
            stage_start=np.concatenate(([0], np.cumsum(n_vertices))),
            vertex_cost=np.concatenate([stage.costs for stage in self.stages]),
            vertex_reward=np.concatenate([stage.rewards for stage in self.stages]),
        )

    def raise_for_convergence(self) -> None:
        """Raises if the iteration stopped early.

        Raises:
            ConvergenceError: with the last residual.
        """
        if not self.converged:
            raise ConvergenceError(
                f"Budget allocation did not converge: residual {self.residuals[-1]:.3g} after "
                f"{len(self.residuals)} iterations."
            )


@checked
def allocate_budgets(
    model: FiniteBMDP,
    *,
    horizon: int | None = None,
    tol: float = 1e-8,
    max_iterations: int = 100_000,
    progress: Callable[[int, float], None] | None = None,
) -> AllocationSolution:
    """Returns the optimal frontier of every state, and with it budgets for every next state.

    Args:
        model: the BMDP.
        horizon: number of steps, if not that of the model. With one, frontiers are exact.
        tol: largest distance to the optimum, without a horizon and if gamma is below 1.
        max_iterations: stops then, converged or not.
        progress: called with the number of each iteration and its residual.

    Returns:
        AllocationSolution, whose policy spends less where that is worth little and more where it
        pays, which the paper's operator cannot.

    >>> from bmdp.exact.textbook import branches
    >>> allocate_budgets(branches().model).frontier(0).reward_at(0.5)
    5.0
    """
    require_count("max_iterations", max_iterations, 1)
    if horizon is not None:
        require_count("horizon", horizon, 1)
    if not tol > 0:
        raise ConfigError(f"tol must be above 0; got {tol}.")
    dynamics = dynamics_of(model)
    steps = model.horizon if horizon is None else horizon
    if steps is not None:
        return _finite(dynamics, steps, max_iterations, progress)
    loss = (1 - model.gamma) / 2 if model.gamma < 1 else 1e-3  # share of tol for each source
    now, converged = _played(model), False
    residuals: list[float] = []
    while len(residuals) < max_iterations and not converged:
        following = backup(now, dynamics, prune=loss * tol)
        residuals.append(distance(now, following))
        now = following
        converged = residuals[-1] <= loss * tol
        if progress is not None:
            progress(len(residuals), residuals[-1])
    error = np.inf
    if model.gamma < 1:
        error = (residuals[-1] * model.gamma + loss * tol) / (1 - model.gamma)
    return AllocationSolution((now,), dynamics, read_only(np.array(residuals)), converged, error)


def _finite(
    dynamics: Dynamics,
    steps: int,
    max_iterations: int,
    progress: Callable[[int, float], None] | None,
) -> AllocationSolution:
    """Backward induction, without pruning."""
    n_states = len(dynamics.reward)
    stages = [Frontiers(np.arange(n_states + 1), *np.zeros((2, n_states)))]
    residuals: list[float] = []
    while len(residuals) < min(steps, max_iterations):
        stages.insert(0, backup(stages[0], dynamics, prune=0.0))
        residuals.append(distance(stages[1], stages[0]))
        if progress is not None:
            progress(len(residuals), residuals[-1])
    done = len(residuals) == steps
    found = read_only(np.array(residuals))
    return AllocationSolution(tuple(stages), dynamics, found, done, 0.0 if done else np.inf)


def _played(model: FiniteBMDP) -> Frontiers:
    """Frontiers of two policies: the cheapest, and the best paid."""
    ends = cheapest_policy(model), best_paid_policy(model)
    points = [
        upper_frontier([p.v_c[s] for p in ends], [p.v_r[s] for p in ends])
        for s in range(model.n_states)
    ]
    first = np.concatenate(([0], np.cumsum([len(f) for f in points])))
    return Frontiers(
        first,
        np.concatenate([f.costs for f in points]),
        np.concatenate([f.rewards for f in points]),
    )
