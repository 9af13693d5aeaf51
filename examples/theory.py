"""How far the paper's operator T is from the optimum, and how far it is from contracting.

    python examples/theory.py --out out/theory

For random models (Garnet): what the policy of budgeted value iteration earns from state 0, against
the best that its own cost could buy. Two measures, at budgets of a quarter, half and three quarters
of the frontier's range: the *ratio* of the rewards, and the *share* of what the optimum gains over
the safest policy. Beside it the largest difference between the linear program and the frontiers by
allocation, and the two counter-examples. Writes theory.json and two figures.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from bmdp import FiniteBMDP
from bmdp.arrays import FloatArray
from bmdp.exact import (
    allocate_budgets,
    budgeted_value_iteration,
    cost_range,
    evaluate_policy,
    optimal_frontier,
    solve_cmdp,
)
from bmdp.exact.operators import distance, optimality_operator
from bmdp.exact.textbook import branches, forever, garnet, kinked_pair, steep_pair
from bmdp.frontier import frontier_values
from bmdp.report.theory import expansion_figure, gap_figure

GAMMA = 0.9
N_STATES, N_ACTIONS = 20, 3
SHARES = (0.25, 0.5, 0.75)


def gap(seed: int, n_successors: int, n_budgets: int) -> dict[str, Any]:
    """One random model: the operator's policy against the optimum."""
    rng = np.random.default_rng(seed)
    model = garnet(N_STATES, N_ACTIONS, n_successors, gamma=GAMMA, rng=rng)
    optimum = optimal_frontier(model, start=0)
    low, high = optimum.costs[0], optimum.costs[-1]
    asked = low + np.array(SHARES) * (high - low)
    grid = np.union1d(np.linspace(*cost_range(model), n_budgets), asked)
    solution = budgeted_value_iteration(model, grid)
    v_r, v_c = evaluate_policy(model, solution.policy(), grid)
    places = np.searchsorted(grid, asked)
    reward, cost = v_r[0, places], v_c[0, places]
    best = optimum.reward_at(np.clip(cost, low, high))
    safest = optimum.rewards[0]
    gain = best - safest
    share = [(r - safest) / g if g > 1e-9 else None for r, g in zip(reward, gain, strict=True)]
    return {
        "seed": seed,
        "converged": solution.converged,
        "asked": asked.tolist(),
        "cost": cost.tolist(),
        "reward": reward.tolist(),
        "best": best.tolist(),
        "ratio": (reward / best).tolist(),
        "share": share,
        "largest_excess": float((reward - best).max()),
        "allocation_error": allocation_error(model),
    }


