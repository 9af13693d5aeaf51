"""Stand-ins have the documented interfaces of Safety-Gymnasium and MO-Gymnasium."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from bmdp import ConfigError, DataError, EnvError
from bmdp.envs.adapters import CostFunction, SixTupleAdapter, VectorRewardAdapter, finite_number
from bmdp.envs.check import check_cost_env

BAD_NUMBERS = [np.nan, np.inf, None, "1", 1j, [1.0], np.zeros(2)]


class Walk(gymnasium.Env):
    """A noisy walk of five steps; its numbers are put into the form of each convention."""

    def __init__(self, action_space=None):
        self.action_space = spaces.Discrete(2) if action_space is None else action_space
        self.observation_space = spaces.Box(-100.0, 100.0, (2,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = 0.0, 0
        return self.seen(), {"options": options}

    def step(self, action):
        self.place += (1 if action else -1) + self.np_random.normal()
        self.time += 1
        return self.seen(), self.reward(), self.time == 5, False, {"place": self.place}

    def seen(self):
        return np.array([self.place, self.time])

    def reward(self):
        return self.place


class SafeWalk:
    """As in Safety-Gymnasium, without being a `gymnasium.Env`."""

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012
    render_mode = "ansi"

    def __init__(self, costs=None, **settings):
        self.walk, self.costs, self.is_closed = Walk(**settings), costs, False
        self.action_space = self.walk.action_space
        self.observation_space = self.walk.observation_space

    def reset(self, *, seed=None, options=None):
        return self.walk.reset(seed=seed, options=options)

    def step(self, action):
        seen, reward, terminated, truncated, info = self.walk.step(action)
        cost = abs(reward) if self.costs is None else self.costs[self.walk.time - 1]
        return seen, reward, cost, np.bool_(terminated), np.bool_(truncated), info

    def render(self):
        return f"at {self.walk.place}"

    def close(self):
        self.is_closed = True


class VectorWalk(Walk):
    """As in MO-Gymnasium."""

    def __init__(self, rewards=None, **settings):
        super().__init__(**settings)
        self.rewards = rewards
        self.reward_space = spaces.Box(-100.0, 100.0, (3,), np.float32)

    def reward(self):
        if self.rewards is not None:
            return self.rewards[self.time - 1]
        return np.array([self.place, -abs(self.place), 7.0], np.float32)


def paid_for_time(observation, action, next_observation, info):
    return next_observation[1] - observation[1] + 10 * action


ADAPTED = {
    "six": lambda: SixTupleAdapter(SafeWalk()),
    "vector": lambda: VectorRewardAdapter(VectorWalk()),
    "function": lambda: CostFunction(Walk(), paid_for_time),
}


@pytest.mark.parametrize("name", ADAPTED)
def test_an_adapted_environment_is_one_of_ours(name):
    report = check_cost_env(ADAPTED[name])
    assert "seeds make a difference" in report.passed
    assert report.notes == ("a step after the end is answered rather than refused: mind to reset",)


@pytest.mark.parametrize("name", ADAPTED)
def test_the_cost_of_a_reset_is_zero_and_the_rest_of_info_stays(name):
    env = ADAPTED[name]()
    _, info = env.reset(seed=0, options={"a": 1})
    assert info == {"options": {"a": 1}, "cost": 0.0}
    info = env.step(1)[4]
    assert set(info) == {"place", "cost"}
    assert type(info["cost"]) is float


def test_the_third_of_six_becomes_the_cost():
    env, inner = SixTupleAdapter(SafeWalk()), SafeWalk()
    env.reset(seed=3)
    inner.reset(seed=3)
    for _ in range(5):
        seen, reward, terminated, truncated, info = env.step(1)
        expected = inner.step(1)
        assert seen.tolist() == expected[0].tolist()
        assert (reward, info["cost"]) == expected[1:3]
        assert (terminated, truncated) == expected[3:5]
    assert type(terminated) is bool


def test_the_six_tuple_adapter_passes_on_what_else_there_is():
    inner = SafeWalk()
    env = SixTupleAdapter(inner)
    env.reset(seed=0)
    assert (env.render(), env.render_mode, env.metadata) == ("at 0.0", "ansi", SafeWalk.metadata)
    assert env.action_space is inner.action_space
    env.close()
    assert inner.is_closed


def test_the_six_tuple_adapter_needs_no_more_than_four_attributes():
    class Bare:
        action_space, observation_space = spaces.Discrete(1), spaces.Discrete(1)

        def reset(self, seed, options):
            return 0, {}

        def step(self, action):
            return 0, 1.0, True, False, False, {}

    env = SixTupleAdapter(Bare())
    assert (env.render_mode, env.metadata, env.reset()) == (
        None,
        gymnasium.Env.metadata,
        (0, {"cost": 0.0}),
    )
    assert env.step(0) == (0, 1.0, False, False, {"cost": 1.0})
    env.close()


def test_what_lacks_a_method_is_named():
    with pytest.raises(ConfigError, match="object lacks reset, step, action_space, observation_sp"):
        SixTupleAdapter(object())


@pytest.mark.parametrize(("answer", "got"), [((1, 2, 3, 4, 5), "5 of them"), ([0] * 6, "list")])
def test_a_step_that_does_not_return_six_is_named(answer, got):
    inner = SafeWalk()
    env = SixTupleAdapter(inner)
    env.reset(seed=0)
    env.step(0)
    inner.step = lambda action: answer
    with pytest.raises(DataError, match=f"got {got} at step 2"):
        env.step(0)


@pytest.mark.parametrize("bad", BAD_NUMBERS, ids=repr)
def test_a_cost_that_is_no_finite_number_is_named_with_its_step(bad):
    costs = [0.0, 1, bad]
    six = SixTupleAdapter(SafeWalk(costs=costs))
    function = CostFunction(Walk(), lambda seen, action, after, info: costs[int(seen[1])])
    for env in (six, function):
        env.reset(seed=0)
        env.step(0)
        env.reset()  # steps are counted from here
        env.step(0)
        env.step(0)
        with pytest.raises(DataError, match=r"cost must be a finite real number; got .* at step 3"):
            env.step(0)


def test_reward_and_cost_are_taken_out_of_the_vector():
    env = VectorRewardAdapter(VectorWalk())
    env.reset(seed=0)
    _, reward, _, _, info = env.step(1)
    assert reward == pytest.approx(info["place"])
    assert info["cost"] == pytest.approx(abs(info["place"]))
    assert type(reward) is float


def test_other_places_and_signs_can_be_chosen():
    env = VectorRewardAdapter(VectorWalk(), reward_index=2, cost_index=0, cost_sign=0.5)
    env.reset(seed=0)
    _, reward, _, _, info = env.step(0)
    assert (reward, info["cost"]) == (7.0, pytest.approx(info["place"] / 2))


def test_the_cost_of_nothing_is_not_minus_zero():
    env = VectorRewardAdapter(VectorWalk(rewards=[[1.0, 0.0]]))
    env.reset(seed=0)
    assert str(env.step(0)[4]["cost"]) == "0.0"


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (1.0, r"shape \[R\], R above 1; got shape \[\] at step 1"),
        ([1.0], r"got shape \[1\] at step 1"),
        ([[1.0, 2.0]], r"got shape \[1, 2\] at step 1"),
        ([1.0, np.nan], r"cost must be a finite real number; got .*nan.* at step 1"),
        ([np.inf, 0.0], r"reward must be a finite real number; got .*inf.* at step 1"),
    ],
)
def test_a_reward_that_is_no_vector_of_numbers_is_named_with_its_step(reward, message):
    env = VectorRewardAdapter(VectorWalk(rewards=[reward]))
    env.reset(seed=0)
    with pytest.raises(DataError, match=message):
        env.step(0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reward_index": -1}, "reward_index must be a whole number from 0 on; got -1"),
        ({"cost_index": 1.0}, r"cost_index must be a whole number; got 1\.0"),
        ({"reward_index": 1}, "must differ; got 1 for both"),
        ({"cost_sign": 0}, "cost_sign must be a finite number other than 0; got 0"),
        ({"cost_sign": np.inf}, "cost_sign must be a finite number other than 0; got inf"),
    ],
)
def test_places_and_signs_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        VectorRewardAdapter(VectorWalk(), **settings)


def test_a_cost_function_is_given_what_was_seen_before_and_after():
    given = []

    def cost(*arguments):
        given.append(arguments)
        return 0

    env = CostFunction(Walk(), cost)
    first, _ = env.reset(seed=0)
    start = first.copy()
    first[:] = 99  # what the caller does with it does not matter
    second = env.step(1)[0]
    third = env.step(0)[0]
    for (before, action, after, info), expected in zip(
        given, [(start, 1, second), (second, 0, third)], strict=True
    ):
        assert before.tolist() == expected[0].tolist()
        assert (action, after.tolist()) == (expected[1], expected[2].tolist())
        assert info["place"] == after[0]


def test_a_cost_function_must_be_a_function():
    with pytest.raises(ConfigError, match=r"cost must be a function; got 1\.0"):
        CostFunction(Walk(), 1.0)


def test_without_a_reset_nothing_was_seen_yet():
    with pytest.raises(EnvError, match="call reset before step"):
        CostFunction(Walk(), paid_for_time).step(0)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(-1, 1, (2,)), r"only Discrete actions are supported; got Box"),
        (spaces.MultiDiscrete([2, 2]), "only Discrete actions are supported; got MultiDiscrete"),
        (spaces.Discrete(2, start=1), "must be counted from 0; got Discrete"),
    ],
)
def test_actions_that_are_not_discrete_are_refused(space, message):
    with pytest.raises(EnvError, match=message):
        SixTupleAdapter(SafeWalk(action_space=space))
    with pytest.raises(EnvError, match=message):
        VectorRewardAdapter(VectorWalk(action_space=space))
    with pytest.raises(EnvError, match=message):
        CostFunction(Walk(action_space=space), paid_for_time)


def test_what_cannot_be_an_array_is_no_number():
    assert finite_number([[1.0], [1.0, 2.0]]) is None
