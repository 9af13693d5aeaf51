"""Budgeted policies: what they are, the greedy one, a random one, and combinations."""

from bmdp.policies.combined import EpisodeCoin, EpsilonGreedy
from bmdp.policies.hull import HullPolicy, TabularQ
from bmdp.policies.loading import load_policy
from bmdp.policies.protocol import BudgetedPolicy, Decision, OneStepPolicy, Policy, Tracker
from bmdp.policies.random_budgeted import RandomBudgetedPolicy

__all__ = [
    "BudgetedPolicy",
    "Decision",
    "EpisodeCoin",
    "EpsilonGreedy",
    "HullPolicy",
    "OneStepPolicy",
    "Policy",
    "RandomBudgetedPolicy",
    "TabularQ",
    "Tracker",
    "load_policy",
]
