"""Budgeted Markov decision processes: one policy, any risk budget."""

from importlib import import_module as _import_module
from typing import Any as _Any

from bmdp import data, envs, exact, frontier, policies
from bmdp.data import Columns, TransitionBatch
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
from bmdp.evaluation.calibration import calibrate
from bmdp.evaluation.offline import OfflineEvaluation, evaluate_offline
from bmdp.evaluation.rollouts import Evaluation, evaluate
from bmdp.exact import FiniteBMDP
from bmdp.frontier import BudgetStatus, Frontier, Mixture, hull_mixture, upper_frontier
from bmdp.policies import discounted_budget, load_policy
from bmdp.randomness import EpisodeStreams

__version__ = "0.2.0.dev0"

_LEARNING = (
    "learn",
    *("BFTQ", "FTQ", "LagrangianFTQ", "BFTQConfig", "FTQConfig", "LagrangianConfig"),
    *("Fitted", "Forecast", "Prediction", "TrainingSpec"),
    *("explore", "fit", "fitted_evaluation", "preset"),
)
"""`bmdp.learn`, and names of it. They are imported when one of them is asked for, since they import
torch."""

_LATER = {"certify": "bmdp.evaluation.certificates", "PeriodBudget": "bmdp.deployment.periods"}
"""Other names that import much, by their modules."""

__all__ = [
    "BFTQ",
    "FTQ",
    "BFTQConfig",
    "BmdpError",
    "BudgetError",
    "BudgetStatus",
    "Columns",
    "ConfigError",
    "ConvergenceError",
    "DataError",
    "EnvError",
    "EpisodeStreams",
    "Evaluation",
    "FTQConfig",
    "FiniteBMDP",
    "Fitted",
    "Forecast",
    "Frontier",
    "LagrangianConfig",
    "LagrangianFTQ",
    "MissingDependency",
    "Mixture",
    "ModelError",
    "OfflineEvaluation",
    "PeriodBudget",
    "PolicyError",
    "Prediction",
    "StoreError",
    "TrainingSpec",
    "TransitionBatch",
    "__version__",
    "calibrate",
    "certify",
    "data",
    "discounted_budget",
    "envs",
    "evaluate",
    "evaluate_offline",
    "exact",
    "explore",
    "fit",
    "fitted_evaluation",
    "frontier",
    "hull_mixture",
    "learn",
    "load_policy",
    "models",
    "policies",
    "preset",
    "upper_frontier",
]


def __getattr__(name: str) -> _Any:
    """Returns what is imported when it is asked for."""
    if name in ("models", "deployment"):
        return _import_module(f"bmdp.{name}")
    if name in _LATER:
        return getattr(_import_module(_LATER[name]), name)
    if name in _LEARNING:
        learn = _import_module("bmdp.learn")
        return learn if name == "learn" else getattr(learn, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
