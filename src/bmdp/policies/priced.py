"""The greedy policy of a price on cost: it has no dial, and hands every budget on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import FloatArray
from bmdp.frontier import BudgetStatus
from bmdp.policies.hull import QFunction
from bmdp.policies.protocol import Decision, Decisions, OneStepPolicy, Options
from bmdp.policies.stored import storable


@storable
@dataclass(frozen=True, eq=False)
class PricedPolicy(OneStepPolicy):
    """Plays the action of the most Q_r - price * Q_c, whatever the budget. Its status is SLACK.

    Paper: the Lagrangian baseline of Section 5; price 0 looks at rewards alone.
    """

    q_function: QFunction  # of one budget: (q_r, q_c) each [N, A, 1]
    price: float
    low: float = 0.0
    high: float = 1.0

    @property
    def budget_range(self) -> tuple[float, float]:
        """Budgets it takes, to no effect."""
        return self.low, self.high

    @property
    def n_draws(self) -> int:
        """It leaves nothing to chance."""
        return 0

    def choose(self, states: NDArray[Any], budgets: FloatArray, uniforms: FloatArray) -> Decisions:
        """Takes the best action."""
        q_r, q_c = self.q_function(states)
        actions = (q_r - self.price * q_c)[..., 0].argmax(axis=1)
        return Decision(actions, budgets.copy(), np.full(len(actions), BudgetStatus.SLACK, np.int8))

    def options(self, states: NDArray[Any], budgets: FloatArray) -> Options:
        """Returns the best action, and the budget as it is."""
        action, next_budget, _ = self.choose(states, budgets, np.empty((len(states), 0)))
        return Options(action[:, None], next_budget[:, None], np.ones((len(states), 1)))
