"""What the next state is worth: against the exact operators, the geometry, and by hand."""

import numpy as np
import pytest
import torch

from batches import exhaustive_batch, fraction_model
from bmdp import PolicyError, hull_mixture, upper_frontier
from bmdp.exact.evaluation import policy_matrix
from bmdp.exact.operators import QTables, expectation_operator, optimality_operator
from bmdp.learn.fit import Source, bootstrap_targets
from bmdp.learn.next_values import hull_values, places_of, policy_values, priced_values
from bmdp.policies import HullPolicy, TabularQ
from bmdp.policies.policy import Options
from bmdp.policies.prices import best_actions

GRID = np.linspace(0, 2, 21)
PAPER = hull_values(0.0, costs_from_zero=False)


def worth(next_values, values, asked, *, known=None, units=(1.0, 1.0), states=None):
    """What states are worth, given what models say of them, `[E, n, 2, A, H]`."""
    n, n_actions = values.shape[1], values.shape[3]
    known = torch.ones((n, n_actions), dtype=torch.bool) if known is None else known
    states = np.arange(n)[:, None] if states is None else states
    value = next_values(Source(0, states, values, known, units))
    return value(values, known, torch.as_tensor(asked, dtype=torch.float32), slice(0, n))


def grids(n=40, n_actions=3, n_budgets=7, seed=0):
    """Q-values `[n, 2, A, B]`."""
    values = np.random.default_rng(seed).normal(size=(n, 2, n_actions, n_budgets))
    return torch.tensor(values, dtype=torch.float32)


def budgets_of(n_labels, seed=1):
    return np.random.default_rng(seed).normal(size=(40, n_labels)) * 2


def points(grid, n):
    return grid[n, 1].flatten().numpy(), grid[n, 0].flatten().numpy()


# Against the exact operators


def tables(seed, n_heads):
    """Any Q-values of four states and three actions, as an operator and a learner take them."""
    q_r, q_c = np.random.default_rng(seed).random((2, 4, 3, n_heads)) * [[[[1.0]]], [[[2.0]]]]
    values = torch.tensor(np.stack((q_r, q_c), axis=1)[None], dtype=torch.float32)
    return QTables(q_r, q_c), values


def backed_up(model, next_values, values, asked):
    """Mean targets of each state and action on exhaustive data, `[2, 3, A, L]`."""
    batch = exhaustive_batch(model, parts=4, n_copies=1)
    going = torch.from_numpy(np.flatnonzero(~batch.terminal))
    at = batch.next_state[going, 0].astype(int)
    found = worth(next_values, values, asked).values[at]
    paid = torch.tensor(np.stack((batch.reward, batch.cost), -1)[:, None], dtype=torch.float32)
    paid = paid.expand(-1, found.shape[1], -1)
    discounts = torch.tensor([model.gamma, model.cost_gamma], dtype=torch.float32)
    targets = bootstrap_targets(paid, going, found, discounts).numpy()
    pairs = [(batch.state[:, 0] == s) & (batch.action == a) for s in range(3) for a in range(3)]
    means = np.stack([targets[pair].mean(axis=0) for pair in pairs]).reshape(3, 3, -1, 2)
    return np.moveaxis(means, -1, 0)


@pytest.mark.parametrize("seed", range(4))
def test_values_of_the_hull_are_the_optimality_operator_on_exhaustive_data(seed):
    model = fraction_model(seed, 0.9, horizon=3, cost_gamma=0.6)
    q, values = tables(seed, len(GRID))
    expected = np.stack(optimality_operator(model, q, GRID))[:, :3]
    np.testing.assert_allclose(backed_up(model, PAPER, values, GRID), expected, atol=1e-5)


@pytest.mark.parametrize("price", [0.0, 0.7, 20.0])
@pytest.mark.parametrize("seed", range(2))
def test_values_of_a_price_are_fitted_q_iteration_on_rewards_less_the_price_of_costs(seed, price):
    model = fraction_model(seed, 0.9)
    q, values = tables(seed, 1)
    found_r, found_c = backed_up(model, priced_values(np.array([price])), values, [0.0])[..., 0]
    best = (q.q_r - price * q.q_c)[..., 0].max(axis=1) * ~model.terminal
    chances = model.transition.toarray().reshape(4, 3, 4)
    expected = model.reward - price * model.cost + 0.9 * chances @ best
    np.testing.assert_allclose(found_r - price * found_c, expected[:3], atol=1e-5 * (1 + price))


