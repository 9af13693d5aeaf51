"""Budgeted Markov decision processes: one policy, any risk budget.

A name is imported when it is first asked for, so that `import bmdp` is quick.
"""

from typing import TYPE_CHECKING

from bmdp.envs.registry import register as _register
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
from bmdp.later import asked_later as _asked_later

if TYPE_CHECKING:
    from bmdp import data, deployment, envs, evaluation, exact, frontier, learn, models, policies
    from bmdp.data import Columns, TransitionBatch
    from bmdp.deployment.periods import PeriodBudget
    from bmdp.evaluation.calibration import calibrate
    from bmdp.evaluation.certificates import certify
    from bmdp.evaluation.offline import OfflineEvaluation, evaluate_offline
    from bmdp.evaluation.rollouts import Evaluation, evaluate
    from bmdp.exact import FiniteBMDP
    from bmdp.frontier import BudgetStatus, Frontier, Mixture, hull_mixture, upper_frontier
    from bmdp.learn import (
        BFTQ,
        FTQ,
        BFTQConfig,
        Fitted,
        Forecast,
        FTQConfig,
        LagrangianConfig,
        LagrangianFTQ,
        Prediction,
        TrainingSpec,
        fitted_evaluation,
        preset,
    )
    from bmdp.learn.auto import fit
    from bmdp.learn.explore import explore
    from bmdp.policies import discounted_budget, load_policy
    from bmdp.randomness import EpisodeStreams

__version__ = "0.2.0"

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
    "deployment",
    "discounted_budget",
    "envs",
    "evaluate",
    "evaluate_offline",
    "evaluation",
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

_LATER = {
    "": (
        *("data", "deployment", "envs", "evaluation", "exact", "frontier", "learn", "models"),
        "policies",
    ),
    "data": ("Columns", "TransitionBatch"),
    "deployment.periods": ("PeriodBudget",),
    "evaluation.calibration": ("calibrate",),
    "evaluation.certificates": ("certify",),
    "evaluation.offline": ("OfflineEvaluation", "evaluate_offline"),
    "evaluation.rollouts": ("Evaluation", "evaluate"),
    "exact": ("FiniteBMDP",),
    "frontier": ("BudgetStatus", "Frontier", "Mixture", "hull_mixture", "upper_frontier"),
    "learn": (
        *("BFTQ", "FTQ", "LagrangianFTQ", "BFTQConfig", "FTQConfig", "LagrangianConfig"),
        *("Fitted", "Forecast", "Prediction", "TrainingSpec"),
        *("fitted_evaluation", "preset"),
    ),
    "learn.auto": ("fit",),  # beside the module learn/fit.py
    "learn.explore": ("explore",),  # beside the module learn/explore.py
    "policies": ("discounted_budget", "load_policy"),
    "randomness": ("EpisodeStreams",),
}
"""Names by the modules that have them, which are imported when one of them is asked for."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = _asked_later(__name__, _LATER)

_register()
