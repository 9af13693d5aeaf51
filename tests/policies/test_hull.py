import re

import numpy as np
import pytest

from bmdp import BudgetStatus, DataError
from bmdp.policies import HullPolicy, TabularQ

GRID = np.array([0.0, 0.5, 1.0])

# One state, two actions. Points (cost, reward) by action and budget handed on:
#   action 0: (0, 0) (0.2, 1) (0.3, 1);   action 1: (0.1, -1) (0.9, 3) (1.0, 3.2)
# Frontier: (0, 0) -> (0.2, 1) -> (0.9, 3) -> (1.0, 3.2).
Q_C = np.array([[[0.0, 0.2, 0.3], [0.1, 0.9, 1.0]]])
Q_R = np.array([[[0.0, 1.0, 1.0], [-1.0, 3.0, 3.2]]])
POLICY = HullPolicy(TabularQ(Q_R, Q_C), GRID)


def test_a_budget_between_two_vertices_is_spent_by_mixing_them():
    n = 100_000
    beta = 0.55  # halfway from 0.2 to 0.9
    decision = POLICY.decide(np.zeros(n, int), beta, np.random.default_rng(0))
    plays_1 = decision.action == 1
    assert (decision.next_budget == 0.5).all()  # both vertices hand on 0.5
    assert (decision.status == BudgetStatus.TIGHT).all()
    cost = np.where(plays_1, 0.9, 0.2)
    assert abs(cost.mean() - beta) < 3.3 * cost.std() / np.sqrt(n)  # 99.9 %


@pytest.mark.parametrize(
    ("beta", "action", "next_budget", "status"),
    [
        (0.0, 0, 0.0, BudgetStatus.TIGHT),
        (0.2, 0, 0.5, BudgetStatus.TIGHT),
        (1.0, 1, 1.0, BudgetStatus.SLACK),
    ],
)
def test_a_budget_on_a_vertex_plays_its_augmented_action(beta, action, next_budget, status):
    assert POLICY.act(0, beta, np.random.default_rng(0)) == (action, next_budget, status)


def test_budget_zero_is_a_budget():
    decision = POLICY.decide(np.zeros(1000, int), 0.0, np.random.default_rng(0))
    assert (decision.action == 0).all()
    assert (decision.next_budget == 0).all()


def test_an_infeasible_budget_plays_the_cheapest_augmented_action():
    policy = HullPolicy(TabularQ(Q_R, Q_C + 0.05), GRID)
    assert policy.act(0, 0.0, np.random.default_rng(0)) == (0, 0.0, BudgetStatus.INFEASIBLE)


def test_the_frontier_of_a_state_names_augmented_actions():
    frontier = POLICY.frontier(0)
    assert frontier.costs.tolist() == [0.0, 0.2, 0.9, 1.0]
    assert frontier.index.tolist() == [0, 1, 4, 5]


def test_q_values_may_come_from_any_function():
    policy = HullPolicy(lambda states: (Q_R[[0] * len(states)], Q_C[[0] * len(states)]), GRID)
    assert policy.act(np.array([0.3, 7.0]), 0.2, np.random.default_rng(0)).next_budget == 0.5


def test_q_values_must_match_the_grid():
    policy = HullPolicy(TabularQ(Q_R, Q_C), [0.0, 1.0])
    message = "q_r must have shape [1, A, 2]; got [1, 2, 3]."
    with pytest.raises(DataError, match=re.escape(message)):
        policy.act(0, 0.5, np.random.default_rng(0))


@pytest.mark.parametrize("grid", [[], [0.0, 0.0], [1.0, 0.0]])
def test_the_grid_must_rise(grid):
    with pytest.raises(DataError, match="beta_grid must hold at least one budget and rise"):
        HullPolicy(TabularQ(Q_R, Q_C), grid)


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ([0, 1], "states must be from 0 to 0; got 1 at [1]."),
        ([-1], "states must be from 0 to 0; got -1 at [0]."),
        ([0.0], "states must be whole numbers; got type float64."),
        ([[0]], "states must have shape [N]; got [1, 1]."),
    ],
)
def test_states_of_a_table_are_numbers_within_it(states, message):
    with pytest.raises(DataError, match=re.escape(message)):
        POLICY.decide(states, 0.0, np.random.default_rng(0))


def test_tables_must_be_finite_and_of_one_shape():
    with pytest.raises(DataError, match=r"TabularQ.q_c must be finite; got nan at \[0, 0, 0\]"):
        TabularQ(Q_R, np.full_like(Q_C, np.nan))
    with pytest.raises(DataError, match=r"TabularQ.q_c must have shape \[S, A, B\] = \[1, 2, 3\]"):
        TabularQ(Q_R, Q_C[:, :1])
