"""Dials of docs/results.md: which each task of the paper has, and what is known of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tables import ROOT

from bmdp.evaluation import DialReport, Evaluation
from bmdp.frontier import Frontier, upper_frontier
from bmdp.paper.published import published_curve, published_report
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
from bmdp.report.series import Curve, budget_curve
from bmdp.report.tables import dial_report

DRIVES = ROOT / "docs/driving/driving.json"


@dataclass(frozen=True)
class Line:
    """A dial on the page.

    Args:
        label: in tables and legends.
        preset: of the experiment, or "published".
        part: of the experiment; of what is published, the series.
        piece: its evaluation.
        style: in figures; None if it is in tables alone.
    """

    label: str
    preset: str
    part: str
    piece: str = "evaluation"
    style: Style | None = None


@dataclass(frozen=True)
class Task:
    """A task of the paper, as the page has it.

    Args:
        experiment: its name in the catalog.
        figure: of the paper.
        lines: dials, in the order of tables.
        budgets: that have a row in the table of budgets.
        costs: that have a row in the table of costs.
    """

    experiment: str
    figure: str
    lines: tuple[Line, ...]
    budgets: tuple[float, ...]
    costs: tuple[float, ...]


PRICED = (
    Line("published", "published", "BFTQ", style=FIRST_PUBLISHED),
    Line("paper", "paper", "", style=THIRD),
    Line("paper, FTQ mixture", "paper", "ftq", style=SECOND),
    Line("best", "best", "", style=FIRST),
    Line("best, FTQ mixture", "best", "ftq"),
    Line("best, carried price", "best", "ftq", "evaluation-carried", FOURTH),
)
"""Dials of experiments with prices."""

TASKS = {
    "corridors": Task(
        "corridors-exploration",
        "corridors",
        (
            Line("published", "published", "BFTQ risk-sensitive", style=FIRST_PUBLISHED),
            Line(
                "published, risk-neutral", "published", "BFTQ risk-neutral", style=SECOND_PUBLISHED
            ),
            Line("paper", "paper", "", style=THIRD),
            Line("paper, risk-neutral", "paper", "risk-neutral", style=SECOND),
            Line("best", "best", "", style=FIRST),
            Line("best, risk-neutral", "best", "risk-neutral"),
        ),
        tuple(i / 9 for i in range(10)),
        (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0),
    ),
    "slot-filling": Task(
        "slot-filling",
        "slot-filling",
        PRICED,
        (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0),
        (0.0, 0.05, 0.1, 0.2, 0.3, 0.4),
    ),
    "driving": Task(
        "driving",
        "highway",
        PRICED,
        (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0),
        (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5),
    ),
}


@dataclass(frozen=True, eq=False)
class Dial:
    """A line, with what is known of it.

    Args:
        line: what it is.
        curve: means over seeds, with intervals over seeds.
        evaluations: of each seed; none of published means.
        seconds: of training, of each seed; empty if they are not known.
    """

    line: Line
    curve: Curve
    evaluations: Sequence[Evaluation]
    seconds: Sequence[float]

    @property
    def is_published(self) -> bool:
        """Whether it is of the paper."""
        return self.line.preset == "published"

    def report(self, best: Frontier) -> DialReport:
        """Returns how well it does, against the best that can be had."""
        if self.is_published:
            return published_report(self.curve, best)
        return dial_report(self.evaluations, best)


def dials_of(task: Task, found: Mapping[str, Results]) -> list[Dial]:
    """Returns all dials of a task that there are."""
    dials = []
    for line in task.lines:
        if line.preset == "published":
            curve = published_curve(task.figure, line.part)
            dials.append(Dial(line, curve, [], []))
        elif line.preset in found:
            results = found[line.preset]
            by_seed = results.each(line.piece, evaluation_of, line.part)
            seconds = [
                part.machine["training_seconds"]
                for part in results.parts
                if part.part == line.part and part.seed in by_seed
            ]
            if by_seed:
                evaluations = list(by_seed.values())
                curve = budget_curve(_named(line, len(by_seed)), evaluations)
                dials.append(Dial(line, curve, evaluations, [s for s in seconds if s]))
    return dials


def _named(line: Line, n_seeds: int) -> str:
    return f"{line.label} ({n_seeds} seeds)"


def reference(found: Mapping[str, Results]) -> Frontier:
    """Returns the true frontier, or, on the road, the curve of drives that know the future."""
    truths = (results.common("truth", truth_of) for results in found.values())
    truth = next((truth for truth in truths if truth is not None), None)
    if truth is not None:
        return truth.frontier
    kept = json.loads(DRIVES.read_text())["reference"]
    return upper_frontier(kept["costs"], kept["rewards"])
