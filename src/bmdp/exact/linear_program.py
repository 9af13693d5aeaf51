"""A constrained MDP as a linear program over occupancy measures, solved by HiGHS.

The variables x[s, a] >= 0 are the discounted numbers of times that action a is played at state s.
They are those of some policy if and only if at every state

    sum_a x[s, a] - gamma sum_{s', a'} P(s | s', a') x[s', a'] = start[s],

and then reward and cost are linear in x. Where there is a horizon the states are copied for each
step, and discounts go into rewards and costs.

It is the slow, independent way to one point of the optimal frontier, and the oracle for the others.
Programs are lexicographic: most reward within the budget, then least cost; or, where the budget
cannot be met, least cost, then most reward. The second stage keeps to the optimal face of the
first, by complementary slackness: variables with a positive reduced cost stay at 0.

Paper: Eq. 1, one budget at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.optimize import linprog

from bmdp.arrays import BoolArray, FloatArray, real_array
from bmdp.errors import BudgetError, ConvergenceError
from bmdp.exact.model import FiniteBMDP
from bmdp.exact.multiplier import best_policy, cheapest_policy
from bmdp.frontier import BudgetStatus
from bmdp.kinds import checked

_PRECISION = 1e-10  # of HiGHS: the finest it takes
_TIE = 1e-8  # values that differ by less, relative to their size, are equal


@checked
@dataclass(frozen=True, eq=False)
class CMDPSolution:
    """The best policy for one budget from one start.

    Paper: Eq. 1.

    >>> from bmdp.exact.textbook import branches
    >>> found = solve_cmdp(branches().model, start=0, budget=0.25)
    >>> found.policy[1].round(9).tolist()  # half of the risks that pay 10
    [0.5, 0.5]
    """

    reward: float  # expected and discounted, from the start
    cost: float  # likewise
    policy: FloatArray  # [S, A], chances of actions; [H, S, A] with a horizon
    multiplier: float  # price of cost: what a little more budget would earn, per unit of it
    status: BudgetStatus  # of the budget


@dataclass(frozen=True)
class _Program:
    """Flow of occupancy: constraints of all policies, and what an occupancy earns and pays."""

    flow: Any  # sparse [states, pairs]
    start: FloatArray  # [states]
    reward: FloatArray  # [pairs]
    cost: FloatArray  # [pairs]


@checked
def solve_cmdp(model: FiniteBMDP, *, start: int | ArrayLike, budget: float) -> CMDPSolution:
    """Returns the policy with the most reward whose expected cost is within the budget.

    Args:
        model: the BMDP.
        start: a state, or a distribution `[S]`.
        budget: expected discounted cost allowed.

    Returns:
        CMDPSolution. INFEASIBLE: no policy is within the budget; this is the least costly one, and
        the multiplier is infinite. SLACK: no more could be earned with more budget; the multiplier
        is 0. At states that are never visited, `policy` is best for the multiplier.

    Raises:
        BudgetError: if the budget is not a finite number.
        ModelError: if the start is not a state or a distribution.
        ConvergenceError: if HiGHS fails.

    Paper: Eq. 1.

    >>> from bmdp.exact.textbook import branches
    >>> solution = solve_cmdp(branches().model, start=0, budget=0.25)
    >>> round(solution.reward, 9), round(solution.multiplier, 9), solution.status.name
    (2.5, 10.0, 'TIGHT')
    """
    allowed = real_array("budget", budget)
    if allowed.ndim or not np.isfinite(allowed):
        raise BudgetError(f"budget must be a finite number; got {budget}.")
    weights = model.start_distribution(start)
    program = _program(model, weights)
    least, face = _solve(program, program.cost)
    least_cost = float(program.cost @ least)
    if float(allowed) < least_cost - _tolerance(least_cost):
        found, _ = _solve(program, -program.reward, within=face)
        return _answer(model, program, found, np.inf, BudgetStatus.INFEASIBLE)
    _, face = _solve(program, -program.reward)
    best_paid, _ = _solve(program, program.cost, within=face)
    top_cost = float(program.cost @ best_paid)
    if float(allowed) >= top_cost - _tolerance(top_cost):
        return _answer(model, program, best_paid, 0.0, BudgetStatus.SLACK)
    limit = max(float(allowed), least_cost)
    result = _linprog(
        program, -program.reward, A_ub=sparse.csr_array(program.cost[None]), b_ub=[limit]
    )
    return _answer(
        model, program, result.x, -float(result.ineqlin.marginals[0]), BudgetStatus.TIGHT
    )


def _program(model: FiniteBMDP, weights: FloatArray) -> _Program:
    """Writes down the program of a model."""
    n_states, n_actions = model.shape
    out = sparse.kron(sparse.eye_array(n_states), np.ones((1, n_actions)), format="csr")
    reward, cost = model.reward.ravel(), model.cost.ravel()
    if model.horizon is None:
        flow = out - model.gamma * model.transition.T
        return _Program(sparse.csr_array(flow), weights, reward, cost)
    steps = model.horizon
    later = sparse.eye_array(steps, k=-1)
    flow = sparse.kron(sparse.eye_array(steps), out) - sparse.kron(later, model.transition.T)
    first = np.eye(1, steps)[0]
    by_step = np.arange(steps)
    return _Program(
        sparse.csr_array(flow),
        np.kron(first, weights),
        np.kron(model.gamma**by_step, reward),
        np.kron(model.cost_gamma**by_step, cost),
    )


def _linprog(program: _Program, objective: FloatArray, **more: Any) -> Any:
    """Minimises an objective over all policies.

    Raises:
        ConvergenceError: if HiGHS fails.
    """
    precision = {
        "primal_feasibility_tolerance": _PRECISION,
        "dual_feasibility_tolerance": _PRECISION,
    }
    arguments = {"bounds": (0, None), **more}
    result = linprog(
        objective,
        A_eq=program.flow,
        b_eq=program.start,
        method="highs",
        options=precision,
        **arguments,
    )
    if result.status != 0:
        raise ConvergenceError(f"the linear program was not solved: {result.message}")
    return result


def _solve(
    program: _Program, objective: FloatArray, within: BoolArray | None = None
) -> tuple[FloatArray, BoolArray]:
    """Minimises over all policies, or over a face; returns x and which pairs its face admits."""
    upper = np.full(len(objective), np.inf)
    if within is not None:
        upper[~within] = 0
    bounds = np.column_stack((np.zeros(len(objective)), upper))
    result = _linprog(program, objective, bounds=bounds)
    size = float(abs(objective).max())
    return result.x, result.lower.marginals <= _TIE * (size + np.finfo(np.float64).tiny)


def _tolerance(value: float) -> float:
    return _TIE * (1 + abs(value))


def _answer(
    model: FiniteBMDP, program: _Program, x: FloatArray, price: float, status: BudgetStatus
) -> CMDPSolution:
    """Turns occupancies into a policy."""
    occupancy = np.maximum(x, 0).reshape(-1, *model.shape)
    visits = occupancy.sum(axis=2, keepdims=True)
    fallback = cheapest_policy(model) if np.isinf(price) else best_policy(model, max(price, 0.0))
    elsewhere = np.eye(model.n_actions)[fallback.action].reshape(occupancy.shape)
    seen = visits > _PRECISION
    policy = np.where(seen, occupancy / np.where(seen, visits, 1), elsewhere)
    if model.horizon is None:
        policy = policy[0]
    reward, cost = float(program.reward @ x), float(program.cost @ x)
    return CMDPSolution(reward, cost, policy, max(price, 0.0), status)
