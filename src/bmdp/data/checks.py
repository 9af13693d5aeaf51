"""Checks of the columns of transitions; errors name the rows that break a rule.

A column has one entry a transition: `[N]`, or `[N, 1]`, which is taken as `[N]`. States may have
any further shape, and are flattened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import (
    MAGNITUDE,
    BoolArray,
    FloatArray,
    IntArray,
    any_array,
    real_array,
    require_finite,
)
from bmdp.checks import told
from bmdp.errors import DataError

REQUIRED = ("state", "action", "reward", "cost", "next_state", "terminal")
OPTIONAL = ("truncated", "episode", "step", "budget", "next_budget", "probability")
MASKS = ("available", "next_available")
FIELDS = REQUIRED + OPTIONAL + MASKS

_MOST_ACTIONS = 2**16  # a column of more is one of times or of names, not of choices
_WHAT_TO_GIVE = {
    "cost": " Give what each transition cost; where nothing has a cost, give zeros.",
    "terminal": " Say after which transitions the process ended; if after none, give zeros.",
}


def what_to_give(name: str) -> str:
    """Returns the end of an error about a missing column."""
    return _WHAT_TO_GIVE.get(name, "")


def require_rows(name: str, rule: str, bad: Any, fault: str = "not", hint: str = "") -> None:
    """Checks that no row is bad, given `[N]` truth values.

    Raises:
        DataError: saying how many rows are, and which is the first.

    >>> require_rows("state", "be finite", np.array([False, True, True]))
    Traceback (most recent call last):
    bmdp.errors.DataError: state must be finite; 2 of 3 rows are not, the first is [1].
    """
    if not bad.any():
        return
    n_bad, first = int(bad.sum()), int(np.flatnonzero(bad)[0])
    verb = "is" if n_bad == 1 else "are"
    raise DataError(
        f"{name} must {rule}; {n_bad} of {len(bad)} rows {verb} {fault}, the first is [{first}]."
        f"{hint}"
    )


def states(name: str, values: ArrayLike) -> FloatArray:
    """Returns states `[N, D]`, in the precision they were given in.

    Raises:
        DataError: if they are not finite real numbers.
    """
    array = real_array(name, values)
    if array.ndim == 0 or (len(array) and not array.size):
        raise DataError(f"{name} must have shape [N, D]; got {list(array.shape)}.")
    flat = array.reshape(len(array), -1) if len(array) else array.reshape(0, 1)
    require_rows(name, "be finite", ~np.isfinite(flat).all(axis=1))
    require_finite(name, flat, limit=MAGNITUDE)
    return flat


def numbers(name: str, values: ArrayLike) -> FloatArray:
    """Returns finite numbers `[N]` of double precision."""
    column = _column(name, values).astype(np.float64)
    require_rows(name, "be finite", ~np.isfinite(column))
    require_finite(name, column, limit=MAGNITUDE)
    return column


def whole_numbers(name: str, values: ArrayLike, hint: str = "") -> IntArray:
    """Returns whole numbers `[N]`; floats may hold them too."""
    column = _column(name, values)
    if column.dtype.kind in "iub":
        return column.astype(np.int64)
    safe = np.where(np.isfinite(column) & (np.abs(column) < 2**53), column, 0.5)
    require_rows(name, "be whole numbers", safe != np.floor(safe), hint=hint)
    return safe.astype(np.int64)


def flags(name: str, values: ArrayLike) -> BoolArray:
    """Returns truth values `[N]`; numbers may hold them too, as 0 and 1."""
    column = _column(name, values)
    require_rows(name, "be True or False", (column != 0) & (column != 1))
    return column.astype(np.bool_)


def masks(name: str, values: ArrayLike) -> BoolArray:
    """Returns truth values `[N, A]`; numbers may hold them too, as 0 and 1."""
    array = any_array(name, values)
    array = array if array.dtype == np.bool_ else real_array(name, values)
    if array.ndim != 2 or not array.shape[1]:
        raise DataError(f"{name} must have shape [N, A]; got {list(array.shape)}.")
    require_rows(name, "be True or False", ((array != 0) & (array != 1)).any(axis=1))
    return array.astype(np.bool_)


def probabilities(name: str, values: ArrayLike) -> FloatArray:
    """Returns probabilities `[N]`, none of them 0: what was played could be played."""
    column = numbers(name, values)
    require_rows(name, "be above 0 and at most 1", (column <= 0) | (column > 1))
    return column


def checked_columns(given: Mapping[str, ArrayLike | None]) -> dict[str, NDArray[Any]]:
    """Returns the columns that are known, each of its type, and all of the same length.

    Raises:
        DataError: naming the column, how many of its rows are bad, and which is the first.
    """
    for name in REQUIRED:
        if given.get(name) is None:
            raise DataError(f"{name} must be given; got None.{what_to_give(name)}")
    columns: dict[str, NDArray[Any]] = {
        name: _TYPES[name](name, values)
        for name in FIELDS
        if (values := given.get(name)) is not None
    }
    n_rows = len(columns["state"])
    if not n_rows:
        raise DataError("state must hold at least one transition; got none.")
    for name, column in columns.items():
        if len(column) != n_rows:
            raise DataError(f"{name} must have as many rows as state, {n_rows}; got {len(column)}.")
    _require_states_alike(columns)
    if "truncated" in columns:
        hint = " Where terminal means either, take those that were truncated out of it."
        both = columns["terminal"] & columns["truncated"]
        require_rows("terminal", "be kept apart from truncated", both, fault="both", hint=hint)
    return columns


def action_count(actions: IntArray, n_actions: Any) -> int:
    """Returns the number of actions: as given, or one more than the largest that was taken.

    Raises:
        DataError: if it is no number of actions, or an action is not below it.
    """
    if n_actions is None:
        n_actions = int(actions.max()) + 1
    whole = isinstance(n_actions, int | np.integer) and not isinstance(n_actions, bool)
    if not whole or not 1 <= n_actions <= _MOST_ACTIONS:
        raise DataError(
            f"n_actions must be a whole number from 1 to {_MOST_ACTIONS}; got {n_actions!r}."
        )
    require_rows("action", f"be below n_actions, {n_actions}", actions >= n_actions)
    return int(n_actions)


def require_masks(columns: Mapping[str, NDArray[Any]], n_actions: int) -> None:
    """Checks which actions are available, where that is known.

    Raises:
        DataError: if a mask is not `[N, n_actions]`, a row has no action, or the logged action is
            not available.
    """
    for name in MASKS:
        if name not in columns:
            continue
        n_rows, width = columns[name].shape
        if width != n_actions:
            raise DataError(
                f"{name} must have shape [N, n_actions] = [{n_rows}, {n_actions}]; "
                f"got {[n_rows, width]}."
            )
        is_empty = ~columns[name].any(axis=1)
        if name == "next_available":
            is_empty = is_empty & ~columns["terminal"]
        require_rows(name, "have an action in every row", is_empty, fault="without one")
    if "available" in columns:
        taken = np.take_along_axis(columns["available"], columns["action"][:, None], axis=1)
        require_rows("action", "be one that is available", ~taken[:, 0])


def checked_names(names: Any, size: int) -> tuple[str, ...] | None:
    """Returns names of the numbers of a state, `[D]`, each once.

    Raises:
        DataError: if they are none, or not as many as numbers.
    """
    if names is None:
        return None
    given = tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else ()
    is_right = all(isinstance(name, str) for name in given) and len(set(given)) == len(given)
    if not is_right or len(given) != size:
        raise DataError(
            f"state_names must be {size} different words, one a number; got {told(names)}."
        )
    return given


def positions(rows: ArrayLike, n_rows: int) -> IntArray:
    """Returns the positions of rows that are chosen by position or mask.

    Raises:
        DataError: if there are none, or they are neither positions nor a mask `[N]`.
    """
    chosen = any_array("rows", rows)
    if chosen.dtype == np.bool_ and chosen.shape == (n_rows,):
        chosen = np.flatnonzero(chosen)
    if not chosen.size:
        raise DataError("rows must choose at least one transition; got none.")
    if chosen.dtype.kind not in "iu" or chosen.ndim != 1:
        raise DataError(
            f"rows must be positions, or a mask [N] = [{n_rows}]; "
            f"got {chosen.dtype} of shape {list(chosen.shape)}."
        )
    outside = np.flatnonzero((chosen < -n_rows) | (chosen >= n_rows))
    if len(outside):
        i = int(outside[0])
        raise DataError(f"rows must be below {n_rows}; got {chosen[i]} at [{i}].")
    return chosen


def _actions(name: str, values: ArrayLike) -> IntArray:
    hint = " Only discrete actions are supported: turn others into numbers, in files by discretise."
    shape = any_array(name, values).shape
    if len(shape) > 1 and shape[1:] != (1,):
        raise DataError(f"{name} must have shape [N]; got {list(shape)}.{hint}")
    return _counts(name, values, hint)


def _counts(name: str, values: ArrayLike, hint: str = "") -> IntArray:
    column = whole_numbers(name, values, hint)
    require_rows(name, "be from 0 on", column < 0)
    return column


def _column(name: str, values: ArrayLike) -> FloatArray | IntArray:
    """Returns real numbers `[N]`; whole numbers stay whole."""
    array = real_array(name, values)
    if array.shape[1:] == (1,):
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(f"{name} must have shape [N]; got {list(array.shape)}.")
    exact = np.asarray(values)
    return exact.reshape(-1) if exact.dtype.kind in "iub" else array


def _require_states_alike(columns: dict[str, NDArray[Any]]) -> None:
    """Checks that states have one size, and gives them one precision, the finer of the two."""
    now, after = columns["state"], columns["next_state"]
    if now.shape != after.shape:
        raise DataError(
            f"next_state must have the shape of state, {list(now.shape)}; got {list(after.shape)}."
        )
    precision = np.result_type(now, after)
    columns["state"] = now.astype(precision, copy=False)
    columns["next_state"] = after.astype(precision, copy=False)


_TYPES: dict[str, Callable[[str, ArrayLike], NDArray[Any]]] = {
    "state": states,
    "action": _actions,
    "reward": numbers,
    "cost": numbers,
    "next_state": states,
    "terminal": flags,
    "truncated": flags,
    "episode": whole_numbers,
    "step": _counts,
    "budget": numbers,
    "next_budget": numbers,
    "probability": probabilities,
    "available": masks,
    "next_available": masks,
}
