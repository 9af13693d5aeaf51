import csv
from pathlib import Path

import numpy as np
import pytest

import folders
from bmdp.errors import ConfigError, DataError
from bmdp.experiments.parts.measuring import evaluation_of
from bmdp.report import published
from bmdp.report.published import published_curve
from bmdp.report.reading import value_of
from bmdp.report.series import bands, budget_curve, price_curve


def evaluations(*costs, rewards=(9.0, 14.0, 19.0)):
    return [evaluation_of(folders.evaluation(cost, rewards)) for cost in costs]


def test_intervals_of_several_seeds_are_students_over_their_means():
    curve = budget_curve("ours", evaluations([0.0, 0.5, 1.0], [0.2, 0.5, 0.8]))
    assert curve.cost.mean == pytest.approx([0.1, 0.5, 0.9])
    half = [folders.student_half(v) for v in ([0.0, 0.2], [0.5, 0.5], [1.0, 0.8])]
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
    piece = folders.evaluation([0.0, 0.5, 1.0], [1.0, 2.0, 3.0])
    piece["discounted_cost_mean"], piece["cost_mean"] = [0.3, 0.4, 0.5], [9.0, 9.0, 9.0]
    assert budget_curve("", [evaluation_of(piece)]).cost.mean.tolist() == [0.3, 0.4, 0.5]


def test_seeds_must_have_the_same_budgets():
    others = folders.evaluation([0.0, 0.5], [1.0, 2.0], budgets=[0.0, 0.9])
    with pytest.raises(DataError, match=r"those of \[1\] differ"):
        budget_curve("", [*evaluations([0.0, 0.5, 1.0]), evaluation_of(others)])
    with pytest.raises(DataError, match="at least one seed"):
        budget_curve("", [])


def test_prices_of_seeds_become_one_curve():
    pieces = [folders.prices([c, 0.4, 0.0], [15.0, 12.0, 5.0]) for c in (0.5, 0.7, 0.9)]
    curve = price_curve("FTQ", [value_of("prices", piece) for piece in pieces])
    assert curve.settings.tolist() == [0, 10, 20]
    assert curve.cost.mean == pytest.approx([0.7, 0.4, 0.0])
    assert curve.cost.high[0] - 0.7 == pytest.approx(folders.student_half([0.5, 0.7, 0.9]))
    assert "3 seeds" in bands(curve)


@pytest.mark.parametrize(
    ("figure", "series", "n"),
    [
        ("corridors", "BFTQ risk-sensitive", 10),
        ("corridors", "BFTQ risk-neutral", 10),
        ("slot-filling", "BFTQ", 16),
        ("slot-filling", "FTQ", 8),
        ("highway", "BFTQ", 49),
        ("highway", "FTQ", 10),
    ],
)
def test_published_curves_are_the_rows_of_the_file(figure, series, n):
    path = Path(published.__file__).parent / "assets" / "published.csv"
    rows = [
        [float(r[k]) for k in ("param", "Gc_mean", "Gc_ci95_half", "Gr_mean", "Gr_ci95_half")]
        for r in csv.DictReader(path.read_text().splitlines())
        if (r["figure"], r["series"]) == (figure, series)
    ]
    curve = published_curve(figure, series)
    assert len(curve.settings) == n
    halves = curve.cost.high - curve.cost.mean, curve.reward.mean - curve.reward.low
    columns = curve.settings, curve.cost.mean, halves[0], curve.reward.mean, halves[1]
    assert np.stack(columns, axis=1) == pytest.approx(np.array(sorted(rows)))
    assert (np.diff(curve.settings) > 0).all()
    assert "1.96 standard errors" in bands(curve)


def test_an_unknown_published_curve_names_those_that_are():
    with pytest.raises(ConfigError, match="slot-filling: FTQ"):
        published_curve("chess", "BFTQ")
