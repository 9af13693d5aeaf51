"""Budgeted policies: the protocol, greedy ones, a random one, portfolios.

All of them are imported here, so that `load_policy` knows them.
"""

from bmdp.policies.exploring import ExploringPolicy
from bmdp.policies.hull import HullPolicy, HullRule, TabularQ
from bmdp.policies.limited import EpisodeLimitPolicy
from bmdp.policies.policy import (
    BudgetedPolicy,
    Decision,
    OneStepPolicy,
    Policy,
    Tracker,
    discounted_budget,
    load_policy,
)
from bmdp.policies.portfolio import CalibratedPolicy, Certificate, Portfolio
from bmdp.policies.prices import MultiplierPolicy, PriceDial, PricedPolicy
from bmdp.policies.random import RandomBudgetedPolicy, UniformPolicy

__all__ = [
    "BudgetedPolicy",
    "CalibratedPolicy",
    "Certificate",
    "Decision",
    "EpisodeLimitPolicy",
    "ExploringPolicy",
    "HullPolicy",
    "HullRule",
    "MultiplierPolicy",
    "OneStepPolicy",
    "Policy",
    "Portfolio",
    "PriceDial",
    "PricedPolicy",
    "RandomBudgetedPolicy",
    "TabularQ",
    "Tracker",
    "UniformPolicy",
    "discounted_budget",
    "load_policy",
]
