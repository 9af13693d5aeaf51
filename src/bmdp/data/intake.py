"""Rows of Parquet as columns of numbers, for logs that are larger than memory.

What must be known of all rows is learned first, in passes of their own: what stands for text, dates
and gaps, whether actions are numbers to be binned, and whether rows tell episodes. Then rows are
made numbers and checked, piece by piece, as `load_log` and `TransitionBatch` do it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.data.bins import _FEW, _MOST_ACTIONS, ActionBins, _binned, _cells, _few, learned_bins
from bmdp.data.buckets import GOLDEN, Buckets, Completion, RowType, mixed
from bmdp.data.checks import (
    FIELDS,
    MASKS,
    action_count,
    checked_columns,
    flags,
    require_masks,
    require_rows,
    whole_numbers,
)
from bmdp.data.columns import _state_names
from bmdp.data.encoder import (
    CATEGORY,
    FLAG,
    NUMBER,
    Encoder,
    RawColumn,
    StateColumn,
    raw_column,
    require_no_gaps,
)
from bmdp.data.episodes import numbered_by_ends, rows_follow
from bmdp.data.formats import _arrow_kind, _of_arrow, extra
from bmdp.data.logs import _states
from bmdp.data.parquet import ParquetTable, Piece, is_list, is_single
from bmdp.errors import DataError
from bmdp.randomness import UInt64Array

OnRows = Callable[[int, int], None]
"""Is told how many rows are done, of how many."""

_MOST_TEXTS = 10_000  # of a column, before it is given up
_SAMPLE_NUMBERS = 4_000_000  # of which medians are taken
_BIN_ROWS = 200_000  # from which bins are learned
_CELL_ROWS = 1_000  # of a bin that is not among them


@dataclass(frozen=True)
class Handling:
    """Settings for gaps, and for text that was not in the log."""

    missing: str
    unseen: str


@dataclass(eq=False)
class Progress:
    """Rows of several passes over a log, told as rows of one."""

    n_rows: int
    on_rows: OnRows
    n_passes: int = 2
    n_begun: int = 0
    n_done: int = 0

    def begin(self) -> None:
        """Begins a pass."""
        self.n_begun, self.n_done = self.n_begun + 1, 0

    def add(self, n_rows: int) -> None:
        """Tells of more rows."""
        self.n_done += n_rows
        n_done = (self.n_begun - 1) * self.n_rows + self.n_done
        self.on_rows(n_done // self.n_passes, self.n_rows)


class Source:
    """The tables of a log, and how far they are read."""

    def __init__(self, tables: Sequence[ParquetTable], on_rows: OnRows) -> None:
        """Takes tables in a fixed order.

        Raises:
            DataError: if they have no rows, or differ in their columns.
        """
        self.tables = tuple(table for table in tables if table.n_rows)
        if not self.tables:
            raise DataError("state must hold at least one transition; got none.")
        for table in self.tables:
            _require_alike(self.tables[0], table)
        self.n_rows = sum(table.n_rows for table in self.tables)
        self.progress = Progress(self.n_rows, on_rows)
        self.is_complete = all(table.table.is_complete for table in self.tables)
        self.has_lists = any(map(is_list, self.types_of("state")))
        self.has_steps = all(table.has("step") for table in self.tables)

    @property
    def fields(self) -> list[str]:
        """Fields that all tables have, and next states if one has them; without episodes."""
        shared = [name for name in FIELDS if all(table.has(name) for table in self.tables)]
        somewhere = ["next_state"] if any(t.has("next_state") for t in self.tables) else []
        return list(dict.fromkeys(n for n in shared + somewhere if n != "episode"))

    def types_of(self, field: str) -> set[Any]:
        """Types of the columns of a field, in all tables."""
        return {kind for table in self.tables for kind in table.types_of(field)}

    def pieces(self, fields: Sequence[str] = FIELDS) -> Iterator[Piece]:
        """Gives the rows of all tables, with the columns of some fields."""
        self.progress.begin()
        for number, table in enumerate(self.tables):
            for piece in table.pieces(number, fields):
                yield piece
                self.progress.add(piece.n_rows)

    def first_rows(self) -> Iterator[Piece]:
        """Gives the first row of each table."""
        for number, table in enumerate(self.tables):
            yield next(table.pieces(number, FIELDS, 1))

    def place(self, table: int, row: int) -> str:
        """Returns the place of a row, in words."""
        return self.tables[table].place(row)


def _require_alike(first: ParquetTable, other: ParquetTable) -> None:
    """Checks that two tables have the same columns of states, and both have masks or none.

    Raises:
        DataError: naming the file.
    """
    names, found = first.where["state"], other.where["state"]
    is_complete = first.table.is_complete and other.table.is_complete
    if names != found and not is_complete:
        raise DataError(
            f"all files must have the same columns of states; {first.table.source} has "
            f"{', '.join(names)}, and {other.table.source} has {', '.join(found)}."
        )
    after = other.where.get("next_state", found)
    if len(after) != len(found):
        raise DataError(
            f"next_state must have as many columns as state, {len(found)}; got {len(after)}."
        )
    for name in MASKS:
        if first.has(name) != other.has(name):
            one = first if other.has(name) else other
            raise DataError(
                f"all files must have the same columns; {one.table.source} has no {name}."
            )


# Episodes


@dataclass(eq=False)
class Run:
    """Episodes that are told by ends, and by steps that do not go up, as rows run on."""

    table: int = -1
    number: int = 0  # of the last episode
    last: dict[str, Any] = field(default_factory=dict)  # columns of the last row, `[1]`
    follows: bool = True  # whether each next state is the state of the next row
    counts: bool = True  # whether steps go up by one in each episode, all from one number on
    first_step: int | None = None  # of all episodes

    @property
    def tells(self) -> bool:
        """Whether the rows are in order."""
        return self.follows or self.counts

    def numbers(self, table: int, columns: Mapping[str, Any]) -> IntArray:
        """Returns the episodes of the next rows, `[N]`.

        Args:
            table: number of their table. Episodes end with it.
            columns: by name; with next states, it is found out whether rows are in order.
        """
        ended = columns["terminal"] | columns.get("truncated", np.False_)
        now = {"ended": ended} | {
            name: columns[name] for name in ("step", "state", "next_state") if name in columns
        }
        if table != self.table:
            self.table, self.number, self.last = table, 0, {}
        n_last = int(bool(self.last))
        held = {name: np.append(self.last[name], now[name], axis=0) for name in now if n_last}
        held = held or now
        numbers = self.number + numbered_by_ends(held["ended"], held.get("step"))
        if "next_state" in held:
            self.follows &= rows_follow(held["state"], held["next_state"], numbers)
            self._count(held.get("step"), np.append(not n_last, numbers[1:] != numbers[:-1]))
        self.number = int(numbers[-1])
        self.last = {name: values[-1:].copy() for name, values in held.items()}
        return numbers[n_last:]

    def _count(self, step: IntArray | None, begins: BoolArray) -> None:
        if step is None:
            self.counts = False
            return
        if self.first_step is None:
            self.first_step = int(step[0])
        goes_up = np.append(True, step[1:] == step[:-1] + 1)
        is_right = np.where(begins, step == self.first_step, goes_up)
        self.counts &= bool(is_right.all())


def _tells_episodes(source: Source, encoder: Encoder | None) -> bool:
    """Whether the rows of all tables that do not name episodes tell them.

    They do if each row follows the one before it, or steps go up by one, within the episodes that
    ends and steps tell. Without next states there is nothing else that could be meant.
    """
    run, wanted = Run(), ("state", "next_state", "terminal", "truncated", "step")
    for piece in source.pieces(wanted):
        if piece.table.has("episode") or not piece.table.has("next_state"):
            continue
        with piece.placed():
            columns: dict[str, Any] = {"terminal": piece.terminal}
            for name in ("state", "next_state"):
                columns[name] = state_numbers(piece, name, encoder)
            if piece.table.has("truncated"):
                columns["truncated"] = flags("truncated", piece.loaded("truncated"))
            if source.has_steps:
                columns["step"] = whole_numbers("step", piece.loaded("step"))
            run.numbers(piece.number, columns)
        if not run.tells:
            return False
    return True


def _episode_keys(piece: Piece) -> IntArray:
    """Numbers of episodes, `[N]`, of names and dates as well.

    Names are told apart by 64 bits of their hash. That two of ten million are the same has a
    probability of one in 300,000.

    Raises:
        DataError: if one is missing, or is no whole number.
    """
    (name,) = piece.table.where["episode"]
    array = piece.arrays[name]
    if extra("pyarrow").types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if _arrow_kind(array.type) == "text":
        is_missing = array.is_null().to_numpy(zero_copy_only=False)
        require_rows("episode", "be there", is_missing, fault="missing")
        coded = array.dictionary_encode()
        texts = (text.encode() for text in coded.dictionary.to_pylist())
        hashes = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts)
        keys: IntArray = np.frombuffer(hashes, "<i8")[coded.indices.to_numpy()]
        return keys
    values = piece.values(name)
    if values.dtype.kind == "M":
        require_rows("episode", "be there", np.isnat(values), fault="missing")
        values = values.astype("M8[us]").astype(np.int64)
    return whole_numbers("episode", values)


# What stands for text, dates and gaps


@dataclass(frozen=True)
class Scans:
    """Passes over a log, for all that types of columns leave open."""

    states: bool  # what stands for states
    actions: bool  # whether actions are text, or numbers that are not whole
    episodes: bool  # whether rows tell episodes

    @classmethod
    def of(cls, source: Source, missing: str) -> Scans:
        """Returns what a log leaves open."""
        types = extra("pyarrow").types
        categories = {name for table in source.tables for name in table.table.categories}
        names = {name for table in source.tables for name in table.where["state"]}
        is_plain = all(_arrow_kind(kind) == "numbers" for kind in source.types_of("state"))
        is_plain &= missing == "error" and not names & categories
        is_whole = all(
            types.is_integer(kind) or types.is_boolean(kind) for kind in source.types_of("action")
        )
        is_whole &= all(len(table.where["action"]) == 1 for table in source.tables)
        unnamed = [table for table in source.tables if not table.has("episode")]
        return cls(
            states=not (source.is_complete or source.has_lists or is_plain),
            actions=not (source.is_complete or is_whole),
            episodes=any(table.has("next_state") for table in unnamed),
        )

    @property
    def encoder(self) -> bool:
        """Whether an encoder is to be learned."""
        return self.states or self.actions

    def __len__(self) -> int:
        """Passes over the log."""
        return self.encoder + self.episodes


@dataclass(eq=False)
class _Seen:
    """Values of a column of states."""

    name: str
    missing: str
    kind: str | None = None
    has_gaps: bool = False
    texts: set[str] = field(default_factory=set)

    def add(self, column: RawColumn) -> None:
        """Takes more values.

        Raises:
            DataError: if they are of another kind, too many texts, or missing though they must not.
        """
        gaps = column.is_missing
        self.has_gaps |= bool(gaps.any())
        if self.missing == "error":
            require_no_gaps(self.name, gaps)
        if gaps.all():
            return
        self.kind = self.kind or column.kind
        if column.kind != self.kind:
            raise DataError(f"{column.name} must be {self.kind}, as before; got {column.kind}.")
        if column.kind != CATEGORY:
            require_rows(self.name, "be finite", np.isinf(column.values))
            return
        self.texts |= set(column.values[~gaps])
        if len(self.texts) > _MOST_TEXTS:
            self.learned(np.zeros(0))

    def learned(self, sample: FloatArray) -> StateColumn:
        """Returns what stands for the column; the median is that of a sample.

        Raises:
            DataError: if there are no values, or too many.
        """
        if self.kind is None:
            raise DataError(f"{self.name} must have values; all rows are missing.")
        if self.kind == CATEGORY:
            values = np.array([*self.texts, *([None] if self.has_gaps else [])], object)
        else:
            known = sample[~np.isnan(sample)]
            values = np.append(known if len(known) else 0.0, [np.nan] if self.has_gaps else [])
        return StateColumn.learned(RawColumn(self.name, self.kind, values), self.missing)


@dataclass(eq=False)
class _Sample:
    """Rows of a log that are drawn by a hash: those with the smallest."""

    n_most: int
    drawn: UInt64Array = field(default_factory=lambda: np.zeros(0, np.uint64))
    rows: Any = None

    def add(self, drawn: UInt64Array, rows: FloatArray) -> None:
        """Takes more rows, `[N, ...]`."""
        self.drawn = np.append(self.drawn, drawn)
        self.rows = rows if self.rows is None else np.concatenate([self.rows, rows])
        if len(self.drawn) > 2 * self.n_most:
            self.cut()

    def cut(self) -> None:
        """Drops the rows that are too many."""
        if len(self.drawn) > self.n_most:
            kept = np.argpartition(self.drawn, self.n_most)[: self.n_most]
            self.drawn, self.rows = self.drawn[kept], self.rows[kept]


@dataclass(eq=False)
class _Actions:
    """Actions that are text, or numbers."""

    names: set[str] = field(default_factory=set)
    has_numbers: bool = False
    has_parts: bool = False  # whether they are several numbers, or not whole

    def add(self, piece: Piece) -> None:
        """Takes more rows.

        Raises:
            DataError: if they are neither numbers nor text, or some are and others are not.
        """
        columns = piece.table.where["action"]
        for name in columns:
            is_missing = piece.arrays[name].is_null().to_numpy(zero_copy_only=False)
            hint = " Drop these rows, or fill them."
            require_rows("action", "be there", is_missing, fault="missing", hint=hint)
            if is_list(piece.arrays[name].type):
                values, kind = piece.values(name).reshape(piece.n_rows, -1), NUMBER
                self.has_parts |= values.shape[1] > 1
            else:
                column = raw_column("action", _of_arrow(name, piece.arrays[name].unique()))
                values, kind = column.values, column.kind or NUMBER
            if kind == CATEGORY:
                self.names |= set(values)
            elif kind in (NUMBER, FLAG):
                self.has_numbers = True
                is_part = (values != np.floor(values)) & ~np.isnan(values)
                self.has_parts |= bool(is_part.any()) or len(columns) > 1
            else:
                raise DataError(f"action must be numbers or text; {name} is {kind}.")
        if self.names and self.has_numbers:
            raise DataError("actions must be text in all columns and files, or in none.")
        if self.names and len(columns) > 1:
            raise DataError("actions of text must be in one column; join them to one text first.")


def _learned(source: Source, scans: Scans, how: Handling) -> tuple[Encoder | None, bool]:
    """An encoder of text, dates and gaps, if one is needed, and whether actions are to be binned.

    Raises:
        DataError: if a column cannot be encoded, naming the file and the row.
    """
    if not scans.encoder:
        return None, False
    names = source.tables[0].where["state"]
    seen, actions = [_Seen(name, how.missing) for name in names], _Actions()
    sample = _Sample(max(1, _SAMPLE_NUMBERS // (2 * len(names))))
    fields = ["terminal", "episode", "step"]
    fields += ["state", "next_state"] if scans.states else []
    fields += ["action"] if scans.actions else []
    for piece in source.pieces(fields):
        with piece.placed():
            if scans.states:
                _look(piece, seen, how.missing, sample)
            if scans.actions:
                actions.add(piece)
        if actions.has_parts and not scans.states:
            break
    sample.cut()
    columns: tuple[StateColumn, ...] = ()
    if scans.states:
        numbers = np.zeros((0, 2, len(names))) if sample.rows is None else sample.rows
        columns = tuple(one.learned(numbers[:, :, k].ravel()) for k, one in enumerate(seen))
    elif not source.has_lists:
        columns = tuple(StateColumn(name, NUMBER) for name in names)
    encoder = Encoder(columns, tuple(sorted(actions.names)), None, how.missing, how.unseen)
    return (None if encoder.is_plain and not actions.has_parts else encoder), actions.has_parts


def _look(piece: Piece, seen: Sequence[_Seen], missing: str, sample: _Sample) -> None:
    """Takes note of the states of some rows. A next state after the end is the state."""
    over, where = piece.terminal, piece.table.where
    try:
        for k, one in enumerate(seen):
            one.add(piece.coded(where["state"][k])[0])
            if "next_state" in where:
                one.add(piece.coded(where["next_state"][k], ~over)[0])
    except DataError:
        explain(piece, missing)
        raise
    if missing == "error":
        return
    found = np.full((piece.n_rows, 2, len(seen)), np.nan)
    for k, one in enumerate(seen):
        if one.kind != CATEGORY:
            found[:, 0, k] = raw_column(one.name, piece.values(where["state"][k])).values
        if one.kind != CATEGORY and "next_state" in where:
            after = raw_column(one.name, piece.values(where["next_state"][k])).values
            found[:, 1, k] = np.where(over, found[:, 0, k], after)
    sample.add(_drawn(piece), found)


def explain(piece: Piece, missing: str) -> None:
    """Looks at rows one by one, as `load_log` does, so that an error names the column and the row.

    Raises:
        DataError: if there is a row that cannot be read.
    """
    part = piece.part()
    part.check_numbers()
    if "state" not in part.where or part.has_lists:
        return
    states = part.raw("state")
    _require_values(states, missing)
    if "next_state" in part.where:
        _require_values(part.next_raw(states), missing)


def _require_values(columns: Sequence[RawColumn], missing: str) -> None:
    for column in columns:
        if missing == "error":
            require_no_gaps(column.name, column.is_missing)
        if column.kind != CATEGORY:
            require_rows(column.name, "be finite", np.isinf(column.values))


def _drawn(piece: Piece) -> UInt64Array:
    """Hashes of rows: of episode and step, if they are there, else of their places."""
    place: IntArray = np.arange(piece.place, piece.place + piece.n_rows)
    if piece.table.has("episode") and piece.table.has("step"):
        place = whole_numbers("step", piece.loaded("step"))
        place = place + mixed(_episode_keys(piece).astype(np.uint64)).astype(np.int64)
    return mixed(place.astype(np.uint64) * GOLDEN + np.uint64(piece.number))


def state_numbers(piece: Piece, field: str, encoder: Encoder | None) -> NDArray[Any]:
    """Returns states or next states as numbers, `[N, D]`.

    Raises:
        DataError: if they cannot be encoded.
    """
    if encoder is None or not encoder.columns:
        loaded = piece.loaded(field)
        return loaded.reshape(len(loaded), -1)
    going = ~piece.terminal if field == "next_state" else np.ones(piece.n_rows, np.bool_)
    where, parts = piece.table.where, []
    try:
        for k, column in enumerate(encoder.columns):
            part = _encoded(piece, where[field][k], column, encoder, going)
            if not going.all():
                whole = np.empty((piece.n_rows, part.shape[1]))
                whole[going] = part
                whole[~going] = _encoded(piece, where["state"][k], column, encoder, ~going)
                part = whole
            parts.append(part)
    except DataError:
        return _states(piece.part(), field, encoder)  # which names the row
    return np.hstack(parts)


def _encoded(
    piece: Piece, name: str, column: StateColumn, encoder: Encoder, chosen: BoolArray
) -> FloatArray:
    """Numbers of some rows of a column, `[N, K]`. Each text is encoded once."""
    values, which = piece.coded(name, None if chosen.all() else chosen)
    told = column.encoded(values, missing=encoder.missing, unseen=encoder.unseen)
    found: FloatArray = told[which]
    return found


# Rows


@dataclass(eq=False)
class Intake:
    """Rows of Parquet as columns of numbers, checked. It remembers what it saw."""

    source: Source
    encoder: Encoder | None
    has_bins: bool  # whether actions are numbers to be binned
    kind: RowType
    widths: tuple[dict[str, int], ...]  # of wide fields, in each table
    state_names: tuple[str, ...] | None
    n_actions: int = 1
    least_step: int = np.iinfo(np.int64).max
    run: Run = field(default_factory=Run)
    few: list[Any] | None = field(default_factory=list)  # different actions, if they are few

    @classmethod
    def of(cls, source: Source, how: Handling) -> Intake:
        """Learns what must be known of all rows.

        Raises:
            DataError: if the log does not hold transitions, naming the file and the row.
        """
        scans = Scans.of(source, how.missing)
        source.progress.n_passes += len(scans)
        encoder, has_bins = _learned(source, scans, how)
        has_episodes = not scans.episodes or _tells_episodes(source, encoder)
        widths: list[dict[str, int]] = []
        names = set()
        for piece in source.first_rows():
            with piece.placed():
                found = {"state": state_numbers(piece, "state", encoder).shape[1]}
                found |= {"action": piece.part().action_rows().shape[1]} if has_bins else {}
                found |= {n: piece.loaded(n)[0].size for n in MASKS if piece.table.has(n)}
                names.add(_names(piece, encoder))
            for name in {"state", "action"} & found.keys() if widths else ():
                _require_width(name, found[name], widths[0][name], source.tables[piece.number])
            widths.append(found)
        kinds = _kinds(source, encoder, widths)
        lacks_next = [not table.has("next_state") for table in source.tables]
        kind = RowType.of(kinds, has_episodes, lacks_next)
        shared = names.pop() if len(names) == 1 else None
        return cls(source, encoder, has_bins, kind, tuple(widths), shared)

    def columns(self, piece: Piece) -> dict[str, NDArray[Any]]:
        """Returns the columns of some rows.

        Raises:
            DataError: naming the column, how many of its rows are bad, and which is the first.
        """
        try:
            return self._columns(piece)
        except DataError:
            explain(piece, "error" if self.encoder is None else self.encoder.missing)
            raise

    def _columns(self, piece: Piece) -> dict[str, NDArray[Any]]:
        given: dict[str, Any] = {"state": state_numbers(piece, "state", self.encoder)}
        given["next_state"] = given["state"]
        if piece.table.has("next_state"):
            given["next_state"] = state_numbers(piece, "next_state", self.encoder)
        given["action"] = self._actions(piece)
        for name in self.source.fields:
            given |= {} if name in given else {name: piece.loaded(name)}
        parts = given["action"] if self.has_bins else None
        given["action"] = np.zeros(piece.n_rows, np.int64) if self.has_bins else given["action"]
        columns = checked_columns(given)
        for name, width in self.widths[piece.number].items():
            held: Any = parts if name == "action" else columns[name]
            _require_width(name, held.shape[1], width, piece.table)
        if parts is None:
            self._check_actions(piece, columns)
        else:
            columns["action"] = parts
            self._look_at(parts)
        columns["episode"] = self._episodes(piece, columns)
        if "step" in columns:
            self.least_step = min(self.least_step, int(columns["step"].min()))
        if self.kind.has("row"):
            columns["row"] = np.arange(piece.place, piece.place + piece.n_rows)
        if not self.kind.has("next_state"):
            del columns["next_state"]
        return with_wide_masks(columns, self.kind)

    def _actions(self, piece: Piece) -> NDArray[Any]:
        if self.has_bins:
            return np.asarray(piece.part().action_rows())
        if self.encoder is None or not self.encoder.actions:
            return piece.loaded("action")
        values, which = piece.coded(piece.table.where["action"][0])
        found: NDArray[Any] = self.encoder.action_numbers(values.values)[which]
        return found

    def _check_actions(self, piece: Piece, columns: Mapping[str, NDArray[Any]]) -> None:
        """Checks actions and masks, and takes note of how many actions there are."""
        n_actions = piece.table.table.n_actions
        if self.encoder is not None:
            n_actions = len(self.encoder.actions) or None
        if n_actions is None:
            n_actions = next((columns[n].shape[1] for n in MASKS if n in columns), None)
        n_found = action_count(columns["action"], n_actions)
        require_masks(columns, n_found)
        self.n_actions = max(self.n_actions, n_found)

    def _episodes(self, piece: Piece, columns: Mapping[str, NDArray[Any]]) -> IntArray:
        """Numbers of episodes; of rows, if episodes are not known."""
        if not self.kind.has_episodes:
            return np.arange(piece.place, piece.place + piece.n_rows)
        if piece.table.has("episode"):
            return _episode_keys(piece)
        told = {name: columns[name] for name in columns.keys() & {"terminal", "truncated", "step"}}
        return self.run.numbers(piece.number, told)

    def _look_at(self, actions: FloatArray) -> None:
        """Takes note of different actions, as long as they are few."""
        if self.few is None:
            return
        found = np.unique(np.concatenate([*self.few, np.unique(actions, axis=0)]), axis=0)
        is_few = all(len(np.unique(column)) <= _FEW for column in found.T)
        self.few = [found] if is_few else None

    def with_bins(self, buckets: Buckets, seed: int) -> Encoder:
        """Returns the encoder with bins of actions: one for each, if they are few.

        Others are learned from a sample.

        Raises:
            DataError: if an action has too many numbers.
        """
        assert self.encoder is not None
        names = self.source.tables[0].where["action"]
        n_parts = int(self.kind.record["action"].shape[0])
        if len(names) < n_parts:
            names = tuple(f"{names[0]}_{k}" for k in range(n_parts))
        bins = None if self.few is None else _few(names, self.few[0])
        if bins is None or len(bins.cells) > _MOST_ACTIONS:
            bins = self._sampled_bins(buckets, names, seed)
        return replace(self.encoder, bins=bins)

    def _sampled_bins(self, buckets: Buckets, names: tuple[str, ...], seed: int) -> ActionBins:
        completion = Completion(self.kind, 1, self.least_step, is_sample=True)
        rows = buckets.sample(_BIN_ROWS)
        sample = completion.columns(rows, rows[:0])
        bins = replace(learned_bins(names, sample["action"], sample, seed), is_exact=False)
        if len(names) == 1:  # all of whose bins are in the sample
            return bins
        others = _rows_of_other_bins(bins, buckets.blocks())
        edges = [np.array(edge) for edge in bins.edges]
        return _binned(names, np.concatenate([sample["action"], *others]), edges, is_exact=False)


def _rows_of_other_bins(bins: ActionBins, blocks: Iterator[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Some actions of each bin that is not known yet."""
    counts: dict[int, int] = {}
    for rows in blocks:
        actions = np.ascontiguousarray(rows["action"])
        cells = _cells(actions, bins.edges)
        for cell in np.setdiff1d(cells, bins.cells).tolist():
            if counts.get(cell, 0) < _CELL_ROWS:
                some = actions[cells == cell][:_CELL_ROWS]
                counts[cell] = counts.get(cell, 0) + len(some)
                yield some


