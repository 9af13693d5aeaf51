import numpy as np
import pytest

from bmdp import DataError, upper_frontier
from bmdp.evaluation import (
    dial_measures,
    evaluate,
    mean_interval,
    measure_dial,
    measure_dials,
)
from bmdp.exact import allocate_budgets, budgeted_value_iteration
from bmdp.exact.textbook import branches, crossing, decision, ladder
from problems import always, by_hand, finite_spec

FRONTIER = upper_frontier([0.1, 0.5, 0.9], [10.0, 50.0, 70.0])  # slopes 100 and 50
BUDGETS = [0.0, 0.3, 0.7, 2.0]
BEST = [10.0, 30.0, 60.0, 70.0]
COSTS = [0.1, 0.3, 0.7, 0.9]


def is_within(report, name, value):
    low, high = (getattr(report, f"{name}_{end}") for end in ("low", "high"))
    return (low <= np.asarray(value) + 1e-9) & (np.asarray(value) <= high + 1e-9)


def test_the_optimum_is_perfect_in_all_three():
    report = measure_dial(by_hand(BUDGETS, BEST, COSTS), FRONTIER)
    assert report.score == pytest.approx([1, 1, 1, 1])
    assert report.overshoot == pytest.approx([0, 0, 0, 0.9 - 2.0])
    assert report.dial_error == pytest.approx([0, 0, 0, 0], abs=1e-12)
    assert report.mean_score == pytest.approx(1)
    assert report.worst_overshoot == pytest.approx(0)
    assert report.mean_dial_error == pytest.approx(0)


def test_always_safe_scores_low_and_errs_at_high_budgets():
    report = measure_dial(by_hand(BUDGETS, [10.0] * 4, [0.1] * 4), FRONTIER)
    assert report.score == pytest.approx([1, 1 / 3, 1 / 6, 1 / 7])
    assert report.dial_error == pytest.approx([0, 0.2, 0.6, 0.8])
    assert report.worst_overshoot == pytest.approx(0)


def test_always_risky_overshoots_at_low_budgets_and_earns_no_score_by_it():
    report = measure_dial(by_hand(BUDGETS, [70.0] * 4, [0.9] * 4), FRONTIER)
    assert report.score == pytest.approx([1, 1, 1, 1])  # the best for what it pays
    assert report.overshoot == pytest.approx([0.8, 0.6, 0.2, -1.1])
    assert report.dial_error == pytest.approx([0.8, 0.6, 0.2, 0])


@pytest.mark.parametrize("share", np.linspace(0, 1, 11))
def test_whatever_ignores_the_dial_errs_somewhere(share):
    costs = 0.1 + share * 0.8
    report = measure_dial(
        by_hand(BUDGETS, [float(FRONTIER.reward_at(costs))] * 4, [costs] * 4), FRONTIER
    )
    assert report.dial_error.max() >= 0.4 - 1e-9


def test_costs_above_the_frontier_are_compared_with_its_top():
    report = measure_dial(by_hand([0.5], [35.0], [5.0]), FRONTIER)
    assert report.score == pytest.approx([0.5])
    assert report.overshoot == pytest.approx([4.5])


def test_intervals_are_those_of_costs_widened_to_hold_at_all_budgets():
    samples = np.random.default_rng(0).normal(0.3, 0.1, (2, 20))
    mean, low, high = mean_interval(samples, confidence=0.9)
    wanted = mean_interval(samples, confidence=0.9, n_together=2)
    given = by_hand([0.2, 0.4], [1.0, 1.0], mean, n_episodes=20, confidence=0.9)
    object.__setattr__(given, "dial_cost_low", low)
    object.__setattr__(given, "dial_cost_high", high)
    report = measure_dial(given, FRONTIER)
    assert report.overshoot_low == pytest.approx(wanted.low - [0.2, 0.4])
    assert report.overshoot_high == pytest.approx(wanted.high - [0.2, 0.4])


