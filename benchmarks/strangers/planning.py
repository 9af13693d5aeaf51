"""Best policies of tasks that are too large for tables, or whose states are real numbers.

- Four rooms: shapes are only ever taken, so the sets of taken shapes are solved one after the
  other, the fullest first, each by value iteration over the cells.
- Boxes: value iteration on a grid, between whose nodes values are interpolated. What is reported is
  what the greedy policies earn and pay when they are played in the task itself, which is a lower
  bound of the true frontier. What the grid promised for them tells how far it may be off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numba import njit
from scipy import sparse

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.exact.multiplier import Point, search_frontier
from bmdp.frontier import Frontier
from bmdp.randomness import named_generator
from strangers.boxes import BoxTask
from strangers.grids import SHAPES, FourRoom, RoomSteps, room_steps


@njit(cache=False)
def _rooms(  # noqa: PLR0913
    price: float,
    gamma: float,
    following: IntArray,
    shape: IntArray,
    is_red: BoolArray,
    is_goal: BoolArray,
    n_taken: int,
) -> tuple[FloatArray, FloatArray]:
    """Reward and cost of the best policy from every state, each `[taken, C]`."""
    n_cells = len(following)
    reward, cost = np.zeros((n_taken, n_cells)), np.zeros((n_taken, n_cells))
    for taken in range(n_taken - 1, -1, -1):
        while True:
            change = 0.0
            for cell in range(n_cells):
                best, best_r, best_c = reward[taken, cell] - price * cost[taken, cell], 0.0, 0.0
                found = False
                for action in range(4):
                    after, there = following[cell, action], shape[cell, action]
                    r, c, then = 0.0, 0.0, taken
                    if is_goal[cell, action]:
                        r = 3.0
                    else:
                        if there >= 0 and not (taken >> there) & 1:
                            r, then = 1.0, taken | (1 << there)
                            c = 1.0 if is_red[cell, action] else 0.0
                        r += gamma * reward[then, after]
                        c += gamma * cost[then, after]
                    if r - price * c > best + 1e-12:
                        best, best_r, best_c, found = r - price * c, r, c, True
                if found:
                    change = max(change, best - reward[taken, cell] + price * cost[taken, cell])
                    reward[taken, cell], cost[taken, cell] = best_r, best_c
            if change < 1e-11:
                break
    return reward, cost


def room_values(price: float, steps: RoomSteps) -> tuple[FloatArray, FloatArray]:
    """Returns reward and cost of the best policy of `FourRoom` for a price, each `[taken, C]`.

    Values begin with those of staying where one is, 0, and only rise.
    """
    gamma = float(FourRoom.metadata["gamma"])
    reward, cost = _rooms(price, gamma, *steps[1:], 2 ** len(SHAPES))
    return reward, cost


def rooms_point(price: float, steps: RoomSteps | None = None) -> Point:
    """Returns (cost, reward) of that policy from the start."""
    given = steps or room_steps()
    reward, cost = room_values(price, given)
    start = int(np.flatnonzero((given.cells == FourRoom.begin[:2]).all(axis=1))[0])
    return float(cost[0, start]), float(reward[0, start])


def rooms_frontier(tol: float = 1e-6) -> Frontier:
    """Returns the frontier of `FourRoom`."""
    steps = room_steps()
    ends = rooms_point(1e4, steps), rooms_point(1e-7, steps)
    return search_frontier(lambda price: rooms_point(price, steps), ends, tol=tol)


@dataclass(frozen=True, eq=False)
class BoxGrid:
    """A task with states of real numbers on a grid of `S` nodes.

    A *plan* is a sequence of actions. The tasks have no chance, so nothing is lost by planning
    several steps ahead, and values are interpolated once for a plan rather than once for a step.
    """

    task: BoxTask
    axes: tuple[FloatArray, ...]  # nodes along each number, evenly spaced
    plans: tuple[tuple[int, ...], ...]  # [P]
    moves: tuple[sparse.csr_array, ...]  # [S, S] of each plan, discounted; nothing after the end
    rewards: FloatArray  # [P, S], discounted
    costs: FloatArray  # [P, S]


def corners(axes: Sequence[FloatArray], states: FloatArray) -> list[tuple[IntArray, FloatArray]]:
    """Returns nodes and weights `[N]` of the corners around states; those outside are clipped."""
    lower, share = [], []
    for axis, values in zip(axes, states.T, strict=True):
        place = (np.clip(values, axis[0], axis[-1]) - axis[0]) / (axis[1] - axis[0])
        low = np.minimum(place.astype(np.int64), len(axis) - 2)
        lower.append(low)
        share.append(place - low)
    found: list[tuple[IntArray, FloatArray]] = []
    for above in product((0, 1), repeat=len(axes)):
        node, weight = np.zeros(len(states), np.int64), np.ones(len(states))
        for axis, low, part, up in zip(axes, lower, share, above, strict=True):
            node = node * len(axis) + low + up
            weight = weight * (part if up else 1 - part)
        found.append((node, weight))
    return found


def interpolated(axes: Sequence[FloatArray], values: FloatArray, states: FloatArray) -> FloatArray:
    """Returns values at states, given those at nodes."""
    total: FloatArray = np.zeros(len(states))
    for node, weight in corners(axes, states):
        total = total + weight * values[node]
    return total


def planned(
    task: BoxTask, states: FloatArray, plan: Sequence[int]
) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
    """Returns where a plan leads, its discounted rewards and costs, and whether it ends."""
    rewards, costs = np.zeros((2, len(states)))
    ended: BoolArray = np.zeros(len(states), np.bool_)
    for step, action in enumerate(plan):
        after, reward, cost, over = task.follow(states, np.full(len(states), action))
        rewards += task.gamma**step * np.where(ended, 0.0, reward)
        costs += task.gamma**step * np.where(ended, 0.0, cost)
        states, ended = np.where(ended[:, None], states, after), ended | over
    return states, rewards, costs, ended


def box_grid(task: BoxTask, axes: Sequence[FloatArray], depth: int) -> BoxGrid:
    """Returns a task on a grid, with all plans of a number of steps."""
    nodes = np.stack([x.ravel() for x in np.meshgrid(*axes, indexing="ij")], axis=1)
    plans = tuple(product(range(len(task.action_names)), repeat=depth))
    n, moves, rewards, costs = len(nodes), [], [], []
    for plan in plans:
        after, reward, cost, over = planned(task, nodes, plan)
        found = corners(axes, after)
        columns = np.stack([node.astype(np.int32) for node, _ in found], axis=1).ravel()
        discount = np.where(over, 0.0, task.gamma**depth)
        weights = np.stack([(w * discount).astype(np.float32) for _, w in found], axis=1)
        starts = (np.arange(n + 1) * len(found)).astype(np.int32)
        moves.append(sparse.csr_array((weights.ravel(), columns, starts), shape=(n, n)))
        rewards.append(reward)
        costs.append(cost)
    return BoxGrid(task, tuple(axes), plans, tuple(moves), np.array(rewards), np.array(costs))


def box_values(grid: BoxGrid, price: float, *, n_steps: int) -> FloatArray:
    """Returns the best values `[S]` of reward - price * cost, over a number of steps."""
    values: FloatArray = np.zeros(grid.rewards.shape[1], np.float32)
    for _ in range(-(-n_steps // len(grid.plans[0]))):
        new: FloatArray = np.full(len(values), -np.inf, np.float32)
        for reward, cost, move in zip(grid.rewards, grid.costs, grid.moves, strict=True):
            np.maximum(new, reward - price * cost + move @ values, out=new)
        values = new
    return values


def box_actions(grid: BoxGrid, values: FloatArray, price: float, states: FloatArray) -> IntArray:
    """Returns first actions of the best plans at states `[N, D]`."""
    task, best = grid.task, np.full(len(states), -np.inf)
    actions = np.zeros(len(states), np.int64)
    for plan in grid.plans:
        after, reward, cost, over = planned(task, states, plan)
        following = np.where(over, 0.0, interpolated(grid.axes, values, after))
        worth = reward - price * cost + task.gamma ** len(plan) * following
        actions = np.where(worth > best, plan[0], actions)
        best = np.maximum(worth, best)
    return actions


def box_starts(task: BoxTask, n: int, seed: int = 0) -> FloatArray:
    """Returns `n` first states, spread evenly over each number that is drawn."""
    rng = named_generator(seed, "starts")
    strata = np.stack([rng.permutation(n) for _ in range(task.n_draws)], axis=1)
    return task.begin((strata + rng.random(strata.shape)) / n)


def box_point(
    grid: BoxGrid, values: FloatArray, price: float, starts: FloatArray, n_steps: int
) -> Point:
    """Returns mean discounted (cost, reward) of the greedy policy from states, by playing it."""
    task, going, states = grid.task, np.ones(len(starts), np.bool_), starts.copy()
    reward, cost = np.zeros((2, len(states)))
    for step in range(n_steps):
        actions = box_actions(grid, values, price, states[going])
        states[going], earned, paid, over = task.follow(states[going], actions)
        reward[going] += task.gamma**step * earned
        cost[going] += task.gamma**step * paid
        going[np.flatnonzero(going)[over]] = False
        if not going.any():
            break
    return float(cost.mean()), float(reward.mean())


def box_points(
    grid: BoxGrid, *, prices: Sequence[float], n_starts: int, n_steps: int
) -> tuple[list[Point], list[float]]:
    """Returns what the policies of prices pay and earn, and what the grid promised more of each.

    Args:
        grid: of a task.
        prices: of cost.
        n_starts: first states to play from.
        n_steps: after which an episode is cut off.
    """
    points, gaps = [], []
    starts = box_starts(grid.task, n_starts)
    for price in prices:
        values = box_values(grid, price, n_steps=n_steps)
        promised = float(interpolated(grid.axes, values, starts).mean())
        cost, reward = box_point(grid, values, price, starts, n_steps)
        points.append((cost, reward))
        gaps.append(promised - (reward - price * cost))
    return points, gaps
