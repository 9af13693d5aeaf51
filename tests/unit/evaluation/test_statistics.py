import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bmdp import ConfigError, DataError
from bmdp.evaluation import (
    bernstein_interval,
    bounded_interval,
    mean_interval,
    quantiles,
    seed_interval,
    share_interval,
    simultaneous_confidence,
    widened,
    worst_mean,
)

N_TRIALS = 20_000


def covers(interval, truth):
    return (interval.low <= truth) & (truth <= interval.high)


def is_share(hits, probability):
    """Whether a simulated share is within 4.5 deviations of a probability (7e-6 by chance)."""
    deviation = np.sqrt(probability * (1 - probability) / len(hits))
    return abs(hits.mean() - probability) <= 4.5 * deviation


def normals(*shape, seed=0):
    return np.random.default_rng(seed).normal(3.0, 2.0, shape)


def test_students_interval_is_that_of_the_book():
    samples = normals(7)
    wanted = stats.t.interval(0.9, 6, loc=samples.mean(), scale=stats.sem(samples))
    assert mean_interval(samples, confidence=0.9)[1:] == pytest.approx(wanted)


@pytest.mark.parametrize("n", [2, 5, 30])
def test_students_interval_covers_as_often_as_it_says(n):
    assert is_share(covers(mean_interval(normals(N_TRIALS, n), confidence=0.9), 3.0), 0.9)


def test_independent_intervals_hold_together_as_often_as_the_product_says():
    found = mean_interval(normals(N_TRIALS, 4, 10), confidence=0.8, n_together=4)
    assert is_share(covers(found, 3.0).all(axis=1), 0.95**4)


def test_dependent_intervals_hold_together_at_least_as_often():
    samples = normals(N_TRIALS, 1, 10) * [[1.0], [-1.0], [2.0]]
    truth = [3.0, -3.0, 6.0]
    hold = covers(mean_interval(samples, confidence=0.8, n_together=3), truth).all(axis=1)
    assert is_share(hold, 1 - 0.2 / 3)


def test_widening_gives_what_wider_intervals_would_have_been():
    samples = normals(3, 6)
    found = widened(
        mean_interval(samples, confidence=0.9), n_samples=6, confidence=0.9, n_together=3
    )
    wanted = mean_interval(samples, confidence=0.9, n_together=3)
    np.testing.assert_allclose(found, wanted)


@pytest.mark.parametrize("n", [0, 1])
def test_the_interval_of_too_few_samples_is_the_whole_line(n):
    found = mean_interval(np.ones((2, n)), confidence=0.9)
    assert (found.low == -np.inf).all()
    assert (found.high == np.inf).all()
    assert np.isnan(found.mean).all() == (n == 0)
    again = widened(found, n_samples=n, confidence=0.9, n_together=2)
    assert (again.high == np.inf).all()


def test_samples_that_are_all_alike_have_an_interval_of_one_point():
    assert [float(v) for v in mean_interval([0.5] * 4, confidence=0.9)] == [0.5, 0.5, 0.5]


def seeds_that_differ(n_trials, n_seeds=4, n_episodes=50):
    """Samples `[trials, seeds, episodes]` of seeds whose own means are normal around 3."""
    rng = np.random.default_rng(1)
    own = rng.normal(3.0, 1.0, (n_trials, n_seeds, 1))
    return own + rng.normal(0.0, 1.0, (n_trials, n_seeds, n_episodes))


def test_an_interval_over_seeds_covers_as_often_as_it_says():
    per_seed = seeds_that_differ(5_000).mean(axis=2)
    hits = np.array([covers(seed_interval(m[:, None], confidence=0.9), 3.0)[0] for m in per_seed])
    assert is_share(hits, 0.9)


def test_an_interval_over_all_episodes_of_all_seeds_does_not():
    pooled = seeds_that_differ(5_000).reshape(5_000, -1)
    assert covers(mean_interval(pooled, confidence=0.9), 3.0).mean() < 0.3


