"""`bmdp export`: a policy as one ONNX file, which decides without Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bmdp.cli.options import AsJson, RunPath, print_json, require_new_file
from bmdp.cli.progress import Progress
from bmdp.deployment.onnx import export_onnx, metadata_of
from bmdp.policies import load_policy


def export(
    run: RunPath,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the ONNX file is written.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a policy as one ONNX file: states, budgets and random numbers in, decisions out."""
    require_new_file(out, force)
    with Progress("exporting"):
        export_onnx(load_policy(run), out, overwrite=force)
    about = metadata_of(out)
    if as_json:
        print_json({"file": str(out), "bytes": out.stat().st_size, **about})
        return
    low, high = about["budget_range"]
    typer.echo(
        f"{out}: {out.stat().st_size:,} bytes, {about['policy']}, budgets {low:g} to {high:g}"
    )
    for kind in ("inputs", "outputs"):
        typer.echo(f"{kind}: " + ", ".join(about[kind]))
