"""Budgeted Markov decision processes: one policy, any risk budget."""

from bmdp import envs, exact, frontier, policies
from bmdp.errors import (
    BmdpError,
    BudgetError,
    ConfigError,
    ConvergenceError,
    DataError,
    EnvError,
    MissingDependency,
    ModelError,
    PolicyError,
    StoreError,
)
from bmdp.evaluate.rollouts import Evaluation, evaluate
from bmdp.exact import FiniteBMDP
from bmdp.frontier import BudgetStatus, Frontier, Mixture, hull_mixture, upper_frontier
from bmdp.policies import load_policy
from bmdp.randomness import EpisodeStreams

__version__ = "0.1.0"

__all__ = [
    "BmdpError",
    "BudgetError",
    "BudgetStatus",
    "ConfigError",
    "ConvergenceError",
    "DataError",
    "EnvError",
    "EpisodeStreams",
    "Evaluation",
    "FiniteBMDP",
    "Frontier",
    "MissingDependency",
    "Mixture",
    "ModelError",
    "PolicyError",
    "StoreError",
    "__version__",
    "envs",
    "evaluate",
    "exact",
    "frontier",
    "hull_mixture",
    "load_policy",
    "policies",
    "upper_frontier",
]
