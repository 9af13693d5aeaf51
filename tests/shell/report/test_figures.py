import numpy as np
import pytest

from bmdp.frontier import hull_mixture, upper_frontier
from bmdp.report.figures import (
    Hull,
    Shares,
    curve_figure,
    frontier_figure,
    hull_figure,
    learning_figure,
    shares_figure,
)

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
    ends = np.array([0.0, 1.0]), np.array([0.0, 10.0])
    hull = Hull(
        state=(3.5, 0.5),
        costs=np.array([0.0, 1.0, 0.5]),
        rewards=np.array([0.0, 10.0, 1.0]),
        action=(0, 1, 1),
        handed_on=np.array([0.0, 1.0, 0.5]),
        action_names=("stay", "go", "never"),
        vertex_costs=ends[0],
        vertex_rewards=ends[1],
        budget=0.25,
        mixture=hull_mixture(upper_frontier(*ends), 0.25),
    )
    figure = hull_figure(hull)
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


def bars(axes):
    """Bottom and height of the bars of each action, by its name."""
    return {
        group.get_label(): [(round(b.get_y(), 6), round(b.get_height(), 6)) for b in group]
        for group in axes.containers
    }


def test_shares_are_stacked_by_budget_and_by_step_at_one_budget():
    by_step = np.array([[[1.0, 0.0], [0.5, 0.0]], [[0.25, 0.75], [0.1, 0.4]]])
    shares = Shares(
        ("wait", "$go"),
        np.array([0.0, 0.5]),
        np.array([[1.0, 0.0], [0.2, 0.8]]),
        np.array([1.0, 2.0]),
        by_step,
    )
    whole, single = shares_figure(shares, 1).axes
    assert bars(whole) == {"wait": [(0, 1), (0, 0.2)], r"\$go": [(1, 0), (0.2, 0.8)]}
    assert bars(single) == {"wait": [(0, 0.25), (0, 0.1)], r"\$go": [(0.25, 0.75), (0.1, 0.4)]}
    assert "0.5" in single.get_xlabel()


def test_shares_without_steps_have_one_part():
    shares = Shares(("a",), np.array([0.0]), np.array([[1.0]]), np.ones(1), np.ones((1, 1, 1)))
    assert len(shares_figure(shares, 0).axes) == 1


def iterations(**changes):
    """Records of two rounds of two iterations each."""
    parts = {"delta": [1.0, 2.0, 3.0, 4.0], "last_loss": [1.0] * 4, "change": [None] * 4}
    for k, end in enumerate(("low", "high")):
        parts |= {f"start_reward_{end}": [2 * i + k for i in range(4)]}
        parts |= {f"start_cost_{end}": [0.0] * 4}
    columns = parts | {"round": [0, 0, 1, 1]} | changes
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def test_learning_has_a_panel_for_what_is_known_and_marks_rounds():
    figure = learning_figure(iterations())
    assert [axes.get_title("left").split()[0] for axes in figure.axes] == [
        "error",
        "reward",
        "cost",
    ]
    errors, rewards, _ = figure.axes
    assert [list(line.get_ydata()) for line in errors.get_lines()][1:] == [
        [1, 2, 3, 4],
        [1, 1, 1, 1],
    ]
    assert errors.get_lines()[0].get_xdata()[0] == 2.5  # where the second round begins
    assert errors.get_yscale() == "log"
    assert rewards.get_lines()[2].get_ydata().tolist() == [1, 3, 5, 7]
    assert len(learning_figure(iterations(change=[1.0] * 4)).axes) == 4


def test_errors_of_zero_are_drawn_on_a_plain_scale():
    assert learning_figure(iterations(delta=[0.0] * 4)).axes[0].get_yscale() == "linear"
