"""Dials of prices by dynamic programming, against the linear program and closed forms."""

import numpy as np
import pytest

from bmdp import ConfigError
from bmdp.exact import optimal_frontier, solve_cmdp
from bmdp.exact.price_dial import price_dial
from bmdp.exact.textbook import branches, garnet, payments
from bmdp.policies.prices import MultiplierPolicy


def prices_of(frontier):
    """A price for each vertex: between the slopes to its left and to its right."""
    slopes = np.diff(frontier.rewards) / np.diff(frontier.costs)
    inner = (slopes[1:] + slopes[:-1]) / 2
    return (np.inf, *inner, 0.0)


@pytest.mark.parametrize("seed", range(6))
def test_with_a_price_for_each_vertex_it_is_the_constrained_optimum(seed):
    model = garnet(6, 3, 3, gamma=0.8, rng=np.random.default_rng(seed))
    optimum = optimal_frontier(model, start=0)
    policy = MultiplierPolicy(price_dial(model, prices_of(optimum)), 0.0, 10.0)
    found = policy.frontier(0)
    for budget in np.linspace(optimum.costs[0], optimum.costs[-1], 7):
        oracle = solve_cmdp(model, start=0, budget=float(budget))
        assert found.reward_at(budget) == pytest.approx(oracle.reward, abs=1e-7)


def test_a_horizon_and_two_discounts_have_a_dial_for_each_step():
    problem = payments()
    optimum = optimal_frontier(problem.model, start=problem.start)
    dial = price_dial(problem.model, prices_of(optimum))
    assert dial.n_steps == problem.model.horizon
    first = dial.frontier(problem.start)
    np.testing.assert_allclose(first.reward_at(optimum.costs), optimum.rewards, atol=1e-12)
    last_r, _ = dial.q_function(np.arange(problem.model.n_states), problem.model.horizon - 1)
    np.testing.assert_array_equal(last_r[..., 0], problem.model.reward)


def test_prices_fall_whatever_order_they_are_given_in():
    assert price_dial(branches().model, (0, 5, np.inf)).prices.tolist() == [np.inf, 5.0, 0.0]


@pytest.mark.parametrize("prices", [(), (-1.0,), (np.nan,), (1.0, 1.0)])
def test_wrong_prices_are_refused(prices):
    with pytest.raises(ConfigError, match="prices must"):
        price_dial(branches().model, prices)
