"""The values that batched geometry comes in, for numpy arrays and torch tensors alike."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

ArrayT = TypeVar("ArrayT")


class Mixtures(NamedTuple, Generic[ArrayT]):
    """Best mixtures of `N` states: point `upper` with probability `p_upper`, else point `lower`.

    Paper: (a1, a2, p) of Algorithm 3, for many states.

    >>> from bmdp.frontier import best_mixtures
    >>> found = best_mixtures([[0.0, 1.0], [0.0, 1.0]], [[0.0, 10.0], [3.0, 4.0]], [0.5, 2.0])
    >>> found.p_upper.tolist(), found.reward.tolist(), found.status.tolist()
    ([0.5, 0.0], [5.0, 4.0], [1, 2])
    """

    lower: ArrayT  # [N], positions among the K points of the state
    upper: ArrayT  # [N], positions among them
    p_upper: ArrayT  # [N], from 0 to 1
    cost: ArrayT  # [N], expected
    reward: ArrayT  # [N], expected
    status: ArrayT  # [N], BudgetStatus


class Vertices(NamedTuple, Generic[ArrayT]):
    """The upper frontiers of `N` states, by rising cost.

    >>> from bmdp.frontier import frontier_vertices
    >>> found = frontier_vertices([[0.0, 1.0, 2.0]] * 2, [[0.0, 3.0, 4.0], [0.0, 0.0, 4.0]])
    >>> found.points.tolist(), found.n_vertices.tolist()
    ([[0, 1, 2], [0, 2, 2]], [3, 2])
    """

    points: ArrayT  # [N, V], positions among the K points; rows are filled up with the last one
    n_vertices: ArrayT  # [N], of each frontier
