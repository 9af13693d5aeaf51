"""A budgeted policy: from (state, budget) to (action, next budget), in two forms.

*One-step form*: `policy.act(state, budget, rng)` for one state, `policy.decide(states, budgets,
rng)` for many. The caller carries the budget: it holds `next_budget` at the next state (Eq. 2).

*Episode form*, which every policy has: `tracker = policy.start(states, budgets, rng)` for a batch
of episodes, then in turn `tracker.decide(states)` and `tracker.observe(costs, next_states, ended)`.
The tracker carries the budgets, and `tracker.set_budget(budgets)` moves the dial in the middle.
`tracker.state()` is plain data, from which `policy.resume(state)` goes on in another process.
Where some actions are not available at some states, both forms take `available`, `[N, A]`.
Policies that toss a coin once per episode, that count steps, or whose next budget depends on the
next state, have this form only.

A one-step policy is a pure function of states, budgets and uniform numbers, a fixed count of them
for each decision. The numbers come from a numpy generator in one-step form, and from one stream for
each episode in episode form, so that an episode goes the same way whatever it is batched with.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
)

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import (
    MAGNITUDE,
    BoolArray,
    FloatArray,
    IntArray,
    any_array,
    real_array,
    require_finite,
    require_shape,
    rows_at,
)
from bmdp.checks import reached, require_count, require_share
from bmdp.cluster import Engine, run_on_ray
from bmdp.errors import BudgetError, DataError, EnvError, PolicyError, StoreError
from bmdp.frontier import BudgetStatus
from bmdp.kinds import checked
from bmdp.policies.state import (
    LARGEST,
    STATE_FORMAT,
    StateReader,
    plain_numbers,
    plain_streams,
)
from bmdp.randomness import EpisodeStreams
from bmdp.storage import POLICY, is_registered, kinds_of, load_value, modules_of, save_value
from bmdp.workers import Died, run_jobs

ActionT = TypeVar("ActionT")
BudgetT = TypeVar("BudgetT")
StatusT = TypeVar("StatusT")


class Decision(NamedTuple, Generic[ActionT, BudgetT, StatusT]):
    """An action, the budget to hold next, and where the budget lay on the frontier.

    One of each from `act`, arrays `[N]` from `decide`.

    Paper: the augmented action (a, beta_a) of Section 2.

    >>> from bmdp.policies import HullPolicy, TabularQ
    >>> q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    >>> HullPolicy(q, [0.0, 1.0]).act(0, 1.0, np.random.default_rng(0))
    Decision(action=1, next_budget=0.0, status=<BudgetStatus.SLACK: 2>)
    """

    action: ActionT  # number of an action
    next_budget: BudgetT  # in expected discounted cost, from the next state on
    status: StatusT  # of the budget held


OneDecision: TypeAlias = Decision[int, float, BudgetStatus]
Decisions: TypeAlias = Decision[IntArray, FloatArray, IntArray]
"""The same three as arrays `[N]`."""


class Options(NamedTuple):
    """Actions that a policy mixes at `N` states and budgets, `J` at each, with probabilities.

    `[N, L, J]` where each state is asked at `L` budgets.
    """

    action: IntArray  # [N, J]
    next_budget: FloatArray  # [N, J]
    probability: FloatArray  # [N, J], rows sum to 1


Randomness: TypeAlias = np.random.Generator | EpisodeStreams


def admitted_budgets(
    budgets: ArrayLike, n_rows: int, budget_range: tuple[float, float]
) -> NDArray[np.float64]:
    """Returns budgets `[N]` that a policy takes; one for all may be given.

    Raises:
        BudgetError: naming the first that is not a number, or below the range.
        DataError: if there are not `N`.

    >>> admitted_budgets(0.5, 2, (0.0, 1.0))
    array([0.5, 0.5])
    """
    held = real_array("budgets", budgets).astype(np.float64)
    if held.ndim == 0:
        held = np.full(n_rows, held)
    require_shape("budgets", held, (n_rows,), "[N]")
    low, high = budget_range
    refused = np.flatnonzero(~(held >= low))  # NaN included
    if len(refused):
        i = int(refused[0])
        raise BudgetError(
            f"budgets must be numbers from {low:g} on (budget_range is {low:g} to {high:g}); "
            f"got {held[i]:g} at [{i}]."
        )
    return held


def episode_streams(rng: Randomness, states: ArrayLike) -> EpisodeStreams:
    """Returns a stream for each episode that starts: those given, or new ones of a generator."""
    n_episodes = len(state_rows(states))
    if isinstance(rng, EpisodeStreams):
        if len(rng) != n_episodes:
            raise PolicyError(
                f"rng must have one stream for each of {n_episodes} episodes; got {len(rng)}."
            )
        return rng
    return EpisodeStreams.from_generator(rng, n_episodes)


def idle_decisions(budgets: FloatArray) -> Decisions:
    """Decisions of ended episodes: action 0, the budget as it is, SLACK."""
    status = np.full(len(budgets), BudgetStatus.SLACK, np.int8)
    return Decision(np.zeros(len(budgets), np.int64), budgets.copy(), status)


def ended_episodes(ended: ArrayLike, n_rows: int) -> BoolArray:
    """Checks the mask of ended episodes, `[N]` or one for all."""
    mask = _truth_values("ended", ended)
    if mask.ndim == 0:
        mask = np.full(n_rows, mask)
    require_shape("ended", mask, (n_rows,), "[N]")
    return mask


def _truth_values(name: str, values: ArrayLike) -> BoolArray:
    """Truth values; numbers may hold them too, as 0 and 1."""
    mask = any_array(name, values)
    if mask.dtype != np.bool_:
        mask = real_array(name, mask)
        if not ((mask == 0) | (mask == 1)).all():
            raise DataError(f"{name} must be True or False, or 0 and 1.")
    return mask.astype(np.bool_, copy=False)


def state_rows(states: ArrayLike, n_rows: int | None = None) -> NDArray[Any]:
    """States as an array `[N, ...]`."""
    rows = any_array("states", states)
    if rows.dtype.kind not in "fiub":
        raise DataError(f"states must be numbers; got type {rows.dtype}.")
    if rows.ndim == 0 or (n_rows is not None and len(rows) != n_rows):
        count = "[N, ...]" if n_rows is None else f"[{n_rows}, ...]"
        require_shape("states", rows, (n_rows, *rows.shape[1:]), count)
    return rows


def admitted_masks(available: ArrayLike, n_rows: int) -> BoolArray:
    """Returns which actions are available at `N` states, `[N, A]`.

    Raises:
        DataError: if they are not truth values of that shape, or a row has none.

    >>> admitted_masks([[1, 0], [1, 1]], 2).tolist()
    [[True, False], [True, True]]
    """
    mask = _truth_values("available", available)
    require_shape("available", mask, (n_rows, None), f"[{n_rows}, A]")
    empty = np.flatnonzero(~mask.any(axis=1))
    if len(empty):
        raise DataError(f"available must have an action in every row; got none at [{empty[0]}].")
    return mask


def admitted_mask(available: ArrayLike | None) -> BoolArray | None:
    """Returns which actions are available at one state, `[A]`, as those of one row; None if all."""
    return None if available is None else admitted_masks(any_array("available", available)[None], 1)


def masked_values(
    q_r: FloatArray, q_c: FloatArray, available: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Returns Q-values `[N, A, H]` by which no action is played that is not available, `[N, A]`.

    Where none of those that are may be played by the values, all of them are worth the same.

    >>> q_r, q_c = masked_values(*np.ones((2, 1, 2, 1)), np.array([[True, False]]))
    >>> q_r.tolist(), q_c.tolist()
    ([[[1.0], [-inf]]], [[[1.0], [inf]]])
    """
    require_shape("available", available, q_r.shape[:2], "[N, A]")
    if available.all():
        return q_r, q_c
    known = available[:, :, None] & (q_r > -np.inf)
    is_lost = ~known.any(axis=1, keepdims=True) & available[:, :, None]
    return (
        np.where(known, q_r, np.where(is_lost, 0.0, -np.inf)),
        np.where(known, q_c, np.where(is_lost, 0.0, np.inf)),
    )


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

    def decide(self, states: Any, available: ArrayLike | None = None) -> Decisions:
        """Decides at the states `[N, ...]`. Rows of ended episodes mean nothing.

        Args:
            states: `[N, ...]`.
            available: `[N, A]`, which actions there are at them; all, if not given.
        """

    def observe(
        self,
        costs: ArrayLike,
        next_states: Any,
        ended: ArrayLike,
        available: ArrayLike | None = None,
    ) -> None:
        """Records what followed a decision.

        Args:
            costs: paid, `[N]`.
            next_states: `[N, ...]`.
            ended: which episodes did, `[N]`.
            available: `[N, A]`, which actions there are at next states. `budgets` may depend on it.
        """

    def set_budget(self, budgets: ArrayLike) -> None:
        """Replaces the budgets held, `[N]` or one for all, from the next decision on."""

    def state(self) -> dict[str, Any]:
        """Returns all that the episodes carry, as plain data that can be written as JSON.

        `policy.resume(state)` goes on from it, and decides as this tracker would, bit for bit. It
        may be taken at any time, between a decision and its observation, too.

        >>> import json
        >>> from bmdp.policies import RandomBudgetedPolicy
        >>> policy = RandomBudgetedPolicy(n_actions=2, low=0.0, high=1.0)
        >>> tracker = policy.start([0], budgets=0.5, rng=np.random.default_rng(0))
        >>> text = json.dumps(tracker.state())
        >>> tracker.decide([0]) == policy.resume(json.loads(text)).decide([0])
        True
        """


