"""The alarm and the band hold at all times together, by Monte Carlo.

Shares of streams that err are at most the level plus three standard errors of 2,000 streams: 0.05
may look like 0.0646. What would be wrong, an interval for n episodes looked at after each, is far
above that.
"""

import numpy as np
import pytest
from scipy.special import stdtrit

from bmdp.deployment.sequences import Band, Capital

STREAMS, EPISODES, LEVEL = 2_000, 2_000, 0.05
MOST = LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / STREAMS)


def bernoulli(rng, mean, shape):
    return (rng.random(shape) < mean).astype(float)


def rare_and_large(rng, mean, shape):
    return 20 * (rng.random(shape) < mean / 20)


def exponential(rng, mean, shape):
    return rng.exponential(mean, shape)


def heavy(rng, mean, shape):
    return mean * (1 - 1 / 2.1) * (1 + rng.pareto(2.1, shape))


def often_small(rng, mean, shape):
    return mean * rng.random(shape) * 2


LAWS = [
    (bernoulli, 0.3),
    pytest.param(bernoulli, 0.01, marks=pytest.mark.slow),
    pytest.param(rare_and_large, 0.5, marks=pytest.mark.slow),
    pytest.param(exponential, 1.0, marks=pytest.mark.slow),
    pytest.param(heavy, 1.0, marks=pytest.mark.slow),
    pytest.param(often_small, 0.2, marks=pytest.mark.slow),
]


def alarms(paid, asked):
    """Share of streams that ever raise an alarm."""
    n_alarms = 0
    for some in np.split(paid, 4):  # a quarter of the memory
        _, path = Capital.start((len(some),)).after(np.full(some.shape, asked), some)
        n_alarms += (path.max(axis=-1) >= -np.log(LEVEL)).sum()
    return n_alarms / len(paid)


@pytest.mark.parametrize(("law", "mean"), LAWS)
def test_a_promise_that_is_just_kept_seldom_raises_an_alarm(law, mean):
    paid = law(np.random.default_rng(0), mean, (STREAMS, EPISODES))
    assert alarms(paid, mean) <= MOST


def test_an_interval_for_n_episodes_that_is_watched_fails_the_same_test():
    paid = bernoulli(np.random.default_rng(0), 0.3, (STREAMS, EPISODES))
    n = np.arange(1, EPISODES + 1)
    mean = paid.cumsum(axis=1) / n
    deviation = np.sqrt(np.maximum((paid**2).cumsum(axis=1) / n - mean**2, 1e-12))
    low = mean - stdtrit(np.maximum(n - 1, 1), 1 - LEVEL) * deviation / np.sqrt(n)
    ever = (low[:, 30:] > 0.3).any(axis=1).mean()  # not before 30 episodes, to be kind to it
    assert ever > 4 * MOST


@pytest.mark.parametrize(("law", "mean"), [(bernoulli, 0.3), (exponential, 1.0)])
def test_a_fifth_too_much_raises_the_alarm(law, mean):
    paid = law(np.random.default_rng(1), 1.2 * mean, (400, EPISODES))
    assert alarms(paid, mean) > 0.95


def test_what_is_broken_after_a_long_time_is_found():
    rng = np.random.default_rng(2)
    before, after = (bernoulli(rng, mean, (100, 4_000)) for mean in (0.2, 0.36))
    assert alarms(np.concatenate((before, after), axis=1), 0.3) > 0.95


def test_budgets_that_differ_and_costs_that_are_kept_at_each_seldom_raise_an_alarm():
    rng = np.random.default_rng(3)
    asked = rng.choice([0.0, 0.05, 0.5], size=(STREAMS, 500))
    _, path = Capital.start((STREAMS,)).after(asked, bernoulli(rng, asked, asked.shape))
    assert (path.max(axis=-1) >= -np.log(LEVEL)).mean() <= MOST


def test_capital_is_the_same_however_episodes_are_cut_into_parts():
    paid = bernoulli(np.random.default_rng(4), 0.4, 9_000)
    asked = np.full(9_000, 0.3)
    whole, path = Capital.start().after(asked, paid)
    parts = Capital.start()
    for begin in range(0, 9_000, 700):
        parts, last = parts.after(asked[begin : begin + 700], paid[begin : begin + 700])
    assert parts.log == pytest.approx(whole.log)
    assert last == pytest.approx(path[-len(last) :])


