import numpy as np
import pytest

import folders
from bmdp.report.prices import calibrated, calibration_figure, largest_costs, middle_budget
from bmdp.report.published import published_curve
from bmdp.report.reading import value_of
from bmdp.report.series import price_curve


def curve_of(*costs):
    pieces = [folders.prices(cost, [15.0, 12.0, 5.0]) for cost in costs]
    return price_curve("mean", [value_of("prices", piece) for piece in pieces])


CURVE = curve_of([0.6, 0.2, 0.0], [0.8, 0.4, 0.2])  # means 0.7, 0.3, 0.1; largest 0.8, 0.4, 0.2


@pytest.mark.parametrize(
    ("budget", "by_mean", "by_largest"),
    [(0.35, 10, 20), (0.3, 10, 20), (0.15, 20, None), (0.05, None, None), (1.0, 0, 0)],
)
def test_each_rule_takes_the_least_price_that_keeps_the_budget(budget, by_mean, by_largest):
    found = calibrated(CURVE, largest_costs(CURVE), budget + 1e-12)
    assert (found.by_mean, found.by_largest) == (by_mean, by_largest)


def test_the_largest_deviation_is_that_of_the_dearest_seed():
    assert largest_costs(CURVE).tolist() == [0.8, 0.4, 0.2]


def test_of_one_seed_it_is_the_upper_end_of_its_interval():
    assert largest_costs(curve_of([0.6, 0.2, 0.0])) == pytest.approx([0.62, 0.22, 0.02])


def test_the_budget_is_in_the_middle_of_the_costs():
    assert middle_budget(CURVE) == 0.4


def test_costs_budget_and_chosen_prices_are_drawn():
    published = published_curve("slot-filling", "FTQ")
    figure = calibration_figure(calibrated(CURVE, largest_costs(CURVE), 0.35), published)
    axes = figure.axes[0]
    found = {line.get_label(): line for line in axes.get_lines()}
    assert found["mean"].get_xydata() == pytest.approx(np.array([[0, 0.7], [10, 0.3], [20, 0.1]]))
    assert found["largest deviation"].get_ydata().tolist() == [0.8, 0.4, 0.2]
    assert found["each seed"].get_ydata().tolist() == [0.6, 0.2, 0.0]
    assert found["mean, published"].get_ydata().tolist() == published.cost.mean.tolist()
    assert found["budget 0.35"].get_ydata() == [0.35, 0.35]
    upright = [x[0] for x in (line.get_xdata() for line in axes.get_lines()) if x[0] == x[-1]]
    assert upright == [10, 20]
    told = [text.get_text() for text in axes.texts]
    assert ["avg" in told[0], "10" in told[0], "max" in told[1], "20" in told[1]] == [True] * 4


def test_a_rule_without_a_price_draws_none():
    figure = calibration_figure(calibrated(CURVE, largest_costs(CURVE), 0.15))
    assert [("avg" in text.get_text()) for text in figure.axes[0].texts] == [True]
