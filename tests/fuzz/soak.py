"""One policy and one tracker decide again and again: memory stays, and threads change no bit."""

import gc
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from bmdp.learn import BFTQ, BFTQConfig, Iterations, LagrangianConfig, LagrangianFTQ
from bmdp.models import EncoderNet, ForestModel, KernelModel, Regression, TableModel
from small_logs import grid, plane

N_ROWS, N_STEPS = 50, 40  # episodes side by side, and steps between two looks
N_THREADS = 8
WARM = 3  # looks, before memory is compared
MOST_GROWTH = 32 * 2**20  # bytes


def cases(seed, folder):
    """Yields the kind of policy of each decision."""
    rng = np.random.default_rng(seed)
    kinds = {name: make() for name, make in POLICIES.items()}
    trackers = {name: started(policy, world, rng) for name, (policy, world) in kinds.items()}
    number, before = 0, None
    while True:
        for name, (policy, world) in kinds.items():
            trackers[name] = soaked(trackers[name], policy, world, rng)
            yield from [name] * (N_ROWS * N_STEPS)
            same_by_threads(policy, world, rng, f"seed {seed}, look {number}, {name}")
            yield from [f"{name} by {N_THREADS} threads"] * (N_ROWS * N_STEPS)
        number += 1
        gc.collect()
        if number == WARM:
            before = resident()
        if number > WARM:
            growth = resident() - before
            assert growth < MOST_GROWTH, f"seed {seed}: {growth:,} bytes more after {number} looks"


def of_table():
    """A dial by a table of a grid."""
    config = BFTQConfig(gamma=0.9, model=TableModel(), schedule=Iterations(3), ensemble=1)
    return BFTQ(config).fit(grid(60), seed=0, device="cpu"), grid(60)


def of_kernels():
    """A dial by kernels on a plane."""
    config = BFTQConfig(gamma=0.9, model=KernelModel(50), schedule=Iterations(2), ensemble=2)
    return BFTQ(config).fit(plane(60), seed=0, device="cpu"), plane(60)


def of_networks():
    """A dial by networks on a plane."""
    model = EncoderNet((8,), (4,), regression=Regression(steps=5))
    config = BFTQConfig(gamma=0.9, model=model, schedule=Iterations(2), ensemble=1)
    return BFTQ(config).fit(plane(60), seed=0, device="cpu"), plane(60)


def of_prices():
    """Carried prices by a forest on a plane."""
    config = LagrangianConfig(
        gamma=0.9, prices=(0.0, 1.0, 4.0), model=ForestModel(5), schedule=Iterations(2), ensemble=1
    )
    return LagrangianFTQ(config).fit(plane(60), seed=0, device="cpu"), plane(60)


POLICIES = {"table": of_table, "kernels": of_kernels, "networks": of_networks, "prices": of_prices}


def started(policy, world, rng):
    """A tracker of new episodes."""
    budgets = rng.uniform(*policy.budget_range, N_ROWS)
    return policy.start(states_of(world, rng), budgets, rng)


def states_of(world, rng):
    """States of a log, some of them moved to where nobody was."""
    states = world.state[rng.integers(len(world), size=N_ROWS)]
    moved = states + rng.normal(0, 0.1, states.shape) * (rng.random((N_ROWS, 1)) < 0.5)
    return moved.astype(states.dtype)


def soaked(tracker, policy, world, rng):
    """Plays on with a tracker, moves its dial, and takes it through JSON."""
    low, high = policy.budget_range
    for _ in range(N_STEPS):
        decision = tracker.decide(states_of(world, rng))
        assert ((decision.action >= 0) & (decision.action < world.n_actions)).all()
        costs = rng.random(N_ROWS) * (high - low) / 100
        tracker.observe(costs, states_of(world, rng), np.zeros(N_ROWS, bool))
    tracker.set_budget(rng.uniform(low, high, N_ROWS))
    return policy.resume(json.loads(json.dumps(tracker.state())))


def same_by_threads(policy, world, rng, told):
    """Plays episodes one after the other, and in threads."""
    seeds = rng.integers(2**32, size=N_THREADS).tolist()
    expected = [episodes(policy, world, seed) for seed in seeds]
    with ThreadPoolExecutor(N_THREADS) as pool:
        found = list(pool.map(lambda seed: episodes(policy, world, seed), seeds))
    assert found == expected, f"{told}: threads decide otherwise"


def episodes(policy, world, seed):
    """All decisions of some episodes, byte by byte."""
    rng, found = np.random.default_rng(seed), []
    tracker = started(policy, world, rng)
    for _ in range(N_STEPS // N_THREADS):
        found += [column.tobytes() for column in tracker.decide(states_of(world, rng))]
        tracker.observe(np.zeros(N_ROWS), states_of(world, rng), np.zeros(N_ROWS, bool))
    return found


def resident():
    """Bytes of this process that are in memory (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
