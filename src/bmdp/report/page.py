"""One self-contained page of a report: it opens from disk and asks for nothing else.

Figures and tables stand in the page as they are. Dials and films are data beside them, which the
scripts of `assets/` draw; they are there for those who turn JavaScript on. A policy of content
(CSP) lets those scripts run and nothing else, and forbids the network.

What comes from data is put in as text, never as HTML. Only pictures are put in as they are.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from bmdp.errors import DataError
from bmdp.report.page_checks import require_sections
from bmdp.report.section import Picture, Section, TableData

STYLES = ("page.css", "dial.css", "stages.css")
SCRIPTS = (  # in the order of their use: they share one scope
    "draw.js",
    "player.js",
    "charts.js",
    "corridors.js",
    "dialogue.js",
    "road.js",
    "dial.js",
    "film.js",
    "start.js",
)
MOST_FACTS, MOST_LETTERS = 6, 400  # of facts that are shown without being asked for

_NUMBER = re.compile(r"[+\N{MINUS SIGN}-]?\.?\d.*|[\N{EN DASH}-]?", re.DOTALL)


def page(title: str, sections: Sequence[Section], *, made: str) -> str:
    """Returns a report as one HTML text.

    The same sections give the same text.

    Args:
        title: of the page.
        sections: in their order, at least one.
        made: how and when the page was made, for its last line.

    Raises:
        DataError: if there is no section, an anchor is none or given twice, a row of a table is
            not as long as its columns, or a dial's lists do not fit its budgets.
    """
    require_sections(sections)
    script = _read(SCRIPTS)
    parts = [
        _head(title, script),
        _header(title),
        _contents(sections),
        "<main>",
        *(_section(section) for section in sections),
        "</main>",
        f"<footer><p>{escape(made)}</p></footer>",
        f"<script>{script}</script>",
        "</body>\n</html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _read(names: Sequence[str]) -> str:
    """The text of assets, one after the other."""
    folder = resources.files("bmdp.report") / "assets"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def _head(title: str, script: str) -> str:
    """All up to the body: what the page may do, and how it looks."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{_read(STYLES)}</style>
</head>
<body>
<a class="skip" href="#contents">Skip to the contents</a>"""


def _header(title: str) -> str:
    """Title, the switch between light and dark, and what those without JavaScript miss."""
    return f"""<header class="top">
<h1>{escape(title)}</h1>
<button type="button" id="theme" class="button quiet" hidden></button>
</header>
<noscript><p class="note">Figures and tables are all here. The dials, which show what a policy
does at each budget, and the films need JavaScript: please turn it on.</p></noscript>"""


def _contents(sections: Sequence[Section]) -> str:
    """Table of contents."""
    items = "\n".join(
        f'<li><a href="#{section.anchor}">{escape(section.title)}</a>'
        f"<span>{_counts(section)}</span></li>"
        for section in sections
    )
    return f'<nav id="contents" aria-label="Contents"><ol>\n{items}\n</ol></nav>'


def _counts(section: Section) -> str:
    """What a section has, in words.

    >>> _counts(Section("a", "A", "", "", {}, dials=[{}], films=[{}, {}]))
    '1 dial, 2 films'
    """
    counts = [
        ("dial", len(section.dials)),
        ("film", len(section.films)),
        ("figure", len(section.pictures)),
        ("table", len(section.tables)),
    ]
    return ", ".join(f"{n} {word}{'s' if n > 1 else ''}" for word, n in counts if n)


def _section(section: Section) -> str:
    """One experiment."""
    name = section.anchor
    parts = [
        f'<section id="{name}" aria-labelledby="{name}-title">',
        f'<h2 id="{name}-title">{escape(section.title)}</h2>',
        f'<p class="question">{escape(section.question)}</p>' if section.question else "",
        f'<p class="answer">{escape(section.answer)}</p>' if section.answer else "",
        _facts(section.facts),
        *(_played("dial", f"{name}-dial-{i}", data) for i, data in enumerate(section.dials)),
        *(_played("film", f"{name}-film-{i}", data) for i, data in enumerate(section.films)),
        _all_pictures(section),
        *(_table(table) for table in section.tables),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _played(kind: str, name: str, data: Mapping[str, Any]) -> str:
    """A dial or a film: its data, and the place where a script draws it."""
    try:
        text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be what JSON can say: {error}.") from error
    text = text.replace("<", "\\u003c")  # no text of the data can end the element
    return (
        f'<script type="application/json" id="{name}">{text}</script>\n'
        f'<article class="card {kind}" data-{kind}="{name}" hidden></article>'
    )


def _all_pictures(section: Section) -> str:
    """Figures side by side where there is room."""
    if not section.pictures:
        return ""
    figures = (
        _picture(picture, f"{section.anchor}-{i}") for i, picture in enumerate(section.pictures)
    )
    return '<div class="pictures">\n' + "\n".join(figures) + "\n</div>"


def _picture(picture: Picture, name: str) -> str:
    """A figure with its title, caption and text alternative."""
    return f"""<figure class="card picture">
