"""Policies of prices on cost: one price, a dial of several, and a price that is carried.

The greedy policy of a price (a Lagrange multiplier) plays the action of the most Q_r - price * Q_c.
`PriceDial` holds the policies of several prices, each with values of its own. `MultiplierPolicy`
chooses a price that spends the budget at the start, or tosses a coin between two neighbours on the
frontier of the state, and keeps it. The budget left at s' is then what the price is thought to cost
from there: a chance that turns out well is spent where it pays. Its optimum is that of the
constrained problem (Eq. 1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    read_only,
    real_array,
    require_finite,
    require_shape,
    rows_at,
)
from bmdp.checks import require_from_0, require_rising
from bmdp.errors import ConfigError
from bmdp.frontier import (
    BudgetStatus,
    Frontier,
    Mixtures,
    best_mixtures,
    mixtures_at,
    upper_frontier,
)
from bmdp.kinds import checked
from bmdp.policies.policy import (
    MOST_KEPT,
    Decision,
    Decisions,
    EpisodeTracker,
    Options,
    Policy,
    QFunction,
    QPolicy,
    Randomness,
    admitted_mask,
    cell_values,
    cells_of,
    episode_streams,
    idle_decisions,
    require_heads,
    require_step,
)
from bmdp.policies.state import StateReader
from bmdp.storage import storable


class PricedPoints(NamedTuple):
    """Actions of the greedy policies of `M` prices at states, with expected costs and rewards."""

    actions: IntArray  # [N, M]
    costs: FloatArray  # [N, M]
    rewards: FloatArray  # [N, M]


@checked
@storable
@dataclass(frozen=True, eq=False)
class PriceDial(QPolicy):
    """Many policies in one: the number on its dial, from 0 on, says which price is paid for cost.

    Prices fall, so that costs rise with the number; a number between two is rounded. The number on
    the dial is handed on as it is. Portfolios and multipliers are made of it, and it can be
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
    step: int | None = None  # the only step that it plays; all of them, if not given
    growth: float = 1.0  # of prices with each step: discount of costs over that of rewards

    takes_budgets: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Checks the prices and makes them read-only."""
        prices = real_array("PriceDial.prices", self.prices).astype(np.float64)
        require_shape("PriceDial.prices", prices, (None,), "[M]")
        if len(prices) == 0 or not (prices >= 0).all() or not (prices[1:] < prices[:-1]).all():
            raise ConfigError(
                f"PriceDial.prices must be from 0 on and fall strictly; got {prices.tolist()}."
            )
        require_from_0("PriceDial.tolerance", self.tolerance)
        require_growth("PriceDial.growth", self.growth)
        require_heads("PriceDial.prices", self.q_function, len(prices))
        require_step("PriceDial.step", self.step, self.q_function)
        object.__setattr__(self, "prices", read_only(prices))

    @property
    def budget_range(self) -> tuple[float, float]:
        """Numbers of the prices."""
        return 0.0, len(self.prices) - 1.0

    @property
    def n_draws(self) -> int:
        """It leaves nothing to chance."""
        return 0

    def points(self, states: NDArray[Any], available: BoolArray | None = None) -> PricedPoints:
        """Returns what each price does at states, and what it is thought to cost and earn."""
        if available is None and self._known is not None:
            cells = cells_of(self.q_function, states, self.step or 0)
            actions, costs, rewards = self._known
            return PricedPoints(actions[cells], costs[cells], rewards[cells])
        return self._points(*self.q_values(states, len(self.prices), available))

    @cached_property
    def _known(self) -> PricedPoints | None:
        """The same for all states, if they are few, found at the first decision."""
        if self.n_steps > 1:
            return None
        values = cell_values(self.q_function, self.step or 0)
        n_heads = len(self.prices)
        if values is None or values[0].size > MOST_KEPT or values[0].shape[2] != n_heads:
            return None
        return self._points(*values)

    def _points(self, q_r: FloatArray, q_c: FloatArray) -> PricedPoints:
        """Actions of prices, given values `[N, A, M]`, and what these say of them."""
        actions = self.best(q_r, q_c)
        costs, rewards = (np.take_along_axis(q, actions[:, None], 1)[:, 0] for q in (q_c, q_r))
        return PricedPoints(actions, costs, rewards)

    def best(self, q_r: FloatArray, q_c: FloatArray) -> IntArray:
        """Returns the best action of each price `[N, M]`, given values `[N, A, M]`."""
        prices = self.prices * self.raised
        found: IntArray = best_actions(q_r, q_c, prices, self.tolerance)
        return found

    @property
    def raised(self) -> float:
        """Prices at its step over those at the start.

        From the start, step t weighs rewards by gamma^t and costs by cost_gamma^t. So what is
        cheapest from there on has the price times (cost_gamma / gamma)^t.
        """
        return raised(self.growth, self.step or 0)

    def choose(
        self,
        states: NDArray[Any],
        budgets: FloatArray,
        uniforms: FloatArray,
        available: BoolArray | None = None,
    ) -> Decisions:
        """Takes the best action for the price on the dial."""
        numbers = np.rint(budgets).astype(np.int64)
        actions = self.points(states, available).actions[np.arange(len(numbers)), numbers]
        return _decided(actions, budgets)

    def options(
        self, states: NDArray[Any], budgets: FloatArray, available: BoolArray | None = None
    ) -> Options:
        """Returns the best action, and what is on the dial."""
        return _surely(self.choose(states, budgets, np.empty((len(states), 0)), available))

    def options_at(
        self, states: NDArray[Any], budgets: FloatArray, available: BoolArray | None = None
    ) -> Options:
        """Returns the same for all numbers `[L]`, from one look at the values."""
        numbers = np.rint(budgets).astype(np.int64)
        actions = self.points(states, available).actions[:, numbers]
        handed_on = np.broadcast_to(budgets, actions.shape)
        return Options(actions[..., None], handed_on[..., None], np.ones((*actions.shape, 1)))

    def frontier(
        self, state: ArrayLike, step: int = 0, available: ArrayLike | None = None
    ) -> Frontier:
        """Returns what prices are thought to earn and cost; `index` is the number of a price."""
        points = self.at_step(step).points(np.asarray(state)[None], admitted_mask(available))
        return upper_frontier(points.costs[0], points.rewards[0])


@checked
@storable
@dataclass(frozen=True, eq=False)
class PricedPolicy(QPolicy):
    """Plays the action of the most Q_r - price * Q_c, whatever the budget. Its status is SLACK.

    Paper: the Lagrangian baseline of Section 5; price 0 looks at rewards alone.

    >>> from bmdp.policies import TabularQ
    >>> q, rng = TabularQ(q_r=[[[0.0], [10.0]]], q_c=[[[0.0], [1.0]]]), np.random.default_rng(0)
    >>> [PricedPolicy(q, price).act(0, 0.5, rng).action for price in (0.0, 20.0)]
    [1, 0]
    """

    q_function: QFunction  # of one head: (q_r, q_c) each [N, A, 1]
    price: float  # lambda, in rewards for a unit of cost
    low: float = 0.0  # budgets it takes, to no effect
    high: float = 1.0  # the largest of them
    step: int | None = None  # the only step that it plays; all of them, if not given
    growth: float = 1.0  # of the price with each step, as of `PriceDial`

    has_dial: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Checks the price, the ends and the growth."""
        require_from_0("PricedPolicy.price", self.price)
        require_rising("low and high", (self.low, self.high))
        require_growth("PricedPolicy.growth", self.growth)
        require_heads("PricedPolicy.price", self.q_function, 1)
        require_step("PricedPolicy.step", self.step, self.q_function)

    @property
    def budget_range(self) -> tuple[float, float]:
        """Budgets it takes, to no effect."""
        return self.low, self.high

    @property
    def n_draws(self) -> int:
        """It leaves nothing to chance."""
        return 0

    def choose(
        self,
        states: NDArray[Any],
        budgets: FloatArray,
        uniforms: FloatArray,
        available: BoolArray | None = None,
    ) -> Decisions:
        """Takes the best action."""
        q_r, q_c = self.q_values(states, 1, available)
        price = np.array([self.price * raised(self.growth, self.step or 0)])
        return _decided(best_actions(q_r, q_c, price, 0.0)[:, 0], budgets)

    def options(
        self, states: NDArray[Any], budgets: FloatArray, available: BoolArray | None = None
    ) -> Options:
        """Returns the best action, and the budget as it is."""
        return _surely(self.choose(states, budgets, np.empty((len(states), 0)), available))


