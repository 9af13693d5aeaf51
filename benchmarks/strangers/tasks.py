"""The tasks, each with its environment, its discount and the best that can be had in it.

The *true frontier* of a task has the most reward that any policy earns for each cost, both expected
and discounted, from the start of an episode until it ends or is cut off. Policies that count steps
are among those compared. The score of a policy that earns R at cost C where budget b was asked is

    (R - floor) / (R*(c) - floor),  c = max(b, C) clipped to the costs of the frontier,

with floor = min(0, reward of the uniformly random policy). Every frontier lies above its floor.

Some frontiers rise so steeply at their cheap end that no measurement tells one vertex from the
next: that of the store rises from 102 at cost 0 to 134 at cost 0.0013. A frontier therefore begins
at its last vertex whose cost is at most 0.002, and at most 0.002 of the largest cost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from bmdp.arrays import FloatArray, read_only
from bmdp.errors import ConfigError
from bmdp.exact import FiniteBMDP
from bmdp.frontier import Frontier
from strangers.envs import MADE, env_id, has_batch, tables_of

Half: TypeAlias = Literal["develop", "test"]
Kind: TypeAlias = Literal["exact", "bound", "none"]

_NOTHING = 0.01
FREE = 0.002  # costs up to this are as good as the least
STORED = Path(__file__).parent / "truth"


@dataclass(frozen=True, eq=False)
class Truth:
    """The best that can be had in a task.

    Without any knowledge of it (kind "none") the frontier has no vertex.
    """

    costs: FloatArray  # [K], vertices of the frontier, rising
    rewards: FloatArray  # [K]
    floor: float  # reward from which scores count
    kind: Kind  # "bound": policies are known that earn this much
    error: float  # how far rewards may be off
    how: str  # it was found

    def __post_init__(self) -> None:
        """Makes arrays read-only."""
        for name in ("costs", "rewards"):
            object.__setattr__(self, name, read_only(np.asarray(getattr(self, name), np.float64)))

    @property
    def is_known(self) -> bool:
        """Whether there is a frontier."""
        return self.kind != "none"

    @property
    def cost_range(self) -> tuple[float, float]:
        """Costs of the cheapest and of the best-paid policy."""
        return float(self.costs[0]), float(self.costs[-1])

    def best_reward(self, costs: FloatArray) -> FloatArray:
        """Returns R* at costs `[B]`, clipped to those of the frontier."""
        return np.interp(costs, self.costs, self.rewards)

    def score(self, asked: FloatArray, reward: FloatArray, cost: FloatArray) -> FloatArray:
        """Returns the score at each budget, `[B]`.

        It is NaN where no frontier is known, and where even the best policy earns next to nothing:
        less than 1 % of what there is above the floor.
        """
        if not self.is_known:
            return np.full(len(asked), np.nan)
        room = self.best_reward(np.maximum(asked, cost)) - self.floor
        is_some = room > _NOTHING * (self.rewards[-1] - self.floor)
        scores = (reward - self.floor) / np.where(is_some, room, 1.0)
        return np.where(is_some, scores, np.nan)


@dataclass(frozen=True, eq=False)
class Stranger:
    """A task of the benchmark.

    >>> TASKS["frozen-lake-4x4"].half
    'develop'
    """

    name: str
    env_id: str  # of the environment as its author made it, for `gymnasium.make`
    gamma: float  # discount of rewards and costs
    half: Half
    truth: Callable[[], Truth]

    @property
    def has_tables(self) -> bool:
        """Whether the task is known as tables."""
        return MADE[self.name].tables is not None

    @property
    def fast_id(self) -> str:
        """Id of the batched simulation if there is one, else `env_id`."""
        return env_id(self.name, fast=True) if has_batch(self.name) else self.env_id

    def model(self) -> tuple[FiniteBMDP, FloatArray]:
        """Returns the task as a finite BMDP, cut off where its episodes are, and its start `[S]`.

        The last state is the one after the end. What a state shows is in `tables_of(name)`.

        Raises:
            ConfigError: if the task is not known as tables.
        """
        if not self.has_tables:
            raise ConfigError(f"{self.name} has no tables: its states are not finite.")
        return tables_of(self.name).model(MADE[self.name].max_steps)


@cache
def stored_truth(name: str) -> Truth:
    """Returns what `make_truth.py` computed of a task.

    Raises:
        ConfigError: if there is no such file.
    """
    path = STORED / f"{name}.json"
    if not path.exists():
        raise ConfigError(f"{path} does not exist; write it with make_truth.py {name}.")
    held = json.loads(path.read_text())
    return Truth(
        **{key: held[key] for key in ("costs", "rewards", "floor", "kind", "error", "how")}
    )


def frontier(truth: Truth) -> Frontier:
    """Returns a known truth as a frontier of the library."""
    return Frontier(truth.costs, truth.rewards)


def _task(name: str, gamma: float, half: Half) -> Stranger:
    return Stranger(name, env_id(name), gamma, half, partial(stored_truth, name))


_DEVELOP = {
    **{"frozen-lake-4x4": 0.97, "frozen-lake-8x8": 0.97, "taxi": 0.98, "cart-pole": 0.99},
    **{"deep-sea-treasure": 0.98, "stock": 0.99, "queue": 0.98, "corridors-4": 1.0},
    "highway-fast": 0.95,
}
_TEST = {
    **{"cliff-walking": 0.98, "blackjack": 1.0, "mountain-car": 0.99, "lunar-lander": 0.99},
    **{"resource-gathering": 0.9, "four-room": 0.98, "machine-repair": 0.98, "treatment": 0.99},
    **{"slot-filling": 1.0, "intersection": 0.95},
}

TASKS: dict[str, Stranger] = {
    **{name: _task(name, gamma, "develop") for name, gamma in _DEVELOP.items()},
    **{name: _task(name, gamma, "test") for name, gamma in _TEST.items()},
}
"""By name; those to develop with come first."""
