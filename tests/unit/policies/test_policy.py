"""What all policies share: budgets, options at many budgets, and steps that are counted."""

import numpy as np
import pytest

import bmdp
from bmdp import ConfigError, EpisodeStreams, PolicyError
from bmdp.policies import HullPolicy, HullRule, PriceDial, PricedPolicy, TabularQ
from bmdp.policies.prices import MultiplierPolicy
from bmdp.policies.random import RandomBudgetedPolicy

GRID = np.linspace(0, 1, 5)
BUDGETS = np.concatenate((np.linspace(0, 1, 23), GRID))
STATES = np.arange(40)
RNG = np.random.default_rng


# A limit on what an episode costs, as a budget


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


# What a policy may do at many budgets at once is what it may do at each of them


def table(seed, dtype=np.float64, n_heads=5):
    """Q-values of 40 states, some of whose cheapest points cost more than nothing."""
    q = RNG(seed).random((2, 40, 3, n_heads)) * [[[[0.8]]], [[[1.1]]]] + 0.05
    return TabularQ(*q.astype(dtype))


CAPPED = HullRule(slope=[2.0], slack=[0.05])
POLICIES = {
    "hull": HullPolicy(table(0), GRID),
    "single precision": HullPolicy(table(1, np.float32), GRID),
    "capped": HullPolicy(table(2), GRID, CAPPED),
    "capped, single precision": HullPolicy(table(3, np.float32), GRID, CAPPED),
    "dial": PriceDial(table(4, n_heads=2), [3.0, 0.0]),
    "priced": PricedPolicy(table(5, n_heads=1), 0.7),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_all_budgets_at_once_are_as_one_after_the_other(policy):
    together = policy.options_at(STATES, BUDGETS)
    for place, budget in enumerate(BUDGETS):
        alone = policy.options(STATES, np.full(len(STATES), budget))
        for one, every in zip(alone, together, strict=True):
            np.testing.assert_array_equal(every[:, place], one)
    np.testing.assert_allclose(together.probability.sum(axis=-1), 1, rtol=1e-6)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_what_is_decided_is_one_of_the_options(policy):
    states = np.repeat(STATES, 10)
    budgets = RNG(1).random(len(states)) * policy.budget_range[1]
    decision, options = policy.decide(states, budgets, RNG(2)), policy.options(states, budgets)
    is_it = (options.action == decision.action[:, None]) & (
        options.next_budget == decision.next_budget[:, None]
    )
    assert (options.probability * is_it).max(axis=1).min() > 0


def test_a_policy_that_does_not_say_what_it_may_do_is_refused():
    with pytest.raises(PolicyError, match="RandomBudgetedPolicy does not say with which"):
        RandomBudgetedPolicy(3, 0.0, 1.0).options_at(STATES, BUDGETS)


# Steps


def clock(n_heads):
    """Tables of one state and three steps: action t is the best one at step t."""
    q_r, q_c = np.zeros((2, 3, 1, 4, n_heads))
    q_r[[0, 1, 2], 0, [0, 1, 2]] = 1.0
    return TabularQ(q_r, q_c)


CLOCKS = {
    "hull": HullPolicy(clock(2), [0.0, 1.0]),
    "dial": PriceDial(clock(2), [1.0, 0.0]),
    "priced": PricedPolicy(clock(1), 0.5),
}
EACH_CLOCK = pytest.mark.parametrize("policy", CLOCKS.values(), ids=CLOCKS.keys())
ONE, HALF = np.zeros(1, int), np.array([0.5])


def played(tracker, n_steps):
    """Actions of one episode."""
    actions = []
    for _ in range(n_steps):
        actions.append(int(tracker.decide(ONE).action[0]))
        tracker.observe(0.0, ONE, False)
    return actions


@EACH_CLOCK
def test_each_step_has_its_tables_and_the_last_ones_go_on(policy):
    assert policy.n_steps == 3
    assert played(policy.start(ONE, HALF, RNG(0)), 6) == [0, 1, 2, 2, 2, 2]


def test_the_price_that_is_carried_has_the_values_of_each_step():
    policy = MultiplierPolicy(CLOCKS["dial"])
    assert played(policy.start(ONE, HALF, RNG(0)), 5) == [0, 1, 2, 2, 2]


@EACH_CLOCK
@pytest.mark.parametrize(("begin", "seen"), [(1, [1, 2, 2]), (7, [2, 2, 2])])
def test_an_episode_that_begins_in_the_middle_has_the_tables_of_its_steps(policy, begin, seen):
    tracker = policy.start(ONE, HALF, RNG(0))
    tracker.begin_at(begin)
    assert played(tracker, 3) == seen


FORMS = {
    "act": lambda policy: policy.act(0, 0.5, RNG(0)),
    "decide": lambda policy: policy.decide(ONE, HALF, RNG(0)),
    "options": lambda policy: policy.options(ONE, HALF),
    "options_at": lambda policy: policy.options_at(ONE, HALF),
}
EACH_FORM = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())