@checked
@storable
@dataclass(frozen=True, eq=False)
class MultiplierPolicy(Policy):
    """Chooses a price that spends the budget, and carries it through the episode.

    At the start of an episode it chooses by what prices cost on average over first states, where
    that was measured: `costs` and `rewards`. When the dial is moved it chooses again, by what
    prices are thought to cost from the state; so it does at the start, if nothing was measured.

    Paper: Beutler and Ross (1985), of the Lagrangian appendix, with values of every state instead
    of a calibration at the start.

    >>> from bmdp.exact.price_dial import price_dial
    >>> from bmdp.exact.textbook import branches
    >>> dial = price_dial(branches().model, prices=(np.inf, 5.0, 0.0))
    >>> tracker = MultiplierPolicy(dial).start([0, 0], 0.5, np.random.default_rng(0))
    >>> tracker.decide([0, 0]).next_budget.tolist()
    [0.5, 0.5]
    >>> tracker.observe(costs=0.0, next_states=[1, 2], ended=False)  # risks pay 10 at 1, 1 at 2
    >>> tracker.budgets.tolist()
    [1.0, 0.0]
    """

    dial: PriceDial  # prices, and what their policies do, cost and earn
    low: float = 0.0  # least budget
    high: float = 1.0  # largest budget
    costs: FloatArray = field(default_factory=lambda: np.empty(0))  # [M], measured, or none
    rewards: FloatArray = field(default_factory=lambda: np.empty(0))  # [M], or none

    why_no_one_step_form = "carries a price that it chose at the start"
    takes_masks = True

    def __post_init__(self) -> None:
        """Checks the ends and what was measured, and makes arrays read-only."""
        if not isinstance(self.dial, PriceDial):
            raise ConfigError("MultiplierPolicy.dial must be a PriceDial.")
        require_rising("low and high", (self.low, self.high))
        n_measured = len(self.dial.prices) if np.size(self.costs) else 0
        for name in ("costs", "rewards"):
            values = real_array(f"MultiplierPolicy.{name}", getattr(self, name))
            require_shape(f"MultiplierPolicy.{name}", values, (n_measured,), "[M], or none")
            require_finite(f"MultiplierPolicy.{name}", values)
            object.__setattr__(self, name, read_only(values.astype(np.float64)))

    @property
    def budget_range(self) -> tuple[float, float]:
        """Lowest and highest budget."""
        return self.low, self.high

    def frontier(
        self, state: ArrayLike, step: int = 0, available: ArrayLike | None = None
    ) -> Frontier:
        """Returns what the policy expects to be able to get from a state that is met at a step."""
        return self.dial.frontier(state, step, available)

    def mixtures(self, points: PricedPoints, budgets: FloatArray) -> Mixtures[NDArray[Any]]:
        """Returns which prices are chosen for budgets `[N]`, given what prices do at `N` states."""
        return best_mixtures(points.costs, points.rewards, np.minimum(budgets, self.high))

    def first_mixtures(self, points: PricedPoints, budgets: FloatArray) -> Mixtures[NDArray[Any]]:
        """Returns the same at the start of an episode: by what was measured, if anything was."""
        if not len(self.costs):
            return self.mixtures(points, budgets)
        held = np.minimum(budgets, self.high)
        found = mixtures_at(self.costs[None], self.rewards[None], held)
        return Mixtures(*(column[0] for column in found))

    def start(self, states: ArrayLike, budgets: ArrayLike, rng: Randomness) -> MultiplierTracker:
        """Starts `N` episodes."""
        return MultiplierTracker(self, budgets, episode_streams(rng, states))


