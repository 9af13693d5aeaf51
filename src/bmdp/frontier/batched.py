"""The geometry of `N` states at once: numpy arrays by numba, torch tensors on their device.

A function takes arrays only, or tensors only, and returns the same kind. The modules
`bmdp.frontier.kernels` and `bmdp.frontier.tensor` have the same three functions: `checked`,
`mixtures` and `values`. The first module computes on arrays, the second one on tensors.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import FloatArray, any_array, require_shape
from bmdp.checks import told
from bmdp.errors import DataError
from bmdp.frontier import kernels

if TYPE_CHECKING:
    from torch import Tensor

ArrayT = TypeVar("ArrayT")


class Mixtures(NamedTuple, Generic[ArrayT]):
    """Best mixtures: point `upper` with probability `p_upper`, else point `lower`.

    All arrays have the same shape: `[N]`, or `[N, M]` where a state has several budgets.

    Paper: (a1, a2, p) of Algorithm 3, for many states.

    >>> found = best_mixtures([[0.0, 1.0], [0.0, 1.0]], [[0.0, 10.0], [3.0, 4.0]], [0.5, 2.0])
    >>> found.p_upper.tolist(), found.reward.tolist(), found.status.tolist()
    ([0.5, 0.0], [5.0, 4.0], [1, 2])
    """

    lower: ArrayT  # positions among the K points of the state; of equal points the lowest
    upper: ArrayT  # positions among them
    p_upper: ArrayT  # from 0 to 1
    cost: ArrayT  # expected
    reward: ArrayT  # expected
    status: ArrayT  # BudgetStatus


@overload
def best_mixtures(costs: Tensor, rewards: Tensor, betas: Tensor) -> Mixtures[Tensor]: ...
@overload
def best_mixtures(
    costs: ArrayLike, rewards: ArrayLike, betas: ArrayLike
) -> Mixtures[NDArray[Any]]: ...
def best_mixtures(costs: Any, rewards: Any, betas: Any) -> Mixtures[Any]:
    """Returns for each state the best-paid mixture of its points that its budget affords.

    The result is that of `hull_mixture(upper_frontier(costs[n], rewards[n]), betas[n])`. Values are
    rounded to the precision of the points. The status is always equal.

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
    work, points, held = _prepared({"costs": costs, "rewards": rewards}, betas)
    require_shape("betas", held, tuple(points["costs"].shape[:1]), "[N]")
    return Mixtures(*(column[:, 0] for column in work.mixtures(points, held[:, None])))


@overload
def mixtures_at(costs: Tensor, rewards: Tensor, betas: Tensor) -> Mixtures[Tensor]: ...
@overload
def mixtures_at(
    costs: ArrayLike, rewards: ArrayLike, betas: ArrayLike
) -> Mixtures[NDArray[Any]]: ...
def mixtures_at(costs: Any, rewards: Any, betas: Any) -> Mixtures[Any]:
    """Returns the best mixtures of each state at all budgets, from one frontier of each state.

    Args:
        costs: x of the points, `[N, K]`, as in `best_mixtures`.
        rewards: y of the points, `[N, K]`.
        betas: budgets, `[M]` for all states, or `[N, M]`; in any order.

    Returns:
        Mixtures of arrays `[N, M]`.

    Raises:
        DataError, BudgetError: as in `best_mixtures`.

    Paper: Algorithm 3.

    >>> found = mixtures_at([[0.0, 1.0, 2.0]], [[0.0, 3.0, 4.0]], [-1.0, 0.5, 3.0])
    >>> found.lower.tolist(), found.upper.tolist(), found.p_upper.tolist()
    ([[0, 0, 2]], [[0, 1, 2]], [[0.0, 0.5, 0.0]])
    """
    work, points, held = _prepared({"costs": costs, "rewards": rewards}, betas)
    return Mixtures(*work.mixtures(points, _by_row(held, len(points["costs"]), "M")))


@overload
def frontier_values(costs: Tensor, rewards: Tensor, betas: Tensor) -> tuple[Tensor, Tensor]: ...
@overload
def frontier_values(
    costs: ArrayLike, rewards: ArrayLike, betas: ArrayLike
) -> tuple[FloatArray, FloatArray]: ...
def frontier_values(costs: Any, rewards: Any, betas: Any) -> tuple[Any, Any]:
    """Returns reward and cost of the best mixtures of each state at all budgets, each `[N, M]`.

    Args:
        costs: x of the points, `[N, K]`, as in `best_mixtures`.
        rewards: y of the points, `[N, K]`.
        betas: budgets, `[M]`, in any order.

    Returns:
        (v_r, v_c): expected reward and cost of the mixture of state n at budget m.

    Raises:
        DataError, BudgetError: as in `best_mixtures`.

    Paper: the inner sums of Eq. 11 (operator T) with the policy of Algorithm 3.

    >>> v_r, v_c = frontier_values([[0.0, 1.0]], [[0.0, 10.0]], [-1.0, 0.25, 2.0])
    >>> v_r.tolist(), v_c.tolist()
    ([[0.0, 2.5, 10.0]], [[0.0, 0.25, 1.0]])
    """
    work, points, held = _prepared({"costs": costs, "rewards": rewards}, betas)
    require_shape("betas", held, (None,), "[M]")
    (v_r, v_c), _ = work.values(points, held[None], None, axis=0)
    return v_r, v_c


