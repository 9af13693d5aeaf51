"""The greedy step of learning: values of next states at budgets, by the mixtures of Algorithm 3.

One model chooses the vertices, the same or another one values them (`valuation`). Or several models
choose and value together, with caution where they disagree. Everything is on the device of the
models; on the CPU the geometry is that of numba. Importing this module imports torch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bmdp.frontier import BudgetStatus, best_mixtures, crossed_values
from bmdp.policies.crossed import leaning
from bmdp.policies.greedy import GreedyRule, at, crossed_share


class NextValues(NamedTuple):
    """What next states are worth at budgets."""

    values: Tensor  # [n, L, 2], of (V_r, V_c)
    n_infeasible: int  # of n * L


def mixture_values(
    choosing: Tensor, valuing: Tensor, budgets: Tensor, rule: GreedyRule
) -> NextValues:
    """Values of the best mixtures at budgets.

    Args:
        choosing: Q-values `[n, 2, A, B]` that say which two vertices are around a budget.
        valuing: Q-values `[n, 2, A, B]` that say what they cost and earn, and with that the
            probability that spends the budget. The same ones, for the paper's operator.
        budgets: `[n, L]`, or `[L]`.
        rule: how Q-values become points.

    Paper: Eq. 11 and Algorithm 3, for `valuing` the same as `choosing`.
    """
    costs, rewards = rule.points(choosing[:, 0], choosing[:, 1])
    value_costs = valuing[:, 1].reshape(len(costs), -1).clip(rule.cost_floor)
    value_rewards = valuing[:, 0].reshape(len(costs), -1)
    budgets = budgets.expand(len(costs), budgets.shape[-1])
    if budgets.shape[1] > 1:
        chosen_by, valued_by = (costs, rewards), (value_costs, value_rewards)
        if costs.device.type != "cpu":
            return NextValues(*crossed_values(chosen_by, valued_by, budgets))
        found, n_infeasible = crossed_values(
            (costs.numpy(), rewards.numpy()),
            (value_costs.numpy(), value_rewards.numpy()),
            budgets.numpy(),
        )
        return NextValues(torch.from_numpy(found), n_infeasible)
    lower, upper, status = _mixtures(costs, rewards, budgets[:, 0].contiguous())
    paid = at(value_costs, lower), at(value_costs, upper)
    share = crossed_share(*paid, budgets) * (lower != upper)
    ends = [(at(column, lower), at(column, upper)) for column in (value_rewards, value_costs)]
    values = torch.stack([torch.lerp(one, other, share) for one, other in ends], dim=-1)
    return NextValues(values, int((status == int(BudgetStatus.INFEASIBLE)).sum()))


def cautious(values: Tensor, caution: float) -> Tensor:
    """What several models say together: rewards less, and costs more, where they disagree.

    Means over models, moved by so many of their deviations over models.

    Args:
        values: Q-values `[E, n, 2, A, B]` of the models.
        caution: number of deviations; below 0, what is unknown looks good.

    Returns:
        Q-values `[n, 2, A, B]`.

    >>> values = torch.tensor([1.0, 3.0]).view(2, 1, 1, 1, 1).expand(-1, -1, 2, -1, -1)
    >>> cautious(values, 0.5).flatten().tolist()
    [1.5, 2.5]
    """
    rewards, costs = values[:, :, 0], values[:, :, 1]
    return torch.stack((leaning(rewards, -caution), leaning(costs, caution)), dim=1)


def _mixtures(costs: Tensor, rewards: Tensor, budgets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Lower and upper points `[n, 1]` and status: by numba on the CPU, by torch elsewhere."""
    if costs.device.type != "cpu":
        found = best_mixtures(costs, rewards, budgets)
        return found.lower[:, None], found.upper[:, None], found.status
    mixtures = best_mixtures(costs.numpy(), rewards.numpy(), budgets.numpy())
    lower, upper, status = (
        torch.from_numpy(c) for c in (mixtures.lower, mixtures.upper, mixtures.status)
    )
    return lower[:, None], upper[:, None], status
