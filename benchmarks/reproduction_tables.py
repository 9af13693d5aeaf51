"""Tables and figures of docs/paper/results.md: published, reproduced and best dials, by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from agreement import agreement
from reproduction_dials import (
    OLD,
    PUBLISHED,
    TASKS,
    Dial,
    Found,
    Task,
    dial_of,
    dials_of,
    labelled,
    old_dial,
    today_dial,
)
from scipy import stats

from bmdp.evaluation.statistics import Interval
from bmdp.frontier import Frontier, upper_frontier
from bmdp.paper.published import N_SEEDS, published_curve
from bmdp.paper.results import Results, curve_of, prices_of
from bmdp.report.curves import SECOND_PUBLISHED, Drawn, asked_figure, trade_off_figure
from bmdp.report.drawing import png_of
from bmdp.report.section import Column, Table
from bmdp.report.series import Curve

SECOND_SCORE = "clairvoyant"
"""The reference that has a column of scores beside the first one."""


def summary(task: Task, found: Found) -> Table:
    """Returns a row for each dial: score, overshoot, dial error, episodes, time."""
    references = task.references(found)
    best, dials = scored_against(task, found), dials_of(task, found)
    reports = [dial.report(best) for dial in dials]
    return Table(
        "dials",
        "",
        [
            Column("", [dial.label for dial in dials], "s"),
            Column("seeds", [dial.n_seeds for dial in dials], "d"),
            Column("score", [report.mean_score for report in reports]),
            Column("sd", [_deviation(dial, best) for dial in dials]),
            *(
                Column(f"score, {name}", [dial.report(frontier).mean_score for dial in dials])
                for name, frontier in references.items()
                if name == SECOND_SCORE
            ),
            Column("overshoot", [_overshoot(dial, best) for dial in dials]),
            Column(
                "worst seed",
                [
                    None if dial.is_published else report.worst_overshoot
                    for dial, report in zip(dials, reports, strict=True)
                ],
            ),
            Column("dial error", [report.mean_dial_error for report in reports]),
            Column("episodes", [dial.n_learned for dial in dials], ",d"),
            Column("more episodes", [dial.n_more for dial in dials], ",d"),
            Column("minutes", [_minutes(dial) for dial in dials], ".1f"),
        ],
    )


def scored_against(task: Task, found: Found) -> Frontier:
    """Returns what scores of a task are shares of."""
    return next(iter(task.references(found).values()))


@dataclass(frozen=True)
class Row:
    """A row of the overview: a task and what is seen there, with the presets that see it.

    Args:
        name: of the row.
        task: of TASKS.
        ours: the preset of ours.
        has_old: whether 0.1.0 saw the same.
        is_papers: whether it is what the paper's agent saw.
    """

    name: str
    task: str
    ours: str
    has_old: bool = True
    is_papers: bool = True


OVERVIEW = (
    Row("corridors", "corridors", "best"),
    Row("slot-filling, the paper's 26 features", "slot-filling", "paper-features", has_old=False),
    Row("slot-filling, the belief", "slot-filling", "best", is_papers=False),
    Row("driving, times to collision", "driving", "time-to-collision"),
    Row("driving, full features", "driving", "best", has_old=False, is_papers=False),
)
"""Rows of the table on the first page."""


def overview(found: Mapping[str, Found]) -> Table:
    """Returns score and overshoot of the main dials, given what was found of each task.

    A row of which nothing is known is left out. Prices of 0.1.0 were not found from the data, so
    its carried prices are not shown.
    """
    titles = (
        "published",
        "reproduced",
        "ours (BFTQ)",
        "ours (carried price, prices found from the data)",
    )
    rows = {row.name: _overview_row(row, found[row.task]) for row in OVERVIEW if row.task in found}
    kept = {name: cells for name, cells in rows.items() if any(cells)}
    columns = [
        Column(title, [cells[i] for cells in kept.values()], "s") for i, title in enumerate(titles)
    ]
    return Table("overview", "", [Column("", list(kept), "s"), *columns])


def _overview_row(row: Row, found: Found) -> list[str | None]:
    task = TASKS[row.task]
    best = scored_against(task, found)
    bftq, carried = (
        next((one for one in task.lines if (one.preset, one.piece) == (row.ours, piece)), None)
        for piece in ("evaluation", "evaluation-carried")
    )
    assert bftq is not None
    shown: list[Dial | None] = [None, None]
    if row.is_papers:
        firsts = [next(one for one in task.lines if one.preset == p) for p in (PUBLISHED, "paper")]
        shown = [dial_of(task, line, found) for line in firsts]
    shown.append(today_dial(bftq, found) or (old_dial(bftq, found) if row.has_old else None))
    shown.append(today_dial(carried, found) if carried else None)
    return [_told(dial, best) if dial else None for dial in shown]


def _told(dial: Dial, best: Frontier) -> str:
    both = f"{dial.report(best).mean_score:.3f}, {max(_overshoot(dial, best), 0.0):.3f}"
    return labelled(both, dial.version)


def changes(found: Mapping[str, Found]) -> Table:
    """Returns what 0.1.0 and today's code score, a row for each dial of both, one reference.

    The interval of the difference is Welch's, which does not take deviations between seeds for
    equal.
    """
    rows: list[tuple[str, str, Dial, Dial | None, Frontier]] = []
    for name, of_task in found.items():
        task = TASKS[name]
        for line in task.lines:
            old, today = old_dial(line, of_task), today_dial(line, of_task)
            if old is not None:
                told = f"{line.label} ({OLD}: {line.was})" if line.was else line.label
                rows.append((name, told, old, today, scored_against(task, of_task)))
    pairs = [(_scores(today, best), _scores(old, best)) for _, _, old, today, best in rows]
    return Table(
        "changes",
        "",
        [
            Column("task", [task for task, *_ in rows], "s"),
            Column("dial", [label for _, label, *_ in rows], "s"),
            Column(f"seeds, {OLD}", [old.n_seeds for _, _, old, _, _ in rows], "d"),
            Column("score", [_mean(old) for _, old in pairs]),
            Column("overshoot", [_overshoot(old, best) for _, _, old, _, best in rows]),
            Column("seeds, today", [new.n_seeds if new else 0 for _, _, _, new, _ in rows], "d"),
            Column("score", [_mean(today) for today, _ in pairs]),
            Column(
                "overshoot",
                [_overshoot(new, best) if new else None for _, _, _, new, best in rows],
            ),
            Column("score: today less 0.1.0 (95 %)", [_difference(*pair) for pair in pairs], "s"),
        ],
    )


def _scores(dial: Dial | None, best: Frontier) -> list[float]:
    return dial.scores(best) if dial else []


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _difference(today: Sequence[float], old: Sequence[float]) -> str | None:
    """Of means, with Welch's interval; none if a sample has fewer than two seeds."""
    if min(len(today), len(old)) < 2:
        return None
    low, high = welch_interval(today, old)
    return f"{np.mean(today) - np.mean(old):+.3f} ({low:+.3f} to {high:+.3f})"


