"""`bmdp watch`: whether a deployed dial keeps its promise, by the log of its decisions."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from bmdp.cli.options import AsJson, print_columns, print_json
from bmdp.cli.progress import Progress
from bmdp.errors import ConfigError

if TYPE_CHECKING:
    from bmdp.deployment import DecisionLog, Watch
    from bmdp.deployment.watch import Known, WatchReport

BROKEN = 1
"""Exit code of a promise that is broken."""

_PAUSE = 1.0  # seconds between two looks at a file that grows
_TOLD_EACH = 60.0  # seconds


def watch(  # noqa: PLR0913
    log: Annotated[
        Path, typer.Argument(metavar="LOG", help="Decisions of a service: JSON lines, or Parquet.")
    ],
    policy: Annotated[
        Path, typer.Option(metavar="RUN", help="Folder of the policy, or of its training run.")
    ],
    training: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Training log whose first states are compared with; without: that of the run.",
        ),
    ] = None,
    most_cost: Annotated[
        float | None,
        typer.Option(
            metavar="COST",
            help="The most that an episode can cost; without: as the environment of the run says.",
        ),
    ] = None,
    gamma: Annotated[
        float | None, typer.Option(help="Discount of costs; without: that of the run.")
    ] = None,
    confidence: Annotated[
        float, typer.Option(metavar="P", help="With which there is never a false alarm.")
    ] = 0.95,
    tolerance: Annotated[
        float, typer.Option(metavar="COST", help="Cost above the budget that counts as kept.")
    ] = 0.0,
    follow: Annotated[
        bool, typer.Option("--follow", help="Read on while the log grows, until it is broken.")
    ] = False,
    minutes: Annotated[
        float | None, typer.Option(help="With --follow: the longest that it is watched.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a page with figure and tables.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier page in DIR.")] = False,
    as_json: AsJson = False,
) -> None:
    """Tell whether a deployed dial keeps its promise. Exit code 1 says that it does not."""
    from bmdp.deployment import DecisionLog, Watch, known_of
    from bmdp.report.build import require_place

    if minutes is not None and not follow:
        raise ConfigError("--minutes is of no use here: it is for --follow.")
    if out is not None:
        require_place(out, force=force)
    lines, known, notes = DecisionLog(log), known_of(policy), list[str]()
    if follow and lines.is_table:
        raise ConfigError(f"--follow needs JSON lines, which can grow; got {log}.")
    gamma = known.gamma if gamma is None else gamma
    if gamma is None:
        raise ConfigError(f"{policy} does not say its discount: give --gamma, from 0 to 1.")
    with Progress("reading the training log"):
        states, names = _training(training, known, policy, notes)
    found = Watch(
        known.budget_range,
        gamma=gamma,
        confidence=confidence,
        most_cost=known.most_cost if most_cost is None else most_cost,
        tolerance=tolerance,
        training=states,
        names=names,
        name=str(log),
        episode_limit=known.episode_limit,
    )
    if follow:
        report = _followed(found, lines, minutes)
    else:
        with Progress(f"reading {log.name}", unit="bytes") as progress:
            report = _read(found, lines, progress)
    if out is not None:
        _write_page(report, log, out, notes, force)
    _print(report, notes, as_json)
    if report.is_broken:
        raise typer.Exit(BROKEN)


def _training(
    training: Path | None, known: Known, policy: Path, notes: list[str]
) -> tuple[Any, tuple[str, ...] | None]:
    """First states of the training log and their names; notes say why, if there are none."""
    from bmdp.data import load_log
    from bmdp.deployment.drift import LEAST_STATES

    states, names = known.training, known.names
    if training is not None:
        batch = load_log(str(training)).batch
        firsts = np.asarray(batch.state, np.float64)[batch.starts()]
        states, names = firsts.reshape(len(firsts), -1), batch.state_names
    if states is None:
        notes.append(
            f"{policy} does not hold the data that it was learned from: drift needs the folder of "
            "the run, or --training."
        )
    elif len(states) < LEAST_STATES:
        notes.append(f"Drift needs {LEAST_STATES} training episodes; there are {len(states)}.")
        states = None
    return states, names


def _read(found: Watch, lines: DecisionLog, progress: Progress) -> WatchReport:
    for first_line, rows in lines.new():
        found.add(first_line, rows)
        progress.update(*lines.read_and_size())
    found.add(*lines.last())
    return found.report()


def _followed(found: Watch, lines: DecisionLog, minutes: float | None) -> WatchReport:
    """Reads on until the promise is broken, the time is over, or Ctrl-C."""
    end = float("inf") if minutes is None else time.monotonic() + 60 * minutes
    tell_at = time.monotonic() + _TOLD_EACH
    report = found.report()
    try:
        while not report.is_broken:
            is_new = False
            for first_line, rows in lines.new():
                found.add(first_line, rows)
                is_new = True
            report = found.report() if is_new else report
            now = time.monotonic()
            if now >= end:
                break
            if now >= tell_at:
                tell_at = now + _TOLD_EACH
                typer.echo(f"{report.whole.n:,} episodes: {report.told(report.whole)}", err=True)
            if not report.is_broken:
                time.sleep(min(_PAUSE, max(end - now, 0.0)))
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
    return report


def _write_page(report: WatchReport, log: Path, out: Path, notes: list[str], force: bool) -> None:
    from bmdp.deployment.page import watch_section
    from bmdp.report.build import write_report

    section = watch_section(report, log.name, notes)
    made = f"Made from {log.name} by `bmdp watch`."
    written = write_report([section], out, title=section.title, made=made, force=force)
    typer.echo(f"page: {written.page}", err=True)


def _print(report: WatchReport, notes: list[str], as_json: bool) -> None:
    rows = report.named()
    if as_json:
        n, asked, paid = report.infeasible
        print_json(
            {
                "broken": report.is_broken,
                "confidence": report.confidence,
                "gamma": report.gamma,
                "most_cost": report.most_cost,
                "tolerance": report.tolerance,
                "lines": report.n_lines,
                "open": report.n_open,
                "cut": report.n_cut,
                "moved": report.n_moved,
                "infeasible": {"episodes": n, "asked": asked, "realised": paid},
                "rows": [{"budgets": name, **_plain(judged)} for name, judged in rows],
                "drift": None
                if report.drift is None
                else [asdict(shift) for shift in report.drift.shifts],
                "notes": [*notes, *report.notes()],
            }
        )
        return
    print_columns(
        {
            "budgets": [name for name, _ in rows],
            "episodes": [f"{judged.n:,}" for _, judged in rows],
            "asked": [f"{judged.asked:.4g}" for _, judged in rows],
            "realised": [f"{judged.paid:.4g}" for _, judged in rows],
            "excess": [f"{j.excess_low:+.3g} to {j.excess_high:+.3g}" for _, j in rows],
        },
        left=("budgets",),
    )
    for name, judged in rows:
        typer.echo(f"{'all budgets' if name == 'all' else name}: {report.told(judged)}")
    for note in (*notes, *report.notes()):
        typer.echo(f"note: {note}")


def _plain(judged: Any) -> dict[str, Any]:
    names = ("n", "asked", "paid", "excess_low", "excess_high", "verdict", "since", "more")
    return {name: getattr(judged, name) for name in names}
