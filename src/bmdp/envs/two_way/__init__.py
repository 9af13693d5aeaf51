"""The two-way road: overtaking on the oncoming lane, which pays and is dangerous."""

from bmdp.envs.two_way.comparison import Comparison, compare
from bmdp.envs.two_way.physics import FASTER, IDLE, LANE_LEFT, LANE_RIGHT, SLOWER, RoadState
from bmdp.envs.two_way.pictures import film, filmstrip, picture, svg
from bmdp.envs.two_way.reference import Drives, ReferenceCurve, reference_curve
from bmdp.envs.two_way.task import TwoWay, TwoWayEnv, TwoWayVectorEnv

__all__ = [
    "FASTER",
    "IDLE",
    "LANE_LEFT",
    "LANE_RIGHT",
    "SLOWER",
    "Comparison",
    "Drives",
    "ReferenceCurve",
    "RoadState",
    "TwoWay",
    "TwoWayEnv",
    "TwoWayVectorEnv",
    "compare",
    "film",
    "filmstrip",
    "picture",
    "reference_curve",
    "svg",
]
