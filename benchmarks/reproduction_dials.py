"""Dials of docs/paper/results.md: which each task of the paper has, and what is known of them.

A dial that has no record of today is shown as version 0.1.0 had it, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bmdp.envs import slot_filling, two_way
from bmdp.evaluation import DialReport, Evaluation, measure_dial
from bmdp.frontier import Frontier
from bmdp.paper.published import N_SEEDS, published_curve, published_report
from bmdp.paper.results import Results, evaluation_of, truth_of
from bmdp.report.curves import (
    FIRST,
    FIRST_PUBLISHED,
    FOURTH,
    SECOND,
    SECOND_PUBLISHED,
    THIRD,
    Style,
)
from bmdp.report.section import Data
from bmdp.report.series import Curve, budget_curve
from bmdp.report.tables import dial_report

OLD = "0.1.0"
"""The version of the older records, and the name of their folder."""

PUBLISHED = "published"
"""The preset of what the paper has."""


@dataclass(frozen=True, eq=False)
class Found:
    """Results of a task, by preset: of today, and of version 0.1.0."""

    today: Mapping[str, Results]
    old: Mapping[str, Results]

    def shown(self, preset: str) -> tuple[Results | None, str]:
        """Returns the results of a preset and their version, which is "" if they are of today."""
        if preset in self.today:
            return self.today[preset], ""
        return self.old.get(preset), OLD if preset in self.old else ""

    def every(self, presets: Sequence[str]) -> dict[str, Results]:
        """Returns the results that are shown, by preset and version."""
        pairs = {preset: self.shown(preset) for preset in presets}
        return {
            labelled(preset, version): results
            for preset, (results, version) in pairs.items()
            if results is not None
        }


def labelled(label: str, version: str, words: str = "") -> str:
    """Returns a label that says which version it is of, if not of today.

    >>> labelled("best", ""), labelled("best", "0.1.0"), labelled("best", "0.1.0", "one eye")
    ('best', 'best (0.1.0)', 'best (0.1.0, one eye)')
    """
    return f"{label} ({', '.join(filter(None, (version, words)))})" if version else label


@dataclass(frozen=True)
class Line:
    """A dial on the page.

    Args:
        label: in tables and legends.
        preset: of the experiment, or "published".
        part: of the experiment; of what is published, the series.
        piece: its evaluation.
        style: in figures; None if it is in tables alone.
        before: the preset of 0.1.0 that it is compared with; "" if there is none. If it is the
            same preset, it is also shown where there is no record of today.
        was: what else was different in 0.1.0.
    """

    label: str
    preset: str
    part: str
    piece: str = "evaluation"
    style: Style | None = None
    before: str = ""
    was: str = ""

    @property
    def is_measured_first(self) -> bool:
        """Whether what it mixes was measured in episodes beside those learned from."""
        return (self.part, self.piece) == ("ftq", "evaluation")


@dataclass(frozen=True)
class Task:
    """A task of the paper, as the page has it.

    Args:
        experiment: its name in the catalog.
        figure: of the paper.
        references: what could be had, by name; dials are scored against the first.
        lines: dials, in the order of tables.
        budgets: that have a row in the table of budgets.
        costs: that have a row in the table of costs.
    """

    experiment: str
    figure: str
    references: Callable[[Found], Mapping[str, Frontier]]
    lines: tuple[Line, ...]
    budgets: tuple[float, ...]
    costs: tuple[float, ...]

    @property
    def presets(self) -> list[str]:
        """Presets of the experiment that are on the page, in their order."""
        return list(dict.fromkeys(one.preset for one in self.lines if one.preset != PUBLISHED))


def priced(label: str, preset: str, before: str = "", was: str = "") -> tuple[Line, ...]:
    """Returns the dials of an experiment with prices, in tables alone.

    Prices of `best` were given in 0.1.0.
    """
    prices = ", ".join(filter(None, (was, "given prices" if before == "best" else "")))
    return (
        Line(label, preset, "", before=before, was=was),
        Line(f"{label}, FTQ mixture", preset, "ftq", before=before, was=prices),
        Line(f"{label}, carried price", preset, "ftq", "evaluation-carried", None, before, prices),
    )


def _drawn(lines: Sequence[Line], *styles: Style | None) -> tuple[Line, ...]:
    return tuple(replace(line, style=style) for line, style in zip(lines, styles, strict=True))


def _corridors_references(found: Found) -> Mapping[str, Frontier]:
    for results in (*found.today.values(), *found.old.values()):
        truth = results.common("truth", truth_of)
        if truth is not None:
            return {"optimum": truth.frontier}
    raise ValueError("a record of corridors must have its true frontier; got none.")


def _slot_filling_references(_: Found) -> Mapping[str, Frontier]:
    return {"optimum": slot_filling.true_frontier().frontier}


def _road_references(_: Found) -> Mapping[str, Frontier]:
    names = {
        "replanning": "replanning",
        "clairvoyant": "clairvoyant",
        "equal-budget": "same budget",
    }
    return {told: two_way.known_curve(name).frontier for name, told in names.items()}


_PAPER = _drawn(priced("paper", "paper", "paper")[:2], THIRD, SECOND)
_ROAD_WAS = "times to collision, kernels"
_PUBLISHED = Line("published", PUBLISHED, "BFTQ", style=FIRST_PUBLISHED)

TASKS = {
    "corridors": Task(
        "corridors-exploration",
        "corridors",
        _corridors_references,
        (
            Line("published", PUBLISHED, "BFTQ risk-sensitive", style=FIRST_PUBLISHED),
            Line("published, risk-neutral", PUBLISHED, "BFTQ risk-neutral", style=SECOND_PUBLISHED),
            Line("paper", "paper", "", style=THIRD, before="paper"),
            Line("paper, risk-neutral", "paper", "risk-neutral", style=SECOND, before="paper"),
            Line("best", "best", "", style=FIRST, before="best"),
            Line(
                "best, risk-neutral", "best", "risk-neutral", before="best", was="explored by FTQ"
            ),
        ),
        tuple(i / 9 for i in range(10)),
        (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0),
    ),
    "slot-filling": Task(
        "slot-filling",
        "slot-filling",
        _slot_filling_references,
        (
            _PUBLISHED,
            *_PAPER,
            *_drawn(priced("best", "best", "best"), FIRST, None, FOURTH),
            *priced("paper's features", "paper-features"),
        ),
        (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0),
        (0.0, 0.05, 0.1, 0.2, 0.3, 0.4),
    ),
    "driving": Task(
        "driving",
        "highway",
        _road_references,
        (
            _PUBLISHED,
            *_PAPER,
            *_drawn(priced("best", "best", "best", _ROAD_WAS), FIRST, None, FOURTH),
            *priced("time to collision", "time-to-collision", "best", "kernels"),
        ),
        (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0),
        (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5),
    ),
}


@dataclass(frozen=True, eq=False)
class Dial:
    """A line, with what is known of it.

    Args:
        line: what it is.
        label: with the version, if it is not of today.
        version: 0.1.0, or "" if it is of today.
        curve: means over seeds, with intervals over seeds.
        evaluations: of each seed; none of published means.
        seconds: of training, of each seed; empty if they are not known.
        n_seeds: None if it is not known.
        n_learned: episodes that each seed learned from; None if it is not known.
        n_more: episodes that each seed played beside them, for what it mixes; the mean over seeds.
    """

    line: Line
    label: str
    version: str
    curve: Curve
    evaluations: Sequence[Evaluation]
    seconds: Sequence[float]
    n_seeds: int | None
    n_learned: int | None = None
    n_more: int | None = None

    @property
    def is_published(self) -> bool:
        """Whether it is of the paper."""
        return self.line.preset == PUBLISHED

    def report(self, best: Frontier) -> DialReport:
        """Returns how well it does, against the best that can be had."""
        if self.is_published:
            return published_report(self.curve, best)
        return dial_report(self.evaluations, best)

    def scores(self, best: Frontier) -> list[float]:
        """Returns the mean score of each seed."""
        return [measure_dial(one, best).mean_score for one in self.evaluations]


def dials_of(task: Task, found: Found) -> list[Dial]:
    """Returns all dials of a task that there are, of today or of 0.1.0."""
    dials = (dial_of(task, line, found) for line in task.lines)
    return [dial for dial in dials if dial is not None]


def dial_of(task: Task, line: Line, found: Found) -> Dial | None:
    """Returns the dial of a line, of today, or as 0.1.0 had it; None if there is none."""
    if line.preset == PUBLISHED:
        curve = published_curve(task.figure, line.part)
        return Dial(line, line.label, "", curve, [], [], N_SEEDS[task.figure])
    old = old_dial(line, found) if line.before == line.preset else None
    return today_dial(line, found) or old


def today_dial(line: Line, found: Found) -> Dial | None:
    """Returns the dial of a line that today's records have, if any."""
    return _measured(line, found.today.get(line.preset), "")


