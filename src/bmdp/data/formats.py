"""Transitions in data frames and in files: Parquet, HDF5 and npz.

A file is read as a `LogTable`: names of columns, and arrays that are loaded when asked for. Files
that this library wrote carry a mark, the number of actions, and the names of the numbers of a state
where these are known; they hold all that is known, under its own names.

HDF5 files are flat arrays under the names of DSRL, which knows no budgets, probabilities or episode
numbers; where they are known they are added under the names of the fields.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bmdp.data.checks import any_array, require_rows
from bmdp.data.columns import LogTable
from bmdp.errors import DataError, MissingDependency, StoreError
from bmdp.storage import written

AnyPath: TypeAlias = str | os.PathLike[str]
Arrays: TypeAlias = Mapping[str, NDArray[Any]]

FORMAT = "bmdp.TransitionBatch/1"
"""The mark of files that this library wrote."""

_KEY = "bmdp"  # of the metadata of Parquet files and of the attributes of data frames
_NOTES = ("format", "n_actions", "state_names")
_DSRL = {
    "state": "observations",
    "next_state": "next_observations",
    "action": "actions",
    "reward": "rewards",
    "cost": "costs",
    "terminal": "terminals",
    "truncated": "timeouts",
}


@dataclass(frozen=True)
class Extent:
    """The part of a batch that is not in its columns: how many actions, and names of states."""

    n_actions: int
    state_names: tuple[str, ...] | None

    def notes(self) -> dict[str, Any]:
        """Returns what is written beside the columns."""
        known = {} if self.state_names is None else {"state_names": list(self.state_names)}
        return {"format": FORMAT, "n_actions": self.n_actions, **known}


def extra(name: str, *, command: str = "pip install 'bmdp[data]'") -> ModuleType:
    """Returns a module that need not be installed.

    Raises:
        MissingDependency: with the command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0]
        raise MissingDependency(
            f"{package} must be installed for this kind of data: {command}"
        ) from error


def as_path(path: Any) -> Path:
    """Returns what names a file, as a path.

    Raises:
        StoreError: if it names none.
    """
    if not isinstance(path, str | os.PathLike):
        raise StoreError(f"path must be the name of a file; got {type(path).__name__}.")
    return Path(path)


def frame_table(frame: Any) -> LogTable:
    """Returns the columns of a data frame of pandas.

    Raises:
        DataError: if it is none, or two columns have the same name.
    """
    if not hasattr(frame, "columns") or not hasattr(frame, "attrs"):
        raise DataError(f"frame must be a pandas DataFrame; got {type(frame).__name__}.")
    names = _different("frame", [str(name) for name in frame.columns])
    notes = frame.attrs.get(_KEY)

    def load(chosen: Sequence[str]) -> list[NDArray[Any]]:
        return [_of_lists(name, frame.iloc[:, names.index(name)].to_numpy()) for name in chosen]

    return _table("frame", names, load, notes)


def to_frame(columns: Arrays, extent: Extent) -> Any:
    """Returns a data frame, with states in numbered columns."""
    pandas = extra("pandas", command="pip install pandas")
    flat: dict[str, NDArray[Any]] = {}
    for name, values in columns.items():
        if values.ndim == 1:
            flat[name] = values
        else:
            flat |= {f"{name}_{k}": values[:, k] for k in range(values.shape[1])}
    frame = pandas.DataFrame(flat)
    frame.attrs[_KEY] = extent.notes()
    return frame


def parquet_table(path: AnyPath) -> LogTable:
    """Returns the columns of a Parquet file: a row each, states as lists or as several columns.

    Raises:
        StoreError: if there is no such file, or it is not one of Parquet.
    """
    source = _existing(path)
    with _parquet(source) as file:
        schema = file.schema_arrow
    names = _different(str(source), schema.names)
    try:
        notes = json.loads((schema.metadata or {}).get(_KEY.encode(), b"{}"))
    except ValueError:
        notes = {}

    def load(chosen: Sequence[str]) -> list[NDArray[Any]]:
        with _parquet(source) as file:
            table = file.read(columns=list(chosen))
        return [_of_arrow(name, table.column(name).combine_chunks()) for name in chosen]

    return _table(source, names, load, notes)


def write_parquet(columns: Arrays, extent: Extent, path: AnyPath, *, overwrite: bool) -> None:
    """Writes columns, each under its name, states as lists of fixed length.

    Raises:
        StoreError: if the file exists and may not be overwritten, or cannot be written.
    """
    arrow, parquet = extra("pyarrow"), extra("pyarrow.parquet")
    arrays = {
        name: arrow.array(values)
        if values.ndim == 1
        else arrow.FixedSizeListArray.from_arrays(arrow.array(values.reshape(-1)), values.shape[1])
        for name, values in columns.items()
    }
    metadata = {_KEY.encode(): json.dumps(extent.notes()).encode()}
    table = arrow.table(arrays).replace_schema_metadata(metadata)
    with written(as_path(path), overwrite=overwrite) as aside:
        parquet.write_table(table, aside, write_page_checksum=True)


def hdf5_table(path: AnyPath) -> LogTable:
    """Returns the arrays of an HDF5 file, without those in groups.

    Raises:
        StoreError: if there is no such file, or it is not one of HDF5.
    """
    source = _existing(path)
    with _hdf5(source) as file:
        names = tuple(name for name, item in file.items() if hasattr(item, "dtype"))
        notes = dict(file.attrs)

    def load(chosen: Sequence[str]) -> list[NDArray[Any]]:
        with _hdf5(source) as file:
            return [file[name][()] for name in chosen]

    return _table(source, names, load, notes)


