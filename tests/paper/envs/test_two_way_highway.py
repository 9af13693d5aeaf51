"""The two simulations of the two-way road against each other: ours, and that of highway-env."""

import sys

import gymnasium
import numpy as np
import pytest
from scipy.stats import ks_2samp

from bmdp import EpisodeStreams, MissingDependency
from bmdp.envs.two_way import FASTER, IDLE, LANE_LEFT, LANE_RIGHT, SLOWER, TwoWay, compare
from bmdp.envs.two_way.comparison import is_hit_dead_centre
from bmdp.envs.two_way.physics import (
    CRASHED,
    HEADING,
    LANE,
    LEFT,
    N_COLUMNS,
    ONCOMING,
    OWN,
    PRESENT,
    SPEED,
    TARGET_LANE,
    TARGET_SPEED,
    X,
    Y,
    copied,
)
from scripts import script

EXAMPLE = script("examples/two_way.py")


def sequences(n):
    """A third random, a third scripted, a third provoking, `[n, 15]`."""
    actions = np.random.default_rng(0).integers(0, 5, (n, 15))
    for kind, choices in ((1, EXAMPLE.SCRIPTS), (2, EXAMPLE.PROVOCATIONS)):
        rows = np.arange(kind, n, 3)
        actions[rows] = np.resize(choices, (len(rows), 15))
    return actions


def check(found, n):
    assert found.n_situations == n
    assert found.n_disagreements == 0
    for name in ("x", "y", "heading", "speed"):
        assert found.largest[name] < 1e-6, name
    for name in ("reward", "cost", "kinematics", "time_to_collision"):
        assert found.largest[name] < 1e-6, name
    assert 0.3 * n < found.n_crashes < n
    assert found.n_dead_centre <= 0.03 * n
    assert found.n_crawling <= 0.01 * n


def test_both_drive_the_same_in_thirty_situations():
    check(compare(sequences(30)), 30)


@pytest.mark.slow
def test_both_drive_the_same_with_highway_env_as_it_comes():
    check(compare(sequences(30), aware_oncoming=True, first_seed=100), 30)


@pytest.mark.slow
@pytest.mark.parametrize("aware", [False, True])
def test_both_drive_the_same_in_five_hundred_situations(aware):
    check(compare(sequences(500), aware_oncoming=aware, first_seed=1000), 500)


def step_both(settings, n, n_decisions, seed=0):
    """Drives random roads in both, on and on; returns the states of the last decision."""
    ours, theirs = TwoWay(**settings), TwoWay(**settings, backend="highway-env")
    state = ours.start(EpisodeStreams.named(seed, "test", range(n)).uniforms(0, ours.n_draws))
    actions = np.random.default_rng(seed).integers(0, 5, (n_decisions, n))
    for row in actions:
        mine = ours.step(state, row, np.empty((n, 0)))
        other = theirs.step(state, row, np.empty((n, 0)))
        there = mine.state.present
        for name in ("x", "y", "heading", "speed"):
            a, b = getattr(mine.state, name)[there], getattr(other.state, name)[there]
            assert a == pytest.approx(b, abs=1e-6), name
        for a, b in zip(mine[1:], other[1:], strict=True):
            assert a == pytest.approx(b)
        for column in range(N_COLUMNS):
            a, b = mine.state.cars[..., column][there], other.state.cars[..., column][there]
            assert a == pytest.approx(b, abs=1e-6, nan_ok=True)
        assert (mine.state.speed_index == other.state.speed_index).all()
        assert ours.observe(mine.state) == pytest.approx(theirs.observe(other.state), abs=1e-6)
        state = mine.state
    return state


def test_they_do_on_crowded_roads_after_crashes_and_with_other_settings():
    """Twelve cars, placed on top of each other, driven on whoever crashed."""
    settings = {
        "vehicles": (2, 12),
        "position_std": 100.0,
        "speed_std": 3.0,
        "random_drivers": True,
        "target_speeds": (10.0, 20.0, 30.0, 40.0),
    }
    state = step_both(settings, 8, 12)
    assert state.cars[..., CRASHED].sum() > 10
    step_both({**settings, "aware_oncoming": True}, 8, 6)