class Ranged(Protocol):
    """A policy, as far as all trackers ask."""

    @property
    def budget_range(self) -> tuple[float, float]:
        """Lowest and highest budget."""


RangedT = TypeVar("RangedT", bound=Ranged)


@checked
class EpisodeTracker(ABC, Generic[RangedT]):
    """Base of trackers: budgets, streams, which episodes ended, and whose turn it is."""

    def __init__(self, policy: RangedT, budgets: ArrayLike, streams: EpisodeStreams) -> None:
        """Starts one episode for each stream."""
        self._policy, self._streams, self._step = policy, streams, 0
        self._budget_range = policy.budget_range
        self._ended: BoolArray = np.zeros(len(streams), np.bool_)
        self._has_decided = False
        self._available: BoolArray | None = None  # [N, A], at the states it has come to
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

    def decide(self, states: ArrayLike, available: ArrayLike | None = None) -> Decisions:
        """Returns what to do; an ended episode gets action 0, its budget back, and SLACK.

        Raises:
            PolicyError: if it is told which actions are available, and the policy takes no masks.
            DataError: if no action is available in an episode that goes on.
        """
        if self._has_decided:
            raise PolicyError("tracker.decide was called twice: call tracker.observe in between.")
        rows = state_rows(states, len(self._streams))
        self._available = None
        if available is not None:
            require_mask_taker(self._policy)
            self._available = self._masks(available, self._ended)
        decision = self._decide(rows)
        self._has_decided = True
        self._budgets, self._step = decision.next_budget.copy(), self._step + 1
        return decision

    def _masks(self, available: ArrayLike, ended: BoolArray) -> BoolArray:
        """Available actions, `[N, A]`; of ended episodes, all."""
        mask = any_array("available", available)
        require_shape("available", mask, (len(ended), None), f"[{len(ended)}, A]")
        return admitted_masks(np.where(ended[:, None], 1, mask), len(ended))

    def observe(
        self,
        costs: ArrayLike,
        next_states: ArrayLike,
        ended: ArrayLike,
        available: ArrayLike | None = None,
    ) -> None:
        """Records what followed a decision."""
        if not self._has_decided:
            raise PolicyError("tracker.observe must follow tracker.decide.")
        ended_now = ended_episodes(ended, len(self._streams))
        over = self._ended | ended_now
        self._available = None if available is None else self._masks(available, over)
        paid = real_array("costs", costs).astype(np.float64)
        if paid.ndim:
            require_shape("costs", paid, ended_now.shape, "[N]")
        paid = np.broadcast_to(paid, ended_now.shape)
        require_finite("costs", np.where(self._ended, 0.0, paid), limit=MAGNITUDE)
        self._observe(paid, state_rows(next_states, len(ended_now)), ended_now)
        self._ended, self._has_decided = over, False

    def set_budget(self, budgets: ArrayLike) -> None:
        """Replaces the budgets held, from the next decision on."""
        self._budgets = admitted_budgets(budgets, len(self._streams), self._budget_range)

    def state(self) -> dict[str, Any]:
        """Returns all that the episodes carry, as plain data: `policy.resume(state)` goes on.

        Which actions are available is no part of it: that is told anew with each state. A tracker
        that carries more says it by `_own_state`, and takes it back by `_take_over`.

        Raises:
            PolicyError: if it follows a tracker that cannot say its state.
        """
        budgets = self.budgets  # which some trackers only now work out
        return {
            "format": STATE_FORMAT,
            "policy": type(self._policy).__name__,
            "step": int(self._step),
            "has_decided": self._has_decided,
            "streams": plain_streams(self._streams),
            "budgets": plain_numbers(budgets),
            "ended": self._ended.tolist(),
            **self._own_state(),
        }

    def go_on_from(self, kept: StateReader) -> None:
        """Takes over a state, of as many episodes. Trackers are made from one by `policy.resume`.

        Raises:
            PolicyError: if a part is missing, unknown, or not what it must be.
            BudgetError: if a budget that is to be spent is below `budget_range`.
        """
        n = len(self._streams)
        self._step = kept.whole_number("step", 0, LARGEST)
        self._has_decided = kept.truth("has_decided")
        if self._has_decided and self._step == 0:
            raise PolicyError('state["step"] must be from 1 on after a decision; got 0.')
        self._budgets = kept.numbers("budgets", (n,), words=("inf", "-inf"))
        self._ended = kept.truths("ended", (n,))
        self._take_over(kept)
        kept.finish()
        low, high = self._budget_range
        spent = np.where(self._spends(), self._budgets, high)
        admitted_budgets(spent, n, (low, high))

    def _own_state(self) -> dict[str, Any]:
        """Returns what this kind of tracker adds to its state, as plain data."""
        return {}

    def _take_over(self, kept: StateReader) -> None:
        """Takes back what `_own_state` said, checked. The common part was taken before."""

    def _spends(self) -> BoolArray:
        """Which episodes decide by the budget that they hold, which must be in the range then."""
        return ~self._ended

    @abstractmethod
    def _decide(self, states: NDArray[Any]) -> Decisions:
        """Returns what to do at the states."""

    @abstractmethod
    def _observe(self, costs: FloatArray, next_states: NDArray[Any], ended: BoolArray) -> None:
        """Records what followed a decision."""


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

    def act(
        self,
        state: Any,
        budget: float,
        rng: np.random.Generator,
        available: ArrayLike | None = None,
    ) -> OneDecision:
        """Decides at one state, among the available actions `[A]` if these are given."""

    def decide(
        self,
        states: Any,
        budgets: ArrayLike,
        rng: np.random.Generator,
        available: ArrayLike | None = None,
    ) -> Decisions:
        """Decides at `N` states, as `act` would at one after the other, given masks `[N, A]`."""

    def start(self, states: Any, budgets: ArrayLike, rng: Randomness) -> Tracker:
        """Starts `N` episodes, with their own streams, or with streams made from a generator."""

    def resume(self, state: Any) -> Tracker:
        """Returns a tracker that continues from `tracker.state()`, here or in another process."""


