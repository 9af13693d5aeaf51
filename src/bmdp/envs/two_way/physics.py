"""Motion on the two-way road: control, car following, collisions; compiled, road by road.

The rules are those of highway-env 1.12.1, to the last digits: `docs/paper/driving.md` lists them
with their constants and units. x points along the road, y to the right, headings are in radian
from x towards y. There are three lanes, of which two are the same strip of the road:

    LEFT      (0)  y = 0, driven in the direction of x: the oncoming lane, as the ego car uses it
    OWN       (1)  y = 4, driven in the direction of x
    ONCOMING  (2)  y = 0, driven against x

Car 0 of each road is the ego car, which is told by actions what to do; the others follow the
intelligent driver model (Treiber et al., 2000), and stay on their lane. Whether oncoming drivers
are aware of who comes towards them is a matter of which lane they take theirs to be: ONCOMING, or
LEFT, on which the car ahead is the one behind them.

All of it is in this file because numba's cache notices a change in the file of the function it
compiled only, and `drive` is compiled with all that it calls.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from bmdp.arrays import BoolArray, FloatArray, IntArray

ROAD_LENGTH = 800.0  # m
LANE_WIDTH = 4.0  # m
CAR_LENGTH, CAR_WIDTH = 5.0, 2.0  # m
TOP_SPEED = 40.0  # m/s, above which a car brakes
FRAMES = 15  # a decision, which takes one second
DT = 1 / FRAMES  # s

LEFT, OWN, ONCOMING = range(3)
LANE_LEFT, IDLE, LANE_RIGHT, FASTER, SLOWER = range(5)
"""Numbers of the actions."""

NO_ACTION = -1

_DIAGONAL = np.sqrt(CAR_LENGTH**2 + CAR_WIDTH**2)
# Control: time constants of speed, heading and lateral position, in s.
_TAU_SPEED, _TAU_HEADING, _TAU_LATERAL = 0.6, 0.2, 0.6
_MOST_SLIP = np.sin(np.arctan(np.tan(np.pi / 3) / 2))  # sine, at a steering angle of 60 degrees
_MOST_TURN = np.pi / 4  # rad, of the heading against that of the lane
# Intelligent driver model.
_LARGEST_ACCELERATION = 6.0  # m/s2, either way
_COMFORT_ACCELERATION, _COMFORT_BRAKING = 3.0, 5.0  # m/s2
_STANDING_GAP = 5.0 + CAR_LENGTH  # m, centre to centre
_TIME_GAP = 1.5  # s
_LANE_MARGIN = 1.0  # m beyond the border of a lane at which a car still counts as on it


# Columns of a car.
(
    X, Y,  # m
    HEADING,  # rad
    SPEED, TARGET_SPEED,  # m/s
    EXPONENT,  # of the speed term of the driver model
    PUSH_X, PUSH_Y,  # m that a collision moves the car at the next frame; NaN if none
    LANE, TARGET_LANE,
    CRASHED, PRESENT,  # 0 or 1
    N_COLUMNS,
) = range(13)  # fmt: skip
# While a road is driven: cosine and sine of the heading, sine of the angle between heading and
# motion, and acceleration in m/s2.
_COSINE, _SINE, _SLIP, _ACCELERATION, _N_WORKING = range(N_COLUMNS, N_COLUMNS + 5)


class RoadState(NamedTuple):
    """`N` roads with up to `V` cars each, one row of numbers for each car.

    >>> from bmdp.envs.two_way import TwoWay
    >>> task = TwoWay(vehicles=3)
    >>> state = task.start(np.full((1, task.n_draws), 0.5))
    >>> state.x.tolist(), state.speed.tolist()  # the ego car, one ahead, one oncoming
    ([[30.0, 70.0, 600.0]], [[30.0, 24.0, 20.0]])
    """

    cars: FloatArray  # [N, V, N_COLUMNS]
    speed_index: IntArray  # [N], target speed of the ego car, by number
    time: IntArray  # [N], decisions made

    @property
    def x(self) -> FloatArray:
        """Along the road, in m, `[N, V]`; this and what follows are views into the cars."""
        return self.cars[..., X]

    @property
    def y(self) -> FloatArray:
        """Across the road to the right, in m."""
        return self.cars[..., Y]

    @property
    def heading(self) -> FloatArray:
        """In radian."""
        return self.cars[..., HEADING]

    @property
    def speed(self) -> FloatArray:
        """In m/s."""
        return self.cars[..., SPEED]

    @property
    def lane(self) -> FloatArray:
        """LEFT, OWN or ONCOMING."""
        return self.cars[..., LANE]

    @property
    def target_lane(self) -> FloatArray:
        """Where it is steering to."""
        return self.cars[..., TARGET_LANE]

    @property
    def crashed(self) -> BoolArray:
        """Whether it has touched another."""
        return np.not_equal(self.cars[..., CRASHED], 0)

    @property
    def present(self) -> BoolArray:
        """Whether there is such a car."""
        return np.not_equal(self.cars[..., PRESENT], 0)


def copied(state: RoadState) -> RoadState:
    """Returns a state that can be written into."""
    return RoadState(state.cars.copy(), state.speed_index.copy(), state.time.copy())


@njit(cache=True)
def drive(
    state: RoadState, actions: IntArray, speeds: FloatArray, aware: bool, n_frames: int
) -> None:
    """Gives each ego car its action, and drives all roads for some frames, in place.

    Args:
        state: of `N` roads.
        actions: `[N]`; `NO_ACTION` to go on as before.
        speeds: target speeds of the ego car, increasing.
        aware: whether oncoming drivers are aware of who comes towards them.
        n_frames: number of frames, 1/15 s each.
    """
    all_cars, speed_index = state.cars, state.speed_index
    n_roads, most, _ = all_cars.shape
    working, places = np.empty((most, _N_WORKING)), np.empty(most, np.int64)
    for n in range(n_roads):
        n_cars = 0
        for v in range(most):
            if all_cars[n, v, PRESENT] != 0:
                working[n_cars, :N_COLUMNS] = all_cars[n, v]
                working[n_cars, _COSINE] = np.cos(all_cars[n, v, HEADING])
                working[n_cars, _SINE] = np.sin(all_cars[n, v, HEADING])
                places[n_cars] = v
                n_cars += 1
        cars = working[:n_cars]
        speed_index[n] = _command(cars, actions[n], speed_index[n], speeds)
        for _ in range(n_frames):
            _drive_frame(cars, aware)
        for k in range(n_cars):
            all_cars[n, places[k]] = cars[k, :N_COLUMNS]


@njit(cache=True)
def _command(cars: Any, action: int, speed_index: int, speeds: FloatArray) -> int:
    """Sets target lane or target speed of the ego car, and returns the number of the latter."""
    if action in (LANE_LEFT, LANE_RIGHT):
        _follow_road(cars, 0)
        lane = LEFT if action == LANE_LEFT else OWN
        along, across = _on_lane(lane, cars[0, X], cars[0, Y])
        is_near = abs(across) <= 2 * LANE_WIDTH and 0 <= along < ROAD_LENGTH + CAR_LENGTH
        if is_near and cars[0, TARGET_LANE] != ONCOMING:  # which has no other beside it
            cars[0, TARGET_LANE] = lane
    elif action in (FASTER, SLOWER):
        number = speed_number(cars[0, SPEED], speeds) + (1 if action == FASTER else -1)
        speed_index = min(max(number, 0), speeds.shape[0] - 1)
        cars[0, TARGET_SPEED] = speeds[speed_index]
    return speed_index


@njit(cache=True)
def _drive_frame(cars: Any, aware: bool) -> None:
    """All decide, then all move, then it is seen who touches whom."""
    for v in range(cars.shape[0]):
        _control(cars, v, aware)
    for v in range(cars.shape[0]):
        _move(cars, v, aware)
    for v in range(cars.shape[0]):
        for w in range(v + 1, cars.shape[0]):
            _collide(cars, v, w)


@njit(cache=True)
def speed_number(speed: float, speeds: FloatArray) -> int:
    """Number of the target speed closest to a speed, as if target speeds were evenly spaced."""
    last = speeds.shape[0] - 1
    share = (speed - speeds[0]) / (speeds[last] - speeds[0])
    return int(min(max(np.rint(share * last), 0), last))


@njit(cache=True)
def _control(cars: Any, v: int, aware: bool) -> None:
    """Decides what a car does in this frame."""
    speed = cars[v, SPEED]
    if cars[v, CRASHED]:
        cars[v, _SLIP], wanted = 0.0, -speed
    else:
        _follow_road(cars, v)
        cars[v, _SLIP] = _slip(cars, v)
        if v == 0:
            wanted = (cars[v, TARGET_SPEED] - speed) / _TAU_SPEED
        else:
            wanted = _following(cars, v, cars[v, LANE])
            if aware and cars[v, LANE] != cars[v, TARGET_LANE]:
                wanted = min(wanted, _following(cars, v, cars[v, TARGET_LANE]))
            wanted = min(max(wanted, -_LARGEST_ACCELERATION), _LARGEST_ACCELERATION)
    if speed > TOP_SPEED:
        wanted = min(wanted, TOP_SPEED - speed)
    elif speed < -TOP_SPEED:
        wanted = max(wanted, -TOP_SPEED - speed)
    cars[v, _ACCELERATION] = wanted


@njit(cache=True)
def _follow_road(cars: Any, v: int) -> None:
    """At the end of its lane a car turns round, onto the lane that begins there."""
    lane = cars[v, TARGET_LANE]
    along, _ = _on_lane(lane, cars[v, X], cars[v, Y])
    if along > ROAD_LENGTH - CAR_LENGTH / 2:
        cars[v, TARGET_LANE] = LEFT if lane == ONCOMING else ONCOMING


@njit(cache=True)
def _slip(cars: Any, v: int) -> Any:
    """Steers to the middle of the target lane: lateral speed, then heading, then its rate."""
    lane, speed = cars[v, TARGET_LANE], _not_zero(cars[v, SPEED])
    _, across = _on_lane(lane, cars[v, X], cars[v, Y])
    turn = np.arcsin(min(max(-across / _TAU_LATERAL / speed, -1), 1))
    wanted = min(max(turn, -_MOST_TURN), _MOST_TURN) + (np.pi if lane == ONCOMING else 0.0)
    rate = _wrapped(wanted - cars[v, HEADING]) / _TAU_HEADING
    return min(max(CAR_LENGTH / 2 / speed * rate, -_MOST_SLIP), _MOST_SLIP)


@njit(cache=True)
def _following(cars: Any, v: int, lane: int) -> Any:
    """Acceleration of the driver model behind the next car on a lane, not yet limited."""
    x, y, speed = cars[v, X], cars[v, Y], cars[v, SPEED]
    share = max(speed, 0.0) / abs(_not_zero(cars[v, TARGET_SPEED]))
    if cars[v, EXPONENT] == 4:
        wanted = _COMFORT_ACCELERATION * (1 - share * share * share * share)
    else:
        wanted = _COMFORT_ACCELERATION * (1 - share ** cars[v, EXPONENT])
    front, nearest = -1, np.inf
    along, _ = _on_lane(lane, x, y)
    for w in range(cars.shape[0]):
        if w == v:
            continue
        ahead, across = _on_lane(lane, cars[w, X], cars[w, Y])
        is_on = -CAR_LENGTH <= ahead < ROAD_LENGTH + CAR_LENGTH
        if is_on and abs(across) <= LANE_WIDTH / 2 + _LANE_MARGIN and along <= ahead <= nearest:
            front, nearest = w, ahead
    if front >= 0:
        ahead, _ = _on_lane(cars[v, LANE], cars[front, X], cars[front, Y])
        along, _ = _on_lane(cars[v, LANE], x, y)
        closing = speed - cars[front, SPEED] * (
            cars[front, _COSINE] * cars[v, _COSINE] + cars[front, _SINE] * cars[v, _SINE]
        )
        braking = 2 * np.sqrt(_COMFORT_ACCELERATION * _COMFORT_BRAKING)
        gap = _STANDING_GAP + speed * _TIME_GAP + speed * closing / braking
        wanted -= _COMFORT_ACCELERATION * (gap / _not_zero(ahead - along)) ** 2
    return wanted


@njit(cache=True)
def _move(cars: Any, v: int, aware: bool) -> None:
    """One frame of the bicycle model, and what the last collision adds to it."""
    speed, slip = cars[v, SPEED], cars[v, _SLIP]
    straight = np.sqrt(1 - slip**2)
    cars[v, X] += speed * (cars[v, _COSINE] * straight - cars[v, _SINE] * slip) * DT
    cars[v, Y] += speed * (cars[v, _SINE] * straight + cars[v, _COSINE] * slip) * DT
    if not np.isnan(cars[v, PUSH_X]):
        cars[v, X] += cars[v, PUSH_X]
        cars[v, Y] += cars[v, PUSH_Y]
        cars[v, PUSH_X] = cars[v, PUSH_Y] = np.nan
        cars[v, CRASHED] = True
    cars[v, HEADING] += speed * slip / (CAR_LENGTH / 2) * DT
    cars[v, SPEED] = speed + cars[v, _ACCELERATION] * DT
    cars[v, LANE] = closest_lane(cars[v, Y], cars[v, HEADING], aware)
    cars[v, _COSINE], cars[v, _SINE] = np.cos(cars[v, HEADING]), np.sin(cars[v, HEADING])


@njit(cache=True)
def closest_lane(y: float, heading: float, aware: bool) -> int:
    """The lane closest to a car: metres across, and if aware radians of heading added."""
    if not aware:
        return OWN if abs(y - LANE_WIDTH) < abs(y) else LEFT
    ahead, back = abs(_wrapped(heading)), abs(_wrapped(heading - np.pi))
    left = abs(y) + ahead
    own = abs(y - LANE_WIDTH) + ahead
    oncoming = abs(y) + back
    if own < left:
        return OWN if own <= oncoming else ONCOMING
    return LEFT if left <= oncoming else ONCOMING


@njit(cache=True)
def _collide(cars: Any, v: int, w: int) -> None:
    """Marks two cars that touch as crashed, and notes how those that will touch are pushed."""
    near = _DIAGONAL + cars[v, SPEED] * DT
    along, across = cars[w, X] - cars[v, X], cars[w, Y] - cars[v, Y]
    if abs(along) > near or np.sqrt(along**2 + across**2) > near:
        return
    touching, will_touch, push_x, push_y = _overlap(cars, v, w)
    if will_touch:
        cars[v, PUSH_X], cars[v, PUSH_Y] = push_x / 2, push_y / 2
        cars[w, PUSH_X], cars[w, PUSH_Y] = -push_x / 2, -push_y / 2
    if touching:
        cars[v, CRASHED] = cars[w, CRASHED] = True


@njit(cache=True)
def _overlap(cars: Any, v: int, w: int) -> Any:
    """Whether two cars touch, whether they will within a frame, and the shortest way apart.

    Two rectangles are apart if and only if they are along the normal of one of their sides.
    """
    corners = np.empty((2, 4, 2))
    for c, car in enumerate((v, w)):
        cosine, sine = cars[car, _COSINE], cars[car, _SINE]
        for k in range(4):
            along = CAR_LENGTH / 2 if k >= 2 else -CAR_LENGTH / 2
            across = CAR_WIDTH / 2 if k == 1 or k == 2 else -CAR_WIDTH / 2
            corners[c, k, 0] = cosine * along - sine * across + cars[car, X]
            corners[c, k, 1] = sine * along + cosine * across + cars[car, Y]
    speed, other = cars[v, SPEED] * DT, cars[w, SPEED] * DT
    moves_x = speed * cars[v, _COSINE] - other * cars[w, _COSINE]
    moves_y = speed * cars[v, _SINE] - other * cars[w, _SINE]
    touching, will_touch = True, True
    least, axis_x, axis_y = np.inf, 0.0, 0.0
    for c in range(2):
        for k in range(4):
            normal_x = corners[c, k, 1] - corners[c, (k + 1) % 4, 1]
            normal_y = corners[c, (k + 1) % 4, 0] - corners[c, k, 0]
            size = np.sqrt(normal_x**2 + normal_y**2)
            normal_x, normal_y = normal_x / size, normal_y / size
            first = corners[0, :, 0] * normal_x + corners[0, :, 1] * normal_y
            second = corners[1, :, 0] * normal_x + corners[1, :, 1] * normal_y
            low, high = first.min(), first.max()
            if _distance(low, high, second.min(), second.max()) > 0:
                touching = False
            moves = moves_x * normal_x + moves_y * normal_y
            distance = _distance(
                low + min(moves, 0.0), high + max(moves, 0.0), second.min(), second.max()
            )
            if distance > 0:
                will_touch = False
            if not touching and not will_touch:
                return False, False, 0.0, 0.0
            if abs(distance) < least:
                least = abs(distance)
                sign = 1.0 if first.mean() > second.mean() else -1.0
                axis_x, axis_y = sign * normal_x, sign * normal_y
    return touching, will_touch, least * axis_x, least * axis_y


@njit(cache=True)
def _distance(low: float, high: float, other_low: float, other_high: float) -> float:
    """Distance of two intervals, negative where they overlap."""
    return other_low - high if low < other_low else low - other_high


@njit(cache=True)
def _on_lane(lane: int, x: float, y: float) -> Any:
    """Coordinates along a lane and across it, in m."""
    if lane == ONCOMING:
        return ROAD_LENGTH - x, -y
    return x, (y - LANE_WIDTH if lane == OWN else y)


@njit(cache=True)
def _not_zero(value: float) -> float:
    """The value, kept at least 0.01 away from 0."""
    if abs(value) > 0.01:
        return value
    return 0.01 if value >= 0 else -0.01


@njit(cache=True)
def _wrapped(angle: float) -> float:
    """The angle in [-pi, pi)."""
    if -np.pi <= angle < np.pi:
        return angle
    return (angle + np.pi) % (2 * np.pi) - np.pi
