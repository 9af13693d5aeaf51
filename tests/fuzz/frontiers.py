"""Mixtures of random clouds of points, against all pairs of points, in a wider precision.

Every cloud is solved by numba, in a batch, and by torch; some of each batch also one by one, as
linear programs (HiGHS) and in fractions.
"""

import numpy as np
import pytest
import torch

from bmdp import DataError, hull_mixture, upper_frontier
from bmdp.frontier import best_mixtures
from oracles.greedy import nested_program, nested_program_exactly

N_CLOUDS = 500  # of a batch
N_SINGLE, N_PROGRAMS, N_EXACT = 10, 1, 2  # of them, solved in other ways, too
WIDE = np.longdouble  # of x86: 64 bits, and exponents of 15 bits
TOLERANCE = 1e-13  # of the largest reward of a cloud


def cases(seed, folder):
    """Yields the family of each cloud."""
    rng = np.random.default_rng(seed)
    number = 0
    while True:
        for family, draw in FAMILIES.items():
            clouds = draw(rng, int(rng.integers(1, 10)))
            try:
                check(rng, *clouds, is_ordinary=family == "ordinary")
            except AssertionError as error:
                told = f"seed {seed}, batch {number}, {family}: {error}"
                raise AssertionError(told) from error
            number += 1
            yield from [family] * N_CLOUDS


def ordinary(rng, n_points):
    """Normal numbers."""
    costs, rewards = rng.normal(size=(2, N_CLOUDS, n_points))
    return costs, rewards, budgets(rng, costs)


def ties(rng, n_points):
    """Few different numbers."""
    costs, rewards = np.round(2 * rng.normal(size=(2, N_CLOUDS, n_points))) / 2
    return costs, rewards, np.round(4 * budgets(rng, costs)) / 4


def collinear(rng, n_points):
    """Points on a line, exactly, and one that is not."""
    costs = rng.integers(-8, 9, size=(N_CLOUDS, n_points)).astype(float)
    rise, base = rng.integers(-3, 4, size=(2, N_CLOUDS, 1))
    rewards = base + rise * costs
    rewards[:, 0] += rng.integers(-1, 2, size=N_CLOUDS)
    return costs, rewards, budgets(rng, costs)


def duplicates(rng, n_points):
    """Each point several times."""
    costs, rewards, asked = ordinary(rng, n_points)
    again = rng.integers(n_points, size=(N_CLOUDS, 2 * n_points))
    return *(np.take_along_axis(v, again, 1) for v in (costs, rewards)), asked


def magnitudes(rng, n_points):
    """Another unit of costs and of rewards for each cloud, from 1e-300 to 1e149."""
    return in_units(rng, n_points, -300, 149)


def wide(rng, n_points):
    """Another magnitude for each number."""
    exponents = rng.uniform(-300, 149, size=(2, N_CLOUDS, n_points))
    costs, rewards = rng.choice((-1, 1), size=exponents.shape) * 10.0**exponents
    return costs, rewards, budgets(rng, costs)


def too_large(rng, n_points):
    """Magnitudes that a batch refuses, and one state takes."""
    return in_units(rng, n_points, 151, 299)


def in_units(rng, n_points, least, most):
    costs, rewards, asked = (ordinary, ties, collinear)[rng.integers(3)](rng, n_points)
    unit, other = 10.0 ** rng.uniform(least, most, size=(2, N_CLOUDS, 1))
    return costs * unit, rewards * other, asked * unit[:, 0]


FAMILIES = {
    "ordinary": ordinary,
    "ties": ties,
    "collinear": collinear,
    "duplicates": duplicates,
    "magnitudes": magnitudes,
    "wide": wide,
    "too large for a batch": too_large,
}


def budgets(rng, costs):
    """Those on points, between them, and outside."""
    n, k = costs.shape
    one, other = (costs[np.arange(n), rng.integers(k, size=n)] for _ in range(2))
    between = one + rng.random(n) * (other - one)
    outside = one + rng.choice((-1, 1), size=n) * abs(other)
    return np.choose(rng.integers(3, size=n), (one, between, outside))