@checked
class Policy(ABC):
    """Base of all policies of this library; by itself, a policy with the episode form only.

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
    takes_budgets: ClassVar[bool] = True
    """Whether its dial is in units of cost, which the number of a price is not."""
    takes_masks: ClassVar[bool] = False
    """Whether it can be told which actions are available. One that can takes `available`, `[N, A]`,
    as the last argument of `choose` and `options`."""

    @property
    @abstractmethod
    def budget_range(self) -> tuple[float, float]:
        """Lowest and highest budget."""

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the actions, by number; none if they have only numbers."""
        return ()

    def action_name(self, action: int) -> str:
        """Returns the name of an action; its number, if it has no name.

        >>> from bmdp.policies import RandomBudgetedPolicy
        >>> RandomBudgetedPolicy(2, 0.0, 1.0).action_name(1)
        '1'
        """
        return str(int(action))

    if TYPE_CHECKING:  # what only some policies have, for checkers of types

        @property
        def certificate(self) -> Any:
            """The promise of a policy of `bmdp.certify` or `bmdp.calibrate`."""

        @property
        def encoder(self) -> Any:
            """The reader of states as they are in the log, where columns have names."""

        @property
        def frontier(self) -> Any:
            """Costs and rewards of the best mixtures at a state."""

    @abstractmethod
    def start(self, states: Any, budgets: ArrayLike, rng: Randomness) -> Tracker:
        """Starts `N` episodes."""

    def resume(self, state: Any) -> Tracker:
        """Returns a tracker that goes on from a state, and decides as the one that said it.

        Args:
            state: what `tracker.state()` returned under this policy; it may have been JSON since.

        Raises:
            PolicyError: if it is no such state, one of another kind of policy, or of another
                version; nothing of it is used then.
            BudgetError: if a budget is below `budget_range`.

        >>> import json
        >>> from bmdp.policies import HullPolicy, TabularQ
        >>> q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
        >>> policy = HullPolicy(q, beta_grid=[0.0, 1.0])
        >>> tracker = policy.start([0], budgets=0.5, rng=np.random.default_rng(0))
        >>> state = json.loads(json.dumps(tracker.state()))
        >>> state["policy"], state["step"], state["budgets"]
        ('HullPolicy', 0, [0.5])
        >>> policy.resume(state).decide([0]).action.tolist(), tracker.decide([0]).action.tolist()
        ([0], [0])
        >>> policy.resume(state | {"step": -1})
        Traceback (most recent call last):
        bmdp.errors.PolicyError: state["step"] must be a whole number from 0 on; got -1.
        """
        kept = StateReader(state, type(self).__name__)
        streams = kept.streams()
        tracker = self.start(np.zeros(len(streams)), self.budget_range[1], streams)
        if not isinstance(tracker, EpisodeTracker):
            raise PolicyError(
                f"{type(self).__name__} cannot go on from a state: its tracker is no "
                "EpisodeTracker. Give it a method resume."
            )
        tracker.go_on_from(kept)
        return tracker

    def act(
        self,
        state: Any,
        budget: float,
        rng: np.random.Generator,
        available: ArrayLike | None = None,
    ) -> OneDecision:
        """Refuses, and says which form to use."""
        raise self._refusal()

    def decide(
        self,
        states: Any,
        budgets: ArrayLike,
        rng: np.random.Generator,
        available: ArrayLike | None = None,
    ) -> Decisions:
        """Refuses, and says which form to use."""
        raise self._refusal()

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes the policy to a folder that `bmdp.load_policy` reads.

        Raises:
            StoreError: if a part of it cannot be stored, or the folder exists and may not be
                overwritten.
        """
        save_value(self, folder, overwrite=overwrite)

    def export_onnx(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes the policy as one ONNX file, which decides without Python (`docs/production.md`).

        Raises:
            PolicyError: if it cannot be written as a graph, with the reason.
            StoreError: if the file exists and may not be overwritten, or cannot be written.
            MissingDependency: if onnx is not installed.
        """
        exporter = import_module("bmdp.deployment.onnx")  # of a higher level
        exporter.export_onnx(self, path, overwrite=overwrite)

    def _refusal(self) -> PolicyError:
        return PolicyError(
            f"{type(self).__name__} {self.why_no_one_step_form}, so it has the episode form only: "
            "use tracker = policy.start(states, budgets, rng), then tracker.decide(states)."
        )


