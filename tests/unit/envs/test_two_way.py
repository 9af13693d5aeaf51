"""The two-way road by itself: settings, starts, rules of reward and cost."""

import gymnasium
import numpy as np
import pytest

import bmdp
from bmdp import ConfigError, DataError, EpisodeStreams
from bmdp.envs.scripted import RULES, ScriptedPolicy
from bmdp.envs.two_way import FASTER, IDLE, LANE_LEFT, LANE_RIGHT, SLOWER, TwoWay, physics
from bmdp.envs.two_way.physics import (
    CRASHED,
    EXPONENT,
    HEADING,
    LANE,
    LEFT,
    ONCOMING,
    OWN,
    PRESENT,
    SPEED,
    TARGET_LANE,
    X,
    Y,
)


def starts(task, n, seed=0):
    return task.start(EpisodeStreams.named(seed, "test", range(n)).uniforms(0, task.n_draws))


def step(task, state, actions):
    n = len(state.time)
    return task.step(state, np.broadcast_to(actions, n).astype(np.int64), np.empty((n, 0)))


def alone():
    """An ego car on an empty road."""
    return starts(TwoWay(vehicles=1), 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vehicles": 0}, "vehicles must be a whole number from 1 to 12; got 0"),
        ({"vehicles": (0, 6)}, "vehicles must be a whole number from 1 to 12; got 0"),
        ({"vehicles": 13}, "from 1 to 12; got 13"),
        ({"vehicles": 2.5}, "whole number"),
        ({"vehicles": (6, 2)}, r"the least number and the largest; got \(6, 2\)"),
        ({"vehicles": (1, 2, 3)}, "vehicles must be a whole number or"),
        ({"position_std": -1.0}, "position_std must be from 0 on; got -1.0"),
        ({"position_std": np.nan}, "position_std must be from 0 on; got nan"),
        ({"speed_std": (2.0, -5.0)}, "speed_std must be from 0 on"),
        ({"speed_std": (1.0, 2.0, 3.0)}, "speed_std must be a number or"),
        ({"speed_std": "wide"}, "speed_std must be a number or .*; got 'wide'"),
        ({"crash_cost": -1.0}, "crash_cost must be from 0 on"),
        ({"left_lane_reward": np.inf}, "left_lane_reward must be from 0 on"),
        (
            {"target_speeds": (20.0, 30.0, 25.0)},
            r"target_speeds must be increasing; got 25 at \[2\]",
        ),
        ({"target_speeds": (20.0, 20.0)}, r"must be increasing; got 20 at \[1\]"),
        ({"target_speeds": (20.0, np.nan)}, r"must be increasing; got nan at \[1\]"),
        ({"target_speeds": (20.0,)}, "at least two speeds"),
        ({"target_speeds": (-5.0, 20.0)}, "from 0 to 40 m/s"),
        ({"target_speeds": (20.0, 50.0)}, "from 0 to 40 m/s"),
        ({"features": "lidar"}, "must be one of kinematics, time-to-collision, full; got 'lidar'"),
        ({"backend": "carla"}, "backend must be one of batched, highway-env; got 'carla'"),
        ({"ttc_seconds": 0}, "ttc_seconds must be a whole number from 1 on"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        TwoWay(**settings)


def test_everything_starts_as_the_paper_had_it():
    state = starts(TwoWay(), 20_000)
    cars = state.cars
    assert cars.shape[1] == 6
    assert state.present.all()
    assert (cars[:, 0, X] == 30).all()
    assert (cars[:, 0, SPEED] == 30).all()
    assert (state.speed_index == 2).all()
    assert (state.lane == [OWN] * 4 + [LEFT] * 2).all()
    assert (state.target_lane == [OWN] * 4 + [ONCOMING] * 2).all()
    assert (starts(TwoWay(aware_oncoming=True), 1).lane == [OWN] * 4 + [ONCOMING] * 2).all()
    assert (state.y == [4, 4, 4, 4, 0, 0]).all()
    assert (state.heading == [0, 0, 0, 0, np.pi, np.pi]).all()
    error = 4 / np.sqrt(len(cars))
    assert cars[:, 1:, X].mean(axis=0) == pytest.approx([70, 110, 150, 600, 500], abs=10 * error)
    assert cars[:, 1:, X].std(axis=0) == pytest.approx([10] * 5, rel=error)
    assert cars[:, 1:, SPEED].mean(axis=0) == pytest.approx([24] * 3 + [20] * 2, abs=5 * error)
    assert cars[:, 1:, SPEED].std(axis=0) == pytest.approx([2] * 3 + [5] * 2, rel=error)
    numbers = np.concatenate([cars[:, 1:, X], cars[:, 1:, SPEED]], axis=1)
    assert np.abs(np.corrcoef(numbers.T) - np.eye(10)).max() < error


def test_the_number_of_cars_may_be_random_and_drivers_may_differ():
    task = TwoWay(vehicles=(2, 6), position_std=100, speed_std=3, random_drivers=True)
    state = starts(task, 20_000)
    counts = np.bincount(state.present.sum(axis=1), minlength=7)[2:]
    assert counts == pytest.approx([4000] * 5, abs=4 * np.sqrt(20_000 * 0.2 * 0.8))
    for n_cars, order in ((2, [0, 1]), (3, [0, 1, 4]), (4, [0, 1, 2, 4]), (5, [0, 1, 2, 4, 5])):
        there = state.cars[state.present.sum(axis=1) == n_cars, :, PRESENT]
        assert (np.flatnonzero(there[0]) == order).all()
        assert (there == there[0]).all()
    exponents = state.cars[:, 1:, EXPONENT]
    assert exponents.min() == pytest.approx(3.5, abs=1e-3)
    assert exponents.max() == pytest.approx(4.5, abs=1e-3)
    assert state.cars[:, 1:, SPEED].std(axis=0) == pytest.approx([3] * 5, rel=0.03)
    assert state.cars[:, 1:, X].std(axis=0) == pytest.approx([100] * 5, rel=0.03)


def test_reward_and_cost_of_each_action():
    task, state = TwoWay(), alone()
    for action, reward, cost in (
        (IDLE, 0.8, 0),
        (FASTER, 0.8, 0),
        (SLOWER, 0.4, 0),
        (SLOWER, 0, 0),
        (LANE_LEFT, 0.2, 1 / 15),
        (FASTER, 0.6, 1 / 15),
        (LANE_RIGHT, 0.4, 0),
    ):
        outcome = step(task, state, action)
        assert (outcome.rewards[0], outcome.costs[0]) == pytest.approx((reward, cost))
        assert not outcome.ended[0]
        state = outcome.state


def test_costs_are_of_the_lane_that_it_is_on_and_rewards_of_the_one_it_wants():
    """They differ where a crash stops it on its way."""
    task, state = TwoWay(), alone()
    state.cars[0, 0, TARGET_LANE], state.cars[0, 0, CRASHED] = LEFT, 1
    outcome = step(task, state, IDLE)
    assert outcome.costs[0] == 1
    assert outcome.rewards[0] == pytest.approx(1.0)


def test_the_ego_car_reaches_the_speed_and_the_lane_it_is_told():
    task, state = TwoWay(), alone()
    for _ in range(4):
        state = step(task, state, SLOWER).state
    assert state.speed[0, 0] == pytest.approx(20, abs=0.05)
    for _ in range(4):
        state = step(task, state, LANE_LEFT).state
    assert state.y[0, 0] == pytest.approx(0, abs=0.05)
    assert state.heading[0, 0] == pytest.approx(0, abs=0.01)


def test_the_literal_text_of_the_paper_has_no_cost_of_crashes_and_no_pay_for_the_lane():
    settings = {"crash_cost": 0.0, "left_lane_reward": 0.0}
    task, literal = TwoWay(), TwoWay(**settings)
    state = starts(task, 200)
    for action in (LANE_LEFT, *[FASTER] * 14):
        usual, other = step(task, state, action), step(literal, state, action)
        crashed = usual.state.crashed[:, 0]
        assert usual.rewards - other.rewards == pytest.approx([0.2] * 200)
        assert usual.costs - other.costs == pytest.approx(crashed.astype(float))
        state = usual.state
    assert crashed.mean() > 0.5


def test_an_episode_ends_after_fifteen_decisions_or_with_a_crash():
    env = gymnasium.make("bmdp/TwoWay-v0", vehicles=1).unwrapped
    env.reset(seed=0)
    ends = [env.step(IDLE)[2] for _ in range(15)]
    assert ends == [False] * 14 + [True]
    env = gymnasium.make("bmdp/TwoWay-v0").unwrapped
    env.reset(seed=0)
    for _ in range(15):
        *_, ended, truncated, info = env.step(IDLE)
        if ended:
            break
    assert info["cost"] == 1
    assert not truncated


def test_frames_lead_to_where_the_decision_leads():
    task = TwoWay()
    state = starts(task, 50)
    for action in (LANE_LEFT, FASTER, LANE_RIGHT, SLOWER):
        frames = task.frames(state, np.full(50, action))
        after = step(task, state, action).state
        assert len(frames) == 15
        assert np.array_equal(frames[-1].cars, after.cars, equal_nan=True)
        assert (frames[-1].speed_index == after.speed_index).all()
        assert not (frames[0].x == state.x).any()
        state = after


def test_the_state_before_a_step_is_left_as_it_was():
    task = TwoWay()
    state = starts(task, 3)
    before = [column.copy() for column in state]
    step(task, state, LANE_LEFT)
    for column, copy in zip(state, before, strict=True):
        assert np.array_equal(column, copy, equal_nan=True)


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({}, 24),
        ({"vehicles": (2, 4)}, 16),
        ({"observe_time": True}, 25),
        ({"features": "time-to-collision"}, 45),
        ({"features": "time-to-collision", "ttc_seconds": 10, "observe_time": True}, 91),
        ({"features": "full"}, 85),
        ({"features": "full", "vehicles": (1, 3), "ttc_seconds": 3, "observe_time": True}, 68),
    ],
)
def test_what_is_seen_has_its_size_and_is_in_its_space(settings, size):
    task = TwoWay(**settings)
    state = starts(task, 100)
    for t in range(15):
        seen = task.observe(state)
        assert seen.shape == (100, size)
        assert seen.dtype == np.float32
        assert all(task.observation_space.contains(row) for row in seen)
        if task.observe_time:
            assert seen[:, -1] == pytest.approx([t / 15] * 100)
        state = step(task, state, IDLE).state


