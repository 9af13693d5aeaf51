"""Two roads of highway-env, where a crash costs 1 and is no part of the reward."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from bmdp.envs.adapters import CostFunction
from bmdp.errors import MissingDependency
from strangers.toys import Env, with_gamma

DRIVING_GAMMA = 0.95


def _crash(before: Any, action: Any, after: Any, info: dict[str, Any]) -> float:
    return float(info["crashed"])


def _road(module: str, name: str, **config: Any) -> Env:
    if importlib.util.find_spec("highway_env") is None:
        raise MissingDependency(
            "this task needs highway-env, which is not installed: pip install 'bmdp[driving]'"
        )
    made: Any = getattr(importlib.import_module(f"highway_env.envs.{module}"), name)
    env: Any = made(config={"collision_reward": 0.0, **config})
    return with_gamma(CostFunction(env, _crash), DRIVING_GAMMA)


def highway_fast() -> Env:
    """highway-fast-v0: speed and the right lane are paid, for 30 s or until a crash."""
    return _road("highway_env", "HighwayEnvFast")


def intersection() -> Env:
    """intersection-v0: speed and arriving are paid, for 13 s or until a crash."""
    cars = {"other_vehicles_type": "strangers.crossing.CrossingVehicle"}
    return _road("intersection_env", "IntersectionEnv", **cars)
