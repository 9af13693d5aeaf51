"""What policies that choose a price at the start will earn and pay, told by fitted evaluation.

Once a price is chosen, its greedy policy is played to the end. So all prices are valued, from every
first state, by a model that had no part in choosing them; and what the policy will earn and pay is
the mean of that, over first states, of the prices that it chooses there. Importing this module
imports torch.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import FloatArray
from bmdp.data import TransitionBatch
from bmdp.frontier import Mixtures
from bmdp.learn.fitted import StageKind, evaluated
from bmdp.learn.policy_fit import Terms
from bmdp.policies.multiplier import MultiplierPolicy, PriceDials
from bmdp.policies.portfolio import Portfolio
from bmdp.policies.priced import PriceDial, PricedPoints

ChosenPrice = Portfolio | MultiplierPolicy


def dial_of(policy: ChosenPrice) -> PriceDials:
    """The prices, and what their policies do."""
    if isinstance(policy, MultiplierPolicy):
        return policy.dial
    (dial,) = policy.policies
    return cast(PriceDials, dial)


def grid_of(policy: ChosenPrice) -> FloatArray:
    """The numbers of the prices; of a single one two numbers, as a dial rounds what is on it."""
    last = dial_of(policy).budget_range[1]
    return np.arange(last + 1) if last > 0 else np.array([0.0, 0.25])


def expected_of_prices(
    policy: ChosenPrice,
    batch: TransitionBatch,
    states: NDArray[Any],
    budgets: FloatArray,
    terms: Terms,
    stages: StageKind,
) -> tuple[FloatArray, FloatArray]:
    """Returns mean rewards and costs `[M]` that a policy will have from first states at budgets.

    Args:
        policy: as `LagrangianFTQ` leaves it, which carries a price or tosses a coin for one.
        batch: transitions, of other episodes than it was learned from.
        states: first ones, `[N, ...]`.
        budgets: `[M]`.
        terms: of the evaluation, with the grid of the policy.
        stages: as for `fitted_evaluation`.
    """
    dial = dial_of(policy)
    first = dial.at_step(0)
    assert isinstance(first, PriceDial)
    *_, fit = evaluated(dial, batch, terms, stages)
    numbers = np.arange(len(first.prices), dtype=np.float64)
    worth = fit.worth([states], terms.choices(first, [states], numbers))  # [N, prices, 2]
    points, rows = first.points(states), np.arange(len(states))
    means = []
    for budget in budgets:
        found = _chosen(policy, points, np.full(len(states), budget))
        p_upper = found.p_upper[:, None]
        mixed = (1 - p_upper) * worth[rows, found.lower] + p_upper * worth[rows, found.upper]
        means.append(mixed.mean(axis=0))
    reward, cost = np.array(means).T
    return reward * terms.reward_scale, cost


def _chosen(
    policy: ChosenPrice, points: PricedPoints, budgets: FloatArray
) -> Mixtures[NDArray[Any]]:
    """Which prices a policy chooses for budgets at first states, `[N]` each."""
    if isinstance(policy, Portfolio):
        return policy.mixtures(budgets)
    return policy.mixtures_at(points, budgets)
