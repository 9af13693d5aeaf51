"""The pictures of docs/paper/theory-in-pictures.md.

    python examples/theory_pictures.py --out docs/paper/theory

Draws what `theory_numbers.py` computes. Takes some seconds, and makes the same files whenever it is
run.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import theory_numbers as numbers
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from theory_numbers import ACTIONS, BUDGETS, N_CROSSINGS

from bmdp.paper.theory import GAMMA
from bmdp.report.drawing import (
    BLACK,
    BLUE,
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

LOOKS = ((GREEN, "o"), (BLUE, "s"), (RED, "^"))
"""Colour and marker of each action of the ferry."""

WIDTH = 4.8  # inches: letters stay large enough on a telephone
ASKED, TRAVELS = 0.3, 0.45  # budgets of the first and of the third picture


def frontier_picture(found: numbers.Points) -> Figure:
    """Returns the points of a state, their frontier, and a budget that two vertices spend."""
    figure = new_figure(WIDTH, 4.4)
    axes = figure.subplots()
    plane(axes)
    mixture, frontier = found.mixture, found.frontier
    axes.plot(frontier.costs, frontier.rewards, color=BLACK, linewidth=1.2, label="frontier")
    for costs, rewards, name, (colour, marker) in zip(*found[:2], ACTIONS, LOOKS, strict=True):
        axes.plot(costs, rewards, color=colour, linewidth=0.8, linestyle=":")
        axes.plot(costs, rewards, marker, color=colour, markersize=7, label=name, **_RIM)
    axes.axvline(mixture.cost, color=GREY, linestyle="--", linewidth=1)
    axes.text(mixture.cost + 0.01, 2.75, f"budget {mixture.cost:g}", color=GREY, va="bottom")
    ends = [mixture.lower, mixture.upper]
    axes.plot(frontier.costs[ends], frontier.rewards[ends], color=ORANGE, linewidth=4, zorder=1)
    axes.plot(mixture.cost, mixture.reward, "*", color=ORANGE, markersize=17, **_EDGE)
    axes.annotate(
        _mixture_words(found),
        (mixture.cost, mixture.reward),
        (0.34, 5.45),
        arrowprops={"arrowstyle": "-", "color": ORANGE, "relpos": (0, 1)},
        va="top",
    )
    axes.legend(loc="lower right", frameon=False)
    return figure


_EDGE: dict[str, Any] = {"markeredgecolor": "black", "markeredgewidth": 0.8}
_RIM: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.8}


def _mixture_words(found: numbers.Points) -> str:
    """The mixture, vertex by vertex."""
    assert found.frontier.index is not None
    mixture, lines = found.mixture, []
    shares = (1 - mixture.p_upper, mixture.lower), (mixture.p_upper, mixture.upper)
    for share, vertex in shares:
        action, place = divmod(int(found.frontier.index[vertex]), len(BUDGETS))
        lines.append(f"{100 * share:.0f} % {ACTIONS[action]}, hand on {BUDGETS[place]:g}")
    return "\n".join([*lines, f"cost {mixture.cost:.2f}, reward {mixture.reward:.2f}"])


def dial_picture(found: numbers.Dial) -> Figure:
    """Returns chances of actions, and when the budget is spent, as the budget rises."""
    figure = new_figure(WIDTH, 5.4)
    upper, lower = figure.subplots(2, sharex=True)
    upper.stackplot(found.budgets, found.chances.T, colors=[look[0] for look in LOOKS])
    places = (0.015, 0.2, 90), (0.17, 0.5, 0), (0.57, 0.5, 0)
    for name, (x, y, angle) in zip(ACTIONS, places, strict=True):
        upper.text(x, y, name, ha="center", rotation=angle, **_ON_COLOUR)
    upper.set(ylabel="chance", ylim=(0, 1), title="what is done at the first crossing")
    lower.stackplot(found.budgets, found.now, found.later, colors=[ORANGE, SKY])
    lower.text(0.6, 0.08, "at this crossing", ha="center", **_ON_COLOUR)
    lower.text(0.6, 0.36, "later", ha="center", **_ON_COLOUR)
    lower.set(ylabel="expected cost", title="when the budget is spent", xlabel="budget")
    lower.set(xlim=(0, found.budgets[-1]), ylim=(0, None))
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize(10)
    return figure


_ON_COLOUR: dict[str, Any] = {
    "va": "center",
    "bbox": {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none"},
}


def travel_picture(found: numbers.Travel) -> Figure:
    """Returns bands for what is held before each crossing, and bars for what was paid by then."""
    figure = new_figure(WIDTH, 6.0)
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(3, 2))
    for axes in (upper, lower):
        tidy(axes)
        axes.grid(axis="x", visible=False)
    _draw_bands(upper, found.moves)
    upper.set(ylabel="budget held", ylim=(-0.1, 0.56))
    upper.set_yticks(np.arange(6) / 10)
    upper.set_title("one budget becomes many", fontsize=10)
    where = np.arange(N_CROSSINGS + 1)
    lower.bar(where, found.paid, 0.5, color=ORANGE, label="paid so far")
    lower.bar(where, found.held, 0.5, bottom=found.paid, color=SKY, hatch="//", **_WHITE)
    for x, paid, held in zip(where, found.paid, found.held, strict=True):
        for bottom, height in ((0.0, paid), (paid, held)):
            if height > 0:
                lower.text(x, bottom + height / 2, f"{height:.3g}", ha="center", **_ON_COLOUR)
    total = found.paid[0] + found.held[0]
    lower.axhline(total, color=BLACK, linestyle="--", linewidth=1)
    lower.set(ylabel="mean", ylim=(0, 0.62), xlim=(-0.45, N_CROSSINGS + 0.45))
    lower.set_xticks(where, [*(f"before\ncrossing {k + 1}" for k in range(N_CROSSINGS)), "end"])
    lower.set_title(f"paid and held add up to {total:g} at every step", fontsize=10)
    lower.legend(loc="upper right", ncols=2, frameon=False)
    return figure


_WHITE: dict[str, Any] = {"edgecolor": "white", "linewidth": 0, "label": "still held"}
_THICK = 0.1  # of a band that has all the chance, in units of the budget


def _draw_bands(axes: Axes, moves: list[numbers.Move]) -> None:
    """Bands from budget to budget, as thick as they are likely, in the colours of actions."""
    ways = np.linspace(0, 1, 40)
    bend = ways**2 * (3 - 2 * ways)
    tops: defaultdict[tuple[int, float, str], float] = defaultdict(float)
    nodes: defaultdict[tuple[int, float], float] = defaultdict(float)
    for move in moves:
        nodes[move.crossing + 1, move.handed_on] += move.chance
        nodes[move.crossing, move.held] += move.chance if move.crossing == 0 else 0
    for move in sorted(moves, key=lambda m: (m.crossing, -m.held, -m.handed_on, m.action)):
        ends = []
        places = (move.crossing, move.held, "out"), (move.crossing + 1, move.handed_on, "in")
        for place in places:
            middle = place[1] + _THICK * (nodes[place[0], place[1]] / 2 - tops[place])
            ends.append(middle)
            tops[place] += move.chance
        edge = ends[0] + (ends[1] - ends[0]) * bend
        label = ACTIONS[move.action]
        seen = axes.get_legend_handles_labels()[1]
        axes.fill_between(
            move.crossing + 0.03 + 0.94 * ways,
            edge,
            edge - _THICK * move.chance,
            color=LOOKS[move.action][0],
            alpha=0.75,
            linewidth=0,
            label="_" if label in seen else label,
        )
    for (step, budget), chance in nodes.items():
        half = _THICK * chance / 2
        axes.plot([step, step], [budget - half, budget + half], color=BLACK, linewidth=4)
        words = f"{budget:g}" if chance > 0.999 else f"{budget:g} ({100 * chance:.0f} %)"
        is_top = budget == max(other for at, other in nodes if at == step)
        side, x, y = (1, "left", "bottom") if is_top else (-1, "right", "top")
        axes.text(step - 0.04 * side, budget + side * (half + 0.01), words, ha=x, va=y)
    axes.legend(loc="upper right", frameon=False)


def branches_picture(found: numbers.Branches) -> Figure:
    """Returns where each way takes the risk, and what the ways earn at all budgets."""
    figure = new_figure(WIDTH, 5.8)
    upper, lower = figure.subplots(2, height_ratios=(2, 3))
    ways = {"operator": ("budget", BLUE, ""), "carried": ("price", ORANGE, "//")}
    heights = np.arange(2)[::-1]
    for shift, (way, (name, colour, hatch)) in zip((0.19, -0.19), ways.items(), strict=True):
        risks = found.risks[way]
        earned = float(risks @ np.array(found.payoffs)) / 2
        label = f"same {name} in both branches: earns {earned:g}"
        upper.barh(
            heights + shift, risks, 0.34, color=colour, hatch=hatch, edgecolor="white", label=label
        )
        for y, risk in zip(heights + shift, risks, strict=True):
            upper.text(risk + 0.015, y, f"{risk:g}", va="center")
    upper.set_yticks(heights, [f"risk\npays {pay:g}" for pay in found.payoffs])
    upper.set(xlabel="chance of taking the risk, if the branch is reached", xlim=(0, 1.1))
    tidy(upper)
    upper.grid(axis="y", visible=False)
    upper.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
    plane(lower)
    looks: dict[str, dict[str, Any]] = {
        "linear_program": {"color": BLACK, "label": "optimum (linear program)"},
        "carried": {"color": ORANGE, "marker": "X", "ls": "", "label": "a price, carried"},
        "operator": {"color": BLUE, "marker": "o", "label": "the paper's operator T"},
    }
    for way, look in looks.items():
        lower.plot(*found.frontiers[way], markersize=7, **look)
    lower.axvline(found.budget, color=GREY, linestyle="--", linewidth=1)
    lower.legend(loc="lower right", edgecolor="none", framealpha=1)
    return figure


def stretch_picture(found: numbers.Stretch) -> Figure:
    """Returns two near frontiers of which a budget buys far from the same, and stretch by slope."""
    figure = new_figure(WIDTH, 6.2)
    upper, lower = figure.subplots(2)
    pair, marks = found.pair, (("first", "Q1", BLUE, "o"), ("second", "Q2", ORANGE, "s"))
    plane(upper)
    upper.axvline(pair["budget"], color=GREY, linestyle="--", linewidth=1)
    for side, name, colour, marker in marks:
        graph = pair[side]
        upper.plot(graph["costs"], graph["rewards"], f"{marker}-", color=colour, label=name)
        chosen = graph["chosen"]["cost"], graph["chosen"]["reward"]
        upper.plot(*chosen, "o", markersize=15, markerfacecolor="none", color=colour)
    upper.text(pair["budget"] + 0.004, 1.2, f"budget {pair['budget']:g}", color=GREY)
    upper.set(xlim=(-0.02, 0.25), ylim=(-0.15, 1.3))
    upper.legend(loc="lower right", frameon=False)
    words = f"{pair['distance']:g} apart; after T, {pair['image_distance']:g} apart"
    upper.set_title(words, fontsize=10)
    slopes = np.geomspace(0.01, 200, 100)
    tidy(lower)
    lower.loglog(slopes, GAMMA * (1 + slopes), color=BLACK, linewidth=1, label="0.9 (1 + slope)")
    lower.plot(found.slopes, found.largest, "D", color=PURPLE, label="worst of random pairs")
    lower.plot(found.pair_slopes, found.pair_stretch, "o", color=BLUE, label="pairs as above")
    lower.axhspan(0.6, 1, color=GREEN, alpha=0.15, linewidth=0)
    lower.text(20, 0.78, "T contracts", color=GREEN, va="center", weight="bold")
    lower.set(xlabel="steepest slope of the frontiers", ylabel="stretch by T", ylim=(0.6, 200))
    lower.legend(loc="upper left", frameon=False)
    return figure


def main(arguments: list[str] | None = None) -> None:
    """Draws, writes and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("out/theory"), help="folder")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    pictures = {
        "points": frontier_picture(numbers.points(ASKED)),
        "dial": dial_picture(numbers.dial(np.linspace(0, BUDGETS[-1], 321))),
        "travel": travel_picture(numbers.travel(TRAVELS)),
        "branches": branches_picture(numbers.two_branches()),
        "stretch": stretch_picture(numbers.stretch()),
    }
    for name, figure in pictures.items():
        figure.savefig(options.out / f"{name}.png", dpi=150, metadata={"Software": None})
        print(options.out / f"{name}.png")


if __name__ == "__main__":
    main()