def require_mask_taker(policy: Any) -> None:
    """Checks that a policy can be told which actions are available.

    Raises:
        PolicyError: if it would play others.
    """
    if not getattr(policy, "takes_masks", False):
        raise PolicyError(
            f"{type(policy).__name__} cannot be told which actions are available, and might play "
            "others: it must have takes_masks = True, and choose among them."
        )


def _masks(policy: Any, available: ArrayLike | None, n_rows: int) -> tuple[BoolArray, ...]:
    """The last argument of a policy that is told which actions are available; none if all are."""
    if available is None:
        return ()
    require_mask_taker(policy)
    return (admitted_masks(available, n_rows),)


@checked
class OneStepPolicy(Policy):
    """A policy that decides by state and budget, and perhaps by the number of the step.

    Subclasses say how they choose; this class does the rest. One that counts steps (`n_steps` above
    1) has one-step forms by `at_step`, and otherwise the episode form only.

    >>> class Threshold(OneStepPolicy):
    ...     budget_range, n_draws = (0.0, 1.0), 0
    ...
    ...     def choose(self, states, budgets, uniforms):
    ...         status = np.full(len(budgets), BudgetStatus.SLACK)
    ...         return Decision((budgets > 0.5).astype(int), budgets, status)
    >>> Threshold().decide([0, 0], [0.2, 0.8], np.random.default_rng(0)).action.tolist()
    [0, 1]
    """

    why_no_one_step_form: ClassVar[str] = "counts the steps of an episode"

    @property
    @abstractmethod
    def n_draws(self) -> int:
        """Uniform random numbers that a decision takes."""

    @abstractmethod
    def choose(self, states: NDArray[Any], budgets: FloatArray, uniforms: FloatArray) -> Decisions:
        """Decides, given budgets within `budget_range` and uniform numbers `[N, n_draws]`."""

    def decide_from(
        self,
        states: ArrayLike,
        budgets: ArrayLike,
        uniforms: FloatArray,
        available: ArrayLike | None = None,
    ) -> Decisions:
        """Decides at `N` states, given uniform numbers `[N, n_draws]`.

        Raises:
            BudgetError: if a budget is not a number, or below `budget_range`.
            PolicyError: if it is told which actions are available, and takes no masks.
            DataError: if no action is available at a state.
        """
        rows = state_rows(states)
        masks = _masks(self, available, len(rows))
        held = admitted_budgets(budgets, len(rows), self.budget_range)
        if len(rows) == 0:
            return idle_decisions(held)
        highest = self.budget_range[1]
        decision = self.choose(rows, np.minimum(held, highest), uniforms, *masks)
        status = np.where(held > highest, np.int8(BudgetStatus.SLACK), decision.status)
        return decision._replace(status=status)

    def decide(
        self,
        states: ArrayLike,
        budgets: ArrayLike,
        rng: np.random.Generator,
        available: ArrayLike | None = None,
    ) -> Decisions:
        """Decides at `N` states, as `act` would at one after the other.

        Args:
            states: `[N, ...]`.
            budgets: `[N]`, or one for all.
            rng: of what is left to chance.
            available: `[N, A]`, which actions there are; all, if not given.

        Raises:
            PolicyError: if it counts steps, and so has the episode form only.
        """
        if self.n_steps > 1:
            raise self._refusal()
        rows = state_rows(states)
        return self.decide_from(rows, budgets, rng.random((len(rows), self.n_draws)), available)

    def act(
        self,
        state: ArrayLike,
        budget: float,
        rng: np.random.Generator,
        available: ArrayLike | None = None,
    ) -> OneDecision:
        """Decides at one state, among the available actions `[A]` if these are given."""
        mask = admitted_mask(available)
        action, next_budget, status = self.decide(
            any_array("state", state)[None], [budget], rng, mask
        )
        return Decision(int(action[0]), float(next_budget[0]), BudgetStatus(int(status[0])))

    @property
    def n_steps(self) -> int:
        """For how many steps of an episode it differs; the last one is for later steps, too."""
        return 1

    def at_step(self, step: int) -> OneStepPolicy:
        """Returns the policy of one step of an episode: itself, if it does the same at each."""
        return self

    def options_at(
        self, states: NDArray[Any], budgets: FloatArray, available: BoolArray | None = None
    ) -> Options:
        """Returns what it may do at each of `L` budgets at each of `N` states, `[N, L, J]`.

        Members that have `options` at a budget for each state need no more; some are faster.

        Args:
            states: `[N, ...]`.
            budgets: `[L]`, at least one, within `budget_range`.
            available: `[N, A]`, which actions there are; all, if not given.

        Raises:
            PolicyError: if it does not say with which probabilities it acts.
        """
        options = getattr(self, "options", None)
        if options is None:
            raise PolicyError(
                f"{type(self).__name__} does not say with which probabilities it acts: it has no "
                "`options`."
            )
        masks = _masks(self, available, len(states))
        each = [options(states, np.full(len(states), budget), *masks) for budget in budgets]
        return Options(*(np.stack(columns, axis=1) for columns in zip(*each, strict=True)))

    def start(self, states: ArrayLike, budgets: ArrayLike, rng: Randomness) -> StepTracker:
        """Starts `N` episodes."""
        return StepTracker(self, budgets, episode_streams(rng, states))


