"""Environments that say which actions are available: slots, episodes, collected batches."""

import dataclasses

import gymnasium
import numpy as np
import pytest

import masks
from bmdp import BudgetStatus, EnvError, EpisodeStreams, PolicyError, evaluate
from bmdp.envs import ScriptedPolicy, check_cost_env
from bmdp.envs.episodes import play_episode, play_episodes
from bmdp.envs.slots import BatchedSlots, SingleSlots, find_spec, open_slots
from bmdp.learn.auto import _step_seconds
from bmdp.learn.collect import collect
from bmdp.learn.shelf import Shelf
from bmdp.policies import (
    ExploringPolicy,
    HullPolicy,
    MultiplierPolicy,
    PriceDial,
    TabularQ,
    UniformPolicy,
)
from masks import BATCHED, SINGLE, Clinic

masks.register()
UNIFORM = UniformPolicy(3, 0.0, 1.0)
Q_R, Q_C = np.zeros((2, 4, 3, 2))
Q_R[:, 1], Q_R[:, 2], Q_C[:, 2] = 1.0, 3.0, 1.0
GREEDY = HullPolicy(TabularQ(Q_R, Q_C), [0.0, 1.0])


def spec_of(**changes):
    """The clinic with other methods."""
    made = type("Changed", (Clinic,), changes)
    return dataclasses.replace(find_spec(SINGLE), entry_point=made)


def steps(policy, env, n=20, **settings):
    streams = EpisodeStreams.named(0, "masks", range(n))
    how = {"budgets": 1.0, "seeds": range(n), "streams": streams, **settings}
    spec = find_spec(env) if isinstance(env, str) else env
    return list(play_episodes(policy, open_slots(spec), **how))


def test_single_and_batched_slots_have_the_same_masks():
    assert isinstance(open_slots(find_spec(SINGLE)), SingleSlots)
    assert isinstance(open_slots(find_spec(BATCHED)), BatchedSlots)
    one, two = (steps(UNIFORM, env) for env in (SINGLE, BATCHED))
    assert len(one) == len(two) == 3
    for left, right in zip(one, two, strict=True):
        np.testing.assert_array_equal(left.available, right.available)
        np.testing.assert_array_equal(left.next_available, right.next_available)
        np.testing.assert_array_equal(left.actions, right.actions)
    assert len(np.unique(one[0].available, axis=0)) == 2
    assert not one[2].available[:, 0].any()
    assert one[2].next_available.all()  # nothing follows
    np.testing.assert_array_equal(one[0].next_available, one[1].available)


class Ending(Clinic):
    """One that may end at any visit, after which nothing can be done. At first one cannot wait."""

    def _info(self, cost=0.0):
        info = super()._info(cost)
        self.mask[0] = self.visit > 0
        return info

    def step(self, action):
        state, reward, ended, truncated, info = super().step(action)
        ended = ended or self.np_random.random() < 0.4
        if ended:
            info["action_mask"] = np.zeros(3, np.int8)
        return state, reward, bool(ended), truncated, info


class Endings(masks.Clinics):
    def __init__(self, num_envs=1):
        super().__init__(num_envs)
        self.envs = [Ending() for _ in range(num_envs)]


@pytest.mark.parametrize("vector", [None, Endings])
def test_after_the_end_a_mask_may_be_empty_and_ended_slots_play_what_there_is(vector):
    spec = dataclasses.replace(find_spec(SINGLE), entry_point=Ending, vector_entry_point=vector)
    played = steps(UNIFORM, spec, n=50)
    lengths = sum(step.going.astype(int) for step in played)
    assert set(lengths.tolist()) == {1, 2, 3}
    assert all(step.available[step.going].any(axis=1).all() for step in played)


@pytest.mark.parametrize("env", [SINGLE, BATCHED])
def test_collected_batches_have_masks_even_of_what_follows_a_cut(env):
    spec = dataclasses.replace(find_spec(env), max_episode_steps=2)
    batch = collect(UNIFORM, spec, range(40), budgets=np.ones(40), seed=0)
    assert batch.available.shape == batch.next_available.shape == (80, 3)
    assert batch.available[np.arange(80), batch.action].all()
    np.testing.assert_array_equal(batch.next_available[::2], batch.available[1::2])
    assert batch.truncated[1::2].all()
    assert not batch.next_available[1::2, 0].any()  # at the last visit one cannot wait
    assert 0 < batch.next_available[1::2, 2].mean() < 1


def test_without_masks_nothing_is_said_of_them():
    spec = find_spec("corridors")
    policy = UniformPolicy(5, 0.0, 1.0)
    batch = collect(policy, spec, range(2), budgets=np.ones(2), seed=0)
    assert batch.available is None
    assert batch.next_available is None


