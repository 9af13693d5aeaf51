"""No policy plays an action that is not available."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bmdp import BudgetStatus, DataError, EpisodeStreams, PolicyError
from bmdp.envs import ScriptedPolicy
from bmdp.models import TableModel
from bmdp.models.actor import ActorModel, SampledActor
from bmdp.models.regressor import LearnedQ, MeanQ, Sizes
from bmdp.policies import (
    CalibratedPolicy,
    Certificate,
    ExploringPolicy,
    HullPolicy,
    HullRule,
    MultiplierPolicy,
    Portfolio,
    PriceDial,
    PricedPolicy,
    RandomBudgetedPolicy,
    TabularQ,
    UniformPolicy,
)
from bmdp.policies.policy import Decision, OneStepPolicy, masked_values

A, GRID, PRICES = 4, np.linspace(0, 1, 5), (np.inf, 2.0, 0.5, 0.0)


def table(seed=0, steps=(), n_heads=5):
    q_r, q_c = np.random.default_rng(seed).random((2, *steps, 7, A, n_heads))
    return TabularQ(q_r=q_r, q_c=q_c)


def actor(seed=0):
    heads = tuple(map(float, range(len(PRICES))))
    model = ActorModel().empty(Sizes(1, 1, A, 1, heads))
    model.start(torch.Generator().manual_seed(seed))
    with torch.no_grad():
        model.actor.last.copy_(30 * model.actor.last)
    return LearnedQ(model, np.ones(1, bool), np.ones(A, bool), 1.0, 1.0)


def on_numbers(q):
    """Of states that are numbers, `[N]`: learned values take `[N, 1]`."""
    return lambda states: q(np.asarray(states, float)[:, None])


def forgetful(states):
    """Values by which actions 0 and 1 must not be played."""
    q_r, q_c = table(5)(states)
    q_r[:, :2], q_c[:, :2] = -np.inf, np.inf
    return q_r, q_c


HULL, STEPS = HullPolicy(table(), GRID), HullPolicy(table(1, (3,)), GRID)
DIAL = PriceDial(table(2, n_heads=4), PRICES, 0.1)
UNIFORM, RANDOM = UniformPolicy(A, 0.0, 1.0), RandomBudgetedPolicy(A, 0.0, 1.0)
COIN = Portfolio(
    (HULL, STEPS, RANDOM), [0, 1, 2], [0.1, 0.5, 1.0], [0.1, 0.5, 1.0], [1.0, 2.0, 3.0]
)
CERTIFICATE = Certificate(0.9, 10, 3, "Any-v0", "{}", 1.0, (0.0, 1.0), False, *[COIN.costs] * 4)
ONE_STEP = {
    "hull": HULL,
    "hull, capped": HullPolicy(
        table(), GRID, HullRule.of(*table()(np.arange(7)), 3.0, costs_from_zero=True)
    ),
    "hull, barred": HullPolicy(forgetful, GRID),
    "dial": DIAL,
    "price": PricedPolicy(table(n_heads=1), 0.7),
    "infinite price": PricedPolicy(table(n_heads=1), np.inf),
    "dial, barred": PriceDial(lambda s: tuple(q[..., :4] for q in forgetful(s)), PRICES),
    "actor": PriceDial(on_numbers(actor()), PRICES),
    "sampled actor": SampledActor(actor()),
    "uniform": UNIFORM,
    "random": RANDOM,
    "random, saving": RandomBudgetedPolicy(A, 0.0, 1.0, "at_most"),
}
EPISODES = {
    **ONE_STEP,
    "by steps": STEPS,
    "carried price": MultiplierPolicy(DIAL, 0.0, 1.0),
    "portfolio": COIN,
    "calibrated": CalibratedPolicy(COIN, CERTIFICATE),
    "exploring": ExploringPolicy(HULL, RANDOM, decay=0.01, floor=0.5, hold=4, move=0.2),
    "random walk": ExploringPolicy(UNIFORM, UNIFORM, decay=0.0, hold=16),
}


def shaped(name, states):
    return states[:, None] if name == "sampled actor" else states


@st.composite
def situations(draw):
    n = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    mask = rng.random((5, n, A)) < draw(st.sampled_from([0.1, 0.5, 0.9]))
    mask |= (mask.sum(axis=2) == 0)[:, :, None] & (np.arange(A) == rng.integers(A, size=(5, n, 1)))
    return rng.integers(7, size=(5, n)), mask, rng


@pytest.mark.parametrize("name", ONE_STEP)
@settings(max_examples=50, deadline=None)
@given(situation=situations())
def test_decisions_are_among_available_actions(name, situation):
    policy, (states, mask, rng) = ONE_STEP[name], situation
    states, mask = shaped(name, states[0]), mask[0]
    rows = np.arange(len(states))
    low, high = policy.budget_range
    budgets = low + (high - low) * rng.random(len(states))
    found = policy.decide(states, budgets, rng, available=mask)
    assert mask[rows, found.action].all()
    assert (found.next_budget >= low).all()
    assert (found.next_budget <= high).all()
    one = policy.act(states[0], float(budgets[0]), rng, available=mask[0])
    assert mask[0, one.action]
    if hasattr(policy, "options"):
        for options in (
            policy.options(states, budgets, mask),
            policy.options_at(states, budgets, mask),
        ):
            there = mask[
                np.arange(len(states)).reshape(-1, *[1] * (options.action.ndim - 1)), options.action
            ]
            assert (there | (options.probability == 0)).all()


@pytest.mark.parametrize("name", EPISODES)
@settings(max_examples=50, deadline=None)
@given(situation=situations())
def test_episodes_are_played_by_available_actions(name, situation):
    policy, (states, mask, rng) = EPISODES[name], situation
    n = states.shape[1]
    low, high = policy.budget_range
    tracker = policy.start(shaped(name, states[0]), low + (high - low) * rng.random(n), rng)
    ended = np.zeros(n, bool)
    for step in range(5):
        given = np.where(ended[:, None], False, mask[step])  # of ended ones nothing need be said
        found = tracker.decide(shaped(name, states[step]), given)
        assert mask[step][np.arange(n), found.action][~ended].all()
        ended = ended | (rng.random(n) < 0.2)
        after = min(step + 1, 4)
        tracker.observe(np.zeros(n), shaped(name, states[after]), ended, mask[after])
        assert tracker.budgets.shape == (n,)
        if step == 2:
            tracker.set_budget(high)


@pytest.mark.parametrize("name", EPISODES)
def test_a_mask_of_all_actions_changes_nothing(name):
    policy, states = EPISODES[name], shaped(name, np.arange(7))
    budgets = np.linspace(*policy.budget_range, 7)
    every, streams = np.ones((7, A), bool), EpisodeStreams.named(0, "masks", range(7))
    trackers = [policy.start(states, budgets, streams) for _ in range(2)]
    for _ in range(4):
        plain, told = trackers[0].decide(states), trackers[1].decide(states, every)
        for one, two in zip(plain, told, strict=True):
            np.testing.assert_array_equal(one, two)
        trackers[0].observe(0.0, states, False)
        trackers[1].observe(0.0, states, False, every)
        np.testing.assert_array_equal(trackers[0].budgets, trackers[1].budgets)


@pytest.mark.parametrize("name", ["uniform", "random", "random, saving"])
def test_chance_is_fair_among_available_actions(name):
    mask = np.tile([True, False, True, True], (30_000, 1))
    found = ONE_STEP[name].decide(np.zeros(30_000), 0.5, np.random.default_rng(0), mask)
    np.testing.assert_allclose(
        np.bincount(found.action) / 30_000, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.02
    )


@pytest.mark.parametrize("spend", ["all", "at_most"])
def test_among_some_actions_it_is_the_random_policy_of_these(spend):
    mask = np.tile([True, False, False, True], (30_000, 1))
    some = RandomBudgetedPolicy(A, 0.0, 1.0, spend).decide(
        np.zeros(30_000), 0.4, np.random.default_rng(0), mask
    )
    alone = RandomBudgetedPolicy(2, 0.0, 1.0, spend).decide(
        np.zeros(30_000), 0.4, np.random.default_rng(1)
    )
    levels = np.linspace(0.05, 0.95, 10)
    np.testing.assert_allclose(
        np.quantile(some.next_budget, levels), np.quantile(alone.next_budget, levels), atol=0.02
    )


def test_rounding_does_not_lead_to_an_action_that_is_not_there():
    n, mask = 10_000, np.array([True, True, False, False])
    uniforms = np.random.default_rng(0).random((n, RANDOM.n_draws))
    uniforms[:, -1] = np.nextafter(1, 0)
    budgets = np.linspace(0, 1, n)
    sums = RANDOM.distributions(budgets, uniforms, np.tile(mask, (n, 1)))[0].sum(axis=1)
    assert (sums < 1).any()
    found = RANDOM.choose(np.zeros(n), budgets, uniforms, np.tile(mask, (n, 1)))
    assert mask[found.action].all()


def test_the_best_of_the_available_actions_is_taken():
    q = TabularQ([[[0.0], [5.0], [9.0]]], [[[0.0], [1.0], [2.0]]])
    rng = np.random.default_rng(0)
    for mask, price, best in (([1, 1, 0], 0.0, 1), ([1, 0, 1], 0.0, 2), ([0, 1, 1], 9.0, 1)):
        assert PricedPolicy(q, price).act(0, 0.0, rng, available=mask).action == best
    hull = HullPolicy(TabularQ(q.q_r[..., [0, 0]], q.q_c[..., [0, 0]]), [0.0, 2.0])
    found = hull.options(np.array([0]), np.array([0.5]), np.array([[True, False, True]]))
    assert found.action.tolist() == [[0, 2]]
    assert found.probability.tolist() == [[0.75, 0.25]]
    poor = hull.decide([0], [0.5], rng, [[False, True, True]])
    assert (poor.action[0], poor.status[0]) == (1, BudgetStatus.INFEASIBLE)


def test_a_frontier_is_that_of_the_available_actions():
    q = TabularQ([[[0.0], [5.0], [9.0]]], [[[0.0], [1.0], [2.0]]])
    dial = PriceDial(q, [0.0])
    assert dial.frontier(0).costs.tolist() == [2.0]
    assert dial.frontier(0, available=[1, 1, 0]).costs.tolist() == [1.0]
    assert MultiplierPolicy(dial).frontier(0, available=[1, 0, 0]).rewards.tolist() == [0.0]
    assert HullPolicy(q, [0.0]).frontier(0, available=[1, 0, 1]).costs.tolist() == [0.0, 2.0]
    with pytest.raises(DataError, match=r"available must have an action"):
        dial.frontier(0, available=[0, 0, 0])


def test_where_no_known_action_is_available_those_that_are_may_be_played():
    sizes = Sizes(1, 1, A, 1, (0.0,))
    q = LearnedQ(
        TableModel().empty(sizes), np.ones(1, bool), np.array([1, 1, 0, 0], bool), 1.0, 1.0
    )
    mask = np.array([[False, False, True, True], [False, True, True, False]])
    for function in (q, MeanQ((q, q))):
        q_r, q_c = function(np.zeros((2, 1)), available=mask)
        expected = [[False, False, True, True], [False, True, False, False]]
        assert np.isfinite(q_r[..., 0]).tolist() == expected
        assert np.isfinite(q_c[..., 0]).tolist() == expected
    worth, _ = masked_values(*forgetful(np.array([0])), np.array([[True, True, False, False]]))
    assert np.isfinite(worth[0, :, 0]).tolist() == [True, True, False, False]


def test_the_likeliest_available_action_is_worth_what_the_critic_says():
    q, states = actor(), np.linspace(-1, 1, 20)[:, None]
    plain, cost = q(states)
    best = plain.argmax(axis=1)[:, 0]
    mask = np.arange(A) != best[:, None]
    q_r, q_c = q(states, available=mask)
    np.testing.assert_allclose(q_r[..., 0].max(axis=1), plain[..., 0].max(axis=1), atol=1e-6)
    np.testing.assert_array_equal(q_c[:, :, 0][mask], cost[:, :, 0][mask])


def test_an_action_that_is_held_is_let_go_where_it_is_not_available():
    policy, n = ExploringPolicy(UNIFORM, UNIFORM, decay=0.0, hold=1000), 200
    tracker = policy.start(np.zeros(n), 0.5, np.random.default_rng(0))
    every, rows = np.ones((n, A), bool), np.arange(n)
    first = tracker.decide(np.zeros(n), every).action
    tracker.observe(0.0, np.zeros(n), False)
    mask = every.copy()
    mask[rows[:100], first[:100]] = False
    second = tracker.decide(np.zeros(n), mask).action
    assert (second[:100] != first[:100]).all()
    assert (second[100:] == first[100:]).mean() > 0.95
    tracker.observe(0.0, np.zeros(n), False)
    third = tracker.decide(np.zeros(n), every).action
    assert (third[:100] == second[:100]).mean() > 0.95


class Stubborn(OneStepPolicy):
    """Plays the first action, and takes no masks."""

    budget_range, n_draws = (0.0, 1.0), 0

    def choose(self, states, budgets, uniforms):
        status = np.full(len(budgets), BudgetStatus.SLACK)
        return Decision(np.zeros(len(budgets), int), budgets, status)

    def options(self, states, budgets):
        raise AssertionError


@pytest.mark.parametrize(
    "policy", [Stubborn(), ScriptedPolicy("corridors/risky")], ids=lambda p: type(p).__name__
)
def test_a_policy_that_takes_no_masks_refuses_them(policy):
    states, mask, rng = np.zeros((2, 2)), np.ones((2, 5), bool), np.random.default_rng(0)
    refusal = pytest.raises(PolicyError, match="cannot be told which actions are available")
    with refusal:
        policy.decide(states, 0.5, rng, mask)
    with refusal:
        policy.act(states[0], 0.5, rng, mask[0])
    with refusal:
        policy.start(states, 0.5, rng).decide(states, mask)
    with refusal:
        Portfolio.coin(policy, policy, 0.2, 1.0).start(states, 0.5, rng).decide(states, mask)
    policy.decide(states, 0.5, rng)


def test_options_of_a_policy_that_takes_no_masks_are_refused():
    with pytest.raises(PolicyError, match="Stubborn cannot be told"):
        Stubborn().options_at(np.zeros(2), np.zeros(1), np.ones((2, A), bool))


@pytest.mark.parametrize("name", EPISODES)
def test_a_row_without_an_action_is_an_error(name):
    policy, states = EPISODES[name], shaped(name, np.zeros(3, int))
    mask = np.ones((3, A), bool)
    mask[1] = False
    rng = np.random.default_rng(0)
    message = r"available must have an action in every row; got none at \[1\]"
    with pytest.raises(DataError, match=message):
        policy.start(states, policy.budget_range[1], rng).decide(states, mask)
    if name in ONE_STEP:
        with pytest.raises(DataError, match=message):
            policy.decide(states, policy.budget_range[1], rng, mask)


@pytest.mark.parametrize("name", EPISODES)
@pytest.mark.parametrize("shape", [(3, A + 1), (2, A), (3,)])
def test_a_mask_of_another_shape_is_an_error(name, shape):
    policy, states = EPISODES[name], shaped(name, np.zeros(3, int))
    tracker = policy.start(states, policy.budget_range[1], np.random.default_rng(0))
    with pytest.raises(DataError, match="available must have shape"):
        tracker.decide(states, np.ones(shape, bool))


def test_a_mask_is_of_truth_values():
    with pytest.raises(DataError, match="available must be True or False"):
        HULL.decide([0], 0.5, np.random.default_rng(0), [[0, 1, 2, 1]])
