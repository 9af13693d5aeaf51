"""Parquet that is read in pieces, some rows at a time, so that it may be larger than memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import BoolArray
from bmdp.data.checks import flags
from bmdp.data.columns import Columns, LogTable, _loaded, chosen_columns
from bmdp.data.encoder import RawColumn, raw_column
from bmdp.data.formats import (
    _existing,
    _of_arrow,
    _partition_keys,
    _require_alike,
    extra,
    parquet_files,
    parquet_table,
)
from bmdp.data.logs import _Part
from bmdp.errors import BmdpError, DataError, StoreError
from bmdp.storage import one_line

PIECE_ROWS = 65_536
"""Rows that are read at once, at most."""

PIECE_BYTES = 8 << 20
"""Size of the rows that are read at once, about."""

_READ_BYTES = 1 << 16  # of a column that are read at once


def metadata_of(path: Path) -> Any:
    """Returns the metadata of a file.

    Raises:
        StoreError: if there is no such file, or it is not one of Parquet.
    """
    try:
        with _opened(_existing(path)) as file:
            return file.metadata
    except BmdpError:
        raise
    except Exception as error:  # of what reads it
        raise _not_parquet(path, error) from error


def values_of(metadata: Any) -> dict[str, int]:
    """Returns how many values each column of a file has, those of lists one by one."""
    found: dict[str, int] = {}
    for k in range(metadata.num_row_groups):
        group = metadata.row_group(k)
        for i in range(group.num_columns):
            column = group.column(i)
            found[column.path_in_schema] = found.get(column.path_in_schema, 0) + column.num_values
    return found


def release_memory() -> None:
    """Gives back the memory that pyarrow keeps once rows are read."""
    extra("pyarrow").default_memory_pool().release_unused()


def _opened(path: Path) -> Any:
    # A buffer keeps whole columns of a row group out of memory.
    return extra("pyarrow.parquet").ParquetFile(
        path, buffer_size=_READ_BYTES, pre_buffer=False, page_checksum_verification=True
    )


def _not_parquet(path: Path, error: Exception) -> StoreError:
    return StoreError(f"{path} is not a Parquet file: {one_line(error)[:200]}")


def is_object(kind: Any) -> bool:
    """Whether numpy has objects for values of a type of pyarrow, or they are categories."""
    types = extra("pyarrow").types
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind)
    return bool(is_text or types.is_boolean(kind) or types.is_time(kind) or types.is_null(kind))


def is_list(kind: Any) -> bool:
    """Whether values of a type are lists."""
    types = extra("pyarrow").types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_single(kind: Any) -> bool:
    """Whether values of a type, or those in its lists, are floats of 32 bits or fewer."""
    types = extra("pyarrow").types
    while is_list(kind):
        kind = kind.value_type
    return bool(types.is_float32(kind) or types.is_float16(kind))


@dataclass(frozen=True, eq=False)
class ParquetTable:
    """Files whose rows are one table: a file, or those of a folder."""

    table: LogTable  # its names, and what was written beside them
    where: dict[str, tuple[str, ...]]  # columns of each field
    files: tuple[Path, ...]
    told: tuple[str, ...]  # as errors call the files
    sizes: tuple[int, ...]  # rows of the files
    keys: dict[str, NDArray[Any]]  # columns that are names of folders: a value for each file
    types: dict[str, set[Any]]  # of pyarrow, of each column
    n_piece: int  # rows that are read at once

    @classmethod
    def of(cls, path: Path, columns: Columns | None) -> ParquetTable:
        """Finds the columns of a file or a folder.

        Raises:
            StoreError: if there is no such file, or it is not one of Parquet.
            DataError: if a column is missing, or files of a folder differ.
        """
        arrow, table = extra("pyarrow"), parquet_table(path)
        where = chosen_columns(table, columns)
        files = parquet_files(path) if path.is_dir() else [path]
        metadata = [metadata_of(file) for file in files]
        schemas = {f: m.schema.to_arrow_schema() for f, m in zip(files, metadata, strict=True)}
        partitions = _partition_keys(path, files) if path.is_dir() else []
        held = {name for schema in schemas.values() for name in schema.names}
        keys, types = {}, {}
        for name in {name for several in where.values() for name in several}:
            if name in held:
                _require_alike(name, path, schemas)
                types[name] = {schema.field(name).type for schema in schemas.values()}
            else:
                keys[name] = np.array([key.get(name) for key in partitions])
                types[name] = {arrow.array(keys[name]).type}
        n_values = max(sum(values_of(m).values()) / max(m.num_rows, 1) for m in metadata)
        return cls(
            table=table,
            where=where,
            files=tuple(files),
            told=tuple(str(f.relative_to(path)) if path.is_dir() else f.name for f in files),
            sizes=tuple(m.num_rows for m in metadata),
            keys=keys,
            types=types,
            n_piece=int(np.clip(PIECE_BYTES / (8 * max(n_values, 1)), 1, PIECE_ROWS)),
        )

    @property
    def n_rows(self) -> int:
        """Rows of all files."""
        return sum(self.sizes)

    def has(self, field: str) -> bool:
        """Whether there are columns of a field."""
        return field in self.where

    def types_of(self, field: str) -> set[Any]:
        """Types of the columns of a field."""
        return {kind for name in self.where.get(field, ()) for kind in self.types[name]}

    def place(self, row: int) -> str:
        """Returns the place of a row of the table, in words: its file, and its number there."""
        ends = np.cumsum(self.sizes)
        k = int(np.searchsorted(ends, row, side="right"))
        return f"{self.told[k]}, row [{row - int(ends[k]) + self.sizes[k]}]"

    def pieces(
        self, number: int, fields: Sequence[str], n_rows: int | None = None
    ) -> Iterator[Piece]:
        """Gives all rows, some at a time.

        Args:
            number: of the table.
            fields: whose columns are read.
            n_rows: that are read at once.

        Raises:
            StoreError: if a file cannot be read.
        """
        arrow, place = extra("pyarrow"), 0
        names = {name: None for field in fields for name in self.where.get(field, ())}
        own = [name for name in names if name not in self.keys]
        for k, file in enumerate(self.files):
            begin = 0
            for batch in _batches(file, own, n_rows or self.n_piece):
                size = batch.num_rows
                arrays = {name: batch.column(name) for name in own}
                for name in names.keys() & self.keys.keys():
                    arrays[name] = arrow.array(np.repeat(self.keys[name][k : k + 1], size))
                yield Piece(self, number, k, begin, place, size, arrays)
                begin, place = begin + size, place + size


def _batches(file: Path, names: Sequence[str], n_rows: int) -> Iterator[Any]:
    """Gives the rows of a file, and holds no more of it than these."""
    try:
        with _opened(file) as opened:
            for batch in opened.iter_batches(n_rows, columns=list(names), use_threads=False):
                if batch.num_rows:
                    yield batch
    except Exception as error:  # of what reads it
        raise _not_parquet(file, error) from error


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows of a table."""

    table: ParquetTable
    number: int  # of the table
    file: int  # which of its files
    begin: int  # its first row, in the file
    place: int  # its first row, in the table
    n_rows: int
    arrays: dict[str, Any]  # columns of pyarrow, by name

    def values(self, name: str) -> NDArray[Any]:
        """Returns a column as it is."""
        return _of_arrow(name, self.arrays[name])

    def loaded(self, field: str) -> NDArray[Any]:
        """Returns the numbers of a field.

        Raises:
            DataError: if they are none.
        """
        table = replace(self.table.table, load=lambda chosen: [self.values(n) for n in chosen])
        return _loaded(field, table, self.table.where[field])

    def coded(self, name: str, chosen: BoolArray | None = None) -> tuple[RawColumn, Any]:
        """Returns the values of a column, and which of them each row has.

        Text and such is there once for each value; all else is there row by row.

        Args:
            name: of the column.
            chosen: rows that count; all, if not given.

        Raises:
            DataError: if it is of a kind that is not known.
        """
        array = self.arrays[name] if chosen is None else self.arrays[name].filter(chosen)
        is_category, which = name in self.table.table.categories, slice(None)
        if is_object(array.type):
            if extra("pyarrow").types.is_dictionary(array.type):
                array = array.cast(array.type.value_type)
            coded = array.dictionary_encode(null_encoding="encode")
            array, which = coded.dictionary, coded.indices.to_numpy()
        return raw_column(name, _of_arrow(name, array), is_category=is_category), which

    @property
    def terminal(self) -> BoolArray:
        """Rows after which the process ended, `[N]`."""
        return flags("terminal", self.loaded("terminal"))

    def part(self) -> _Part:
        """Returns the same rows as `load_log` has them, with the fields that were read."""
        held = {name: self.values(name) for name in self.arrays}
        known = {f: names for f, names in self.table.where.items() if set(names) <= held.keys()}
        return _Part(self.table.table, known, held)

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Tells errors their file, and rows by their numbers in it."""
        try:
            yield
        except DataError as error:
            told = re.sub(
                r"((?:first is| at) \[)(\d+)(?=\])",
                lambda match: f"{match[1]}{int(match[2]) + self.begin}",
                str(error),
            )
            is_all = self.n_rows == self.table.sizes[self.file]
            rows = "" if is_all else f", rows {self.begin} to {self.begin + self.n_rows - 1}"
            raise DataError(f"{self.table.told[self.file]}{rows}: {told}") from error