@EACH_CLOCK
@EACH_FORM
def test_a_policy_that_counts_steps_does_not_act_without_one_and_says_how_to(policy, form):
    how = r"counts the steps of an episode, .*: use tracker = policy\.start\("
    with pytest.raises(PolicyError, match=f"{type(policy).__name__} {how}"):
        form(policy)


@EACH_CLOCK
@EACH_FORM
@pytest.mark.parametrize("step", range(5))
def test_the_policy_of_a_step_has_all_one_step_forms(policy, form, step):
    now = policy.at_step(step)
    assert now.n_steps == 1
    assert np.ravel(form(now).action)[0] == min(step, 2)
    assert now.budget_range == policy.budget_range


@EACH_CLOCK
def test_the_policy_of_a_step_is_that_of_its_step_whenever_it_is_asked(policy):
    now = policy.at_step(1)
    assert now.at_step(2).act(0, 0.5, RNG(0)).action == 1
    assert played(now.start(ONE, HALF, RNG(0)), 3) == [1, 1, 1]


def by_step(rewards):
    """Tables of one state: nothing, or a reward that differs from step to step for 1."""
    q_r, q_c = np.zeros((2, len(rewards), 1, 2, 2))
    q_r[:, 0, 1], q_c[:, 0, 1] = np.array(rewards)[:, None], 1.0
    return TabularQ(q_r, q_c)


FRONTIERS = {
    "hull": HullPolicy(by_step([5.0, 3.0]), [0.0, 1.0]),
    "dial": PriceDial(by_step([5.0, 3.0]), [9.0, 0.0]),
    "carried": MultiplierPolicy(PriceDial(by_step([5.0, 3.0]), [9.0, 0.0])),
}


@pytest.mark.parametrize("policy", FRONTIERS.values(), ids=FRONTIERS.keys())
def test_the_frontier_is_that_of_the_step_at_which_a_state_is_met(policy):
    assert policy.frontier(0).rewards.tolist() == [0.0, 5.0]
    assert policy.frontier(0, step=1).rewards.tolist() == [0.0, 3.0]
    assert policy.frontier(0, step=9).rewards.tolist() == [0.0, 3.0]  # as the last one


def test_steps_may_come_from_any_function():
    def q_function(states, step):
        return by_step([5.0, 3.0, 4.0])(states, step)

    q_function.n_steps = 3
    policy = HullPolicy(q_function, [0.0, 1.0])
    assert [policy.frontier(0, step).rewards[1] for step in range(5)] == [5.0, 3.0, 4.0, 4.0, 4.0]


def test_a_tracker_is_told_its_step_once_and_before_it_decides():
    tracker = RandomBudgetedPolicy(3, 0.0, 1.0).start(
        np.zeros(5), 0.5, EpisodeStreams.named(0, "test", range(5))
    )
    with pytest.raises(ConfigError, match="step must be a whole number from 0 on; got -1"):
        tracker.begin_at(-1)
    tracker.begin_at(3)
    tracker.decide(np.zeros(5))
    with pytest.raises(PolicyError, match="begin_at must be called once, before the first"):
        tracker.begin_at(4)
