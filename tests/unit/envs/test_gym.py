"""What all tasks must do as Gymnasium environments."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from bmdp import ConfigError, DataError, EnvError
from bmdp.envs import ENV_IDS
from bmdp.envs.registry import register
from bmdp.envs.scripted import RULES, ScriptedPolicy
from contracts.policy import Case, contract_tests

IDS = pytest.mark.parametrize("env_id", ENV_IDS.values())


def batch(env_id, n, **settings):
    return gymnasium.make_vec(
        env_id, num_envs=n, vectorization_mode="vector_entry_point", **settings
    )


def single(env_id, **settings):
    return gymnasium.make(env_id, **settings).unwrapped


def test_what_gymnasium_knows_already_is_not_registered_again():
    known = {env_id: gymnasium.registry[env_id] for env_id in ENV_IDS.values()}
    register()  # a second registration would warn
    assert all(gymnasium.registry[env_id] is spec for env_id, spec in known.items())


def test_what_gymnasium_does_not_know_is_registered(monkeypatch):
    spec = gymnasium.registry["bmdp/Corridors-v0"]
    monkeypatch.delitem(gymnasium.registry, "bmdp/Corridors-v0")
    register()
    assert gymnasium.registry["bmdp/Corridors-v0"] == spec


@IDS
def test_a_single_environment_is_the_slot_of_a_batch_with_its_seed(env_id):
    many, ones = batch(env_id, 5), [single(env_id) for _ in range(5)]
    seen, info = many.reset(seed=40)
    alone = [env.reset(seed=40 + i) for i, env in enumerate(ones)]
    actions = np.random.default_rng(0).integers(1, 4, (40, 5))
    over = np.zeros(5, bool)
    for row in actions:
        for i, (first, extra) in enumerate(alone):
            assert (seen[i] == first).all()
            assert info["cost"][i] == extra["cost"]
        seen, rewards, ended, truncated, info = many.step(row)
        assert not truncated.any()
        for i, env in enumerate(ones):
            if over[i]:  # starts anew, and earns and pays nothing
                alone[i] = env.reset()
                assert (rewards[i], info["cost"][i], ended[i]) == (0, 0, False)
            else:
                first, reward, is_over, _, extra = env.step(int(row[i]))
                alone[i] = (first, extra)
                assert (reward, is_over) == (rewards[i], ended[i])
        over = ended
    assert info["_cost"].all()


@IDS
def test_the_same_seed_plays_the_same_and_later_episodes_differ(env_id):
    env = single(env_id)
    runs = []
    for seed in (7, 7, None, 8):
        env.reset(seed=seed)
        runs.append([env.step(a)[0].tolist() for a in (2, 2, 1)])
    assert runs[0] == runs[1]
    assert runs[0] != runs[2] != runs[3]


@IDS
def test_without_a_seed_environments_differ(env_id):
    seen = []
    for _ in range(2):
        env = single(env_id)
        env.reset()
        seen.append(env.step(2)[0].tolist())
    assert seen[0] != seen[1]
    many = batch(env_id, 2)
    many.reset()
    first, *_ = many.step(np.array([2, 2]))
    assert first[0].tolist() != first[1].tolist()


@IDS
def test_the_metadata_describe_the_task(env_id):
    env = single(env_id)
    assert len(env.metadata["action_names"]) == env.action_space.n
    assert env.metadata["budget_range"] == (0.0, 1.0)
    assert (env.metadata["gamma"], env.metadata["horizon"]) in ((1.0, 9), (1.0, 10), (0.9, 15))
    assert batch(env_id, 2).metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert gymnasium.spec(env_id).max_episode_steps is None


@IDS
def test_observations_are_in_their_space(env_id):
    env = batch(env_id, 50)
    seen, _ = env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(30):
        assert env.observation_space.contains(seen)
        seen, *_ = env.step(rng.integers(0, env.single_action_space.n, 50))


@IDS
@pytest.mark.parametrize(
    ("action", "message"),
    [
        (99, r"from 0 to \d; got 99 at \[0\]"),
        (-1, "got -1"),
        (1.5, "whole numbers of shape"),
        ([1, 2], r"of shape \[1\]; got int64 of shape \[2\]"),
        ("up", "whole numbers"),
    ],
)
def test_what_is_no_action_is_refused(env_id, action, message):
    env = single(env_id)
    env.reset(seed=0)
    with pytest.raises(DataError, match=message):
        env.step(action)


@IDS
def test_a_batch_needs_as_many_actions_as_slots(env_id):
    env = batch(env_id, 3)
    with pytest.raises(EnvError, match="call reset before step"):
        env.step(np.zeros(3, int))
    env.reset(seed=0)
    with pytest.raises(DataError, match=r"of shape \[3\]"):
        env.step(np.zeros(2, int))


@IDS
def test_a_step_after_the_end_is_refused(env_id):
    env = single(env_id)
    with pytest.raises(EnvError, match="call reset before step"):
        env.step(0)
    env.reset(seed=0)
    for _ in range(20):
        *_, ended, _, _ = env.step(1)
        if ended:
            break
    with pytest.raises(EnvError, match="the episode is over"):
        env.step(1)


@IDS
def test_bad_settings_of_a_batch_are_refused(env_id):
    with pytest.raises(ConfigError, match="num_envs must be a whole number from 1 on"):
        type(batch(env_id, 1))(num_envs=0)
    with pytest.raises(ConfigError, match="cannot be rendered"):
        type(batch(env_id, 1))(num_envs=1, render_mode="rgb_array")
    with pytest.raises(ConfigError, match="render_mode must be one of"):
        type(single(env_id))(render_mode="cinema")


@IDS
@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_out_of_range_are_refused(env_id, seed):
    with pytest.raises(ConfigError, match="seed must be a whole number from 0 to 4294967295"):
        single(env_id).reset(seed=seed)
    with pytest.raises(ConfigError, match="seed must be"):
        batch(env_id, 2).reset(seed=[0, seed])


@IDS
def test_slots_may_be_seeded_one_by_one(env_id):
    env, other = batch(env_id, 2), batch(env_id, 1)
    env.reset(seed=[5, 9])
    other.reset(seed=9)
    assert (env.step(np.array([2, 2]))[0][1] == other.step(np.array([2]))[0][0]).all()


SIZES = {"corridors": (2, 5), "slot-filling": (26, 7), "two-way": (24, 5)}  # numbers seen, actions


def scripted_case(rule):
    n_seen, n_actions = SIZES[rule.split("/")[0]]
    return Case(ScriptedPolicy(rule), np.random.default_rng(0).random((5, n_seen)), n_actions)


SCRIPTED = {rule: scripted_case(rule) for rule in RULES}


test_contract, test_saving = contract_tests(SCRIPTED)


def test_an_unknown_rule_is_refused():
    with pytest.raises(ConfigError, match="rule must be one of corridors/risky"):
        ScriptedPolicy("corridors/fast")
