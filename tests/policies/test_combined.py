import numpy as np
import pytest
from scipy import stats

from bmdp import ConfigError
from bmdp.policies import EpsilonGreedy, HullPolicy, RandomBudgetedPolicy, TabularQ

N = 20_000
GRID = np.array([0.0, 0.5, 1.0])


def always(action):
    """A policy that plays one action, whatever the state, and always hands on 0.5."""
    q_r = np.zeros((1, 3, 3))
    q_r[0, action, 1] = 1
    return HullPolicy(TabularQ(q_r, np.zeros((1, 3, 3))), GRID)


STATES = np.zeros(N, int)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_the_explorer_decides_as_often_as_epsilon_says(epsilon):
    policy = EpsilonGreedy(always(0), always(2), epsilon)
    action = policy.decide(STATES, 0.5, np.random.default_rng(0)).action
    assert stats.binomtest(int((action == 2).sum()), N, epsilon).pvalue > 1e-3


def test_epsilon_greedy_explores_anew_at_every_step():
    tracker = EpsilonGreedy(always(0), always(2), 0.5).start(STATES, 0.5, np.random.default_rng(0))
    first = tracker.decide(STATES).action == 2
    tracker.observe(0.0, STATES, False)
    second = tracker.decide(STATES).action == 2
    assert stats.binomtest(int((first & second).sum()), N, 0.25).pvalue > 1e-3


def test_both_parts_must_have_the_same_budgets():
    with pytest.raises(ConfigError, match="explorer must have the budget_range of greedy"):
        EpsilonGreedy(always(0), RandomBudgetedPolicy(3, 0.0, 2.0), 0.1)


@pytest.mark.parametrize("epsilon", [-0.1, 1.1, np.nan])
def test_epsilon_must_be_a_probability(epsilon):
    with pytest.raises(ConfigError, match="epsilon must be from 0 to 1"):
        EpsilonGreedy(always(0), always(1), epsilon)
