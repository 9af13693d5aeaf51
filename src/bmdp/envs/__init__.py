"""Environments: the paper's tasks, batched, as Gymnasium knows them."""

import gymnasium as _gymnasium

from bmdp.envs import corridors, slot_filling, two_way
from bmdp.envs.adapters import CostFunction, SixTupleAdapter, VectorRewardAdapter
from bmdp.envs.check import CostEnvReport, check_cost_env
from bmdp.envs.corridors import Corridors
from bmdp.envs.finite import FiniteEnv, FiniteVectorEnv
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
    "slot_filling",
    "two_way",
]

ENV_IDS = {
    "corridors": "bmdp/Corridors-v0",
    "slot-filling": "bmdp/SlotFilling-v0",
    "two-way": "bmdp/TwoWay-v0",
}
"""Short names and ids of the environments."""

for _module, _name in (
    ("corridors", "Corridors"),
    ("slot_filling", "SlotFilling"),
    ("two_way", "TwoWay"),
):
    _gymnasium.register(
        id=f"bmdp/{_name}-v0",
        entry_point=f"bmdp.envs.{_module}:{_name}Env",
        vector_entry_point=f"bmdp.envs.{_module}:{_name}VectorEnv",
    )
