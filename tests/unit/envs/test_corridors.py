import gymnasium
import numpy as np
import pytest

from bmdp import ConfigError
from bmdp.envs.corridors import (
    DOWN,
    LEFT,
    RIGHT,
    STOP,
    UP,
    Corridors,
    CorridorsState,
    CorridorsVectorEnv,
    picture,
)
from bmdp.envs.scripted import RULES
from playing import agrees, returns


def at(*places, time=0):
    x, y = np.array(places, float).T
    return CorridorsState(x, y, np.full(len(x), time))


def stepped(task, place, action, heading=0.5, other=0.5):
    """One step from a place, given uniform numbers (1/2 is no noise)."""
    return task.step(at(place), np.array([action]), np.array([[heading, other]]))


def test_the_map_is_that_of_the_paper():
    cells = Corridors().map
    assert cells.reward[:, 1].tolist() == [0, 1, 2, 3, 4, 5]
    assert cells.reward[:, 5].tolist() == [0, 10, 20, 30, 40, 50]
    assert (cells.reward[5, 0], cells.reward[5, 6]) == (100, 100)
    assert cells.reward.sum() == 15 + 150 + 200
    assert sorted(map(tuple, np.argwhere(cells.cost > 0))) == sorted(
        [(0, 4), (0, 5), *((r, 5) for r in range(1, 6)), (5, 6)]
    )
    assert set(cells.cost[cells.cost > 0]) == {1 / 8}
    walls = {(r, c) for r in range(1, 6) for c in (2, 3, 4)}
    walls |= {(r, c) for r in range(5) for c in (0, 6)}
    assert set(map(tuple, np.argwhere(cells.wall))) == walls


@pytest.mark.parametrize(
    ("action", "place"), [(DOWN, (1.5, 2.5)), (UP, (1.5, 0.5)), (RIGHT, (2.5, 0.5))]
)
def test_a_step_has_length_one_in_its_direction(action, place):
    start = (1.5, 1.5) if action != RIGHT else (1.5, 0.5)
    found = stepped(Corridors(), start, action).state
    assert (found.x[0], found.y[0]) == pytest.approx(place)


def test_noise_turns_the_heading_and_keeps_the_length():
    task = Corridors(noise_std=0.05)
    uniforms = np.random.default_rng(0).random((2000, 2))
    state = at(*[(1.5, 2.5)] * 2000)
    found = task.step(state, np.full(2000, DOWN), uniforms).state
    moved = np.hypot(found.x - 1.5, found.y - 2.5) > 0
    assert np.hypot(found.x - 1.5, found.y - 2.5)[moved] == pytest.approx(np.ones(moved.sum()))
    turned = np.arctan2(found.y - 2.5, found.x - 1.5)[moved] - np.pi / 2
    assert turned.std() == pytest.approx(0.05, abs=0.003)


def test_position_noise_is_added_to_the_end_point():
    task = Corridors(noise="position", noise_std=(0.1, 0.0))
    uniforms = np.random.default_rng(0).random((2000, 2))
    found = task.step(at(*[(1.5, 2.5)] * 2000), np.full(2000, DOWN), uniforms).state
    assert found.y == pytest.approx(np.full(2000, 3.5))
    assert (found.x - 1.5).std() == pytest.approx(0.1, abs=0.01)


def test_a_step_into_a_wall_is_not_made_and_pays_again():
    outcome = stepped(Corridors(), (1.5, 3.5), RIGHT)
    assert (outcome.state.x[0], outcome.state.y[0]) == (1.5, 3.5)
    assert outcome.rewards[0] == 3


def test_the_border_reflects_after_the_wall_was_tested():
    up = stepped(Corridors(), (1.5, 0.25), UP).state
    assert (up.x[0], up.y[0]) == pytest.approx((1.5, 0.75))
    left = stepped(Corridors(), (0.25, 5.5), LEFT).state
    assert (left.x[0], left.y[0]) == pytest.approx((0.75, 5.5))
    into_wall = stepped(Corridors(), (0.0, 5.0), UP, heading=0.9999).state  # ends in a wall: stays
    assert into_wall.x[0] == 0.0


def test_stopping_ends_the_episode_and_pays_the_cell_once_more():
    outcome = stepped(Corridors(), (5.5, 2.5), STOP, heading=0.9)
    assert (outcome.rewards[0], outcome.costs[0], outcome.ended[0]) == (20, 0.125, True)
    assert (outcome.state.x[0], outcome.state.y[0]) == (5.5, 2.5)


