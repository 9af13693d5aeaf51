"""Two policies in one: epsilon-greedy, which chooses between them at every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from bmdp.arrays import FloatArray
from bmdp.errors import ConfigError
from bmdp.policies.decisions import Decisions, idle_decisions
from bmdp.policies.protocol import OneStepPolicy
from bmdp.policies.stored import storable


@storable
@dataclass(frozen=True)
class EpsilonGreedy(OneStepPolicy):
    """Follows `explorer` with probability `epsilon` at every step, else `greedy`.

    Paper: Algorithm 4, "Explore" and "Exploit".

    >>> import numpy as np
    >>> from bmdp.policies import HullPolicy, RandomBudgetedPolicy, TabularQ
    >>> q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    >>> safe, random = HullPolicy(q, beta_grid=[0.0, 1.0]), RandomBudgetedPolicy(2, 0.0, 1.0)
    >>> policy = EpsilonGreedy(safe, random, epsilon=0.1)
    >>> found = policy.decide(np.zeros(20_000, int), 0.0, np.random.default_rng(0))
    >>> found.action.mean().round(2).item()  # half of the random actions are the risky one
    0.05
    """

    greedy: OneStepPolicy  # followed else
    explorer: OneStepPolicy  # of the same budget_range
    epsilon: float  # from 0 to 1

    def __post_init__(self) -> None:
        """Checks that one can hand its budgets on to the other."""
        if not 0 <= self.epsilon <= 1:
            raise ConfigError(f"EpsilonGreedy.epsilon must be from 0 to 1; got {self.epsilon}.")
        if self.greedy.budget_range != self.explorer.budget_range:
            raise ConfigError(
                "EpsilonGreedy.explorer must have the budget_range of greedy, "
                f"{self.greedy.budget_range}; got {self.explorer.budget_range}."
            )

    @property
    def budget_range(self) -> tuple[float, float]:
        """That of both policies."""
        return self.greedy.budget_range

    @property
    def n_draws(self) -> int:
        """One for the choice between the two, and what either may need."""
        return 1 + self.greedy.n_draws + self.explorer.n_draws

    def choose(self, states: NDArray[Any], budgets: FloatArray, uniforms: FloatArray) -> Decisions:
        """Lets each row be decided by one of the two."""
        explores = uniforms[:, 0] < self.epsilon
        decision = idle_decisions(budgets)
        split = 1 + self.greedy.n_draws
        for policy, rows, draws in (
            (self.greedy, ~explores, uniforms[:, 1:split]),
            (self.explorer, explores, uniforms[:, split:]),
        ):
            chosen = policy.decide_from(states[rows], budgets[rows], draws[rows])
            for column, values in zip(decision, chosen, strict=True):
                column[rows] = values
        return decision
