"""Figures of a dial in production: asked against realised, and a budget of a period."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from bmdp.arrays import FloatArray, IntArray
from bmdp.report.drawing import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, new_figure, tidy

_LINES = ((BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), (PURPLE, ":"))
_FROM = 10  # episodes; what is before is all noise


def watched_figure(
    n: IntArray,
    asked: FloatArray,
    paid: FloatArray,
    ends: tuple[FloatArray, FloatArray],
    *,
    since: int | None = None,
    tolerance: float = 0.0,
) -> Figure:
    """Returns what was asked and paid by episodes, and the mean excess in its band.

    Args:
        n: episodes so far, `[m]`.
        asked: mean budget of these, `[m]`.
        paid: mean cost, `[m]`.
        ends: of the band of the mean excess, `[m]` each; infinite where they are not known.
        since: episode at which the promise was found broken.
        tolerance: excess that still counts as kept.
    """
    figure = new_figure(height=5.4)
    top, bottom = figure.subplots(2, 1, sharex=True)
    top.plot(n, asked, "--", color=BLACK, label="asked")
    top.plot(n, paid, color=BLUE, label="realised")
    top.set_ylabel("mean cost of an episode")
    excess = paid - asked
    reach = np.abs(excess[n >= _FROM]).max(initial=1e-9)
    finite = [end[(n >= _FROM) & np.isfinite(end)] for end in ends]
    reach = max([reach, *(float(np.quantile(np.abs(e), 0.8)) for e in finite if len(e))]) * 1.1
    low, high = (np.clip(end, -4 * reach, 4 * reach) for end in ends)
    bottom.fill_between(n, low, high, color=BLUE, alpha=0.15, linewidth=0, label="band")
    bottom.plot(n, excess, color=BLUE, label="realised - asked")
    bottom.axhline(tolerance, color=BLACK, linestyle="--", linewidth=1, label="promise")
    bottom.set_ylim(-reach, reach)
    bottom.set_ylabel("mean excess")
    bottom.set_xlabel("episodes")
    for axes in (top, bottom):
        tidy(axes)
        if len(n) and n[-1] > _FROM:
            axes.set_xscale("log")
            axes.set_xlim(_FROM, n[-1])
        if since is not None:
            axes.axvline(since, color=RED, linewidth=1.2, label=f"broken: episode {since:,}")
        axes.legend(fontsize=8, frameon=False, loc="best")
    return figure


def period_figure(time: FloatArray, spent: Mapping[str, FloatArray], total: float) -> Figure:
    """Returns what was spent against time, and the total that is to be kept.

    Args:
        time: shares of the period, `[m]`.
        spent: by name, so far, `[m]`, or `[runs, m]`, of which the middle and the range are drawn.
        total: of the period.
    """
    figure = new_figure(height=3.8)
    axes = figure.subplots()
    tidy(axes)
    axes.axhline(total, color=BLACK, linewidth=1.2, label="total")
    axes.plot([0, 1], [0, total], color=GREY, linewidth=0.8, label="even pace")
    for (colour, line), (name, values) in zip(_LINES, spent.items(), strict=False):
        runs = np.atleast_2d(values)
        if len(runs) > 1:
            axes.fill_between(
                time, runs.min(axis=0), runs.max(axis=0), color=colour, alpha=0.15, linewidth=0
            )
        axes.plot(time, np.median(runs, axis=0), line, color=colour, label=name)
    axes.set_xlabel("share of the period that is over")
    axes.set_ylabel("cost spent")
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8, frameon=False, loc="upper left")
    return figure
