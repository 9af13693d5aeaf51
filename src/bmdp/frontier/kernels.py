"""Numba kernels of the batched geometry. One state is a row of `K` points (cost, reward).

The frontier of a state is a *monotone chain*: points by rising cost, each of which removes the
vertices before it that are then on or below a chord (Algorithm 3, line 3). A sort of all points
would take most of the time, so two passes remove points first. The frontier begins at the cheapest
point and ends at the best-paid one. Between these ends it lies above their chord, and so do the
points that matter. Of those, the *peak* is furthest above the chord. The points that matter lie
above one of the two chords from the peak to an end. Of random points in a square, few are left. If
all budgets are on one side of the peak, it becomes the end of the other side, which is dropped, and
so on: one budget needs one edge.

One function finds the vertices, one places a budget between two of them, one turns two costs and a
budget into a probability. `mixtures` and `values` apply them to all states. All kernels are in this
file, because numba's cache notices a change only in the file of the function that it compiled.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numba import get_num_threads, njit, prange
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    are_alike,
    is_tensor,
    real_array,
    require_finite,
)
from bmdp.errors import BudgetError, DataError
from bmdp.workers import compiled_threads

LIMITS = {"float32": 1e18, "float64": 1e150}
"""Largest magnitude of a cost or reward: the product of two differences must stay finite."""

LEAST = 1e-20
"""Of a cost times a reward, from end to end of a frontier: smaller ones are in other units."""

CHUNKS_PER_THREAD = 8  # more than one, to even out states that take longer
LEAST_POINTS = 200_000  # for several threads: to wake them takes longer than fewer do
MOST_ROUNDS = 6  # of dropping one side of a frontier; then the rest is sorted
INFEASIBLE, TIGHT, SLACK = 0, 1, 2  # BudgetStatus as plain numbers, which the compiler needs


def checked(
    named: dict[str, ArrayLike], betas: ArrayLike
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Gives arrays of points, and budgets, the same precision. Points are checked later."""
    arrays = {name: real_array(name, values) for name, values in named.items()}
    held = real_array("betas", betas)
    require_finite("betas", held, error=BudgetError)
    both = np.result_type(*arrays.values())
    points = {name: _sealed(array.astype(both, copy=False)) for name, array in arrays.items()}
    return points, _sealed(held.astype(both, copy=False))


def mixtures(points: dict[str, FloatArray], betas: FloatArray) -> tuple[NDArray[Any], ...]:
    """Returns the columns of `Mixtures`, `[N, M]`, at budgets `[N, M]` or `[1, M]`."""
    costs, rewards = points.values()
    shape = len(costs), betas.shape[1]
    lower, upper = np.empty((2, *shape), np.int64)
    p_upper, cost, reward = np.empty((3, *shape), costs.dtype)
    out = lower, upper, p_upper, cost, reward, np.empty(shape, np.int8)
    if costs.size < LEAST_POINTS:  # without a parallel loop, which is slow to begin
        usable = _fill_few(costs, rewards, betas, costs.dtype.type(LIMITS[costs.dtype.name]), out)
    else:
        with compiled_threads():
            usable = _fill_mixtures((costs, rewards), betas, *_terms(costs), out)
    _require_usable(usable, points)
    return out


def values(
    points: dict[str, FloatArray], betas: FloatArray, cheapest: IntArray | None, *, axis: int
) -> tuple[FloatArray, int]:
    """Returns rewards and costs at budgets `[N, M]` or `[1, M]`, and how many are infeasible.

    Rewards and costs are stacked along an axis, 0 or -1. Points are two columns, costs and rewards,
    or four: two that choose the vertices, two that value them.
    """
    costs, rewards, *others = points.values()
    shape = len(costs), betas.shape[1]
    found = np.empty((2, *shape) if axis == 0 else (*shape, 2), costs.dtype)
    reward, cost = np.moveaxis(found, axis, 0)
    n_infeasible = np.empty(len(costs), np.int64)
    played = np.empty(0) if cheapest is None else cheapest
    with _enough_threads(costs):
        usable = _fill_values(
            (costs, rewards, *(others or (costs, rewards))),
            betas,
            _sealed(played.astype(np.int64, copy=False)),
            *_terms(costs),
            (reward, cost, n_infeasible),
        )
    _require_usable(usable, points)
    return found, int(n_infeasible.sum())


