import numpy as np
import pytest

from bmdp.errors import DataError
from bmdp.report.series import bands, bare_curve, budget_curve
from dials import evaluation


def evaluations(*costs, rewards=(9.0, 14.0, 19.0)):
    return [evaluation(cost, rewards) for cost in costs]


def test_intervals_of_several_seeds_are_students_over_their_means():
    curve = budget_curve("ours", evaluations([0.0, 0.5, 1.0], [0.2, 0.5, 0.8]))
    assert curve.cost.mean == pytest.approx([0.1, 0.5, 0.9])
    half = [
        12.7062047 * np.std(v, ddof=1) / np.sqrt(2) for v in ([0.0, 0.2], [0.5, 0.5], [1.0, 0.8])
    ]
    assert curve.cost.high - curve.cost.mean == pytest.approx(half)
    assert curve.cost.mean - curve.cost.low == pytest.approx(half)
    assert (curve.over, curve.n_seeds) == ("seeds", 2)
    assert curve.between_seeds("cost") == pytest.approx([0.2 / np.sqrt(2), 0, 0.2 / np.sqrt(2)])


def test_intervals_of_one_seed_are_its_own():
    curve = budget_curve("ours", evaluations([0.0, 0.5, 1.0]))
    assert curve.cost.high.tolist() == pytest.approx([0.01, 0.51, 1.01])
    assert curve.over == "episodes"
    assert np.isnan(curve.between_seeds("reward")).all()
    assert "episodes of one seed" in bands(curve)


def test_curves_are_of_discounted_returns():
    changes = {"discounted_cost_mean": [0.3, 0.4, 0.5], "cost_mean": [9.0, 9.0, 9.0]}
    found = evaluation([0.0, 0.5, 1.0], [1.0, 2.0, 3.0], **changes)
    assert budget_curve("", [found]).cost.mean.tolist() == [0.3, 0.4, 0.5]


def test_seeds_must_have_the_same_budgets():
    others = evaluation([0.0, 0.5], [1.0, 2.0], budgets=[0.0, 0.9])
    with pytest.raises(DataError, match=r"those of \[1\] differ"):
        budget_curve("", [*evaluations([0.0, 0.5, 1.0]), others])
    with pytest.raises(DataError, match="at least one seed"):
        budget_curve("", [])


def test_a_bare_curve_has_means_and_no_intervals():
    curve = bare_curve("forecast", [0.0, 1.0], [0.1, 0.2], [3.0, 4.0])
    assert curve.cost.mean.tolist() == [0.1, 0.2]
    assert curve.reward.mean.tolist() == [3.0, 4.0]
    assert np.isnan(curve.cost.low).all()
    assert np.isnan(curve.reward.high).all()
