"""What a budgeted policy is: from (state, budget) to (action, next budget), in two forms.

*One-step form*: `policy.act(state, budget, rng)` for one state, `policy.decide(states, budgets,
rng)` for many. The caller carries the budget: it holds `next_budget` at the next state (Eq. 2).

*Episode form*, which every policy has: `tracker = policy.start(states, budgets, rng)` for a batch
of episodes, then in turn `tracker.decide(states)` and `tracker.observe(costs, next_states, ended)`.
The tracker carries the budgets, and `tracker.set_budget(budgets)` moves the dial in the middle.
Policies that toss a coin once per episode, or whose next budget depends on the next state, have
this form only.

A one-step policy is a pure function of states, budgets and uniform numbers, a fixed count of them
for each decision. Where the numbers come from is decided here, once: from a numpy generator in
one-step form, from one stream for each episode in episode form, so that an episode goes the same
way whatever it is batched with.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import BoolArray, FloatArray
from bmdp.errors import PolicyError
from bmdp.frontier import BudgetStatus
from bmdp.policies.decisions import (
    Decision,
    Decisions,
    OneDecision,
    Options,
    Randomness,
    admitted_budgets,
    episode_streams,
    idle_decisions,
    state_rows,
)
from bmdp.policies.stored import to_stored, write_stored
from bmdp.policies.trackers import EpisodeTracker, Tracker


class BudgetedPolicy(Protocol):
    """A policy with a risk dial. Budgets are in expected discounted cost from now on.

    Paper: pi of Section 2.

    >>> from bmdp.policies import HullPolicy, TabularQ
    >>> q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    >>> policy: BudgetedPolicy = HullPolicy(q, beta_grid=[0.0, 1.0])
    >>> policy.decide([0, 0], budgets=[0.0, 1.0], rng=np.random.default_rng(0)).action.tolist()
    [0, 1]
    """

    @property
    def budget_range(self) -> tuple[float, float]:
        """Lowest and highest budget: below it is refused, above it is taken as the highest."""

    def act(self, state: ArrayLike, budget: float, rng: np.random.Generator) -> OneDecision:
        """Decides at one state."""

    def decide(self, states: ArrayLike, budgets: ArrayLike, rng: np.random.Generator) -> Decisions:
        """Decides at `N` states, as `act` would at one after the other."""

    def start(self, states: ArrayLike, budgets: ArrayLike, rng: Randomness) -> Tracker:
        """Starts `N` episodes, with their own streams, or with streams made from a generator."""


class Policy(ABC):
    """What all policies of this library share. By itself, a policy with the episode form only.

    >>> from bmdp.policies import Portfolio, RandomBudgetedPolicy
    >>> some = RandomBudgetedPolicy(2, 0.0, 1.0)
    >>> coin = Portfolio.coin(some, some, cheap_cost=0.2, dear_cost=1.0)
    >>> coin.start([0, 0], 0.4, np.random.default_rng(0)).decide([0, 0]).status.tolist()
    [1, 1]
    >>> coin.act(0, 0.4, np.random.default_rng(0))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    bmdp.errors.PolicyError: Portfolio chooses one of its members per episode, so it has ...
    """

    why_no_one_step_form: ClassVar[str] = "decides by more than the state and the budget"
    has_dial: ClassVar[bool] = True
    """Whether it matters which budget it is given."""

    @property
    @abstractmethod
    def budget_range(self) -> tuple[float, float]:
        """Lowest and highest budget."""

    @abstractmethod
    def start(self, states: ArrayLike, budgets: ArrayLike, rng: Randomness) -> Tracker:
        """Starts `N` episodes."""

    def act(self, state: ArrayLike, budget: float, rng: np.random.Generator) -> OneDecision:
        """Refuses, and says which form to use."""
        raise self._refusal()

    def decide(self, states: ArrayLike, budgets: ArrayLike, rng: np.random.Generator) -> Decisions:
        """Refuses, and says which form to use."""
        raise self._refusal()

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes the policy to a folder that `bmdp.load_policy` reads.

        Raises:
            StoreError: if a part of it cannot be stored, or the folder exists and may not be
            overwritten.
        """
        write_stored(to_stored(self), folder, overwrite=overwrite)

    def _refusal(self) -> PolicyError:
        return PolicyError(
            f"{type(self).__name__} {self.why_no_one_step_form}, so it has the episode form only: "
            "use tracker = policy.start(states, budgets, rng), then tracker.decide(states)."
        )


