"""Both simulations side by side: how far apart do they drive, from the same start?

After the start the task is determined, so that the two can be compared to the last digits. The one
is `two-way-v0` as highway-env makes it, with its own start, its own observations and its own
reward, and with the speed limits lifted; the other is the batched one, which is given the same
start and the same actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bmdp.arrays import IntArray
from bmdp.envs.two_way.highway import (
    highway_road,
    lift_speed_limits,
    read_cars,
    time_to_collision,
)
from bmdp.envs.two_way.observations import MISSING
from bmdp.envs.two_way.physics import copied
from bmdp.envs.two_way.task import HORIZON, TwoWay

QUANTITIES = (
    "x", "y", "heading", "speed", "reward", "cost", "kinematics", "time_to_collision",
)  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """What was compared, and how far apart the two were."""

    n_situations: int
    n_decisions: int
    n_crashes: int  # of the ego car
    n_disagreements: int  # decisions after which a lane, a target or a crash was not the same
    largest: dict[str, float]  # difference of each quantity, after any decision, of any car


def compare(actions: IntArray, *, first_seed: int = 0) -> Comparison:
    """Drives situations of highway-env in both simulations.

    Args:
        actions: `[S, 15]`, what the ego car does in each of `S` situations until it crashes.
        first_seed: situation i is that of seed `first_seed + i`.

    Raises:
        MissingDependency: if highway-env is not installed.
    """
    pair = _Pair()
    largest = dict.fromkeys(QUANTITIES, 0.0)
    n_decisions = n_crashes = n_disagreements = 0
    for i, row in enumerate(actions):
        pair.start(first_seed + i)
        for action in row:
            differences, agree, has_crashed = pair.step(int(action))
            largest = {name: max(largest[name], differences[name]) for name in QUANTITIES}
            n_decisions, n_disagreements = n_decisions + 1, n_disagreements + (not agree)
            if has_crashed:
                n_crashes += 1
                break
    return Comparison(len(actions), n_decisions, n_crashes, n_disagreements, largest)


class _Pair:
    """One road in both simulations."""

    def __init__(self) -> None:
        self.task, self.grid = TwoWay(), TwoWay(observation="time-to-collision")
        self.env = highway_road(self.task.target_speeds)
        self.state = self.task.start(np.full((1, self.task.n_draws), 0.5))

    def start(self, seed: int) -> None:
        """Lets highway-env draw a situation, and copies it."""
        self.env.reset(seed=seed)
        lift_speed_limits(self.env)
        self.state = self.task.start(np.full((1, self.task.n_draws), 0.5))
        read_cars(self.env, self.state, 0)

    def step(self, action: int) -> tuple[dict[str, float], bool, bool]:
        """Returns differences, whether lanes, targets and crashes agree, and whether it crashed."""
        seen, reward, has_crashed, _, _ = self.env.step(action)
        outcome = self.task.step(self.state, np.array([action]), np.empty((1, 0)))
        ours, theirs = outcome.state, copied(outcome.state)
        read_cars(self.env, theirs, 0)
        self.state = ours
        cost = has_crashed + (self.env.vehicle.lane_index[2] == 0) / HORIZON
        is_missing = (seen == 0).all(axis=1, keepdims=True)
        pairs: dict[str, tuple[Any, Any]] = {
            "x": (ours.x, theirs.x),
            "y": (ours.y, theirs.y),
            "heading": (ours.heading, theirs.heading),
            "speed": (ours.speed, theirs.speed),
            "reward": (outcome.rewards[0], reward),
            "cost": (outcome.costs[0], cost),
            "kinematics": (self.task.observe(ours)[0], np.where(is_missing, MISSING, seen).ravel()),
            "time_to_collision": (self.grid.observe(ours)[0], time_to_collision(self.env).ravel()),
        }
        differences = {name: float(np.abs(a - b).max()) for name, (a, b) in pairs.items()}
        agree = all(
            np.array_equal(getattr(ours, name), getattr(theirs, name))
            for name in ("lane", "target_lane", "crashed", "speed_index")
        )
        return differences, agree, has_crashed
