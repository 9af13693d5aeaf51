"""Fitted evaluation: exact where it can be, near what is played, and not a learner's promise."""

from functools import cache

import numpy as np
import pytest
import torch

import bmdp
from batches import bandit, every_step, exhaustive_batch, fraction_model, seen_with
from bmdp import BFTQ, BFTQConfig, BudgetError, ConfigError, DataError, PolicyError, TransitionBatch
from bmdp.exact import budgeted_value_iteration, evaluate_policy
from bmdp.exact.textbook import forever
from bmdp.learn import EnvConfig, Exploration, Prediction, TrainingSpec, collect, explore
from bmdp.policies.exploring import ExploringPolicy
from bmdp.learn.evaluation import fitted_evaluation
from bmdp.models import KernelModel, LinearModel, TableModel
from bmdp.models.table import TableQ
from bmdp.policies import (
    HullPolicy,
    Portfolio,
    PricedPolicy,
    RandomBudgetedPolicy,
    StagedPolicy,
)

GRID = np.linspace(0, 2, 21)
EXACT = {"gamma": 0.9, "budgets": GRID, "model": TableModel(), "seed": 0, "n_budgets": 21}
NUMBERS = np.arange(4)


def any_table(seed):
    """Q-values of four states that no model has."""
    q_r, q_c = np.random.default_rng(seed).random((2, 4, 3, 21)) * [[[[1.0]]], [[[2.0]]]]
    return TableQ(NUMBERS, q_r, q_c)


def best_policy(model):
    found = budgeted_value_iteration(model, GRID, max_iterations=200)
    return HullPolicy(TableQ(NUMBERS, found.q_r, found.q_c), GRID)


def staged(n_steps):
    """Does something else at every step."""
    return StagedPolicy(tuple(HullPolicy(any_table(seed), GRID) for seed in range(n_steps)))


def with_columns(batch, **changes):
    """A batch with other columns; None takes one away."""
    columns = batch.to_arrays() | changes
    known = {name: values for name, values in columns.items() if values is not None}
    return TransitionBatch.from_arrays(known, n_actions=batch.n_actions)


def beginning_at(batch, state):
    """A batch whose episodes begin at one state."""
    return with_columns(batch, step=(batch.state[:, 0] != state).astype(int))


def assert_equal(prediction, values, rows):
    """Reward and cost are the means over the states of rows."""
    for found, of_states in zip((prediction.reward, prediction.cost), values, strict=True):
        np.testing.assert_allclose(found, of_states[rows].mean(axis=0), atol=1e-4)


# Against exact values


@pytest.mark.parametrize("state", range(3))
@pytest.mark.parametrize(
    "policy",
    [
        best_policy(fraction_model(1, 0.9)),
        HullPolicy(any_table(0), GRID),
    ],
    ids=["best", "any"],
)
def test_where_all_transitions_are_known_it_is_exact(policy, state):
    model = fraction_model(1, 0.9)
    batch = beginning_at(exhaustive_batch(model, parts=4, n_copies=1), state)
    found = fitted_evaluation(policy, batch, **EXACT, iterations=300)
    assert_equal(found, evaluate_policy(model, policy, GRID), [state])
    assert (found.n_episodes, found.n_transitions) == (len(batch.starts()), len(batch))


@pytest.mark.parametrize("horizon", [1, 2, 5])
def test_a_policy_that_counts_steps_is_evaluated_step_by_step(horizon):
    model, policy = fraction_model(2, 0.9, horizon=horizon, cost_gamma=0.6), staged(horizon)
    batch = every_step(model, horizon)
    batch = batch.take(batch.state[:, 0] != 3)  # nothing begins at the end
    found = fitted_evaluation(policy, batch, **EXACT, cost_gamma=0.6, stages="shared")
    starts = batch.state[batch.starts(), 0].astype(int)
    assert_equal(found, evaluate_policy(model, policy, GRID), starts)


