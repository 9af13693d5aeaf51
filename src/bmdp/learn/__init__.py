"""Learning budgeted policies, from logged transitions or by exploring.

Importing this package imports torch.
"""

from bmdp.learn.bftq import BFTQ
from bmdp.learn.collect import collect
from bmdp.learn.config import EnvConfig, Exploration, TrainingSpec
from bmdp.learn.exploration import ExplorationResult, explore
from bmdp.learn.fit_config import BFTQConfig, FTQConfig, LagrangianConfig
from bmdp.learn.fitted import Prediction, fitted_evaluation
from bmdp.learn.ftq import FTQ
from bmdp.learn.lagrangian import LagrangianFTQ
from bmdp.learn.presets import preset
from bmdp.learn.runs import resume, train, train_from_data

__all__ = [
    "BFTQ",
    "FTQ",
    "BFTQConfig",
    "EnvConfig",
    "Exploration",
    "ExplorationResult",
    "FTQConfig",
    "LagrangianConfig",
    "LagrangianFTQ",
    "Prediction",
    "TrainingSpec",
    "collect",
    "explore",
    "fitted_evaluation",
    "preset",
    "resume",
    "train",
    "train_from_data",
]