def test_a_dial_error_may_be_0_only_if_the_interval_of_the_cost_has_the_budget():
    report = measure_dial(by_hand([0.3, 0.5], [1.0, 1.0], [0.31, 0.8], half=0.05), FRONTIER)
    assert report.dial_error == pytest.approx([0.01, 0.3])
    assert report.dial_error_low[0] == 0.0
    assert 0.2 < report.dial_error_low[1] < 0.3
    assert (report.dial_error_high > report.dial_error).all()


def test_the_interval_of_a_score_has_the_best_and_the_worst_case():
    half = 0.02
    report = measure_dial(by_hand([0.3], [30.0], [0.3], half=half), FRONTIER)
    wide = half * 1.143  # t of 1 - 0.025 / 2 over t of 0.975, for 999 degrees of freedom
    assert report.score_low == pytest.approx([(30 - wide) / (30 + 100 * wide)], rel=1e-3)
    assert report.score_high == pytest.approx([(30 + wide) / 30], rel=1e-3)


def test_a_loss_has_a_score_below_zero_with_its_interval_around_it():
    report = measure_dial(by_hand([0.3], [-3.0], [0.3], half=0.02), FRONTIER)
    assert report.score == pytest.approx([-0.1])
    assert report.score_low < report.score < report.score_high < 0


def test_where_there_is_nothing_to_earn_there_is_no_score():
    frontier = upper_frontier([0.0, 1.0], [0.0, 8.0])
    report = measure_dial(by_hand([0.0, 0.5], [0.0, 3.0], [0.0, 0.5], half=0.01), frontier)
    assert np.isnan([report.score[0], report.score_low[0], report.score_high[0]]).all()
    assert report.mean_score == report.score[1] == 0.75
    assert np.isnan(measure_dial(by_hand([0.0], [0.0], [0.0]), frontier).mean_score)


def test_a_score_that_might_be_a_share_of_nothing_is_bounded_on_one_side_only():
    frontier = upper_frontier([0.0, 1.0], [0.0, 8.0])
    report = measure_dial(by_hand([0.0], [0.05], [0.01], half=0.02), frontier)
    assert report.score == pytest.approx([0.05 / 0.08])
    assert report.score_high.tolist() == [np.inf]
    assert np.isfinite(report.score_low).all()


def test_one_episode_proves_nothing():
    report = measure_dial(by_hand([0.3], [30.0], [0.3], half=np.inf, n_episodes=1), FRONTIER)
    assert (report.overshoot_low[0], report.overshoot_high[0]) == (-np.inf, np.inf)
    assert (report.dial_error_low[0], report.dial_error_high[0]) == (0.0, np.inf)


def test_budgets_are_about_discounted_costs():
    given = by_hand([0.3], [30.0], [0.3], discount=0.5)
    assert measure_dial(given, FRONTIER).dial_error == pytest.approx([0])
    undiscounted = dial_measures(given.budgets, given.cost_mean, given.reward_mean, FRONTIER)
    assert undiscounted.dial_error == pytest.approx([0.3])
    assert undiscounted.score == pytest.approx([60 / 55])


def test_arrays_are_measured_as_evaluations_are():
    rewards, costs = [5.0, 30.0, 20.0, 70.0], [0.2, 0.3, 0.9, 0.9]
    report = measure_dial(by_hand(BUDGETS, rewards, costs), FRONTIER)
    found = dial_measures(BUDGETS, costs, rewards, FRONTIER)
    for name, values in found._asdict().items():
        np.testing.assert_array_equal(values, getattr(report, name), err_msg=name)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (([0.1, 0.2], [0.1], [1.0, 1.0]), r"costs must have shape \[B\] = \[2\]; got \[1\]"),
        (([0.1], [0.1], [[1.0]]), r"rewards must have shape \[B\]"),
        ((0.1, 0.1, 1.0), r"budgets must have shape \[B\]"),
    ],
)
def test_arrays_of_different_lengths_are_not_measured(arrays, words):
    with pytest.raises(DataError, match=words):
        dial_measures(*arrays, FRONTIER)


