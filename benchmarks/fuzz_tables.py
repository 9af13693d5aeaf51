"""Puts the counts of benchmarks/results/fuzz/ on docs/reliability.md, as tables.

    python benchmarks/fuzz_tables.py            rewrites the tables
    python benchmarks/fuzz_tables.py --check    says whether they are up to date

A table stands between `<!-- fuzz: NAME -->` and `<!-- end -->`, NAME that of a campaign, or `all`.
Each file `NAME.json` is what `make fuzz NAME=...` wrote with `--out`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORDS, PAGE = ROOT / "benchmarks/results/fuzz", ROOT / "docs/reliability.md"
PLACE = re.compile(r"<!-- fuzz: (\w+) -->\n(?:(?!<!--).)*<!-- end -->", re.DOTALL)


def counts(records: Path) -> dict[str, dict[str, int]]:
    """Returns how cases ended, by campaign."""
    found: dict[str, dict[str, int]] = {}
    for path in sorted(records.glob("*.json")):
        found |= json.loads(path.read_text())
    return found


def table(name: str, found: dict[str, dict[str, int]]) -> str:
    """Returns the table of a campaign, or of all, in Markdown."""
    head = "campaign | cases" if name == "all" else "case | times"
    rows = {n: sum(c.values()) for n, c in found.items()} if name == "all" else found[name]
    lines = [f"| {head} |", "|---|---:|"]
    mark = "`" if name == "all" else ""
    return "\n".join([*lines, *(f"| {mark}{n}{mark} | {k:,} |" for n, k in sorted(rows.items()))])


def with_tables(text: str, found: dict[str, dict[str, int]]) -> str:
    """Returns a page with its tables as the counts are."""

    def told(place: re.Match[str]) -> str:
        name = place[1]
        return f"<!-- fuzz: {name} -->\n\n{table(name, found)}\n\n<!-- end -->"

    return PLACE.sub(told, text)


def main() -> None:
    """Rewrites the page, or checks it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true")
    text = PAGE.read_text()
    new = with_tables(text, counts(RECORDS))
    if parser.parse_args().check:
        sys.exit(0 if new == text else f"{PAGE} does not agree with {RECORDS}")
    PAGE.write_text(new)


if __name__ == "__main__":
    main()
