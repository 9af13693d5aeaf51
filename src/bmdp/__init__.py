"""Budgeted Markov decision processes: one policy, any risk budget."""

from bmdp import frontier, policies
from bmdp.errors import (
    BmdpError,
    BudgetError,
    ConfigError,
    DataError,
    MissingDependency,
    PolicyError,
    StoreError,
)
from bmdp.frontier import BudgetStatus, Frontier, Mixture, hull_mixture, upper_frontier
from bmdp.policies import load_policy
from bmdp.randomness import EpisodeStreams

__version__ = "0.1.0"

__all__ = [
    "BmdpError",
    "BudgetError",
    "BudgetStatus",
    "ConfigError",
    "DataError",
    "EpisodeStreams",
    "Frontier",
    "MissingDependency",
    "Mixture",
    "PolicyError",
    "StoreError",
    "__version__",
    "frontier",
    "hull_mixture",
    "load_policy",
    "policies",
    "upper_frontier",
]