def allocation_error(model: FiniteBMDP) -> float:
    """Largest difference in reward between allocation and the linear program from state 0."""
    frontier = allocate_budgets(model).frontier(0)
    budgets = np.linspace(frontier.costs[0], frontier.costs[-1], 7)
    programs = [solve_cmdp(model, start=0, budget=b).reward for b in budgets]
    return float(abs(frontier.reward_at(budgets) - programs).max())


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean, least and number of models, over all models and budgets."""
    ratio, share = (np.array([r[name] for r in rows], dtype=float) for name in ("ratio", "share"))
    return {
        "models": len(rows),
        "converged": sum(row["converged"] for row in rows),
        "ratio_mean": float(ratio.mean()),
        "ratio_least": float(ratio.min()),
        "share_mean": float(np.nanmean(share)),
        "share_least": float(np.nanmin(share)),
        "largest_excess": max(row["largest_excess"] for row in rows),
        "allocation_error": max(row["allocation_error"] for row in rows),
    }


def expansions() -> list[dict[str, float]]:
    """By how much T expands the distance of the two pairs of Q-functions, at a range of sizes."""
    model, rows = forever(GAMMA).model, []
    for size in 10.0 ** -np.arange(1, 7):
        row = {"size": float(size)}
        for name, pair in (("steep", steep_pair), ("kinked", kinked_pair)):
            grid = np.array([0.0, size, 1.0])
            left, right = pair(model, len(grid), float(size))
            images = [optimality_operator(model, q, grid) for q in (left, right)]
            row[name] = distance(*images) / distance(left, right)
        rows.append(row)
    return rows


def rising_pairs(
    rng: np.random.Generator, lipschitz: float, n_points: int, size: float
) -> tuple[FloatArray, ...]:
    """400 pairs of graphs `[N, K]` that rise, no steeper than L, and differ by about `size`."""
    shape = (400, n_points)
    costs = np.sort(rng.random(shape) ** rng.choice([1, 4]), axis=1)
    slopes = lipschitz * np.maximum(rng.random(shape) ** rng.choice([0.1, 1, 8]), 1e-3)
    rewards = np.cumsum(np.diff(costs, axis=1, prepend=0) * slopes, axis=1)
    other_costs = np.sort(costs + size * rng.uniform(-1, 1, shape), axis=1)
    other_rewards = rewards + size * rng.uniform(-1, 1, shape)
    for k in range(1, n_points):  # back to a graph that rises, no steeper than L
        step = other_costs[:, k] - other_costs[:, k - 1]
        low, high = (other_rewards[:, k - 1] + s * step for s in (1e-3 * lipschitz, lipschitz))
        other_rewards[:, k] = np.clip(other_rewards[:, k], low, high)
    return costs, rewards, other_costs, other_rewards


def largest_expansion(
    rng: np.random.Generator, lipschitz: float, size: float, n_rounds: int
) -> float:
    """Largest distance of the greedy values of two rising graphs, over that of the graphs.

    Budgets are below, within and above the graphs. T expands by gamma times this at most.
    """
    budgets, largest = np.linspace(-0.5, 2, 61), 0.0
    for _ in range(n_rounds):
        c1, r1, c2, r2 = rising_pairs(rng, lipschitz, int(rng.integers(2, 9)), size)
        apart = np.maximum(abs(c1 - c2), abs(r1 - r2)).max(axis=1)
        left, right = frontier_values(c1, r1, budgets), frontier_values(c2, r2, budgets)
        image = np.maximum(abs(left[0] - right[0]), abs(left[1] - right[1])).max(axis=1)
        largest = max(largest, float((image / apart).max()))
    return largest


def two_branches() -> dict[str, float]:
    """The two-branch problem at budget 1/2."""
    model = branches().model
    solution = budgeted_value_iteration(model, np.linspace(0, 1, 11))
    return {
        "operator": float(solution.frontier(0).reward_at(0.5)),
        "allocation": float(allocate_budgets(model).frontier(0).reward_at(0.5)),
        "linear_program": solve_cmdp(model, start=0, budget=0.5).reward,
    }


def main(arguments: list[str] | None = None) -> None:
    """Runs the study, prints its summary, and writes records and figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("out/theory"), help="folder")
    parser.add_argument("--models", type=int, default=50, help="random models of each kind")
    parser.add_argument("--budgets", type=int, default=101, help="budgets of the grid")
    options = parser.parse_args(arguments)
    seeds = range(options.models)
    rows = {
        "random": [gap(seed, 3, options.budgets) for seed in seeds],
        "deterministic": [gap(seed, 1, 5 * options.budgets) for seed in seeds],
    }
    record: dict[str, Any] = {
        "settings": {"states": N_STATES, "actions": N_ACTIONS, "gamma": GAMMA},
        "summary": {name: summary(found) for name, found in rows.items()},
        "two_branches": two_branches(),
        "expansion": expansions(),
        "rising": [
            {
                "L": lipschitz,
                "bound": 1 + lipschitz,
                "largest": max(
                    largest_expansion(np.random.default_rng(0), lipschitz, size, n_rounds=100)
                    for size in (1e-3, 0.05, 0.5)
                ),
            }
            for lipschitz in (0.01, 0.1, 0.5, 1.0, 5.0)
        ],
        "rows": rows,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "theory.json").write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    gap_figure(rows).savefig(options.out / "gap.png", dpi=150)
    expansion_figure(record["expansion"]).savefig(options.out / "expansion.png", dpi=150)
    for name, numbers in record["summary"].items():
        print(name, *(f"{key}={value:.4g}" for key, value in numbers.items()))
    print("two branches at budget 0.5:", record["two_branches"])
    for row in record["rising"]:
        print("rising graphs", *(f"{key}={value:.4g}" for key, value in row.items()))
    for row in record["expansion"]:
        print("expansion", *(f"{key}={value:.4g}" for key, value in row.items()))


if __name__ == "__main__":
    main()
