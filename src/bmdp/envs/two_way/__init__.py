"""The two-way road: overtaking on the oncoming lane, which pays and is dangerous."""

from bmdp.envs.two_way.comparison import Comparison, compare
from bmdp.envs.two_way.curves import KNOWN_CURVES, known_curve, replanning_dial
from bmdp.envs.two_way.physics import FASTER, IDLE, LANE_LEFT, LANE_RIGHT, SLOWER, RoadState
from bmdp.envs.two_way.pictures import film, filmstrip, picture, svg
from bmdp.envs.two_way.reference import (
    Drives,
    MeasuredCurve,
    ReferenceCurve,
    equal_budget_curve,
    reference_curve,
)
from bmdp.envs.two_way.replanning import ReplanningDriver, replanning_curve
from bmdp.envs.two_way.task import TwoWay, TwoWayEnv, TwoWayVectorEnv

__all__ = [
    "FASTER",
    "IDLE",
    "KNOWN_CURVES",
    "LANE_LEFT",
    "LANE_RIGHT",
    "SLOWER",
    "Comparison",
    "Drives",
    "MeasuredCurve",
    "ReferenceCurve",
    "ReplanningDriver",
    "RoadState",
    "TwoWay",
    "TwoWayEnv",
    "TwoWayVectorEnv",
    "compare",
    "equal_budget_curve",
    "film",
    "filmstrip",
    "known_curve",
    "picture",
    "reference_curve",
    "replanning_curve",
    "replanning_dial",
    "svg",
]
