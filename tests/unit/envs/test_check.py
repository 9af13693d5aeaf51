"""For each rule, an environment that breaks it and no other."""

import dataclasses
import itertools
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from bmdp import ConfigError, EnvError
from bmdp.envs import ENV_IDS
from bmdp.envs.check import CostEnvReport, check_cost_env
from bmdp.envs.finite import FiniteEnv
from bmdp.exact.textbook import branches, forever, ladder

PASSED = (
    "gymnasium's check_env passes",
    "each environment made is a new one",
    "actions are Discrete, from 0 on",
    "the reward is a finite number at every step",
    'info["cost"] is a finite number at reset and at every step',
    "seed and actions determine what comes back",
    "environments do not disturb each other",
    "seeds make a difference",
    "an episode of random actions ends within 1000 steps",
    "a step after the end is refused",
)


class Good(gymnasium.Env):
    """Keeps to all rules. Others change one thing."""

    action_space = spaces.Discrete(3)
    observation_space = spaces.Dict(
        {"number": spaces.Box(0.0, 1.0, (1,), np.float64), "time": spaces.Discrete(7)}
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.seen(), {"cost": 0.0}

    def step(self, action):
        if self.time == 6:
            raise RuntimeError("over")
        self.time += 1
        return self.seen(), self.reward(), self.time == 6, False, {"cost": self.cost()}

    def seen(self):
        return {"number": self.np_random.random(1), "time": self.time}

    def reward(self):
        return 1.0

    def cost(self):
        return 0.5


def broken_by(**changes):
    """A class that differs from `Good` in some members."""
    return type("Broken", (Good,), changes)


@pytest.mark.parametrize("name", ENV_IDS.values())
def test_our_environments_keep_to_all_rules(name):
    assert check_cost_env(name) == CostEnvReport(PASSED, ())


def test_so_does_a_finite_model():
    report = check_cost_env(lambda: FiniteEnv(branches().model))
    assert report == CostEnvReport(PASSED, ())


def test_a_good_environment_passes_and_its_report_cannot_be_changed():
    report = check_cost_env(Good)
    assert report == CostEnvReport(PASSED, ())
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.notes = ()


def test_all_environments_made_are_closed():
    made, closed = [], []

    def make():
        made.append(broken_by(close=lambda self: closed.append(self))())
        return made[-1]

    check_cost_env(make)
    assert len(made) == 3
    assert sorted(map(id, made)) == sorted(map(id, closed))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (object, "TypeError: The environment must inherit from the gymnasium.Env class"),
        (broken_by(observation_space=spaces.Discrete(2)), "AssertionError: The first element"),
        (broken_by(reset=lambda self: (0, {})), "The first element"),
        (broken_by(action_space=3), "TypeError: action space does not inherit"),
        (
            broken_by(step=lambda self, action: (self.seen(), 0.0, False, {})),
            "not enough values to unpack",
        ),
    ],
)
def test_what_gymnasium_does_not_accept_is_an_error(make, said):
    with pytest.raises(EnvError, match=f"gymnasium's check_env must pass; .*{said}"):
        check_cost_env(make)


def test_what_gymnasium_warns_of_is_a_note():
    endless = spaces.Dict(Good.observation_space.spaces | {"number": spaces.Box(-np.inf, 1, (1,))})
    number = {"seen": lambda self: {"number": np.zeros(1, np.float32), "time": self.time}}
    report = check_cost_env(broken_by(observation_space=endless, **number))
    assert report.notes == (
        "seeds 0 to 3 all give the same: nothing seems to be left to chance",
        "WARN: A Box observation space minimum value is -infinity. This is probably too low.",
    )


def test_what_an_environment_warns_of_again_and_again_is_one_note():
    def cost(self):
        warnings.warn("slow", stacklevel=1)
        return 0.0

    def close(self):
        warnings.warn("closed", stacklevel=1)

    assert check_cost_env(broken_by(cost=cost, close=close)).notes == ("slow", "closed")


def test_a_wrapper_is_checked_without_a_note():
    assert check_cost_env(lambda: gymnasium.Wrapper(Good())).notes == ()


