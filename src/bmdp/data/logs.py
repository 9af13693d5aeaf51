"""Logs as people have them: text, dates and gaps become numbers, and what they mean is kept."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import BoolArray
from bmdp.checks import reached
from bmdp.data.batch import TransitionBatch, file_table
from bmdp.data.bins import action_rows, learned_bins
from bmdp.data.checks import require_rows
from bmdp.data.columns import Columns, LogTable, chosen_columns
from bmdp.data.encoder import (
    CATEGORY,
    FLAG,
    NUMBER,
    TIME,
    Encoder,
    RawColumn,
    StateColumn,
    check_handling,
    is_number,
    raw_column,
    require_no_gaps,
)
from bmdp.data.formats import any_table, is_frame
from bmdp.errors import DataError, StoreError
from bmdp.kinds import checked

_NUMERIC = (
    *("reward", "cost", "terminal", "truncated"),
    *("step", "budget", "next_budget", "probability"),
)


@checked
@dataclass(frozen=True, eq=False)
class EncodedLog:
    """Transitions, and what their numbers mean.

    >>> log = EncodedLog(TransitionBatch([0.0], [0], [1.0], [0.0], [0.0], [True]))
    >>> log.encoder is None, log.notes
    (True, ())
    """

    batch: TransitionBatch  # of numbers
    encoder: Encoder | None = None  # None if the log has numbers only

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what was made of dates, gaps and actions, for people."""
        return () if self.encoder is None else self.encoder.notes


@checked
def load_log(
    source: Any,
    columns: Columns | None = None,
    *,
    missing: str = "error",
    unseen: str = "error",
    encoder: Encoder | None = None,
    seed: int = 0,
) -> EncodedLog:
    """Returns the transitions of a log whose states and actions need not be numbers.

    Text and categories become one number for each value, truth values 0 or 1, dates and times
    seconds. Actions that are text are numbered by name; those that are numbers, but not whole ones,
    are binned by quantiles. If there is nothing of that, the log is that of `load_batches`.

    Args:
        source: a data frame of pandas or polars, a table of pyarrow, the path of a file, of a
            folder of Parquet, or of a Minari dataset, several paths, or a pattern such as
            `"folder/*.parquet"`, which stands for several files.
        columns: what its columns are called, where that is not to be guessed.
        missing: what to do with states that are missing: "error", or "impute", by the median, with
            one number more that says so; text is then a value of its own.
        unseen: what to do later with text that is not in the log: "error", or "other", which is
            none of the values.
        encoder: of another log, whose numbers are to be used; by default they are learned.
        seed: of the choice of bins.

    Raises:
        StoreError: if there is no such file, it is not what its suffix says, or nothing matches a
            pattern.
        DataError: if the log does not hold transitions, naming the column and the row.
        ConfigError: if a setting is unknown.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"day": ["Mon", "Tue"], "action": ["go", "wait"], "done": [1, 1]})
    >>> log = load_log(frame.assign(reward=[2, 0], cost=[1, 0]), Columns(state="day"))
    >>> log.batch.state.tolist(), log.batch.action.tolist(), log.encoder.actions
    ([[1.0, 0.0], [0.0, 1.0]], [0, 1], ('go', 'wait'))
    """
    check_handling(missing, unseen)
    if isinstance(source, str | os.PathLike) and is_minari(reached(source)):
        return EncodedLog(TransitionBatch.from_minari(source))
    parts = [_Part.of(table, columns) for table in _tables(source)]
    if not parts:
        raise DataError("source must have at least one file; got none.")
    if encoder is None and all(part.table.is_complete for part in parts):
        return EncodedLog(_joined(parts, columns))
    for part in parts:
        part.check_numbers()
    if encoder is not None:
        batch = TransitionBatch.concatenate([_encoded(part, encoder) for part in parts])
        return EncodedLog(_with_actions(batch, parts, encoder), encoder)
    states, names = _learned_states(parts, missing), _learned_names(parts)
    learned = Encoder(states, names, None, missing, unseen)
    has_bins = not names and _are_numbers(parts)
    if learned.is_plain and not has_bins:
        return EncodedLog(_joined(parts, columns))
    batch = TransitionBatch.concatenate([_encoded(part, learned) for part in parts])
    if has_bins:
        rows = np.concatenate([part.action_rows() for part in parts])
        bins = learned_bins(parts[0].action_columns, rows, batch.to_arrays(), seed)
        learned = replace(learned, bins=bins)
    return EncodedLog(_with_actions(batch, parts, learned), learned)