def test_stages_are_shared_if_the_policy_counts_steps_and_nothing_is_said():
    """Each action at a state is seen at one of the first three steps, and at the last."""
    model, policy = fraction_model(1, 0.9, horizon=4), staged(4)
    batch = every_step(model, 4)
    part = batch.take((batch.state[:, 0] * 3 + batch.action) % 3 == batch.step)
    part = bmdp.TransitionBatch.concatenate([part, batch.take(batch.step == 3)])
    found = fitted_evaluation(policy, part, **EXACT)
    starts = part.state[part.starts(), 0].astype(int)
    assert_equal(found, evaluate_policy(model, policy, GRID), starts)


def test_a_policy_that_looks_at_a_clock_is_shown_that_of_the_step():
    """Its states begin with the share of steps that have passed, which the model does not see."""
    model, steps = fraction_model(0, 0.9, horizon=4), staged(4)

    def by_the_clock(states):
        found = [any_table(step)(states[:, 1:]) for step in range(4)]
        step = np.rint(states[:, 0] * 4).astype(int)
        return tuple(np.stack(q)[step, np.arange(len(states))] for q in zip(*found, strict=True))

    plain = every_step(model, 4)
    plain = plain.take(plain.state[:, 0] != 3)
    seen = seen_with(plain, lambda step, row: step / 4)
    found = fitted_evaluation(HullPolicy(by_the_clock, GRID), seen, **EXACT, stages="shared")
    expected = fitted_evaluation(steps, plain, **EXACT)
    np.testing.assert_allclose(found.reward, expected.reward, atol=1e-6)
    np.testing.assert_allclose(found.cost, expected.cost, atol=1e-6)


def test_what_follows_a_truncated_row_counts_and_what_follows_a_terminal_one_does_not():
    model, policy = fraction_model(1, 0.9), HullPolicy(any_table(0), GRID)
    batch = beginning_at(exhaustive_batch(model, parts=4, n_copies=1), 0)
    cut = with_columns(batch, truncated=~batch.terminal)
    same = fitted_evaluation(policy, batch, **EXACT), fitted_evaluation(policy, cut, **EXACT)
    assert (same[0].reward == same[1].reward).all()
    ended = with_columns(batch, terminal=np.ones(len(batch), bool))
    one_step = fitted_evaluation(policy, ended, **EXACT)
    options = policy.options_at(np.zeros(1), GRID)
    expected = (options.probability * model.cost[0, options.action]).sum(axis=-1)[0]
    np.testing.assert_allclose(one_step.cost, expected, atol=1e-6)


@pytest.mark.parametrize("n_budgets", [2, 3, 30, 101])
def test_budgets_between_those_of_the_grid_are_interpolated(n_budgets):
    """Of a policy whose reward and cost are straight in its budget any grid will do."""
    problem = forever()
    grid = np.linspace(0, 10, 41)
    found = budgeted_value_iteration(problem.model, grid)
    policy = HullPolicy(TableQ(np.zeros(1, int), found.q_r, found.q_c), grid)
    batch = exhaustive_batch(problem.model, parts=1, n_copies=2)
    settings = EXACT | {"budgets": [0.0, 3.3, 7.7, 10.0], "n_budgets": n_budgets}
    predicted = fitted_evaluation(policy, batch, **settings, iterations=200)
    np.testing.assert_allclose(predicted.cost, predicted.budgets, atol=1e-3)
    np.testing.assert_allclose(predicted.reward, 2 * predicted.budgets, atol=1e-3)


def paying(n_budgets):
    """Of two actions one earns and costs 1, the other nothing."""
    q = np.tile([[[0.0], [1.0]]], (1, 1, n_budgets))
    return lambda states: (q.repeat(len(states), axis=0),) * 2


