"""Tasks as Gymnasium environments: one episode at a time, or a batch of them.

`info["cost"]` is there at every step and at reset. The horizon ends an episode as `terminated`.
Slot i of a batch with seed s plays what a single environment with seed s + i plays: what an episode
draws depends on its seed, its number since then, and its step, and on nothing else.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray, any_array
from bmdp.checks import require_count
from bmdp.envs.tasks import Outcome, State, Task, rows_of, with_rows
from bmdp.errors import ConfigError, DataError, EnvError
from bmdp.kinds import checked
from bmdp.randomness import EpisodeStreams, stream_key

_LARGEST_SEED = 2**32 - 1
_EPISODES = 2**31  # of one seed


def describe(task: Task) -> dict[str, Any]:
    """Returns what the metadata of an environment say of its task."""
    return {
        "action_names": task.action_names,
        "binary_costs": task.binary_costs,
        "budget_range": task.budget_range,
        "cost_range": task.cost_range,
        "gamma": task.gamma,
        "horizon": task.horizon,
    }


class Episodes:
    """`N` episodes of a task, each with a seed, a number and a step of its own."""

    def __init__(self, task: Task, n_episodes: int) -> None:
        """No episode has started yet."""
        self.task = task
        self.steps: IntArray = np.zeros(n_episodes, np.int64)
        self.state: State = None
        self.seed(np.zeros(n_episodes, np.int64))

    def seed(self, seeds: IntArray) -> None:
        """Gives each episode a seed, from which it counts its episodes anew."""
        self.draw_from(EpisodeStreams(stream_key(0, self.task.name), seeds * _EPISODES))

    def draw_from(self, streams: EpisodeStreams) -> None:
        """Gives each episode a stream; a later episode at its place has the next number."""
        self._streams, self._numbers = streams, np.full(len(streams), -1, np.int64)

    def start(self, rows: NDArray[Any]) -> None:
        """Starts the next episodes at some of the places, chosen by position."""
        self._numbers[rows] += 1
        self.steps[rows] = 0
        started = self.task.start(self._uniforms(rows))
        every = self.state is None or len(rows) == len(self.steps)
        self.state = started if every else with_rows(self.state, rows, started)

    def step(self, rows: NDArray[Any], actions: IntArray) -> Outcome:
        """Plays one step at some of the places."""
        self.steps[rows] += 1
        every = len(rows) == len(self.steps)
        now = self.state if every else rows_of(self.state, rows)
        outcome = self.task.step(now, actions, self._uniforms(rows))
        self.state = outcome.state if every else with_rows(self.state, rows, outcome.state)
        return outcome

    def _uniforms(self, rows: NDArray[Any]) -> FloatArray:
        """Numbers of the current steps; a start is step 0."""
        episodes = self._streams.episodes[rows] + self._numbers[rows]
        streams = EpisodeStreams(self._streams.key, episodes)
        return streams.uniforms(self.steps[rows], self.task.n_draws)


@checked
class TaskEnv(gymnasium.Env[NDArray[Any], Any]):
    """One episode at a time."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, task: Task, render_mode: str | None = None) -> None:
        """Makes an environment of a task."""
        self.metadata = {**type(self).metadata, **describe(task)}
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            modes = self.metadata["render_modes"]
            raise ConfigError(f"render_mode must be one of {modes}, or None; got {render_mode!r}.")
        self.task, self.render_mode = task, render_mode
        self.observation_space = task.observation_space
        self.action_space = spaces.Discrete(len(task.action_names))
        self._episodes = Episodes(task, 1)
        self._is_seeded, self._is_going = False, False
        # What was seen, and what was done to get there.
        self.trace: list[tuple[NDArray[Any], int | None]] = []

    @property
    def state(self) -> State:
        """The state of the episode as a batch of one, with what is hidden."""
        return self._episodes.state

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Starts the next episode, or with a seed the first one of that seed."""
        super().reset(seed=None if seed is None else _checked_seed(seed))
        if seed is not None or not self._is_seeded:
            drawn = int(self.np_random.integers(_LARGEST_SEED)) if seed is None else seed
            self._episodes.seed(np.array([drawn]))
            self._is_seeded = True
        self._episodes.start(np.array([0]))
        self._is_going = True
        seen = self.task.observe(self._episodes.state)[0]
        self.trace = [(seen, None)]
        return seen, {"cost": 0.0}

    def step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Plays one step."""
        if not self._is_going:
            raise EnvError("the episode is over, or none has begun: call reset before step.")
        actions = checked_actions(any_array("action", action).reshape(-1), self.task, 1)
        outcome = self._episodes.step(np.array([0]), actions)
        seen = self.task.observe(outcome.state)[0]
        self._is_going = not bool(outcome.ended[0])
        self.trace.append((seen, int(actions[0])))
        reward, cost = float(outcome.rewards[0]), float(outcome.costs[0])
        return seen, reward, bool(outcome.ended[0]), False, {"cost": cost}