def _sealed(array: Any) -> Any:
    """A contiguous read-only view: one type, so that a kernel is compiled once per precision."""
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view


def _enough_threads(costs: FloatArray) -> AbstractContextManager[None]:
    """Lets few points be worked on by one thread."""
    return compiled_threads(1 if costs.size < LEAST_POINTS else None)


def _terms(costs: FloatArray) -> tuple[Any, int]:
    """Largest magnitude of points, in their precision, and the number of chunks of states."""
    n_chunks = min(len(costs), CHUNKS_PER_THREAD * get_num_threads())
    return costs.dtype.type(LIMITS[costs.dtype.name]), n_chunks


def _require_usable(usable: BoolArray, points: dict[str, FloatArray]) -> None:
    """Raises for the first bad value, if the kernels met any."""
    for name, array in points.items():
        if not usable.all():
            require_finite(name, array, limit=LIMITS[array.dtype.name])


@njit(cache=True)
def _is_usable(values: FloatArray, limit: Any) -> bool:
    """Whether all values are numbers of magnitude `limit` at most."""
    n_bad = 0
    for k in range(values.shape[0]):
        n_bad += 0 if abs(values[k]) <= limit else 1
    return n_bad == 0


@njit(cache=True)
def _ends(x: FloatArray, y: FloatArray) -> tuple[int, int]:
    """Positions of the best paid of the cheapest points and the cheapest of the best paid."""
    low = high = 0
    x0 = x1 = x[0]
    y0 = y1 = y[0]
    for k in range(1, x.shape[0]):
        if x[k] <= x0 and (x[k] < x0 or y[k] > y0):
            low, x0, y0 = k, x[k], y[k]
        if y[k] >= y1 and (y[k] > y1 or x[k] < x1):
            high, x1, y1 = k, x[k], y[k]
    return low, high


@njit(cache=True)
def _above(x: FloatArray, y: FloatArray, low: int, high: int, found: IntArray) -> int:
    """Writes the positions of all points above the chord of two ends; returns their number.

    The loop that compares has no branch, for the sake of vector instructions.
    """
    x0, y0, x1 = x[low], y[low], x[high]
    run, rise = x1 - x0, y[high] - y0
    is_above = np.empty(x.shape[0], np.bool_)
    for k in range(x.shape[0]):
        is_above[k] = ((y[k] - y0) * run > (x[k] - x0) * rise) & (x[k] < x1)
    n_above = 0
    for k in range(x.shape[0]):
        found[n_above] = k
        n_above += is_above[k]
    return n_above


@njit(cache=True)
def _peak(x: FloatArray, y: FloatArray, low: int, high: int, points: IntArray) -> int:
    """Position of the point furthest above the chord of two ends; of several, the cheapest.

    The cheapest of them is a vertex even if they lie on one edge.
    """
    x0, y0, run, rise = x[low], y[low], x[high] - x[low], y[high] - y[low]
    peak, highest = low, x0 * 0
    for k in points:
        height = (y[k] - y0) * run - (x[k] - x0) * rise
        if height > highest or (height == highest and x[k] < x[peak]):
            peak, highest = k, height
    return peak


@njit(cache=True)
def _candidates(
    x: FloatArray, y: FloatArray, asked: FloatArray, found: IntArray
) -> tuple[int, int, int]:
    """Finds the part of a frontier that budgets need: its two ends, and points between.

    Writes the positions of points that may be vertices, and returns both ends and the number of
    points. Where all budgets are on one side of a peak, the other side is dropped.
    """
    low, high = _ends(x, y)
    n_found = _above(x, y, low, high, found)
    least, most = asked.min(), asked.max()
    for _ in range(MOST_ROUNDS):
        points, n_found = found[:n_found], 0
        peak = _peak(x, y, low, high, points)
        x0, y0, xp, yp = x[low], y[low], x[peak], y[peak]
        run0, rise0, run1, rise1 = xp - x0, yp - y0, x[high] - xp, y[high] - yp
        needs_left, needs_right = least < xp, most >= xp
        for k in points:
            above0 = ((y[k] - y0) * run0 > (x[k] - x0) * rise0) & (x[k] < xp) & needs_left
            above1 = ((y[k] - yp) * run1 > (x[k] - xp) * rise1) & (x[k] > xp) & needs_right
            found[n_found] = k
            n_found += above0 | above1 | ((k == peak) & needs_left & needs_right)
        if len(points) == 0 or (needs_left and needs_right):
            break
        low, high = (low, peak) if needs_left else (peak, high)
    return low, high, n_found


