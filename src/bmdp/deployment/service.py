"""A policy as a small HTTP service that keeps no sessions.

All that an episode needs goes to the client as plain data, the *tracker*, and comes back with the
next request. So a service that was restarted, or a second one, goes on where another stopped, the
same request has the same answer, and memory does not grow with the number of episodes:

    POST /start    {states, budgets}                       -> {tracker, budgets}
    POST /decide   {tracker, states}                       -> {tracker, actions, next_budgets, ...}
    POST /observe  {tracker, costs, next_states, ended}    -> {tracker, budgets}
    POST /frontier {state}                                 -> {costs, rewards}
    GET  /health

`Service` is what the endpoints do, in Python and without HTTP: `bmdp.deployment.endpoints` is
the rest.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from bmdp import __version__
from bmdp.arrays import BoolArray, require_shape
from bmdp.data.encoder import EncodedPolicy
from bmdp.deployment.decisions import LINE_FORMAT
from bmdp.errors import DataError, PolicyError, StoreError
from bmdp.frontier import BudgetStatus
from bmdp.kinds import checked
from bmdp.policies import BudgetedPolicy, load_policy
from bmdp.storage import POLICY, checksum_of

MAX_ROWS = 10_000
"""Episodes of a request, at most."""

_FORMAT = 1  # of the tracker as it travels
_LARGEST = 1e300  # number of a state
_NAMES = [status.name for status in sorted(BudgetStatus)]  # by number

Number = Annotated[float, Field(allow_inf_nan=False)]
Numbers = Number | list[Number]
Rows = Annotated[list[Any], Field(min_length=1)]
Masks = list[list[bool | int]]


# The bodies of requests and answers


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class Last(_Body):
    """The last decision, until it is observed what followed."""

    states: Rows  # [N], at which it was made, as they were given
    actions: list[int]  # [N]
    status: list[Literal["INFEASIBLE", "TIGHT", "SLACK"]]  # [N], of the budgets
    moved: bool = False  # whether the dial was moved before it


class Carried(_Body):
    """Episodes between two requests. To the client it means nothing: it comes back as it went."""

    format: Literal[1]
    policy: str  # checksum of the policy that plays; nothing, if it is not a folder's
    state: dict[str, Any]  # of the tracker: what `policy.resume` takes
    episodes: list[str]  # [N], a name of each, for the log
    asked: list[Number]  # [N], budgets, at the start or when they were moved
    ended: list[bool]  # [N]
    step: int = Field(ge=0)  # decisions so far
    last: Last | None = None


class StartBody(_Body):
    """N episodes to start."""

    states: Rows = Field(description="First states, [N, ...]: numbers, or rows as in the log.")
    budgets: Numbers = Field(description="Expected discounted cost allowed: [N], or one for all.")
    seed: int | None = Field(
        default=None, ge=0, lt=2**64, description="Of what is left to chance; without: a fresh one."
    )
    episodes: list[Annotated[str, Field(min_length=1, max_length=200)]] | None = Field(
        default=None, description="Names of the episodes in the log, [N]; without: random ones."
    )


class DecideBody(_Body):
    """States at which to decide."""

    tracker: Carried = Field(description="As the last answer had it.")
    states: Rows = Field(description="[N, ...]; null where an episode has ended.")
    available: Masks | None = Field(
        default=None, description="[N, A], which actions there are; without: all."
    )
    set_budget: Numbers | None = Field(
        default=None, description="Moves the dial before the decision: [N], or one for all."
    )


class ObserveBody(_Body):
    """Costs and states that followed the last decision."""

    tracker: Carried = Field(description="As /decide answered it.")
    costs: Numbers = Field(description="Paid, [N], or one for all; of ended episodes, any number.")
    next_states: Rows = Field(description="[N, ...]; null where an episode has ended.")
    ended: bool | list[bool] = Field(description="Which episodes have, [N], or one for all.")
    available: Masks | None = Field(
        default=None, description="[N, A], which actions there are at next states; without: all."
    )


class FrontierBody(_Body):
    """A state to look at."""

    state: Any = Field(description="One state.")
    step: int = Field(default=0, ge=0, description="Decisions of the episode before it.")
    available: list[bool | int] | None = Field(
        default=None, description="[A], which actions there are; without: all."
    )


class Started(BaseModel):
    """Episodes that have started."""

    tracker: Carried
    budgets: list[float] = Field(description="Held, [N].")


class Decided(BaseModel):
    """Actions. Rows of ended episodes mean nothing."""

    tracker: Carried
    actions: list[int] = Field(description="[N].")
    action_names: list[str] | None = Field(description="[N], if actions were text in the log.")
    next_budgets: list[float] = Field(description="To hold from the next states on, [N].")
    status: list[Literal["INFEASIBLE", "TIGHT", "SLACK"]] = Field(
        description="Where the budget was: below what can be kept, within, at the top or above."
    )


class Observed(BaseModel):
    """Episodes after what followed."""

    tracker: Carried
    budgets: list[float] = Field(description="Held, [N].")


class Frontier(BaseModel):
    """The best reward that is expected for each cost, the cheapest first."""

    costs: list[float]
    rewards: list[float]


class Health(BaseModel):
    """The service, and the policy that it plays."""

    status: Literal["ok"]
    version: str = Field(description="Of bmdp.")
    policy: str = Field(description="Kind of the policy.")
    checksum: str = Field(description="Of the policy; trackers of another one are refused.")
    budget_range: tuple[float, float]
    uptime: float = Field(description="Seconds.")
    decisions: int = Field(description="Made by this process.")


class Refused(BaseModel):
    """Why there is no other answer."""

    error: str


Plain: TypeAlias = dict[str, Any]


@checked
class Service:
    """The endpoints in Python: from a checked body to an answer that can be written as JSON.

    Args:
        policy: one whose trackers have a state, and that can resume it.
        checksum: of the policy; nothing, if it is not a folder's.
        log: file to which a line is added for each episode and step that was observed.
        max_rows: episodes of a request, at most.

    Raises:
        PolicyError: if it cannot be resumed.
        StoreError: if the log cannot be written.

    >>> from bmdp.policies import HullPolicy, TabularQ
    >>> q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    >>> service = Service(HullPolicy(q, beta_grid=[0.0, 1.0]))
    >>> begun = service.start(StartBody(states=[0, 0], budgets=[0.0, 1.0]))
    >>> decided = service.decide(DecideBody(tracker=begun["tracker"], states=[0, 0]))
    >>> decided["actions"], decided["status"]
    ([0, 1], ['TIGHT', 'SLACK'])
    """

    def __init__(
        self,
        policy: BudgetedPolicy,
        *,
        checksum: str = "",
        log: Path | None = None,
        max_rows: int = MAX_ROWS,
    ) -> None:
        """Serves nothing yet."""
        if not callable(getattr(policy, "resume", None)):
            raise PolicyError(
                f"{type(policy).__name__} cannot be served: it must have resume(state), and its "
                "trackers state()."
            )
        self.policy: Any = policy
        self._checksum, self._max_rows = checksum, max_rows
        self._log = None if log is None else EpisodeLog(log)
        self._encoder = policy.encoder if isinstance(policy, EncodedPolicy) else None
        self._begin, self._n_decisions = time.monotonic(), 0

    @classmethod
    def open(cls, folder: Path, *, log: Path | None = None, max_rows: int = MAX_ROWS) -> Service:
        """Serves the policy of a folder, or of a run.

        Raises:
            StoreError: if there is none, or the log cannot be written.
        """
        policy = load_policy(folder)
        place = folder if (folder / POLICY).exists() else folder / "policy"  # of a run
        return cls(policy, checksum=checksum_of(place)[:16], log=log, max_rows=max_rows)

    def start(self, body: StartBody) -> Plain:
        """Starts episodes."""
        n_rows = self._require_few("states", body.states)
        names = body.episodes
        if names is None:
            names = [uuid.uuid4().hex for _ in range(n_rows)]
        _require_rows("episodes", names, n_rows)
        if len(set(names)) < n_rows:
            [(name, n_times)] = Counter(names).most_common(1)
            raise DataError(f"episodes must have different names; got {name!r} {n_times} times.")
        rng = np.random.default_rng(body.seed)
        tracker = self.policy.start(self._states(body.states), body.budgets, rng)
        carried = {
            "format": _FORMAT,
            "policy": self._checksum,
            "state": tracker.state(),
            "episodes": names,
            "asked": _for_each(body.budgets, n_rows),
            "ended": [False] * n_rows,
            "step": 0,
            "last": None,
        }
        return {"tracker": carried, "budgets": tracker.budgets.tolist()}

    def decide(self, body: DecideBody) -> Plain:
        """Decides at states, after moving the dial if that is asked for."""
        carried = body.tracker
        tracker = self._resumed(carried)
        ended, asked = np.array(carried.ended), carried.asked
        states = _filled("states", body.states, ended)
        if body.set_budget is not None:
            tracker.set_budget(body.set_budget)
            asked = _for_each(body.set_budget, len(ended))
        decision = tracker.decide(self._states(states, ended), *_masks(body.available))
        self._n_decisions += int((~ended).sum())
        actions = decision.action.tolist()
        status = [_NAMES[number] for number in decision.status.tolist()]
        names = None
        if self._encoder is not None and self._encoder.action_names:
            names = [self._encoder.action_name(action) for action in actions]
        return {
            "tracker": {
                **_plain(carried, tracker),
                "asked": asked,
                "step": carried.step + 1,
                "last": {
                    "states": states,
                    "actions": actions,
                    "status": status,
                    "moved": body.set_budget is not None,
                },
            },
            "actions": actions,
            "action_names": names,
            "next_budgets": decision.next_budget.tolist(),
            "status": status,
        }

    def observe(self, body: ObserveBody) -> Plain:
        """Records what followed a decision, and writes it to the log."""
        carried, last = body.tracker, body.tracker.last
        tracker = self._resumed(carried)
        if last is None:
            raise PolicyError("/observe must follow /decide: send the tracker that it answered.")
        before, n_rows = np.array(carried.ended), len(carried.ended)
        _require_rows("costs", body.costs, n_rows)
        _require_rows("ended", body.ended, n_rows)
        costs = np.broadcast_to(np.asarray(body.costs, np.float64), n_rows)
        ended = before | np.broadcast_to(body.ended, n_rows)
        states = _filled("next_states", body.next_states, ended, last.states)
        tracker.observe(costs, self._states(states, ended), ended, *_masks(body.available))
        if self._log is not None:
            numbers = self._states(last.states, before)
            if self._encoder is not None:
                numbers = self._encoder.encode(numbers, before)
            self._log.add(carried, np.reshape(numbers, (n_rows, -1)), costs, ended)
        new = {**_plain(carried, tracker), "ended": ended.tolist(), "last": None}
        return {"tracker": new, "budgets": tracker.budgets.tolist()}

    def frontier(self, body: FrontierBody) -> Plain | None:
        """Returns the frontier of a state; None, if the policy estimates none."""
        policy = self.policy if self._encoder is None else self.policy.policy
        if not callable(getattr(policy, "frontier", None)):
            return None
        state = self._states([body.state])
        if self._encoder is not None:
            state = self._encoder.encode(state)
        how: Plain = {"step": body.step} if body.step else {}
        if body.available is not None:
            how["available"] = body.available
        found = policy.frontier(state[0], **how)
        return {"costs": found.costs.tolist(), "rewards": found.rewards.tolist()}

    def health(self) -> Plain:
        """Returns version, policy and counts of the service."""
        return {
            "status": "ok",
            "version": __version__,
            "policy": type(self.policy).__name__,
            "checksum": self._checksum,
            "budget_range": [float(end) for end in self.policy.budget_range],
            "uptime": round(time.monotonic() - self._begin, 3),
            "decisions": self._n_decisions,
        }

    def _resumed(self, carried: Carried) -> Any:
        """The tracker of what came back."""
        if carried.policy != self._checksum:
            raise PolicyError(
                f"tracker must be of the policy that is served, {self._checksum!r}; got one of "
                f"{carried.policy!r}. Start a new episode."
            )
        n_rows = self._require_few("tracker.ended", carried.ended)
        for name in ("episodes", "asked"):
            _require_rows(f"tracker.{name}", getattr(carried, name), n_rows)
        if carried.last is not None:
            _require_rows("tracker.last.states", carried.last.states, n_rows)
            _require_rows("tracker.last.actions", carried.last.actions, n_rows)
            _require_rows("tracker.last.status", carried.last.status, n_rows)
        tracker = self.policy.resume(carried.state)
        require_shape("tracker.state.budgets", tracker.budgets, (n_rows,), "[N]")
        inside = carried.state.get("tracker")  # of a policy that takes rows as in the log
        known = {**inside, **carried.state} if isinstance(inside, dict) else carried.state
        for name in ("step", "ended"):  # which trackers of policies of your own may lack
            theirs, ours = known.get(name), getattr(carried, name)
            if theirs is not None and theirs != ours:
                raise PolicyError(
                    f"tracker.{name} must be that of tracker.state: send it as it came."
                )
        return tracker

    def _require_few(self, name: str, rows: Sequence[Any]) -> int:
        """The number of rows, unless they are too many."""
        if len(rows) > self._max_rows:
            raise DataError(
                f"{name} must have at most {self._max_rows:,} rows; got {len(rows):,}. Send them "
                "in several requests, or start the service with a larger --max-rows."
            )
        return len(rows)

    def _states(self, rows: Sequence[Any], ended: BoolArray | None = None) -> Any:
        """States as the policy takes them: an array of numbers, or rows as in the log."""
        if self._encoder is None or not self._encoder.columns:
            return _numbers_of(rows)
        skipped = np.zeros(len(rows), np.bool_) if ended is None else ended
        is_named = [isinstance(row, dict) for row in rows]
        if any(is_named) and not all(is_named):
            raise DataError("states must be all objects, or all lists.")
        for i in np.flatnonzero(~skipped).tolist():
            row = list(rows[i].values()) if is_named[i] else rows[i]
            for cell in row if isinstance(row, list) else [row]:
                if not _is_cell(cell):
                    raise DataError(
                        f"states must be finite numbers and words; got others at [{i}]."
                    )
        return rows if all(is_named) else _cells_of(rows)


class EpisodeLog:
    """A file of JSON lines, one for each episode and step that was observed.

    Several processes may write to one file: lines of a request are added by a single write. The
    file is opened each time, so that it may be moved away at any time.

    Raises:
        StoreError: if it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        """Writes nothing yet, but makes the file."""
        self._path = path
        self._write(b"")

    def add(
        self, carried: Carried, states: NDArray[Any], costs: NDArray[np.float64], ended: BoolArray
    ) -> None:
        """Adds what followed a decision, of the episodes that went on until then."""
        now, last = datetime.now(UTC).isoformat(timespec="milliseconds"), carried.last
        assert last is not None
        going = np.flatnonzero(~np.array(carried.ended)).tolist()
        for name, values in (("costs", costs), ("tracker.asked", carried.asked)):
            for i in going:
                if values[i] < 0:
                    raise DataError(
                        f"{name} must be from 0 on where a log is kept, as bmdp watch takes no "
                        f"others; got {values[i]:g} at [{i}]."
                    )
        lines = [
            {
                "format": LINE_FORMAT,
                "episode": carried.episodes[i],
                "step": carried.step - 1,
                "budget": carried.asked[i],
                "state": states[i].tolist(),
                "action": last.actions[i],
                "status": last.status[i],
                "cost": float(costs[i]),
                "ended": bool(ended[i]),
                "time": now,
                **({"moved": True} if last.moved else {}),
            }
            for i in going
        ]
        self._write("".join(json.dumps(line) + "\n" for line in lines).encode())

    def _write(self, content: bytes) -> None:
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                if os.write(file, content) < len(content):
                    raise OSError("there is no room for all of it")
            finally:
                os.close(file)
        except OSError as error:
            raise StoreError(f"the log {self._path} cannot be written: {error}.") from error


