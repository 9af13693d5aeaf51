"""Policies made of policies: epsilon-greedy at every step, and a coin tossed once per episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.errors import ConfigError
from bmdp.frontier import BudgetStatus
from bmdp.policies.protocol import (
    BudgetedPolicy,
    Decisions,
    EpisodeTracker,
    OneStepPolicy,
    Policy,
    Randomness,
    Tracker,
    episode_streams,
    idle_decisions,
    state_rows,
)
from bmdp.policies.stored import storable
from bmdp.randomness import EpisodeStreams


@storable
@dataclass(frozen=True)
class EpsilonGreedy(OneStepPolicy):
    """Follows `explorer` with probability `epsilon` at every step, else `greedy`.

    Paper: Algorithm 4, lines 7 to 9.
    """

    greedy: OneStepPolicy
    explorer: OneStepPolicy
    epsilon: float

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


@storable
@dataclass(frozen=True)
class EpisodeCoin(Policy):
    """Tosses a coin at the start of an episode, and follows one of two policies to its end.

    `cheap` is said to cost `cheap_cost` from the start, and `dear` to cost `dear_cost`. The coin
    falls on `dear` with the probability that makes the expected cost equal to the budget. Each
    policy is played at the budget that it is said to cost (raised to its `budget_range`).

    Moving the dial in the middle tosses the coin again, with the same two costs. They hold at the
    start of an episode, so what is left to pay then need not match the new budget: that is the
    limit of a coin.

    Paper: the mixture of two deterministic policies of Beutler and Ross (1985), cited in the proof
    of Proposition 3.
    """

    cheap: BudgetedPolicy
    dear: BudgetedPolicy
    cheap_cost: float
    dear_cost: float

    why_no_one_step_form = "tosses one coin per episode"

    def __post_init__(self) -> None:
        """Checks the costs."""
        if not -np.inf < self.cheap_cost < self.dear_cost < np.inf:
            raise ConfigError(
                "EpisodeCoin.cheap_cost must be below dear_cost; "
                f"got {self.cheap_cost} and {self.dear_cost}."
            )

    @property
    def budget_range(self) -> tuple[float, float]:
        """From 0 (or `cheap_cost`, if that is negative) to `dear_cost`."""
        return min(0.0, self.cheap_cost), self.dear_cost

    def start(self, states: ArrayLike, budgets: ArrayLike, rng: Randomness) -> CoinTracker:
        """Starts `N` episodes."""
        return CoinTracker(self, budgets, episode_streams(rng, len(state_rows(states))))


class CoinTracker(EpisodeTracker):
    """Episodes under an `EpisodeCoin`, tossed at the first decision after a budget is set."""

    def __init__(self, coin: EpisodeCoin, budgets: ArrayLike, streams: EpisodeStreams) -> None:
        """Starts one episode for each stream."""
        self._coin = coin
        self._status: IntArray
        self._followed: list[tuple[IntArray, Tracker]]
        super().__init__(coin.budget_range, budgets, streams)

    def set_budget(self, budgets: ArrayLike) -> None:
        """Has the coin tossed again at the next decision."""
        super().set_budget(budgets)
        self._followed = []

    def _decide(self, states: NDArray[Any]) -> Decisions:
        if not self._followed:
            self._toss(states)
        decision = idle_decisions(self._budgets)
        for chosen, tracker in self._followed:
            action, next_budget, _ = tracker.decide(states[chosen])
            decision.action[chosen], decision.next_budget[chosen] = action, next_budget
        decision.status[~self._ended] = self._status[~self._ended]
        return decision

    def _observe(self, costs: FloatArray, next_states: NDArray[Any], ended: BoolArray) -> None:
        for chosen, tracker in self._followed:
            tracker.observe(costs[chosen], next_states[chosen], ended[chosen])

    def _toss(self, states: NDArray[Any]) -> None:
        """Starts each episode that is going on under one of the two policies."""
        coin, held = self._coin, self._budgets
        p_dear = (held - coin.cheap_cost) / (coin.dear_cost - coin.cheap_cost)
        dear = self._streams.child("coin").uniforms(self._step, 1)[:, 0] < p_dear
        self._status = np.full(len(held), BudgetStatus.TIGHT, np.int8)
        self._status[p_dear < 0] = BudgetStatus.INFEASIBLE
        self._status[p_dear >= 1] = BudgetStatus.SLACK
        for name, policy, cost, mask in (
            ("cheap", coin.cheap, coin.cheap_cost, ~dear),
            ("dear", coin.dear, coin.dear_cost, dear),
        ):
            chosen = np.flatnonzero(mask & ~self._ended)
            streams = self._streams.child(f"{name}/{self._step}").take(chosen)
            budget = max(cost, policy.budget_range[0])
            self._followed.append((chosen, policy.start(states[chosen], budget, streams)))
