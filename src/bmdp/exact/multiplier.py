"""Best policies for a price on cost, and the optimal frontier made of them.

For a price lambda >= 0 the policy that maximises reward - lambda cost is found by dynamic
programming: policy iteration, or backward induction where there is a horizon. Its point (cost,
reward) lies on the optimal frontier, where the frontier has slope lambda. The whole frontier is
found by a dichotomic search: take the slope of the chord between two known points; if the best
policy for that price lies above the chord it is a new point, and both halves are searched; if not,
the chord is an edge.

The two ends are lexicographic: the least cost, and among those policies the most reward; and the
other way round.

Paper: Beutler and Ross (1985), cited for Proposition 3; the multipliers of the Lagrangian appendix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.errors import ConfigError
from bmdp.exact.evaluation import evaluate_actions
from bmdp.exact.model import FiniteBMDP
from bmdp.frontier import Frontier, upper_frontier
from bmdp.kinds import checked

_TIE = 1e-10  # advantages below this, relative to the largest value, are ties


Point: TypeAlias = tuple[float, float]
"""(cost, reward)."""


@checked
@dataclass(frozen=True, eq=False)
class PlainPolicy:
    """A deterministic policy and its values.

    >>> from bmdp.exact.textbook import payments
    >>> found = best_policy(payments(2).model, price=1.5)  # at step t, costs 0.5^t and pays 0.9^t
    >>> found.action.tolist(), found.v_r.tolist(), found.v_c.tolist()
    ([[0], [1]], [0.9], [0.5])
    """

    action: IntArray  # [S], or [H, S] if there is a horizon
    v_r: FloatArray  # [S], expected discounted reward from the first step
    v_c: FloatArray  # [S], expected discounted cost from the first step


@checked
def best_policy(model: FiniteBMDP, price: float) -> PlainPolicy:
    """Returns a policy that maximises reward - price * cost from every state.

    Args:
        model: the BMDP.
        price: the multiplier lambda, in rewards for a unit of cost, from 0 on.

    Raises:
        ConfigError: if the price is not a number from 0 on.

    Paper: the Lagrangian appendix.

    >>> from bmdp.exact.textbook import branches
    >>> found = best_policy(branches().model, price=5.0)  # of two risks, one pays 10, the other 1
    >>> found.action.tolist(), float(found.v_r[0]), float(found.v_c[0])
    ([0, 1, 0, 0], 5.0, 0.5)
    """
    if not 0 <= price < np.inf:
        raise ConfigError(f"price must be a finite number from 0 on; got {price}.")
    return _best(model, 1.0, price, None)[0]


@checked
def cheapest_policy(model: FiniteBMDP) -> PlainPolicy:
    """Returns, of the policies of least cost, one of most reward, from every state.

    Args:
        model: the BMDP.

    >>> from bmdp.exact.textbook import crossing
    >>> found = cheapest_policy(crossing().model)
    >>> round(float(found.v_r[0]), 3), float(found.v_c[0])
    (0.729, 0.0)
    """
    _, among = _best(model, 0.0, 1.0, None)
    return _best(model, 1.0, 0.0, among)[0]


@checked
def best_paid_policy(model: FiniteBMDP) -> PlainPolicy:
    """Returns, of the policies of most reward, one of least cost, from every state.

    Args:
        model: the BMDP.

    >>> from bmdp.exact.textbook import crossing
    >>> found = best_paid_policy(crossing().model)
    >>> float(found.v_r[0]), float(found.v_c[0])
    (0.75, 0.25)
    """
    _, among = _best(model, 1.0, 0.0, None)
    return _best(model, 0.0, 1.0, among)[0]


@checked
def cost_range(model: FiniteBMDP) -> tuple[float, float]:
    """Returns the least and the largest budget that means anything at some state.

    That is the least cost of the cheapest policy over all states, and the largest cost of the best
    paid one. A grid for `budgeted_value_iteration` should span it.

    Args:
        model: the BMDP.

    >>> from bmdp.exact.textbook import branches
    >>> cost_range(branches().model)
    (0.0, 1.0)
    """
    return float(cheapest_policy(model).v_c.min()), float(best_paid_policy(model).v_c.max())


@checked
def optimal_frontier(model: FiniteBMDP, *, start: int | ArrayLike, tol: float = 1e-9) -> Frontier:
    """Returns the frontier of all policies from a start, those with memory included.

    Args:
        model: the BMDP.
        start: a state, or a distribution `[S]`.
        tol: what a new vertex must gain over its chord, relative to the rewards on the frontier.

    Returns:
        Frontier, whose vertices are deterministic policies.

    Paper: Eq. 1 for every budget at once.

    >>> from bmdp.exact.textbook import ladder
    >>> optimal_frontier(ladder(3).model, start=0).costs.tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    weights = model.start_distribution(start)

    def point(policy: PlainPolicy) -> Point:
        return float(weights @ policy.v_c), float(weights @ policy.v_r)

    ends = point(cheapest_policy(model)), point(best_paid_policy(model))
    return search_frontier(lambda price: point(_best(model, 1.0, price, None)[0]), ends, tol=tol)


