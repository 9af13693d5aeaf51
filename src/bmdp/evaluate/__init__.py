"""Policies measured by playing them: returns, the truth of the dial, and moving it midway."""

from bmdp.evaluate.dial import DialReport, measure_dial, measure_dials
from bmdp.evaluate.midway import MoveEvaluation, evaluate_move
from bmdp.evaluate.rollouts import Evaluation, evaluate
from bmdp.evaluate.statistics import (
    Interval,
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
    "bounded_interval",
    "evaluate",
    "evaluate_move",
    "mean_interval",
    "measure_dial",
    "measure_dials",
    "quantiles",
    "seed_interval",
    "share_interval",
    "simultaneous_confidence",
    "widened",
    "worst_mean",
]