@checked
class QPolicy(OneStepPolicy):
    """A policy that plays by a Q-function, which may differ from step to step.

    A subclass is a dataclass with these two fields among its own.
    """

    q_function: QFunction
    step: int | None  # the only step that it plays; all of them, if not given

    takes_masks = True

    @property
    def n_steps(self) -> int:
        """Steps of the Q-function, or 1 if it plays a single one."""
        return steps_of(self.q_function) if self.step is None else 1

    def at_step(self, step: int) -> Self:
        """Returns the policy of one step; the last one is for later steps, too."""
        if self.n_steps == 1:
            return self
        whole: Any = self
        last = min(step, self.n_steps - 1)
        if last not in self._stages:
            self._stages.setdefault(last, replace(whole, step=last))  # one, whatever the thread
        return self._stages[last]

    @cached_property
    def _stages(self) -> dict[int, Self]:
        """Policies of single steps, made when they are asked for."""
        return {}

    def q_values(
        self, states: NDArray[Any], n_heads: int, available: BoolArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c) at its only step, each `[N, A, H]`, checked.

        Raises:
            PolicyError: if it plays several steps.
        """
        if self.n_steps > 1:
            raise self._refusal()
        return q_values(self.q_function, states, self.step or 0, n_heads, available)


class SteppedPolicy(Protocol):
    """A policy that has a one-step form at each step of an episode."""

    @property
    def budget_range(self) -> tuple[float, float]:
        """Lowest and highest budget."""

    def at_step(self, step: int) -> OneStepPolicy:
        """Returns what it does at one step."""


@checked
class StepTracker(EpisodeTracker[SteppedPolicy]):
    """Episodes under a policy with one-step forms: hands each budget on to the next decision."""

    def _decide(self, states: NDArray[Any]) -> Decisions:
        now, going = self._policy.at_step(self._step), ~self._ended
        decision = idle_decisions(self._budgets)
        if going.all():
            uniforms = self._streams.uniforms(self._step, now.n_draws)
            chosen = now.decide_from(states, self._budgets, uniforms, self._available)
        else:
            uniforms = self._streams.take(going).uniforms(self._step, now.n_draws)
            masks = rows_at(self._available, going)
            chosen = now.decide_from(states[going], self._budgets[going], uniforms, masks)
        for column, values in zip(decision, chosen, strict=True):
            column[going] = values
        return decision

    def _observe(self, costs: FloatArray, next_states: NDArray[Any], ended: BoolArray) -> None:
        """Does nothing: what followed does not matter to a one-step policy."""


@checked
def discounted_budget(limit: float, *, gamma: float, n_steps: int) -> float:
    """Returns the budget that stands for an undiscounted limit on the cost of an episode.

    A limit L over T steps becomes L (1 + gamma + ... + gamma**(T - 1)) / T, the discounted cost of
    an episode that pays L / T at each of T steps. It is right only where costs are spread evenly
    over episodes of T steps. An episode of the same limit that pays everything at the first step
    costs L, and one that pays everything at the last step L gamma**(T - 1).

    Args:
        limit: of the sum of all costs of an episode, undiscounted.
        gamma: discount of costs, from 0 to 1. With 1 the budget is the limit.
        n_steps: T, of an episode.

    Raises:
        BudgetError: if the limit is not a finite number.
        ConfigError: if the discount or the number of steps is out of range.

    >>> round(discounted_budget(25.0, gamma=0.99, n_steps=1_000), 3)
    2.5
    >>> discounted_budget(0.3, gamma=1.0, n_steps=9)
    0.3
    """
    if not np.isfinite(limit):
        raise BudgetError(f"limit must be a finite number; got {limit}.")
    require_share("gamma", gamma)
    require_count("n_steps", n_steps, 1)
    return float(limit * np.mean(float(gamma) ** np.arange(n_steps)))


QFunction: TypeAlias = Callable[..., tuple[FloatArray, FloatArray]]
"""From states `[N, ...]` to (q_r, q_c), each `[N, A, B]`, the last axis being the budget handed on.
One that differs from step to step has `n_steps`, and takes the number of the step after the
states. An action that must not be played has q_r minus infinity and q_c infinity. One that has
`takes_masks` takes `available`, `[N, A]`, too, and values what may be played among those."""


def steps_of(q_function: QFunction) -> int:
    """For how many steps a Q-function differs."""
    return int(getattr(q_function, "n_steps", 1))


def require_step(name: str, step: Any, q_function: QFunction) -> None:
    """Checks that a policy plays all steps of its Q-function (None), or one of them.

    Raises:
        ConfigError: naming the setting, and what was given.
    """
    if step is not None:
        require_count(name, step, 0, max(0, steps_of(q_function) - 1))


def require_heads(name: str, q_function: QFunction, n_heads: int) -> None:
    """Checks that a Q-function that knows the number of its heads has as many as a policy reads.

    Raises:
        DataError: naming what must be as many, and how many heads there are.
    """
    found = getattr(q_function, "n_heads", n_heads)
    if found != n_heads:
        raise DataError(f"{name} must be as many as heads of q_function, {found}; got {n_heads}.")


def q_values(
    q_function: QFunction,
    states: NDArray[Any],
    step: int,
    n_heads: int,
    available: BoolArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Returns (q_r, q_c) at a step, each `[N, A, H]`, checked; actions must be available."""
    several = (step,) if steps_of(q_function) > 1 else ()
    has_masks = available is not None and getattr(q_function, "takes_masks", False)
    q_r, q_c = q_function(states, *several, **({"available": available} if has_masks else {}))
    require_shape("q_r", q_r, (len(states), None, n_heads), f"[{len(states)}, A, {n_heads}]")
    require_shape("q_c", q_c, q_r.shape, "of q_r")
    return (q_r, q_c) if available is None else masked_values(q_r, q_c, available)


