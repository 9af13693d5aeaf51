"""What was reproduced against what was published, by a test on all seeds of both."""

import numpy as np
import pytest
from agreement import OF_ERRORS, agreement
from scipy import stats

from bmdp.evaluation.statistics import Interval
from bmdp.report.series import Curve


def curve(settings, cost, reward):
    """A curve as it is published: means and 1.96 standard errors over seeds."""

    def interval(by_seed):
        mean = by_seed.mean(axis=0)
        half = OF_ERRORS * by_seed.std(axis=0, ddof=1) / np.sqrt(len(by_seed))
        return Interval(mean, mean - half, mean + half)

    asked = np.array(settings, float)
    return Curve("", asked, interval(cost), interval(reward), "seeds", len(cost), cost, reward)


NAMES = ("name", "published", "ours", "n", "cost", "costs", "reward", "rewards")


def rows(**pairs):
    return [dict(zip(NAMES, row, strict=True)) for row in agreement(pairs).rows]


def test_it_is_the_test_of_all_seeds():
    rng = np.random.default_rng(0)
    settings = np.linspace(0, 1, 12)
    theirs = [rng.normal(0, 1, (5, 12)) for _ in range(2)]
    ours = [rng.normal(0.8, 2, (7, 12)), rng.normal(1.5, 0.5, (7, 12))]
    (row,) = rows(x=(curve(settings, *theirs), curve(settings, *ours)))
    for name, a, b in zip(("cost", "reward"), ours, theirs, strict=True):
        p = stats.ttest_ind(a, b, equal_var=False).pvalue
        assert 0 < (p < 0.05).sum() < 12
        assert row[f"{name}s"] == str((p < 0.05).sum())
        assert float(row[name]) == pytest.approx((a.mean(0) - b.mean(0)).mean(), abs=0.005)


def test_settings_that_one_of_them_lacks_are_left_out():
    values = np.array([[0.0, 1.0, 2.0], [0.2, 1.2, 2.2]])
    published = curve([0, 0.5, 1], values, values)
    ours = curve([0.5, 0.9999], values[:, 1:] + 5, values[:, 1:] - 5)
    (row,) = rows(x=(published, ours))
    assert (row["n"], row["cost"], row["reward"]) == ("2", "+5.000", "-5")
    assert (row["costs"], row["rewards"]) == ("2", "2")


def test_what_never_varies_is_equal_or_not():
    same, other = np.zeros((3, 2)), np.array([[0.0, 0.25]] * 3)
    (row,) = rows(x=(curve([0, 1], same, same), curve([0, 1], other, same)))
    assert (row["costs"], row["rewards"]) == ("1", "0")
