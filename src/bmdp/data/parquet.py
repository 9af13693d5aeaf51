"""Transitions in Parquet files: one row each, states as lists or as several columns."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp.data.checks import require_rows
from bmdp.data.columns import Table
from bmdp.data.stores import FORMAT, AnyPath, existing_file, extra, is_own, written_whole
from bmdp.errors import DataError, StoreError

_KEY = b"bmdp"  # of the metadata


def parquet_table(path: AnyPath) -> Table:
    """Returns the columns of a file.

    Raises:
        StoreError: if there is no such file, or it is not one of Parquet.
    """
    source = existing_file(path)
    with _opened(source) as file:
        schema = file.schema_arrow
    names = tuple(schema.names)
    if len(set(names)) < len(names):
        raise DataError(f"{source} must have columns of different names; got {', '.join(names)}.")
    notes = _notes((schema.metadata or {}).get(_KEY, b"{}"))
    own = is_own(notes.get("format"), source)
    n_actions = notes.get("n_actions") if own else None

    def load(chosen: Sequence[str]) -> list[NDArray[Any]]:
        with _opened(source) as file:
            table = file.read(columns=list(chosen))
        return [_array(name, table.column(name).combine_chunks()) for name in chosen]

    return Table(source.name, names, load, n_actions, is_complete=own)


def write_parquet(
    columns: Mapping[str, NDArray[Any]], n_actions: int, path: AnyPath, *, overwrite: bool
) -> None:
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
    notes = json.dumps({"format": FORMAT, "n_actions": n_actions}).encode()
    table = arrow.table(arrays).replace_schema_metadata({_KEY: notes})
    with written_whole(path, overwrite=overwrite) as aside:
        parquet.write_table(table, aside, write_page_checksum=True)


@contextmanager
def _opened(source: Path) -> Iterator[Any]:
    parquet, invalid = extra("pyarrow.parquet"), extra("pyarrow").ArrowException
    try:
        with parquet.ParquetFile(source, page_checksum_verification=True) as file:
            yield file
    except (OSError, invalid) as error:
        raise StoreError(f"{source} is not a Parquet file: {str(error).splitlines()[0]}") from error


def _notes(text: bytes) -> dict[str, Any]:
    """Metadata that this library wrote, if it did."""
    try:
        notes = json.loads(text)
    except ValueError:
        return {}
    return notes if isinstance(notes, dict) else {}


def _array(name: str, column: Any) -> NDArray[Any]:
    """Returns a column of numbers as `[N]`, one of lists as `[N, D]`, of lists of lists too.

    Raises:
        DataError: if lists are of different lengths, or missing.
    """
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