def welch_interval(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Returns the 95 % interval of the first mean less the second, by Welch."""
    difference = float(np.mean(first) - np.mean(second))
    parts = [np.var(some, ddof=1) / len(some) for some in (first, second)]
    if not sum(parts):
        return difference, difference
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(some) - 1) for part, some in zip(parts, (first, second), strict=True)
    )
    half = float(stats.t.ppf(0.975, freedom) * np.sqrt(sum(parts)))
    return difference - half, difference + half


def _overshoot(dial: Dial, best: Frontier) -> float:
    """Mean cost above the budget, at the worst budget."""
    return float((dial.curve.cost.mean - np.maximum(dial.curve.settings, best.costs[0])).max())


def _deviation(dial: Dial, best: Frontier) -> float | None:
    """Standard deviation of mean scores between seeds."""
    if len(dial.evaluations) < 2:
        return None
    return float(np.std(dial.scores(best), ddof=1))


def _minutes(dial: Dial) -> float | None:
    """Of a seed's training, on average."""
    return float(np.mean(dial.seconds)) / 60 if dial.seconds else None


def budgets(task: Task, found: Found) -> Table:
    """Returns cost and reward of dials at some budgets, one beside the other."""
    dials = [dial for dial in dials_of(task, found) if dial.line.style is not None]
    columns = [Column(dial.label, _points(dial.curve, task.budgets), "s") for dial in dials]
    return Table("budgets", "", [Column("asked", task.budgets, ".3g"), *columns])


def costs(task: Task, found: Found) -> Table:
    """Returns what dials earn for the same cost, by mixing the budgets around it."""
    curves = {
        dial.label: upper_frontier(dial.curve.cost.mean, dial.curve.reward.mean)
        for dial in dials_of(task, found)
    }
    if task.experiment == "driving":
        prices = published_curve(task.figure, "FTQ")
        curves["published, FTQ(lambda)"] = upper_frontier(prices.cost.mean, prices.reward.mean)
    curves |= task.references(found)
    columns = [Column(name, _earned(curve, task.costs), ".4g") for name, curve in curves.items()]
    return Table("costs", "", [Column("cost paid", task.costs, "g"), *columns])


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


def prices(task: Task, found: Found) -> Table:
    """Returns cost and reward of FTQ(lambda) by price, of the paper and as it was reproduced.

    Prices of ours are found from the data, by each seed for itself.
    """
    curves = {"published": published_curve(task.figure, "FTQ")}
    results, version = found.shown("paper")
    pieces = _paper_prices(results)
    if pieces:
        curves[f"{labelled('paper', version)}, {len(pieces)} seeds"] = curve_of("", pieces)
    every = sorted({float(price) for curve in curves.values() for price in curve.settings})
    columns = [Column(name, _points(curve, every), "s") for name, curve in curves.items()]
    return Table("prices", "", [Column("lambda", every, "g"), *columns])


def _paper_prices(results: Results | None) -> list[Curve]:
    return list(results.each("prices", prices_of, "ftq").values()) if results else []


REPRODUCED = {
    "BFTQ": ("published", "paper"),
    "BFTQ, risk-neutral": ("published, risk-neutral", "paper, risk-neutral"),
}
"""Labels of dials, published and reproduced."""


def reproduced(task: Task, found: Found) -> Table:
    """Returns how far what was reproduced agrees with what was published."""
    dials = {dial.line.label: dial for dial in dials_of(task, found)}
    pairs = {
        labelled(name, dials[ours].version): (dials[published].curve, dials[ours].curve)
        for name, (published, ours) in REPRODUCED.items()
        if ours in dials
    }
    results, version = found.shown("paper")
    pieces = _paper_prices(results)
    if pieces:
        name = labelled("FTQ(lambda)", version)
        pairs[name] = published_curve(task.figure, "FTQ"), curve_of("", pieces)
    return agreement(pairs, is_assumed=N_SEEDS[task.figure] is None)


def machines(task: Task, found: Found) -> Table:
    """Returns where each preset was run."""
    shown = found.every(task.presets)
    every = shown.values()
    return Table(
        "machines",
        "",
        [
            Column("", list(shown), "s"),
            Column("seeds", [_ends(results.seeds) for results in every], "s"),
            Column("learners on", [results.spec["device"] for results in every], "s"),
            Column("machine", ["; ".join(_machines(results)) for results in every], "s"),
            Column("torch", [results.spec["versions"].get("torch") for results in every], "s"),
            Column("hours, all parts", [results.seconds / 3600 for results in every], ".1f"),
        ],
    )


def _ends(seeds: Sequence[int]) -> str:
    """Seeds in words, "100 to 109" if they follow one another.

    >>> _ends([3, 4, 5]), _ends([7]), _ends([1, 4])
    ('3 to 5', '7', '1, 4')
    """
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def _machines(results: Results) -> list[str]:
    return sorted({_machine(part.machine) for part in results.parts if part.seconds is not None})


def _machine(machine: Mapping[str, Any]) -> str:
    named = [machine.get("gpu"), f"{machine.get('cores')} cores of {machine.get('processor')}"]
    return ", ".join(str(name) for name in named if name)


def figures(task: Task, name: str, found: Found) -> dict[str, bytes]:
    """Returns figures as PNG, by the names of their files."""
    dials = [dial for dial in dials_of(task, found) if dial.line.style is not None]
    drawn = [
        Drawn(_drawn_curve(dial.curve), dial.line.style)
        for dial in reversed(dials)
        if dial.line.style
    ]
    (named, frontier), *others = task.references(found).items()
    ends = float(frontier.costs[0]), float(frontier.costs[-1])
    extra = []
    if name != "corridors":
        extra = [Drawn(published_curve(task.figure, "FTQ"), SECOND_PUBLISHED)]
    return {
        f"{name}-trade-off.png": png_of(
            trade_off_figure([*drawn, *extra], frontier, named=named, others=dict(others))
        ),
        f"{name}-asked.png": png_of(asked_figure(drawn, ends, named=named)),
    }


def _drawn_curve(curve: Curve) -> Curve:
    """A curve without intervals, if they are of two seeds: these are 13 standard errors wide."""
    if curve.over != "seeds" or curve.n_seeds > 2:
        return curve
    unknown = np.full(len(curve.settings), np.nan)
    bare = [Interval(one.mean, unknown, unknown) for one in (curve.cost, curve.reward)]
    return replace(curve, cost=bare[0], reward=bare[1])


def tables_of(found: Mapping[str, Found]) -> dict[str, Table]:
    """Returns all tables of the page, by the names of their places."""
    made = {"all: changes": changes(found)}
    for name, of_task in found.items():
        task = TASKS[name]
        made[f"{name}: dials"] = summary(task, of_task)
        made[f"{name}: budgets"] = budgets(task, of_task)
        made[f"{name}: costs"] = costs(task, of_task)
        if name != "corridors":
            made[f"{name}: prices"] = prices(task, of_task)
        if of_task.shown("paper")[0] is not None:
            made[f"{name}: reproduced"] = reproduced(task, of_task)
        made[f"{name}: machines"] = machines(task, of_task)
    return made
