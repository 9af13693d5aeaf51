import numpy as np
import pytest
import torch

from bmdp import ConfigError
from bmdp.envs.slots import find_spec
from bmdp.learn.learners import BFTQ
from bmdp.learn.collect import collect
from bmdp.learn.learners import BFTQConfig
from bmdp.models import LinearModel
from bmdp.models.regressor import Problem
from bmdp.policies import RandomBudgetedPolicy

GRID = np.linspace(0.5, 2.5, 9)
KNOTS = np.linspace(0.5, 2.5, 4)


def problem_of(states, actions, n_actions=3, reward_scale=1.0):
    members = np.ones((1, len(states)), bool)
    return Problem(states, actions, members, n_actions, GRID, reward_scale, 0)


def data(n=400, n_labels=2, seed=0):
    rng = np.random.default_rng(seed)
    states = rng.normal([5, -100], [2, 30], size=(n, 2))
    return states, rng.integers(3, size=n), rng.uniform(0.5, 2.5, (n, n_labels))


def fitted(model, problem, budgets, targets):
    fitter = model.fitter(problem)
    fitter.fit("iteration-0", torch.tensor(budgets), torch.tensor(targets))
    return fitter


def truth(states, actions, budgets, kind):
    """A Q that the features can say: linear between the knots, at slopes that vary with states."""
    x, y = states[:, :1] / 3, states[:, 1:] / 40
    bend = np.interp(budgets, KNOTS, [0.0, 2.0, -1.0, 0.5])
    product = x * y + y**2 if kind == "quadratic" else x - y
    q_r = (actions[:, None] + product) * bend + x
    q_c = y * budgets + actions[:, None] + bend
    return np.stack((q_r, q_c), axis=-1)


@pytest.mark.parametrize("kind", ["linear", "quadratic"])
@pytest.mark.parametrize("ridge", [0.0, 1e-12])
def test_what_is_linear_in_the_features_is_found_exactly_for_every_action(kind, ridge):
    states, actions, budgets = data()
    targets = truth(states, actions, budgets, kind)
    fitter = fitted(
        LinearModel(kind, 4, ridge), problem_of(states, actions, reward_scale=7.0), budgets, targets
    )
    assert fitter.error(torch.tensor(budgets), torch.tensor(targets)) < 1e-16
    others = data(seed=1)[0][:20]
    q_r, q_c = fitter.result(0)(others)
    for action in range(3):
        held = np.broadcast_to(GRID, (20, 9))
        expected = truth(others, np.full(20, action), held, kind)
        np.testing.assert_allclose(q_r[:, action], 7 * expected[..., 0], atol=1e-7)
        np.testing.assert_allclose(q_c[:, action], expected[..., 1], atol=1e-8)


def test_products_of_states_are_beyond_linear_features():
    states, actions, budgets = data()
    targets = truth(states, actions, budgets, "quadratic")
    fitter = fitted(LinearModel("linear", 4), problem_of(states, actions), budgets, targets)
    assert fitter.error(torch.tensor(budgets), torch.tensor(targets)) > 0.01


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 0.5])
def test_the_solution_is_that_of_least_squares_with_rows_for_the_ridge(ridge):
    states, _, budgets = data(n=80)
    targets = np.random.default_rng(1).normal(size=(80, 2, 2))
    fitter = fitted(
        LinearModel("linear", 3, ridge), problem_of(states, np.zeros(80, int), 1), budgets, targets
    )
    scaled = (states - states.mean(axis=0)) / states.std(axis=0)
    rows = []
    for row, held in zip(scaled, budgets, strict=True):
        for budget in held:
            near = [np.interp(budget, [0.5, 1.5, 2.5], one) for one in np.eye(3)]
            rows.append(np.outer([1, *row], near).ravel())
    mean = targets.reshape(-1, 2).mean(axis=0)
    left = np.concatenate((rows, np.sqrt(160 * ridge) * np.eye(9)))
    right = np.concatenate((targets.reshape(-1, 2) - mean, np.zeros((9, 2))))
    expected = np.linalg.lstsq(left, right, rcond=None)[0].T.reshape(2, 3, 3)
    expected[:, 0] += mean[:, None]
    np.testing.assert_allclose(fitter.result(0).coefficients[:, 0], expected, atol=1e-9)


