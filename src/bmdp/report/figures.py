"""Figures as matplotlib objects: each function returns one, and the caller saves it.

They are built without pyplot, so that no global state is touched and no screen is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from bmdp.exact import CMDPSolution
from bmdp.frontier import BudgetStatus, Frontier, Mixture, hull_mixture, upper_frontier

POINTS, FRONTIER, CHOSEN = "0.6", "tab:blue", "tab:red"
MARKERS = {  # the last is drawn on top
    BudgetStatus.TIGHT: ("o", CHOSEN),
    BudgetStatus.SLACK: ("s", CHOSEN),
    BudgetStatus.INFEASIBLE: ("x", "black"),
}


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


def curve_figure(
    frontier: Frontier | None, outcomes: Mapping[float, Mixture | CMDPSolution]
) -> Figure:
    """Returns a picture of a frontier and of what some budgets buy on it.

    Each budget is a marker at its expected cost and reward, one shape for each status. Where a
    budget is not spent exactly, a dotted line leads from the marker to the budget.

    Args:
        frontier: what can be had from the start; None draws the budgets alone.
        outcomes: what each budget buys.
    """
    figure = Figure(figsize=(6, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel("expected cost")
    axes.set_ylabel("expected reward")
    if frontier is not None:
        axes.plot(frontier.costs, frontier.rewards, ".-", color=FRONTIER, label="frontier")
    for budget, bought in outcomes.items():
        if bought.status is not BudgetStatus.TIGHT:
            ends = [bought.cost, budget], [bought.reward, bought.reward]
            axes.plot(*ends, color=CHOSEN, linestyle=":", linewidth=1, label=f"_budget {budget:g}")
    for status, (marker, colour) in MARKERS.items():
        points = [(o.cost, o.reward) for o in outcomes.values() if o.status is status]
        if points:
            name = f"{status.name.lower()} budgets"
            axes.plot(*np.transpose(points), marker, color=colour, label=name)
    axes.legend(loc="lower right", fontsize=8)
    return figure
