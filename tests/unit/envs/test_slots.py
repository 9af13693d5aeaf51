import dataclasses

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from bmdp import ConfigError, EnvError
from bmdp.envs.corridors import CorridorsVectorEnv
from bmdp.envs.slots import BatchedSlots, SingleSlots, find_spec, open_slots
from problems import Walk, walk_spec

ALL = np.ones(4, bool)


@pytest.mark.parametrize("name", ["slot-filling", "bmdp/SlotFilling-v0"])
def test_environments_are_found_by_short_name_and_by_id(name):
    assert find_spec(name).id == "bmdp/SlotFilling-v0"


def test_an_id_may_name_the_module_that_registers_it(tmp_path, monkeypatch):
    lines = (
        "import gymnasium",
        "gymnasium.register('Elsewhere-v0', entry_point='bmdp.envs.corridors:CorridorsEnv')",
    )
    (tmp_path / "elsewhere_envs.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert find_spec("elsewhere_envs:Elsewhere-v0").id == "Elsewhere-v0"
    finally:
        gymnasium.registry.pop("Elsewhere-v0", None)
    with pytest.raises(ConfigError, match=r"'nowhere_envs:Some-v0' needs the module nowhere_envs"):
        find_spec("nowhere_envs:Some-v0")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("corridor", "Did you mean 'corridors'"),
        ("bmdp/Coridors-v0", "Did you mean 'bmdp/Corridors-v0'"),
        ("bmdp/Corridors-v9", "Did you mean 'bmdp/Corridors-v0'"),
        ("xyzzy", "Short names are corridors, slot-filling"),
    ],
)
def test_an_unknown_name_brings_the_nearest_one(name, hint):
    with pytest.raises(ConfigError, match=f"no environment is called '{name}'.*{hint}"):
        find_spec(name)


def test_settings_of_a_specification_are_respected():
    spec = gymnasium.make("bmdp/Corridors-v0", height=4, observe_time=True).spec
    slots = open_slots(find_spec(spec))
    assert slots.state_space.shape == (3,)
    assert slots.facts == (1.0, 7)


def test_the_specification_of_a_batch_or_of_a_picture_will_do():
    batch = gymnasium.make_vec("bmdp/Corridors-v0", 3, "vector_entry_point", height=4)
    drawn = gymnasium.make("bmdp/Corridors-v0", height=4, render_mode="rgb_array")
    for spec in (batch.spec, drawn.spec):
        assert find_spec(spec).kwargs == {"height": 4}


@pytest.mark.parametrize("batched", [True, False])
def test_settings_that_the_environment_does_not_have_are_refused(batched):
    spec = dataclasses.replace(find_spec("corridors"), kwargs={"width": 4})
    if not batched:
        spec = dataclasses.replace(spec, vector_entry_point=None)
    with pytest.raises(ConfigError, match=r"does not take the settings \{'width': 4\}"):
        open_slots(spec)


def test_a_batch_and_single_environments_play_the_same():
    spec = find_spec("corridors")
    batch, singles = BatchedSlots(spec), SingleSlots(spec)
    seeds = [7, 3, 3, 2**32 - 1]
    np.testing.assert_array_equal(batch.reset(seeds), singles.reset(seeds))
    for action in (2, 1, 2):
        actions = np.full(4, action)
        for one, other in zip(batch.step(actions, ALL), singles.step(actions, ALL), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", [BatchedSlots, SingleSlots])
def test_slots_can_be_used_again_in_any_number(kind):
    slots = kind(find_spec("corridors"))
    first = slots.reset([5])
    assert len(slots.reset([1, 2, 3])) == 3
    slots.step(np.ones(3, int), ALL[:3])
    np.testing.assert_array_equal(slots.reset([5]), first)
    assert len(slots.step(np.ones(1, int), ALL[:1]).costs) == 1
    slots.close()


@pytest.mark.parametrize("kind", [BatchedSlots, SingleSlots])
def test_a_limit_of_time_ends_episodes_in_either_form(kind):
    slots = kind(dataclasses.replace(find_spec("corridors"), max_episode_steps=2))
    for _ in range(2):  # and again after a reset
        slots.reset([1, 2, 3, 4])
        assert not slots.step(np.ones(4, int), ALL).ended.any()
        assert slots.step(np.ones(4, int), ALL).ended.all()


def test_single_environments_are_not_stepped_after_their_end():
    slots = SingleSlots(walk_spec(longest=1))
    slots.reset([0, 1])
    assert slots.step(np.zeros(2, int), ALL[:2]).ended.all()
    slots.envs[1].unwrapped.left = 5
    step = slots.step(np.zeros(2, int), np.array([False, True]))
    assert step.costs.tolist() == [0.0, 1.0]
    assert step.ended.tolist() == [True, False]
    assert slots.envs[0].unwrapped.left == 0


def test_without_metadata_there_is_neither_discount_nor_horizon():
    assert open_slots(walk_spec()).facts == (1.0, None)


def test_an_environment_without_cost_is_refused():
    slots = open_slots(walk_spec(has_cost=False))
    slots.reset([0])
    with pytest.raises(EnvError, match=r"Walk-v0 must give info\['cost'\] at every step"):
        slots.step(np.zeros(1, int), ALL[:1])


def test_actions_that_are_not_discrete_are_refused(monkeypatch):
    monkeypatch.setattr(Walk, "action_space", gymnasium.spaces.Box(0.0, 1.0))
    with pytest.raises(EnvError, match="Walk-v0 must have discrete actions"):
        open_slots(walk_spec())


class SameStep(CorridorsVectorEnv):
    def __init__(self, **settings):
        super().__init__(**settings)
        self.metadata = {**self.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}


class OneSeed(CorridorsVectorEnv):
    def reset(self, *, seed=None, options=None):
        if not isinstance(seed, int | None):
            raise gymnasium.error.Error("Seed must be a python integer")
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (SameStep, "must start ended episodes anew at the next step"),
        (OneSeed, "must take a list of seeds, one for each slot: Seed must be"),
    ],
)
def test_a_batch_that_cannot_be_used_is_refused_unless_there_are_single_environments(
    batch, message
):
    spec = dataclasses.replace(find_spec("corridors"), vector_entry_point=batch)
    for refused in (lambda: BatchedSlots(spec), lambda: open_slots(only_batches(spec))):
        with pytest.raises(EnvError, match=message):
            refused()
    assert isinstance(open_slots(spec), SingleSlots)


def only_batches(spec):
    return dataclasses.replace(spec, entry_point=None)


def test_a_pole_of_gymnasium_is_played_one_by_one():
    slots = open_slots(find_spec("CartPole-v1"))
    assert isinstance(slots, SingleSlots)
    one, other = slots.reset([3]), slots.reset([2, 3])[1:]
    np.testing.assert_array_equal(one, other)


def test_a_batch_without_cost_is_refused():
    class Free(CorridorsVectorEnv):
        def _info(self, costs):
            return {}

    slots = open_slots(dataclasses.replace(find_spec("corridors"), vector_entry_point=Free))
    slots.reset([0])
    with pytest.raises(EnvError, match=r"must give info\['cost'\]"):
        slots.step(np.zeros(1, int), ALL[:1])