def test_they_do_where_the_road_ends():
    """Cars near both ends turn round."""
    settings = {"vehicles": 4, "aware_oncoming": True}
    ours, theirs = TwoWay(**settings), TwoWay(**settings, backend="highway-env")
    state = copied(ours.start(np.full((2, ours.n_draws), 0.5)))
    state.cars[0, 1:, X] = (780, 700, 20)
    state.cars[1, 1:, X] = (790, 400, 5)
    state.cars[1, 0, SPEED] = 45  # above the top speed
    state.cars[1, 2, SPEED] = -45
    for _ in range(6):
        actions = np.array([IDLE, LANE_LEFT])
        mine, other = (task.step(state, actions, np.empty((2, 0))).state for task in (ours, theirs))
        for column in (X, Y, HEADING, SPEED, TARGET_LANE):
            assert mine.cars[..., column] == pytest.approx(other.cars[..., column], abs=1e-6)
        state = mine
    assert (state.cars[:, 1, TARGET_LANE] == ONCOMING).all()
    assert (state.cars[:, 3, TARGET_LANE] == LEFT).all()


def test_frames_go_on_after_a_crash_in_both():
    """The paper's simulation stopped in the frame of the crash; both of these do not."""
    task = TwoWay(vehicles=2)
    state = task.start(np.full((1, task.n_draws), 0.5))
    state.cars[0, 1, X], state.cars[0, 1, SPEED] = 40, 10
    frames = task.frames(state, np.array([IDLE]))
    crashed = [bool(frame.crashed[0, 0]) for frame in frames]
    first = crashed.index(True)
    assert first < 13
    assert frames[14].x[0, 0] > frames[first].x[0, 0] + 1
    theirs = TwoWay(vehicles=2, backend="highway-env")
    after = theirs.step(state, np.array([IDLE]), np.empty((1, 0))).state
    assert after.x == pytest.approx(frames[14].x, abs=1e-6)


def test_a_car_that_is_hit_dead_centre_is_pushed_to_either_side():
    """Two cars within each other, one to the right of the other by less than can be computed."""
    ways = set()
    for right in (1e-9, -1e-9):
        task = TwoWay(vehicles=2)
        state = task.start(np.full((1, task.n_draws), 0.5))
        state.cars[0, 1, X], state.cars[0, 1, Y] = 31, 4 + right
        frames = task.frames(state, np.array([IDLE]))
        ways.add(np.sign(frames[-1].y[0, 0] - 4))
    assert ways == {-1, 1}


@pytest.mark.parametrize("backend", ["batched", "highway-env"])
def test_a_car_that_crawls_steers_by_its_rounding_errors(backend):
    """A nanometre to the right grows a thousand times within three seconds, in either of both."""
    task = TwoWay(vehicles=2, backend=backend)
    start = task.start(np.full((1, task.n_draws), 0.5))
    start.cars[0, 1, [X, SPEED, TARGET_SPEED]] = (200, 0.5, 0.5)
    ends = []
    for right in (0.0, 1e-9):
        state = copied(start)
        state.cars[0, 1, Y] += right
        for _ in range(3):
            state = task.step(state, np.array([SLOWER]), np.empty((1, 0))).state
        ends.append(state.y[0, 1])
    assert abs(ends[1] - ends[0]) > 1e-6


def test_aware_oncoming_drivers_brake_and_unaware_ones_do_not():
    speeds = {}
    for aware in (False, True):
        task = TwoWay(vehicles=3, aware_oncoming=aware)
        state = task.start(np.full((1, task.n_draws), 0.5))
        state.cars[0, 1, PRESENT] = 0
        state.cars[0, 2, X] = 200
        state = task.step(state, np.array([LANE_LEFT]), np.empty((1, 0))).state
        speeds[aware] = state.speed[0, 2]
    assert speeds[False] == pytest.approx(20)
    assert speeds[True] < 18


