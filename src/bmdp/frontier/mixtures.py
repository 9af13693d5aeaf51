"""The values that batched geometry comes in, for numpy arrays and torch tensors alike."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

ArrayT = TypeVar("ArrayT")


class Mixtures(NamedTuple, Generic[ArrayT]):
    """Best mixtures of `N` states: point `upper` with probability `p_upper`, else point `lower`."""

    lower: ArrayT  # [N], positions among the K points of the state
    upper: ArrayT  # [N]
    p_upper: ArrayT  # [N]
    cost: ArrayT  # [N], expected
    reward: ArrayT  # [N], expected
    status: ArrayT  # [N], BudgetStatus


class Vertices(NamedTuple, Generic[ArrayT]):
    """The upper frontiers of `N` states, by rising cost."""

    points: ArrayT  # [N, V], positions among the K points; rows are filled up with the last one
    n_vertices: ArrayT  # [N]
