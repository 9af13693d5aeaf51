"""Greedy policies of prices on cost: one price, or a dial that says which of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import FloatArray, IntArray, read_only, real_array, require_shape
from bmdp.checks import require_from_0
from bmdp.errors import ConfigError
from bmdp.frontier import BudgetStatus, Frontier, upper_frontier
from bmdp.policies.decisions import Decision, Decisions, Options
from bmdp.policies.hull import QFunction
from bmdp.policies.protocol import OneStepPolicy
from bmdp.policies.stored import storable


@storable
@dataclass(frozen=True, eq=False)
class PricedPolicy(OneStepPolicy):
    """Plays the action of the most Q_r - price * Q_c, whatever the budget. Its status is SLACK.

    Paper: the Lagrangian baseline of Section 5; price 0 looks at rewards alone.

    >>> from bmdp.policies import TabularQ
    >>> q, rng = TabularQ(q_r=[[[0.0], [10.0]]], q_c=[[[0.0], [1.0]]]), np.random.default_rng(0)
    >>> [PricedPolicy(q, price).act(0, 0.5, rng).action for price in (0.0, 20.0)]
    [1, 0]
    """

    q_function: QFunction  # of one budget: (q_r, q_c) each [N, A, 1]
    price: float  # lambda, in rewards for a unit of cost
    low: float = 0.0  # budgets it takes, to no effect
    high: float = 1.0  # the largest of them

    has_dial: ClassVar[bool] = False

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
        return _surely(self.choose(states, budgets, np.empty((len(states), 0))))


class PricedPoints(NamedTuple):
    """What the greedy policies of `M` prices do at states, and are thought to cost and earn."""

    actions: IntArray  # [N, M]
    costs: FloatArray  # [N, M]
    rewards: FloatArray  # [N, M]


@storable
@dataclass(frozen=True, eq=False)
class PriceDial(OneStepPolicy):
    """Many policies in one: the number on its dial, from 0 on, says which price is paid for cost.

    Prices fall, so that costs rise with the number; a number between two is rounded. What stands
    on the dial is handed on as it is. It is what portfolios and multipliers are made of, and can be
    measured for all prices at once, as one would measure budgets.

    Paper: the multipliers of the Lagrangian appendix.

    >>> from bmdp.policies import TabularQ
    >>> q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    >>> dial = PriceDial(q, prices=[20.0, 0.0])
    >>> dial.decide([0, 0], [0, 1], np.random.default_rng(0)).action.tolist()
    [0, 1]
    >>> dial.frontier(0).costs.tolist(), dial.frontier(0).rewards.tolist()
    ([0.0, 1.0], [0.0, 10.0])
    """

    q_function: QFunction  # (q_r, q_c) each [N, A, M]: each price has values of its own
    prices: FloatArray  # [M], falling; inf looks at costs first
    tolerance: float = 0.0  # at an infinite price, costs that are closer are equal

    def __post_init__(self) -> None:
        """Checks the prices and makes them read-only."""
        prices = real_array("PriceDial.prices", self.prices).astype(np.float64)
        require_shape("PriceDial.prices", prices, (None,), "[M]")
        if len(prices) == 0 or not (prices >= 0).all() or not (prices[1:] < prices[:-1]).all():
            raise ConfigError(
                f"PriceDial.prices must be from 0 on and fall strictly; got {prices.tolist()}."
            )
        require_from_0("PriceDial.tolerance", self.tolerance)
        object.__setattr__(self, "prices", read_only(prices))

    @property
    def budget_range(self) -> tuple[float, float]:
        """Numbers of the prices."""
        return 0.0, len(self.prices) - 1.0

    @property
    def n_draws(self) -> int:
        """It leaves nothing to chance."""
        return 0

    def points(self, states: NDArray[Any]) -> PricedPoints:
        """Returns what each price does at states, and what it is thought to cost and earn."""
        q_r, q_c = self.q_function(states)
        wanted = (len(states), None, len(self.prices))
        require_shape("q_r", q_r, wanted, f"[{len(states)}, A, {len(self.prices)}]")
        actions = best_actions(q_r, q_c, self.prices, self.tolerance)
        costs, rewards = (np.take_along_axis(q, actions[:, None], 1)[:, 0] for q in (q_c, q_r))
        return PricedPoints(actions, costs, rewards)

    def choose(self, states: NDArray[Any], budgets: FloatArray, uniforms: FloatArray) -> Decisions:
        """Takes the best action for the price on the dial."""
        numbers = np.rint(budgets).astype(np.int64)
        actions = self.points(states).actions[np.arange(len(numbers)), numbers]
        return Decision(actions, budgets.copy(), np.full(len(actions), BudgetStatus.SLACK, np.int8))

    def options(self, states: NDArray[Any], budgets: FloatArray) -> Options:
        """Returns the best action, and what is on the dial."""
        return _surely(self.choose(states, budgets, np.empty((len(states), 0))))

    def options_at(self, states: NDArray[Any], budgets: FloatArray) -> Options:
        """Returns the same for all numbers `[L]`, from one look at the values."""
        numbers = np.rint(budgets).astype(np.int64)
        actions = self.points(states).actions[:, numbers]
        handed_on = np.broadcast_to(budgets, actions.shape)
        return Options(actions[..., None], handed_on[..., None], np.ones((*actions.shape, 1)))

    def frontier(self, state: ArrayLike) -> Frontier:
        """Returns what prices are thought to earn and cost; `index` is the number of a price."""
        points = self.points(np.asarray(state)[None])
        return upper_frontier(points.costs[0], points.rewards[0])


def best_actions(q_r: Any, q_c: Any, prices: Any, tolerance: float) -> Any:
    """Actions `[N, M]` of the most q_r - price * q_c, of arrays or tensors `[N, A, M]`.

    At an infinite price, of those actions whose cost is within a tolerance of the least one, the
    best paid.

    >>> q_r, q_c = np.array([[[1.0], [2.0], [3.0]]]), np.array([[[0.0], [0.1], [0.5]]])
    >>> [int(best_actions(q_r, q_c, np.array([p]), 0.2)[0, 0]) for p in (0.0, 15.0, np.inf)]
    [2, 0, 1]
    """
    is_infinite = prices == np.inf
    finite = prices * 1
    finite[is_infinite] = 0
    worth = q_r - finite * q_c
    least = q_c.min(axis=1, keepdims=True) if isinstance(q_c, np.ndarray) else q_c.amin(1, True)
    worth[is_infinite & (q_c > least + tolerance)] = -np.inf
    return worth.argmax(1)


def _surely(decision: Decisions) -> Options:
    """A decision as the only option."""
    action, next_budget, _ = decision
    return Options(action[:, None], next_budget[:, None], np.ones((len(action), 1)))
