"""Whatever an environment shows is a row of numbers, and its actions are counted from 0."""

import copy
import dataclasses

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

import bmdp
from bmdp import EnvError
from bmdp.envs.slots import BatchedSlots, SingleSlots, open_slots
from bmdp.learn.collect import collect
from bmdp.policies import RandomBudgetedPolicy

NESTED = spaces.Dict(
    {
        "where": spaces.Tuple((spaces.Discrete(5), spaces.Box(0, 1, (2, 2), np.float32))),
        "flags": spaces.MultiBinary(3),
        "doors": spaces.Dict({"b": spaces.MultiDiscrete([3, 4]), "a": spaces.Discrete(4, start=2)}),
    }
)
SPACES = {
    "number": (spaces.Discrete(5), ()),
    "number from 3": (spaces.Discrete(5, start=3), ()),
    "numbers": (spaces.MultiDiscrete([3, 4]), (2,)),
    "flags": (spaces.MultiBinary(3), (3,)),
    "box": (spaces.Box(0, 1, (2,), np.float32), (2,)),
    "one number in a box": (spaces.Box(0, 1, (), np.float64), ()),
    "picture": (spaces.Box(0, 255, (4, 5, 3), np.uint8), (60,)),
    "pair": (spaces.Tuple((spaces.Discrete(5), spaces.Box(0, 1, (2,)))), (3,)),
    "nested": (NESTED, (11,)),
}
each_space = pytest.mark.parametrize(("space", "shape"), SPACES.values(), ids=SPACES.keys())


class Shows(gymnasium.Env):
    """Shows samples of a space for three steps; the last action pays and costs, the others do not.

    Its actions are counted from a number on.
    """

    metadata = {"render_modes": [], "horizon": 3, "gamma": 1.0}  # noqa: RUF012

    def __init__(self, space=NESTED, first=0):
        self.observation_space = copy.deepcopy(space)  # with random numbers of its own
        self.action_space = spaces.Discrete(3, start=first)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.n_steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.n_steps += 1
        number = int(action - self.action_space.start)
        cost = {"cost": 0.5 * (number == 2)}
        return self.observation_space.sample(), float(number), self.n_steps == 3, False, cost


class ShowsMany(gymnasium.vector.VectorEnv):
    """The same, as one batch."""

    metadata = {**Shows.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, num_envs=1, space=NESTED, first=0):
        self.num_envs = num_envs
        self.envs = [Shows(space, first) for _ in range(num_envs)]
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def _joined(self, seen):
        empty = create_empty_array(self.single_observation_space, self.num_envs)
        return concatenate(self.single_observation_space, seen, empty)

    def reset(self, *, seed=None, options=None):
        return self._joined([e.reset(seed=s)[0] for e, s in zip(self.envs, seed, strict=True)]), {}

    def step(self, actions):
        found = [e.step(a) for e, a in zip(self.envs, actions, strict=True)]
        seen, rewards, ends, cuts, info = zip(*found, strict=True)
        costs = np.array([one["cost"] for one in info])
        return (
            self._joined(seen),
            np.array(rewards),
            np.array(ends),
            np.array(cuts),
            {"cost": costs},
        )


def single(space=NESTED, first=0):
    kwargs = {"space": space, "first": first}
    return EnvSpec("tests/Shows-v0", entry_point=Shows, kwargs=kwargs)


def batched(space=NESTED, first=0):
    return dataclasses.replace(single(space, first), vector_entry_point=ShowsMany)


# States


@each_space
def test_states_are_numbers_or_rows_of_numbers(space, shape):
    slots = SingleSlots(single(space))
    states = slots.reset([4, 5])
    assert states.shape == (2, *shape)
    assert states.dtype.kind in "iuf"
    after = slots.step(np.zeros(2, int), np.ones(2, bool)).states
    assert after.shape == states.shape
    assert after.dtype == states.dtype
    slots.close()


@each_space
def test_a_batch_shows_what_single_environments_show(space, shape):
    one, other = BatchedSlots(batched(space)), SingleSlots(single(space))
    np.testing.assert_array_equal(one.reset([3, 9]), other.reset([3, 9]))
    for action in (0, 2):
        played = np.full(2, action), np.ones(2, bool)
        for ours, theirs in zip(one.step(*played), other.step(*played), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_parts_come_in_the_order_of_the_space():
    """By name in a dictionary, and by place in a tuple; a number is one column."""
    seen = copy.deepcopy(NESTED).sample()
    (state,) = SingleSlots(single())._state(seen)
    where, box = seen["where"]
    expected = [seen["doors"]["a"], *seen["doors"]["b"], *seen["flags"], where, *box.ravel()]
    np.testing.assert_allclose(state, np.array(expected, float))


@pytest.mark.parametrize("kind", [single, batched])
def test_what_is_no_number_is_refused(kind):
    space = spaces.Dict({"said": spaces.Text(5), "place": spaces.Discrete(3)})
    with pytest.raises(EnvError, match=r"tests/Shows-v0 must show numbers: .* has Text"):
        open_slots(kind(space))


# Actions


@pytest.mark.parametrize("kind", [single, batched])
def test_actions_are_counted_from_0_and_played_as_the_environment_counts_them(kind):
    slots = open_slots(kind(first=5))
    assert slots.action_space == spaces.Discrete(3)
    slots.reset([1, 2])
    outcome = slots.step(np.array([0, 2]), np.ones(2, bool))
    assert outcome.rewards.tolist() == [0.0, 2.0]
    assert outcome.costs.tolist() == [0.0, 0.5]


@pytest.mark.parametrize("kind", [single, batched])
def test_what_is_collected_has_the_actions_that_were_played(kind):
    policy = RandomBudgetedPolicy(3, 0.0, 1.0)
    batch = collect(policy, kind(first=5), range(10), budgets=np.full(10, 0.5), seed=0)
    assert batch.n_actions == 3
    np.testing.assert_array_equal(batch.reward, batch.action)


def test_a_policy_that_was_learned_plays_the_right_actions():
    """The best action within a budget of 0 earns 1 a step; without a limit the last one earns 2."""
    spec = single(spaces.Discrete(2), first=5)
    found = bmdp.fit(spec, episodes=100)
    played = bmdp.evaluate(found.policy, spec, budgets=[0.0, 1.5], n_episodes=20, seed=1)
    np.testing.assert_allclose(played.reward_mean, [3.0, 6.0])
    np.testing.assert_allclose(played.cost_mean, [0.0, 1.5])


def test_a_fit_learns_from_what_has_parts():
    found = bmdp.fit(single(), episodes=50)
    assert found.candidates[0].is_taken
    played = bmdp.evaluate(found.policy, single(), budgets=[0.0, 1.5], n_episodes=20, seed=1)
    assert played.reward_mean[0] <= 3.5
    assert played.reward_mean[1] >= 5.5
