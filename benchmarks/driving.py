"""Speed of the batched two-way road against highway-env, as ratios within one run.

    python benchmarks/driving.py --out benchmarks/results/driving.json

Random actions, one thread, resets included. highway-env is `two-way-v0` with the kinematics of 6
cars and without speed limits, stepped without wrappers; ours is the batch, and one environment at a
time. Both are measured in turns, and the best of each counts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numba
import numpy as np
import records

import bmdp  # noqa: F401  registers the environments
from bmdp.envs.two_way.highway import highway_road, lift_speed_limits
from bmdp.envs.two_way.task import HORIZON


def batched(n_envs: int, n_steps: int) -> Callable[[], float]:
    """Decisions a second of one batch."""
    env: Any = gymnasium.make_vec(
        "bmdp/TwoWay-v0", num_envs=n_envs, vectorization_mode="vector_entry_point"
    )
    actions = np.random.default_rng(0).integers(0, 5, (n_steps, n_envs))
    env.reset(seed=0)
    env.step(actions[0])  # compiles

    def measure() -> float:
        begin = time.perf_counter()
        for row in actions:
            env.step(row)
        return n_envs * n_steps / (time.perf_counter() - begin)

    return measure


def single(env: Any, reset: Callable[[], Any], n_steps: int) -> Callable[[], float]:
    """Decisions a second of one environment, in episodes of up to 15."""
    actions = np.random.default_rng(0).integers(0, 5, n_steps)

    def measure() -> float:
        begin = time.perf_counter()
        n_left = 0
        for action in actions.tolist():
            if n_left == 0:
                reset()
                n_left = HORIZON
            *_, ended, _, _ = env.step(action)
            n_left = 0 if ended else n_left - 1
        return n_steps / (time.perf_counter() - begin)

    return measure


def main(arguments: list[str] | None = None) -> None:
    """Measures and writes."""
    asked = records.options(__doc__, arguments)
    numba.set_num_threads(1)
    n_envs, n_steps, n_rounds = (16, 3, 1) if asked.quick else (4096, 30, 5)
    theirs = highway_road((20.0, 25.0, 30.0), aware=True)
    ours: Any = gymnasium.make("bmdp/TwoWay-v0").unwrapped

    def reset_theirs() -> None:
        theirs.reset()
        lift_speed_limits(theirs)

    measures = {
        "highway_env": single(theirs, reset_theirs, 10 * n_steps),
        "single": single(ours, ours.reset, 100 * n_steps),
        "batch": batched(n_envs, n_steps),
    }
    best = dict.fromkeys(measures, 0.0)
    for _ in range(n_rounds):
        best = {name: max(best[name], measure()) for name, measure in measures.items()}
    row = {"n": n_envs} | {f"{name}_per_second": round(best[name], 1) for name in best}
    row |= {
        "batch_ratio": round(best["batch"] / best["highway_env"], 1),
        "single_ratio": round(best["single"] / best["highway_env"], 1),
    }
    print(*(f"{k}={v}" for k, v in row.items()), file=sys.stderr)
    records.write({"row": row}, asked.out)


if __name__ == "__main__":
    main()
