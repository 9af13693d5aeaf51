"""Decisions of policies as a service makes them: one at a time, in batches, and by threads.

    python benchmarks/serving.py --out benchmarks/results/serving.json

Policies are of the kinds that `bmdp.fit` learns: BFTQ and carried prices, with a table of 243
states of 5 numbers, and with one forest of 25 or of 100 trees an action at states of 6 numbers; 4
actions, 21 budgets or 11 prices; all actions are known. Latencies are of

- *step*: `tracker.decide` and `tracker.observe` of one episode;
- *request*: `policy.resume`, `decide`, `observe` and `state`, as a service does it;
- *act*: `policy.act`, of policies that have it.

The reference takes the same Q-function by torch and finds the frontier anew (`plain_values`), for
the same states in the same process. A batch is 10,000 episodes at their second decision, on one
thread. Rates of batches are of CPU seconds, since other work shares the machine; those of threads
are of the clock, and latencies of both.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import records
import torch

import bmdp
from bmdp import BFTQ, BFTQConfig, LagrangianConfig, LagrangianFTQ, TransitionBatch
from bmdp.arrays import FloatArray
from bmdp.learn import Iterations
from bmdp.models import ForestModel, TableModel
from bmdp.policies import HullPolicy

N_ACTIONS, LENGTH = 4, 10
N_THREADS = 8


def log(n_episodes: int, is_table: bool) -> TransitionBatch:
    """Random episodes: what pays more costs more, and how much depends on the state."""
    rng = np.random.default_rng(0)
    seen = rng.random((n_episodes, LENGTH + 1, 6))
    if is_table:
        seen = np.floor(3 * seen[:, :, :5])
    action = rng.integers(N_ACTIONS, size=(n_episodes, LENGTH))
    risk, before = action / (N_ACTIONS - 1), seen[:, :-1] / seen.max()
    cost = (rng.random(action.shape) < 0.2 * risk * before[:, :, 1]).astype(np.float64)
    reward = risk * (1 + before[:, :, 2]) - 0.3 * (before[:, :, 3] > 0.5)
    ended = np.zeros(action.shape, np.bool_)
    ended[:, -1] = True
    rows = (seen[:, :-1], action, reward, cost, seen[:, 1:], ended)
    return TransitionBatch(*(part.reshape(-1, *part.shape[2:]) for part in rows))


def policies(is_quick: bool) -> dict[str, tuple[Any, FloatArray]]:
    """Policies by name, and states to ask them at."""
    models: dict[str, Any] = {"table": TableModel()}
    for trees in (5,) if is_quick else (25, 100):
        models[f"forest of {trees} trees"] = ForestModel(trees=trees, leaf=10)
    found: dict[str, tuple[Any, FloatArray]] = {}
    for name, model in models.items():
        batch = log(50 if is_quick else 800, name == "table")
        how: dict[str, Any] = {"gamma": 0.9, "model": model, "ensemble": 1}
        how["schedule"] = Iterations(n=2 if is_quick else 4)
        states = np.asarray(batch.state, np.float64)
        found[f"{name}, BFTQ"] = BFTQ(BFTQConfig(**how)).fit(batch, seed=0), states
        priced = LagrangianFTQ(LagrangianConfig(**how)).fit(batch, seed=0)
        found[f"{name}, prices"] = priced, states
    return found


def plain_values(policy: Any, states: FloatArray, budgets: FloatArray) -> None:
    """Does the work of a decision by torch, without anything that is kept or compiled for it."""
    dial = getattr(policy, "dial", policy)
    q_r, q_c = dial.q_function.at(dial.q_function.look(states))
    if isinstance(policy, HullPolicy):
        points = policy.rule.points(q_r, q_c)
        bmdp.frontier.best_mixtures(points.costs, points.rewards, budgets)
    else:
        dial.best(q_r, q_c)


def latencies(do: Callable[[int], Any], n: int) -> dict[str, float]:
    """Microseconds that something takes, after a few times that do not count."""
    for i in range(n // 10 + 1):
        do(i)
    taken = np.empty((2, n))  # by the clock, and of the CPU
    for i in range(n):
        begun = time.perf_counter(), time.thread_time()
        do(i)
        taken[:, i] = time.perf_counter() - begun[0], time.thread_time() - begun[1]
    (median, most), (own, own_most) = 1e6 * np.quantile(taken, [0.5, 0.99], axis=1).T
    found = {"median_us": median, "p99_us": most, "cpu_median_us": own, "cpu_p99_us": own_most}
    return {name: float(value) for name, value in found.items()}


def one_at_a_time(policy: Any, states: FloatArray, n: int) -> dict[str, Any]:
    """Latencies of single decisions, and of the reference."""
    rng = np.random.default_rng(0)
    rows, budget = [states[i % len(states)][None] for i in range(2 * n)], policy.budget_range[1] / 2
    tracker = policy.start(rows[0], budget, rng)
    kept = policy.start(rows[0], budget, rng).state()

    def step(i: int) -> None:
        tracker.decide(rows[i])
        tracker.observe(0.0, rows[i + 1], False)

    def request(i: int) -> None:
        resumed = policy.resume(kept)
        resumed.decide(rows[i])
        resumed.observe(0.0, rows[i + 1], False)
        resumed.state()

    found = {"step": latencies(step, n), "request": latencies(request, n)}
    if isinstance(policy, HullPolicy):
        found["act"] = latencies(lambda i: policy.act(rows[i][0], budget, rng), n)
    held = np.array([budget])
    found["reference"] = latencies(lambda i: plain_values(policy, rows[i], held), n)
    return found


def batched(policy: Any, states: FloatArray, n: int, repeats: int) -> dict[str, float]:
    """Decisions a second of a batch at its first and second decision, and of the reference."""
    rng = np.random.default_rng(0)
    many, budgets = np.resize(states, (n, states.shape[1])), np.linspace(0, 1, n)
    seconds: dict[str, list[float]] = {"first": [], "later": [], "reference": []}

    def timed(name: str, do: Callable[[], Any]) -> None:
        begun = time.thread_time()
        do()
        seconds[name].append(time.thread_time() - begun)

    for _ in range(repeats):
        tracker = policy.start(many, budgets, rng)
        timed("first", partial(tracker.decide, many))
        tracker.observe(0.0, many, False)
        timed("later", partial(tracker.decide, many))
        timed("reference", partial(plain_values, policy, many, budgets))
    return {f"{name}_per_second": n / min(values) for name, values in seconds.items()}


def by_threads(policy: Any, states: FloatArray, n: int) -> dict[str, Any]:
    """Decisions a second of one thread and of eight, and whether they decide the same."""

    def episode(k: int) -> list[float]:
        streams = bmdp.EpisodeStreams.named(0, "serving", [k])
        rows = [states[(k + i) % len(states)][None] for i in range(LENGTH + 1)]
        tracker = policy.start(rows[0], 0.3, streams)
        told = []
        for row, following in pairwise(rows):
            decision = tracker.decide(row)
            told += [float(decision.action[0]), float(decision.next_budget[0])]
            tracker.observe(0.0, following, False)
        return told

    rates, told = {}, []
    for n_threads in (1, N_THREADS):
        with ThreadPoolExecutor(n_threads) as pool:
            list(pool.map(episode, range(n_threads)))  # which does not count
            begun = time.perf_counter()
            told.append(list(pool.map(episode, range(n))))
            rates[str(n_threads)] = n * LENGTH / (time.perf_counter() - begun)
    return {"per_second": rates, "same": told[0] == told[1]}


def weights(policy: Any) -> float:
    """Megabytes of the tensors of a policy."""
    model = getattr(policy, "dial", policy).q_function.model
    return float(sum(t.nbytes for t in model.state_dict().values()) / 2**20)


def main(arguments: list[str] | None = None) -> None:
    """Measures, and writes the results."""
    options = records.options(__doc__ or "", arguments)
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    n, many, repeats = (20, 300, 2) if options.quick else (1000, 10_000, 5)
    rows = []
    for name, (policy, states) in policies(options.quick).items():
        rows.append(
            {
                "policy": name,
                "one": one_at_a_time(policy, states, n),
                "batch": batched(policy, states, many, repeats),
                "threads": by_threads(policy, states, n // 10),
                "weights_mb": weights(policy),
            }
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    records.write({"batch": many, "peak_mb": peak, "rows": rows}, options.out)


if __name__ == "__main__":
    main()
