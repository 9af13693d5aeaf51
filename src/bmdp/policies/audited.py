"""A policy whose dial is read by an evaluation of it, not by what it promises itself.

What a learned policy expects to pay is optimistic: it does what its own estimates think best. An
evaluation of the policy as it is, by fitted evaluation for example, is not. It says what the policy
costs and earns at a state for each budget that it may be given. So when a dial is set, at the start
of an episode or in the middle, the policy is given the budget that *costs* what was asked, or one
of two budgets by a coin, whichever earns most. From then on it hands on budgets as it always does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import FloatArray, IntArray
from bmdp.errors import ConfigError
from bmdp.frontier import BudgetStatus, Frontier, best_mixtures, upper_frontier
from bmdp.policies.decisions import Decisions, Randomness, episode_streams
from bmdp.policies.expectation import expected, places_of
from bmdp.policies.hull import QFunction
from bmdp.policies.protocol import OneStepPolicy, Policy, StepTracker
from bmdp.policies.staged import StagedPolicy
from bmdp.policies.stored import storable
from bmdp.randomness import EpisodeStreams


@storable
@dataclass(frozen=True, eq=False)
class BoundedQ:
    """A Q-function that says nothing below or above what it was fitted to."""

    q_function: QFunction
    least: FloatArray  # [2, A, B], of Q_r and Q_c
    most: FloatArray  # [2, A, B]

    def __call__(self, states: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c), each `[N, A, B]`."""
        q_r, q_c = self.q_function(states)
        return q_r.clip(self.least[0], self.most[0]), q_c.clip(self.least[1], self.most[1])


@storable
@dataclass(frozen=True, eq=False)
class AuditedPolicy(Policy):
    """Plays `inner` at the budget that is said to cost what was asked.

    Budgets that it hands on are those of `inner`: they say what `inner` believes to be left.

    Args:
        inner: the policy that plays.
        audits: for each step of an episode, what `inner` earns and pays from a state, an action and
            a budget handed on; the last one also at later steps.
        beta_grid: budgets of the audits, `[B]`, which `inner` may be given and may hand on.

    >>> from bmdp.policies import HullPolicy, TabularQ
    >>> rewards, grid = [[[0.0, 0.0], [10.0, 10.0]]], [0.0, 1.0]
    >>> inner = HullPolicy(TabularQ(rewards, q_c=[[[0.0, 0.0], [0.5, 0.5]]]), grid)
    >>> audit = TabularQ(rewards, q_c=[[[0.0, 0.0], [0.8, 0.8]]])  # the risk costs more than that
    >>> policy = AuditedPolicy(inner, (audit,), grid)
    >>> inner.frontier(0).reward_at(0.4), policy.frontier(0).reward_at(0.4)
    (8.0, 5.0)
    """

    inner: OneStepPolicy | StagedPolicy
    audits: tuple[QFunction, ...]
    beta_grid: FloatArray  # [B]

    why_no_one_step_form = "reads its dial when it is set, not at every step"

    def __post_init__(self) -> None:
        """Checks that there is something to read the dial by."""
        if not self.audits:
            raise ConfigError("AuditedPolicy.audits must hold at least one function.")
        if not np.array_equal(self.inner.budget_range, np.asarray(self.beta_grid)[[0, -1]]):
            raise ConfigError("AuditedPolicy.beta_grid must span the budget_range of inner.")

    @property
    def budget_range(self) -> tuple[float, float]:
        """That of the policy that plays."""
        return self.inner.budget_range

    def start(self, states: ArrayLike, budgets: ArrayLike, rng: Randomness) -> AuditedTracker:
        """Starts `N` episodes."""
        return AuditedTracker(self, budgets, episode_streams(rng, states))

    def frontier(self, state: ArrayLike, step: int = 0) -> Frontier:
        """Returns what it can get from a state; `index` is the number of an inner budget."""
        costs, rewards = self.worth(np.asarray(state)[None], step)
        return upper_frontier(costs[0], rewards[0])

    def worth(self, states: NDArray[Any], step: int) -> tuple[FloatArray, FloatArray]:
        """What each inner budget costs and earns at states, `[N, B]` each."""
        grid = np.asarray(self.beta_grid)
        values = np.stack(self.audits[min(step, len(self.audits) - 1)](states), axis=1)
        places = places_of(self.inner.at_step(step).options_at(states, grid), grid)
        found = expected(values, places)
        return found[:, 1], found[:, 0]


class AuditedTracker(StepTracker):
    """Episodes under an `AuditedPolicy`."""

    def __init__(self, policy: AuditedPolicy, budgets: ArrayLike, streams: EpisodeStreams) -> None:
        """Starts one episode for each stream."""
        self._audited = policy
        self._is_asked: bool
        super().__init__(policy.inner, budgets, streams)

    def set_budget(self, budgets: ArrayLike) -> None:
        """Has the dial read at the next decision."""
        super().set_budget(budgets)
        self._is_asked = True

    def _decide(self, states: NDArray[Any]) -> Decisions:
        if not self._is_asked:
            return super()._decide(states)
        self._is_asked = False
        going = np.flatnonzero(~self._ended)
        status = self._read(states[going], going)
        decision = super()._decide(states)
        decision.status[going] = status
        return decision

    def _read(self, states: NDArray[Any], going: IntArray) -> IntArray:
        """Gives budgets to the inner policy, and tells whether what was asked can be had."""
        policy, asked = self._audited, self._budgets[going]
        top = policy.budget_range[1]
        mixtures = best_mixtures(*policy.worth(states, self._step), np.minimum(asked, top))
        draws = self._streams.child("dial").take(going).uniforms(self._step, 1)[:, 0]
        chosen = np.where(draws < mixtures.p_upper, mixtures.upper, mixtures.lower)
        self._budgets[going] = np.asarray(policy.beta_grid)[chosen]
        return np.where(asked > top, np.int8(BudgetStatus.SLACK), mixtures.status)