def search_frontier(
    best: Callable[[float], Point], ends: tuple[Point, Point], *, tol: float
) -> Frontier:
    """Returns the frontier between two ends, given what is best for any price of cost.

    Args:
        best: from a price to the (cost, reward) that maximises reward - price * cost.
        ends: (cost, reward) of the cheapest and of the best paid.
        tol: what a new vertex must gain over its chord, relative to the rewards.
    """
    found = list(ends)
    scale = max(abs(reward) for _, reward in found) + (found[1][1] - found[0][1])
    chords = [ends]
    while chords:
        (x0, y0), (x1, y1) = chords.pop()
        if x1 - x0 <= _TIE * (1 + abs(x1)) or y1 - y0 <= tol * scale:
            continue
        price = (y1 - y0) / (x1 - x0)
        x, y = best(price)
        if (y - y0) - price * (x - x0) > tol * scale and x0 < x < x1:
            found.append((x, y))
            chords += [((x0, y0), (x, y)), ((x, y), (x1, y1))]
    costs, rewards = zip(*found, strict=True)
    frontier = upper_frontier(costs, rewards)
    return Frontier(frontier.costs, frontier.rewards)


def _best(
    model: FiniteBMDP, reward_weight: float, cost_weight: float, allowed: BoolArray | None
) -> tuple[PlainPolicy, BoolArray]:
    """Maximises reward_weight * reward - cost_weight * cost, among allowed actions.

    Returns the policy, and which actions are as good as its own, `[S, A]` or `[H, S, A]`.
    """
    if model.horizon is not None:
        return _backward(model, reward_weight, cost_weight, allowed)
    return _policy_iteration(model, reward_weight, cost_weight, allowed)


def _policy_iteration(
    model: FiniteBMDP, reward_weight: float, cost_weight: float, allowed: BoolArray | None
) -> tuple[PlainPolicy, BoolArray]:
    """Evaluate, improve where something is gained, until nothing is."""
    barred = np.zeros(model.shape, np.bool_) if allowed is None else ~allowed
    pay = reward_weight * model.reward - cost_weight * model.cost
    states = np.arange(model.n_states)
    action = np.where(barred, -np.inf, pay).argmax(axis=1)
    while True:
        v_r, v_c = evaluate_actions(model, np.eye(model.n_actions)[action])
        value = reward_weight * v_r - cost_weight * v_c
        q = np.where(barred, -np.inf, pay + model.gamma * model.expected_next(value))
        best = q.max(axis=1)
        slack = _TIE * (abs(value).max() + abs(pay).max())
        better = best > q[states, action] + slack
        if not better.any():
            return PlainPolicy(action, v_r, v_c), q >= best[:, None] - slack
        action = np.where(better, q.argmax(axis=1), action)


def _backward(
    model: FiniteBMDP, reward_weight: float, cost_weight: float, allowed: BoolArray | None
) -> tuple[PlainPolicy, BoolArray]:
    """The same, from the last step to the first; values are as seen from each step.

    With two discounts the price of cost against reward changes from step to step.
    """
    assert model.horizon is not None
    n_states, states = model.n_states, np.arange(model.n_states)
    v_r, v_c = np.zeros((2, n_states))
    action = np.zeros((model.horizon, n_states), np.int64)
    ties = np.zeros((model.horizon, *model.shape), np.bool_)
    for step in reversed(range(model.horizon)):
        q_r = model.reward + model.gamma * model.expected_next(v_r)
        q_c = model.cost + model.cost_gamma * model.expected_next(v_c)
        q = reward_weight * model.gamma**step * q_r - cost_weight * model.cost_gamma**step * q_c
        slack = _TIE * (abs(q).max() + np.finfo(np.float64).tiny)
        if allowed is not None:
            q = np.where(allowed[step], q, -np.inf)
        action[step] = q.argmax(axis=1)
        ties[step] = q >= q.max(axis=1, keepdims=True) - slack
        v_r, v_c = q_r[states, action[step]], q_c[states, action[step]]
    return PlainPolicy(action, v_r, v_c), ties
