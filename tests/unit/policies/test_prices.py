"""Policies of prices, on problems that are solved by hand."""

import numpy as np
import pytest
import torch

import bmdp
from bmdp import BudgetStatus, ConfigError, PolicyError
from bmdp.exact.price_dial import price_dial
from bmdp.exact.textbook import branches, ladder
from bmdp.policies import HullPolicy, MultiplierPolicy, PriceDial, PricedPolicy, TabularQ
from bmdp.policies.prices import best_actions
from problems import finite_spec

RNG = np.random.default_rng
PROBLEM = branches()
DIAL = price_dial(PROBLEM.model, (np.inf, 20.0, 5.0, 0.5, 0.0))


# One price


@pytest.mark.parametrize(("price", "action"), [(0.0, 1), (0.5, 1), (2.0, 0), (np.inf, 0)])
def test_a_price_decides_and_the_budget_is_handed_on_as_it_is(price, action):
    """The second action earns 1 and costs 1."""
    q = TabularQ([[[0.0], [1.0]]], [[[0.0], [1.0]]])
    decision = PricedPolicy(q, price).decide(np.zeros(5, int), 0.25, RNG(0))
    assert (decision.action == action).all()
    assert (decision.next_budget == 0.25).all()
    assert (decision.status == BudgetStatus.SLACK).all()


# Actions that must not be played


PRICES = np.array([np.inf, 5.0, 1.0, 0.0])


def barred_values(seed, n_heads, dtype=np.float64):
    """Q-values of 60 states and four actions, and which of these are barred `[N, A]`."""
    rng = RNG(seed)
    q_r, q_c = rng.normal(size=(2, 60, 4, n_heads)).astype(dtype)
    is_barred = rng.random((60, 4)) < 0.5
    is_barred[:, 0] &= ~is_barred.all(axis=1)
    is_barred[0] = [True, True, False, True]
    q_r[is_barred], q_c[is_barred] = -np.inf, np.inf
    return q_r, q_c, is_barred


@pytest.mark.parametrize("tolerance", [0.0, 0.5, 100.0])
def test_no_price_plays_a_barred_action(tolerance):
    q_r, q_c, is_barred = barred_values(0, 4)
    dial = PriceDial(lambda states: (q_r[states], q_c[states]), PRICES, tolerance)
    states, numbers = np.arange(60), np.linspace(0, 3, 13)
    options = dial.options_at(states, numbers)
    assert not is_barred[states[:, None, None], options.action].any()
    for number in numbers:
        assert not is_barred[states, dial.decide(states, number, RNG(0)).action].any()
    points = dial.points(states)
    assert np.isfinite([points.costs, points.rewards]).all()
    assert all(np.isfinite(dial.frontier(state).rewards).all() for state in states)


@pytest.mark.parametrize("price", PRICES)
def test_one_price_plays_no_barred_action_whatever_the_budget(price):
    q_r, q_c, is_barred = barred_values(1, 1)
    policy, states = PricedPolicy(lambda s: (q_r[s], q_c[s]), price), np.arange(60)
    for budget in (0.0, 0.5, 1.0, 7.0):
        assert not is_barred[states, policy.decide(states, budget, RNG(0)).action].any()
    options = policy.options_at(states, np.linspace(0, 1, 5))
    assert not is_barred[states[:, None, None], options.action].any()


def test_a_carried_price_plays_no_barred_action():
    q_r, q_c, is_barred = barred_values(2, 4)
    dial = PriceDial(lambda states: (q_r[states], q_c[states]), PRICES)
    states = np.tile(np.arange(60), 20)
    budgets = np.repeat(np.linspace(-3, 3, 20), 60)
    tracker = MultiplierPolicy(dial, -3.0, 3.0).start(states, budgets, RNG(0))
    for _ in range(3):
        decision = tracker.decide(states)
        assert not is_barred[states, decision.action].any()
        assert np.isfinite(decision.next_budget).all()
        tracker.observe(0.0, states, False)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tolerance", [0.0, 0.5])
def test_tensors_are_treated_as_arrays_are(dtype, tolerance):
    q_r, q_c, _ = barred_values(3, 4, dtype)
    prices = PRICES.astype(dtype)
    found = best_actions(*map(torch.tensor, (q_r, q_c, prices)), tolerance)
    np.testing.assert_array_equal(found.numpy(), best_actions(q_r, q_c, prices, tolerance))


def test_an_infinite_price_takes_the_best_paid_of_what_costs_the_least():
    q_r, q_c = np.array([[[1.0], [2.0], [3.0]]]), np.array([[[0.0], [0.1], [0.5]]])
    actions = [
        int(best_actions(q_r, q_c, np.array([np.inf]), tolerance)[0, 0])
        for tolerance in (0.0, 0.05, 0.2, 0.5)
    ]
    assert actions == [0, 0, 1, 2]


