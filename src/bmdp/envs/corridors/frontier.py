"""The true frontier of corridors, by dynamic programming on a grid with the step in the state.

Values jump at the borders of cells, so each unit cell has a grid of its own, borders included, and
values are interpolated inside a cell, never across a border. The noise is integrated over many
equally likely headings (or shifts), each of which ends in one place of one cell. For every price on
cost this is a finite problem, solved backwards from the horizon.

The yardstick is not the grid's own value but what the policy that is best on the grid earns and
pays in the real task, by Monte Carlo; the two should agree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtr, ndtri

from bmdp.arrays import FloatArray, IntArray
from bmdp.envs.corridors.task import STOP, Corridors, CorridorsState
from bmdp.envs.episodes import OnPlayed, play_task
from bmdp.envs.tasks import TrueFrontier
from bmdp.errors import ConfigError, ConvergenceError
from bmdp.exact.multiplier import Point, search_frontier
from bmdp.frontier import Frontier, upper_frontier
from bmdp.policies.policy import Decisions, OneStepPolicy, idle_decisions

_TINY_PRICE, _HUGE_PRICE = 1e-7, 1e9  # stand for the ends of the frontier
_N_HEADINGS, _N_SHIFTS = 201, 31  # points of the noise; of x and of y each


@dataclass(frozen=True, eq=False)
class Grid:
    """The task on a grid: cells row by row, and in each a square of nodes."""

    task: Corridors
    resolution: int  # nodes along the side of a cell
    moves: tuple[sparse.csr_array, ...]  # [nodes, nodes] for each action; empty for stop
    rewards: FloatArray  # [actions, nodes], expected
    costs: FloatArray  # [actions, nodes]


def corridors_grid(task: Corridors, resolution: int) -> Grid:
    """Puts a task on a grid.

    Args:
        task: its settings.
        resolution: nodes along the side of a unit cell, an odd number from 3 on, so that one of
            them is in the middle.
    """
    if resolution < 3 or resolution % 2 == 0:
        raise ConfigError(f"resolution must be odd, from 3 on; got {resolution}.")
    height, width = task.map.wall.shape
    side = np.linspace(0, 1, resolution)
    row, column, j, i = (
        t.ravel()
        for t in np.meshgrid(np.arange(height), np.arange(width), side, side, indexing="ij")
    )
    x, y = np.asarray(column + i, np.float64), np.asarray(row + j, np.float64)
    noise = _noise_points(task)
    moves, rewards, costs = [], [], []
    for action in range(len(task.action_names)):
        ends = _ends(task, (x, y), (row, column), action, noise)
        rewards.append(task.map.reward[ends[2:]].mean(axis=1))
        costs.append(task.map.cost[ends[2:]].mean(axis=1))
        leads_on = _interpolation(ends, task, resolution)
        moves.append(sparse.csr_array(leads_on.shape) if action == STOP else leads_on)
    return Grid(task, resolution, tuple(moves), np.array(rewards), np.array(costs))


def _noise_points(task: Corridors) -> FloatArray:
    """Equally likely values `[K, 2]` of the noise: of the heading, or of x and y."""
    deviations: FloatArray = np.array(task.noise_std)
    if task.noise == "heading":
        turns = ndtri((np.arange(_N_HEADINGS) + 0.5) / _N_HEADINGS) * deviations[0]
        return np.stack((turns, np.zeros_like(turns)), axis=1)
    shifts = ndtri((np.arange(_N_SHIFTS) + 0.5) / _N_SHIFTS)
    pairs = np.stack(np.meshgrid(shifts, shifts, indexing="ij"), axis=-1).reshape(-1, 2)
    return pairs * deviations


def _ends(
    task: Corridors, at: tuple[FloatArray, FloatArray], cell: Any, action: int, noise: FloatArray
) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    """Where an action leads from each node under each value of the noise: x, y, row, column.

    A node on a border belongs to the cell whose grid it is of, so a move that is not made stays in
    that cell. Moves are those of the real task, `Corridors.step`, played from each node.
    """
    (x, y), (row, column) = at, cell
    n, k = len(x), len(noise)
    if action == STOP:
        return x[:, None], y[:, None], row[:, None], column[:, None]
    deviations = np.array(task.noise_std)
    standard = np.divide(noise, deviations, out=np.zeros_like(noise), where=deviations > 0)
    uniforms = np.tile(ndtr(standard), (n, 1))
    start = CorridorsState(np.repeat(x, k), np.repeat(y, k), np.zeros(n * k, np.int64))
    moved = task.step(start, np.full(n * k, action), uniforms).state
    to_x, to_y = moved.x.reshape(n, k), moved.y.reshape(n, k)
    height, width = task.map.wall.shape
    stays = (to_x == x[:, None]) & (to_y == y[:, None])
    to_row = np.where(stays, row[:, None], np.minimum(to_y.astype(np.int64), height - 1))
    to_column = np.where(stays, column[:, None], np.minimum(to_x.astype(np.int64), width - 1))
    return to_x, to_y, to_row, to_column


def _interpolation(ends: Any, task: Corridors, resolution: int) -> sparse.csr_array:
    """Weights `[nodes, nodes]` that give expected values after a move, from values at nodes."""
    to_x, to_y, to_row, to_column = ends
    n, k = to_x.shape
    width = task.map.wall.shape[1]
    base = (to_row * width + to_column) * resolution**2
    rows = np.repeat(np.arange(n), k)
    pieces = []
    for places, weights in _corners(to_x - to_column, to_y - to_row, resolution):
        entries = (weights.ravel() / k, (rows, (base + places).ravel()))
        pieces.append(
            sparse.coo_array(entries, shape=(n, len(task.map.wall.ravel()) * resolution**2))
        )
    total = sparse.csr_array(sum(piece.tocsr() for piece in pieces))
    total.sum_duplicates()
    return total


def _corners(i: FloatArray, j: FloatArray, resolution: int) -> list[tuple[IntArray, FloatArray]]:
    """The four nodes around places (i, j) inside a cell, and their weights."""
    fine_i, fine_j = (np.clip(t, 0, 1) * (resolution - 1) for t in (i, j))
    low_i, low_j = (np.minimum(t.astype(np.int64), resolution - 2) for t in (fine_i, fine_j))
    share_i, share_j = fine_i - low_i, fine_j - low_j
    return [
        ((low_j + b) * resolution + low_i + a, np.abs(1 - a - share_i) * np.abs(1 - b - share_j))
        for a in (0, 1)
        for b in (0, 1)
    ]


def best_values(grid: Grid, price: float) -> tuple[Point, list[FloatArray]]:
    """Maximises reward - price * cost; returns (cost, reward) at the start, and scores by step.

    Scores `[actions, nodes]` are reward - price * cost of each action.
    """
    last = ToGo(np.zeros(0), *np.zeros((2, grid.rewards.shape[1])))
    steps = [last := _step_back(grid, price, last) for _ in range(grid.task.horizon)]
    start = start_node(grid)
    point = (float(last.cost[start]), float(last.reward[start]))
    return point, [step.score for step in reversed(steps)]


class ToGo(NamedTuple):
    """Score, reward and cost from a step on."""

    score: FloatArray  # [actions, nodes]
    reward: FloatArray  # [nodes]
    cost: FloatArray  # [nodes]


def _step_back(grid: Grid, price: float, later: ToGo) -> ToGo:
    """Backs values up by one step."""
    q_r = grid.rewards + np.stack([move @ later.reward for move in grid.moves])
    q_c = grid.costs + np.stack([move @ later.cost for move in grid.moves])
    score = q_r - price * q_c
    action = score.argmax(axis=0)
    nodes = np.arange(score.shape[1])
    return ToGo(score, q_r[action, nodes], q_c[action, nodes])


def cost_range(grid: Grid, places: FloatArray, step: int) -> FloatArray:
    """Returns the least cost from a step on, and that of the best-paid policy, `[N, 2]`.

    Args:
        grid: of a task.
        places: x and y, `[N, 2]`.
        step: number of steps made before.
    """
    base, corners = _nodes_around(grid, places)
    ends = []
    for price in (_HUGE_PRICE, _TINY_PRICE):
        later = ToGo(np.zeros(0), *np.zeros((2, grid.rewards.shape[1])))
        for _ in range(step, grid.task.horizon):
            later = _step_back(grid, price, later)
        ends.append(sum(later.cost[base + node] * weight for node, weight in corners))
    return np.stack(ends, axis=1)


def start_node(grid: Grid) -> int:
    """The node where all episodes start: the middle of its cell."""
    half = grid.resolution // 2
    return int(grid.task.map.start) * grid.resolution**2 + half * grid.resolution + half


@dataclass(frozen=True, eq=False)
class GridPolicy(OneStepPolicy):
    """Plays the best action by scores that are interpolated between nodes, at any budget."""

    grid: Grid
    scores: list[FloatArray]  # [horizon], each [actions, nodes]
    step: int = 0

    budget_range, n_draws = (0.0, 1.0), 0

    @property
    def n_steps(self) -> int:
        """The horizon."""
        return len(self.scores)

    def at_step(self, step: int) -> GridPolicy:
        """Returns what it does at one step."""
        return replace(self, step=step)

    def choose(self, states: NDArray[Any], budgets: FloatArray, uniforms: FloatArray) -> Decisions:
        """Decides by x and y, the first two numbers of a state."""
        base, corners = _nodes_around(self.grid, states)
        score = sum(self.scores[self.step][:, base + node] * weight for node, weight in corners)
        return idle_decisions(budgets)._replace(action=np.asarray(score).argmax(axis=0))


def play(
    grid: Grid, scores: list[FloatArray], *, n_episodes: int, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Plays what is best on the grid in the real task; returns rewards and costs `[N]`."""
    how: dict[str, Any] = {"n_episodes": n_episodes, "seed": seed}
    return play_task(GridPolicy(grid, scores), grid.task, stream="corridors/grid", **how)