def test_intervals_over_seeds_hold_at_all_budgets_together():
    per_seed = normals(5, 3)
    wanted = mean_interval(per_seed[:, 1], confidence=0.9, n_together=3)
    found = seed_interval(per_seed, confidence=0.9)
    assert [column[1] for column in found] == pytest.approx(list(wanted))


@pytest.mark.parametrize(("hits", "n"), [(0, 1), (1, 1), (0, 20), (3, 20), (20, 20)])
def test_the_interval_of_a_share_is_that_of_clopper_and_pearson(hits, n):
    wanted = stats.binomtest(hits, n).proportion_ci(0.9)
    found = share_interval(hits, n, confidence=0.9)
    assert found[1:] == pytest.approx((wanted.low, wanted.high))
    assert found.mean == hits / n


def coverage(found, n, p):
    """Exact probability that one of n + 1 intervals, by number of hits, covers p."""
    return stats.binom.pmf(np.arange(n + 1), n, p)[covers(found, p)].sum()


@pytest.mark.parametrize("n", [1, 7, 60])
def test_the_interval_of_a_share_covers_at_least_as_often_as_it_says(n):
    found = share_interval(np.arange(n + 1), n, confidence=0.9)
    assert min(coverage(found, n, p) for p in np.linspace(0, 1, 501)) >= 0.9


@pytest.mark.parametrize("n", [1, 7, 60])
def test_the_bounded_interval_covers_at_least_as_often_as_it_says(n):
    coins = np.arange(n) < np.arange(n + 1)[:, None]  # 0 to n hits
    found = bounded_interval(5 * coins - 2, lowest=-2, highest=3, confidence=0.9)
    found = found._replace(low=(found.low + 2) / 5, high=(found.high + 2) / 5)
    assert min(coverage(found, n, p) for p in np.linspace(0, 1, 501)) >= 0.9


def test_a_rare_cost_that_was_not_seen_is_covered_by_the_bounded_interval_only():
    costs = np.random.default_rng(0).random((2_000, 200)) < 0.002
    bounded = bounded_interval(costs, lowest=0, highest=1, confidence=0.9)
    assert covers(bounded, 0.002).mean() >= 0.9
    assert covers(mean_interval(costs, confidence=0.9), 0.002).mean() < 0.4


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(0.5, 0.99))
def test_the_bounded_interval_is_within_that_of_the_root(samples, confidence):
    mean, low, high = bounded_interval(samples, lowest=0, highest=1, confidence=confidence)
    half = np.sqrt(np.log(2 / (1 - confidence)) / (2 * len(samples)))  # by Pinsker's inequality
    assert max(0, mean - half) - 1e-9 <= low <= mean + 1e-9
    assert mean - 1e-9 <= high <= min(1, mean + half) + 1e-9


def test_bernsteins_interval_is_that_of_the_theorem():
    samples = np.random.default_rng(0).beta(2, 5, 3_000)
    mean, low, high = bernstein_interval(4 * samples - 1, lowest=-1, highest=3, confidence=0.9)
    log = np.log(2 / 0.05)  # each side with half of 0.1
    pairs = (samples[:, None] - samples) ** 2
    variance = pairs.sum() / 2 / (3_000 * 2_999)  # as Maurer and Pontil write it
    half = np.sqrt(2 * variance * log / 3_000) + 7 * log / (3 * 2_999)
    assert mean == pytest.approx(4 * samples.mean() - 1)
    assert (low, high) == pytest.approx((mean - 4 * half, mean + 4 * half))


@pytest.mark.parametrize("n", [1, 7, 60, 400])
def test_bernsteins_interval_covers_at_least_as_often_as_it_says(n):
    coins = np.arange(n) < np.arange(n + 1)[:, None]
    found = bernstein_interval(coins, lowest=0, highest=1, confidence=0.5)
    assert min(coverage(found, n, p) for p in np.linspace(0, 1, 501)) >= 0.5


