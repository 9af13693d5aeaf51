"""Tables and figures of docs/results.md: published, reproduced and best dials, task by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from agreement import agreement
from reproduction_dials import TASKS, Dial, Task, dials_of, reference

from bmdp.evaluation import measure_dial
from bmdp.frontier import Frontier, upper_frontier
from bmdp.paper.published import published_curve
from bmdp.paper.results import Results, curve_of, prices_of
from bmdp.report.curves import SECOND_PUBLISHED, Drawn, asked_figure, trade_off_figure
from bmdp.report.drawing import png_of
from bmdp.report.section import Column, Table
from bmdp.report.series import Curve


def summary(task: Task, found: Mapping[str, Results]) -> Table:
    """Returns a row for each dial: score, deviation between seeds, overshoot, dial error, time."""
    best = reference(found)
    dials = dials_of(task, found)
    reports = [dial.report(best) for dial in dials]
    return Table(
        "dials",
        "",
        [
            Column("", [dial.line.label for dial in dials], "s"),
            Column("seeds", [dial.curve.n_seeds for dial in dials], "d"),
            Column("score", [report.mean_score for report in reports]),
            Column("sd", [_deviation(dial, best) for dial in dials]),
            Column("overshoot", [_overshoot(dial, best) for dial in dials]),
            Column(
                "worst seed",
                [
                    None if dial.is_published else report.worst_overshoot
                    for dial, report in zip(dials, reports, strict=True)
                ],
            ),
            Column("dial error", [report.mean_dial_error for report in reports]),
            Column("minutes", [_minutes(dial) for dial in dials], ".1f"),
        ],
    )


OVERVIEW = {
    "published": "published",
    "paper": "reproduced, the paper's settings",
    "best": "ours, as many episodes",
    "best, carried price": "ours, a carried price",
}
"""Titles of dials that are on the first page."""


def overview(found: Mapping[str, Mapping[str, Results]]) -> Table:
    """Returns share of the best and overshoot of the main dials, given results of each task."""
    cells: dict[str, list[str | None]] = {label: [] for label in OVERVIEW}
    for name, results in found.items():
        best, task = reference(results), TASKS[name]
        dials = {dial.line.label: dial for dial in dials_of(task, results)}
        costs = [c for c in task.costs if c >= dials["published"].curve.cost.mean.min()]
        for label, column in cells.items():
            column.append(_told(dials[label], best, costs) if label in dials else None)
    columns = [Column(OVERVIEW[label], some, "s") for label, some in cells.items() if any(some)]
    return Table("overview", "", [Column("", list(found), "s"), *columns])


def _told(dial: Dial, best: Frontier, costs: Sequence[float]) -> str:
    return f"{share(dial, best, costs):.2f}, {max(_overshoot(dial, best), 0.0):.3f}"


def share(dial: Dial, best: Frontier, costs: Sequence[float]) -> float:
    """Returns reward over the best for the same cost, mean over costs.

    It is 0 at costs to which the dial does not come down.
    """
    curve = upper_frontier(dial.curve.cost.mean, dial.curve.reward.mean)
    earned = [reward or 0.0 for reward in _earned(curve, costs)]
    return float(np.mean([r / best.reward_at(c) for r, c in zip(earned, costs, strict=True)]))


def _overshoot(dial: Dial, best: Frontier) -> float:
    """Mean cost above the budget, at the worst budget."""
    return float((dial.curve.cost.mean - np.maximum(dial.curve.settings, best.costs[0])).max())


def _deviation(dial: Dial, best: Frontier) -> float | None:
    """Standard deviation of mean scores between seeds."""
    if len(dial.evaluations) < 2:
        return None
    return float(np.std([measure_dial(e, best).mean_score for e in dial.evaluations], ddof=1))


def _minutes(dial: Dial) -> float | None:
    """Of a seed's training, on average."""
    return float(np.mean(dial.seconds)) / 60 if dial.seconds else None


def budgets(task: Task, found: Mapping[str, Results]) -> Table:
    """Returns cost and reward of dials at some budgets, one beside the other."""
    dials = [dial for dial in dials_of(task, found) if dial.line.style is not None]
    columns = [Column(dial.line.label, _points(dial.curve, task.budgets), "s") for dial in dials]
    return Table("budgets", "", [Column("asked", task.budgets, ".3g"), *columns])


def costs(task: Task, found: Mapping[str, Results]) -> Table:
    """Returns what dials earn for the same cost, by mixing the budgets around it."""
    best, dials = reference(found), dials_of(task, found)
    curves = {
        dial.line.label: upper_frontier(dial.curve.cost.mean, dial.curve.reward.mean)
        for dial in dials
    }
    if task.experiment == "driving":
        prices = published_curve(task.figure, "FTQ")
        curves["published, FTQ(lambda)"] = upper_frontier(prices.cost.mean, prices.reward.mean)
    columns = [Column(name, _earned(curve, task.costs), ".4g") for name, curve in curves.items()]
    best_column = Column(_best_name(task), _earned(best, task.costs), ".4g")
    return Table("costs", "", [Column("cost paid", task.costs, "g"), *columns, best_column])


