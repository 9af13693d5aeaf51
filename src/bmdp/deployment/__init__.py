"""A policy in production: a service, the watch over its promise, and budgets of a period."""

from bmdp.deployment.decisions import DecisionLog
from bmdp.deployment.drift import Drift
from bmdp.deployment.endpoints import application
from bmdp.deployment.periods import PeriodBudget
from bmdp.deployment.service import Service
from bmdp.deployment.watch import Watch, known_of, watch_log

__all__ = [
    "DecisionLog",
    "Drift",
    "PeriodBudget",
    "Service",
    "Watch",
    "application",
    "known_of",
    "watch_log",
]