def is_minari(path: Path) -> bool:
    """Whether a path is the folder of a Minari dataset."""
    return any((path / place / "metadata.json").is_file() for place in ("", "data"))


def given_paths(source: Any) -> list[Path] | None:
    """Returns the paths of a log, with those that match a pattern; None if it is not one of paths.

    Args:
        source: a path, several paths, or patterns such as `"folder/*.parquet"`. What exists is no
            pattern.

    Raises:
        StoreError: if nothing matches a pattern, or it cannot be told what is there.
    """
    given = [source] if isinstance(source, str | os.PathLike) else source
    if not isinstance(given, Sequence) or not all(isinstance(p, str | os.PathLike) for p in given):
        return None
    found: list[Path] = []
    for path in map(reached, given):
        if path.exists() or not glob.has_magic(str(path)):
            found.append(path)
            continue
        matches = sorted(map(Path, glob.glob(str(path), recursive=True)))
        if not matches:
            raise StoreError(f"{path} matches no file.")
        found += matches
    return found


def _tables(source: Any) -> list[LogTable]:
    if is_frame(source):
        return [any_table(source)]
    paths = given_paths(source)
    if paths is None:
        raise DataError(
            "source must be a data frame, a table of pyarrow, a path or several; got "
            f"{type(source).__name__}."
        )
    return [file_table(path) for path in paths]


@dataclass(frozen=True, eq=False)
class _Part:
    """One table of a log, with the columns that are needed."""

    table: LogTable
    where: dict[str, tuple[str, ...]]  # columns of each field
    held: dict[str, NDArray[Any]]  # by name

    @classmethod
    def of(cls, table: LogTable, columns: Columns | None) -> _Part:
        """Loads each column once."""
        where = chosen_columns(table, columns)
        names = list(dict.fromkeys(name for several in where.values() for name in several))
        held = dict(zip(names, map(np.asarray, table.load(names)), strict=True))
        kept = replace(table, load=lambda chosen: [held[name] for name in chosen])
        return cls(kept, where, held)

    @property
    def n_rows(self) -> int:
        return len(self.held[self.where["state"][0]])

    @property
    def has_lists(self) -> bool:
        """Whether states are arrays of numbers, and not named one by one."""
        return any(self.held[name].ndim > 1 for name in self.where["state"])

    def raw(self, field: str) -> list[RawColumn]:
        """The columns of a field, as they are."""
        named = self.table.categories
        return [
            raw_column(name, self.held[name], is_category=name in named)
            for name in self.where[field]
        ]

    def next_raw(self, states: Sequence[RawColumn]) -> list[RawColumn]:
        """The columns of next states, which at the end are those of states."""
        after = self.raw("next_state")
        if len(after) != len(states):
            raise DataError(
                f"next_state must have as many columns as state, {len(states)}; got {len(after)}."
            )
        over = self.terminal
        for one, other in zip(states, after, strict=True):
            if other.kind not in (one.kind, None):
                raise DataError(
                    f"{other.name} must be {one.kind}, as {one.name} is; got {other.kind}."
                )
        return [
            RawColumn(other.name, one.kind, np.where(over, one.values, other.values))
            for one, other in zip(states, after, strict=True)
        ]

    @property
    def terminal(self) -> BoolArray:
        is_over: BoolArray = (
            raw_column("terminal", self.held[self.where["terminal"][0]]).values == 1
        )
        return is_over

    @property
    def action_columns(self) -> tuple[str, ...]:
        """Names of the numbers of an action."""
        names, first = self.where["action"], self.held[self.where["action"][0]]
        if first.ndim == 1 or len(names) > 1:
            return names
        return tuple(f"{names[0]}_{k}" for k in range(int(np.prod(first.shape[1:]))))

    def action_rows(self) -> Any:
        """Actions of numbers, `[N, K]`."""
        parts = [action_rows(self.held[name]) for name in self.where["action"]]
        return np.hstack(parts)

    def check_numbers(self) -> None:
        """Checks that what must be numbers is, and that nothing is missing.

        Raises:
            DataError: naming the column and the row.
        """
        for field in (*_NUMERIC, "action"):
            for name in self.where.get(field, ()):
                if self.held[name].ndim != 1:
                    continue
                told = name if name == field else f"{field}, in column {name!r},"
                column = raw_column(told, self.held[name])
                if field != "action" and column.kind not in (NUMBER, FLAG, None):
                    raise _no_numbers(told, column)
                hint = " Drop these rows, or fill them."
                require_rows(told, "be there", column.is_missing, fault="missing", hint=hint)


