"""Every branch of the tasks' kernels at tiny sizes, so that they can be run uncompiled."""

import numpy as np
import pytest

from bmdp import EpisodeStreams
from bmdp.envs.corridors import DOWN, LEFT, RIGHT, STOP, UP, Corridors, CorridorsState
from bmdp.envs.slot_filling import SUMMARISE, SlotFilling
from bmdp.envs.two_way import FASTER, IDLE, LANE_LEFT, LANE_RIGHT, SLOWER, TwoWay
from bmdp.envs.two_way.physics import EXPONENT, HEADING, PRESENT, SPEED, TARGET_SPEED, X

# Uncompiled, whole numbers of 64 bits warn when they wrap, as they are meant to.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


def test_one_step_of_corridors_in_every_direction():
    x = np.array([1.5, 1.5, 2.5, 1.5, 1.5, 1.5, 0.25, 6.75])
    y = np.array([1.5, 1.5, 0.5, 1.5, 0.25, 3.5, 5.5, 5.5])
    actions = np.array([STOP, DOWN, LEFT, UP, UP, RIGHT, LEFT, RIGHT])
    outcome = Corridors().step(
        CorridorsState(x, y, np.zeros(8, np.int64)), actions, np.full((8, 2), 0.5)
    )
    expected_x = [1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 0.75, 6.25]
    expected_y = [1.5, 2.5, 0.5, 0.5, 0.75, 3.5, 5.5, 5.5]
    assert outcome.state.x == pytest.approx(expected_x)
    assert outcome.state.y == pytest.approx(expected_y)
    assert outcome.rewards.tolist() == [1, 2, 0, 0, 0, 3, 100, 100]
    assert outcome.costs.tolist() == [0, 0, 0, 0, 0, 0, 0, 0.125]


@pytest.mark.parametrize("error_rate", [0.6, 0.0])
def test_one_turn_of_slot_filling_with_every_act(error_rate):
    task = SlotFilling(error_rate=error_rate)
    state = task.start(np.zeros((4, 2)))
    uniforms = np.array([[0.9, 0.5], [0.9, 0.5], [0.9, 0.5], [0.1, 0.5]])
    outcome = task.step(state, np.array([SUMMARISE, 1, 4, 4]), uniforms)
    assert outcome.costs.tolist() == [0, 0, 0, 1]
    assert outcome.state.right[:, 0].tolist() == [False, True, True, False]
    chance = 1.0 if error_rate == 0 else 0.4 * 1 / (0.4 + 0.6 * np.exp(-0.5 * (0.5 / 0.6) ** 2))
    assert outcome.state.belief[1, :2] == pytest.approx([1 - chance, chance])
    state = outcome.state._replace(right=np.ones((4, 3), bool), belief=np.eye(8)[[7] * 4])
    assert task.step(state, np.zeros(4, np.int64), uniforms).rewards.tolist() == [100] * 4
    denied = task.step(
        state._replace(right=np.zeros((4, 3), bool)), np.zeros(4, np.int64), uniforms
    )
    assert (denied.state.belief == 0).all()  # what was believed cannot be


@pytest.mark.parametrize("aware", [False, True])
def test_a_crowded_two_way_road_at_every_turn(aware):
    task = TwoWay(
        vehicles=4,
        random_drivers=aware,
        aware_oncoming=aware,
        features="time-to-collision",
        ttc_seconds=3,
    )
    state = task.start(np.full((6, task.n_draws), 0.5))
    cars = state.cars
    cars[0, 1, X], cars[0, 2, X] = 33, 31.5  # within each other
    cars[1, 1:, X] = (798, 60, 2)  # at the ends of the road
    cars[2, 1, [X, SPEED, TARGET_SPEED]] = (50, 0, 0)
    cars[2, 2, [X, SPEED]] = (300, -45)
    cars[3, 0, SPEED], cars[3, 3, X] = 45, 50
    cars[4, 1, PRESENT] = 0
    cars[4, 2, [SPEED, EXPONENT]] = (24.999, 4.2)
    cars[5, 2, HEADING] = 4.0
    actions = np.array([LANE_LEFT, LANE_RIGHT, FASTER, SLOWER, IDLE, LANE_LEFT])
    for _ in range(2):
        seen = task.observe(state)
        assert ((seen >= 0) & (seen <= 1)).all()
        state = task.step(state, actions, np.empty((6, 0))).state
    assert state.crashed[0, :3].all()
    assert not state.crashed[4].any()
    assert state.speed_index.tolist() == [2, 2, 1, 1, 2, 2]  # the third has crashed, and is slow
    assert state.target_lane[:, 0].tolist() == [0, 1, 1, 1, 1, 0]
    assert state.target_lane[1].tolist() == [1, 2, 1, 0]
    kinematics = TwoWay(vehicles=4).observe(state).reshape(6, 4, 4)
    assert (kinematics[4, 3] == -1).all()


def test_streams_are_those_of_numpy():
    streams = EpisodeStreams.named(3, "x", [7])
    counter = (7 << 128) + (5 << 64) - 1
    words = [(counter >> (64 * i)) & (2**64 - 1) for i in range(4)]
    numpys = np.random.Philox(key=np.array(streams.key, np.uint64))
    state = numpys.state
    state["state"]["counter"] = np.array(words, np.uint64)
    numpys.state = state
    assert streams.uniforms(5, 6)[0] == pytest.approx(np.random.Generator(numpys).random(6))
