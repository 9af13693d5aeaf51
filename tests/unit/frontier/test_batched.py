from fractions import Fraction

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bmdp import hull_mixture, upper_frontier
from bmdp.frontier import (
    Mixtures,
    best_mixtures,
    crossed_values,
    frontier_values,
    mixtures_at,
)
from clouds import arcs, clouds, extreme, few_values, geometric, points, scaled
from devices import each_device
from oracles.greedy import nested_program, nested_program_exactly

TOLERANCE = {np.float32: 2e-6, np.float64: 1e-14}
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def as_tensors(*arrays):
    return tuple(torch.tensor(a) for a in arrays)


def as_arrays(mixtures):
    return Mixtures(*(np.asarray(column) for column in mixtures))


@DTYPES
def test_batched_single_and_tensor_agree_on_random_states(dtype):
    n_states = scaled(100_000) if dtype is np.float64 else scaled(20_000)
    costs, rewards, betas = clouds(n_states, 10, seed=0, dtype=dtype)
    batched = best_mixtures(costs, rewards, betas)
    tensor = as_arrays(best_mixtures(*as_tensors(costs, rewards, betas)))
    single = [
        hull_mixture(upper_frontier(c, r), b) for c, r, b in zip(costs, rewards, betas, strict=True)
    ]
    for mixtures in (batched, tensor):
        assert (mixtures.status == [m.status for m in single]).all()
        assert (mixtures.cost == np.array([m.cost for m in single], dtype)).all()
        error = mixtures.reward - np.array([m.reward for m in single])
        assert abs(error).max() <= TOLERANCE[dtype]


@DTYPES
def test_the_points_named_make_up_the_mixture(dtype):
    costs, rewards, betas = clouds(scaled(20_000), 10, seed=1, dtype=dtype)
    for mixtures in (
        best_mixtures(costs, rewards, betas),
        as_arrays(best_mixtures(*as_tensors(costs, rewards, betas))),
    ):
        for points_of, expected in ((costs, mixtures.cost), (rewards, mixtures.reward)):
            lower = np.take_along_axis(points_of, mixtures.lower[:, None], 1)[:, 0]
            upper = np.take_along_axis(points_of, mixtures.upper[:, None], 1)[:, 0]
            mixed = lower + mixtures.p_upper * (upper - lower)
            assert abs(mixed - expected).max() <= 4 * TOLERANCE[dtype]


@DTYPES
def test_a_budget_on_a_vertex_plays_that_vertex_alone(dtype):
    costs, rewards, betas = clouds(scaled(20_000), 10, seed=11, dtype=dtype, ties=1)
    for mixtures in (
        best_mixtures(costs, rewards, betas),
        as_arrays(best_mixtures(*as_tensors(costs, rewards, betas))),
    ):
        at_vertex = np.take_along_axis(costs, mixtures.lower[:, None], 1)[:, 0] == betas
        assert at_vertex.any()
        assert (mixtures.p_upper[at_vertex] == 0).all()
        assert (mixtures.p_upper < 1).all()


def test_of_equal_points_the_lowest_position_is_named():
    costs, rewards = [[1.0, 0.0, 1.0, 0.0]], [[2.0, 1.0, 2.0, 1.0]]
    for mixtures in (
        best_mixtures(costs, rewards, [0.5]),
        best_mixtures(*as_tensors(costs, rewards, [0.5])),
    ):
        assert (int(mixtures.lower[0]), int(mixtures.upper[0])) == (1, 0)


def test_ends_of_an_edge_are_named_even_if_points_lie_on_it():
    costs = [[0.0, 2.0, 1.0, 3.0, 4.0]]  # the edge from 1 to 3 is parallel to the chord from 0 to 4
    rewards = [[0.0, 2.5, 1.5, 3.5, 4.0]]
    mixtures = best_mixtures(costs, rewards, [2.5])
    assert (mixtures.lower[0], mixtures.upper[0], mixtures.p_upper[0]) == (2, 3, 0.75)


@pytest.mark.parametrize("seed", range(30))
def test_batched_mixtures_solve_the_nested_program(seed):
    costs, rewards, betas = clouds(1, 8, seed=seed)
    mixtures = best_mixtures(costs, rewards, betas)
    cost, reward = nested_program(costs[0], rewards[0], betas[0])
    assert mixtures.reward[0] == pytest.approx(reward, abs=1e-8)
    assert mixtures.cost[0] == pytest.approx(cost, abs=1e-5)