def _nodes_around(grid: Grid, places: FloatArray) -> Any:
    """Number of the first node of the cell of each place, and the four nodes around it."""
    x, y = places[:, 0], places[:, 1]
    height, width = grid.task.map.wall.shape
    row, column = (
        np.minimum(t.astype(np.int64), most - 1) for t, most in ((y, height), (x, width))
    )
    base = (row * width + column) * grid.resolution**2
    return base, _corners(x - column, y - row, grid.resolution)


def grid_frontier(grid: Grid, *, tol: float = 1e-4) -> tuple[Frontier, list[float]]:
    """Returns the frontier of the grid, and the prices at which its vertices are best."""
    prices: dict[Point, float] = {}

    def best(price: float) -> Point:
        point = best_values(grid, price)[0]
        prices[point] = price
        return point

    ends = best(_HUGE_PRICE), best(_TINY_PRICE)
    frontier = search_frontier(best, ends, tol=tol)
    points = zip(frontier.costs.tolist(), frontier.rewards.tolist(), strict=True)
    return frontier, [prices[point] for point in points]


def true_frontier(
    task: Corridors | None = None,
    *,
    resolution: int = 33,
    n_episodes: int = 100_000,
    seed: int = 0,
    max_disagreement: float = 0.003,
    progress: OnPlayed | None = None,
) -> TrueFrontier:
    """Returns a frontier of corridors that policies which see the time do reach.

    Args:
        task: its settings; the paper's if not given.
        resolution: nodes along the side of a cell. 33 takes 15 s and 2 GiB, 17 2 s and 0.7 GiB.
        n_episodes: of Monte Carlo for each vertex.
        seed: of Monte Carlo.
        max_disagreement: how far the grid's own value may be from the measured one, relatively.
        progress: called with the number of vertices measured so far, and of all.

    Returns:
        TrueFrontier, its vertices measured in the real task. `reward_error` is the largest
        difference to the grid's own value, with 3.3 standard errors of the measurement.

    Raises:
        ConvergenceError: if the grid's own value is too far from the measured one.

    >>> found = true_frontier(Corridors(height=3, noise_std=0.0), resolution=5, n_episodes=10)
    >>> found.frontier.costs.round(3).tolist(), found.frontier.rewards.round(3).tolist()
    ([0.0, 1.2], [203.0, 230.0])
    """
    settings = task or Corridors()
    grid = corridors_grid(settings, resolution)
    own, prices = grid_frontier(grid)
    points, error = [], 0.0
    for promised, price in zip(own.rewards.tolist(), prices, strict=True):
        rewards, costs = play(grid, best_values(grid, price)[1], n_episodes=n_episodes, seed=seed)
        earned, noise = float(rewards.mean()), 3.3 * float(rewards.std()) / np.sqrt(n_episodes)
        if abs(earned - promised) > max_disagreement * abs(earned) + noise:
            raise ConvergenceError(
                f"a grid of resolution {resolution} promises {promised:.2f} where {earned:.2f} is "
                f"earned, more than {max_disagreement:.1%} away. Raise the resolution."
            )
        points.append((float(costs.mean()), earned))
        error = max(error, float(abs(earned - promised) + noise))
        if progress is not None:
            progress(len(points), len(prices))
    measured = upper_frontier(*np.array(points).T)
    found = {"resolution": resolution, "n_episodes": n_episodes, "task": settings, "grid": own}
    return TrueFrontier(Frontier(measured.costs, measured.rewards), error, found)
