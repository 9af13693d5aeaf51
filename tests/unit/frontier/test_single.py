from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmdp import BudgetStatus, Frontier, hull_mixture, upper_frontier
from clouds import few_values, points
from oracles.greedy import nested_program, nested_program_exactly

INFEASIBLE, TIGHT, SLACK = BudgetStatus


def vertices(costs, rewards):
    frontier = upper_frontier(costs, rewards)
    return list(zip(frontier.costs.tolist(), frontier.rewards.tolist(), strict=True))


def test_one_point_is_its_own_frontier():
    assert vertices([0.5], [2.0]) == [(0.5, 2.0)]


def test_equal_points_are_one_vertex_with_the_lowest_index():
    frontier = upper_frontier([1.0, 0.0, 0.0, 1.0], [5.0, 2.0, 2.0, 5.0])
    assert frontier.index.tolist() == [1, 0]


def test_of_collinear_points_only_the_ends_are_vertices():
    assert vertices([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0]) == [(0.0, 0.0), (3.0, 3.0)]


def test_collinearity_is_decided_without_rounding():
    third = 1.0 / 3.0  # above or below the line by less than rounding can tell
    exact = Fraction(third) * 3 > 1
    assert (len(vertices([0.0, 1.0, 3.0], [0.0, third, 1.0])) == 3) == exact


@pytest.mark.parametrize("rewards", [(1.0, 0.0), (0.0, 1.0)])
def test_of_equally_cheap_points_the_better_paid_one_stays(rewards):
    assert vertices([0.0, 0.0], rewards) == [(0.0, 1.0)]


@pytest.mark.parametrize("costs", [(1.0, 0.0), (0.0, 1.0)])
def test_of_equally_paid_points_the_cheaper_one_stays(costs):
    assert vertices(costs, [7.0, 7.0]) == [(0.0, 7.0)]


def test_negative_zero_costs_as_much_as_zero():
    assert vertices([-0.0, 0.0], [1.0, 2.0]) == [(0.0, 2.0)]


