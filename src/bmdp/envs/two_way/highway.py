"""The same roads driven by highway-env, which is imported only if it is asked for.

highway-env lost the paper's cost; since 2023 its cars obey a speed limit that the paper's roads did
not have; and its oncoming drivers brake for the ego car, which those of the paper did not see. Here
its cars are put where the state says, its limits are lifted, it drives for a second, and the state
is read back. Rewards, costs and observations follow from the state alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import IntArray
from bmdp.envs.two_way.observations import SPEED_SCALE, X_SCALE, Y_SCALE
from bmdp.envs.two_way.physics import (
    CRASHED,
    EXPONENT,
    HEADING,
    LANE,
    PUSH_X,
    PUSH_Y,
    SPEED,
    TARGET_LANE,
    TARGET_SPEED,
    RoadState,
    X,
    Y,
    copied,
)
from bmdp.errors import MissingDependency

LANES = (("a", "b", 0), ("a", "b", 1), ("b", "a", 0))
"""What highway-env calls the lanes LEFT, OWN and ONCOMING."""


AWARE = "highway_env.vehicle.behavior.IDMVehicle"
UNAWARE = "bmdp.envs.two_way.unaware.UnawareVehicle"
"""Classes of the other cars."""


class HighwayRoads:
    """Drives roads with the cars of highway-env.

    Args:
        target_speeds: speeds that the ego car can choose.
        aware: whether oncoming drivers are aware of who comes towards them.

    Raises:
        MissingDependency: if highway-env is not installed.
    """

    def __init__(self, target_speeds: Sequence[float], aware: bool) -> None:
        self._env = highway_road(target_speeds, aware)
        module, name = self._env.config["other_vehicles_type"].rsplit(".", 1)
        self._driver: Any = getattr(importlib.import_module(module), name)
        lift_speed_limits(self._env)

    def drive(self, state: RoadState, actions: IntArray) -> RoadState:
        """Returns the roads after a second."""
        after = copied(state)
        for n, action in enumerate(actions):
            self._place(state, n)
            self._env.step(int(action))
            read_cars(self._env, after, n)
        return after

    def _place(self, state: RoadState, n: int) -> None:
        """Puts the cars of one road on the road of highway-env."""
        env = self._env
        env.steps = 0
        cars = []
        for v in np.flatnonzero(state.present[n]).tolist():
            row = state.cars[n, v]
            car = (env.action_type.vehicle_class if v == 0 else self._driver)(
                env.road,
                row[[X, Y]],
                heading=row[HEADING],
                speed=row[SPEED],
                target_lane_index=LANES[int(row[TARGET_LANE])],
            )
            car.target_speed, car.crashed = row[TARGET_SPEED], bool(row[CRASHED])
            car.impact = None if np.isnan(row[PUSH_X]) else row[[PUSH_X, PUSH_Y]]
            if v == 0:
                car.speed_index = int(state.speed_index[n])
            else:
                car.enable_lane_change, car.DELTA = False, row[EXPONENT]
            cars.append(car)
        env.road.vehicles = cars
        env.vehicle = cars[0]
        env.action_type.controlled_vehicle = cars[0]
        env.observation_type.observer_vehicle = cars[0]


def highway_road(target_speeds: Sequence[float], aware: bool) -> Any:
    """Returns the `two-way-v0` of highway-env, which sees what the paper says.

    Args:
        target_speeds: speeds that the ego car can choose.
        aware: whether oncoming drivers are aware of who comes towards them.

    Raises:
        MissingDependency: if highway-env is not installed.
    """
    try:
        from highway_env.envs.two_way_env import TwoWayEnv
    except ImportError as error:
        raise MissingDependency(
            "highway-env must be installed to drive by it: pip install 'bmdp[driving]'"
        ) from error
    scales = {"x": X_SCALE, "y": Y_SCALE, "vx": SPEED_SCALE, "vy": SPEED_SCALE}
    kinematics = {
        "type": "Kinematics",
        "features": list(scales),
        "features_range": {name: [-scale, scale] for name, scale in scales.items()},
        "vehicles_count": 6,
        "see_behind": True,
    }
    return TwoWayEnv(
        {
            "observation": kinematics,
            "action": {"type": "DiscreteMetaAction", "target_speeds": list(target_speeds)},
            "other_vehicles_type": AWARE if aware else UNAWARE,
        }
    )


def lift_speed_limits(env: Any) -> None:
    """Lets the cars of highway-env drive as fast as they want, on the road that it has now."""
    for lane in env.road.network.lanes_list():
        lane.speed_limit = None


def read_cars(env: Any, state: RoadState, n: int) -> None:
    """Writes the cars of highway-env into the n-th road of a state, at the places of its cars."""
    for v, car in zip(np.flatnonzero(state.present[n]), env.road.vehicles, strict=True):
        row = state.cars[n, v]
        row[[X, Y]] = car.position
        row[HEADING], row[SPEED], row[TARGET_SPEED] = car.heading, car.speed, car.target_speed
        row[[PUSH_X, PUSH_Y]] = np.nan if car.impact is None else car.impact
        row[LANE] = LANES.index(car.lane_index)
        row[TARGET_LANE] = LANES.index(car.target_lane_index)
        row[CRASHED] = car.crashed
    state.speed_index[n] = env.vehicle.speed_index


def time_to_collision(env: Any, n_seconds: int = 5) -> NDArray[np.float32]:
    """Returns the grid that highway-env makes of the road that it has now, `[3, 3, T]`."""
    from highway_env.envs.common.observation import TimeToCollisionObservation

    sees: Any = TimeToCollisionObservation(env, horizon=n_seconds)
    sees.observer_vehicle = env.vehicle
    return np.asarray(sees.observe())
