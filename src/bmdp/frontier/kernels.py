"""Numba kernels of the batched geometry. One state is a row of `K` points (cost, reward).

`best_mixtures` is a *bridge search*: it finds the frontier edge over one budget without a sort and
without a hull. It keeps a chord, two frontier vertices `low` and `high` with cost[low] <= beta <
cost[high], and looks for the points furthest above it,

    height_i = (r_i - r_low) (c_high - c_low) - (c_i - c_low) (r_high - r_low).

Points of the largest positive height are on the frontier, so they replace an end of the chord;
where there are none, the chord is the edge. Points left and right of the chord lie below its line,
because the frontier is concave: every pass runs over the whole row and needs no mask.

On a frontier that bends by the same factor all along, the furthest point is always next to the same
end, and a round would pass one vertex. So when one end has moved `PATIENCE` times in a row, the
chord is turned towards the other end, by factors 2, 2^4, 2^16, 2^60: the points furthest in any
direction are vertices. When that goes too far nothing is found, and the chord is used again.

`frontier_values` takes one step of that search, drops all points below the two new chords, sorts
the others by cost and scans them once, keeping the vertices.

Each pass is a loop that the compiler turns into vector instructions. It does so for the largest of
many integers but not of many floats (a NaN would make their order matter), so the largest is sought
among the *bits* of the floats: those of positive floats rise with the float, and ranks extend that
to all floats. For this a state is first copied to a work space that is read both as floats and as
integers. The copy turns -0.0 into 0.0, and finds the values that are not finite or too large to
multiply.

All kernels are in this file because numba's cache notices a change in the file of the function it
compiled only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.frontier.mixtures import Mixtures

INFEASIBLE, TIGHT, SLACK = 0, 1, 2  # BudgetStatus as plain numbers, which the compiler needs

# Rows of a work space. Ranks are integers that order like the values. Rows are used again where
# points are sorted, so that all of them stay in the processor's nearest cache.
COSTS, REWARDS, COST_RANKS, REWARD_RANKS, HEIGHTS = 0, 1, 2, 3, 4
KEYS, X, Y, SORTED_X, SORTED_Y = COST_RANKS, REWARD_RANKS, HEIGHTS, COSTS, REWARDS
N_WORK_ROWS = 5

N_BUCKETS = 256  # values of a digit of the sort
POSITION = 0xFFFFFFFF  # lower half of an entry of the order being sorted; its key is the upper
UNSIGNED = np.uint32  # positions of this type spare the compiler the case of negative ones
SMALL = 48  # points; up to here insertion sort alone is faster
PATIENCE = 3  # moves in a row of the same end of a chord after which the search turns the chord


class WorkSpace(NamedTuple):
    """Memory of the kernels, a part for each chunk of states: none is allocated for a state."""

    values: FloatArray  # [chunks, 5, K]
    bits: IntArray  # the same memory, read as integers
    order: IntArray  # [chunks, 2, K], points being sorted
    places: IntArray  # [chunks, 2, 256], of each digit of their keys
    edges: IntArray  # [chunks, M], vertices below budgets
    limit: Any  # largest magnitude whose products stay finite, a scalar of the type of `values`
    top: Any  # largest integer, a scalar of the type of `bits`


@njit(cache=True)
def _copy(values: FloatArray, limit: Any, copy: FloatArray) -> bool:
    """Copies `K` values; returns whether all are numbers of magnitude `limit` at most."""
    zero = values.dtype.type(0)
    n_bad = 0
    for i in range(values.shape[0]):
        n_bad += 0 if abs(values[i]) <= limit else 1
        copy[i] = values[i] + zero
    return n_bad == 0


@njit(cache=True)
def _rank(bits: IntArray, top: Any, ranks: IntArray) -> None:
    """Writes ranks, given bits of floats: of negative floats, those with larger bits are lower."""
    zero = bits.dtype.type(0)
    for i in range(bits.shape[0]):
        ranks[i] = bits[i] ^ (top if bits[i] < zero else zero)


@njit(cache=True)
def _load(costs: FloatArray, rewards: FloatArray, space: WorkSpace, chunk: int) -> bool:
    """Fills the work space with one state; returns whether all its values are usable."""
    values, bits = space.values[chunk], space.bits[chunk]
    usable = _copy(costs, space.limit, values[COSTS])
    usable &= _copy(rewards, space.limit, values[REWARDS])
    _rank(bits[COSTS], space.top, bits[COST_RANKS])
    _rank(bits[REWARDS], space.top, bits[REWARD_RANKS])
    return usable


@njit(cache=True)
def _first_pair(x: IntArray, y: IntArray, x_wanted: Any, y_wanted: Any) -> int:
    """Lowest position where `x` and `y` have the wanted values."""
    end = np.int32(x.shape[0])
    first = end
    for i in range(end):
        position = np.int32(i) if (x[i] == x_wanted) & (y[i] == y_wanted) else end
        first = position if position < first else first
    return int(first)


@njit(cache=True)
def _ends(costs: IntArray, rewards: IntArray, top: Any) -> tuple[int, int]:
    """Positions of the best paid of the cheapest points and the cheapest of the best paid."""
    bottom = costs.dtype.type(~top)
    least, most = top, bottom
    for i in range(costs.shape[0]):
        least = costs[i] if costs[i] < least else least
        most = rewards[i] if rewards[i] > most else most
    most_at_least, least_at_most = bottom, top
    for i in range(costs.shape[0]):
        reward = rewards[i] if costs[i] == least else bottom
        most_at_least = reward if reward > most_at_least else most_at_least
        cost = costs[i] if rewards[i] == most else top
        least_at_most = cost if cost < least_at_most else least_at_most
    low = _first_pair(costs, rewards, least, most_at_least)
    high = _first_pair(costs, rewards, least_at_most, most)
    return low, high


@njit(cache=True)
def _highest(
    values: FloatArray, bits: IntArray, low: int, high: int, run: Any, rise: Any
) -> tuple[int, int]:
    """Leftmost and rightmost of the points furthest above a line through `low`.

    -1, -1 if they are not between `low` and `high`. `run` and `rise` give the line its direction.
    """
    costs, rewards, heights = values[COSTS], values[REWARDS], bits[HEIGHTS]
    cost, reward, to_fill = costs[low], rewards[low], values[HEIGHTS]
    for i in range(costs.shape[0]):
        to_fill[i] = (rewards[i] - reward) * run - (costs[i] - cost) * rise
    zero = heights.dtype.type(0)
    highest = zero
    for i in range(heights.shape[0]):
        highest = heights[i] if heights[i] > highest else highest
    if highest == zero:
        return -1, -1
    none, end = np.int32(-1), np.int32(heights.shape[0])
    first, last = end, none
    for i in range(end):
        position = np.int32(i) if heights[i] == highest else end
        first = position if position < first else first
        position = np.int32(i) if heights[i] == highest else none
        last = position if position > last else last
    left = right = -1
    for i in range(first, last + 1):  # one point, unless several are equally high
        if heights[i] == highest and cost < costs[i] < costs[high]:
            if left < 0 or costs[i] < costs[left]:
                left = i
            if right < 0 or costs[i] > costs[right]:
                right = i
    return left, right


@njit(cache=True)
def _mark_above(
    values: FloatArray, low: int, left: int, right: int, high: int, is_above: IntArray
) -> None:
    """Writes 1 for `left`, `right`, and points between `low` and `high` above a chord, else 0.

    The chords go from `low` to `left` and from `right` to `high`.
    """
    costs, rewards = values[COSTS], values[REWARDS]
    x0, y0, x1, y1 = costs[low], rewards[low], costs[right], rewards[right]
    run0, rise0 = costs[left] - x0, rewards[left] - y0
    run1, rise1 = costs[high] - x1, rewards[high] - y1
    dearest = costs[high]
    for i in range(costs.shape[0]):
        x, y = costs[i], rewards[i]
        above0 = (y - y0) * run0 > (x - x0) * rise0
        above1 = (y - y1) * run1 > (x - x1) * rise1
        is_above[i] = (above0 | above1) & (x > x0) & (x < dearest)
    is_above[left] = is_above[right] = 1


@njit(cache=True)
def _gather(values: FloatArray, bits: IntArray, low: int, high: int) -> int:
    """Gathers `low`, the points above the chords between, and `high`; returns their number."""
    costs, rewards, x, y = values[COSTS], values[REWARDS], values[X], values[Y]
    run, rise = costs[high] - costs[low], rewards[high] - rewards[low]
    left, right = _highest(values, bits, low, high, run, rise)
    x[0], y[0] = costs[low], rewards[low]
    if low == high:
        return 1
    n_found = 1
    if left >= 0:
        is_kept = bits[KEYS]
        _mark_above(values, low, left, right, high, is_kept)
        for i in range(costs.shape[0]):
            if is_kept[i] != 0:
                x[n_found], y[n_found] = costs[i], rewards[i]
                n_found += 1
    x[n_found], y[n_found] = costs[high], rewards[high]
    return n_found + 1


@njit(cache=True)
def _keys(ranks: IntArray, order: IntArray, places: IntArray) -> None:
    """Writes 16 leading bits of each rank, as distance from the least, beside its position.

    Also writes how many keys have each value of each of their two digits.
    """
    least = most = ranks[0]
    for i in range(ranks.shape[0]):
        least = ranks[i] if ranks[i] < least else least
        most = ranks[i] if ranks[i] > most else most
    base, shift = np.int64(least) >> 2, 0  # a quarter, so that no difference overflows
    while ((np.int64(most) >> 2) - base) >> shift >= N_BUCKETS * N_BUCKETS:
        shift += 1
    for i in range(ranks.shape[0]):
        key = ((np.int64(ranks[i]) >> 2) - base) >> shift
        order[i] = (key << 32) | i
    places[:] = 0
    for i in range(ranks.shape[0]):
        key = order[i] >> 32
        places[0, UNSIGNED(key & (N_BUCKETS - 1))] += 1
        places[1, UNSIGNED(key >> 8)] += 1


@njit(cache=True)
def _scatter(source: IntArray, shift: int, places: IntArray, target: IntArray) -> None:
    """Sorts `source` by the digit that begins at bit `shift`, given how often each occurs."""
    place = 0
    for bucket in range(N_BUCKETS):
        place, places[bucket] = place + places[bucket], place
    for i in range(source.shape[0]):
        digit = UNSIGNED((source[i] >> shift) & (N_BUCKETS - 1))
        target[UNSIGNED(places[digit])] = source[i]
        places[digit] += 1


@njit(cache=True)
def _insert(points: FloatArray, order: IntArray, sorted_points: FloatArray) -> None:
    """Copies points in the given order and puts right what is still out of order by cost."""
    x, y, to_x, to_y = points[0], points[1], sorted_points[0], sorted_points[1]
    for i in range(order.shape[0]):
        source = UNSIGNED(order[i] & POSITION)
        cost, reward, place = x[source], y[source], i
        while place > 0 and to_x[place - 1] > cost:
            to_x[place], to_y[place] = to_x[place - 1], to_y[place - 1]
            place -= 1
        to_x[place], to_y[place] = cost, reward


@njit(cache=True)
def _sort(space: WorkSpace, chunk: int, n_points: int) -> FloatArray:
    """Sorts the gathered points by cost; returns their two rows."""
    values, bits, places = space.values[chunk], space.bits[chunk], space.places[chunk]
    order, spare = space.order[chunk, 0, :n_points], space.order[chunk, 1, :n_points]
    if n_points > SMALL:
        _rank(bits[X, :n_points], space.top, bits[KEYS])
        _keys(bits[KEYS, :n_points], order, places)
        _scatter(order, 32, places[0], spare)
        _scatter(spare, 40, places[1], order)
    else:
        for i in range(n_points):
            order[i] = i
    sorted_points: FloatArray = values[SORTED_X : SORTED_Y + 1, :n_points]
    _insert(values[X : Y + 1], order, sorted_points)
    return sorted_points


@njit(cache=True)
def _is_frontier(x: FloatArray, y: FloatArray) -> bool:
    """Whether all points are vertices, given by rising cost. The last is the best paid."""
    x0, x1, x2, y0, y1, y2 = x[:-2], x[1:-1], x[2:], y[:-2], y[1:-1], y[2:]
    n_others = 0
    for i in range(x1.shape[0]):
        rise, line = (y1[i] - y0[i]) * (x2[i] - x0[i]), (y2[i] - y0[i]) * (x1[i] - x0[i])
        n_others += 0 if rise > line else 1
    return n_others == 0


@njit(cache=True)
def _scan(x: FloatArray, y: FloatArray) -> int:
    """Moves the vertices to the front, given points by rising cost; returns their number.

    (x0, y0) and (x1, y1) are the last two vertices so far.
    """
    if _is_frontier(x, y):
        return len(x)
    x0, y0, x1, y1 = x[0], y[0], x[0], y[0]
    n_vertices = 1
    for i in range(1, x.shape[0]):
        cost, reward = x[i], y[i]
        if reward <= y1:
            continue
        while n_vertices > 1 and (y1 - y0) * (cost - x0) <= (reward - y0) * (x1 - x0):
            n_vertices -= 1
            x1, y1 = x0, y0
            before = max(n_vertices - 2, 0)
            x0, y0 = x[before], y[before]
        x[n_vertices], y[n_vertices] = cost, reward
        n_vertices += 1
        x0, y0, x1, y1 = x1, y1, cost, reward
    return n_vertices


@njit(cache=True)
def _vertices(space: WorkSpace, chunk: int, low: int, high: int) -> FloatArray:
    """Costs and rewards `[2, V]` of all vertices from `low` to `high`, by rising cost."""
    n_points = _gather(space.values[chunk], space.bits[chunk], low, high)
    points = _sort(space, chunk, n_points)
    return points[:, : _scan(points[0], points[1])]


@njit(cache=True)
def _edge(space: WorkSpace, chunk: int, low: int, high: int, beta: Any) -> tuple[int, int]:
    """Ends of the frontier edge over `beta`, between the vertices `low` and `high`."""
    values, bits = space.values[chunk], space.bits[chunk]
    costs, rewards = values[COSTS], values[REWARDS]
    streak = 0  # moves in a row of the same end: above zero of `high`, below zero of `low`
    while True:
        run, rise = costs[high] - costs[low], rewards[high] - rewards[low]
        is_chord = True
        if abs(streak) >= PATIENCE:
            factor = costs.dtype.type(2.0 ** min(4.0 ** (abs(streak) - PATIENCE), 60.0))
            turned_run, turned_rise = (run, rise * factor) if streak > 0 else (run * factor, rise)
            if max(turned_run, turned_rise) <= space.limit:
                run, rise, is_chord = turned_run, turned_rise, False
        left, right = _highest(values, bits, low, high, run, rise)
        if left < 0:
            if is_chord:
                return low, high
            streak = 0
        elif costs[right] <= beta:
            low, streak = right, min(streak, 0) - 1
        elif costs[left] > beta:
            high, streak = left, max(streak, 0) + 1
        else:
            return left, right


@njit(cache=True)
def _interpolate(
    vertices: FloatArray, betas: FloatArray, edges: IntArray, v_r: FloatArray, v_c: FloatArray
) -> None:
    """Writes reward and cost at every budget, given the vertices.

    Binary searches for the vertices below all budgets go in step, for the sake of vectorisation.
    """
    x, y = vertices[0], vertices[1]
    last, step = np.int32(x.shape[0] - 1), np.int32(1)
    while 2 * step <= last:
        step = np.int32(2 * step)
    edges[:] = 0
    while step > 0:
        for m in range(betas.shape[0]):
            ahead = min(np.int32(edges[m] + step), last)
            edges[m] = ahead if x[UNSIGNED(ahead)] <= betas[m] else edges[m]
        step = np.int32(step >> 1)
    one = x.dtype.type(1)
    for m in range(betas.shape[0]):
        below, above = UNSIGNED(edges[m]), UNSIGNED(min(np.int32(edges[m] + 1), last))
        beta, run = min(max(betas[m], x[below]), x[above]), x[above] - x[below]
        p_upper = (beta - x[below]) / (run if run > 0 else one)
        v_r[m], v_c[m] = y[below] + p_upper * (y[above] - y[below]), beta


@njit(cache=True, parallel=True)
def best_mixtures(
    costs: FloatArray, rewards: FloatArray, betas: FloatArray, space: WorkSpace, out: Mixtures[Any]
) -> BoolArray:
    """Fills `out` with the best mixtures of `N` states; returns which states are usable."""
    # Taken out here: in a parallel loop numba drops writes to arrays that are still inside a tuple.
    lower, upper, p_upper, cost, reward, status = out
    n_states, n_chunks = costs.shape[0], space.values.shape[0]
    usable = np.empty(n_states, np.bool_)
    for chunk in prange(n_chunks):
        bits = space.bits[chunk]
        x, y = space.values[chunk, COSTS], space.values[chunk, REWARDS]
        for n in range(chunk * n_states // n_chunks, (chunk + 1) * n_states // n_chunks):
            usable[n] = _load(costs[n], rewards[n], space, chunk)
            if not usable[n]:
                continue
            low, high = _ends(bits[COST_RANKS], bits[REWARD_RANKS], space.top)
            if betas[n] < x[low]:
                status[n], high = INFEASIBLE, low
            elif betas[n] >= x[high]:
                status[n], low = SLACK, high
            else:
                status[n] = TIGHT
                low, high = _edge(space, chunk, low, high, betas[n])
            lower[n], upper[n], p_upper[n], cost[n], reward[n] = low, high, 0, x[low], y[low]
            if status[n] == TIGHT:
                p_upper[n], cost[n] = (betas[n] - x[low]) / (x[high] - x[low]), betas[n]
                reward[n] += p_upper[n] * (y[high] - y[low])
    return usable


@njit(cache=True, parallel=True)
def frontier_values(
    costs: FloatArray,
    rewards: FloatArray,
    betas: FloatArray,
    space: WorkSpace,
    v_r: FloatArray,
    v_c: FloatArray,
) -> BoolArray:
    """Fills `v_r`, `v_c` `[N, M]` for `M` budgets; returns which states are usable."""
    n_states, n_chunks = costs.shape[0], space.values.shape[0]
    usable = np.empty(n_states, np.bool_)
    for chunk in prange(n_chunks):
        bits = space.bits[chunk]
        for n in range(chunk * n_states // n_chunks, (chunk + 1) * n_states // n_chunks):
            usable[n] = _load(costs[n], rewards[n], space, chunk)
            if not usable[n]:
                continue
            low, high = _ends(bits[COST_RANKS], bits[REWARD_RANKS], space.top)
            vertices = _vertices(space, chunk, low, high)
            _interpolate(vertices, betas, space.edges[chunk], v_r[n], v_c[n])
    return usable


@njit(cache=True, parallel=True)
def frontier_vertices(
    costs: FloatArray, rewards: FloatArray, index: IntArray, count: IntArray
) -> None:
    """Fills `index` `[N, K]` and `count` `[N]` with the vertices of `N` states."""
    for n in prange(costs.shape[0]):
        count[n] = _chain(costs[n], rewards[n], index[n])


@njit(cache=True)
def _candidates(x: FloatArray, y: FloatArray, work: IntArray) -> IntArray:
    """Positions of the first and the last vertex, and of all points above the chord of both."""
    low = high = 0
    for k in range(x.shape[0]):
        if x[k] < x[low] or (x[k] == x[low] and y[k] > y[low]):
            low = k
        if y[k] > y[high] or (y[k] == y[high] and x[k] < x[high]):
            high = k
    run, rise = x[high] - x[low], y[high] - y[low]
    n_points = 0
    for k in range(x.shape[0]):
        work[n_points] = k
        is_above = (y[k] - y[low]) * run > (x[k] - x[low]) * rise and x[low] < x[k] < x[high]
        n_points += 1 if is_above or k in (low, high) else 0
    return work[:n_points].copy()


@njit(cache=True)
def _chain(x: FloatArray, y: FloatArray, index: IntArray) -> int:
    """Writes the positions of the vertices of one state, and the last one over and over.

    Points come by rising cost, the first of equal ones first. A point that is not below the line
    through the last two vertices takes the place of the last one.
    """
    points = _candidates(x, y, index)
    n_vertices = 0
    for point in points[np.argsort(x[points], kind="mergesort")]:
        cost, reward = x[point], y[point]
        if n_vertices > 0 and reward <= y[index[n_vertices - 1]]:
            continue
        while n_vertices > 1:
            last, before = index[n_vertices - 1], index[n_vertices - 2]
            run, rise = cost - x[before], reward - y[before]
            if (y[last] - y[before]) * run > rise * (x[last] - x[before]):
                break
            n_vertices -= 1
        index[n_vertices] = point
        n_vertices += 1
    index[n_vertices:] = index[n_vertices - 1]
    return n_vertices


class Points(NamedTuple):
    """Points of `N` states as one function sees them, and as another one does, `[N, K]` each."""

    costs: FloatArray
    rewards: FloatArray
    other_costs: FloatArray
    other_rewards: FloatArray


@njit(cache=True, parallel=True)
def crossed_values(
    points: Points, betas: FloatArray, values: FloatArray, n_infeasible: IntArray
) -> None:
    """Fills `values` `[N, L, 2]` of (reward, cost) at budgets `[N, L]`, and counts infeasible ones.

    Vertices are those of `costs` and `rewards`; what they cost and earn is said by others, and so
    is the probability.
    """
    costs, rewards, other_costs, other_rewards = points
    for n in prange(costs.shape[0]):
        index = np.empty(costs.shape[1], np.int64)
        n_vertices = _chain(costs[n], rewards[n], index)
        n_infeasible[n] = 0
        for k in range(betas.shape[1]):
            beta, place = betas[n, k], 0
            while place + 1 < n_vertices and costs[n, index[place + 1]] <= beta:
                place += 1
            low = high = index[place]
            if beta < costs[n, low]:
                n_infeasible[n] += 1
            elif place + 1 < n_vertices:
                high = index[place + 1]
            share = _spending(other_costs[n, low], other_costs[n, high], beta)
            share = share if high != low else share * 0
            rise = other_rewards[n, high] - other_rewards[n, low]
            run = other_costs[n, high] - other_costs[n, low]
            values[n, k, 0] = other_rewards[n, low] + share * rise
            values[n, k, 1] = other_costs[n, low] + share * run


@njit(cache=True)
def _spending(low: Any, high: Any, beta: Any) -> Any:
    """Probability of the dearer of two points that spends the budget; 1 if it is not dearer."""
    if high <= low:
        return low * 0 + 1
    return min(max((beta - low) / (high - low), low * 0), low * 0 + 1)