@njit(cache=True)
def _vertices(
    x: FloatArray, y: FloatArray, asked: FloatArray, work: IntArray, vertices: IntArray
) -> int:
    """Writes the positions of vertices of one state by rising cost; returns their number.

    Where products of differences might vanish, costs and rewards are in other units.
    """
    low, high = _ends(x, y)
    run, rise = x[high] - x[low], y[high] - y[low]
    if min(run, rise) > 0 and run * rise < LEAST:
        by_x, by_y = _unit(run), _unit(rise)
        return _vertices_of(x * by_x, y * by_y, asked * by_x, work, vertices)
    return _vertices_of(x, y, asked, work, vertices)


@njit(cache=True)
def _unit(size: float) -> float:
    """A power of two that makes a size about 1, or 1 if it is larger: so no number is rounded."""
    return math.ldexp(1.0, max(0, min(-math.frexp(size)[1], 1000)))


@njit(cache=True)
def _vertices_of(
    x: FloatArray, y: FloatArray, asked: FloatArray, work: IntArray, vertices: IntArray
) -> int:
    """Does what `_vertices` does.

    Vertices that no budget asks for may be left out. Of equal points the first is named, because
    the sort is stable. `work` and `vertices` have room for `K` positions.
    """
    low, high, n_found = _candidates(x, y, asked, work)
    vertices[0] = low
    n_vertices = 1
    order = np.argsort(x[work[:n_found]], kind="mergesort")
    for i in range(n_found + 1):
        point = work[order[i]] if i < n_found else high
        cost, reward = x[point], y[point]
        if reward <= y[vertices[n_vertices - 1]]:
            continue
        while n_vertices > 1:
            last, before = vertices[n_vertices - 1], vertices[n_vertices - 2]
            run, rise = cost - x[before], reward - y[before]
            if (y[last] - y[before]) * run > rise * (x[last] - x[before]):
                break
            n_vertices -= 1
        vertices[n_vertices] = point
        n_vertices += 1
    return n_vertices


@njit(cache=True)
def _around(x: FloatArray, vertices: IntArray, beta: Any) -> tuple[int, int, int]:
    """Positions of the vertices around a budget, and its status (Algorithm 3, lines 4 to 8).

    Outside the frontier both are its nearest end.
    """
    if beta < x[vertices[0]]:
        return vertices[0], vertices[0], INFEASIBLE
    below, above = 0, len(vertices)  # the last vertex within the budget is in between
    while above - below > 1:
        middle = (below + above) >> 1
        is_within = x[vertices[middle]] <= beta
        below, above = (middle, above) if is_within else (below, middle)
    if above == len(vertices):
        return vertices[below], vertices[below], SLACK
    return vertices[below], vertices[above], TIGHT


@njit(cache=True)
def _share(low: Any, high: Any, beta: Any) -> Any:
    """Gives `crossed_share` of one budget."""
    if high <= low:
        return low * 0 + 1
    return min(max((beta - low) / (high - low), low * 0), low * 0 + 1)


