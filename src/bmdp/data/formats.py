"""Transitions in data frames and in files: Parquet, CSV, Arrow, HDF5 and npz.

A file is read as a `LogTable`: names of columns, and arrays that are loaded when asked for. Files
that this library wrote carry a mark, the number of actions, and the names of the numbers of a state
where these are known; they hold all that is known, under its own names.

HDF5 files are flat arrays under the names of DSRL, which knows no budgets, probabilities or episode
numbers; where they are known they are added under the names of the fields.
"""

from __future__ import annotations

import gzip
import importlib
import json
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import any_array
from bmdp.checks import reached
from bmdp.data.checks import require_rows
from bmdp.data.columns import LogTable
from bmdp.errors import BmdpError, DataError, MissingDependency, StoreError
from bmdp.storage import arrays_hash, npz_arrays, one_line, written

AnyPath: TypeAlias = str | os.PathLike[str]
Arrays: TypeAlias = Mapping[str, NDArray[Any]]

FORMAT = "bmdp.TransitionBatch/1"
"""The mark of files that this library wrote."""

_KEY = "bmdp"  # of the metadata of Parquet files and of the attributes of data frames
_NOTES = ("format", "bmdp", "n_actions", "state_names", "sha256")
_TEXTS = ("format", "bmdp", "sha256")
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
        from bmdp import __version__

        known = {} if self.state_names is None else {"state_names": list(self.state_names)}
        return {"format": FORMAT, "bmdp": __version__, "n_actions": self.n_actions, **known}

    def file_notes(self, columns: Arrays) -> dict[str, Any]:
        """Returns what is written beside the columns of a file, which has a checksum."""
        return {**self.notes(), "sha256": self.checksum(columns)}

    def checksum(self, columns: Arrays) -> str:
        """Returns the checksum of a batch: columns, number of actions and names of states."""
        return arrays_hash(dict(columns), json.dumps([int(self.n_actions), self.state_names]))


def require_checksum(table: LogTable, columns: Arrays, extent: Extent) -> None:
    """Checks that a batch is the one that was written, if this library wrote it.

    Raises:
        StoreError: if it is not.
    """
    if table.checksum is not None and table.checksum != extent.checksum(columns):
        raise StoreError(
            f"{table.source} does not hold the batch that was written: it is damaged. If it was "
            "changed on purpose, take the sha256 out of what is written beside its columns."
        )


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
    return reached(path)


def is_frame(value: Any) -> bool:
    """Whether a value is a data frame of pandas or polars, or a table of pyarrow."""
    is_polars = hasattr(value, "to_arrow") or _is_lazy(value)
    return is_polars or _is_pandas(value) or _is_arrow(value)


def any_table(frame: Any) -> LogTable:
    """Returns the columns of a data frame of pandas or polars, or of a table of pyarrow.

    Raises:
        DataError: if it is none, or two columns have the same name.
    """
    return frame_table(frame) if _is_pandas(frame) else arrow_table(frame)


def frame_table(frame: Any) -> LogTable:
    """Returns the columns of a data frame of pandas.

    Raises:
        DataError: if it is none, or two columns have the same name.
    """
    if not _is_pandas(frame):
        raise DataError(f"frame must be a pandas DataFrame; got {type(frame).__name__}.")
    names = _different("frame", [str(name) for name in frame.columns])
    notes = frame.attrs.get(_KEY)

    def load(chosen: Sequence[str]) -> list[NDArray[Any]]:
        return [_of_pandas(name, frame.iloc[:, names.index(name)]) for name in chosen]

    kinds = zip(names, frame.dtypes, strict=True)
    categories = frozenset(name for name, dtype in kinds if str(dtype) == "category")
    return replace(_table("frame", names, load, notes), categories=categories)


def arrow_table(table: Any) -> LogTable:
    """Returns the columns of a table of pyarrow, or of a data frame of polars.

    Raises:
        DataError: if it is none, cannot be worked out, or two columns have the same name.
    """
    held = table
    if _is_lazy(table):
        try:
            held = table.collect()
        except Exception as error:  # of what is to be done lazily, whatever it may be
            raise DataError(f"frame cannot be collected: {one_line(error)[:200]}.") from error
    held = held.to_arrow() if hasattr(held, "to_arrow") else held
    if not _is_arrow(held):
        raise DataError(
            "frame must be a data frame of pandas or polars, or a table of pyarrow; got "
            f"{type(table).__name__}."
        )
    return _arrow_columns("frame", held)


