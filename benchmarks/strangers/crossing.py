"""Cars at the intersection. highway-env changes their class, so they have one of their own."""

from __future__ import annotations

from highway_env.vehicle.behavior import IDMVehicle


class CrossingVehicle(IDMVehicle):  # type: ignore[misc,unused-ignore]
    """A car that follows the one before it."""
