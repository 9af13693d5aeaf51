"""A policy in production."""

from bmdp.deployment.decisions import DecisionLog
from bmdp.deployment.drift import Drift
from bmdp.deployment.periods import PeriodBudget
from bmdp.deployment.watch import Watch, known_of, watch_log

__all__ = ["DecisionLog", "Drift", "PeriodBudget", "Watch", "known_of", "watch_log"]
