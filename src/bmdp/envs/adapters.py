"""Environments of others, brought to the convention of this library.

Here a step returns five things, as in Gymnasium, and the cost is `info["cost"]`, at reset too. Each
adapter takes an environment with another convention:

- `SixTupleAdapter`: the cost is the third of six things a step returns (Safety-Gymnasium).
- `VectorRewardAdapter`: the reward is a vector, and the cost one of its numbers (MO-Gymnasium).
- `CostFunction`: there is no cost yet; a function of what was seen gives it.

Only discrete actions are supported. Costs are checked at every step: one that is not a finite real
number is an error that names the step. Other entries of `info` stay as they are.

No adapter needs the libraries it is made for, so nothing is imported of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from bmdp.checks import require_count, told
from bmdp.errors import ConfigError, DataError, EnvError
from bmdp.kinds import checked

CostOf = Callable[[Any, Any, Any, dict[str, Any]], float]
"""Of (observation, action, next observation, info of the step)."""

_NEEDED = ("reset", "step", "action_space", "observation_space")


def finite_number(value: Any) -> float | None:
    """Returns a finite real number as a float, and None for anything else.

    >>> finite_number(np.float32(0.5)), finite_number(True), finite_number([1.0])
    (0.5, 1.0, None)
    """
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        return None
    if array.shape != () or array.dtype.kind not in "fiub" or not np.isfinite(array):
        return None
    return float(array)


def why_not_discrete(action_space: Any) -> str | None:
    """Returns what is wrong with an action space, and None if it is supported.

    >>> why_not_discrete(spaces.Discrete(3)) is None
    True
    """
    if not isinstance(action_space, spaces.Discrete):
        return f"only Discrete actions are supported; got {action_space}"
    if action_space.start != 0:
        return f"actions must be counted from 0; got {action_space}"
    return None


@checked
class SixTupleAdapter(gymnasium.Env[Any, Any]):
    """Turns the six values that a step of Safety-Gymnasium returns into Gymnasium's five.

    Args:
        env: any object with `reset`, `step`, `action_space` and `observation_space`; it need not be
            a `gymnasium.Env`. Its `step` returns (observation, reward, cost, terminated, truncated,
            info).

    Raises:
        ConfigError: if it lacks one of them.
        EnvError: if its actions are not discrete.

    >>> class Safety:
    ...     action_space = observation_space = spaces.Discrete(2)
    ...
    ...     def reset(self, seed=None, options=None):
    ...         return 0, {}
    ...
    ...     def step(self, action):
    ...         return 1, 10.0, 0.5, True, False, {}
    >>> env = SixTupleAdapter(Safety())
    >>> env.reset(seed=0), env.step(1)
    ((0, {'cost': 0.0}), (1, 10.0, True, False, {'cost': 0.5}))
    """

    def __init__(self, env: Any) -> None:
        missing = [name for name in _NEEDED if not hasattr(env, name)]
        if missing:
            raise ConfigError(
                f"env must have {', '.join(_NEEDED)}; {type(env).__name__} lacks "
                f"{', '.join(missing)}."
            )
        _require_discrete(env.action_space)
        self.env = env
        self.action_space, self.observation_space = env.action_space, env.observation_space
        self.metadata = getattr(env, "metadata", type(self).metadata)
        self.render_mode = getattr(env, "render_mode", None)
        self._n_steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode, at cost 0."""
        require_seed(seed)
        super().reset(seed=seed)
        observation, info = self.env.reset(seed=seed, options=options)
        self._n_steps = 0
        return observation, {**info, "cost": 0.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Plays one step.

        Raises:
            DataError: if it does not return six things, or a cost that is not a finite number.
        """
        require_action(self.env.action_space, action)
        answer = self.env.step(action)
        self._n_steps += 1
        if not isinstance(answer, tuple) or len(answer) != 6:
            got = f"{len(answer)} of them" if isinstance(answer, tuple) else type(answer).__name__
            raise DataError(
                "SixTupleAdapter.env.step must return (observation, reward, cost, terminated, "
                f"truncated, info); got {got} at step {self._n_steps}."
            )
        observation, reward, cost, terminated, truncated, info = answer
        paid = _checked("cost", cost, self._n_steps)
        return observation, reward, bool(terminated), bool(truncated), {**info, "cost": paid}

    def render(self) -> Any:
        """Does what the environment does."""
        return self.env.render()

    def close(self) -> None:
        """Closes the environment, if it can be."""
        if hasattr(self.env, "close"):
            self.env.close()


@checked
class VectorRewardAdapter(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes reward and cost from the vector of rewards of an environment of MO-Gymnasium.

    Args:
        env: an environment whose `step` returns a vector `[R]` as reward.
        reward_index: which of its numbers is the reward.
        cost_index: which of them is the cost, but for the sign.
        cost_sign: what that number is multiplied by. There, more is better, so a cost comes as a
            negative number: -1 makes it positive. Other factors scale it.

    Raises:
        ConfigError: if the indices or the sign make no sense.
        EnvError: if actions are not discrete.

    >>> class TwoRewards(gymnasium.Env):
    ...     action_space = observation_space = spaces.Discrete(2)
    ...
    ...     def reset(self, seed=None, options=None):
    ...         return 0, {}
    ...
    ...     def step(self, action):
    ...         return 1, np.array([10.0, -0.5]), True, False, {}
    >>> env = VectorRewardAdapter(TwoRewards())
    >>> env.reset(seed=0), env.step(1)
    ((0, {'cost': 0.0}), (1, 10.0, True, False, {'cost': 0.5}))
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        reward_index: int = 0,
        cost_index: int = 1,
        cost_sign: float = -1.0,
    ) -> None:
        super().__init__(env)
        _require_discrete(env.action_space)
        for name, index in (("reward_index", reward_index), ("cost_index", cost_index)):
            require_count(name, index, 0)
        if reward_index == cost_index:
            raise ConfigError(
                f"reward_index and cost_index must differ; got {cost_index} for both."
            )
        if not finite_number(cost_sign):
            raise ConfigError(f"cost_sign must be a finite number other than 0; got {cost_sign!r}.")
        self.reward_index, self.cost_index, self.cost_sign = reward_index, cost_index, cost_sign
        self._n_steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode, at cost 0."""
        require_seed(seed)
        observation, info = self.env.reset(seed=seed, options=options)
        self._n_steps = 0
        return observation, {**info, "cost": 0.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Plays one step.

        Raises:
            DataError: if the reward is not a vector long enough, or a number in use is not finite.
        """
        require_action(self.env.action_space, action)
        observation, rewards, terminated, truncated, info = self.env.step(action)
        self._n_steps += 1
        vector: Any = np.asarray(rewards)
        last = max(self.reward_index, self.cost_index)
        if vector.ndim != 1 or len(vector) <= last:
            raise DataError(
                f"VectorRewardAdapter.env.step must return a reward of shape [R], R above {last}; "
                f"got shape {list(vector.shape)} at step {self._n_steps}."
            )
        reward = _checked("reward", vector[self.reward_index], self._n_steps)
        cost = self.cost_sign * _checked("cost", vector[self.cost_index], self._n_steps)
        # Adding 0 makes 0 of -0.
        return observation, reward, terminated, truncated, {**info, "cost": cost + 0.0}


@checked
class CostFunction(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives an environment a cost, as a function of what was seen.

    Args:
        env: an environment.
        cost: function of (observation, action, next observation, info of the step).

    Raises:
        ConfigError: if the cost is not a function.
        EnvError: if actions are not discrete.

    >>> pole = gymnasium.make("CartPole-v1")
    >>> env = CostFunction(pole, lambda seen, action, after, info: float(abs(after[0]) > 1))
    >>> env.reset(seed=0)[1]["cost"], env.step(1)[4]["cost"]
    (0.0, 0.0)
    """

    def __init__(self, env: gymnasium.Env[Any, Any], cost: CostOf) -> None:
        super().__init__(env)
        _require_discrete(env.action_space)
        if not callable(cost):
            raise ConfigError(
                "cost must be a function of (observation, action, next_observation, info); "
                f"got {cost!r}."
            )
        self.cost = cost
        self._observation: Any = None
        self._n_steps: int | None = None  # of this episode, if one has begun

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode, at cost 0."""
        require_seed(seed)
        observation, info = self.env.reset(seed=seed, options=options)
        self._observation, self._n_steps = copy.deepcopy(observation), 0
        return observation, {**info, "cost": 0.0}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Plays one step.

        Raises:
            EnvError: if no episode has begun.
            DataError: if the function gives a cost that is not a finite number.
        """
        if self._n_steps is None:
            raise EnvError("no episode has begun: call reset before step.")
        require_action(self.env.action_space, action)
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._n_steps += 1
        value = self.cost(self._observation, action, observation, info)
        paid = _checked("cost", value, self._n_steps)
        self._observation = copy.deepcopy(observation)  # some environments write over it
        return observation, reward, terminated, truncated, {**info, "cost": paid}


def require_seed(seed: int | None) -> None:
    """Checks the seed of an episode, if there is one.

    Raises:
        ConfigError: if it is not from 0 on.
    """
    if seed is not None:
        require_count("seed", seed, 0, 2**63 - 1)


def require_action(space: Any, action: Any) -> None:
    """Checks that an action is one of a discrete space.

    Raises:
        DataError: if not.
    """
    if isinstance(space, spaces.Discrete) and not space.contains(action):
        raise DataError(f"action must be one of {space}; got {told(action)}.")


def _require_discrete(action_space: Any) -> None:
    problem = why_not_discrete(action_space)
    if problem is not None:
        raise EnvError(f"env.action_space: {problem}.")


def _checked(name: str, value: Any, step: int) -> float:
    """A number of a step, checked."""
    number = finite_number(value)
    if number is None:
        raise DataError(f"{name} must be a finite real number; got {value!r} at step {step}.")
    return number
