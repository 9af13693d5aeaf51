"""Tasks of Gymnasium whose states are real numbers: a pole on a cart, a car in a valley, a lander.

The first two are also written for a whole batch at once, as functions of arrays; tests compare them
with Gymnasium's own step by step.
"""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.classic_control.mountain_car import MountainCarEnv
from numpy.typing import NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.envs.adapters import CostFunction
from bmdp.envs.gym import TaskVectorEnv
from bmdp.envs.tasks import Outcome
from bmdp.errors import MissingDependency
from strangers.toys import Env, with_gamma


class Numbers(NamedTuple):
    """State of each episode."""

    values: FloatArray  # [N, D]


class BoxTask:
    """A task with states of real numbers, for many episodes at once."""

    horizon, binary_costs = None, False
    budget_range: tuple[float, float] = (0.0, 1.0)
    cost_range: tuple[float, float] | None = None
    name: str
    gamma: float
    n_draws: int
    action_names: tuple[str, ...]
    observation_space: spaces.Space[Any]

    def begin(self, uniforms: FloatArray) -> FloatArray:
        """Returns first states `[N, D]`, given numbers `[N, n_draws]`."""
        raise NotImplementedError

    def follow(
        self, states: FloatArray, actions: IntArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
        """Returns (next states, rewards, costs, whether the episode ends) of actions `[N]`."""
        raise NotImplementedError

    def start(self, uniforms: FloatArray) -> Numbers:
        """Starts episodes."""
        return Numbers(self.begin(uniforms))

    def step(self, state: Numbers, actions: IntArray, uniforms: FloatArray) -> Outcome:
        """Plays one step, without chance."""
        following, rewards, costs, over = self.follow(state.values, actions)
        return Outcome(Numbers(following), rewards, costs, over)

    def observe(self, state: Numbers) -> NDArray[Any]:
        """Returns the numbers, as Gymnasium does."""
        return state.values.astype(np.float32)


class BoxVectorEnv(TaskVectorEnv):
    """A batch of episodes. Of the task it tells the discount alone."""

    def __init__(self, task: BoxTask, num_envs: int = 1) -> None:
        super().__init__(task, num_envs)
        self.metadata = {**TaskVectorEnv.metadata, "gamma": task.gamma}


# A pole on a cart.

EDGE, FREE, UNIT = 2.4, 0.2, 0.01


def cart_pays(x: Any) -> tuple[Any, Any]:
    """Reward and cost of a step that ends at x: the right side pays, both sides cost.

    The reward rises from 0 at the left edge to 1 at the right one. The cost is 0 within 0.2 of the
    middle, and grows from there with the square of the distance to 0.01 at either edge.
    """
    place = np.clip(np.asarray(x, np.float64), -EDGE, EDGE)
    outside = np.maximum(abs(place) - FREE, 0.0) / (EDGE - FREE)
    return 0.5 + 0.5 * place / EDGE, UNIT * outside**2


class _PaidByPlace(gymnasium.RewardWrapper[Any, Any]):
    """Rewards a cart for where it is."""

    def reward(self, reward: Any) -> float:
        """Of the place where the cart is now."""
        state: Any = self.unwrapped
        return float(cart_pays(np.float32(state.state[0]))[0])


def cart_pole() -> Env:
    """CartPole that is paid for being on the right side, as long as the pole is up."""
    env: Any = _PaidByPlace(CartPoleEnv())
    paying = CostFunction(env, lambda before, action, after, info: float(cart_pays(after[0])[1]))
    return with_gamma(paying, CartPoleTask.gamma)


class CartPoleTask(BoxTask):
    """`cart_pole` for a batch: the equations of Gymnasium's CartPole."""

    name, gamma, n_draws, action_names = "cart-pole", 0.99, 4, ("left", "right")
    lean = 12 * 2 * np.pi / 360

    def __init__(self) -> None:
        self.observation_space = CartPoleEnv().observation_space

    def begin(self, uniforms: FloatArray) -> FloatArray:
        """Within 0.05 of rest."""
        return 0.1 * uniforms[:, :4] - 0.05

    def follow(
        self, states: FloatArray, actions: IntArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
        """Euler's method, 0.02 s."""
        _, speed, angle, turn = states.T
        force = np.where(actions == 1, 10.0, -10.0)
        sine, cosine = np.sin(angle), np.cos(angle)
        push = (force + 0.05 * turn**2 * sine) / 1.1
        turning = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
        speeding = push - 0.05 * turning * cosine / 1.1
        changes = np.stack((speed, speeding, turn, turning), axis=1)
        after = states + 0.02 * changes
        over = (abs(after[:, 0]) > EDGE) | (abs(after[:, 2]) > self.lean)
        rewards, costs = cart_pays(after[:, 0].astype(np.float32))
        return after, rewards, costs, over


# A car in a valley.

PUSH = 0.01


def mountain_car() -> Env:
    """MountainCar: a step earns -1, a push costs 0.01."""
    env: Any = MountainCarEnv()
    pushes = CostFunction(env, lambda before, action, after, info: PUSH * (int(action) != 1))
    return with_gamma(pushes, MountainCarTask.gamma)


class MountainCarTask(BoxTask):
    """`mountain_car` for a batch: the equations of Gymnasium's MountainCar."""

    name, gamma, n_draws, action_names = "mountain-car", 0.99, 1, ("left", "idle", "right")

    def __init__(self) -> None:
        self.observation_space = MountainCarEnv().observation_space

    def begin(self, uniforms: FloatArray) -> FloatArray:
        """At rest, near the bottom."""
        return np.stack((0.2 * uniforms[:, 0] - 0.6, np.zeros(len(uniforms))), axis=1)

    def follow(
        self, states: FloatArray, actions: IntArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
        """The end is the top of the right hill."""
        position, velocity = states.T
        velocity = velocity + (actions - 1) * 0.001 - 0.0025 * np.cos(3 * position)
        velocity = np.clip(velocity, -0.07, 0.07)
        position = np.clip(position + velocity, -1.2, 0.6)
        velocity = np.where((position == -1.2) & (velocity < 0), 0.0, velocity)
        over = (position >= 0.5) & (velocity >= 0)
        costs = PUSH * (actions != 1)
        return np.stack((position, velocity), axis=1), np.full(len(over), -1.0), costs, over


# A lander.

LANDER_GAMMA = 0.99
FUEL = (0.0, 0.003, 0.03, 0.003)
"""Nothing, left engine, main engine, right engine."""


class _Unfuelled(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes the price of fuel out of the reward: ten times `FUEL`."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Plays one step."""
        seen, reward, terminated, truncated, info = self.env.step(action)
        spent = 0.0 if terminated else 10 * FUEL[int(action)]  # the last reward has no such part
        return seen, float(reward) + spent, terminated, truncated, info


def lunar_lander() -> Env:
    """LunarLander-v3 whose fuel is the cost, and no part of the reward.

    Raises:
        MissingDependency: if Box2D is not installed.
    """
    if importlib.util.find_spec("Box2D") is None:
        raise MissingDependency(
            "lunar-lander needs Box2D, which is not installed: pip install 'gymnasium[box2d]'"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Box2D's binding ends the process if its own is an error
        from gymnasium.envs.box2d.lunar_lander import LunarLander

    env: Any = _Unfuelled(LunarLander())
    fuelled = CostFunction(env, lambda before, action, after, info: FUEL[int(action)])
    return with_gamma(fuelled, LANDER_GAMMA)