def test_capital_is_that_of_bets_one_by_one():
    paid, asked = bernoulli(np.random.default_rng(5), 0.4, 200), 0.3
    shares = np.array([0.95, *0.5 ** np.arange(1.0, 14.0)])
    on, kept_back = np.full(14, 0.5 / 14), 0.5
    for i, cost in enumerate(paid, 1):
        on = on * (1 + shares * (cost / asked - 1))
        if i in (64, 128):
            joins = 0.25 if i == 64 else 0.5 / 6
            on, kept_back = on + joins / 14, kept_back - joins
    capital, _ = Capital.start().after(np.full(200, asked), paid)
    assert np.exp(capital.log) == pytest.approx(on.sum() + kept_back)


def test_to_leave_out_a_part_of_a_cost_only_lowers_capital():
    paid = np.random.default_rng(6).exponential(1.0, (50, 300))
    known = np.where(np.random.default_rng(7).random(paid.shape) < 0.1, 0.0, paid)
    asked = np.full(paid.shape, 0.8)
    _, whole = Capital.start((50,)).after(asked, paid)
    _, part = Capital.start((50,)).after(asked, known)
    assert (part <= whole + 1e-9).all()


def banded(law, mean, asked, *, most):
    rng = np.random.default_rng(8)
    paid = law(rng, mean, (STREAMS // 2, EPISODES))
    start = Band.start(
        confidence=1 - LEVEL, largest_prediction=1.0, most_cost=most, shape=paid.shape[:1]
    )
    return start.after(np.full(paid.shape, asked), paid, paid)[1]


@pytest.mark.parametrize(
    ("law", "mean", "most"),
    [
        (bernoulli, 0.3, 1.0),
        pytest.param(bernoulli, 0.01, 1.0, marks=pytest.mark.slow),
        pytest.param(rare_and_large, 0.5, 20.0, marks=pytest.mark.slow),
        pytest.param(often_small, 0.2, 0.4, marks=pytest.mark.slow),
    ],
)
def test_the_band_covers_at_all_times(law, mean, most):
    path = banded(law, mean, 0.25, most=most)
    excess = mean - 0.25
    errs = (path.low > excess).any(axis=1) | (path.high < excess).any(axis=1)
    assert errs.mean() <= LEVEL + 3 * np.sqrt(LEVEL / (STREAMS // 2))
    width = (path.high - path.low)[:, -1]
    assert (width < 12 * np.sqrt(most * mean / EPISODES) + 20 * most / EPISODES).all()


def test_the_low_end_needs_no_bound_of_costs_and_the_high_end_is_open_without():
    path = banded(exponential, 0.5, 0.25, most=np.inf)
    assert (path.low > 0.25).any(axis=1).mean() <= LEVEL
    assert (path.low[:, -1] > 0).all()
    assert np.isinf(path.high).all()


def test_the_band_is_around_the_mean_so_far_where_episodes_differ():
    rng = np.random.default_rng(9)
    mean = np.where(np.arange(1_000) < 500, 0.1, 0.7)
    paid = bernoulli(rng, mean, (500, 1_000))
    start = Band.start(confidence=0.95, largest_prediction=1.0, most_cost=1.0, shape=(500,))
    _, path = start.after(np.full(paid.shape, 0.3), paid, paid)
    excess = mean.cumsum() / np.arange(1, 1_001) - 0.3
    errs = (path.low > excess).any(axis=1) | (path.high < excess).any(axis=1)
    assert errs.mean() <= 0.05


def test_predictions_of_the_band_are_made_before_each_episode():
    rng = np.random.default_rng(10)
    asked, paid = rng.random(60), bernoulli(rng, 0.4, 60)
    start = Band.start(confidence=0.95, largest_prediction=0.6, most_cost=1.0)
    band, _ = start.after(asked, paid, paid)
    squares, excess = np.zeros(2), 0.0
    for i in range(60):
        predicted = np.clip(asked[i] + excess / (i + 1), 0.0, [0.6, 1.0])
        squares += (paid[i] - predicted) ** 2
        excess += paid[i] - asked[i]
    assert np.array(band.squares) == pytest.approx(squares)
