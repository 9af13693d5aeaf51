"""The paper's theorems, propositions and remarks, put to the test."""

import numpy as np
import pytest
from scipy import sparse

from bmdp.exact import budgeted_value_iteration, cost_range, optimal_frontier, solve_cmdp
from bmdp.exact.operators import QTables, distance, expectation_operator, optimality_operator
from bmdp.exact.textbook import decision, forever, garnet, kinked_pair, ladder, steep, steep_pair
from bmdp.paper.theory import largest_expansion
from bmdp.policies import HullPolicy, TabularQ
from oracles.greedy import nested_program

GAMMA = 0.8


def random_policy(model, n_budgets, rng):
    """Chances of every action and next budget at every state and budget."""
    n_states, n_options = model.n_states, model.n_actions * n_budgets
    blocks = rng.dirichlet(np.ones(n_options), (n_states, n_budgets))
    return sparse.csr_array(sparse.block_diag(list(blocks)))


@pytest.mark.parametrize("seed", range(10))
def test_the_expectation_operator_contracts_by_gamma(seed):
    """Proposition 1."""
    rng = np.random.default_rng(seed)
    model = garnet(6, 3, 3, gamma=GAMMA, rng=rng)
    policy = random_policy(model, 4, rng)
    left, right = (QTables(*rng.normal(size=(2, 6, 3, 4))) for _ in range(2))
    images = (expectation_operator(model, q, policy) for q in (left, right))
    assert distance(*images) <= GAMMA * distance(left, right) + 1e-12


def test_the_bound_of_the_expectation_operator_is_reached():
    model = forever(GAMMA).model
    policy = random_policy(model, 3, np.random.default_rng(0))
    left = QTables(*np.zeros((2, 1, 2, 3)))
    right = QTables(*np.ones((2, 1, 2, 3)))
    images = (expectation_operator(model, q, policy) for q in (left, right))
    assert distance(*images) == pytest.approx(GAMMA)


@pytest.mark.parametrize("epsilon", [0.5, 1e-1, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("make", [steep, ladder, lambda: forever(GAMMA)])
def test_the_optimality_operator_expands_by_one_over_epsilon(epsilon, make):
    """Theorem 2, for any model with two actions."""
    model, grid = make().model, np.array([0.0, epsilon, 1.0])
    left, right = steep_pair(model, len(grid), epsilon)
    assert distance(left, right) == pytest.approx(epsilon)
    images = (optimality_operator(model, q, grid) for q in (left, right))
    assert distance(*images) == pytest.approx(1)


@pytest.mark.parametrize("delta", [0.2, 1e-2, 1e-6])
def test_remark_two_is_false_for_graphs_that_fall(delta):
    """Both Q-functions are delta-Lipschitz in cost, yet T expands by gamma / (2 delta)."""
    model, grid = forever(GAMMA).model, np.array([0.0, 1.0])
    assert delta < 1 / GAMMA - 1 + 1e-9
    left, right = kinked_pair(model, len(grid), delta)
    images = (optimality_operator(model, q, grid) for q in (left, right))
    assert distance(left, right) == pytest.approx(2 * delta)
    assert distance(*images) == pytest.approx(GAMMA)


@pytest.mark.parametrize("lipschitz", [0.01, 0.2, 1.0, 5.0])
@pytest.mark.parametrize("size", [1e-3, 0.05, 0.5])
def test_on_rising_graphs_the_operator_expands_by_no_more_than_one_plus_l(lipschitz, size):
    """Remark 2 where it may hold: budgets below, within and above both graphs included."""
    rng = np.random.default_rng(int(1000 * lipschitz + 7 * size))
    largest = largest_expansion(rng, lipschitz, size, n_rounds=20)
    assert 0.5 <= largest <= (1 + lipschitz) * (1 + 1e-9)


def test_rising_graphs_do_not_stay_so_under_the_operator():
    """Two actions of equal cost and unequal reward leave the set after one application."""
    model, grid = decision(costs=(0.0, 0.0), rewards=(0.0, 1.0)).model, np.array([0.0, 1.0])
    costs = np.broadcast_to([[0.0, 0.3], [0.6, 1.0]], (2, 2, 2))  # a rising graph, L = 0.1
    image = optimality_operator(model, QTables(0.1 * costs, costs), grid)
    assert (image.q_c[0] == 0).all()
    assert image.q_r[0].tolist() == [[0.0, 0.0], [1.0, 1.0]]  # no graph at all


@pytest.mark.parametrize("seed", range(20))
def test_the_hull_policy_is_the_greedy_policy(seed):
    """Proposition 3: the mixture earns and pays what the nested program of Eq. 12 gives."""
    rng = np.random.default_rng(seed)
    q_r, q_c = rng.random((2, 1, 3, 4)).round(1)  # rounding forces ties
    beta = round(rng.random(), 1)
    policy = HullPolicy(TabularQ(q_r, q_c), np.linspace(0, 1, 4))
    chosen = policy.options(np.array([0]), np.array([beta]))
    places = chosen.action, np.searchsorted(policy.beta_grid, chosen.next_budget)
    reward, cost = (float((chosen.probability * q[0][places]).sum()) for q in (q_r, q_c))
    assert (cost, reward) == pytest.approx(nested_program(q_c.ravel(), q_r.ravel(), beta), abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_operator_never_beats_the_linear_program_at_its_own_cost(seed):
    model = garnet(10, 3, 3, gamma=GAMMA, rng=np.random.default_rng(seed))
    solution = budgeted_value_iteration(model, np.linspace(*cost_range(model), 41))
    promised, optimum = solution.frontier(0), optimal_frontier(model, start=0)
    for cost, reward in zip(promised.costs, promised.rewards, strict=True):
        assert reward <= optimum.reward_at(max(cost, optimum.costs[0])) + 1e-6
        assert reward <= solve_cmdp(model, start=0, budget=cost).reward + 1e-6