def _is_pandas(frame: Any) -> bool:
    return hasattr(frame, "iloc") and hasattr(frame, "attrs") and hasattr(frame, "columns")


def _is_arrow(table: Any) -> bool:
    return hasattr(table, "schema") and hasattr(table, "num_rows") and hasattr(table, "column")


def _is_lazy(frame: Any) -> bool:
    """Whether a value is a data frame of polars that is still to be worked out."""
    return hasattr(frame, "collect_schema") and not hasattr(frame, "to_arrow")


def _arrow_columns(source: str | Path, table: Any) -> LogTable:
    """The columns of a table of pyarrow."""
    with _reading(Path(source), "a table with names that are text"):
        names = _different(str(source), table.schema.names)

    def load(chosen: Sequence[str]) -> list[NDArray[Any]]:
        return [_of_arrow(name, table.column(name)) for name in chosen]

    notes = _arrow_notes(table.schema)
    return replace(_table(source, names, load, notes), categories=_arrow_categories(table.schema))


def _arrow_notes(schema: Any) -> Any:
    try:
        return json.loads((schema.metadata or {}).get(_KEY.encode(), b"{}"))
    except (ValueError, RecursionError):
        return {}


def _arrow_categories(schema: Any) -> frozenset[str]:
    is_category = extra("pyarrow").types.is_dictionary
    return frozenset(field.name for field in schema if is_category(field.type))


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
    """Returns the columns of Parquet: a row each, states as lists or as several columns.

    Args:
        path: of a file, or of a folder of files, which may lie in partitions (`day=3/...`). The
            names of partitions are columns, too.

    Raises:
        StoreError: if there is no such file, or it is not one of Parquet.
        DataError: if a folder holds none.
    """
    if as_path(path).is_dir():
        return _parquet_folder(as_path(path))
    source = _existing(path)
    with _parquet(source) as file:
        schema = file.schema_arrow
        names = _different(str(source), schema.names)

    def load(chosen: Sequence[str]) -> list[NDArray[Any]]:
        with _parquet(source) as file:
            table = file.read(columns=list(chosen))
        return [_of_arrow(name, table.column(name)) for name in chosen]

    found = _table(source, names, load, _arrow_notes(schema))
    return replace(found, categories=_arrow_categories(schema))


def parquet_files(folder: Path) -> list[Path]:
    """Returns the Parquet files of a folder and its folders, by path, but for hidden ones.

    Raises:
        StoreError: if a folder may not be read, whose rows would be missing.
    """

    def refuse(error: OSError) -> None:
        raise StoreError(f"{error.filename} cannot be read: {error.strerror}.") from error

    found: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if name[0] not in "._"]
        shown = (Path(place, name) for name in names if name[0] not in "._")
        found += [file for file in shown if file.suffix == ".parquet" and file.is_file()]
    return sorted(found)


def _parquet_folder(folder: Path) -> LogTable:
    """The rows of all Parquet files of a folder, in the order of their paths."""
    files = parquet_files(folder)
    if not files:
        raise DataError(f"{folder} holds no Parquet: give a folder of .parquet files, or a file.")
    arrow, schemas = extra("pyarrow"), {}
    for file in files:
        with _parquet(file) as opened:
            schemas[file] = opened.schema_arrow
            _different(str(file), schemas[file].names)
    keys = _partition_keys(folder, files)
    names = tuple(dict.fromkeys(name for schema in schemas.values() for name in schema.names))
    partitions = tuple(name for name in keys[0] if name not in names)

    def load(chosen: Sequence[str]) -> list[NDArray[Any]]:
        own = [name for name in chosen if name not in partitions]
        for name in own:
            _require_alike(name, folder, schemas)
        tables = []
        for file in files:
            with _parquet(file) as opened:
                tables.append(opened.read(columns=own))
        held = {
            name: arrow.concat_tables(
                [table.select([name]) for table in tables], promote_options="permissive"
            ).column(name)
            for name in own
        }
        sizes = [table.num_rows for table in tables]
        for name in partitions:
            values = np.array([key.get(name) for key in keys])
            held[name] = arrow.array(np.repeat(values, sizes))
        return [_of_arrow(name, held[name]) for name in chosen]

    categories = frozenset[str]().union(*map(_arrow_categories, schemas.values()))
    found = _table(folder, (*names, *partitions), load, {})
    return replace(found, categories=categories)