def crossed_share(lower: Any, upper: Any, betas: Any) -> Any:
    """Returns the probability of the upper of two points that spends a budget; 1 if costs fall.

    Two points may be chosen by one function while another one says what they cost. So the upper one
    may cost no more than the lower one.

    Args:
        lower: costs of the lower points, an array or a tensor.
        upper: costs of the upper points.
        betas: budgets.

    Paper: p of Algorithm 3, line 7.

    >>> crossed_share(np.array([0.0, 0.5]), np.array([1.0, 0.25]), 0.25).tolist()
    [0.25, 1.0]
    """
    if not any(map(is_tensor, (lower, upper, betas))):
        points, betas = checked({"lower": lower, "upper": upper}, betas)
        lower, upper = points.values()
        for name, values in points.items():
            require_finite(name, values, limit=LIMITS[values.dtype.name])
    elif not all(map(is_tensor, (lower, upper, betas))):
        raise DataError("lower, upper and betas must all be tensors if one is.")
    shapes = {tuple(values.shape) for values in (lower, upper, betas)} - {()}
    if len(shapes) > 1 and not are_alike(shapes):
        raise DataError(f"lower, upper and betas must have shapes that fit; got {sorted(shapes)}.")
    run = upper - lower
    rises = run > 0
    share = ((betas - lower) / (run * rises + ~rises)).clip(0, 1)
    return share * rises + 1.0 * ~rises


