"""Figures and animations on maps: ways through corridors, and drives on a road.

Frames of animations are figures, drawn with few colours, so that GIF files are small and the same
whenever they are made.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.transforms import Affine2D
from PIL import Image

from bmdp.arrays import FloatArray
from bmdp.paper.results import Executions
from bmdp.report.drawing import BLACK, BLUE, COST, GREEN, GREY, ORANGE, RED, new_figure, tidy
from bmdp.report.section import Data

MOST_WAYS = 200  # of one map, evenly over rounds

_WALL = "0.5"
_N_ACROSS, _MOST_PANELS = 3, 6  # maps in a row, and in all
_DPI, _N_COLOURS = 80, 128  # of frames
_MOST_DRIVES, _MOST_FRAMES = 4, 90
_CAR = {"length": 5.0, "width": 2.0}  # metres, where a layout does not say
_VIEW = (60.0, 100.0)  # metres behind and ahead of the car


def draw_corridors(axes: Axes, layout: Data) -> None:
    """Draws the map: walls dark, cells that pay green, cells that cost red; numbers are rewards."""
    most = max((cell["reward"] for cell in layout["cells"]), default=0.0) or 1.0
    for cell in layout["cells"]:
        x, y, reward = cell["x"], cell["y"], cell["reward"]
        is_wall = cell.get("kind") == "wall"
        colour = _WALL if is_wall else _tint(reward / most, cell["cost"] > 0)
        axes.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor="0.6", linewidth=0.5))
        if reward:
            at = x + 0.95, y + 0.06
            axes.text(*at, f"{reward:g}", ha="right", va="top", fontsize=6, color="0.25")
    axes.set_xlim(0, layout["columns"])
    axes.set_ylim(layout["rows"], 0)
    axes.set(aspect="equal", xticks=[], yticks=[])


def draw_ways(axes: Axes, episodes: Sequence[Data], colour: str, *, alpha: float) -> list[Artist]:
    """Draws ways `x`, `y` as lines, with a dot where each ends; returns the artists."""
    ways = [way_of(episode) for episode in episodes]
    if not ways:
        return []
    ends = np.array([way[-1] for way in ways])
    lines = LineCollection(ways, colors=colour, linewidths=1.1, alpha=alpha)
    axes.add_collection(lines, autolim=False)
    dots = axes.plot(*ends.T, "o", color=colour, markersize=3, alpha=min(1.0, 2 * alpha))
    return [lines, *dots]


def way_of(episode: Data) -> FloatArray:
    """Returns the places of an episode, `[T, 2]`."""
    return np.stack([np.asarray(episode[name], np.float64) for name in ("x", "y")], axis=1)


def strategies_figure(strategies: Mapping[str, Data]) -> Figure:
    """Returns the ways that exploration took, a map for each strategy; the first is orange.

    Paper: the left half of its figure on exploration.
    """
    figure = new_figure(width=3.3 * len(strategies), height=3.3)
    panels = figure.subplots(1, len(strategies), squeeze=False)[0]
    for i, (axes, (name, found)) in enumerate(zip(panels, strategies.items(), strict=True)):
        draw_corridors(axes, found["layout"])
        every = [episode for one in found["rounds"] for episode in one["episodes"]]
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
    egos = {i: [ego_of(episode) for episode in found.episodes[i]] for i in chosen}
    lengths = (np.ptp(ego["x"]) for some in egos.values() for ego in some)
    longest = float(max(lengths, default=1.0))
    for axes, (i, some) in zip(panels, egos.items(), strict=True):
        draw_road(axes, found.layout, (0.0, 1.03 * longest))
        for ego in some:
            x, y = way_of(ego).T
            axes.plot(x - x[0], y, color=BLUE, linewidth=1, alpha=0.6)
            if any(ego.get("crashed") or ()):
                axes.plot(x[-1] - x[0], y[-1], "X", color=RED, markersize=7)
        axes.set_title(told(found, i).replace("\n", ": "), fontsize=8, loc="left")
    panels[-1].set_xlabel("metres from the start")
    panels[-1].set_xticks(np.arange(0, longest, 100))
    return figure


def draw_road(axes: Axes, layout: Data, ends: tuple[float, float]) -> None:
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


def ego_of(episode: Data) -> Data:
    """Returns the car that is driven."""
    cars: Sequence[Data] = episode["cars"]
    return next((car for car in cars if car.get("ego")), cars[0])


def told(found: Executions, i: int) -> str:
    """Returns a budget, its cost and its reward, in two lines."""
    return f"budget {found.budgets[i]:.3g}\ncost {found.cost[i]:.3f}, reward {found.reward[i]:.3g}"


def spread(n: int, most: int = _MOST_PANELS) -> list[int]:
    """Returns places of a list, from end to end, `most` at most.

    >>> spread(21), spread(2)
    ([0, 4, 8, 12, 16, 20], [0, 1])
    """
    return sorted({int(i) for i in np.linspace(0, n - 1, min(n, most)).round()})


# Animations


def rounds_gif(strategies: Mapping[str, Data]) -> bytes:
    """Returns exploration round by round: a map for each strategy, earlier rounds in grey.

    Paper: the first animations of the appendix.
    """
    n_rounds = max(len(found["rounds"]) for found in strategies.values())
    return gif_of((_round_frame(strategies, i) for i in range(n_rounds)), seconds=0.9)


def ways_gif(found: Executions) -> bytes:
    """Returns ways through corridors, one budget after the other, and what they cost.

    Paper: the animations of corridors in the appendix.
    """
    return gif_of(_ways_frames(found), seconds=0.6)


def drives_gif(found: Executions) -> bytes:
    """Returns a drive at some budgets, one below the other, in the same traffic.

    Paper: the animations of highway-env in the appendix.
    """
    chosen = [i for i in spread(len(found.budgets), _MOST_DRIVES) if found.episodes[i]]
    n_frames = max(len(ego_of(found.episodes[i][0])["x"]) for i in chosen)
    step = -(-n_frames // _MOST_FRAMES)
    seconds = step * float(found.episodes[chosen[0]][0].get("dt", 0.2))
    return gif_of(_drives_frames(found, chosen, range(0, n_frames, step)), seconds=seconds)


def gif_of(frames: Iterable[Figure], *, seconds: float) -> bytes:
    """Returns figures as an animation that starts over, after a rest at its end.

    Each is drawn before the next is asked for, so they may be one figure that changes.
    """
    pictures = [_picture(figure) for figure in frames]
    durations = [round(1000 * seconds)] * len(pictures)
    durations[-1] += 1500
    file = io.BytesIO()
    how: dict[str, Any] = {"duration": durations, "loop": 0, "optimize": True}
    pictures[0].save(file, format="GIF", save_all=True, append_images=pictures[1:], **how)
    return file.getvalue()


def _picture(figure: Figure) -> Image.Image:
    canvas: Any = FigureCanvasAgg(figure)  # whose methods have no types
    figure.set_dpi(_DPI)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3]
    whole = Image.fromarray(np.ascontiguousarray(pixels))
    return whole.quantize(_N_COLOURS, dither=Image.Dither.NONE)


def _round_frame(strategies: Mapping[str, Data], number: int) -> Figure:
    figure = Figure(figsize=(3.4 * len(strategies), 3.4))
    panels = figure.subplots(1, len(strategies), squeeze=False)[0]
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.01, top=0.88, wspace=0.03)
    for i, (axes, (name, found)) in enumerate(zip(panels, strategies.items(), strict=True)):
        draw_corridors(axes, found["layout"])
        past = [e for one in found["rounds"][:number] for e in one["episodes"]]
        draw_ways(axes, past, GREY, alpha=0.15)
        if number >= len(found["rounds"]):
            axes.set_title(f"{name}\nall {len(found['rounds'])} rounds", fontsize=9)
            continue
        now = found["rounds"][number]
        colour = ORANGE if i == 0 and len(strategies) > 1 else BLUE
        draw_ways(axes, now["episodes"], colour, alpha=0.6)
        axes.set_title(
            f"{name}, round {now['round'] + 1} of {len(found['rounds'])}\n"
            f"mean cost {now['cost']:.3f}, mean reward {now['reward']:.3g}",
            fontsize=9,
        )
    return figure


def _ways_frames(found: Executions) -> Iterator[Figure]:
    figure = Figure(figsize=(6.4, 3.2))
    left, right = figure.subplots(1, 2, width_ratios=[1.2, 1])
    figure.subplots_adjust(left=0.01, right=0.98, bottom=0.16, top=0.86, wspace=0.25)
    draw_corridors(left, found.layout)
    tidy(right)
    right.set_xlabel("budget asked for")
    right.set_ylabel(COST)
    ends = [0.0, max(float(found.budgets[-1]), float(np.nanmax(found.cost)))]
    right.plot(ends, ends, color=GREY, linewidth=1)
    right.plot(found.budgets, found.cost, ".-", color=BLUE, linewidth=1, alpha=0.5)
    (dot,) = right.plot([], [], "o", color=RED, markersize=8)
    for i, (budget, cost) in enumerate(zip(found.budgets, found.cost, strict=True)):
        ways = draw_ways(left, found.episodes[i], BLUE, alpha=0.7)
        left.set_title(told(found, i), fontsize=9)
        dot.set_data([budget], [cost])
        yield figure
        for artist in ways:
            artist.remove()


def _drives_frames(found: Executions, chosen: Sequence[int], at: range) -> Iterator[Figure]:
    figure = Figure(figsize=(6.4, 0.3 + 0.85 * len(chosen)))
    panels = figure.subplots(len(chosen), 1, squeeze=False)[:, 0]
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.01, top=0.94, hspace=0.3)
    drives = [_Drive(axes, found, i) for axes, i in zip(panels, chosen, strict=True)]
    for frame in at:
        for drive in drives:
            drive.show(frame)
        yield figure


class _Drive:
    """The first drive at a budget, on axes of its own."""

    def __init__(self, axes: Axes, found: Executions, i: int) -> None:
        self.axes, self.name = axes, f"budget {found.budgets[i]:.3g}"
        self.episode: Data = found.episodes[i][0]
        self.ego = ego_of(self.episode)
        draw_road(axes, found.layout, (0.0, 1.0))
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        length, width = (float(found.layout.get(f"car_{n}", d)) for n, d in _CAR.items())
        self.cars = [*(car for car in self.episode["cars"] if car is not self.ego), self.ego]
        self.bodies = [Rectangle((-length / 2, -width / 2), length, width) for _ in self.cars]
        for body in self.bodies:
            body.set(edgecolor=BLACK, linewidth=0.5)
            axes.add_patch(body)

    def show(self, at: int) -> None:
        """Puts all cars where they are; at the end of the drive they stay."""
        frame = min(at, len(self.ego["x"]) - 1)
        here = float(self.ego["x"][frame])
        self.axes.set_xlim(here - _VIEW[0], here + _VIEW[1])
        for car, body in zip(self.cars, self.bodies, strict=True):
            x, y, heading = (float(car[name][frame]) for name in ("x", "y", "heading"))
            body.set_visible(-_VIEW[0] < x - here < _VIEW[1])
            body.set_transform(Affine2D().rotate(heading).translate(x, y) + self.axes.transData)
            crashed = car.get("crashed") or ()
            has_crashed = frame < len(crashed) and crashed[frame]
            body.set_facecolor(RED if has_crashed else BLUE if car is self.ego else GREY)
        title = self.name + (" (over)" if at > frame else "")
        self.axes.set_title(title, fontsize=8, loc="left", pad=2)


def _alpha(n: int) -> float:
    return float(np.clip(6 / max(n, 1), 0.12, 0.8))


def _tint(share: float, is_dear: bool) -> tuple[float, ...]:
    """Colour of a cell: the more it pays, the darker."""
    if not share and not is_dear:
        return to_rgb("white")
    strength = 0.14 + 0.5 * float(np.clip(share, 0, 1)) ** 0.5
    colour = np.array(to_rgb(RED if is_dear else GREEN))
    return tuple((1 - strength) + strength * colour)