def write_hdf5(columns: Arrays, extent: Extent, path: AnyPath, *, overwrite: bool) -> None:
    """Writes columns under the names of DSRL.

    Raises:
        StoreError: if the file exists and may not be overwritten, or cannot be written.
    """
    h5py = extra("h5py")
    with written(as_path(path), overwrite=overwrite) as aside, h5py.File(aside, "w") as file:
        file.attrs.update(extent.notes())
        for name, values in columns.items():
            file.create_dataset(_DSRL.get(name, name), data=values)


def npz_table(path: AnyPath) -> LogTable:
    """Returns the arrays of an npz file. It may hold `n_actions` too.

    Raises:
        StoreError: if there is no such file, or it is not one of npz, or holds pickles.
    """
    source = _existing(path)
    names, held = _npz(source, _NOTES)
    notes = {name: values.tolist() for name, values in held.items()}

    def load(chosen: Sequence[str]) -> list[NDArray[Any]]:
        held = _npz(source, chosen)[1]
        return [held[name] for name in chosen]

    columns = tuple(name for name in names if name not in _NOTES)
    return _table(source, columns, load, notes, n_actions=notes.get("n_actions"))


def write_npz(columns: Arrays, extent: Extent, path: AnyPath, *, overwrite: bool) -> None:
    """Writes columns, each under its name, without pickle. No extra is needed.

    Raises:
        StoreError: if the file exists and may not be overwritten, or cannot be written.
    """
    notes = {name: np.array(value) for name, value in extent.notes().items()}
    arrays: dict[str, Any] = {**columns, **notes}
    with written(as_path(path), overwrite=overwrite) as aside, aside.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _table(
    source: str | Path, names: Sequence[str], load: Any, notes: Any, n_actions: Any = None
) -> LogTable:
    """The columns of a source, and what this library wrote beside them, if it did."""
    known = notes if isinstance(notes, dict) and _is_own(notes.get("format"), source) else {}
    state_names = known.get("state_names")
    return LogTable(
        source=source.name if isinstance(source, Path) else source,
        names=tuple(names),
        load=load,
        n_actions=known.get("n_actions", n_actions),
        state_names=None if state_names is None else tuple(map(str, state_names)),
        is_complete=bool(known),
    )


def _is_own(mark: Any, source: AnyPath) -> bool:
    """Whether a file was written by this library, going by its mark."""
    if not isinstance(mark, str) or mark.split("/")[0] != FORMAT.split("/")[0]:
        return False
    if mark != FORMAT:
        raise StoreError(f"{source} has format {mark}, not {FORMAT}: upgrade bmdp to read it.")
    return True


def _different(source: str, names: Sequence[str]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise DataError(f"{source} must have columns of different names; got {', '.join(names)}.")
    return tuple(names)


def _existing(path: AnyPath) -> Path:
    source = as_path(path)
    if not source.is_file():
        why = "is not a file" if source.exists() else "does not exist"
        raise StoreError(f"{source} {why}.")
    return source


@contextmanager
def _parquet(source: Path) -> Iterator[Any]:
    parquet, invalid = extra("pyarrow.parquet"), extra("pyarrow").ArrowException
    try:
        with parquet.ParquetFile(source, page_checksum_verification=True) as file:
            yield file
    except (OSError, invalid) as error:
        raise StoreError(f"{source} is not a Parquet file: {str(error).splitlines()[0]}") from error


@contextmanager
def _hdf5(source: Path) -> Iterator[Any]:
    h5py = extra("h5py")
    try:
        with h5py.File(source, "r") as file:
            yield file
    except OSError as error:
        raise StoreError(f"{source} is not an HDF5 file: {error}.") from error


def _npz(source: Path, chosen: Sequence[str]) -> tuple[tuple[str, ...], dict[str, NDArray[Any]]]:
    """The names of all arrays, and those of the chosen ones that are there."""
    try:
        with source.open("rb") as opened:
            file = np.load(opened, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array")
            with file:
                names = tuple(file.files)
                return names, {name: file[name] for name in chosen if name in names}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise StoreError(f"{source} is not an npz file of arrays: {error}.") from error


def _of_lists(name: str, values: Any) -> NDArray[Any]:
    """A column of numbers as `[N]`, one of lists as `[N, D]`."""
    array: NDArray[Any] = np.asarray(values)
    if array.dtype.kind != "O" or not len(array) or not hasattr(array[0], "__len__"):
        return array
    if isinstance(array[0], str):
        return array
    rows = [any_array(name, row) for row in array]
    is_other = np.array([row.shape != rows[0].shape for row in rows])
    require_rows(name, "be lists of one length", is_other)
    return np.stack(rows)


def _of_arrow(name: str, column: Any) -> NDArray[Any]:
    """A column of numbers as `[N]`, one of lists as `[N, D]`, of lists of lists too."""
    types, compute = extra("pyarrow").types, extra("pyarrow.compute")
    n_rows, shape = len(column), [len(column)]
    while any(
        is_list(column.type)
        for is_list in (types.is_list, types.is_large_list, types.is_fixed_size_list)
    ):
        lengths = compute.list_value_length(column).to_numpy(zero_copy_only=False)
        per_row = lengths.reshape(n_rows, math.prod(shape[1:]))
        first = per_row[0, 0] if per_row.size else 0
        require_rows(name, "be lists, none missing", np.isnan(per_row).any(axis=1))
        require_rows(name, "be lists of one length", (per_row != first).any(axis=1))
        column = column.flatten()
        shape.append(int(first))
    flat: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return flat.reshape(shape)
