"""The page of a watched log: verdicts, the figure of asked against realised, and drift."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from bmdp.deployment.watch import WatchReport
from bmdp.report.deployed import watched_figure
from bmdp.report.section import Column, Picture, Section, Table


def watch_section(report: WatchReport, name: str, notes: Sequence[str] = ()) -> Section:
    """Returns the page of a log.

    Args:
        report: what its watch says.
        name: of the log.
        notes: what to beware of.
    """
    course = report.course
    figure = watched_figure(
        course.n,
        course.asked,
        course.paid,
        (course.low, course.high),
        since=report.whole.since,
        tolerance=report.tolerance,
    )
    picture = Picture(
        "asked-and-realised",
        "Asked against realised",
        f"Means over all episodes so far. The band holds at all times together with confidence "
        f"{report.confidence:g}, shared with those of the ranges.",
        "Two curves of mean cost by episodes, and below the mean excess in a band that narrows.",
        figure,
    )
    answer = f"The promise is {report.told(report.whole)}."
    return Section(
        "watch",
        f"{name}: a dial that is watched",
        "Do episodes cost at most the budget that was asked, on average?",
        answer,
        facts_of(report),
        pictures=[picture] if len(course.n) else [],
        tables=[_table(report), _course_table(report), *_drift_tables(report)],
        notes=[*notes, *report.notes()],
    )


def facts_of(report: WatchReport) -> Mapping[str, str]:
    """Returns what verdicts rest on."""
    most = "not known" if math.isinf(report.most_cost) else f"{report.most_cost:g}"
    return {
        "Lines": f"{report.n_lines:,}",
        "Confidence": f"{report.confidence:g}, at all times together",
        "Discount of costs": f"{report.gamma:g}",
        "Most an episode can cost": most,
        "Tolerance": f"{report.tolerance:g}",
    }


def _table(report: WatchReport) -> Table:
    rows = report.named()
    return Table(
        "verdicts",
        "Verdicts by budget",
        [
            Column("budgets", [name for name, _ in rows]),
            Column("episodes", [judged.n for _, judged in rows], ",d"),
            Column("asked", [judged.asked for _, judged in rows], ".4g"),
            Column("realised", [judged.paid for _, judged in rows], ".4g"),
            Column("excess from", [judged.excess_low for _, judged in rows], "+.4g"),
            Column("to", [judged.excess_high for _, judged in rows], "+.4g"),
            Column("verdict", [report.told(judged) for _, judged in rows]),
        ],
        "An episode whose dial was moved counts once for each budget.",
    )


def _course_table(report: WatchReport) -> Table:
    course = report.course
    names = ("episodes", "asked", "realised", "excess_low", "excess_high")
    columns = [
        Column(name, values.tolist(), "") for name, values in zip(names, course, strict=True)
    ]
    return Table("course", "Means and band by episodes", columns)


def _drift_tables(report: WatchReport) -> list[Table]:
    shifts = () if report.drift is None else report.drift.shifts
    if not shifts:
        return []
    columns = [
        Column("number", [shift.name for shift in shifts]),
        Column("episodes", [f"{shift.first:,} to {shift.last:,}" for shift in shifts]),
        Column("distance", [shift.distance for shift in shifts], ".3f"),
        Column("mean in training", [shift.before for shift in shifts], ".4g"),
        Column("mean now", [shift.now for shift in shifts], ".4g"),
    ]
    return [Table("drift", "First states that have drifted", columns)]
