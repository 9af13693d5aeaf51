"""Whatever way a log is told in, the same is done: by every candidate, and by a fit as a whole."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import bmdp
from bmdp import TransitionBatch
from bmdp.learn.candidates import budgeted, learned, recipes
from bmdp.learn.fit import Backward, Iterations
from bmdp.learn.natures import completed
from small_logs import (
    ALL_UNITS,
    EXACT,
    MIXED,
    ROUNDED,
    Telling,
    changed,
    decisions,
    ferry,
    grid,
    lesson_of,
    plane,
    played,
    twice,
    with_noise,
)

FEW = {recipe.name: (grid, recipe) for recipe in recipes(lesson_of(grid()).nature, 2)}
NUMBERS = {
    f"{recipe.name} of numbers": (plane, recipe) for recipe in recipes(lesson_of(plane()).nature, 2)
}
CASES = FEW | NUMBERS
SAME, ORDER = Telling(), EXACT["order of rows and numbers of episodes"]

each_case = pytest.mark.parametrize(("log", "recipe"), CASES.values(), ids=CASES.keys())
each_exact = pytest.mark.parametrize("telling", EXACT.values(), ids=EXACT.keys())


@cache
def plain(log, recipe):
    return decisions(recipe, log(), SAME)


def share_equal(one, other):
    assert one.shape == other.shape
    return (one == other).mean()


# The logs


def test_these_logs_are_of_two_natures():
    assert lesson_of(grid()).nature.n_states == 9
    assert lesson_of(ferry()).nature.n_states == 6
    assert lesson_of(plane()).nature.n_states is None


@each_case
def test_these_decisions_are_of_all_kinds(log, recipe):
    found = plain(log, recipe)
    assert set(np.unique(found)) == {0, 1, 2}
    assert (found[..., 0] == 0).mean() > 0.5 > (found[..., -1] == 0).mean()


# Candidates


@each_exact
@each_case
def test_a_candidate_does_the_very_same_where_nothing_is_rounded(log, recipe, telling):
    np.testing.assert_array_equal(decisions(recipe, log(), telling), plain(log, recipe))


RENAMED = ROUNDED["actions renamed"]
ROUNDED_CASES = [
    pytest.param(*case, telling, id=f"{name}-{way}")
    for name, case in CASES.items()
    for way, telling in ROUNDED.items()
]


@pytest.mark.parametrize(("log", "recipe", "telling"), ROUNDED_CASES)
def test_a_candidate_does_the_same_up_to_rounding(log, recipe, telling):
    assert share_equal(decisions(recipe, log(), telling), plain(log, recipe)) >= 0.98


@each_case
def test_a_candidate_learns_the_very_same_from_a_log_that_was_copied(log, recipe):
    """Every episode is there twice, and the copies are numbered on."""
    found = decisions(recipe, twice(log()), SAME)
    np.testing.assert_array_equal(found, plain(log, recipe))


@pytest.mark.parametrize("log", [grid, plane])
@pytest.mark.parametrize("telling", [ORDER, ALL_UNITS], ids=["order", "units"])
def test_budgets_do_the_same(log, telling):
    """The paper's dial with the first regressor of each nature."""

    def done(telling):
        lesson = lesson_of(telling.told(log()))
        recipe, grid_of = budgeted(recipes(lesson.nature, 2)[0], np.linspace(0, 3, 4))
        policy = learned(recipe, lesson, grid_of * telling.cost).policy
        states = telling.states(log().state[:200])
        return [policy.at_step(t).options_at(states, grid_of * telling.cost) for t in range(4)]

    for one, other in zip(done(SAME), done(telling), strict=True):
        assert share_equal(one.action, other.action) >= 0.98


# A fit as a whole


def large_grid():
    """Every action was taken everywhere at every step."""
    return grid(400)


@cache
def fitted(log, telling=SAME, copies=1):
    batch = telling.told(log())
    batch = twice(batch) if copies == 2 else batch
    return bmdp.fit(batch, gamma=0.9, device="cpu")


def assert_fits_agree(log, telling, found, tolerance=1e-3):
    plain, share = fitted(log), np.linspace(0, 1, 5)
    low, high = plain.policy.budget_range
    budgets = low + share * (high - low)
    states = log().state[:400]
    ours = played(plain.policy, states, budgets)
    theirs = played(
        found.policy, telling.states(states), budgets * telling.cost * (1 - 1e-12), telling.actions
    )
    assert share_equal(ours, theirs) >= 0.98
    ends = np.array(found.policy.budget_range) / telling.cost
    np.testing.assert_allclose(ends, plain.policy.budget_range, rtol=tolerance)
    for name, unit in (("cost", telling.cost), ("reward", telling.reward)):
        before, after = getattr(plain.forecast, name), getattr(found.forecast, name)
        np.testing.assert_allclose(after / unit, before, atol=tolerance * before.max())
    assert [c.name for c in found.candidates] == [c.name for c in plain.candidates]