def test_kinematics_by_hand():
    task = TwoWay(vehicles=3)
    state = starts(task, 1)
    state.cars[0, 1:, X] = (60, 229)  # one ahead, one oncoming and just in sight
    state.cars[0, 1:, SPEED] = (24, 18)
    seen = task.observe(state).reshape(3, 4)
    expected = [
        [30 / 150, 4 / 8, 30 / 60, 0],
        [30 / 150, 0, -6 / 60, 0],
        [1, -4 / 8, -48 / 60, 0],  # cut off at 150 m
    ]
    assert seen == pytest.approx(np.array(expected), abs=1e-7)
    state.cars[0, 2, X] = 230 + 1e-9
    assert (task.observe(state).reshape(3, 4)[2] == -1).all()


def test_times_to_collision_by_hand():
    task = TwoWay(vehicles=3, features="time-to-collision")
    state = starts(task, 1)
    state.cars[0, 1:, X] = (54, 780)
    state.cars[0, 1:, SPEED] = (24, 20)
    grid = task.observe(state).reshape(3, 3, 5)  # 30 m/s, so the highest speed twice
    assert (grid[:, 2] == 1).all()  # off the road, to the right
    assert (grid[:, 0] == 0).all()  # nobody on the oncoming lane within 5 seconds
    # Bumpers after (24 - 5) / 6 s, centres after 24 / 6 s, out of the grid after that.
    assert grid[1, 1].tolist() == grid[2, 1].tolist() == [0, 0, 0, 0.5, 1]
    assert grid[0, 1].tolist() == [0, 0, 0, 0, 0]  # at 25 m/s they meet after 19 s
    state.cars[0, 2, X] = 130  # oncoming: at 50 m/s after 2 s
    grid = task.observe(state).reshape(3, 3, 5)
    assert grid[1, 0].tolist() == [0, 0.5, 1, 0.5, 0]
    assert grid[1, 1].tolist() == [0, 0, 0, 0.5, 1]
    state.cars[0, 2, LANE] = ONCOMING  # an aware driver, who might be on either lane
    grid = task.observe(state).reshape(3, 3, 5)
    assert grid[1, 0].tolist() == [0, 0.5, 1, 0.5, 0]
    assert grid[1, 1].tolist() == [0, 0.5, 1, 0.5, 1]


