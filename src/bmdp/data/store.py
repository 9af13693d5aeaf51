"""A log on disk, in chunks of whole episodes: for logs that are larger than memory.

    folder/
      log.json   sizes, types and checksums of the chunks; written last
      rows.bin   the chunks, one after the other, each column by column

The order of episodes is drawn by a hash of their numbers. So the first chunks are a random sample
of episodes. Neither the order of rows nor that of files matters where episodes and steps are named.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import IntArray
from bmdp.checks import require_count
from bmdp.data.batch import TransitionBatch
from bmdp.data.buckets import Buckets, Completion, RowType, chunks_of
from bmdp.data.checks import FIELDS, MASKS, REQUIRED
from bmdp.data.columns import Columns, _guessed
from bmdp.data.encoder import Encoder, check_handling
from bmdp.data.formats import AnyPath, Extent, parquet_files
from bmdp.data.intake import Handling, Intake, OnRows, Run, Source, with_wide_masks
from bmdp.data.logs import given_paths, is_minari, load_log
from bmdp.data.parquet import ParquetTable, metadata_of, release_memory, values_of
from bmdp.errors import DataError, StoreError
from bmdp.kinds import checked
from bmdp.storage import locked, one_line, to_disk, write_text

CHUNK_ROWS = 16_384
"""Rows of a chunk, about."""

FORMAT = "bmdp.StoredLog/1"
"""The mark of a log on disk."""

_CHUNK_BYTES = 32 << 20  # at most, if rows are wide
_HEADER, _ROWS, _BUCKETS, _LOCK = "log.json", "rows.bin", "buckets", "lock"
_FLOATS, _FLAGS, _COUNTS = ("<f4", "<f8"), ("|b1",), ("<i8",)
_KINDS_OF: dict[str, tuple[str, ...]] = {"state": _FLOATS, "next_state": _FLOATS}
_KINDS_OF |= dict.fromkeys(("terminal", "truncated", *MASKS), _FLAGS)
_KINDS_OF |= dict.fromkeys(("action", "episode", "step"), _COUNTS)
_BEGUN = {_ROWS, _BUCKETS, _LOCK, f"{_LOCK}.holder"}  # of a log that was not written to its end

_Kind = tuple[str, str, tuple[int, ...]]
"""Name of a column, its type, and the shape of an entry."""


@checked
@dataclass(frozen=True, eq=False, repr=False)
class StoredLog:
    """Transitions on disk, in chunks of whole episodes.

    Episodes are in random order. A chunk has about 16,384 rows, and at most that, unless one
    episode has more. An episode of more than four times as many is cut. Chunks are read one by one,
    and each is checked by its checksum.

    >>> import tempfile
    >>> log = TransitionBatch([0, 1, 5], [0, 1, 1], [1, 2, 3], [0, 0, 1], [1, 2, 6], [0, 1, 1])
    >>> with tempfile.TemporaryDirectory() as place:
    ...     stored = StoredLog.write(place, [log, log])
    ...     stored, sorted(stored.chunk(0).reward.tolist()), stored.counts.tolist()
    (StoredLog(6 transitions of 4 episodes in 1 chunks), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0], [2, 4])
    """

    folder: Path  # in which it lies
    n_rows: int  # of all chunks
    n_episodes: int  # as many as rows, if episodes are not known
    n_chunks: int  # at least 1
    state_size: int  # D, numbers of a state
    n_actions: int  # A
    state_names: tuple[str, ...] | None  # [D], for people
    largest: tuple[float, float]  # largest magnitude of rewards, and of costs
    counts: IntArray  # [A], how often each action was taken
    least_cost: float  # of a row
    n_steps: int | None  # 1 + the largest step; None if steps are not known
    _columns: tuple[_Kind, ...]  # of a chunk, in the order in which they lie
    _rows: tuple[int, ...]  # of each chunk
    _checksums: tuple[int, ...]  # CRC-32 of each chunk

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        return (
            f"StoredLog({self.n_rows:,} transitions of {self.n_episodes:,} episodes "
            f"in {self.n_chunks:,} chunks)"
        )

    def sizes(self) -> IntArray:
        """Returns the number of rows of each chunk, `[n_chunks]`."""
        return np.array(self._rows, np.int64)

    def chunk(self, number: int) -> TransitionBatch:
        """Returns the transitions of a chunk.

        Raises:
            ConfigError: if there is no such chunk.
            StoreError: if it cannot be read, or is damaged.
        """
        require_count("number", number, 0, self.n_chunks - 1)
        return self._batch(self._read(int(number)))

    def first(self, n_rows: int) -> TransitionBatch:
        """Returns about so many rows of the first chunks: a random sample of whole episodes.

        They are no more than asked for. If the first episode alone has more, it is cut.

        Raises:
            ConfigError: if n_rows is not a number of rows.
            StoreError: if a chunk cannot be read, or is damaged.
        """
        held = self._until(range(self.n_chunks), n_rows)
        ends = np.append(_inner_begins(held), len(held["state"]))
        whole = ends[ends <= n_rows]
        kept = slice(0, int(whole[-1]) if len(whole) else n_rows)
        return self._batch({name: values[kept] for name, values in held.items()})

    def last(self, n_rows: int) -> TransitionBatch:
        """Returns about so many rows of the last chunks; see `first`."""
        held = self._until(range(self.n_chunks - 1, -1, -1), n_rows)
        begins, n_over = np.append(0, _inner_begins(held)), len(held["state"]) - n_rows
        whole = begins[begins >= n_over]
        kept = slice(int(whole[0]) if len(whole) else n_over, None)
        return self._batch({name: values[kept] for name, values in held.items()})

    def _until(self, numbers: range, n_rows: int) -> dict[str, NDArray[Any]]:
        """Columns of as many chunks as have more rows, in the order of the log."""
        require_count("n_rows", n_rows, 1)
        parts: list[dict[str, NDArray[Any]]] = []
        n_held = 0
        for number in numbers:
            if n_held > n_rows:
                break
            parts.append(self._read(number))
            n_held += self._rows[number]
        parts = parts if numbers.step > 0 else parts[::-1]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _batch(self, columns: Mapping[str, NDArray[Any]]) -> TransitionBatch:
        return TransitionBatch._of(columns, Extent(self.n_actions, self.state_names))

    def _read(self, number: int) -> dict[str, NDArray[Any]]:
        """Columns of a chunk, which share one piece of memory."""
        n_rows, source = self._rows[number], self.folder / _ROWS
        width = _n_bytes(self._columns)
        content = np.empty(n_rows * width, np.uint8)
        try:
            with source.open("rb") as file:
                file.seek(width * sum(self._rows[:number]))
                n_read = file.readinto(content.data)
        except OSError as error:
            raise StoreError(f"{source} cannot be read: {error.strerror}.") from error
        if n_read != len(content) or zlib.crc32(content.data) != self._checksums[number]:
            raise StoreError(
                f"{source} is damaged: chunk {number} is not what was written. Store it again."
            )
        found, begin = {}, 0
        for name, kind, shape in self._columns:
            end = begin + n_rows * _n_bytes([(name, kind, shape)])
            found[name] = content[begin:end].view(kind).reshape(n_rows, *shape)
            begin = end
        if self.n_steps is None:
            found.pop("step", None)
        if not ((found["action"] >= 0) & (found["action"] < self.n_actions)).all():
            raise StoreError(f"{source} has actions that are not below {self.n_actions}.")
        return found

    @classmethod
    def open(cls, folder: AnyPath) -> StoredLog:
        """Returns the log of a folder.

        Raises:
            StoreError: if there is none, it was not written to its end, or is damaged.
        """
        source = Path(folder)
        path, rows = source / _HEADER, source / _ROWS
        if not path.is_file():
            raise StoreError(f"{source} holds no whole log: there is no {_HEADER} in it.")
        try:
            header = json.loads(path.read_text())
            mark, content, checksum = (header[key] for key in ("format", "content", "checksum"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{path} is not of a log, or is damaged.") from error
        if mark != FORMAT:
            told = one_line(mark)[:100]
            hint = "upgrade bmdp to read it" if told.startswith(FORMAT[:-1]) else "store it again"
            raise StoreError(f"{path} has format {told}, not {FORMAT}: {hint}.")
        if checksum != _checksum(content):
            raise StoreError(f"{path} is damaged: it is not what was written.")
        try:
            log = cls(source, **_restored(content))
        except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
            raise StoreError(f"{path} does not make sense: it has {one_line(error)}.") from error
        n_bytes = log.n_rows * _n_bytes(log._columns)
        if not rows.is_file() or rows.stat().st_size != n_bytes:
            raise StoreError(f"{rows} is damaged: it must have {n_bytes:,} bytes.")
        return log

    @classmethod
    def write(
        cls, folder: AnyPath, batches: Iterable[TransitionBatch], *, seed: int = 0
    ) -> StoredLog:
        """Writes batches to a folder, one at a time, and returns the log.

        Episodes of different batches stay different, as in `TransitionBatch.concatenate`. The
        first batch says which columns there are.

        Args:
            folder: a new one, an empty one, or one in which a log was begun.
            batches: of transitions; they may be more than fit into memory.
            seed: of the order of episodes.

        Raises:
            DataError: if there is no batch, or one does not have the columns of the first.
            StoreError: if the folder holds a log or something else, or cannot be written.
        """
        with _begun(folder) as target:
            _write_batches(target, batches, seed)
        return cls.open(target)


def _inner_begins(columns: Mapping[str, NDArray[Any]]) -> IntArray:
    """Rows, but for the first, at which an episode begins; all, if episodes are not known."""
    if "episode" not in columns:
        return np.arange(1, len(columns["state"]))
    episode = columns["episode"]
    found: IntArray = np.flatnonzero(episode[1:] != episode[:-1]) + 1
    return found


def _n_bytes(columns: Iterable[_Kind]) -> int:
    """Bytes of a row."""
    return sum(np.dtype((kind, shape)).itemsize for _, kind, shape in columns)


def _checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _restored(content: Any) -> dict[str, Any]:
    """The fields of a log, as the header has them, checked.

    Raises:
        ValueError, TypeError, KeyError, IndexError: if they make no sense.
    """
    names = content["state_names"]
    kinds = tuple((name, kind, tuple(shape)) for name, kind, shape in content["_columns"])
    found: dict[str, Any] = content | {
        "state_names": None if names is None else tuple(names),
        "largest": tuple(content["largest"]),
        "counts": np.array(content["counts"], np.int64),
        "_columns": kinds,
        "_rows": tuple(content["_rows"]),
        "_checksums": tuple(content["_checksums"]),
    }
    if found.keys() != {f.name for f in fields(StoredLog)} - {"folder"}:
        raise ValueError("other parts than those of a log")
    counts = ("n_rows", "n_episodes", "n_chunks", "state_size", "n_actions")
    whole = [found[name] for name in counts] + list(found["_rows"])
    if not all(type(number) is int and 1 <= number < 2**62 for number in whole):
        raise ValueError("sizes that are no whole numbers from 1 on")
    n_actions, by_name = found["n_actions"], {name: kind for name, *kind in kinds}
    shapes = {name: (n_actions,) for name in MASKS} | {
        name: (found["state_size"],) for name in ("state", "next_state")
    }
    for name, (kind, shape) in by_name.items():
        allowed = _KINDS_OF.get(name, ("<f8",))
        if name not in FIELDS or kind not in allowed or shape != shapes.get(name, ()):
            raise ValueError(f"a column {name!r} of another type or shape")
    rules = (
        len(by_name) == len(kinds) and by_name.keys() >= set(REQUIRED),
        found["n_rows"] == sum(found["_rows"]),
        found["n_chunks"] == len(found["_rows"]) == len(found["_checksums"]),
        found["counts"].shape == (n_actions,) and found["counts"].sum() == found["n_rows"],
        (found["counts"] >= 0).all() and found["n_episodes"] <= found["n_rows"],
        all(type(number) is int for number in found["_checksums"]),
        len(found["largest"]) == 2 and np.isfinite((*found["largest"], found["least_cost"])).all(),
        found["n_steps"] is None or (type(found["n_steps"]) is int and found["n_steps"] >= 1),
        names is None or (len(names) == found["state_size"] and all(type(n) is str for n in names)),
    )
    if not all(rules):
        raise ValueError("sizes that do not match")
    return found


@checked
def store_log(  # noqa: PLR0913
    source: Any,
    folder: AnyPath,
    columns: Columns | None = None,
    *,
    missing: str = "error",
    unseen: str = "error",
    seed: int = 0,
    on_rows: OnRows = lambda n_done, n_all: None,
) -> tuple[StoredLog, Encoder | None]:
    """Writes a log to a folder in chunks, so that it may be larger than memory.

    Parquet is read some rows at a time, so that it may be larger than memory. All else is loaded
    first. Text, dates and gaps become numbers as in `load_log`; if the log is large, medians and
    bins of actions are those of a sample. Episodes and steps are told as far as rows tell them.

    Args:
        source: as for `load_log`, or a `TransitionBatch`.
        folder: a new one, an empty one, or one in which a log was begun.
        columns: as for `load_log`.
        missing: as for `load_log`.
        unseen: as for `load_log`.
        seed: of the order of episodes, and of the choice of bins.
        on_rows: called with the number of rows that are done, and of all.

    Returns:
        The log, and what stands for its text; None if it has numbers only.

    Raises:
        StoreError: if a file cannot be read, or the folder holds a log or something else.
        DataError: if the log does not hold transitions, naming the file, the column and the row.
        ConfigError: if a setting is unknown.

    >>> import tempfile
    >>> log = TransitionBatch([0, 1, 5], [0, 1, 1], [1, 2, 3], [0, 0, 1], [1, 2, 6], [0, 1, 1])
    >>> with tempfile.TemporaryDirectory() as place:
    ...     log.to_parquet(f"{place}/log.parquet")
    ...     stored, encoder = store_log(f"{place}/*.parquet", f"{place}/stored")
    ...     sorted(stored.chunk(0).step.tolist()), encoder
    ([0, 0, 1], None)
    """
    check_handling(missing, unseen)
    places = given_paths(source)
    with _begun(folder) as target:
        if places and all(map(_is_parquet, places)):
            tables = [ParquetTable.of(path, columns) for path in sorted(places)]
            read = Source(tables, on_rows)
            encoder = _write_tables(target, read, Handling(missing, unseen), seed)
        else:
            batch, encoder = source, None
            if not isinstance(source, TransitionBatch):
                found = load_log(source, columns, missing=missing, unseen=unseen, seed=seed)
                batch, encoder = found.batch, found.encoder
            _write_batches(target, [batch], seed)
            on_rows(len(batch), len(batch))
    return StoredLog.open(target), encoder


@checked
def log_size(source: Any) -> tuple[int, int] | None:
    """Returns the rows of a log of Parquet, and about how many bytes it takes in memory.

    Only the metadata of the files are read. Each number takes 8 bytes.

    Args:
        source: the path of a file or a folder, a pattern such as `"folder/*.parquet"`, or several
            paths; for anything else there is no answer.

    Raises:
        StoreError: if a file cannot be read, or nothing matches a pattern.

    >>> import tempfile
    >>> log = TransitionBatch([0, 1, 5], [0, 1, 1], [1, 2, 3], [0, 0, 1], [1, 2, 6], [0, 1, 1])
    >>> with tempfile.TemporaryDirectory() as place:
    ...     log.to_parquet(f"{place}/log.parquet")
    ...     log_size(place), log_size(log)
    ((3, 144), None)
    """
    paths = paths_of(source)
    if not paths or not all(path.suffix.lower() == ".parquet" for path in paths):
        return None
    n_rows = n_values = 0
    for path in paths:
        metadata = metadata_of(path)
        values = values_of(metadata)
        n_rows += metadata.num_rows
        n_values += sum(values.values())
        if not _guessed("next_state", metadata.schema.to_arrow_schema().names):
            n_values += sum(values.values())  # about as many, once next states are told
    return n_rows, 8 * n_values


def paths_of(source: Any) -> list[Path] | None:
    """Returns the files of a log, or None if it is not one of paths.

    Args:
        source: a path, several paths, or a pattern such as `"folder/*.parquet"`; a folder stands
            for the Parquet files in it.

    Raises:
        StoreError: if nothing matches a pattern.
    """
    places = given_paths(source)
    if places is None:
        return None
    found: list[Path] = []
    for path in places:
        is_folder = path.is_dir() and not is_minari(path)
        found += (parquet_files(path) if is_folder else []) or [path]
    return found


def _is_parquet(path: Path) -> bool:
    if path.is_dir():
        return not is_minari(path) and path.suffix.lower() not in (".h5", ".hdf5", ".npz")
    return path.suffix.lower() == ".parquet"


@contextmanager
def _begun(folder: AnyPath) -> Iterator[Path]:
    """Gives a folder to write a log to, and keeps other processes away from it.

    Raises:
        StoreError: if it holds a log or something else, or cannot be written.
    """
    target = Path(folder)
    try:
        _require_free(target)
        target.mkdir(parents=True, exist_ok=True)
        with locked(target / _LOCK, target):
            _require_free(target)
            _clear(target)
            try:
                yield target
            finally:
                if not (target / _HEADER).exists():
                    _clear(target)
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error}.") from error


def _require_free(target: Path) -> None:
    if target.exists() and not target.is_dir():
        raise StoreError(f"{target} is not a folder.")
    held = {path.name for path in target.iterdir()} if target.exists() else set()
    if _HEADER in held:
        raise StoreError(f"{target} holds a log already: open it, or choose another folder.")
    others = sorted(name for name in held - _BEGUN if not name.startswith(f".{_HEADER}."))
    if others:
        raise StoreError(
            f"{target} holds {others[0]!r}, which is not of a log: choose another folder."
        )


def _clear(target: Path) -> None:
    """Removes a log that was not written to its end."""
    for path in (target / _BUCKETS, *target.glob(f".{_HEADER}.*")):
        shutil.rmtree(path, ignore_errors=True)
    (target / _ROWS).unlink(missing_ok=True)


def _write_tables(target: Path, source: Source, how: Handling, seed: int) -> Encoder | None:
    """Writes the rows of Parquet, and returns what stands for text."""
    intake = Intake.of(source, how)
    encoder = intake.encoder
    buckets = Buckets(target / _BUCKETS, intake.kind, seed, source.n_rows)
    for piece in source.pieces():
        with piece.placed():
            columns = intake.columns(piece)
        buckets.add(piece.number, columns)
    buckets.close()
    release_memory()
    n_actions = intake.n_actions
    if intake.has_bins:
        encoder = intake.with_bins(buckets, seed)
        n_actions = len(encoder.action_names)
    completion = Completion(intake.kind, n_actions, intake.least_step, source.place)
    if encoder is not None:
        completion.bins = encoder.bins
    source.progress.begin()
    _write_chunks(target, buckets, completion, intake.state_names, source.progress.add)
    return encoder


def _write_batches(target: Path, batches: Iterable[TransitionBatch], seed: int) -> None:
    """Writes batches; the first says which columns there are."""
    if isinstance(batches, TransitionBatch) or not isinstance(batches, Iterable):
        raise DataError(f"batches must be several; got {type(batches).__name__}.")
    buckets: Buckets | None = None
    names: set[tuple[str, ...] | None] = set()
    n_actions, least_step = 1, np.iinfo(np.int64).max
    for number, batch in enumerate(batches):
        if not isinstance(batch, TransitionBatch):
            raise DataError(
                f"batches must be of TransitionBatch; got {type(batch).__name__} at [{number}]."
            )
        columns = _with_episodes(batch)
        if buckets is None:
            kinds = {name: (c.dtype, c.shape[1:]) for name, c in columns.items()}
            kind = RowType.of(kinds, "episode" in columns)
            buckets = Buckets(target / _BUCKETS, kind, seed)
        buckets.add(number, _alike(columns, buckets.kind, number))
        names.add(batch.state_names)
        n_actions = max(n_actions, batch.n_actions)
        if batch.step is not None:
            least_step = min(least_step, int(batch.step.min()))
    if buckets is None:
        raise DataError("batches must hold at least one; got none.")
    buckets.close()
    completion = Completion(buckets.kind, n_actions, least_step)
    _write_chunks(target, buckets, completion, names.pop() if len(names) == 1 else None)


def _with_episodes(batch: TransitionBatch) -> dict[str, NDArray[Any]]:
    """Columns of a batch, with episodes if its rows tell them."""
    columns, run = batch.to_arrays(), Run()
    if "episode" not in columns:
        numbers = run.numbers(0, columns)
        columns |= {"episode": numbers} if run.tells else {}
    return columns


def _alike(columns: dict[str, NDArray[Any]], kind: RowType, number: int) -> dict[str, NDArray[Any]]:
    """The columns of a batch that the first one has.

    Raises:
        DataError: if one is not there, or does not fit.
    """
    if not kind.has_episodes:
        columns = columns | {"episode": np.arange(len(columns["state"]))}
    for name in kind.fields:
        if name not in columns:
            raise DataError(
                f"batches must have the columns of the first; [{number}] does not tell {name!r}."
            )
    found = {name: columns[name] for name in kind.fields}
    state, first = found["state"], kind.record["state"]
    if state.shape[1:] != first.shape:
        raise DataError(
            f"batches must have states of one size; [0] has {first.shape[0]} numbers a state, "
            f"[{number}] has {state.shape[1]}."
        )
    if state.dtype.itemsize > first.base.itemsize:
        raise DataError(
            "batches must have states of the precision of the first, float32; got float64 at "
            f"[{number}]."
        )
    return with_wide_masks(found, kind)


def _write_chunks(
    target: Path,
    buckets: Buckets,
    completion: Completion,
    names: tuple[str, ...] | None,
    on_rows: Callable[[int], None] = lambda n_rows: None,
) -> None:
    """Writes sorted rows. The header comes last, once all else is on the disk."""
    from bmdp import __version__

    kind = buckets.kind
    n_most = max(1, min(CHUNK_ROWS, _CHUNK_BYTES // kind.n_bytes))
    with (target / _ROWS).open("xb") as file:
        chunks = _Chunks(file, np.zeros(completion.n_actions, np.int64))
        for rows, after in chunks_of(buckets.in_order(), n_most, kind.has_episodes):
            chunks.add(completion.columns(rows, after))
            on_rows(len(rows))
    shutil.rmtree(buckets.folder)
    to_disk(target / _ROWS)
    content = chunks.header(completion, names)
    header = {"format": FORMAT, "bmdp": __version__, "checksum": _checksum(content)}
    write_text(target / _HEADER, json.dumps(header | {"content": content}) + "\n")


@dataclass(eq=False)
class _Chunks:
    """Chunks as they are written, and their header."""

    file: BinaryIO
    counts: IntArray  # [A]
    kinds: list[_Kind] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    checksums: list[int] = field(default_factory=list)
    largest: tuple[float, float] = (0.0, 0.0)
    least_cost: float = np.inf
    last_step: int = 0

    def add(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Writes a chunk."""
        if not self.kinds:  # wide types first, so that all are aligned
            kinds = [(name, c.dtype.str, c.shape[1:]) for name, c in columns.items()]
            self.kinds = sorted(kinds, key=lambda kind: -np.dtype(kind[1]).itemsize)
        checksum = 0
        for name, _, _ in self.kinds:
            content = np.ascontiguousarray(columns[name]).reshape(-1).view(np.uint8).data
            checksum = zlib.crc32(content, checksum)
            self.file.write(content)
        self.rows.append(len(columns["state"]))
        self.checksums.append(checksum)
        reward, cost = columns["reward"], columns["cost"]
        paid = float(np.abs(reward).max()), float(np.abs(cost).max())
        self.largest = max(self.largest[0], paid[0]), max(self.largest[1], paid[1])
        self.least_cost = min(self.least_cost, float(cost.min()))
        self.counts += np.bincount(columns["action"], minlength=len(self.counts))
        if "step" in columns:
            self.last_step = max(self.last_step, int(columns["step"].max()))

    def header(self, completion: Completion, names: tuple[str, ...] | None) -> dict[str, Any]:
        """Returns the content of the header: the fields of a log."""
        shapes = {name: shape for name, _, shape in self.kinds}
        has_steps = "step" in shapes and completion.is_counted
        return {
            "n_rows": sum(self.rows),
            "n_episodes": completion.n_episodes,
            "n_chunks": len(self.rows),
            "state_size": shapes["state"][0],
            "n_actions": len(self.counts),
            "state_names": None if names is None else list(names),
            "largest": list(self.largest),
            "counts": self.counts.tolist(),
            "least_cost": self.least_cost,
            "n_steps": self.last_step + 1 if has_steps else None,
            "_columns": [[name, kind, list(shape)] for name, kind, shape in self.kinds],
            "_rows": self.rows,
            "_checksums": self.checksums,
        }
