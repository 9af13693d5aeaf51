"""Figures of a dial in production: the curves that they draw."""

import numpy as np

from bmdp.report.deployed import period_figure, watched_figure


def labels(axes):
    return {text.get_text() for text in axes.get_legend().get_texts()}


def test_a_watched_dial_is_drawn_with_its_band_and_alarm():
    n = np.arange(1, 101)
    ends = np.full(100, -np.inf), 1.0 / n
    figure = watched_figure(n, np.full(100, 0.3), np.full(100, 0.4), ends, since=50)
    top, bottom = figure.axes
    assert labels(top) == {"asked", "realised", "broken: episode 50"}
    assert {"band", "realised - asked", "promise"} < labels(bottom)
    (excess,) = (line for line in bottom.lines if line.get_label() == "realised - asked")
    assert np.allclose(excess.get_ydata(), 0.1)
    figure.canvas.draw()


def test_a_log_of_one_episode_and_open_ends_can_be_drawn():
    one = np.ones(1)
    figure = watched_figure(np.ones(1, int), one, one, (-np.inf * one, np.inf * one))
    figure.canvas.draw()


def test_a_period_is_drawn_with_its_total_and_the_middle_of_its_runs():
    time = np.linspace(0.1, 1, 10)
    runs = np.outer([1.0, 2.0, 6.0], time)
    figure = period_figure(time, {"controller": runs, "fixed dial": time}, 5.0)
    (axes,) = figure.axes
    assert labels(axes) == {"total", "even pace", "controller", "fixed dial"}
    (line,) = (line for line in axes.lines if line.get_label() == "controller")
    assert np.allclose(line.get_ydata(), 2 * time)
