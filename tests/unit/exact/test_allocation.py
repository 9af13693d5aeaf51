from dataclasses import replace

import numpy as np
import pytest

from bmdp import ConfigError, ConvergenceError, DataError, PolicyError
from bmdp.exact import allocate_budgets, optimal_frontier
from bmdp.exact.textbook import branches, forever, garnet, ladder, payments
from oracles.simulation import discounted_returns, is_mean_of


def test_next_budgets_depend_on_the_next_state():
    tracker = (
        allocate_budgets(branches().model).policy().start([0, 0], 0.5, np.random.default_rng(0))
    )
    decision = tracker.decide([0, 0])
    assert decision.next_budget == pytest.approx([0.5, 0.5])  # on average
    tracker.observe([0.0, 0.0], [1, 2], [False, False])
    assert tracker.budgets.tolist() == [
        1.0,
        0.0,
    ]  # all of it where it pays 10, none where it pays 1
    assert tracker.decide([1, 2]).action.tolist() == [1, 0]


@pytest.mark.parametrize("share", [0.0, 0.37, 0.8, 1.2])
@pytest.mark.parametrize("make", [branches, ladder, payments, lambda: forever(0.8)])
def test_the_policy_earns_and_pays_what_its_frontier_says(make, share):
    known = make()
    low, high = known.frontier.costs[[0, -1]]
    budget = low + share * (high - low)
    policy = allocate_budgets(known.model).policy()
    rewards, costs = discounted_returns(
        known.model, policy, start=known.start, budget=budget, n=3_000, seed=0
    )
    assert is_mean_of(rewards, known.frontier.reward_at(budget), slack=1e-5)
    assert is_mean_of(costs, min(budget, high), slack=1e-5)


def test_the_policy_of_a_random_model_earns_and_pays_what_its_frontier_says():
    model = garnet(8, 3, 3, gamma=0.8, rng=np.random.default_rng(1))
    solution = allocate_budgets(model)
    frontier = solution.frontier(0)
    budget = float(frontier.costs.mean())
    rewards, costs = discounted_returns(
        model, solution.policy(), start=0, budget=budget, n=2_000, seed=1
    )
    assert is_mean_of(rewards, frontier.reward_at(budget), slack=1e-4)
    assert is_mean_of(costs, budget, slack=1e-4)


def test_the_error_bound_holds_and_shrinks_with_the_tolerance():
    model = garnet(10, 3, 3, gamma=0.9, rng=np.random.default_rng(2))
    optimum = optimal_frontier(model, start=0)
    prices = np.append(np.diff(optimum.rewards) / np.diff(optimum.costs), 0.0)
    for tol in (1e-2, 1e-4, 1e-6):
        solution = allocate_budgets(model, tol=tol)
        found = solution.frontier(0)
        assert solution.error <= tol
        for price in prices:
            best = (optimum.rewards - price * optimum.costs).max()
            gap = best - (found.rewards - price * found.costs).max()
            assert -1e-9 <= gap / (1 + price) <= tol


def test_a_coarse_tolerance_keeps_few_vertices():
    model = garnet(30, 4, 4, gamma=0.95, rng=np.random.default_rng(3))
    coarse, fine = (len(allocate_budgets(model, tol=tol).frontier(0)) for tol in (0.1, 1e-7))
    assert 2 <= coarse < fine


def test_a_horizon_given_overrides_that_of_the_model():
    assert allocate_budgets(payments(4).model, horizon=2).frontier(0).costs.tolist() == [
        0,
        0.5,
        1.5,
    ]
    one_step = allocate_budgets(forever().model, horizon=1)
    assert one_step.frontier(0).rewards.tolist() == [0.0, 2.0]
    assert (one_step.error, len(one_step.residuals)) == (0.0, 1)


@pytest.mark.parametrize("make", [ladder, payments])
def test_stopping_early_is_said(make):
    solution = allocate_budgets(make().model, max_iterations=2)
    assert not solution.converged
    assert solution.error == np.inf
    with pytest.raises(ConvergenceError, match="after 2 iterations"):
        solution.raise_for_convergence()


@pytest.mark.parametrize("name", ["tol", "max_iterations", "horizon"])
def test_settings_out_of_range_are_refused(name):
    with pytest.raises(ConfigError, match=f"{name} must be .*; got 0"):
        allocate_budgets(forever().model, **{name: 0})


@pytest.mark.parametrize("make", [forever, payments])
def test_progress_is_reported(make):
    seen = []
    solution = allocate_budgets(
        make().model, progress=lambda k, residual: seen.append((k, residual))
    )
    assert [k for k, _ in seen] == list(range(1, len(solution.residuals) + 1))
    assert [residual for _, residual in seen] == solution.residuals.tolist()


def test_a_next_state_that_cannot_follow_is_refused():
    tracker = allocate_budgets(branches().model).policy().start([0], 0.5, np.random.default_rng(0))
    tracker.decide([0])
    with pytest.raises(PolicyError, match="state 0 cannot follow in episode 0"):
        tracker.observe([0.0], [0], [False])


def test_numbers_of_states_are_whole_even_if_there_are_none():
    policy = allocate_budgets(branches().model).policy()
    none = {"next_state": np.zeros(0), "probability": np.zeros(0)}
    with pytest.raises(DataError, match="next_state must be of whole numbers"):
        replace(policy, **none)
