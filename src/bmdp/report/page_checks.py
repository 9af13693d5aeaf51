"""Whether sections can be put on a page: said when it is made, not when someone opens it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from bmdp.errors import DataError
from bmdp.report.section import Section, TableData

_ANCHOR = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_NEEDED = ("env", "budgets", "frontier", "choices", "realised", "episodes")
_REALISED = ("cost", "reward", "cost_low", "cost_high", "reward_low", "reward_high")


def require_sections(sections: Sequence[Section]) -> None:
    """Checks what a page is made of.

    Raises:
        DataError: as `bmdp.report.page.page` says.
    """
    if not sections:
        raise DataError("sections must not be empty: there is nothing to report.")
    anchors = [section.anchor for section in sections]
    for i, section in enumerate(sections):
        if not _ANCHOR.fullmatch(section.anchor):
            raise DataError(
                "anchor must be letters, digits, - and _, a letter first; "
                f"got {section.anchor!r} at [{i}]."
            )
        if anchors.index(section.anchor) < i:
            raise DataError(f"anchor must be given once; got {section.anchor!r} again at [{i}].")
        for table in section.tables:
            _require_rows(table)
        for dial in section.dials:
            _require_dial(dial, section.anchor)
        for film in section.films:
            if not film.get("rounds"):
                raise DataError(f"a film of {section.anchor!r} must have rounds; it has none.")


def _require_rows(table: TableData) -> None:
    """Checks that rows are as long as the columns."""
    for i, row in enumerate(table.rows):
        if len(row) != len(table.columns):
            raise DataError(
                f"rows of table {table.name!r} must have {len(table.columns)} cells, as its "
                f"columns; got {len(row)} at [{i}]."
            )


def _require_dial(dial: Mapping[str, Any], anchor: str) -> None:
    """Checks that a dial has all that is drawn, for each of its budgets."""
    owner = f"a dial of {anchor!r}"
    if missing := [name for name in _NEEDED if name not in dial]:
        raise DataError(f"{owner} must have {', '.join(_NEEDED)}; {', '.join(missing)} missing.")
    budgets, realised = dial["budgets"], dial["realised"]
    if not budgets or any(a >= b for a, b in pairwise(budgets)):
        raise DataError(f"budgets of {owner} must increase, and be at least one; got {budgets}.")
    lists = {name: dial[name] for name in ("choices", "episodes")}
    lists |= {f"realised {name}": realised.get(name, ()) for name in _REALISED}
    for name, values in lists.items():
        if len(values) != len(budgets):
            raise DataError(
                f"{name} of {owner} must have an entry for each of {len(budgets)} budgets; "
                f"got {len(values)}."
            )