@overload
def crossed_values(
    chosen_by: tuple[Tensor, Tensor],
    valued_by: tuple[Tensor, Tensor],
    betas: Tensor,
    *,
    cheapest: Tensor | None = None,
) -> tuple[Tensor, int]: ...
@overload
def crossed_values(
    chosen_by: tuple[ArrayLike, ArrayLike],
    valued_by: tuple[ArrayLike, ArrayLike],
    betas: ArrayLike,
    *,
    cheapest: ArrayLike | None = None,
) -> tuple[FloatArray, int]: ...
def crossed_values(
    chosen_by: Any, valued_by: Any, betas: Any, *, cheapest: Any = None
) -> tuple[Any, int]:
    """Returns values of mixtures whose vertices one function chooses and another one values.

    The two vertices around a budget are those of the first function's frontier. The second function
    says what they cost and earn. The probability spends the budget by the second function's costs;
    it is 1 on the upper vertex where these do not rise.

    Args:
        chosen_by: costs and rewards by the first function, `[N, K]` each.
        valued_by: costs and rewards of the same points by the second function, `[N, K]` each.
        betas: budgets, `[N, L]`, or `[L]` for all states.
        cheapest: the point of each state that is played where a budget is infeasible, `[N]`; the
            cheapest vertex by the first function if not given.

    Returns:
        Values `[N, L, 2]` of (reward, cost), and the number of infeasible budgets.

    Raises:
        DataError, BudgetError: as in `best_mixtures`.

    Paper: the inner sums of Eq. 11 with the policy of Algorithm 3, if both functions are the same.
    Differs: there, one Q-function chooses and values.

    >>> points = [[0.0, 1.0]], [[0.0, 10.0]]
    >>> others = [[0.0, 2.0]], [[1.0, 9.0]]
    >>> crossed_values(points, others, [0.5, -1.0])[0].tolist()
    [[[3.0, 0.5], [1.0, 0.0]]]
    >>> crossed_values(points, others, [0.5, -1.0], cheapest=[1])[0].tolist()
    [[[3.0, 0.5], [9.0, 2.0]]]
    """
    for name, pair in (("chosen_by", chosen_by), ("valued_by", valued_by)):
        if not isinstance(pair, tuple | list | np.ndarray) or len(pair) != 2:
            raise DataError(f"{name} must be costs and rewards; got {told(pair)}.")
    named = zip(_CROSSED, (*chosen_by, *valued_by), strict=True)
    work, points, held = _prepared(dict(named), betas)
    n_states = len(points[_CROSSED[0]])
    if cheapest is not None:
        cheapest = _positions("cheapest", cheapest, points[_CROSSED[0]])
    values, n_infeasible = work.values(points, _by_row(held, n_states, "L"), cheapest, axis=-1)
    return values, n_infeasible


_CROSSED = tuple(f"{by}_by {what}" for by in ("chosen", "valued") for what in ("costs", "rewards"))


def _prepared(named: dict[str, Any], betas: Any) -> tuple[Any, dict[str, Any], Any]:
    """Checks points and budgets, and gives all the same precision.

    Returns:
        The module that computes, the points by name, and the budgets.
    """
    torch = sys.modules.get("torch")  # not imported for this
    if torch is not None and any(isinstance(a, torch.Tensor) for a in (*named.values(), betas)):
        from bmdp.frontier import tensor

        work: Any = tensor
    else:
        work = kernels
    points, held = work.checked(named, betas)
    (first, costs), *others = points.items()
    require_shape(first, costs, (None, None), "[N, K]")
    for name, values in others:
        require_shape(name, values, tuple(costs.shape), "[N, K]")
    if costs.shape[1] == 0:
        raise DataError(
            f"{first} must have at least one point for each state; got {list(costs.shape)}."
        )
    return work, points, held


def _by_row(betas: Any, n_states: int, letter: str) -> Any:
    """Gives budgets two axes: a row for each state, or one row for all of them."""
    if betas.ndim == 1:
        return betas[None]
    require_shape("betas", betas, (n_states, None), f"[N, {letter}] or [{letter}]")
    return betas


def _positions(name: str, places: Any, costs: Any) -> Any:
    """Checks that there is one of `K` points for each state, as an array or tensor like costs."""
    if isinstance(costs, np.ndarray):
        places = any_array(name, places)
    else:
        places = sys.modules["torch"].as_tensor(places, device=costs.device)
    require_shape(name, places, tuple(costs.shape[:1]), "[N]")
    if "int" not in str(places.dtype):
        raise DataError(f"{name} must be whole numbers; got type {places.dtype}.")
    outside = (places < 0) | (places >= costs.shape[1])
    if outside.any():
        i = int((outside * 1).argmax())
        raise DataError(
            f"{name} must be positions from 0 to {costs.shape[1] - 1}; "
            f"got {int(places[i])} at [{i}]."
        )
    return places
