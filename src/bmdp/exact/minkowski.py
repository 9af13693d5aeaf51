"""Sums of concave frontiers, for all states of a model at once.

The frontier of an action is the Minkowski sum of its next states' frontiers, scaled by discount and
probability: it starts at the sum of their first vertices and has all their edges, by falling slope.
The frontier of a state is the upper frontier of its actions' frontiers. Frontiers of different
states differ in length, so they are kept end to end in one array.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange

from bmdp.arrays import FloatArray, IntArray
from bmdp.exact.model import FiniteBMDP
from bmdp.workers import compiled_threads

ROUNDING = 1e-12  # of a cost, relative to the largest


class Frontiers(NamedTuple):
    """One frontier for each state, end to end."""

    first: IntArray  # [S + 1]: those of state s are first[s] to first[s + 1]
    costs: FloatArray  # [vertices]
    rewards: FloatArray  # [vertices]


class Dynamics(NamedTuple):
    """A model as plain arrays, for kernels."""

    row_start: IntArray  # [S * A + 1]
    next_state: IntArray  # [entries]
    probability: FloatArray  # [entries]
    reward: FloatArray  # [S, A]
    cost: FloatArray  # [S, A]
    gamma: float
    cost_gamma: float


def dynamics_of(model: FiniteBMDP) -> Dynamics:
    """Returns a model as plain arrays."""
    rows = model.transition
    return Dynamics(
        rows.indptr.astype(np.int64),
        rows.indices.astype(np.int64),
        rows.data,
        model.reward,
        model.cost,
        model.gamma,
        model.cost_gamma,
    )


def backup(now: Frontiers, dynamics: Dynamics, *, prune: float) -> Frontiers:
    """One iteration for all states."""
    n_states, n_actions = dynamics.reward.shape
    edges = np.diff(now.first) - 1  # [S]
    entry_row = np.repeat(np.arange(n_states * n_actions), np.diff(dynamics.row_start))
    per_row = 1 + np.bincount(
        entry_row, edges[dynamics.next_state], minlength=n_states * n_actions
    ).astype(np.int64)
    room = np.concatenate(([0], np.cumsum(per_row.reshape(n_states, n_actions).sum(axis=1))))
    costs, rewards = np.empty((2, int(room[-1])))
    with compiled_threads():
        counts = _fill(now, dynamics, room, costs, rewards, prune)
    kept = np.arange(len(costs)) - np.repeat(room[:-1], np.diff(room)) < np.repeat(
        counts, np.diff(room)
    )
    return Frontiers(np.concatenate(([0], np.cumsum(counts))), costs[kept], rewards[kept])


@njit(cache=True)
def steepest_first(rise: FloatArray, run: FloatArray) -> IntArray:
    """Order of edges by falling slope."""
    return np.argsort(-rise / run)


@njit(cache=True)
def sum_row(now: Frontiers, dynamics: Dynamics, row: int, cost: float, reward: float) -> Any:
    """Costs and rewards of the frontier of one (state, action), by rising cost."""
    begin, end = dynamics.row_start[row], dynamics.row_start[row + 1]
    n_edges = 0
    for entry in range(begin, end):
        n = dynamics.next_state[entry]
        n_edges += now.first[n + 1] - now.first[n] - 1
    run, rise = np.empty(n_edges), np.empty(n_edges)
    x, y, k = cost, reward, 0
    for entry in range(begin, end):
        n = dynamics.next_state[entry]
        x_scale = dynamics.cost_gamma * dynamics.probability[entry]
        y_scale = dynamics.gamma * dynamics.probability[entry]
        v = now.first[n]
        x, y = x + x_scale * now.costs[v], y + y_scale * now.rewards[v]
        for v in range(now.first[n], now.first[n + 1] - 1):
            run[k] = x_scale * (now.costs[v + 1] - now.costs[v])
            rise[k] = y_scale * (now.rewards[v + 1] - now.rewards[v])
            k += 1
    order = steepest_first(rise, run)
    costs, rewards = np.empty(n_edges + 1), np.empty(n_edges + 1)
    costs[0], rewards[0] = x, y
    for k in range(n_edges):
        costs[k + 1] = costs[k] + run[order[k]]
        rewards[k + 1] = rewards[k] + rise[order[k]]
    return costs, rewards


@njit(cache=True)
def _scan(x: FloatArray, y: FloatArray) -> int:
    """Moves the vertices of the upper frontier to the front, given points by rising cost.

    Costs that differ by rounding only are equal: else a frontier might begin with a worse paid
    point that seems cheaper.
    """
    tie = ROUNDING * max(1.0, abs(x[0]), abs(x[-1]))
    n_kept = 0
    for i in range(x.shape[0]):
        if n_kept > 0 and y[i] <= y[n_kept - 1]:
            continue
        if n_kept > 0 and x[i] <= x[n_kept - 1] + tie:
            n_kept -= 1  # as cheap, and better paid
        while n_kept > 1 and (y[n_kept - 1] - y[n_kept - 2]) * (x[i] - x[n_kept - 2]) <= (
            y[i] - y[n_kept - 2]
        ) * (x[n_kept - 1] - x[n_kept - 2]):
            n_kept -= 1
        x[n_kept], y[n_kept] = x[i], y[i]
        n_kept += 1
    return n_kept


@njit(cache=True)
def _prune(x: FloatArray, y: FloatArray, n_vertices: int, loss: float) -> int:
    """Drops vertices that are within `loss` of the chord that replaces them."""
    if n_vertices == 1:
        return 1
    n_kept, last = 1, 0
    for i in range(2, n_vertices):
        slope = (y[i] - y[last]) / (x[i] - x[last])
        furthest = 0.0
        for k in range(last + 1, i):
            height = (y[k] - y[last]) - slope * (x[k] - x[last])
            furthest = max(furthest, height / (1 + slope))
        if furthest > loss:
            last = i - 1
            x[n_kept], y[n_kept] = x[last], y[last]
            n_kept += 1
    x[n_kept], y[n_kept] = x[n_vertices - 1], y[n_vertices - 1]
    return n_kept + 1


@njit(cache=True, parallel=True)
def _fill(
    now: Frontiers,
    dynamics: Dynamics,
    room: IntArray,
    costs: FloatArray,
    rewards: FloatArray,
    prune: float,
) -> IntArray:
    """Writes the next frontier of each state to its room; returns how many vertices each has."""
    n_states, n_actions = dynamics.reward.shape
    counts = np.empty(n_states, np.int64)
    for s in prange(n_states):
        n_points = 0
        x, y = np.empty(room[s + 1] - room[s]), np.empty(room[s + 1] - room[s])
        for a in range(n_actions):
            row = s * n_actions + a
            row_x, row_y = sum_row(now, dynamics, row, dynamics.cost[s, a], dynamics.reward[s, a])
            for k in range(row_x.shape[0]):
                x[n_points], y[n_points] = row_x[k], row_y[k]
                n_points += 1
        order = np.argsort(x)
        mine_x, mine_y = costs[room[s] : room[s + 1]], rewards[room[s] : room[s + 1]]
        for k in range(n_points):
            mine_x[k], mine_y[k] = x[order[k]], y[order[k]]
        counts[s] = _scan(mine_x, mine_y)
        if prune > 0:
            counts[s] = _prune(mine_x, mine_y, counts[s], prune)
    return counts


@njit(cache=True)
def _excess(x: FloatArray, y: FloatArray, other_x: FloatArray, other_y: FloatArray) -> Any:
    """Largest distance of two frontiers of one state at the slopes of the first."""
    k, furthest = 0, max(abs(y[-1] - other_y[-1]), abs(x[0] - other_x[0]))
    for i in range(x.shape[0] - 1):
        slope = (y[i + 1] - y[i]) / (x[i + 1] - x[i])
        while k < other_x.shape[0] - 1 and other_y[k + 1] - other_y[k] > slope * (
            other_x[k + 1] - other_x[k]
        ):
            k += 1
        gap = (y[i] - slope * x[i]) - (other_y[k] - slope * other_x[k])
        furthest = max(furthest, abs(gap) / (1 + slope))
    return furthest


@njit(cache=True)
def distance(left: Frontiers, right: Frontiers) -> Any:
    """Largest distance of the frontiers of all states."""
    furthest = 0.0
    for s in range(left.first.shape[0] - 1):
        x = left.costs[left.first[s] : left.first[s + 1]]
        y = left.rewards[left.first[s] : left.first[s + 1]]
        other_x = right.costs[right.first[s] : right.first[s + 1]]
        other_y = right.rewards[right.first[s] : right.first[s + 1]]
        furthest = max(furthest, _excess(x, y, other_x, other_y))
        furthest = max(furthest, _excess(other_x, other_y, x, y))
    return furthest
