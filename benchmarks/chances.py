"""Limits that are not discounted, exact beside learned: the tables of docs/choosing-a-budget.md.

Three kinds of weather, three speeds, eight hours: faster earns more, and costs more in a storm.
`bmdp.fit` learns from a log of random episodes; the exact answers are those of `bmdp.exact`.

    python benchmarks/chances.py --out benchmarks/results/limits/record.json
    python benchmarks/chances.py --table

The second command prints the tables of the record.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

import bmdp
from bmdp import FiniteBMDP, Frontier, TransitionBatch
from bmdp.envs import FiniteEnv, FiniteVectorEnv
from bmdp.envs.slots import find_spec
from bmdp.exact import optimal_frontier, with_cost_so_far
from bmdp.learn import collect
from bmdp.policies import UniformPolicy

RECORD = Path(__file__).parent / "results" / "limits" / "record.json"
GAMMA, LIMIT, HOURS = 0.9, 2.0, 8
START = (0.6, 0.3, 0.1)
CHANCES, BUDGETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4), (0.25, 0.5, 1.0, 2.0, 3.0, 4.0)
NAMES = ("asked", "exact_reward", "reward", "reward_error", "cost", "cost_error")


def weather(cost_gamma: float = GAMMA) -> FiniteBMDP:
    """The problem: from calm, rain or storm, at one of three speeds."""
    change = np.array([[0.7, 0.25, 0.05], [0.3, 0.5, 0.2], [0.1, 0.4, 0.5]])
    return FiniteBMDP(
        transition=np.repeat(change[:, None], 3, axis=1),
        reward=np.array([[1.0, 1.6, 2.0], [0.8, 1.4, 2.0], [0.5, 1.2, 2.0]]),
        cost=np.array([[0.0, 0.0, 0.5], [0.0, 0.5, 1.0], [0.0, 1.0, 1.5]]),
        gamma=GAMMA,
        cost_gamma=cost_gamma,
        horizon=HOURS,
    )


def spec() -> EnvSpec:
    """Returns the problem as an environment."""
    if "Weather-v0" not in gymnasium.registry:
        kwargs = {"model": weather(), "start": START}
        entries: Any = {"entry_point": FiniteEnv, "vector_entry_point": FiniteVectorEnv}
        gymnasium.register("Weather-v0", **entries, kwargs=kwargs)
    return find_spec("Weather-v0")


def log(n_episodes: int, seed: int) -> TransitionBatch:
    """Random episodes."""
    return collect(
        UniformPolicy(3, 0.0, 1.0),
        spec(),
        range(n_episodes),
        budgets=np.zeros(n_episodes),
        seed=seed,
    )


def exact(limit: float | None = None) -> Frontier:
    """Returns the optimal frontier from the start, of chances if there is a limit."""
    model = weather(1.0) if limit is None else with_cost_so_far(weather(), limit)
    start = np.zeros(model.n_states)
    start[: len(START)] = START
    return optimal_frontier(model, start=start)


def rows(
    policy: Any,
    asked: Sequence[float],
    frontier: Frontier,
    n_played: int,
    cost_gamma: float | None = None,
) -> list[dict[str, float]]:
    """Rows of a table: asked, exact reward, and what was played with standard errors."""
    found = bmdp.evaluate(
        policy, spec(), budgets=asked, n_episodes=n_played, seed=7, cost_gamma=cost_gamma
    )
    half = 1.96
    columns = (
        asked,
        frontier.reward_at(np.maximum(asked, frontier.costs[0])),
        found.discounted_reward_mean,
        (found.discounted_reward_high - found.discounted_reward_mean) / half,
        found.dial_cost_mean,
        (found.dial_cost_high - found.dial_cost_low) / (2 * half),
    )
    return [dict(zip(NAMES, map(float, row), strict=True)) for row in zip(*columns, strict=True)]


def measured(n_episodes: int, n_played: int, minutes: float) -> dict[str, Any]:
    """Returns the record of both limits."""
    batch = log(n_episodes, 0)
    how: dict[str, Any] = {"gamma": GAMMA, "minutes": minutes}
    by_sum = bmdp.fit(batch, **how, cost_gamma=1.0)
    by_chance = bmdp.fit(batch, **how, episode_limit=LIMIT)
    return {
        "episodes": n_episodes,
        "played": n_played,
        "sum": rows(by_sum.policy, BUDGETS, exact(), n_played, cost_gamma=1.0),
        "chance": rows(by_chance.policy, CHANCES, exact(LIMIT), n_played),
    }


def table(record: dict[str, Any], kind: str) -> str:
    """Returns one of the tables as Markdown."""
    is_chance = kind == "chance"
    names = ("asked", "exact reward", "learned reward", "share over 2" if is_chance else "cost")
    lines = ["| " + " | ".join(names) + " |", "|---|---|---|---|"]
    for row in record[kind]:
        told = [f"{row['asked']:g}", f"{row['exact_reward']:.3f}"]
        told += [
            f"{row[n]:.{d}f} ± {row[f'{n}_error']:.{d}f}" for n, d in (("reward", 3), ("cost", 4))
        ]
        lines.append("| " + " | ".join(told) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, or prints the tables of the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="few episodes, to see that it runs")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args(arguments)
    if asked.table:
        record = json.loads(RECORD.read_text())
    else:
        record = measured(*((2_000, 1_000, 0.2) if asked.quick else (20_000, 100_000, 2.0)))
    if asked.out is not None:
        asked.out.write_text(json.dumps(record, indent=1) + "\n")
    for kind in ("sum", "chance"):
        print(f"{table(record, kind)}\n")


if __name__ == "__main__":
    main()
