"""Regressors of (Q_r, Q_c). Importing this package imports torch."""

from bmdp.models.actor import ActorModel
from bmdp.models.forest import ForestModel
from bmdp.models.kernel import KernelModel
from bmdp.models.linear import LinearModel
from bmdp.models.networks import EncoderNet, FrontierNet, Regression
from bmdp.models.regressor import (
    Averager,
    LearnedQ,
    Loss,
    Problem,
    QModel,
    Regressor,
    RowSet,
    Sizes,
    register_regressor,
)
from bmdp.models.support import Support
from bmdp.models.table import TableModel

__all__ = [
    "ActorModel",
    "Averager",
    "EncoderNet",
    "ForestModel",
    "FrontierNet",
    "KernelModel",
    "LearnedQ",
    "LinearModel",
    "Loss",
    "Problem",
    "QModel",
    "Regression",
    "Regressor",
    "RowSet",
    "Sizes",
    "Support",
    "TableModel",
    "register_regressor",
]
