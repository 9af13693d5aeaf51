"""Both simulations side by side: how far apart do they drive, from the same start?

After the start the task is determined, so that the two can be compared to the last digits. The one
is `two-way-v0` as highway-env makes it, with its own start, its own observations and its own
reward, with the speed limits lifted, and with unaware oncoming drivers if the task says so; the
other is the batched one, which is given the same start and the same actions.

Two things are left to the last bit of a float, in either simulation:

- which way a car is pushed that is hit dead centre, by one that is neither to its left nor to its
  right by more than rounding;
- how a car steers that crawls, because below 1 m/s its controller is unstable, and makes rounding
  errors grow from frame to frame.

Where the two differ for one of these reasons, the comparison of that situation ends, and it is
counted. Any other difference is a disagreement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bmdp.arrays import IntArray
from bmdp.envs.two_way.highway import (
    highway_road,
    lift_speed_limits,
    read_cars,
    time_to_collision,
)
from bmdp.envs.two_way.observations import MISSING
from bmdp.envs.two_way.physics import CAR_LENGTH, DT, PUSH_X, TOP_SPEED, RoadState, copied
from bmdp.envs.two_way.task import HORIZON, TwoWay

TOLERANCE = 1e-6
QUANTITIES = (
    "x", "y", "heading", "speed", "reward", "cost", "kinematics", "time_to_collision",
)  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """Two simulators side by side: sizes of the comparison and largest differences.

    >>> found = compare(np.zeros((1, 15), int))  # to the oncoming lane, and on
    >>> found.n_situations, max(found.largest.values()) < TOLERANCE
    (1, True)
    """

    n_situations: int  # that were driven
    n_decisions: int  # of all of them
    n_crashes: int  # of the ego car
    n_dead_centre: int  # situations that end because a car was hit dead centre
    n_crawling: int  # situations that end because a car crawled
    n_disagreements: int  # other decisions after which the two differ by more than 1e-6
    largest: dict[str, float]  # difference of each quantity, of any car, but for those


def compare(actions: IntArray, *, aware_oncoming: bool = False, first_seed: int = 0) -> Comparison:
    """Drives situations of highway-env in both simulations.

    Args:
        actions: `[S, 15]`, what the ego car does in each of `S` situations until it crashes.
        aware_oncoming: the setting of `TwoWay`; if true, highway-env is as it comes.
        first_seed: situation i is that of seed `first_seed + i`.

    Raises:
        MissingDependency: if highway-env is not installed.

    >>> found = compare(np.ones((1, 15), int))  # at 30 m/s into the car ahead
    >>> found.n_decisions, found.n_crashes, found.n_disagreements
    (4, 1, 0)
    """
    pair = _Pair(aware_oncoming)
    steps = []
    for i, row in enumerate(actions):
        pair.start(first_seed + i)
        for action in row:
            steps.append(pair.step(int(action)))
            if steps[-1].has_crashed or steps[-1].reason:
                break
    compared = [step.differences for step in steps if not step.reason]
    return Comparison(
        n_situations=len(actions),
        n_decisions=len(steps),
        n_crashes=sum(step.has_crashed for step in steps),
        n_dead_centre=sum(step.reason == "dead centre" for step in steps),
        n_crawling=sum(step.reason == "crawling" for step in steps),
        n_disagreements=sum(step.differs and not step.reason for step in steps),
        largest={name: max(found[name] for found in compared) for name in QUANTITIES},
    )


class _Step(NamedTuple):
    """One decision in both simulations."""

    differences: dict[str, float]
    differs: bool  # by more than the tolerance, or in lanes, targets and crashes
    reason: str  # why that is no disagreement, if there is one
    has_crashed: bool


class _Pair:
    """One road in both simulations."""

    def __init__(self, aware: bool) -> None:
        self.task = TwoWay(aware_oncoming=aware)
        self.grid = TwoWay(aware_oncoming=aware, features="time-to-collision")
        self.env = highway_road(self.task.target_speeds, aware)

    def start(self, seed: int) -> None:
        """Lets highway-env draw a situation, and copies it."""
        self.env.reset(seed=seed)
        lift_speed_limits(self.env)
        self.state = self.task.start(np.full((1, self.task.n_draws), 0.5))
        read_cars(self.env, self.state, 0)
        self.has_crawled = False

    def step(self, action: int) -> _Step:
        """Drives for a second in both."""
        frames = self.task.frames(self.state, np.array([action]))
        outcome = self.task.step(self.state, np.array([action]), np.empty((1, 0)))
        seen, reward, has_crashed, _, _ = self.env.step(action)
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
        differs = max(differences.values()) > TOLERANCE or not all(
            np.array_equal(getattr(ours, name), getattr(theirs, name))
            for name in ("lane", "target_lane", "crashed", "speed_index")
        )
        self.has_crawled |= any(((frame.speed < 1) & ~frame.crashed).any() for frame in frames)
        reason = ""
        if differs and any(is_hit_dead_centre(frame) for frame in frames):
            reason = "dead centre"
        elif differs and self.has_crawled:
            reason = "crawling"
        return _Step(differences, differs, reason, has_crashed)


def is_hit_dead_centre(state: RoadState) -> bool:
    """Returns whether two cars of the first road are upon each other, in line to rounding."""
    hit = state.crashed[0] | ~np.isnan(state.cars[0, :, PUSH_X])
    x, y = state.x[0], state.y[0]
    reach = CAR_LENGTH + 2 * TOP_SPEED * DT
    near = np.abs(x[:, None] - x) < reach
    in_line = np.abs(y[:, None] - y) < TOLERANCE
    both = hit[:, None] & hit & ~np.eye(len(x), dtype=np.bool_)
    return bool((near & in_line & both).any())