def test_costs_may_be_negative():
    assert vertices([-2.0, -1.0], [-5.0, 0.0]) == [(-2.0, -5.0), (-1.0, 0.0)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_vertices_keep_the_precision_of_the_points(dtype):
    frontier = upper_frontier(np.array([0, 0.1], dtype), np.array([0, 0.3], dtype))
    assert frontier.costs.dtype == frontier.rewards.dtype == dtype


def test_a_budget_on_a_vertex_plays_it_alone():
    mixture = hull_mixture(upper_frontier([0, 1, 2], [0, 3, 4]), 1.0)
    assert (mixture.lower, mixture.p_upper, mixture.status) == (1, 0.0, TIGHT)


def test_a_float32_cost_equals_the_same_number_as_a_budget():
    frontier = upper_frontier(np.array([0.1, 0.9], np.float32), np.array([0, 1], np.float32))
    assert hull_mixture(frontier, 0.1).status is TIGHT
    assert hull_mixture(frontier, np.float64(0.9)).status is SLACK


@pytest.mark.parametrize(
    ("beta", "vertex", "status"), [(-1, 0, INFEASIBLE), (2, 1, SLACK), (3, 1, SLACK)]
)
def test_outside_the_frontier_the_nearest_end_is_played(beta, vertex, status):
    frontier = upper_frontier([0, 2], [0, 1])
    mixture = hull_mixture(frontier, beta)
    assert (mixture.lower, mixture.upper, mixture.p_upper) == (vertex, vertex, 0.0)
    assert mixture.status is status
    assert (mixture.cost, mixture.reward) == (frontier.costs[vertex], frontier.rewards[vertex])


@given(points())
def test_a_frontier_rises_bends_down_and_lies_above_all_points(drawn):
    costs, rewards, _ = drawn
    x = [Fraction(v) for v in upper_frontier(costs, rewards).costs.tolist()]
    y = [Fraction(v) for v in upper_frontier(costs, rewards).rewards.tolist()]
    slopes = [(y[k + 1] - y[k]) / (x[k + 1] - x[k]) for k in range(len(x) - 1)]
    assert all(slope > 0 for slope in slopes)
    assert slopes == sorted(slopes, reverse=True)
    assert len(set(slopes)) == len(slopes)
    for c, r in zip(costs.tolist(), rewards.tolist(), strict=True):
        assert x[0] < c or (x[0] == c and y[0] >= r)
        lines = [y[k] + slopes[k] * (Fraction(c) - x[k]) for k in range(len(slopes))]
        assert r <= min([y[-1], *lines])


@given(points())
def test_a_feasible_mixture_spends_the_budget_up_to_the_last_vertex(drawn):
    costs, rewards, beta = drawn
    frontier = upper_frontier(costs, rewards)
    mixture = hull_mixture(frontier, beta)
    if mixture.status is INFEASIBLE:
        assert beta < costs.min() == mixture.cost
    else:
        assert mixture.cost == min(beta, frontier.costs[-1])


@given(points(), st.randoms())
def test_the_order_of_points_does_not_matter(drawn, random):
    costs, rewards, _ = drawn
    order = list(range(len(costs)))
    random.shuffle(order)
    assert vertices(costs[order], rewards[order]) == vertices(costs, rewards)


@given(points(max_size=5))
def test_points_given_twice_do_not_matter(drawn):
    costs, rewards, _ = drawn
    assert vertices(np.tile(costs, 2), np.tile(rewards, 2)) == vertices(costs, rewards)


@given(
    points(values=few_values), st.sampled_from([0.125, 1, 64]), st.sampled_from([-4.0, 0.0, 0.5])
)
def test_scaling_and_shifting_an_axis_keeps_the_vertices(drawn, scale, shift):
    costs, rewards, _ = drawn
    index = upper_frontier(costs, rewards).index.tolist()
    assert upper_frontier(scale * costs + shift, rewards).index.tolist() == index
    assert upper_frontier(costs, scale * rewards + shift).index.tolist() == index


@pytest.mark.parametrize("seed", range(100))
def test_mixtures_solve_the_nested_program(seed):
    rng = np.random.default_rng(seed)
    costs, rewards = rng.random((2, 7)).round(1 if seed % 3 == 0 else 6)  # a third with ties
    beta = float(rng.choice([rng.uniform(-0.1, 1.1), rng.choice(costs)]))
    mixture = hull_mixture(upper_frontier(costs, rewards), beta)
    cost, reward = nested_program(costs, rewards, beta)
    assert mixture.reward == pytest.approx(reward, abs=1e-8)
    assert mixture.cost == pytest.approx(cost, abs=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
def test_mixtures_solve_the_nested_program_at_all_scales(dtype, data):
    costs, rewards, beta = data.draw(points(dtype=dtype))
    mixture = hull_mixture(upper_frontier(costs, rewards), beta)
    cost, reward = nested_program_exactly(costs, rewards, beta)
    assert mixture.cost == cost
    assert abs(Fraction(mixture.reward) - reward) <= 8 * np.finfo(float).eps * abs(rewards).max()


def test_the_reward_at_a_cost_is_that_of_the_best_mixture():
    frontier = Frontier(np.array([0.0, 1.0]), np.array([0.0, 10.0]))
    assert frontier.reward_at(0.25) == 2.5
    assert frontier.reward_at(np.array([-1.0, 0.0, 5.0])).tolist() == [-np.inf, 0.0, 10.0]


def test_a_frontier_without_points_has_no_index():
    assert Frontier([0.0], [1.0]).index is None
    assert len(Frontier([0.0], [1.0])) == 1


def test_a_frontier_cannot_be_written_to():
    frontier = upper_frontier([0.0, 1.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="read-only"):
        frontier.costs[0] = 5
    with pytest.raises(AttributeError):
        frontier.costs = frontier.rewards


def test_a_reward_is_read_where_a_slope_has_no_number():
    for cost, reward in ((1e-300, 1e300), (1e250, 1e-300)):
        frontier = upper_frontier([0.0, cost], [0.0, reward])
        assert frontier.reward_at(cost / 2) == pytest.approx(reward / 2, rel=1e-14, abs=0)
        assert frontier.reward_at(cost / 2) == hull_mixture(frontier, cost / 2).reward
        assert frontier.reward_at(np.inf) == reward
