"""A report, written whole or not at all: one page, figures, tables and animations.

    report/
      index.html      one page that needs nothing else
      figures/        every figure as SVG and PNG, animations as GIF
      tables/         every table as CSV, with all digits

All is made from what experiments wrote down: deleting a report and making it again loses nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bmdp import __version__
from bmdp.errors import StoreError
from bmdp.experiments.catalog import CATALOG
from bmdp.report.drawing import png_of
from bmdp.report.page import page
from bmdp.report.reading import REPORT, experiment_folders
from bmdp.report.section import Section
from bmdp.report.sections import Told, anchors_of, tell
from bmdp.storage import replace_folder

MOST_BYTES = 6_000_000
"""Of a page."""

_PAGE, _FIGURES, _TABLES = "index.html", "figures", "tables"
_SUFFIXES = {_FIGURES: {".svg", ".png", ".gif"}, _TABLES: {".csv"}}
_FEWER = (16, 8, 4, 2, 1)  # episodes of a round or a budget, if a page is too large


@dataclass(frozen=True)
class Report:
    """A report that was written.

    Args:
        page: its page.
        figures: number of figures and animations.
        tables: number of tables.
        sections: what it says.
        notes: what is missing, a sentence each.
    """

    page: Path
    figures: int
    tables: int
    sections: tuple[Section, ...]
    notes: tuple[str, ...]


def write_report(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    made: str | None = None,
) -> Report:
    """Writes the report of an experiment, or one for all experiments of a folder.

    An earlier report of the folder is replaced.

    Args:
        folder: of an experiment, or one that holds experiments. They may be running still.
        out: where the report is put; `report` in the folder, if not given.
        force: whether an earlier report in `out` may be replaced.
        made: the last line of the page; how and when it was made, if not given.

    Returns:
        Where its page is, and what it says.

    Raises:
        StoreError: if there is no experiment, a `spec.json` is damaged, or `out` holds something
            else than a report.
    """
    source = Path(folder)
    folders = experiment_folders(source)
    target = source / REPORT if out is None else Path(out)
    _require_place(target, force=force or out is None)
    places = zip(folders, anchors_of(folders), strict=True)
    several = sorted((tell(path, anchor) for path, anchor in places), key=_order)
    text, dropped = _page_of(source, several, made or _made(source))
    notes = [_named(told, note, several) for told in several for note in told.results.notes]

    def write(place: Path) -> None:
        (place / _PAGE).write_text(text, encoding="utf-8")
        for told in several:
            _write_files(told, place)

    replace_folder(target, write)
    return Report(
        target / _PAGE,
        sum(len(told.chapter.drawings) + len(told.chapter.animations) for told in several),
        sum(len(told.chapter.tables) for told in several),
        tuple(told.section for told in several),
        (*notes, *dropped),
    )


def _order(told: Told) -> tuple[int, str]:
    """As in the catalog; those of the same experiment by the names of their folders."""
    names = [*CATALOG, told.results.experiment]
    return names.index(told.results.experiment), told.section.anchor


def _page_of(source: Path, several: Sequence[Told], made: str) -> tuple[str, list[str]]:
    """The page, with fewer episodes to look at if it would be too large."""
    sections = [told.section for told in several]
    title = sections[0].title if len(sections) == 1 else f"Report: {source.resolve().name}"
    text, notes = page(title, sections, made=made), list[str]()
    for most in _FEWER:
        if len(text.encode()) < MOST_BYTES:
            return text, notes
        notes = [f"For its size, the page shows {most} episodes of a round or budget at most."]
        fewer = [_thinned(section, most, notes[0]) for section in sections]
        text = page(title, fewer, made=made)
    if len(text.encode()) >= MOST_BYTES:
        raise StoreError(
            f"the page of {source} would have {len(text.encode()) / 1e6:.1f} MB, more than "
            f"{MOST_BYTES / 1e6:g}: make a report of each experiment."
        )
    return text, notes


def _thinned(section: Section, most: int, note: str) -> Section:
    """A section with fewer episodes in its dials and films."""
    if not section.dials and not section.films:
        return section
    dials = [
        {**dial, "episodes": [episodes[:most] for episodes in dial["episodes"]]}
        for dial in section.dials
    ]
    films = [
        {**film, "rounds": [_fewer(one, most) for one in film["rounds"]]} for film in section.films
    ]
    return replace(section, dials=dials, films=films, facts={**section.facts, "Left out": note})


def _fewer(one: Mapping[str, Any], most: int) -> dict[str, Any]:
    return {**one, "episodes": one["episodes"][:most]}


def _write_files(told: Told, place: Path) -> None:
    """Figures, animations and tables of a section."""
    figures, tables = place / _FIGURES, place / _TABLES
    for path in (figures, tables):
        path.mkdir(exist_ok=True)
    for picture, drawing in zip(told.section.pictures, told.chapter.drawings, strict=True):
        (figures / f"{picture.name}.svg").write_text(picture.svg, encoding="utf-8")
        (figures / f"{picture.name}.png").write_bytes(png_of(drawing.figure))
    for animation in told.chapter.animations:
        (figures / f"{animation.name}.gif").write_bytes(animation.make())
    for table in told.chapter.tables:
        (tables / f"{table.name}.csv").write_text(table.csv(), encoding="utf-8")


def _require_place(target: Path, *, force: bool) -> None:
    """Checks that a report can be put somewhere without loss of anything else."""
    if not target.exists():
        return
    if not _is_report(target):
        raise StoreError(f"{target} exists and is no report: choose another place.")
    if not force and any(target.iterdir()):
        raise StoreError(
            f"{target} exists already. Choose another place, or --force to replace it."
        )


def _is_report(folder: Path) -> bool:
    """Whether a folder has nothing in it but what reports are made of."""
    if not folder.is_dir():
        return False
    for path in folder.iterdir():
        if path.name == _PAGE and path.is_file():
            continue
        suffixes = _SUFFIXES.get(path.name)
        if suffixes is None or not path.is_dir() or path.is_symlink():
            return False
        if any(inner.suffix not in suffixes or not inner.is_file() for inner in path.iterdir()):
            return False
    return True


def _named(told: Told, note: str, several: Sequence[Told]) -> str:
    return note if len(several) == 1 else f"{told.section.anchor}: {note}"


def _made(source: Path) -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"Made from {source.resolve().name} by bmdp {__version__} (`bmdp report`) on {now}."
