"""The greedy step on tensors against the geometry of one state."""

import numpy as np
import pytest
import torch

from batches import bandit
from bmdp import BFTQConfig, hull_mixture, upper_frontier
from bmdp.frontier import crossed_share
from bmdp.learn.learners import BudgetedFit
from bmdp.learn.targets import cautious, mixture_values
from bmdp.models import LinearModel
from bmdp.policies.greedy import GreedyRule, capped


def grids(n=40, n_actions=3, n_budgets=7, seed=0):
    """Q-values `[n, 2, A, B]`."""
    return torch.tensor(
        np.random.default_rng(seed).normal(size=(n, 2, n_actions, n_budgets)), dtype=torch.float32
    )


def points(grid, n):
    return grid[n, 1].flatten().numpy(), grid[n, 0].flatten().numpy()


@pytest.mark.parametrize("n_labels", [1, 4])
def test_one_function_gives_the_values_of_its_own_mixtures(n_labels):
    grid = grids()
    budgets = torch.tensor(
        np.random.default_rng(1).normal(size=(40, n_labels)) * 2, dtype=torch.float32
    )
    found = mixture_values(grid, grid, budgets, GreedyRule())
    n_infeasible = 0
    for n in range(40):
        frontier = upper_frontier(*points(grid, n))
        for k in range(n_labels):
            mixture = hull_mixture(frontier, float(budgets[n, k]))
            expected = (mixture.reward, mixture.cost)
            assert found.values[n, k].tolist() == pytest.approx(expected, abs=1e-5)
            n_infeasible += mixture.status == 0
    assert found.n_infeasible == n_infeasible > 0


def test_one_budget_for_all_is_the_same_as_many():
    grid = grids()
    budgets = torch.tensor([-5.0, -0.5, 0.0, 0.3, 2.0, 9.0])
    together = mixture_values(grid, grid, budgets, GreedyRule()).values
    for k, budget in enumerate(budgets):
        one = mixture_values(grid, grid, budget.repeat(40, 1), GreedyRule()).values
        assert torch.allclose(one[:, 0], together[:, k], atol=1e-5)


@pytest.mark.parametrize("n_labels", [1, 3])
def test_another_function_values_the_vertices_and_sets_the_probability(n_labels):
    choosing, valuing = grids(seed=0), grids(seed=1)
    budgets = torch.tensor(
        np.random.default_rng(2).normal(size=(40, n_labels)), dtype=torch.float32
    )
    found = mixture_values(choosing, valuing, budgets, GreedyRule()).values
    for n in range(40):
        frontier = upper_frontier(*points(choosing, n))
        costs, rewards = points(valuing, n)
        for k in range(n_labels):
            beta = float(budgets[n, k])
            mixture = hull_mixture(frontier, beta)
            low, high = frontier.index[mixture.lower], frontier.index[mixture.upper]
            share = 0.0
            if mixture.lower != mixture.upper:
                run = costs[high] - costs[low]
                share = 1.0 if run <= 0 else float(np.clip((beta - costs[low]) / run, 0, 1))
            expected = [
                (1 - share) * values[low] + share * values[high] for values in (rewards, costs)
            ]
            assert found[n, k].tolist() == pytest.approx(expected, abs=1e-4)


def test_caution_takes_deviations_from_rewards_and_adds_them_to_costs():
    values = torch.stack([grids(seed=seed) for seed in range(3)])
    for caution in (0.0, 0.7, -2.0):
        found = cautious(values, caution).numpy()
        mean, deviation = values.numpy().mean(axis=0), values.numpy().std(axis=0)
        np.testing.assert_allclose(
            found[:, 0], mean[:, 0] - caution * deviation[:, 0], rtol=0, atol=1e-5
        )
        np.testing.assert_allclose(
            found[:, 1], mean[:, 1] + caution * deviation[:, 1], rtol=0, atol=1e-5
        )


def next_values(values, budgets, **settings):
    """What a learner takes next states to be worth, given the Q-values of its models."""
    config = BFTQConfig(
        gamma=1.0,
        n_budgets=7,
        folds=len(values),
        model=LinearModel(),
        slope_cap=0.0,
        cost_floor=-1e9,
        **settings,
    )
    fit = BudgetedFit(config, bandit(40), 0, torch.device("cpu"))
    return fit._next_values(values, np.arange(40), budgets)


@pytest.mark.parametrize("caution", [1.0, -0.5])
@pytest.mark.parametrize("n_labels", [1, 3])
def test_a_pessimist_chooses_and_values_by_what_is_left_of_the_mean(caution, n_labels):
    values = torch.stack([grids(seed=seed) for seed in range(4)])
    budgets = torch.tensor(
        np.random.default_rng(9).normal(size=(40, n_labels)), dtype=torch.float32
    )
    found = next_values(values, budgets, valuation="pessimistic", caution=caution)
    mean, deviation = values.numpy().mean(axis=0), values.numpy().std(axis=0)
    n_infeasible = 0
    for n in range(40):
        costs = (mean[n, 1] + caution * deviation[n, 1]).ravel()
        rewards = (mean[n, 0] - caution * deviation[n, 0]).ravel()
        for k in range(n_labels):
            mixture = hull_mixture(upper_frontier(costs, rewards), float(budgets[n, k]))
            expected = (mixture.reward, mixture.cost)
            assert found.values[n, k].tolist() == pytest.approx(expected, abs=1e-4)
            n_infeasible += mixture.status == 0
    assert found.n_infeasible == n_infeasible > 0


@pytest.mark.parametrize("n_labels", [1, 2])
def test_on_a_vertex_the_other_function_may_still_want_the_next_one(n_labels):
    """Whether one budget is asked for or several: the next vertex costs nothing by the other."""
    choosing = torch.tensor([[[[0.0, 1.0]], [[0.0, 1.0]]]])
    valuing = torch.tensor([[[[0.0, 3.0]], [[0.5, 0.3]]]])
    found = mixture_values(choosing, valuing, torch.zeros(1, n_labels), GreedyRule()).values
    assert found[0, 0].tolist() == pytest.approx([3.0, 0.3])


def test_a_crossed_budget_is_spent_where_it_can_be():
    low, high = np.array([0.0, 0.2, 0.5]), np.array([1.0, 0.6, 0.4])
    share = crossed_share(low, high, np.array([0.25, 0.9, 0.1]))
    assert share.tolist() == [0.25, 1.0, 1.0]


def test_costs_below_the_floor_are_not_believed():
    grid = grids()
    found = mixture_values(grid, grid, torch.tensor([[0.0]] * 40), GreedyRule(cost_floor=0.0))
    assert (found.values[..., 1] >= 0).all()
    assert found.n_infeasible < 40


def test_the_slope_cap_starts_the_frontier_where_saving_is_worth_it():
    costs = np.array([[0.0, 0.01, 1.0], [0.0, 0.5, 1.0]])
    rewards = np.array([[0.0, 5.0, 6.0], [4.0, 4.5, 6.0]])
    for arrays in ((costs, rewards), (torch.tensor(costs), torch.tensor(rewards))):
        c, r = (np.asarray(a) for a in capped(*arrays, 10.0))
        assert upper_frontier(c[0], r[0]).index.tolist() == [1, 2]
        assert upper_frontier(c[1], r[1]).index.tolist() == [0, 2]
        c, r = (np.asarray(a) for a in capped(*arrays, 10_000.0))
        assert upper_frontier(c[0], r[0]).index.tolist() == [0, 1, 2]
    empty = np.empty((0, 3))
    assert capped(empty, empty, 1.0)[0].shape == (0, 3)
