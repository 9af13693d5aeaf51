"""Tables of a report: rounded on its page, with all digits in a CSV file.

Score, overshoot and dial error are those of `bmdp.evaluation.dial`, of each seed by itself; the
table has their means over seeds.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bmdp.arrays import FloatArray
from bmdp.evaluation import DialReport, Evaluation, measure_dial, measure_dials
from bmdp.frontier import Frontier
from bmdp.report.section import TableData
from bmdp.report.series import Curve

Cell = float | int | str | None
"""None, like NaN, is nothing: an empty cell of a file, a dash on the page."""

NOTHING = "–"  # noqa: RUF001


@dataclass(frozen=True)
class Column:
    """A column: its name, its cells, and how numbers are written on the page.

    Args:
        name: on the page.
        cells: of each row.
        form: of numbers on the page, such as ".3f"; "" for a column that is in the file alone.
        key: name in the file; that on the page, if not given.
    """

    name: str
    cells: Sequence[Cell]
    form: str = ".3f"
    key: str = ""


@dataclass(frozen=True)
class Table:
    """Columns of the same length; see `TableData` for its words."""

    name: str
    title: str
    columns: Sequence[Column]
    note: str = ""

    @property
    def is_shown(self) -> bool:
        """Whether any of it is on the page."""
        return any(column.form for column in self.columns)

    def shown(self) -> TableData:
        """Returns the table as the page has it."""
        columns = [column for column in self.columns if column.form]
        written = [[_written(cell, c.form) for cell in c.cells] for c in columns]
        return TableData(
            self.name,
            self.title,
            [column.name for column in columns],
            [list(row) for row in zip(*written, strict=True)],
            self.note,
        )

    def csv(self) -> str:
        """Returns the table as CSV, with all digits."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(column.key or column.name for column in self.columns)
        rows = zip(*(column.cells for column in self.columns), strict=True)
        writer.writerows(["" if _is_nothing(cell) else cell for cell in row] for row in rows)
        return file.getvalue()


def dial_report(evaluations: Sequence[Evaluation], frontier: Frontier) -> DialReport:
    """Returns how well a dial does, of one seed or of several."""
    if len(evaluations) == 1:
        return measure_dial(evaluations[0], frontier)
    return measure_dials(evaluations, frontier)


def budget_table(
    name: str,
    title: str,
    curve: Curve,
    report: DialReport | None = None,
    published: Curve | None = None,
) -> Table:
    """Returns what was asked, paid and earned at each budget, and what was published for it.

    Args:
        name: of its file.
        title: above it.
        curve: at each budget.
        report: of the same budgets, if the true frontier is known.
        published: whose rows stand beside those of about the same budget.
    """
    columns = [Column("asked", curve.settings.tolist(), "g"), *_means(curve)]
    if report is not None:
        columns += [
            Column("score", report.score.tolist()),
            Column("overshoot", report.overshoot.tolist()),
            Column("dial error", report.dial_error.tolist(), key="dial_error"),
        ]
    columns += _deviations(curve)
    if published is not None:
        columns += _beside(curve.settings, published)
    return Table(name, title, columns, _note(curve, report, published))


def price_table(name: str, title: str, curve: Curve, published: Curve | None = None) -> Table:
    """Returns what policies of each price paid and earned, and what was published for them."""
    columns = [Column("lambda", curve.settings.tolist(), "g"), *_means(curve), *_deviations(curve)]
    if published is not None:
        columns += _beside(curve.settings, published)
    return Table(name, title, columns, _note(curve, None, published))


def summary_table(name: str, reports: Mapping[str, DialReport]) -> Table:
    """Returns mean score, worst overshoot and mean dial error of some dials, a row each."""
    found = reports.values()
    return Table(
        name,
        "The dials in short",
        [
            Column("policy", list(reports), "s"),
            Column("seeds", [r.n_seeds for r in found], "d"),
            Column("mean score", [r.mean_score for r in found], key="mean_score"),
            Column("worst overshoot", [r.worst_overshoot for r in found], key="worst_overshoot"),
            Column("mean dial error", [r.mean_dial_error for r in found], key="mean_dial_error"),
        ],
        "Score: reward over the best for what was allowed, or paid if that is more. Overshoot: "
        "cost above the budget, the worst of any seed and budget. Dial error: distance of the "
        "cost from the budget. Means are over budgets, then over seeds.",
    )


def _means(curve: Curve) -> list[Column]:
    columns = []
    for name, interval, form in (("cost", curve.cost, ".3f"), ("reward", curve.reward, ".4g")):
        half = (interval.high - interval.low) / 2
        columns += [
            Column(name, interval.mean.tolist(), form),
            Column("±", half.tolist(), form.replace("4g", "3g"), f"{name}_half_width"),
            Column("", interval.low.tolist(), "", f"{name}_low"),
            Column("", interval.high.tolist(), "", f"{name}_high"),
        ]
    return columns


def _deviations(curve: Curve) -> list[Column]:
    """Standard deviations between seeds, if there are several."""
    if curve.n_seeds < 2:
        return []
    return [
        Column("cost, sd of seeds", curve.between_seeds("cost").tolist(), key="cost_sd"),
        Column("reward, sd of seeds", curve.between_seeds("reward").tolist(), ".3g", "reward_sd"),
    ]


def _beside(settings: FloatArray, published: Curve) -> list[Column]:
    """Published means at the same settings; nothing where there is none."""
    distance = np.abs(settings[:, None] - published.settings[None, :])
    nearest = distance.argmin(axis=1)
    is_there = distance.min(axis=1) < 1e-3

    def taken(values: FloatArray) -> list[Cell]:
        rows = zip(is_there.tolist(), values[nearest].tolist(), strict=True)
        return [value if there else None for there, value in rows]

    if not is_there.any():
        return []
    return [
        Column("published cost", taken(published.cost.mean), key="published_cost"),
        Column("published reward", taken(published.reward.mean), ".4g", "published_reward"),
    ]


def _note(curve: Curve, report: DialReport | None, published: Curve | None) -> str:
    over = f"{curve.n_seeds} seeds" if curve.over == "seeds" else "episodes of one seed"
    notes = [f"±: half of a 95 % interval over {over}."]
    if report is not None:
        notes.append("Score, overshoot and dial error: against the true frontier.")
    if published is not None:
        notes.append("Published: Carrara et al. 2019, read from the figures.")
    return " ".join(notes)


def _is_nothing(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, float) and not math.isfinite(cell))


def _written(cell: Cell, form: str) -> str:
    if _is_nothing(cell):
        return NOTHING
    if isinstance(cell, str):
        return cell
    return format(cell, form)
