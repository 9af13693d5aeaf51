"""Logged transitions as one value: what was seen, done, earned and paid, and what came next.

The log says what happened, and not more: a column that is not known is None. Two ways in which a
row can be the last of its episode are kept apart, because learning treats them differently:

- *terminal*: the process ended. Nothing follows, so nothing more is earned or paid.
- *truncated*: the log stops, but the process would have gone on. What follows is estimated.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray, read_only
from bmdp.checks import require_count
from bmdp.data import episodes
from bmdp.data.checks import (
    FIELDS,
    MASKS,
    REQUIRED,
    action_count,
    checked_columns,
    checked_names,
    positions,
    require_masks,
)
from bmdp.data.columns import Columns, Discretise, LogTable, fields_of
from bmdp.data.formats import (
    AnyPath,
    Extent,
    arrow_table,
    as_path,
    csv_table,
    frame_table,
    hdf5_table,
    ipc_table,
    npz_table,
    parquet_table,
    require_checksum,
    to_frame,
    write_hdf5,
    write_npz,
    write_parquet,
)
from bmdp.data.minari import read_minari, write_minari
from bmdp.data.summary import BatchSummary, summarised
from bmdp.errors import ConfigError, DataError
from bmdp.kinds import checked


@dataclass(frozen=True, eq=False, init=False, repr=False)
class TransitionBatch:
    """`N` transitions, checked once and read-only. The first six columns are required.

    Args:
        state: `[N, D]`. Kept as float32 if that is what it is, else as float64. `[N]` becomes
            `[N, 1]`, and states of several axes are flattened.
        action: `[N]`, whole numbers from 0.
        reward: `[N]`, earned in the step.
        cost: `[N]`, paid in the step.
        next_state: `[N, D]`; ignored where terminal, but it must be there.
        terminal: `[N]`, whether the process ended.
        truncated: `[N]`, whether the log stops here although the process would have gone on.
        episode: `[N]`, number of the episode.
        step: `[N]`, number of the step in its episode, from 0.
        budget: `[N]`, held before the decision.
        next_budget: `[N]`, handed on.
        probability: `[N]`, of the action under the policy that was logged, above 0.
        available: `[N, A]`, which actions could be taken at the state. All of them, if not given.
        next_available: `[N, A]`, the same at the next state; ignored where terminal. If not given,
            and episodes are known, it is that of the next row of the episode; where that is not
            known, all actions could be taken.
        n_actions: by default the A of these, or one more than the largest action.
        state_names: of the numbers of a state, `[D]`, for people.

    Raises:
        DataError: naming the column, how many of its rows are bad, and which is the first.

    Paper: Section 3.1, the batch D.

    >>> batch = TransitionBatch(
    ...     state=[0.0, 1.0, 0.0],
    ...     action=[1, 0, 1],
    ...     reward=[0.0, 1.0, 0.0],
    ...     cost=[0.0, 0.5, 0.0],
    ...     next_state=[1.0, 2.0, 1.0],
    ...     terminal=[False, True, False],
    ... )
    >>> batch
    TransitionBatch(3 transitions, states of 1 numbers, 2 actions)
    >>> batch.take(batch.terminal).cost
    array([0.5])
    """

    state: FloatArray  # [N, D]
    action: IntArray  # [N]
    reward: FloatArray  # [N]
    cost: FloatArray  # [N]
    next_state: FloatArray  # [N, D]
    terminal: BoolArray  # [N]
    truncated: BoolArray | None  # [N]
    episode: IntArray | None  # [N]
    step: IntArray | None  # [N]
    budget: FloatArray | None  # [N]
    next_budget: FloatArray | None  # [N]
    probability: FloatArray | None  # [N]
    available: BoolArray | None  # [N, A]
    next_available: BoolArray | None  # [N, A]
    n_actions: int
    state_names: tuple[str, ...] | None  # [D]

    def __init__(  # noqa: PLR0913
        self,
        state: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        cost: ArrayLike,
        next_state: ArrayLike,
        terminal: ArrayLike,
        *,
        truncated: ArrayLike | None = None,
        episode: ArrayLike | None = None,
        step: ArrayLike | None = None,
        budget: ArrayLike | None = None,
        next_budget: ArrayLike | None = None,
        probability: ArrayLike | None = None,
        available: ArrayLike | None = None,
        next_available: ArrayLike | None = None,
        n_actions: int | None = None,
        state_names: Sequence[str] | None = None,
    ) -> None:
        """Checks the columns, and makes them read-only."""
        given = {
            **dict(zip(REQUIRED, (state, action, reward, cost, next_state, terminal), strict=True)),
            **{"truncated": truncated, "episode": episode, "step": step, "budget": budget},
            **{"next_budget": next_budget, "probability": probability},
            **{"available": available, "next_available": next_available},
        }
        columns = checked_columns(given)
        if n_actions is None:
            n_actions = next((columns[name].shape[1] for name in MASKS if name in columns), None)
        n_actions = action_count(columns["action"], n_actions)
        require_masks(columns, n_actions)
        columns = {name: read_only(v) for name, v in episodes.with_next_masks(columns).items()}
        names = checked_names(state_names, columns["state"].shape[1])
        self._set(columns, Extent(n_actions, names))

    def _set(self, columns: Mapping[str, NDArray[Any]], extent: Extent) -> None:
        """Takes columns that nobody else holds."""
        for name in FIELDS:
            if name in columns:
                columns[name].setflags(write=False)
            object.__setattr__(self, name, columns.get(name))
        object.__setattr__(self, "n_actions", extent.n_actions)
        object.__setattr__(self, "state_names", extent.state_names)

    @classmethod
    def _of(cls, columns: Mapping[str, NDArray[Any]], extent: Extent) -> TransitionBatch:
        """Returns a batch of columns that are known to be right."""
        batch = object.__new__(cls)
        batch._set(columns, extent)
        return batch

    @property
    def _extent(self) -> Extent:
        return Extent(self.n_actions, self.state_names)

    def __len__(self) -> int:
        return len(self.state)

    def __repr__(self) -> str:
        return (
            f"TransitionBatch({len(self):,} transitions, states of {self.state_size} numbers, "
            f"{self.n_actions} actions)"
        )

    @property
    def state_size(self) -> int:
        """D, how many numbers a state has."""
        return int(self.state.shape[1])

    def take(self, rows: ArrayLike) -> TransitionBatch:
        """Returns some of the transitions, chosen by position or mask; positions may repeat.

        Raises:
            DataError: if there are none, or rows are neither positions nor a mask `[N]`.
        """
        chosen = positions(rows, len(self))
        columns = {name: values[chosen] for name, values in self.to_arrays().items()}
        return self._of(columns, self._extent)

    @classmethod
    def concatenate(cls, batches: Iterable[TransitionBatch]) -> TransitionBatch:
        """Returns all transitions of several batches, in order.

        Optional columns are kept only if all batches have them, but for available actions: where a
        batch does not say, all its actions are. Episodes are numbered anew from the second batch
        on, so that those of different batches stay different.

        Raises:
            DataError: if there is no batch, one is something else, or their states differ in size.
        """
        if isinstance(batches, TransitionBatch) or not isinstance(batches, Iterable):
            raise DataError(f"batches must be several; got {type(batches).__name__}.")
        held = list(batches)
        for i, batch in enumerate(held):
            if not isinstance(batch, TransitionBatch):
                raise DataError(
                    f"batches must be of TransitionBatch; got {type(batch).__name__} at [{i}]."
                )
        sizes = [batch.n_actions for batch in held]
        columns = episodes.joined(episodes.same_masks([b.to_arrays() for b in held], sizes))
        names = {batch.state_names for batch in held}
        shared = names.pop() if len(names) == 1 else None
        return cls._of(columns, Extent(max(sizes), shared))

    def folds(self, n_folds: int, rng: np.random.Generator) -> IntArray:
        """Returns the fold of each row, `[N]`, drawn at random.

        All rows of an episode are in one fold, and folds differ by one episode at most. Where
        episodes are unknown each row is one.

        Raises:
            ConfigError: if there is no fold, or there are more than episodes, or rng is no
                generator.
        """
        if not isinstance(rng, np.random.Generator):
            raise ConfigError(f"rng must be a generator of numpy; got {type(rng).__name__}.")
        episode = np.arange(len(self)) if self.episode is None else self.episode
        require_count("n_folds", n_folds, 1, len(np.unique(episode)))
        return episodes.fold_numbers(episode, n_folds, rng)

    def starts(self) -> IntArray:
        """Returns the rows at which an episode begins.

        They are those of step 0; or the first of each episode, if steps are unknown; or all rows,
        if episodes are too.
        """
        return episodes.first_rows(len(self), self.episode, self.step)

    def summary(self) -> BatchSummary:
        """Returns sizes, ranges and warnings about the batch."""
        return summarised(self.to_arrays(), self.n_actions)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Returns the columns that are known, by name."""
        named = {name: getattr(self, name) for name in FIELDS}
        return {name: values for name, values in named.items() if values is not None}

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, Any],
        *,
        n_actions: int | None = None,
        **names: str | tuple[str, ...],
    ) -> TransitionBatch:
        """Returns a batch of named arrays.

        Args:
            arrays: columns, under the names of the fields or names in common use.
            n_actions: as for a batch.
            names: field and name, where it is another: `from_arrays(log, cost="damage")`.

        Raises:
            DataError: if the columns are not arrays by name, or a batch cannot be made of them.
        """
        if not isinstance(arrays, Mapping) or not all(isinstance(name, str) for name in arrays):
            raise DataError(f"arrays must be columns by name; got {type(arrays).__name__}.")
        held = {name: values for name, values in arrays.items() if values is not None}
        table = LogTable(
            "arrays",
            tuple(held),
            lambda chosen: [held[name] for name in chosen],
            n_actions,
            is_complete=True,
        )
        return cls._from_table(table, Columns.from_names(names))

    @classmethod
    def from_pandas(
        cls, frame: Any, *, columns: Columns | None = None, discretise: Discretise | None = None
    ) -> TransitionBatch:
        """Returns the rows of a data frame; see `from_parquet`."""
        return cls._from_table(frame_table(frame), columns, discretise)

    def to_pandas(self) -> Any:
        """Returns a data frame, with states in columns `state_0, state_1, ...`, masks likewise."""
        return to_frame(self.to_arrays(), self._extent)

    @classmethod
    def from_arrow(
        cls, table: Any, *, columns: Columns | None = None, discretise: Discretise | None = None
    ) -> TransitionBatch:
        """Returns the rows of a table of pyarrow or a data frame of polars; see `from_parquet`."""
        return cls._from_table(arrow_table(table), columns, discretise)

    @classmethod
    def from_csv(
        cls, path: AnyPath, *, columns: Columns | None = None, discretise: Discretise | None = None
    ) -> TransitionBatch:
        """Returns the rows of a CSV file with a line of names; see `from_parquet`."""
        return cls._from_table(csv_table(path), columns, discretise)

    @classmethod
    def from_feather(
        cls, path: AnyPath, *, columns: Columns | None = None, discretise: Discretise | None = None
    ) -> TransitionBatch:
        """Returns the rows of an Arrow or Feather file; see `from_parquet`."""
        return cls._from_table(ipc_table(path), columns, discretise)

    @classmethod
    def from_parquet(
        cls, path: AnyPath, *, columns: Columns | None = None, discretise: Discretise | None = None
    ) -> TransitionBatch:
        """Returns the rows of a Parquet file, or of a folder of them, in partitions or not.

        Unless `to_parquet` wrote it, what the file does not say is inferred: episodes by counting
        ends, if each row follows the one before it, next states from the next row, and steps by
        counting the rows of an episode, if each follows the one before it.

        Args:
            path: of the file or the folder.
            columns: what its columns are called, where that is not to be guessed.
            discretise: gives actions `[N, K]` whole numbers `[N]`, if they are none yet.
        """
        return cls._from_table(parquet_table(path), columns, discretise)

    @checked
    def to_parquet(self, path: AnyPath, *, overwrite: bool = False) -> None:
        """Writes a Parquet file, with states as lists."""
        write_parquet(self.to_arrays(), self._extent, path, overwrite=overwrite)

    @classmethod
    def from_hdf5(
        cls, path: AnyPath, *, columns: Columns | None = None, discretise: Discretise | None = None
    ) -> TransitionBatch:
        """Returns the rows of an HDF5 file of flat arrays, as those of DSRL; see `from_parquet`."""
        return cls._from_table(hdf5_table(path), columns, discretise)

    @checked
    def to_hdf5(self, path: AnyPath, *, overwrite: bool = False) -> None:
        """Writes an HDF5 file of flat arrays under the names of DSRL."""
        write_hdf5(self.to_arrays(), self._extent, path, overwrite=overwrite)

    @classmethod
    def from_npz(
        cls, path: AnyPath, *, columns: Columns | None = None, discretise: Discretise | None = None
    ) -> TransitionBatch:
        """Returns the rows of an npz file of arrays; see `from_parquet`. Pickles are refused."""
        return cls._from_table(npz_table(path), columns, discretise)

    @checked
    def to_npz(self, path: AnyPath, *, overwrite: bool = False) -> None:
        """Writes an npz file, with arrays under the names of the fields."""
        write_npz(self.to_arrays(), self._extent, path, overwrite=overwrite)

    @classmethod
    @checked
    def from_minari(cls, dataset: Any, *, discretise: Discretise | None = None) -> TransitionBatch:
        """Returns the steps of a Minari dataset that was recorded with infos, costs among them.

        Args:
            dataset: a `MinariDataset`, or the id or the folder of one that is on this machine.
            discretise: as for `from_parquet`.
        """
        fields, n_actions = read_minari(dataset, discretise)
        return cls(**fields, n_actions=n_actions)

    @checked
    def to_minari(self, dataset_id: str, **details: Any) -> Any:
        """Writes whole episodes as a Minari dataset, and returns it. They are numbered anew.

        Args:
            dataset_id: such as `corridors/random-v0`.
            details: for `minari.create_dataset_from_buffers`: `env`, `author`, `description`, ...
        """
        return write_minari(self.to_arrays(), self.n_actions, dataset_id, details)

    @classmethod
    def _from_table(
        cls, table: LogTable, columns: Columns | None = None, discretise: Discretise | None = None
    ) -> TransitionBatch:
        batch = cls(**fields_of(table, columns, discretise), n_actions=table.n_actions)
        if columns is None and discretise is None:
            require_checksum(table, batch.to_arrays(), batch._extent)
        return batch


