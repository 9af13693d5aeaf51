"""Corridors: a safe way that pays little and a risky way that pays much, on a continuous map.

The agent starts in the middle of the top row and moves by unit steps, whose heading is noisy. y
points down. With height 6 (`.` pays nothing, # is a wall, c costs 1/8, numbers are rewards):

    x:   0     1     2     3     4     5     6
    y=0  ###   .     .     start c     c     ###
    y=1  ###   1     ###   ###   ###   10c   ###
    y=2  ###   2     ###   ###   ###   20c   ###
    y=3  ###   3     ###   ###   ###   30c   ###
    y=4  ###   4     ###   ###   ###   40c   ###
    y=5  100   5     ###   ###   ###   50c   100c

- Reward and cost are those of the cell occupied after a step, at every step: sitting pays again.
- `stop` ends the episode, and pays the current cell once more. So does the horizon, without.
- A step that would end in a wall is not made, and pays the current cell again.
- A step that would end outside is reflected at the border. The wall is tested before that, and only
  at the end point: corners can be cut, and a reflection may end inside a wall, which pays nothing.

With `routes=k` there are k corridors side by side instead, each with a price and a pay of its own,
at diminishing returns, so that the best of their mixtures bend.

Paper: Section 5.1 and the table of Corridors. Differs: noise turns the heading by 0.25 rad, as in
the authors' code; `noise="position"` adds it to the position, as the paper's table has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from gymnasium import spaces
from numba import njit
from numpy.typing import NDArray
from scipy.special import ndtri

from bmdp.arrays import FloatArray, IntArray
from bmdp.checks import require_choice, require_count
from bmdp.envs.corridors.maps import Map, many_corridors, two_corridors
from bmdp.envs.corridors.pictures import picture
from bmdp.envs.gym import TaskEnv, TaskVectorEnv
from bmdp.envs.tasks import Outcome
from bmdp.errors import ConfigError
from bmdp.kinds import checked

ACTIONS = ("stop", "down", "right", "left", "up")
STOP, DOWN, RIGHT, LEFT, UP = range(5)
"""Numbers of the actions."""


class CorridorsState(NamedTuple):
    """Where the agents are. A cell is 1 wide and 1 high.

    >>> state = Corridors().start(np.zeros((2, 2)))
    >>> state.x.tolist(), state.y.tolist(), state.time.tolist()
    ([3.5, 3.5], [0.5, 0.5], [0, 0])
    """

    x: FloatArray  # [N], to the right
    y: FloatArray  # [N], downwards
    time: IntArray  # [N], steps made


@checked
@dataclass(frozen=True, init=False)
class Corridors:
    """The corridors task.

    Args:
        height: number of rows, from 3 on.
        noise_std: deviation of the heading in radian, or of x and y with `noise="position"`.
        noise: what is noisy.
        horizon: number of steps of an episode; `height + 3` if not given (more with routes).
        routes: number of corridors of diminishing return, from 2 on, in place of the paper's two.
        observe_time: whether the share of the horizon that has passed is seen.

    Raises:
        ConfigError: if a setting is out of its range.

    Paper: Section 5.1 and the table of Corridors.

    >>> task = Corridors(noise_std=0.0)
    >>> outcome = task.step(task.start(np.zeros((2, 2))), np.array([RIGHT, LEFT]), np.zeros((2, 2)))
    >>> outcome.state.x.tolist(), outcome.costs.tolist()
    ([4.5, 2.5], [0.125, 0.0])
    """

    height: int
    noise_std: tuple[float, float]
    noise: Literal["heading", "position"]
    horizon: int
    routes: int | None
    observe_time: bool
    map: Map = field(repr=False, compare=False)

    name = "corridors"
    action_names = ACTIONS
    gamma = 1.0
    budget_range = (0.0, 1.0)
    binary_costs = False
    n_draws = 2

    def __init__(
        self,
        *,
        height: int = 6,
        noise_std: float | tuple[float, float] = 0.25,
        noise: Literal["heading", "position"] = "heading",
        horizon: int | None = None,
        routes: int | None = None,
        observe_time: bool = False,
    ) -> None:
        """Checks the settings and draws the map."""
        require_count("height", height, 3)
        if routes is not None:
            require_count("routes", routes, 2)
        require_choice("noise", noise, ("heading", "position"))
        if np.shape(noise_std) not in ((), (2,)):
            raise ConfigError(f"noise_std must be one number, or two; got {noise_std}.")
        deviations = np.broadcast_to(np.asarray(noise_std, np.float64), (2,))
        if not ((deviations >= 0) & (deviations < np.inf)).all():
            raise ConfigError(f"noise_std must be from 0 on; got {noise_std}.")
        steps = height + 3 + (routes or 0) if horizon is None else horizon
        require_count("horizon", steps, 1)
        cells = two_corridors(height)
        if routes is not None:
            cells = many_corridors(height, routes, steps)
        values = {
            "height": height,
            "noise_std": (float(deviations[0]), float(deviations[1])),
            "noise": noise,
            "horizon": steps,
            "routes": routes,
            "observe_time": observe_time,
            "map": cells,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def cost_range(self) -> tuple[float, float]:
        """From 0 to that of all steps in the dearest cell."""
        return 0.0, self.horizon * float(self.map.cost.max())

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """Space of x and y, and of the share of the horizon if it is seen."""
        height, width = self.map.wall.shape
        high = [width, height, 1] if self.observe_time else [width, height]
        return spaces.Box(np.zeros(len(high)), np.array(high, np.float64), dtype=np.float64)

    def start(self, uniforms: FloatArray) -> CorridorsState:
        """All start in the middle of their cell."""
        n = len(uniforms)
        return CorridorsState(np.full(n, self.map.start), np.full(n, 0.5), np.zeros(n, np.int64))

    def step(self, state: CorridorsState, actions: IntArray, uniforms: FloatArray) -> Outcome:
        """Moves, or stops."""
        shift = ndtri(np.maximum(uniforms, 2.0**-53)) * np.array(self.noise_std)
        turn = shift[:, 0] if self.noise == "heading" else np.zeros(len(actions))
        if self.noise == "heading":
            shift = np.zeros_like(shift)
        x, y, rewards, costs = _move(state.x, state.y, actions, turn, shift, self.map)
        time = state.time + 1
        ended = (actions == STOP) | (time >= self.horizon)
        return Outcome(CorridorsState(x, y, time), rewards, costs, ended)

    def observe(self, state: CorridorsState) -> NDArray[Any]:
        """Returns x, y, and the share of the horizon if it is seen."""
        columns = [state.x, state.y]
        if self.observe_time:
            columns.append(state.time / self.horizon)
        return np.stack(columns, axis=1)


@njit(cache=True)
def _move(
    x: FloatArray, y: FloatArray, actions: IntArray, turn: FloatArray, shift: FloatArray, cells: Map
) -> Any:
    """Positions after a step, and what their cells pay and cost."""
    n = x.shape[0]
    height, width = cells.wall.shape
    to_x, to_y, rewards, costs = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        new_x, new_y = x[i], y[i]
        if actions[i] != 0:
            heading = turn[i]
            if actions[i] == 1:
                heading += np.pi / 2
            elif actions[i] == 3:
                heading += np.pi
            elif actions[i] == 4:
                heading -= np.pi / 2
            new_x += np.cos(heading) + shift[i, 0]
            new_y += np.sin(heading) + shift[i, 1]
            inside = 0 <= new_x < width and 0 <= new_y < height
            if inside and cells.wall[int(new_y), int(new_x)]:
                new_x, new_y = x[i], y[i]
            new_x = _reflected(new_x, width)
            new_y = _reflected(new_y, height)
        row, column = min(int(new_y), height - 1), min(int(new_x), width - 1)
        to_x[i], to_y[i] = new_x, new_y
        rewards[i], costs[i] = cells.reward[row, column], cells.cost[row, column]
    return to_x, to_y, rewards, costs


@njit(cache=True)
def _reflected(position: float, size: int) -> float:
    """A position brought inside by reflection at the borders."""
    while position < 0 or position > size:
        position = -position if position < 0 else 2 * size - position
    return position


@checked
class CorridorsEnv(TaskEnv):
    """One episode of corridors. `render_mode="rgb_array"` draws the map and the way so far.

    Args:
        render_mode: "rgb_array", or None.
        settings: those of `Corridors`.

    >>> env = CorridorsEnv(noise_std=0.0)
    >>> seen, info = env.reset(seed=0)
    >>> seen, reward, terminated, truncated, info = env.step(RIGHT)
    >>> seen.tolist(), reward, info["cost"]
    ([4.5, 0.5], 0.0, 0.125)
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **settings: Any) -> None:
        """Takes the settings of `Corridors`."""
        super().__init__(Corridors(**settings), render_mode)

    def render(self) -> NDArray[np.uint8] | None:
        """Returns the map with the way of this episode, `[48 * height, 48 * width, 3]`."""
        if self.render_mode is None:
            return None
        task: Any = self.task
        return picture(task.map, [np.array([seen[:2] for seen, _ in self.trace])])


@checked
class CorridorsVectorEnv(TaskVectorEnv):
    """A batch of corridors.

    Args:
        num_envs: number of slots.
        render_mode: None: a batch cannot be rendered.
        settings: those of `Corridors`.

    >>> envs = CorridorsVectorEnv(num_envs=2, noise_std=0.0)
    >>> seen, info = envs.reset(seed=0)
    >>> envs.step(np.array([RIGHT, LEFT]))[4]["cost"].tolist()
    [0.125, 0.0]
    """

    def __init__(self, num_envs: int = 1, render_mode: str | None = None, **settings: Any) -> None:
        """Takes the settings of `Corridors`."""
        super().__init__(Corridors(**settings), num_envs, render_mode)
