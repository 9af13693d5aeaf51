"""Environments that do not do what Gymnasium asks of them end in one line that names them."""

import dataclasses

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from bmdp import ConfigError, EnvError
from bmdp.envs import check_cost_env
from bmdp.envs.slots import find_spec, open_slots
from bmdp.paper import experiment
from problems import Walk, walk_spec

ONE = np.ones(1, bool)


def played(n_steps=1):
    slots = open_slots(walk_spec())
    states = [slots.reset([0])]
    for _ in range(n_steps):
        outcome = slots.step(np.zeros(1, int), ONE)
        states.append(outcome.states)
    return states, outcome


def answering(monkeypatch, *, reset, step):
    """Makes walks answer with other things."""
    monkeypatch.setattr(Walk, "reset", lambda self, *, seed=None, options=None: reset)
    monkeypatch.setattr(Walk, "step", lambda self, action: step)


def test_a_step_that_fails_names_the_environment(monkeypatch):
    monkeypatch.setattr(Walk, "step", lambda self, action: {}["wheel"])
    with pytest.raises(EnvError, match=r"^Walk-v0 failed while it was played: KeyError: 'wheel'$"):
        played()


def test_a_reset_that_takes_no_seed_names_the_environment(monkeypatch):
    monkeypatch.setattr(Walk, "reset", lambda self: (0, {}))
    with pytest.raises(EnvError, match=r"Walk-v0 failed while it was played: TypeError: .*seed"):
        played()


def test_an_environment_that_cannot_be_made_or_closed_is_named(monkeypatch):
    def broken(self):
        raise OSError("no such display")

    slots = open_slots(walk_spec())
    monkeypatch.setattr(Walk, "close", broken)
    with pytest.raises(EnvError, match="Walk-v0 failed while it was closed: OSError: no such dis"):
        slots.close()
    monkeypatch.setattr(Walk, "__init__", broken)
    with pytest.raises(EnvError, match="Walk-v0 cannot be made: OSError: no such display"):
        open_slots(walk_spec())


def test_memory_that_ends_is_not_the_fault_of_an_environment(monkeypatch):
    def full(self, action):
        raise MemoryError

    monkeypatch.setattr(Walk, "step", full)
    with pytest.raises(MemoryError):
        played()


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        (None, "None"),
        (0, "0"),
        ((0, {}, 1), "3 values"),
        ((0, None), "None as info"),
    ],
)
def test_what_a_reset_returns_is_checked(answer, got, monkeypatch):
    monkeypatch.setattr(Walk, "reset", lambda self, *, seed=None, options=None: answer)
    rule = r"Walk-v0\.reset must return \(observation, info\), and info must be a dictionary"
    with pytest.raises(EnvError, match=f"^{rule}; got {got}.$"):
        played()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, r"step must return \(observation, reward, term.*; got None"),
        ((0, 0.0, True, {"cost": 0.0}), r"step must return .*; got 4 values"),
        ((0, 0.0, True, False, None), r"step must return .*; got None as info"),
        ((0, None, True, False, {"cost": 0.0}), "a finite reward at every step; got None"),
        ((0, [1.0, 2.0], True, False, {"cost": 0.0}), r"a finite reward at every step; got \[1"),
        ((0, 0.0, True, False, {"cost": "1"}), "a finite cost at every step; got '1'"),
        ((0, 0.0, True, False, {"cost": 1j}), "a finite cost at every step; got 1j"),
        ((0, 0.0, True, False, {"cost": np.ones(1)}), "a finite cost at every step; got float64"),
        ((0, 0.0, "no", False, {"cost": 0.0}), "terminated as True or False; got 'no'"),
        ((0, 0.0, False, None, {"cost": 0.0}), "truncated as True or False; got None"),
        ((0, 0.0, False, 2, {"cost": 0.0}), "truncated as True or False; got 2"),
    ],
)
def test_what_a_step_returns_is_checked(answer, words, monkeypatch):
    answering(monkeypatch, reset=(0, {"cost": 0.0}), step=answer)
    with pytest.raises(EnvError, match=f"Walk-v0.*{words}"):
        played()


@pytest.mark.parametrize("end", [1, np.True_, np.array([True]), np.float32(1.0)])
def test_an_end_may_be_any_kind_of_truth(end, monkeypatch):
    answering(monkeypatch, reset=(0, {}), step=(0, np.float32(0.5), end, 0, {"cost": np.array(1)}))
    _, outcome = played()
    assert outcome.ended.tolist() == [True]
    assert outcome.rewards.tolist() == [0.5]
    assert outcome.costs.tolist() == [1.0]


def test_a_first_state_of_whole_numbers_does_not_round_those_that_follow(monkeypatch):
    answering(monkeypatch, reset=([0, 0], {}), step=([0.5, 0.25], 0.0, False, False, {"cost": 0}))
    monkeypatch.setattr(Walk, "observation_space", gymnasium.spaces.Box(0, 1, (2,)))
    states, _ = played(n_steps=2)
    assert [state.tolist() for state in states] == [[[0, 0]], [[0.5, 0.25]], [[0.5, 0.25]]]


def test_states_that_change_their_shape_are_refused(monkeypatch):
    answering(monkeypatch, reset=([0, 0], {}), step=([0.0] * 3, 0.0, False, False, {"cost": 0}))
    monkeypatch.setattr(Walk, "observation_space", gymnasium.spaces.Box(0, 1, (2,)))
    words = r"Walk-v0 must show states of one shape; got some of \[2\] and of \[3\]"
    with pytest.raises(EnvError, match=words):
        played()


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"gamma": 2}, "gamma must be from 0 to 1 in metadata of Walk-v0; got 2"),
        ({"gamma": "x"}, "gamma must be from 0 to 1 in metadata of Walk-v0; got 'x'"),
        ({"horizon": 0}, "horizon must be a whole number from 1 on, or None, .*Walk-v0; got 0"),
        ({"horizon": "x"}, "horizon must be a whole number from 1 on, or None, .*; got 'x'"),
        ({"horizon": np.inf}, "horizon must be a whole number from 1 on, or None, .*; got inf"),
    ],
)
def test_metadata_are_checked(metadata, words, monkeypatch):
    monkeypatch.setattr(Walk, "metadata", {"render_modes": [], **metadata})
    with pytest.raises(EnvError, match=words):
        open_slots(walk_spec())


@pytest.mark.parametrize("named", [find_spec, experiment])
def test_a_module_that_fails_when_it_is_imported_is_named(named, tmp_path, monkeypatch):
    (tmp_path / "broken_envs.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    for module, said in (("broken_envs", "ZeroDivisionError"), (".envs", "TypeError")):
        words = f"needs the module {module}, which cannot be imported: {said}"
        with pytest.raises(ConfigError, match=words):
            named(f"{module}:Some-v0")


def test_the_checker_names_an_environment_that_cannot_be_made(monkeypatch):
    spec = EnvSpec("Nowhere-v0", entry_point="no_such_module:Env")
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    with pytest.raises(EnvError, match="Nowhere-v0 cannot be made: ModuleNotFoundError"):
        check_cost_env("Nowhere-v0")
    with pytest.raises(EnvError, match="Nowhere-v0 cannot be made: ModuleNotFoundError"):
        open_slots(dataclasses.replace(spec))
