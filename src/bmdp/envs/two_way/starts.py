"""First states of the two-way road: places and speeds of the other cars."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from bmdp.arrays import BoolArray, FloatArray
from bmdp.envs.two_way import physics
from bmdp.envs.two_way.physics import (
    EXPONENT,
    HEADING,
    LANE,
    LEFT,
    ONCOMING,
    OWN,
    PRESENT,
    PUSH_X,
    PUSH_Y,
    SPEED,
    TARGET_LANE,
    TARGET_SPEED,
    RoadState,
    X,
    Y,
)

# Where cars start, in m along their lane, and how fast, in m/s.
_EGO_START, _EGO_SPEED = 30.0, 30.0
_AHEAD_START, _AHEAD_STEP, _AHEAD_SPEED = 70.0, 40.0, 24.0
_ONCOMING_START, _ONCOMING_STEP, _ONCOMING_SPEED = 200.0, 100.0, 20.0
_EXPONENT, _EXPONENT_RANGE = 4.0, (3.5, 4.5)


class Cars(NamedTuple):
    """The cars other than the ego car at the start of `N` episodes, `[N, V - 1]` each."""

    x: FloatArray  # m
    speed: FloatArray  # m/s, also the one they want
    exponent: FloatArray
    is_oncoming: BoolArray
    present: BoolArray


def drawn_cars(
    uniforms: FloatArray,
    counts: tuple[int, int],
    *,
    position_std: float,
    speed_std: float | tuple[float, float],
    random_drivers: bool,
) -> Cars:
    """Returns the others as uniform numbers have them.

    Args:
        uniforms: `[N, 1 + 3 (V - 1)]`: number of cars; then all places, all speeds, all exponents.
        counts: least and largest number of cars `V`, the ego car included.
        position_std: deviation of where they start, in m.
        speed_std: deviation of how fast, in m/s; or two, of those ahead and of the oncoming ones.
        random_drivers: whether their exponents differ.
    """
    n, (least, most) = len(uniforms), counts
    draws = uniforms[:, 1:].reshape(n, 3, most - 1)
    places, speeds = np.moveaxis(ndtri(np.maximum(draws[:, :2], 2.0**-53)), 1, 0)
    low, high = _EXPONENT_RANGE if random_drivers else (_EXPONENT, _EXPONENT)
    ahead = np.arange(most - 1) < most // 2
    rank = np.arange(most - 1) - np.where(ahead, 0, most // 2)
    along = np.where(
        ahead, _AHEAD_START + _AHEAD_STEP * rank, _ONCOMING_START + _ONCOMING_STEP * rank
    )
    along = along + position_std * places
    speed = np.where(ahead, _AHEAD_SPEED, _ONCOMING_SPEED)
    speed = speed + np.where(ahead, *np.broadcast_to(speed_std, 2)) * speeds
    n_others = least - 1 + np.floor(uniforms[:, :1] * (most - least + 1))
    return Cars(
        x=np.where(ahead, along, physics.ROAD_LENGTH - along),
        speed=speed,
        exponent=low + (high - low) * draws[:, 2],
        is_oncoming=np.broadcast_to(~ahead, (n, most - 1)),
        present=2 * rank + ~ahead < n_others,
    )


def road_state(others: Cars, target_speeds: FloatArray, aware: bool) -> RoadState:
    """Returns roads with the ego car and others, each in the middle of its lane."""
    n, n_others = others.x.shape
    number = physics.speed_number(_EGO_SPEED, target_speeds)
    cars = np.zeros((n, n_others + 1, physics.N_COLUMNS))
    cars[:, 0, X], cars[:, 1:, X] = _EGO_START, others.x
    cars[:, 0, SPEED], cars[:, 1:, SPEED] = _EGO_SPEED, others.speed
    cars[:, 0, TARGET_SPEED], cars[:, 1:, TARGET_SPEED] = target_speeds[number], others.speed
    cars[:, 0, EXPONENT], cars[:, 1:, EXPONENT] = _EXPONENT, others.exponent
    cars[:, 0, PRESENT], cars[:, 1:, PRESENT] = 1, others.present
    lanes = np.where(others.is_oncoming, ONCOMING, OWN)
    cars[:, 0, TARGET_LANE], cars[:, 1:, TARGET_LANE] = OWN, lanes
    is_ours = cars[..., TARGET_LANE] == OWN
    cars[..., LANE] = np.where(is_ours, OWN, ONCOMING if aware else LEFT)
    cars[..., Y], cars[..., HEADING] = np.where(is_ours, physics.LANE_WIDTH, 0), ~is_ours * np.pi
    cars[..., [PUSH_X, PUSH_Y]] = np.nan
    return RoadState(cars, np.full(n, number), np.zeros(n, np.int64))
