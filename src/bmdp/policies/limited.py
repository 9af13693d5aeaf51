"""A limit on single episodes: a budget is the chance that an episode costs more than the limit.

The cost so far joins the state. A step costs 1 if the plain sum of costs first exceeds the limit
there, and 0 otherwise, so the expected cost of an episode is the chance that it exceeds the limit.
Nothing follows from how much more it costs, so a sum above the limit is kept at the limit, beside a
number that says that it was exceeded.

The same functions make states of a log (`bmdp.data.cost_so_far`), states that a policy is shown,
and shares of episodes that are played (`bmdp.evaluate`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import BoolArray, FloatArray
from bmdp.errors import ConfigError
from bmdp.frontier import Frontier
from bmdp.kinds import checked
from bmdp.policies.policy import (
    BudgetedPolicy,
    Decisions,
    EpisodeTracker,
    Policy,
    Randomness,
    episode_streams,
)
from bmdp.policies.state import StateReader, plain_numbers, refusal, resumed, state_of
from bmdp.randomness import EpisodeStreams
from bmdp.storage import storable

_ROUNDING = 1e-9  # share of the limit by which a sum of costs may be off


_SHARED = ("step", "has_decided", "streams", "budgets", "ended")
"""Parts of a state that the tracker inside has, too, and that are the same."""


class Spent(NamedTuple):
    """Costs of `N` episodes so far, and whether they exceed the limit."""

    so_far: FloatArray  # [N], at most the limit
    exceeded: BoolArray  # [N]

    @classmethod
    def nothing(cls, n: int) -> Spent:
        """That of `N` episodes at their start."""
        return cls(np.zeros(n), np.zeros(n, np.bool_))

    def after(self, costs: ArrayLike, limit: float) -> Spent:
        """The same after a step that costs `[N]`; a sum that is off by rounding is the limit.

        >>> first = Spent.nothing(2).after([0.5, 2.5], limit=2.0)
        >>> first.so_far.tolist(), first.exceeded.tolist()
        ([0.5, 2.0], [False, True])
        >>> first.after([1.5, -1.0], limit=2.0).exceeded.tolist()
        [False, True]
        """
        total = self.so_far + np.asarray(costs, np.float64)
        exceeded = self.exceeded | exceeds(total, limit)
        return Spent(np.where(exceeded, limit, np.minimum(total, limit)), exceeded)

    def crossed(self, before: Spent) -> FloatArray:
        """Costs of the step `[N]` as a limit counts them: 1 where it was first exceeded."""
        return (self.exceeded & ~before.exceeded).astype(np.float64)

    def shown(self, states: ArrayLike) -> FloatArray:
        """States `[N, D + 2]` with the cost so far and whether it exceeds the limit.

        >>> Spent.nothing(2).shown([[7.0], [8.0]]).tolist()
        [[7.0, 0.0, 0.0], [8.0, 0.0, 0.0]]
        """
        rows = np.asarray(states, np.float64)
        rows = rows.reshape(len(rows), math.prod(rows.shape[1:]))  # there may be none
        # Sums that differ by rounding are one cell of a table.
        so_far = self.so_far.astype(np.float32).astype(np.float64)
        return np.column_stack((rows, so_far, self.exceeded))


def exceeds(total: Any, limit: float) -> Any:
    """Whether sums of costs exceed a limit by more than rounding.

    >>> exceeds(2.0 + 1e-12, 2.0), exceeds(2.1, 2.0)
    (False, True)
    """
    return total > limit + _ROUNDING * max(1.0, abs(limit))


def require_limit(limit: Any) -> float:
    """Returns a limit on the cost of an episode.

    Raises:
        ConfigError: if it is not a finite number from 0 on.
    """
    number = np.asarray(limit)
    if number.shape != () or number.dtype.kind not in "fiu" or not 0 <= float(limit) < np.inf:
        raise ConfigError(f"episode_limit must be a finite number from 0 on; got {limit!r}.")
    return float(limit)


@checked
@storable
@dataclass(frozen=True, eq=False)
class EpisodeLimitPolicy(Policy):
    """A policy whose budgets are probabilities that an episode costs more than a limit.

    It takes states and costs as they are. Its trackers add up the costs that they observe, and show
    the policy inside what an episode has cost so far.

    >>> from bmdp.policies import HullPolicy, TabularQ
    >>> q = TabularQ(q_r=[[[0.0, 0.0], [1.0, 1.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    >>> inner = HullPolicy(lambda rows: q(np.zeros(len(rows), int)), [0.0, 1.0])
    >>> policy = EpisodeLimitPolicy(inner, episode_limit=2.0)
    >>> tracker = policy.start([[7.0]], 0.0, np.random.default_rng(0))
    >>> tracker.decide([[7.0]]).action.tolist()
    [0]
    >>> tracker.observe(costs=[1.5], next_states=[[7.0]], ended=False)
    >>> tracker.spent.so_far.tolist()
    [1.5]
    """

    policy: BudgetedPolicy  # sees two more numbers, and its costs are probabilities
    episode_limit: float  # on the plain sum of the costs of an episode

    why_no_one_step_form = "adds up what an episode has cost so far, which no state says"
    takes_masks = True

    def __post_init__(self) -> None:
        """Checks the limit."""
        object.__setattr__(self, "episode_limit", require_limit(self.episode_limit))

    @property
    def budget_range(self) -> tuple[float, float]:
        """Chances that the policy takes."""
        return self.policy.budget_range

    @property
    def certificate(self) -> Any:
        """Promise of the policy inside, if it has one."""
        return getattr(self.policy, "certificate", None)

    def frontier(
        self, state: ArrayLike, step: int = 0, available: ArrayLike | None = None
    ) -> Frontier:
        """Returns chances and rewards that are expected from a state where nothing was paid yet."""
        inside: Any = self.policy
        shown = Spent.nothing(1).shown(np.asarray(state)[None])[0]
        found: Frontier = inside.frontier(shown, step, available)
        return found

    def start(self, states: ArrayLike, budgets: ArrayLike, rng: Randomness) -> EpisodeLimitTracker:
        """Starts `N` episodes."""
        return EpisodeLimitTracker(self, states, budgets, episode_streams(rng, states))


@checked
class EpisodeLimitTracker(EpisodeTracker[EpisodeLimitPolicy]):
    """Episodes under an `EpisodeLimitPolicy`."""

    def __init__(
        self,
        policy: EpisodeLimitPolicy,
        states: ArrayLike,
        budgets: ArrayLike,
        streams: EpisodeStreams,
    ) -> None:
        """Starts one episode for each stream."""
        self.spent = Spent.nothing(len(streams))
        self._inside = policy.policy.start(self.spent.shown(states), budgets, streams)
        super().__init__(policy, budgets, streams)

    @property
    def budgets(self) -> FloatArray:
        """Budgets held now, `[N]`."""
        return self._inside.budgets

    def begin_at(self, step: int) -> None:
        """Says that the episodes are at a step already, and have cost nothing so far."""
        super().begin_at(step)
        begin_at = getattr(self._inside, "begin_at", None)
        if begin_at is not None:
            begin_at(step)

    def set_budget(self, budgets: ArrayLike) -> None:
        """Replaces the budgets held, from the next decision on."""
        super().set_budget(budgets)
        self._inside.set_budget(budgets)

    def _decide(self, states: NDArray[Any]) -> Decisions:
        masks = () if self._available is None else (self._available,)
        return self._inside.decide(self.spent.shown(states), *masks)

    def _observe(self, costs: FloatArray, next_states: NDArray[Any], ended: BoolArray) -> None:
        before = self.spent
        paid = np.where(self._ended, 0.0, costs)
        self.spent = before.after(paid, self._policy.episode_limit)
        masks = () if self._available is None else (self._available,)
        shown = self.spent.shown(next_states)
        self._inside.observe(self.spent.crossed(before), shown, ended, *masks)

    def _own_state(self) -> dict[str, Any]:
        return {
            "so_far": plain_numbers(self.spent.so_far),
            "exceeded": self.spent.exceeded.tolist(),
            "inside": state_of(self._inside),
        }

    def _take_over(self, kept: StateReader) -> None:
        shape = (len(self._streams),)
        so_far, limit = kept.numbers("so_far", shape), self._policy.episode_limit
        for sum_ in so_far[(so_far > limit) | (so_far < np.finfo(np.float32).min)]:
            raise refusal('state["so_far"]', f"sums of costs, at most {limit:g}", float(sum_))
        self.spent = Spent(so_far, kept.truths("exceeded", shape))
        for sum_ in so_far[self.spent.exceeded & (so_far != limit)]:
            raise refusal('state["so_far"]', f"{limit:g} where that is exceeded", float(sum_))
        inside = kept.item("inside")
        self._inside = resumed(self._policy.policy, inside, 'state["inside"]')
        n_inside = len(self._inside.budgets)
        if n_inside != shape[0]:
            raise refusal('state["inside"]', f"of {shape[0]} episodes", n_inside)
        for name in _SHARED:  # which trackers of policies of your own may lack
            if name in inside and inside[name] != kept.item(name):
                raise refusal(f'state["inside"]["{name}"]', "that of the state", inside[name])

    def _spends(self) -> BoolArray:
        """None does: the tracker inside decides, by budgets of its own."""
        return np.zeros(len(self._streams), np.bool_)


def episode_limit_of(policy: Any) -> float | None:
    """Returns the limit on an episode that budgets of a policy are chances to exceed, if any."""
    while policy is not None:
        limit = getattr(policy, "episode_limit", None)
        if limit is not None:
            return float(limit)
        policy = getattr(policy, "policy", None)  # within an encoder
    return None


def without_limit(policy: Any) -> Any:
    """Returns the policy inside, whose states show costs so far; any other as it is."""
    return policy.policy if isinstance(policy, EpisodeLimitPolicy) else policy