MOST_KEPT = 2**22
"""Numbers of all cells of a table, at most, of which a policy works out its decisions at once."""


def cell_values(q_function: QFunction, step: int) -> tuple[FloatArray, FloatArray] | None:
    """Returns (q_r, q_c) of all cells at a step, each `[C, A, H]`, of a table; None of others.

    A table is a Q-function with `cells` and `cell_values`, and `cell_values` is not None.
    """
    found = getattr(q_function, "cell_values", None)
    return None if found is None else found(step)


def cells_of(q_function: Any, states: NDArray[Any], step: int) -> IntArray:
    """Returns the numbers `[N]` of the cells of states `[N, ...]`, of a table."""
    found: IntArray = q_function.cells(states, step)
    return found


# Modules that register kinds beside this package's, the one that imports torch last.
_OTHER_KINDS = (
    *("bmdp.data.encoder", "bmdp.envs.scripted", "bmdp.exact.allocation_policy"),
    *("bmdp.envs.two_way.replanning", "bmdp.models"),
)


@checked
def load_policy(folder: str | os.PathLike[str]) -> Policy:
    """Returns the policy that `policy.save(folder)` wrote, or that a training run left.

    Args:
        folder: of a policy, or of a run.

    Raises:
        StoreError: if the folder is missing, damaged, of another format, or holds no policy, or
            is a training run that is not finished.

    >>> import tempfile
    >>> from bmdp.policies import HullPolicy, TabularQ
    >>> q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    >>> with tempfile.TemporaryDirectory() as place:
    ...     HullPolicy(q, beta_grid=[0.0, 1.0]).save(f"{place}/policy")
    ...     load_policy(f"{place}/policy").frontier(0).reward_at(0.25)
    2.5
    """
    place = Path(folder)
    if not reached(place).exists():
        raise StoreError(f"{place} is not there: give the folder of a policy, or of a run.")
    if (place / "spec.json").exists() and not (place / POLICY).exists():
        if not (place / "policy").exists():
            raise StoreError(
                f"{place} is a training run that is not finished: bmdp fit --resume {place}"
            )
        place = reached(place / "policy")
    for module in _OTHER_KINDS:
        if all(map(is_registered, kinds_of(place))):
            break
        import_module(module)
    policy = load_value(place)
    if not isinstance(policy, Policy):
        raise StoreError(f"{place} holds a {type(policy).__name__}, which is no policy.")
    return policy


