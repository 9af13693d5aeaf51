"""The greedy step of learning: values of next states at budgets, by the mixtures of Algorithm 3.

One model chooses the vertices, the same or another one values them (`valuation`). Or several models
choose and value together, with caution where they disagree. Everything is on the device of the
models; on the CPU the geometry is that of numba. Importing this module imports torch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bmdp.frontier import BudgetStatus, crossed_values, mixtures_at
from bmdp.policies.crossed import leaning
from bmdp.policies.greedy import GreedyRule, at


class NextValues(NamedTuple):
    """What next states are worth at budgets."""

    values: Tensor  # [n, L, 2], of (V_r, V_c)
    n_infeasible: int  # of n * L


def mixture_values(
    choosing: Tensor,
    valuing: Tensor,
    budgets: Tensor,
    rule: GreedyRule,
    *,
    chooser_mixes: bool = False,
) -> NextValues:
    """Values of the best mixtures at budgets.

    Args:
        choosing: Q-values `[n, 2, A, B]` that say which two vertices are around a budget.
        valuing: Q-values `[n, 2, A, B]` that say what they cost and earn, and with that the
            probability that spends the budget. The same ones, for the paper's operator.
        budgets: `[n, L]`, or `[L]`.
        rule: how Q-values become points.
        chooser_mixes: whether the probability is by `choosing`, too, and `valuing` only says what
            the mixture costs and earns.

    Paper: Eq. 11 and Algorithm 3, for `valuing` the same as `choosing`.
    """
    chosen_by = rule.points(choosing[:, 0], choosing[:, 1])
    shape = chosen_by[0].shape
    valued_by = valuing[:, 1].reshape(shape).clip(rule.cost_floor), valuing[:, 0].reshape(shape)
    if chooser_mixes:
        return _by_chooser(chosen_by, valued_by, budgets)
    if budgets.device.type != "cpu":
        return NextValues(*crossed_values(chosen_by, valued_by, budgets))
    found, n_infeasible = crossed_values(
        (chosen_by[0].numpy(), chosen_by[1].numpy()),
        (valued_by[0].numpy(), valued_by[1].numpy()),
        budgets.numpy(),
    )
    return NextValues(torch.from_numpy(found), n_infeasible)


def _by_chooser(
    chosen_by: tuple[Tensor, Tensor], valued_by: tuple[Tensor, Tensor], budgets: Tensor
) -> NextValues:
    """Values by one model of the mixtures that are the best ones by another."""
    mixtures = mixtures_at(*chosen_by, budgets)
    ends = [(at(column, mixtures.lower), at(column, mixtures.upper)) for column in valued_by[::-1]]
    values = torch.stack([torch.lerp(*pair, mixtures.p_upper) for pair in ends], dim=-1)
    return NextValues(values, int((mixtures.status == int(BudgetStatus.INFEASIBLE)).sum()))


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