def test_the_same_environment_twice_is_an_error():
    env = Good()
    with pytest.raises(EnvError, match="must be a new one; the same object came twice"):
        check_cost_env(lambda: env)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (spaces.Box(0.0, 1.0, (1,)), "only Discrete actions are supported; got Box"),
        (spaces.Discrete(3, start=1), "actions must be counted from 0; got Discrete"),
    ],
)
def test_actions_that_are_not_discrete_from_zero_on_are_an_error(space, said):
    with pytest.raises(EnvError, match=f"actions must be Discrete, from 0 on; {said}"):
        check_cost_env(broken_by(action_space=space))


def test_a_reset_without_cost_is_an_error():
    class Broken(Good):
        def reset(self, **kwargs):
            return super().reset(**kwargs)[0], {"else": 1}

    with pytest.raises(EnvError, match=r"none among \['else'\] at reset of episode 1"):
        check_cost_env(Broken)


def test_a_step_without_cost_is_an_error():
    class Broken(Good):
        def step(self, action):
            answer = super().step(action)
            return answer if self.time < 4 else (*answer[:4], {})

    with pytest.raises(EnvError, match=r"none among \[\] at step 4 of episode 1"):
        check_cost_env(Broken)


@pytest.mark.parametrize("bad", [np.nan, -np.inf, None, "free", np.zeros(1), 1j], ids=repr)
def test_a_cost_that_is_no_finite_number_is_an_error(bad):
    late = broken_by(cost=lambda self: bad if self.time == 3 else 0.0)
    with pytest.raises(EnvError, match=r"finite real number .*; got .* at step 3 of episode 1"):
        check_cost_env(late)


@pytest.mark.parametrize("bad", [np.nan, np.inf, None, np.zeros(2)], ids=repr)
def test_a_reward_that_is_no_finite_number_is_an_error(bad):
    late = broken_by(reward=lambda self: bad if self.time == 3 else 0.0)
    with pytest.raises(EnvError, match=r"the reward must be .*; got .* at step 3 of episode 1"):
        check_cost_env(late)


def test_a_step_that_raises_within_an_episode_is_an_error():
    class Broken(Good):
        def cost(self):
            return 1 / (5 - self.time)

    with pytest.raises(EnvError, match=r"ZeroDivisionError.* at step 5 of episode 1"):
        check_cost_env(Broken)


def test_a_reset_that_raises_is_an_error():
    class Broken(Good):
        n_episodes = 0

        def reset(self, *, seed=None, options=None):
            self.n_episodes = 1 if seed == 0 else self.n_episodes + 1
            if self.n_episodes == 3 and seed is None and self.time == 6:
                raise OSError("gone")
            return super().reset(seed=seed)

    with pytest.raises(EnvError, match="OSError: gone at reset of episode 3"):
        check_cost_env(Broken)


def changed_at_step_four(what):
    """An environment of which one thing at step 4 counts how often it came."""

    class Broken(Good):
        def step(self, action):
            names = ("observation", "reward", "terminated", "truncated")
            answer = dict(zip((*names, "info"), super().step(action), strict=True))
            if self.time == 4:
                count = next(counter)
                new = count > 9 if what in ("terminated", "truncated") else float(count)
                if what == "observation":
                    new = {"number": np.array([1 / (1 + count)]), "time": 4}
                answer |= {"info": {"cost": new}} if what == "cost" else {what: new}
            return tuple(answer.values())

    counter = itertools.count()
    return Broken


@pytest.mark.parametrize("what", ["observation", "reward", "cost", "terminated", "truncated"])
def test_what_seed_and_actions_do_not_determine_is_an_error(what):
    with pytest.raises(EnvError, match=f"must determine .*; the {what} at step 4 of episode 1 was"):
        check_cost_env(changed_at_step_four(what))


def test_an_environment_that_remembers_former_episodes_is_an_error():
    class Broken(Good):
        n_steps = 0

        def step(self, action):
            self.n_steps += 1
            return super().step(action)

        def cost(self):
            return 1.0 * (self.n_steps > 50)

    with pytest.raises(EnvError, match=r"the cost at .* was 0\.0 at first, and 1\.0 when played"):
        check_cost_env(Broken, n_steps=40)


