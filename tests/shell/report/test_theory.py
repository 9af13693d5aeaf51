import pytest

import folders
from bmdp.report.theory import branches_figure, expansion_figure, gap_figure, pairs_figure


def test_shares_are_drawn_in_order_for_each_kind_of_model():
    figure = gap_figure({"random": [{"share": [0.9, 0.5]}, {"share": [None, 0.7]}]})
    (line,) = figure.axes[0].get_lines()
    assert line.get_label() == "random"
    assert line.get_xdata().tolist() == [0.5, 0.7, 0.9]
    assert line.get_ydata() == pytest.approx([0, 0.5, 1])


def test_expansions_are_drawn_on_logarithmic_axes():
    figure = expansion_figure([{"size": 0.1, "steep": 10.0}, {"size": 0.01, "steep": 100.0}])
    axes = figure.axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert list(axes.get_lines()[0].get_ydata()) == [10.0, 100.0]


def test_pairs_are_drawn_with_what_is_chosen_of_each():
    figure = pairs_figure([folders.PAIR, folders.PAIR | {"name": "kinked"}])
    assert [axes.get_title() for axes in figure.axes] == [
        "steep: 0.2 apart, images 1",
        "kinked: 0.2 apart, images 1",
    ]
    lines = figure.axes[0].get_lines()
    drawn = [line.get_xydata().tolist() for line in lines if line.get_label() in ("Q1", "Q2")]
    assert drawn == [[[0, 0], [0.2, 1]], [[0.2, 0], [0.4, 1]]]
    chosen = [line.get_xydata().tolist() for line in lines if line.get_markerfacecolor() == "none"]
    assert chosen == [[[0.2, 1]], [[0.2, 0]]]


def test_each_way_is_drawn_on_two_branches_and_what_was_played_has_a_band():
    figure = branches_figure(folders.BRANCHES)
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    assert lines["linear program"].get_ydata().tolist() == [0, 5, 5.5]
    assert lines["the paper's operator T"].get_ydata().tolist() == [0, 5.5]
    assert "price carried along" not in lines  # it is not there
    (band,) = figure.axes[0].collections
    assert band.get_paths()[0].get_extents().ymax == 5.8
