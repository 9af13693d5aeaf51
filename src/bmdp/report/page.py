"""One self-contained page of a report: it opens from disk and asks for nothing else.

Figures and tables stand in the page as they are. Dials and films are data beside them, which the
scripts of `assets/` draw; they are there for those who turn JavaScript on. A policy of content
(CSP) lets those scripts run and nothing else, and forbids the network.

What comes from data is put in as text, never as HTML: the template escapes all but what is marked
as `Markup` here, which is our own scripts and styles, those of plug-ins, pictures, and JSON.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from bmdp.errors import ConfigError, DataError
from bmdp.report.page_checks import require_sections
from bmdp.report.section import Data, Picture, Plugin, Section

STYLES = ("page.css", "dial.css")
SCRIPTS = ("draw.js", "player.js", "charts.js", "dial.js")
"""In the order of their use: they share one scope. Plug-ins come next, and then `start.js`."""

MOST_ROWS = 24  # of a table that is shown without being asked for
MOST_FACTS, MOST_LETTERS = 6, 400  # of facts that are

_NUMBER = re.compile(r"[+\N{MINUS SIGN}-]?\.?\d.*|[\N{EN DASH}-]?", re.DOTALL)


def page(
    title: str, sections: Sequence[Section], *, made: str, plugins: Sequence[Plugin] = ()
) -> str:
    """Returns a report as one HTML text.

    The same sections give the same text.

    Args:
        title: of the page.
        sections: in their order, at least one.
        made: how and when the page was made, for its last line.
        plugins: of tasks; those that no dial or film names are left out.

    Raises:
        DataError: if a section cannot be put on a page (`bmdp.report.page_checks`).
        ConfigError: if a plug-in would end the element that it is put in.
    """
    require_sections(sections)
    named = {part.get("env") for section in sections for part in (*section.dials, *section.films)}
    used = [plugin for plugin in plugins if plugin.env in named]
    scripts = [*map(_asset, SCRIPTS), *map(_plugin_script, used), _asset("start.js")]
    styles = [*map(_asset, STYLES), *(text for plugin in used for text in plugin.styles)]
    text: str = (
        _templates()
        .get_template("page.html")
        .render(
            title=title,
            sections=sections,
            made=made,
            script=_inside("script", scripts),
            style=_inside("style", styles),
            most_rows=MOST_ROWS,
        )
    )
    return text.lstrip() + "\n"


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("bmdp.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "json": _json,
        "digest": _digest,
        "inline": _inline,
        "number_columns": _number_columns,
        "is_short": _is_short,
    }
    return environment


def _asset(name: str) -> str:
    return (resources.files("bmdp.report") / "assets" / name).read_text(encoding="utf-8")


def _plugin_script(plugin: Plugin) -> str:
    """The scripts of a plug-in in a scope of their own; its failure leaves the dials alone."""
    return "\n".join(["try {", *plugin.scripts, "} catch (error) {", "console.error(error);", "}"])


def _inside(element: str, texts: Sequence[str]) -> Markup:
    """The content of an element whose text the browser takes as it is."""
    text = "\n".join(texts)
    if f"</{element}" in text.lower():
        raise ConfigError(f"a plug-in must not have </{element} in it: that would end its element.")
    return Markup(text)


def _digest(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _json(data: Data, name: str) -> Markup:
    try:
        text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be what JSON can say: {error}.") from error
    return Markup(text.replace("<", "\\u003c"))  # no text of the data can end the element


def _inline(picture: Picture, name: str) -> Markup:
    """The SVG element of a picture, with names and styles that stay inside it."""
    svg = picture.svg[picture.svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\sid=")', rf"\g<1>{name}-", svg)
    svg = re.sub(r'((?:href="|url\()#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"(<style[^>]*>)(.*?)(</style>)", rf"\1#{name}{{\2}}\3", svg, flags=re.DOTALL)
    root, rest = re.split(r"(?<=>)", svg, maxsplit=1)
    root = re.sub(r'\s(id|role|aria-label)="[^"]*"', "", root)
    label = Markup('<svg id="{}" role="img" aria-label="{}"').format(name, picture.alt)
    return Markup(root.replace("<svg", label, 1) + rest)


def _number_columns(rows: Sequence[Sequence[str]], n: int) -> list[bool]:
    """Whether each of n columns has numbers, which stand on the right.

    >>> _number_columns([["0.25", "-3 (-4 to -2)"], ["BFTQ", ""]], 2)
    [False, True]
    """
    return [all(_NUMBER.fullmatch(row[i]) for row in rows) for i in range(n)]


def _is_short(facts: Mapping[str, str]) -> bool:
    letters = sum(len(name) + len(text) for name, text in facts.items())
    return len(facts) <= MOST_FACTS and letters <= MOST_LETTERS
