"""Models in training, of any kind."""

from bmdp.models import Regression
from bmdp.models.networks import make_fitter


def fitter_of(model, problem, device="cpu"):
    return make_fitter(model, problem, Regression(), device)
