"""Frontiers that are looked up are those that are found anew, to the bit."""

from dataclasses import replace

import numpy as np
import pytest

from bmdp import DataError
from bmdp.frontier import best_mixtures, hull_mixture, kernels, upper_frontier
from bmdp.frontier.known import KnownFrontiers
from bmdp.policies import HullPolicy, HullRule, MultiplierPolicy, PriceDial, TabularQ

GRID = np.linspace(0, 1, 5)
RULES = {
    "plain": HullRule(),
    "capped": HullRule(True, np.array([2.0]), np.array([0.1])),
    "lowered": HullRule(cost_cap=0.6),
}


class Blind:
    """A Q-function of which a policy cannot know that it is a table."""

    n_steps = 1

    def __init__(self, q):
        self.q = q

    def __call__(self, states):
        return self.q(states)


def tables(seed, dtype):
    """Values of 40 states, with many ties in every other one."""
    q_r, q_c = np.random.default_rng(seed).random((2, 40, 3, 5))
    if seed % 2:
        q_r, q_c = np.round(8 * q_r) / 8, np.round(8 * q_c) / 8
    return TabularQ(q_r.astype(dtype), q_c.astype(dtype))


def asked(seed):
    rng = np.random.default_rng(seed)
    budgets = np.concatenate((rng.random(400), np.round(16 * rng.random(400)) / 16))
    return rng.integers(40, size=800), budgets


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(4))
def test_a_table_plays_the_mixtures_that_are_found_anew(rule, dtype, seed):
    policy = HullPolicy(tables(seed, dtype), GRID, rule)
    states, budgets = asked(seed)
    found = policy.mixtures(states, budgets)
    anew = replace(policy, q_function=Blind(policy.q_function)).mixtures(states, budgets)
    for a, b in zip(found, anew, strict=True):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()


def test_a_known_frontier_is_the_one_of_exact_geometry():
    costs, rewards = np.random.default_rng(3).random((2, 30, 12))
    known = KnownFrontiers(costs, rewards, costs.argmin(axis=1), costs.min(axis=1))
    states, betas = np.arange(30), np.linspace(-0.1, 1.1, 30)
    found = known.mixtures(states, betas)
    for n in states:
        frontier = upper_frontier(costs[n], rewards[n])
        one = hull_mixture(frontier, float(betas[n]))
        assert found.status[n] == one.status
        assert found.cost[n] == pytest.approx(one.cost)
        assert found.reward[n] == pytest.approx(one.reward)


@pytest.mark.parametrize("n", [1, 7, 60])
def test_few_points_and_many_have_the_same_mixtures(n, monkeypatch):
    costs, rewards = np.random.default_rng(n).random((2, n, 30))
    betas = np.linspace(0, 1, n)
    few = best_mixtures(costs, rewards, betas)
    monkeypatch.setattr(kernels, "LEAST_POINTS", 0)
    for a, b in zip(few, best_mixtures(costs, rewards, betas), strict=True):
        assert a.tobytes() == b.tobytes()


def test_points_that_are_no_numbers_are_refused_as_before():
    policy = HullPolicy(tables(0, np.float64), GRID)
    object.__setattr__(policy.q_function, "q_c", np.full((40, 3, 5), np.nan))
    with pytest.raises(DataError, match="must be finite"):
        policy.mixtures(*asked(0))


@pytest.mark.parametrize("seed", range(4))
def test_a_dial_of_a_table_does_what_it_would_find_anew(seed):
    dial = PriceDial(tables(seed, np.float32), [np.inf, 3.0, 1.0, 0.5, 0.0], 0.1)
    states, _ = asked(seed)
    anew = replace(dial, q_function=Blind(dial.q_function)).points(states)
    for a, b in zip(dial.points(states), anew, strict=True):
        assert a.tobytes() == b.tobytes()


def test_prices_at_the_start_are_chosen_as_by_a_frontier_for_each_episode():
    dial = PriceDial(tables(0, np.float64), [np.inf, 3.0, 1.0, 0.5, 0.0])
    costs, rewards = np.random.default_rng(0).random((2, 5))
    policy = MultiplierPolicy(dial, costs=costs, rewards=rewards)
    states, budgets = asked(0)
    found = policy.first_mixtures(dial.points(states), budgets)
    anew = best_mixtures(np.tile(costs, (800, 1)), np.tile(rewards, (800, 1)), budgets)
    for a, b in zip(found, anew, strict=True):
        assert a.tobytes() == b.tobytes()
