"""All that a report is made of: sections with facts, pictures, tables, and dials to turn."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gymnasium.envs.registration import EnvSpec
from matplotlib.figure import Figure

from bmdp.errors import DataError
from bmdp.policies.policy import BudgetedPolicy
from bmdp.report.drawing import svg_of

Cell = float | int | str | None
"""None, like NaN, is nothing: an empty cell of a file, a dash on the page."""

Data = Mapping[str, Any]
"""Values that JSON can say, by name."""

Scenes = Callable[[BudgetedPolicy, EnvSpec, Sequence[float], int, int], Data | None]
"""From policy, environment, budgets, episodes a budget and seed to `{"layout": ..., "episodes":
[[...], ...]}`, a list for each budget; None if it cannot."""

NOTHING = "–"  # noqa: RUF001


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure: on the page as SVG, in the folder as SVG and PNG."""

    name: str  # of its files, without suffix
    title: str
    caption: str  # what is drawn, what bands and boxes mean
    alt: str  # what one would see, for those who do not
    figure: Figure

    @cached_property
    def svg(self) -> str:
        """The figure as SVG, drawn once."""
        return svg_of(self.figure, self.name)


@dataclass(frozen=True, eq=False)
class Column:
    """A column: its name, its cells, and how numbers are written on the page."""

    name: str  # on the page
    cells: Sequence[Cell]
    form: str = ".3f"  # of numbers on the page; "" for a column that is in the file alone
    key: str = ""  # name in the file; that on the page, if not given


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of the same length: rounded on the page, with all digits in a CSV file.

    Args:
        name: of its file, without suffix.
        title: above it.
        columns: in their order.
        note: below it.

    Raises:
        DataError: if a column is longer or shorter than the first.

    >>> table = Table("t", "T", [Column("asked", [0.5]), Column("", [0.12345], "", "low")])
    >>> table.heads, table.rows
    (['asked'], [['0.500']])
    >>> table.csv().split()
    ['asked,low', '0.5,0.12345']
    """

    name: str
    title: str
    columns: Sequence[Column]
    note: str = ""

    def __post_init__(self) -> None:
        for column in self.columns:
            if len(column.cells) != len(self.columns[0].cells):
                raise DataError(
                    f"column {column.key or column.name!r} of table {self.name!r} must have "
                    f"{len(self.columns[0].cells)} cells, as the first; got {len(column.cells)}."
                )

    @property
    def heads(self) -> list[str]:
        """Names of the columns that are on the page; none if the table is a file alone."""
        return [column.name for column in self.columns if column.form]

    @property
    def rows(self) -> list[list[str]]:
        """Rows as the page has them."""
        shown = [column for column in self.columns if column.form]
        written = [[_written(cell, column.form) for cell in column.cells] for column in shown]
        return [list(row) for row in zip(*written, strict=True)]

    def csv(self) -> str:
        """Returns the table as CSV, with all digits."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(column.key or column.name for column in self.columns)
        rows = zip(*(column.cells for column in self.columns), strict=True)
        writer.writerows(["" if _is_nothing(cell) else cell for cell in row] for row in rows)
        return file.getvalue()


@dataclass(frozen=True, eq=False)
class Animation:
    """A GIF file that is not made yet."""

    name: str  # of its file, without suffix
    title: str
    make: Callable[[], bytes]


@dataclass(frozen=True, eq=False)
class Section:
    """The part of a report on one run, policy or experiment."""

    anchor: str  # its address in the page
    title: str
    question: str = ""
    answer: str = ""  # in a sentence or two with figures
    facts: Mapping[str, str] = field(default_factory=dict)  # setting, seeds, command, versions ...
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    dials: Sequence[Data] = ()  # each becomes a slider; `page_checks` says what it is made of
    films: Sequence[Data] = ()  # of exploration, round by round
    animations: Sequence[Animation] = ()  # files beside the page
    notes: Sequence[str] = ()  # what is missing, and what to beware of, a sentence each


@dataclass(frozen=True, eq=False)
class Plugin:
    """Pictures of one task, for pages on which a dial or film names its environment.

    Scripts share one scope. They call `addStage(env, title, make)`, where `make(data)` returns
    `{node, show(i)}`, or `addPart(kind, mount)`, where `mount(host, data)` fills `[data-KIND]`.
    """

    env: str  # its name in dials and films
    scripts: Sequence[str] = ()  # texts of JavaScript
    styles: Sequence[str] = ()  # texts of CSS
    scenes: Scenes | None = None  # plays what the scripts draw


def _is_nothing(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, float) and not math.isfinite(cell))


def _written(cell: Cell, form: str) -> str:
    if _is_nothing(cell):
        return NOTHING
    if isinstance(cell, str):
        return cell
    return format(cell, form)
