"""Long episodes and endless ones: time, memory, files and worth of the default fit.

    python benchmarks/long_horizons.py --out benchmarks/results/horizons.json

*Stock*: a store is kept for 30 to 1,000 days, or for ever. An order of 0 to 16 pieces arrives in
the morning, then customers come. A state is the stock and, if there is an end, the day. A piece
sold earns 1, one kept overnight costs the owner 0.1, an order 2; customers who go away empty-handed
are the cost. A log of random orders has about 300,000 rows. The truth is exact: a linear program
or dynamic program over 41 levels of stock (`bmdp.exact`).

*cart-pole* (500 steps) and *lunar-lander* (1,000 steps) are explored by `bmdp.fit`; both are tasks
of `benchmarks/strangers`, and the second has no known truth.

Each case runs in a process of its own. *Files*: bytes of the saved policy. *Decision*: microseconds
of one decision in a batch of 1,000 states, at the first step and at the last one.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import records
from scipy.stats import poisson

import bmdp
from bmdp import FiniteBMDP, Frontier, TransitionBatch
from bmdp.arrays import FloatArray, IntArray

ROWS = 300_000
N_PLAYED = 4_000  # episodes at each budget
N_BUDGETS = 7
FOR_EVER = 1_000  # steps after which an endless episode is cut off
CASES: list[dict[str, Any]] = [
    *({"task": "stock", "days": n} for n in (30, 100, 300, 1_000)),
    {"task": "stock", "days": 0},
    {"task": "cart-pole"},
    {"task": "lunar-lander"},
]


@dataclass(frozen=True)
class Stock:
    """A store that is kept for some days; for ever if 0."""

    days: int
    rows: int = ROWS
    capacity: int = 40
    demand: float = 8.0
    orders: tuple[int, ...] = (0, 4, 8, 12, 16)
    gamma: float = 0.99

    @property
    def n_steps(self) -> int:
        """Days of an episode in the log."""
        return self.days or FOR_EVER

    def seen(self, stock: IntArray, day: int) -> FloatArray:
        """States: the stock, and the day if there is an end."""
        shown = (stock, np.full(len(stock), day)) if self.days else (stock,)
        return np.column_stack(shown).astype(np.float64)

    def step(
        self, stock: IntArray, action: IntArray, rng: np.random.Generator
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        """The next stock, rewards and costs."""
        there = np.minimum(self.capacity, stock + np.array(self.orders)[action])
        asked = rng.poisson(self.demand, len(stock))
        sold = np.minimum(there, asked)
        left = there - sold
        return left, sold - 0.1 * left - 2.0 * (action > 0), (asked - sold).astype(np.float64)

    def starts(self, n: int) -> IntArray:
        """Stocks of the first day."""
        return np.full(n, 10)

    def log(self, seed: int) -> TransitionBatch:
        """Episodes of random orders."""
        rng, n = np.random.default_rng(seed), max(20, self.rows // self.n_steps)
        stock, rows = self.starts(n), []
        for day in range(self.n_steps):
            action = rng.integers(len(self.orders), size=n)
            after, reward, cost = self.step(stock, action, rng)
            is_last = np.full(n, day == self.n_steps - 1)
            rows.append(
                {
                    "state": self.seen(stock, day),
                    "action": action,
                    "reward": reward,
                    "cost": cost,
                    "next_state": self.seen(after, day + 1),
                    "terminal": is_last if self.days else np.zeros(n, np.bool_),
                    "truncated": np.zeros(n, np.bool_) if self.days else is_last,
                    "episode": np.arange(n),
                    "step": np.full(n, day),
                }
            )
            stock = after
        joined: dict[str, Any] = {k: np.concatenate([r[k] for r in rows]) for k in rows[0]}
        return TransitionBatch(**joined)

    def truth(self) -> Frontier:
        """The exact frontier."""
        asked = np.arange(60)
        chances = poisson.pmf(asked, self.demand)
        chances[-1] += 1 - chances.sum()
        n, n_actions = self.capacity + 1, len(self.orders)
        moves, reward, cost = np.zeros((n, n_actions, n)), *np.zeros((2, n, n_actions))
        for stock, action in np.ndindex(n, n_actions):
            there = min(self.capacity, stock + self.orders[action])
            sold = np.minimum(there, asked)
            np.add.at(moves[stock, action], there - sold, chances)
            earned = sold - 0.1 * (there - sold) - 2.0 * (action > 0)
            reward[stock, action] = chances @ earned
            cost[stock, action] = chances @ (asked - sold)
        model = FiniteBMDP(
            transition=moves, reward=reward, cost=cost, gamma=self.gamma, horizon=self.days or None
        )
        return bmdp.exact.optimal_frontier(model, start=10)

    def play(self, policy: Any, budget: float, seed: int) -> tuple[float, float]:
        """Discounted mean reward and cost of a policy."""
        rng, own = np.random.default_rng((seed, 1)), np.random.default_rng((seed, 2))
        stock, total, discount = self.starts(N_PLAYED), np.zeros(2), 1.0
        tracker = policy.start(self.seen(stock, 0), np.full(N_PLAYED, budget), own)
        for day in range(self.n_steps):
            action = tracker.decide(self.seen(stock, day)).action
            stock, reward, cost = self.step(stock, action, rng)
            total += discount * np.array([reward.mean(), cost.mean()])
            discount *= self.gamma
            ended = np.full(N_PLAYED, day == self.n_steps - 1)
            tracker.observe(cost, self.seen(stock, day + 1), ended)
        return float(total[0]), float(total[1])


def of_stock(days: int, rows: int = ROWS) -> dict[str, Any]:
    """Measures the default fit of a log of the store."""
    task = Stock(days, rows)
    log = task.log(100)
    begin = time.perf_counter()
    fitted = bmdp.fit(log, gamma=task.gamma, seed=100)
    found = _costs(fitted, begin)
    truth = task.truth()
    low, high = float(truth.costs[0]), float(truth.costs[-1])
    budgets = np.linspace(low, high, N_BUDGETS)
    points = np.array([task.play(fitted.policy, budget, 7) for budget in budgets])
    best = truth.reward_at(np.clip(np.maximum(budgets, points[:, 1]), low, high))
    return {
        "task": "stock",
        "steps": task.days or "endless",
        "rows": len(log),
        **found,
        **_decisions(fitted.policy, task.seen(task.starts(1_000), 0), task.n_steps),
        "score": round(float(np.mean(points[:, 0] / best)), 4),
        "overshoot": round(float(np.maximum(points[:, 1] - budgets, 0).max() / high), 4),
        "budgets": budgets.round(3).tolist(),
        "paid": points[:, 1].round(3).tolist(),
        "earned": points[:, 0].round(3).tolist(),
        "best": best.round(3).tolist(),
    }


def of_stranger(name: str) -> dict[str, Any]:
    """Measures the default fit of a task that is explored."""
    from strangers.envs import env_id, has_batch
    from strangers.measure import measure
    from strangers.tasks import TASKS

    begin = time.perf_counter()
    fitted = bmdp.fit(env_id(name, fast=has_batch(name)), seed=100)
    found = _costs(fitted, begin)
    measured = measure(fitted.policy, TASKS[name])
    is_scored = not np.isnan(measured.mean_score)
    return {
        "task": name,
        "steps": {"cart-pole": 500, "lunar-lander": 1_000}[name],
        **found,
        "score": round(measured.mean_score, 4) if is_scored else None,
        "excess": round(measured.worst_excess, 3) if is_scored else None,
        "budgets": measured.asked.round(4).tolist(),
        "paid": measured.cost.round(4).tolist(),
        "earned": measured.reward.round(3).tolist(),
    }


def _costs(fitted: Any, begin: float) -> dict[str, Any]:
    """Seconds, memory and bytes of files of a fit that was begun."""
    seconds = time.perf_counter() - begin
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with tempfile.TemporaryDirectory() as place:
        fitted.policy.save(Path(place) / "policy")
        n_bytes = sum(path.stat().st_size for path in Path(place).rglob("*") if path.is_file())
    return {
        "seconds": round(seconds, 1),
        "megabytes": round(megabytes, 1),
        "files_megabytes": round(n_bytes / 2**20, 3),
        "taken": fitted.candidates[0].name,
        "horizon": str(fitted).split("Horizon: ")[1].split(". Budgets")[0],
        "notes": list(fitted.notes),
    }


def _decisions(policy: Any, states: FloatArray, n_steps: int) -> dict[str, Any]:
    """Microseconds of a decision at the first and at the last step."""
    tracker = policy.start(states, np.full(len(states), policy.budget_range[1]), _rng())
    times = []
    for step in range(n_steps):
        begin = time.perf_counter()
        tracker.decide(states)
        times.append(time.perf_counter() - begin)
        nothing = np.zeros(len(states))
        tracker.observe(nothing, states, np.full(len(states), step == n_steps - 1))
    first, last = np.median(times[:10]), np.median(times[-10:])
    each = 1e6 / len(states)
    return {
        "microseconds_first": round(each * float(first), 2),
        "microseconds_last": round(each * float(last), 2),
    }


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def main(arguments: list[str] | None = None) -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="JSON file to write (default: standard output)")
    parser.add_argument("--quick", action="store_true", help="a tiny size, to see that it runs")
    parser.add_argument("--only", nargs="*", help="names of tasks")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.case:
        case = json.loads(asked.case)
        is_stock = case.pop("task") == "stock"
        print(
            json.dumps(
                of_stock(**case) if is_stock else of_stranger(json.loads(asked.case)["task"])
            )
        )
        return
    cases = [{"task": "stock", "days": 5, "rows": 2_000}] if asked.quick else CASES
    found = []
    for case in cases:
        if asked.only and case["task"] not in asked.only:
            continue
        command = [sys.executable, __file__, "--case", json.dumps(case)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print(case, (done.stdout or done.stderr)[-1_500:], file=sys.stderr, flush=True)
        lines = done.stdout.splitlines()
        found.append(json.loads(lines[-1]) if done.returncode == 0 else {**case, "failed": True})
    records.write({"cases": found}, asked.out)


if __name__ == "__main__":
    main()
