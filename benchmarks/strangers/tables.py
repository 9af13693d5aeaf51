"""Finite tasks as tables: all outcomes of every action, with their chances.

A table is exact, and it is fast: episodes of it are drawn for a whole batch at once. A batch shows
what the environment shows, and its rewards and costs are those of single outcomes, not their means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.envs.finite import Lotteries, draw
from bmdp.envs.gym import TaskVectorEnv
from bmdp.envs.tasks import Outcome
from bmdp.exact import FiniteBMDP


class Chance(NamedTuple):
    """One outcome of an action."""

    probability: float
    next_state: int
    reward: float
    cost: float
    over: bool  # whether the episode ends


@dataclass(frozen=True, eq=False)
class Tables:
    """A finite task of `S` states and `A` actions, whose actions have `E` outcomes in all."""

    n_actions: int  # A
    gamma: float
    start: FloatArray  # [S], chance to begin in each state
    observations: NDArray[Any]  # [S, ...], what each state shows
    space: spaces.Space[Any]  # of observations
    row_start: IntArray  # [S*A + 1], where the outcomes of each state and action begin
    probability: FloatArray  # [E]
    next_state: IntArray  # [E]
    reward: FloatArray  # [E]
    cost: FloatArray  # [E]
    over: BoolArray  # [E]

    @property
    def n_states(self) -> int:
        """S, without the one that follows the end."""
        return len(self.start)

    @cached_property
    def lotteries(self) -> Lotteries:
        """What draws outcomes: a row for each state and action, and one for the start."""
        n_outcomes = len(self.probability)
        begins = np.append(self.row_start, n_outcomes + self.n_states)
        chances = np.concatenate((self.probability, self.start))
        numbers = np.concatenate((np.arange(n_outcomes), np.arange(self.n_states)))
        total = np.cumsum(chances)
        before = np.repeat(np.append(0.0, total)[begins[:-1]], np.diff(begins))
        return Lotteries(begins, numbers, total - before)

    def model(self, horizon: int | None = None) -> tuple[FiniteBMDP, FloatArray]:
        """Returns the BMDP and its start `[S + 1]`; the last state is the one after the end.

        Args:
            horizon: number of steps after which an episode is cut off.
        """
        n_rows, last = self.n_states * self.n_actions, self.n_states
        rows = np.repeat(np.arange(n_rows), np.diff(self.row_start))
        columns = np.where(self.over, last, self.next_state)
        shape = (n_rows + self.n_actions, last + 1)
        transition = sparse.csr_array(sparse.coo_array((self.probability, (rows, columns)), shape))

        def mean(values: FloatArray) -> FloatArray:
            sums = np.bincount(rows, self.probability * values, shape[0]).astype(np.float64)
            return sums.reshape(last + 1, self.n_actions)

        none = np.diff(self.row_start).reshape(-1, self.n_actions).sum(axis=1) == 0
        model = FiniteBMDP(
            transition=transition,
            reward=mean(self.reward),
            cost=mean(self.cost),
            gamma=self.gamma,
            terminal=np.append(none, True),
            horizon=horizon,
        )
        return model, np.append(self.start, 0.0)


Outcomes: TypeAlias = Callable[[int, int], Iterable[Chance]]
"""From the number of a state and an action to what may follow. Equal outcomes are joined; a state
that is only seen after the end has none."""


def tabulate(
    outcomes: Outcomes,
    *,
    n_actions: int,
    gamma: float,
    start: ArrayLike,
    observations: ArrayLike,
    space: spaces.Space[Any],
) -> Tables:
    """Returns tables, given the outcomes of each action.

    Args:
        outcomes: of a state and an action.
        n_actions: A.
        gamma: discount.
        start: chances `[S]`.
        observations: `[S, ...]`.
        space: of observations.
    """
    begun = np.asarray(start, np.float64)
    found: list[Chance] = []
    row_start = [0]
    for state in range(len(begun)):
        for action in range(n_actions):
            joined: dict[tuple[Any, ...], float] = {}
            for chance in outcomes(state, action):
                if chance.probability > 0:
                    joined[chance[1:]] = joined.get(chance[1:], 0.0) + chance.probability
            total = sum(joined.values())
            found += [Chance(p / total, *rest) for rest, p in joined.items()]
            row_start.append(len(found))
    columns = list(zip(*found, strict=True))
    return Tables(
        n_actions=n_actions,
        gamma=gamma,
        start=begun / begun.sum(),
        observations=np.asarray(observations),
        space=space,
        row_start=np.array(row_start, np.int64),
        probability=np.array(columns[0], np.float64),
        next_state=np.array(columns[1], np.int64),
        reward=np.array(columns[2], np.float64),
        cost=np.array(columns[3], np.float64),
        over=np.array(columns[4], np.bool_),
    )


class Places(NamedTuple):
    """State of each episode."""

    number: IntArray  # [N]


class TablesTask:
    """Tables as a task of the library."""

    name, n_draws, horizon, binary_costs = "strangers", 1, None, False
    budget_range: tuple[float, float] = (0.0, 1.0)
    cost_range: tuple[float, float] | None = None

    def __init__(self, tables: Tables) -> None:
        """Keeps the tables."""
        self.tables, self.gamma = tables, tables.gamma
        self.action_names: tuple[str, ...] = tuple(map(str, range(tables.n_actions)))
        self.observation_space = tables.space

    def start(self, uniforms: FloatArray) -> Places:
        """Draws states to start in."""
        last = np.full(len(uniforms), self.tables.n_states * self.tables.n_actions)
        return Places(draw(self.tables.lotteries, last, uniforms[:, 0]))

    def step(self, state: Places, actions: IntArray, uniforms: FloatArray) -> Outcome:
        """Draws outcomes."""
        held = self.tables
        drawn = draw(held.lotteries, state.number * held.n_actions + actions, uniforms[:, 0])
        following = Places(held.next_state[drawn])
        return Outcome(following, held.reward[drawn], held.cost[drawn], held.over[drawn])

    def observe(self, state: Places) -> NDArray[Any]:
        """Returns what the environment would show."""
        return self.tables.observations[state.number]


class TablesVectorEnv(TaskVectorEnv):
    """A batch of episodes of a task by its tables. Of the task it tells the discount alone."""

    def __init__(self, tables: Tables, num_envs: int = 1) -> None:
        super().__init__(TablesTask(tables), num_envs)
        self.metadata = {**TaskVectorEnv.metadata, "gamma": tables.gamma}


def from_toy_text(
    env: Any,
    outcome: Callable[[int, int, int, float], tuple[float, float]],
    *,
    gamma: float,
) -> Tables:
    """Returns tables of one of Gymnasium's toy-text environments, by its own `P`.

    Args:
        env: with `P` and `initial_state_distrib`.
        outcome: from (state, action, next state, its reward) to (reward, cost).
        gamma: discount.
    """
    given = env.unwrapped

    def outcomes(state: int, action: int) -> Iterable[Chance]:
        for chance, following, reward, over in given.P[state][action]:
            paid = outcome(state, action, int(following), float(reward))
            yield Chance(float(chance), int(following), *paid, bool(over))

    n_states = int(given.observation_space.n)
    return tabulate(
        outcomes,
        n_actions=int(given.action_space.n),
        gamma=gamma,
        start=given.initial_state_distrib,
        observations=np.arange(n_states),
        space=given.observation_space,
    )


def from_simulator(
    follow: Callable[[Any, int], Sequence[tuple[float, Any, float, float, bool]]],
    starts: Sequence[Any],
    show: Callable[[Any], ArrayLike],
    *,
    n_actions: int,
    gamma: float,
    space: spaces.Space[Any],
) -> Tables:
    """Returns tables of all states that can be reached.

    Args:
        follow: from a state and an action to outcomes (chance, state, reward, cost, over).
        starts: states that are equally likely at the start; a state can be hashed.
        show: from a state to what it shows.
        n_actions: A.
        gamma: discount.
        space: of observations.
    """
    numbers = {state: i for i, state in enumerate(dict.fromkeys(starts))}
    n_starts, waiting = len(numbers), list(numbers)
    chances: dict[tuple[int, int], list[Chance]] = {}
    while waiting:
        state = waiting.pop()
        for action in range(n_actions):
            rows = chances.setdefault((numbers[state], action), [])
            for chance, following, reward, cost, over in follow(state, action):
                if following not in numbers:
                    numbers[following] = len(numbers)
                    waiting.append(following)
                rows.append(Chance(chance, numbers[following], reward, cost, over))
    return tabulate(
        lambda state, action: chances[state, action],
        n_actions=n_actions,
        gamma=gamma,
        start=np.arange(len(numbers)) < n_starts,
        observations=np.array([np.asarray(show(state)) for state in numbers]),
        space=space,
    )