def _no_numbers(told: str, column: RawColumn) -> DataError:
    """The error of a column that is no numbers, with the first value that is none."""
    is_wrong = ~column.is_missing
    if column.kind == CATEGORY:
        is_wrong &= np.array([not is_number(value) for value in column.values], np.bool_)
    i = int(np.argmax(is_wrong if is_wrong.any() else ~column.is_missing))
    return DataError(f"{told} must be numbers; got {column.kind}, {column.values[i]!r} at [{i}].")


def _joined(parts: Sequence[_Part], columns: Columns | None) -> TransitionBatch:
    """The transitions of tables of numbers."""
    return TransitionBatch.concatenate(
        TransitionBatch._from_table(part.table, columns) for part in parts
    )


def _learned_states(parts: Sequence[_Part], missing: str) -> tuple[StateColumn, ...]:
    """The columns of states; none if states are arrays of numbers.

    Raises:
        DataError: if files differ in their columns, or a column cannot be encoded.
    """
    if any(part.has_lists for part in parts):
        return ()
    raws = [part.raw("state") for part in parts]
    for part, raw in zip(parts, raws, strict=True):
        _require_alike(parts[0], part, raws[0], raw)
    after = [
        part.next_raw(raw)
        for part, raw in zip(parts, raws, strict=True)
        if "next_state" in part.where
    ]
    columns = []
    for k, first in enumerate(raws[0]):
        seen = [raw[k] for raw in (*raws, *after)]
        for part, raw in zip(parts, raws, strict=True) if missing == "error" else ():
            told = f" of {part.table.source}" if len(parts) > 1 else ""
            require_no_gaps(f"{first.name}{told}", raw[k].is_missing)
        columns.append(StateColumn.learned(_stacked(first.name, seen), missing))
    return tuple(columns)


def _stacked(name: str, columns: Sequence[RawColumn]) -> RawColumn:
    """Columns of one kind, one after the other."""
    kind = next((column.kind for column in columns if column.kind is not None), None)
    gap = None if kind == CATEGORY else np.nan
    values = [
        column.values if column.kind == kind else np.full(len(column.values), gap)
        for column in columns
    ]
    return RawColumn(name, kind, np.concatenate(values))


def _require_alike(
    first: _Part, other: _Part, columns: Sequence[RawColumn], others: Sequence[RawColumn]
) -> None:
    """Checks that two tables have the same columns of states, of the same kinds.

    Raises:
        DataError: naming the table and the column.
    """
    names, found = [c.name for c in columns], [c.name for c in others]
    if names != found:
        raise DataError(
            f"all files must have the same columns of states; {first.table.source} has "
            f"{', '.join(names)}, and {other.table.source} has {', '.join(found)}."
        )
    for one, two in zip(columns, others, strict=True):
        if None not in (one.kind, two.kind) and one.kind != two.kind:
            raise DataError(
                f"all files must have the same columns; {one.name!r} is {one.kind} in "
                f"{first.table.source}, and {two.kind} in {other.table.source}."
            )