class OneStepPolicy(Policy):
    """A policy with both forms. Members say how they choose; this class does the rest.

    >>> class Threshold(OneStepPolicy):
    ...     budget_range, n_draws = (0.0, 1.0), 0
    ...
    ...     def choose(self, states, budgets, uniforms):
    ...         status = np.full(len(budgets), BudgetStatus.SLACK)
    ...         return Decision((budgets > 0.5).astype(int), budgets, status)
    >>> Threshold().decide([0, 0], [0.2, 0.8], np.random.default_rng(0)).action.tolist()
    [0, 1]
    """

    @property
    @abstractmethod
    def n_draws(self) -> int:
        """How many uniform numbers a decision takes."""

    @abstractmethod
    def choose(self, states: NDArray[Any], budgets: FloatArray, uniforms: FloatArray) -> Decisions:
        """Decides, given budgets within `budget_range` and uniform numbers `[N, n_draws]`."""

    def decide_from(self, states: ArrayLike, budgets: ArrayLike, uniforms: FloatArray) -> Decisions:
        """Decides at `N` states, given uniform numbers `[N, n_draws]`.

        Raises:
            BudgetError: if a budget is not a number, or below `budget_range`.
        """
        rows = state_rows(states)
        held = admitted_budgets(budgets, len(rows), self.budget_range)
        if len(rows) == 0:
            return idle_decisions(held)
        highest = self.budget_range[1]
        decision = self.choose(rows, np.minimum(held, highest), uniforms)
        status = np.where(held > highest, np.int8(BudgetStatus.SLACK), decision.status)
        return decision._replace(status=status)

    def decide(self, states: ArrayLike, budgets: ArrayLike, rng: np.random.Generator) -> Decisions:
        """Decides at `N` states, as `act` would at one after the other."""
        rows = state_rows(states)
        return self.decide_from(rows, budgets, rng.random((len(rows), self.n_draws)))

    def act(self, state: ArrayLike, budget: float, rng: np.random.Generator) -> OneDecision:
        """Decides at one state."""
        action, next_budget, status = self.decide(np.asarray(state)[None], [budget], rng)
        return Decision(int(action[0]), float(next_budget[0]), BudgetStatus(int(status[0])))

    def at_step(self, step: int) -> OneStepPolicy:
        """Returns itself: it does the same at every step of an episode."""
        return self

    def options_at(self, states: NDArray[Any], budgets: FloatArray) -> Options:
        """Returns what it may do at each of `L` budgets at each of `N` states, `[N, L, J]`.

        Members that have `options` at a budget for each state need no more; some are faster.

        Args:
            states: `[N, ...]`.
            budgets: `[L]`, at least one, within `budget_range`.

        Raises:
            PolicyError: if it does not say with which probabilities it acts.
        """
        options = getattr(self, "options", None)
        if options is None:
            raise PolicyError(
                f"{type(self).__name__} does not say with which probabilities it acts: it has no "
                "`options`."
            )
        each = [options(states, np.full(len(states), budget)) for budget in budgets]
        return Options(*(np.stack(columns, axis=1) for columns in zip(*each, strict=True)))

    def start(self, states: ArrayLike, budgets: ArrayLike, rng: Randomness) -> StepTracker:
        """Starts `N` episodes."""
        return StepTracker(self, budgets, episode_streams(rng, states))


class SteppedPolicy(Protocol):
    """A policy that has a one-step form at each step of an episode."""

    @property
    def budget_range(self) -> tuple[float, float]:
        """Lowest and highest budget."""

    def at_step(self, step: int) -> OneStepPolicy:
        """Returns what it does at one step."""


class StepTracker(EpisodeTracker[SteppedPolicy]):
    """Episodes under a policy with one-step forms: hands each budget on to the next decision."""

    def _decide(self, states: NDArray[Any]) -> Decisions:
        now, going = self._policy.at_step(self._step), ~self._ended
        uniforms = self._streams.take(going).uniforms(self._step, now.n_draws)
        chosen = now.decide_from(states[going], self._budgets[going], uniforms)
        decision = idle_decisions(self._budgets)
        for column, values in zip(decision, chosen, strict=True):
            column[going] = values
        return decision

    def _observe(self, costs: FloatArray, next_states: NDArray[Any], ended: BoolArray) -> None:
        """Does nothing: what followed does not matter to a one-step policy."""