@pytest.mark.parametrize("seed", range(3))
def test_values_of_a_policy_are_the_expectation_operator_on_exhaustive_data(seed):
    model = fraction_model(seed, 0.9, horizon=3, cost_gamma=0.6)
    q, values = tables(seed, len(GRID))
    policy = HullPolicy(TabularQ(*tables(seed + 9, len(GRID))[0]), GRID)
    expected = np.stack(expectation_operator(model, q, policy_matrix(model, policy, GRID)))[:, :3]
    given = policy_values(policy, GRID, 3, lambda step, states: states[:, 0])
    np.testing.assert_allclose(backed_up(model, given, values, GRID), expected, atol=1e-5)


# Against the geometry of one state


@pytest.mark.parametrize("n_labels", [1, 4])
def test_one_model_gives_the_values_of_its_own_mixtures(n_labels):
    grid, budgets = grids(), budgets_of(n_labels)
    found = worth(PAPER, grid[None], budgets)
    n_infeasible = 0
    for n, k in np.ndindex(40, n_labels):
        mixture = hull_mixture(upper_frontier(*points(grid, n)), float(budgets[n, k]))
        expected = (mixture.reward, mixture.cost)
        assert found.values[n, k].tolist() == pytest.approx(expected, abs=1e-5)
        n_infeasible += mixture.status == 0
    assert found.n_infeasible == n_infeasible > 0


@pytest.mark.parametrize("budget", [-5.0, -0.5, 0.0, 0.3, 2.0, 9.0])
def test_one_budget_for_all_is_the_same_as_one_of_many(budget):
    grid = grids()[None]
    together = worth(PAPER, grid, [-7.0, budget, 7.0]).values
    alone = worth(PAPER, grid, np.full((40, 1), budget)).values
    assert torch.allclose(alone[:, 0], together[:, 1], atol=1e-5)


def mixed_by_another(choosing, valuing, beta):
    """The mixture that one model chooses, spent and valued as the other has it."""
    frontier = upper_frontier(*choosing)
    costs, rewards = valuing
    mixture = hull_mixture(frontier, beta)
    low, high = frontier.index[mixture.lower], frontier.index[mixture.upper]
    share = 0.0
    if mixture.lower != mixture.upper:
        run = costs[high] - costs[low]
        share = 1.0 if run <= 0 else float(np.clip((beta - costs[low]) / run, 0, 1))
    return [(1 - share) * values[low] + share * values[high] for values in (rewards, costs)]


@pytest.mark.parametrize("n_labels", [1, 3])
def test_of_two_models_each_values_the_vertices_of_the_other_and_spends_the_budget(n_labels):
    both, budgets = torch.stack([grids(seed=0), grids(seed=1)]), budgets_of(n_labels, seed=2)
    found = worth(PAPER, both, budgets).values
    for n, k in np.ndindex(40, n_labels):
        first, second = points(both[0], n), points(both[1], n)
        beta = float(budgets[n, k])
        ways = mixed_by_another(first, second, beta), mixed_by_another(second, first, beta)
        assert found[n, k].tolist() == pytest.approx(np.mean(ways, axis=0), abs=1e-4)


@pytest.mark.parametrize("caution", [1.0, -0.5])
def test_with_caution_all_choose_and_value_together_by_what_is_left_of_the_mean(caution):
    values, budgets = torch.stack([grids(seed=seed) for seed in range(4)]), budgets_of(3)
    found = worth(hull_values(0.0, costs_from_zero=False, caution=caution), values, budgets)
    mean, deviation = values.numpy().mean(axis=0), values.numpy().std(axis=0)
    for n, k in np.ndindex(40, 3):
        costs = (mean[n, 1] + caution * deviation[n, 1]).ravel()
        rewards = (mean[n, 0] - caution * deviation[n, 0]).ravel()
        mixture = hull_mixture(upper_frontier(costs, rewards), float(budgets[n, k]))
        expected = (mixture.reward, mixture.cost)
        assert found.values[n, k].tolist() == pytest.approx(expected, abs=1e-4)


# By hand


def said(*models):
    """Values of one state by models, each of which gives (reward, cost) of actions."""
    values = np.array([np.transpose(model)[None, :, :, None] for model in models])
    return torch.tensor(values, dtype=torch.float32)


LOW_FIRST = said([(1.0, 0.0), (2.0, 0.0)], [(5.0, 0.0), (3.0, 0.0)])
"""One model prefers the second action, the other one the first."""