@DTYPES
@settings(max_examples=300)
@given(data=st.data())
def test_all_forms_solve_the_nested_program_at_all_scales(dtype, data):
    costs, rewards, beta = data.draw(points(few_values | extreme, max_size=7, dtype=dtype))
    cost, reward = nested_program_exactly(costs, rewards, beta)
    cloud = (costs[None], rewards[None], np.array([beta]))
    slack = 16 * float(np.finfo(dtype).eps) * float(abs(rewards).max())
    by_number = [best_mixtures(*cloud), as_arrays(best_mixtures(*as_tensors(*cloud)))]
    found = [(m.cost[0], m.reward[0]) for m in by_number]
    for v_r, v_c in (frontier_values(*cloud), frontier_values(*as_tensors(*cloud))):
        found.append((v_c[0, 0], v_r[0, 0]))
    for found_cost, found_reward in found:
        assert Fraction(float(found_cost)) == cost
        assert abs(Fraction(float(found_reward)) - reward) <= slack


@DTYPES
@pytest.mark.parametrize("shape", ["clouds", "arcs", "geometric"])
@pytest.mark.parametrize("n_points", [1, 2, 60, 505])
def test_values_at_many_budgets_are_those_of_the_mixtures(dtype, shape, n_points):
    make = {"clouds": lambda *a, **k: clouds(*a, **k)[:2], "arcs": arcs, "geometric": geometric}
    n_states = scaled(400) if n_points < 100 else scaled(60)
    if not numba.config.DISABLE_JIT or n_points < 100:
        costs, rewards = make[shape](n_states, n_points, seed=2, dtype=dtype)
        betas = np.random.default_rng(3).permutation(np.linspace(-0.1, 1.2, 21)).astype(dtype)
        v_r, v_c = frontier_values(costs, rewards, betas)
        t_r, t_c = frontier_values(*as_tensors(costs, rewards, betas))
        for m, beta in enumerate(betas):
            mixtures = best_mixtures(costs, rewards, np.full(n_states, beta))
            for reward, cost in ((v_r[:, m], v_c[:, m]), (t_r[:, m].numpy(), t_c[:, m].numpy())):
                assert (cost == mixtures.cost).all()
                assert abs(reward - mixtures.reward).max() <= TOLERANCE[dtype]


def test_clustered_costs_are_sorted_too():
    costs, rewards = arcs(scaled(50), 300, seed=4)
    costs = 1 + costs * 1e-13  # a few distinct numbers in the last place, and one far away
    costs[:, 0], rewards[:, 0] = 0, -1
    v_r, _ = frontier_values(costs, rewards, [1.0, 1 + 5e-14])
    for n in range(0, len(costs), 10):
        frontier = upper_frontier(costs[n], rewards[n])
        expected = [hull_mixture(frontier, b).reward for b in (1.0, 1 + 5e-14)]
        assert v_r[n] == pytest.approx(expected, abs=1e-12)


@DTYPES
@pytest.mark.parametrize("depth", [0, 3, 17, 29])
@pytest.mark.parametrize("n_useless", [0, 300])
def test_frontiers_that_bend_at_all_scales_are_followed_to_any_depth(dtype, depth, n_useless):
    costs, rewards = geometric(4, 32, seed=9, dtype=dtype)
    costs = np.pad(costs, ((0, 0), (0, n_useless)), constant_values=1)
    rewards = np.pad(rewards, ((0, 0), (0, n_useless)), constant_values=-1)
    beta = dtype(1.5 * 0.5 ** (depth + 1))
    mixtures = best_mixtures(costs, rewards, np.full(4, beta))
    rows = np.arange(4)
    assert (costs[rows, mixtures.upper] == 0.5**depth).all()
    assert (costs[rows, mixtures.lower] == 0.5 ** (depth + 1)).all()
    assert (mixtures.p_upper == 0.5).all()
    largest = dtype(2.0 ** {np.float32: 59, np.float64: 498}[dtype])
    scaled_up = best_mixtures(costs * largest, rewards * largest, np.full(4, beta * largest))
    for at_one, at_largest in zip(mixtures[:3], scaled_up[:3], strict=True):
        assert (at_one == at_largest).all()


