import io

import numpy as np
import pytest
from PIL import Image

import folders
from bmdp.paper.maps import (
    MOST_WAYS,
    drives_figure,
    drives_gif,
    rounds_gif,
    strategies_figure,
    ways_figure,
    ways_gif,
)
from bmdp.paper.results import executions_of, exploration_of
from bmdp.report.drawing import BLUE, RED


def segments(axes):
    return [np.round(s, 6).tolist() for c in axes.collections for s in c.get_segments()]


def test_every_strategy_has_a_map_with_all_its_ways():
    found = exploration_of(folders.exploration(n_rounds=2, n_episodes=3))
    figure = strategies_figure({"risk-neutral": found, "risk-sensitive": found})
    assert [axes.get_title() for axes in figure.axes] == [
        "risk-neutral, 6 episodes",
        "risk-sensitive, 6 episodes",
    ]
    assert segments(figure.axes[0]) == [[[0.5, 0.5], [0.5, 1.5], [1.5, 1.5]]] * 6


def test_a_map_has_as_many_ways_as_can_be_told_apart():
    found = exploration_of(folders.exploration(n_rounds=10, n_episodes=30))
    figure = strategies_figure({"one": found})
    assert len(segments(figure.axes[0])) == MOST_WAYS


def test_cells_are_drawn_at_their_places_with_their_rewards():
    figure = ways_figure(executions_of(folders.executions()))
    axes = figure.axes[0]
    assert [patch.get_xy() for patch in axes.patches] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert [text.get_text() for text in axes.texts] == ["1", "10"]
    wall, safe, risky = (np.array(axes.patches[i].get_facecolor()[:3]) for i in (1, 2, 3))
    assert np.ptp(wall) == 0
    assert safe.argmax() == 1
    assert risky.argmax() == 0
    assert axes.get_ylim() == (2, 0)  # y points down


def test_ways_are_drawn_for_each_budget_with_what_they_cost():
    figure = ways_figure(executions_of(folders.executions()))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[1] == "budget 0.5\ncost 0.350, reward 9"
    assert segments(figure.axes[1]) == [[[0.5, 0.5], [0.5, 1.5]]] * 2


def test_drives_begin_at_zero_and_crashes_are_marked():
    piece = folders.executions("two-way")
    piece["episodes"][2] = [folders.drive(lane=0.0, crashed=[0, 0, 1])]
    figure = drives_figure(executions_of(piece))
    lines = [line for line in figure.axes[2].get_lines() if line.get_marker() in ("None", "X")]
    ways = [line.get_xydata().tolist() for line in lines if len(line.get_xdata()) == 3]
    assert ways == [[[0, 4], [10, 0], [30, 0]]]
    assert [line.get_xydata().tolist() for line in lines if line.get_marker() == "X"] == [[[30, 0]]]
    assert not [line for line in figure.axes[0].get_lines() if line.get_marker() == "X"]


# Animations


def frames_of(content):
    picture = Image.open(io.BytesIO(content))
    found = []
    for i in range(picture.n_frames):
        picture.seek(i)
        found.append(np.asarray(picture.convert("RGB")).astype(int))
    return found


def n_pixels(frame, colour, tolerance=12):
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return int((np.abs(frame - wanted).max(axis=-1) <= tolerance).sum())


def rounds(n=3):
    return exploration_of(folders.exploration(n_rounds=n))


def test_exploration_has_a_frame_for_each_round_also_where_one_strategy_has_fewer():
    frames = frames_of(rounds_gif({"risk-neutral": rounds(1), "risk-sensitive": rounds(3)}))
    assert len(frames) == 3
    assert not np.array_equal(frames[0], frames[2])


def test_ways_have_a_frame_for_each_budget_and_change_with_it():
    piece = folders.executions()
    piece["episodes"][2] = [folders.way((0.5, 0.5), (1.5, 1.5))]
    frames = frames_of(ways_gif(executions_of(piece)))
    assert len(frames) == 3
    half = frames[0].shape[1] // 2
    assert not np.array_equal(
        frames[0][60:, :half], frames[2][60:, :half]
    )  # the map, not its title
    assert all(n_pixels(frame, RED) > 20 for frame in frames)  # the dot of the dial


def test_drives_move_and_show_a_crash():
    piece = folders.executions("two-way")
    piece["episodes"][2] = [folders.drive(lane=0.0, crashed=[0, 0, 1])]
    frames = frames_of(drives_gif(executions_of(piece)))
    assert len(frames) == 3
    assert all(n_pixels(frame, BLUE) > 50 for frame in frames)
    assert n_pixels(frames[0], RED) == 0
    assert n_pixels(frames[2], RED) > 50


def test_a_long_drive_is_not_too_large():
    car = {"y": [0.0] * 400, "heading": [0.0] * 400}
    places = np.linspace(0, 900, 400).tolist()
    others = [{**car, "x": [x + 20 * k for x in places], "ego": False} for k in range(1, 8)]
    drive = {"dt": 0.2, "cars": [{**car, "x": places, "ego": True}, *others]}
    piece = folders.executions("two-way", budgets=[0.5]) | {"episodes": [[drive]]}
    content = drives_gif(executions_of(piece))
    assert len(frames_of(content)) <= 90
    assert len(content) < 1_500_000


@pytest.mark.parametrize("n", [1, 2])
def test_the_last_frame_rests(n):
    picture = Image.open(io.BytesIO(rounds_gif({"one": rounds(n)})))
    picture.seek(n - 1)
    assert picture.info["duration"] == 900 + 1500


def test_animations_are_the_same_whenever_they_are_made():
    found = executions_of(folders.executions())
    assert ways_gif(found) == ways_gif(found)
