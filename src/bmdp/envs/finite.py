"""Any known finite BMDP as an environment: what solvers compute can be played.

A state is its number. It starts where `start` says, and goes on as the model says until a terminal
state, or for as many steps as the horizon has; without either, for ever. A start and a step take
one uniform number each: the row of probabilities is cumulated, and the number falls into one of its
intervals (inverse transform). Intervals are found by bisection, for all episodes at once.

The environment has one discount, that of the model. A model with a `cost_gamma` of its own is
refused: what plays and evaluates environments would not know of the second discount.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from bmdp.arrays import FloatArray, IntArray, read_only
from bmdp.envs.gym import TaskEnv, TaskVectorEnv
from bmdp.envs.tasks import Outcome
from bmdp.errors import ConfigError
from bmdp.exact.model import FiniteBMDP
from bmdp.exact.multiplier import cost_range
from bmdp.kinds import checked


class FiniteState(NamedTuple):
    """State and step of each episode."""

    number: IntArray  # [N], state of the model
    time: IntArray  # [N], steps made


class Lotteries(NamedTuple):
    """Distributions over numbers, as the cumulated rows of a sparse matrix of `E` entries."""

    row_start: IntArray  # [rows + 1], where the entries of each row begin
    number: IntArray  # [E], what is drawn
    cumulated: FloatArray  # [E], chance of an entry of the row up to this one


def lotteries(rows: sparse.csr_array) -> Lotteries:
    """Returns what `draw` needs of distributions `[rows, S]`; each is summed by itself."""
    row_start = rows.indptr.astype(np.int64)
    cumulated = np.array(rows.data, np.float64)
    lengths = np.diff(row_start)
    for place in range(1, int(lengths.max())):
        entries = row_start[:-1][lengths > place] + place
        cumulated[entries] += cumulated[entries - 1]
    return Lotteries(*map(read_only, (row_start, rows.indices.astype(np.int64), cumulated)))


def draw(given: Lotteries, rows: IntArray, uniforms: FloatArray) -> IntArray:
    """Returns numbers `[N]` from some of the rows `[N]`, given uniform numbers `[N]`.

    >>> halves = lotteries(sparse.csr_array([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]))
    >>> draw(halves, np.array([0, 0, 1]), np.array([0.4, 0.6, 0.6])).tolist()
    [0, 2, 1]
    """
    low, high = given.row_start[rows], given.row_start[rows + 1] - 1
    targets = uniforms * given.cumulated[high]  # sums may be off 1 by rounding
    longest = int(np.diff(given.row_start).max())
    for _ in range((longest - 1).bit_length()):
        middle = (low + high) // 2
        is_above = given.cumulated[middle] <= targets
        low = np.minimum(np.where(is_above, middle + 1, low), high)
        high = np.where(is_above, high, middle)
    return given.number[low]


@dataclass(frozen=True, eq=False, init=False)
class FiniteTask:
    """A finite BMDP as a task.

    Args:
        model: the BMDP.
        start: a state, or a distribution `[S]` over states that are not terminal.

    Raises:
        ConfigError: if the model discounts costs differently, or a start is terminal.
        ModelError: if the start is neither a state nor a distribution.

    `budget_range` is that of all states of the model (`cost_range`), from 0 or less.

    >>> from bmdp.exact.textbook import ladder
    >>> task = FiniteTask(ladder(3).model)
    >>> task.budget_range, task.action_names
    ((0.0, 3.0), ('0', '1'))
    """

    model: FiniteBMDP
    start_distribution: FloatArray  # [S]
    budget_range: tuple[float, float]
    rows: Lotteries = field(repr=False)  # s*A + a for each state and action, and the start as last

    name = "finite"
    n_draws = 1
    binary_costs = False

    def __init__(self, model: FiniteBMDP, start: int | ArrayLike = 0) -> None:
        """Checks model and start. By hand, since tasks have a method of the name `start`."""
        if model.cost_gamma != model.gamma:
            raise ConfigError(
                "FiniteTask.model must discount rewards and costs alike, since an environment has "
                f"one gamma; got gamma {model.gamma} and cost_gamma {model.cost_gamma}."
            )
        chances = model.start_distribution(start)
        over = np.flatnonzero(model.terminal & (chances > 0))
        if len(over):
            raise ConfigError(
                "FiniteTask.start must not be a terminal state, where no step can be made; "
                f"state {over[0]} is, and has probability {chances[over[0]]:g}."
            )
        low, high = cost_range(model)
        rows = sparse.vstack((model.transition, sparse.csr_array(chances[None])), format="csr")
        values = {
            "model": model,
            "start_distribution": read_only(chances),
            "budget_range": (min(0.0, low), high),
            "rows": lotteries(rows),
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)

    @property
    def gamma(self) -> float:
        """Discount of rewards and costs."""
        return self.model.gamma

    @property
    def horizon(self) -> int | None:
        """Number of steps of the model, if it has one."""
        return self.model.horizon

    @property
    def cost_range(self) -> tuple[float, float] | None:
        """That of the least and the largest cost at all steps; None if steps have no end."""
        model = self.model
        if model.horizon is None and model.gamma == 1:
            return None
        if model.horizon is None:
            weight = 1 / (1 - model.gamma)
        else:
            weight = float((model.gamma ** np.arange(model.horizon)).sum())
        low, high = float(model.cost.min()), float(model.cost.max())
        return weight * min(0.0, low), weight * max(0.0, high)

    @property
    def action_names(self) -> tuple[str, ...]:
        """Numbers, `[A]`."""
        return tuple(map(str, range(self.model.n_actions)))

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """Numbers of states."""
        return spaces.Discrete(self.model.n_states)

    def start(self, uniforms: FloatArray) -> FiniteState:
        """Draws states to start in."""
        n = len(uniforms)
        last = np.full(n, self.model.n_states * self.model.n_actions)
        return FiniteState(draw(self.rows, last, uniforms[:, 0]), np.zeros(n, np.int64))

    def step(self, state: FiniteState, actions: IntArray, uniforms: FloatArray) -> Outcome:
        """Draws next states; a terminal one stays as it is."""
        model, now = self.model, state.number
        drawn = draw(self.rows, now * model.n_actions + actions, uniforms[:, 0])
        following = FiniteState(np.where(model.terminal[now], now, drawn), state.time + 1)
        ended = model.terminal[following.number]
        if model.horizon is not None:
            ended = ended | (following.time >= model.horizon)
        return Outcome(following, model.reward[now, actions], model.cost[now, actions], ended)

    def observe(self, state: FiniteState) -> NDArray[Any]:
        """Returns the numbers of the states, `[N]`."""
        return state.number.astype(np.int64)


@checked
class FiniteEnv(TaskEnv):
    """One episode of a finite BMDP. `render_mode="ansi"` gives its states and actions.

    Args:
        model: the BMDP, with one discount for rewards and costs.
        start: a state, or a distribution `[S]` over states that are not terminal.
        render_mode: "ansi", or None.

    >>> from bmdp.exact.textbook import ladder
    >>> env = FiniteEnv(ladder(3).model, render_mode="ansi")
    >>> state, info = env.reset(seed=0)
    >>> state, reward, terminated, truncated, info = env.step(1)
    >>> reward, info["cost"], env.render()
    (1.0, 1.0, '0 -[1]-> 1')
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012

    def __init__(
        self, model: FiniteBMDP, start: int | ArrayLike = 0, render_mode: str | None = None
    ) -> None:
        super().__init__(FiniteTask(model, start), render_mode)

    def render(self) -> str | None:
        """Returns states, and between them actions in brackets, of this episode so far."""
        if self.render_mode is None:
            return None
        return "".join(
            f"{seen}" if action is None else f" -[{action}]-> {seen}" for seen, action in self.trace
        )


@checked
class FiniteVectorEnv(TaskVectorEnv):
    """A batch of episodes of a finite BMDP.

    Args:
        model: the BMDP, with one discount for rewards and costs.
        num_envs: number of slots.
        start: a state, or a distribution `[S]` over states that are not terminal.

    >>> from bmdp.exact.textbook import ladder
    >>> envs = FiniteVectorEnv(ladder(3).model, num_envs=2)
    >>> states, info = envs.reset(seed=0)
    >>> states, rewards, terminated, truncated, info = envs.step(np.array([0, 1]))
    >>> states.tolist(), rewards.tolist(), info["cost"].tolist(), terminated.tolist()
    ([3, 1], [0.0, 1.0], [0.0, 1.0], [True, False])
    """

    def __init__(self, model: FiniteBMDP, num_envs: int = 1, start: int | ArrayLike = 0) -> None:
        super().__init__(FiniteTask(model, start), num_envs)
