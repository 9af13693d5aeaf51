"""Rows in the order of a hash of their episodes, by an external bucket sort.

1. Each row goes to a file, its bucket, by the hash of its episode.
2. Each bucket is sorted by hash, episode and step. A bucket that is too large is split further.
3. Rows in order are cut into chunks of whole episodes, and completed: episodes are numbered anew,
   and steps and next states that are not given follow from the rows of the episode.

The memory needed is that of a bucket, whatever the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import BoolArray, IntArray
from bmdp.data.bins import ActionBins
from bmdp.data.checks import FIELDS, require_masks
from bmdp.data.episodes import rows_follow, with_next_masks
from bmdp.errors import DataError
from bmdp.randomness import UInt64Array, stream_key

LONGEST = 4
"""Chunks of an episode that is not cut."""

BUFFER_BYTES = 32 << 20
"""Size of the rows that are held before they are put into buckets."""

BUCKET_BYTES = 64 << 20
"""Size of the rows that are sorted at once, about."""

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""Steps of the counter of splitmix64."""

_BLOCK_ROWS, _BLOCK_BYTES = 65_536, 16 << 20  # that are given at once, at most
_MOST_BUCKETS, _UNKNOWN_BUCKETS, _LEAST_PARTS = 4_096, 64, 16


def mixed(words: UInt64Array) -> UInt64Array:
    """Returns hashes `[N]` of numbers: the last steps of splitmix64 (Steele et al., 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


@dataclass(frozen=True, eq=False)
class RowType:
    """The rows of buckets: one record each."""

    record: np.dtype[Any]
    has_episodes: bool  # whether episodes are known; else each row is one
    lacks_next: tuple[bool, ...] = ()  # whether each table has no next states; none has not

    @classmethod
    def of(
        cls, fields: Mapping[str, Any], has_episodes: bool, lacks_next: Iterable[bool] = ()
    ) -> RowType:
        """Returns the type of rows with such fields, by name and type."""
        kinds: dict[str, np.dtype[Any]] = {name: np.dtype(kind) for name, kind in fields.items()}
        kinds |= {"episode": np.dtype(np.int64), "table": np.dtype(np.uint32)}
        names = sorted(kinds, key=lambda name: -kinds[name].base.itemsize)
        sizes = [kinds[name].itemsize for name in names]
        record = np.dtype(
            {
                "names": names,
                "formats": [kinds[name] for name in names],
                "offsets": np.cumsum([0, *sizes[:-1]]).tolist(),
                "itemsize": -(-sum(sizes) // 8) * 8,
            }
        )
        return cls(record, has_episodes, tuple(lacks_next))

    @property
    def fields(self) -> list[str]:
        """Names of the columns."""
        return [name for name in FIELDS if self.has(name)]

    @property
    def n_bytes(self) -> int:
        """Bytes of a row."""
        return self.record.itemsize

    def has(self, name: str) -> bool:
        """Whether rows have a column."""
        return name in (self.record.names or ())

    def taken(self, rows: NDArray[Any], order: IntArray) -> NDArray[Any]:
        """Returns some rows. Records are copied as bytes, which is five times as fast."""
        whole: NDArray[Any] = rows.view(np.dtype((np.void, self.n_bytes)))[order]
        return whole.view(self.record)


class Buckets:
    """Rows on disk, by the hash of their episode."""

    def __init__(self, folder: Path, kind: RowType, seed: int, n_rows: int | None = None) -> None:
        """Makes an empty folder of buckets for so many rows, if that is known."""
        self.kind, self.folder = kind, folder
        self.folder.mkdir()
        n_buckets = _UNKNOWN_BUCKETS
        if n_rows is not None:
            n_buckets = min(max(1, -(-n_rows * kind.n_bytes // BUCKET_BYTES)), _MOST_BUCKETS)
        self.paths = [self.folder / str(number) for number in range(n_buckets)]
        self._key = np.uint64(stream_key(seed, "data/store")[0])
        self._buffer = np.zeros(max(1, BUFFER_BYTES // kind.n_bytes), kind.record)
        self._n_held = 0

    def add(self, table: int, columns: Mapping[str, NDArray[Any]]) -> None:
        """Adds rows of a table; those of an episode in order, unless steps are given.

        Args:
            table: its number. Episodes of different tables are different.
            columns: by name; episodes are any whole numbers.
        """
        n_rows, done = len(columns["state"]), 0
        while done < n_rows:
            n_now = min(n_rows - done, len(self._buffer) - self._n_held)
            rows = self._buffer[self._n_held : self._n_held + n_now]
            rows["table"] = table
            for name, values in columns.items():
                rows[name] = values[done : done + n_now]
            done, self._n_held = done + n_now, self._n_held + n_now
            if self._n_held == len(self._buffer):
                self._flush()

    def close(self) -> None:
        """Writes the last rows."""
        self._flush()
        self._buffer = np.zeros(0, self.kind.record)

    def _flush(self) -> None:
        rows, self._n_held = self._buffer[: self._n_held], 0
        share = (self._hashes(rows) >> np.uint64(32)) * np.uint64(len(self.paths))
        self._scatter(rows, share >> np.uint64(32), self.paths)

    def _hashes(self, rows: NDArray[Any]) -> UInt64Array:
        """Hashes of episodes, `[N]`."""
        table = rows["table"].astype(np.uint64) * GOLDEN + self._key
        return mixed(rows["episode"].astype(np.uint64) ^ mixed(table))

    def _scatter(self, rows: NDArray[Any], place: UInt64Array, paths: Sequence[Path]) -> None:
        """Appends rows to files, in order."""
        number = place.astype(np.uint16)  # of which sorting is quick
        taken = self.kind.taken(rows, np.argsort(number, kind="stable"))
        ends = np.cumsum(np.bincount(number, minlength=len(paths))).tolist()
        for path, begin, end in zip(paths, [0, *ends[:-1]], ends, strict=True):
            if begin < end:
                with path.open("ab") as file:
                    taken[begin:end].tofile(file)

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Gives all rows as they lie, block by block."""
        for path in self.paths:
            if path.exists():
                yield from self._blocks(path)

    def _blocks(self, path: Path) -> Iterator[NDArray[Any]]:
        n_most = max(1, BUFFER_BYTES // self.kind.n_bytes)
        with path.open("rb") as file:
            while len(rows := np.fromfile(file, self.kind.record, n_most)):
                yield rows

    def sample(self, n_most: int) -> NDArray[Any]:
        """Returns rows of the first bucket, in order; some of an episode may be missing."""
        path = next(path for path in self.paths if path.exists())
        rows = np.fromfile(path, self.kind.record, n_most)
        return self.kind.taken(rows, self._order(rows))

    def in_order(self) -> Iterator[NDArray[Any]]:
        """Gives all rows by hash, episode and step, block by block, and removes the buckets."""
        for path in self.paths:
            if path.exists():
                yield from self._of_bucket(path)

    def _of_bucket(self, path: Path) -> Iterator[NDArray[Any]]:
        if path.stat().st_size > 1.5 * BUCKET_BYTES:
            yield from self._of_large(path)
            return
        rows = np.fromfile(path, self.kind.record)
        path.unlink()
        order = self._order(rows)
        size = max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // self.kind.n_bytes))
        for begin in range(0, len(rows), size):
            yield self.kind.taken(rows, order[begin : begin + size])

    def _order(self, rows: NDArray[Any]) -> IntArray:
        """The order of rows; those that are equal in all stay as they are."""
        drawn = self._hashes(rows)
        order: IntArray = np.argsort(drawn, kind="stable")
        keys = [rows["table"], rows["episode"], *([rows["step"]] if self.kind.has("step") else ())]
        table, episode, *steps = (key[order] for key in keys)
        is_same = np.diff(drawn[order]) == 0
        is_wrong = is_same & ((episode[1:] != episode[:-1]) | (table[1:] != table[:-1]))
        for step in steps:
            is_wrong |= is_same & (step[1:] < step[:-1])
        if is_wrong.any():
            order = np.lexsort((*keys[::-1], drawn))
        return order

    def _of_large(self, path: Path) -> Iterator[NDArray[Any]]:
        """Rows of a bucket that is too large: it is split by hash, or one episode by steps."""
        split = self._split(path)
        if split is None:
            yield from self._blocks(path)
            path.unlink()
            return
        told, low, width, n_parts = split
        parts = [path.with_name(f"{path.name}.{k}") for k in range(n_parts)]
        for rows in self._blocks(path):
            self._scatter(rows, (told(rows) - np.uint64(low)) // np.uint64(width), parts)
        path.unlink()
        for part in parts:
            if part.exists():
                yield from self._of_bucket(part)

    def _split(self, path: Path) -> tuple[Callable[[Any], UInt64Array], int, int, int] | None:
        """By what to split a bucket, from where, how wide, and into how many parts.

        None if it is one episode whose rows are in order.
        """
        n_parts = min(max(_LEAST_PARTS, 2 * path.stat().st_size // BUCKET_BYTES), _MOST_BUCKETS)
        for told in (self._hashes, _steps) if self.kind.has("step") else (self._hashes,):
            ends = [(int(t.min()), int(t.max())) for t in map(told, self._blocks(path))]
            low, high = min(end[0] for end in ends), max(end[1] for end in ends)
            if low < high:
                return told, low, (high - low) // n_parts + 1, n_parts
        return None


def _steps(rows: NDArray[Any]) -> UInt64Array:
    found: UInt64Array = rows["step"].astype(np.uint64)
    return found


def chunks_of(
    blocks: Iterable[NDArray[Any]], n_most: int, has_episodes: bool
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Gives the rows of each chunk, and the row that follows if an episode was cut.

    A chunk is as many whole episodes as have `n_most` rows together, or one that has more. Of an
    episode of more than `LONGEST` times as many, `n_most` rows are cut off as long as that is so.
    """
    held: NDArray[Any] | None = None
    for block in blocks:
        held = block if held is None or not len(held) else np.concatenate([held, block])
        while n_rows := _n_ready(held, n_most, has_episodes, is_last=False):
            yield held[:n_rows], _rest_of_episode(held, n_rows, has_episodes)
            held = held[n_rows:]
    while held is not None and len(held):
        n_rows = _n_ready(held, n_most, has_episodes, is_last=True)
        yield held[:n_rows], _rest_of_episode(held, n_rows, has_episodes)
        held = held[n_rows:]


def _begins(rows: NDArray[Any]) -> BoolArray:
    """Whether an episode begins at a row, `[N - 1]`, all rows but the first."""
    episode, table = rows["episode"], rows["table"]
    found: BoolArray = (episode[1:] != episode[:-1]) | (table[1:] != table[:-1])
    return found


def _rest_of_episode(held: NDArray[Any], n_rows: int, has_episodes: bool) -> NDArray[Any]:
    """The row after a chunk, if it is of the same episode; else none."""
    pair = held[n_rows - 1 : n_rows + 1]
    is_cut = has_episodes and len(pair) == 2 and not _begins(pair).any()
    return pair[1:] if is_cut else pair[:0]


def _n_ready(held: NDArray[Any], n_most: int, has_episodes: bool, *, is_last: bool) -> int:
    """Rows that are a chunk, whatever follows; 0 if that is open."""
    if not has_episodes:
        return n_most if len(held) >= n_most else len(held) * is_last
    ends = np.flatnonzero(_begins(held)) + 1
    ends = np.append(ends, len(held)) if is_last else ends
    n_whole = int(np.searchsorted(ends, n_most, side="right"))
    if n_whole:
        is_full = len(held) > n_most or is_last
        return int(ends[n_whole - 1]) if is_full else 0
    if len(ends) and ends[0] <= LONGEST * n_most:
        return int(ends[0])
    return n_most if len(held) > LONGEST * n_most else 0


@dataclass(eq=False)
class Completion:
    """Columns of chunks, as they follow from rows in order. It remembers where a chunk ended."""

    kind: RowType
    n_actions: int
    least_step: int = 0  # from which steps are counted
    place: Callable[[int, int], str] = lambda table, row: ""  # of a row of a table, in words
    bins: ActionBins | None = None  # of actions that are numbers
    is_sample: bool = False  # then rows may be missing
    n_episodes: int = 0
    is_counted: bool = True  # whether steps that are not given follow from the order of rows
    last: Any = None  # row of the chunk before, `[1]`
    n_before: int = 0  # rows of its episode

    def columns(self, rows: NDArray[Any], after: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Returns the columns of a chunk.

        Args:
            rows: of the chunk, in order.
            after: the row that follows, if an episode is cut; else none.

        Raises:
            DataError: if a next state is neither given nor follows from the next row.
        """
        n_rows = len(rows)
        rows = np.concatenate([rows, after]) if len(after) else rows
        columns = {name: np.ascontiguousarray(rows[name]) for name in self.kind.fields}
        if self.bins is not None:
            columns["action"] = self.bins.numbers(columns["action"])
            require_masks(columns, self.n_actions)
        if "step" in columns:
            columns["step"] -= self.least_step
        if self.kind.has_episodes:
            self._tell_episodes(rows, n_rows, columns)
        else:
            del columns["episode"]
            self.n_episodes += n_rows
        columns = with_next_masks(columns)
        return {name: values[:n_rows] for name, values in columns.items()}

    def _tell_episodes(
        self, rows: NDArray[Any], n_rows: int, columns: dict[str, NDArray[Any]]
    ) -> None:
        """Adds numbers of episodes, steps and next states."""
        goes_on = self.last is not None and not _begins(np.append(self.last, rows[:1])).any()
        begins = np.append(not goes_on, _begins(rows))
        columns["episode"] = self.n_episodes - 1 + np.cumsum(begins)
        self.n_episodes += int(begins[:n_rows].sum())
        inside = np.append(~begins[1:], False)  # rows with a next one
        self._add_next_states(rows, n_rows, inside, columns)
        places = np.arange(len(rows))
        step = places - np.maximum.accumulate(np.where(begins, places, 0))
        n_old = int(np.argmax(begins)) if begins.any() else len(rows)
        step[:n_old] += self.n_before
        self.last, self.n_before = rows[n_rows - 1 : n_rows].copy(), int(step[n_rows - 1]) + 1
        if "step" not in columns:
            columns["step"] = step
            ended = columns["terminal"] | columns.get("truncated", False)
            told = columns["state"], columns["next_state"], columns["episode"]
            self.is_counted &= not (ended & inside).any() and rows_follow(*told)

    def _add_next_states(
        self, rows: NDArray[Any], n_rows: int, inside: BoolArray, columns: dict[str, NDArray[Any]]
    ) -> None:
        if not any(self.kind.lacks_next):
            return
        lacks, state = np.array(self.kind.lacks_next)[rows["table"]], columns["state"]
        is_open = (lacks & ~inside & ~columns["terminal"])[:n_rows]
        if is_open.any() and not self.is_sample:
            raise DataError(
                f"{self._first(rows, is_open)}: next_state must be given, or follow from the next "
                "row of the episode; this row is the last of an episode that goes on. Drop such "
                "rows, or give next_state."
            )
        if "step" in columns and not self.is_sample:
            step = columns["step"] + self.least_step
            skips = lacks & inside & (np.append(step[1:], 0) != step + 1)
            if skips.any():
                i = int(np.argmax(skips))
                raise DataError(
                    f"{self._first(rows, skips)}: step must go up by 1 within an episode for "
                    f"next_state to follow from it; got {step[i + 1]} after {step[i]}."
                )
        goes_on = inside & ~columns["terminal"]
        following = np.where(goes_on[:, None], np.append(state[1:], state[-1:], axis=0), state)
        given = columns.get("next_state", following)
        columns["next_state"] = np.where(lacks[:, None], following, given)

    def _first(self, rows: NDArray[Any], is_it: BoolArray) -> str:
        """The place of the first of some rows, in words."""
        row = rows[int(np.argmax(is_it))]
        return self.place(int(row["table"]), int(row["row"]))