SettingT = TypeVar("SettingT")
JobT = TypeVar("JobT")
DoneT = TypeVar("DoneT")


def run_with_policy(  # noqa: PLR0913
    make: Callable[[BudgetedPolicy, SettingT], Callable[[JobT], DoneT]],
    policy: BudgetedPolicy,
    setting: SettingT,
    jobs: Sequence[JobT],
    *,
    workers: int,
    engine: Engine = "local",
    on_done: Callable[[int], None] = lambda position: None,
) -> list[DoneT]:
    """Returns what came of jobs that need a policy, done by other processes.

    The policy travels to them as a saved folder, which they load as anyone would.

    Args:
        make: a function of a module, called once in each process: from the policy and the setting
            to what does a job. An error in it, or in a job, is raised here.
        policy: one that can be saved.
        setting: what jobs have in common; it is pickled, as the jobs are.
        jobs: any number of them.
        workers: number of processes, at most.
        engine: "ray" for processes of a Ray cluster (`bmdp.cluster`).
        on_done: called with the position of each job that is done.

    Raises:
        PolicyError: if the policy cannot be saved.
        EnvError: if a process ends before its job.
    """
    found: dict[int, DoneT] = {}
    with tempfile.TemporaryDirectory(prefix="bmdp-") as place:
        folder = Path(place) / "policy"
        try:
            policy.save(folder)  # type: ignore[attr-defined]
        except (AttributeError, StoreError) as error:
            raise PolicyError(
                "several workers need a policy that can be saved, because it travels to them as a "
                f"folder; {type(policy).__name__} cannot be: {error} Use workers=1."
            ) from error
        if engine == "ray":  # whose machines may not see the folder
            files = {path.name: path.read_bytes() for path in folder.iterdir()}
            given = (pickle.dumps((make, setting, files)),)
            parts = [pickle.dumps(job) for job in jobs]
            how: dict[str, Any] = {"workers": workers, "threads": 1, "device": "cpu"}
            running = run_on_ray(_do_there, parts, **how, common=given)
        else:
            setup = partial(_enter, make=make, setting=setting, folder=folder)
            running = run_jobs(_do_here, jobs, workers=workers, setup=setup)
        with closing(running) as results:
            for result in results:
                if result is None:
                    continue
                position, done = result
                if isinstance(done, Died):
                    raise EnvError(
                        f"a worker process ended before its job did: {done.reason} With workers=1 "
                        "more may be said."
                    )
                if engine == "ray":
                    done, raised = pickle.loads(done)
                    if raised is not None:
                        raise raised
                found[position] = done
                on_done(position)
    return [found[position] for position in range(len(jobs))]


