"""The paper's nested program (Eq. 12), solved without geometry.

Of all distributions over the points whose mean cost is within the budget, those with the most mean
reward; of those, the one with the least mean cost. Where none is within the budget: the least cost,
then the most reward.
"""

from fractions import Fraction
from itertools import product

import numpy as np
from scipy.optimize import linprog


def nested_program(costs, rewards, beta):
    """Returns (cost, reward) of the nested program, as two linear programs (HiGHS)."""
    if costs.min() > beta:
        cheapest = costs == costs.min()
        return costs.min(), rewards[cheapest].max()
    simplex = {"A_eq": np.ones((1, len(costs))), "b_eq": [1.0], "bounds": (0, None)}
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    most = linprog(-rewards, A_ub=[costs], b_ub=[beta], options=options, **simplex)
    assert most.success, most.message
    least = linprog(
        costs, A_ub=[costs, -rewards], b_ub=[beta, most.fun + 1e-10], options=options, **simplex
    )
    assert least.success, least.message
    return least.fun, -most.fun


def nested_program_exactly(costs, rewards, beta):
    """Returns (cost, reward) of the nested program as fractions, by trying all pairs of points.

    A distribution over more than two points is never needed: two constraints, two basic variables.
    """
    points = [(Fraction(float(c)), Fraction(float(r))) for c, r in zip(costs, rewards, strict=True)]
    budget = Fraction(float(beta))
    affordable = [(c, r) for c, r in points if c <= budget]
    if not affordable:
        cost = min(c for c, _ in points)
        return cost, max(r for c, r in points if c == cost)
    candidates = list(affordable)
    for (c0, r0), (c1, r1) in product(affordable, points):
        if c1 > budget:
            candidates.append((budget, r0 + (budget - c0) / (c1 - c0) * (r1 - r0)))
    reward = max(r for _, r in candidates)
    return min(c for c, r in candidates if r == reward), reward
