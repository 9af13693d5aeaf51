"""Episodes of a policy in an environment, many at once.

What episode k does is a function of the seed and of k, in whatever batch and by whichever worker it
is played:

- the environment draws from the seed (a number made of the seed) + k, modulo 2**32, whatever the
  budget: at all budgets episode k meets the same chances (common random numbers), so differences
  between budgets are less noisy than each of the two;
- the policy draws from stream k of a name, which a job gives.

(A policy that computes with a network may round differently in batches of different size.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray, real_array, require_finite
from bmdp.checks import require_count
from bmdp.envs.slots import open_slots
from bmdp.errors import BudgetError, DataError, EnvError, PolicyError
from bmdp.frontier import BudgetStatus
from bmdp.policies.policy import BudgetedPolicy, Decisions, Tracker, admitted_budgets
from bmdp.randomness import EpisodeStreams, stream_key

N_SEEDS = 2**32  # of an environment
_UNFIT = (IndexError, RuntimeError, TypeError, ValueError)  # of a policy at foreign states


@dataclass(frozen=True)
class Job:
    """Episodes `first` to `last` - 1 at a budget, which may be moved in the middle."""

    first: int
    last: int
    budget: float
    stream: str  # name of the policy's random numbers
    since: int = 0  # step from which rewards and costs are counted
    new_budget: float | None = None  # held from that step on

    def __len__(self) -> int:
        """Number of episodes."""
        return self.last - self.first


class Returns(NamedTuple):
    """What episodes earned and paid from a step on, `[N]` each."""

    reward: FloatArray
    cost: FloatArray
    discounted_reward: FloatArray
    discounted_cost: FloatArray
    length: IntArray  # steps
    infeasible: BoolArray  # whether the first decision from that step on said so
    going: BoolArray  # whether the episode had not ended before


@dataclass(frozen=True)
class Setting:
    """What jobs have in common, the policy aside."""

    spec: EnvSpec
    seed: int
    max_steps: int  # of an episode, where the environment has no horizon

    def __post_init__(self) -> None:
        """Checks the numbers."""
        stream_key(self.seed, "")
        require_count("max_steps", self.max_steps, 1)


class Player:
    """Plays jobs of one policy in one environment."""

    def __init__(self, policy: BudgetedPolicy, setting: Setting) -> None:
        """Makes the environment."""
        self._policy, self._setting = policy, setting
        self.slots = open_slots(setting.spec)

    def play(self, job: Job) -> Returns:
        """Plays all episodes of a job side by side.

        Raises:
            PolicyError: if the policy does not fit the environment.
            EnvError: if an episode does not end.
        """
        returns = _nothing_yet(len(job))
        states, tracker = self._begin(job)
        going: BoolArray = np.ones(len(states), np.bool_)
        limit = self.slots.facts.horizon or self._setting.max_steps
        for step in range(limit):
            with self._fits(states):
                decision = tracker.decide(states)
            if step == job.since:
                returns.going[:] = going
                returns.infeasible[:] = going & (decision.status == BudgetStatus.INFEASIBLE)
            step_of = self.slots.step(self._actions(decision, going), going)
            states, rewards, costs, ended, _ = step_of
            rewards, costs = self._paid("reward", rewards, going), self._paid("cost", costs, going)
            if step >= job.since:
                self._count(returns, going, (rewards, costs), step - job.since)
            going = going & ~ended
            tracker.observe(costs, states, ~going)
            if not going.any():
                return returns
            if step + 1 == job.since and job.new_budget is not None:
                tracker.set_budget(job.new_budget)
        raise self._endless(job, going, limit)

    def _begin(self, job: Job) -> tuple[NDArray[Any], Tracker]:
        """First states, and the tracker."""
        numbers = range(job.first, job.last)
        states = self.slots.reset(environment_seeds(self._setting.seed, numbers))
        streams = EpisodeStreams.named(self._setting.seed, job.stream, numbers)
        with self._fits(states):
            tracker = self._policy.start(states, job.budget, streams)
        if job.since == 0 and job.new_budget is not None:
            tracker.set_budget(job.new_budget)
        return states, tracker

    @contextmanager
    def _fits(self, states: NDArray[Any]) -> Iterator[None]:
        """Says which states they were if the policy cannot act on them."""
        try:
            yield
        except BudgetError:
            raise
        except _UNFIT as error:
            raise PolicyError(
                f"the policy cannot act on what {self._setting.spec.id} shows, states of shape "
                f"{list(states.shape[1:])} and type {states.dtype}; "
                f"{type(self._policy).__name__} said: {error}"
            ) from error

    def _actions(self, decision: Decisions, going: BoolArray) -> IntArray:
        """Actions that the environment has; the first one in slots that ended."""
        space = self.slots.action_space
        first, last = int(space.start), int(space.start + space.n - 1)
        actions = np.where(going, decision.action, first)
        bad = np.flatnonzero((actions < first) | (actions > last))
        if len(bad):
            raise PolicyError(
                f"{self._setting.spec.id} has actions {first} to {last}; "
                f"{type(self._policy).__name__} chose {actions[bad[0]]}."
            )
        return actions

    def _paid(self, what: str, values: FloatArray, going: BoolArray) -> FloatArray:
        """Numbers of a step, 0 in slots that ended."""
        paid = np.where(going, values, 0.0)
        bad = np.flatnonzero(~np.isfinite(paid))
        if len(bad):
            raise EnvError(
                f"{self._setting.spec.id} must give a finite {what} at every step; "
                f"got {paid[bad[0]]}."
            )
        return paid

    def _count(
        self, returns: Returns, going: BoolArray, paid: tuple[FloatArray, FloatArray], step: int
    ) -> None:
        """Adds what a step earned and paid, in place."""
        rewards, costs = paid
        discount = self.slots.facts.gamma**step
        returns.reward[:] += rewards
        returns.cost[:] += costs
        returns.discounted_reward[:] += discount * rewards
        returns.discounted_cost[:] += discount * costs
        returns.length[:] += going

    def _endless(self, job: Job, going: BoolArray, limit: int) -> EnvError:
        number = job.first + int(np.flatnonzero(going)[0])
        rule = "its horizon" if self.slots.facts.horizon else "max_steps"
        return EnvError(
            f"an episode of {self._setting.spec.id} must end within {rule}, {limit} steps; "
            f"episode {number} at budget {job.budget:g} did not. Give the environment a horizon, "
            "or its specification max_episode_steps."
        )


def environment_seeds(seed: int, episodes: range) -> list[int]:
    """Returns the seeds of an environment for some episodes: one after the other, below 2**32.

    >>> environment_seeds(0, range(5, 7))[1] - environment_seeds(0, range(5))[0]
    6
    """
    base = stream_key(seed, "evaluate/environment")[0]
    return [(base + number) % N_SEEDS for number in episodes]


def checked_budgets(name: str, budgets: ArrayLike, policy: BudgetedPolicy) -> FloatArray:
    """Returns budgets `[B]` that a policy takes.

    Raises:
        BudgetError: if there is none, or one is not a finite number, or below `budget_range`.
    """
    try:
        asked = real_array(name, budgets).astype(np.float64)
    except DataError as error:
        raise BudgetError(str(error)) from error
    if asked.ndim != 1 or not asked.size:
        raise BudgetError(
            f"{name} must have shape [B], with at least one budget; got {list(asked.shape)}."
        )
    require_finite(name, asked, error=BudgetError)
    return admitted_budgets(asked, len(asked), policy.budget_range)


def _nothing_yet(n: int) -> Returns:
    """Returns of episodes that have not begun."""
    return Returns(
        reward=np.zeros(n),
        cost=np.zeros(n),
        discounted_reward=np.zeros(n),
        discounted_cost=np.zeros(n),
        length=np.zeros(n, np.int64),
        infeasible=np.zeros(n, np.bool_),
        going=np.zeros(n, np.bool_),
    )