def _learned_names(parts: Sequence[_Part]) -> tuple[str, ...]:
    """Names of actions, sorted, if they are text.

    Raises:
        DataError: if some files have names, and others numbers, or there are several columns.
    """
    names: set[str] = set()
    kinds = {}
    for part in parts:
        for name in part.where["action"]:
            if part.held[name].ndim == 1:
                column = raw_column(name, part.held[name])
                kinds[part.table.source, name] = column.kind
                names |= set(column.values) if column.kind == CATEGORY else set()
    for (source, name), kind in kinds.items():
        if names and kind != CATEGORY:
            raise DataError(f"actions must be text in all columns; {name} of {source} is {kind}.")
        if kind not in (CATEGORY, NUMBER, FLAG):
            raise DataError(f"action must be numbers or text; {name} of {source} is {kind}.")
    if names and any(len(part.where["action"]) > 1 for part in parts):
        raise DataError("actions of text must be in one column; join them to one text first.")
    return tuple(sorted(names))


def _are_numbers(parts: Sequence[_Part]) -> bool:
    """Whether actions are numbers, but not whole ones from 0 on."""
    for part in parts:
        if len(part.action_columns) > 1:
            return True
        values = part.held[part.where["action"][0]]
        if values.dtype.kind == "f" and (values != np.floor(values)).any():
            return True
    return False


def _encoded(part: _Part, encoder: Encoder) -> TransitionBatch:
    """The transitions of a table, with states encoded, and some action that was available."""
    held: dict[str, Any] = {"action": np.zeros(part.n_rows, np.int64)}
    for field, names in part.where.items():
        if field not in ("action", "state", "next_state"):
            several = [part.held[name] for name in names]
            held[field] = several[0] if len(several) == 1 else np.column_stack(several)
    if "available" in held and np.ndim(held["available"]) == 2:
        held["action"] = np.argmax(held["available"], axis=1)
    if "episode" in held and np.ndim(held["episode"]) == 1:
        held["episode"] = _episode_numbers(held["episode"])
    for field in ("state", "next_state"):
        if field in part.where:
            held[field] = _states(part, field, encoder)
    table = LogTable(
        part.table.source,
        tuple(held),
        lambda chosen: [held[name] for name in chosen],
        state_names=encoder.state_names or part.table.state_names,
        is_complete=part.table.is_complete,
    )
    return TransitionBatch._from_table(table)


def _states(part: _Part, field: str, encoder: Encoder) -> NDArray[Any]:
    """States or next states as numbers `[N, D]`."""
    if not encoder.columns:
        arrays = [part.held[name] for name in part.where[field]]
        return arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=1)
    raw = part.raw("state")
    if field == "next_state":
        raw = part.next_raw(raw)
    names = [column.name for column in encoder.columns]
    if field == "state" and [column.name for column in raw] != names:
        raise DataError(
            f"states of {part.table.source} must be in columns {', '.join(names)}; got "
            f"{', '.join(column.name for column in raw)}."
        )
    how = {"missing": encoder.missing, "unseen": encoder.unseen}
    both = zip(encoder.columns, raw, strict=True)
    return np.hstack([column.encoded(values, **how) for column, values in both])


def _episode_numbers(values: NDArray[Any]) -> NDArray[Any]:
    """Episodes that are dates, by number."""
    if values.dtype.kind != "M":
        return values
    column = raw_column("episode", values)
    require_rows("episode", "be there", column.is_missing, fault="missing")
    assert column.kind == TIME
    numbers: NDArray[Any] = np.unique(column.values, return_inverse=True)[1]
    return numbers


def _with_actions(
    batch: TransitionBatch, parts: Sequence[_Part], encoder: Encoder
) -> TransitionBatch:
    """The transitions with their actions."""
    if encoder.bins is not None:
        actions: Any = encoder.bins.numbers(np.concatenate([part.action_rows() for part in parts]))
    elif encoder.actions:
        named = [encoder.action_numbers(part.held[part.where["action"][0]]) for part in parts]
        actions = np.concatenate(named)
    else:
        actions = np.concatenate([part.held[part.where["action"][0]] for part in parts])
    return TransitionBatch(
        **{**batch.to_arrays(), "action": actions},
        n_actions=len(encoder.action_names) or None,
        state_names=batch.state_names,
    )
