"""The random budgeted policy: random actions and random next budgets, within the budget on average.

The paper asks for distributions rho of (a, beta_a) with E[beta_a] <= beta, drawn uniformly from the
simplex that they form, cut by that condition. Taken over a fine grid of budgets such draws are all
alike: with A actions and B budgets the mean budget of a uniform rho has standard deviation 0.29 /
sqrt(A B) or so, 0.013 for 5 actions and 101 budgets, so nearly the same rho comes out each time,
and next budgets gather in the middle of the range.

This policy draws uniformly from the same simplex over the two *end* budgets, low and high, and then
hands on, with action a, the mean budget that rho gives to a. Written out, for t = (beta - low) /
(high - low):

    (x, y)  uniform on { x, y >= 0 in R^A : sum x + sum y = 1 }, where s = sum x is
            s <= t with spend="at_most", or s = t with spend="all"
    a       drawn with probability p_a = x_a + y_a
    beta_a  = low + (high - low) x_a / p_a

so E[beta_a] = low + (high - low) s, at most beta in every draw. Without the cut, p has the law
Dirichlet(2, ..., 2) and the budgets are uniform on the range, independent of p and of each other.
Given s, x / s and y / (1 - s) are uniform on the simplex of actions and independent; s has the law
Beta(A, A), cut at t.

spend="at_most" is the paper's text. Under it the mean budget shrinks at every step. spend="all",
the default, keeps it: the budgets of an episode are a martingale, as in the authors' own
experiments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv

from bmdp.arrays import BoolArray, FloatArray, require_shape
from bmdp.checks import require_choice, require_count, require_rising
from bmdp.frontier import BudgetStatus
from bmdp.kinds import checked
from bmdp.policies.policy import Decision, Decisions, OneStepPolicy
from bmdp.storage import storable

SPENDS = ("all", "at_most")
_MOST_ACTIONS = 2**16


@checked
@storable
@dataclass(frozen=True)
class RandomBudgetedPolicy(OneStepPolicy):
    """Acts at random at any state, so that the mean next budget is within the budget.

    Paper: pi_rand of Section 3.2 and Algorithm 4, "Explore".
    Differs: uniform over the two end budgets rather than over a grid of them (see the module).

    >>> states, budgets = np.zeros(20_000), np.full(20_000, 0.5)
    >>> for spend in ("all", "at_most"):
    ...     policy = RandomBudgetedPolicy(2, low=0.0, high=1.0, spend=spend)
    ...     found = policy.decide(states, budgets, np.random.default_rng(0))
    ...     print(found.next_budget.mean().round(2))
    0.5
    0.31
    """

    n_actions: int  # A, from 1 on
    low: float  # least budget
    high: float  # largest budget
    spend: Literal["all", "at_most"] = "all"  # whether the mean next budget is the one held

    takes_masks = True

    def __post_init__(self) -> None:
        require_count("n_actions", self.n_actions, 1, _MOST_ACTIONS)
        require_rising("low and high", (self.low, self.high))
        require_choice("spend", self.spend, SPENDS)

    @property
    def budget_range(self) -> tuple[float, float]:
        """From `low` to `high`."""
        return self.low, self.high

    @property
    def n_draws(self) -> int:
        """One for s, one for each x and each y, one for the action."""
        return 2 * self.n_actions + 2

    def distributions(
        self, budgets: FloatArray, uniforms: FloatArray, available: BoolArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Returns a random distribution for each budget: p and beta_a, each `[N, A]`.

        It is one over the available actions, if these are given; those of others are 0.
        """
        share = (budgets - self.low) / (self.high - self.low)
        if self.spend == "at_most":
            n = self.n_actions if available is None else available.sum(axis=1)
            share = _cut_beta(n, share, uniforms[:, 0])
        exponentials = -np.log1p(-uniforms[:, 1:-1])  # normalised, uniform on the simplex
        if available is not None:
            require_shape("available", available, (len(budgets), self.n_actions), "[N, A]")
            exponentials = np.tile(available, 2) * exponentials
        x, y = exponentials[:, : self.n_actions], exponentials[:, self.n_actions :]
        x = share[:, None] * x / x.sum(1, keepdims=True)
        y = (1 - share)[:, None] * y / y.sum(1, keepdims=True)
        probabilities = x + y
        some = probabilities if available is None else np.where(available, probabilities, 1.0)
        next_budgets = (self.low * y + self.high * x) / some
        return probabilities, np.clip(next_budgets, self.low, self.high)  # rounding aside

    def choose(
        self,
        states: NDArray[Any],
        budgets: FloatArray,
        uniforms: FloatArray,
        available: BoolArray | None = None,
    ) -> Decisions:
        """Draws a distribution for each row, then an action and its budget from it."""
        probabilities, next_budgets = self.distributions(budgets, uniforms, available)
        below = np.cumsum(probabilities, axis=1) <= uniforms[:, -1:]
        last: Any = self.n_actions - 1
        if available is not None:
            last = last - available[:, ::-1].argmax(axis=1)
        action = np.minimum(below.sum(1), last)
        status = np.full(len(budgets), BudgetStatus.TIGHT, np.int8)
        return Decision(action, next_budgets[np.arange(len(action)), action], status)


@checked
@storable
@dataclass(frozen=True)
class UniformPolicy(OneStepPolicy):
    """Plays every action with the same chance, and hands the budget on as it is.

    >>> UniformPolicy(3, 0.0, 1.0).decide([0, 0], 0.5, np.random.default_rng(0)).action.tolist()
    [1, 0]
    """

    n_actions: int  # A, from 1 on
    low: float  # least budget
    high: float  # largest budget

    takes_masks = True

    def __post_init__(self) -> None:
        require_count("n_actions", self.n_actions, 1, _MOST_ACTIONS)
        require_rising("low and high", (self.low, self.high))

    @property
    def budget_range(self) -> tuple[float, float]:
        """From `low` to `high`."""
        return self.low, self.high

    @property
    def n_draws(self) -> int:
        """One, for the action."""
        return 1

    def choose(
        self,
        states: NDArray[Any],
        budgets: FloatArray,
        uniforms: FloatArray,
        available: BoolArray | None = None,
    ) -> Decisions:
        """Draws actions."""
        n: Any = self.n_actions
        if available is not None:
            require_shape("available", available, (len(budgets), self.n_actions), "[N, A]")
            n = available.sum(axis=1)
        action = np.minimum((uniforms[:, 0] * n).astype(np.int64), n - 1)
        if available is not None:  # that number of those that are there
            action = (np.cumsum(available, axis=1) > action[:, None]).argmax(axis=1)
        return Decision(action, budgets, np.full(len(action), BudgetStatus.TIGHT, np.int8))


def _cut_beta(n: Any, cut: FloatArray, uniforms: FloatArray) -> FloatArray:
    """Numbers of law Beta(n, n), conditioned to be `cut` at most, by inversion."""
    drawn: FloatArray = betaincinv(n, n, uniforms * betainc(n, n, cut))
    return np.minimum(drawn, cut)
