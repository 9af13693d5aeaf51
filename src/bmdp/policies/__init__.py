"""Budgeted policies: what they are, greedy ones, a random one, and combinations.

All of them are imported here, so that `load_policy` knows them.
"""

from bmdp.policies.calibrated import CalibratedPolicy, Certificate
from bmdp.policies.crossed import MeanQ
from bmdp.policies.decisions import Decision
from bmdp.policies.greedy import GreedyRule
from bmdp.policies.hull import HullPolicy, TabularQ
from bmdp.policies.limits import discounted_budget
from bmdp.policies.loading import load_policy
from bmdp.policies.multiplier import MultiplierPolicy
from bmdp.policies.portfolio import Portfolio
from bmdp.policies.priced import PriceDial, PricedPolicy
from bmdp.policies.protocol import BudgetedPolicy, OneStepPolicy, Policy
from bmdp.policies.random_budgeted import RandomBudgetedPolicy
from bmdp.policies.staged import StagedPolicy
from bmdp.policies.trackers import Tracker

__all__ = [
    "BudgetedPolicy",
    "CalibratedPolicy",
    "Certificate",
    "Decision",
    "GreedyRule",
    "HullPolicy",
    "MeanQ",
    "MultiplierPolicy",
    "OneStepPolicy",
    "Policy",
    "Portfolio",
    "PriceDial",
    "PricedPolicy",
    "RandomBudgetedPolicy",
    "StagedPolicy",
    "TabularQ",
    "Tracker",
    "discounted_budget",
    "load_policy",
]
