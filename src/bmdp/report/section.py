"""What a report is made of: sections with facts, pictures, tables, and dials to turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Picture:
    """A figure.

    Args:
        name: of its files, without suffix.
        title: above it.
        caption: below it: what is drawn, what bands and boxes mean.
        alt: what one would see, for those who do not.
        svg: the picture itself.
    """

    name: str
    title: str
    caption: str
    alt: str
    svg: str


@dataclass(frozen=True)
class TableData:
    """A table.

    Args:
        name: of its file, without suffix.
        title: above it.
        columns: their names.
        rows: cells as text, a row each.
        note: below it.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Section:
    """What a report says of one experiment.

    Args:
        anchor: its address in the page.
        title: of the section.
        question: that the experiment answers.
        answer: what was found, in a sentence or two with figures; empty if there is none.
        facts: setting, seeds, what bands mean, command, versions, date, machine, by name.
        pictures: in their order.
        tables: in their order.
        dials: what a policy does at each budget (`executions.json`, with "truth", the true
            frontier, if there is one, and "title"); each becomes a slider.
        films: exploration round by round (`exploration.json`, with "title").
    """

    anchor: str
    title: str
    question: str
    answer: str
    facts: Mapping[str, str]
    pictures: Sequence[Picture] = ()
    tables: Sequence[TableData] = ()
    dials: Sequence[Mapping[str, Any]] = ()
    films: Sequence[Mapping[str, Any]] = ()
