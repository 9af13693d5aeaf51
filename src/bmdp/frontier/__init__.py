"""Geometry in the (cost, reward) plane: one state exactly, many states fast."""

from bmdp.frontier.batched import (
    Mixtures,
    best_mixtures,
    crossed_values,
    frontier_values,
    mixtures_at,
)
from bmdp.frontier.kernels import crossed_share
from bmdp.frontier.single import BudgetStatus, Frontier, Mixture, hull_mixture, upper_frontier

__all__ = [
    "BudgetStatus",
    "Frontier",
    "Mixture",
    "Mixtures",
    "best_mixtures",
    "crossed_share",
    "crossed_values",
    "frontier_values",
    "hull_mixture",
    "mixtures_at",
    "upper_frontier",
]
