"""The three ways to the optimum, against closed forms, enumeration, and each other."""

import numpy as np
import pytest
from scipy.optimize import OptimizeResult

from bmdp import (
    BudgetError,
    BudgetStatus,
    ConfigError,
    ConvergenceError,
    FiniteBMDP,
    ModelError,
    upper_frontier,
)
from bmdp.exact import (
    allocate_budgets,
    best_paid_policy,
    best_policy,
    cheapest_policy,
    cost_range,
    linear_program,
    optimal_frontier,
    solve_cmdp,
)
from bmdp.exact.evaluation import evaluate_actions
from bmdp.exact.textbook import PROBLEMS, branches, decision, forever, garnet, payments, problem
from oracles.enumeration import all_policy_values

NAMES = pytest.mark.parametrize("name", PROBLEMS)


def budgets_around(frontier, n=9):
    low, high = frontier.costs[[0, -1]]
    return np.linspace(low - 0.3 * (high - low), high + 0.3 * (high - low), n)


def random_model(seed, n_states=12, n_actions=3, n_successors=3, gamma=0.9, horizon=None):
    rng = np.random.default_rng(seed)
    model = garnet(n_states, n_actions, n_successors, gamma=gamma, rng=rng)
    if horizon is None:
        return model
    return FiniteBMDP(
        transition=model.transition,
        reward=model.reward,
        cost=model.cost,
        gamma=gamma,
        horizon=horizon,
        cost_gamma=0.7,
    )


@NAMES
def test_the_search_over_prices_finds_the_textbook_frontier(name):
    known = problem(name)
    found = optimal_frontier(known.model, start=known.start)
    assert found.costs == pytest.approx(known.frontier.costs, abs=1e-9)
    assert found.rewards == pytest.approx(known.frontier.rewards, abs=1e-9)
    assert found.index is None


@NAMES
def test_allocation_finds_the_textbook_frontier(name):
    known = problem(name)
    solution = allocate_budgets(known.model)
    solution.raise_for_convergence()
    found = solution.frontier(known.start)
    assert found.costs == pytest.approx(known.frontier.costs, abs=1e-7)
    assert found.rewards == pytest.approx(known.frontier.rewards, abs=1e-7)


@NAMES
def test_the_linear_program_finds_every_point_of_the_textbook_frontier(name):
    known = problem(name)
    low, high = known.frontier.costs[[0, -1]]
    for budget in budgets_around(known.frontier):
        solution = solve_cmdp(known.model, start=known.start, budget=budget)
        assert solution.cost == pytest.approx(np.clip(budget, low, high), abs=1e-8)
        assert solution.reward == pytest.approx(
            known.frontier.reward_at(max(budget, low)), abs=1e-8
        )
        expected = BudgetStatus(int(budget >= low) + int(budget >= high))
        assert solution.status is expected


@pytest.mark.parametrize("seed", range(8))
def test_the_optimal_frontier_is_the_hull_of_all_deterministic_policies(seed):
    model = random_model(seed, n_states=4, n_actions=3, n_successors=2)
    oracle = upper_frontier(*all_policy_values(model, 0))
    found = optimal_frontier(model, start=0)
    assert found.costs[[0, -1]] == pytest.approx(oracle.costs[[0, -1]], abs=1e-9)
    for cost in np.linspace(*found.costs[[0, -1]], 50):
        assert found.reward_at(cost) == pytest.approx(oracle.reward_at(cost + 1e-12), abs=1e-8)


@pytest.mark.parametrize("horizon", [None, 5])
@pytest.mark.parametrize("seed", range(4))
def test_three_ways_lead_to_the_same_optimum(seed, horizon):
    model = random_model(seed, horizon=horizon)
    start = np.random.default_rng(seed).dirichlet(np.ones(model.n_states))
    frontier = optimal_frontier(model, start=start)
    for budget in budgets_around(frontier, 7):
        program = solve_cmdp(model, start=start, budget=budget)
        spent = np.clip(budget, *frontier.costs[[0, -1]])
        assert program.cost == pytest.approx(spent, abs=1e-7)
        assert program.reward == pytest.approx(frontier.reward_at(spent), abs=1e-7)
    allocated = allocate_budgets(model).frontier(3)
    alone = optimal_frontier(model, start=3)
    for cost in np.linspace(alone.costs[0], alone.costs[-1], 30):
        assert allocated.reward_at(max(cost, allocated.costs[0])) == pytest.approx(
            alone.reward_at(cost), abs=1e-6
        )