def _names(piece: Piece, encoder: Encoder | None) -> tuple[str, ...] | None:
    """Names of the numbers of a state."""
    told = piece.table.table.state_names
    if encoder is not None:
        return encoder.state_names or told
    return told or _state_names(piece.table.where["state"], piece.loaded("state"))


def _require_width(name: str, width: int, wanted: int, table: ParquetTable) -> None:
    if width != wanted:
        raise DataError(
            f"{name} must have {wanted} numbers in all rows and files; got {width} in "
            f"{table.table.source}."
        )


def _kinds(
    source: Source, encoder: Encoder | None, widths: Sequence[Mapping[str, int]]
) -> dict[str, Any]:
    """Types of the columns of rows, by name."""
    is_encoded = encoder is not None and bool(encoder.columns)
    types = source.types_of("state") | source.types_of("next_state")
    precision = np.float32 if not is_encoded and all(map(is_single, types)) else np.float64
    known: dict[str, Any] = {"terminal": np.bool_, "truncated": np.bool_, "step": np.int64}
    known |= dict.fromkeys(("state", "next_state"), (precision, (widths[0]["state"],)))
    known["action"] = (np.float64, (widths[0]["action"],)) if "action" in widths[0] else np.int64
    for name in MASKS:
        known[name] = (np.bool_, (max(held.get(name, 0) for held in widths),))
    kinds = {name: known.get(name, np.float64) for name in source.fields}
    if any(not table.has("next_state") for table in source.tables):
        kinds["row"] = np.int64  # by which errors name rows
    return kinds


def with_wide_masks(columns: dict[str, NDArray[Any]], kind: RowType) -> dict[str, NDArray[Any]]:
    """Returns columns whose masks are as wide as those of others; no more actions are available.

    Raises:
        DataError: if a mask is wider.
    """
    for name in MASKS:
        if name in columns:
            width, wanted = columns[name].shape[1], kind.record[name].shape[0]
            if width > wanted:
                raise DataError(f"{name} must have {wanted} actions, as before; got {width}.")
            columns[name] = np.pad(columns[name], ((0, 0), (0, wanted - width)))
    return columns
