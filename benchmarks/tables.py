"""Puts what benchmarks/results/ holds on docs/paper/performance.md, as tables.

    python benchmarks/tables.py            rewrites the tables
    python benchmarks/tables.py --check    says whether they are up to date

A table stands between `<!-- NAME.json: PART -->` and `<!-- end -->`, that of the machines between
`<!-- records -->` and `<!-- end -->`; the rest of the page is written by hand. NAME begins with
that of a benchmark: together-cuda.json has the tables of together.json. Every table must have a
place.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from record_tables import TABLES, Record

from bmdp.report.section import Cell, Column, Table

ROOT = Path(__file__).parents[1]
PLACE = re.compile(r"<!-- (records|[\w.-]+: \w+) -->\n(?:(?!<!--).)*<!-- end -->", re.DOTALL)


def markdown(table: Table) -> str:
    """Returns a table in Markdown, below its title, if it has one."""
    head, *rows = (f"| {' | '.join(line)} |" for line in (table.heads, *table.rows))
    title = [table.title, ""] if table.title else []
    return "\n".join([*title, head, "|---" * len(table.heads) + "|", *rows])


def machines(records: Mapping[str, Record]) -> Table:
    """Returns what each record says of where it was measured."""

    def told(name: str, *keys: str) -> Column:
        cells = list[Cell]()
        for record in records.values():
            found = record.get(keys[0])
            cells.append(found.get(keys[1]) if found and keys[1:] else found)
        return Column(name, cells, "d")

    return Table(
        "records",
        "What the records say of their machines:",
        [
            Column("record", [f"`{name}`" for name in records]),
            told("processor", "machine", "processor"),
            told("cores", "machine", "cores"),
            told("device", "device"),
            told("Python", "machine", "python"),
            *(
                told(name, "versions", name)
                for name in ("bmdp", "numba", "numpy", "scipy", "torch")
            ),
            told("threads, numba", "threads"),
            told("threads, torch", "torch_threads"),
        ],
    )


def tables_of(records: Mapping[str, Record]) -> dict[str, str]:
    """Returns all tables in Markdown, by what marks their place, given records by file name.

    Raises:
        ValueError: if there is a record for which no table is known.
    """
    found = {"records": markdown(machines(records))}
    for name, record in records.items():
        parts = TABLES.get(re.split(r"[-_.]", name)[0])
        if parts is None:
            raise ValueError(f"TABLES in benchmarks/record_tables.py has none for {name}. Add one.")
        found |= {f"{name}: {part}": markdown(table(record)) for part, table in parts.items()}
    return found


def rewritten(page: str, tables: Mapping[str, str]) -> str:
    """Returns a page with these tables, each in its place.

    Raises:
        ValueError: if the page has not one place for each table, and none for others.
    """
    places = PLACE.findall(page)
    for name in [*tables, *places]:
        n, needed = places.count(name), int(name in tables)
        if n != needed:
            raise ValueError(
                f"The number of places for {name} must be {needed}; got {n}. A place is a line "
                f"'<!-- {name} -->' and a line '<!-- end -->' below it."
            )
    return PLACE.sub(lambda at: f"<!-- {at[1]} -->\n\n{tables[at[1]]}\n\n<!-- end -->", page)


def write_page(page: Path, tables: Mapping[str, str], command: str, *, is_check: bool) -> None:
    """Puts tables on a page; to check, ends with status 1 if the page has others.

    Args:
        page: that has a place for each of them.
        tables: in Markdown, by the names of their places.
        command: that writes the page.
        is_check: whether nothing is written.
    """
    text = page.read_text()
    try:
        wanted = rewritten(text, tables)
    except ValueError as error:
        sys.exit(f"{page.name}: {error}")
    if not is_check:
        page.write_text(wanted)
    elif text != wanted:
        sys.exit(f"{page.name} is not up to date; run {command}.")


def main(arguments: list[str] | None = None) -> None:
    """Rewrites the page, or ends with status 1 if it is not up to date."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks/results")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/paper/performance.md")
    asked = parser.parse_args(arguments)
    records = {path.name: json.loads(path.read_text()) for path in asked.results.glob("*.json")}
    try:
        tables = tables_of(dict(sorted(records.items())))
    except ValueError as error:
        sys.exit(f"{asked.page.name}: {error}")
    write_page(asked.page, tables, "python benchmarks/tables.py", is_check=asked.check)


if __name__ == "__main__":
    main()
