import re

import numpy as np
import pytest
import torch

from bmdp import BudgetError, DataError, Frontier, hull_mixture, upper_frontier
from bmdp.frontier import best_mixtures, crossed_values, frontier_values, mixtures_at

BOTH = pytest.mark.parametrize("as_given", [np.asarray, torch.tensor], ids=["numpy", "torch"])
FUNCTIONS = pytest.mark.parametrize("function", [best_mixtures, mixtures_at, frontier_values])

GOOD = np.zeros((3, 4))


def cloud(as_given, **changed):
    arrays = {"costs": np.zeros((3, 4)), "rewards": np.zeros((3, 4)), "betas": np.zeros(3)}
    return {name: as_given(changed.get(name, array)) for name, array in arrays.items()}


def with_value(value, index, shape=(3, 4)):
    array = np.zeros(shape)
    array[index] = value
    return array


@BOTH
@FUNCTIONS
@pytest.mark.parametrize("name", ["costs", "rewards"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_points_must_be_finite(as_given, function, name, value):
    arrays = cloud(as_given, **{name: with_value(value, (1, 2))})
    with pytest.raises(
        DataError, match=re.escape(f"{name} must be finite; got {value:g} at [1, 2].")
    ):
        function(**arrays)


@BOTH
@FUNCTIONS
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_budgets_must_be_finite(as_given, function, value):
    arrays = cloud(as_given, betas=with_value(value, 2, (3,)))
    with pytest.raises(
        BudgetError, match=re.escape(f"betas must be finite; got {value:g} at [2].")
    ):
        function(**arrays)


@BOTH
@FUNCTIONS
def test_points_must_be_small_enough_to_multiply(as_given, function):
    large = with_value(-1e200, (0, 3))
    with pytest.raises(DataError, match=r"at most 1e\+150 in magnitude; got -1e\+200 at \[0, 3\]"):
        function(**cloud(as_given, costs=large))
    narrow = {n: a.astype(np.float32) for n, a in cloud(np.asarray).items()}
    narrow["rewards"][2, 0] = 1e30
    with pytest.raises(DataError, match=r"rewards must be at most 1e\+18 .* at \[2, 0\]"):
        function(**{n: as_given(a) for n, a in narrow.items()})


def test_the_number_of_bad_values_is_told():
    with pytest.raises(DataError, match=r"got nan at \[0, 0\]. \(12 of 12 values are bad.\)"):
        best_mixtures(**cloud(np.asarray, costs=np.full((3, 4), np.nan)))


@BOTH
@FUNCTIONS
@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("costs", (4,), "costs must have shape [N, K]; got [4]."),
        ("rewards", (3, 5), "rewards must have shape [N, K] = [3, 4]; got [3, 5]."),
        ("betas", (2, 1, 1), "betas must have shape ["),
    ],
)
def test_shapes_must_fit(as_given, function, name, shape, message):
    with pytest.raises(DataError, match=re.escape(message)):
        function(**cloud(as_given, **{name: np.zeros(shape)}))


@BOTH
def test_each_state_has_one_budget(as_given):
    with pytest.raises(DataError, match=re.escape("betas must have shape [N] = [3]; got [2].")):
        best_mixtures(**cloud(as_given, betas=np.zeros(2)))


@BOTH
@FUNCTIONS
@pytest.mark.parametrize("n_states", [0, 3])
def test_a_state_must_have_points(as_given, function, n_states):
    none = as_given(np.zeros((n_states, 0)))
    with pytest.raises(DataError, match="costs must have at least one point"):
        function(none, none, as_given(np.zeros(n_states)))


@FUNCTIONS
@pytest.mark.parametrize("values", [[[1j]], [["a"]], [[None]], [[1.0], [1.0, 2.0]]])
def test_values_must_be_real_numbers(function, values):
    with pytest.raises(DataError, match="costs must be an array of real numbers"):
        function(values, [[0.0]], [0.0])


def test_tensors_must_be_real():
    real = torch.zeros(1, 1)
    with pytest.raises(DataError, match=r"rewards must be real numbers; got type torch.complex64"):
        best_mixtures(real, real.to(torch.complex64), torch.zeros(1))


def test_arrays_and_tensors_do_not_mix():
    with pytest.raises(
        DataError, match="betas must be a tensor as the other arguments; got ndarray"
    ):
        best_mixtures(torch.zeros(1, 1), torch.zeros(1, 1), np.zeros(1))