def test_any_model_will_do():
    """One that does not cover the grid, for example. A budget buys itself."""
    policy = HullPolicy(paying(3), np.linspace(0, 1, 3))
    settings = {"budgets": [0.0, 0.3, 2.0], "n_budgets": 3, "gamma": 1.0, "seed": 0}
    found = fitted_evaluation(policy, bandit(60), model=LinearModel(), **settings)
    assert found.budgets.tolist() == [0.0, 0.3, 2.0]  # above the range it is the top
    np.testing.assert_allclose(found.cost, [0.0, 0.3, 1.0], atol=0.01)
    np.testing.assert_allclose(found.reward, [0.0, 0.3, 1.0], atol=0.01)


class Wild:
    """A model that says a million of everything."""

    covers_grid = True

    def fitter(self, problem):
        self.shape = (2, problem.n_actions, len(problem.beta_grid))
        return self

    def fit(self, name, budgets, targets):
        """Learns nothing."""

    def grid(self, states):
        return torch.full((1, len(states), *self.shape), 1e6)


def test_nothing_is_believed_beyond_what_was_earned_and_paid():
    batch = every_step(fraction_model(1, 1.0), 3)
    found = fitted_evaluation(staged(3), batch, **EXACT | {"gamma": 1.0, "model": Wild()})
    assert (found.reward <= 3 * batch.reward.max() + 1e-6).all()
    assert (found.cost <= 3 * batch.cost.max() + 1e-6).all()


def test_a_price_has_no_dial():
    policy = PricedPolicy(paying(1), 0.5)
    settings = {"budgets": [0.0, 1.0], "n_budgets": 2, "gamma": 1.0, "seed": 0}
    found = fitted_evaluation(policy, bandit(60), model=KernelModel(10), **settings)
    np.testing.assert_allclose(found.cost, 1.0, atol=1e-3)


# Against playing

RANDOM = RandomBudgetedPolicy(5, 0.0, 1.0)
SHORT = EnvConfig("corridors", {"height": 3, "horizon": 5})


@cache
def in_corridors(stages):
    """A policy of short corridors, and other episodes of it, a third of whose acts are random."""
    learner = BFTQConfig(
        gamma=1.0, n_budgets=11, model=KernelModel(40), valuation="self", stages=stages
    )
    how = Exploration(2, 200, decay=0.01, floor=0.3, hold=3)
    policy = explore(TrainingSpec(SHORT, learner, how), seed=0, device="cpu").policy
    explorer = ExploringPolicy(policy, RANDOM, decay=1.0, floor=0.33)
    budgets = np.random.default_rng(0).random(600)
    return policy, collect(explorer, SHORT.spec(), range(99, 699), budgets=budgets, seed=2)


@pytest.mark.parametrize("stages", ["none", "shared"])
def test_what_is_predicted_in_corridors_is_what_comes_of_it(stages):
    """Within three deviations of batches of 600 episodes: up to 4 in reward, and 0.01 in cost.

    Time is hidden, so a policy that does not count steps is evaluated step by step as well.
    """
    policy, batch = in_corridors(stages)
    asked = [0.0, 0.5, 1.0]
    settings = {"gamma": 1.0, "budgets": asked, "n_budgets": 11, "device": "cpu"}
    found = fitted_evaluation(
        policy, batch, model=KernelModel(80), seed=0, stages="shared", **settings
    )
    played = bmdp.evaluate(policy, SHORT.spec(), budgets=asked, n_episodes=4000, seed=3)
    for low, mean, high in (
        (played.reward_low - 12, found.reward, played.reward_high + 12),
        (played.cost_low - 0.03, found.cost, played.cost_high + 0.03),
    ):
        assert ((low <= mean) & (mean <= high)).all(), (low, mean, high)


