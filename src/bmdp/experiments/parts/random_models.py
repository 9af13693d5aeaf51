"""Ways to spend a budget in random models that are known: how far each is from the optimum.

Models are Garnet: 20 states, 3 actions and a few random successors of each. Rewards are those from
state 0, at budgets of a quarter, half and three quarters of the range of the optimal frontier. Two
measures: the *ratio* of a reward to the best that its own cost could buy, and the *share* of what
the optimum gains over the safest policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bmdp.arrays import FloatArray
from bmdp.exact import (
    FiniteBMDP,
    allocate_budgets,
    budgeted_value_iteration,
    cost_range,
    evaluate_policy,
    optimal_frontier,
    solve_cmdp,
)
from bmdp.exact.price_dial import price_dial
from bmdp.exact.textbook import garnet
from bmdp.frontier import Frontier
from bmdp.policies import MultiplierPolicy

GAMMA = 0.9
N_STATES, N_ACTIONS = 20, 3
SHARES = (0.25, 0.5, 0.75)
"""Of the frontier's range: where budgets are asked."""

KINDS = {"random": (3, 1), "deterministic": (1, 5)}
"""By kind of model: successors of a state and action, and how much finer the grid of budgets is."""

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Solved:
    """A random model, and the best that can be had from state 0."""

    seed: int
    model: FiniteBMDP
    optimum: Frontier
    allocation: Frontier  # by budgets that depend on the next state


def solve(seed: int, n_successors: int) -> Solved:
    """Returns a random model, solved."""
    rng = np.random.default_rng(seed)
    model = garnet(N_STATES, N_ACTIONS, n_successors, gamma=GAMMA, rng=rng)
    optimum = optimal_frontier(model, start=0)
    return Solved(seed, model, optimum, allocate_budgets(model).frontier(0))


def gap(solved: Solved, n_budgets: int) -> Row:
    """Returns what the paper's operator T reaches in a model.

    Args:
        solved: the model.
        n_budgets: of the grid, beside those asked.

    Returns:
        `seed`, `converged`; at the budgets asked: `asked`, `cost` and `reward` of the operator's
        policy, `best` (what the optimum earns at that cost), `ratio` and `share` (None where there
        is nothing to gain); `largest_excess` of reward over best, and `allocation_error`, the
        largest difference between allocation and the linear program over seven budgets.
    """
    model, optimum = solved.model, solved.optimum
    asked = asked_budgets(optimum)
    grid = np.union1d(np.linspace(*cost_range(model), n_budgets), asked)
    solution = budgeted_value_iteration(model, grid)
    v_r, v_c = evaluate_policy(model, solution.policy(), grid)
    places = np.searchsorted(grid, asked)
    reward, cost = v_r[0, places], v_c[0, places]
    best = optimum.reward_at(np.clip(cost, optimum.costs[0], optimum.costs[-1]))
    return {
        "seed": solved.seed,
        "converged": solution.converged,
        "asked": asked.tolist(),
        "cost": cost.tolist(),
        "reward": reward.tolist(),
        "best": best.tolist(),
        "ratio": (reward / best).tolist(),
        "share": shares(reward, best, float(optimum.rewards[0])),
        "largest_excess": float((reward - best).max()),
        "allocation_error": _allocation_error(solved),
    }


def other_ways(solved: Solved) -> Row:
    """Returns what reaches the optimum in a model, at the budgets asked.

    Returns:
        Rewards of `linear_program`, of `allocation` (budgets that depend on the next state) and of
        `carried` (a price that is kept), and `allocation_share` and `carried_share`.
    """
    model, optimum = solved.model, solved.optimum
    asked, safest = asked_budgets(optimum), float(optimum.rewards[0])
    programs = np.array([solve_cmdp(model, start=0, budget=b).reward for b in asked])
    ways = {
        "allocation": solved.allocation,
        "carried": carried_policy(model, optimum).frontier(0),
    }
    row: Row = {"linear_program": programs.tolist()}
    for name, frontier in ways.items():
        least = frontier.costs[0]  # that of the optimum, but for rounding
        reward = np.asarray(frontier.reward_at(asked.clip(least)))
        row |= {name: reward.tolist(), f"{name}_share": shares(reward, programs, safest)}
    return row


def asked_budgets(optimum: Frontier) -> FloatArray:
    """Returns the budgets at which ways are compared."""
    low, high = optimum.costs[0], optimum.costs[-1]
    return np.asarray(low + np.array(SHARES) * (high - low))


def carried_policy(model: FiniteBMDP, optimum: Frontier) -> MultiplierPolicy:
    """Returns the policy of a price for each vertex of the optimal frontier."""
    slopes = np.diff(optimum.rewards) / np.diff(optimum.costs)
    prices = (np.inf, *((slopes[1:] + slopes[:-1]) / 2), 0.0)
    return MultiplierPolicy(
        price_dial(model, prices),
        min(0.0, float(optimum.costs[0])),
        max(1.0, cost_range(model)[1]),
    )


def shares(reward: FloatArray, best: FloatArray, safest: float) -> list[float | None]:
    """Returns how much of what the optimum gains over the safest policy is gained.

    >>> shares(np.array([2.0, 1.0]), np.array([3.0, 1.0]), 1.0)
    [0.5, None]
    """
    gains = zip((reward - safest).tolist(), (best - safest).tolist(), strict=True)
    return [gained / gain if gain > 1e-9 else None for gained, gain in gains]


def _allocation_error(solved: Solved) -> float:
    """Largest difference in reward between allocation and the linear program."""
    frontier = solved.allocation
    budgets = np.linspace(frontier.costs[0], frontier.costs[-1], 7)
    programs = [solve_cmdp(solved.model, start=0, budget=b).reward for b in budgets]
    return float(abs(frontier.reward_at(budgets) - programs).max())


def summary(rows: Sequence[Row]) -> Row:
    """Returns means and least ones over all models and budgets, from rows of `gap`."""
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
