"""What pages name is there: functions, tests, pages of the site, and what links lead to."""

import importlib
import re
from pathlib import Path

import pytest
import yaml

from scripts import script

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
OUTSIDE = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
LINK = re.compile(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"")


def table_rows(page):
    """Cells of all tables of a page, without their heads."""
    lines = (ROOT / "docs" / page).read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    heads = {lines[i - 1] for i, line in enumerate(lines) if line.startswith("|---")}
    return [re.split(r"\s+\|\s+", row.strip("| ")) for row in rows if row not in heads]


def found(name):
    """Whether a name is that of something; fields of dataclasses count.

    Either `bmdp.x.y`, which Python must understand after `import bmdp`, or `x.y of bmdp.z`, which
    must be in that module.
    """
    dotted, _, module = name.partition(" of ")
    thing = importlib.import_module(module or "bmdp")
    for part in dotted.removeprefix("bmdp.").split("."):
        if part not in getattr(thing, "__annotations__", ()) and not hasattr(thing, part):
            return False
        thing = getattr(thing, part, None)
    return True


def names_in(page):
    """Names and paths of tests that the tables of a page have in code."""
    cells = " | ".join(cell for row in table_rows(page) for cell in row)
    inside = re.findall(r"`([\w.]+)` of `(bmdp[\w.]*)`", cells)
    alone = re.findall(r"(?<! of )`(bmdp(?:\.\w+)+|(?:src|tests)/[\w/.]+)`", cells)
    return sorted({*alone, *(f"{name} of {module}" for name, module in inside)})


@pytest.mark.parametrize(
    ("page", "name"),
    [(p, n) for p in ("paper/notation.md", "paper/algorithms.md") for n in names_in(p)],
)
def test_what_the_tables_name_is_there(page, name):
    assert (ROOT / name).is_file() if "/" in name else found(name), f"{name} of {page}"


def test_every_row_says_where():
    for page, needed in (
        ("paper/notation.md", ("bmdp.",)),
        ("paper/algorithms.md", ("bmdp.", "tests/")),
    ):
        rows = table_rows(page)
        assert len(rows) > 20
        for row in rows:
            ends = row[-len(needed) :]
            for end, begin in zip(ends, needed, strict=True):
                assert re.match(rf"(`[\w.]+` of )?`{begin}", end), row


def test_the_tree_of_the_design_has_every_package_once():
    text = (ROOT / "docs" / "design.md").read_text()
    tree = re.search(r"^src/bmdp/[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1]
    listed = re.findall(r"^  (\w+)/ ", tree, re.MULTILINE)
    there = {path.parent.name for path in (ROOT / "src" / "bmdp").glob("*/__init__.py")}
    assert sorted(listed) == sorted(there)
    for package, told in re.findall(r"^  (\w+)/ .* ([\d,]+)$", tree, re.MULTILINE):
        paths = (ROOT / "src" / "bmdp" / package).rglob("*.py")
        lines = sum(len(path.read_text().splitlines()) for path in paths)
        assert abs(int(told.replace(",", "")) / lines - 1) < 0.25, f"{package} has {lines} lines"


def test_the_site_has_every_page_once():
    def pages(part):
        if isinstance(part, str):
            return [part]
        values = part.values() if isinstance(part, dict) else part
        return [page for value in values for page in pages(value)]

    listed = pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(listed) == sorted(
        [page.relative_to(ROOT / "docs").as_posix() for page in PAGES] + list(OUTSIDE)
    )


def test_every_picture_is_shown_on_a_page():
    pictures = {path for kind in ("png", "svg") for path in (ROOT / "docs").rglob(f"*.{kind}")}
    shown = {
        (page.parent / (a or b).partition("#")[0]).resolve()
        for page in [ROOT / "README.md", *PAGES]
        for a, b in LINK.findall(page.read_text())
    }
    assert pictures - shown == set()


def test_the_page_of_the_command_line_is_made_of_the_command():
    commands = script("docs/commands.py")
    assert commands.PAGE.read_text() == commands.page(), "run python docs/commands.py"


def test_the_reference_has_names_as_they_are_imported_each_once():
    entry = re.compile(r"^::: (\S+)\n    options:\n      heading: (\S+)$", re.MULTILINE)
    texts = [page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md")]
    entries = [pair for text in texts for pair in entry.findall(text)]
    assert len(entries) == len(set(entries)) == sum(text.count("::: ") for text in texts) > 60
    for source, public in entries:
        package, _, name = public.rpartition(".")
        module, _, own = source.rpartition(".")
        assert name in importlib.import_module(package).__all__, public
        thing = getattr(importlib.import_module(package), name)
        assert thing is getattr(importlib.import_module(module), own), public


@pytest.mark.parametrize(
    "page",
    [*(ROOT / name for name in ("README.md", *OUTSIDE.values(), "tests/pages/tasks.md")), *PAGES],
    ids=lambda page: page.name,
)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for link in (a or b for a, b in LINK.findall(text)):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor:
            titles = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles}
            assert anchor in slugs, link
