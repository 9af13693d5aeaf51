"""Forests: leaves that hold means, borders that they find, and files that were tampered with."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from bmdp import BFTQ, BFTQConfig, ConfigError, StoreError, TransitionBatch, load_policy, storage
from bmdp.learn.fit import Backward, Ensemble, Heads, fit_q
from bmdp.learn.next_values import priced_values
from bmdp.models import ForestModel, KernelModel
from bmdp.models.forest import scaled_outcomes
from bmdp.models.regressor import Scaling
from regressors import dice, every_row, fit_once, fitted, prepared, problem_of, values


def test_a_single_leaf_has_the_mean_target_of_each_action():
    rng = np.random.default_rng(0)
    states, actions, targets = rng.random((50, 2)), np.arange(50) % 2, rng.normal(size=(50, 5, 2))
    problem = problem_of(states, actions, n_actions=2)
    found = values(fitted(ForestModel(3, 50), problem, targets), states[:4])[0]
    for action in range(2):
        mean = targets[actions == action].mean(axis=0).T
        np.testing.assert_allclose(found[:, :, action], np.broadcast_to(mean, (4, 2, 5)), atol=1e-6)


def test_leaves_of_one_row_have_its_target_where_all_rows_are_shown():
    """As they are where rows weigh."""
    rng = np.random.default_rng(0)
    states, targets = rng.random((60, 2)), rng.normal(size=(60, 5, 2))
    problem = replace(problem_of(states), weights=np.ones(60))
    found = values(fitted(ForestModel(4, 1), problem, targets), states)[0, :, :, 0]
    np.testing.assert_allclose(found, targets.transpose(0, 2, 1), atol=1e-6)


def leaf_means(forest, rows, targets, weights):
    """Means of targets `[n, 5, 2]` over the leaves of a forest of scikit-learn, `[n, 2, 5]`."""
    leaves = forest.apply(rows)
    expected = np.zeros((len(rows), 2, 5))
    for tree in leaves.T:
        for leaf in np.unique(tree):
            own = tree == leaf
            expected[own] += np.average(targets[own], axis=0, weights=weights[own]).T
    return expected / leaves.shape[1]


@pytest.mark.parametrize("weighs", [False, True])
def test_trees_have_the_leaves_of_scikit_learn(weighs):
    """Means of several targets over the leaves of trees that were grown on what followed."""
    ensemble = pytest.importorskip("sklearn.ensemble")
    rng = np.random.default_rng(0)
    states = rng.normal(size=(200, 2))
    weights = rng.integers(1, 9, size=200) * 1.0 if weighs else np.ones(200)
    problem = replace(problem_of(states), weights=weights if weighs else None)
    targets = rng.normal(size=(200, 5, 2))
    found = values(fitted(ForestModel(6, 4), problem, targets), states)[0, :, :, 0]
    by = Scaling.of(states, weights)
    rows = ((states - by.centre) / by.scale).astype(np.float32)
    how = {"bootstrap": True, "max_samples": 0.7, "min_samples_leaf": 4}
    if weighs:
        how = {"min_weight_fraction_leaf": 3.99 / weights.sum()}
    seed = int(problem.generator("trees/0").integers(2**31))
    forest = ensemble.ExtraTreesRegressor(6, random_state=seed, **how)
    shown = np.tile(rows, 2)  # four splits are tried
    forest.fit(shown, rows.astype(float), sample_weight=weights if weighs else None)
    np.testing.assert_allclose(found, leaf_means(forest, shown, targets, weights), atol=1e-5)


def test_values_are_means_over_all_rows_although_trees_are_grown_on_some():
    """A single leaf of 40 rows; each tree was shown 28 at most."""
    rng = np.random.default_rng(0)
    states, targets = rng.random((40, 2)), rng.normal(size=(40, 5, 2))
    found = values(fitted(ForestModel(3, 20), problem_of(states), targets), states)[0, :, :, 0]
    np.testing.assert_allclose(found, np.broadcast_to(targets.mean(0).T, (40, 2, 5)), atol=1e-6)


# The size of leaves


def outcome_problem(signal, n=3000, seed=0, **columns):
    """Rows whose outcomes are a jump in the state, and noise: `[reward, cost, end, change]`."""
    rng = np.random.default_rng(seed)
    states = rng.random((n, 2))
    reward = signal * np.sin(20 * states[:, 0]) + rng.normal(size=n)
    outcomes = np.column_stack((reward, 0 * reward, 0 * reward, 0 * states))
    return replace(problem_of(states), outcomes=outcomes, **columns)


def leaf_of(problem):
    return prepared(ForestModel(), problem).leaf


def test_leaves_are_larger_where_there_is_more_noise():
    sizes = [leaf_of(outcome_problem(signal)) for signal in (100.0, 3.0, 0.3)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 3
    assert sizes[-1] >= 30


def test_leaves_of_one_row_are_chosen_only_where_rows_repeat():
    """Four states, each seen a hundred times: nothing is gained by averaging over states."""
    states = np.arange(4.0)[:, None]
    outcomes = np.column_stack((states**2, 0 * states, 0 * states, states))
    problem = replace(problem_of(states), outcomes=outcomes)
    assert leaf_of(replace(problem, weights=np.full(4, 100.0))) == 1
    assert leaf_of(outcome_problem(1e6)) == 3


def test_values_of_many_steps_and_heads_do_not_outgrow_memory():
    problem = outcome_problem(100.0)
    sizes = problem.sizes._replace(n_steps=300, heads=tuple(np.arange(50.0)))
    many = ForestModel().empty(sizes)
    least = many._least_leaf(3000)
    assert 3 < least == pytest.approx(25 * 3000 * 4 * 2 * 50 * 300 / 4 / 2**29, abs=1)


# Structure


def grown(problem, states):
    """Numbers of the leaves of states, from one to the next: equal for equal partitions."""
    q = prepared(ForestModel(4, 5), problem)
    return q.embed(torch.tensor(states))[:, 0, 0]


def test_units_of_outcomes_and_states_make_no_difference():
    rng = np.random.default_rng(0)
    states = rng.normal(size=(400, 2))
    change = np.column_stack((np.sign(states), rng.normal(size=(400, 2))))[:, 1:3]
    outcomes = np.column_stack((states[:, 0] > 0, states[:, 1] > 1, states[:, 0] > 1, change)) * 1.0
    problem = replace(problem_of(states), outcomes=outcomes)
    scaled = states * [1000.0, 0.001] + [5e5, 0.0]
    other = replace(
        problem_of(scaled), outcomes=outcomes * [100, 0.01, 1, 1000, 0.001] + [7, 0, 0, 0, 3]
    )
    assert torch.equal(grown(problem, states), grown(other, scaled))


def test_a_number_that_never_changes_makes_no_difference():
    rng = np.random.default_rng(0)
    states = rng.normal(size=(400, 2))
    outcomes = np.column_stack((states[:, 0] > 0, states[:, 1] > 1, 0 * states[:, 0], states)) * 1.0
    more = np.insert(states, 1, 3.7, axis=1)
    problem = replace(problem_of(states), outcomes=outcomes)
    other = replace(problem_of(more), outcomes=np.insert(outcomes, 4, 0.0, axis=1))
    assert torch.equal(grown(problem, states), grown(other, more))


def test_outcomes_that_never_change_do_not_count():
    outcomes = np.column_stack((np.arange(4), np.ones((4, 2)), np.arange(4) % 2, np.zeros(4)))
    assert scaled_outcomes(outcomes, None).shape == (4, 2)


def test_the_structure_is_kept_from_fit_to_fit():
    problem = problem_of(np.random.default_rng(0).random((80, 2)))
    q = fitted(ForestModel(), problem)
    before = {name: q.state_dict()[name].clone() for name in q.constant}
    fit_once(q, problem, seed=1)
    assert all(torch.equal(q.state_dict()[name], tensor) for name, tensor in before.items())


def step_of(states):
    return np.where(states[:, 0] > 0.37, 1.0, 0.0)


def learned(model, n=3000, seed=0):
    """Q of a one-step log whose reward jumps at a border."""
    states = np.random.default_rng(seed).random((n, 1))
    rewards = step_of(states)
    done = np.ones(n, bool)
    batch = TransitionBatch(states, np.zeros(n, int), rewards, 0 * rewards, states, done)
    config = BFTQConfig(gamma=0.9, model=model, ensemble=1, n_budgets=2)
    return BFTQ(config).fit(batch, seed=0, device="cpu").q_function


def test_a_border_where_rewards_jump_is_sharper_than_by_a_kernel():
    fresh = np.random.default_rng(1).random((1000, 1))
    forest, kernel = (
        float(np.sqrt(np.square(learned(model)(fresh)[0][:, 0, 0] - step_of(fresh)).mean()))
        for model in (ForestModel(), KernelModel())
    )
    assert forest < 0.7 * kernel
    assert kernel < 0.1


def test_an_action_without_rows_has_the_mean_target_of_all():
    rng = np.random.default_rng(0)
    states, targets = rng.random((60, 2)), rng.normal(size=(60, 5, 2))
    problem = problem_of(states, np.arange(60) % 2 * 2, n_actions=4)
    found = values(fitted(ForestModel(3, 5), problem, targets), rng.random((9, 2)))[0]
    expected = np.broadcast_to(targets.mean(axis=0).T[:, None], (9, 2, 2, 5))
    np.testing.assert_allclose(found[:, :, [1, 3]], expected, atol=1e-6)
    assert np.ptp(found[:, :, [0, 2]], axis=0).min() > 0


def test_states_without_numbers_have_the_mean():
    problem = problem_of(np.zeros((20, 0)))
    q = prepared(ForestModel(2), problem)
    targets = torch.arange(200.0).view(20, 5, 2)
    q.fit(0, every_row(problem), torch.zeros(5), targets, "x")
    np.testing.assert_allclose(values(q, np.zeros((1, 0)))[0, 0, :, 0], targets.mean(0).T)


# Files


@pytest.fixture(scope="module")
def policy():
    config = BFTQConfig(gamma=0.9, model=ForestModel(4, 3), ensemble=1, n_budgets=3)
    return BFTQ(config).fit(dice(), seed=0, device="cpu")


def tampered(policy, folder, name, change):
    """Saves a policy, changes one of its arrays, and has the checksum agree."""
    policy.save(folder)
    arrays = load_file(folder / "weights.safetensors")
    number = list(policy.q_function.model.state_dict()).index(name)
    key = f"q_function.model.arrays.{number}"
    arrays[key] = change(arrays[key].copy())
    save_file(arrays, folder / "weights.safetensors")
    header = json.loads((folder / "policy.json").read_text())
    header["checksum"] = storage._checksum(header["content"], folder / "weights.safetensors")
    (folder / "policy.json").write_text(json.dumps(header))


def put(value, *place):
    def change(array):
        array[place] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("child", put(10**9, 0, 0, 0, 0, 1)),
        ("child", put(-1, 0, 0, 0, 0, 1)),
        ("child", put(0, 0, 0, 0, 0, 1)),  # a path that ends nowhere
        ("child", lambda array: np.where(array > 5, 2, array)),  # a cycle
        ("feature", put(2, 0, 0, 0, 0)),
        ("feature", put(-1, 0, 0, 0, 0)),
        ("leaf_of", put(10**9, 0, 0, 0, 0)),
        ("leaf_of", put(-1, 0, 0, 0, 0)),
        ("threshold", lambda array: array[..., :-1].copy()),
        ("child", lambda array: array[..., 0].copy()),
        ("feature", lambda array: array[0, 0, 0].copy()),
        ("feature", lambda array: np.array(0)),
        ("leaf_of", lambda array: array[:, :1].copy()),
        ("values", lambda array: array[:, :, :1].copy()),
        ("values", lambda array: array[..., :1].copy()),
        ("values", lambda array: np.zeros(3, np.float32)),
    ],
)
def test_nodes_that_were_tampered_with_are_refused(policy, tmp_path, name, change):
    tampered(policy, tmp_path / "policy", name, change)
    with pytest.raises(StoreError, match=r"ForestQ(\.\w+ must|: its nodes do not make trees)"):
        load_policy(tmp_path / "policy")


def test_arrays_that_are_as_they_were_are_not(policy, tmp_path):
    tampered(policy, tmp_path / "policy", "child", lambda array: array)
    assert load_policy(tmp_path / "policy").n_steps == policy.n_steps


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trees": 0}, "trees must be a whole number from 1 on; got 0"),
        ({"leaf": 2.5}, r"leaf must be a whole number or None; got 2\.5"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ConfigError, match=message):
        ForestModel(**settings)


def test_what_is_expected_counts_four_times_however_much_it_is():
    rng = np.random.default_rng(0)
    outcomes, expected = rng.normal(size=(500, 5)), rng.normal(size=(500, 6)) * 1e3
    scaled = scaled_outcomes(outcomes, None, expected)
    np.testing.assert_allclose(scaled[:, :5], scaled_outcomes(outcomes, None))
    assert (scaled[:, 5:].var(axis=0)).sum() == pytest.approx(4, rel=1e-3)


def folded_log(n=600, n_junk=5, seed=0):
    """Two steps: x becomes 3 x modulo 1, which pays 10 at the second step if it is above 1/2."""
    rng = np.random.default_rng(seed)
    x = rng.random(n)
    folded = 3 * x % 1
    first, second = (np.column_stack((v, rng.random((n, n_junk)))) for v in (x, folded))
    pays = np.column_stack((np.zeros(n), 10.0 * (folded > 0.5))).ravel()
    return TransitionBatch(
        state=np.stack((first, second), axis=1).reshape(2 * n, -1),
        action=np.zeros(2 * n, int),
        reward=pays,
        cost=np.zeros(2 * n),
        next_state=np.stack((second, second), axis=1).reshape(2 * n, -1),
        terminal=np.tile([False, True], n),
        episode=np.repeat(np.arange(n), 2),
        step=np.tile([0, 1], n),
        n_actions=1,
    )


def first_values(model):
    config = BFTQConfig(gamma=1.0, model=model, schedule=Backward(), ensemble=1, n_budgets=3)
    policy = BFTQ(config).fit(folded_log(), seed=0, device="cpu")
    rng = np.random.default_rng(1)
    x = rng.random(2000)
    states = np.column_stack((x, rng.random((2000, 5))))
    found, _ = policy.at_step(0).q_function(states)
    return np.abs(found[:, 0, 0] - 10 * (3 * x % 1 > 0.5)).mean()


def test_trees_that_are_grown_anew_see_where_values_jump_a_step_later():
    plain, regrown = (
        first_values(ForestModel(leaf=5)),
        first_values(ForestModel(leaf=5, regrown=True)),
    )
    assert regrown < 0.75 * plain


def test_what_is_expected_is_the_target_of_an_early_step():
    batch = folded_log(40)
    fits = []
    how = {"heads": Heads(np.arange(4.0), False), "gammas": (1.0, 1.0), "schedule": Backward()}
    values = priced_values(np.array([9.0, 3.0, 1.0, 0.0]))
    for one in fit_q(batch, ForestModel(leaf=3), values, **how, ensemble=Ensemble(), seed=0):
        fits.append(one.fit)
    expected = fits[-1].expected(values)
    assert expected.shape == (80, 6)  # reward and cost of three heads
    look = fits[-1].embedded(batch.next_state[::2])
    worth = fits[-1].q.read(look, 1)[0, :, 0, 0]  # [n, H], of the only action
    np.testing.assert_allclose(expected[::2, ::2], worth[:, [0, 1, 2]].numpy(), atol=1e-6)
    np.testing.assert_allclose(expected[1::2], expected[::2].mean(axis=0)[None].repeat(40, 0))
