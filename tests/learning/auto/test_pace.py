"""Slow simulators, by a clock that is set by hand: exploring ends in time, and says so."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

import bmdp
from bmdp import EnvError
from bmdp.envs.slots import BatchedSlots, find_spec
from bmdp.learn.auto import by_time, paced
from bmdp.learn.evidence import Player
from bmdp.learn.expedition import Expedition, explored
from bmdp.learn.shelf import Shelf
from bmdp.storage import arrays_hash
from training import Killed


class Clock:
    """A clock that a simulator moves."""

    def __init__(self):
        self.time = 0.0

    def __call__(self):
        return self.time


class Ticking(gymnasium.Env):
    """Five steps, of which each takes a time; the very first one of all may take longer."""

    observation_space, action_space = spaces.Discrete(6), spaces.Discrete(2)
    clock = None

    def __init__(self, step=0.0, first=0.0, length=5):
        self.seconds, self.first, self.length = step, first, length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.n_steps = 0
        return 0, {"cost": 0.0}

    def step(self, action):
        is_first = self.clock.time == 0
        self.clock.time += self.seconds + (self.first if is_first else 0.0)
        self.n_steps += 1
        ended = self.n_steps == self.length
        fell = float(action == 1 and self.np_random.random() < 0.2)
        return min(self.n_steps, 5), float(action), ended, False, {"cost": fell}


def ticking(clock, **settings):
    """An environment that moves a clock."""
    Ticking.clock = clock  # of the class, since Gymnasium copies settings
    return EnvSpec("tests/Ticking-v0", entry_point=Ticking, kwargs=settings)


def explore(seconds, clock, *, n_episodes=300, folder=None, told=None, **settings):
    """Episodes of each round, the clock at the end, and notes."""
    notes, texts = [], []
    how = Expedition(Player(ticking(clock, **settings), 1.0, 0), n_episodes, seconds, "cpu")
    on_progress = told or (lambda share, text: texts.append(text))
    batch = explored(how, Shelf(folder, now=clock), on_progress, notes.append).batch
    return batch, notes, texts


def n_rounds(texts):
    return len({text.partition(";")[0] for text in texts})


def test_a_fast_simulator_plays_all_episodes_in_eight_rounds():
    batch, notes, texts = explore(24.0, Clock(), step=0.001)
    assert (len(batch.starts()), n_rounds(texts), notes) == (300, 8, [])


@pytest.mark.parametrize(("step", "rounds"), [(0.1, 3), (0.04, 8), (0.2, 2)])
def test_a_slow_simulator_is_left_in_time_after_rounds_that_are_large_enough(step, rounds):
    clock = Clock()
    batch, notes, texts = explore(60.0, clock, step=step)
    n = len(batch.starts())
    assert 0.5 * 60 < clock.time < 60
    assert n == pytest.approx(0.7 * 60 / (5 * step), abs=6)
    assert abs(n_rounds(texts) - rounds) <= 1
    seconds = f"{5 * step:.2g}"
    assert notes == [
        f"exploring was cut to {n} of 300 episodes: time is short, one takes {seconds} s"
    ]


def test_of_a_very_slow_simulator_there_are_some_episodes_in_one_round():
    clock = Clock()
    batch, notes, texts = explore(24.0, clock, step=2.0)
    assert (len(batch.starts()), n_rounds(texts)) == (6, 1)
    assert clock.time == 60.0
    assert notes == ["exploring was cut to 6 of 300 episodes: time is short, one takes 10 s"]


@pytest.mark.parametrize(("pause", "is_told"), [(4.0, True), (2.2, False)])
def test_where_learning_takes_the_time_no_episode_is_blamed(pause, is_told):
    clock = Clock()

    def learn(share, text):
        clock.time += pause * text.startswith("exploring")

    batch, notes, _ = explore(24.0, clock, step=0.001, told=learn)
    n = len(batch.starts())
    why = f"exploring was cut to {n} of 300 episodes: time is short"
    assert notes == ([why] if is_told else [])
    assert n < 300
    assert (n < 280) == is_told


def test_a_long_first_step_does_not_tell_the_pace():
    """It may compile and import whatever the simulator needs."""
    batch, notes, _ = explore(24.0, Clock(), step=0.001, first=10.0)
    assert (len(batch.starts()), notes) == (300, [])


def test_the_first_episodes_are_those_of_one_call(monkeypatch):
    """They are played in pieces that tell the pace, and are the same as if they were not."""
    found = explore(24.0, Clock(), step=0.0)[0]
    monkeypatch.setattr("bmdp.learn.expedition._FOR_PACE", 0.0)
    other = explore(24.0, Clock(), step=0.0)[0]
    assert arrays_hash(found.to_arrays()) == arrays_hash(other.to_arrays())


def test_the_pace_is_that_of_the_last_round():
    how = Expedition(Player(ticking(clock := Clock(), step=0.125), 1.0, 0), 300, 60.0, "cpu")
    found = explored(how, Shelf(None, now=clock), lambda share, text: None, lambda note: None)
    assert found.pace == pytest.approx(0.625)


@pytest.mark.parametrize("last", [1, 2, 3])
def test_a_resumed_run_goes_on_at_the_pace_it_had(tmp_path, last):
    """The simulator is fast then, and rounds and notes are those of the slow one."""

    def killed(share, text):
        if text.startswith(f"exploring, round {last}"):
            raise Killed

    whole, notes, _ = explore(60.0, Clock(), step=0.125)
    with pytest.raises(Killed):
        explore(60.0, Clock(), step=0.125, folder=tmp_path, told=killed)
    resumed, same, _ = explore(60.0, Clock(), step=0.125, folder=tmp_path)
    assert arrays_hash(resumed.to_arrays()) == arrays_hash(whole.to_arrays())
    fast, again, _ = explore(60.0, Clock(), step=0.0, folder=tmp_path)
    assert arrays_hash(fast.to_arrays()) == arrays_hash(whole.to_arrays())
    assert notes == same == again


# Episodes that have no end


def test_an_episode_of_many_slow_steps_is_bounded_and_said():
    clock = Clock()
    spec = replace(ticking(clock, step=1 / 64, length=np.inf), max_episode_steps=100_000)
    found, notes = paced(spec, 300.0, Shelf(None, now=clock))
    assert found.max_episode_steps == 192  # 20 episodes in a fifth of the time
    assert clock.time < 5
    assert notes == [
        "episodes may have 192 steps at most, of 100,000: a step takes 0.016 s, and there is no "
        "time for 20 whole episodes; give more minutes"
    ]


def test_however_slow_it_is_there_are_fifty_steps():
    clock = Clock()
    spec = replace(ticking(clock, step=60.0, length=np.inf), max_episode_steps=100_000)
    assert paced(spec, 300.0, Shelf(None, now=clock))[0].max_episode_steps == 50


def test_a_fast_simulator_keeps_its_limit():
    clock = Clock()
    spec = replace(ticking(clock, step=1e-5), max_episode_steps=1_000)
    assert paced(spec, 300.0, Shelf(None, now=clock)) == (spec, [])


def test_short_episodes_are_not_timed():
    clock = Clock()
    spec = replace(ticking(clock, step=1.0), max_episode_steps=50)
    assert paced(spec, 1.0, Shelf(None, now=clock)) == (spec, [])
    assert clock.time == 0


def test_a_step_of_a_batch_is_shared_by_its_episodes(monkeypatch):
    clock = Clock()
    step = BatchedSlots.step

    def timed(self, actions, going):
        clock.time += 0.1
        return step(self, actions, going)

    monkeypatch.setattr(BatchedSlots, "step", timed)
    spec = replace(find_spec("corridors"), kwargs={"height": 100})  # 100 steps or so
    assert paced(spec, 250.0, Shelf(None, now=clock)) == (spec, [])
    assert paced(spec, 25.0, Shelf(None, now=clock))[0].max_episode_steps == 50


def test_the_limit_stays_when_a_run_is_resumed(tmp_path):
    found = [
        paced(
            replace(ticking(clock, step=step, length=np.inf), max_episode_steps=10_000),
            300.0,
            Shelf(tmp_path, now=clock),
        )
        for clock, step in ((Clock(), 1 / 64), (Clock(), 0.0))
    ]
    assert found[0][0].max_episode_steps == found[1][0].max_episode_steps == 192
    assert found[0][1] == found[1][1]


def test_a_simulator_that_breaks_while_it_is_timed_is_an_error():
    class Broken(Ticking):
        def step(self, action):
            raise KeyError("wheel")

    spec = EnvSpec("tests/Broken-v0", entry_point=Broken)
    with pytest.raises(EnvError, match="Broken-v0 failed while it was played: KeyError: 'wheel'"):
        paced(replace(spec, max_episode_steps=100), 300.0, Shelf(None))


# Time that is left


def test_what_is_told_is_the_share_of_the_time():
    clock, seen = Clock(), []
    tell = by_time(lambda share, text: seen.append(share), Shelf(None, now=clock), 300.0)
    for clock.time, share in ((0, 0), (30, 0.1), (60, 0.5), (70, 0.5), (280, 0.6), (400, 0.9)):
        tell(share, "")
    tell(1.0, "")
    assert seen == pytest.approx([0.0, 0.1, 0.5, 0.5, 28 / 30.8, 10 / 11, 1.0])


def test_a_log_begins_after_exploring():
    clock, seen = Clock(), []
    tell = by_time(lambda share, text: seen.append(share), Shelf(None, now=clock), 300.0, 0.4)
    for clock.time, share in ((0, 0.4), (10, 0.7), (20, 1.0)):
        tell(share, "")
    assert seen == pytest.approx([0.0, 0.5, 1.0])


def test_the_clock_of_a_shelf_counts_all_processes(tmp_path):
    clock = Clock()
    shelf = Shelf(tmp_path, now=clock)
    clock.time = 10.0
    shelf.numbers("some", lambda: {"n": 1})
    clock.time = 15.0  # of which nothing is kept
    assert shelf.seconds == 15.0
    later = Shelf(tmp_path, now=clock)
    assert later.seconds == 10.0
    clock.time = 16.0
    assert later.numbers("some", lambda: {"n": 2}) == {"n": 1}
    later.numbers("more", lambda: {"n": 1})
    assert Shelf(tmp_path, now=clock).seconds == 11.0


# Gymnasium's own batches


def test_a_batch_that_takes_one_seed_for_all_is_played_one_by_one():
    name = "tests/Pole-v0"
    gymnasium.register(
        name,
        "gymnasium.envs.classic_control.cartpole:CartPoleEnv",
        vector_entry_point="gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv",
        max_episode_steps=60,
    )
    try:
        with pytest.raises(EnvError, match=r"must give info\['cost'\] .* bmdp.envs.CostFunction"):
            bmdp.fit(name, episodes=50)
    finally:
        gymnasium.registry.pop(name)


def test_an_environment_that_is_made_is_told_how_to_be_given():
    with pytest.raises(bmdp.ConfigError, match=r"by its id, or by its EnvSpec.*CartPole-v1"):
        bmdp.fit(gymnasium.make("CartPole-v1"))