@njit(cache=True, parallel=True)
def _fill_mixtures(
    points: tuple[FloatArray, FloatArray],
    betas: FloatArray,
    limit: Any,
    n_chunks: int,
    out: Any,
) -> BoolArray:
    """Fills mixtures of arrays `[N, M]` at budgets `[N, M]`, or `[1, M]` for all states.

    Returns which states are usable.
    """
    # Taken out here: in a parallel loop numba drops writes to arrays that are still inside a tuple.
    costs, rewards = points
    lower, upper, p_upper, cost, reward, status = out
    n_states = costs.shape[0]
    usable = np.empty(n_states, np.bool_)
    for chunk in prange(n_chunks):
        work = np.empty((2, costs.shape[1]), np.int64)
        for n in range(chunk * n_states // n_chunks, (chunk + 1) * n_states // n_chunks):
            x, y, asked = costs[n], rewards[n], betas[min(n, betas.shape[0] - 1)]
            usable[n] = _is_usable(x, limit) and _is_usable(y, limit)
            if usable[n] and len(asked):
                _fill_row(
                    x, y, asked, work, lower[n], upper[n], p_upper[n], cost[n], reward[n], status[n]
                )
    return usable


@njit(cache=True, nogil=True)
def _fill_few(
    costs: FloatArray, rewards: FloatArray, betas: FloatArray, limit: Any, out: Any
) -> BoolArray:
    """Does what `_fill_mixtures` does, in the thread that calls: many may, at the same time."""
    lower, upper, p_upper, cost, reward, status = out
    usable = np.empty(costs.shape[0], np.bool_)
    work = np.empty((2, costs.shape[1]), np.int64)
    for n in range(costs.shape[0]):
        x, y, asked = costs[n], rewards[n], betas[min(n, betas.shape[0] - 1)]
        usable[n] = _is_usable(x, limit) and _is_usable(y, limit)
        if usable[n] and len(asked):
            _fill_row(
                x, y, asked, work, lower[n], upper[n], p_upper[n], cost[n], reward[n], status[n]
            )
    return usable


def vertices_of(costs: FloatArray, rewards: FloatArray) -> tuple[IntArray, IntArray]:
    """Returns the vertices of each state's frontier, by rising cost.

    Returns:
        Where those of each state begin, `[N + 1]`, and positions among its `K` points.
    """
    first, vertices = np.zeros(len(costs) + 1, np.int64), np.empty(costs.size, np.int64)
    every = np.array([-np.inf, np.inf], costs.dtype)
    n_vertices = _fill_vertices(_sealed(costs), _sealed(rewards), every, first, vertices)
    return first, vertices[:n_vertices].copy()


@njit(cache=True, nogil=True)
def _fill_vertices(  # type: ignore[no-untyped-def]
    costs, rewards, asked, first, vertices
):
    """Writes vertices of states one after the other, and returns their number."""
    work = np.empty((2, costs.shape[1]), np.int64)
    for n in range(costs.shape[0]):
        count = _vertices(costs[n], rewards[n], asked, work[0], work[1])
        first[n + 1] = first[n] + count
        vertices[first[n] : first[n + 1]] = work[1, :count]
    return first[costs.shape[0]]


@njit(cache=True, nogil=True)
def fill_known(known: Any, states: IntArray, betas: FloatArray, held: FloatArray, out: Any) -> None:
    """Fills in mixtures of some states at a budget each, whose frontiers are known.

    Args:
        known: costs and rewards of vertices `[V]`, their positions `[V]`, where those of each
            state begin, and its cheapest point, the cost of its first vertex and the least budget.
        states: `[N]`.
        betas: `[N]`, budgets held.
        held: the same in the precision of points.
        out: columns of `Mixtures`, `[N]`.
    """
    costs, rewards, position, first, cheapest, first_cost, least = known
    lower, upper, p_upper, cost, reward, status = out
    every = np.arange(np.diff(first).max())  # positions, of which `_around` takes some
    for n in range(len(states)):
        s = states[n]
        x, y, place = (
            costs[first[s] : first[s + 1]],
            rewards[first[s] : first[s + 1]],
            position[first[s] : first[s + 1]],
        )
        beta = held[n]
        if betas[n] >= least[s] and betas[n] < first_cost[s]:
            beta = first_cost[s]
        low, high, status[n] = _around(x, every[: len(x)], beta)
        is_tight = status[n] == TIGHT
        p = _share(x[low], x[high], beta) if is_tight else x[low] * 0
        p_upper[n] = p
        cost[n] = beta if is_tight else x[low]
        reward[n] = y[low] + p * (y[high] - y[low])
        is_below = status[n] == INFEASIBLE
        lower[n] = cheapest[s] if is_below else place[low]
        upper[n] = cheapest[s] if is_below else place[high]


@njit(cache=True)
def _fill_row(  # type: ignore[no-untyped-def] # noqa: PLR0913
    x, y, asked, work, lower, upper, p_upper, cost, reward, status
):
    """Fills in the mixtures of one state at all its budgets."""
    vertices = work[1, : _vertices(x, y, asked, work[0], work[1])]
    for m in range(len(asked)):
        low, high, status[m] = _around(x, vertices, asked[m])
        is_tight = status[m] == TIGHT
        p = _share(x[low], x[high], asked[m]) if is_tight else x[low] * 0
        lower[m], upper[m], p_upper[m] = low, high, p
        cost[m] = asked[m] if is_tight else x[low]
        reward[m] = y[low] + p * (y[high] - y[low])


@njit(cache=True, parallel=True)
def _fill_values(
    points: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
    betas: FloatArray,
    cheapest: IntArray,
    limit: Any,
    n_chunks: int,
    out: tuple[FloatArray, FloatArray, IntArray],
) -> BoolArray:
    """Fills rewards and costs `[N, M]` at budgets `[N, M]`, or `[1, M]` for all states.

    The first two of `points`, each `[N, K]`, are costs and rewards by which vertices are chosen; by
    the other two they are valued. `cheapest` `[N]` or `[0]` names the point of infeasible budgets,
    whose number is the last of `out`, `[N]`. Returns which states are usable.
    """
    costs, rewards, valued_costs, valued_rewards = points
    reward, cost, n_infeasible = out
    n_states = costs.shape[0]
    usable = np.empty(n_states, np.bool_)
    for chunk in prange(n_chunks):
        work = np.empty((2, costs.shape[1]), np.int64)
        for n in range(chunk * n_states // n_chunks, (chunk + 1) * n_states // n_chunks):
            x, y, asked = costs[n], rewards[n], betas[min(n, betas.shape[0] - 1)]
            u, v = valued_costs[n], valued_rewards[n]
            usable[n] = _is_usable(x, limit) and _is_usable(y, limit)
            usable[n] &= _is_usable(u, limit) and _is_usable(v, limit)
            n_infeasible[n] = 0
            if not usable[n] or len(asked) == 0:
                continue
            vertices = work[1, : _vertices(x, y, asked, work[0], work[1])]
            for m in range(len(asked)):
                low, high, status = _around(x, vertices, asked[m])
                if status == INFEASIBLE:
                    n_infeasible[n] += 1
                    low = high = cheapest[n] if len(cheapest) else low
                p = _share(u[low], u[high], asked[m])
                reward[n, m] = v[low] + p * (v[high] - v[low])
                cost[n, m] = min(max(asked[m], u[low]), u[high]) if u[low] < u[high] else u[high]
    return usable