def test_tensors_must_be_on_one_device():
    here = torch.zeros(1, 1)
    with pytest.raises(DataError, match="rewards must be on the device of costs, cpu; got meta"):
        best_mixtures(here, here.to("meta"), torch.zeros(1))


@BOTH
@pytest.mark.parametrize("place", range(4))
def test_bad_values_are_named_by_who_chooses_or_values_them(as_given, place):
    columns = [as_given(with_value(np.nan, (1, 2)) if i == place else GOOD) for i in range(4)]
    name = ("chosen_by costs", "chosen_by rewards", "valued_by costs", "valued_by rewards")[place]
    with pytest.raises(DataError, match=re.escape(f"{name} must be finite; got nan at [1, 2].")):
        crossed_values(columns[:2], columns[2:], as_given(np.zeros((3, 1))))


@BOTH
@pytest.mark.parametrize(
    ("cheapest", "message"),
    [
        ([0, 1], "cheapest must have shape [N] = [3]; got [2]."),
        ([0, 1, 4], "cheapest must be positions from 0 to 3; got 4 at [2]."),
        ([0, -1, 0], "cheapest must be positions from 0 to 3; got -1 at [1]."),
        ([0.0, 1.0, 2.0], "cheapest must be whole numbers; got type "),
    ],
)
def test_what_is_played_for_want_of_budget_is_a_point(as_given, cheapest, message):
    points = as_given(GOOD), as_given(GOOD)
    with pytest.raises(DataError, match=re.escape(message)):
        crossed_values(points, points, as_given(np.zeros(2)), cheapest=as_given(cheapest))


@BOTH
def test_budgets_have_a_row_for_each_state(as_given):
    points = as_given(GOOD), as_given(GOOD)
    with pytest.raises(DataError, match=re.escape("betas must have shape [N, L] or [L]")):
        crossed_values(points, points, as_given(np.zeros((2, 2))))


@pytest.mark.parametrize(
    ("costs", "rewards", "message"),
    [
        ([], [], "costs must have at least one point"),
        ([1.0], [1.0, 2.0], "rewards must have shape [K] = [1]; got [2]."),
        ([[1.0]], [[1.0]], "costs must have shape [K]; got [1, 1]."),
        ([0.0, np.nan], [0.0, 0.0], "costs must be finite; got nan at [1]."),
        ([0.0, 0.0], [np.inf, 0.0], "rewards must be finite; got inf at [0]."),
    ],
)
def test_upper_frontier_names_what_is_wrong(costs, rewards, message):
    with pytest.raises(DataError, match=re.escape(message)):
        upper_frontier(costs, rewards)


@pytest.mark.parametrize("beta", [np.nan, np.inf])
def test_hull_mixture_takes_finite_budgets_only(beta):
    with pytest.raises(BudgetError, match=rf"beta must be finite; got {beta:g}\."):
        hull_mixture(upper_frontier([0.0], [0.0]), beta)


def test_hull_mixture_takes_one_budget():
    with pytest.raises(BudgetError, match="beta must be a number"):
        hull_mixture(upper_frontier([0.0], [0.0]), np.zeros(2))


@pytest.mark.parametrize(
    ("costs", "rewards", "message"),
    [
        (
            [0.0, 0.0],
            [0.0, 1.0],
            "Frontier.costs must be strictly increasing; got 0, then 0 at [1]",
        ),
        ([0.0, 1.0], [1.0, 0.5], "Frontier.rewards must be strictly increasing; got 1, then 0.5"),
        ([0.0, 1.0, 2.0], [0.0, 1.0, 2.0], "strictly concave in costs; vertex [1] is not above"),
    ],
)
def test_a_frontier_made_by_hand_is_checked(costs, rewards, message):
    with pytest.raises(DataError, match=re.escape(message)):
        Frontier(costs, rewards)


def test_a_frontier_has_an_index_for_each_vertex():
    with pytest.raises(DataError, match=r"Frontier\.index must have shape"):
        Frontier([0.0], [0.0], np.array([1, 2]))


def test_the_reward_at_no_cost_is_refused():
    with pytest.raises(BudgetError, match="cost must be a number; got nan"):
        upper_frontier([0.0], [0.0]).reward_at(np.nan)