def test_full_features_by_hand():
    task = TwoWay(vehicles=6, features="full")
    state = starts(task, 1)
    state.cars[0, 1:, X] = (60, 20, 231, 100, 25)  # three the same way, two oncoming
    state.cars[0, 1:, SPEED] = (24, 22, 21, 18, 19)
    state.cars[0, 0, [X, Y, SPEED, HEADING]] = (30, 1, 28, 0.1)
    state.cars[0, 0, TARGET_LANE] = LEFT
    seen = task.observe(state)[0]
    own = 28 * np.cos(0.1)
    assert seen[:6] == pytest.approx([30, 1, own, 28 * np.sin(0.1), 30, 1], abs=1e-5)
    ahead, behind, oncoming = seen[6:12], seen[12:18], seen[18:22]
    assert ahead == pytest.approx([30, 24 - own, 200, 0, 200, 0], abs=1e-5)  # one out of sight
    assert behind == pytest.approx([10, 22 - own, 200, 0, 200, 0], abs=1e-5)
    assert oncoming == pytest.approx([70, -18 - own, 200, 0], abs=1e-5)  # one has passed


def test_seconds_to_conflicts_by_hand():
    task = TwoWay(vehicles=6, features="full")
    state = starts(task, 1)
    state.cars[0, 1:, X] = (90, 150, 500, 130, 20)  # two ahead, one far away, two oncoming
    state.cars[0, 1:, SPEED] = (20, 25, 20, 20, 20)
    own, other = task.observe(state)[0, 22:40].reshape(2, 3, 3)  # 30 m/s, the highest speed
    assert own[1] == pytest.approx([54 / 10, 66 / 10, 15])
    assert own[0] == pytest.approx([54 / 5, 66 / 5, 15])  # at 25 m/s the second is not met
    assert own[1].tolist() == own[2].tolist()
    assert other[1] == pytest.approx([94 / 50, 106 / 50, 15])  # one has passed
    state.cars[0, 2, X] = 100
    assert task.observe(state)[0, 25:28] == pytest.approx([5.4, 6.6, 64 / 5])
    state.cars[0, 0, LANE] = LEFT
    assert task.observe(state)[0, 25] == pytest.approx(94 / 50)


