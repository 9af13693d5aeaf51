import numpy as np
import pytest
from matplotlib.patches import Rectangle

from bmdp.evaluation.statistics import Interval
from bmdp.frontier import upper_frontier
from bmdp.report.curves import (
    ALONE,
    FIRST,
    FIRST_PUBLISHED,
    Drawn,
    asked_figure,
    leaving,
    rounds_figure,
    trade_off_figure,
)
from bmdp.report.series import Curve, bare_curve, budget_curve
from dials import evaluation

COSTS, REWARDS = [[0.0, 0.5, 1.0], [0.2, 0.5, 0.8]], [9.0, 14.0, 19.0]


def ours(*costs):
    found = [evaluation(cost, REWARDS) for cost in costs or COSTS]
    return Drawn(budget_curve("ours", found), FIRST)


def student_half(values):
    """Half of Student's 95 % interval of two means: 12.706 standard errors."""
    return 12.7062047 * np.std(values, ddof=1) / np.sqrt(2)


def lines(figure):
    return {line.get_label(): line for line in figure.axes[0].get_lines()}


def boxes(figure):
    found = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    return [np.array([*b.get_xy(), b.get_width(), b.get_height()]) for b in found]


def test_points_are_at_their_means_and_the_frontier_is_drawn():
    figure = trade_off_figure([ours()], upper_frontier([0, 1], [10, 20]))
    found = lines(figure)
    assert found["ours"].get_xydata() == pytest.approx(np.array([[0.1, 9], [0.5, 14], [0.9, 19]]))
    assert found["optimum"].get_xydata().tolist() == [[0, 10], [1, 20]]
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("expected cost", "expected reward")


def test_further_curves_are_drawn_by_name_and_within_the_axes():
    others = {"higher": upper_frontier([0, 3], [10, 50]), "lower": upper_frontier([0, 1], [5, 6])}
    figure = trade_off_figure([ours()], upper_frontier([0, 1], [10, 20]), others=others)
    found = lines(figure)
    assert found["higher"].get_xydata().tolist() == [[0, 10], [3, 50]]
    assert found["lower"].get_xydata().tolist() == [[0, 5], [1, 6]]
    styles = {found[name].get_linestyle() for name in ("optimum", "higher", "lower")}
    assert len(styles) == 3
    assert figure.axes[0].get_xlim()[1] > 3
    assert figure.axes[0].get_ylim()[1] > 50


def test_boxes_are_students_intervals_over_seeds():
    figure = trade_off_figure([ours()])
    widths = [2 * student_half(v) for v in zip(*COSTS, strict=True)]
    assert [box[2] for box in boxes(figure)] == pytest.approx(widths)
    assert [box[3] for box in boxes(figure)] == pytest.approx([0, 0, 0])
    assert [box[0] + box[2] / 2 for box in boxes(figure)] == pytest.approx([0.1, 0.5, 0.9])


def test_boxes_of_one_seed_are_over_its_episodes():
    found = boxes(trade_off_figure([ours([0.0, 0.5, 1.0])]))
    assert found[1] == pytest.approx([0.49, 13.99, 0.02, 0.02])


def test_published_points_and_boxes_are_drawn_hollow():
    cost, reward = (Interval(*np.array([[m], [m - 1], [m + 1]])) for m in (3.0, 20.0))
    none = np.empty((0, 1))
    curve = Curve("published", np.zeros(1), cost, reward, "published", 4, none, none)
    figure = trade_off_figure([Drawn(curve, FIRST_PUBLISHED)])
    line = lines(figure)["published"]
    assert line.get_xydata().tolist() == [[3.0, 20.0]]
    assert line.get_markerfacecolor() == "white"
    assert boxes(figure)[0] == pytest.approx([2.0, 19.0, 2.0, 2.0])
    assert all(patch.get_facecolor()[3] == 0 for patch in figure.axes[0].patches)


def test_a_forecast_has_no_boxes_and_no_bars():
    forecast = Drawn(bare_curve("forecast", [0.0, 1.0], [0.1, 0.9], [1.0, 2.0]), FIRST)
    assert boxes(trade_off_figure([forecast])) == []
    figure = asked_figure([forecast])
    assert lines(figure)["forecast"].get_xydata().tolist() == [[0.0, 0.1], [1.0, 0.9]]
    assert all(len(c.get_segments()) == 0 for c in figure.axes[0].collections)


def test_axes_show_all_means_and_boxes_that_leave_them_are_counted():
    drawn = [ours()]
    figure = trade_off_figure(drawn)
    low, high = figure.axes[0].get_xlim()
    assert low < 0.1
    assert high > 0.9
    assert leaving(drawn, figure) == 2
    small = [ours([0.0, 0.5, 1.0])]
    assert leaving(small, trade_off_figure(small)) == 0


def test_large_boxes_are_not_filled():
    wide, none, also_wide = trade_off_figure([ours()]).axes[0].patches
    assert wide.get_facecolor()[3] == also_wide.get_facecolor()[3] == 0
    assert none.get_facecolor()[3] > 0


def test_boxes_can_be_left_out():
    assert boxes(trade_off_figure([ours()], has_boxes=False)) == []


def test_points_that_are_not_a_curve_are_named_and_not_joined():
    curve = budget_curve("scripts", [evaluation(COSTS[0], REWARDS)])
    figure = trade_off_figure([Drawn(curve, ALONE, ["a", "b", "c"])])
    assert [text.get_text() for text in figure.axes[0].texts] == ["a", "b", "c"]
    assert lines(figure)["scripts"].get_linestyle() == "None"


def test_a_name_too_near_to_another_is_left_out():
    curve = budget_curve("", [evaluation([0, 0.001, 1], [9, 9.001, 19])])
    figure = trade_off_figure([Drawn(curve, ALONE, ["a", "b", "c"])])
    assert [text.get_text() for text in figure.axes[0].texts] == ["a", "c"]


def test_asked_is_drawn_against_paid_with_bars():
    figure = asked_figure([ours()], (0.2, 0.8))
    found = lines(figure)
    assert found["ours"].get_xydata() == pytest.approx(np.array([[0, 0.1], [0.5, 0.5], [1, 0.9]]))
    assert found["cost = budget"].get_xydata().tolist() == [[0, 0], [1, 1]]
    assert found["optimum"].get_xydata().tolist() == [[0, 0.2], [0.2, 0.2], [0.8, 0.8], [1, 0.8]]
    (bars,) = figure.axes[0].collections
    heights = [np.ptp(segment[:, 1]) for segment in bars.get_segments()]
    assert heights == pytest.approx([2 * student_half(v) for v in zip(*COSTS, strict=True)])
    assert figure.axes[0].get_xlabel() == "budget asked for"


def test_without_a_true_frontier_there_is_no_line_of_the_optimum():
    assert "optimum" not in lines(asked_figure([ours()]))


def test_rounds_are_drawn_for_each_seed_and_in_the_mean():
    rewards = {0: np.array([1.0, 2.0, 3.0]), 1: np.array([3.0, 4.0])}  # seed 1 is not finished
    figure = rounds_figure(rewards, rewards)
    ys = [line.get_ydata().tolist() for line in figure.axes[0].get_lines()]
    assert ys == [[1, 2, 3], [3, 4], [2, 3]]
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "mean reward of an episode",
        "mean cost of an episode",
    ]
