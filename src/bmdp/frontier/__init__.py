"""Geometry in the (cost, reward) plane: one state readably, many states fast."""

from bmdp.frontier.dispatch import best_mixtures, frontier_values
from bmdp.frontier.mixtures import Mixtures
from bmdp.frontier.single import BudgetStatus, Frontier, Mixture, hull_mixture, upper_frontier

__all__ = [
    "BudgetStatus",
    "Frontier",
    "Mixture",
    "Mixtures",
    "best_mixtures",
    "frontier_values",
    "hull_mixture",
    "upper_frontier",
]