def test_full_features_tell_of_no_car_out_of_sight():
    task = TwoWay(vehicles=3, features="full")
    state = starts(task, 1)
    state.cars[0, 1:, X] = (500, 30 + 201)
    state.cars[0, 1:, SPEED] = (24, 20)  # which is met after 4 s
    hidden = task.observe(state)
    state.cars[0, 1:, X] = (600, 700)
    assert np.array_equal(hidden, task.observe(state))
    state.cars[0, 2, X] = 30 + 199
    assert not np.array_equal(hidden, task.observe(state))
    assert task.observe(state)[0, 40:].reshape(3, 3, 5)[1, 0].tolist() == [0, 0, 0, 1, 1]


def test_the_rules_need_to_see_six_cars():
    with pytest.raises(DataError, match="kinematics of a two-way road"):
        RULES["two-way/slow"](np.zeros((3, 45)))


def test_both_forms_are_rendered():
    env = gymnasium.make("bmdp/TwoWay-v0", render_mode="rgb_array").unwrapped
    env.reset(seed=0)
    first = env.render()
    env.step(LANE_LEFT)
    assert first.shape == (72, 1200, 3)
    assert (first != env.render()).any()
    drawn = gymnasium.make("bmdp/TwoWay-v0", render_mode="svg").unwrapped
    drawn.reset(seed=0)
    assert drawn.render().startswith("<svg")
    assert gymnasium.make("bmdp/TwoWay-v0").unwrapped.render() is None


