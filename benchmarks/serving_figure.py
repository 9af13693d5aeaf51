"""How fast policies decide, as a figure of the record of `serving.py`.

python benchmarks/serving_figure.py benchmarks/results/serving.json docs/images/serving.png

Its numbers are those of the tables of docs/paper/performance.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from growth import short
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from bmdp.report.drawing import BLUE, GREY, ORANGE, literal, new_figure, png_of, tidy

GOALS = {"one": 200.0, "batch": 1e6}
"""Microseconds of one decision, and decisions a second of a batch on one core."""


def serving_figure(record: dict[str, Any]) -> Figure:
    """Returns dots for each policy: microseconds of one decision, and decisions a second."""
    rows = record["rows"]
    names = [literal(row["policy"]) for row in rows]
    ways = (("step", BLUE, "o"), ("request", ORANGE, "s"), ("reference", GREY, "x"))
    figure = new_figure(9.0, 0.9 + 0.38 * len(rows))
    left, right = figure.subplots(1, 2, sharey=True)
    for way, colour, marker in ways:
        _dots(left, [row["one"][way]["median_us"] for row in rows], way, colour, marker)
    _dots(right, [row["batch"]["later_per_second"] for row in rows], "step", BLUE, "o")
    _dots(right, [row["batch"]["reference_per_second"] for row in rows], "reference", GREY, "x")
    for axes, goal in ((left, GOALS["one"]), (right, GOALS["batch"])):
        axes.set_xscale("log")
        tidy(axes)
        axes.axvline(goal, linestyle=":", color=GREY, linewidth=1.2, label="goal")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: short(number)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    left.xaxis.set_major_locator(FixedLocator([20, 50, 100, 200, 500, 1_000]))
    left.set_yticks(range(len(rows)), names)
    left.invert_yaxis()
    left.set_xlabel("one decision, microseconds (median)")
    right.set_xlabel(f"decisions a second, {record['batch']:,} at a time, one core")
    lines, labels = left.get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper center", ncols=len(lines), frameon=False)
    return figure


def _dots(axes: Axes, values: Sequence[float], name: str, colour: str, marker: str) -> None:
    axes.plot(values, range(len(values)), marker, color=colour, markersize=6, label=name)


def main(arguments: list[str] | None = None) -> None:
    """Draws a record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("record", type=Path, help="JSON file of serving.py")
    parser.add_argument("picture", type=Path, help="PNG file to write")
    asked = parser.parse_args(arguments)
    asked.picture.write_bytes(png_of(serving_figure(json.loads(asked.record.read_text()))))


if __name__ == "__main__":
    main()
