"""What a report says of BFTQ against FTQ(lambda): on dialogues, and on the road."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from bmdp.evaluation import DialReport, Evaluation
from bmdp.report.animation import drives_gif
from bmdp.report.chapters import shown
from bmdp.report.chapters.chapter import (
    Animation,
    Chapter,
    episodes_explored,
    episodes_played,
    settings_table,
)
from bmdp.report.curves import (
    ALONE,
    FIRST,
    FIRST_PUBLISHED,
    FOURTH,
    SECOND,
    SECOND_PUBLISHED,
    THIRD,
    Drawn,
    Style,
)
from bmdp.report.drawing import Drawing
from bmdp.report.pieces import Executions, Hull, Prices, Scripts, Truth
from bmdp.report.prices import calibrated, calibration_figure, largest_costs, middle_budget
from bmdp.report.published import published_curve
from bmdp.report.reading import Results
from bmdp.report.series import Curve, budget_curve, price_curve
from bmdp.report.tables import Table, budget_table, dial_report, price_table, summary_table


@dataclass(frozen=True)
class Way:
    """A way to spend a budget.

    Args:
        label: of its curve.
        part: of the experiment that has it.
        piece: of its evaluation.
        style: of its curve.
    """

    label: str
    part: str
    piece: str
    style: Style


FTQ = "ftq"
"""The part of FTQ(lambda)."""

WAYS = {
    "bftq": Way("BFTQ", "", "evaluation", FIRST),
    "mixture": Way("FTQ(lambda), mixture", FTQ, "evaluation", THIRD),
    "carried": Way("FTQ(lambda), carried price", FTQ, "evaluation-carried", FOURTH),
}
"""Ways to spend a budget, by the ends of names of files."""


@dataclass(frozen=True)
class Place:
    """An experiment of this kind.

    Args:
        figure: of the paper.
        task: in words.
        dial: title of its dial.
    """

    figure: str
    task: str
    dial: str


PLACES = {
    "slot-filling": Place("slot-filling", "dialogues of slot-filling", "A policy in dialogues"),
    "driving": Place("highway", "the two-way road", "A policy on the road"),
}


@dataclass(frozen=True, eq=False)
class Found:
    """What there is of it, as far as it goes."""

    place: Place
    truth: Truth | None
    ways: Mapping[str, Curve]
    priced: Curve | None
    scripts: Drawn | None
    reports: Mapping[str, DialReport]
    executions: Mapping[int, Executions]

    @property
    def published(self) -> dict[str, Curve]:
        """BFTQ and FTQ of the paper."""
        return {name: published_curve(self.place.figure, name) for name in ("BFTQ", "FTQ")}


def prices_chapter(results: Results, prefix: str) -> Chapter:
    """Returns what was found, as far as it goes."""
    found = _found(results)
    priced = [found.priced] if found.priced is not None else []
    hulls = results.found(Hull, "hull")
    executions = found.executions
    drawings = [
        *_curves(prefix, found),
        *_calibration(prefix, found),
        *(shown.executions(f"{prefix}-drives", executions[s], s) for s in sorted(executions)[:1]),
        *(shown.hull(f"{prefix}-hull", hulls[s], s) for s in sorted(hulls)[:1]),
        shown.rounds(f"{prefix}-rounds", results),
    ]
    return Chapter(
        answer=_answer(found),
        setting=_setting(results, found.place),
        curves=[*found.ways.values(), *priced, *found.published.values()],
        drawings=[drawing for drawing in drawings if drawing is not None],
        tables=[*_tables(prefix, found), settings_table(results, f"{prefix}-settings")],
        dials=[
            shown.dial(executions[seed], f"{found.place.dial} (seed {seed})", found.truth)
            for seed in sorted(executions)[:1]
        ],
        animations=_animations(prefix, executions),
    )


def _found(results: Results) -> Found:
    place, truth = PLACES[results.experiment], results.common(Truth, "truth")
    priced = list(results.found(Prices, "prices", FTQ).values())
    each = {
        name: list(results.found(Evaluation, way.piece, way.part).values())
        for name, way in WAYS.items()
    }
    each = {name: evaluations for name, evaluations in each.items() if evaluations}
    reports = {
        WAYS[name].label: dial_report(evaluations, truth.frontier)
        for name, evaluations in each.items()
        if truth
    }
    return Found(
        place=place,
        truth=truth,
        ways={name: budget_curve(WAYS[name].label, some) for name, some in each.items()},
        priced=price_curve("FTQ(lambda)", priced) if priced else None,
        scripts=_scripts(results.common(Scripts, "scripts")),
        reports=reports,
        executions=results.found(Executions, "executions"),
    )


def _scripts(found: Scripts | None) -> Drawn | None:
    """Policies that were written by hand, as points."""
    if found is None:
        return None
    means = found.cost.mean[None], found.reward.mean[None]
    numbers = np.arange(len(found.names), dtype=np.float64)
    curve = Curve("written by hand", numbers, found.cost, found.reward, "episodes", 1, *means)
    return Drawn(curve, ALONE, found.names)


def _curves(prefix: str, found: Found) -> list[Drawing]:
    published = found.published
    both = [Drawn(published["BFTQ"], FIRST_PUBLISHED), Drawn(published["FTQ"], SECOND_PUBLISHED)]
    ways = {name: Drawn(curve, WAYS[name].style) for name, curve in found.ways.items()}
    ours = [drawn for name, drawn in ways.items() if name != "mixture"]
    if found.priced is not None:
        names = [f"λ {price:g}" for price in found.priced.settings]
        ours.append(Drawn(found.priced, SECOND, names))
    if found.scripts is not None and ours:
        ours.append(found.scripts)
    drawings = []
    if ours:
        drawings.append(shown.trade_off(f"{prefix}-trade-off", [*ours, *both], found.truth))
    if ways:
        asked = [*ways.values(), both[0]]
        drawings.append(shown.asked(f"{prefix}-asked", asked, found.truth))
    return drawings


def _calibration(prefix: str, found: Found) -> list[Drawing]:
    """Costs of prices, and the price that each rule of the appendix chooses for a budget."""
    curve = found.priced
    if curve is None:
        return []
    rules = calibrated(curve, largest_costs(curve), middle_budget(curve))
    largest = "of the seed that pays most" if curve.n_seeds > 1 else "upper end of 95 %, episodes"
    chosen = [
        f"λ*{rule} = {price:g}" if price is not None else f"no price keeps it ({rule})"
        for rule, price in (("avg", rules.by_mean), ("max", rules.by_largest))
    ]
    caption = (
        f"Mean cost of the policy of each price, over {curve.n_seeds} seeds, and its largest "
        f"deviation ({largest}). Two rules choose the least price that keeps budget "
        f"{rules.budget:g}: on average, or at the largest deviation: {', '.join(chosen)}. Paper: "
        "the figure of the Lagrangian appendix. Hollow: published means."
    )
    alt = (
        f"Cost falls from {curve.cost.mean[0]:.3f} at price {curve.settings[0]:g} to "
        f"{curve.cost.mean[-1]:.3f} at price {curve.settings[-1]:g}; {', '.join(chosen)}."
    )
    figure = calibration_figure(rules, found.published["FTQ"])
    return [Drawing(f"{prefix}-calibration", "Calibration of the multiplier", caption, alt, figure)]


def _tables(prefix: str, found: Found) -> list[Table]:
    tables, published = [], found.published
    reports = dict(found.reports)
    if found.truth is not None and reports:
        evaluation = shown.as_evaluation(published["BFTQ"])
        reports["BFTQ, published"] = dial_report([evaluation], found.truth.frontier)
        tables.append(summary_table(f"{prefix}-summary", reports))
    for name, curve in found.ways.items():
        beside = published["BFTQ"] if name == "bftq" else None
        report = found.reports.get(curve.label)
        title = f"Budgets, {curve.label}"
        tables.append(budget_table(f"{prefix}-{name}", title, curve, report, beside))
    if found.priced is not None:
        title = "Prices, FTQ(lambda)"
        tables.append(price_table(f"{prefix}-ftq", title, found.priced, published["FTQ"]))
    return tables


def _animations(prefix: str, executions: Mapping[int, Executions]) -> list[Animation]:
    found = []
    for seed in sorted(executions)[:1]:
        drives = executions[seed]
        if drives.env == "two-way" and any(drives.episodes):
            make = partial(drives_gif, drives)
            found.append(Animation(f"{prefix}-executions", "a drive at some budgets", make))
    return found


def _answer(found: Found) -> str:
    told, budgeted = [], found.ways.get("bftq")
    if budgeted is not None:
        over = float((budgeted.cost.mean - budgeted.settings).max())
        told.append(
            f"One BFTQ model at all budgets: {shown.ends_of(budgeted)}; its cost exceeds "
            f"the budget by {max(over, 0.0):.3f} at most."
        )
    told += [shown.kept(name, report) for name, report in found.reports.items()]
    if found.priced is not None:
        n = len(found.priced.settings)
        told.append(f"{n} policies of FTQ(lambda): {shown.ends_of(found.priced)}.")
    return " ".join(told)


def _setting(results: Results, place: Place) -> str:
    settings = results.spec.get("settings", {})
    priced = settings.get("priced") or {}
    prices = priced.get("prices")
    parts = [
        place.task,
        f"BFTQ: {told}" if (told := episodes_explored(settings.get("budgeted") or {})) else "",
        f"FTQ(lambda): {told}"
        if (told := episodes_explored(priced.get("exploring") or {}))
        else "",
        f"{len(prices)} prices" if isinstance(prices, list) else "",
        episodes_played(settings),
    ]
    return "; ".join(part for part in parts if part)
