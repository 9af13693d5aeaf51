"""What forests of trees say, given their nodes in flat arrays, end to end.

The values of a state at all budgets of the grid are found in one descent of each tree: budgets go
down together, and part only at cuts of the budget.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from bmdp.arrays import FloatArray, IntArray

_CHUNK = 256  # states


class Nodes(NamedTuple):
    """The nodes of many trees, end to end."""

    children: NDArray[np.int32]  # [M, 2], up to the threshold and above it; -1 at leaves
    feature: NDArray[np.int32]  # [M], number of the state, or D for the budget
    threshold: NDArray[np.float64]  # [M]
    value: NDArray[np.float64]  # [M, 2], of (Q_r, Q_c)


class Forests(NamedTuple):
    """A forest for each action."""

    roots: NDArray[np.int32]  # [A, T]
    nodes: Nodes


def forest_values(
    roots: NDArray[np.int32], nodes: Nodes, states: FloatArray, budgets: FloatArray
) -> FloatArray:
    """Returns what a forest says, the mean of its trees, `[n, L, 2]`.

    Args:
        roots: of its trees, `[T]`.
        nodes: of all trees.
        states: `[n, D]`.
        budgets: `[n, L]`, rising in each row.
    """
    values = np.zeros((*budgets.shape, 2))
    sealed = Nodes(*(_sealed(array) for array in nodes))
    rows, held = (_sealed(array.astype(np.float32)) for array in (states, budgets))
    _add_trees(_sealed(roots), sealed, rows, held, values)
    return values / len(roots)


def _sealed(array: NDArray[Any]) -> NDArray[Any]:
    """A contiguous read-only view: one type, so that the kernel is compiled once."""
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view


@njit(cache=True, parallel=True)
def _add_trees(
    roots: IntArray, nodes: Nodes, states: FloatArray, budgets: FloatArray, values: FloatArray
) -> None:
    """Adds what the trees say to `values`; a tree is at many states while it is in the cache."""
    n, n_budgets = budgets.shape
    for chunk in prange((n + _CHUNK - 1) // _CHUNK):
        waiting = np.empty((n_budgets, 3), np.int64)
        for root in roots:
            for i in range(chunk * _CHUNK, min((chunk + 1) * _CHUNK, n)):
                waiting[0, 0], waiting[0, 1], waiting[0, 2] = root, 0, n_budgets
                _descend(nodes, states[i], budgets[i], waiting, values[i])


@njit(cache=True)
def _descend(
    nodes: Nodes, state: FloatArray, budgets: FloatArray, waiting: IntArray, values: FloatArray
) -> None:
    """Adds what one tree says of one state.

    Ranges of budgets, each at its node, wait on a stack, where the root and all budgets are at
    first. They are apart and not empty, so there is room for them.
    """
    n_waiting = 1
    while n_waiting > 0:
        n_waiting -= 1
        node, first, end = waiting[n_waiting, 0], waiting[n_waiting, 1], waiting[n_waiting, 2]
        while nodes.children[node, 0] >= 0:
            feature, limit = nodes.feature[node], nodes.threshold[node]
            if feature < len(state):
                node = np.int64(nodes.children[node, 0 if state[feature] <= limit else 1])
                continue
            cut = first
            while cut < end and budgets[cut] <= limit:
                cut += 1
            if first < cut < end:
                waiting[n_waiting, 0] = nodes.children[node, 1]
                waiting[n_waiting, 1], waiting[n_waiting, 2] = cut, end
                n_waiting += 1
                end = cut
            node = np.int64(nodes.children[node, 0 if cut > first else 1])
        for i in range(first, end):
            values[i, 0] += nodes.value[node, 0]
            values[i, 1] += nodes.value[node, 1]


def on_grid(forests: Forests, states: FloatArray, beta_grid: FloatArray) -> FloatArray:
    """Values of all actions at states `[n, D]` on the grid, `[n, 2, A, B]`."""
    budgets = np.broadcast_to(beta_grid, (len(states), len(beta_grid)))
    values = [forest_values(roots, forests.nodes, states, budgets) for roots in forests.roots]
    return np.stack(values, axis=1).transpose(0, 3, 1, 2)
