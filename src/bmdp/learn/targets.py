"""The greedy step of learning: values of next states at budgets, by the mixtures of Algorithm 3.

One model chooses the vertices, the same or another one values them (`valuation`). Everything is on
the device of the models; on the CPU the geometry is that of numba. Importing this module imports
torch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bmdp.frontier import BudgetStatus, best_mixtures, frontier_vertices
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
    budgets = budgets.expand(len(costs), budgets.shape[-1]).contiguous()
    find = _of_one_budget if budgets.shape[1] == 1 else _of_many_budgets
    lower, upper, is_mixed, n_infeasible = find(costs, rewards, budgets)
    value_costs = valuing[:, 1].reshape(len(costs), -1).clip(rule.cost_floor)
    value_rewards = valuing[:, 0].reshape(len(costs), -1)
    low, high = at(value_costs, lower), at(value_costs, upper)
    share = crossed_share(low, high, budgets) * is_mixed
    low_reward, high_reward = at(value_rewards, lower), at(value_rewards, upper)
    return NextValues(
        torch.stack(
            (torch.lerp(low_reward, high_reward, share), torch.lerp(low, high, share)), dim=-1
        ),
        n_infeasible,
    )


class _Found(NamedTuple):
    """The two points around each budget."""

    lower: Tensor  # [n, L]
    upper: Tensor  # [n, L]
    is_mixed: Tensor  # [n, L], whether both may be played: not below the frontier, nor at its end
    n_infeasible: int


def _of_one_budget(costs: Tensor, rewards: Tensor, budgets: Tensor) -> _Found:
    """By bridge search: by numba on the CPU, by torch elsewhere."""
    held = budgets[:, 0]
    if costs.device.type == "cpu":
        found = best_mixtures(costs.numpy(), rewards.numpy(), held.numpy())
        columns = (torch.from_numpy(c) for c in (found.lower, found.upper, found.status))
    else:
        mixtures = best_mixtures(costs, rewards, held)
        columns = (c for c in (mixtures.lower, mixtures.upper, mixtures.status))
    lower, upper, status = (column[:, None] for column in columns)
    is_infeasible = status == int(BudgetStatus.INFEASIBLE)
    return _Found(lower, upper, lower != upper, int(is_infeasible.sum()))


def _of_many_budgets(costs: Tensor, rewards: Tensor, budgets: Tensor) -> _Found:
    """By all vertices, which numba finds faster on the CPU than torch does on a GPU."""
    device = costs.device
    found = frontier_vertices(costs.cpu().numpy(), rewards.cpu().numpy())
    points, n_vertices = (torch.from_numpy(column).to(device) for column in found)
    vertex_costs = at(costs, points)
    last = n_vertices[:, None] - 1
    lower = torch.searchsorted(vertex_costs, budgets, right=True) - 1
    is_infeasible = lower < 0
    lower = lower.clamp(min=0).minimum(last)
    upper = (lower + 1).minimum(last)
    is_mixed = ~is_infeasible & (upper > lower)
    return _Found(at(points, lower), at(points, upper), is_mixed, int(is_infeasible.sum()))
