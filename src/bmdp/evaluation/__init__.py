"""Policies measured by playing them, or by logged episodes: returns, and the truth of the dial."""

from bmdp.evaluation.calibration import calibrate, measure_portfolio, play_members
from bmdp.evaluation.dial import DialReport, dial_measures, measure_dial, measure_dials
from bmdp.evaluation.offline import OfflineEvaluation, evaluate_offline
from bmdp.evaluation.rollouts import Evaluation, MoveEvaluation, evaluate, evaluate_move
from bmdp.evaluation.statistics import (
    Interval,
    bernstein_interval,
    bounded_interval,
    mean_interval,
    quantiles,
    seed_interval,
    share_interval,
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
    "dial_measures",
    "evaluate",
    "evaluate_move",
    "evaluate_offline",
    "mean_interval",
    "measure_dial",
    "measure_dials",
    "measure_portfolio",
    "play_members",
    "quantiles",
    "seed_interval",
    "share_interval",
    "simultaneous_confidence",
    "widened",
    "worst_mean",
]
