"""Tables, which must give what the exact operator gives, and what they say of what is not there."""

import numpy as np
import pytest
import torch

from batches import exhaustive_batch, fraction_model
from bmdp import BFTQ, BFTQConfig, StoreError, TransitionBatch
from bmdp.exact import budgeted_value_iteration, textbook
from bmdp.learn.fit import Iterations
from bmdp.models import TableModel
from bmdp.models.table import keys_of
from regressors import fitted, prepared, problem_of, small_problem, values

TABLE = TableModel()


def check_against_exact(model, iterations, top, ensemble=2):
    """Both copies of the data are whole, so it makes no difference which model values which."""
    config = BFTQConfig(
        gamma=model.gamma,
        cost_gamma=model.cost_gamma,
        budget_range=(0.0, top),
        n_budgets=21,
        model=TABLE,
        schedule=Iterations(iterations, settled=0.0),
        ensemble=ensemble,
        slope_cap=0.0,
        costs_from_zero=False,
    )
    batch = exhaustive_batch(model, parts=4, n_copies=2)
    policy = BFTQ(config).fit(batch, seed=0, device="cpu")
    solution = budgeted_value_iteration(model, config.beta_grid, tol=0.0, max_iterations=iterations)
    states = np.unique(batch.state).astype(int)
    q_r, q_c = policy.q_function(states)
    np.testing.assert_allclose(q_r, solution.q_r[states], atol=1e-5)
    np.testing.assert_allclose(q_c, solution.q_c[states], atol=1e-5)


TOPS = {"ladder": 6.0, "forever": 10.0, "payments": 2.0}


@pytest.mark.parametrize("name", textbook.PROBLEMS)
def test_tabular_bftq_is_budgeted_value_iteration_on_textbook_problems(name):
    check_against_exact(textbook.problem(name).model, 4, TOPS.get(name, 1.0))


@pytest.mark.parametrize(
    ("seed", "gamma", "iterations"), [(0, 0.5, 1), (0, 0.5, 2), (1, 0.9, 7), (2, 0.9, 3)]
)
def test_tabular_bftq_is_budgeted_value_iteration_where_chance_moves(seed, gamma, iterations):
    check_against_exact(fraction_model(seed, gamma), iterations, 2.0)


@pytest.mark.parametrize("iterations", [1, 6])
def test_with_one_model_tabular_bftq_is_budgeted_value_iteration_too(iterations):
    check_against_exact(fraction_model(3, 0.9), iterations, 2.0, ensemble=1)


# Means


def test_a_table_holds_the_mean_of_the_targets_of_its_rows():
    problem = small_problem()
    targets = np.random.default_rng(0).normal(size=(240, 5, 2))
    q = fitted(TABLE, problem, targets)
    is_there = (problem.states == [2, 11]).all(axis=1) & (problem.actions == 1)
    own = problem.members[1] & is_there
    assert own.sum() > 1
    found = values(q, [[2, 11]])[1, 0, :, 1]
    np.testing.assert_allclose(found, targets[own].mean(axis=0).T, rtol=1e-6)


def of_pairs(states, actions, members, targets, n_actions=2):
    """A table fitted to one number for each row, on one head."""
    problem = problem_of(
        np.reshape(states, (-1, 1)),
        actions,
        members=np.array(members, bool),
        n_actions=n_actions,
        heads=(0.0,),
    )
    given = np.stack((targets, np.negative(targets)), axis=-1)[:, None].astype(float)
    return fitted(TABLE, problem, given)


def test_a_pair_that_a_member_lacks_has_the_mean_of_all_rows():
    q = of_pairs(
        states=[0, 0, 0, 1, 1],
        actions=[0, 1, 1, 0, 1],
        members=[[1, 0, 0, 1, 1], [0, 1, 1, 0, 0], [1, 1, 1, 1, 1]],
        targets=[1.0, 2.0, 4.0, 8.0, 16.0],
    )
    assert values(q, [[0], [1]])[:, :, 0, :, 0].tolist() == [[[1.0, 3.0], [8.0, 16.0]]] * 3


def test_a_state_that_never_occurs_has_the_mean_of_each_action():
    q = of_pairs([5, 5, 7], [0, 1, 1], [[1, 1, 1]], [1.0, 2.0, 6.0])
    for state in (4, 6, 8, -(10**9), 10**15, 5.5, np.nan, np.inf):
        found = values(q, [[state]])[0, 0, :, :, 0]
        assert found.tolist() == [[1.0, 4.0], [-1.0, -4.0]]


def test_an_action_that_never_occurs_has_the_mean_of_all():
    q = of_pairs([5, 7], [0, 2], [[1, 1]], [1.0, 6.0], n_actions=3)
    assert values(q, [[5], [6]])[0, :, 0, 1, 0].tolist() == [3.5, 3.5]


# States


