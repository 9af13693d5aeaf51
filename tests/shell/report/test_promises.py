import numpy as np
import pytest

import folders
from bmdp.experiments.parts.comparison_summary import method_rows
from bmdp.frontier import upper_frontier
from bmdp.report.promises import methods_figure, promises_figure


def test_promises_that_are_broken_are_right_of_zero_and_marked():
    kinds = {kind: one["rows"] for kind, one in folders.certificates()["kinds"].items()}
    figure = promises_figure(kinds)
    axes = figure.axes[0]
    crosses = [line.get_xdata() for line in axes.get_lines() if line.get_marker() == "X"]
    dots = [line.get_xdata() for line in axes.get_lines() if line.get_marker() == "o"]
    assert np.concatenate(crosses) == pytest.approx([0.05])
    assert np.concatenate(dots) == pytest.approx([-0.1] * 5)
    assert [label.get_text() for label in axes.get_yticklabels()][2] == "means instead of bounds"


def test_methods_have_their_scores_and_worst_overshoots():
    pieces = {
        "bftq": [folders.method("BFTQ", seed, 9.0 + seed) for seed in (0, 1)],
        "coin": [folders.method("coin", 0, 5.0)],
    }
    rows = method_rows(pieces, upper_frontier([0.0, 1.0], [10.0, 20.0]))
    left, right = methods_figure(rows).axes
    seeds = [line.get_xdata() for line in left.get_lines() if line.get_marker() == "o"]
    by_hand = [np.mean([r / 10, r / 15, r / 20]) for r in (9.0, 10.0, 5.0)]
    assert np.concatenate(seeds) == pytest.approx(by_hand)
    low, high = (
        line.get_xdata() for line in left.get_lines() if line.get_marker() == "None"
    ).__next__()
    assert high - low == pytest.approx(2 * folders.student_half(by_hand[:2]))
    worst = [line.get_xdata()[0] for line in right.get_lines() if line.get_marker() == "s"]
    assert worst == pytest.approx([0, 0])
    assert [label.get_text() for label in left.get_yticklabels()] == ["BFTQ", "coin"]
