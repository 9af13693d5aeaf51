import pytest

from bmdp.report.figures import frontier_figure

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
