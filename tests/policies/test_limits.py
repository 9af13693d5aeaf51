import numpy as np
import pytest

import bmdp


@pytest.mark.parametrize(("gamma", "n_steps"), [(0.9, 15), (0.5, 1), (0.0, 4), (1.0, 9)])
def test_it_is_what_an_episode_costs_that_pays_the_same_at_every_step(gamma, n_steps):
    costs = np.full(n_steps, 2.0 / n_steps)
    paid = sum(gamma**t * cost for t, cost in enumerate(costs))
    found = bmdp.discounted_budget(2.0, gamma=gamma, n_steps=n_steps)
    assert found == pytest.approx(paid)


def test_it_is_the_closed_form():
    found = bmdp.discounted_budget(25.0, gamma=0.99, n_steps=1_000)
    assert found == pytest.approx(25 * (1 - 0.99**1_000) / ((1 - 0.99) * 1_000))


@pytest.mark.parametrize(
    ("limit", "gamma", "n_steps", "error"),
    [
        (np.nan, 0.9, 5, bmdp.BudgetError),
        (np.inf, 0.9, 5, bmdp.BudgetError),
        (1.0, 1.1, 5, bmdp.ConfigError),
        (1.0, 0.9, 0, bmdp.ConfigError),
    ],
)
def test_what_makes_no_sense_is_refused(limit, gamma, n_steps, error):
    with pytest.raises(error):
        bmdp.discounted_budget(limit, gamma=gamma, n_steps=n_steps)
