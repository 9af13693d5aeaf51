"""Episodes under a policy: what carries their budgets along, and whose turn it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import BoolArray, FloatArray
from bmdp.checks import require_count
from bmdp.errors import PolicyError
from bmdp.policies.decisions import Decisions, admitted_budgets, ended_episodes, state_rows
from bmdp.randomness import EpisodeStreams


class Tracker(Protocol):
    """A batch of `N` episodes under one policy.

    Paper: Eq. 2, the budget handed on is the one held next.

    >>> from bmdp.policies import HullPolicy, TabularQ
    >>> q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    >>> policy = HullPolicy(q, beta_grid=[0.0, 1.0])
    >>> tracker = policy.start([0, 0], budgets=[0.0, 1.0], rng=np.random.default_rng(0))
    >>> tracker.decide([0, 0]).action.tolist(), tracker.budgets.tolist()
    ([0, 1], [0.0, 0.0])
    >>> tracker.observe(costs=[0.0, 1.0], next_states=[0, 0], ended=[False, True])
    >>> tracker.set_budget(1.0)
    >>> tracker.decide([0, 0]).action.tolist()  # the second one is over: its 0 means nothing
    [1, 0]
    """

    @property
    def budgets(self) -> FloatArray:
        """Budgets held now, `[N]`."""

    def decide(self, states: ArrayLike) -> Decisions:
        """Returns what to do at the states `[N, ...]`. Rows of ended episodes mean nothing."""

    def observe(self, costs: ArrayLike, next_states: ArrayLike, ended: ArrayLike) -> None:
        """Takes note of what followed: costs paid, next states, which episodes ended, `[N]`."""

    def set_budget(self, budgets: ArrayLike) -> None:
        """Replaces the budgets held, `[N]` or one for all, from the next decision on."""


class Ranged(Protocol):
    """A policy, as far as all trackers ask."""

    @property
    def budget_range(self) -> tuple[float, float]:
        """Lowest and highest budget."""


RangedT = TypeVar("RangedT", bound=Ranged)


class EpisodeTracker(ABC, Generic[RangedT]):
    """What all trackers share: budgets, streams, which episodes ended, and whose turn it is."""

    def __init__(self, policy: RangedT, budgets: ArrayLike, streams: EpisodeStreams) -> None:
        """Starts one episode for each stream."""
        self._policy, self._streams, self._step = policy, streams, 0
        self._budget_range = policy.budget_range
        self._ended: BoolArray = np.zeros(len(streams), np.bool_)
        self._has_decided = False
        self._budgets: FloatArray
        self.set_budget(budgets)

    @property
    def budgets(self) -> FloatArray:
        """Budgets held now, `[N]`."""
        return self._budgets.copy()

    def begin_at(self, step: int) -> None:
        """Says that the episodes are at a step already: a policy takes over in the middle.

        Raises:
            ConfigError: if it is not a whole number from 0 on.
            PolicyError: if the first decision was made.
        """
        require_count("step", step, 0)
        if self._step:
            raise PolicyError("tracker.begin_at must be called once, before the first decision.")
        self._step = step

    def decide(self, states: ArrayLike) -> Decisions:
        """Returns what to do; an ended episode gets action 0, its budget back, and SLACK."""
        if self._has_decided:
            raise PolicyError("tracker.decide was called twice: call tracker.observe in between.")
        decision = self._decide(state_rows(states, len(self._streams)))
        self._has_decided = True
        self._budgets, self._step = decision.next_budget.copy(), self._step + 1
        return decision

    def observe(self, costs: ArrayLike, next_states: ArrayLike, ended: ArrayLike) -> None:
        """Takes note of what followed."""
        if not self._has_decided:
            raise PolicyError("tracker.observe must follow tracker.decide.")
        ended_now = ended_episodes(ended, len(self._streams))
        self._observe(np.broadcast_to(costs, ended_now.shape), np.asarray(next_states), ended_now)
        self._ended, self._has_decided = self._ended | ended_now, False

    def set_budget(self, budgets: ArrayLike) -> None:
        """Replaces the budgets held, from the next decision on."""
        self._budgets = admitted_budgets(budgets, len(self._streams), self._budget_range)

    @abstractmethod
    def _decide(self, states: NDArray[Any]) -> Decisions:
        """Returns what to do at the states."""

    @abstractmethod
    def _observe(self, costs: FloatArray, next_states: NDArray[Any], ended: BoolArray) -> None:
        """Takes note of what followed."""
