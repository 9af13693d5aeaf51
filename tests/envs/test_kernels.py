"""Every branch of the tasks' kernels at tiny sizes, so that they can be run uncompiled."""

import numpy as np
import pytest

from bmdp import EpisodeStreams
from bmdp.envs.corridors import DOWN, LEFT, RIGHT, STOP, UP, Corridors, CorridorsState
from bmdp.envs.slot_filling import SUMMARISE, SlotFilling

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


def test_streams_are_those_of_numpy():
    streams = EpisodeStreams.named(3, "x", [7])
    counter = (7 << 128) + (5 << 64) - 1
    words = [(counter >> (64 * i)) & (2**64 - 1) for i in range(4)]
    numpys = np.random.Philox(key=np.array(streams.key, np.uint64))
    state = numpys.state
    state["state"]["counter"] = np.array(words, np.uint64)
    numpys.state = state
    assert streams.uniforms(5, 6)[0] == pytest.approx(np.random.Generator(numpys).random(6))
