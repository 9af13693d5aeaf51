"""A policy with a budget, made of the greedy policies of several prices on cost.

It is given a *dial of prices* (`PriceDial`, or one for each step): for each of `M` prices, what
its greedy policy does at a state, and what that is thought to cost and earn from there.

At the start, and whenever the dial is moved, a price is chosen that spends the budget,
or a coin is tossed between two neighbours on the frontier of the state; then it is kept. The budget
left at s' is what the price is thought to cost from there, so it depends on s': a chance that turns
out well is spent where it pays. Its optimum is that of the constrained problem (Eq. 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.checks import require_rising
from bmdp.errors import ConfigError
from bmdp.frontier import BudgetStatus, Frontier, Mixtures, best_mixtures
from bmdp.policies.decisions import Decisions, Randomness, episode_streams, idle_decisions
from bmdp.policies.priced import PriceDial, PricedPoints
from bmdp.policies.protocol import Policy
from bmdp.policies.staged import StagedPolicy
from bmdp.policies.stored import storable
from bmdp.policies.trackers import EpisodeTracker

PriceDials: TypeAlias = PriceDial | StagedPolicy


@storable
@dataclass(frozen=True, eq=False)
class MultiplierPolicy(Policy):
    """Chooses a price that spends the budget, and carries it.

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

    dial: PriceDials  # prices, and what their policies do, cost and earn
    low: float = 0.0  # least budget
    high: float = 1.0  # largest budget

    why_no_one_step_form = "carries a price that it chose at the start"

    def __post_init__(self) -> None:
        """Checks the settings."""
        stages = self.dial.stages if isinstance(self.dial, StagedPolicy) else (self.dial,)
        if not all(isinstance(stage, PriceDial) for stage in stages):
            raise ConfigError("dial must be a PriceDial, or a StagedPolicy of them.")
        require_rising("low and high", (self.low, self.high))

    @property
    def budget_range(self) -> tuple[float, float]:
        """Lowest and highest budget."""
        return self.low, self.high

    def frontier(self, state: ArrayLike) -> Frontier:
        """Returns what the policy expects to be able to get at the first step."""
        return _at(self.dial, 0).frontier(state)

    def mixtures_at(self, points: PricedPoints, budgets: FloatArray) -> Mixtures[NDArray[Any]]:
        """Returns which prices are chosen for budgets `[N]`, given what prices do at `N` states."""
        return best_mixtures(points.costs, points.rewards, np.minimum(budgets, self.high))

    def start(self, states: ArrayLike, budgets: ArrayLike, rng: Randomness) -> MultiplierTracker:
        """Starts `N` episodes."""
        return MultiplierTracker(self, budgets, episode_streams(rng, states))


class MultiplierTracker(EpisodeTracker[MultiplierPolicy]):
    """Episodes under a `MultiplierPolicy`; a price is chosen at the first decision after a move."""

    def set_budget(self, budgets: ArrayLike) -> None:
        """Has a price chosen at the next decision."""
        super().set_budget(budgets)
        self._is_chosen = False
        self._numbers: IntArray = np.zeros(len(self._streams), np.int64)
        self._status: IntArray = np.full(len(self._streams), BudgetStatus.SLACK, np.int8)
        self._seen: tuple[NDArray[Any], BoolArray] | None = None

    @property
    def budgets(self) -> FloatArray:
        """Budgets held now, `[N]`: what the price that is carried is thought to cost."""
        if self._seen is not None:
            (states, going), self._seen = self._seen, None
            if going.any():
                costs = self._points(states[going]).costs
                self._budgets[going] = costs[np.arange(len(costs)), self._numbers[going]]
        return self._budgets.copy()

    def _decide(self, states: NDArray[Any]) -> Decisions:
        going = np.flatnonzero(~self._ended)
        self._seen = None
        decision = idle_decisions(self._budgets)
        if len(going) == 0:
            return decision
        points = self._points(states[going])
        if not self._is_chosen:
            self._choose(points, going)
        rows = np.arange(len(going))
        decision.action[going] = points.actions[rows, self._numbers[going]]
        decision.next_budget[going] = points.costs[rows, self._numbers[going]]
        decision.status[going] = self._status[going]
        return decision

    def _choose(self, points: PricedPoints, going: IntArray) -> None:
        """Chooses prices for the budgets held."""
        found = self._policy.mixtures_at(points, self._budgets[going])
        uniforms = self._streams.take(going).uniforms(self._step, 1)[:, 0]
        self._numbers[going] = np.where(uniforms < found.p_upper, found.upper, found.lower)
        above = self._budgets[going] > self._budget_range[1]
        self._status[going] = np.where(above, np.int8(BudgetStatus.SLACK), found.status)
        self._is_chosen = True

    def _observe(self, costs: FloatArray, next_states: NDArray[Any], ended: BoolArray) -> None:
        self._seen = next_states, ~(self._ended | ended)

    def _points(self, states: NDArray[Any]) -> PricedPoints:
        return _at(self._policy.dial, self._step).points(states)


def _at(dial: PriceDials, step: int) -> PriceDial:
    """The prices of a step."""
    found = dial.at_step(step)
    assert isinstance(found, PriceDial)
    return found