@pytest.mark.parametrize("next_values", [priced_values(np.zeros(1)), PAPER], ids=["price", "hull"])
def test_of_two_models_each_values_what_the_other_chose(next_values):
    """The second chooses the first action, worth 1 to the first; which chooses one worth 3."""
    assert worth(next_values, LOW_FIRST, [0.0]).values.tolist() == [[[2.0, 0.0]]]


def test_of_three_models_each_values_what_the_mean_of_the_others_chose():
    """Means of the others prefer actions 1, 0 and 0, and these are worth 0, 1 and 9."""
    values = said([(6.0, 0.0), (0.0, 0.0)], [(1.0, 0.0), (4.0, 0.0)], [(9.0, 0.0), (12.0, 0.0)])
    # others of 0: (5, 8); of 1: (7.5, 6); of 2: (3.5, 2)
    found = worth(priced_values(np.zeros(1)), values, [0.0]).values
    assert found[0, 0, 0].item() == pytest.approx(10 / 3)


@pytest.mark.parametrize(("caution", "reward", "cost"), [(1.0, 3.0, 6.0), (-1.0, 5.0, 4.0)])
@pytest.mark.parametrize("kind", ["price", "hull"])
def test_caution_moves_the_mean_by_deviations(kind, caution, reward, cost):
    """Of rewards 3 and 5 mean 4 and deviation 1, of costs 4 and 6 mean 5 and deviation 1."""
    makers = {"price": priced_values(np.zeros(1), caution=caution)}
    makers["hull"] = hull_values(0.0, costs_from_zero=False, caution=caution)
    values = said([(3.0, 6.0)], [(5.0, 4.0)])
    assert worth(makers[kind], values, [0.0]).values.tolist() == [[[reward, cost]]]


def test_on_a_vertex_the_other_model_may_still_want_the_next_one():
    """The first chooses between (0, 0) and (1, 1) at 0; by the second, (1, 1) is the cheaper."""
    choosing, valuing = [(0.0, 0.0), (1.0, 1.0)], [(0.0, 0.5), (3.0, 0.3)]
    found = worth(PAPER, said(choosing, valuing), [0.0]).values[0, 0]
    own_of_second = (1.0, 1.0)  # it chooses its second action, whatever the budget
    expected = np.mean([(3.0, 0.3), own_of_second], axis=0)
    assert found.tolist() == pytest.approx(expected)


def test_costs_below_zero_are_not_believed_if_there_are_none():
    grid, budgets = grids()[None], np.full((40, 1), -0.1)
    found = worth(hull_values(0.0, costs_from_zero=True), grid, budgets)
    assert (found.values[..., 1] >= 0).all()
    assert found.n_infeasible == 40 > worth(PAPER, grid, budgets).n_infeasible


@pytest.mark.parametrize(("cost_cap", "reward"), [(None, 2.0), (4.0, 5.0), (20.0, 2.0)])
def test_costs_above_a_cap_are_lowered_to_it_in_the_units_of_the_data(cost_cap, reward):
    """In units of 2, budget 1 buys a fifth of 10 for 5, or half of it if that costs 2."""
    makes = hull_values(0.0, costs_from_zero=False, cost_cap=cost_cap)
    values = said([(0.0, 0.0), (10.0, 5.0)])
    found = worth(makes, values, [1.0], units=(1.0, 2.0)).values[0, 0]
    assert found.tolist() == pytest.approx([reward, 1.0])


@pytest.mark.parametrize(("cap", "reward", "cost"), [(0, 0.0, 0.0), (10, 5, 0.01), (1000, 0, 0)])
def test_the_slope_cap_begins_the_frontier_where_saving_is_worth_it(cap, reward, cost):
    """The mean chord is 6 for 1. The first 0.01 of cost is worth 500 a unit."""
    values = said([(0.0, 0.0), (5.0, 0.01), (6.0, 1.0)])
    found = worth(hull_values(cap, costs_from_zero=True), values, [0.0, 1.0]).values[0]
    assert found[0].tolist() == pytest.approx([reward, cost])
    assert found[1].tolist() == pytest.approx([6.0, 1.0])


