"""Models of (Q_r, Q_c): networks, and whatever else can be fitted to targets."""

from bmdp.models.kernel import KernelModel, KernelQ
from bmdp.models.linear import LinearModel, LinearQ
from bmdp.models.networks import EncoderNet, FrontierNet, NetworkQ
from bmdp.models.problem import Model
from bmdp.models.settings import Regression
from bmdp.models.table import TableModel, TableQ

__all__ = [
    "EncoderNet",
    "FrontierNet",
    "KernelModel",
    "KernelQ",
    "LinearModel",
    "LinearQ",
    "Model",
    "NetworkQ",
    "Regression",
    "TableModel",
    "TableQ",
]
