"""Figures as matplotlib objects: each function returns one, and the caller saves it.

They are built without pyplot, so that no global state is touched and no screen is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from bmdp.arrays import FloatArray
from bmdp.exact import CMDPSolution
from bmdp.frontier import BudgetStatus, Frontier, Mixture, hull_mixture, upper_frontier
from bmdp.report.drawing import (
    BLACK,
    BLUE,
    COST,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    REWARD,
    SKY,
    literal,
    new_figure,
    plane,
    tidy,
)

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
    figure, axes = _small_plane()
    axes.margins(0.12)  # room for the names
    axes.scatter(np.asarray(costs), np.asarray(rewards), color=POINTS, label="points")
    axes.plot(frontier.costs, frontier.rewards, "o-", color=FRONTIER, label="frontier")
    for label, x, y in zip(labels or (), *np.broadcast_arrays(costs, rewards), strict=False):
        axes.annotate(label, (x, y), xytext=(5, -12), textcoords="offset points", fontsize=8)
    if beta is not None:
        _draw_mixture(axes, frontier.costs, frontier.rewards, beta, hull_mixture(frontier, beta))
    axes.legend(loc="lower right", fontsize=8)
    return figure


def _small_plane() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(COST)
    axes.set_ylabel(REWARD)
    return figure, axes


def _draw_mixture(
    axes: Axes, costs: FloatArray, rewards: FloatArray, beta: float, mixture: Mixture
) -> None:
    """A budget, the vertices that are mixed at it, and what the mixture costs and earns."""
    ends = [mixture.lower, mixture.upper]
    axes.axvline(beta, color=CHOSEN, linestyle=":", linewidth=1, label=f"budget {beta:g}")
    axes.plot(costs[ends], rewards[ends], color=CHOSEN, linewidth=3, alpha=0.6, label="_mixed")
    share = f", {mixture.p_upper:.0%} upper" if mixture.status is BudgetStatus.TIGHT else ""
    name = f"mixture ({mixture.status.name.lower()}{share})"
    axes.plot(mixture.cost, mixture.reward, "*", color=CHOSEN, markersize=15, label=name)


@dataclass(frozen=True, eq=False)
class Hull:
    """The points of one state, their frontier, and the mixture at one budget."""

    state: tuple[float, ...]
    costs: FloatArray  # [K]
    rewards: FloatArray  # [K]
    action: tuple[int, ...]  # [K]
    handed_on: FloatArray  # [K]
    action_names: tuple[str, ...]
    vertex_costs: FloatArray  # [V], of the frontier
    vertex_rewards: FloatArray  # [V]
    budget: float
    mixture: Mixture


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
            label=literal(name),
        )
    axes.plot(hull.vertex_costs, hull.vertex_rewards, ".-", color=BLACK, label="frontier")
    _draw_mixture(axes, hull.vertex_costs, hull.vertex_rewards, hull.budget, hull.mixture)
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
    figure, axes = _small_plane()
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


@dataclass(frozen=True, eq=False)
class Shares:
    """Shares of `A` actions, at each of `B` budgets and `T` steps."""

    names: Sequence[str]  # [A]
    budgets: FloatArray  # [B]
    by_budget: FloatArray  # [B, A], of decisions
    steps: FloatArray  # [T], of an episode
    by_step: FloatArray  # [B, T, A], of episodes; what is missing to 1 has ended before


def shares_figure(shares: Shares, chosen: int) -> Figure:
    """Returns how often actions are taken by budget, and by step at the chosen one, as bars."""
    has_steps = len(shares.steps) > 1
    figure = new_figure(height=3.6 if has_steps else 4.0)
    parts = figure.subplots(1, 2 if has_steps else 1, sharey=True, squeeze=False)[0]
    _stack(parts[0], shares.budgets, shares.by_budget, shares.names)
    parts[0].set_xlabel("budget asked for")
    parts[0].set_ylabel("share of decisions")
    if has_steps:
        _stack(parts[1], shares.steps, shares.by_step[chosen], shares.names)
        parts[1].set_xlabel(f"step of an episode, at budget {shares.budgets[chosen]:.3g}")
    handles, labels = parts[0].get_legend_handles_labels()
    columns = 4 if max(map(len, labels)) < 18 else 2
    figure.legend(
        handles, labels, loc="outside lower center", ncols=columns, fontsize=8, frameon=False
    )
    return figure


def _stack(axes: Axes, xs: FloatArray, columns: FloatArray, names: Sequence[str]) -> None:
    """Bars of actions on top of each other, told apart by colour and, from the eighth, hatching."""
    tidy(axes)
    width = 0.86 * float(np.diff(xs).min()) if len(xs) > 1 else 1.0
    below = np.zeros(len(xs))
    for number, name in enumerate(names):
        _, colour = ACTIONS[number % len(ACTIONS)]
        hatch = "//" if number >= len(ACTIONS) else None
        axes.bar(
            xs, columns[:, number], width, below, color=colour, hatch=hatch, label=literal(name)
        )
        below = below + columns[:, number]
    axes.set_ylim(0, 1)
    if len(xs) == 1:
        axes.set_xticks(xs)


_PANELS = {  # fields of records, with colour and label
    "error on the new targets": [
        ("delta", BLUE, "before the fit"),
        ("last_loss", ORANGE, "after the fit"),
    ],
    "change still expected, share of values": [("change", BLUE, "_change")],
    "reward promised at first states": [
        ("start_reward_low", SKY, "least budget"),
        ("start_reward_high", BLUE, "largest budget"),
    ],
    "cost promised at first states": [
        ("start_cost_low", ORANGE, "least budget"),
        ("start_cost_high", RED, "largest budget"),
    ],
}


def learning_figure(records: Sequence[Mapping[str, Any]]) -> Figure:
    """Returns errors and promises by iteration; what the records do not have is not drawn."""
    rounds = [record.get("round", 0) for record in records]
    starts = [i for i in range(1, len(rounds)) if rounds[i] != rounds[i - 1]]
    panels = []
    for title, fields in _PANELS.items():
        lines = [(column(records, name), colour, label) for name, colour, label in fields]
        if lines := [line for line in lines if np.isfinite(line[0]).any()]:
            panels.append((title, lines))
    n_rows = max(-(-len(panels) // 2), 1)
    figure = new_figure(height=2.6 * n_rows)
    for number, (title, lines) in enumerate(panels):
        axes = figure.add_subplot(n_rows, min(len(panels), 2), number + 1)
        _draw_learning(axes, title, lines, starts)
    return figure


def column(records: Sequence[Mapping[str, Any]], name: str) -> FloatArray:
    """Returns one field of records, `[N]`; NaN where it is no number."""
    values = (record.get(name) for record in records)
    return np.array([v if isinstance(v, int | float) else math.nan for v in values], np.float64)


def _draw_learning(
    axes: Axes, title: str, lines: Sequence[tuple[FloatArray, str, str]], starts: Sequence[int]
) -> None:
    """Lines by iteration; a logarithmic scale where nothing is promised and all is above 0."""
    tidy(axes)
    axes.set_title(title, fontsize=9, loc="left")
    for start in starts:
        axes.axvline(start + 0.5, color="0.8", linewidth=0.8, label="_round")
    for values, colour, label in lines:
        marker = "o" if len(values) < 30 else None
        xs = np.arange(1, len(values) + 1)
        axes.plot(xs, values, marker=marker, color=colour, markersize=3, lw=1.2, label=label)
    finite = np.concatenate([values[np.isfinite(values)] for values, _, _ in lines])
    if "promised" not in title and (finite > 0).all():
        axes.set_yscale("log")
    if len(lines) > 1:
        axes.legend(fontsize=7, frameon=False)
    axes.set_xlabel("iteration", fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
