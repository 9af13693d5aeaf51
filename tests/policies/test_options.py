"""What a policy may do at many budgets at once is what it may do at each of them."""

import numpy as np
import pytest

from bmdp import PolicyError
from bmdp.policies import GreedyRule, HullPolicy, PricedPolicy, TabularQ
from bmdp.policies.policy import OneStepPolicy
from bmdp.policies.random import RandomBudgetedPolicy

GRID = np.linspace(0, 1, 5)
BUDGETS = np.concatenate((np.linspace(0, 1, 23), GRID))
STATES = np.arange(40)
RULE = GreedyRule(0.0, 2.0)


def table(seed, dtype=np.float64, ties=False):
    """Q-values of 40 states, some of whose cheapest points cost more than nothing."""
    q = np.random.default_rng(seed).random((2, 40, 3, 5)) * [[[[0.8]]], [[[1.1]]]] + 0.05
    q = np.round(q, 1) if ties else q
    return TabularQ(*q.astype(dtype))


POLICIES = {
    "hull": HullPolicy(table(0), GRID),
    "single precision": HullPolicy(table(1, np.float32), GRID),
    "capped": HullPolicy(table(2), GRID, RULE),
    "priced": PricedPolicy(table(5), 0.7),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_all_budgets_at_once_are_as_one_after_the_other(policy):
    together = policy.options_at(STATES, BUDGETS)
    for place, budget in enumerate(BUDGETS):
        alone = policy.options(STATES, np.full(len(STATES), budget))
        for one, every in zip(alone, together, strict=True):
            np.testing.assert_array_equal(every[:, place], one)
    np.testing.assert_allclose(together.probability.sum(axis=-1), 1, rtol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_of_points_on_one_line_any_two_will_do(seed):
    """Rounded values have equal points and points on one line, which rounding may tell apart."""
    q = table(seed, ties=True)
    policy = HullPolicy(q, GRID)
    values = []
    for options in (
        policy.options_at(STATES, BUDGETS),
        OneStepPolicy.options_at(policy, STATES, BUDGETS),
    ):
        places = np.searchsorted(GRID, options.next_budget)
        rows = STATES[:, None, None]
        values.append(
            [
                (t[rows, options.action, places] * options.probability).sum(-1)
                for t in (q.q_r, q.q_c)
            ]
        )
    np.testing.assert_allclose(values[0], values[1], atol=1e-12)


def test_the_function_is_asked_once_for_each_state():
    seen = []

    def counted(states):
        seen.append(len(states))
        return table(0)(states)

    HullPolicy(counted, GRID).options_at(STATES, BUDGETS)
    assert seen == [40]


def test_a_policy_that_does_not_say_what_it_may_do_is_refused():
    with pytest.raises(PolicyError, match="RandomBudgetedPolicy does not say with which"):
        RandomBudgetedPolicy(3, 0.0, 1.0).options_at(STATES, BUDGETS)
