"""Learning budgeted policies, from logged transitions or by exploring.

Importing this package imports torch.
"""

from bmdp.learn.auto import fit, resume
from bmdp.learn.collect import collect
from bmdp.learn.evaluation import Prediction, fitted_evaluation
from bmdp.learn.explore import ExplorationResult, explore
from bmdp.learn.fit import Backward, Iterations
from bmdp.learn.fitted import Candidate, Fitted, Forecast
from bmdp.learn.learners import (
    BFTQ,
    FTQ,
    BFTQConfig,
    FTQConfig,
    LagrangianConfig,
    LagrangianFTQ,
)
from bmdp.learn.presets import preset
from bmdp.learn.runs import train, train_from_data
from bmdp.learn.spec import EnvConfig, Exploration, TrainingSpec

__all__ = [
    "BFTQ",
    "FTQ",
    "BFTQConfig",
    "Backward",
    "Candidate",
    "EnvConfig",
    "Exploration",
    "ExplorationResult",
    "FTQConfig",
    "Fitted",
    "Forecast",
    "Iterations",
    "LagrangianConfig",
    "LagrangianFTQ",
    "Prediction",
    "TrainingSpec",
    "collect",
    "explore",
    "fit",
    "fitted_evaluation",
    "preset",
    "resume",
    "train",
    "train_from_data",
]
