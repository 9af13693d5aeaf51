"""Environments of the benchmark, which Gymnasium knows as soon as this module is imported.

`gymnasium.make("strangers.envs:strangers/Stock-v0")` is the task as its author made it, with
`info["cost"]`. `strangers.envs:strangers/StockFast-v0` is the same task as one batched simulation,
by tables or by the same equations, where there is one: it shows the same observations and pays the
same. Corridors and slot-filling are tasks of this library, which are batched anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import gymnasium

from bmdp.envs.corridors import CorridorsEnv, CorridorsVectorEnv
from bmdp.envs.gym import TaskVectorEnv
from bmdp.envs.slot_filling import SlotFillingEnv, SlotFillingVectorEnv
from strangers import boxes, driving, grids, own, toys
from strangers.tables import Tables, TablesVectorEnv

Env = gymnasium.Env[Any, Any]
Batch = Callable[[int], TaskVectorEnv]


class Made(NamedTuple):
    """How an environment is made, and its tables or its batched simulation where it has some."""

    name: str  # of its id
    env: Callable[[], Env]
    max_steps: int | None = None  # after which an episode is cut off
    tables: Callable[[], Tables] | None = None
    batch: Batch | None = None


def _box(task: type[boxes.BoxTask]) -> Batch:
    return lambda n: boxes.BoxVectorEnv(task(), n)


def _lake(size: str) -> Made:
    tables = partial(toys.frozen_lake_tables, size)
    return Made(f"FrozenLake{size}", partial(toys.frozen_lake, size), 300, tables)


MADE: dict[str, Made] = {
    "frozen-lake-4x4": _lake("4x4"),
    "frozen-lake-8x8": _lake("8x8"),
    "taxi": Made("Taxi", toys.taxi, 300, toys.taxi_tables),
    "cart-pole": Made("CartPole", boxes.cart_pole, 500, batch=_box(boxes.CartPoleTask)),
    "deep-sea-treasure": Made("DeepSeaTreasure", grids.DeepSeaTreasure, 100, grids.treasure_tables),
    "stock": Made("Stock", own.Stock, None, own.stock_tables),
    "queue": Made("Queue", own.Queue, 300, own.queue_tables),
    "corridors-4": Made(
        "Corridors4",
        partial(CorridorsEnv, routes=4),
        batch=lambda n: CorridorsVectorEnv(num_envs=n, routes=4),
    ),
    "highway-fast": Made("HighwayFast", driving.highway_fast),
    "cliff-walking": Made("CliffWalking", toys.cliff_walking, 300, toys.cliff_tables),
    "blackjack": Made("Blackjack", toys.blackjack, None, toys.blackjack_tables),
    "mountain-car": Made("MountainCar", boxes.mountain_car, 500, batch=_box(boxes.MountainCarTask)),
    "lunar-lander": Made("LunarLander", boxes.lunar_lander, 1_000),
    "resource-gathering": Made(
        "ResourceGathering", grids.ResourceGathering, 100, grids.gathering_tables
    ),
    "four-room": Made("FourRoom", grids.FourRoom, 200, grids.rooms_tables),
    "machine-repair": Made("MachineRepair", own.MachineRepair, 300, own.machine_tables),
    "treatment": Made("Treatment", own.Treatment, None, own.treatment_tables),
    "slot-filling": Made(
        "SlotFilling", SlotFillingEnv, batch=lambda n: SlotFillingVectorEnv(num_envs=n)
    ),
    "intersection": Made("Intersection", driving.intersection),
}
"""By the names of tasks."""


def env_id(task: str, *, fast: bool = False) -> str:
    """Returns the id of a task's environment, with the module that registers it."""
    return f"strangers.envs:strangers/{MADE[task].name}{'Fast' if fast else ''}-v0"


def has_batch(task: str) -> bool:
    """Whether a task has a batched simulation."""
    made = MADE[task]
    return made.tables is not None or made.batch is not None


@cache
def tables_of(task: str) -> Tables:
    """Returns the tables of a task, computed once in a process."""
    make = MADE[task].tables
    assert make is not None
    return make()


def make_one(task: str) -> Env:
    """Makes an environment as its author made it, with a cost."""
    return MADE[task].env()


def make_batch(task: str, num_envs: int = 1) -> TaskVectorEnv:
    """Makes a batched simulation."""
    batch = MADE[task].batch
    return TablesVectorEnv(tables_of(task), num_envs) if batch is None else batch(num_envs)


def _register() -> None:
    for task, made in MADE.items():
        how: dict[str, Any] = {
            "entry_point": "strangers.envs:make_one",
            "max_episode_steps": made.max_steps,
            "kwargs": {"task": task},
        }
        for fast in (False, True):
            name = env_id(task, fast=fast).rpartition(":")[2]
            if (fast and not has_batch(task)) or name in gymnasium.registry:
                continue
            batch = "strangers.envs:make_batch" if fast else None
            gymnasium.register(name, vector_entry_point=batch, **how)


_register()
