"""Policies that carry a price, on problems that are solved by hand."""

import numpy as np
import pytest

import bmdp
from bmdp import BudgetStatus, ConfigError, PolicyError
from bmdp.exact.price_dial import price_dial
from bmdp.exact.textbook import branches, ladder
from bmdp.policies import HullPolicy, StagedPolicy, TabularQ
from bmdp.policies.prices import MultiplierPolicy
from bmdp.policies.prices import PriceDial
from evaluate.problems import finite_spec

PROBLEM = branches()
DIAL = price_dial(PROBLEM.model, (np.inf, 20.0, 5.0, 0.5, 0.0))


def played(policy, budget, n_episodes=4000):
    """Mean reward and cost, and their standard errors."""
    found = bmdp.evaluate(
        policy, finite_spec(PROBLEM), budgets=[budget], n_episodes=n_episodes, seed=0
    )
    half = (found.discounted_reward_high - found.discounted_reward_mean)[0] / 1.96
    return found.discounted_reward_mean[0], found.discounted_cost_mean[0], half


def test_a_carried_price_takes_risks_where_they_pay():
    """Two branches: risk at the good one alone earns 5 for 1/2; with equal budgets it is 2.75."""
    reward, cost, error = played(MultiplierPolicy(DIAL), 0.5)
    assert reward == pytest.approx(5.0, abs=4 * error)
    assert cost == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("budget", [0.0, 0.2, 0.5, 0.8, 1.0])
def test_a_coin_between_neighbours_spends_the_budget(budget):
    reward, cost, error = played(MultiplierPolicy(DIAL), budget)
    assert cost == pytest.approx(budget, abs=0.035)  # 4 standard errors
    assert reward == pytest.approx(PROBLEM.frontier.reward_at(budget), abs=4 * error + 1e-9)


def test_a_budget_above_the_range_is_taken_as_its_top():
    found = MultiplierPolicy(DIAL, high=0.25).mixtures_at(
        DIAL.points(np.full(3, PROBLEM.start)), np.array([0.0, 0.25, 1.0])
    )
    assert found.cost.tolist() == [0.0, 0.25, 0.25]
    assert found.reward.tolist() == [0.0, 2.5, 2.5]


def test_the_budget_left_is_what_the_price_costs_from_the_next_state():
    policy = MultiplierPolicy(DIAL)
    n = 6
    tracker = policy.start(np.full(n, PROBLEM.start), 0.5, np.random.default_rng(0))
    tracker.decide(np.full(n, PROBLEM.start))
    good, bad = branch_states()
    following = np.array([good, bad] * (n // 2))
    tracker.observe(np.zeros(n), following, np.zeros(n, bool))
    assert tracker.budgets.tolist() == [1.0, 0.0] * (n // 2)
    second = tracker.decide(following)
    costs = PROBLEM.model.cost[following, second.action]
    assert costs.tolist() == [1.0, 0.0] * (n // 2)


def branch_states():
    """Where the risk pays 10, and where it pays 1."""
    model = PROBLEM.model
    best = model.reward.max(axis=1)
    return int(np.flatnonzero(best == 10)[0]), int(np.flatnonzero(best == 1)[0])


def test_moving_the_dial_chooses_a_price_by_the_state_there():
    n = 2000
    good, bad = branch_states()
    tracker = MultiplierPolicy(DIAL).start(np.full(n, PROBLEM.start), 0.0, np.random.default_rng(0))
    tracker.decide(np.full(n, PROBLEM.start))
    following = np.where(np.arange(n) % 2 == 0, good, bad)
    tracker.observe(np.zeros(n), following, np.zeros(n, bool))
    tracker.set_budget(0.25)
    decision = tracker.decide(following)
    costs = PROBLEM.model.cost[following, decision.action]
    for branch in (good, bad):
        assert costs[following == branch].mean() == pytest.approx(0.25, abs=0.055)
    assert (decision.status == BudgetStatus.TIGHT).all()


def test_a_budget_out_of_reach_is_told():
    steps = ladder(3)
    q_c = price_dial(steps.model, (np.inf, 0.0)).q_function.q_c + 0.5
    dial = PriceDial(TabularQ(np.zeros_like(q_c), q_c), np.array([np.inf, 0.0]))
    policy = MultiplierPolicy(dial, 0.0, 9.0)
    decision = policy.start([0, 0], [0.1, 9.5], np.random.default_rng(0)).decide([0, 0])
    assert decision.status.tolist() == [BudgetStatus.INFEASIBLE, BudgetStatus.SLACK]


def test_a_price_is_played_by_its_number():
    model, start = PROBLEM.model, PROBLEM.start
    good, _ = branch_states()
    numbers = np.array([0.0, 1.0, 2.0, 2.4, 3.9])
    decision = DIAL.decide(np.full(5, good), numbers, np.random.default_rng(0))
    assert model.cost[good, decision.action].tolist() == [0.0, 0.0, 1.0, 1.0, 1.0]
    assert decision.next_budget.tolist() == numbers.tolist()
    options = DIAL.options_at(np.array([start, good]), numbers)
    assert options.action[1, :, 0].tolist() == decision.action.tolist()
    assert (options.next_budget[..., 0] == numbers).all()
    assert (options.probability == 1).all()
    each = DIAL.options(np.full(5, good), numbers)
    assert each.action[:, 0].tolist() == decision.action.tolist()


def test_a_dial_for_each_step_is_followed_by_step():
    other = price_dial(PROBLEM.model, (np.inf, 30.0, 2.0, 1.0, 0.0))
    staged = MultiplierPolicy(StagedPolicy((DIAL, other)))
    good, _ = branch_states()
    tracker = staged.start([PROBLEM.start], 0.5, np.random.default_rng(0))
    tracker.decide([PROBLEM.start])
    tracker.observe([0.0], [good], [False])
    decision = tracker.decide([good])
    assert PROBLEM.model.cost[good, decision.action[0]] == 1.0


def test_they_have_the_episode_form_only():
    with pytest.raises(PolicyError, match="episode form only"):
        MultiplierPolicy(DIAL).act(0, 0.5, np.random.default_rng(0))


def test_wrong_settings_are_refused():
    with pytest.raises(ConfigError, match="two rising numbers"):
        MultiplierPolicy(DIAL, 1.0, 0.0)
    with pytest.raises(ConfigError, match="must be a PriceDial"):
        MultiplierPolicy(HullPolicy(DIAL.q_function, np.arange(5.0)))


@pytest.mark.parametrize("prices", [[0.0, 1.0], [1.0, 1.0], [-1.0], [], [np.nan]])
def test_prices_must_fall(prices):
    with pytest.raises(ConfigError, match="fall strictly"):
        PriceDial(DIAL.q_function, np.array(prices))
