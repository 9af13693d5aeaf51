"""`bmdp report`: what experiments have found, as one page with figures and tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bmdp.cli.options import AsJson, print_columns

if TYPE_CHECKING:
    from bmdp.report.section import Section

COLUMNS = {"asked": "asked", "cost": "realised cost", "reward": "reward", "score": "score"}
"""Of a table of budgets, as they are printed."""


def report(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Of an experiment, or one that holds experiments."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the report is put; without: FOLDER/report."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an earlier report in DIR.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write one page with figures, tables and dials to turn; experiments may be running still."""
    from bmdp.report.build import write_report

    found = write_report(folder, out, force=force)
    for note in found.notes:
        typer.echo(f"note: {note}", err=True)
    if as_json:
        fields = {
            "page": str(found.page),
            "figures": found.figures,
            "tables": found.tables,
            "answers": {section.anchor: section.answer for section in found.sections},
            "notes": list(found.notes),
        }
        typer.echo(json.dumps(fields, indent=2))
        return
    for section in found.sections:
        _print_section(section)
    typer.echo(f"page: {found.page}")
    typer.echo(f"{found.figures} figures and {found.tables} tables beside it")


def _print_section(section: Section) -> None:
    """The answer, and what the first policy with a dial does at each budget."""
    typer.echo(f"{section.title}\n{section.answer}")
    budgets = (table for table in section.tables if "asked" in table.columns)
    table = next(budgets, None)
    if table is not None:
        places = {
            table.columns.index(name): told
            for name, told in COLUMNS.items()
            if name in table.columns
        }
        print_columns({told: [row[i] for row in table.rows] for i, told in places.items()})
