"""Environments: the paper's tasks, batched, as Gymnasium knows them."""

from bmdp.envs import corridors, slot_filling, two_way
from bmdp.envs.adapters import CostFunction, SixTupleAdapter, VectorRewardAdapter
from bmdp.envs.check import CostEnvReport, check_cost_env
from bmdp.envs.corridors import Corridors
from bmdp.envs.finite import FiniteEnv, FiniteVectorEnv
from bmdp.envs.optimum import known_frontier
from bmdp.envs.registry import ENV_IDS
from bmdp.envs.registry import register as _register
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

_register()