def _plain(carried: Carried, tracker: Any) -> Plain:
    """Returns the tracker as it travels on, with its new state."""
    return {
        "format": _FORMAT,
        "policy": carried.policy,
        "state": tracker.state(),
        "episodes": carried.episodes,
        "asked": carried.asked,
        "ended": carried.ended,
        "step": carried.step,
    }


def _require_rows(name: str, values: Any, n_rows: int) -> None:
    if isinstance(values, list) and len(values) != n_rows:
        raise DataError(f"{name} must have one for each of {n_rows} episodes; got {len(values)}.")


def _for_each(numbers: float | list[float], n_rows: int) -> list[float]:
    return numbers if isinstance(numbers, list) else [numbers] * n_rows


def _masks(available: Masks | None) -> tuple[NDArray[Any], ...]:
    """The last argument of a tracker that is told which actions are available; none if all are."""
    if available is None:
        return ()
    try:
        return (np.asarray(available),)
    except ValueError:
        raise DataError("available must have as many actions in every row.") from None


def _filled(
    name: str, rows: Sequence[Any], ended: BoolArray, others: Sequence[Any] = ()
) -> list[Any]:
    """Rows, with any other state where an episode has ended and there is none."""
    if len(rows) != len(ended):
        raise DataError(f"{name} must have one for each of {len(ended)} episodes; got {len(rows)}.")
    some = next((row for row in (*rows, *others) if row is not None), None)
    for i, row in enumerate(rows):
        if row is None and (not ended[i] or some is None):
            why = "its episode goes on" if not ended[i] else "all episodes have ended"
            raise DataError(f"{name} must have a state at [{i}], not null: {why}.")
    return [some if row is None else row for row in rows]


def _is_cell(value: Any) -> bool:
    """Whether a value can be that of a column of a log: a word, a finite number, or nothing."""
    if isinstance(value, int | float):
        return abs(value) <= _LARGEST
    return value is None or isinstance(value, str)


def _numbers_of(rows: Sequence[Any]) -> NDArray[Any]:
    """Rows as an array of finite numbers."""
    try:
        array = np.asarray(rows)
    except ValueError:
        raise DataError("states must be of the same shape in all rows.") from None
    if array.dtype.kind not in "iuf":
        raise DataError("states must be numbers.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise DataError(
            f"states must be finite; not so at [{np.argwhere(~np.isfinite(array))[0][0]}]."
        )
    return array


def _cells_of(rows: Sequence[Any]) -> NDArray[Any]:
    """Rows of a log as an array of numbers, or of numbers and words."""
    try:
        array = np.asarray(rows)
        return array if array.dtype.kind in "iuf" else np.array(rows, object)
    except ValueError:
        raise DataError("states must be as long in all rows.") from None
