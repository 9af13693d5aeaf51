import numpy as np
import pytest

from bmdp import BFTQ, BFTQConfig, ConfigError
from bmdp.envs.slots import find_spec
from bmdp.learn.collect import collect
from bmdp.learn.fit import Iterations
from bmdp.models import LinearModel
from bmdp.policies import RandomBudgetedPolicy
from regressors import fit_once, fitted, prepared, problem_of, values

HEADS = np.linspace(0.5, 2.5, 4)


def problem(states, actions, n_actions=3):
    return problem_of(states, actions, n_actions=n_actions, heads=HEADS)


def data(n=400, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal([5, -100], [2, 30], size=(n, 2)), rng.integers(3, size=n)


def truth(states, actions, kind):
    """A Q `[n, H, 2]` that the features can say, at slopes that vary with head and action."""
    x, y = states[:, :1] / 3, states[:, 1:] / 40
    bend = np.array([0.0, 2.0, -1.0, 0.5])
    product = x * y + y**2 if kind == "quadratic" else x - y
    q_r = (actions[:, None] + product) * bend + x
    return np.stack((q_r, y * HEADS + actions[:, None] + bend), axis=-1)


@pytest.mark.parametrize("kind", ["linear", "quadratic"])
@pytest.mark.parametrize("ridge", [0.0, 1e-12])
def test_what_is_linear_in_the_features_is_found_exactly_for_every_action(kind, ridge):
    states, actions = data()
    q = fitted(LinearModel(kind, ridge), problem(states, actions), truth(states, actions, kind))
    others = data(seed=1)[0][:20]
    found = values(q, others)[0]
    for action in range(3):
        expected = truth(others, np.full(20, action), kind).transpose(0, 2, 1)
        np.testing.assert_allclose(found[:, :, action], expected, rtol=1e-5, atol=1e-4)


def test_products_of_states_are_beyond_linear_features():
    states, actions = data()
    given = problem(states, actions)
    q = prepared(LinearModel("linear"), given)
    assert fit_once(q, given, truth(states, actions, "quadratic")).last > 0.01


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 0.5])
def test_the_solution_is_that_of_least_squares_with_rows_for_the_ridge(ridge):
    states, _ = data(n=80)
    targets = np.random.default_rng(1).normal(size=(80, 4, 2))
    q = fitted(LinearModel("linear", ridge), problem(states, np.zeros(80, int), 1), targets)
    scaled = (states - states.mean(axis=0)) / states.std(axis=0)
    mean = targets.mean(axis=0)
    left = np.concatenate((np.c_[np.ones(80), scaled], np.sqrt(80 * ridge) * np.eye(3)))
    right = np.concatenate((targets - mean, np.zeros((3, 4, 2)))).reshape(83, 8)
    weights = np.linalg.lstsq(left, right, rcond=None)[0]
    expected = mean + (np.c_[np.ones(80), scaled] @ weights).reshape(80, 4, 2)
    found = values(q, states)[0, :, :, 0].transpose(0, 2, 1)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_an_action_that_never_occurs_has_the_mean_target():
    states, actions = data()
    targets = truth(states, actions, "linear")
    found = values(fitted(LinearModel(), problem(states, actions, 5), targets), states[:10])[0]
    expected = np.broadcast_to(targets.mean(axis=0).T[:, None], (10, 2, 2, 4))
    np.testing.assert_allclose(found[:, :, 3:], expected, rtol=1e-6)


def test_an_action_that_occurs_once_has_that_target_everywhere():
    states, _ = data(n=50)
    actions = np.where(np.arange(50) == 7, 2, 0)
    targets = truth(states, actions, "linear")
    found = values(fitted(LinearModel(), problem(states, actions), targets), states[:10])[0]
    expected = np.broadcast_to(targets[7].T, (10, 2, 4))
    np.testing.assert_allclose(found[:, :, 2], expected, rtol=1e-5)


@pytest.mark.parametrize(("ridge", "most"), [(0.0, 1e-9), (1e-6, 1e-7)])
def test_numbers_that_never_change_or_repeat_each_other_do_no_harm(ridge, most):
    states, actions = data()
    more = np.concatenate((states, states[:, :1], np.full((400, 1), 3.0)), axis=1)
    given = problem(more, actions)
    q = prepared(LinearModel("linear", ridge), given)
    assert fit_once(q, given, truth(states, actions, "linear")).last < most
    assert q.coefficients.abs().max() < 100


def test_no_ridge_and_fewer_rows_than_features_have_the_smallest_solution():
    states, targets = data(n=2)[0], np.random.default_rng(0).normal(size=(2, 4, 2))
    q = fitted(LinearModel("quadratic", 0.0), problem(states, np.zeros(2, int), 1), targets)
    found = values(q, states)[0, :, :, 0].transpose(0, 2, 1)
    np.testing.assert_allclose(found, targets, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"state_features": "cubic"}, "state_features must be one of linear, quadratic"),
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
    model, schedule = LinearModel("quadratic"), Iterations(3, settled=0.0)
    config = BFTQConfig(gamma=0.95, model=model, schedule=schedule)
    records = []
    policy = BFTQ(config).fit(batch, seed=0, device="cpu", on_record=records.append)
    assert len(records) == 3
    for record in records:
        assert 0 <= record.share_infeasible <= 1
        assert record.last_loss <= record.delta
    decided = policy.choose(batch.state[:50], np.full(50, 0.5), np.full((50, 1), 0.5))
    assert set(decided.action) <= set(range(batch.n_actions))
    assert ((decided.next_budget >= 0) & (decided.next_budget <= 1)).all()
