"""`bmdp report`: what runs, policies and experiments have found, as one page with dials to turn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bmdp.cli.options import AsJson, EnvName, EnvSettings, Seed, print_columns, print_json
from bmdp.cli.progress import Progress
from bmdp.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from bmdp.report.section import Section

COLUMNS = {
    "asked": "asked",
    "forecast cost": "forecast cost",
    "cost": "realised cost",
    "reward": "reward",
    "score": "score",
}
"""Of a table of budgets, as they are printed."""


def report(  # noqa: PLR0913
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER...",
            help="Of a training run, a policy or an experiment, or one that holds some.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where the report is put; without, for one folder: FOLDER/report."
        ),
    ] = None,
    env: EnvName = None,
    setting: EnvSettings = None,
    episodes: Annotated[
        int, typer.Option(min=1, help="Played at each budget, of runs and policies.")
    ] = 1_000,
    no_play: Annotated[
        bool, typer.Option("--no-play", help="Play none: tell forecasts alone.")
    ] = False,
    seed: Seed = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an earlier report in DIR.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write one page with dials to turn, figures and tables; runs may be going on still."""
    from bmdp.paper.scenes import PLUGINS
    from bmdp.report.build import REPORT, anchors_of, require_place, write_report

    if out is None and len(folders) > 1:
        raise ConfigError(f"--out DIR must be given for several folders; got {len(folders)}.")
    target = folders[0] / REPORT if out is None else out
    found = [path for folder in folders for path in _told_of(folder)]
    force = force or out is None
    require_place(target, force=force)
    play = {"n_episodes": 0 if no_play else episodes, "seed": seed, "plugins": PLUGINS}
    play |= {"env": env, "settings": setting or ()}
    anchors = anchors_of([path.resolve().name for path in found])
    sections = [_section(path, name, play) for path, name in zip(found, anchors, strict=True)]
    name = target.resolve().parent.name if out is None else out.resolve().name
    title = sections[0].title if len(sections) == 1 else f"Report: {name}"
    with Progress("writing the page"):
        written = write_report(sections, target, title=title, plugins=PLUGINS, force=force)
    for note in written.notes:
        typer.echo(f"note: {note}", err=True)
    if as_json:
        fields = {"page": str(written.page), "figures": written.figures, "tables": written.tables}
        answers = {section.anchor: section.answer for section in sections}
        print_json({**fields, "answers": answers, "notes": written.notes})
        return
    for section in sections:
        _print_section(section)
    typer.echo(f"page: {written.page}")
    typer.echo(f"{written.figures} figures and {written.tables} tables beside it")


def _told_of(folder: Path) -> list[Path]:
    """The run, policy or experiment that a folder is, or all that it holds."""
    from bmdp.paper.results import is_experiment
    from bmdp.report.opened import is_run

    if not folder.is_dir():
        there = "is a file" if folder.exists() else "is not there"
        raise StoreError(f"{folder} {there}: give the folder of a run, a policy or an experiment.")
    if is_experiment(folder) or is_run(folder):
        return [folder]
    inside = sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")
    found = [path for path in inside if is_experiment(path) or is_run(path)]
    if not found:
        raise StoreError(
            f"{folder} is no run, policy or experiment, and holds none: `bmdp fit` and "
            "`bmdp run` make them."
        )
    return found


def _section(folder: Path, anchor: str, play: dict[str, Any]) -> Section:
    from bmdp.paper.results import experiment_section, is_experiment
    from bmdp.report.run import run_section

    with Progress(f"report of {folder.resolve().name}", unit="episodes") as progress:
        if is_experiment(folder):
            return experiment_section(folder, anchor)
        return run_section(folder, anchor=anchor, progress=progress.update, **play)


def _print_section(section: Section) -> None:
    """The answer, and what the first policy with a dial does at each budget."""
    typer.echo(f"{section.title}\n{section.answer}")
    table = next((table for table in section.tables if "asked" in table.heads), None)
    if table is not None:
        names = {name: told for name, told in COLUMNS.items() if name in table.heads}
        if "reward" not in names and "forecast reward" in table.heads:  # it was not played
            names["forecast reward"] = "forecast reward"
        places = {table.heads.index(name): told for name, told in names.items()}
        print_columns({told: [row[i] for row in table.rows] for i, told in places.items()})
