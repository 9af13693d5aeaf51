"""`bmdp report`: what experiments have found, as one page with figures and tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write one page with figures, tables and dials to turn; experiments may be running still."""
    from bmdp.report.build import build_report

    found = build_report(folder, out, force=force)
    for note in found.notes:
        typer.echo(f"note: {note}", err=True)
    if as_json:
        fields = {
            "page": str(found.page),
            "figures": found.figures,
            "tables": found.tables,
            "notes": list(found.notes),
        }
        typer.echo(json.dumps(fields, indent=2))
        return
    typer.echo(f"page: {found.page}")
    typer.echo(f"{found.figures} figures and {found.tables} tables beside it")
