"""A report, written whole or not at all: one page, figures, tables and animations.

    report/
      index.html      one page that needs nothing else
      figures/        every figure as SVG and PNG, animations as GIF
      tables/         every table as CSV, with all digits

All is made from what runs and experiments wrote down: deleting a report loses nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from bmdp import __version__
from bmdp.errors import StoreError
from bmdp.report.drawing import png_of
from bmdp.report.page import page
from bmdp.report.section import Plugin, Section
from bmdp.storage import replace_folder

REPORT = "report"
"""The folder of a report in that of what it is about."""

MOST_BYTES = 6_000_000  # of a page

_PAGE, _FIGURES, _TABLES = "index.html", "figures", "tables"
_SUFFIXES = {_FIGURES: {".svg", ".png", ".gif"}, _TABLES: {".csv"}}
_FEWER = (16, 8, 4, 2, 1)  # episodes of a round or a budget, if a page is too large


@dataclass(frozen=True)
class Report:
    """A report that was written."""

    page: Path
    figures: int  # and animations
    tables: int
    notes: tuple[str, ...]  # what is missing, a sentence each


def write_report(
    sections: Sequence[Section],
    out: str | os.PathLike[str],
    *,
    title: str,
    plugins: Sequence[Plugin] = (),
    made: str | None = None,
    force: bool = False,
) -> Report:
    """Writes a report.

    Args:
        sections: what it says, in order.
        out: where it is put.
        title: of the page.
        plugins: that draw tasks.
        made: the last line of the page; from what, by what and when it was made, if not given.
        force: whether an earlier report in `out` may be replaced.

    Raises:
        StoreError: if `out` holds something else than a report, or the page would be too large.
        DataError: if a section cannot be put on a page.
    """
    target = Path(out)
    require_place(target, force=force)
    shown = [_with_animations(section) for section in sections]
    text, dropped = _page_of(title, shown, plugins, made or _made(sections))
    is_one = len(sections) == 1
    notes = [
        note if is_one else f"{section.anchor}: {note}"
        for section in sections
        for note in section.notes
    ]

    def write(place: Path) -> None:
        (place / _PAGE).write_text(text, encoding="utf-8")
        for section in sections:
            _write_files(section, place)

    replace_folder(target, write)
    return Report(
        target / _PAGE,
        sum(len(section.pictures) + len(section.animations) for section in sections),
        sum(len(section.tables) for section in sections),
        (*notes, *dropped),
    )


def anchors_of(names: Sequence[str]) -> list[str]:
    """Returns an address for each name: letters, digits and dashes, each once.

    >>> anchors_of(["slot filling", "Slot-filling", "9", "</script>"])
    ['slot-filling', 'slot-filling-2', 'x-9', 'script']
    """
    found: list[str] = []
    for text in names:
        name = re.sub(r"[^a-z0-9]+", "-", text.lower())[:60].strip("-") or "x"
        name = name if name[0].isalpha() else f"x-{name}"
        number, anchor = 1, name
        while anchor in found:
            number += 1
            anchor = f"{name}-{number}"
        found.append(anchor)
    return found


def _with_animations(section: Section) -> Section:
    """A section whose facts say which animations are beside the page."""
    files = ", ".join(f"figures/{a.name}.gif ({a.title})" for a in section.animations)
    return replace(section, facts={**section.facts, "Animations": files}) if files else section


def _page_of(
    title: str, sections: Sequence[Section], plugins: Sequence[Plugin], made: str
) -> tuple[str, list[str]]:
    """The page, with fewer episodes to look at if it would be too large."""
    shown, notes = sections, list[str]()
    for most in (*_FEWER, 0):
        text = page(title, shown, made=made, plugins=plugins)
        if len(text.encode()) < MOST_BYTES:
            return text, notes
        notes = [f"For its size, the page shows {most} episodes of a round or budget at most."]
        shown = [_thinned(section, most, notes[0]) for section in sections]
    raise StoreError(
        f"the page {title!r} would have {len(text.encode()) / 1e6:.1f} MB, more than "
        f"{MOST_BYTES / 1e6:g}: make a report of fewer folders."
    )


def _thinned(section: Section, most: int, note: str) -> Section:
    """A section with fewer episodes in its dials and films."""
    if not section.dials and not section.films:
        return section
    dials = [
        {**dial, "episodes": [episodes[:most] for episodes in dial["episodes"]]}
        if "episodes" in dial
        else dial
        for dial in section.dials
    ]
    films = [
        {**film, "rounds": [{**one, "episodes": one["episodes"][:most]} for one in film["rounds"]]}
        for film in section.films
    ]
    return replace(section, dials=dials, films=films, notes=(*section.notes, note))


def _write_files(section: Section, place: Path) -> None:
    """Figures, animations and tables of a section."""
    figures, tables = place / _FIGURES, place / _TABLES
    for path in (figures, tables):
        path.mkdir(exist_ok=True)
    for picture in section.pictures:
        (figures / f"{picture.name}.svg").write_text(picture.svg, encoding="utf-8")
        (figures / f"{picture.name}.png").write_bytes(png_of(picture.figure))
    for animation in section.animations:
        (figures / f"{animation.name}.gif").write_bytes(animation.make())
    for table in section.tables:
        (tables / f"{table.name}.csv").write_text(table.csv(), encoding="utf-8")


def require_place(target: Path, *, force: bool) -> None:
    """Checks that a report can be put somewhere without loss of anything else.

    Raises:
        StoreError: if something else is there, or an earlier report that may not be replaced.
    """
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

    def is_ours(path: Path) -> bool:
        if path.name not in _SUFFIXES or path.is_symlink() or not path.is_dir():
            return path.name == _PAGE and path.is_file()
        return all(p.suffix in _SUFFIXES[path.name] and p.is_file() for p in path.iterdir())

    return folder.is_dir() and all(is_ours(path) for path in folder.iterdir())


def _made(sections: Sequence[Section]) -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    source = ", ".join(section.anchor for section in sections)
    return f"Made from {source} by bmdp {__version__} (bmdp report) on {now}."
