"""Tables, which must give what the exact operator gives; and what all plain models have in common.

The latter are fitted here to the same small problem, states 0 to 3 and three actions.
"""

import numpy as np
import pytest
import torch

import bmdp
from batches import exhaustive_batch, fraction_model
from bmdp import DataError
from bmdp.exact import budgeted_value_iteration, textbook
from bmdp.learn.learners import BFTQ
from bmdp.learn.learners import BFTQConfig
from bmdp.models import KernelModel, LinearModel, TableModel, TableQ
from bmdp.models.regressor import Problem
from bmdp.policies import HullPolicy
from fitters import fitter_of

GRID = np.linspace(0, 1, 5)
PLAIN = [
    TableModel(),
    LinearModel(),
    LinearModel("quadratic", 3, 0.0),
    KernelModel(ridges=(1e-3, 1e-2)),
    KernelModel(2, (0.5, 2.0), (1e-3, 1.0)),
]
each_model = pytest.mark.parametrize("model", PLAIN, ids=lambda m: type(m).__name__)


def small_problem(n=60, n_models=2, seed=0):
    rng = np.random.default_rng(seed)
    states = rng.integers(4, size=(n, 1)).astype(np.float32)
    actions = rng.integers(3, size=n)
    members = rng.integers(n_models, size=n) == np.arange(n_models)[:, None]
    return Problem(states, actions, members, 3, GRID, reward_scale=8.0, seed=5)


def targets_for(problem, model, seed=1):
    """Budgets as the learner gives them, and targets."""
    rng = np.random.default_rng(seed)
    n = len(problem.states)
    budgets = GRID if model.covers_grid else rng.random((n, 2))
    shape = (n, budgets.shape[-1], 2)
    return torch.tensor(budgets, dtype=torch.float32), torch.tensor(rng.normal(size=shape)).float()


def trained(model, problem):
    fitter = fitter_of(model, problem)
    fitter.fit("iteration-0", *targets_for(problem, model))
    return fitter


def check_against_exact(model, iterations, top, valuation="crossed"):
    """Both copies of the data are whole, so it makes no difference which model values which."""
    config = BFTQConfig(
        gamma=model.gamma,
        cost_gamma=model.cost_gamma,
        budget_range=(0.0, top),
        n_budgets=21,
        model=TableModel(),
        iterations=iterations,
        valuation=valuation,
        slope_cap=0.0,
        cost_floor=-1e9,
        reward_scale=1.0,
    )
    batch = exhaustive_batch(model, parts=4, n_copies=2)
    policy = BFTQ(config).fit(batch, seed=0, device="cpu")
    solution = budgeted_value_iteration(model, config.beta_grid, tol=0.0, max_iterations=iterations)
    q_r, q_c = policy.q_function(np.arange(model.n_states))
    np.testing.assert_allclose(q_r, solution.q_r, atol=1e-5)
    np.testing.assert_allclose(q_c, solution.q_c, atol=1e-5)


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
    check_against_exact(fraction_model(3, 0.9), iterations, 2.0, valuation="self")


def test_a_table_holds_the_mean_of_the_targets_of_its_rows():
    problem = small_problem()
    budgets, targets = targets_for(problem, TableModel())
    fitter = fitter_of(TableModel(), problem)
    fitter.fit("iteration-0", budgets, targets)
    own = problem.members[1] & (problem.states[:, 0] == 2) & (problem.actions == 1)
    assert own.sum() > 1
    q_r, q_c = fitter.result(1)(np.array([2]))
    mean = targets.numpy()[own].mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(q_r[0, 1], 8 * mean[:, 0], atol=1e-12)
    np.testing.assert_allclose(q_c[0, 1], mean[:, 1], atol=1e-12)


def test_a_table_keeps_0_for_what_never_occurs():
    problem = Problem(
        np.array([[5.0], [7.0]]), np.array([0, 1]), np.ones((1, 2), bool), 2, GRID, 1.0, 0
    )
    fitter = fitter_of(TableModel(), problem)
    fitter.fit("x", torch.tensor(GRID), torch.ones((2, 5, 2)))
    q_r, q_c = fitter.result(0)(np.array([4, 5, 6, 7, 10**6]))
    seen = [[0, 0], [1, 0], [0, 0], [0, 1], [0, 0]]
    assert (q_r == np.array(seen)[:, :, None]).all()
    assert (q_c == q_r).all()
    assert (fitter.grid(np.array([[5.0], [6.0]]))[0, :, 0, :, 3].numpy() == seen[1:3]).all()