def test_points_given_twice_are_vertices_once():
    costs, rewards = (np.tile(a, 2) for a in arcs(scaled(40), 40, seed=10))
    betas = np.linspace(0, 1, 9)
    v_r, _ = frontier_values(costs, rewards, betas)
    once, _ = frontier_values(costs[:, :40], rewards[:, :40], betas)
    assert (v_r == once).all()


@pytest.mark.parametrize("function", [best_mixtures, frontier_values])
@pytest.mark.parametrize("as_given", [lambda *a: a, as_tensors])
def test_inputs_are_not_modified(function, as_given):
    given_arrays = as_given(*clouds(50, 60, seed=5))
    before = [np.asarray(a).copy() for a in given_arrays]
    function(*given_arrays)
    for array, copy in zip(given_arrays, before, strict=True):
        assert (np.asarray(array) == copy).all()


def test_any_layout_and_any_real_type_is_taken():
    costs, rewards, betas = clouds(40, 6, seed=6, ties=1)
    plain = best_mixtures(costs, rewards, betas)
    for version in (
        (np.asfortranarray(costs), rewards[:, ::1], betas),
        (costs.tolist(), rewards.tolist(), betas.tolist()),
        (costs.astype(np.float16), rewards.astype(np.float16), betas.astype(np.float16)),
    ):
        mixtures = best_mixtures(*version)
        assert (mixtures.lower == plain.lower).all()
        assert mixtures.reward == pytest.approx(plain.reward, rel=1e-6)
    whole = best_mixtures([[0, 2]], [[0, 4]], [1])
    assert whole.reward.dtype == np.float64
    assert whole.reward.tolist() == [2.0]


@pytest.mark.parametrize("as_given", [np.asarray, torch.tensor])
def test_no_states_give_empty_results(as_given):
    empty = as_given(np.empty((0, 3), np.float32))
    for column in best_mixtures(empty, empty, as_given(np.empty(0))):
        assert tuple(column.shape) == (0,)
    for values in frontier_values(empty, empty, as_given(np.zeros(4))):
        assert tuple(values.shape) == (0, 4)


@pytest.mark.parametrize("as_given", [np.asarray, torch.tensor])
def test_no_budgets_give_empty_values(as_given):
    cloud = as_given(np.ones((2, 3)))
    assert tuple(frontier_values(cloud, cloud, as_given(np.empty(0)))[0].shape) == (2, 0)


def test_the_number_of_threads_does_not_change_the_result():
    costs, rewards, betas = clouds(1000 if not numba.config.DISABLE_JIT else 20, 30, seed=7)
    many = best_mixtures(costs, rewards, betas)
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        one = best_mixtures(costs, rewards, betas)
    finally:
        numba.set_num_threads(threads)
    for left, right in zip(many, one, strict=True):
        assert (left == right).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@DTYPES
def test_a_gpu_gives_the_same_mixtures_and_values(dtype):
    costs, rewards, betas = clouds(50_000, 40, seed=8, dtype=dtype)
    cloud = [t.cuda() for t in as_tensors(costs, rewards, betas)]
    mixtures = best_mixtures(*cloud)
    assert mixtures.reward.is_cuda
    expected = best_mixtures(costs, rewards, betas)
    assert (mixtures.status.cpu().numpy() == expected.status).all()
    assert abs(mixtures.reward.cpu().numpy() - expected.reward).max() <= TOLERANCE[dtype]
    v_r, v_c = frontier_values(*cloud[:2], cloud[2][:101])
    e_r, e_c = frontier_values(costs, rewards, betas[:101])
    assert abs(v_r.cpu().numpy() - e_r).max() <= TOLERANCE[dtype]
    assert (v_c.cpu().numpy() == e_c).all()


def single_mixtures(costs, rewards, betas):
    """Mixtures of one state at budgets by the exact form, with positions among its points."""
    frontier = upper_frontier(costs, rewards)
    found = [hull_mixture(frontier, beta) for beta in betas]
    ends = frontier.index[[[m.lower, m.upper] for m in found]]
    values = np.array([[m.p_upper, m.cost, m.reward] for m in found])
    return Mixtures(*ends.T, *values.T, np.array([m.status for m in found]))


def assert_equal_mixtures(found, expected, dtype):
    """Equal in everything, up to rounding in probability and reward."""
    for name in ("lower", "upper", "status"):
        assert (getattr(found, name) == getattr(expected, name)).all()
    assert (found.cost == expected.cost.astype(dtype)).all()
    for name in ("p_upper", "reward"):
        error = getattr(found, name) - getattr(expected, name)
        assert abs(error).max() <= 8 * TOLERANCE[dtype]


