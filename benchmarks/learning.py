"""Speed of the greedy step of learning and of acting, as ratios within one run.

    python benchmarks/learning.py --out benchmarks/results/learning.json

*Target step*: values of 20,000 next states with 5 actions. The paper's network has 101 budgets, and
one label a row; the frontier network has 41 knots, and is valued at all of them. The frontier part
is compared with a Python loop over states, the whole step of one network with that of the other.
*Memory*: how much the target step of a million transitions adds to the peak. *Acting*: one state at
a time, and 20,000 at once.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import records
import torch

from bmdp import hull_mixture, upper_frontier
from bmdp.learn.targets import mixture_values
from bmdp.models import EncoderNet, FrontierNet, Regression
from bmdp.models.networks import NetworkFitter
from bmdp.models.regressor import Problem
from bmdp.policies.greedy import GreedyRule
from bmdp.policies.hull import HullPolicy

STATE_SIZE, N_ACTIONS = 18, 5


def best_of(work: Callable[[], Any], n: int = 3) -> float:
    """Least seconds of some tries."""
    work()
    least = np.inf
    for _ in range(n):
        begin = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - begin)
    return float(least)


def fitter(
    network: EncoderNet | FrontierNet,
    n_budgets: int,
    state_size: int = STATE_SIZE,
    n_actions: int = N_ACTIONS,
) -> NetworkFitter:
    """An untrained network."""
    states = np.random.default_rng(0).normal(size=(100, state_size))
    problem = Problem(
        states=states,
        actions=np.zeros(100, np.int64),
        members=np.ones((1, 100), np.bool_),
        n_actions=n_actions,
        beta_grid=np.linspace(0, 1, n_budgets),
        reward_scale=1.0,
        seed=0,
    )
    return NetworkFitter(network, Regression(), problem, torch.device("cpu"))


def target_step(
    models: NetworkFitter, states: np.ndarray[Any, Any], budgets: torch.Tensor, chunk: int
) -> tuple[float, float]:
    """Seconds of the forward part and of the frontier part."""
    forward = frontier = 0.0
    for first in range(0, len(states), chunk):
        at = time.perf_counter()
        values = models.grid(states[first : first + chunk])[0]
        forward += time.perf_counter() - at
        at = time.perf_counter()
        asked = budgets if budgets.ndim == 1 else budgets[first : first + chunk]
        mixture_values(values, values, asked, GreedyRule(0.0, 4.0))
        frontier += time.perf_counter() - at
    return forward, frontier


def python_loop(models: NetworkFitter, states: np.ndarray[Any, Any], budgets: list[float]) -> float:
    """Seconds a state of the frontier part in a loop over states."""
    values = models.grid(states)[0].numpy()

    def work() -> None:
        for grid in values:
            frontier = upper_frontier(grid[1].ravel(), grid[0].ravel())
            for budget in budgets:
                hull_mixture(frontier, budget)

    return best_of(work, 1) / len(states)


def main(arguments: list[str] | None = None) -> None:
    """Measures and writes."""
    asked = records.options(__doc__, arguments)
    n, n_loop, n_many = (200, 20, 2_000) if asked.quick else (20_000, 300, 1_000_000)
    rng = np.random.default_rng(1)
    states = rng.normal(size=(n, STATE_SIZE))
    rows: list[dict[str, Any]] = []
    for name, network, n_budgets in (
        ("encoder", EncoderNet(), 101),
        ("frontier", FrontierNet(), 41),
    ):
        models = fitter(network, n_budgets)
        one = torch.tensor(rng.random((n, 1)), dtype=torch.float32)
        budgets = models.budgets if name == "frontier" else one
        target_step(models, states[:200], budgets if name == "frontier" else one[:200], 200)
        tries = [target_step(models, states, budgets, 4096) for _ in range(3)]
        forward, frontier = (min(column) for column in zip(*tries, strict=True))
        asked_for = np.linspace(0, 1, 41).tolist() if name == "frontier" else [0.5]
        loop = python_loop(models, states[:n_loop], asked_for)
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
    models = fitter(FrontierNet(), 41)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    many = np.zeros((n_many, STATE_SIZE), np.float32)
    begin = time.perf_counter()
    target_step(models, many, models.budgets, 4096)
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    policy = HullPolicy(models.result(0), np.linspace(0, 1, 41), GreedyRule(0.0, 4.0))
    draws = np.random.default_rng(0)
    act = best_of(lambda: [policy.act(states[0], 0.5, draws) for _ in range(50)]) / 50
    decide = best_of(lambda: policy.decide(states, 0.5, draws)) / n
    result = {
        "target_step": rows,
        "frontier_net_ratio": round(whole[0] / whole[1], 1),
        "million": {
            "transitions": n_many,
            "seconds": round(seconds, 1),
            "added_mib": round((after - before) / 1024, 1),
        },
        "act_milliseconds": round(1e3 * act, 3),
        "decisions_per_second": round(1 / decide),
        "torch_threads": torch.get_num_threads(),
    }
    print(*(f"{k}={v}" for k, v in result.items() if k != "target_step"), file=sys.stderr)
    records.write(result, asked.out)


if __name__ == "__main__":
    main()
