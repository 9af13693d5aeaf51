"""The batched functions, for numpy arrays (by numba) and for torch tensors (on their device)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike

from bmdp.arrays import FloatArray
from bmdp.frontier import batched
from bmdp.frontier.mixtures import Mixtures, Vertices

if TYPE_CHECKING:
    from torch import Tensor


@overload
def best_mixtures(costs: Tensor, rewards: Tensor, betas: Tensor) -> Mixtures[Tensor]: ...
@overload
def best_mixtures(
    costs: ArrayLike, rewards: ArrayLike, betas: ArrayLike
) -> Mixtures[np.ndarray[Any, Any]]: ...
def best_mixtures(costs: Any, rewards: Any, betas: Any) -> Mixtures[Any]:
    """Returns for each state the best-paid mixture of its points that its budget affords.

    The same as `hull_mixture(upper_frontier(costs[n], rewards[n]), betas[n])` for every n, but for
    rounding: values are computed in the precision of the points. Equal in status always.

    Args:
        costs: x of the points, `[N, K]`; float32 stays float32, all else is taken as float64.
        rewards: y of the points, `[N, K]`.
        betas: budgets held, `[N]`, compared with the costs in the precision of the points.

    Returns:
        Mixtures of arrays `[N]`; `lower` and `upper` are positions among the `K` points. Tensors if
        tensors were given, on their device, without gradient.

    Raises:
        DataError: if shapes differ, `K` is 0, or a cost or reward is not finite (or above 1e18
            in float32, 1e150 in float64).
        BudgetError: if a budget is not finite.

    Paper: Algorithm 3.

    >>> mixtures = best_mixtures([[0.0, 1.0, 2.0]], [[0.0, 3.0, 4.0]], [0.5])
    >>> mixtures.lower, mixtures.upper, mixtures.p_upper, mixtures.reward
    (array([0]), array([1]), array([0.5]), array([1.5]))
    """
    if _is_tensor(costs, rewards, betas):
        from bmdp.frontier import tensor

        return tensor.best_mixtures(costs, rewards, betas)
    return batched.best_mixtures(costs, rewards, betas)


@overload
def frontier_values(costs: Tensor, rewards: Tensor, betas: Tensor) -> tuple[Tensor, Tensor]: ...
@overload
def frontier_values(
    costs: ArrayLike, rewards: ArrayLike, betas: ArrayLike
) -> tuple[FloatArray, FloatArray]: ...
def frontier_values(costs: Any, rewards: Any, betas: Any) -> tuple[Any, Any]:
    """Returns reward and cost of the best mixtures of each state at all budgets, each `[N, M]`.

    One frontier is built for each state, and serves all `M` budgets.

    Args:
        costs: x of the points, `[N, K]`, as in `best_mixtures`.
        rewards: y of the points, `[N, K]`.
        betas: budgets asked for, `[M]`, in any order.

    Returns:
        (v_r, v_c): expected reward and cost of the mixture of state n at budget m.

    Raises:
        DataError, BudgetError: as in `best_mixtures`.

    Paper: the inner sums of Eq. 11 (operator T) with the policy of Algorithm 3.

    >>> v_r, v_c = frontier_values([[0.0, 1.0]], [[0.0, 10.0]], [-1.0, 0.25, 2.0])
    >>> v_r.tolist(), v_c.tolist()
    ([[0.0, 2.5, 10.0]], [[0.0, 0.25, 1.0]])
    """
    if _is_tensor(costs, rewards, betas):
        from bmdp.frontier import tensor

        return tensor.frontier_values(costs, rewards, betas)
    return batched.frontier_values(costs, rewards, betas)


@overload
def frontier_vertices(costs: Tensor, rewards: Tensor) -> Vertices[Tensor]: ...
@overload
def frontier_vertices(costs: ArrayLike, rewards: ArrayLike) -> Vertices[np.ndarray[Any, Any]]: ...
def frontier_vertices(costs: Any, rewards: Any) -> Vertices[Any]:
    """Returns the vertices of the upper frontier of each state, as positions among its points.

    Those of `upper_frontier(costs[n], rewards[n])` for every n, but for rounding. For those who
    need more of a frontier than its values: what another function says of its vertices, say.

    Args:
        costs: x of the points, `[N, K]`, as in `best_mixtures`.
        rewards: y of the points, `[N, K]`.

    Returns:
        Vertices: `points` `[N, V]`, by rising cost, the first of equal ones; `n_vertices` `[N]`.

    Raises:
        DataError: as in `best_mixtures`.

    >>> frontier_vertices([[0.0, 1.0, 1.0, 2.0]], [[0.0, 1.0, 3.0, 4.0]]).points
    array([[0, 2, 3]])
    """
    if _is_tensor(costs, rewards):
        from bmdp.frontier import tensor

        return tensor.frontier_vertices(costs, rewards)
    return batched.frontier_vertices(costs, rewards)


@overload
def crossed_values(
    chosen_by: tuple[Tensor, Tensor],
    valued_by: tuple[Tensor, Tensor],
    betas: Tensor,
) -> tuple[Tensor, int]: ...
@overload
def crossed_values(
    chosen_by: tuple[ArrayLike, ArrayLike],
    valued_by: tuple[ArrayLike, ArrayLike],
    betas: ArrayLike,
) -> tuple[FloatArray, int]: ...
def crossed_values(chosen_by: Any, valued_by: Any, betas: Any) -> tuple[Any, int]:
    """Values of mixtures whose vertices one function chooses, and another one values.

    The two vertices around a budget are those of the first one's frontier. What they cost and earn
    is said by the second one, and so is the probability that spends the budget.

    Args:
        chosen_by: costs and rewards `[N, K]` by the first function.
        valued_by: costs and rewards `[N, K]` of the same points by the second one.
        betas: budgets, `[N, L]`.

    Returns:
        Rewards and costs `[N, L, 2]`, and the number of infeasible budgets.

    >>> points = [[0.0, 1.0]], [[0.0, 10.0]]
    >>> others = [[0.0, 2.0]], [[1.0, 9.0]]
    >>> crossed_values(points, others, [[0.5, -1.0]])[0].tolist()
    [[[3.0, 0.5], [1.0, 0.0]]]
    """
    if _is_tensor(*chosen_by, *valued_by, betas):
        from bmdp.frontier import tensor

        return tensor.crossed_values(chosen_by, valued_by, betas)
    return batched.crossed_values(chosen_by, valued_by, betas)


def _is_tensor(*arguments: Any) -> bool:
    """Whether an argument is a torch tensor, found out without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and any(isinstance(a, torch.Tensor) for a in arguments)
