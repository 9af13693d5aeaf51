"""Logs to read and to write: a small one by hand, and one of a random policy in the corridors."""

import gymnasium
import numpy as np

import bmdp  # noqa: F401  (registers the environments)
from bmdp.data import TransitionBatch


def columns(**changes):
    """Two episodes of three steps, the first terminal and the second truncated, as columns."""
    return {
        "state": np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0], [0.0, 5.0], [1.0, 5.0], [2.0, 5.0]]),
        "action": np.array([0, 1, 2, 0, 0, 1]),
        "reward": np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
        "cost": np.array([0.0, 0.5, 0.0, 0.0, 0.25, 0.0]),
        "next_state": np.array(
            [[1.0, 1.0], [2.0, 1.0], [3.0, 1.0], [1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]
        ),
        "terminal": np.array([False, False, True, False, False, False]),
        **changes,
    }


def optional_columns():
    return {
        "truncated": np.array([False, False, False, False, False, True]),
        "episode": np.array([4, 4, 4, 9, 9, 9]),
        "step": np.array([0, 1, 2, 0, 1, 2]),
        "budget": np.array([1.0, 0.9, 0.8, 0.0, 0.1, 0.2]),
        "next_budget": np.array([0.9, 0.8, 0.7, 0.1, 0.2, 0.3]),
        "probability": np.array([0.5, 0.5, 1.0, 0.25, 0.25, 0.125]),
    }


def small(**changes):
    return TransitionBatch(**columns(**changes))


def full(**changes):
    return TransitionBatch(**columns(), **optional_columns() | {"n_actions": 7} | changes)


def assert_same(one, other):
    """Whether two batches hold the same numbers, of the same types."""
    ours, theirs = one.to_arrays(), other.to_arrays()
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        assert values.dtype == theirs[name].dtype, name
        np.testing.assert_array_equal(values, theirs[name], err_msg=name)
    assert one.n_actions == other.n_actions


def corridor_log(n_slots=20, n_steps=60, seed=0):
    """What a policy that plays at random sees and does in the corridors, in a batch of episodes."""
    env = gymnasium.make_vec(
        "bmdp/Corridors-v0", num_envs=n_slots, vectorization_mode="vector_entry_point"
    )
    n_actions, rng = int(env.single_action_space.n), np.random.default_rng(seed)
    state, _ = env.reset(seed=seed)
    number, step, over = np.arange(n_slots), np.zeros(n_slots, int), np.zeros(n_slots, bool)
    rows = []
    for _ in range(n_steps):
        action = rng.integers(n_actions, size=n_slots)
        after, reward, terminal, _, info = env.step(action)
        played = ~over  # the others began anew
        row = (state, action, reward, info["cost"], after, terminal, number, step)
        rows.append([np.array(column)[played] for column in row])
        state, over = after, terminal
        number = np.where(played, number, number + n_slots)
        step = np.where(played, step + 1, 0)
    env.close()
    names = ("state", "action", "reward", "cost", "next_state", "terminal", "episode", "step")
    held = {name: np.concatenate([row[k] for row in rows]) for k, name in enumerate(names)}
    chance = np.full(len(held["action"]), 1 / n_actions)
    return TransitionBatch(**held, probability=chance, n_actions=n_actions)