def _partition_keys(folder: Path, files: Sequence[Path]) -> list[dict[str, Any]]:
    """Names and values of the folders `name=value` in which each file lies."""
    dataset = extra("pyarrow.dataset")
    found = dataset.dataset(
        [str(file) for file in files],
        format="parquet",
        partitioning=dataset.HivePartitioning.discover(),
        partition_base_dir=str(folder),
    )
    return [
        dataset.get_partition_keys(fragment.partition_expression)
        for fragment in found.get_fragments()
    ]


def _require_alike(name: str, folder: Path, schemas: Mapping[Path, Any]) -> None:
    """Checks that a column is in all files, and of one kind.

    Raises:
        DataError: naming the file that is different.
    """
    there = {file: schema for file, schema in schemas.items() if name in schema.names}
    for file in schemas.keys() - there.keys():
        raise DataError(
            f"all files of {folder.name} must have the same columns; {file.relative_to(folder)} "
            f"has no column {name!r}."
        )
    kinds = {file: _arrow_kind(schema.field(name).type) for file, schema in there.items()}
    known = {file: kind for file, kind in kinds.items() if kind != "null"}
    first = next(iter(known), None)
    for file, kind in known.items():
        if first is not None and kind != known[first]:
            raise DataError(
                f"all files of {folder.name} must have the same columns; {name!r} is {kind} in "
                f"{file.relative_to(folder)}, and {known[first]} in {first.relative_to(folder)}."
            )


def _arrow_kind(kind: Any) -> str:
    """The kind of a column, as errors call it; columns of one kind can be put together."""
    types = extra("pyarrow").types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "numbers"
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    if types.is_timestamp(kind) or types.is_date(kind):
        return "dates"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return f"lists of {_arrow_kind(kind.value_type)}"
    return str(kind)


def csv_table(path: AnyPath) -> LogTable:
    """Returns the columns of a CSV file with a line of names; it may be compressed (`.csv.gz`).

    Raises:
        StoreError: if there is no such file, or it is not one of CSV.
        DataError: if it holds no rows.
    """
    source = _existing(path)
    csv, invalid = extra("pyarrow.csv"), extra("pyarrow").ArrowException
    options = csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    try:
        opener = gzip.open if source.suffix.lower() == ".gz" else open
        with opener(source, "rb") as file:
            begin = file.read(4096)
        if b"\0" in begin:
            raise ValueError("it holds bytes that are no text")
        table = csv.read_csv(source, convert_options=options) if begin.strip() else None
    except (OSError, EOFError, ValueError, zlib.error, invalid) as error:
        raise StoreError(f"{source} is not a CSV file: {one_line(error)[:200]}.") from error
    if table is None or not table.num_rows:
        raise DataError(f"{source} must hold a line of names, and at least one row; got none.")
    return _arrow_columns(source, table)


def ipc_table(path: AnyPath) -> LogTable:
    """Returns the columns of an Arrow file (`.arrow`, `.feather`), as a file or as a stream.

    Raises:
        StoreError: if there is no such file, or it is not one of Arrow.
    """
    source = _existing(path)
    ipc = extra("pyarrow.ipc")
    with _reading(source, "an Arrow file"):
        content = source.read_bytes()
        opener = ipc.open_file if content.startswith(b"ARROW1") else ipc.open_stream
        with opener(content) as file:
            table = file.read_all()
            table.validate(full=True)
    return _arrow_columns(source, table)


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
    metadata = {_KEY.encode(): json.dumps(extent.file_notes(columns)).encode()}
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
        notes = {name: _without_bytes(value) for name, value in file.attrs.items()}

    def load(chosen: Sequence[str]) -> list[NDArray[Any]]:
        with _hdf5(source) as file:
            for name in chosen:
                _require_written(name, file[name])
            return [file[name][()] for name in chosen]

    return _table(source, names, load, notes)


