"""Kernel regression, against its formulas written out; see `test_regressor.py` for the contract."""

import json
from itertools import combinations, product

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from bmdp import BFTQ, BFTQConfig, ConfigError, TransitionBatch
from bmdp.learn import Backward
from bmdp.learn.spec import TrainingSpec, from_json, to_json, with_setting
from bmdp.models import KernelModel
from bmdp.models.kernel import bumps, directions, far_apart
from devices import needs_gpu
from regressors import fit_once, prepared, problem_of
from regressors import values as all_values
from training import SPEC

GRID = np.linspace(0, 1, 3)
FEW = KernelModel(12, (0.8,), (1e-2,))


def problem(states, actions=None, n_actions=1, seed=0):
    return problem_of(states, actions, n_actions=n_actions, heads=GRID, seed=seed)


def data(n=40, seed=0, n_numbers=2):
    """States of unlike units, and targets of noise."""
    rng = np.random.default_rng(seed)
    states, targets = (
        rng.normal(5, 10.0 ** np.arange(n_numbers), (n, n_numbers)),
        rng.normal(size=(n, 3, 2)),
    )
    return states, targets.astype(np.float32).astype(float)


def fitted(model, given, targets):
    q = prepared(model, given)
    fit_once(q, given, targets)
    return q


def values(q, states):
    """Values `[n, A, B, 2]` of the only member."""
    return np.moveaxis(all_values(q, states)[0], 1, -1)


def rounding(q):
    """What values may be off by, as weights are in single precision."""
    return 1e-6 + 2 * np.finfo(np.float32).eps * float(q.weights.abs().sum(3).max())


def kernel(rows, others, length):
    return np.exp(-cdist(rows, others, "sqeuclidean") / (2 * length**2))


def flat(targets):
    return targets.reshape(len(targets), -1)


def scaled(states, by):
    return (states - by.mean(axis=0)) / by.std(axis=0)


def by_all(rows, targets, length, ridge):
    """Kernel ridge regression with all rows as centres, (K + ridge I) w = y: a function of rows."""
    weights = np.linalg.solve(kernel(rows, rows, length) + ridge * np.eye(len(rows)), targets)
    return lambda asked: kernel(asked, rows, length) @ weights


def by_centres(centres):
    """The same with some centres: (K_nc' K_nc + ridge K_cc) w = K_nc' y."""

    def regression(rows, targets, length, ridge):
        near, own = kernel(rows, centres, length), kernel(centres, centres, length)
        weights = np.linalg.solve(near.T @ near + ridge * own, near.T @ targets)
        return lambda asked: kernel(asked, centres, length) @ weights

    return regression


# The regression


@pytest.mark.parametrize(("length", "ridge"), [(0.2, 1e-3), (0.5, 1e-2), (0.5, 3.0)])
def test_with_all_rows_as_centres_each_action_has_its_kernel_ridge_regression(length, ridge):
    states, targets = data(60)
    actions = np.arange(60) % 2
    q = fitted(KernelModel(100, (length,), (ridge,)), problem(states, actions, 2), targets)
    others = data(20, seed=1)[0]
    rows, asked = scaled(states, states), scaled(others, states)
    for action in range(2):
        own = actions == action
        mean = targets[own].mean(axis=0)
        regression = by_all(rows[own], flat(targets[own] - mean), length, ridge)
        expected = mean + regression(asked).reshape(20, 3, 2)
        found = values(q, others)[:, action]
        np.testing.assert_allclose(found, expected, atol=rounding(q))