def test_the_environment_is_the_same_by_either_backend():
    envs = [
        gymnasium.make("bmdp/TwoWay-v0", backend=backend).unwrapped
        for backend in ("batched", "highway-env")
    ]
    (seen, _), (other, _) = (env.reset(seed=3) for env in envs)
    assert (seen == other).all()
    for action in (LANE_LEFT, FASTER, LANE_RIGHT, SLOWER, SLOWER):
        mine, theirs = (env.step(action) for env in envs)
        assert mine[0] == pytest.approx(theirs[0], abs=1e-6)
        assert mine[1:3] == theirs[1:3]
        assert mine[4] == theirs[4]
    assert (envs[0].reset()[0] == envs[1].reset()[0]).all()


def test_without_highway_env_one_line_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "highway_env"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "highway_env", None)
    with pytest.raises(MissingDependency) as caught:
        TwoWay(backend="highway-env")
    message = str(caught.value)
    assert "pip install 'bmdp[driving]'" in message
    assert "\n" not in message
    TwoWay()  # needs nothing


@pytest.mark.slow
def test_starts_are_those_of_highway_env():
    """Ten numbers, 10,000 draws each, Kolmogorov-Smirnov at 1 % for all of them together."""
    from highway_env.envs.two_way_env import TwoWayEnv

    env = TwoWayEnv()
    n = 10_000
    theirs = np.empty((n, 5, 2))
    env.reset(seed=0)
    for i in range(n):
        env.reset()
        theirs[i] = [(car.position[0], car.speed) for car in env.road.vehicles[1:]]
    task = TwoWay()
    state = task.start(EpisodeStreams.named(0, "starts", range(n)).uniforms(0, task.n_draws))
    ours = state.cars[:, 1:][..., [X, SPEED]]
    values = [
        ks_2samp(theirs[:, car, k], ours[:, car, k]).pvalue for car in range(5) for k in range(2)
    ]
    assert min(values) > 0.01 / 10
    assert ks_2samp(theirs[:, 0, 0], ours[:, 1, 0]).pvalue < 1e-6  # and it can tell


def test_they_do_where_turned_cars_are_within_each_other():
    """Overlaps of every kind, each pushed apart along the side that is nearest."""
    rng = np.random.default_rng(3)
    n = 60
    ours, theirs = TwoWay(vehicles=2), TwoWay(vehicles=2, backend="highway-env")
    state = ours.start(np.full((n, ours.n_draws), 0.5))
    state.cars[:, 0, HEADING], state.cars[:, 1, HEADING] = rng.uniform(-1.5, 1.5, (2, n))
    state.cars[:, 1, X] = 30 + rng.uniform(-4, 4, n)
    state.cars[:, 1, Y] = 4 + rng.uniform(-3, 3, n)
    state.cars[:, 1, LANE] = np.where(state.cars[:, 1, Y] > 2, OWN, LEFT)
    state.cars[:, :, SPEED] = rng.uniform(2, 30, (n, 2))
    mine, other = (
        task.step(state, np.full(n, IDLE), np.empty((n, 0))).state for task in (ours, theirs)
    )
    assert mine.crashed.mean() > 0.5
    for column in (X, Y, HEADING, SPEED, CRASHED):
        assert mine.cars[..., column] == pytest.approx(other.cars[..., column], abs=1e-6)


def test_dead_centre_is_told_from_other_hits():
    task = TwoWay(vehicles=3)
    state = task.start(np.full((1, task.n_draws), 0.5))
    state.cars[0, 1, X] = 33
    assert not is_hit_dead_centre(state)  # in line and near, but nobody was hit
    state.cars[0, :2, CRASHED] = 1
    assert is_hit_dead_centre(state)
    state.cars[0, 1, Y] += 0.01
    assert not is_hit_dead_centre(state)
    state.cars[0, 1, [X, Y]] = (60, 4)
    assert not is_hit_dead_centre(state)
