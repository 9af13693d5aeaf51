"""What a report says of an experiment that is not in the catalog: whatever it can draw."""

from __future__ import annotations

from bmdp.evaluation import Evaluation
from bmdp.report.chapters import shown
from bmdp.report.chapters.chapter import Chapter, settings_table
from bmdp.report.curves import FIRST, Drawn
from bmdp.report.pieces import Executions, Hull, Truth
from bmdp.report.reading import Results
from bmdp.report.series import budget_curve
from bmdp.report.tables import budget_table, dial_report


def any_chapter(results: Results, prefix: str) -> Chapter:
    """Returns what was found by the main part, as far as it has pieces of well-known names."""
    truth = results.common(Truth, "truth")
    evaluations = list(results.found(Evaluation, "evaluation").values())
    executions, hulls = results.found(Executions, "executions"), results.found(Hull, "hull")
    drawings, tables, curves = [], [settings_table(results, f"{prefix}-settings")], []
    if evaluations:
        curve = budget_curve("policy", evaluations)
        report = dial_report(evaluations, truth.frontier) if truth else None
        curves = [curve]
        drawn = [Drawn(curve, FIRST)]
        drawings += [
            shown.trade_off(f"{prefix}-trade-off", drawn, truth),
            shown.asked(f"{prefix}-asked", drawn, truth),
        ]
        tables.insert(0, budget_table(f"{prefix}-budgets", "Budgets", curve, report))
    found = [
        *(shown.executions(f"{prefix}-executions", executions[s], s) for s in list(executions)[:1]),
        *(shown.hull(f"{prefix}-hull", hulls[s], s) for s in list(hulls)[:1]),
        shown.rounds(f"{prefix}-rounds", results),
    ]
    return Chapter(
        answer=f"At all budgets: {shown.ends_of(curves[0])}." if curves else "",
        setting="",
        curves=curves,
        drawings=[*drawings, *(drawing for drawing in found if drawing is not None)],
        tables=tables,
        dials=[
            shown.dial(executions[seed], f"The policy of seed {seed}", truth)
            for seed in list(executions)[:1]
        ],
    )