def old_dial(line: Line, found: Found) -> Dial | None:
    """Returns what a line is compared with: the dial of 0.1.0, if there is one."""
    return _measured(line, found.old.get(line.before), OLD)


def _measured(line: Line, results: Results | None, version: str) -> Dial | None:
    by_seed = results.each(line.piece, evaluation_of, line.part) if results else {}
    if results is None or not by_seed:
        return None
    evaluations, n = list(by_seed.values()), len(by_seed)
    seconds = [
        part.machine["training_seconds"]
        for part in results.parts
        if part.part == line.part and part.seed in by_seed
    ]
    label = labelled(line.label, version, line.was)
    return Dial(
        line,
        label,
        version,
        budget_curve(f"{label}, {n} {'seed' if n == 1 else 'seeds'}", evaluations),
        evaluations,
        [s for s in seconds if s],
        n,
        _n_learned(line, results.settings),
        _n_more(line, results),
    )


def _n_learned(line: Line, settings: Data) -> int | None:
    """Episodes of exploration, by the settings of the part."""
    how: Any = {
        "": settings.get("budgeted") or settings.get("sensitive"),
        "risk-neutral": settings.get("neutral"),
        "ftq": (settings.get("priced") or {}).get("exploring"),
    }[line.part]
    exploration = (how or {}).get("exploration") or {}
    rounds, episodes = exploration.get("rounds"), exploration.get("episodes")
    return rounds * episodes if rounds and episodes else None


def _n_more(line: Line, results: Results) -> int:
    """Episodes in which prices were measured; older records have those of each price."""
    if not line.is_measured_first:
        return 0

    def more(piece: Data) -> int:
        return int(piece.get("n_more", len(piece["prices"]) * int(piece["n_episodes"])))

    each = results.each("prices", more, line.part).values()
    return round(sum(each) / len(each)) if each else 0
