"""The library gives what version 0.1.0 gave: see `golden/pipelines.py`, `golden/write.py`.

Values are in golden/values.json. Where a later version draws other random numbers, figures of ten
seeds are compared as samples of a distribution.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_ind

from bmdp.learn import collect, resume, train, train_from_data
from bmdp.policies import RandomBudgetedPolicy
from golden.pipelines import OURS, PAPER, PIPELINES, killed_specs
from training import Killed, content, kill_after

VALUES = json.loads((Path(__file__).parents[1] / "golden" / "values.json").read_text())["values"]
LEAST_CHANCE = 0.001  # of a difference as large by chance, for each figure by itself
EVERYWHERE = ""


def within(tolerance):
    """Compares numbers; the tolerance is relative to the largest of a list, or absolute below 1."""

    def compare(name, found, expected):
        found, expected = np.atleast_1d(found), np.atleast_1d(expected)
        assert found.shape == expected.shape, name
        finite = np.isfinite(expected)
        np.testing.assert_array_equal(found[~finite], expected[~finite], name)
        size = max(1.0, abs(expected[finite]).max(initial=0.0))
        np.testing.assert_allclose(
            found[finite], expected[finite], rtol=0, atol=tolerance * size, err_msg=name
        )

    return compare


def relative(tolerance):
    """Compares numbers; the tolerance is relative to the largest of a list."""

    def compare(name, found, expected):
        size = float(abs(np.atleast_1d(expected)).max())
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * size, err_msg=name)

    return compare


def exactly(name, found, expected):
    """Compares numbers that must be the same."""
    np.testing.assert_array_equal(found, expected, name)


def alike(name, found, expected):
    """Compares samples by Welch's test, two-sided."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape, name
    if abs(found.mean() - expected.mean()) <= 1e-6 * max(1.0, abs(expected).max()):
        return  # by rounding, if at all; the test divides by deviations, which may be 0
    if found.std() == expected.std() == 0:
        raise AssertionError(f"{name}: always {found[0]:g}, was always {expected[0]:g}")
    chance = ttest_ind(found, expected, equal_var=False).pvalue
    assert chance >= LEAST_CHANCE, (
        f"{name}: mean {found.mean():.4g} (deviation {found.std(ddof=1):.3g}), was "
        f"{expected.mean():.4g} ({expected.std(ddof=1):.3g}); p = {chance:.2g}"
    )


def no_larger_mean(name, found, expected):
    """Compares samples by Welch's test, one-sided: the mean must not be larger."""
    chance = ttest_ind(found, expected, equal_var=False, alternative="greater").pvalue
    assert chance >= LEAST_CHANCE, f"{name}: mean {np.mean(found):.4g}, was {np.mean(expected):.4g}"


def no_larger(name, found, expected):
    """Compares numbers that may be smaller by 5 % of the largest, and not larger."""
    found, expected = np.asarray(found), np.asarray(expected)
    size = abs(expected).max()
    assert (found <= expected + 1e-9 * size).all(), name
    assert (found >= expected - 0.05 * size).all(), name


def most_alike(name, found, expected):
    """Compares actions: one of twenty may be another one."""
    assert len(found) == len(expected), name
    assert (np.asarray(found) != np.asarray(expected)).sum() <= len(expected) // 20, name


# For each pipeline: how figures are compared whose names hold a word; the first word that fits.
RULES = {
    # Double precision throughout, and a linear program that is solved to 1e-10. All points of
    # "forever" are on one line, of which rounding chooses two: its policy was dearer than asked.
    "exact": {"forever/policy": no_larger, EVERYWHERE: within(1e-9)},
    # Which points are played is a matter of comparisons; values are one division and a sum. The
    # last cloud is in single precision.
    "frontier": {
        "lower": exactly,
        "upper": exactly,
        "status": exactly,
        "n_vertices": exactly,
        "float32": within(1e-6),
        EVERYWHERE: within(1e-12),
    },
    # Targets are in single precision.
    "tabular": {EVERYWHERE: within(1e-6)},
    # Random episodes are the same, and so is what networks are fitted to, but for single precision.
    **{
        name: {"round-0": exactly, "targets": relative(1e-4), EVERYWHERE: relative(1e-3)}
        for name in PAPER
    },
    # Actions are equal unless two are as good but for rounding.
    **{
        f"{name}-ftq": {
            "round-0": exactly,
            "targets": relative(1e-4),
            "actions": most_alike,
            EVERYWHERE: relative(1e-3),
        }
        for name in PAPER
    },
    # Centres and folds are drawn: ten seeds are a sample. The slope cap is unit-free now, and an
    # infeasible budget plays the cheapest point: less is promised at the lowest budget of the road,
    # and less is paid.
    **{name: {EVERYWHERE: alike} for name in OURS},
    "two-way": {
        "start_reward_low": no_larger_mean,
        "cost at": no_larger_mean,
        EVERYWHERE: alike,
    },
    # Targets and values are in single precision; nothing is drawn while learning.
    "prices-table": {"log": exactly, EVERYWHERE: within(4e-6)},
    # Centres and folds are drawn: ten seeds are a sample.
    "prices-kernel": {"log": exactly, EVERYWHERE: alike},
    # A promise: the same episodes must give the same bounds.
    "certificate": {EVERYWHERE: within(1e-9)},
}


def check(pipeline, found):
    """Compares all figures of a pipeline."""
    expected = VALUES[pipeline]
    assert found.keys() == expected.keys()
    for name, value in found.items():
        compare = next(rule for word, rule in RULES[pipeline].items() if word in name)
        compare(name, value, expected[name])


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_pipeline_gives_what_it_gave(pipeline):
    check(pipeline, PIPELINES[pipeline]())


def test_tables_learned_what_value_iteration_finds():
    names = [name for name in VALUES["tabular"] if "learned" in name]
    assert len(names) == 16
    for name in names:
        truth = VALUES["tabular"][name.replace("learned", "exact")]
        np.testing.assert_allclose(VALUES["tabular"][name], truth, atol=1e-5, err_msg=name)


# Kill and resume


@pytest.fixture(scope="module")
def log():
    """Episodes of chance."""
    env = killed_specs()["staged"].env.spec()
    random_policy, budgets = RandomBudgetedPolicy(5, 0.0, 1.0), np.linspace(0, 1, 40)
    return collect(random_policy, env, range(40), budgets=budgets, seed=0)


@pytest.mark.parametrize("kind", killed_specs())
def test_exploring_that_was_killed_leaves_the_same_files(kind, tmp_path):
    def start(folder, **more):
        return train(killed_specs()[kind], folder, seed=0, device="cpu", **more)

    check_killed(start, tmp_path)


@pytest.mark.parametrize("kind", killed_specs())
def test_learning_from_a_log_that_was_killed_leaves_the_same_files(kind, tmp_path, log):
    def start(folder, **more):
        learner = killed_specs()[kind].learner
        return train_from_data(log, learner, folder, seed=0, device="cpu", **more)

    check_killed(start, tmp_path)


def check_killed(start, place):
    """Kills a run at its first, a middle and its last record, and goes on with it."""
    seen = []
    start(place / "whole", on_record=seen.append)
    expected = content(place / "whole" / "policy")
    assert any(len(data) > 1000 for data in expected.values())
    for n_records in sorted({1, len(seen) // 2, len(seen)}):
        folder = place / f"killed-{n_records}"
        with pytest.raises(Killed):
            start(folder, on_record=kill_after(n_records))
        assert not (folder / "policy").exists()
        resume(folder)
        assert content(folder / "policy") == expected
