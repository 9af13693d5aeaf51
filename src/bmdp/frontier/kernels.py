"""Numba kernels of the batched geometry. One state is a row of `K` points (cost, reward).

`best_mixtures` is a *bridge search*: it finds the frontier edge over one budget without a sort and
without a hull. It keeps a chord, two frontier vertices `low` and `high` with cost[low] <= beta <
cost[high], and looks for the points furthest above it,

    height_i = (r_i - r_low) (c_high - c_low) - (c_i - c_low) (r_high - r_low).

Points of the largest positive height are on the frontier, so they replace an end of the chord;
where there are none, the chord is the edge. Points left and right of the chord lie below its line,
because the frontier is concave: every pass runs over the whole row and needs no mask.

`frontier_values` takes one step of that search, drops all points below the two new chords, sorts
the others by cost and scans them once, keeping the vertices. `best_mixtures` does so too where the
search takes more than `MAX_ROUNDS`, as it may on frontiers that bend by the same factor all along.

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

# Rows of a work space. Ranks are integers that order like the values.
COSTS, REWARDS, COST_RANKS, REWARD_RANKS, HEIGHTS, MORE_HEIGHTS = 0, 1, 2, 3, 4, 5
N_WORK_ROWS = 6

KEY_DIGITS = 3  # digits of the radix sort, of 8 bits each
N_BUCKETS = 256
SMALL = 48  # points; up to here insertion sort alone is faster
MAX_ROUNDS = 16  # of the bridge search; random points take 3, a smooth frontier of 505 points 9


class WorkSpace(NamedTuple):
    """Memory of the kernels, a part for each chunk of states: none is allocated for a state."""

    values: FloatArray  # [chunks, 6, K]
    bits: IntArray  # the same memory, read as integers
    order: IntArray  # [chunks, 2, K], points being sorted
    counts: IntArray  # [chunks, 3, 256], of each digit of their keys
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
def _heights(values: FloatArray, low: int, high: int, heights: FloatArray) -> None:
    """Writes the height of every point above the chord from `low` to `high`."""
    costs, rewards = values[COSTS], values[REWARDS]
    cost, reward = costs[low], rewards[low]
    run, rise = costs[high] - cost, rewards[high] - reward
    for i in range(costs.shape[0]):
        heights[i] = (rewards[i] - reward) * run - (costs[i] - cost) * rise


@njit(cache=True)
def _bridge(values: FloatArray, bits: IntArray, low: int, high: int) -> tuple[int, int]:
    """Leftmost and rightmost of the points furthest above the chord; -1, -1 if none is above."""
    costs, heights = values[COSTS], bits[HEIGHTS]
    _heights(values, low, high, values[HEIGHTS])
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
        if heights[i] == highest and costs[low] < costs[i] < costs[high]:
            if left < 0 or costs[i] < costs[left]:
                left = i
            if right < 0 or costs[i] > costs[right]:
                right = i
    return left, right


@njit(cache=True)
def _candidates(values: FloatArray, bits: IntArray, low: int, high: int, found: IntArray) -> int:
    """Lists the points between `low` and `high` that may be vertices; returns their number."""
    left, right = _bridge(values, bits, low, high)
    if left < 0:
        return 0
    costs, heights, more_heights = values[COSTS], values[HEIGHTS], values[MORE_HEIGHTS]
    _heights(values, low, left, heights)
    _heights(values, right, high, more_heights)
    heights[left] = heights[right] = 1
    n_found = 0
    for i in range(costs.shape[0]):
        found[n_found] = i
        is_between = (costs[i] > costs[low]) & (costs[i] < costs[high])
        n_found += ((heights[i] > 0) | (more_heights[i] > 0)) & is_between
    return n_found


@njit(cache=True)
def _radix_sort(
    ranks: IntArray, low: int, high: int, found: IntArray, keyed: IntArray, counts: IntArray
) -> None:
    """Sorts positions by the leading 24 bits of the distance of their rank from that of `low`."""
    base = np.int64(ranks[low]) >> 2  # a quarter, so that no difference overflows
    shift = 0
    while ((np.int64(ranks[high]) >> 2) - base) >> shift >= N_BUCKETS**KEY_DIGITS:
        shift += 1
    counts[:] = 0
    for i in range(found.shape[0]):
        key = ((np.int64(ranks[found[i]]) >> 2) - base) >> shift
        for digit in range(KEY_DIGITS):
            counts[digit, (key >> (8 * digit)) & (N_BUCKETS - 1)] += 1
        keyed[i] = (key << 32) | found[i]
    source, target = keyed, found
    for digit in range(KEY_DIGITS):
        places, place = counts[digit], 0
        for bucket in range(N_BUCKETS):
            place, places[bucket] = place + places[bucket], place
        for i in range(found.shape[0]):
            bucket = (source[i] >> (32 + 8 * digit)) & (N_BUCKETS - 1)
            target[places[bucket]] = source[i]
            places[bucket] += 1
        source, target = target, source
    for i in range(found.shape[0]):
        found[i] = source[i] & 0xFFFFFFFF


@njit(cache=True)
def _insertion_sort(costs: FloatArray, found: IntArray) -> None:
    """Sorts positions by their cost; fast where little is out of order."""
    for i in range(1, found.shape[0]):
        moving, place = found[i], i
        while place > 0 and costs[found[place - 1]] > costs[moving]:
            found[place] = found[place - 1]
            place -= 1
        found[place] = moving


@njit(cache=True)
def _scan(values: FloatArray, low: int, high: int, found: IntArray, vertices: IntArray) -> int:
    """Lists the vertices from `low` to `high`, given the points between by rising cost.

    Returns their number. (x0, y0) and (x1, y1) are the last two vertices so far.
    """
    costs, rewards = values[COSTS], values[REWARDS]
    vertices[0] = low
    x0, y0, x1, y1 = costs[low], rewards[low], costs[low], rewards[low]
    n_vertices = 1
    for k in range(found.shape[0] + 1):
        i = found[k] if k < found.shape[0] else high
        cost, reward = costs[i], rewards[i]
        if reward <= y1:
            continue
        while n_vertices > 1 and (y1 - y0) * (cost - x0) <= (reward - y0) * (x1 - x0):
            n_vertices -= 1
            x1, y1 = x0, y0
            before = vertices[max(n_vertices - 2, 0)]
            x0, y0 = costs[before], rewards[before]
        vertices[n_vertices] = i
        n_vertices += 1
        x0, y0, x1, y1 = x1, y1, cost, reward
    return n_vertices


@njit(cache=True)
def _vertices(space: WorkSpace, chunk: int, low: int, high: int) -> IntArray:
    """Positions of all vertices from `low` to `high`, by rising cost."""
    values, bits = space.values[chunk], space.bits[chunk]
    found, spare = space.order[chunk, 0], space.order[chunk, 1]
    n_found = _candidates(values, bits, low, high, found)
    found = found[:n_found]
    if found.shape[0] > SMALL:
        _radix_sort(bits[COST_RANKS], low, high, found, spare, space.counts[chunk])
    _insertion_sort(values[COSTS], found)
    n_vertices = _scan(values, low, high, found, spare)
    return spare[:n_vertices]


@njit(cache=True)
def _edge(space: WorkSpace, chunk: int, low: int, high: int, beta: Any) -> tuple[int, int]:
    """Ends of the frontier edge over `beta`, between the vertices `low` and `high`."""
    costs = space.values[chunk, COSTS]
    for _ in range(MAX_ROUNDS):
        left, right = _bridge(space.values[chunk], space.bits[chunk], low, high)
        if left < 0:
            return low, high
        if costs[right] <= beta:
            low = right
        elif costs[left] > beta:
            high = left
        else:
            return left, right
    vertices = _vertices(space, chunk, low, high)
    k = 0
    while costs[vertices[k + 1]] <= beta:
        k += 1
    return vertices[k], vertices[k + 1]


@njit(cache=True)
def _interpolate(
    values: FloatArray, vertices: IntArray, betas: FloatArray, v_r: FloatArray, v_c: FloatArray
) -> None:
    """Writes reward and cost at rising budgets, given the vertices."""
    costs, rewards = values[COSTS], values[REWARDS]
    k, last = 0, vertices.shape[0] - 1
    for m in range(betas.shape[0]):
        while k < last and costs[vertices[k + 1]] <= betas[m]:
            k += 1
        x, y = costs[vertices[k]], rewards[vertices[k]]
        v_r[m], v_c[m] = y, x
        if k < last and x < betas[m]:
            above = vertices[k + 1]
            v_r[m] = y + (betas[m] - x) / (costs[above] - x) * (rewards[above] - y)
            v_c[m] = betas[m]


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
    """Fills `v_r`, `v_c` `[N, M]` for `M` rising budgets; returns which states are usable."""
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
            _interpolate(space.values[chunk], vertices, betas, v_r[n], v_c[n])
    return usable