@DTYPES
@pytest.mark.parametrize("n_points", [1, 2, 10, 60])
def test_mixtures_at_many_budgets_are_those_of_each_state(dtype, n_points):
    costs, rewards, betas = clouds(scaled(2000), n_points, seed=n_points, dtype=dtype, ties=0.5)
    costs[1::2], rewards[1::2] = costs[::2], rewards[::2]  # states that are equal
    costs, rewards = (np.concatenate((a, a[:, ::-1]), axis=1) for a in (costs, rewards))
    asked = np.array([3.0, -3.0, 0.0, 0.5, -0.25, *betas[:4]], dtype)
    found = mixtures_at(costs, rewards, asked)
    tensor = as_arrays(mixtures_at(*as_tensors(costs, rewards, asked)))
    for n, (c, r) in enumerate(zip(costs, rewards, strict=True)):
        expected = single_mixtures(c, r, asked)
        for each in (found, tensor):
            assert_equal_mixtures(Mixtures(*(column[n] for column in each)), expected, dtype)


@pytest.mark.parametrize("as_given", [lambda *a: a, as_tensors])
def test_each_state_may_have_budgets_of_its_own(as_given):
    costs, rewards, betas = clouds(scaled(500), 10, seed=3)
    asked = betas[:, None] + np.array([-1.0, 0.0, 1.0])
    found = as_arrays(mixtures_at(*as_given(costs, rewards, asked)))
    for m in range(3):
        one = as_arrays(best_mixtures(*as_given(costs, rewards, asked[:, m])))
        for column, expected in zip(found, one, strict=True):
            assert (column[:, m] == expected).all()


@pytest.mark.parametrize("as_given", [np.asarray, torch.tensor])
def test_no_states_or_no_budgets_have_no_mixtures(as_given):
    none, some = as_given(np.empty((0, 3))), as_given(np.ones((2, 3)))
    for column in mixtures_at(none, none, as_given(np.zeros(4))):
        assert tuple(column.shape) == (0, 4)
    for column in mixtures_at(some, some, as_given(np.empty(0))):
        assert tuple(column.shape) == (2, 0)


def crossed_value(frontier, beta, others, cheapest):
    """Reward and cost at one budget by the exact form, and whether it is infeasible."""
    mixture = hull_mixture(frontier, beta)
    ends = frontier.index[[mixture.lower, mixture.upper]]
    if mixture.status == 0 and cheapest is not None:
        ends[:] = cheapest
    (low, high), rewards = (column[ends].astype(float) for column in others)
    p = 1.0 if high <= low else np.clip((beta - low) / (high - low), 0, 1)
    return [(1 - p) * a + p * b for a, b in (rewards, (low, high))], mixture.status == 0


@DTYPES
@pytest.mark.parametrize("n_budgets", [1, 4])
@pytest.mark.parametrize("has_cheapest", [False, True])
def test_another_function_values_the_vertices_that_one_chooses(dtype, n_budgets, has_cheapest):
    n = scaled(2000)
    costs, rewards, betas = clouds(n, 12, seed=0, dtype=dtype)
    others = clouds(n, 12, seed=1, dtype=dtype)[:2]
    cheapest = np.random.default_rng(2).integers(12, size=n)
    asked = (betas[:, None] + np.linspace(-0.5, 0.5, n_budgets)).astype(dtype)
    values, n_infeasible = crossed_values(
        (costs, rewards), others, asked, cheapest=cheapest if has_cheapest else None
    )
    n_below = 0
    for i in range(n):
        frontier = upper_frontier(costs[i], rewards[i])
        of_row, instead = [c[i] for c in others], cheapest[i] if has_cheapest else None
        for k, beta in enumerate(asked[i].tolist()):
            expected, is_below = crossed_value(frontier, beta, of_row, instead)
            assert values[i, k].tolist() == pytest.approx(expected, abs=1e-5)
            n_below += is_below
    assert n_infeasible == n_below > 0


