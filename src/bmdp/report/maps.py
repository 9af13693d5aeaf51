"""Figures on maps: ways through corridors, and drives on a road, by budget or by exploration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from bmdp.arrays import FloatArray
from bmdp.report.drawing import BLUE, GREEN, ORANGE, RED, new_figure
from bmdp.report.pieces import Executions, Piece, Rounds

WALL = "0.5"
MOST_PANELS = 6
MOST_WAYS = 200  # of one map, evenly over rounds
_N_ACROSS = 3  # maps in a row


def draw_corridors(axes: Axes, layout: Piece) -> None:
    """Draws the map: walls dark, cells that pay green, cells that cost red and hatched.

    Numbers are rewards.
    """
    most = max((cell["reward"] for cell in layout["cells"]), default=0.0) or 1.0
    for cell in layout["cells"]:
        x, y, reward, is_dear = cell["x"], cell["y"], cell["reward"], cell["cost"] > 0
        is_wall = cell.get("kind") == "wall"
        axes.add_patch(
            Rectangle(
                (x, y),
                1,
                1,
                facecolor=WALL if is_wall else _tint(reward / most, is_dear),
                edgecolor="0.6",
                linewidth=0.5,
            )
        )
        if reward:
            at = x + 0.95, y + 0.06
            axes.text(*at, f"{reward:g}", ha="right", va="top", fontsize=6, color="0.25")
    axes.set_xlim(0, layout["columns"])
    axes.set_ylim(layout["rows"], 0)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])


def draw_ways(axes: Axes, episodes: Sequence[Piece], colour: str, *, alpha: float) -> list[Artist]:
    """Draws ways `x`, `y` as lines, with a dot where each ends, and returns what was drawn."""
    ways = [way_of(episode) for episode in episodes]
    if not ways:
        return []
    ends = np.array([way[-1] for way in ways])
    lines = LineCollection(ways, colors=colour, linewidths=1.1, alpha=alpha)
    axes.add_collection(lines, autolim=False)
    dots = axes.plot(*ends.T, "o", color=colour, markersize=3, alpha=min(1.0, 2 * alpha))
    return [lines, *dots]


def way_of(episode: Piece) -> FloatArray:
    """Returns the places of an episode, `[T, 2]`."""
    return np.stack([np.asarray(episode[name], np.float64) for name in ("x", "y")], axis=1)


def strategies_figure(strategies: Mapping[str, Rounds]) -> Figure:
    """Returns the ways that exploration took, a map for each strategy.

    Args:
        strategies: by name; the first is drawn orange, as the paper's risk-neutral one, the others
            blue.

    Paper: the left half of its figure on exploration.
    """
    figure = new_figure(width=3.3 * len(strategies), height=3.3)
    panels = figure.subplots(1, len(strategies), squeeze=False)[0]
    for i, (axes, (name, found)) in enumerate(zip(panels, strategies.items(), strict=True)):
        draw_corridors(axes, found.layout)
        every = [episode for one in found.rounds for episode in one.episodes]
        episodes = [every[k] for k in spread(len(every), MOST_WAYS)]
        draw_ways(axes, episodes, ORANGE if i == 0 else BLUE, alpha=_alpha(len(episodes)))
        axes.set_title(f"{name}, {len(episodes)} episodes", fontsize=9)
    return figure


def ways_figure(found: Executions) -> Figure:
    """Returns ways through corridors at some budgets, a map for each."""
    chosen = spread(len(found.budgets))
    n_rows = -(-len(chosen) // _N_ACROSS)
    figure = new_figure(width=7.2, height=2.6 * n_rows)
    panels = figure.subplots(n_rows, _N_ACROSS, squeeze=False).ravel()
    for axes in panels[len(chosen) :]:
        axes.set_axis_off()
    for axes, i in zip(panels, chosen, strict=False):
        draw_corridors(axes, found.layout)
        draw_ways(axes, found.episodes[i], BLUE, alpha=_alpha(len(found.episodes[i])))
        axes.set_title(told(found, i), fontsize=8)
    return figure


def drives_figure(found: Executions) -> Figure:
    """Returns drives on the road at some budgets: where the car was, metre by metre."""
    chosen = spread(len(found.budgets))
    figure = new_figure(width=7.4, height=0.5 + 1.05 * len(chosen))
    panels = figure.subplots(len(chosen), 1, sharex=True, squeeze=False)[:, 0]
    longest = max(
        (float(np.ptp(way[:, 0])) for i in chosen for way in map(ego_way, found.episodes[i])),
        default=1.0,
    )
    for axes, i in zip(panels, chosen, strict=True):
        draw_road(axes, found.layout, (0.0, 1.03 * longest))
        for episode in found.episodes[i]:
            way = ego_way(episode)
            axes.plot(way[:, 0] - way[0, 0], way[:, 1], color=BLUE, linewidth=1, alpha=0.6)
            if has_crashed(episode):
                axes.plot(way[-1, 0] - way[0, 0], way[-1, 1], "X", color=RED, markersize=7)
        axes.set_title(told(found, i).replace("\n", ": "), fontsize=8, loc="left")
    panels[-1].set_xlabel("metres from the start")
    panels[-1].set_xticks(np.arange(0, longest, 100))
    return figure


def draw_road(axes: Axes, layout: Piece, ends: tuple[float, float]) -> None:
    """Draws a road: lanes from top to bottom, the one of oncoming cars hatched."""
    width, n_lanes = float(layout["lane_width"]), int(layout["n_lanes"])
    top, bottom = -width / 2, (n_lanes - 0.5) * width
    axes.axhspan(top, bottom, color="0.93", zorder=0)
    axes.axhspan(top, top + width, facecolor="none", edgecolor="0.8", hatch="///", zorder=0)
    for lane in range(1, n_lanes):
        axes.axhline(top + lane * width, color="0.5", linestyle=(0, (8, 6)), linewidth=0.8)
    for edge in (top, bottom):
        axes.axhline(edge, color="0.3", linewidth=1)
    axes.set_xlim(*ends)
    axes.set_ylim(bottom + 1, top - 1)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)


def ego_of(episode: Piece) -> Piece:
    """Returns the car that is driven."""
    cars: Sequence[Piece] = episode["cars"]
    return next((car for car in cars if car.get("ego")), cars[0])


def ego_way(episode: Piece) -> FloatArray:
    """Returns where the car that is driven was, `[F, 2]`."""
    return way_of(ego_of(episode))


def has_crashed(episode: Piece) -> bool:
    """Returns whether the car that is driven has crashed."""
    return any(ego_of(episode).get("crashed") or ())


def told(found: Executions, i: int) -> str:
    """Returns what a budget is, pays and earns, in two lines."""
    return f"budget {found.budgets[i]:.3g}\ncost {found.cost[i]:.3f}, reward {found.reward[i]:.3g}"


def spread(n: int, most: int = MOST_PANELS) -> list[int]:
    """Returns places of a list, from end to end, `most` at most.

    >>> spread(21), spread(2)
    ([0, 4, 8, 12, 16, 20], [0, 1])
    """
    return sorted({int(i) for i in np.linspace(0, n - 1, min(n, most)).round()})


def _alpha(n: int) -> float:
    """Fainter lines where there are many."""
    return float(np.clip(6 / max(n, 1), 0.12, 0.8))


def _tint(share: float, is_dear: bool) -> tuple[float, ...]:
    """Colour of a cell: the more it pays, the darker."""
    if not share and not is_dear:
        return to_rgb("white")
    strength = 0.14 + 0.5 * float(np.clip(share, 0, 1)) ** 0.5
    colour = np.array(to_rgb(RED if is_dear else GREEN))
    return tuple((1 - strength) + strength * colour)
