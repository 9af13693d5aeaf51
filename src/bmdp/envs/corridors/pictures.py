"""Pictures of corridors: a map, and ways on it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import FloatArray
from bmdp.envs.corridors.maps import Map


def picture(cells: Map, ways: list[FloatArray], *, scale: int = 48) -> NDArray[np.uint8]:
    """Returns a picture of a map and of ways on it, `[height * scale, width * scale, 3]`.

    Walls are dark; cells that pay are green, the more the darker, or red if they cost; each way is
    a line with a dot at its end.

    Args:
        cells: the map.
        ways: points (x, y) of each way, `[T, 2]`.
        scale: pixels a cell.

    >>> from bmdp.envs.corridors import Corridors
    >>> drawn = picture(Corridors().map, [np.array([[3.5, 0.5], [4.5, 0.5]])], scale=8)
    >>> drawn.shape, drawn[4, 36].tolist()  # the dot
    ((48, 56, 3), [20, 40, 140])
    """
    pay = np.clip(cells.reward / max(cells.reward.max(), 1e-9), 0, 1) ** 0.5
    dear = cells.cost > 0
    red = np.where(dear, 255, 255 - 120 * pay)
    green = np.where(dear, 225 - 120 * pay, 255)
    blue = np.where(dear, 225 - 120 * pay, 255 - 120 * pay)
    plain = ~dear & (cells.reward == 0)
    colours = np.stack([np.where(plain, 255, c) for c in (red, green, blue)], axis=-1)
    colours[cells.wall] = 60
    canvas = colours.repeat(scale, axis=0).repeat(scale, axis=1).astype(np.uint8)
    canvas[::scale], canvas[:, ::scale] = 160, 160
    for way in ways:
        for begin, end in pairwise(way):
            for share in np.linspace(0, 1, scale):
                _dot(canvas, scale * (begin + share * (end - begin)), 1, (40, 70, 200))
        _dot(canvas, scale * way[-1], scale // 8, (20, 40, 140))
    return canvas


def _dot(
    canvas: NDArray[np.uint8], at: FloatArray, radius: int, colour: tuple[int, int, int]
) -> None:
    """Paints a disc."""
    column, row = (int(v) for v in at)
    rows, columns = np.ogrid[: canvas.shape[0], : canvas.shape[1]]
    top, left = max(row - radius, 0), max(column - radius, 0)
    part = np.s_[top : row + radius + 1, left : column + radius + 1]
    inside = (rows[top : row + radius + 1] - row) ** 2 + (
        columns[:, left : column + radius + 1] - column
    ) ** 2 <= radius**2
    canvas[part][inside] = colour