def test_environments_that_differ_from_each_other_are_an_error():
    numbers = itertools.count()

    class Broken(Good):
        def __init__(self):
            self.number = next(numbers)

        def cost(self):
            return float(self.number)

    with pytest.raises(EnvError, match=r"was 1\.0 at first, and 2\.0 in another environment"):
        check_cost_env(Broken)


def test_environments_that_share_their_state_are_an_error():
    class Broken(Good):
        clock = [0]  # noqa: RUF012

        def reset(self, **kwargs):
            self.clock[0] = 0
            return super().reset(**kwargs)

        def cost(self):
            self.clock[0] += 1
            return float(self.clock[0])

    with pytest.raises(EnvError, match=r"must not disturb each other; the cost .* in turn"):
        check_cost_env(Broken)


def test_a_shared_random_generator_is_an_error():
    shared = [np.random.default_rng(0)]

    class Broken(Good):
        def reset(self, *, seed=None, options=None):
            if seed is not None:
                shared[0] = np.random.default_rng(seed)
            return super().reset(seed=seed)

        def cost(self):
            return shared[0].random()

    with pytest.raises(EnvError, match="must not disturb each other"):
        check_cost_env(Broken)


def test_the_second_of_two_may_be_the_one_disturbed():
    last = [None]

    class Broken(Good):
        def reset(self, **kwargs):
            last[0] = self
            return super().reset(**kwargs)

        def cost(self):
            is_disturbed = last[0] is not self and self.np_random_seed == 1
            last[0] = self
            return float(is_disturbed)

    with pytest.raises(EnvError, match="must not disturb each other"):
        check_cost_env(Broken)


def test_seeds_that_make_no_difference_are_a_note():
    report = check_cost_env(lambda: FiniteEnv(ladder().model))
    assert "seeds make a difference" not in report.passed
    assert report.notes == ("seeds 0 to 3 all give the same: nothing seems to be left to chance",)


def test_texts_and_tuples_can_be_observed():
    space = spaces.Dict({"number": spaces.Text(5), "pair": spaces.Tuple([spaces.Discrete(2)] * 2)})
    seen = {"seen": lambda self: {"number": "abc", "pair": (0, self.np_random.integers(2))}}
    report = check_cost_env(broken_by(observation_space=space, **seen))
    assert "seeds make a difference" in report.passed


def test_a_missing_number_is_the_same_when_it_comes_again():
    late = {"seen": lambda self: {"number": np.full(1, self.missing()), "time": self.time}}
    make = broken_by(missing=lambda self: np.nan if self.time == 4 else 0.5, **late)
    assert check_cost_env(make).passed == (*PASSED[:7], *PASSED[8:])


def test_a_shape_that_changes_is_a_difference():
    space = spaces.Sequence(spaces.Discrete(2), stack=True)
    seen = {"seen": lambda self: np.zeros(self.np_random.integers(1, 3), np.int64)}
    report = check_cost_env(broken_by(observation_space=space, **seen))
    assert "seeds make a difference" in report.passed


def test_an_episode_that_does_not_end_is_a_note():
    report = check_cost_env(lambda: FiniteEnv(forever().model), n_steps=20, episode_limit=50)
    assert "no episode ended within 50 steps of random actions" in report.notes[1]
    assert report.passed == PASSED[:7]


def test_a_step_that_is_answered_after_the_end_is_a_note():
    def step(self, action):
        self.time = min(self.time + 1, 6)
        return self.seen(), 1.0, False, self.time == 6, {"cost": 0}

    report = check_cost_env(broken_by(step=step))
    assert report.passed == PASSED[:-1]
    assert report.notes == ("a step after the end is answered rather than refused: mind to reset",)


@pytest.mark.parametrize("settings", [{"n_steps": 0}, {"episode_limit": 0}])
def test_counts_below_one_are_refused(settings):
    with pytest.raises(ConfigError, match="must be a whole number from 1 to"):
        check_cost_env(Good, **settings)


def test_an_id_that_is_not_known_is_refused():
    with pytest.raises(ConfigError, match="make must name an environment; got 'bmdp/Nothing-v0'"):
        check_cost_env("bmdp/Nothing-v0")