@pytest.mark.parametrize(("a", "b"), [(0.1, 2.0), (2.0, 5.0), (50.0, 50.0)])
def test_bernsteins_interval_covers_means_of_other_laws(a, b):
    samples = np.random.default_rng(1).beta(a, b, (5_000, 300))
    found = bernstein_interval(samples, lowest=0, highest=1, confidence=0.5)
    assert covers(found, a / (a + b)).mean() >= 0.5
    assert (found.high - found.low).mean() < 0.15


def test_bernsteins_interval_is_narrower_than_hoeffdings_where_samples_vary_little():
    samples = np.random.default_rng(1).beta(50.0, 50.0, 2_000)
    settings = {"lowest": 0, "highest": 1, "confidence": 0.95}
    ours, other = bernstein_interval(samples, **settings), bounded_interval(samples, **settings)
    assert ours.high - ours.low < 0.5 * (other.high - other.low)


def test_bernsteins_interval_of_one_sample_is_the_whole_range():
    found = bernstein_interval([[0.2], [3.0]], lowest=-1, highest=3, confidence=0.9)
    assert (found.low.tolist(), found.high.tolist()) == ([-1.0, -1.0], [3.0, 3.0])


def test_quantiles_are_samples_themselves():
    found = quantiles([[3.0, 1.0, 2.0, 4.0], [0.0, 0.0, 0.0, 9.0]], [0.0, 0.5, 0.51, 1.0])
    assert found.tolist() == [[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 9.0]]
    assert float(quantiles([1.0, 2.0], 0.5)) == 1.0


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 1.0])
def test_the_worst_mean_of_an_exponential_law_is_its_closed_form(share):
    samples = np.random.default_rng(0).exponential(size=400_000)
    deviation = np.sqrt((2 - share) / (share * len(samples)))
    assert abs(float(worst_mean(samples, share)) - (1 - np.log(share))) < 4.5 * deviation


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.floats(0.01, 1))
def test_the_worst_mean_is_the_least_of_rockafellar_and_uryasev(samples, share):
    x = np.array(samples, float)
    wanted = min(t + np.maximum(x - t, 0).mean() / share for t in x)
    assert float(worst_mean(x, share)) == pytest.approx(wanted)


def test_each_row_of_samples_is_taken_by_itself():
    rows = normals(3, 8)
    assert worst_mean(rows, 0.3) == pytest.approx([float(worst_mean(r, 0.3)) for r in rows])


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1, 2, np.nan])
def test_a_confidence_is_between_0_and_1(confidence):
    with pytest.raises(ConfigError, match="confidence must be above 0 and below 1"):
        mean_interval([1.0, 2.0], confidence=confidence)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: simultaneous_confidence(0.9, 0),
            ConfigError,
            "n_together must be a whole number from 1 on",
        ),
        (lambda: mean_interval(3.0, confidence=0.9), DataError, "a single number"),
        (lambda: mean_interval(["a"], confidence=0.9), DataError, "real numbers"),
        (lambda: seed_interval([1.0], confidence=0.9), DataError, r"\[seeds, M\]"),
        (lambda: share_interval(3, 2, confidence=0.9), DataError, "n_hits must be from 0 to"),
        (
            lambda: bounded_interval([2.0], lowest=0, highest=1, confidence=0.9),
            DataError,
            "samples must be numbers from 0 to 1",
        ),
        (
            lambda: bounded_interval([1.0], lowest=1, highest=1, confidence=0.9),
            ConfigError,
            "lowest must be below highest",
        ),
        (
            lambda: bernstein_interval([[]], lowest=0, highest=1, confidence=0.9),
            DataError,
            "samples must be numbers from 0 to 1, at least one",
        ),
        (lambda: quantiles([], [0.5]), DataError, "at least one"),
        (lambda: quantiles([1.0], [1.5]), ConfigError, "levels must be from 0 to 1"),
        (lambda: worst_mean([], 0.5), DataError, "at least one"),
        (lambda: worst_mean([1.0], 0.0), ConfigError, "share must be above 0"),
    ],
)
def test_what_makes_no_sense_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
