"""The protocol of a task: a simulation of many episodes at once, as functions of arrays.

A task has no memory and draws no random numbers by itself. It is given the states of `N` episodes,
their actions, and uniform numbers, and returns what follows. One environment is a batch of one, and
a batch is one call: see `gym.py` for both as Gymnasium knows them.

States are named tuples of arrays, each with `N` rows, so that some of the episodes can be taken
out, or put back, whatever the task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.frontier import Frontier
from bmdp.kinds import checked

State = Any
"""A named tuple of arrays `[N, ...]`."""


class Outcome(NamedTuple):
    """The result of one step of `N` episodes."""

    state: State
    rewards: FloatArray  # [N]
    costs: FloatArray  # [N]
    ended: BoolArray  # [N]


class Task(Protocol):
    """A simulation of many episodes at once."""

    @property
    def name(self) -> str:
        """Name of its random streams."""

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the actions, `[A]`."""

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """Space of the observations of one episode."""

    @property
    def gamma(self) -> float:
        """Discount of rewards and costs."""

    @property
    def horizon(self) -> int | None:
        """Largest number of steps of an episode, if there is one."""

    @property
    def budget_range(self) -> tuple[float, float]:
        """Budgets that mean something."""

    @property
    def cost_range(self) -> tuple[float, float] | None:
        """Least and largest discounted cost that an episode can have, or bounds of them."""

    @property
    def binary_costs(self) -> bool:
        """Whether every episode costs one of these two, and nothing between."""

    @property
    def n_draws(self) -> int:
        """Uniform numbers that a step takes, and a start too."""

    def start(self, uniforms: FloatArray) -> State:
        """Returns the states of new episodes, given numbers `[N, n_draws]`."""

    def step(self, state: State, actions: IntArray, uniforms: FloatArray) -> Outcome:
        """Plays actions `[N]`, given numbers `[N, n_draws]`."""

    def observe(self, state: State) -> NDArray[Any]:
        """Returns what is seen, `[N, ...]`."""


@checked
@dataclass(frozen=True)
class TrueFrontier:
    """A frontier that a task is known to have, and how well it is known.

    >>> from bmdp.envs.slot_filling import SlotFilling, true_frontier
    >>> found = true_frontier(SlotFilling(slots=1, horizon=3), n_bins=2)
    >>> found.frontier.costs.round(3).tolist(), found.frontier.rewards.round(1).tolist()
    ([0.0, 0.125, 0.25], [47.7, 65.3, 75.0])
    >>> round(found.reward_error, 1)
    6.2
    """

    frontier: Frontier  # from the start, in discounted cost and reward
    reward_error: float  # the rewards of the task are above by about this much, at most
    settings: dict[str, Any]  # of the task, and of how it was found


T = TypeVar("T", bound=tuple[Any, ...])


def rows_of(state: T, rows: NDArray[Any]) -> T:
    """Returns the states of some of the episodes."""
    return type(state)(*(column[rows] for column in state))


def with_rows(state: T, rows: NDArray[Any], others: T) -> T:
    """Returns states in which some of the episodes are replaced by others."""
    columns = []
    for column, new in zip(state, others, strict=True):
        copy = np.array(column)
        copy[rows] = new
        columns.append(copy)
    return type(state)(*columns)
