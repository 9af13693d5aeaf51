"""Members of a portfolio, measured."""

from dataclasses import replace

import numpy as np
import pytest

from bmdp import ConfigError
from bmdp.evaluation import evaluate, measure_portfolio, play_members
from bmdp.exact.price_dial import price_dial
from bmdp.exact.textbook import branches
from bmdp.policies import Portfolio
from problems import finite_spec

PROBLEM = branches()
DIAL = price_dial(PROBLEM.model, (20.0, 5.0, 0.0))
MEMBERS = Portfolio((DIAL,), np.zeros(3, int), np.arange(3.0), np.zeros(3), np.arange(3.0))


def test_costs_and_rewards_are_those_of_each_member():
    """Nothing, a risk in one of two branches for 10, or in both for 10 and 1."""
    found = measure_portfolio(MEMBERS, finite_spec(PROBLEM), n_episodes=4000, seed=0)
    np.testing.assert_allclose(found.costs, [0, 0.5, 1], atol=0.035)  # 4 standard errors
    np.testing.assert_allclose(found.rewards, [0, 5, 5.5], atol=0.35)
    assert found.policies == MEMBERS.policies


def test_members_are_played_by_themselves_under_the_chances_of_an_evaluation():
    found = play_members(MEMBERS, finite_spec(PROBLEM), n_episodes=50, seed=3)
    assert found.costs.shape == found.rewards.shape == (3, 50)
    assert found.gamma == PROBLEM.model.gamma
    first = evaluate(DIAL, finite_spec(PROBLEM), budgets=[0.0], n_episodes=50, seed=3)
    assert found.costs[0].mean() == first.discounted_cost_mean[0]  # it tosses no coin
    swapped = replace(MEMBERS, which=[0, 0, 0], budgets=[2.0, 1.0, 0.0])
    again = play_members(swapped, finite_spec(PROBLEM), n_episodes=50, seed=3)
    np.testing.assert_array_equal(again.costs[::-1], found.costs)


def test_progress_counts_episodes_of_all_policies():
    other = price_dial(PROBLEM.model, (1.0, 0.0))
    two = Portfolio((DIAL, other), np.array([0, 1]), np.zeros(2), np.zeros(2), np.arange(2.0))
    told = []
    measure_portfolio(
        two, finite_spec(PROBLEM), n_episodes=30, seed=0, progress=lambda *now: told.append(now)
    )
    assert told == [(30, 60), (60, 60)]


def test_the_largest_deviation_is_the_worst_of_ten_groups():
    how = {"n_episodes": 400, "seed": 0}
    mean, worst = (
        measure_portfolio(MEMBERS, finite_spec(PROBLEM), by=by, **how)
        for by in ("mean", "deviation")
    )
    assert worst.costs[[0, 2]].tolist() == [0, 1]
    assert 0.03 < worst.costs[1] - mean.costs[1] < 0.35  # of ten means with a deviation of 0.08
    np.testing.assert_array_equal(worst.rewards, mean.rewards)


def test_the_smallest_price_that_satisfies_the_budget_is_played_without_a_coin():
    portfolio = measure_portfolio(MEMBERS, finite_spec(PROBLEM), n_episodes=400, seed=0)
    line_search = Portfolio(
        *(
            getattr(portfolio, name)
            for name in ("policies", "which", "budgets", "costs", "rewards")
        ),
        mixes=False,
    )
    tracker = line_search.start([0] * 3, [0.0, 0.7, 1.0], np.random.default_rng(0))
    tracker.decide([0] * 3)
    good = int(np.flatnonzero(PROBLEM.model.reward.max(axis=1) == 10)[0])
    bad = int(np.flatnonzero(PROBLEM.model.reward.max(axis=1) == 1)[0])
    tracker.observe([0.0] * 3, [good, bad, bad], [False] * 3)
    actions = tracker.decide([good, bad, bad]).action
    assert PROBLEM.model.cost[[good, bad, bad], actions].tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_episodes": 0}, "n_episodes"),
        ({"n_episodes": 9, "by": "deviation"}, "n_episodes"),
        ({"by": "luck"}, "by must be one of"),
        ({"workers": 0}, "workers"),
    ],
)
def test_wrong_settings_are_refused(changes, message):
    how = {"n_episodes": 20, "seed": 0} | changes
    with pytest.raises(ConfigError, match=message):
        measure_portfolio(MEMBERS, finite_spec(PROBLEM), **how)
