import csv
from pathlib import Path

import numpy as np
import pytest

from bmdp.errors import ConfigError
from bmdp.paper import published
from bmdp.paper.published import published_curve
from bmdp.report.series import bands


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


def test_the_number_of_seeds_on_the_road_is_not_known_but_assumed():
    assert published.N_SEEDS["highway"] is None
    assert published_curve("highway", "BFTQ").n_seeds == published.ASSUMED_SEEDS
    assert published_curve("corridors", "BFTQ risk-neutral").n_seeds == 4
    assert "not known" in bands(published_curve("highway", "FTQ"))
