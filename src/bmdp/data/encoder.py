"""Numbers for states and actions that are none: text, categories, truth values, dates and times.

A state column becomes one number or several:

- *text and categories*: one number for each value, 1 where it is that value, else 0 (one-hot);
- *truth values*: 0 or 1;
- *dates and times*: seconds since 1970-01-01 in UTC; times of a day since midnight; and durations;
- *numbers* stay as they are.

What stands for what is learned from a log and kept in an `Encoder`, which is stored with the policy
that was learned, an `EncodedPolicy`. That one takes states as they are in the log.

Actions that are text are numbered by name. Those that are numbers, and not whole ones, are put into
bins by quantiles (`bmdp.data.bins`).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray, any_array, require_shape
from bmdp.checks import require_choice, told
from bmdp.data.bins import ActionBins
from bmdp.data.checks import require_rows
from bmdp.data.formats import any_table, is_frame
from bmdp.errors import DataError, PolicyError
from bmdp.frontier import Frontier
from bmdp.kinds import checked
from bmdp.policies.policy import (
    BudgetedPolicy,
    Decisions,
    OneDecision,
    Policy,
    Randomness,
    Tracker,
    ended_episodes,
)
from bmdp.policies.state import STATE_FORMAT, StateReader, refusal, resumed, state_of
from bmdp.storage import storable

MOST_VALUES = 50
"""Different values of a column of text, at most."""

NUMBER, FLAG, TIME, CLOCK, SPAN, CATEGORY = (
    *("numbers", "truth values", "dates", "times of a day", "durations", "text"),
)
_MISSING, _UNSEEN = ("error", "impute"), ("error", "other")


@dataclass(frozen=True, eq=False)
class RawColumn:
    """A column as it is in a log: its kind, and its values with gaps."""

    name: str
    kind: str | None  # None if all values are missing
    values: NDArray[Any]  # [N], of floats, NaN where missing; of text, None where missing

    @property
    def is_missing(self) -> BoolArray:
        """Rows without a value, `[N]`."""
        if self.kind == CATEGORY:
            return np.array([value is None for value in self.values], np.bool_)
        gaps: BoolArray = np.isnan(self.values)
        return gaps


def raw_column(name: str, values: ArrayLike, *, is_category: bool = False) -> RawColumn:
    """Returns a column of a log, of whatever type.

    Args:
        name: of the column.
        values: `[N]`.
        is_category: whether numbers are the names of categories.

    Raises:
        DataError: if values are of different kinds, or of none that is known.

    >>> column = raw_column("paid", [True, None, False])
    >>> column.kind, column.values.tolist()
    ('truth values', [1.0, nan, 0.0])
    """
    array = values if isinstance(values, np.ndarray) else _objects(values)
    if array.ndim != 1:
        raise DataError(f"{name} must have shape [N]; got {list(array.shape)}.")
    if is_category or array.dtype.kind in "SUT":
        array = array.astype(object)
    if array.dtype.kind in "iufb":
        kind = FLAG if array.dtype.kind == "b" else NUMBER
        return RawColumn(name, kind, array.astype(np.float64))
    if array.dtype.kind in "Mm":
        kind = TIME if array.dtype.kind == "M" else SPAN
        return RawColumn(name, kind, _seconds(array))
    is_there = np.array([not _is_gap(value) for value in array], np.bool_)
    if is_category:
        texts = [None if _is_gap(value) else _text(value) for value in array]
        return RawColumn(name, CATEGORY, _objects(texts))
    return _of_objects(name, array, is_there)


def _of_objects(name: str, array: NDArray[Any], is_there: BoolArray) -> RawColumn:
    """A column of objects of Python, all of one kind, but for gaps."""
    kinds = [_kind(value) if there else None for value, there in zip(array, is_there, strict=True)]
    kind = next((kind for kind in kinds if kind is not None), None)
    first = int(np.argmax(is_there)) if kind is not None else 0
    if kind == "":
        raise DataError(
            f"{name} must be numbers, text, truth values, dates or times; got "
            f"{type(array[first]).__name__} at [{first}]."
        )
    is_other = np.array([one not in (None, kind) for one in kinds], np.bool_)
    require_rows(name, f"be {kind} in all rows, as [{first}] is", is_other)
    if kind == CATEGORY:
        return RawColumn(name, kind, np.where(is_there, array, np.array(None, object)))
    numbers = np.full(len(array), np.nan)
    if kind is not None:
        try:
            numbers[is_there] = [_NUMBERS[kind](value) for value in array[is_there]]
        except OverflowError as error:
            raise DataError(f"{name} must be numbers of 64 bits; got larger ones.") from error
    return RawColumn(name, kind, numbers)


def _objects(values: Any) -> NDArray[Any]:
    """Values as an array of objects `[N]`, whatever they are."""
    if isinstance(values, np.ndarray):
        return values.astype(object)
    try:
        listed = list(values)
    except TypeError as error:
        raise DataError(f"values must be several; got {told(values)}.") from error
    array = np.empty(len(listed), object)
    for i, value in enumerate(listed):
        array[i] = value
    return array


def _is_gap(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _kind(value: Any) -> str:
    for kind, types in _TYPES.items():
        if isinstance(value, types):
            return kind
    return ""


def _text(value: Any) -> str:
    """The name of a category; whole numbers have no point."""
    is_whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if is_whole else str(value)


def is_number(text: Any) -> bool:
    """Whether a text is that of a number."""
    try:
        float(text)
    except (TypeError, ValueError):
        return False
    return True


def _seconds(array: NDArray[Any]) -> FloatArray:
    """Dates or durations as seconds, NaN where there is none."""
    whole = array.astype(f"{array.dtype.kind}8[us]")
    return np.where(np.isnat(whole), np.nan, whole.astype(np.int64) / 1e6)


def _seconds_of_date(value: Any) -> float:
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return float(_seconds(np.array([value], "M8[us]"))[0])


def _seconds_of_day(value: datetime.time) -> float:
    whole = 3600 * value.hour + 60 * value.minute + value.second
    return whole + value.microsecond / 1e6


_TYPES: dict[str, tuple[type, ...]] = {
    FLAG: (bool, np.bool_),
    NUMBER: (int, float, np.integer, np.floating, Decimal),
    CATEGORY: (str,),
    TIME: (datetime.date, np.datetime64),
    CLOCK: (datetime.time,),
    SPAN: (datetime.timedelta, np.timedelta64),
}
_NUMBERS: dict[str, Callable[[Any], float]] = {
    FLAG: float,
    NUMBER: float,
    TIME: _seconds_of_date,
    CLOCK: _seconds_of_day,
    SPAN: lambda value: float(np.timedelta64(value).astype("m8[us]").astype(np.int64)) / 1e6,
}


@checked
@storable
@dataclass(frozen=True)
class StateColumn:
    """A column of states, and the numbers that stand for it.

    >>> StateColumn("day", "text", ("Fri", "Mon")).numbers
    ('day=Fri', 'day=Mon')
    """

    name: str  # in the log
    holds: str  # "numbers", "text", "truth values", "dates", "times of a day" or "durations"
    values: tuple[str, ...] = ()  # of text, sorted
    fill: float | None = None  # for a number that is missing, the median; None if that is an error
    has_gaps: bool = False  # whether a number says where it is missing

    def __post_init__(self) -> None:
        """Checks the kind, and what is known of it.

        Raises:
            ConfigError, DataError: naming what is wrong.
        """
        require_choice("holds", self.holds, (NUMBER, FLAG, TIME, CLOCK, SPAN, CATEGORY))
        if list(self.values) != sorted(set(self.values)) or (
            bool(self.values) != (self.holds == CATEGORY)
        ):
            raise DataError(f"values of {self.name!r} must be its different texts, sorted.")
        if self.fill is not None and not np.isfinite(self.fill):
            raise DataError(f"fill of {self.name!r} must be finite; got {self.fill}.")

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the numbers that stand for it."""
        gap = (f"{self.name} is missing",) if self.has_gaps else ()
        if self.holds == CATEGORY:
            return (*(f"{self.name}={value}" for value in self.values), *gap)
        return (self.name, *gap)

    @classmethod
    def learned(cls, column: RawColumn, missing: str) -> StateColumn:
        """Returns what stands for a column of a log.

        Args:
            column: of the log.
            missing: "error" or "impute".

        Raises:
            DataError: if values are missing, and that is an error, or they are too many.
        """
        gaps = column.is_missing
        if missing == "error":
            require_no_gaps(column.name, gaps)
        if gaps.all():
            raise DataError(f"{column.name} must have values; all {len(gaps)} rows are missing.")
        assert column.kind is not None
        if column.kind != CATEGORY:
            require_rows(column.name, "be finite", np.isinf(column.values))
            fill = float(np.median(column.values[~gaps])) if missing == "impute" else None
            return cls(column.name, column.kind, fill=fill, has_gaps=bool(gaps.any()))
        values = sorted(set(column.values[~gaps]))
        if len(values) > MOST_VALUES:
            raise DataError(
                f"{column.name} must have at most {MOST_VALUES} different texts; got "
                f"{len(values):,}, such as {values[0]!r} and {values[-1]!r}. Leave the column out "
                "of the state, or group its values."
            )
        return cls(column.name, CATEGORY, tuple(values), has_gaps=bool(gaps.any()))

    def encoded(self, column: RawColumn, *, missing: str, unseen: str) -> FloatArray:
        """Returns the numbers `[N, K]` of values `[N]`.

        Raises:
            DataError: if values are of another kind, missing or unseen, and that is an error.
        """
        held = self._of_own_kind(column)
        gaps = held.is_missing
        if missing == "error":
            require_no_gaps(self.name, gaps)
        told = gaps[:, None].astype(np.float64)[:, : int(self.has_gaps)]
        if self.holds == CATEGORY:
            self._require_seen(held.values, gaps, unseen)
            is_value = held.values[:, None] == np.array(self.values, object)[None, :]
            return np.hstack([is_value.astype(np.float64), told])
        require_rows(self.name, "be finite", np.isinf(held.values))
        filled = held.values if self.fill is None else np.where(gaps, self.fill, held.values)
        return np.hstack([filled[:, None], told])

    def _of_own_kind(self, column: RawColumn) -> RawColumn:
        """The column as one of this kind, where that has a meaning."""
        if column.kind in (self.holds, None):
            gaps = np.full(len(column.values), None, object)
            is_text = column.kind is None and self.holds == CATEGORY
            return RawColumn(self.name, self.holds, gaps if is_text else column.values)
        if self.holds == CATEGORY and column.kind == NUMBER:
            return raw_column(self.name, column.values, is_category=True)
        if column.kind in (NUMBER, FLAG) and self.holds != CATEGORY:
            return RawColumn(self.name, self.holds, column.values)
        if self.holds == TIME and column.kind == CATEGORY:
            try:
                return raw_column(self.name, column.values.astype("M8[us]"))
            except ValueError:
                pass
        i = int(np.argmax(~column.is_missing))
        raise DataError(
            f"{self.name} must be {self.holds}; got {column.kind}, {column.values[i]!r} at [{i}]."
        )

    def _require_seen(self, values: NDArray[Any], gaps: BoolArray, unseen: str) -> None:
        is_new = ~gaps & ~np.isin(values.astype(str), self.values)
        if unseen == "error" and is_new.any():
            i = int(np.argmax(is_new))
            many = f" ({int(is_new.sum())} of {len(values)} rows are others.)"
            raise DataError(
                f"{self.name} must be one of {', '.join(self.values)}; got {values[i]!r} at [{i}]."
                f"{many if is_new.sum() > 1 else ''} With unseen='other' it would be none of them."
            )