@pytest.mark.parametrize("make", [decision, branches, crossing, lambda: ladder(3)])
def test_the_optimal_policy_passes_when_played(make):
    known = make()
    top = known.frontier.costs[-1]
    policy = allocate_budgets(known.model).policy()
    found = evaluate(
        policy, finite_spec(known), budgets=np.linspace(0.1, 1, 4) * top, n_episodes=5_000, seed=2
    )
    report = measure_dial(found, known.frontier)
    assert is_within(report, "score", 1.0).all()
    assert is_within(report, "overshoot", 0.0).all()
    assert is_within(report, "dial_error", 0.0).all()
    assert report.mean_score > 0.97
    assert report.worst_overshoot < 0.03 * top


def played(policy, known, budgets):
    found = evaluate(policy, finite_spec(known), budgets=budgets, n_episodes=3_000, seed=0)
    return measure_dial(found, known.frontier)


def test_always_safe_fails_when_played():
    known = decision((0.0, 1.0), (4.0, 8.0))
    report = played(always(0, 2), known, [0.0, 1.0])
    assert is_within(report, "score", 1.0).tolist() == [True, False]
    assert report.score[1] == 0.5
    assert is_within(report, "dial_error", 0.0).tolist() == [True, False]


def test_always_risky_fails_when_played():
    known = branches()
    report = played(always(1, 4), known, [0.0, 0.5, 1.0])
    assert is_within(report, "overshoot", 0.0).tolist() == [False, False, True]
    assert report.overshoot == pytest.approx([1, 0.5, 0])


def test_the_papers_operator_is_honest_but_short_of_the_optimum():
    known = branches()  # with budget 1/2 it gets 2.75 of 5
    report = played(budgeted_value_iteration(known.model, [0, 0.5, 1]).policy(), known, [0.5])
    assert is_within(report, "score", 0.55).all()
    assert not is_within(report, "score", 1.0).any()
    assert is_within(report, "dial_error", 0.0).all()


def seeds(costs, rewards=30.0):
    return [by_hand([0.3, 0.5], [rewards, rewards], [c, 0.5]) for c in costs]


def test_measures_of_seeds_are_means_of_measures():
    report = measure_dials(seeds([0.2, 0.3, 0.46]), FRONTIER)
    assert report.overshoot == pytest.approx([0.02, 0])
    assert report.dial_error == pytest.approx([(0.1 + 0 + 0.16) / 3, 0])
    assert report.score == pytest.approx([(1 + 1 + 30 / 46) / 3, 0.6])
    assert report.worst_overshoot == pytest.approx(0.16)
    assert report.mean_score == pytest.approx(report.score.mean())
    assert report.mean_dial_error == pytest.approx(report.dial_error.mean())
    assert report.n_seeds == 3


def test_errors_of_seeds_do_not_cancel():
    report = measure_dials(seeds([0.1, 0.5]), FRONTIER)
    assert report.overshoot[0] == pytest.approx(0)
    assert report.dial_error[0] == pytest.approx(0.2)


def test_intervals_of_seeds_are_over_seeds():
    report = measure_dials(seeds([0.2, 0.3, 0.46]), FRONTIER)
    wanted = mean_interval([-0.1, 0.0, 0.16], confidence=0.95, n_together=2)
    assert [report.overshoot_low[0], report.overshoot_high[0]] == pytest.approx(wanted[1:])
    assert report.overshoot_low[1] == report.overshoot_high[1] == 0


def test_a_single_seed_says_nothing_of_seeds():
    assert measure_dials(seeds([0.3]), FRONTIER).overshoot_high.tolist() == [np.inf, np.inf]


def test_seeds_that_were_asked_different_things_are_refused():
    with pytest.raises(DataError, match="at least one"):
        measure_dials([], FRONTIER)
    for other in (by_hand([0.3, 0.6], [1, 1], [1, 1]), by_hand([0.3], [1], [1])):
        with pytest.raises(DataError, match=r"the same budgets.*\[1\]"):
            measure_dials([*seeds([0.3]), other], FRONTIER)
    with pytest.raises(DataError, match="confidence"):
        measure_dials(
            [*seeds([0.3]), by_hand([0.3, 0.5], [1, 1], [1, 1], confidence=0.9)], FRONTIER
        )
