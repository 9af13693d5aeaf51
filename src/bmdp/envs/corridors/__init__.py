"""Corridors: a safe way that pays little, a risky one that pays much, and the best mixtures."""

from bmdp.envs.corridors.frontier import true_frontier
from bmdp.envs.corridors.pictures import picture
from bmdp.envs.corridors.task import (
    DOWN,
    LEFT,
    RIGHT,
    STOP,
    UP,
    Corridors,
    CorridorsEnv,
    CorridorsState,
    CorridorsVectorEnv,
)

__all__ = [
    "DOWN",
    "LEFT",
    "RIGHT",
    "STOP",
    "UP",
    "Corridors",
    "CorridorsEnv",
    "CorridorsState",
    "CorridorsVectorEnv",
    "picture",
    "true_frontier",
]
