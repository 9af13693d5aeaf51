"""A policy in production."""

from bmdp.deployment.decisions import DecisionLog
from bmdp.deployment.drift import Drift, DriftReport, Shift
from bmdp.deployment.periods import PeriodBudget, PeriodStatus
from bmdp.deployment.watch import Judged, Known, Watch, WatchReport, known_of, watch_log

__all__ = [
    "DecisionLog",
    "Drift",
    "DriftReport",
    "Judged",
    "Known",
    "PeriodBudget",
    "PeriodStatus",
    "Shift",
    "Watch",
    "WatchReport",
    "known_of",
    "watch_log",
]
