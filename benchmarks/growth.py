"""How seconds and memory grow with the size of a task: exponents, and a figure of them.

    python benchmarks/growth.py RECORD.json PICTURE.png

A record has `series`, each with a name, sizes, seconds, megabytes, and the exponent of seconds. An
exponent of 1 means that twice the size takes twice the time.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator
from numpy.typing import ArrayLike

from bmdp.report.drawing import BLUE, GREY, ORANGE, literal, new_figure, png_of, svg_of, tidy

COLUMNS = 3
LINES = {"seconds": (BLUE, "o", "-"), "megabytes": (ORANGE, "s", "--")}
"""Colour, marker and line of each quantity."""
_KEYS = {"seconds": "seconds", "megabytes": "peak memory, MB", "linear": "in proportion to size"}
_MOST_TICKS = 5


def exponent(sizes: ArrayLike, seconds: ArrayLike) -> float:
    """Returns the slope of log seconds on log size, by least squares.

    Raises:
        ValueError: if there are fewer than two sizes, or a number is not above zero.

    >>> round(exponent([1, 10, 100], [2.0, 20.0, 200.0]), 6)
    1.0
    """
    x, y = np.asarray(sizes, np.float64), np.asarray(seconds, np.float64)
    if x.shape != y.shape or len(np.unique(x)) < 2:
        raise ValueError(
            f"sizes and seconds must be as many, of two sizes at least; got {x.size} and {y.size}."
        )
    if not ((x > 0).all() and (y > 0).all()):
        raise ValueError("sizes and seconds must be above zero.")
    x, y = np.log(x) - np.log(x).mean(), np.log(y)
    return float(x @ y / (x @ x))


def short(number: float) -> str:
    """Returns a number with a letter for thousands, millions or billions.

    >>> [short(n) for n in (8, 0.5, 2_500, 100_000, 10_000_000, 1e9)]
    ['8', '0.5', '2.5k', '100k', '10M', '1G']
    """
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:g}{letter}"
    return f"{number:g}"


def growth_figure(record: dict[str, Any]) -> Figure:
    """Returns a panel for each series of three sizes or more, with the same axis for all.

    A line's slope is its exponent. The grey line is that of exponent 1, through the first second.
    """
    series = [one for one in record["series"] if len(one["sizes"]) > 2]
    n_columns = min(COLUMNS, len(series))
    n_rows = math.ceil(len(series) / n_columns)
    figure = new_figure(0.4 + 2.7 * n_columns, 0.5 + 2.5 * n_rows)
    places = [(i // n_columns, i % n_columns) for i in range(len(series))]
    grid = figure.add_gridspec(n_rows, n_columns)
    first: Axes | None = None
    for (row, column), one in zip(places, series, strict=True):
        axes = figure.add_subplot(grid[row, column], sharey=first)
        first = axes if first is None else first
        _panel(axes, one)
        axes.tick_params(labelleft=column == 0)
        if column == 0:
            axes.set_ylabel("seconds; MB")
    assert first is not None
    lines, _ = first.get_legend_handles_labels()
    figure.legend(
        lines,
        list(_KEYS.values()),
        loc="outside upper center",
        ncols=len(_KEYS) if n_columns > 1 else 1,
        frameon=False,
    )
    return figure


def _panel(axes: Axes, series: dict[str, Any]) -> None:
    """Draws one series."""
    sizes = np.array(series["sizes"], np.float64)
    axes.set_xscale("log")
    axes.set_yscale("log")
    tidy(axes)
    for name, (colour, marker, line) in LINES.items():
        values = np.array(series[name], np.float64)
        axes.plot(sizes, values, line, color=colour, marker=marker, markersize=4.5, label=name)
    seconds = np.array(series["seconds"], np.float64)
    linear = seconds[0] * sizes / sizes[0]
    axes.plot(sizes, linear, ":", color=GREY, linewidth=1.2, zorder=1, label="linear")
    axes.set_title(f"{literal(series['name'])}: exponent {series['exponent']:.2f}", fontsize=10)
    axes.margins(x=0.1)
    every = math.ceil(len(sizes) / _MOST_TICKS)
    axes.xaxis.set_major_locator(FixedLocator(list(sizes[::-1][::every])))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(numticks=8))
    axes.yaxis.set_minor_formatter(NullFormatter())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda number, _: short(number)))
    axes.tick_params(labelsize=8)
    axes.tick_params(axis="y", which="minor", length=0)


def draw(record: dict[str, Any], path: Path | str) -> None:
    """Writes the figure of a record as PNG, or as SVG if the path ends so."""
    path, figure = Path(path), growth_figure(record)
    if path.suffix == ".svg":
        path.write_text(svg_of(figure, path.stem))
    else:
        path.write_bytes(png_of(figure))


def main(arguments: list[str] | None = None) -> None:
    """Draws a record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("record", type=Path, help="JSON file with series")
    parser.add_argument("picture", type=Path, help="PNG or SVG file to write")
    asked = parser.parse_args(arguments)
    draw(json.loads(asked.record.read_text()), asked.picture)


if __name__ == "__main__":
    main()
