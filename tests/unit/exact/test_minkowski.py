"""Sums of frontiers against all combinations of their vertices. Small enough to run uncompiled."""

import itertools

import numpy as np
import pytest

from bmdp import upper_frontier
from bmdp.exact.allocation import allocate_budgets
from bmdp.exact.minkowski import Frontiers, backup, distance, dynamics_of, sum_row
from bmdp.exact.textbook import branches, decision, garnet, ladder


def frontiers_of(*states):
    """Frontiers, given a list of (cost, reward) for each state."""
    counts = [len(points) for points in states]
    costs, rewards = np.array([p for points in states for p in points], float).T
    return Frontiers(np.concatenate(([0], np.cumsum(counts))), costs, rewards)


def vertices(frontiers, state):
    mine = slice(frontiers.first[state], frontiers.first[state + 1])
    return list(zip(frontiers.costs[mine].tolist(), frontiers.rewards[mine].tolist(), strict=True))


def random_frontiers(rng, n_states, n_points):
    found = []
    for _ in range(n_states):
        frontier = upper_frontier(*rng.random((2, n_points)))
        found.append(list(zip(frontier.costs, frontier.rewards, strict=True)))
    return frontiers_of(*found)


def all_combinations(now, model, state):
    """Points of every action with every choice of a vertex at each next state."""
    points = []
    for action in range(model.n_actions):
        row = state * model.n_actions + action
        entries = slice(model.transition.indptr[row], model.transition.indptr[row + 1])
        chances = model.transition.data[entries]
        choices = [vertices(now, s) for s in model.transition.indices[entries]]
        for chosen in itertools.product(*choices):
            x, y = np.array(chosen).T
            cost = model.cost[state, action] + model.cost_gamma * chances @ x
            points.append((cost, model.reward[state, action] + model.gamma * chances @ y))
    return np.array(points).T


@pytest.mark.parametrize("seed", range(6))
def test_a_sum_has_the_frontier_of_all_combinations(seed):
    rng = np.random.default_rng(seed)
    model = garnet(4, 2, 3, gamma=0.9, rng=rng)
    now = random_frontiers(rng, 4, 5)
    following = backup(now, dynamics_of(model), prune=0.0)
    for state in range(4):
        oracle = upper_frontier(*all_combinations(now, model, state))
        x, y = np.array(vertices(following, state)).T
        costs = np.linspace(oracle.costs[0], oracle.costs[-1], 25)
        assert np.interp(costs, x, y) == pytest.approx(oracle.reward_at(costs), abs=1e-12)
        assert x[[0, -1]] == pytest.approx(oracle.costs[[0, -1]])


def test_a_row_without_next_states_is_a_point():
    known = ladder(2)
    now = frontiers_of([(0, 0)], [(0, 0)], [(0, 0)])
    x, y = sum_row(now, dynamics_of(known.model), 4, 0.5, 2.0)
    assert (x.tolist(), y.tolist()) == ([0.5], [2.0])


def test_of_equally_cheap_points_the_best_paid_stays():
    model = branches((1.0, 1.0)).model
    now = frontiers_of([(0, 0)], [(0, 0), (1, 3)], [(0, 0), (1, 3)], [(0, 0)])
    assert vertices(backup(now, dynamics_of(model), prune=0.0), 0) == [(0, 0), (1, 3)]
    for rewards in ([0.0, 1.0, 2.0], [2.0, 1.0, 0.0]):
        model = decision(costs=[0.5] * 3, rewards=rewards).model
        now = frontiers_of([(0, 0)], [(0, 0)])
        assert vertices(backup(now, dynamics_of(model), prune=0.0), 0) == [(0.5, 2.0)]


def test_costs_that_differ_by_rounding_are_equal():
    model = decision(costs=[0.0, 1e-16, 1.0], rewards=[1.0, 2.0, 3.0]).model
    now = frontiers_of([(0, 0)], [(0, 0)])
    assert vertices(backup(now, dynamics_of(model), prune=0.0), 0) == [(1e-16, 2.0), (1.0, 3.0)]


@pytest.mark.parametrize("loss", [1e-3, 1e-2, 0.1])
def test_pruning_goes_to_the_inside_and_loses_no_more_than_it_may(loss):
    angle = np.linspace(0, np.pi / 2, 60)
    arc = list(zip(1 - np.cos(angle), np.sin(angle), strict=True))
    model = ladder(1).model  # the sum of one state, shifted
    now = frontiers_of([(0, 0)], arc)
    pruned, whole = (
        backup(now, dynamics_of(model)._replace(next_state=np.array([1, 1])), prune=p)
        for p in (loss, 0.0)
    )
    assert 2 <= len(vertices(pruned, 0)) < len(vertices(whole, 0))
    assert 0 < distance(pruned, whole) <= loss
    x, y = np.array(vertices(whole, 0)).T
    for cost, reward in vertices(pruned, 0):
        assert reward <= np.interp(cost, x, y) + 1e-12


def test_distance_is_that_of_the_worst_price():
    left = frontiers_of([(0, 0), (1, 1)], [(0, 0)])
    assert distance(left, left) == 0
    assert distance(left, frontiers_of([(0, 0), (1, 1.5)], [(0, 0)])) == pytest.approx(0.5)
    assert distance(left, frontiers_of([(0.2, 0.2), (1, 1)], [(0, 0)])) == pytest.approx(0.2)
    bent = frontiers_of([(0, 0), (0.5, 0.9), (1, 1)], [(0, 0)])
    assert distance(left, bent) == distance(bent, left) == pytest.approx(0.4 / 2)


def test_the_whole_iteration_runs_uncompiled_too():
    assert allocate_budgets(branches().model).frontier(0).reward_at(0.5) == 5.0