def write_hdf5(columns: Arrays, extent: Extent, path: AnyPath, *, overwrite: bool) -> None:
    """Writes columns under the names of DSRL.

    Raises:
        StoreError: if the file exists and may not be overwritten, or cannot be written.
    """
    h5py = extra("h5py")
    notes = extent.file_notes(columns)
    with (
        written(as_path(path), overwrite=overwrite) as aside,
        h5py.File(aside, "w", libver=("v110", "v110")) as file,  # with checksums of its structure
    ):
        for name, value in notes.items():  # texts of fixed length are within that structure
            text = [value] if isinstance(value, str) else value if isinstance(value, list) else []
            encoded = np.array([one.encode() for one in text], np.bytes_)
            file.attrs[name] = value if not text else encoded[0] if name in _TEXTS else encoded
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
    notes = {name: np.array(value) for name, value in extent.file_notes(columns).items()}
    arrays: dict[str, Any] = {**columns, **notes}
    with written(as_path(path), overwrite=overwrite) as aside, aside.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _table(
    source: str | Path, names: Sequence[str], load: Any, notes: Any, n_actions: Any = None
) -> LogTable:
    """The columns of a source, and what this library wrote beside them, if it did."""
    known = notes if isinstance(notes, dict) and _is_own(notes.get("format"), source) else {}
    state_names = known.get("state_names")
    if isinstance(state_names, str) or not isinstance(state_names, Iterable | None):
        raise StoreError(f"{source} has state_names that are no list of words.")
    return LogTable(
        source=source.name if isinstance(source, Path) else source,
        names=tuple(names),
        load=load,
        n_actions=known.get("n_actions", n_actions),
        state_names=None if state_names is None else tuple(map(str, state_names)),
        is_complete=bool(known),
        checksum=None if known.get("sha256") is None else str(known["sha256"]),
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
    parquet = extra("pyarrow.parquet")
    with (
        _reading(source, "a Parquet file"),
        parquet.ParquetFile(source, page_checksum_verification=True) as file,
    ):
        yield file


@contextmanager
def _hdf5(source: Path) -> Iterator[Any]:
    h5py = extra("h5py")
    with _reading(source, "an HDF5 file"), h5py.File(source, "r") as file:
        yield file


@contextmanager
def _reading(source: Path, what: str) -> Iterator[None]:
    """Says in one line that a file cannot be read, whatever the library that reads it raises."""
    try:
        yield
    except BmdpError:
        raise
    except Exception as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise StoreError(f"{source} is not {what}: {said}") from error


def _without_bytes(value: Any) -> Any:
    """An attribute of HDF5, whose texts may be bytes."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray) and value.dtype.kind == "S":
        return [one.decode() for one in value.tolist()]
    return value


def _require_written(name: str, dataset: Any) -> None:
    """Checks that all of a dataset of HDF5 is in the file, so that it is as large as it says.

    Raises:
        StoreError: if it is larger than what is there.
    """
    if dataset.chunks is None:
        n_bytes = dataset.id.get_storage_size()
    else:
        n_bytes = dataset.id.get_num_chunks() * math.prod(dataset.chunks) * dataset.dtype.itemsize
    if n_bytes < dataset.nbytes:
        raise StoreError(f"{name} must have {dataset.nbytes:,} bytes; {n_bytes:,} are in the file.")


def _npz(source: Path, chosen: Sequence[str]) -> tuple[tuple[str, ...], dict[str, NDArray[Any]]]:
    """The names of all arrays, and those of the chosen ones that are there."""
    try:
        return npz_arrays(source, chosen)
    except (OSError, ValueError) as error:
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


def _of_pandas(name: str, series: Any) -> NDArray[Any]:
    """A column of pandas; times with a zone are those of UTC."""
    if getattr(series.dtype, "tz", None) is not None:
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    if str(series.dtype) == "category":
        series = series.astype(series.cat.categories.dtype if series.notna().all() else object)
    return _of_lists(name, series.to_numpy())


def _of_arrow(name: str, column: Any) -> NDArray[Any]:
    """A column of numbers as `[N]`, one of lists as `[N, D]`, of lists of lists too."""
    types, compute = extra("pyarrow").types, extra("pyarrow.compute")
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_decimal(column.type):
        column = column.cast("float64")
    if hasattr(column, "combine_chunks"):
        column = column.combine_chunks()
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
    try:
        flat: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    except (UnicodeDecodeError, extra("pyarrow").ArrowException) as error:
        raise DataError(f"{name} cannot be read: {one_line(error)[:200]}.") from error
    return flat.reshape(shape)