@each_exact
def test_a_fit_of_few_states_does_the_very_same(telling):
    assert_fits_agree(grid, telling, fitted(grid, telling), 1e-6)


@pytest.mark.parametrize("telling", [ALL_UNITS, RENAMED], ids=["units", "actions"])
def test_a_fit_of_few_states_does_the_same_up_to_rounding(telling):
    assert_fits_agree(grid, telling, fitted(grid, telling))


def test_a_fit_of_numbers_does_the_very_same_with_rows_in_another_order():
    assert_fits_agree(plane, ORDER, fitted(plane, ORDER), 1e-12)


def test_a_fit_of_numbers_does_the_same_up_to_rounding():
    """A state at the border of a leaf may fall on its other side, and the forecast follows."""
    assert_fits_agree(plane, ALL_UNITS, fitted(plane, ALL_UNITS), 0.05)


def test_a_fit_of_numbers_does_the_same_with_other_names_of_actions():
    assert_fits_agree(plane, RENAMED, fitted(plane, RENAMED), 0.05)


def test_a_fit_takes_the_episodes_of_a_log_that_was_copied_once():
    found = fitted(grid, copies=2)
    assert_fits_agree(grid, SAME, found)
    assert "every episode is there 2 times: each was taken once" in found.notes


@pytest.mark.parametrize("log", [pytest.param(large_grid, marks=pytest.mark.slow), plane])
def test_a_number_that_says_nothing_changes_the_forecast_within_its_intervals(log):
    """States are no longer few with it."""
    plain, found = (fitted(log, telling).forecast for telling in (SAME, Telling(states=with_noise)))
    at = np.linspace(plain.budgets[0], min(plain.budgets[-1], found.budgets[-1]), 7)
    for name in ("cost", "reward"):
        ours, theirs = (np.interp(at, f.budgets, getattr(f, name)) for f in (plain, found))
        lows, highs = (
            [np.interp(at, f.budgets, getattr(f, f"{name}_{end}")) for f in (plain, found)]
            for end in ("low", "high")
        )
        half = sum((high - low) / 2 for low, high in zip(lows, highs, strict=True))
        assert (np.abs(ours - theirs) <= half).all()


# The order of a log


@pytest.mark.parametrize("log", [ferry, grid, plane])
def test_the_order_of_a_log_is_drawn_by_what_it_says_alone(log):
    one = completed(log())
    other = completed(ORDER.told(log()))
    for name, values in one.to_arrays().items():
        np.testing.assert_array_equal(other.to_arrays()[name], values, err_msg=name)
    again = completed(one)
    np.testing.assert_array_equal(again.state, one.state)


def test_episodes_stay_whole_and_none_is_lost():
    one, other = plane(), completed(plane())
    assert other.step.tolist() == list(range(4)) * 120
    np.testing.assert_array_equal(np.unique(other.episode), np.arange(120))
    np.testing.assert_array_equal(other.next_state[:3], other.state[1:4])
    np.testing.assert_array_equal(np.sort(other.reward), np.sort(one.reward))


@pytest.mark.parametrize("drop", [("episode",), ("step",), ("episode", "step")])
def test_episodes_and_steps_are_found_where_rows_follow_each_other(drop):
    log = completed(plane())
    found = completed(changed(log, drop))
    for name, values in log.to_arrays().items():
        np.testing.assert_array_equal(found.to_arrays()[name], values, err_msg=name)


def test_rows_in_no_order_have_neither_episodes_nor_steps():
    mixed = MIXED.told(plane())
    assert completed(changed(mixed, ("episode", "step"))).episode is None
    assert completed(changed(mixed, ("episode",))).episode is None
    assert completed(changed(mixed, ("step",))).step is None


def test_chance_that_episodes_are_alike_is_no_copy():
    """Two episodes, three times each, are a log of six."""
    log = TransitionBatch([0] * 6, [0, 1] * 3, [0, 1] * 3, [0, 1] * 3, [0] * 6, [True] * 6)
    assert len(completed(log)) == 6


def test_trees_are_grown_twice_only_where_each_step_is_fitted_once():
    nature = lesson_of(plane()).nature
    for schedule, expected in ((Backward(), True), (Iterations(5), False)):
        names = [recipe.name for recipe in recipes(replace(nature, schedule=schedule), 2)]
        assert ("regrown forest" in names) == expected