def test_a_table_takes_states_as_numbers_or_as_rows():
    table = trained(TableModel(), small_problem()).result(0)
    whole = table(np.array([3, 0, 1]))
    rows = table(np.array([[3.0, 9.5], [0.0, 9.5], [1.0, 9.5]], np.float32))
    for one, other in zip(whole, rows, strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("bad", [0.5, np.inf, np.nan])
def test_states_of_a_table_are_whole_numbers(bad):
    table = TableQ(np.arange(2), np.zeros((2, 1, 1)), np.zeros((2, 1, 1)))
    with pytest.raises(DataError, match=r"must be whole numbers; got .* at \[1\]"):
        table(np.array([0.0, bad]))
    with pytest.raises(DataError, match="must have a column"):
        table(np.zeros((3, 0)))


@each_model
def test_before_anything_is_fitted_a_model_is_0_everywhere(model):
    problem = small_problem()
    fitter = fitter_of(model, problem)
    budgets, targets = targets_for(problem, model)
    squares = np.square(targets.numpy()).mean(axis=1).sum(axis=1)
    means = [squares[mask].mean() for mask in problem.members]
    assert fitter.error(budgets, targets) == pytest.approx(np.mean(means), rel=1e-6)
    assert not fitter.grid(problem.states).any()
    record = fitter.fit("iteration-0", budgets, targets)
    assert record.first_loss == pytest.approx(np.mean(means), rel=1e-6)
    assert record.last_loss == fitter.error(budgets, targets) < record.first_loss
    assert record.n_steps == 1


@each_model
def test_the_error_is_that_of_the_values_on_the_grid(model):
    problem = small_problem()
    fitter = trained(model, problem)
    rng = np.random.default_rng(3)
    places = rng.integers(len(GRID), size=(60, 3))  # not in order
    places = np.tile(np.arange(5), (60, 1)) if model.covers_grid else places
    targets = rng.normal(size=(*places.shape, 2))
    rows = np.arange(60)[:, None]
    losses = []
    for values, own in zip(fitter.grid(problem.states).numpy(), problem.members, strict=True):
        taken = values[rows, :, problem.actions[:, None], places]  # [n, L, 2]
        losses.append(np.square(taken - targets)[own].mean(axis=(0, 1)).sum())
    budgets = GRID if model.covers_grid else GRID[places]
    found = fitter.error(torch.tensor(budgets), torch.tensor(targets))
    assert found == pytest.approx(np.mean(losses), rel=1e-5)


@each_model
def test_the_grid_is_the_result_but_for_the_scale_of_rewards(model):
    fitter = trained(model, small_problem())
    states = np.array([[0.0], [3.0], [1.0]], np.float32)
    grid = fitter.grid(states)
    assert (tuple(grid.shape), grid.dtype) == ((2, 3, 2, 3, 5), torch.float32)
    for e in range(2):
        q_r, q_c = fitter.result(e)(states)
        np.testing.assert_allclose(grid[e, :, 0].numpy(), q_r / 8, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(grid[e, :, 1].numpy(), q_c, rtol=1e-6, atol=1e-7)


@each_model
def test_a_model_is_fitted_to_its_own_rows(model):
    problem = small_problem()
    budgets, targets = targets_for(problem, model)
    fitter = fitter_of(model, problem)
    fitter.fit("iteration-0", budgets, targets)
    before = fitter.grid(problem.states)
    targets[torch.tensor(problem.members[1])] += 1
    fitter.fit("iteration-0", budgets, targets)
    after = fitter.grid(problem.states)
    assert (before[0] == after[0]).all()
    assert (before[1] != after[1]).any()


@each_model
def test_a_model_without_rows_stays_0(model):
    problem = small_problem(n_models=1)
    members = np.concatenate((problem.members, np.zeros((1, 60), bool)))
    problem = Problem(problem.states, problem.actions, members, 3, GRID, 1.0, 0)
    fitter = trained(model, problem)
    assert fitter.grid(problem.states)[0].any()
    assert not fitter.grid(problem.states)[1].any()


@each_model
def test_no_states_have_no_values(model):
    fitter = trained(model, small_problem())
    assert tuple(fitter.grid(np.empty((0, 1))).shape) == (2, 0, 2, 3, 5)
    q_r, q_c = fitter.result(0)(np.empty((0, 1)))
    assert q_r.shape == q_c.shape == (0, 3, 5)


@each_model
def test_a_grid_of_one_budget_will_do(model):
    problem = small_problem()
    problem = Problem(problem.states, problem.actions, problem.members, 3, np.zeros(1), 1.0, 0)
    targets = torch.tensor(problem.states[:, None].repeat(2, axis=2))  # Q is the state
    fitter = fitter_of(model, problem)
    assert fitter.fit("iteration-0", torch.zeros(1), targets).last_loss < 0.8
    values = fitter.grid(np.array([[0.0], [3.0]]))[:, :, :, :, 0].numpy()
    assert (values[:, 1] - values[:, 0] > 1).all()


@each_model
def test_a_restored_fitter_goes_on_bit_by_bit(model):
    problem = small_problem()
    fitter, other = trained(model, problem), fitter_of(model, problem)
    other.restore({name: array.copy() for name, array in fitter.arrays().items()})
    assert (other.grid(problem.states) == fitter.grid(problem.states)).all()
    later = targets_for(problem, model, seed=2)
    assert other.fit("iteration-1", *later) == fitter.fit("iteration-1", *later)
    assert (other.grid(problem.states) == fitter.grid(problem.states)).all()


@each_model
def test_a_stored_result_decides_as_before(model, tmp_path):
    policy = HullPolicy(trained(model, small_problem()).result(1), GRID)
    policy.save(tmp_path / "policy")
    loaded = bmdp.load_policy(tmp_path / "policy")
    rng = np.random.default_rng(0)
    states, budgets = rng.integers(4, size=(50, 1)).astype(np.float32), rng.random(50)
    uniforms = rng.random((50, 1))
    before, after = (p.choose(states, budgets, uniforms) for p in (policy, loaded))
    for one, other in zip(before, after, strict=True):
        assert (one == other).all()
    assert len(np.unique(before.action)) > 1