@pytest.mark.parametrize(("length", "ridge"), [(1.0, 1e-2), (2.0, 0.1), (4.0, 1e-4), (4.0, 1.0)])
def test_of_long_bumps_no_more_is_lost_than_what_cannot_be_told_apart(length, ridge):
    """Parts of 1e-7 of the kernel are left out, which are that / ridge of the targets at most."""
    states, targets = data(60)
    q = fitted(KernelModel(60, (length,), (ridge,)), problem(states), targets)
    rows, mean = scaled(states, states), targets.mean(axis=0)
    expected = by_all(rows, flat(targets - mean), length, ridge)(rows)
    lost = np.linalg.norm(flat(values(q, states)[:, 0] - mean) - expected, axis=0)
    bound = 1e-7 * np.linalg.eigvalsh(kernel(rows, rows, length))[-1] / ridge
    rounded = np.sqrt(60) * rounding(q)
    assert (lost <= bound * np.linalg.norm(flat(targets - mean), axis=0) + rounded).all()


def test_with_all_rows_as_centres_values_are_what_scikit_learn_predicts():
    kernel_ridge = pytest.importorskip("sklearn.kernel_ridge")
    states, targets = data()
    q = fitted(KernelModel(40, (0.4,), (0.05,)), problem(states), targets)
    reference = kernel_ridge.KernelRidge(alpha=0.05, kernel="rbf", gamma=1 / (2 * 0.4**2))
    mean, rows = targets.mean(axis=0), scaled(states, states)
    reference.fit(rows, flat(targets - mean))
    others = data(20, seed=1)[0]
    expected = mean + reference.predict(scaled(others, states)).reshape(20, 3, 2)
    np.testing.assert_allclose(values(q, others)[:, 0], expected, atol=rounding(q))


def test_with_fewer_centres_all_rows_are_fitted_by_bumps_around_some_of_them():
    states, targets = data(200)
    q = fitted(FEW, problem(states), targets)
    centres = q.centres[0, 0, 0].numpy()
    rows, mean = scaled(states, states), targets.mean(axis=0)
    assert {tuple(c) for c in centres} <= {tuple(row) for row in rows}
    others = data(20, seed=1)[0]
    regression = by_centres(centres)(rows, flat(targets - mean), 0.8, 1e-2)
    expected = mean + regression(scaled(others, states)).reshape(20, 3, 2)
    np.testing.assert_allclose(values(q, others)[:, 0], expected, atol=rounding(q))


def test_bumps_fall_with_the_distance_to_a_centre():
    rows, centres = np.random.default_rng(0).normal(size=(2, 30, 3))
    rows, centres = torch.tensor(rows), torch.tensor(centres)
    np.testing.assert_allclose(bumps(rows, centres, 0.7), kernel(rows, centres, 0.7), atol=1e-12)
    lengths = torch.linspace(0.5, 2, 30, dtype=torch.float64)
    for i, length in enumerate(lengths):
        expected = kernel(rows, centres, float(length))[:, i]
        np.testing.assert_allclose(bumps(rows, centres, lengths)[:, i], expected, atol=1e-12)
    assert bumps(1e3 * rows, 1e3 * rows, 0.7).diag().max() <= 1


# The length and the ridge

LENGTHS, RIDGES = (0.3, 0.6, 1.2), (1e-2, 0.1, 0.3, 1.0, 3.0, 10.0)


def left_out_errors(rows, targets, regression, length, ridge):
    """Errors at each row by a regression on the others, `[n, K]`."""
    errors = np.empty_like(targets)
    for left_out in range(len(rows)):
        others = np.arange(len(rows)) != left_out
        found = regression(rows[others], targets[others], length, ridge)
        errors[left_out] = targets[left_out] - found(rows[left_out : left_out + 1])[0]
    return errors


def best_by_left_out(rows, targets, regression):
    """The pair of the least squared error; values and budgets count alike."""
    centred = flat(targets - targets.mean(axis=0))
    columns = centred / centred.std(axis=0)
    errors = {
        pair: np.square(left_out_errors(rows, columns, regression, *pair)).mean()
        for pair in product(LENGTHS, RIDGES)
    }
    return min(errors, key=errors.__getitem__)


