"""Pictures of the two-way road around the ego car, as pixels and as SVG, in true proportions.

A picture shows the road from 30 m behind the ego car to 170 m ahead of it. The ego car is blue,
cars that drive in the direction of x are grey, oncoming ones orange, crashed ones red; the
colour-blind can tell them apart. The light windscreen is near the front of a car. Dashes begin
every 10 m of the road, marks beside it stand every 50 m.

Both forms are made of the same rectangles: those of the road, and those of a car in its own
coordinates, which its place and heading carry onto the road. A still is a film of one state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bmdp.envs.two_way import physics
from bmdp.envs.two_way.physics import CAR_LENGTH, CAR_WIDTH, LANE_WIDTH, ROAD_LENGTH, RoadState
from bmdp.errors import DataError

# What is seen, in m: along the road from the ego car on, and across it.
BEHIND, AHEAD, TOP, BOTTOM = 30, 170, -4, 8

BLUE, GREY, ORANGE, RED = "#3d8bff", "#b4b8be", "#ffb000", "#e8303a"  # cars
ASPHALT, VERGE, PAINT, MARK, GAP = "#3f4247", "#b9c6aa", "#ffffff", "#6f7d60", "#f4f4f4"

_DASH, _DASH_STEP, _MARK_STEP, _LINE, _CAPTION = 4, 10, 50, 0.2, 5  # m


class _Box(NamedTuple):
    """A rectangle: its middle and its size along and across, in m."""

    x: float
    y: float
    length: float
    width: float
    colour: str = ""  # that of the car, if none
    light: float = 0.0  # share of white in it


class _Car(NamedTuple):
    """Where a car is, and how it looks."""

    x: float
    y: float
    heading: float
    colour: str
    name: str


_ROAD = _Car(0.0, 0.0, 0.0, "", "road")  # whose own coordinates are those of the road
_PARTS = (_Box(0, 0, CAR_LENGTH, CAR_WIDTH), _Box(0.8, 0, 1.2, 1.7, light=0.8))  # with windscreen


def picture(state: RoadState, row: int = 0, *, scale: int = 6) -> NDArray[np.uint8]:
    """Returns a picture of one road of a state, `[12 * scale, 200 * scale, 3]`.

    Args:
        state: of `N` roads.
        row: which of them.
        scale: pixels a metre.

    >>> from bmdp.envs.two_way import TwoWay
    >>> state = TwoWay(vehicles=1).start(np.zeros((1, 1)))
    >>> drawn = picture(state, scale=1)
    >>> drawn.shape, bytes(drawn[8, 29]).hex()  # the ego car, seen from above
    ((12, 200, 3), '3d8bff')
    """
    left = float(state.x[row, 0]) - BEHIND
    canvas = _plain(VERGE, (BOTTOM - TOP) * scale, (BEHIND + AHEAD) * scale)
    for box in _road(left, left + BEHIND + AHEAD):
        _paint(canvas, box, _ROAD, left, scale)
    for car in _cars(state, row):
        for part in _PARTS:
            _paint(canvas, part, car, left, scale)
    return canvas


def filmstrip(states: Sequence[RoadState], row: int = 0, *, scale: int = 6) -> NDArray[np.uint8]:
    """Returns the pictures of states under each other, with a light gap between them.

    Args:
        states: each of `N` roads.
        row: which of them.
        scale: pixels a metre.

    >>> from bmdp.envs.two_way import TwoWay
    >>> state = TwoWay(vehicles=1).start(np.zeros((1, 1)))
    >>> filmstrip([state, state], scale=1).shape  # two of height 12, and a gap of 1
    (25, 200, 3)
    """
    gap = _plain(GAP, max(scale // 2, 1), (BEHIND + AHEAD) * scale)
    parts = [part for state in states for part in (gap, picture(state, row, scale=scale))]
    return np.concatenate(parts[1:])


def svg(state: RoadState, row: int = 0) -> str:
    """Returns the picture of one road of a state as an SVG document, with a line of text.

    Args:
        state: of `N` roads.
        row: which of them.

    >>> from bmdp.envs.two_way import TwoWay
    >>> "drives at 30.0 m/s on the own lane" in svg(TwoWay(vehicles=1).start(np.zeros((1, 1))))
    True
    """
    title = (
        f"Two-way road after {state.time[row]} s: the ego car drives at "
        f"{state.speed[row, 0]:.1f} m/s on the {_lane(state, row)}, and has "
        f"{'crashed' if state.crashed[row, 0] else 'not crashed'}."
    )
    return _document(title, [state], row, 0.0)


def film(states: Sequence[RoadState], row: int = 0, *, seconds_per_frame: float = 1 / 15) -> str:
    """Returns a drive as an animated SVG document, which begins again when it is over.

    The camera follows the ego car. The line of text changes with the second, the lane and a crash.
    To pause at the end, repeat the last state.

    Args:
        states: one for each frame, all with the same cars.
        row: which road of them.
        seconds_per_frame: for which each is shown.

    Raises:
        DataError: if there is no state, or a car appears or disappears.

    >>> from bmdp.envs.two_way import TwoWay
    >>> task = TwoWay(vehicles=1)
    >>> frames = task.frames(task.start(np.zeros((1, 1))), np.array([physics.IDLE]))
    >>> "Drive of 1.0 s on the two-way road: the ego car does not crash." in film(frames)
    True
    """
    if len(kinds := {state.present[row].tobytes() for state in states}) != 1:
        raise DataError(f"film: states must all have the same cars; got {len(kinds)} sets of cars.")
    seconds = len(states) * seconds_per_frame
    ending = "crashes" if any(state.crashed[row, 0] for state in states) else "does not crash"
    title = f"Drive of {seconds:.1f} s on the two-way road: the ego car {ending}."
    return _document(title, states, row, seconds)


def _road(left: float, right: float) -> list[_Box]:
    """The stretch of road from one place to another."""
    middle, borders = ROAD_LENGTH / 2, (-LANE_WIDTH / 2, 1.5 * LANE_WIDTH)
    boxes = [_Box(middle, LANE_WIDTH / 2, ROAD_LENGTH, 2 * LANE_WIDTH, ASPHALT)]
    boxes += [_Box(middle, y, ROAD_LENGTH, _LINE, PAINT) for y in borders]
    dashes = np.arange(_DASH / 2, ROAD_LENGTH, _DASH_STEP)
    boxes += [_Box(x, LANE_WIDTH / 2, _DASH, _LINE, PAINT) for x in dashes]
    for x in np.arange(0, ROAD_LENGTH + 1, _MARK_STEP):
        boxes += [_Box(x, y, 0.4, 1.0, MARK) for y in (borders[0] - 1, borders[1] + 1)]
    return [b for b in boxes if b.x + b.length / 2 > left and b.x - b.length / 2 < right]


def _cars(state: RoadState, row: int) -> list[_Car]:
    """The cars that are there, the ego car last, on top of the others."""
    cars = []
    for v in np.flatnonzero(state.present[row])[::-1].tolist():
        x, y, heading = (float(column[row, v]) for column in (state.x, state.y, state.heading))
        colour = BLUE if v == 0 else GREY if np.cos(heading) >= 0 else ORANGE
        colour = RED if state.crashed[row, v] else colour
        cars.append(_Car(x, y, heading, colour, "car" if v else "car ego"))
    return cars


def _plain(colour: str, height: int, width: int) -> NDArray[np.uint8]:
    """A canvas of one colour."""
    return np.full((height, width, 3), list(bytes.fromhex(colour[1:])), np.uint8)


def _paint(canvas: NDArray[np.uint8], box: _Box, car: _Car, left: float, scale: int) -> None:
    """Paints the pixels whose middle is in a box of a car, at least one across a thin box."""
    cosine, sine = np.cos(car.heading), np.sin(car.heading)
    length, width = (max(size, 1.2 / scale) / 2 for size in (box.length, box.width))
    middle_x = car.x + cosine * box.x - sine * box.y - left
    middle_y = car.y + sine * box.x + cosine * box.y - TOP
    rows = _pixels(middle_y, abs(sine) * length + abs(cosine) * width, scale, canvas.shape[0])
    columns = _pixels(middle_x, abs(cosine) * length + abs(sine) * width, scale, canvas.shape[1])
    y, x = np.ogrid[rows, columns]
    x, y = (x + 0.5) / scale - middle_x, (y + 0.5) / scale - middle_y
    inside = (abs(cosine * x + sine * y) <= length) & (abs(cosine * y - sine * x) <= width)
    colour = _plain(box.colour or car.colour, 1, 1)[0, 0]
    canvas[rows, columns][inside] = np.rint(colour + box.light * (255.0 - colour))


def _pixels(middle: float, reach: float, scale: int, size: int) -> slice:
    """The rows or columns of a canvas that an interval, in m, may touch."""
    begin, end = scale * (middle - reach), scale * (middle + reach)
    return slice(*(int(min(max(edge, 0), size)) for edge in (np.floor(begin), np.ceil(end))))


def _lane(state: RoadState, row: int) -> str:
    """The lane of the ego car in words."""
    return "own lane" if state.lane[row, 0] == physics.OWN else "oncoming lane"


def _document(title: str, states: Sequence[RoadState], row: int, seconds: float) -> str:
    """The SVG document of a film that takes some seconds."""
    places = [float(state.x[row, 0]) for state in states]
    road = "".join(map(_rect, _road(min(places) - BEHIND, max(places) + AHEAD)))
    tracks = zip(*(_cars(state, row) for state in states), strict=True)
    cars = "".join(_track(track, seconds) for track in tracks)
    width, height = BEHIND + AHEAD, BOTTOM - TOP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="100%" '
        f'viewBox="{-BEHIND} {TOP - _CAPTION} {width} {height + _CAPTION}"><title>{title}</title>'
        f"{_rect(_Box(width / 2 - BEHIND, TOP - _CAPTION / 2, width, _CAPTION, PAINT))}"
        f'{_captions(states, row, seconds)}<svg x="{-BEHIND}" y="{TOP}" width="{width}" '
        f'height="{height}" viewBox="{-BEHIND} {TOP} {width} {height}">'  # which clips the scene
        f"{_rect(_Box(width / 2 - BEHIND, TOP + height / 2, width, height, VERGE))}"
        f"{_moved('translate', [_short(-x) for x in places], seconds)}{road}{cars}</g></svg></svg>"
    )


def _rect(box: _Box) -> str:
    """A box in SVG; with the colour of its group if it has none."""
    fill = f' fill="{box.colour}"' if box.colour else ""
    fill = f' fill="#ffffff" fill-opacity="{box.light}"' if box.light else fill
    return (
        f'<rect x="{_short(box.x - box.length / 2)}" y="{_short(box.y - box.width / 2)}" '
        f'width="{_short(box.length)}" height="{_short(box.width)}"{fill}/>'
    )


def _track(track: tuple[_Car, ...], seconds: float) -> str:
    """One car of a film, which moves, turns, and changes its colour."""
    places = [f"{_short(car.x)},{_short(car.y)}" for car in track]
    turns = [_short(turn) for turn in np.degrees(np.unwrap([car.heading for car in track]))]
    colours = [car.colour for car in track]
    return (
        f'<g class="{track[0].name}" fill="{colours[0]}">{_switched("fill", colours, seconds)}'
        f"{_moved('translate', places, seconds)}{_moved('rotate', turns, seconds)}"
        f"{''.join(map(_rect, _PARTS))}</g></g></g>"
    )


def _captions(states: Sequence[RoadState], row: int, seconds: float) -> str:
    """The lines of text, of which one is visible at a time."""
    moments = [(state.time[row], _lane(state, row), state.crashed[row, 0]) for state in states]
    captions = []
    for time, lane, crashed in dict.fromkeys(moments):
        shown = ["visible" if m == (time, lane, crashed) else "hidden" for m in moments]
        speed = states[shown.index("visible")].speed[row, 0]
        captions.append(
            f'<text x="{1 - BEHIND}" y="{TOP - 1.5}" font-family="sans-serif" font-size="3.2" '
            f'visibility="{shown[0]}">{_switched("visibility", shown, seconds)}t = {time} s '
            f"· {speed:.1f} m/s · {lane}{' · crashed' if crashed else ''}</text>"
        )
    return "".join(captions)


def _moved(kind: str, values: list[str], seconds: float) -> str:
    """A group, still open, with a transformation that goes evenly from value to value."""
    group = f'<g transform="{kind}({values[0]})">'
    if len(set(values)) == 1:
        return group
    return (
        f'{group}<animateTransform attributeName="transform" type="{kind}" calcMode="linear" '
        f'dur="{seconds:g}s" repeatCount="indefinite" values="{";".join(values)}"/>'
    )


def _switched(attribute: str, values: list[str], seconds: float) -> str:
    """The animation of an attribute that keeps each value for a frame; none if it is constant."""
    changes = [k for k, value in enumerate(values) if k == 0 or value != values[k - 1]]
    if len(changes) == 1:
        return ""
    return (
        f'<animate attributeName="{attribute}" calcMode="discrete" dur="{seconds:g}s" '
        f'repeatCount="indefinite" values="{";".join(values[k] for k in changes)}" '
        f'keyTimes="{";".join(f"{k / len(values):.5g}" for k in changes)}"/>'
    )


def _short(value: float) -> str:
    """A number with up to two decimals."""
    return f"{round(float(value), 2) + 0.0:g}"
