"""Exact solvers for known finite BMDPs and CMDPs."""

from bmdp.exact import textbook
from bmdp.exact.allocation import AllocationSolution, allocate_budgets
from bmdp.exact.allocation_policy import AllocationPolicy
from bmdp.exact.evaluation import evaluate_policy
from bmdp.exact.limits import with_cost_so_far
from bmdp.exact.linear_program import CMDPSolution, solve_cmdp
from bmdp.exact.model import FiniteBMDP
from bmdp.exact.multiplier import (
    PlainPolicy,
    best_paid_policy,
    best_policy,
    cheapest_policy,
    cost_range,
    optimal_frontier,
)
from bmdp.exact.value_iteration import Solution, budgeted_value_iteration

__all__ = [
    "AllocationPolicy",
    "AllocationSolution",
    "CMDPSolution",
    "FiniteBMDP",
    "PlainPolicy",
    "Solution",
    "allocate_budgets",
    "best_paid_policy",
    "best_policy",
    "budgeted_value_iteration",
    "cheapest_policy",
    "cost_range",
    "evaluate_policy",
    "optimal_frontier",
    "solve_cmdp",
    "textbook",
    "with_cost_so_far",
]
