"""How much hiding the time costs: the best policy that sees only where it is, by direct search.

Without the time in the state, the best thing to do at a place is a compromise between the steps at
which one may be there, and dynamic programming does not find it. This searches directly: value the
policy at every step, backwards; count how often each place is visited at each step, forwards; at a
random share of the places take the action that is best on average over the visits; keep the change
if the start gains. The result is a lower bound of what memoryless policies can reach.
"""

from __future__ import annotations

import numpy as np

from bmdp.arrays import FloatArray, IntArray
from bmdp.envs.corridors.frontier import Grid, best_values, start_node
from bmdp.exact.multiplier import Point


def best_memoryless(
    grid: Grid, price: float, *, n_rounds: int = 300, seed: int = 0
) -> tuple[Point, list[FloatArray]]:
    """Maximises reward - price * cost among policies that do not see the time.

    Args:
        grid: the task on a grid.
        price: of cost.
        n_rounds: number of changes tried.
        seed: of the random places.

    Returns:
        (cost, reward) on the grid, and scores by step, the same at all, for `frontier.play`.
    """
    rng = np.random.default_rng(seed)
    _, by_step = best_values(grid, price)
    n_nodes = grid.rewards.shape[1]
    policy = np.mean(by_step, axis=0).argmax(axis=0)
    point, average = _averages(grid, policy, price)
    for k in range(n_rounds):
        chosen = rng.random(n_nodes) < (1.0 if k == 0 else rng.choice([0.03, 0.1, 0.3, 1.0]))
        tried = np.where(chosen, average.argmax(axis=0), policy)
        new_point, new_average = _averages(grid, tried, price)
        if new_point[1] - price * new_point[0] > point[1] - price * point[0]:
            policy, point, average = tried, new_point, new_average
    scores = np.where(np.arange(len(grid.moves))[:, None] == policy, 1.0, 0.0)
    return point, [scores] * grid.task.horizon


def _averages(grid: Grid, policy: IntArray, price: float) -> tuple[Point, FloatArray]:
    """(cost, reward) of a policy, and scores `[actions, nodes]` on average over its visits."""
    n_nodes, nodes = len(policy), np.arange(len(policy))
    v_r, v_c = np.zeros((2, n_nodes))
    by_step: list[FloatArray] = []
    for _ in range(grid.task.horizon):
        q_r = grid.rewards + np.stack([move @ v_r for move in grid.moves])
        q_c = grid.costs + np.stack([move @ v_c for move in grid.moves])
        by_step.insert(0, q_r - price * q_c)
        v_r, v_c = q_r[policy, nodes], q_c[policy, nodes]
    start = start_node(grid)
    visits = np.zeros(n_nodes)
    visits[start] = 1
    total = np.zeros_like(by_step[0])
    for score in by_step:
        total += visits * score
        visits = sum(
            (move.T @ np.where(policy == a, visits, 0.0) for a, move in enumerate(grid.moves)),
            start=np.zeros(n_nodes),
        )
    return (float(v_c[start]), float(v_r[start])), total
