"""Drivers of 2019, in highway-env: only to be imported where that is installed.

Then the lane of a car was the closest one, whatever its heading, and drivers looked ahead on that
lane alone. An oncoming driver took the car behind for the one ahead, and did not see who came
towards it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from highway_env.vehicle.behavior import IDMVehicle
from highway_env.vehicle.kinematics import Vehicle


class UnawareVehicle(IDMVehicle):  # type: ignore[misc]
    """A car of highway-env whose driver does not see who comes towards it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.on_state_update()

    def on_state_update(self) -> None:
        """Finds the closest lane, whatever the heading."""
        self.lane_index = self.road.network.get_closest_lane_index(self.position)
        self.lane = self.road.network.get_lane(self.lane_index)

    def act(self, action: Any = None) -> None:
        """Steers to the target lane, and follows the car ahead on the closest one."""
        if self.crashed:
            return
        self.follow_road()
        wanted = self.acceleration(self, *self.road.neighbour_vehicles(self, self.lane_index))
        steering = self.steering_control(self.target_lane_index)
        acceleration = float(np.clip(wanted, -self.ACC_MAX, self.ACC_MAX))
        Vehicle.act(self, {"steering": steering, "acceleration": acceleration})