# Facts about the task as it was in 2019, 100 episodes each: rewards, costs, share of crashes.
FACTS = {
    "two-way/idle": (2.75, 0.729, 1.00),
    "two-way/slow": (0.40, 0.059, 0.15),
    "two-way/less-slow": (1.92, 0.577, 1.00),
    "two-way/overtake": (6.49, 0.822, 1.00),
    "random": (3.08, 0.681, 0.95),
}


@pytest.mark.parametrize("rule", FACTS)
def test_scripted_policies_earn_and_cost_what_they_did(rule):
    """Within 99.9 % intervals of 100 episodes, whose deviations are those of our 4,000."""
    task, n = TwoWay(), 4000
    state = starts(task, n, seed=7)
    rng = np.random.default_rng(0)
    policy = RULES.get(rule, lambda seen: rng.integers(0, 5, len(seen)))
    reward, cost, going = np.zeros(n), np.zeros(n), np.ones(n, bool)
    for t in range(15):
        outcome = step(task, state, policy(task.observe(state)))
        reward += going * 0.9**t * outcome.rewards
        cost += going * 0.9**t * outcome.costs
        crashed = outcome.state.crashed[:, 0]
        going &= ~outcome.ended
        state = outcome.state
    assert 3.29 * reward.std() / 10 < 1
    error = 3.29 * np.sqrt(1 / 100 + 1 / n)
    expected_reward, expected_cost, expected_crashes = FACTS[rule]
    assert reward.mean() == pytest.approx(expected_reward, abs=error * reward.std() + 0.005)
    assert cost.mean() == pytest.approx(expected_cost, abs=error * cost.std() + 0.0005)
    assert crashed.mean() == pytest.approx(expected_crashes, abs=error * crashed.std() + 0.005)


def test_a_scripted_policy_is_evaluated_as_any_other():
    found = bmdp.evaluate(
        ScriptedPolicy("two-way/slow"), "bmdp/TwoWay-v0", budgets=[0.5], n_episodes=500, seed=0
    )
    assert 0 < found.discounted_cost_mean[0] < 0.2
    assert found.discounted_reward_mean[0] == pytest.approx(0.4, abs=0.02)


def test_absent_cars_have_no_influence():
    task = TwoWay(vehicles=6)
    state = starts(task, 1)
    state.cars[0, 1:, PRESENT] = 0
    lonely = alone()
    for action in (IDLE, LANE_LEFT, SLOWER, LANE_RIGHT):
        state, lonely = step(task, state, action).state, step(task, lonely, action).state
        assert np.array_equal(state.cars[:, :1], lonely.cars, equal_nan=True)
    assert (state.cars[0, 1:, CRASHED] == 0).all()
    assert (task.observe(state).reshape(6, 4)[1:] == -1).all()


def test_speeds_are_numbered_by_the_nearest_one():
    speeds = np.array([20.0, 25.0, 30.0])
    numbers = [physics.speed_number(v, speeds) for v in (0, 20, 22.4, 22.6, 27.4, 27.6, 99)]
    assert numbers == [0, 0, 0, 1, 1, 2, 2]
