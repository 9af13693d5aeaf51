"""Learning where some actions are not available, against exact answers.

Chance says which actions there are at a state, and the mask alone shows it. The exact model has a
state for each mask, and lets a forbidden action do what an allowed one does.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from batches import fraction_model
from bmdp import BFTQ, FTQ, BFTQConfig, FTQConfig, LagrangianConfig, LagrangianFTQ, TransitionBatch
from bmdp.errors import PolicyError
from bmdp.evaluation import evaluate_offline
from bmdp.exact import budgeted_value_iteration, evaluate_policy
from bmdp.exact.price_dial import price_dial
from bmdp.learn import Backward, Iterations, fitted_evaluation
from bmdp.learn.candidates import Lesson, Recipe, learned, promised
from bmdp.learn.fit import Ensemble, Heads, Rows, fit_q
from bmdp.learn.natures import nature_of
from bmdp.learn.next_values import priced_values
from bmdp.models import KernelModel, TableModel
from bmdp.policies import HullPolicy, TabularQ
from bmdp.policies.policy import OneStepPolicy
from masks import MASKS, masked_log, masked_model

GRID = np.linspace(0.0, 2.0, 21)
PRICES = (np.inf, 2.0, 1.1, 0.4, 0.0)
NUMBERS = np.arange(6)  # of states that are not the end, with masks
STATES, THERE = (NUMBERS // 2)[:, None], MASKS[:6]
LONG = {"model": TableModel(), "schedule": Iterations(150, settled=0.0), "ensemble": 1}
BUDGETED = BFTQConfig(
    gamma=0.75, budget_range=(0.0, 2.0), n_budgets=21, slope_cap=0.0, costs_from_zero=False, **LONG
)
PRICED = LagrangianConfig(gamma=0.75, prices=PRICES, **LONG)


def by_steps(model, n_steps):
    """All transitions at every step."""
    rows = masked_log(model).to_arrays()
    parts = []
    for step in range(n_steps):
        terminal = rows["terminal"] | (step == n_steps - 1)
        parts.append(rows | {"step": np.full(len(terminal), step), "terminal": terminal})
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return TransitionBatch(**joined)


def assert_exact(found, exact, atol=5e-5):
    """Q-values `[2, 6, A, H]` are the same, for actions that are available."""
    for ours, theirs in zip(found, exact, strict=True):
        np.testing.assert_allclose(ours[THERE], theirs[:6][THERE], atol=atol)


@pytest.mark.parametrize("ensemble", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_budgets_find_exact_values(seed, ensemble):
    model = masked_model(seed, 0.75)
    batch = masked_log(model, n_copies=ensemble)
    policy = BFTQ(replace(BUDGETED, ensemble=ensemble)).fit(batch, seed=0, device="cpu")
    exact = budgeted_value_iteration(model, GRID, max_iterations=200)
    assert_exact(policy.q_function(STATES), (exact.q_r, exact.q_c))
    blind = without_masks(batch)
    other = BFTQ(BUDGETED).fit(blind, seed=0, device="cpu")
    assert np.abs(other.q_function(STATES)[0] - policy.q_function(STATES)[0]).max() > 0.01


def without_masks(batch):
    columns = batch.to_arrays()
    plain = {name: values for name, values in columns.items() if "available" not in name}
    return TransitionBatch(**plain, n_actions=batch.n_actions)


@pytest.mark.parametrize("changes", [{}, {"ensemble": 2}, {"ensemble": 2, "caution": 0.5}], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_prices_find_exact_values(seed, changes):
    model = masked_model(seed, 0.75)
    found = (
        LagrangianFTQ(replace(PRICED, **changes))
        .fit(masked_log(model, n_copies=2), seed=0, device="cpu")
        .dial
    )
    points, exact = found.points(STATES, THERE), price_dial(model, PRICES).points(NUMBERS)
    np.testing.assert_allclose(points.costs, exact.costs, atol=5e-5)
    np.testing.assert_allclose(points.rewards, exact.rewards, atol=5e-5)


@pytest.mark.parametrize("price", [0.0, 1.1])
def test_one_price_finds_exact_values(price):
    model = masked_model(1, 0.75)
    config = FTQConfig(gamma=0.75, price=price, **LONG)
    policy = FTQ(config).fit(masked_log(model), seed=0, device="cpu")
    exact = price_dial(model, (price,)).q_function
    assert_exact(policy.q_function(STATES), exact(np.arange(8)))
    actions = policy.decide(STATES, 0.0, np.random.default_rng(0), THERE).action
    assert THERE[np.arange(6), actions].all()


def test_backwards_it_finds_exact_values_at_every_step():
    model = masked_model(2, 0.75, horizon=3)
    config = replace(PRICED, schedule=Backward())
    found = LagrangianFTQ(config).fit(by_steps(model, 3), seed=0, device="cpu").dial
    exact = price_dial(model, PRICES)
    for step in range(3):
        ours = found.at_step(step).points(STATES, THERE)
        theirs = exact.at_step(step).points(NUMBERS)
        np.testing.assert_allclose(ours.costs, theirs.costs, atol=2e-5)
        np.testing.assert_allclose(ours.rewards, theirs.rewards, atol=2e-5)


# Evaluation


@dataclass(frozen=True)
class Told:
    """A policy of plain states, told of masks by the states of the exact model."""

    policy: Any

    def options(self, states, budgets):
        return self.policy.options((states // 2)[:, None], budgets, MASKS[states])


def any_policy(seed=0):
    """Values that no model has, by which forbidden actions are often the best."""
    q_r, q_c = np.random.default_rng(seed).random((2, 4, 3, 21)) * [[[[1.0]]], [[[2.0]]]]
    table = TabularQ(q_r, q_c)
    return HullPolicy(lambda states: table(np.asarray(states)[:, 0].astype(int)), GRID)


@pytest.mark.parametrize("state", NUMBERS)
@pytest.mark.parametrize("seed", range(2))
def test_an_evaluation_is_exact(seed, state):
    model, policy = masked_model(1, 0.75), any_policy(seed)
    exact = evaluate_policy(model, Told(policy), GRID)
    batch = masked_log(model)
    begins = (batch.state[:, 0] == state // 2) & (batch.available == MASKS[state]).all(axis=1)
    columns = batch.to_arrays() | {"step": 1 - begins.astype(int)}
    found = fitted_evaluation(
        policy,
        TransitionBatch(**columns),
        gamma=0.75,
        budgets=GRID,
        n_budgets=21,
        model=TableModel(),
        schedule=Iterations(150, settled=0.0),
        seed=0,
        device="cpu",
    )
    np.testing.assert_allclose(found.reward, exact[0][state], atol=1e-4)
    np.testing.assert_allclose(found.cost, exact[1][state], atol=1e-4)


def visits(n=4_000, seed=0):
    """One visit: action 1 earns 1, action 2 earns 3 for cost 1, and is there half of the time."""
    rng = np.random.default_rng(seed)
    mask = np.column_stack((np.ones((n, 2), bool), rng.random(n) < 0.5))
    action = (rng.random(n) * mask.sum(axis=1)).astype(int)
    return TransitionBatch(
        state=np.zeros(n),
        action=action,
        reward=np.array([0.0, 1.0, 3.0])[action],
        cost=1.0 * (action == 2),
        next_state=np.zeros(n),
        terminal=np.ones(n, bool),
        episode=np.arange(n),
        step=np.zeros(n, int),
        probability=1 / mask.sum(axis=1),
        available=mask,
    )


@pytest.mark.parametrize("method", ["fitted", "importance"])
def test_a_log_tells_what_a_policy_does_among_available_actions(method):
    q_r, q_c = np.zeros((2, 1, 3, 2))
    q_r[0, :, :], q_c[0, :, :] = [[0.0], [1.0], [3.0]], [[0.0], [0.0], [1.0]]
    policy = HullPolicy(
        lambda states: tuple(np.repeat(q, len(states), 0) for q in (q_r, q_c)), [0, 1]
    )
    model = {"model": TableModel()} if method == "fitted" else {}
    asked = {"gamma": 1.0, "budgets": [0.0, 1.0], "method": method, "n_bootstrap": 0, "seed": 0}
    found = evaluate_offline(policy, visits(), **asked, **model, n_budgets=2)
    np.testing.assert_allclose(found.reward, [1.0, 2.0], atol=0.1)
    np.testing.assert_allclose(found.cost, [0.0, 0.5], atol=0.05)


def test_a_policy_that_takes_no_masks_cannot_be_evaluated_by_such_a_log():
    class Plain(OneStepPolicy):
        budget_range, n_draws = (0.0, 1.0), 0

        def choose(self, states, budgets, uniforms):
            raise AssertionError

        def options(self, states, budgets):
            raise AssertionError

    asked = {"gamma": 1.0, "budgets": [0.0], "seed": 0}
    for method in ("fitted", "importance"):
        with pytest.raises(PolicyError, match="Plain cannot be told which actions are available"):
            evaluate_offline(Plain(), visits(100), **asked, method=method)


# What is promised, at first states: half of the time one cannot earn 3, at a cost of 1


def test_records_and_rules_go_by_available_actions():
    batch, prices = visits(200), np.zeros(1)
    heads, how = Heads(prices, False), {"schedule": Iterations(2), "ensemble": Ensemble()}
    values = priced_values(prices)
    *_, last = fit_q(
        batch, TableModel(), values, heads=heads, gammas=(1.0, 1.0), seed=0, device="cpu", **how
    )
    share = batch.available[:, 2].mean()
    assert last.record.start_reward_high == pytest.approx(1 + 2 * share)
    assert last.record.start_cost_high == pytest.approx(share)
    known = np.isfinite(last.fit.at_states(0)[:, 0, :, 0].numpy())
    np.testing.assert_array_equal(known, batch.available)


def test_members_of_a_dial_promise_what_available_actions_earn():
    batch = visits()
    share = batch.available[:1000, 2].mean()
    config = LagrangianConfig(gamma=1.0, prices=(0.0,), plays="mixture", **LONG)
    policy = LagrangianFTQ(config).fit(batch, seed=0)
    np.testing.assert_allclose(policy.costs, [share], atol=1e-6)
    np.testing.assert_allclose(policy.rewards, [1 + 2 * share], atol=1e-6)
    lesson = Lesson(batch, nature_of(batch, 1.0), 1.0, 0)
    dial = learned(Recipe("table", TableModel()), lesson, np.zeros(1))
    np.testing.assert_allclose(promised(dial, lesson), [[share, 1 + 2 * share]], atol=1e-6)
    budgeted = learned(Recipe("table", TableModel(), "budgets"), lesson, np.array([0.0, 1.0]))
    np.testing.assert_allclose(promised(budgeted, lesson)[1], [share, 1 + 2 * share], atol=1e-6)


# Rows


def test_rows_of_different_masks_are_kept_apart():
    batch = masked_log(masked_model(0, 0.75))
    given = {
        "states": batch.state,
        "actions": batch.action,
        "rewards": batch.reward,
        "costs": batch.cost,
        "next_states": batch.next_state,
        "terminal": batch.terminal,
        "is_last": None,
        "members": np.ones((1, len(batch)), bool),
    }
    plain = Rows(**given).merged(np.arange(1))
    apart = Rows(**given, next_available=batch.next_available).merged(np.arange(1))
    assert len(plain.actions) < len(apart.actions) < len(batch)
    weights = apart.weights if apart.weights is not None else np.ones(len(apart.actions))
    for state, action in np.ndindex(3, 3):
        rows = (batch.state[:, 0] == state) & (batch.action == action) & ~batch.terminal
        own = (apart.states[:, 0] == state) & (apart.actions == action) & ~apart.terminal
        if rows.any():
            mean = batch.next_available[rows].mean(axis=0)
            np.testing.assert_allclose(
                np.average(apart.next_available[own], axis=0, weights=weights[own]), mean
            )


@pytest.mark.parametrize("traces", [False, True])
def test_an_action_is_not_valued_where_it_never_is_available(traces):
    """A kernel knows no cells: action 1 pays at state 0, and would by far at state 1."""
    rng, n = np.random.default_rng(0), 300
    first = rng.integers(2, size=n)
    state = np.column_stack((np.zeros(n), np.ones(n))).ravel()
    action = np.column_stack((first, np.zeros(n, int))).ravel()
    mask = np.column_stack((np.ones(2 * n, bool), state == 0))
    columns = {
        "state": state,
        "action": action,
        "reward": 1.0 * action,
        "cost": np.zeros(2 * n),
        "next_state": np.ones(2 * n),
        "terminal": state == 1,
        "episode": np.repeat(np.arange(n), 2),
        "step": state.astype(int),
    }
    config = FTQConfig(
        gamma=1.0, model=KernelModel(5), schedule=Iterations(3, traces=traces), ensemble=1
    )
    values = [
        FTQ(config).fit(TransitionBatch(**columns, **told), seed=0).q_function([[0.0]])[0][0, :, 0]
        for told in ({"available": mask}, {})
    ]
    np.testing.assert_allclose(values[0], [0.0, 1.0], atol=0.05)
    assert values[1][0] > 0.5


def test_masks_of_all_actions_change_nothing():
    from batches import exhaustive_batch

    batch = exhaustive_batch(fraction_model(0, 0.75), parts=4, n_copies=1)
    every = np.ones((len(batch), 3), bool)
    told = TransitionBatch(**batch.to_arrays(), available=every, next_available=every)
    for config, learner in ((BUDGETED, BFTQ), (PRICED, LagrangianFTQ)):
        one, two = (learner(config).fit(log, seed=0, device="cpu") for log in (batch, told))
        one, two = (getattr(policy, "dial", policy).q_function(STATES) for policy in (one, two))
        np.testing.assert_array_equal(one, two)