def test_the_horizon_ends_the_episode():
    task = Corridors()
    for time, ended in ((7, False), (8, True)):
        outcome = task.step(at((1.5, 0.5), time=time), np.array([LEFT]), np.full((1, 2), 0.5))
        assert outcome.ended[0] == ended


@pytest.mark.parametrize(("rule", "reward", "cost"), [("risky", 350, 1.125), ("safe", 215, 0)])
def test_without_noise_the_scripts_earn_their_exact_values(rule, reward, cost):
    rewards, costs, lengths = returns(
        CorridorsVectorEnv(3, noise_std=0.0), RULES[f"corridors/{rule}"]
    )
    assert rewards.tolist() == [reward] * 3
    assert costs == pytest.approx([cost] * 3)
    assert lengths.tolist() == [9] * 3


@pytest.mark.parametrize(
    ("rule", "reward", "std", "cost"), [("risky", 285.8, 73, 1.117), ("safe", 134.9, 86, 0.0)]
)
def test_the_scripts_earn_their_reference_values(rule, reward, std, cost):
    rewards, costs, _ = returns(CorridorsVectorEnv(20_000), RULES[f"corridors/{rule}"], seed=1)
    assert agrees(rewards, reward, std, 4000)
    assert rewards.std() == pytest.approx(std, rel=0.1)
    assert costs.mean() == pytest.approx(cost, abs=0.002)


def test_random_actions_earn_their_reference_values():
    rng = np.random.default_rng(0)
    rewards, costs, lengths = returns(
        CorridorsVectorEnv(20_000), lambda seen: rng.integers(0, 5, len(seen)), seed=2
    )
    assert agrees(rewards, 1.95, rewards.std(), 4000)
    assert agrees(costs, 0.171, costs.std(), 4000)
    assert agrees(lengths, 4.28, lengths.std(), 4000)


def test_time_is_seen_only_if_asked_for():
    assert Corridors().observe(at((3.5, 0.5), time=3)).tolist() == [[3.5, 0.5]]
    assert Corridors(observe_time=True).observe(at((3.5, 0.5), time=3))[0, 2] == pytest.approx(
        1 / 3
    )


@pytest.mark.parametrize("routes", [2, 4, 5])
def test_routes_walked_straight_cost_and_earn_what_they_should(routes):
    task = Corridors(routes=routes, noise_std=0.0)
    env = CorridorsVectorEnv(routes, routes=routes, noise_std=0.0)
    columns = 2 * np.arange(routes) + 1.5

    def straight(seen):
        x = seen[:, 0]
        sideways = np.where(x < columns, RIGHT, LEFT)
        return np.where(abs(x - columns) < 0.1, DOWN, sideways)

    rewards, costs, _ = returns(env, straight)
    assert rewards == pytest.approx(300 * np.sqrt((np.arange(routes) + 1) / routes))
    assert costs == pytest.approx(np.arange(routes) / (routes - 1))
    slopes = np.diff(rewards) / np.diff(costs)
    assert (np.diff(slopes) < 0).all()
    assert task.horizon == 9 + routes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"height": 2}, "height must be a whole number from 3 on; got 2"),
        ({"height": 6.0}, "height must be a whole number"),
        ({"noise_std": -0.1}, "noise_std must be from 0 on; got -0.1"),
        ({"noise_std": (0.1, np.nan)}, "noise_std must be from 0 on"),
        ({"noise_std": (0.1, 0.2, 0.3)}, "noise_std must be a number or"),
        ({"noise": "wind"}, "noise must be one of heading, position; got 'wind'"),
        ({"horizon": 0}, "horizon must be a whole number from 1 on; got 0"),
        ({"routes": 1}, "routes must be a whole number from 2 on; got 1"),
        ({"routes": 4, "horizon": 5}, "horizon must let all routes be walked"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Corridors(**settings)


def test_the_picture_shows_walls_pay_and_the_way():
    env = gymnasium.make("bmdp/Corridors-v0", render_mode="rgb_array")
    env.reset(seed=0)
    for action in (RIGHT, RIGHT, DOWN):
        env.step(action)
    image = env.render()
    assert image.shape == (6 * 48, 7 * 48, 3)
    assert image[100, 20].tolist() == [60, 60, 60]  # a wall
    red, green, _ = image[270, 310].tolist()  # the last risky cell
    assert red > green
    blank = picture(env.unwrapped.task.map, [])
    assert 200 < (image != blank).any(axis=2).sum() < 5000  # the way


def test_without_a_mode_there_is_no_picture():
    env = gymnasium.make("bmdp/Corridors-v0").unwrapped
    env.reset(seed=0)
    assert env.render() is None
