"""Transitions as data frames of pandas, states in numbered columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp.data.checks import any_array, require_rows
from bmdp.data.columns import Table
from bmdp.data.stores import FORMAT, extra, is_own
from bmdp.errors import DataError

_KEY = "bmdp"  # of the attributes


def frame_table(frame: Any) -> Table:
    """Returns the columns of a data frame.

    Raises:
        DataError: if it is none, or two columns have the same name.
    """
    if not hasattr(frame, "columns") or not hasattr(frame, "attrs"):
        raise DataError(f"frame must be a pandas DataFrame; got {type(frame).__name__}.")
    names = tuple(str(name) for name in frame.columns)
    if len(set(names)) < len(names):
        raise DataError(f"frame must have columns of different names; got {', '.join(names)}.")
    marked = frame.attrs.get(_KEY)
    notes = marked if isinstance(marked, dict) else {}
    own = is_own(notes.get("format"), "frame")

    def load(chosen: Sequence[str]) -> list[NDArray[Any]]:
        return [_array(name, frame.iloc[:, names.index(name)].to_numpy()) for name in chosen]

    return Table("frame", names, load, notes.get("n_actions") if own else None, is_complete=own)


def frame_of(columns: Mapping[str, NDArray[Any]], n_actions: int) -> Any:
    """Returns a data frame, which keeps the number of actions among its attributes."""
    pandas = extra("pandas", command="pip install pandas")
    flat: dict[str, NDArray[Any]] = {}
    for name, values in columns.items():
        if values.ndim == 1:
            flat[name] = values
        else:
            flat |= {f"{name}_{k}": values[:, k] for k in range(values.shape[1])}
    frame = pandas.DataFrame(flat)
    frame.attrs[_KEY] = {"format": FORMAT, "n_actions": n_actions}
    return frame


def _array(name: str, values: Any) -> NDArray[Any]:
    """Returns a column of numbers as `[N]`, one of lists as `[N, D]`."""
    array: NDArray[Any] = np.asarray(values)
    if array.dtype.kind != "O" or not len(array) or not hasattr(array[0], "__len__"):
        return array
    if isinstance(array[0], str):
        return array
    rows = [any_array(name, row) for row in array]
    is_other = np.array([row.shape != rows[0].shape for row in rows])
    require_rows(name, "be lists of one length", is_other)
    return np.stack(rows)