def _best_name(task: Task) -> str:
    return "knows the future" if task.experiment == "driving" else "optimum"


def _earned(curve: Frontier, costs: Sequence[float]) -> list[float | None]:
    """Reward at costs; nothing below the least cost of the curve."""
    return [float(curve.reward_at(c)) if c >= curve.costs[0] else None for c in costs]


def _points(curve: Curve, settings: Sequence[float]) -> list[str | None]:
    """Reward and cost at some settings, as far as there are such."""
    cells: list[str | None] = []
    for setting in settings:
        places = np.flatnonzero(np.abs(curve.settings - setting) < 1e-3)
        means = [
            float(interval.mean[places[0]]) if len(places) else 0.0
            for interval in (curve.reward, curve.cost)
        ]
        cells.append(f"{means[0]:.4g} at {means[1]:.3f}" if len(places) else None)
    return cells


def prices(task: Task, found: Mapping[str, Results]) -> Table:
    """Returns cost and reward of FTQ(lambda) by price."""
    curves = {"published": published_curve(task.figure, "FTQ")}
    for preset, results in found.items():
        pieces = list(results.each("prices", prices_of, "ftq").values())
        if pieces:
            curves[f"{preset} ({len(pieces)} seeds)"] = curve_of(preset, pieces)
    every = sorted({float(price) for curve in curves.values() for price in curve.settings})
    columns = [Column(name, _points(curve, every), "s") for name, curve in curves.items()]
    return Table("prices", "", [Column("lambda", every, "g"), *columns])


REPRODUCED = {
    "BFTQ": ("published", "paper"),
    "BFTQ, risk-neutral": ("published, risk-neutral", "paper, risk-neutral"),
}
"""Labels of dials, published and reproduced."""


def reproduced(task: Task, found: Mapping[str, Results]) -> Table:
    """Returns how far what was reproduced agrees with what was published."""
    dials = {dial.line.label: dial.curve for dial in dials_of(task, found)}
    pairs = {
        name: (dials[published], dials[ours])
        for name, (published, ours) in REPRODUCED.items()
        if ours in dials
    }
    if "paper" in found:
        pieces = list(found["paper"].each("prices", prices_of, "ftq").values())
        if pieces:
            pairs["FTQ(lambda)"] = published_curve(task.figure, "FTQ"), curve_of("", pieces)
    return agreement(pairs)


def machines(found: Mapping[str, Results]) -> Table:
    """Returns where each preset was run."""
    every = found.values()
    return Table(
        "machines",
        "",
        [
            Column("", list(found), "s"),
            Column("seeds", [len(results.seeds) for results in every], "d"),
            Column("learners on", [results.spec["device"] for results in every], "s"),
            Column("machine", ["; ".join(_machines(results)) for results in every], "s"),
            Column("torch", [results.spec["versions"].get("torch") for results in every], "s"),
            Column("hours, all parts", [results.seconds / 3600 for results in every], ".1f"),
        ],
    )


def _machines(results: Results) -> list[str]:
    return sorted({_machine(part.machine) for part in results.parts if part.seconds is not None})


def _machine(machine: Mapping[str, Any]) -> str:
    named = [machine.get("gpu"), f"{machine.get('cores')} cores of {machine.get('processor')}"]
    return ", ".join(str(name) for name in named if name)


def figures(task: Task, name: str, found: Mapping[str, Results]) -> dict[str, bytes]:
    """Returns figures as PNG, by the names of their files."""
    dials = [dial for dial in dials_of(task, found) if dial.line.style is not None]
    drawn = [Drawn(dial.curve, dial.line.style) for dial in reversed(dials) if dial.line.style]
    frontier = reference(found)
    ends = float(frontier.costs[0]), float(frontier.costs[-1])
    extra = []
    if name != "corridors":
        extra = [Drawn(published_curve(task.figure, "FTQ"), SECOND_PUBLISHED)]
    return {
        f"{name}-trade-off.png": png_of(
            trade_off_figure([*drawn, *extra], frontier, named=_best_name(task))
        ),
        f"{name}-asked.png": png_of(asked_figure(drawn, ends)),
    }


def tables_of(found: Mapping[str, Mapping[str, Results]]) -> dict[str, Table]:
    """Returns all tables of the page, by the names of their places."""
    made: dict[str, Table] = {}
    for name, results in found.items():
        task = TASKS[name]
        made[f"{name}: dials"] = summary(task, results)
        made[f"{name}: budgets"] = budgets(task, results)
        made[f"{name}: costs"] = costs(task, results)
        if name != "corridors":
            made[f"{name}: prices"] = prices(task, results)
        if "paper" in results:
            made[f"{name}: reproduced"] = reproduced(task, results)
        made[f"{name}: machines"] = machines(results)
    return made
