"""Geometry in the (cost, reward) plane: one state readably, many states fast."""

from bmdp.frontier.dispatch import (
    best_mixtures,
    crossed_values,
    frontier_values,
    frontier_vertices,
)
from bmdp.frontier.mixtures import Mixtures, Vertices
from bmdp.frontier.single import BudgetStatus, Frontier, Mixture, hull_mixture, upper_frontier

__all__ = [
    "BudgetStatus",
    "Frontier",
    "Mixture",
    "Mixtures",
    "Vertices",
    "best_mixtures",
    "crossed_values",
    "frontier_values",
    "frontier_vertices",
    "hull_mixture",
    "upper_frontier",
]
