"""Figures of calibration and of comparison: promises kept or broken, and methods side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bmdp.experiments.parts.comparison_summary import MethodRow
from bmdp.report.drawing import BLACK, BLUE, GREEN, GREY, RED, SKY, new_figure, tidy

KINDS = {
    "binary": "bounds for costs of 0 or 1",
    "bounded": "bounds for any costs",
    "means": "means instead of bounds",
}
"""What promises go by, in words."""


def promises_figure(kinds: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Returns how far exact costs are above the budget, at the worst budget of each calibration.

    Args:
        kinds: rows of each kind, with `asked` and `exact`.
    """
    figure = new_figure(height=1.0 + 0.75 * len(kinds))
    axes = figure.subplots()
    tidy(axes)
    for i, rows in enumerate(kinds.values()):
        excess = np.sort([row["exact"] - row["asked"] for row in rows])
        heights = i + 0.6 * (np.arange(len(rows)) / max(len(rows) - 1, 1) - 0.5)
        is_broken = excess > 0
        for mask, colour, marker in ((~is_broken, BLUE, "o"), (is_broken, RED, "X")):
            axes.plot(excess[mask], heights[mask], marker, color=colour, markersize=4, alpha=0.7)
    axes.axvline(0, color=BLACK, linewidth=1, linestyle="--")
    axes.set_yticks(range(len(kinds)), [KINDS.get(kind, kind) for kind in kinds])
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.set_xlabel("exact cost minus budget, at the worst budget (above 0: broken)")
    return figure


def methods_figure(rows: Sequence[MethodRow]) -> Figure:
    """Returns score and worst overshoot of methods, a line each; dots are seeds.

    Hollow marks: after calibration, at budgets from the smallest certified one on.
    """
    figure = new_figure(width=7.0, height=1.1 + 0.36 * len(rows))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[1.5, 1])
    for axes in (left, right):
        tidy(axes)
    for i, row in enumerate(rows):
        _draw_scores(left, row, i)
        right.plot(row.worst_overshoot, i, "s", color=BLUE)
        if row.calibrated is not None:
            hollow = {"markerfacecolor": "white", "color": GREEN}
            left.plot(row.calibrated.score, i, "D", markersize=5, **hollow)
            right.plot(row.calibrated.overshoot, i, "D", markersize=5, **hollow)
    left.axvline(1, color=GREY, linewidth=1, linestyle="--")
    right.axvline(0, color=GREY, linewidth=1, linestyle="--")
    scores = [score for row in rows for score in (*row.scores, 1.0)]
    scores += [row.calibrated.score for row in rows if row.calibrated is not None]
    low, high = min(scores), max(scores)
    left.set_xlim(low - 0.08 * (high - low) - 0.01, high + 0.08 * (high - low) + 0.01)
    left.set_yticks(range(len(rows)), [row.method for row in rows])
    left.set_ylim(len(rows) - 0.5, -0.5)
    left.set_xlabel("score (1: optimum)")
    right.set_xlabel("worst overshoot")
    return figure


def _draw_scores(axes: Axes, row: MethodRow, at: int) -> None:
    """Seeds, their mean, and its interval, which may leave the axes."""
    axes.plot(row.scores, [at] * len(row.scores), "o", color=SKY, markersize=4, alpha=0.8)
    if row.score_low is not None and row.score_high is not None:
        axes.plot([row.score_low, row.score_high], [at, at], color=BLUE, linewidth=1.5, alpha=0.6)
    axes.plot(row.score, at, "s", color=BLUE)