def test_the_whole_grid_counts_as_a_label_for_each_of_its_budgets():
    states, actions, _ = data(n=100)
    labels = np.broadcast_to(GRID, (100, 9)).copy()
    targets = np.random.default_rng(1).normal(size=(100, 9, 2))
    one, other = (
        fitted(LinearModel(), problem_of(states, actions), budgets, targets)
        for budgets in (GRID, labels)
    )
    assert (one.arrays()["coefficients"] == other.arrays()["coefficients"]).all()


def test_an_action_that_never_occurs_has_the_mean_target():
    states, actions, budgets = data()
    targets = truth(states, actions, budgets, "linear")
    fitter = fitted(LinearModel(), problem_of(states, actions, 5), budgets, targets)
    q_r, q_c = fitter.result(0)(states[:10])
    np.testing.assert_allclose(q_r[:, 3:], targets[..., 0].mean(), rtol=1e-12)
    np.testing.assert_allclose(q_c[:, 3:], targets[..., 1].mean(), rtol=1e-12)


def test_an_action_that_occurs_once_has_that_target_everywhere():
    states, actions, budgets = data(n=50, n_labels=1)
    actions = np.where(np.arange(50) == 7, 2, 0)
    targets = truth(states, actions, budgets, "linear")
    fitter = fitted(LinearModel(), problem_of(states, actions), budgets, targets)
    q_r, _ = fitter.result(0)(states[:10])
    np.testing.assert_allclose(q_r[:, 2], targets[7, 0, 0], rtol=1e-12)


@pytest.mark.parametrize(("ridge", "most"), [(0.0, 1e-16), (1e-6, 1e-7)])
def test_numbers_that_never_change_or_repeat_each_other_do_no_harm(ridge, most):
    states, actions, budgets = data()
    targets = truth(states, actions, budgets, "linear")
    more = np.concatenate((states, states[:, :1], np.full((400, 1), 3.0)), axis=1)
    fitter = fitted(LinearModel("linear", 4, ridge), problem_of(more, actions), budgets, targets)
    assert fitter.error(torch.tensor(budgets), torch.tensor(targets)) < most
    assert abs(fitter.arrays()["coefficients"]).max() < 100


def test_many_rows_are_solved_for_in_parts(monkeypatch):
    states, actions, budgets = data()
    targets = truth(states, actions, budgets, "quadratic")
    whole = fitted(LinearModel(), problem_of(states, actions), budgets, targets)
    monkeypatch.setattr("bmdp.models.linear._CHUNK", 200)
    parts = fitted(LinearModel(), problem_of(states, actions), budgets, targets)
    np.testing.assert_allclose(
        parts.arrays()["coefficients"], whole.arrays()["coefficients"], atol=1e-9
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"state_features": "cubic"}, "state_features must be one of linear, quadratic"),
        ({"budget_knots": 1}, "budget_knots must be a whole number from 2 on; got 1"),
        ({"budget_knots": 2.5}, "budget_knots must be a whole number from 2 on; got 2.5"),
        ({"ridge": -1.0}, "ridge must be a number from 0 on; got -1"),
        ({"ridge": float("nan")}, "ridge must be a number from 0 on; got nan"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ConfigError, match=message):
        LinearModel(**settings)


def test_bftq_learns_corridors_with_a_linear_model():
    explorer = RandomBudgetedPolicy(5, 0.0, 1.0)
    budgets = np.random.default_rng(0).random(200)
    batch = collect(explorer, find_spec("bmdp/Corridors-v0"), range(200), budgets=budgets, seed=0)
    config = BFTQConfig(gamma=0.95, model=LinearModel("quadratic"), iterations=3, n_labels=4)
    records = []
    policy = BFTQ(config).fit(batch, seed=0, device="cpu", on_record=records.append)
    assert len(records) == 3
    for record in records:
        assert 0 <= record["share_infeasible"] <= 1
        assert record["last_loss"] <= record["first_loss"]
    decided = policy.choose(batch.state[:50], np.full(50, 0.5), np.full((50, 1), 0.5))
    assert set(decided.action) <= set(range(batch.n_actions))
    assert ((decided.next_budget >= 0) & (decided.next_budget <= 1)).all()
