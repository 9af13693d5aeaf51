"""`bmdp run`: runs an experiment, or goes on with it, in a folder from which a report is made."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bmdp.cli.options import INTERRUPTED, AsJson, parse_seeds, print_json
from bmdp.cli.progress import Progress
from bmdp.cli.tensorboard import Board


class Engine(StrEnum):
    """Machines that do the work."""

    local = "local"
    ray = "ray"


def run(  # noqa: PLR0913
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT",
            help="One of corridors-exploration, slot-filling, driving, theory, calibration, "
            "comparison; or module:attribute.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="New, or one to go on with.")],
    preset: Annotated[
        str, typer.Option(metavar="SIZE", help="smoke, quick, paper, best, or one of its own.")
    ] = "quick",
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="0:4", help="Without the last; as many as the preset has, from 100 on."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Tasks at a time; 1, or as many as a Ray cluster has room for."),
    ] = None,
    device: Annotated[
        str, typer.Option(help="cpu, cuda or auto: as the folder has it, or what there is.")
    ] = "auto",
    threads: Annotated[int, typer.Option(min=1, help="Of each process.")] = 1,
    engine: Annotated[Engine, typer.Option(help="This machine, or a Ray cluster.")] = Engine.local,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write FOLDER/tensorboard, too.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Begin anew in FOLDER.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment. It can be killed at any time: the same command goes on with it."""
    from bmdp.paper.runner import asked_spec, run_experiment  # torch takes long to import

    begin = time.monotonic()
    spec = asked_spec(
        experiment,
        preset,
        seeds=None if seeds is None else parse_seeds(seeds),
        device=device,
        threads=threads,
        folder=None if force else out,
    )
    board = Board(out) if tensorboard else None
    tasks = spec.tasks(out)
    done = {name: 0.0 if force else work.how_far()[0] for name, work in tasks.items()}

    def show(task: str, share: float, text: str) -> None:
        done[task] = share
        progress.update(share, 1.0, text=text, name=task)
        progress.update(sum(done.values()), len(done))
        if board is not None:
            board.look(task)

    progress = Progress("running", before=sum(done.values()) / len(done))
    try:
        with redirect_stdout(sys.stderr), progress:
            failures = run_experiment(
                spec, out, workers=workers, engine=engine, force=force, on_progress=show
            )
    except KeyboardInterrupt:
        more = [] if workers is None else ["--workers", str(workers)]
        more += [] if engine == Engine.local else ["--engine", engine.value]
        more += ["--tensorboard"] if tensorboard else []
        typer.echo(f"stopped; go on with: {' '.join([spec.command(out), *more])}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    for failure in failures:
        if failure.trace:
            typer.echo(failure.trace.rstrip(), err=True)
    for failure in failures:
        typer.echo(f"error: {failure.task} failed: {' '.join(failure.message.split())}", err=True)
    if as_json:
        found = {
            "folder": str(out),
            "experiment": spec.experiment,
            "preset": spec.preset,
            "seeds": list(spec.seeds),
            "device": spec.device,
            "finished": [name for name, work in tasks.items() if work.is_finished],
            "failed": [{"task": f.task, "error": f.message} for f in failures],
            "seconds": round(time.monotonic() - begin, 3),
        }
        print_json(found)
    elif not failures:
        typer.echo(f"folder: {out}")
        typer.echo(f"report: {shlex.join(['bmdp', 'report', str(out)])}")
    if failures:
        raise typer.Exit(1)
