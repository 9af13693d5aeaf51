import io

import numpy as np
import pytest
from PIL import Image

import folders
from bmdp.report.animation import drives_gif, rounds_gif, ways_gif
from bmdp.report.drawing import BLUE, RED
from bmdp.report.reading import value_of


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
    return value_of("exploration", folders.exploration(n_rounds=n))


def test_exploration_has_a_frame_for_each_round_also_where_one_strategy_has_fewer():
    frames = frames_of(rounds_gif({"risk-neutral": rounds(1), "risk-sensitive": rounds(3)}))
    assert len(frames) == 3
    assert not np.array_equal(frames[0], frames[2])


def test_ways_have_a_frame_for_each_budget_and_change_with_it():
    piece = folders.executions()
    piece["episodes"][2] = [folders.way((0.5, 0.5), (1.5, 1.5))]
    frames = frames_of(ways_gif(value_of("executions", piece)))
    assert len(frames) == 3
    half = frames[0].shape[1] // 2
    assert not np.array_equal(
        frames[0][60:, :half], frames[2][60:, :half]
    )  # the map, not its title
    assert all(n_pixels(frame, RED) > 20 for frame in frames)  # the dot of the dial


def test_drives_move_and_show_a_crash():
    piece = folders.executions("two-way")
    piece["episodes"][2] = [folders.drive(lane=0.0, crashed=[0, 0, 1])]
    frames = frames_of(drives_gif(value_of("executions", piece)))
    assert len(frames) == 3
    assert all(n_pixels(frame, BLUE) > 50 for frame in frames)
    assert n_pixels(frames[0], RED) == 0
    assert n_pixels(frames[2], RED) > 50


def test_animations_are_the_same_whenever_they_are_made():
    found = value_of("executions", folders.executions())
    assert ways_gif(found) == ways_gif(found)


def test_a_long_drive_is_not_too_large():
    car = {"y": [0.0] * 400, "heading": [0.0] * 400}
    places = np.linspace(0, 900, 400).tolist()
    others = [{**car, "x": [x + 20 * k for x in places], "ego": False} for k in range(1, 8)]
    drive = {"dt": 0.2, "cars": [{**car, "x": places, "ego": True}, *others]}
    piece = folders.executions("two-way", budgets=[0.5]) | {"episodes": [[drive]]}
    content = drives_gif(value_of("executions", piece))
    assert len(frames_of(content)) <= 90
    assert len(content) < 1_500_000


@pytest.mark.parametrize("n", [1, 2])
def test_the_last_frame_rests(n):
    picture = Image.open(io.BytesIO(rounds_gif({"one": rounds(n)})))
    picture.seek(n - 1)
    assert picture.info["duration"] == 900 + 1500
