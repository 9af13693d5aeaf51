"""Slot-filling: a dialogue that asks for a few values, and the best that can be had of it."""

from bmdp.envs.slot_filling.frontier import true_frontier
from bmdp.envs.slot_filling.task import (
    SlotFilling,
    SlotFillingEnv,
    SlotFillingState,
    SlotFillingVectorEnv,
)
from bmdp.envs.slot_filling.turns import SUMMARISE

__all__ = [
    "SUMMARISE",
    "SlotFilling",
    "SlotFillingEnv",
    "SlotFillingState",
    "SlotFillingVectorEnv",
    "true_frontier",
]
