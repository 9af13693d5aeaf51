import numpy as np
import pytest
from scipy import stats

from bmdp import BudgetStatus, ConfigError
from bmdp.policies import EpisodeCoin, EpsilonGreedy, HullPolicy, RandomBudgetedPolicy, TabularQ

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


COIN = EpisodeCoin(always(1), always(2), cheap_cost=0.2, dear_cost=1.0)


@pytest.mark.parametrize(
    ("beta", "p_dear", "status"),
    [
        (0.0, 0.0, BudgetStatus.INFEASIBLE),
        (0.2, 0.0, BudgetStatus.TIGHT),
        (0.4, 0.25, BudgetStatus.TIGHT),
        (1.0, 1.0, BudgetStatus.SLACK),
        (7.0, 1.0, BudgetStatus.SLACK),
    ],
)
def test_the_coin_spends_the_budget_on_average(beta, p_dear, status):
    decision = COIN.start(STATES, beta, np.random.default_rng(0)).decide(STATES)
    assert stats.binomtest(int((decision.action == 2).sum()), N, p_dear).pvalue > 1e-3
    assert (decision.status == status).all()


def test_the_coin_is_tossed_once_per_episode():
    tracker = COIN.start(STATES, 0.6, np.random.default_rng(0))
    first = tracker.decide(STATES).action
    for _ in range(3):
        tracker.observe(0.0, STATES, False)
        assert (tracker.decide(STATES).action == first).all()


def test_moving_the_dial_tosses_the_coin_again():
    tracker = COIN.start(STATES, 0.6, np.random.default_rng(0))
    first = tracker.decide(STATES).action == 2
    tracker.observe(0.0, STATES, False)
    tracker.set_budget(0.6)
    second = tracker.decide(STATES).action == 2
    assert stats.binomtest(int((first & second).sum()), N, 0.25).pvalue > 1e-3


def test_ended_episodes_are_not_started_again_by_a_new_toss():
    tracker = COIN.start(STATES, 0.6, np.random.default_rng(0))
    tracker.decide(STATES)
    tracker.observe(0.0, STATES, np.arange(N) % 2 == 0)
    tracker.set_budget(1.0)
    assert (tracker.decide(STATES).action == np.where(np.arange(N) % 2 == 0, 0, 2)).all()


def test_each_policy_is_played_at_the_budget_it_is_said_to_cost():
    q_c = np.array([[[0.0, 0.0, 0.2], [1.0, 1.0, 1.0]]])
    q_r = np.array([[[0.0, 0.0, 1.0], [4.0, 4.0, 4.0]]])
    hull = HullPolicy(TabularQ(q_r, q_c), GRID)
    tracker = EpisodeCoin(hull, hull, 0.2, 1.0).start(STATES, 0.6, np.random.default_rng(0))
    decision = tracker.decide(STATES)
    assert set(zip(decision.action.tolist(), decision.next_budget.tolist(), strict=True)) == {
        (0, 1.0),  # cheap: the vertex of cost 0.2
        (1, 0.0),  # dear: the vertex of cost 1
    }


@pytest.mark.parametrize("costs", [(1.0, 1.0), (0.5, 0.2), (0.0, np.inf), (np.nan, 1.0)])
def test_the_dear_policy_must_cost_more(costs):
    with pytest.raises(ConfigError, match="cheap_cost must be below dear_cost"):
        EpisodeCoin(always(0), always(1), *costs)
