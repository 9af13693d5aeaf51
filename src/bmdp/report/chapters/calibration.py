"""What a report says of calibration: prices tuned to a budget, and promises put to the test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bmdp.evaluation import Evaluation
from bmdp.evaluation.statistics import Interval, mean_interval
from bmdp.experiments.parts.measuring import evaluation_of
from bmdp.report.chapters import shown
from bmdp.report.chapters.chapter import Chapter, episodes_explored, settings_table
from bmdp.report.curves import FIRST, SECOND, THIRD, Drawn, Style
from bmdp.report.drawing import PURPLE, Drawing
from bmdp.report.pieces import Piece, Prices, Truth
from bmdp.report.prices import calibrated, calibration_figure, middle_budget
from bmdp.report.promises import KINDS, promises_figure
from bmdp.report.published import published_curve
from bmdp.report.reading import Results
from bmdp.report.series import CONFIDENCE, Curve, budget_curve, price_curve
from bmdp.report.tables import Column, Table, budget_table, dial_report

RULES = {
    "mean": "least price by the mean",
    "deviation": "least price by the largest deviation",
    "mixture": "mixture of two prices",
}
"""Rules of the appendix, in words."""

_STYLES = (FIRST, SECOND, THIRD, Style(PURPLE, "D"))


@dataclass(frozen=True, eq=False)
class Dial:
    """A dial before or after calibration.

    Args:
        curve: of all seeds.
        evaluations: one of each seed.
        smallest: budget from which on all seeds are certified.
    """

    curve: Curve
    evaluations: list[Evaluation]
    smallest: float

    @property
    def excess(self) -> float | None:
        """Most that is paid above a budget that is certified; None if none is."""
        is_certified = self.curve.settings >= self.smallest
        over = (self.curve.cost.mean - self.curve.settings)[is_certified]
        return max(float(over.max()), 0.0) if len(over) else None


def calibration_chapter(results: Results, prefix: str) -> Chapter:
    """Returns what was found, as far as it goes."""
    truth = results.common(Truth, "truth")
    rules = list(results.found(dict, "rules").values())
    prices = list(results.found(Prices, "prices").values())
    dials = _dials(results)
    kinds = _kinds(results)
    chosen = {rule: _rule_curve(rule, rules) for rule in RULES} if rules else {}
    drawings: list[Drawing] = []
    tables: list[Table] = []
    if prices and rules:
        drawings.append(_multiplier(prefix, prices, rules))
    if chosen:
        drawings.append(_rules(prefix, chosen, truth))
        tables += [_rule_table(prefix, rule, curve, rules) for rule, curve in chosen.items()]
    if dials:
        drawings.append(_before_and_after(prefix, dials, truth))
        tables += _dial_tables(prefix, dials, truth)
    if kinds:
        drawings.append(_promises(prefix, kinds))
        tables.insert(0, _promise_table(prefix, kinds))
    curves = [*chosen.values(), *(dial.curve for dial in dials.values())]
    return Chapter(
        answer=_answer(kinds, dials),
        setting=_setting(results),
        curves=curves,
        drawings=drawings,
        tables=[*tables, settings_table(results, f"{prefix}-settings")],
    )


def _dials(results: Results) -> dict[str, Dial]:
    """Dials of both policies, before and after."""
    found: dict[str, Dial] = {}
    for part in ("dial", ""):
        pieces = list(results.found(dict, "dial", part).values())
        for when in ("before", "after") if pieces else ():
            label = f"{pieces[0]['policy']}, {when}"
            evaluations = [evaluation_of(piece[when]) for piece in pieces]
            smallest = max(float(piece["certificate"]["smallest_budget"]) for piece in pieces)
            found[label] = Dial(budget_curve(label, evaluations), evaluations, smallest)
    return found


def _kinds(results: Results) -> dict[str, dict[str, Any]]:
    """Calibrations of all seeds, by what they go by."""
    found: dict[str, dict[str, Any]] = {}
    for piece in results.found(dict, "certificates", "certificates").values():
        for kind, one in piece["kinds"].items():
            sums = found.setdefault(
                kind, {"rows": [], "calibrations": 0, "broken": 0, "allowed": 0}
            )
            sums["rows"] = [*sums["rows"], *one["rows"]]
            sums["calibrations"] += int(one["calibrations"])
            sums["broken"] += int(one["broken"])
            sums["confidence"] = float(piece["confidence"])
    return found


def _rule_curve(rule: str, rules: Sequence[Piece]) -> Curve:
    """What a rule pays and earns at budgets, over seeds."""
    each = [piece["rules"][rule] for piece in rules]
    by_seed = {
        name: np.array([one[f"realised_{name}"] for one in each], np.float64)
        for name in ("cost", "reward")
    }
    if len(each) > 1:
        cost, reward = (
            mean_interval(values.T, confidence=CONFIDENCE) for values in by_seed.values()
        )
    else:
        ends = (f"realised_cost{end}" for end in ("", "_low", "_high"))
        cost = Interval(*(np.array(each[0][name], np.float64) for name in ends))
        unknown = np.full_like(cost.mean, np.nan)
        reward = Interval(by_seed["reward"][0], unknown, unknown)
    return Curve(
        RULES[rule],
        np.array(rules[0]["budgets"], np.float64),
        cost,
        reward,
        "seeds" if len(each) > 1 else "episodes",
        len(each),
        by_seed["cost"],
        by_seed["reward"],
    )


def _multiplier(prefix: str, prices: Sequence[Prices], rules: Sequence[Piece]) -> Drawing:
    """The figure of the appendix."""
    curve = price_curve("mean", prices)
    largest = np.mean([piece["rules"]["deviation"]["cost"] for piece in rules], axis=0)
    found = calibrated(curve, largest, middle_budget(curve))
    caption = (
        f"Mean cost of the policy of each price of a hang-up, over {curve.n_seeds} seeds, and its "
        "largest deviation: the mean of the worst of ten groups of episodes. Two rules choose the "
        f"least price that keeps budget {found.budget:g}. Paper: the figure of the Lagrangian "
        "appendix. Hollow: published means."
    )
    alt = (
        f"Cost falls from {curve.cost.mean[0]:.3f} at price {curve.settings[0]:g} to "
        f"{curve.cost.mean[-1]:.3f} at price {curve.settings[-1]:g}."
    )
    figure = calibration_figure(found, published_curve("slot-filling", "FTQ"))
    title = "Calibration of the multiplier"
    return Drawing(f"{prefix}-multiplier", title, caption, alt, figure)


def _rules(prefix: str, chosen: Mapping[str, Curve], truth: Truth | None) -> Drawing:
    drawn = [Drawn(curve, style) for curve, style in zip(chosen.values(), _STYLES, strict=False)]
    found = shown.asked(f"{prefix}-rules", drawn, truth)
    caption = (
        "What the price that a rule chooses for a budget costs in other episodes. Single prices "
        "leave budget unspent; mixtures of two spend it. " + found.caption
    )
    return Drawing(found.name, "Prices chosen for a budget", caption, found.alt, found.figure)


def _before_and_after(prefix: str, dials: Mapping[str, Dial], truth: Truth | None) -> Drawing:
    pairs = zip(dials.values(), _STYLES, strict=False)
    drawn = [Drawn(dial.curve, style) for dial, style in pairs]
    found = shown.asked(f"{prefix}-dials", drawn, truth)
    certified = dict.fromkeys(
        f"{name.rpartition(',')[0]} from {dial.smallest:.3f} on" for name, dial in dials.items()
    )
    caption = (
        "Dials before and after `bmdp.calibrate`. Promises are about budgets that are certified, "
        f"of all seeds: {', '.join(certified)}. {found.caption}"
    )
    return Drawing(
        found.name, "Dials before and after calibration", caption, found.alt, found.figure
    )


def _promises(prefix: str, kinds: Mapping[str, Mapping[str, Any]]) -> Drawing:
    n = max(found["calibrations"] for found in kinds.values())
    caption = (
        f"{n:,} calibrations of a policy whose costs are known exactly, each from new episodes: "
        "how far the exact cost is above the budget, at the budget where it is furthest. Crosses: "
        "promises that are broken."
    )
    told = (f"{KINDS.get(kind, kind)}: {found['broken']} broken" for kind, found in kinds.items())
    alt = f"Promises of {n} calibrations; {', '.join(told)}."
    figure = promises_figure({kind: found["rows"] for kind, found in kinds.items()})
    return Drawing(f"{prefix}-promises", "Are promises kept?", caption, alt, figure)


def _promise_table(prefix: str, kinds: Mapping[str, Mapping[str, Any]]) -> Table:
    found = kinds.values()
    return Table(
        f"{prefix}-promises",
        "Promises that are broken",
        [
            Column("by", [KINDS.get(kind, kind) for kind in kinds], "s"),
            Column("calibrations", [one["calibrations"] for one in found], "d"),
            Column("broken", [one["broken"] for one in found], "d"),
            Column("share", [one["broken"] / max(one["calibrations"], 1) for one in found]),
            Column("promised at most", [1 - one["confidence"] for one in found], ".2f", "promised"),
        ],
        "A promise is about all budgets from the smallest certified one on.",
    )


def _rule_table(prefix: str, rule: str, curve: Curve, rules: Sequence[Piece]) -> Table:
    table = budget_table(f"{prefix}-rule-{rule}", f"Budgets, {RULES[rule]}", curve)
    n_seeds = len(rules)
    infeasible = np.mean([piece["rules"][rule]["infeasible"] for piece in rules], axis=0)
    column = Column("no price keeps it", infeasible.tolist(), ".0%", "infeasible")
    note = f"{table.note} No price keeps it: share of {n_seeds} seeds."
    return Table(table.name, table.title, [*table.columns, column], note)


def _dial_tables(prefix: str, dials: Mapping[str, Dial], truth: Truth | None) -> list[Table]:
    tables = []
    for number, (label, dial) in enumerate(dials.items()):
        report = dial_report(dial.evaluations, truth.frontier) if truth is not None else None
        name = f"{prefix}-dial-{number}"
        tables.append(budget_table(name, f"Budgets, {label} calibration", dial.curve, report))
    return tables


def _answer(kinds: Mapping[str, Mapping[str, Any]], dials: Mapping[str, Dial]) -> str:
    told = []
    for kind, found in kinds.items():
        name = KINDS.get(kind, kind)
        told.append(f"By {name}, {found['broken']} of {found['calibrations']} promises are broken.")
    for label, dial in dials.items():
        told.append(
            f"{label} calibration: at budgets from {dial.smallest:.3f} on, which are certified, "
            f"cost exceeds the budget by {dial.excess:.3f} at most."
            if dial.excess is not None
            else f"{label} calibration: no budget is certified."
        )
    return " ".join(told)


def _setting(results: Results) -> str:
    settings = results.spec.get("settings", {})
    parts = [
        "dialogues of slot-filling, and a problem of one decision whose costs are known",
        f"BFTQ: {told}" if (told := episodes_explored(settings.get("budgeted") or {})) else "",
        *(
            f"{what}: {settings[name]:,}"
            for name, what in (
                ("n_curve", "episodes that a price is measured by"),
                ("n_tests", "test episodes"),
                ("n_calibrating", "episodes of each member of a calibrated dial"),
                ("calibrations", "calibrations for each seed"),
            )
            if isinstance(settings.get(name), int)
        ),
    ]
    return "; ".join(part for part in parts if part)