@checked
class MultiplierTracker(EpisodeTracker[MultiplierPolicy]):
    """Episodes under a `MultiplierPolicy`; a price is chosen at the first decision after a move."""

    def set_budget(self, budgets: ArrayLike) -> None:
        """Has a price chosen at the next decision."""
        super().set_budget(budgets)
        self._is_chosen = False
        self._numbers: IntArray = np.zeros(len(self._streams), np.int64)
        self._status: IntArray = np.full(len(self._streams), BudgetStatus.SLACK, np.int8)
        self._seen: tuple[NDArray[Any], BoolArray, BoolArray | None] | None = None

    def _own_state(self) -> dict[str, Any]:
        numbers, status = self._numbers.tolist(), self._status.tolist()
        return {"is_chosen": self._is_chosen, "prices": numbers, "status": status}

    def _take_over(self, kept: StateReader) -> None:
        shape, last = (len(self._streams),), len(self._policy.dial.prices) - 1
        self._is_chosen = kept.truth("is_chosen")
        self._numbers = kept.whole_numbers("prices", shape, 0, last)
        self._status = kept.whole_numbers("status", shape, 0, max(BudgetStatus), np.int8)

    def _spends(self) -> BoolArray:
        return ~self._ended & (not self._is_chosen)

    @property
    def budgets(self) -> FloatArray:
        """Budgets held now, `[N]`: what the carried price is thought to cost from here."""
        if self._seen is not None:
            (states, going, available), self._seen = self._seen, None
            if going.any():
                costs = self._points(states[going], rows_at(available, going)).costs
                self._budgets[going] = costs[np.arange(len(costs)), self._numbers[going]]
        return self._budgets.copy()

    def _decide(self, states: NDArray[Any]) -> Decisions:
        going = np.flatnonzero(~self._ended)
        self._seen = None
        decision = idle_decisions(self._budgets)
        if len(going) == 0:
            return decision
        points = self._points(states[going], rows_at(self._available, going))
        if not self._is_chosen:
            self._choose(points, going)
        rows, numbers = np.arange(len(going)), self._numbers[going]
        decision.action[going] = points.actions[rows, numbers]
        decision.next_budget[going] = points.costs[rows, numbers]
        decision.status[going] = self._status[going]
        return decision

    def _choose(self, points: PricedPoints, going: IntArray) -> None:
        """Chooses prices for the budgets held."""
        choose = self._policy.first_mixtures if self._step == 0 else self._policy.mixtures
        found = choose(points, self._budgets[going])
        uniforms = self._streams.take(going).uniforms(self._step, 1)[:, 0]
        self._numbers[going] = np.where(uniforms < found.p_upper, found.upper, found.lower)
        above = self._budgets[going] > self._budget_range[1]
        self._status[going] = np.where(above, np.int8(BudgetStatus.SLACK), found.status)
        self._is_chosen = True

    def _observe(self, costs: FloatArray, next_states: NDArray[Any], ended: BoolArray) -> None:
        self._seen = next_states, ~(self._ended | ended), self._available

    def _points(self, states: NDArray[Any], available: BoolArray | None = None) -> PricedPoints:
        return self._policy.dial.at_step(self._step).points(states, available)


