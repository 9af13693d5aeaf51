import sys

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesRegressor

from bmdp import ConfigError, MissingDependency
from bmdp.envs.slots import find_spec
from bmdp.learn.bftq import BFTQ
from bmdp.learn.collect import collect
from bmdp.learn.fit_config import BFTQConfig
from bmdp.models import TreesModel, TreesQ
from bmdp.models.problem import Problem
from bmdp.policies import RandomBudgetedPolicy

GRID = np.linspace(0, 1, 11)


def problem_of(states, actions, n_actions=3, seed=0):
    return Problem(states, actions, np.ones((1, len(states)), bool), n_actions, GRID, 10.0, seed)


def data(n=500, n_labels=3, seed=0):
    """States, actions, budgets in no order, and targets that bend and jump in all of them."""
    rng = np.random.default_rng(seed)
    states, actions = rng.normal(size=(n, 2)).astype(np.float32), rng.integers(3, size=n)
    budgets = rng.random((n, n_labels)).astype(np.float32)
    q_r = np.sin(3 * states[:, :1]) * budgets + actions[:, None] * (budgets > states[:, 1:])
    q_c = budgets**2 * actions[:, None]
    return states, actions, budgets, np.stack((q_r, q_c), axis=-1).astype(np.float32)


def fitted(model, problem, budgets, targets, name="iteration-0"):
    fitter = model.fitter(problem)
    record = fitter.fit(name, torch.tensor(budgets), torch.tensor(targets))
    return fitter, record


@pytest.fixture
def grown(monkeypatch):
    """The forests that scikit-learn grows, in order of actions."""
    forests = []

    class Seen(ExtraTreesRegressor):
        def fit(self, inputs, outputs):
            forests.append(self)
            return super().fit(inputs, outputs)

    monkeypatch.setattr("bmdp.models.trees._extra_trees", lambda: Seen)
    return forests


@pytest.mark.parametrize(
    "model",
    [TreesModel(n_trees=7), TreesModel(3, 1, 0.4), TreesModel(1, 400)],
    ids=["usual", "deep", "stumps"],
)
def test_values_on_the_grid_are_what_scikit_learn_predicts(model, grown):
    states, actions, budgets, targets = data()
    fitter, _ = fitted(model, problem_of(states, actions), budgets, targets)
    others = np.random.default_rng(1).normal(size=(300, 2))
    q_r, q_c = fitter.result(0)(others)
    for forest in grown:
        assert (forest.n_estimators, forest.max_features) == (model.n_trees, model.max_features)
        assert forest.min_samples_leaf == model.min_leaf
    for action, forest in enumerate(grown):
        inputs = np.concatenate(
            (np.repeat(others, 11, axis=0), np.tile(GRID, 300)[:, None]), axis=1
        )
        predicted = forest.predict(inputs).reshape(300, 11, 2)
        np.testing.assert_allclose(q_r[:, action], 10 * predicted[..., 0], atol=1e-6)
        np.testing.assert_allclose(q_c[:, action], predicted[..., 1], atol=1e-6)


def test_errors_at_labels_are_those_of_what_scikit_learn_predicts(grown):
    states, actions, budgets, targets = data()
    _, record = fitted(TreesModel(n_trees=5), problem_of(states, actions), budgets, targets)
    errors = np.empty_like(targets)
    for action, forest in enumerate(grown):
        own = actions == action
        inputs = np.concatenate(
            (np.repeat(states[own], 3, axis=0), budgets[own].reshape(-1, 1)), axis=1
        )
        errors[own] = forest.predict(inputs).reshape(-1, 3, 2) - targets[own]
    expected = np.square(errors).mean(axis=(0, 1)).sum()
    assert record.last_loss == pytest.approx(expected, rel=1e-5)
    assert record.last_loss < 0.2 * record.first_loss


@pytest.mark.parametrize(
    ("feature", "expected"), [(0, [[1] * 4, [2] * 4]), (1, [[1, 1, 2, 2]] * 2)]
)
def test_numbers_on_a_cut_go_to_the_lower_side_in_single_precision(feature, expected):
    cut = float(np.float32(0.3))
    assert cut != 0.3
    tree = TreesQ(
        np.zeros((1, 1), np.int32),
        np.array([[1, 2], [-1, -1], [-1, -1]], np.int32),
        np.array([feature, -2, -2], np.int32),
        np.array([cut, -2.0, -2.0]),
        np.array([[0.0, 0.0], [1.0, -1.0], [2.0, -2.0]]),
        beta_grid=np.array([0.0, 0.3, 0.4, 1.0]),
        reward_scale=3.0,
    )
    q_r, q_c = tree(np.array([[0.3], [0.31]]))
    assert (q_r[:, 0] == 3 * np.array(expected)).all()
    assert (q_c[:, 0] == -np.array(expected)).all()