@checked
class TaskVectorEnv(gymnasium.vector.VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]):
    """A batch of episodes as one simulation; an ended one starts anew at the next step."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, task: Task, num_envs: int = 1, render_mode: str | None = None) -> None:
        """Makes a batch of environments of a task."""
        require_count("num_envs", num_envs, 1)
        if render_mode is not None:
            raise ConfigError("a batch cannot be rendered: render_mode must be None.")
        self.metadata = {**type(self).metadata, **describe(task)}
        self.task, self.num_envs, self.render_mode = task, num_envs, None
        self.single_observation_space = task.observation_space
        self.single_action_space = spaces.Discrete(len(task.action_names))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._episodes = Episodes(task, num_envs)
        self._over: BoolArray | None = None

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Starts an episode in every slot; slot i has seed `seed + i`, or the i-th of a list."""
        if seed is None:
            if self._over is None:
                self._episodes.seed(self.np_random.integers(_LARGEST_SEED, size=self.num_envs))
        elif isinstance(seed, int | np.integer):
            self._episodes.seed(
                np.array([_checked_seed(int(seed) + i) for i in range(self.num_envs)])
            )
        else:
            self._episodes.seed(np.array([_checked_seed(s) for s in seed]))
        self._over = np.zeros(self.num_envs, np.bool_)
        self._episodes.start(np.arange(self.num_envs))
        return self._seen(), self._info(np.zeros(self.num_envs))

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[NDArray[Any], FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Plays one step in every slot; one that ended before starts anew, and earns and pays 0."""
        if self._over is None:
            raise EnvError("no episode has begun: call reset before step.")
        checked = checked_actions(np.asarray(actions), self.task, self.num_envs)
        rewards, costs = np.zeros((2, self.num_envs))
        ended = np.zeros(self.num_envs, np.bool_)
        going, over = np.flatnonzero(~self._over), np.flatnonzero(self._over)
        if len(going):
            outcome = self._episodes.step(going, checked[going])
            rewards[going], costs[going], ended[going] = outcome[1:]
        if len(over):
            self._episodes.start(over)
        self._over = ended
        truncated = np.zeros(self.num_envs, np.bool_)
        return self._seen(), rewards, ended.copy(), truncated, self._info(costs)

    def _seen(self) -> NDArray[Any]:
        return self.task.observe(self._episodes.state)

    def _info(self, costs: FloatArray) -> dict[str, Any]:
        return {"cost": costs, "_cost": np.ones(self.num_envs, np.bool_)}


def checked_actions(actions: NDArray[Any], task: Task, n_episodes: int) -> IntArray:
    """Returns actions `[N]`, checked.

    Raises:
        DataError: naming the first that is not an action.
    """
    n_actions = len(task.action_names)
    if actions.shape != (n_episodes,) or actions.dtype.kind not in "iu":
        raise DataError(
            f"actions must be whole numbers of shape [{n_episodes}]; "
            f"got {actions.dtype} of shape {list(actions.shape)}."
        )
    bad = np.flatnonzero((actions < 0) | (actions >= n_actions))
    if len(bad):
        i = int(bad[0])
        raise DataError(f"actions must be from 0 to {n_actions - 1}; got {actions[i]} at [{i}].")
    return actions.astype(np.int64)


def _checked_seed(seed: Any) -> int:
    if not isinstance(seed, int | np.integer) or not 0 <= seed <= _LARGEST_SEED:
        raise ConfigError(f"seed must be a whole number from 0 to {_LARGEST_SEED}; got {seed!r}.")
    return int(seed)
