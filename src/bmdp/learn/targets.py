"""The greedy step of learning: values of next states at budgets, by the mixtures of Algorithm 3.

One model chooses the vertices, the same or another one values them (`valuation`). Everything is on
the device of the models; on the CPU the geometry is that of numba. Importing this module imports
torch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from bmdp.frontier import frontier_vertices
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
    points, n_vertices = _vertices(costs, rewards)
    budgets = budgets.expand(len(points), budgets.shape[-1]).contiguous()
    vertex_costs = at(costs, points)
    last = n_vertices[:, None] - 1
    lower = torch.searchsorted(vertex_costs, budgets, right=True) - 1
    n_infeasible = int((lower < 0).sum())
    lower = lower.clamp(min=0).minimum(last)
    upper = (lower + 1).minimum(last)
    # Below the cheapest vertex that one is played; at a vertex or above the last one, it alone.
    is_mixed = (at(vertex_costs, lower) < budgets) & (upper > lower)
    lower, upper = at(points, lower), at(points, upper)
    value_costs = valuing[:, 1].reshape(len(points), -1).clip(rule.cost_floor)
    value_rewards = valuing[:, 0].reshape(len(points), -1)
    low, high = at(value_costs, lower), at(value_costs, upper)
    share = crossed_share(low, high, budgets) * is_mixed
    low_reward, high_reward = at(value_rewards, lower), at(value_rewards, upper)
    return NextValues(
        torch.stack(
            (torch.lerp(low_reward, high_reward, share), torch.lerp(low, high, share)), dim=-1
        ),
        n_infeasible,
    )


def chord_slope(grid: Tensor, rule: GreedyRule) -> float:
    """Reward for a unit of cost from the cheapest to the best-paid vertex, mean over states.

    Args:
        grid: Q-values `[n, 2, A, B]`.
        rule: how Q-values become points; its cap does not matter.
    """
    plain = GreedyRule(rule.cost_floor)
    costs, rewards = plain.points(grid[:, 0], grid[:, 1])
    points, n_vertices = _vertices(costs, rewards)
    ends = torch.stack((points[:, 0], at(points, n_vertices[:, None] - 1)[:, 0]), dim=1)
    run, rise = (at(values, ends).diff(dim=1).mean() for values in (costs, rewards))
    return float(rise / run.clamp(min=1e-9))


def _vertices(costs: Tensor, rewards: Tensor) -> Any:
    """Vertices as tensors: by numba on the CPU, by torch elsewhere."""
    if costs.device.type != "cpu":
        return frontier_vertices(costs, rewards)
    found = frontier_vertices(costs.numpy(), rewards.numpy())
    return tuple(torch.from_numpy(column) for column in found)
