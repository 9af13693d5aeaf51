import pytest

from bmdp.report.theory import expansion_figure, gap_figure


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
