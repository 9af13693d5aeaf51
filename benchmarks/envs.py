"""Speed of the batched environments against a loop over single ones, as ratios within one run.

    python benchmarks/envs.py --out benchmarks/results/envs.json

Random actions, one thread, the best of five tries of each. A step is one step of one episode; the
batch has 4,096 of them.
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

from bmdp.envs import ENV_IDS


def batched(env_id: str, n_envs: int, n_steps: int) -> float:
    """Steps a second of one batch."""
    env: Any = gymnasium.make_vec(env_id, num_envs=n_envs, vectorization_mode="vector_entry_point")
    actions = np.random.default_rng(0).integers(0, env.single_action_space.n, (n_steps, n_envs))
    env.reset(seed=0)
    env.step(actions[0])  # compiles

    def play() -> None:
        for row in actions:
            env.step(row)

    return n_envs * n_steps / best_seconds(play)


def one_by_one(env_id: str, n_steps: int) -> float:
    """Steps a second of a single environment, without wrappers."""
    env: Any = gymnasium.make(env_id).unwrapped
    actions = np.random.default_rng(0).integers(0, env.action_space.n, n_steps)
    env.reset(seed=0)

    def play() -> None:
        for action in actions:
            *_, ended, _, _ = env.step(action)
            if ended:
                env.reset()

    return n_steps / best_seconds(play)


def best_seconds(play: Callable[[], None]) -> float:
    """Seconds of the best of five tries."""
    tries = []
    for _ in range(5):
        begin = time.perf_counter()
        play()
        tries.append(time.perf_counter() - begin)
    return min(tries)


def main(arguments: list[str] | None = None) -> None:
    """Measures and writes."""
    asked = records.options(__doc__, arguments)
    numba.set_num_threads(1)
    n_envs, n_steps = (16, 5) if asked.quick else (4096, 200)
    rows = []
    for name, env_id in ENV_IDS.items():
        many, one = batched(env_id, n_envs, n_steps), one_by_one(env_id, 10 * n_steps)
        rows.append(
            {
                "env": name,
                "n": n_envs,
                "steps_per_second": round(many),
                "single_steps_per_second": round(one),
                "ratio": round(many / one, 1),
            }
        )
        print(*(f"{k}={v}" for k, v in rows[-1].items()), file=sys.stderr)
    records.write({"rows": rows}, asked.out)


if __name__ == "__main__":
    main()
