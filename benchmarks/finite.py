"""Ways to spend a budget in finite problems that are known: exact values, side by side.

    python benchmarks/finite.py --out benchmarks/results/finite.json

For each problem and budget: the optimum of the constrained problem (linear program), the paper's
operator T, budgets by next state (Boutilier and Lu), a price that is carried, and a coin between
the safest and the best-paid policy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import records

from bmdp.exact import allocate_budgets, budgeted_value_iteration, solve_cmdp, textbook
from bmdp.exact.multiplier import cost_range, optimal_frontier
from bmdp.exact.price_dial import price_dial
from bmdp.policies import MultiplierPolicy

PROBLEMS = ("branches", "ladder", "crossing")


def problems(n_random: int) -> dict[str, textbook.TextbookProblem]:
    """Textbook problems, and random ones."""
    found = {name: textbook.problem(name) for name in PROBLEMS}
    for seed in range(n_random):
        model = textbook.garnet(8, 3, 3, gamma=0.9, rng=np.random.default_rng(seed))
        frontier = optimal_frontier(model, start=0)
        found[f"random {seed}"] = textbook.TextbookProblem(model, 0, frontier)
    return found


def compared(problem: textbook.TextbookProblem) -> dict[str, Any]:
    """Rewards of all ways at the middle of what can be spent."""
    model, start = problem.model, problem.start
    low, high = float(problem.frontier.costs[0]), float(problem.frontier.costs[-1])
    budget = (low + high) / 2
    most = max(1.0, cost_range(model)[1])
    grid = np.linspace(min(0.0, low), most, 101)
    solution = budgeted_value_iteration(model, grid, tol=1e-9, max_iterations=2000)
    slopes = np.diff(problem.frontier.rewards) / np.diff(problem.frontier.costs)
    prices = (np.inf, *((slopes[1:] + slopes[:-1]) / 2), 0.0)
    dial = price_dial(model, prices)
    carried = MultiplierPolicy(dial, min(0.0, low), most)
    return {
        "budget": budget,
        "linear program": solve_cmdp(model, start=start, budget=budget).reward,
        "operator T": float(solution.policy().frontier(start).reward_at(budget)),
        "budgets by next state": float(allocate_budgets(model).frontier(start).reward_at(budget)),
        "price carried": float(carried.frontier(start).reward_at(budget)),
        "coin": float(problem.frontier.rewards[[0, -1]].mean()),  # the budget is in the middle
    }


def main(arguments: list[str] | None = None) -> None:
    """Compares, and writes the results."""
    options = records.options(__doc__ or "", arguments)
    chosen = problems(2 if options.quick else 20)
    rows = {name: compared(problem) for name, problem in chosen.items()}
    records.write({"rows": rows}, options.out)


if __name__ == "__main__":
    main()