_HERE: dict[str, Any] = {}
"""In a worker process: what `run_with_policy` was given, and what does a job."""


def _enter(**given: Any) -> None:
    _HERE.update(given)


def _do_here(job: Any) -> Any:
    """Does a job in a worker. What it needs is made now, so that an error of that is the job's."""
    if "do" not in _HERE:
        for module in modules_of(_HERE["folder"]) - {"__main__"}:  # which register its parts
            import_module(module)
        _HERE["do"] = _HERE["make"](load_policy(_HERE["folder"]), _HERE["setting"])
    return _HERE["do"](job)


def _do_there(given: bytes, job: bytes) -> bytes:
    """Does a job in a process of a cluster, and returns its result or its error.

    All is pickled here, as between processes of one machine: arrays that Ray hands over cannot be
    written to.
    """
    try:
        if _HERE.get("given") != given:
            _HERE.clear()
            make, setting, files = pickle.loads(given)
            with tempfile.TemporaryDirectory(prefix="bmdp-") as place:
                for name, content in files.items():
                    Path(place, name).write_bytes(content)
                _enter(make=make, setting=setting, folder=Path(place))
                done = _do_here(pickle.loads(job))
            _enter(given=given)
        else:
            done = _do_here(pickle.loads(job))
    except Exception as error:
        return pickle.dumps((None, error))
    return pickle.dumps((done, None))
