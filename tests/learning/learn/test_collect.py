import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.envs.registration import EnvSpec

from bmdp import ConfigError, PolicyError
from bmdp.envs import ScriptedPolicy
from bmdp.envs.slots import find_spec
from bmdp.learn import Exploration, collect, explore
from bmdp.policies import HullPolicy, RandomBudgetedPolicy
from bmdp.policies.exploring import ExploringPolicy
from training import SPEC

CORRIDORS = SPEC.env.spec()
RANDOM = RandomBudgetedPolicy(5, 0.0, 1.0)


def collected(policy, episodes=range(300), spec=CORRIDORS, **how):
    budgets = np.linspace(0, 1, 500)[episodes.start : episodes.stop]
    return collect(policy, spec, episodes, budgets=budgets, seed=3, **how)


def assert_same(batch, other):
    arrays, others = batch.to_arrays(), other.to_arrays()
    assert arrays.keys() == others.keys()
    for name, values in arrays.items():
        np.testing.assert_array_equal(values, others[name], err_msg=name, strict=True)


@pytest.fixture(scope="module")
def learned():
    """A policy with a network."""
    greedy = explore(SPEC, seed=0).policy
    return ExploringPolicy(greedy, RANDOM, decay=0.01, hold=2)


def test_transitions_of_an_episode_follow_each_other():
    batch = collected(RANDOM)
    follows = batch.episode[1:] == batch.episode[:-1]
    np.testing.assert_array_equal(batch.state[1:][follows], batch.next_state[:-1][follows])
    np.testing.assert_array_equal(batch.budget[1:][follows], batch.next_budget[:-1][follows])
    np.testing.assert_array_equal(np.unique(batch.episode), np.arange(300))
    np.testing.assert_array_equal(batch.terminal[:-1], ~follows)


def test_an_episode_is_the_same_in_any_company():
    few = collected(RANDOM, range(100, 110))
    many = collected(RANDOM)
    assert_same(few, many.take((many.episode >= 100) & (many.episode < 110)))


def test_progress_counts_the_episodes_of_each_part():
    told = []
    collected(RANDOM, progress=lambda *now: told.append(now))
    assert told == [(256, 300), (300, 300)]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
def test_the_number_of_workers_changes_nothing(workers):
    assert_same(collected(RANDOM, workers=workers), collected(RANDOM))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
def test_the_number_of_workers_changes_nothing_for_a_network(learned, workers):
    # Parts and threads are the same for any number of workers, so rounding is, too.
    assert_same(collected(learned, workers=workers), collected(learned))


def test_the_number_of_threads_changes_nothing_and_stays_as_it_was(learned):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        two = collected(learned)
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        assert_same(collected(learned), two)
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_exploring_with_workers_gives_the_same_policy():
    spec = replace(SPEC, exploration=Exploration(2, 70, decay=0.05))  # of two parts a round
    one, two = (explore(spec, seed=1, workers=workers) for workers in (1, 2))
    assert_same(one.batch, two.batch)
    states = one.batch.state[:50]
    first, second = (result.policy.q_function(states) for result in (one, two))
    np.testing.assert_array_equal(first, second)


FOR_EVER = """
import numpy as np
from bmdp.envs.slots import find_spec
from bmdp.learn import collect
from bmdp.policies import RandomBudgetedPolicy

if __name__ == "__main__":
    policy, spec = RandomBudgetedPolicy(5, 0.0, 1.0), find_spec("two-way")
    collect(policy, spec, range(10**6), budgets=np.zeros(10**6), seed=0, workers=2)
"""


def children(pid):
    listed = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True, text=True
    )
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if "spawn_main" in line]


def wait_until(is_so, seconds=30):
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        time.sleep(0.05)
    return is_so()


@pytest.mark.slow
def test_workers_end_when_the_process_that_waits_for_them_is_killed(tmp_path):
    (tmp_path / "script.py").write_text(FOR_EVER)
    process = subprocess.Popen([sys.executable, tmp_path / "script.py"])
    try:
        assert wait_until(lambda: len(children(process.pid)) == 2)
        time.sleep(5)  # so that they are at work
        workers = children(process.pid)
    finally:
        process.kill()
        process.wait()
    assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 10)


def test_no_worker_is_none():
    with pytest.raises(ConfigError, match="workers must be a whole number from 1 on; got 0"):
        collected(RANDOM, workers=0)


def test_a_policy_that_cannot_be_saved_cannot_travel():
    policy = HullPolicy(lambda states: states, [0.0, 1.0])
    with pytest.raises(PolicyError, match="several workers need a policy that can be saved"):
        collected(policy, workers=2)


def test_an_environment_made_on_the_spot_cannot_travel():
    entry = find_spec("corridors")
    here = EnvSpec(
        "Here-v0",
        entry_point=entry.entry_point,
        vector_entry_point=entry.vector_entry_point,
        kwargs={"observe_time": True},
    )
    here.entry_point = lambda **settings: None
    with pytest.raises(ConfigError, match=r"Here-v0 cannot be handed over.*Use workers=1"):
        collected(RANDOM, spec=here, workers=2)


def test_a_policy_that_does_not_fit_is_told_apart_by_what_both_say():
    with pytest.raises(PolicyError, match=r"bmdp/Corridors-v0 shows, .*\[3\].*26 features"):
        collected(ScriptedPolicy("slot-filling/key-pad"))


def test_a_time_limit_is_no_end_of_the_task():
    """Episodes that are cut go on in what is learned; those that end do not."""
    spec = replace(find_spec("corridors"), max_episode_steps=3)
    policy = ScriptedPolicy("corridors/safe")
    batch = collect(policy, spec, range(5), budgets=np.full(5, 0.5), seed=0)
    assert len(batch) == 15
    assert not batch.terminal.any()
    assert batch.truncated.sum() == 5
    whole = collect(policy, find_spec("corridors"), range(5), budgets=np.full(5, 0.5), seed=0)
    assert whole.terminal.sum() == 5
    assert not whole.truncated.any()
