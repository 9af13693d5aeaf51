"""Episodes of our tasks with all that happened, hidden or not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from bmdp.arrays import FloatArray, IntArray
from bmdp.envs.episodes import environment_seeds
from bmdp.envs.gym import Episodes
from bmdp.envs.tasks import State, Task, rows_of
from bmdp.learn.spec import EnvConfig
from bmdp.policies.policy import BudgetedPolicy
from bmdp.randomness import EpisodeStreams


@dataclass(frozen=True, eq=False)
class Trace:
    """One episode of `T` steps."""

    states: tuple[State, ...]  # [T + 1], of one row each, with what is hidden
    actions: IntArray  # [T]
    rewards: FloatArray  # [T]
    costs: FloatArray  # [T]
    budgets: FloatArray  # [T + 1], held before each decision, and handed on by the last


def task_of(env: EnvConfig) -> Any:
    """Returns the task of an environment of ours."""
    made = gymnasium.make(env.spec(), disable_env_checker=True)
    made.close()
    return made.unwrapped.task  # type: ignore[attr-defined]


def started(task: Task, n_episodes: int, seed: int) -> Episodes:
    """Returns the first episodes of `bmdp.evaluate` with the same seed, as they begin."""
    episodes = Episodes(task, n_episodes)
    episodes.seed(np.array(environment_seeds(seed, range(n_episodes))))
    episodes.start(np.arange(n_episodes))
    return episodes


def played(
    policy: BudgetedPolicy, task: Task, budget: float, n_episodes: int, seed: int
) -> list[Trace]:
    """Plays episodes at a budget, and returns all that happened.

    Episode k meets the chances that it meets in `bmdp.evaluate` with the same seed. The policy's
    random numbers do not depend on the budget either.
    """
    rows, episodes = np.arange(n_episodes), started(task, n_episodes, seed)
    streams = EpisodeStreams.named(seed, "executions", range(n_episodes))
    tracker = policy.start(task.observe(episodes.state), budget, streams)
    traces = [
        _Open([rows_of(episodes.state, np.array([row]))], [tracker.budgets[row]]) for row in rows
    ]
    going = rows
    while len(going):
        actions = tracker.decide(task.observe(episodes.state)).action
        outcome = episodes.step(going, actions[going])
        for place, row in enumerate(going):
            traces[row].states.append(rows_of(outcome.state, np.array([place])))
            traces[row].budgets.append(tracker.budgets[row])
            step = actions[row], outcome.rewards[place], outcome.costs[place]
            traces[row].steps.append(step)
        paid: FloatArray = np.zeros(n_episodes)
        paid[going] = outcome.costs
        going = going[~outcome.ended]
        tracker.observe(paid, task.observe(episodes.state), ~np.isin(rows, going))
    return [trace.closed() for trace in traces]


@dataclass(frozen=True)
class _Open:
    """An episode that is going on."""

    states: list[State]
    budgets: list[float]
    steps: list[tuple[int, float, float]] = field(default_factory=list)

    def closed(self) -> Trace:
        """The episode when it is over."""
        actions, rewards, costs = (np.array(column) for column in zip(*self.steps, strict=True))
        return Trace(tuple(self.states), actions, rewards, costs, np.array(self.budgets))
