"""Means of values over what a policy may do, where values are known on a grid of budgets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bmdp.arrays import FloatArray, IntArray
from bmdp.policies.decisions import Options


class Places(NamedTuple):
    """What a policy does, as places among the values `[A * B]` of a state, with their weights."""

    place: IntArray  # [N, L, J], of the grid budget below the one handed on
    below: FloatArray  # [N, L, J], weight of that place
    above: FloatArray  # [N, L, J], weight of the place after it


def places_of(options: Options, grid: FloatArray) -> Places:
    """Puts options `[N, L, J]` on a grid of budgets `[B]`; those between two of them are shared.

    >>> one = Options(np.array([[[1]]]), np.array([[[0.75]]]), np.array([[[1.0]]]))
    >>> [column.tolist() for column in places_of(one, np.array([0.0, 0.5, 1.0]))]
    [[[[4]]], [[[0.5]]], [[[0.5]]]]
    """
    action, next_budget, probability = options
    place = (np.searchsorted(grid, next_budget, side="right") - 1).clip(0, len(grid) - 2)
    share = ((next_budget - grid[place]) / (grid[place + 1] - grid[place])).clip(0, 1)
    return Places(
        (action * len(grid) + place).astype(np.int32),
        (probability * (1 - share)).astype(np.float32),
        (probability * share).astype(np.float32),
    )


def expected(values: FloatArray, places: Places) -> FloatArray:
    """Means `[N, K, L]` of K kinds of values `[N, K, A, B]` over what is done at each budget."""
    flat = values.reshape(*values.shape[:2], -1)
    at = places.place.reshape(len(values), 1, -1)
    lower, upper = (
        np.take_along_axis(flat, place, axis=2).reshape(*values.shape[:2], *places.place.shape[1:])
        for place in (at, at + 1)
    )
    mean: FloatArray = (places.below[:, None] * lower + places.above[:, None] * upper).sum(axis=-1)
    return mean
