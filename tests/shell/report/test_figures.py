import pytest

import folders
from bmdp.frontier import hull_mixture, upper_frontier
from bmdp.report.figures import curve_figure, frontier_figure, hull_figure
from bmdp.report.reading import value_of

COSTS, REWARDS = [0.0, 1.0, 2.0, 1.5], [0.0, 3.0, 4.0, 1.0]


def drawn(figure):
    """Lines by their label."""
    return {line.get_label(): line.get_xydata().tolist() for line in figure.axes[0].get_lines()}


def test_the_frontier_is_drawn_through_its_vertices():
    figure = frontier_figure(COSTS, REWARDS)
    assert drawn(figure)["frontier"] == [[0.0, 0.0], [1.0, 3.0], [2.0, 4.0]]
    assert figure.axes[0].get_xlabel() == "expected cost"
    assert figure.axes[0].get_ylabel() == "expected reward"


def test_all_points_are_drawn_and_named():
    figure = frontier_figure(COSTS, REWARDS, labels=["a", "b", "c", "d"])
    (points,) = figure.axes[0].collections
    assert points.get_offsets().tolist() == [list(p) for p in zip(COSTS, REWARDS, strict=True)]
    assert [text.get_text() for text in figure.axes[0].texts] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("beta", "name", "at"),
    [
        (1.5, "mixture (tight, 50% upper)", [1.5, 3.5]),
        (-1.0, "mixture (infeasible)", [0.0, 0.0]),
        (3.0, "mixture (slack)", [2.0, 4.0]),
    ],
)
def test_the_mixture_is_drawn_at_its_expected_cost_and_reward(beta, name, at):
    lines = drawn(frontier_figure(COSTS, REWARDS, beta=beta))
    assert lines[name] == [at]
    assert [x for x, _ in lines[f"budget {beta:g}"]] == [beta, beta]


def outcomes(*budgets):
    frontier = upper_frontier(COSTS, REWARDS)
    return {beta: hull_mixture(frontier, beta) for beta in budgets}


def test_a_curve_has_its_frontier_and_a_marker_for_each_budget_by_status():
    lines = drawn(curve_figure(upper_frontier(COSTS, REWARDS), outcomes(-1.0, 0.5, 1.5, 3.0)))
    assert lines["frontier"] == [[0.0, 0.0], [1.0, 3.0], [2.0, 4.0]]
    assert lines["infeasible budgets"] == [[0.0, 0.0]]
    assert lines["tight budgets"] == [[0.5, 1.5], [1.5, 3.5]]
    assert lines["slack budgets"] == [[2.0, 4.0]]


def test_a_budget_that_is_not_spent_exactly_is_joined_to_its_marker():
    lines = drawn(curve_figure(None, outcomes(-1.0, 0.5, 3.0)))
    assert lines["_budget -1"] == [[0.0, 0.0], [-1.0, 0.0]]
    assert lines["_budget 3"] == [[2.0, 4.0], [3.0, 4.0]]
    assert "_budget 0.5" not in lines


def test_without_a_frontier_the_budgets_alone_are_drawn_and_named():
    figure = curve_figure(None, outcomes(0.5))
    assert drawn(figure) == {"tight budgets": [[0.5, 1.5]]}
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["tight budgets"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("expected cost", "expected reward")


def test_a_hull_has_the_points_of_each_action_and_the_mixture():
    figure = hull_figure(value_of("hull", folders.hull()))
    points = {c.get_label(): c for c in figure.axes[0].collections}
    assert points["stay"].get_offsets().tolist() == [[0, 0]]
    assert points["go"].get_offsets().tolist() == [[1, 10], [0.5, 1]]
    assert "never" not in points  # it has no points
    larger, smaller = points["go"].get_sizes()
    assert larger > smaller  # it hands on more
    lines = drawn(figure)
    assert lines["frontier"] == [[0, 0], [1, 10]]
    assert lines["_mixed"] == [[0, 0], [1, 10]]
    assert lines["mixture (tight, 25% upper)"] == [[0.25, 2.5]]
    assert [x for x, _ in lines["budget 0.25"]] == [0.25, 0.25]
