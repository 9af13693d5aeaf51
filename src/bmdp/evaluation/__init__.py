"""Policies measured by playing them, or by logged episodes: returns, and the truth of the dial."""

from bmdp.evaluation.bounds import bernstein_interval, bounded_interval, share_interval
from bmdp.evaluation.calibration import calibrate
from bmdp.evaluation.dial import DialReport, measure_dial, measure_dials
from bmdp.evaluation.midway import MoveEvaluation, evaluate_move
from bmdp.evaluation.offline import OfflineEvaluation, evaluate_offline
from bmdp.evaluation.portfolios import measure_portfolio
from bmdp.evaluation.rollouts import Evaluation, evaluate
from bmdp.evaluation.statistics import (
    Interval,
    mean_interval,
    quantiles,
    seed_interval,
    simultaneous_confidence,
    widened,
    worst_mean,
)

__all__ = [
    "DialReport",
    "Evaluation",
    "Interval",
    "MoveEvaluation",
    "OfflineEvaluation",
    "bernstein_interval",
    "bounded_interval",
    "calibrate",
    "evaluate",
    "evaluate_move",
    "evaluate_offline",
    "mean_interval",
    "measure_dial",
    "measure_dials",
    "measure_portfolio",
    "quantiles",
    "seed_interval",
    "share_interval",
    "simultaneous_confidence",
    "widened",
    "worst_mean",
]