def test_the_best_that_is_available_is_played():
    found = evaluate(GREEDY, SINGLE, budgets=[0.0, 3.0], n_episodes=4_000, seed=0)
    np.testing.assert_allclose(found.cost_mean, [0.0, 0.5], atol=0.05)
    rewards = evaluate(
        PriceDial(TabularQ(Q_R, Q_C), [0.1, 0.0]), BATCHED, budgets=[1], n_episodes=4_000, seed=0
    )
    np.testing.assert_allclose(rewards.reward_mean, [6.0], atol=0.1)
    np.testing.assert_allclose(rewards.cost_mean, [1.5], atol=0.05)


def test_a_carried_price_knows_what_is_left_to_pay():
    """Budgets held are what the price costs from here: 1 where one can operate, 0 elsewhere."""
    dial = PriceDial(TabularQ(Q_R[..., :1], Q_C[..., :1]), [0.1])
    played = steps(MultiplierPolicy(dial, 0.0, 1.0), SINGLE)
    for step in played[1:]:
        np.testing.assert_array_equal(step.budgets, step.available[:, 2].astype(float))


def test_one_episode_is_played_by_the_mask():
    for seed in range(10):
        found = play_episode(GREEDY, find_spec(SINGLE), budget=3.0, seed=seed)
        assert all(step.available[0, step.actions[0]] for step in found.steps)


def test_random_actions_are_held_only_while_they_are_available():
    steps(ExploringPolicy(UNIFORM, UNIFORM, decay=0.0, hold=16), SINGLE, n=200)


@pytest.mark.parametrize("env", [SINGLE, BATCHED])
def test_the_pace_is_found_by_available_actions(env, tmp_path):
    assert _step_seconds(find_spec(env), 0.2, Shelf(None)) > 0


def test_the_check_of_an_environment_plays_available_actions():
    class Lenient(Clinic):
        """Gymnasium's own check plays any action at the first step."""

        n_bad = 0

        def step(self, action):
            if not self.mask[action]:
                Lenient.n_bad += 1
                action = 1
            return super().step(action)

    check_cost_env(Lenient, n_steps=200)
    assert Lenient.n_bad <= 10


# What is wrong is said


class Blind:
    """A policy that plays action 2 whatever it is told."""

    takes_masks, budget_range = True, (0.0, 1.0)

    def start(self, states, budgets, rng):
        return self

    budgets = np.zeros(20)

    def decide(self, states, available=None):
        return _decided(len(states))

    def observe(self, *told):
        pass


def _decided(n):
    from bmdp.policies import Decision

    return Decision(np.full(n, 2), np.zeros(n), np.full(n, BudgetStatus.SLACK))


def test_a_policy_that_plays_something_else_is_found_out():
    with pytest.raises(
        PolicyError, match=r"Blind chose action 2 of tests/Clinic-v0 where it is not"
    ):
        steps(Blind(), SINGLE)


def test_a_policy_that_takes_no_masks_cannot_play():
    with pytest.raises(PolicyError, match="cannot be told which actions are available"):
        steps(ScriptedPolicy("corridors/risky"), SINGLE)


def _with_mask(mask):
    def _info(self, cost=0.0):
        self.mask = np.ones(3)
        return {"cost": cost, "action_mask": mask}

    return {"_info": _info}


def _only(at_reset):
    def _info(self, cost=0.0):
        self.mask = np.ones(3, np.int8)
        told = {"action_mask": self.mask} if (self.visit == 0) == at_reset else {}
        return {"cost": cost, **told}

    return {"_info": _info}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            _with_mask(np.ones(2)),
            r"must give info\['action_mask'\] as 3 numbers, 0 or 1; got \[1.0",
        ),
        (_with_mask([0, 2, 1]), r"as 3 numbers, 0 or 1; got \[0, 2, 1\]"),
        (_with_mask(1), r"as 3 numbers, 0 or 1"),
        (_with_mask(np.zeros(3)), r"must leave an action in info\['action_mask'\] while"),
        (_only(at_reset=True), "at reset and at every step, or never"),
        (_only(at_reset=False), "at reset and at every step, or never"),
    ],
)
def test_a_mask_that_makes_no_sense_is_an_error(changes, message):
    with pytest.raises(EnvError, match=message):
        steps(UNIFORM, spec_of(**changes))


def test_gymnasium_batches_masks_as_they_are_read():
    """Those of `SyncVectorEnv`: an array `[N, A]`, and which slots it is of."""
    envs = gymnasium.vector.SyncVectorEnv([Clinic] * 3)
    _, info = envs.reset(seed=0)
    assert info["action_mask"].shape == (3, 3)
    assert info["_action_mask"].all()
