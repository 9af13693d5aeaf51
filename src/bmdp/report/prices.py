"""The calibration of a multiplier: what each price of cost leads to, and which one a budget needs.

Paper: the figure of the Lagrangian appendix, and its two rules: the least price whose policy costs
no more than the budget on average, or even when it deviates most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from bmdp.arrays import FloatArray
from bmdp.report.drawing import BLACK, BLUE, COST, GREY, ORANGE, RED, SKY, new_figure, tidy
from bmdp.report.series import Curve


@dataclass(frozen=True, eq=False)
class Calibration:
    """Costs of `P` prices, and the price that each rule chooses for a budget.

    Args:
        curve: mean costs.
        largest: cost at the largest deviation, `[P]`.
        budget: that is to be kept.
        by_mean: least price that keeps it on average, if there is one.
        by_largest: least price that keeps it at the largest deviation, if there is one.
    """

    curve: Curve
    largest: FloatArray
    budget: float
    by_mean: float | None
    by_largest: float | None


def calibrated(curve: Curve, largest: FloatArray, budget: float) -> Calibration:
    """Returns which price each rule chooses for a budget.

    Args:
        curve: of prices.
        largest: cost of each at the largest deviation, `[P]`.
        budget: to be kept.
    """
    return Calibration(
        curve,
        largest,
        budget,
        _least_price(curve.settings, curve.cost.mean, budget),
        _least_price(curve.settings, largest, budget),
    )


def largest_costs(curve: Curve) -> FloatArray:
    """Returns costs at the largest deviation: of the seed that pays most, `[P]`.

    Of one seed: the upper end of its interval.
    """
    largest: FloatArray = curve.cost_by_seed.max(axis=0) if curve.n_seeds > 1 else curve.cost.high
    return largest


def middle_budget(curve: Curve) -> float:
    """Returns a budget halfway between the least and the largest mean cost, in two digits."""
    return round(float(curve.cost.mean.min() + curve.cost.mean.max()) / 2, 2)


def calibration_figure(found: Calibration, published: Curve | None = None) -> Figure:
    """Returns the cost of each price, the budget, and the price that each rule chooses for it."""
    figure = new_figure(height=4.8)
    axes = figure.subplots()
    tidy(axes)
    axes.set_xlabel("price of a unit of cost (lambda)")
    axes.set_ylabel(COST)
    curve = found.curve
    for i, costs in enumerate(curve.cost_by_seed if curve.n_seeds > 1 else ()):
        label = "each seed" if i == 0 else "_"
        axes.plot(curve.settings, costs, color=SKY, linewidth=0.8, alpha=0.7, label=label)
    axes.plot(curve.settings, curve.cost.mean, "o-", color=BLUE, label="mean")
    axes.plot(curve.settings, found.largest, "^--", color=RED, label="largest deviation")
    if published is not None:
        axes.plot(
            published.settings,
            published.cost.mean,
            "v:",
            color=ORANGE,
            markerfacecolor="white",
            label="mean, published",
        )
    name = f"budget {found.budget:g}"
    axes.axhline(found.budget, color=BLACK, linestyle="--", linewidth=1, label=name)
    rules = (("avg", found.by_mean, BLUE), ("max", found.by_largest, RED))
    for rule, price, colour in rules:
        if price is not None:
            axes.axvline(price, color=colour, linewidth=1, alpha=0.8)
            axes.annotate(
                f"$\\lambda^*_{{\\mathrm{{{rule}}}}}$ = {price:g}",
                (price, 1.0 if rule == "avg" else 0.92),
                xycoords=("data", "axes fraction"),
                xytext=(4, -12),
                textcoords="offset points",
                color=colour,
            )
    axes.axhline(0, color=GREY, linewidth=0.6)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def _least_price(prices: FloatArray, costs: FloatArray, budget: float) -> float | None:
    """The least price that costs no more than a budget."""
    fits = np.flatnonzero(costs <= budget)
    return float(prices[fits[0]]) if len(fits) else None