# A dial of prices


def branch_states():
    """Where the risk pays 10, and where it pays 1."""
    best = PROBLEM.model.reward.max(axis=1)
    return int(np.flatnonzero(best == 10)[0]), int(np.flatnonzero(best == 1)[0])


def test_a_price_is_played_by_its_number():
    model, start = PROBLEM.model, PROBLEM.start
    good, _ = branch_states()
    numbers = np.array([0.0, 1.0, 2.0, 2.4, 3.9])
    decision = DIAL.decide(np.full(5, good), numbers, RNG(0))
    assert model.cost[good, decision.action].tolist() == [0.0, 0.0, 1.0, 1.0, 1.0]
    assert decision.next_budget.tolist() == numbers.tolist()
    options = DIAL.options_at(np.array([start, good]), numbers)
    assert options.action[1, :, 0].tolist() == decision.action.tolist()
    assert (options.next_budget[..., 0] == numbers).all()
    assert (options.probability == 1).all()
    each = DIAL.options(np.full(5, good), numbers)
    assert each.action[:, 0].tolist() == decision.action.tolist()


@pytest.mark.parametrize("prices", [[0.0, 1.0], [1.0, 1.0], [-1.0], [], [np.nan]])
def test_prices_must_fall(prices):
    with pytest.raises(ConfigError, match="fall strictly"):
        PriceDial(DIAL.q_function, np.array(prices))


def test_a_tolerance_is_not_negative():
    with pytest.raises(ConfigError, match=r"PriceDial\.tolerance must be from 0 on"):
        PriceDial(DIAL.q_function, DIAL.prices, -0.1)


# A price that is carried


def played(policy, budget, n_episodes=4000):
    """Mean reward and cost, and the standard error of rewards."""
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
    found = MultiplierPolicy(DIAL, high=0.25).mixtures(
        DIAL.points(np.full(3, PROBLEM.start)), np.array([0.0, 0.25, 1.0])
    )
    assert found.cost.tolist() == [0.0, 0.25, 0.25]
    assert found.reward.tolist() == [0.0, 2.5, 2.5]


def test_the_budget_left_is_what_the_price_costs_from_the_next_state():
    policy = MultiplierPolicy(DIAL)
    n = 6
    tracker = policy.start(np.full(n, PROBLEM.start), 0.5, RNG(0))
    tracker.decide(np.full(n, PROBLEM.start))
    good, bad = branch_states()
    following = np.array([good, bad] * (n // 2))
    tracker.observe(np.zeros(n), following, np.zeros(n, bool))
    assert tracker.budgets.tolist() == [1.0, 0.0] * (n // 2)
    second = tracker.decide(following)
    costs = PROBLEM.model.cost[following, second.action]
    assert costs.tolist() == [1.0, 0.0] * (n // 2)


def test_moving_the_dial_chooses_a_price_by_the_state_there():
    n = 2000
    good, bad = branch_states()
    tracker = MultiplierPolicy(DIAL).start(np.full(n, PROBLEM.start), 0.0, RNG(0))
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
    decision = policy.start([0, 0], [0.1, 9.5], RNG(0)).decide([0, 0])
    assert decision.status.tolist() == [BudgetStatus.INFEASIBLE, BudgetStatus.SLACK]


def test_values_of_each_step_are_followed_by_step():
    other = price_dial(PROBLEM.model, (np.inf, 30.0, 2.0, 1.0, 0.0))
    tables = zip(*((one.q_function.q_r, one.q_function.q_c) for one in (DIAL, other)), strict=True)
    dial = PriceDial(TabularQ(*map(np.stack, tables)), DIAL.prices)
    good, _ = branch_states()
    tracker = MultiplierPolicy(dial).start([PROBLEM.start], 0.5, RNG(0))
    tracker.decide([PROBLEM.start])
    tracker.observe([0.0], [good], [False])
    decision = tracker.decide([good])
    assert PROBLEM.model.cost[good, decision.action[0]] == 1.0


def test_they_have_the_episode_form_only():
    with pytest.raises(PolicyError, match=r"carries a price .* episode form only"):
        MultiplierPolicy(DIAL).act(0, 0.5, RNG(0))


def test_wrong_settings_are_refused():
    with pytest.raises(ConfigError, match="two rising numbers"):
        MultiplierPolicy(DIAL, 1.0, 0.0)
    with pytest.raises(ConfigError, match="must be a PriceDial"):
        MultiplierPolicy(HullPolicy(DIAL.q_function, np.arange(5.0)))