@pytest.mark.parametrize("next_values", [priced_values(np.zeros(1)), PAPER], ids=["price", "hull"])
@pytest.mark.parametrize("n_models", [1, 2])
def test_an_action_that_the_data_do_not_know_is_not_chosen(next_values, n_models):
    values = said([(1.0, 0.0), (9.0, -9.0)]).repeat(n_models, 1, 1, 1, 1)
    found = worth(next_values, values, [0.0], known=torch.tensor([[True, False]]))
    assert found.values.tolist() == [[[1.0, 0.0]]]


def test_prices_are_in_units_of_the_data():
    """In scaled units the risk earns 1 for 1, but rewards are in hundreds and costs in tens."""
    values = said([(0.0, 0.0), (1.0, 1.0)]).expand(-1, -1, -1, -1, 2)
    found = worth(priced_values(np.array([9.9, 10.1])), values, [0, 1], units=(100.0, 10.0)).values
    assert found[0, :, 0].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_at_an_infinite_price_costs_within_a_hundredth_of_their_range_are_equal(unit):
    values = said([(0.0, 0.0), (1.0, 0.005 * unit), (2.0, 0.02 * unit), (9.0, unit)])
    found = worth(priced_values(np.array([np.inf])), values, [0.0]).values
    assert found[0, 0].tolist() == pytest.approx([1.0, 0.005 * unit])


# Noise


@pytest.mark.parametrize("n_models", [2, 3, 5])
@pytest.mark.parametrize("kind", ["grid", "labels", "price"])
def test_models_that_check_each_other_are_not_deceived_by_noise(n_models, kind):
    """Nothing earns or costs anything, but for noise: whoever believes its own choice, earns."""
    n, generator = 2000, torch.Generator().manual_seed(0)
    noise = torch.randn((n_models, n, 2, 3, 11), generator=generator)
    next_values = priced_values(np.zeros(11)) if kind == "price" else PAPER
    asked = {"grid": np.linspace(0, 1, 11), "labels": np.full((n, 1), 0.5), "price": np.arange(11)}
    crossed, own = (
        worth(next_values, values, asked[kind]).values[..., 0] for values in (noise, noise[:1])
    )
    assert abs(float(crossed.mean())) < 4 * float(crossed.mean(dim=1).std()) / n**0.5
    assert float(own.mean()) > 0.5


# Places of what a policy does


def test_a_budget_between_two_of_the_grid_is_shared_by_its_distance():
    options = Options(np.array([[[2, 0]]]), np.array([[[0.05, 9.0]]]), np.array([[[0.5, 0.5]]]))
    place, below, above = places_of(options, np.array([0.0, 0.2, 0.4]), 3)
    assert place.tolist() == [[[6, 1]]]  # beyond the grid it is its end
    assert below[0, 0].tolist() == pytest.approx([0.375, 0.0])
    assert above[0, 0].tolist() == pytest.approx([0.125, 0.5])


@pytest.mark.parametrize("action", [-1, 3])
def test_an_action_that_the_batch_does_not_have_is_refused(action):
    options = Options(np.array([[[action]]]), np.array([[[0.0]]]), np.array([[[1.0]]]))
    with pytest.raises(PolicyError, match=f"plays action {action}; the batch has actions 0 to 2"):
        places_of(options, GRID, 3)


# Prices, by a compiled loop


@pytest.mark.parametrize("spread", [0, 1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_actions_of_prices_are_the_best_ones_ties_and_barred_actions_included(seed, spread):
    """All costs are equal where nothing is spread, so the tolerance of an infinite price is 0."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(-spread, spread + 1, size=(1, 60, 2, 4, 6)).astype(np.float32)
    drawn[:, :, 0] += rng.integers(3, size=(1, 60, 4, 6))
    known = rng.random((60, 4)) < 0.7
    known[:, 0] |= ~known.any(axis=1)
    prices = np.array([np.inf, 4.0, 1.0, 0.5, 0.25, 0.0])
    found = worth(
        priced_values(prices), torch.tensor(drawn), np.arange(6.0), known=torch.tensor(known)
    )
    q_r, q_c = np.where(
        known[:, :, None], drawn[0].transpose(1, 0, 2, 3), [[[[-np.inf]]], [[[np.inf]]]]
    )
    tolerance = 0.01 * float(np.ptp(drawn[0, :, 1]))
    actions = best_actions(q_r, q_c, prices, tolerance)
    expected = [np.take_along_axis(q, actions[:, None], 1)[:, 0] for q in (q_r, q_c)]
    np.testing.assert_array_equal(found.values.numpy(), np.stack(expected, axis=-1))
