"""Prices chosen for a budget by what they were measured to cost, and what they cost then.

Two rules of the paper's appendix on the Lagrangian relaxation: of the prices that keep the budget
the one that earns most, where a price is said to cost its mean, or the mean of the worst of ten
groups of episodes (the largest deviation). And the mixture of two prices that spends it (Beutler
and Ross, 1985).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bmdp.arrays import FloatArray
from bmdp.experiments.experiment import Piece
from bmdp.frontier import BudgetStatus
from bmdp.policies.portfolio import Portfolio

RULES = ("mean", "deviation", "mixture")


def line_search(
    by_mean: Portfolio, by_deviation: Portfolio, test: Piece, budgets: Sequence[float]
) -> Piece:
    """Returns which price each rule chooses at budgets, and what that realises.

    Args:
        by_mean: with a member for each price, by falling price, at its mean cost.
        by_deviation: the same at the cost of the worst group.
        test: what prices earn and pay in other episodes (`measuring.prices_piece`).
        budgets: asked for.

    Returns:
        `budgets`, `prices` (rising), `test`, and `rules`: for each of `RULES` the `cost` that it
        says each price has, and for each budget `price`, `other_price` and `p_other` (of a
        mixture; else the price again, and 0), whether it is `infeasible`, the cost `said`, and
        `cost` and `reward` in the other episodes as `realised_cost`, `realised_reward`, with
        `realised_cost_low` and `realised_cost_high` (95 %).
    """
    portfolios = {
        "mean": replace(by_mean, mixes=False),
        "deviation": replace(by_deviation, mixes=False),
        "mixture": by_mean,
    }
    return {
        "budgets": list(map(float, budgets)),
        "prices": test["prices"],
        "rules": {rule: _chosen(portfolios[rule], test, budgets) for rule in RULES},
        "test": test,
    }


def _chosen(portfolio: Portfolio, test: Piece, budgets: Sequence[float]) -> Piece:
    """What one rule chooses."""
    falling = np.array(test["prices"])[::-1]
    found = portfolio.mixtures(np.asarray(budgets, np.float64))

    def realised(name: str) -> list[float]:
        values: FloatArray = np.array(test[name], np.float64)[::-1]
        low, high = values[found.lower], values[found.upper]
        mixed: list[float] = (low + found.p_upper * (high - low)).tolist()
        return mixed

    return {
        "cost": portfolio.costs[::-1].tolist(),
        "price": falling[found.lower].tolist(),
        "other_price": falling[found.upper].tolist(),
        "p_other": found.p_upper.tolist(),
        "infeasible": (found.status == BudgetStatus.INFEASIBLE).tolist(),
        "said": found.cost.tolist(),
        "realised_cost": realised("cost_mean"),
        "realised_cost_low": realised("cost_low"),
        "realised_cost_high": realised("cost_high"),
        "realised_reward": realised("reward_mean"),
    }