_TABLES = {
    ".parquet": parquet_table,
    ".csv": csv_table,
    ".csv.gz": csv_table,
    ".arrow": ipc_table,
    ".feather": ipc_table,
    ".h5": hdf5_table,
    ".hdf5": hdf5_table,
    ".npz": npz_table,
}

SUFFIXES = tuple(_TABLES)
"""Endings of the files that `load_batch` reads."""


def file_table(path: AnyPath) -> LogTable:
    """Returns the columns of a file, going by its suffix, or of a folder of Parquet.

    Raises:
        StoreError: if there is no such file, or it is not what its suffix says.
        DataError: if the suffix is unknown, or a folder holds no Parquet.
    """
    source = as_path(path)
    if source.is_dir() and source.suffix.lower() not in (".h5", ".hdf5", ".npz"):
        return parquet_table(source)
    for suffix, table in _TABLES.items():
        if source.name.lower().endswith(suffix):
            return table(path)
    raise DataError(f"path must end in one of {', '.join(_TABLES)}; got {str(path)!r}.")


def load_batch(
    path: AnyPath, columns: Columns | None = None, discretise: Discretise | None = None
) -> TransitionBatch:
    """Returns the transitions of a file, going by its suffix, or of a folder of Parquet.

    Files are Parquet, CSV, Arrow, HDF5 or npz. A folder may have partitions (`day=3/...`), whose
    names are columns. All must be numbers; `load_log` turns text and dates into numbers.

    Args:
        path: of the file or the folder.
        columns: what its columns are called, where that is not to be guessed.
        discretise: gives actions `[N, K]` whole numbers `[N]`, if they are none yet.

    Raises:
        StoreError: if there is no such file, or it is not what its suffix says.
        DataError: if the suffix is unknown, or the file does not hold transitions.

    >>> import tempfile
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> with tempfile.TemporaryDirectory() as place:
    ...     log.to_npz(f"{place}/log.npz")
    ...     load_batch(f"{place}/log.npz").cost.tolist()
    [0.0, 1.0]
    """
    return TransitionBatch._from_table(file_table(path), columns, discretise)


def load_batches(
    paths: Iterable[AnyPath], columns: Columns | None = None, discretise: Discretise | None = None
) -> TransitionBatch:
    """Returns the transitions of several files, one after the other, as `load_batch` reads them.

    Columns that are not in all files are dropped, and episodes of different files stay different.

    Args:
        paths: of the files.
        columns: as for `load_batch`.
        discretise: as for `load_batch`.

    Raises:
        StoreError: if there is no such file, or it is not what its suffix says.
        DataError: if a suffix is unknown, or a file does not hold transitions of the same size.

    >>> import tempfile
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True], episode=[0, 1])
    >>> with tempfile.TemporaryDirectory() as place:
    ...     log.to_npz(f"{place}/log.npz")
    ...     load_batches([f"{place}/log.npz"] * 2).episode.tolist()
    [0, 1, 2, 3]
    """
    if isinstance(paths, str | os.PathLike) or not isinstance(paths, Iterable):
        raise DataError(f"paths must be a list of files; got {paths!r}.")
    return TransitionBatch.concatenate(load_batch(path, columns, discretise) for path in paths)