def wavy(seed, n=30):
    """Targets that wave, in units that differ by value, with noise; how much of each, by chance."""
    rng = np.random.default_rng(seed)
    states, (wave, noise) = rng.normal(size=(n, 1)), rng.uniform([0.5, 0], [5, 1])
    clean = np.sin(wave * states[:, :, None] + np.arange(3)[:, None])
    return states, (clean + noise * rng.normal(size=(n, 3, 2))) * [1.0, 50.0]


def choice(model, states, targets):
    """The length and the ridge that a model takes, as seen by its values."""
    taken = values(fitted(model, problem(states), targets), states)
    alike = []
    for length, ridge in product(model.lengths, model.ridges):
        single = KernelModel(model.centres, (length,), (ridge,))
        found = values(fitted(single, problem(states), targets), states)
        if (found == taken).all():
            alike.append((length, ridge))
    (pair,) = alike
    return pair


@pytest.mark.parametrize("ridge", [1e-2, 1.0])
@pytest.mark.parametrize("n_centres", [30, 8])
def test_what_a_row_would_be_given_by_the_others_follows_from_its_share_in_its_value(
    n_centres, ridge
):
    states, targets = data(30)
    rows, columns = scaled(states, states), flat(targets)
    centres = rows[:n_centres]
    near = kernel(rows, centres, 0.5)
    found = directions(torch.tensor(near.T @ near), torch.tensor(centres), 0.5)
    root, sizes = (part.numpy() for part in found)
    features = near @ root
    np.testing.assert_allclose(features.T @ features, np.diag(sizes), atol=1e-9)
    shares = (features / (sizes + ridge)) @ features.T  # of rows in the values of rows
    found = (columns - shares @ columns) / (1 - np.diag(shares))[:, None]
    expected = left_out_errors(rows, columns, by_centres(centres), 0.5, ridge)
    np.testing.assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.parametrize("seed", range(9))
@pytest.mark.parametrize("n_centres", [30, 6])
def test_length_and_ridge_are_the_best_of_all_at_rows_that_are_left_out(n_centres, seed):
    states, targets = wavy(seed)
    model = KernelModel(n_centres, LENGTHS, RIDGES)
    centres = fitted(model, problem(states), targets).centres[0, 0, 0].numpy()
    regression = by_all if n_centres == 30 else by_centres(centres)
    best = best_by_left_out(scaled(states, states), targets, regression)
    assert choice(model, states, targets) == best


