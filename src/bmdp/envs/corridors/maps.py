"""Maps of corridors: which cells are walls, and what the others pay and cost."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bmdp.arrays import BoolArray, FloatArray, read_only
from bmdp.errors import ConfigError


class Map(NamedTuple):
    """Cells, row by row: what each pays and costs, and which are walls."""

    reward: FloatArray  # [height, width]
    cost: FloatArray  # [height, width]
    wall: BoolArray  # [height, width]
    start: float  # x of the start, in the top row


def two_corridors(height: int) -> Map:
    """The paper's map."""
    reward, cost = np.zeros((2, height, 7))
    wall = np.zeros((height, 7), np.bool_)
    wall[1:, 2:5] = True
    wall[:-1, [0, 6]] = True
    rows = np.arange(1, height)
    reward[rows, 1], reward[rows, 5] = rows, 10 * rows
    reward[height - 1, [0, 6]] = 100
    risky = 1 / (height + 2)
    cost[0, [4, 5]] = cost[rows, 5] = cost[height - 1, 6] = risky
    return Map(read_only(reward), read_only(cost), read_only(wall), 3.5)


def many_corridors(height: int, n_routes: int, horizon: int) -> Map:
    """Corridors at every other column below the top row, from cheap to dear.

    Walked straight, without noise and to the horizon, route j costs j / (k - 1) and earns 300 times
    the square root of the share (j + 1) / k: strictly concave. All is earned in the last cell.
    """
    width = 2 * n_routes + 1
    reward, cost = np.zeros((2, height, width))
    wall = np.ones((height, width), np.bool_)
    wall[0] = False
    start = width // 2
    for j in range(n_routes):
        column = 2 * j + 1
        distance = abs(column - start)
        n_below = horizon - distance  # steps that end below the top row
        n_last = n_below - (height - 2)  # of them, in the last cell
        if n_last < 1:
            raise ConfigError(
                f"horizon must let all routes be walked: at least {distance + height - 1}; "
                f"got {horizon}."
            )
        wall[:, column] = False
        reward[height - 1, column] = 300 * np.sqrt((j + 1) / n_routes) / n_last
        cost[1:, column] = j / (n_routes - 1) / n_below
    return Map(read_only(reward), read_only(cost), read_only(wall), start + 0.5)
