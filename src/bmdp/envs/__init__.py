"""Environments: the paper's tasks, batched, as Gymnasium knows them.

A name is imported when it is first asked for: the tasks need numba and scipy, their ids do not.
"""

from typing import TYPE_CHECKING

from bmdp.envs.registry import ENV_IDS
from bmdp.later import asked_later as _asked_later

if TYPE_CHECKING:
    from bmdp.envs import corridors, slot_filling, two_way
    from bmdp.envs.adapters import CostFunction, SixTupleAdapter, VectorRewardAdapter
    from bmdp.envs.check import CostEnvReport, check_cost_env
    from bmdp.envs.corridors import Corridors
    from bmdp.envs.finite import FiniteEnv, FiniteVectorEnv
    from bmdp.envs.optimum import known_frontier
    from bmdp.envs.scripted import ScriptedPolicy
    from bmdp.envs.slot_filling import SlotFilling
    from bmdp.envs.tasks import TrueFrontier
    from bmdp.envs.two_way import TwoWay

__all__ = [
    "ENV_IDS",
    "Corridors",
    "CostEnvReport",
    "CostFunction",
    "FiniteEnv",
    "FiniteVectorEnv",
    "ScriptedPolicy",
    "SixTupleAdapter",
    "SlotFilling",
    "TrueFrontier",
    "TwoWay",
    "VectorRewardAdapter",
    "check_cost_env",
    "corridors",
    "known_frontier",
    "slot_filling",
    "two_way",
]

_LATER = {
    "": ("corridors", "slot_filling", "two_way"),
    "adapters": ("CostFunction", "SixTupleAdapter", "VectorRewardAdapter"),
    "check": ("CostEnvReport", "check_cost_env"),
    "corridors": ("Corridors",),
    "finite": ("FiniteEnv", "FiniteVectorEnv"),
    "optimum": ("known_frontier",),
    "scripted": ("ScriptedPolicy",),
    "slot_filling": ("SlotFilling",),
    "tasks": ("TrueFrontier",),
    "two_way": ("TwoWay",),
}
"""Names by the modules that have them, which are imported when one of them is asked for."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = _asked_later(__name__, _LATER)
