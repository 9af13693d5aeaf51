"""Figures of curves: reward against cost, and cost against the budget that was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from bmdp.arrays import FloatArray
from bmdp.frontier import Frontier
from bmdp.report.drawing import (
    BLACK,
    BLUE,
    COST,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    new_figure,
    plane,
    tidy,
)
from bmdp.report.series import Curve

_MARGIN = 0.07  # around points, as a share of their range
_FILLED = 0.3  # size of the largest box that is filled, as a share of the axes
_NAME = np.array([0.07, 0.04])  # size of a name, as a share of the axes


@dataclass(frozen=True)
class Style:
    """The look of a curve: what is ours is filled, what was published is hollow."""

    colour: str
    marker: str
    is_filled: bool = True
    is_joined: bool = True


FIRST, SECOND = Style(BLUE, "^"), Style(RED, "v")
THIRD, FOURTH = Style(GREEN, "s"), Style(PURPLE, "o")
ALONE = Style(GREY, "D", is_joined=False)
FIRST_PUBLISHED, SECOND_PUBLISHED = Style(SKY, "^", False), Style(ORANGE, "v", False)


@dataclass(frozen=True, eq=False)
class Drawn:
    """A curve and its style."""

    curve: Curve
    style: Style
    names: Sequence[str] = ()  # [M], written beside its points


def trade_off_figure(
    drawn: Sequence[Drawn],
    frontier: Frontier | None = None,
    *,
    reward_error: float = 0.0,
    has_boxes: bool = True,
    named: str = "optimum",
    others: Mapping[str, Frontier] | None = None,
) -> Figure:
    """Returns reward against cost, a box around each mean, and the true frontier if it is known.

    Axes show all means; boxes may leave them. Large boxes are not filled, so that what is below
    them can be seen.

    Args:
        drawn: curves, the first on top.
        frontier: the best that can be had.
        reward_error: how far its rewards may be off; drawn as a band.
        has_boxes: whether boxes are drawn.
        named: what the frontier is called.
        others: further curves to compare with, by name.

    Paper: the right half of its figure on exploration, and its figure on performances.
    """
    figure = new_figure(height=4.8)
    axes = figure.subplots()
    plane(axes)
    if frontier is not None:
        axes.plot(frontier.costs, frontier.rewards, color=BLACK, linewidth=1.6, label=named)
        ends = frontier.rewards - reward_error, frontier.rewards + reward_error
        axes.fill_between(frontier.costs, *ends, color=BLACK, alpha=0.15, linewidth=0)
    beside = [frontier] if frontier is not None else []
    for line, (name, other) in zip(cycle(("--", ":")), (others or {}).items(), strict=False):
        axes.plot(other.costs, other.rewards, line, color=BLACK, linewidth=1.2, label=name)
        beside.append(other)
    axes.set_xlim(*_limits([one.curve.cost.mean for one in drawn] + [f.costs for f in beside]))
    axes.set_ylim(*_limits([one.curve.reward.mean for one in drawn] + [f.rewards for f in beside]))
    for one in reversed(drawn):
        for i in range(len(one.curve.settings) if has_boxes else 0):
            _draw_box(axes, one.curve, i, one.style)
        _draw_line(axes, one, one.curve.cost.mean, one.curve.reward.mean)
    for one in drawn:
        _draw_names(axes, one)
    _legend(figure, axes)
    return figure


def asked_figure(
    drawn: Sequence[Drawn], ends: tuple[float, float] | None = None, *, named: str = "optimum"
) -> Figure:
    """Returns the cost that was paid against the budget that was asked for.

    Args:
        drawn: curves whose settings are budgets, the first on top.
        ends: least and largest cost of the true frontier, if it is known: what can be spent.
        named: what the frontier is called.
    """
    figure = new_figure(height=4.8)
    axes = figure.subplots()
    axes.set_xlabel("budget asked for")
    axes.set_ylabel(COST)
    tidy(axes)
    budgets = np.concatenate([one.curve.settings for one in drawn])
    low, high = float(budgets.min()), float(budgets.max())
    axes.plot([low, high], [low, high], color=GREY, linewidth=1, label="cost = budget")
    if ends is not None:
        asked = np.unique(np.clip([low, *ends, high], low, high))
        spent = np.clip(asked, *ends)
        axes.plot(asked, spent, color=BLACK, linewidth=1.6, linestyle="--", label=named)
    for one in reversed(drawn):
        _draw_bars(axes, one)
    axes.set_xlim(*_limits([budgets]))
    axes.set_ylim(*_limits([one.curve.cost.mean for one in drawn] + [budgets]))
    _legend(figure, axes)
    return figure


def rounds_figure(rewards: Mapping[int, FloatArray], costs: Mapping[int, FloatArray]) -> Figure:
    """Returns mean rewards and costs of episodes of exploration, by seed, round by round."""
    figure = new_figure(height=3.2)
    for axes, by_seed, name in zip(
        figure.subplots(1, 2), (rewards, costs), ("reward", "cost"), strict=True
    ):
        tidy(axes)
        for found in by_seed.values():
            rounds = np.arange(1, len(found) + 1)
            axes.plot(rounds, found, color=SKY, linewidth=1, alpha=0.8)
        n_shared = min(len(found) for found in by_seed.values())
        mean = np.mean([found[:n_shared] for found in by_seed.values()], axis=0)
        axes.plot(np.arange(1, n_shared + 1), mean, "o-", color=BLUE, markersize=4)
        axes.set_xlabel("round")
        axes.set_ylabel(f"mean {name} of an episode")
        axes.xaxis.get_major_locator().set_params(integer=True)
    return figure


def leaving(drawn: Sequence[Drawn], figure: Figure) -> int:
    """Returns how many boxes of `trade_off_figure` leave its axes."""
    (left, right), (low, high) = figure.axes[0].get_xlim(), figure.axes[0].get_ylim()
    outside = 0
    for cost, reward in ((one.curve.cost, one.curve.reward) for one in drawn):
        is_out = (cost.low < left) | (cost.high > right)
        outside += int((is_out | (reward.low < low) | (reward.high > high)).sum())
    return outside


def _draw_names(axes: Axes, drawn: Drawn) -> None:
    """Names beside points, but for those that are too near to one with a name."""
    curve = drawn.curve
    size = np.array([np.ptp(axes.get_xlim()), np.ptp(axes.get_ylim())])
    named: list[FloatArray] = []
    for name, x, y in zip(drawn.names, curve.cost.mean, curve.reward.mean, strict=False):
        place = np.array([x, y]) / size
        if any((np.abs(place - other) < _NAME).all() for other in named):
            continue
        named.append(place)
        is_left = x < axes.get_xlim()[0] + 0.85 * size[0]
        axes.annotate(
            name,
            (x, y),
            xytext=(7 if is_left else -7, -9),
            textcoords="offset points",
            ha="left" if is_left else "right",
            fontsize=7,
            color=drawn.style.colour,
        )


def _draw_line(axes: Axes, drawn: Drawn, x: FloatArray, y: FloatArray) -> None:
    style = drawn.style
    line = "-" if style.is_filled else ":"
    axes.plot(
        x,
        y,
        marker=style.marker,
        color=style.colour,
        linewidth=1,
        linestyle=line if style.is_joined else "none",
        markersize=6,
        markerfacecolor=style.colour if style.is_filled else "white",
        label=drawn.curve.label,
    )


def _draw_box(axes: Axes, curve: Curve, i: int, style: Style) -> None:
    """The interval of a point in both directions; what is not finite is not drawn."""
    (left, right), (low, high) = ((c.low[i], c.high[i]) for c in (curve.cost, curve.reward))
    if not np.isfinite([left, right, low, high]).all():
        return
    size = np.array([right - left, high - low])
    is_small = (size < _FILLED * np.array([np.ptp(axes.get_xlim()), np.ptp(axes.get_ylim())])).all()
    is_filled = style.is_filled and bool(is_small)
    inside = (left <= curve.cost.mean) & (curve.cost.mean <= right)
    inside &= (low <= curve.reward.mean) & (curve.reward.mean <= high)
    n_around = max(int(inside.sum()), 1)  # the more boxes lie upon each other, the fainter
    axes.add_patch(
        Rectangle(
            (left, low),
            *size,
            facecolor=style.colour if is_filled else "none",
            edgecolor=style.colour,
            alpha=max(0.3 / (1 + n_around), 0.03) if is_filled else 0.5,
            linewidth=0.7,
            linestyle="-" if style.is_filled else ":",
            zorder=1,
        )
    )


def _draw_bars(axes: Axes, drawn: Drawn) -> None:
    curve, style = drawn.curve, drawn.style
    below, above = curve.cost.mean - curve.cost.low, curve.cost.high - curve.cost.mean
    is_known = np.isfinite(below) & np.isfinite(above)
    axes.errorbar(
        curve.settings[is_known],
        curve.cost.mean[is_known],
        yerr=np.stack([below[is_known], above[is_known]]),
        fmt="none",
        ecolor=style.colour,
        elinewidth=1,
        capsize=2.5,
        alpha=0.7,
    )
    _draw_line(axes, drawn, curve.settings, curve.cost.mean)


def _limits(values: Sequence[FloatArray]) -> tuple[float, float]:
    """Ends of an axis that shows all of them, with a margin."""
    every = np.concatenate([np.ravel(v) for v in values])
    every = every[np.isfinite(every)]
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 1.0)
    margin = _MARGIN * (high - low) or 1.0
    return low - margin, high + margin


def _legend(figure: Figure, axes: Axes) -> None:
    """Names below the axes, where they hide nothing."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles[::-1], labels[::-1], loc="outside lower center", ncols=2, fontsize=8, frameon=False
    )
