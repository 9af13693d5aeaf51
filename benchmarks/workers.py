"""What more workers and more threads gain, as ratios to one within one run.

    python benchmarks/workers.py --out benchmarks/results/workers.json

*Collection*: `collect` with 1, 2 and 4 processes, but no more than two for each core. The paper's
network plays, hardly trained. All batches are checked to be equal. The start of the processes
counts; how long it takes to start two is noted, too.
*Target step*: as in `learning.py`, with 1, 2 and 4 threads, but no more than there are cores.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
import records
from gymnasium.envs.registration import EnvSpec

from bmdp.data import TransitionBatch
from bmdp.envs.slots import find_spec, open_slots
from bmdp.learn import collect
from bmdp.learn.collect import threads
from bmdp.policies import HullPolicy
from learning import N_ACTIONS, NETWORKS, iterations, policy_of, random_batch, target_steps

COUNTS = (1, 2, 4)
N_BUDGETS = 41  # of the policy that plays
START = 128  # episodes, in two parts: two processes do little but start


def untrained(name: str) -> tuple[HullPolicy, EnvSpec]:
    """A policy that knows next to nothing, and its environment."""
    env = find_spec(name)
    slots = open_slots(env)
    n_numbers, n_actions = int(np.prod(slots.state_space.shape or ())), int(slots.action_space.n)
    slots.close()
    network, _ = NETWORKS["encoder"]
    return policy_of(network, N_BUDGETS, random_batch(100, n_numbers, n_actions)), env


def timed_batch(
    policy: HullPolicy, env: EnvSpec, n_episodes: int, workers: int
) -> tuple[float, TransitionBatch]:
    """Seconds that a batch takes, and the batch."""
    budgets = np.random.default_rng(0).random(n_episodes)
    begin = time.perf_counter()
    batch = collect(policy, env, range(n_episodes), budgets=budgets, seed=0, workers=workers)
    return time.perf_counter() - begin, batch


def require_equal(batch: TransitionBatch, other: TransitionBatch) -> None:
    """Raises AssertionError if two batches differ, in any bit of any column."""
    arrays, others = batch.to_arrays(), other.to_arrays()
    assert arrays.keys() == others.keys()
    for name, values in arrays.items():
        np.testing.assert_array_equal(values, others[name], err_msg=name, strict=True)


def collection(name: str, n_episodes: int, counts: Sequence[int], n_tries: int) -> dict[str, Any]:
    """Speed-up of collecting a batch. Tries take turns, so that all counts meet the same hours."""
    policy, env = untrained(name)
    _, first = timed_batch(policy, env, START, 1)  # compiles
    start, again = timed_batch(policy, env, START, 2)
    require_equal(again, first)
    seconds: dict[int, list[float]] = {count: [] for count in counts}
    expected: TransitionBatch | None = None
    for _ in range(n_tries):
        for count in counts:
            took, batch = timed_batch(policy, env, n_episodes, count)
            expected = batch if expected is None else expected
            require_equal(batch, expected)
            seconds[count].append(took)
    assert expected is not None
    return {
        "env": name,
        "episodes": n_episodes,
        "transitions": len(expected),
        "start_seconds": round(start, 2),
        **speed_up("workers", seconds),
    }


def timed_targets(name: str, n_states: int, counts: Sequence[int], n_tries: int) -> dict[str, Any]:
    """Speed-up of the target step, forward part and frontier part together."""
    network, n_budgets = NETWORKS[name]
    batch = random_batch(n_states)
    seconds: dict[int, list[float]] = {count: [] for count in counts}
    target_steps(iterations(random_batch(200), network, n_budgets, 2))  # compiles
    for _ in range(n_tries):
        for count in counts:
            with all_threads(count):
                (record,) = target_steps(iterations(batch, network, n_budgets, 2))
            seconds[count].append(record.seconds_forward + record.seconds_frontier)
    return {
        "network": type(network).__name__,
        "states": n_states,
        "actions": N_ACTIONS,
        "budgets": n_budgets,
        **speed_up("threads", seconds),
    }


@contextmanager
def all_threads(number: int) -> Iterator[None]:
    """Lets torch and numba compute with so many threads."""
    before = numba.get_num_threads()
    numba.set_num_threads(number)
    try:
        with threads(number):
            yield
    finally:
        numba.set_num_threads(before)


def speed_up(what: str, seconds: dict[int, list[float]]) -> dict[str, Any]:
    """Least seconds of each count, and how many times as fast as one that is."""
    least = {count: min(tries) for count, tries in seconds.items()}
    return {
        what: list(least),
        "seconds": [round(best, 3) for best in least.values()],
        "speed_up": [round(least[1] / best, 2) for best in least.values()],
    }


def main(arguments: list[str] | None = None) -> None:
    """Measures and writes."""
    asked = records.options(__doc__, arguments)
    cores = os.cpu_count() or 1
    most_workers = 2 if asked.quick else 2 * cores
    workers = [count for count in COUNTS if count <= most_workers]
    thread_counts = [count for count in COUNTS if count <= numba.get_num_threads()]
    sizes = {"two-way": START} if asked.quick else {"two-way": 20_000, "slot-filling": 20_000}
    n_states, n_tries = (200, 1) if asked.quick else (20_000, 3)
    collected, steps = [], []
    for name, n_episodes in sizes.items():
        collected.append(collection(name, n_episodes, workers, n_tries))
        print(*(f"{k}={v}" for k, v in collected[-1].items()), file=sys.stderr)
    for name in NETWORKS:
        steps.append(timed_targets(name, n_states, thread_counts, n_tries))
        print(*(f"{k}={v}" for k, v in steps[-1].items()), file=sys.stderr)
    records.write({"collection": collected, "target_step": steps}, asked.out)


if __name__ == "__main__":
    main()