def require_no_gaps(name: str, gaps: BoolArray) -> None:
    """Checks that no state is missing, `[N]`.

    Raises:
        DataError: saying how many rows are, and which is the first.
    """
    hint = " Drop these rows, or fill them by missing='impute'."
    require_rows(name, "be there", gaps, fault="missing", hint=hint)


@checked
@storable
@dataclass(frozen=True)
class Encoder:
    """Numbers that stand for the states and actions of a log.

    Args:
        columns: of states. None of them: states are numbers as they are.
        actions: names of the actions, by number, if they are text.
        bins: of actions that are numbers, but not whole ones.
        missing: "error", or "impute": a missing number becomes the median, missing text none of
            the values, and one number more says that it is missing, where that was in the log.
        unseen: "error", or "other": text that was not in the log is none of the values.

    >>> encoder = Encoder((StateColumn("age", "numbers"), StateColumn("day", "text", ("Mon",))))
    >>> encoder.encode([{"age": 30, "day": "Mon"}]), encoder.state_names
    (array([[30.,  1.]]), ('age', 'day=Mon'))
    >>> encoder.encode([{"age": 30, "day": "Tue"}])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    bmdp.errors.DataError: day must be one of Mon; got 'Tue' at [0]. With unseen='other' ...
    """

    columns: tuple[StateColumn, ...]
    actions: tuple[str, ...] = ()
    bins: ActionBins | None = None
    missing: str = "error"
    unseen: str = "error"

    def __post_init__(self) -> None:
        """Checks the settings, and that names are different."""
        check_handling(self.missing, self.unseen)
        for what, names in (("columns", [c.name for c in self.columns]), ("actions", self.actions)):
            if len(set(names)) < len(names):
                raise DataError(f"Encoder.{what} must have different names; got {names!r}.")

    @property
    def is_plain(self) -> bool:
        """Whether states and actions are numbers as they are in the log."""
        is_same = all(column.holds == NUMBER and not column.has_gaps for column in self.columns)
        return is_same and not self.action_names

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the numbers of a state, `[D]`."""
        return tuple(name for column in self.columns for name in column.numbers)

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the actions, by number; none if they are whole numbers in the log."""
        return self.actions if self.bins is None else self.bins.labels

    def action_name(self, action: int) -> str:
        """Returns the name of an action: its text, or the number that stands for its bin.

        Raises:
            DataError: if there is no such action.
        """
        if not self.action_names:
            return str(int(action))
        if not 0 <= action < len(self.action_names):
            raise DataError(f"action must be from 0 to {len(self.action_names) - 1}; got {action}.")
        return self.action_names[int(action)]

    def action_numbers(self, values: Any) -> IntArray:
        """Returns the numbers of actions as they are in a log, `[N]` or, of bins, `[N, K]`.

        Raises:
            DataError: if one is missing, or is none of the actions.
        """
        if self.bins is not None:
            return self.bins.numbers(values)
        column = raw_column("action", values)
        require_no_gaps("action", column.is_missing)
        if not self.actions:
            return column.values.astype(np.int64)
        is_new = np.array([value not in self.actions for value in column.values], np.bool_)
        require_rows("action", f"be one of {', '.join(self.actions)}", is_new)
        return np.searchsorted(np.array(self.actions), column.values.astype(str))

    def encode(self, states: Any, skipped: BoolArray | None = None) -> NDArray[Any]:
        """Returns the numbers `[N, D]` of states as they are in the log.

        Args:
            states: a data frame with the columns of the log, a list with a dictionary for each
                row, or rows with columns in the order of the log. Numbers `[N, D]` stay.
            skipped: `[N]`, rows that mean nothing. They become zeros.

        Raises:
            DataError: if a column is missing, or a value is not what it was in the log.
        """
        if not self.columns:
            return any_array("states", states)
        if skipped is not None:
            skipped = np.atleast_1d(any_array("skipped", skipped).astype(np.bool_))
            require_shape("skipped", skipped, (None,), "[N]")
        held = self._arrays_of(states, skipped)
        if isinstance(held, np.ndarray):
            return held
        n_rows = len(next(iter(held.values()))[0])
        going = np.ones(n_rows, np.bool_) if skipped is None else ~skipped
        if len(going) != n_rows:
            raise DataError(f"states must have shape [{len(going)}, ...]; got {n_rows} rows.")
        parts = []
        for column in self.columns:
            array, is_category = held[column.name]
            raw = raw_column(column.name, array[going], is_category=is_category)
            part = column.encoded(raw, missing=self.missing, unseen=self.unseen)
            whole = np.zeros((n_rows, part.shape[1]))
            whole[going] = part
            parts.append(whole)
        return np.hstack(parts)

    def _arrays_of(
        self, states: Any, skipped: BoolArray | None
    ) -> dict[str, tuple[NDArray[Any], bool]] | NDArray[Any]:
        """The columns of some states, and whether they are categories; or encoded states."""
        names = [column.name for column in self.columns]
        if is_frame(states):
            table = any_table(states)
            for name in names:
                if name not in table.names:
                    raise DataError(
                        f"states must have a column {name!r}; found are {', '.join(table.names)}."
                    )
            arrays = zip(names, table.load(names), strict=True)
            return {name: (array, name in table.categories) for name, array in arrays}
        if isinstance(states, Mapping):
            raise DataError("states must be several rows; got one. Give a list of dictionaries.")
        if isinstance(states, Sequence) and states and isinstance(states[0], Mapping):
            return {name: (_cells(name, states, skipped), False) for name in names}
        return self._arrays_of_rows(states, names)

    def _arrays_of_rows(
        self, states: Any, names: Sequence[str]
    ) -> dict[str, tuple[NDArray[Any], bool]] | NDArray[Any]:
        array, size = any_array("states", states), len(self.state_names)
        if array.dtype.kind not in "OfiubMm":  # text, to which numpy turns all that is beside it
            array = np.array(states, object)
        if array.ndim == 1 and len(names) == 1:
            array = array[:, None]
        width = array.shape[1] if array.ndim == 2 else -1
        is_real = array.dtype.kind in "fiub"
        has_gaps = is_real and bool(np.isnan(array).any())
        if is_real and width == size and not (width == len(names) and has_gaps):
            return array
        if width != len(names):
            raise DataError(
                f"states must have {len(names)} columns, {', '.join(names)}, or be {size} numbers; "
                f"got shape {list(array.shape)}."
            )
        return {name: (array[:, k], False) for k, name in enumerate(names)}

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what was made of dates, gaps and actions, for people."""
        found = []
        for column in self.columns:
            others = [value for value in column.values if not is_number(value)]
            if others and len(others) < len(column.values) / 2:
                found.append(
                    f"{column.name} is text, since {others[0]!r} is no number: each of its "
                    f"{len(column.values)} values is one by itself"
                )
            if column.holds == TIME:
                found.append(f"{column.name} is a date: it became seconds since 1970-01-01 (UTC)")
            if column.has_gaps and column.fill is not None:
                found.append(
                    f"{column.name} is missing in some rows: there it is {column.fill:g}, the "
                    "median, and one number more says so"
                )
            elif column.has_gaps:
                found.append(f"{column.name} is missing in some rows: that is a value of its own")
        if self.bins is not None:
            found += self.bins.notes
        return tuple(found)


def _cells(name: str, rows: Sequence[Mapping[str, Any]], skipped: BoolArray | None) -> NDArray[Any]:
    """A column of rows; those that mean nothing need not have it."""
    for i, row in enumerate(rows):
        is_needed = skipped is None or i >= len(skipped) or not skipped[i]
        if is_needed and name not in row:
            raise DataError(f"states must have {name!r} in each row; [{i}] has {', '.join(row)}.")
    return _objects([row.get(name) for row in rows])


def check_handling(missing: str, unseen: str) -> None:
    """Checks what is asked for with values that are missing, or that were never seen.

    Raises:
        ConfigError: listing the choices.
    """
    require_choice("missing", missing, _MISSING)
    require_choice("unseen", unseen, _UNSEEN)


@checked
@storable
@dataclass(frozen=True, eq=False)
class EncodedPolicy(Policy):
    """A policy that takes states as they are in the log it was learned from.

    States may be a data frame, a list of dictionaries, rows with columns in the order of the log,
    or the numbers that stand for them. Actions are numbers; `action_name` has their names.

    >>> from bmdp.policies import RandomBudgetedPolicy
    >>> encoder = Encoder((StateColumn("day", "text", ("Mon", "Tue")),), actions=("go", "wait"))
    >>> policy = EncodedPolicy(RandomBudgetedPolicy(2, 0.0, 1.0), encoder)
    >>> tracker = policy.start([{"day": "Tue"}], 1.0, np.random.default_rng(0))
    >>> policy.action_name(tracker.decide([{"day": "Tue"}]).action[0])
    'wait'
    """

    policy: BudgetedPolicy  # it decides by numbers
    encoder: Encoder  # it makes these numbers of states

    takes_masks: ClassVar[bool] = True

    @property
    def budget_range(self) -> tuple[float, float]:
        """That of the policy."""
        return self.policy.budget_range

    @property
    def certificate(self) -> Any:
        """Promise of the policy inside, if it has one."""
        return getattr(self.policy, "certificate", None)

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the actions, by number; none if they are whole numbers in the log."""
        return self.encoder.action_names

    def action_name(self, action: int) -> str:
        """Returns the name of an action: its text, or the number that stands for its bin."""
        return self.encoder.action_name(action)

    def frontier(self, state: Any, step: int = 0, available: ArrayLike | None = None) -> Frontier:
        """Returns what is expected from a state, as the policy inside does.

        Raises:
            PolicyError: if the policy inside expects nothing.
        """
        inside: Any = self.policy
        if not hasattr(inside, "frontier"):
            raise PolicyError(f"{type(inside).__name__} has no frontier at a state.")
        found: Frontier = inside.frontier(self._row(state), step, available)
        return found

    def start(self, states: Any, budgets: ArrayLike, rng: Randomness) -> EncodedTracker:
        """Starts `N` episodes."""
        rows = self.encoder.encode(states)
        return EncodedTracker(self.policy.start(rows, budgets, rng), self.encoder, len(rows))

    def resume(self, state: Any) -> EncodedTracker:
        """Goes on from a state, which has that of the tracker of its policy inside."""
        kept = StateReader(state, type(self).__name__)
        inside = kept.item("tracker")
        tracker: Tracker = resumed(self.policy, inside, 'state["tracker"]')
        ended = kept.truths("ended", (len(tracker.budgets),))
        if inside.get("ended", ended.tolist()) != ended.tolist():
            raise refusal('state["ended"]', 'that of state["tracker"]', ended.tolist())
        kept.finish()
        return EncodedTracker(tracker, self.encoder, len(ended), ended)

    def act(
        self,
        state: Any,
        budget: float,
        rng: np.random.Generator,
        available: ArrayLike | None = None,
    ) -> OneDecision:
        """Decides at one state, as the policy does."""
        return self.policy.act(self._row(state), budget, rng, *_given(available))

    def _row(self, state: Any) -> FloatArray:
        """The numbers of one state."""
        row: FloatArray = self.encoder.encode(state if is_frame(state) else [state])[0]
        return row

    def decide(
        self,
        states: Any,
        budgets: ArrayLike,
        rng: np.random.Generator,
        available: ArrayLike | None = None,
    ) -> Decisions:
        """Decides at `N` states, as the policy does."""
        rows = self.encoder.encode(states)
        return self.policy.decide(rows, budgets, rng, *_given(available))