@pytest.mark.parametrize("n_numbers", [2, 10, 46, 100])
def test_a_linear_target_is_found_however_many_numbers_a_state_has(n_numbers):
    """On fresh states, R2 above 0.95 without noise."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=n_numbers)
    states, fresh = rng.normal(size=(2, 2000, n_numbers)) * 10.0 ** rng.uniform(-2, 2, n_numbers)
    scale = states.std(axis=0)
    rewards, expected = (rows / scale @ weights for rows in (states, fresh))
    done = np.ones(2000, bool)
    log = TransitionBatch(states, np.zeros(2000, int), rewards, 0 * rewards, states, done)
    config = BFTQConfig(gamma=0.9, n_budgets=2, ensemble=1)
    found = BFTQ(config).fit(log, seed=0, device="cpu").q_function(fresh)[0][:, 0, 0]
    assert 1 - np.square(found - expected).mean() / expected.var() > 0.95


@pytest.mark.parametrize(("wave", "length"), [(0.2, 4.0), (8.0, 0.2)])
def test_fast_waves_take_short_bumps_and_slow_ones_long(wave, length):
    states = np.random.default_rng(0).normal(size=(1000, 1))
    targets = np.repeat(np.sin(wave * states), 6, axis=1).reshape(1000, 3, 2)
    q = fitted(KernelModel(lengths=(0.2, 0.9, 4.0)), problem(states), targets)
    assert q.lengths.flatten().tolist() == [length]


def test_these_choices_are_not_all_the_same():
    model = KernelModel(30, LENGTHS, RIDGES)
    chosen = {choice(model, *wavy(seed)) for seed in range(9)}
    assert len({length for length, _ in chosen}) == 3
    assert len({ridge for _, ridge in chosen}) > 3


def test_among_many_rows_some_judge_and_all_are_fitted(monkeypatch):
    """Waves are too fast for long bumps; the second half of the rows is 1 higher."""
    monkeypatch.setattr("bmdp.models.kernel._N_JUDGED", 1000)
    rng = np.random.default_rng(0)
    states = rng.uniform(-3, 3, (3000, 1))
    targets = np.repeat(np.sin(4 * states), 6, axis=1).reshape(3000, 3, 2)
    targets[1500:] += 1
    q = fitted(KernelModel(60, (0.2, 4.0), (1e-3, 10.0)), problem(states), targets)
    assert q.lengths.flatten().tolist() == [0.2]
    asked = np.linspace(-2.9, 2.9, 50)[:, None]
    expected = np.broadcast_to(np.sin(4 * asked)[:, :, None] + 0.5, (50, 3, 2))
    np.testing.assert_allclose(values(q, asked)[:, 0], expected, atol=0.15)


def test_rows_in_parts_are_valued_as_in_one_piece(monkeypatch):
    states, targets = data(300)
    q = fitted(FEW, problem(states), targets)
    whole, sizes = values(q, states[:50]), []
    monkeypatch.setattr("bmdp.models.kernel._BUMPS", 100)
    monkeypatch.setattr(
        "bmdp.models.kernel.bumps",
        lambda rows, *rest: sizes.append(len(rows)) or bumps(rows, *rest),
    )
    np.testing.assert_allclose(values(q, states[:50]), whole, atol=1e-6)
    assert sizes == [5] * 10  # as 12 centres and 2 * 3 values of a row are within 100


@needs_gpu
def test_a_gpu_fits_as_the_cpu_does():
    states, targets = data(3000)
    given = problem(states, np.arange(3000) % 2, 2)
    model = KernelModel(50, (0.3, 0.6), (1e-2, 1.0))
    here, there = (prepared(model, given, device) for device in ("cpu", "cuda"))
    for q in (here, there):
        fit_once(q, given, targets)
    assert there.weights.is_cuda
    np.testing.assert_allclose(values(there, states), values(here, states), atol=5e-4)


# Budgets


@pytest.mark.parametrize("model", [FEW, KernelModel(200, (0.4,), (0.1,))])
def test_a_fit_to_a_sum_is_the_sum_of_fits(model):
    states, one = data(100)
    other = data(100, seed=1)[1]
    a, b, both = (
        values(fitted(model, problem(states), targets), states)
        for targets in (one, other, 2 * one - other)
    )
    np.testing.assert_allclose(both, 2 * a - b, atol=2e-4)


def test_budgets_are_fitted_alike_so_that_rising_and_concave_targets_stay_so():
    """Targets u(s) + v(s) sqrt(budget), to which all budgets of a fit give the same weights."""
    rng = np.random.default_rng(0)
    states = rng.normal(size=(150, 2))
    base, slope = rng.normal(size=150), 1.5 + np.tanh(states[:, 0]) + rng.uniform(-0.3, 0.3, 150)
    q_r = base[:, None] + slope[:, None] * np.sqrt(GRID)
    q = fitted(KernelModel(), problem(states), np.stack((q_r, q_r / 9), axis=-1))
    found = values(q, rng.normal(size=(50, 2)))[:, 0]
    rises = found[:, [1, 2]] - found[:, [0]]
    np.testing.assert_allclose(rises[:, 0], rises[:, 1] * np.sqrt(0.5), atol=rounding(q))
    np.testing.assert_allclose(found[..., 1], found[..., 0] / 9, atol=rounding(q))
    assert (rises > 0).all()


# Odd data


def test_an_action_that_never_occurs_has_the_mean_target_of_all():
    states, targets = data()
    q = fitted(FEW, problem(states, np.arange(40) % 2 * 2, 4), targets)
    found = values(q, data(10, seed=1)[0])
    expected = np.broadcast_to(targets.mean(axis=0), (10, 2, 3, 2))
    np.testing.assert_allclose(found[:, [1, 3]], expected, rtol=1e-5)
    assert np.ptp(found[:, [0, 2]], axis=0).min() > 0.01


def test_a_single_row_has_its_target_everywhere():
    states, targets = data(1)
    found = values(fitted(KernelModel(), problem(states), targets), data(10, seed=1)[0])
    assert (found == targets[0]).all()


def test_an_action_that_occurs_once_has_that_target_everywhere():
    states, targets = data()
    q = fitted(KernelModel(), problem(states, np.eye(40, dtype=int)[7], 2), targets)
    found = values(q, data(10, seed=1)[0])[:, 1]
    assert (found == targets[7]).all()


def test_far_from_all_rows_the_value_is_the_mean_target_of_the_action():
    states, targets = data()
    actions = np.arange(40) % 2
    q = fitted(FEW, problem(states, actions, 2), targets)
    far = values(q, np.array([[1e4, -1e4]]))[0]
    expected = np.stack([targets[actions == a].mean(axis=0) for a in range(2)])
    np.testing.assert_allclose(far, expected, rtol=1e-5)


def test_rows_that_repeat_a_state_count_as_often_as_they_do():
    """Fitted with all as centres, they are those of the mean target, weighted by their number."""
    states, _ = data(30)
    counts = np.arange(30) % 3 + 1
    rows = np.repeat(np.arange(30), counts)
    repeated = data(len(rows), seed=1)[1]
    q = fitted(KernelModel(100, (0.5,), (0.1,)), problem(states[rows]), repeated)
    assert q.centres.shape[3] == 30
    unique = scaled(states, states[rows])
    mean = repeated.mean(axis=0)
    means = np.stack([repeated[rows == i].mean(axis=0) for i in range(30)]) - mean
    own = kernel(unique, unique, 0.5)
    weights = np.linalg.solve(own + 0.1 * np.diag(1 / counts), means.reshape(30, -1))
    expected = mean + (own @ weights).reshape(30, 3, 2)
    np.testing.assert_allclose(values(q, states)[:, 0], expected, atol=rounding(q))


def test_states_that_never_change_have_the_mean_target():
    targets = data()[1]
    states = np.full((40, 2), 3.3)
    found = values(fitted(KernelModel(), problem(states), targets), states[:2])[:, 0]
    np.testing.assert_allclose(found, np.broadcast_to(targets.mean(axis=0), (2, 3, 2)), atol=1e-6)


def test_a_number_that_never_changes_is_as_if_it_were_not_there():
    states, targets = data()
    wide = np.column_stack([states, np.full(40, 0.1)])
    with_it = values(fitted(FEW, problem(wide), targets), wide)
    without = values(fitted(FEW, problem(states), targets), states)
    np.testing.assert_allclose(with_it, without, atol=1e-4)


def test_targets_that_never_change_are_met_and_leave_the_choice_to_the_others():
    states, targets = wavy(8)
    chosen = choice(KernelModel(30, LENGTHS, RIDGES), states, targets)
    targets[..., 0] = np.float32(0.1)
    best = best_by_left_out(scaled(states, states), targets[..., 1:], by_all)
    assert choice(KernelModel(30, LENGTHS, RIDGES), states, targets) == best != chosen
    found = values(fitted(KernelModel(), problem(states), targets), data(9, n_numbers=1)[0])
    np.testing.assert_allclose(found[..., 0], np.float32(0.1), rtol=1e-6)


# Centres


@pytest.mark.parametrize("seed", range(5))
def test_every_centre_is_the_row_farthest_from_those_before_it(seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(50, 2))
    centres = far_apart(rows, 8, rng)
    for n in range(1, 8):
        gaps = cdist(rows, centres[:n]).min(axis=1)
        assert (centres[n] == rows[gaps.argmax()]).all()
    assert len({tuple(c) for c in centres} & {tuple(row) for row in rows}) == 8


@pytest.mark.parametrize("seed", range(5))
def test_no_row_is_more_than_twice_as_far_from_a_centre_as_with_the_best_centres(seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(10, 2)) * [1, 5]
    gaps = cdist(rows, rows)
    best = min(gaps[:, chosen].min(axis=1).max() for chosen in combinations(range(10), 3))
    assert cdist(rows, far_apart(rows, 3, rng)).min(axis=1).max() <= 2 * best


def test_there_are_no_more_centres_than_different_rows():
    rows = np.repeat(np.arange(4.0), 3)[:, None]
    assert sorted(far_apart(rows, 10, np.random.default_rng(0))[:, 0]) == [0, 1, 2, 3]


def test_centres_are_drawn_by_seed_and_kept_from_fit_to_fit():
    states, targets = data(200)
    q = fitted(FEW, problem(states), targets)
    first = q.centres.clone()
    fit_once(q, problem(states), targets + 1)
    assert (q.centres == first).all()
    others = [fitted(FEW, problem(states, seed=s), targets).centres for s in (0, 1)]
    assert (others[0] == first).all()
    assert (others[1] != first).any()


# Settings


@pytest.mark.parametrize("model", [KernelModel(), KernelModel(5, [0.5], [1, 2.5])])
def test_settings_come_back_from_a_file_as_they_were(model):
    spec = TrainingSpec(None, BFTQConfig(gamma=0.5, model=model), None)
    back = from_json(json.loads(json.dumps(to_json(spec))))
    assert back == spec
    assert isinstance(back.learner.model.lengths, tuple)


def test_a_setting_is_changed_by_name():
    spec = with_setting(with_setting(SPEC, "learner.model=KernelModel"), "learner.gamma=0.5")
    spec = with_setting(spec, "learner.model.lengths=[0.5, 1]")
    assert spec.learner.model == KernelModel(lengths=(0.5, 1.0))
    assert spec.learner.gamma == 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"centres": 0}, "centres must be a whole number from 1 on; got 0"),
        ({"centres": 2.5}, r"centres must be a whole number; got 2\.5"),
        ({"lengths": ()}, r"lengths must be numbers above 0; got \(\)"),
        ({"lengths": (1.0, 0.0)}, r"lengths must be numbers above 0; got \(1\.0, 0\.0\)"),
        ({"lengths": (float("inf"),)}, "lengths must be numbers above 0; got"),
        ({"ridges": (-1.0,)}, "ridges must be numbers above 0; got"),
        ({"ridges": (float("nan"),)}, "ridges must be numbers above 0; got"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ConfigError, match=message):
        KernelModel(**settings)


def test_a_last_step_of_its_own_has_bumps_around_its_own_rows():
    rng = np.random.default_rng(0)
    state = np.tile([0.0, 50.0], 60) + rng.random(120)  # the last step is far away
    episode, step = np.repeat(np.arange(60), 2), np.tile([0, 1], 60)
    after, zeros = np.where(step == 0, np.roll(state, -1), state), np.zeros(120, int)
    log = TransitionBatch(state, zeros, state, zeros, after, step == 1, episode=episode, step=step)
    config = BFTQConfig(gamma=1.0, model=KernelModel(5), schedule=Backward(), ensemble=1)
    model = BFTQ(config).fit(log, seed=0, device="cpu").q_function.model
    for number, rows in ((0, state[step == 0]), (1, state[step == 1])):
        scaled = model.centres[0, model.group[number], 0]
        centres = (scaled * model.scale + model.centre).numpy().ravel()
        assert np.abs(centres[:, None] - rows).min(axis=1).max() < 1e-9