def check(rng, costs, rewards, asked, *, is_ordinary):
    """Compares all ways to solve some clouds."""
    expected = by_pairs(costs, rewards, asked)
    as_tensors = [torch.tensor(values) for values in (costs, rewards, asked)]
    if max(abs(costs).max(), abs(rewards).max()) > 1e150:
        for given in ((costs, rewards, asked), as_tensors):
            with pytest.raises(DataError, match=r"1e\+150"):
                best_mixtures(*given)
    else:
        require_same(best_mixtures(costs, rewards, asked), expected, costs, rewards, "numba")
        found = [np.asarray(column) for column in best_mixtures(*as_tensors)]
        require_same(found, expected, costs, rewards, "torch")
    some = rng.permutation(len(costs))
    for i in some[:N_SINGLE]:
        frontier = upper_frontier(costs[i], rewards[i])
        one = hull_mixture(frontier, asked[i])
        found = [[v] for v in (one.lower, one.upper, one.p_upper, one.cost, one.reward, one.status)]
        own = [values[i : i + 1] for values in (*expected, costs, rewards)]
        require_same(found, own[:3], *own[3:], f"single [{i}]")
        if asked[i] >= costs[i].min():
            own[1][:] = frontier.reward_at(asked[i])
            require_same(found, own[:3], *own[3:], f"reward_at [{i}]")
    for i in some[:N_EXACT]:
        cloud = costs[i], rewards[i], asked[i]
        exact = [np.array([float(v)]) for v in nested_program_exactly(*cloud)]
        own = [values[i : i + 1] for values in (*expected, costs, rewards)]
        assert abs(exact[1] - own[1]) <= TOLERANCE * abs(own[4]).max(), f"fractions [{i}]"
        assert exact[0] == own[0], f"fractions [{i}]"
    for i in some[:N_PROGRAMS] if is_ordinary else ():
        cost, reward = nested_program(costs[i], rewards[i], asked[i])
        assert abs(reward - expected[1][i]) < 1e-7, f"HiGHS [{i}]"
        assert abs(cost - expected[0][i]) < 1e-6, f"HiGHS [{i}]"


def by_pairs(costs, rewards, asked):
    """Cost, reward and status of the best mixtures of two points, of all pairs."""
    x, y, beta = costs.astype(WIDE), rewards.astype(WIDE), asked.astype(WIDE)[:, None]
    cheapest = x.min(axis=1, keepdims=True)
    low = np.where(x == cheapest, y, -np.inf).max(axis=1)
    best = np.where(x <= beta, y, -np.inf).max(axis=1)  # of one point
    for i in range(x.shape[1]):
        rises = (x[:, i : i + 1] <= beta) & (x > beta)
        run = np.where(rises, x - x[:, i : i + 1], 1)
        share = (beta - x[:, i : i + 1]) / run
        mixed = y[:, i : i + 1] + share * (y - y[:, i : i + 1])
        best = np.maximum(best, np.where(rises, mixed, -np.inf).max(axis=1))
    top = np.where(y == y.max(axis=1, keepdims=True), x, np.inf).min(axis=1)  # cheapest of the best
    is_below, is_above = asked < costs.min(axis=1), asked >= top
    cost = np.where(is_below, cheapest[:, 0], np.where(is_above, top, asked))
    return cost, np.where(is_below, low, best), np.where(is_below, 0, np.where(is_above, 2, 1))


def require_same(found, expected, costs, rewards, way):
    """Checks costs and statuses, which are exact, and rewards, but for rounding."""
    p_upper, cost, reward, status = map(np.asarray, found[2:])
    wrong = np.flatnonzero(status != expected[2])
    assert not len(wrong), f"{way}: status of {wrong[:3]}"
    wrong = np.flatnonzero(cost != expected[0].astype(np.float64))
    assert not len(wrong), f"{way}: cost of {wrong[:3]}"
    most = abs(rewards).max(axis=1)
    wrong = np.flatnonzero(~(abs(reward - expected[1]) <= TOLERANCE * most))
    assert not len(wrong), f"{way}: reward of {wrong[:3]}: {reward[wrong[:3]]}"
    assert ((p_upper >= 0) & (p_upper <= 1)).all(), f"{way}: probability"