<h3>{escape(picture.title)}</h3>
<div class="paper">{_inline(picture, name)}</div>
<figcaption>{escape(picture.caption)}</figcaption>
</figure>"""


def _inline(picture: Picture, name: str) -> str:
    """The SVG element of a picture, with names and styles that stay inside it."""
    begin = re.search(r"<svg\b", picture.svg)
    if not begin:
        raise DataError(f"picture {picture.name!r} must be an SVG document; there is no <svg>.")
    svg = picture.svg[begin.start() :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\sid=")', rf"\g<1>{name}-", svg)
    svg = re.sub(r'((?:href="|url\()#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"(<style[^>]*>)(.*?)(</style>)", rf"\1#{name}{{\2}}\3", svg, flags=re.DOTALL)
    label = f'<svg id="{name}" role="img" aria-label="{escape(picture.alt)}"'
    root, rest = re.split(r"(?<=>)", svg, maxsplit=1)
    root = re.sub(r'\s(id|role|aria-label)="[^"]*"', "", root)
    return root.replace("<svg", label, 1) + rest


def _table(table: TableData) -> str:
    """A table, which scrolls in a box of its own where it is too wide."""
    title = escape(table.title)
    columns = zip(*table.rows, strict=True) if table.rows else [()] * len(table.columns)
    marks = [' class="number"' if _are_numbers(cells) else "" for cells in columns]
    head = "".join(
        f'<th scope="col"{mark}>{escape(name)}</th>'
        for mark, name in zip(marks, table.columns, strict=True)
    )
    rows = "\n".join(f"<tr>{_cells(marks, row)}</tr>" for row in table.rows)
    note = f'\n<p class="caption">{escape(table.note)}</p>' if table.note else ""
    return f"""<div class="card table">
<h3>{title}</h3>
<div class="scroll" role="region" aria-label="{title}" tabindex="0"><table>
<thead><tr>{head}</tr></thead>
<tbody>
{rows}
</tbody>
</table></div>{note}
</div>"""


def _are_numbers(cells: Sequence[str]) -> bool:
    """Whether a column has numbers, which stand on the right.

    >>> _are_numbers(["0.25", "-3 (-4 to -2)", ""]), _are_numbers(["0.25", "BFTQ"])
    (True, False)
    """
    return all(_NUMBER.fullmatch(cell) for cell in cells)


def _cells(marks: Sequence[str], row: Sequence[str]) -> str:
    """A row of a table."""
    return "".join(f"<td{mark}>{escape(text)}</td>" for mark, text in zip(marks, row, strict=True))


def _facts(facts: Mapping[str, str]) -> str:
    """How it was made, folded where it is long."""
    if not facts:
        return ""
    rows = "\n".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in facts.items()
    )
    letters = sum(len(name) + len(text) for name, text in facts.items())
    opened = "" if len(facts) > MOST_FACTS or letters > MOST_LETTERS else " open"
    return f"""<details class="facts"{opened}>
<summary>Setting and provenance</summary>
<dl>
{rows}
</dl>
</details>"""
