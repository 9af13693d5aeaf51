"""Measures the default call of `bmdp.fit` on the paper's tasks, for fresh seeds.

    python benchmarks/front_door.py --tasks corridors,slot-filling --seeds 100:110 --jobs 2 \
        --out FILE

Slot-filling shows its belief. Scores need a true frontier, so the road has rewards and costs alone.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import bmdp
from bmdp.envs import known_frontier
from bmdp.envs.slots import find_spec
from bmdp.evaluation.dial import dial_measures

SETTINGS: dict[str, dict[str, Any]] = {
    "corridors": {},
    "slot-filling": {"features": "belief"},
    "two-way": {"features": "time-to-collision", "observe_time": True},
}
BUDGETS = np.linspace(0.0, 1.0, 11)
N_EPISODES = 20_000  # at each: costs of corridors are then known to 0.0035


def measured(job: tuple[str, int, int | None]) -> dict[str, Any]:
    """Returns what the default call comes to for a task, a seed and a number of episodes."""
    name, seed, episodes = job
    spec = find_spec(name)
    spec = replace(spec, kwargs={**spec.kwargs, **SETTINGS[name]})
    begun = time.perf_counter()
    fitted = bmdp.fit(spec, seed=seed, episodes=episodes)
    seconds = time.perf_counter() - begun
    found = bmdp.evaluate(
        fitted.policy, spec, budgets=BUDGETS, n_episodes=N_EPISODES, seed=seed + 1
    )
    cost, reward = found.discounted_cost_mean, found.discounted_reward_mean
    record = {
        "task": name,
        "seed": seed,
        "episodes": episodes,
        "seconds": seconds,
        "cost": cost.tolist(),
        "reward": reward.tolist(),
        "taken": fitted.candidates[0].name,
        "summary": fitted.summary,
        "notes": list(fitted.notes),
    }
    true, _ = known_frontier(spec)
    if true is not None:
        got = dial_measures(BUDGETS, cost, reward, true.frontier)
        record |= {
            "score": float(np.nanmean(got.score)),
            "worst_overshoot": float(max(0.0, got.overshoot.max())),
            "dial_error": float(got.dial_error.mean()),
        }
    return record


def main() -> None:
    """Runs what is asked for, and writes all records to one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", default="corridors,slot-filling")
    parser.add_argument("--seeds", default="100:110")
    parser.add_argument("--episodes", type=int)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    first, _, last = asked.seeds.partition(":")
    jobs = [
        (task, seed, asked.episodes)
        for seed in range(int(first), int(last))
        for task in asked.tasks.split(",")
    ]
    records = []
    with ProcessPoolExecutor(asked.jobs, get_context("spawn")) as pool:
        for record in pool.map(measured, jobs):
            records.append(record)
            asked.out.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
