"""Drift of first states: named where it is, and seldom where there is none."""

import numpy as np
import pytest

from bmdp.deployment import Drift
from bmdp.errors import DataError


def states(rng, n):
    """A normal number, a coin, a rare mark and a time."""
    return np.column_stack(
        (rng.normal(size=n), rng.integers(2, size=n), rng.random(n) < 0.02, rng.exponential(size=n))
    )


def test_without_drift_alarms_are_as_rare_as_said():
    rng, n_runs, n_alarms = np.random.default_rng(0), 200, 0
    for _ in range(n_runs):
        drift = Drift(states(rng, 400), confidence=0.9)
        drift.add(states(rng, 1_500))
        report = drift.report()
        assert report.n_blocks == 4
        n_alarms += bool(report.shifts)
    assert n_alarms / n_runs <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / n_runs)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_the_number_that_has_shifted_is_named_and_no_other(number):
    rng = np.random.default_rng(1)
    new = states(rng, 700)
    new[:, number] = 0.5 + 1.5 * new[:, number] if number != 1 else rng.random(700) < 0.8
    drift = Drift(states(rng, 1_000), names=("age", "sex", "mark", "wait"))
    drift.add(new.tolist())
    assert {shift.name for shift in drift.report().shifts} == {("age", "sex", "", "wait")[number]}


def test_what_shows_only_in_two_numbers_together_is_found():
    rng = np.random.default_rng(2)
    first = rng.normal(size=3_000)
    drift = Drift(rng.normal(size=(2_000, 2)))
    drift.add(np.column_stack((first, first)))
    assert {shift.name for shift in drift.report().shifts} == {"all together"}


def test_a_late_shift_is_found_in_its_own_block():
    rng = np.random.default_rng(3)
    new = rng.normal(size=(1_500, 1))
    new[700:] += 0.5
    drift = Drift(rng.normal(size=1_000))
    drift.add(new)
    (shift,) = drift.report().shifts
    assert (shift.first, shift.last) == (701, 1_500)


def test_states_of_another_kind_are_counted_and_left_out():
    drift = Drift(np.zeros((50, 2)))
    drift.add([[0.0, 0.0], [1.0], "far", None, [0.0, float("nan")]])
    assert (drift.report().n_seen, drift.report().n_unlike) == (1, 4)


def test_a_training_log_of_a_few_episodes_is_refused():
    with pytest.raises(DataError, match="at least 50 episodes"):
        Drift(np.zeros((49, 2)))
