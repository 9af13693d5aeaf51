"""The two-way road: overtaking on the oncoming lane, which pays and is dangerous."""

from bmdp.envs.two_way.physics import (
    FASTER,
    IDLE,
    LANE_LEFT,
    LANE_RIGHT,
    SLOWER,
    RoadState,
)
from bmdp.envs.two_way.task import TwoWay, TwoWayEnv, TwoWayVectorEnv

__all__ = [
    "FASTER",
    "IDLE",
    "LANE_LEFT",
    "LANE_RIGHT",
    "SLOWER",
    "RoadState",
    "TwoWay",
    "TwoWayEnv",
    "TwoWayVectorEnv",
]
