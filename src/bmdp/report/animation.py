"""Animations as GIF files: exploration round by round, and what a policy does at each budget.

Frames are figures, drawn with few colours, so that files are small and the same whenever they are
made.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.transforms import Affine2D
from PIL import Image

from bmdp.report.drawing import BLACK, BLUE, COST, GREY, ORANGE, RED, tidy
from bmdp.report.maps import draw_corridors, draw_road, draw_ways, ego_of, spread, told
from bmdp.report.pieces import Executions, Piece, Rounds

_DPI = 80
_N_COLOURS = 128
_MOST_DRIVES = 4
_MOST_FRAMES = 90
_CAR = {"length": 5.0, "width": 2.0}  # metres, where a layout does not say
_VIEW = (60.0, 100.0)  # metres behind and ahead of the car


def rounds_gif(strategies: Mapping[str, Rounds]) -> bytes:
    """Returns exploration round by round: a map for each strategy, earlier rounds in grey.

    Paper: the first animations of the appendix.
    """
    n_rounds = max(len(found.rounds) for found in strategies.values())
    frames = (_round_frame(strategies, i) for i in range(n_rounds))
    return gif_of(frames, seconds=0.9)


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

    Args:
        frames: of the same size; each is drawn before the next is asked for.
        seconds: that each is shown.
    """
    pictures = [_picture(figure) for figure in frames]
    durations = [round(1000 * seconds)] * len(pictures)
    durations[-1] += 1500
    file = io.BytesIO()
    pictures[0].save(
        file,
        format="GIF",
        save_all=True,
        append_images=pictures[1:],
        duration=durations,
        loop=0,
        optimize=True,
    )
    return file.getvalue()


def _picture(figure: Figure) -> Image.Image:
    canvas: Any = FigureCanvasAgg(figure)  # whose methods have no types
    figure.set_dpi(_DPI)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3]
    whole = Image.fromarray(np.ascontiguousarray(pixels))
    return whole.quantize(_N_COLOURS, dither=Image.Dither.NONE)


def _round_frame(strategies: Mapping[str, Rounds], number: int) -> Figure:
    figure = Figure(figsize=(3.4 * len(strategies), 3.4))
    panels = figure.subplots(1, len(strategies), squeeze=False)[0]
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.01, top=0.88, wspace=0.03)
    for i, (axes, (name, found)) in enumerate(zip(panels, strategies.items(), strict=True)):
        draw_corridors(axes, found.layout)
        past = [e for one in found.rounds[:number] for e in one.episodes]
        draw_ways(axes, past, GREY, alpha=0.15)
        if number >= len(found.rounds):
            axes.set_title(f"{name}\nall {len(found.rounds)} rounds", fontsize=9)
            continue
        now = found.rounds[number]
        draw_ways(axes, now.episodes, ORANGE if i == 0 and len(strategies) > 1 else BLUE, alpha=0.6)
        axes.set_title(
            f"{name}, round {now.number + 1} of {len(found.rounds)}\n"
            f"mean cost {now.cost:.3f}, mean reward {now.reward:.3g}",
            fontsize=9,
        )
    return figure


def _ways_frames(found: Executions) -> Iterator[Figure]:
    """The same figure again and again, with other ways."""
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
    """The same figure again and again, with cars at other places."""
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
        self.episode: Piece = found.episodes[i][0]
        self.ego = ego_of(self.episode)
        draw_road(axes, found.layout, (0.0, 1.0))
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        length, width = (float(found.layout.get(f"car_{n}", d)) for n, d in _CAR.items())
        self.cars = [car for car in self.episode["cars"] if car is not self.ego] + [self.ego]
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
