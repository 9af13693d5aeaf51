"""The two-way road: overtake slow cars on the oncoming lane, or stay behind them.

The ego car drives at 30 m/s behind three slower cars; two more come towards it on the other lane.
It decides once a second, 15 times: change the lane, go faster or slower, or neither.

- Reward: 0.8 times the target speed, as a share of the range from the lowest to the highest one,
  and 0.2 if the target lane is the oncoming one.
- Cost: 1 for a crash, which ends the episode, and 1/15 for a decision that ends on the oncoming
  lane.

Where cars are and how fast they drive at the start is random; after that all is determined.

Paper: Section 5.1 and the table of highway-env, whose text differs from what was run. Defaults are
what was run; `crash_cost=0`, `left_lane_reward=0`, `vehicles=(2, 6)`, `position_std=100`,
`speed_std=3` and `random_drivers=True` are the text. Differs from both: the frames of the
decision in which the ego car crashes are driven to their end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from bmdp.arrays import FloatArray, IntArray
from bmdp.checks import require_choice, require_count
from bmdp.envs.gym import TaskEnv, TaskVectorEnv
from bmdp.envs.tasks import Outcome
from bmdp.envs.two_way import observations, physics
from bmdp.envs.two_way.highway import HighwayRoads
from bmdp.envs.two_way.physics import OWN, RoadState
from bmdp.envs.two_way.pictures import picture, svg
from bmdp.envs.two_way.starts import drawn_cars, road_state
from bmdp.errors import ConfigError
from bmdp.kinds import checked

ACTIONS = ("left", "idle", "right", "faster", "slower")
HORIZON = 15
MOST_VEHICLES = 12

Features = Literal["kinematics", "time-to-collision", "full"]
Backend = Literal["batched", "highway-env"]

_SPEED_REWARD = 0.8
_FAR = 1_000.0  # m and m/s, beyond all that is seen


@checked
@dataclass(frozen=True, kw_only=True)
class TwoWay:
    """The two-way road.

    Args:
        vehicles: number of cars with the ego car, from 1 to 12, or the least and the largest of a
            random one. The first of the others is ahead, the second oncoming, and so on in turn.
        position_std: deviation of where they start, in m.
        speed_std: deviation of how fast, in m/s; or two, of those ahead and of the oncoming ones.
        target_speeds: speeds that the ego car can choose, increasing, up to 40 m/s.
        random_drivers: whether drivers differ in how they approach the speed they want (exponent
            from 3.5 to 4.5).
        aware_oncoming: whether oncoming drivers brake for who comes towards them, as those of
            highway-env do today; those of the paper did not.
        crash_cost: of a crash of the ego car.
        left_lane_reward: of the oncoming lane, at every decision.
        features: what is seen: "kinematics" (4 numbers a car), "time-to-collision" (a grid of 3
            speeds, 3 lanes and `ttc_seconds`), or "full" (the ego car and its commands, gaps and
            speeds of the nearest cars, seconds to conflicts, and the grid), of cars within 200 m.
        ttc_seconds: how far the grid looks ahead.
        observe_time: whether the share of the horizon that has passed is seen, too.
        backend: "batched", which is this library's own simulation, or "highway-env".

    Raises:
        ConfigError: if a setting is out of its range.
        MissingDependency: if highway-env is asked for and not installed.

    Paper: Section 5.1 and the table of highway-env.

    >>> task = TwoWay(vehicles=1)
    >>> start = task.start(np.zeros((2, task.n_draws)))
    >>> outcome = task.step(start, np.array([physics.IDLE, physics.LANE_LEFT]), np.empty((2, 0)))
    >>> outcome.rewards.tolist(), outcome.costs.round(4).tolist()
    ([0.8, 1.0], [0.0, 0.0667])
    """

    vehicles: int | tuple[int, int] = 6
    position_std: float = 10.0
    speed_std: float | tuple[float, float] = (2.0, 5.0)
    target_speeds: tuple[float, ...] = (20.0, 25.0, 30.0)
    random_drivers: bool = False
    aware_oncoming: bool = False
    crash_cost: float = 1.0
    left_lane_reward: float = 0.2
    features: Features = "kinematics"
    ttc_seconds: int = 5
    observe_time: bool = False
    backend: Backend = "batched"
    _highway: HighwayRoads | None = field(init=False, repr=False, compare=False)

    name = "two-way"
    action_names = ACTIONS
    gamma = 0.9
    horizon = HORIZON
    budget_range = (0.0, 1.0)
    binary_costs = False

    def __post_init__(self) -> None:
        """Checks the settings, and looks for highway-env if it is to drive."""
        if np.shape(self.vehicles) not in ((), (2,)):
            raise ConfigError(f"vehicles must be one number, or two; got {self.vehicles}.")
        for count in self._counts:
            require_count("vehicles", count, 1, MOST_VEHICLES)
        if self._counts[0] > self._counts[1]:
            raise ConfigError(
                f"vehicles must be the least number and the largest; got {self.vehicles}."
            )
        if np.shape(self.speed_std) not in ((), (2,)):
            raise ConfigError(f"speed_std must be one number, or two; got {self.speed_std}.")
        _require_from_zero("speed_std", self.speed_std)
        _require_from_zero("position_std", self.position_std)
        _require_from_zero("crash_cost", self.crash_cost)
        _require_from_zero("left_lane_reward", self.left_lane_reward)
        require_count("ttc_seconds", self.ttc_seconds, 1)
        _require_speeds(self.target_speeds)
        require_choice("features", self.features, get_args(Features))
        require_choice("backend", self.backend, get_args(Backend))
        drives = self.backend == "highway-env"
        roads = HighwayRoads(self.target_speeds, self.aware_oncoming) if drives else None
        object.__setattr__(self, "_highway", roads)

    @property
    def _counts(self) -> tuple[int, int]:
        """Least and largest number of cars."""
        if isinstance(self.vehicles, tuple | list):
            return self.vehicles[0], self.vehicles[1]
        return self.vehicles, self.vehicles

    @property
    def _speeds(self) -> FloatArray:
        """Speeds that the ego car can choose."""
        return np.array(self.target_speeds, np.float64)

    @property
    def n_draws(self) -> int:
        """Number of cars; then place, speed and exponent of each but the ego car."""
        return 1 + 3 * (self._counts[1] - 1)

    @property
    def cost_range(self) -> tuple[float, float]:
        """From 0 to that of the oncoming lane up to a crash at the worst time."""
        discounts = self.gamma ** np.arange(HORIZON)
        return 0.0, float((discounts.cumsum() / HORIZON + discounts * self.crash_cost).max())

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """Numbers from -1 to 1, or from 0 to 1; gaps and speeds in m and m/s."""
        sizes = {  # of numbers by their bounds
            "kinematics": ((-1.0, 1.0, 4 * self._counts[1]),),
            "time-to-collision": ((0.0, 1.0, 9 * self.ttc_seconds),),
            "full": (
                (-_FAR, _FAR, observations.N_NEAREST),
                (0.0, observations.LONGEST, observations.N_CONFLICTS),
                (0.0, 1.0, 9 * self.ttc_seconds),
            ),
        }[self.features]
        lows, highs, counts = zip(*sizes, (0.0, 1.0, int(self.observe_time)), strict=True)
        low, high = (np.repeat(ends, counts).astype(np.float32) for ends in (lows, highs))
        return spaces.Box(low, high, dtype=np.float32)

    def start(self, uniforms: FloatArray) -> RoadState:
        """Draws where the others are and how fast they drive."""
        others = drawn_cars(
            uniforms,
            self._counts,
            position_std=self.position_std,
            speed_std=self.speed_std,
            random_drivers=self.random_drivers,
        )
        return road_state(others, self._speeds, self.aware_oncoming)

    def step(self, state: RoadState, actions: IntArray, uniforms: FloatArray) -> Outcome:
        """Drives for a second."""
        if self._highway is not None:
            after = self._highway.drive(state, actions)
        else:
            after = physics.copied(state)
            physics.drive(after, actions, self._speeds, self.aware_oncoming, physics.FRAMES)
        after.time[:] = state.time + 1
        crashed = after.crashed[:, 0]
        rewards = _SPEED_REWARD * after.speed_index / (len(self.target_speeds) - 1)
        rewards = rewards + self.left_lane_reward * (after.target_lane[:, 0] != OWN)
        costs = self.crash_cost * crashed + (after.lane[:, 0] != OWN) / HORIZON
        return Outcome(after, rewards, costs, crashed | (after.time >= HORIZON))

    def frames(self, state: RoadState, actions: IntArray) -> list[RoadState]:
        """Returns the states within a decision, one for each of its 15 frames."""
        states = []
        for frame in range(physics.FRAMES):
            state = physics.copied(state)
            told = actions if frame == 0 else np.full(len(actions), physics.NO_ACTION)
            physics.drive(state, told, self._speeds, self.aware_oncoming, 1)
            states.append(state)
        return states

    def observe(self, state: RoadState) -> NDArray[Any]:
        """Returns what is seen as one row of numbers for each road."""
        seen = []
        if self.features == "kinematics":
            seen.append(observations.kinematics(state))
        if self.features == "full":
            seen.append(observations.nearest_cars(state, self._speeds))
            seen.append(observations.conflict_times(state, self._speeds))
        if self.features != "kinematics":
            sight = observations.SIGHT if self.features == "full" else np.inf
            grid = observations.collision_times(state, self._speeds, self.ttc_seconds, sight)
            seen.append(grid)
        if self.observe_time:
            seen.append((state.time / HORIZON).astype(np.float32))
        return np.concatenate([part.reshape(len(part), -1) for part in seen], axis=1)


def _require_speeds(speeds: Sequence[float]) -> None:
    """At least two, increasing, and such that the ego car can drive them."""
    values = np.asarray(speeds, np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise ConfigError(f"target_speeds must be at least two speeds; got {speeds}.")
    wrong = np.flatnonzero(~(values[1:] > values[:-1]))
    if len(wrong):
        i = int(wrong[0]) + 1
        raise ConfigError(f"target_speeds must be increasing; got {values[i]:g} at [{i}].")
    if values[0] < 0 or values[-1] > physics.TOP_SPEED:
        raise ConfigError(
            f"target_speeds must be from 0 to {physics.TOP_SPEED:g} m/s; got {speeds}."
        )


def _require_from_zero(name: str, value: Any) -> None:
    values = np.asarray(value)
    if values.dtype.kind not in "iuf" or not ((values >= 0) & (values < np.inf)).all():
        raise ConfigError(f"{name} must be from 0 on; got {value!r}.")


@checked
class TwoWayEnv(TaskEnv):
    """One road. `render_mode="rgb_array"` draws it around the ego car, "svg" the same as text.

    Args:
        render_mode: "rgb_array", "svg", or None.
        settings: those of `TwoWay`.

    >>> env = TwoWayEnv(render_mode="rgb_array")
    >>> seen, info = env.reset(seed=0)
    >>> env.step(physics.IDLE)[1], env.render().shape
    (0.8, (72, 1200, 3))
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "svg"], "render_fps": 1}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **settings: Any) -> None:
        """Takes the settings of `TwoWay`."""
        super().__init__(TwoWay(**settings), render_mode)

    def render(self) -> NDArray[np.uint8] | str | None:
        """Returns a picture `[height, width, 3]`, or an SVG document."""
        if self.render_mode is None:
            return None
        state = self._episodes.state
        return picture(state) if self.render_mode == "rgb_array" else svg(state)


@checked
class TwoWayVectorEnv(TaskVectorEnv):
    """A batch of roads.

    Args:
        num_envs: number of slots.
        render_mode: None: a batch cannot be rendered.
        settings: those of `TwoWay`.

    >>> envs = TwoWayVectorEnv(num_envs=2)
    >>> seen, info = envs.reset(seed=0)
    >>> envs.step(np.array([physics.IDLE, physics.LANE_LEFT]))[4]["cost"].round(4).tolist()
    [0.0, 0.0667]
    """

    def __init__(self, num_envs: int = 1, render_mode: str | None = None, **settings: Any) -> None:
        """Takes the settings of `TwoWay`."""
        super().__init__(TwoWay(**settings), num_envs, render_mode)
