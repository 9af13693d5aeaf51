"""From what an experiment has found to its section of a report."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bmdp.experiments.catalog import CATALOG, experiment
from bmdp.report.chapters.any import any_chapter
from bmdp.report.chapters.calibration import calibration_chapter
from bmdp.report.chapters.chapter import Chapter, facts_of
from bmdp.report.chapters.comparison import comparison_chapter
from bmdp.report.chapters.exploration import exploration_chapter
from bmdp.report.chapters.prices import prices_chapter
from bmdp.report.chapters.theory import theory_chapter
from bmdp.report.drawing import svg_of
from bmdp.report.reading import Results, read_results
from bmdp.report.section import Picture, Section

CHAPTERS: Mapping[str, Callable[[Results, str], Chapter]] = {
    "corridors-exploration": exploration_chapter,
    "slot-filling": prices_chapter,
    "driving": prices_chapter,
    "theory": theory_chapter,
    "calibration": calibration_chapter,
    "comparison": comparison_chapter,
}
"""What makes the chapter of each experiment, given its results and how its files are to begin."""


@dataclass(frozen=True, eq=False)
class Told:
    """An experiment's section, and the chapter that has all that is to be saved."""

    results: Results
    chapter: Chapter
    section: Section


def tell(folder: Path, anchor: str) -> Told:
    """Returns what is to be told of the experiment of a folder.

    Args:
        folder: of the experiment.
        anchor: its address in the page; names of files begin with it.

    Raises:
        StoreError: if the folder is not an experiment's.
    """
    results = _read(folder)
    title, question = _words(results)
    chapter = CHAPTERS.get(results.experiment, any_chapter)(results, anchor)
    unfinished = f"Not complete: {' '.join(results.notes)}" if results.notes else ""
    section = Section(
        anchor=anchor,
        title=title,
        question=question,
        answer=" ".join(text for text in (chapter.answer, unfinished) if text),
        facts=facts_of(results, chapter),
        pictures=[
            Picture(d.name, d.title, d.caption, d.alt, svg_of(d.figure, d.name))
            for d in chapter.drawings
        ],
        tables=[table.shown() for table in chapter.tables if table.is_shown],
        dials=list(chapter.dials),
        films=list(chapter.films),
    )
    return Told(results, chapter, section)


def anchors_of(folders: list[Path]) -> list[str]:
    """Returns an address for each folder, by its name: letters, digits and dashes, each once.

    >>> anchors_of([Path("a/slot filling"), Path("b/slot-filling"), Path("9")])
    ['slot-filling', 'slot-filling-2', 'x-9']
    """
    found: list[str] = []
    for folder in folders:
        name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "x"
        name = name if name[0].isalpha() else f"x-{name}"
        number, anchor = 1, name
        while anchor in found:
            number += 1
            anchor = f"{name}-{number}"
        found.append(anchor)
    return found


def _read(folder: Path) -> Results:
    """Results, with notes of what parts of the catalog's experiment are missing."""
    name = read_results(folder).experiment
    if name not in CATALOG:
        return read_results(folder)
    known = experiment(name)
    return read_results(folder, tuple(known.parts), tuple(known.common))


def _words(results: Results) -> tuple[str, str]:
    """Title and question. Experiments of one's own are not looked up: that would run their code."""
    if results.experiment not in CATALOG:
        return results.experiment, ""
    known = experiment(results.experiment)
    size = f" ({results.preset})" if results.preset else ""
    return known.title + size, known.question
