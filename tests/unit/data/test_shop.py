"""The shop does what its page says: chances, prices, and what customers remember."""

import numpy as np
import pytest

import bmdp
from bmdp.data import customers
from bmdp.data.shop import COMPLAINTS, PRICES, SALES, contact, new_customers

N = 200_000


def standard_errors(share, chance):
    """How far a share of N cases is from its chance."""
    return abs(share - chance) / np.sqrt(max(chance * (1 - chance), 1e-12) / N)


@pytest.mark.parametrize("action", [0, 1, 2])
@pytest.mark.parametrize(("days", "complaints"), [(0.0, 0.0), (30.0, 2.0)])
def test_contacts_sell_and_annoy_as_often_as_documented(action, days, complaints):
    states = np.tile([days, 50.0, complaints], (N, 1))
    found = contact(states, np.full(N, action), np.random.default_rng(0))
    bought = found.states[:, 0] == 0
    assert standard_errors(bought.mean(), SALES[action] * np.exp(-days / 60)) < 4
    assert standard_errors(found.complained.mean(), COMPLAINTS[action] * (1 + complaints)) < 4
    np.testing.assert_allclose(found.earned, 50.0 * bought - PRICES[action])
    np.testing.assert_array_equal(found.states[:, 2], complaints + found.complained)
    assert (found.states[~bought, 0] == days + 7).all()
    assert abs(found.states[:, 1].mean() - 0.8 * 50 - 0.2 * 60) < 0.1


def test_anger_multiplies_the_chance_of_a_complaint():
    states, calls = np.tile([0.0, 50.0, 0.0], (N, 1)), np.full(N, 2)
    angry = contact(states, calls, np.random.default_rng(1), anger=3.0)
    assert standard_errors(angry.complained.mean(), 3 * COMPLAINTS[2]) < 4


def test_new_customers_have_no_complaints():
    states = new_customers(N, np.random.default_rng(2))
    assert not states[:, 2].any()
    np.testing.assert_allclose(states[:, :2].mean(axis=0), [20, 60], rtol=0.02)


def test_a_log_has_four_rows_a_customer_that_follow_each_other():
    log = customers(500, seed=3)
    assert (len(log), log.n_actions, log.terminal.sum()) == (2_000, 3, 500)
    inside = ~log.terminal
    np.testing.assert_array_equal(log.next_state[inside], log.state[1:][inside[:-1]])
    np.testing.assert_array_equal(log.step[:5], [0, 1, 2, 3, 0])
    np.testing.assert_array_equal(np.unique(log.probability), [1 / 3])
    np.testing.assert_allclose(np.bincount(log.action) / 2_000, 1 / 3, atol=0.05)


def test_a_seed_gives_one_log():
    first, again, other = customers(50, seed=1), customers(50, seed=1), customers(50, seed=2)
    np.testing.assert_array_equal(first.state, again.state)
    assert (first.state != other.state).any()


@pytest.mark.parametrize("n_customers", [0, -1, 2.5, None])
def test_a_number_of_customers_that_is_none_is_refused(n_customers):
    with pytest.raises(bmdp.ConfigError, match="n_customers must be a whole number"):
        customers(n_customers)