def test_the_same_seed_and_name_give_the_same_trees_and_others_give_others():
    states, actions, budgets, targets = data(n=200)

    def arrays_of(seed, name):
        fitter, _ = fitted(
            TreesModel(n_trees=4), problem_of(states, actions, seed=seed), budgets, targets, name
        )
        return fitter.arrays()

    first, again = arrays_of(0, "iteration-0"), arrays_of(0, "iteration-0")
    assert first.keys() == again.keys()
    assert all((first[key] == again[key]).all() for key in first)
    for other in (arrays_of(1, "iteration-0"), arrays_of(0, "iteration-1")):
        assert not np.array_equal(first["0/threshold"], other["0/threshold"])


def test_models_and_actions_with_the_same_rows_have_trees_of_their_own():
    states, _, budgets, targets = data(n=100)
    members = np.ones((2, 200), bool)
    actions = np.repeat([0, 1], 100)
    problem = Problem(np.tile(states, (2, 1)), actions, members, 2, GRID, 1.0, 0)
    fitter, _ = fitted(
        TreesModel(n_trees=3), problem, np.tile(budgets, (2, 1)), np.tile(targets, (2, 1, 1))
    )
    values = fitter.grid(states).numpy()
    assert (values[0] != values[1]).any()
    assert (values[0, :, :, 0] != values[0, :, :, 1]).any()


def test_a_step_in_state_and_budget_is_learned():
    rng = np.random.default_rng(0)
    states, budgets = rng.random((3000, 1)), rng.random((3000, 1))
    is_up = (states > 0.3) & (budgets > 0.45)
    targets = np.stack((is_up, 0.5 * ~is_up), axis=-1).astype(np.float64)
    fitter, _ = fitted(TreesModel(), problem_of(states, np.zeros(3000, int), 1), budgets, targets)
    away = np.array([0.0, 0.1, 0.2, 0.4, 0.5, 0.75, 1.0])
    q_r, q_c = fitter.result(0)(away[:, None])
    expected = (away[:, None] > 0.3) & (GRID > 0.45)
    clear = abs(GRID - 0.45) > 0.06  # trees cut at random, so that edges are blurred
    np.testing.assert_allclose((q_r[:, 0] / 10)[:, clear], expected[:, clear], atol=0.1)
    np.testing.assert_allclose(q_c[:, 0], 0.5 * (1 - q_r[:, 0] / 10), atol=1e-9)


def test_an_action_that_never_occurs_has_the_mean_target():
    states, actions, budgets, targets = data()
    fitter, _ = fitted(TreesModel(n_trees=3), problem_of(states, actions, 4), budgets, targets)
    q_r, q_c = fitter.result(0)(states[:5])
    np.testing.assert_allclose(q_r[:, 3], 10 * targets[..., 0].mean(dtype=float), rtol=1e-6)
    np.testing.assert_allclose(q_c[:, 3], targets[..., 1].mean(dtype=float), rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_trees": 0}, "n_trees must be a whole number from 1 on; got 0"),
        ({"min_leaf": 0.1}, "min_leaf must be a whole number from 1 on; got 0.1"),
        ({"max_features": 0.0}, "max_features must be above 0 and at most 1; got 0"),
        ({"max_features": 2}, "max_features must be above 0 and at most 1; got 2"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ConfigError, match=message):
        TreesModel(**settings)


def test_without_scikit_learn_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    states, actions, *_ = data(n=10)
    with pytest.raises(MissingDependency, match=r"pip install 'bmdp\[trees\]'$"):
        TreesModel().fitter(problem_of(states, actions))


def test_bftq_learns_corridors_with_trees():
    explorer = RandomBudgetedPolicy(5, 0.0, 1.0)
    budgets = np.random.default_rng(0).random(200)
    batch = collect(explorer, find_spec("bmdp/Corridors-v0"), range(200), budgets=budgets, seed=0)
    config = BFTQConfig(gamma=0.95, model=TreesModel(n_trees=20), iterations=3, n_labels=4)
    records = []
    policy = BFTQ(config).fit(batch, seed=0, device="cpu", on_record=records.append)
    assert len(records) == 3
    for record in records:
        assert 0 <= record["share_infeasible"] <= 1
        assert record["last_loss"] < record["first_loss"]
    decided = policy.choose(batch.state[:50], np.full(50, 0.5), np.full((50, 1), 0.5))
    assert set(decided.action) <= set(range(5))
    assert ((decided.next_budget >= 0) & (decided.next_budget <= 1)).all()
