"""What a report says of methods side by side: the same episodes, other ways to spend a budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bmdp.experiments.parts.comparison_summary import COLUMNS, MethodRow, cells, method_rows
from bmdp.experiments.parts.measuring import evaluation_of
from bmdp.experiments.parts.rivals import METHODS
from bmdp.report.chapters.chapter import Chapter, settings_table
from bmdp.report.curves import Drawn, Style, trade_off_figure
from bmdp.report.drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    Drawing,
)
from bmdp.report.pieces import Truth
from bmdp.report.promises import methods_figure
from bmdp.report.reading import Results
from bmdp.report.series import budget_curve
from bmdp.report.tables import Column, Table

Methods = Mapping[str, Sequence[dict[str, Any]]]

_STYLES = {
    "bftq": Style(BLUE, "^"),
    "bftq-paper": Style(SKY, "^"),
    "ftq-paper": Style(ORANGE, "v"),
    "ftq-mixture": Style(RED, "v"),
    "coin": Style(GREEN, "o"),
    "multiplier": Style(PURPLE, "s"),
    "switching": Style(GREY, "P"),
    "ridge": Style(GREEN, "X"),
    "scripted": Style(BLACK, "D"),
}


def comparison_chapter(results: Results, prefix: str) -> Chapter:
    """Returns what was found, as far as it goes."""
    tasks = sorted({one.part for one in results.parts if one.seed is not None})
    drawings: list[Drawing] = []
    tables: list[Table] = []
    told: list[str] = []
    for task in tasks:
        methods, truth = _methods(results, task), results.common(Truth, f"truth-{task}")
        if not methods or truth is None:
            continue
        rows = method_rows(methods, truth.frontier)
        drawings += [_scores(prefix, task, rows), _trade_off(prefix, task, methods, truth)]
        tables.append(_table(prefix, task, rows))
        told.append(_told(task, rows))
    return Chapter(
        answer=" ".join(told),
        setting=_setting(results),
        drawings=drawings,
        tables=[*tables, settings_table(results, f"{prefix}-settings")],
        bands="Lines at scores: Student's 95 % intervals over seeds of each seed's mean score.",
    )


def _methods(results: Results, task: str) -> Methods:
    """Pieces of each method, a piece for each seed."""
    found = {name: list(results.found(dict, f"method-{name}", task).values()) for name in _STYLES}
    return {name: pieces for name, pieces in found.items() if pieces}


def _scores(prefix: str, task: str, rows: Sequence[MethodRow]) -> Drawing:
    caption = (
        "Score: reward over the best for what was allowed, or paid if that is more; mean over "
        "budgets. Squares: mean over seeds, with a 95 % interval; dots: seeds. Worst overshoot: "
        "of any budget and seed. Diamonds: after calibration, from the smallest certified budget."
    )
    alt = "; ".join(
        f"{row.method}: score {row.score:.3f}, worst overshoot {row.worst_overshoot:.3f}"
        for row in rows
    )
    title = f"Methods on {task}"
    return Drawing(f"{prefix}-{task}-scores", title, caption, f"{alt}.", methods_figure(rows))


def _trade_off(prefix: str, task: str, methods: Methods, truth: Truth) -> Drawing:
    drawn = []
    for name, pieces in methods.items():
        evaluations = [evaluation_of(piece["evaluation"]) for piece in pieces]
        drawn.append(Drawn(budget_curve(pieces[0]["method"], evaluations), _STYLES[name]))
    figure = trade_off_figure(
        drawn, truth.frontier, reward_error=truth.reward_error, has_boxes=False
    )
    caption = (
        "Means over seeds at each budget, all learned from the same episodes. Optimum: the true "
        f"frontier, rewards within {truth.reward_error:.2g}."
    )
    alt = "Reward against cost of " + ", ".join(one.curve.label for one in drawn) + "."
    title = f"Reward against cost on {task}"
    return Drawing(f"{prefix}-{task}-trade-off", title, caption, alt, figure)


def _table(prefix: str, task: str, rows: Sequence[MethodRow]) -> Table:
    """On the page as the summary has it; in the file with all digits."""
    shown = [
        Column(name, [cells(row)[i] for row in rows], "s", f"{name}, rounded")
        for i, name in enumerate(COLUMNS)
    ]
    after = [row.calibrated for row in rows]
    exact: dict[str, list[float | None]] = {
        "score": [row.score for row in rows],
        "score_low": [row.score_low for row in rows],
        "score_high": [row.score_high for row in rows],
        "score_deviation": [row.score_deviation for row in rows],
        "worst_overshoot": [row.worst_overshoot for row in rows],
        "dial_error": [row.dial_error for row in rows],
        "moved_worst": [None if row.moved is None else row.moved.worst for row in rows],
        "moved_mean": [None if row.moved is None else row.moved.mean for row in rows],
        "seconds": [row.seconds for row in rows],
        "smallest_certified": [None if one is None else one.smallest_budget for one in after],
        "calibrated_score": [None if one is None else one.score for one in after],
        "calibrated_worst_overshoot": [None if one is None else one.overshoot for one in after],
    }
    return Table(
        f"{prefix}-{task}",
        f"Methods on {task}",
        [*shown, *(Column("", values, "", name) for name, values in exact.items())],
        "Moved: cost after the dial was moved in the middle, against that of an honest dial. "
        "Certified from: the smallest budget of the promise; calibrated: at budgets from there "
        "on, before to after.",
    )


def _told(task: str, rows: Sequence[MethodRow]) -> str:
    best = max(rows, key=lambda row: row.score)
    ours = next((row for row in rows if row.method == METHODS["bftq"].title), None)
    text = f"On {task}, {best.method} has the best score, {best.score:.3f}"
    if ours is None:
        return text + "."
    own = "" if best is ours else f"; BFTQ has {ours.score:.3f}"
    return f"{text}{own}. BFTQ exceeds a budget by {ours.worst_overshoot:.3f} at worst."


def _setting(results: Results) -> str:
    settings = results.spec.get("settings", {})
    measuring = settings.get("measuring") or {}
    parts = [
        f"tasks: {', '.join(settings.get('tasks') or ())}",
        f"{measuring.get('n_tests', 0):,} test episodes at each of "
        f"{measuring.get('n_budgets', 0)} budgets",
        f"{measuring.get('n_calibrating', 0):,} episodes of each member to calibrate",
    ]
    return "; ".join(parts)
