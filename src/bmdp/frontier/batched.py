"""The geometry of `N` states at once, on numpy arrays."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import ArrayLike

from bmdp.arrays import BoolArray, FloatArray, IntArray, real_array, require_finite, require_shape
from bmdp.errors import BudgetError, DataError
from bmdp.frontier import kernels
from bmdp.frontier.mixtures import Mixtures, Vertices

LIMITS = {"float32": 1e18, "float64": 1e150}
"""Largest magnitude of a cost or reward: the product of two differences must stay finite."""

_CHUNKS_PER_THREAD = 8  # more than one, to even out states that take longer


def best_mixtures(
    costs: ArrayLike, rewards: ArrayLike, betas: ArrayLike
) -> Mixtures[np.ndarray[Any, Any]]:
    """Numpy side of `bmdp.frontier.best_mixtures`."""
    x, y = _clouds(costs, rewards)
    held = _budgets(betas, x.dtype)
    require_shape("betas", held, x.shape[:1], "[N]")
    n_states = len(x)
    lower, upper = np.empty((2, n_states), np.int64)
    p_upper, cost, reward = np.empty((3, n_states), x.dtype)
    out = Mixtures(lower, upper, p_upper, cost, reward, np.empty(n_states, np.int8))
    if n_states:
        _require_usable(kernels.best_mixtures(x, y, held, _work_space(x, 1), out), x, y)
    return out


def frontier_values(
    costs: ArrayLike, rewards: ArrayLike, betas: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Numpy side of `bmdp.frontier.frontier_values`."""
    x, y = _clouds(costs, rewards)
    asked = _budgets(betas, x.dtype)
    require_shape("betas", asked, (None,), "[M]")
    v_r, v_c = np.empty((2, len(x), len(asked)), x.dtype)
    if v_r.size:
        space = _work_space(x, len(asked))
        _require_usable(kernels.frontier_values(x, y, asked, space, v_r, v_c), x, y)
    return v_r, v_c


def frontier_vertices(costs: ArrayLike, rewards: ArrayLike) -> Vertices[np.ndarray[Any, Any]]:
    """Numpy side of `bmdp.frontier.frontier_vertices`."""
    x, y = _clouds(costs, rewards)
    require_finite("costs", x, limit=LIMITS[x.dtype.name])
    require_finite("rewards", y, limit=LIMITS[x.dtype.name])
    index, count = np.empty(x.shape, np.int64), np.zeros(len(x), np.int64)
    kernels.frontier_vertices(x, y, index, count)
    return Vertices(index[:, : count.max(initial=1)].copy(), count)


def crossed_values(
    chosen_by: tuple[ArrayLike, ArrayLike],
    valued_by: tuple[ArrayLike, ArrayLike],
    betas: ArrayLike,
) -> tuple[FloatArray, int]:
    """Numpy side of `bmdp.frontier.crossed_values`."""
    points = kernels.Points(*_clouds(*chosen_by), *_clouds(*valued_by))
    for name, column in points._asdict().items():
        if not np.isfinite(column.sum()):  # one pass; which value it is matters only if one is bad
            require_finite(name, column, limit=LIMITS[column.dtype.name])
    held = _budgets(betas, points.costs.dtype)
    require_shape("betas", held, (len(points.costs), None), "[N, L]")
    values = np.empty((*held.shape, 2), held.dtype)
    n_infeasible = np.zeros(len(held), np.int64)
    kernels.crossed_values(points, held, values, n_infeasible)
    return values, int(n_infeasible.sum())


def _clouds(costs: ArrayLike, rewards: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Checks the shapes of the points and gives both coordinates the same precision."""
    x, y = real_array("costs", costs), real_array("rewards", rewards)
    require_shape("costs", x, (None, None), "[N, K]")
    require_shape("rewards", y, x.shape, "[N, K]")
    if x.shape[1] == 0:
        raise DataError(f"costs must have at least one point for each state; got {list(x.shape)}.")
    both = np.result_type(x, y)
    return _sealed(x.astype(both, copy=False)), _sealed(y.astype(both, copy=False))


def _budgets(betas: ArrayLike, dtype: Any) -> FloatArray:
    """Checks budgets and gives them the precision of the points, in which they are compared."""
    held = real_array("betas", betas)
    require_finite("betas", held, error=BudgetError)
    return _sealed(held.astype(dtype, copy=False))


def _sealed(array: FloatArray) -> FloatArray:
    """A contiguous read-only view: one type, so that a kernel is compiled once per precision."""
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view


def _work_space(points: FloatArray, n_budgets: int) -> kernels.WorkSpace:
    """Memory for the kernels, shared by all states of a chunk."""
    n_states, n_points = points.shape
    n_chunks = min(n_states, _CHUNKS_PER_THREAD * numba.get_num_threads())
    values = np.empty((n_chunks, kernels.N_WORK_ROWS, n_points), points.dtype)
    integer = np.int32 if points.dtype == np.float32 else np.int64
    bits: IntArray = values.view(integer)
    return kernels.WorkSpace(
        values=values,
        bits=bits,
        order=np.empty((n_chunks, 2, n_points), np.int64),
        places=np.empty((n_chunks, 2, kernels.N_BUCKETS), np.int64),
        edges=np.empty((n_chunks, n_budgets), np.int32),
        limit=points.dtype.type(LIMITS[points.dtype.name]),
        top=bits.dtype.type(np.iinfo(integer).max),
    )


def _require_usable(usable: BoolArray, costs: FloatArray, rewards: FloatArray) -> None:
    """Raises for the first bad value, if the kernels met any."""
    if not usable.all():
        limit = LIMITS[costs.dtype.name]
        require_finite("costs", costs, limit=limit)
        require_finite("rewards", rewards, limit=limit)