def raised(growth: float, step: int) -> float:
    """Growth over so many steps, kept within what can be multiplied.

    >>> raised(1.0, 7), raised(1.25, 2), raised(2.0, 10_000) < 1e101
    (1.0, 1.5625, True)
    """
    return float(np.exp(np.clip(step * np.log(growth), -_MOST_GROWN, _MOST_GROWN)))


_MOST_GROWN = float(np.log(1e100))


def require_growth(name: str, growth: float) -> None:
    """Checks that a growth of prices is above 0 and finite.

    Raises:
        ConfigError: if it is not.
    """
    if not 0 < growth < np.inf:
        raise ConfigError(f"{name} must be above 0 and finite; got {growth}.")


def best_actions(q_r: Any, q_c: Any, prices: Any, tolerance: float) -> Any:
    """Actions `[N, M]` of the most q_r - price * q_c, of arrays or tensors `[N, A, M]`.

    At an infinite price, of those actions whose cost is within a tolerance of the least one, the
    best paid. An action of reward minus infinity is never taken.

    >>> q_r, q_c = np.array([[[1.0], [2.0], [3.0]]]), np.array([[[0.0], [0.1], [0.5]]])
    >>> [int(best_actions(q_r, q_c, np.array([p]), 0.2)[0, 0]) for p in (0.0, 15.0, np.inf)]
    [2, 0, 1]
    """
    is_infinite = prices == np.inf
    finite = prices * 1
    finite[is_infinite] = 0
    least = q_c.min(axis=1, keepdims=True) if isinstance(q_c, np.ndarray) else q_c.amin(1, True)
    worth = q_r - finite * (_finite(q_c) - _finite(least))  # what all cost makes no difference
    worth[is_infinite & (q_c > least + tolerance)] = -np.inf
    return worth.argmax(1)


def _finite(costs: Any) -> Any:
    """Costs, those that are infinite as 0: their reward says that they are not to be had."""
    if isinstance(costs, np.ndarray):
        return np.where(np.isinf(costs), 0, costs)
    return costs.masked_fill(costs.isinf(), 0)


def _decided(actions: IntArray, budgets: FloatArray) -> Decisions:
    """Actions that no budget has a say in."""
    return Decision(actions, budgets.copy(), np.full(len(actions), BudgetStatus.SLACK, np.int8))


def _surely(decision: Decisions) -> Options:
    """A decision as the only option."""
    action, next_budget, _ = decision
    return Options(action[:, None], next_budget[:, None], np.ones((len(action), 1)))
