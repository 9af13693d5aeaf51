"""Frontiers of finitely many states, found once and looked up: a budget is then placed on one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import FloatArray, IntArray
from bmdp.frontier import kernels
from bmdp.frontier.batched import Mixtures


class KnownFrontiers:
    """Frontiers of `S` states. Nothing in it changes, so any thread may look one up.

    Args:
        costs: x of the points, `[S, K]`.
        rewards: y of the points, `[S, K]`.
        cheapest: the point of each state that is played where a budget is infeasible, `[S]`.
        least: a budget from here to the first vertex is taken as the cost of that one, `[S]`.

    >>> points = np.array([[0.5, 1.0]]), np.array([[0.0, 8.0]])
    >>> known = KnownFrontiers(*points, cheapest=np.array([0]), least=np.array([0.25]))
    >>> found = known.mixtures(np.array([0, 0, 0]), np.array([0.0, 0.25, 0.75]))
    >>> found.p_upper.tolist(), found.reward.tolist(), found.status.tolist()
    ([0.0, 0.0, 0.5], [0.0, 0.0, 4.0], [0, 1, 1])
    """

    def __init__(
        self, costs: FloatArray, rewards: FloatArray, cheapest: IntArray, least: FloatArray
    ) -> None:
        """Finds the vertices of all states."""
        first, position = kernels.vertices_of(costs, rewards)
        state = np.repeat(np.arange(len(costs)), np.diff(first))
        self._known: tuple[NDArray[Any], ...] = (
            costs[state, position],
            rewards[state, position],
            position,
            first,
            cheapest.astype(np.int64),
            costs[state, position][first[:-1]],
            least,
        )

    @staticmethod
    def can_hold(costs: FloatArray, rewards: FloatArray) -> bool:
        """Whether all points are numbers that `best_mixtures` takes."""
        limit = kernels.LIMITS[costs.dtype.name]
        return bool((np.abs(costs) <= limit).all() and (np.abs(rewards) <= limit).all())

    def mixtures(self, states: IntArray, betas: FloatArray) -> Mixtures[NDArray[Any]]:
        """Returns the best mixtures `[N]` of states `[N]` at a budget each, by number of points."""
        n, dtype = len(states), self._known[0].dtype
        lower, upper = np.empty((2, n), np.int64)
        p_upper, cost, reward = np.empty((3, n), dtype)
        out = lower, upper, p_upper, cost, reward, np.empty(n, np.int8)
        held = betas.astype(np.float64), betas.astype(dtype)
        kernels.fill_known(self._known, states.astype(np.int64), *held, out)
        return Mixtures(*out)
