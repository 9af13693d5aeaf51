"""`bmdp run`: runs an experiment, or goes on with it, in a folder from which a report is made."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bmdp.cli.options import INTERRUPTED, AsJson, parse_seeds
from bmdp.cli.run_progress import RunProgress
from bmdp.experiments.catalog import CATALOG

if TYPE_CHECKING:
    from bmdp.experiments.running.runner import Event
    from bmdp.experiments.running.spec import ExperimentSpec
    from bmdp.experiments.running.tasks import Failure


class Engine(StrEnum):
    """What does the work."""

    local = "local"
    ray = "ray"


@dataclass(frozen=True)
class Manner:
    """How the work is done, which changes no result."""

    workers: int | None
    engine: Engine
    tensorboard: bool

    def words(self) -> list[str]:
        """On the command line."""
        workers = [] if self.workers is None else ["--workers", str(self.workers)]
        engine = [] if self.engine == Engine.local else ["--engine", self.engine.value]
        return [*workers, *engine, *(["--tensorboard"] if self.tensorboard else [])]


def run(  # noqa: PLR0913
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT", help=f"One of {', '.join(CATALOG)}; or module:attribute."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="New, or one to go on with.")],
    preset: Annotated[
        str, typer.Option(metavar="SIZE", help="smoke, quick, paper or best.")
    ] = "quick",
    seeds: Annotated[
        str | None, typer.Option(metavar="0:4", help="Without the last; as the preset has them.")
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
    from bmdp.experiments.running.boards import require_tensorboard  # torch takes long to import
    from bmdp.experiments.running.runner import require_engine
    from bmdp.experiments.running.spec import asked_spec
    from bmdp.experiments.running.store import discard

    begin = time.monotonic()
    spec = asked_spec(
        experiment,
        preset,
        seeds=None if seeds is None else parse_seeds(seeds),
        device=_device(device, out, force),
        threads=threads,
    )
    require_engine(spec, engine)
    if tensorboard:
        require_tensorboard()
    if force:
        discard(out)
    manner = Manner(workers, engine, tensorboard)
    with _told_how_to_go_on(spec, out, manner):
        failures = _run(spec, out, manner)
    _tell(spec, out, failures, time.monotonic() - begin, as_json)


def _device(asked: str, out: Path, force: bool) -> str:
    """The device that is asked for; that of the folder, if any will do."""
    from bmdp.experiments.running.store import ExperimentFolder

    if asked == "auto" and (out / "spec.json").exists() and not force:
        return str(ExperimentFolder(out).header.get("device", asked))
    return asked


def _run(spec: ExperimentSpec, out: Path, manner: Manner) -> tuple[Failure, ...]:
    """Does what is still to do, and shows how far it is."""
    from bmdp.experiments.running.runner import run_experiment

    workers, engine = manner.workers, manner.engine
    with redirect_stdout(sys.stderr), _watched(spec, out, manner.tensorboard) as on_event:
        return run_experiment(spec, out, workers=workers, engine=engine, on_event=on_event)


@contextmanager
def _watched(
    spec: ExperimentSpec, out: Path, tensorboard: bool
) -> Iterator[Callable[[Event], None]]:
    """Looks at the folder whenever something happens, and now and then."""
    from bmdp.experiments.catalog import experiment
    from bmdp.experiments.running.boards import Board
    from bmdp.experiments.running.store import TENSORBOARD, ExperimentFolder, tasks_of
    from bmdp.experiments.running.watching import Watcher, time_left

    folder = ExperimentFolder.of(out, spec)
    watcher = Watcher(folder, tasks_of(experiment(spec.experiment), spec.seeds))
    board: Board | None = None

    def look(event: Event | None) -> None:
        nonlocal board
        if tensorboard and board is None:  # nobody else is at work here by now
            board = Board(out / TENSORBOARD)
        if event is not None and event.failure is not None:
            watcher.note_failure(event.failure.task)
        news = watcher.look()
        if board is not None:
            board.add(news.records)
        progress.show(news.sights, time_left(news.sights))
        if event is not None and event.task is not None:
            progress.tell(event.task, news.sights)

    progress = RunProgress()
    try:
        with progress.shown():
            yield look
            look(None)
    finally:
        if board is not None:
            board.close()


@contextmanager
def _told_how_to_go_on(spec: ExperimentSpec, out: Path, manner: Manner) -> Iterator[None]:
    """Says how to go on after Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        command = " ".join([spec.command(str(out)), *manner.words()])
        typer.echo(f"stopped; go on with: {command}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def _tell(
    spec: ExperimentSpec, out: Path, failures: tuple[Failure, ...], seconds: float, as_json: bool
) -> None:
    """Where the folder is, and what went wrong."""
    for failure in failures:
        if failure.trace:
            typer.echo(failure.trace.rstrip(), err=True)
    for failure in failures:
        told = " ".join(failure.message.split())
        typer.echo(f"error: {failure.task.name} failed: {told}", err=True)
    if as_json:
        typer.echo(json.dumps(_found(spec, out, failures, seconds), indent=2))
    elif not failures:
        typer.echo(f"folder: {out}")
        typer.echo(f"report: {shlex.join(['bmdp', 'report', str(out)])}")
    if failures:
        raise typer.Exit(1)


def _found(
    spec: ExperimentSpec, out: Path, failures: tuple[Failure, ...], seconds: float
) -> dict[str, Any]:
    """The result as JSON has it."""
    from bmdp.experiments.catalog import experiment
    from bmdp.experiments.running.store import ExperimentFolder, tasks_of

    folder = ExperimentFolder(out)
    tasks = tasks_of(experiment(spec.experiment), spec.seeds)
    return {
        "folder": str(out),
        "experiment": spec.experiment,
        "preset": spec.preset,
        "seeds": list(spec.seeds),
        "device": spec.device,
        "finished": [task.name for task in tasks if folder.is_finished(task)],
        "failed": [{"task": f.task.name, "error": f.message} for f in failures],
        "seconds": round(seconds, 3),
    }