@pytest.mark.parametrize("share", [-0.5, 0.0, 0.3, 1.0, 1.5])
def test_the_policy_of_the_linear_program_earns_and_pays_what_it_says(share):
    model = random_model(1)
    low, high = optimal_frontier(model, start=0).costs[[0, -1]]
    solution = solve_cmdp(model, start=0, budget=low + share * (high - low))
    v_r, v_c = evaluate_actions(model, solution.policy)
    assert solution.policy.sum(axis=1) == pytest.approx(np.ones(12))
    assert (v_r[0], v_c[0]) == pytest.approx((solution.reward, solution.cost), abs=1e-8)


def test_with_a_horizon_the_linear_program_gives_chances_for_every_step():
    known = payments()
    solution = solve_cmdp(known.model, start=0, budget=0.5**3)
    assert solution.policy.shape == (4, 1, 2)
    assert solution.policy[:, 0, 1] == pytest.approx([0, 0, 0, 1])  # the last payment is cheapest


def test_the_multiplier_is_the_slope_of_the_frontier():
    known = branches()
    assert solve_cmdp(known.model, start=0, budget=0.2).multiplier == pytest.approx(10)
    assert solve_cmdp(known.model, start=0, budget=0.7).multiplier == pytest.approx(1)
    assert solve_cmdp(known.model, start=0, budget=2.0).multiplier == 0
    assert solve_cmdp(known.model, start=0, budget=-1.0).multiplier == np.inf


def test_of_the_best_paid_policies_the_cheapest_is_taken_and_the_other_way_round():
    known = decision(costs=(1.0, 0.5, 0.5, 2.0), rewards=(3.0, 1.0, 2.0, 3.0))
    assert optimal_frontier(known.model, start=0).costs.tolist() == [0.5, 1.0]
    slack = solve_cmdp(known.model, start=0, budget=5.0)
    assert (slack.reward, slack.cost) == pytest.approx((3.0, 1.0))
    infeasible = solve_cmdp(known.model, start=0, budget=0.1)
    assert (infeasible.reward, infeasible.cost) == pytest.approx((2.0, 0.5))
    assert cheapest_policy(known.model).action[0] == 2
    assert best_paid_policy(known.model).action[0] == 0


def test_the_best_policy_for_a_price_is_the_best_of_all():
    model = random_model(3, n_states=4, n_actions=3, n_successors=2)
    costs, rewards = all_policy_values(model, 2)
    for price in (0.0, 0.5, 1.0, 4.0):
        found = best_policy(model, price)
        assert found.v_r[2] - price * found.v_c[2] == pytest.approx((rewards - price * costs).max())


def test_the_cost_range_spans_the_costs_of_all_states():
    assert cost_range(forever().model) == pytest.approx((0, 10))
    model = random_model(0)
    ends = [optimal_frontier(model, start=s).costs[[0, -1]] for s in range(12)]
    assert cost_range(model) == pytest.approx(
        (min(e[0] for e in ends), max(e[1] for e in ends)), abs=1e-9
    )


@pytest.mark.parametrize("price", [-1.0, np.nan, np.inf])
def test_a_price_is_a_number_from_zero_on(price):
    with pytest.raises(ConfigError, match="price must be a finite number from 0 on"):
        best_policy(forever().model, price)


@pytest.mark.parametrize("budget", [np.nan, np.inf, [0.0, 1.0]])
def test_a_budget_is_a_finite_number(budget):
    with pytest.raises(BudgetError, match=r"budget must be a (finite )?number"):
        solve_cmdp(forever().model, start=0, budget=budget)


def test_a_program_that_is_not_solved_is_said(monkeypatch):
    failed = OptimizeResult(status=4, message="numerical difficulties")
    monkeypatch.setattr(linear_program, "linprog", lambda *_, **__: failed)
    with pytest.raises(ConvergenceError, match="not solved: numerical difficulties"):
        solve_cmdp(forever().model, start=0, budget=0.0)


def test_a_start_out_of_range_is_refused_by_all():
    model = forever().model
    with pytest.raises(ModelError, match="start must be a state from 0 to 0"):
        solve_cmdp(model, start=1, budget=0.0)
    with pytest.raises(ModelError, match="start must be a state from 0 to 0"):
        optimal_frontier(model, start=1)
    with pytest.raises(ConfigError, match="state must be from 0 to 0; got 1"):
        allocate_budgets(model).frontier(1)


def test_an_unknown_problem_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"'brances'; .* Did you mean 'branches'\?"):
        problem("brances")
    with pytest.raises(ConfigError, match=r"there are decision, branches.*\.$"):
        problem("zzz")
