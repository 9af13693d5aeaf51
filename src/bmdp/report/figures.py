"""Figures as matplotlib objects: each function returns one, and the caller saves it.

They are built without pyplot, so that no global state is touched and no screen is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from bmdp.frontier import BudgetStatus, hull_mixture, upper_frontier

POINTS, FRONTIER, CHOSEN = "0.6", "tab:blue", "tab:red"


def frontier_figure(
    costs: ArrayLike,
    rewards: ArrayLike,
    *,
    beta: float | None = None,
    labels: Sequence[str] | None = None,
) -> Figure:
    """Returns a picture of the points of one state, their frontier, and the mixture at one budget.

    Args:
        costs: x of the points, `[K]`.
        rewards: y of the points, `[K]`.
        beta: a budget whose mixture is drawn.
        labels: names of the points, `[K]`.

    Paper: the picture that explains Algorithm 3.
    """
    frontier = upper_frontier(costs, rewards)
    figure = Figure(figsize=(6, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.margins(0.12)  # room for the names
    axes.set_xlabel("expected cost")
    axes.set_ylabel("expected reward")
    axes.scatter(np.asarray(costs), np.asarray(rewards), color=POINTS, label="points")
    axes.plot(frontier.costs, frontier.rewards, "o-", color=FRONTIER, label="frontier")
    for label, x, y in zip(labels or (), *np.broadcast_arrays(costs, rewards), strict=False):
        axes.annotate(label, (x, y), xytext=(5, -12), textcoords="offset points", fontsize=8)
    if beta is not None:
        mixture = hull_mixture(frontier, beta)
        ends = [mixture.lower, mixture.upper]
        axes.axvline(beta, color=CHOSEN, linestyle=":", linewidth=1, label=f"budget {beta:g}")
        axes.plot(frontier.costs[ends], frontier.rewards[ends], color=CHOSEN, linewidth=2.5)
        share = f", {mixture.p_upper:.0%} upper" if mixture.status is BudgetStatus.TIGHT else ""
        name = f"mixture ({mixture.status.name.lower()}{share})"
        axes.plot(mixture.cost, mixture.reward, "*", color=CHOSEN, markersize=16, label=name)
    axes.legend(loc="lower right", fontsize=8)
    return figure
