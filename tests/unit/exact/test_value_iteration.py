import numpy as np
import pytest

from bmdp import BudgetError, ConfigError, ConvergenceError, PolicyError
from bmdp.exact import (
    allocate_budgets,
    budgeted_value_iteration,
    cost_range,
    evaluate_policy,
    optimal_frontier,
)
from bmdp.exact.evaluation import policy_matrix
from bmdp.exact.operators import QTables, distance, expectation_operator, greedy_values, zero_q
from bmdp.exact.textbook import PROBLEMS, branches, forever, garnet, ladder, payments, problem
from bmdp.policies import HullPolicy, RandomBudgetedPolicy, TabularQ
from contracts.policy import Case, contract_tests
from oracles.simulation import discounted_returns, is_mean_of


def solved(model, n=31, **settings):
    low, high = cost_range(model)
    return budgeted_value_iteration(model, np.linspace(low, high, n), **settings)


def values(model, solution):
    return greedy_values(model, QTables(solution.q_r, solution.q_c), solution.beta_grid)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_solution_is_never_above_the_optimum_and_reaches_it_without_chance(name):
    known = problem(name)
    solution = solved(known.model, tol=1e-10)
    solution.raise_for_convergence()
    found, optimum = solution.frontier(known.start), known.frontier
    for cost in np.linspace(found.costs[0], found.costs[-1], 40):
        assert found.reward_at(cost) <= optimum.reward_at(cost) + 1e-7
    if name not in ("branches",):  # the only one where chance moves
        assert found.costs[[0, -1]] == pytest.approx(optimum.costs[[0, -1]], abs=1e-6)
        for cost in solution.beta_grid:
            assert found.reward_at(max(cost, found.costs[0])) == pytest.approx(
                optimum.reward_at(np.clip(cost, *optimum.costs[[0, -1]])), abs=1e-6
            )


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_greedy_policy_is_worth_what_the_solution_says(name):
    """The consistency half of Proposition 2, at every state and budget."""
    known = problem(name)
    solution = solved(known.model, tol=1e-12)
    v_r, v_c = evaluate_policy(known.model, solution.policy(), solution.beta_grid)
    expected_r, expected_c = values(known.model, solution)
    assert v_r == pytest.approx(expected_r, abs=1e-9)
    assert v_c == pytest.approx(expected_c, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_on_random_models(seed):
    model = garnet(15, 3, 4, gamma=0.85, rng=np.random.default_rng(seed))
    solution = solved(model, tol=1e-12)
    assert solution.converged
    v_r, v_c = evaluate_policy(model, solution.policy(), solution.beta_grid)
    expected_r, expected_c = values(model, solution)
    assert v_r == pytest.approx(expected_r, abs=1e-8)
    assert v_c == pytest.approx(expected_c, abs=1e-8)


@pytest.mark.parametrize("n_branches", [2, 3, 5])
def test_before_chance_moves_the_operator_spreads_its_budget_evenly(n_branches):
    """Theorem 1 and Proposition 2 fail where transitions are random: 2.75 against 5."""
    payoffs = [10.0, *range(1, n_branches)]
    known = branches(payoffs)
    solution = solved(known.model, n=11)
    found = solution.frontier(0)
    for budget in solution.beta_grid:
        assert found.reward_at(budget) == pytest.approx(budget * np.mean(payoffs))
    assert known.frontier.reward_at(1 / n_branches) == pytest.approx(10 / n_branches)
    best = allocate_budgets(known.model).frontier(0)
    assert best.reward_at(1 / n_branches) == pytest.approx(10 / n_branches)
    if n_branches == 2:
        assert (found.reward_at(0.5), best.reward_at(0.5)) == pytest.approx((2.75, 5.0))


@pytest.mark.parametrize("seed", range(4))
def test_on_deterministic_models_the_operator_reaches_the_optimum_up_to_its_grid(seed):
    model = garnet(10, 3, 1, gamma=0.8, rng=np.random.default_rng(seed))
    optimum = optimal_frontier(model, start=0)
    gaps = []
    for n in (51, 201):
        found = solved(model, n=n).frontier(0)
        costs = np.linspace(optimum.costs[0], optimum.costs[-1], 60)
        rewards = found.reward_at(np.clip(costs, found.costs[0], None))
        assert (rewards <= optimum.reward_at(costs) + 1e-7).all()
        inside = costs >= found.costs[0]
        gaps.append((optimum.reward_at(costs) - rewards)[inside].max())
    scale = np.ptp(optimum.rewards)
    assert gaps[1] <= 0.02 * scale + 1e-6
    assert gaps[1] <= gaps[0] + 1e-9


def test_the_residuals_tell_how_it_went():
    solution = solved(forever(0.5).model, tol=1e-3)
    assert solution.converged
    assert solution.residuals[-1] <= 1e-3 < solution.residuals[-2]
    early = solved(forever(0.5).model, max_iterations=3)
    assert not early.converged
    assert len(early.residuals) == 3
    with pytest.raises(ConvergenceError, match=r"residual 0\.\d+ after 3 iterations"):
        early.raise_for_convergence()


def test_progress_is_reported():
    seen = []
    solution = solved(ladder().model, progress=lambda k, residual: seen.append(residual))
    assert seen == solution.residuals.tolist()


def test_with_a_horizon_there_is_one_q_function_for_each_step():
    known = payments()
    solution = solved(known.model, n=16)
    assert solution.converged
    assert solution.stages.q_r.shape == (4, 1, 2, 16)
    assert (solution.stages.q_r[0] == solution.q_r).all()
    assert not solved(known.model, max_iterations=2).converged


@pytest.mark.parametrize("make", [payments, lambda: forever(0.7), branches])
def test_playing_the_policy_earns_and_pays_what_evaluation_says(make):
    known = make()
    solution = solved(known.model, n=9)
    v_r, v_c = evaluate_policy(known.model, solution.policy(), solution.beta_grid)
    for b in (0, 3, 8):
        rewards, costs = discounted_returns(
            known.model,
            solution.policy(),
            start=known.start,
            budget=solution.beta_grid[b],
            n=20_000,
            seed=b,
        )
        assert is_mean_of(rewards, v_r[known.start, b], slack=1e-5)
        assert is_mean_of(costs, v_c[known.start, b], slack=1e-5)


def test_evaluation_is_the_fixed_point_of_the_expectation_operator():
    rng = np.random.default_rng(0)
    model, grid = garnet(6, 2, 3, gamma=0.7, rng=rng), np.linspace(0, 2, 7)
    policy = HullPolicy(TabularQ(*rng.random((2, 6, 2, 7))), grid)
    matrix, q = policy_matrix(model, policy, grid), zero_q(model, grid)
    for _ in range(120):
        q = expectation_operator(model, q, matrix)
    assert distance(expectation_operator(model, q, matrix), q) < 1e-12
    v_r, v_c = evaluate_policy(model, policy, grid)
    assert (matrix @ q.q_r.ravel()).reshape(6, 7) == pytest.approx(v_r)
    assert (matrix @ q.q_c.ravel()).reshape(6, 7) == pytest.approx(v_c)


def test_a_single_budget_is_a_grid_too():
    model = forever(0.5).model
    solution = budgeted_value_iteration(model, [1.0])
    v_r, v_c = evaluate_policy(model, solution.policy(), [1.0])
    assert v_c[0, 0] == pytest.approx(1.0)
    assert v_r[0, 0] == pytest.approx(2.0)


def test_a_policy_off_the_grid_or_with_unknown_chances_cannot_be_evaluated():
    model = forever(0.5).model
    policy = budgeted_value_iteration(model, [0.0, 0.3, 2.0]).policy()
    with pytest.raises(PolicyError, match=r"hands on budget 2 at state 0, which is not on"):
        evaluate_policy(model, policy, [0.0, 0.7])
    with pytest.raises(PolicyError, match="RandomBudgetedPolicy does not say"):
        evaluate_policy(model, RandomBudgetedPolicy(2, 0.0, 2.0), [0.0, 2.0])
    with pytest.raises(PolicyError, match="RandomBudgetedPolicy does not say"):
        evaluate_policy(payments().model, RandomBudgetedPolicy(2, 0.0, 2.0), [0.0, 2.0])


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ([0.0, np.nan], r"finite; got nan at \[1\]"),
        ([0.0, 0.0], r"strictly increasing; got 0 after 0 at \[1\]"),
        ([], r"shape \[B\]; got \[0\]"),
        ([[0.0]], r"shape \[B\]; got \[1, 1\]"),
    ],
)
def test_a_grid_that_is_none_is_refused(grid, message):
    with pytest.raises(BudgetError, match=message):
        budgeted_value_iteration(forever().model, grid)


@pytest.mark.parametrize("settings", [{"tol": -1.0}, {"tol": np.nan}, {"max_iterations": 0}])
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ConfigError, match="tol must be from 0 on"):
        budgeted_value_iteration(forever().model, [0.0, 1.0], **settings)


DENSE = garnet(5, 3, 5, gamma=0.8, rng=np.random.default_rng(0))  # any state may follow any other
STEPPED = payments(3)
CASES = {
    "staged": Case(solved(STEPPED.model, n=6).policy(), np.zeros(4, int), 2, one_step=False),
    "allocation": Case(
        allocate_budgets(DENSE, tol=1e-4).policy(),
        np.arange(5),
        3,
        one_step=False,
        hands_on_one_budget=False,
    ),
    "allocation, horizon": Case(
        allocate_budgets(DENSE, horizon=3).policy(),
        np.arange(5),
        3,
        one_step=False,
        hands_on_one_budget=False,
    ),
}


test_contract, test_saving = contract_tests(CASES)


def test_policies_tell_their_frontier():
    known = payments()
    for policy in (solved(known.model).policy(), allocate_budgets(known.model).policy()):
        assert policy.frontier(0).costs[-1] == pytest.approx(known.frontier.costs[-1])