def test_the_two_functions_may_be_of_different_precision():
    costs, rewards, betas = clouds(scaled(200), 12, seed=0)
    others = [column.astype(np.float32) for column in clouds(scaled(200), 12, seed=1)[:2]]
    exact = [column.astype(np.float64) for column in others]
    found, _ = crossed_values((costs, rewards), others, betas[:, None])
    same, _ = crossed_values((costs, rewards), exact, betas[:, None])
    assert (found == same).all()


def test_one_function_that_does_both_gives_its_own_frontier():
    costs, rewards, _ = clouds(scaled(500), 12, seed=2)
    betas = np.linspace(-2, 2, 9)
    v_r, v_c = frontier_values(costs, rewards, betas)
    values, _ = crossed_values((costs, rewards), (costs, rewards), betas)
    assert (values[..., 0] == v_r).all()
    assert (values[..., 1] == v_c).all()


@pytest.mark.parametrize("as_given", [lambda *a: a, as_tensors])
def test_budgets_of_all_states_are_those_of_each(as_given):
    costs, rewards, _ = clouds(scaled(500), 12, seed=2)
    others, betas = clouds(scaled(500), 12, seed=3)[:2], np.linspace(-2, 2, 9)
    points = as_given(costs, rewards), as_given(*others)
    shared, n_shared = crossed_values(*points, *as_given(betas))
    repeated, n_repeated = crossed_values(*points, *as_given(np.tile(betas, (len(costs), 1))))
    assert (np.asarray(shared) == np.asarray(repeated)).all()
    assert n_shared == n_repeated


@DTYPES
@pytest.mark.parametrize("has_cheapest", [False, True])
@each_device
def test_crossed_values_of_tensors_are_those_of_arrays(dtype, has_cheapest, device):
    n = scaled(3000)
    costs, rewards, betas = clouds(n, 12, seed=0, dtype=dtype)
    other_costs, other_rewards, _ = clouds(n, 12, seed=1, dtype=dtype)
    asked = (betas[:, None] + np.linspace(-0.5, 0.5, 5)).astype(dtype)
    cheapest = np.random.default_rng(2).integers(12, size=n) if has_cheapest else None
    one, other = (costs, rewards), (other_costs, other_rewards)
    expected, n_expected = crossed_values(one, other, asked, cheapest=cheapest)
    found, n_infeasible = crossed_values(
        tuple(torch.tensor(c, device=device) for c in one),
        tuple(torch.tensor(c, device=device) for c in other),
        torch.tensor(asked, device=device),
        cheapest=None if cheapest is None else torch.tensor(cheapest, device=device),
    )
    np.testing.assert_allclose(found.cpu().numpy(), expected, atol=1e-4)
    assert n_infeasible == n_expected > 0


@pytest.mark.parametrize("as_given", [np.asarray, torch.tensor])
def test_no_states_have_no_crossed_values(as_given):
    none = as_given(np.empty((0, 3)))
    values, n_infeasible = crossed_values((none, none), (none, none), as_given(np.empty((0, 2))))
    assert (tuple(values.shape), n_infeasible) == ((0, 2, 2), 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponents", [(-30, -30), (-30, 10), (10, -30)])
def test_frontiers_are_the_same_in_tiny_units(dtype, exponents):
    """Products of differences are below the smallest number there."""
    costs, rewards, betas = clouds(scaled(2_000), 6, seed=5, dtype=dtype)
    x, y = (dtype(2.0 ** (e * (3 if dtype is np.float32 else 20))) for e in exponents)
    plain = best_mixtures(costs, rewards, betas)
    for found in (
        best_mixtures(costs * x, rewards * y, betas * x),
        as_arrays(best_mixtures(*as_tensors(costs * x, rewards * y, betas * x))),
    ):
        assert (found.status == plain.status).all()
        np.testing.assert_allclose(found.reward / y, plain.reward, rtol=0, atol=TOLERANCE[dtype])


def test_what_is_large_beside_what_is_small_is_not_lost():
    """Units are made smaller only, so the tiny difference of two rewards stays."""
    costs = np.array([[2e-8, 9.5e-187, 4.2e-109, -1.2e-173]])
    rewards = np.array([[-2.8e107, -1.7e-251, 1.0e-278, -2.1e79]])
    asked = costs[:, 1]
    for found in (
        best_mixtures(costs, rewards, asked),
        as_arrays(best_mixtures(*as_tensors(costs, rewards, asked))),
    ):
        assert (int(found.status[0]), float(found.cost[0])) == (1, 9.5e-187)