def _given(available: ArrayLike | None) -> tuple[ArrayLike, ...]:
    """The last argument of a policy that is told which actions are available."""
    return () if available is None else (available,)


@checked
class EncodedTracker:
    """Episodes under an `EncodedPolicy`. States of ended ones are not looked at."""

    def __init__(
        self, tracker: Tracker, encoder: Encoder, n_episodes: int, ended: BoolArray | None = None
    ) -> None:
        """Starts the episodes of a tracker, or goes on with those of which some have ended."""
        self._tracker, self._encoder = tracker, encoder
        self._ended: BoolArray = np.zeros(n_episodes, np.bool_) if ended is None else ended

    @property
    def budgets(self) -> FloatArray:
        """Budgets held now, `[N]`."""
        return self._tracker.budgets

    def begin_at(self, step: int) -> None:
        """Says that the episodes are at a step already."""
        begin_at = getattr(self._tracker, "begin_at", None)
        if begin_at is not None:
            begin_at(step)

    def decide(self, states: Any, available: ArrayLike | None = None) -> Decisions:
        """Returns what to do at the states."""
        rows = self._encoder.encode(states, self._ended)
        return self._tracker.decide(rows, *_given(available))

    def observe(
        self,
        costs: ArrayLike,
        next_states: Any,
        ended: ArrayLike,
        available: ArrayLike | None = None,
    ) -> None:
        """Takes note of what followed."""
        is_over = self._ended | ended_episodes(ended, len(self._ended))
        rows = self._encoder.encode(next_states, is_over)
        self._tracker.observe(costs, rows, ended, *_given(available))
        self._ended = is_over

    def set_budget(self, budgets: ArrayLike) -> None:
        """Replaces the budgets held, from the next decision on."""
        self._tracker.set_budget(budgets)

    def state(self) -> dict[str, Any]:
        """Returns all that the episodes carry, as plain data: `policy.resume(state)` goes on."""
        return {
            "format": STATE_FORMAT,
            "policy": EncodedPolicy.__name__,
            "ended": self._ended.tolist(),
            "tracker": state_of(self._tracker),
        }


def without_encoder(policy: Any) -> Any:
    """Returns the policy that decides by numbers, as states are in a `TransitionBatch`."""
    return policy.policy if isinstance(policy, EncodedPolicy) else policy
