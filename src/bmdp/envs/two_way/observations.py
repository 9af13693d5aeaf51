"""Observations of the ego car: positions and speeds, gaps, times to collision; compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bmdp.arrays import FloatArray
from bmdp.envs.two_way.physics import (
    CAR_LENGTH,
    HEADING,
    LANE,
    LANE_WIDTH,
    ONCOMING,
    OWN,
    PRESENT,
    SPEED,
    TARGET_LANE,
    RoadState,
    X,
    Y,
)

Seen = NDArray[np.float32]

SIGHT = 200.0  # m, beyond which a car is not seen
X_SCALE, Y_SCALE, SPEED_SCALE = 150.0, 2 * LANE_WIDTH, 60.0  # m, m, m/s
N_LANES = 2
MISSING = -1.0
N_OWN = 6
"""Numbers of the ego car in `nearest_cars`."""

N_AHEAD, N_BEHIND, N_ONCOMING = 3, 3, 2
"""Cars of each kind that `nearest_cars` tells of."""

N_NEAREST = N_OWN + 2 * (N_AHEAD + N_BEHIND + N_ONCOMING)
"""Numbers of `nearest_cars`."""

N_CONFLICTS = 18
"""Numbers of `conflict_times`."""

LONGEST = 15.0
"""Seconds that `conflict_times` looks ahead."""

_CLEARANCE = CAR_LENGTH + 1.0  # m between centres, below which cars are in conflict


@njit(cache=True)
def kinematics(state: RoadState) -> Seen:
    """Returns x, y and their speeds for every car, `[N, V, 4]`, each in [-1, 1].

    The ego car first, in coordinates of the road; then the others relative to it, the nearest along
    the road first. Divided by 150 m, 8 m and 60 m/s, and cut off at 1. A car that is further away
    than 200 m, or not there, is a row of -1.
    """
    cars = state.cars
    n_roads, n_cars, _ = cars.shape
    seen = np.full((n_roads, n_cars, 4), np.float32(MISSING))
    nearness = np.empty(n_cars)
    for n in range(n_roads):
        for v in range(n_cars):
            along, across = cars[n, v, X] - cars[n, 0, X], cars[n, v, Y] - cars[n, 0, Y]
            is_seen = cars[n, v, PRESENT] != 0 and np.sqrt(along**2 + across**2) < SIGHT
            nearness[v] = abs(along) if is_seen else np.inf
        nearness[0] = -1.0
        origin = np.zeros(4)
        for row, v in enumerate(np.argsort(nearness, kind="mergesort")):
            if nearness[v] == np.inf:
                break
            speed, heading = cars[n, v, SPEED], cars[n, v, HEADING]
            car = np.array(
                [
                    cars[n, v, X],
                    cars[n, v, Y],
                    speed * np.cos(heading),
                    speed * np.sin(heading),
                ]
            )
            scaled = (car - origin) / np.array([X_SCALE, Y_SCALE, SPEED_SCALE, SPEED_SCALE])
            seen[n, row] = np.minimum(np.maximum(scaled, -1), 1)
            if row == 0:
                origin = car
    return seen


@njit(cache=True)
def nearest_cars(state: RoadState, speeds: FloatArray) -> Seen:
    """Returns what a driver knows of itself and of the nearest cars, `[N, 22]`, in m and m/s.

    Of the ego car: x, y, speed along and across the road, and what it was told: its target speed,
    and 1 if its target lane is the oncoming one. Then gap and relative speed of 3 cars ahead that
    drive the same way, of 3 behind, and of 2 oncoming ones that are still ahead, the nearest first.
    Gaps are along the road, from centre to centre, and positive; relative speeds are theirs less
    the own one. A car that is not there, or further away than 200 m, has a gap of 200 and the own
    speed.
    """
    cars = state.cars
    n_roads, n_cars, _ = cars.shape
    seen = np.zeros((n_roads, N_NEAREST), np.float32)
    gaps = np.empty((3, n_cars))  # ahead, behind, oncoming
    counts = (N_AHEAD, N_BEHIND, N_ONCOMING)
    for n in range(n_roads):
        own = cars[n, 0, SPEED] * np.cos(cars[n, 0, HEADING])
        seen[n, 0], seen[n, 1], seen[n, 2] = cars[n, 0, X], cars[n, 0, Y], own
        seen[n, 3] = cars[n, 0, SPEED] * np.sin(cars[n, 0, HEADING])
        seen[n, 4] = speeds[state.speed_index[n]]
        seen[n, 5] = cars[n, 0, TARGET_LANE] != OWN
        gaps[:] = np.inf
        for v in range(1, n_cars):
            along, across = cars[n, v, X] - cars[n, 0, X], cars[n, v, Y] - cars[n, 0, Y]
            if cars[n, v, PRESENT] == 0 or np.sqrt(along**2 + across**2) >= SIGHT:
                continue
            if np.cos(cars[n, v, HEADING]) < 0:
                if along >= 0:
                    gaps[2, v] = along
            elif along >= 0:
                gaps[0, v] = along
            else:
                gaps[1, v] = -along
        column = N_OWN
        for kind in range(3):
            order = np.argsort(gaps[kind], kind="mergesort")
            for rank in range(counts[kind]):
                seen[n, column] = SIGHT
                if rank < n_cars and gaps[kind, order[rank]] < np.inf:
                    v = order[rank]
                    seen[n, column] = gaps[kind, v]
                    seen[n, column + 1] = cars[n, v, SPEED] * np.cos(cars[n, v, HEADING]) - own
                column += 2
    return seen


@njit(cache=True)
def conflict_times(state: RoadState, speeds: FloatArray) -> Seen:
    """Returns seconds to the next conflicts, `[N, 2, 3, 3]`, from 0 to 15.

    Axes: the current lane and the other one; the target speed below the current one, that one, and
    the one above; when the first conflict begins, when it ends, and when the next one begins, if
    the ego car drove on that lane at that speed and nobody changed speed. A conflict is a distance
    of less than 6 m between centres; 15 where there is none. Cars beyond 200 m are not seen.
    """
    cars = state.cars
    n_roads, n_cars, _ = cars.shape
    seen = np.full((n_roads, 2, 3, 3), np.float32(LONGEST))
    for n in range(n_roads):
        is_left = cars[n, 0, LANE] != OWN
        for v in range(1, n_cars):
            along = cars[n, v, X] - cars[n, 0, X]
            if cars[n, v, PRESENT] == 0 or abs(along) >= SIGHT:
                continue
            driven = cars[n, v, SPEED] * np.cos(cars[n, v, HEADING])
            lane = 0 if (cars[n, v, Y] < LANE_WIDTH / 2) == is_left else 1
            for i in range(3):
                k = min(max(state.speed_index[n] + i - 1, 0), speeds.shape[0] - 1)
                closing = speeds[k] - driven
                if abs(closing) < 0.01:
                    closing = 0.01
                one, other = (along - _CLEARANCE) / closing, (along + _CLEARANCE) / closing
                begin, end = min(one, other), max(one, other)
                if end < 0 or begin >= LONGEST:
                    continue
                begin, own = max(begin, 0.0), seen[n, lane, i]
                if begin < own[0]:
                    own[2] = own[0]
                    own[0], own[1] = begin, min(end, LONGEST)
                elif begin < own[2]:
                    own[2] = begin
    return seen


@njit(cache=True)
def collision_times(
    state: RoadState, speeds: FloatArray, n_seconds: int, sight: float = np.inf
) -> Seen:
    """Returns where a collision is to be expected, `[N, 3, 3, T]`, each in [0, 1].

    Axes: the target speed below the current one, that one, and the one above; the lane to the left,
    the current one, and the one to the right; seconds ahead. 1 where the centres would meet if
    nobody changed speed, 1/2 where bumpers would, and 1 off the road. Where an aware oncoming
    driver will be is taken to be unknown: it counts on both lanes. A car that is further away than
    `sight`, in m, does not count.
    """
    cars, speed_index = state.cars, state.speed_index
    n_roads, n_cars, _ = cars.shape
    n_speeds = speeds.shape[0]
    seen = np.empty((n_roads, 3, 3, n_seconds), np.float32)
    grid = np.empty((n_speeds, N_LANES, n_seconds))
    for n in range(n_roads):
        grid[:] = 0
        for k in range(n_speeds):
            for v in range(1, n_cars):
                near = abs(cars[n, v, X] - cars[n, 0, X]) < sight
                if cars[n, v, PRESENT] != 0 and near and speeds[k] != cars[n, v, SPEED]:
                    _mark(cars, n, v, speeds[k], grid[k])
        lane = int(cars[n, 0, LANE]) % 2  # LEFT and ONCOMING are both 0
        for i in range(3):
            k = min(max(speed_index[n] + i - 1, 0), n_speeds - 1)
            for j in range(3):
                if 0 <= lane + j - 1 < N_LANES:
                    seen[n, i, j] = grid[k, lane + j - 1]
                else:
                    seen[n, i, j] = 1
    return seen


@njit(cache=True)
def _mark(cars: FloatArray, n: int, v: int, speed: float, grid: Any) -> None:
    """Marks when the ego car, at a speed, would meet another: lanes by seconds."""
    n_seconds = grid.shape[1]
    distance = cars[n, v, X] - cars[n, 0, X]
    closing = speed - cars[n, v, SPEED] * (
        np.cos(cars[n, v, HEADING]) * np.cos(cars[n, 0, HEADING])
        + np.sin(cars[n, v, HEADING]) * np.sin(cars[n, 0, HEADING])
    )
    if abs(closing) <= 0.01:
        closing = 0.01 if closing >= 0 else -0.01
    for shift, weight in ((0.0, 1.0), (-CAR_LENGTH, 0.5), (CAR_LENGTH, 0.5)):
        seconds = (distance + shift) / closing
        if seconds < 0 or seconds >= n_seconds:
            continue
        for second in (int(seconds), int(np.ceil(seconds))):
            if second < n_seconds:
                for lane in range(N_LANES):
                    if cars[n, v, LANE] == ONCOMING or cars[n, v, LANE] == lane:
                        grid[lane, second] = max(grid[lane, second], weight)