def noise(seed, n=400):
    """20 states and 4 actions, none of which matters: reward 0 and cost 1/2, both by chance."""
    rng = np.random.default_rng(seed)
    state = rng.integers(20, size=n)
    return TransitionBatch(
        state=state,
        action=rng.integers(4, size=n),
        reward=rng.normal(size=n),
        cost=rng.integers(2, size=n),
        next_state=state,
        terminal=np.ones(n, bool),
        episode=np.arange(n),
        step=np.zeros(n, int),
        n_actions=4,
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_learner_promises_more_than_other_episodes_say(seed):
    """Five rows for each state and action: the best mean of four is 0.46 high, on average.

    What other episodes say has a deviation of 0.1 in reward, and of 0.05 in cost.
    """
    learned, others = noise(seed), noise(100 + seed)
    config = BFTQConfig(
        gamma=1.0, model=TableModel(), valuation="self", slope_cap=0.0, n_budgets=11
    )
    policy = BFTQ(config).fit(learned, seed=0)
    promised = [policy.frontier([state]) for state in range(20)]
    reward = np.mean([frontier.rewards[-1] for frontier in promised])
    cost = np.mean([frontier.costs[0] for frontier in promised])
    assert reward > 0.35
    assert cost < 0.35
    settings = EXACT | {"budgets": [0.0, 1.0], "n_budgets": 11}
    found = fitted_evaluation(policy, others, **settings)
    assert abs(found.reward[1]) < 0.3
    assert abs(found.cost[0] - 0.5) < 0.15
    believed = fitted_evaluation(policy, learned, **settings)  # by the same episodes
    assert believed.reward[1] > 0.35
    assert believed.cost[0] < 0.35


# What it needs


def test_what_it_finds_cannot_be_changed():
    found = Prediction([0.0, 1.0], [1.0, 2.0], [0.0, 0.5], 3, 9)
    with pytest.raises(ValueError, match="read-only"):
        found.reward[0] = 9.0
    with pytest.raises(
        DataError, match=r"Prediction.cost must have shape \[M\] = \[2\]; got \[1\]"
    ):
        Prediction([0.0, 1.0], [1.0, 2.0], [0.0], 3, 9)


PLAIN = exhaustive_batch(fraction_model(1, 0.9), parts=4, n_copies=1)
STEPS = every_step(fraction_model(1, 0.9), 3)
ANY = HullPolicy(any_table(0), GRID)
COIN = Portfolio.coin(ANY, ANY, 0.1, 0.9)


@pytest.mark.parametrize(
    ("policy", "batch", "changes", "error", "message"),
    [
        (staged(3), PLAIN, {}, DataError, "needs a batch with steps.* this one has none"),
        (ANY, PLAIN, {"stages": "shared"}, DataError, "needs a batch with steps"),
        (staged(3), STEPS.take(STEPS.step > 0), {}, DataError, "no row has step 0"),
        (ANY, with_columns(PLAIN, episode=None), {}, DataError, "give episode or step"),
        (
            ANY,
            TransitionBatch.from_arrays(PLAIN.take(PLAIN.action < 2).to_arrays()),
            {},
            PolicyError,
            "plays action 2; the batch has actions 0 to 1",
        ),
        (COIN, PLAIN, {}, PolicyError, "one-step form at each step; Portfolio has none"),
        (RandomBudgetedPolicy(3, 0.0, 2.0), PLAIN, {}, PolicyError, "does not say with which"),
        (ANY, PLAIN, {"budgets": [0.5, -1.0]}, BudgetError, r"got -1 at \[1\]"),
        (ANY, PLAIN, {"budgets": []}, BudgetError, "budgets must hold at least one"),
        (ANY, PLAIN, {"gamma": 1.1}, ConfigError, "gamma must be from 0 to 1"),
        (ANY, PLAIN, {"cost_gamma": -0.1}, ConfigError, "cost_gamma must be from 0 to 1"),
        (ANY, PLAIN, {"n_budgets": 1}, ConfigError, "n_budgets must be a whole number from 2"),
        (ANY, PLAIN, {"iterations": 0}, ConfigError, "iterations must be a whole number from 1"),
        (ANY, PLAIN, {"stages": "each"}, ConfigError, "stages must be one of none, shared"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(policy, batch, changes, error, message):
    with pytest.raises(error, match=message):
        fitted_evaluation(policy, batch, **EXACT | changes)
