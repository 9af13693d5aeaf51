"""Models of (Q_r, Q_c): networks, and whatever else can be fitted to targets."""

from bmdp.models.networks import EncoderNet, FrontierNet, NetworkQ
from bmdp.models.problem import Model
from bmdp.models.settings import Regression

__all__ = ["EncoderNet", "FrontierNet", "Model", "NetworkQ", "Regression"]
