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
from bmdp.report.drawing import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY, new_figure, plane
from bmdp.report.pieces import Hull

POINTS, FRONTIER, CHOSEN = "0.6", "tab:blue", "tab:red"
MARKERS = {  # the last is drawn on top
    BudgetStatus.TIGHT: ("o", CHOSEN),
    BudgetStatus.SLACK: ("s", CHOSEN),
    BudgetStatus.INFEASIBLE: ("x", "black"),
}
ACTIONS = (  # marker and colour of each; an eighth looks like the first
    ("o", SKY),
    ("^", ORANGE),
    ("s", GREEN),
    ("D", PURPLE),
    ("v", BLUE),
    ("P", RED),
    ("X", "0.4"),
)


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


def hull_figure(hull: Hull) -> Figure:
    """Returns all that a policy sees at one state, the frontier, and the mixture at one budget.

    Each point is an action with a budget that it hands on; a point is larger the more it hands on.

    Paper: the picture that explains Algorithm 3, for a policy that was learned.
    """
    figure = new_figure()
    axes = figure.subplots()
    plane(axes)
    action = np.array(hull.action)
    most = max(float(hull.handed_on.max(initial=0.0)), 1e-9)
    for number, name in enumerate(hull.action_names):
        is_here = action == number
        if not is_here.any():
            continue
        marker, colour = ACTIONS[number % len(ACTIONS)]
        axes.scatter(
            hull.costs[is_here],
            hull.rewards[is_here],
            s=8 + 32 * hull.handed_on[is_here] / most,
            marker=marker,
            facecolor=colour,
            edgecolor="none",
            alpha=0.65,
            label=name,
        )
    axes.plot(hull.vertex_costs, hull.vertex_rewards, ".-", color=BLACK, label="frontier")
    mixture = hull.mixture
    ends = [mixture.lower, mixture.upper]
    axes.plot(
        hull.vertex_costs[ends],
        hull.vertex_rewards[ends],
        color=CHOSEN,
        linewidth=3,
        alpha=0.6,
        label="_mixed",
    )
    name = f"budget {hull.budget:g}"
    axes.axvline(hull.budget, color=CHOSEN, linestyle=":", linewidth=1.2, label=name)
    share = f", {mixture.p_upper:.0%} upper" if mixture.status is BudgetStatus.TIGHT else ""
    name = f"mixture ({mixture.status.name.lower()}{share})"
    axes.plot(mixture.cost, mixture.reward, "*", color=CHOSEN, markersize=15, label=name)
    axes.legend(loc="lower right", fontsize=8, framealpha=0.85)
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
