"""Checks that arrays are a finite model, made once for each `FiniteBMDP`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from bmdp.arrays import BoolArray, FloatArray, real_array
from bmdp.errors import ModelError

TOLERANCE = 1e-8  # of a sum of probabilities


def table(name: str, values: ArrayLike) -> FloatArray:
    """Checks a table `[S, A]` of finite numbers."""
    try:
        table = real_array(f"FiniteBMDP.{name}", values).astype(np.float64)
    except ValueError as error:
        raise ModelError(str(error)) from error
    if table.ndim != 2 or table.size == 0:
        raise ModelError(f"FiniteBMDP.{name} must have shape [S, A]; got {list(table.shape)}.")
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        s, a = bad[0]
        raise ModelError(
            f"FiniteBMDP.{name} must be finite; got {table[s, a]:g} at [{s}, {a}]. "
            f"({len(bad)} of {table.size} values are not.)"
        )
    return table


def terminal_mask(terminal: Any, n_states: int) -> BoolArray:
    """Checks the mask of terminal states."""
    if terminal is None:
        return np.zeros(n_states, np.bool_)
    mask = np.asarray(terminal)
    if mask.shape != (n_states,) or mask.dtype != np.bool_:
        raise ModelError(
            f"FiniteBMDP.terminal must be a boolean mask [S] = [{n_states}]; "
            f"got {mask.dtype} of shape {list(mask.shape)}."
        )
    return mask


def transition_rows(transition: Any, n_states: int, n_actions: int) -> sparse.csr_array:
    """Brings transition probabilities into the form `[S*A, S]`."""
    wanted = (n_states * n_actions, n_states)
    if sparse.issparse(transition):
        if transition.shape != wanted:
            raise ModelError(
                f"FiniteBMDP.transition must have shape [S*A, S] = {list(wanted)} if it is sparse; "
                f"got {list(transition.shape)}."
            )
        rows = sparse.csr_array(transition, dtype=np.float64, copy=True)
        rows.sum_duplicates()
        return rows
    try:
        dense = real_array("FiniteBMDP.transition", transition).astype(np.float64)
    except ValueError as error:
        raise ModelError(str(error)) from error
    if dense.shape != (n_states, n_actions, n_states):
        raise ModelError(
            f"FiniteBMDP.transition must have shape [S, A, S] = "
            f"{[n_states, n_actions, n_states]}; got {list(dense.shape)}."
        )
    return sparse.csr_array(dense.reshape(wanted))


def require_distributions(rows: sparse.csr_array, live: BoolArray, n_actions: int) -> None:
    """Checks that the live rows are probability distributions."""

    def place(row: int) -> str:
        return f"[{row // n_actions}, {row % n_actions}, :]"

    entry_row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    bad = np.flatnonzero(~((rows.data >= 0) & (rows.data < np.inf)) & live[entry_row])
    if len(bad):
        row = int(entry_row[bad[0]])
        raise ModelError(
            f"FiniteBMDP.transition must hold finite numbers from 0 on; transition{place(row)} has "
            f"{rows.data[bad[0]]:g}. ({len(bad)} values are bad.)"
        )
    sums = np.asarray(rows.sum(axis=1)).ravel()
    off = np.flatnonzero(live & ~(abs(sums - 1) <= TOLERANCE))
    if len(off):
        row = int(off[0])
        raise ModelError(
            "FiniteBMDP.transition: probabilities must sum to 1 for every (state, action); "
            f"transition{place(row)} sums to {sums[row]:.9g}. "
            f"({len(off)} of {int(live.sum())} rows are off.)"
        )


def require_discounts(gamma: float, cost_gamma: float, horizon: int | None) -> None:
    """Checks discounts and horizon.

    Raises:
        ModelError: naming what is out of range, or why two discounts cannot be.
    """
    for name, value in (("gamma", gamma), ("cost_gamma", cost_gamma)):
        if not 0 < value <= 1:
            raise ModelError(f"FiniteBMDP.{name} must be above 0 and at most 1; got {value}.")
    if horizon is not None:
        if not isinstance(horizon, int | np.integer) or horizon < 1:
            raise ModelError(f"FiniteBMDP.horizon must be a count from 1 on; got {horizon}.")
    elif cost_gamma != gamma:
        raise ModelError(
            "FiniteBMDP.cost_gamma must equal gamma unless there is a horizon; got "
            f"{cost_gamma} and {gamma}. With two discounts and no end, the best policy "
            "would have to look at the clock for ever."
        )


def require_end(rows: sparse.csr_array, terminal: BoolArray, n_actions: int) -> None:
    """Checks that every policy ends: returns must be finite without a discount.

    States from which one can go on for ever form the largest set that some action keeps within
    itself, from each of its states.

    Raises:
        ModelError: naming such a state.
    """
    inside = ~terminal
    while inside.any():
        leaves = np.asarray(rows @ (~inside).astype(np.float64)).reshape(-1, n_actions)
        stays = inside & (leaves <= 0).any(axis=1)
        if (stays == inside).all():
            raise ModelError(
                "FiniteBMDP.gamma must be below 1 unless every policy ends; from state "
                f"{np.flatnonzero(inside)[0]} one can go on for ever. Give a horizon, or mark "
                "terminal states."
            )
        inside = stays
