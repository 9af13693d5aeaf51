"""Array types, the letters of array shapes, and the checks that arrays pass at the border.

Shapes are written in brackets. The letters mean the same everywhere:

    N  states or episodes of a batch      S  states of a finite model
    K  points of one state                A  actions
    M  budgets asked for                  B  budgets of the grid `beta_grid`
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.errors import BmdpError, DataError

MAGNITUDE = 1e50
"""Largest magnitude of numbers of data: sums of their fourth powers are finite."""

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]
BoolArray = NDArray[np.bool_]


def is_tensor(values: Any) -> bool:
    """Whether something is a tensor of torch, which need not be imported to know it.

    >>> is_tensor(np.zeros(2))
    False
    """
    return type(values).__module__.partition(".")[0] == "torch"


def any_array(name: str, values: Any, rule: str = "be an array") -> NDArray[Any]:
    """Returns values of any type as an array.

    Raises:
        DataError: if they are lists of different lengths, some are masked, or they are no array.

    >>> any_array("costs", [[1.0], [2.0, 3.0]])
    Traceback (most recent call last):
    bmdp.errors.DataError: costs must be an array; got lists of different lengths.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        n_masked = int(np.ma.getmaskarray(values).sum())
        raise DataError(
            f"{name} must have no masked values; got {n_masked} of {values.size}. Fill them in, or "
            "drop their rows."
        )
    try:
        return np.asarray(values)
    except ValueError as ragged:
        raise DataError(f"{name} must {rule}; got lists of different lengths.") from ragged
    except Exception as error:  # of a class that is not ours: any
        said = " ".join(str(error).split())
        raise DataError(f"{name} must {rule}; got {type(values).__name__}: {said}") from error


def real_array(name: str, values: ArrayLike) -> FloatArray:
    """Returns `values` as an array of floats: float32 and narrower as float32, all else as float64.

    Raises:
        DataError: if they are not real numbers.

    >>> real_array("costs", [1, 2]).dtype
    dtype('float64')
    """
    array = any_array(name, values, "be an array of real numbers")
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name} must be an array of real numbers; got type {array.dtype}.")
    narrow = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    return array.astype(np.float32 if narrow else np.float64, copy=False)


def require_shape(name: str, array: Any, shape: tuple[int | None, ...], letters: str) -> None:
    """Checks a shape, in which None stands for any length.

    Raises:
        DataError: naming the argument, the shape in letters, and the shape it has.

    >>> require_shape("betas", np.zeros(3), (2,), "[N]")
    Traceback (most recent call last):
    bmdp.errors.DataError: betas must have shape [N] = [2]; got [3].
    """
    given = tuple(array.shape)
    fits = len(given) == len(shape) and all(
        want is None or want == got for want, got in zip(shape, given, strict=True)
    )
    if fits:
        return
    wanted = "" if None in shape else f" = {list(shape)}"
    raise DataError(f"{name} must have shape {letters}{wanted}; got {list(given)}.")


def are_alike(shapes: Iterable[tuple[int, ...]]) -> bool:
    """Whether arrays of some shapes can be added.

    >>> are_alike([(2, 3), (3,)]), are_alike([(2,), (3,)])
    (True, False)
    """
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def require_finite(
    name: str, array: FloatArray, *, limit: float = np.inf, error: type[BmdpError] = DataError
) -> None:
    """Checks that all values are finite numbers, of magnitude `limit` at most.

    Raises:
        error: naming the argument, the first offending value and its index, and how many there are.

    >>> require_finite("costs", np.array([[0.0, 1.0], [np.nan, 2.0]]))
    Traceback (most recent call last):
    bmdp.errors.DataError: costs must be finite; got nan at [1, 0].
    """
    largest = float(np.finfo(array.dtype).max) if array.dtype.kind == "f" else limit
    good = np.isfinite(array) & (np.abs(array) <= min(limit, largest))
    if good.all():
        return
    index = [int(i) for i in np.argwhere(~good)[0]]
    value, n_bad = array[tuple(index)], int((~good).sum())
    rule = f"at most {limit:g} in magnitude" if np.isfinite(value) else "finite"
    many = f" ({n_bad} of {array.size} values are bad.)" if n_bad > 1 else ""
    where = f" at {index}" if index else ""
    raise error(f"{name} must be {rule}; got {value:g}{where}.{many}")


def require_magnitude(name: str, array: FloatArray) -> None:
    """Checks that no value is beyond `MAGNITUDE`; infinite ones and NaN may be there.

    Raises:
        DataError: naming the argument, the first value that is, and its index.

    >>> require_magnitude("samples", np.array([1.0, np.inf, -1e308]))
    Traceback (most recent call last):
    bmdp.errors.DataError: samples must be at most 1e+50 in magnitude; got -1e+308 at [2].
    """
    require_finite(name, np.where(np.isfinite(array), array, 0.0), limit=MAGNITUDE)


def flat_states(states: NDArray[Any]) -> NDArray[np.float64]:
    """Returns states `[N, ...]` as `[N, D]`, in double precision."""
    rows = real_array("states", states).astype(np.float64, copy=False)
    return rows.reshape(len(rows), int(np.prod(rows.shape[1:])))


def narrowed(mask: Any, by: Any) -> Any:
    """Returns what two masks `[N, A]` have in common; in rows where that is nothing, the first.

    Arrays of numpy or tensors of torch alike.

    >>> narrowed(np.array([[True, True], [True, False]]), np.array([[False, True]] * 2)).tolist()
    [[False, True], [True, False]]
    """
    both = mask & by
    return both | (mask & ~both.any(1)[:, None])


def rows_at(values: Any, rows: Any) -> Any:
    """Returns some rows of values that may be None."""
    return None if values is None else values[rows]


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Returns a copy that cannot be written to, so that a frozen value stays what it is."""
    copy = np.array(array)
    copy.setflags(write=False)
    return copy


def freeze_columns(value: Any, letters: str) -> None:
    """Makes the columns of a frozen dataclass read-only: its fields of type `FloatArray`.

    Raises:
        DataError: if one is not of real numbers, or not as long as the first.
    """
    names = [field.name for field in fields(value) if field.type == "FloatArray"]
    length = np.shape(getattr(value, names[0]))[:1]
    for name in names:
        told = f"{type(value).__name__}.{name}"
        column = real_array(told, getattr(value, name)).astype(np.float64)
        require_shape(told, column, length, letters)
        object.__setattr__(value, name, read_only(column))