def test_states_of_several_numbers_have_cells_of_their_own():
    """As those of a MultiDiscrete space: the means of all 3 x 4 x 2 of them."""
    rng = np.random.default_rng(0)
    every = np.stack(np.meshgrid(range(3), range(4), range(2), indexing="ij"), axis=-1)
    every = every.reshape(-1, 3)
    states = np.repeat(every, 3, axis=0)[rng.permutation(72)]
    targets = rng.normal(size=(72, 5, 2))
    found = values(fitted(TABLE, problem_of(states), targets), every)[0, :, :, 0]
    for state, value in zip(every, found, strict=True):
        own = targets[(states == state).all(axis=1)]
        np.testing.assert_allclose(value, own.mean(axis=0).T, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("far", [-(2**53) + 1, -7, 2**40, 2**53 - 1])
def test_numbers_of_states_may_be_negative_or_huge(far):
    q = of_pairs([far, 3, far, 3], [0, 0, 1, 1], [[1] * 4], [1.0, 2.0, 4.0, 8.0])
    assert values(q, [[far], [3]])[0, :, 0, :, 0].tolist() == [[1.0, 4.0], [2.0, 8.0]]
    assert values(q, [[far + 1 if far < 0 else far - 1]])[0, 0, 0, :, 0].tolist() == [1.5, 6.0]


def test_states_may_be_fractions_and_are_the_same_in_single_precision():
    """0.1 and 0.3 are no numbers of single precision; the table must know them all the same."""
    q = of_pairs([0.1, 0.3, 0.1, 0.3], [0, 0, 1, 1], [[1] * 4], [1.0, 2.0, 4.0, 8.0])
    for states in (np.array([[0.1], [0.3]]), np.array([[0.1], [0.3]], np.float32)):
        assert values(q, states)[0, :, 0, :, 0].tolist() == [[1.0, 4.0], [2.0, 8.0]]
    assert values(q, [[0.2]])[0, 0, 0, :, 0].tolist() == [1.5, 6.0]  # it never occurs


def test_keys_tell_all_states_apart():
    """A grid of whole numbers, one of fractions, one-hot states, and columns in another order."""
    whole = np.stack(np.meshgrid(*[np.arange(-20, 20)] * 3), -1).reshape(-1, 3).astype(float)
    states = np.concatenate((whole, whole / 8 + 1 / 3, np.eye(3) * 100, whole * 2.0**40))
    n_different = len(np.unique(states, axis=0))
    assert len(torch.unique(keys_of(torch.from_numpy(states)))) == n_different


def test_states_without_numbers_are_one_cell():
    q = prepared(TABLE, problem_of(np.zeros((3, 0))))
    assert len(q.cells) == 1


def test_states_may_be_numbers_without_columns():
    batch = TransitionBatch([0, 1], [0, 0], [0, 10], [0, 1], [0, 0], [True, True], n_actions=1)
    config = BFTQConfig(gamma=0.9, model=TABLE, ensemble=1, n_budgets=2)
    q = BFTQ(config).fit(batch, seed=0).q_function
    for one, other in zip(q(np.array([1, 0])), q(np.array([[1.0], [0.0]])), strict=True):
        assert (one == other).all()


# What is not known is not played


def test_a_pair_that_never_occurs_is_not_played_even_at_budget_0():
    """At state 1 only the dear action was ever taken, at state 2 only the poor one."""
    state, action = [0, 0, 1, 2], [0, 1, 1, 0]
    done, paid = [True] * 4, [0.0, 1.0, 1.0, 0.0]
    batch = TransitionBatch(state, action, paid, paid, state, done)
    config = BFTQConfig(gamma=0.9, model=TABLE, ensemble=1, n_budgets=3)
    policy = BFTQ(config).fit(batch, seed=0)
    options = policy.options_at(np.array([0, 1, 2]), np.array([0.0, 0.4, 1.0]))
    played = (options.action * (options.probability > 0)).max(axis=-1)
    least = np.where(options.probability > 0, options.action, 1).min(axis=-1)
    assert least.tolist() == [[0, 0, 1], [1, 1, 1], [0, 0, 0]]
    assert played.tolist() == [[0, 1, 1], [1, 1, 1], [0, 0, 0]]


def test_at_a_state_that_never_occurs_all_actions_of_the_data_may_be_played():
    batch = TransitionBatch(
        [0, 1], [0, 2], [0.0, 1.0], [0.0, 1.0], [0, 0], [True, True], n_actions=4
    )
    config = BFTQConfig(gamma=0.9, model=TABLE, ensemble=1, n_budgets=3)
    q_r, q_c = BFTQ(config).fit(batch, seed=0).q_function(np.array([7]))
    assert np.isfinite(q_r[0, :, 0]).tolist() == [True, False, True, False]
    assert np.isfinite(q_c[0, :, 0]).tolist() == [True, False, True, False]


# Files


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("cells", lambda cells: cells.flip(0)),
        ("cells", lambda cells: cells[:-1]),
        ("seen", lambda seen: seen[:-1]),
        ("table", lambda table: table[:, :, :-1]),
    ],
)
def test_cells_that_do_not_match_their_tables_are_refused(name, change):
    q = fitted(TABLE, small_problem())
    arrays = dict(q.state_dict())
    with pytest.raises(StoreError, match=r"TableQ\.\w+ must"):
        TABLE.empty(q.sizes).load_tensors({**arrays, name: change(torch.clone(arrays[name]))})
