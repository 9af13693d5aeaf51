"""Where the paper's operator T is not what was claimed: it expands, and misses the optimum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bmdp.arrays import FloatArray
from bmdp.exact import allocate_budgets, budgeted_value_iteration, solve_cmdp
from bmdp.exact.operators import QTables, distance, optimality_operator
from bmdp.exact.textbook import branches, forever, kinked_pair, steep_pair
from bmdp.experiments.parts.random_models import GAMMA, carried_policy
from bmdp.frontier import Frontier, frontier_values, hull_mixture, upper_frontier

PAIRS = {"steep": steep_pair, "kinked": kinked_pair}
"""Pairs of Q-functions whose distance T expands: the paper's, and one against its Remark 2."""

LIPSCHITZ = (0.01, 0.1, 0.5, 1.0, 5.0)
"""Slopes of rising graphs."""

_SIZES = (1e-3, 0.05, 0.5)  # by which random graphs differ
_N_BUDGETS = 11  # at which the two branches are drawn


def expansions(sizes: Sequence[float] = tuple(10.0 ** -np.arange(1, 7))) -> list[dict[str, float]]:
    """Returns by how much T expands the distance of the pairs, a row for each size of a pair."""
    model, rows = forever(GAMMA).model, []
    for size in map(float, sizes):
        row = {"size": size}
        for name, pair in PAIRS.items():
            grid = np.array([0.0, size, 1.0])
            left, right = pair(model, len(grid), size)
            images = [optimality_operator(model, q, grid) for q in (left, right)]
            row[name] = distance(*images) / distance(left, right)
        rows.append(row)
    return rows


def drawn_pairs(size: float) -> list[dict[str, Any]]:
    """Returns the pairs as points, and what the greedy step chooses of each.

    Returns:
        For each pair: `name`, `size`, `budget` (at which its images differ), `distance`,
        `image_distance` and `expansion`; `first` and `second`, each with `costs` and `rewards` of
        its actions, and `chosen`, the `cost` and `reward` of the greedy mixture.

    Paper: the figure of the counter-example in the proof of Theorem 2.
    """
    model, found = forever(GAMMA).model, []
    for name, pair in PAIRS.items():
        budget = size if name == "steep" else 1.0
        grid = np.unique([0.0, budget, 1.0])
        left, right = pair(model, len(grid), size)
        images = [optimality_operator(model, q, grid) for q in (left, right)]
        apart, images_apart = distance(left, right), distance(*images)
        found.append(
            {
                "name": name,
                "size": size,
                "budget": budget,
                "distance": apart,
                "image_distance": images_apart,
                "expansion": images_apart / apart,
                "first": _points(left, budget),
                "second": _points(right, budget),
            }
        )
    return found


def _points(q: QTables, budget: float) -> dict[str, Any]:
    """The actions of a Q-function that is the same everywhere, and the greedy mixture of them."""
    rewards, costs = q.q_r[0, :, 0], q.q_c[0, :, 0]
    chosen = hull_mixture(upper_frontier(costs, rewards), budget)
    return {
        "costs": costs.tolist(),
        "rewards": rewards.tolist(),
        "chosen": {"cost": chosen.cost, "reward": chosen.reward},
    }


def rising_pairs(
    rng: np.random.Generator, lipschitz: float, n_points: int, size: float
) -> tuple[FloatArray, ...]:
    """Returns 400 pairs of graphs `[N, K]` that rise, no steeper than L, and differ by `size`."""
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
    """Returns the largest distance of the greedy values of two rising graphs, over their own.

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


def rising_expansions(n_rounds: int) -> list[dict[str, float]]:
    """Returns the largest expansion seen on rising graphs of slope L, beside its bound 1 + L."""
    return [
        {
            "L": lipschitz,
            "bound": 1 + lipschitz,
            "largest": max(
                largest_expansion(np.random.default_rng(0), lipschitz, size, n_rounds)
                for size in _SIZES
            ),
        }
        for lipschitz in LIPSCHITZ
    ]


def two_branches() -> dict[str, float]:
    """Returns what T, allocation and the linear program earn on two branches at budget 1/2."""
    model = branches().model
    solution = budgeted_value_iteration(model, np.linspace(0, 1, _N_BUDGETS))
    return {
        "operator": float(solution.frontier(0).reward_at(0.5)),
        "allocation": float(allocate_budgets(model).frontier(0).reward_at(0.5)),
        "linear_program": solve_cmdp(model, start=0, budget=0.5).reward,
    }


def branch_frontiers() -> dict[str, Any]:
    """Returns what every way to spend a budget earns on two branches, and its whole frontier.

    Returns:
        `payoffs`, `budget`, `rewards` of all ways at that budget, and `frontiers`: for each way
        `costs` and `rewards`.
    """
    payoffs, budget = (10.0, 1.0), 0.5
    problem = branches(payoffs)
    model, optimum = problem.model, problem.frontier
    budgets = np.linspace(0, 1, _N_BUDGETS)
    programs = [solve_cmdp(model, start=0, budget=b) for b in budgets]
    frontiers: dict[str, Frontier] = {
        "operator": budgeted_value_iteration(model, budgets).frontier(0),
        "allocation": allocate_budgets(model).frontier(0),
        "carried": carried_policy(model, optimum).frontier(0),
    }
    drawn: dict[str, Any] = {
        "linear_program": {
            "costs": [program.cost for program in programs],
            "rewards": [program.reward for program in programs],
        }
    }
    drawn |= {
        name: {"costs": f.costs.tolist(), "rewards": f.rewards.tolist()}
        for name, f in frontiers.items()
    }
    rewards = {name: float(f.reward_at(budget)) for name, f in frontiers.items()}
    middle = int(np.searchsorted(budgets, budget))
    rewards["linear_program"] = programs[middle].reward
    return {
        "payoffs": list(payoffs),
        "budget": budget,
        "rewards": rewards,
        "frontiers": drawn,
    }
