"""Speed of the greedy step of learning and of acting, as ratios within one run.

    python benchmarks/learning.py --out benchmarks/results/learning.json

*Target step*: values of 20,000 next states with 5 actions, as the records of `fit_q` tell it. The
paper's network has 101 budgets, and one label a row; the frontier network has 41 knots, and is
valued at all of them. The frontier part is compared with a Python loop over states, the whole step
of one network with that of the other. *Memory*: how much the target step of a million transitions
adds to the peak of an iteration that has none. *Acting*: one state at a time, and 20,000 at once.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import records
import torch

from bmdp import TransitionBatch, hull_mixture, upper_frontier
from bmdp.learn.fit import Ensemble, Heads, Iteration, Iterations, Record, fit_q
from bmdp.learn.next_values import hull_values
from bmdp.models import EncoderNet, FrontierNet, Regression
from bmdp.policies import HullPolicy

STATE_SIZE, N_ACTIONS = 18, 5
ONE_STEP = Regression(steps=1, batch_size=1000)
NETWORKS: dict[str, tuple[EncoderNet | FrontierNet, int]] = {
    "encoder": (EncoderNet(regression=ONE_STEP), 101),
    "frontier": (FrontierNet(regression=ONE_STEP), 41),
}
"""Networks that are hardly trained, and numbers of budgets."""


def best_of(work: Callable[[], Any], n: int = 3) -> float:
    """Least seconds of some tries."""
    work()
    least = np.inf
    for _ in range(n):
        begin = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - begin)
    return float(least)


def random_batch(
    n_rows: int, state_size: int = STATE_SIZE, n_actions: int = N_ACTIONS
) -> TransitionBatch:
    """Transitions that mean nothing."""
    rng = np.random.default_rng(1)
    return TransitionBatch(
        state=rng.normal(size=(n_rows, state_size)),
        action=np.arange(n_rows) % n_actions,
        reward=rng.random(n_rows),
        cost=rng.random(n_rows),
        next_state=rng.normal(size=(n_rows, state_size)),
        terminal=np.zeros(n_rows, np.bool_),
    )


def iterations(
    batch: TransitionBatch, network: EncoderNet | FrontierNet, n_budgets: int, n: int
) -> Iterator[Iteration]:
    """Iterations of BFTQ with one model; the first has no target step."""
    return fit_q(
        batch,
        network,
        hull_values(10.0, costs_from_zero=True),
        heads=Heads(np.linspace(0, 1, n_budgets), True),
        gammas=(0.9, 0.9),
        schedule=Iterations(n, settled=0.0),
        ensemble=Ensemble(),
        seed=0,
        device="cpu",
    )


def target_steps(done: Iterator[Iteration]) -> list[Record]:
    """Records of the iterations that have a target step."""
    return [record for record, _ in done if record is not None and record.iteration > 0]


def policy_of(
    network: EncoderNet | FrontierNet, n_budgets: int, batch: TransitionBatch
) -> HullPolicy:
    """The greedy policy of a network that is hardly trained."""
    (done,) = islice(iterations(batch, network, n_budgets, 1), 1)
    return HullPolicy(done.fit.q_function(), np.linspace(0, 1, n_budgets))


def python_loop(policy: HullPolicy, states: np.ndarray[Any, Any], budgets: list[float]) -> float:
    """Seconds a state of the frontier part in a loop over states."""
    points = policy.points(states)

    def work() -> None:
        for costs, rewards in zip(points.costs, points.rewards, strict=True):
            frontier = upper_frontier(costs, rewards)
            for budget in budgets:
                hull_mixture(frontier, budget)

    return best_of(work, 1) / len(states)


def main(arguments: list[str] | None = None) -> None:
    """Measures and writes."""
    asked = records.options(__doc__, arguments)
    n, n_loop, n_many = (200, 20, 2_000) if asked.quick else (20_000, 300, 1_000_000)
    batch, rows, acting = random_batch(n), list[dict[str, Any]](), {}
    for name, (network, n_budgets) in NETWORKS.items():
        target_steps(iterations(random_batch(200), network, n_budgets, 2))  # compiles
        tries = target_steps(iterations(batch, network, n_budgets, 4))
        forward, frontier = (
            min(getattr(record, f"seconds_{part}") for record in tries)
            for part in ("forward", "frontier")
        )
        acting[name] = policy_of(network, n_budgets, batch)
        asked_for = np.linspace(0, 1, n_budgets).tolist() if name == "frontier" else [0.5]
        loop = python_loop(acting[name], batch.next_state[:n_loop], asked_for)
        rows.append(
            {
                "network": name,
                "states": n,
                "budgets": n_budgets,
                "forward_seconds": round(forward, 4),
                "frontier_seconds": round(frontier, 4),
                "loop_seconds": round(loop * n, 2),
                "frontier_ratio": round(loop * n / frontier, 1),
            }
        )
        print(*(f"{k}={v}" for k, v in rows[-1].items()), file=sys.stderr)
    whole = [row["forward_seconds"] + row["frontier_seconds"] for row in rows]
    seconds, added = million(n_many)
    policy, states, draws = acting["frontier"], batch.state, np.random.default_rng(0)
    act = best_of(lambda: [policy.act(states[0], 0.5, draws) for _ in range(50)]) / 50
    decide = best_of(lambda: policy.decide(states, 0.5, draws)) / n
    result = {
        "target_step": rows,
        "frontier_net_ratio": round(whole[0] / whole[1], 1),
        "million": {
            "transitions": n_many,
            "seconds": round(seconds, 1),
            "added_mib": round(added, 1),
        },
        "act_milliseconds": round(1e3 * act, 3),
        "decisions_per_second": round(1 / decide),
        "torch_threads": torch.get_num_threads(),
    }
    print(*(f"{k}={v}" for k, v in result.items() if k != "target_step"), file=sys.stderr)
    records.write(result, asked.out)


def million(n_rows: int) -> tuple[float, float]:
    """Seconds of the frontier network's target step, and MiB that it adds to the peak."""
    done = iterations(random_batch(n_rows), *NETWORKS["frontier"], 2)
    next(done)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (record,) = target_steps(done)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return record.seconds_forward + record.seconds_frontier, (after - before) / 1024


if __name__ == "__main__":
    main()
