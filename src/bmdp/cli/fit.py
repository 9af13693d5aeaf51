"""`bmdp fit`: learns a policy, by exploring an environment or from a log, and can be resumed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bmdp.cli.options import (
    INTERRUPTED,
    AsJson,
    Workers,
    parse_range,
    print_columns,
    print_json,
    print_settings,
)
from bmdp.cli.progress import Progress
from bmdp.data import Columns
from bmdp.envs import ENV_IDS
from bmdp.errors import BmdpError
from bmdp.storage import SPEC

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

    from bmdp.learn.fitted import Fitted
    from bmdp.learn.spec import TrainingSpec

NO_PREDICTION = (
    "no episodes were held out, so all promises are the models' own, which are optimistic; "
    "--set held_out=0.2 holds some out"
)

EXPERT = {"preset", "set"}
"""Options with which there is one candidate, set by hand."""

OF_LOG = {"columns", "missing", "sample", "support", "unseen"}
"""Options that say how to read a log."""


def fit(  # noqa: PLR0913
    ctx: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ENV", help=f"An environment: {', '.join(ENV_IDS)}, or the id of another."
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE...",
            help="Learn from logged transitions: .parquet or a folder of it, larger than memory if "
            "need be, .csv, .csv.gz, .arrow, .feather, .h5, .hdf5, .npz.",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD=COLUMN,...",
            help="Columns of the log that have no common name: action=hurry,state=age+income.",
        ),
    ] = None,
    missing: Annotated[
        str | None,
        typer.Option(
            metavar="error|impute",
            help="States that are missing: error, or the median and a number that says so.",
        ),
    ] = None,
    unseen: Annotated[
        str | None,
        typer.Option(
            metavar="error|other",
            help="Text that the log does not have, when the policy meets it: error, or other.",
        ),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with a run that was interrupted.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="For experts: settings of this name.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="a.b=c",
            help="Change a setting: env.a=c of the environment; for experts, others of --preset or "
            "of the preset named like ENV. --set help lists them.",
        ),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Episodes to play in ENV, in all; as many as there is time for.",
        ),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(metavar="M", help="Time that it may take, about; 5.")
    ] = None,
    support: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            help="With --data: episodes that must have taken an action near a state for it to be "
            "played there; 5.",
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="With --data: rows of a large log from which trees and centres come; 100000.",
        ),
    ] = None,
    gamma: Annotated[float | None, typer.Option(help="Discount of rewards and costs.")] = None,
    cost_gamma: Annotated[
        float | None,
        typer.Option(
            metavar="G", help="Discount of costs, if another: 1 limits the sum of an episode."
        ),
    ] = None,
    episode_limit: Annotated[
        float | None,
        typer.Option(
            metavar="COST", help="Budgets are chances that an episode costs more than this."
        ),
    ] = None,
    budget_range: Annotated[
        str | None, typer.Option(metavar="LOW:HIGH", help="Budgets that the policy will take.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of all that is random; 0.")] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or auto; with --resume: as it was.")
    ] = None,
    workers: Workers = 1,
    engine: Annotated[
        str,
        typer.Option(
            metavar="local|ray", help="Work on this machine, or on those of a Ray cluster."
        ),
    ] = "local",
    out: Annotated[Path | None, typer.Option(metavar="RUN", help="Folder of the run.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the run of --out.")] = False,
    as_json: AsJson = False,
) -> None:
    """Learn a policy that takes any budget, in a folder from which a killed run can be resumed.

    Nothing need be set: candidates are tried, and the evidence chooses. With --preset, or --set of
    anything but the environment, there is one candidate, with these settings.
    """
    begin = time.monotonic()
    numbers = {"episodes": episodes, "minutes": minutes, "gamma": gamma, "seed": seed}
    numbers |= {"support": support, "sample": sample}
    numbers |= {"cost_gamma": cost_gamma, "episode_limit": episode_limit}
    of_log = {"columns": columns, "missing": missing, "unseen": unseen}
    texts = {"preset": preset, "set": setting, "budget_range": budget_range, **of_log}
    given = {name for name, value in numbers.items() if value is not None}
    given |= {name for name, value in texts.items() if value}
    if resume is not None:
        if given or names or data or out or force:
            raise typer.BadParameter("--resume takes everything from the run, but for --device.")
        _resume(resume, workers, engine, device)
        _tell(resume, time.monotonic() - begin, as_json)
        return
    if setting and "help" in setting:
        _tell_settings([text for text in setting if text != "help"], names, data, preset, gamma)
        return
    if out is None or (not names and not data):
        lacks = "give ENV, --data FILE or --resume RUN, one of them."
        raise typer.BadParameter(
            "--out RUN must be given: the folder to write." if names or data else lacks
        )
    if _is_of_env(setting) and not data and not preset:
        given -= {"set"}  # candidates are tried in the environment with these settings
    _check_usage(given, names or [], bool(data))
    files = [*data, *map(Path, names or ())] if data else []
    how = {"seed": seed or 0, "device": device or "auto", "command": ctx.obj}
    if given & EXPERT:
        settings = [*_shortcuts(gamma, cost_gamma, budget_range), *(setting or ())]
        if data:
            spec = _log_spec(preset, gamma, settings)
        else:
            spec = _exploring_spec((names or [""])[0], preset, settings, episodes)
            how["workers"] = workers
        _learn(spec, files, out, force, how, columns)
    else:
        how |= {name: text for name, text in of_log.items() if text is not None}
        if columns is not None:
            how["columns"] = Columns.from_text(columns)
        how |= {"gamma": gamma, "minutes": minutes, "episodes": episodes, "workers": workers}
        how |= {"support": support, "sample": sample, "engine": engine}
        how |= {"cost_gamma": cost_gamma, "episode_limit": episode_limit}
        if budget_range is not None:
            how["budget_range"] = parse_range(budget_range, "--budget-range")
        _fit(files or _environment((names or [""])[0], setting or ()), out, force, how)
    _tell(out, time.monotonic() - begin, as_json)


def _check_usage(given: set[str], names: Sequence[str], is_log: bool) -> None:
    """Refuses options that do not go together."""
    if not is_log and len(names) > 1:
        raise typer.BadParameter(f"one ENV at a time; got {' '.join(names)}.")
    if is_log and "episodes" in given:
        raise typer.BadParameter("--episodes is for exploring; a log has the episodes it has.")
    log_only = sorted(given & OF_LOG)
    if not is_log and log_only:
        raise typer.BadParameter(f"--{log_only[0]} is for --data.")
    if given & EXPERT and given & {"missing", "unseen"}:
        raise typer.BadParameter("--missing and --unseen are for a fit without --preset and --set.")
    if is_log and not given & {"gamma", "preset"}:
        raise typer.BadParameter("--data needs --gamma: a log does not say how it is discounted.")
    for name in ("minutes", "sample", "support", "episode_limit"):
        if name in given and given & EXPERT:
            raise typer.BadParameter(
                f"--{name.replace('_', '-')} is for a fit without --preset and --set."
            )


def _tell_settings(
    settings: Sequence[str],
    names: Sequence[str] | None,
    data: Any,
    preset: str | None,
    gamma: float | None,
) -> None:
    """Prints the settings that there are, with their values after those that are given."""
    from bmdp.learn.spec import told_settings  # torch takes long to import

    if data:
        spec = _log_spec(preset, 1.0 if gamma is None and preset is None else gamma, settings)
    else:
        spec = _exploring_spec((names or ["corridors"])[0], preset, settings, None)
    print_settings(told_settings(spec))


def _is_of_env(settings: Sequence[str] | None) -> bool:
    """Whether all settings are those of the environment."""
    return all(text.startswith("env.") for text in settings or ())


def _environment(name: str, settings: Sequence[str]) -> str | EnvSpec:
    """Returns an environment with its settings, `env.a=b`; its name if there are none."""
    from bmdp.learn.spec import EnvConfig, with_env_setting  # torch takes long to import

    return reduce(with_env_setting, settings, EnvConfig(name)).spec() if settings else name


def _fit(source: str | EnvSpec | list[Path], out: Path, force: bool, how: dict[str, Any]) -> None:
    """Goes through the front door."""
    from bmdp.learn.auto import fit as fit_source  # torch takes long to import

    with _in_place_of_old(out, force), _shown(out) as (progress, _):
        fit_source(source, out=out, on_progress=_share(progress), **how)


def _share(progress: Progress) -> Callable[[float, str], None]:
    """Shows shares of a fit that are done as progress."""
    return lambda share, text: progress.update(share, 1.0, text=text)


def _learn(
    spec: TrainingSpec,
    files: list[Path],
    out: Path,
    force: bool,
    how: dict[str, Any],
    columns: str | None,
) -> None:
    from bmdp.data import load_batches
    from bmdp.learn.runs import train, train_from_data  # torch takes long to import

    named = None if columns is None else Columns.from_text(columns)
    with Progress("reading the log"):
        batch = load_batches(files, named) if files else None
    with _in_place_of_old(out, force), _shown(out) as (progress, how["on_record"]):
        if batch is None:
            train(spec, out, **how)
            return
        how |= {"held_out": spec.held_out, "files": files}
        how["on_note"] = lambda note: progress.note(f"note: {note}")
        train_from_data(batch, spec.learner, out, **how)


def _resume(run: Path, workers: int, engine: Any, device: str | None) -> None:
    from bmdp.learn import resume
    from bmdp.learn.auto import seconds_before
    from bmdp.learn.runs import RunFolder, discard, share_done

    folder = RunFolder(run)
    if folder.is_done:
        typer.echo(f"{run} is finished.", err=True)
    discard(_old(run))  # which a kill left there, as the new run had begun
    with _shown(run, share_done(run), seconds_before(folder)) as (progress, on_record):
        how: dict[str, Any] = {"on_record": on_record, "on_progress": _share(progress)}
        resume(run, workers=workers, engine=engine, device=device, **how)


@contextmanager
def _shown(
    run: Path, before: float = 0.0, gone: float = 0.0
) -> Iterator[tuple[Progress, Callable[[Any], None]]]:
    """Shows records as progress, and says how to go on after Ctrl-C."""
    from bmdp.learn.runs import last_line, share_done

    try:
        with Progress("fitting", before=before, gone=gone) as progress:
            yield (
                progress,
                lambda record: progress.update(share_done(run), 1.0, text=last_line(record)),
            )
    except KeyboardInterrupt:
        said = f"stopped; go on with: bmdp fit --resume {run}" if run.exists() else "stopped"
        typer.echo(said, err=True)
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _in_place_of_old(out: Path, force: bool) -> Iterator[None]:
    """Moves the run that is to be overwritten aside, and back if the new one is refused.

    A new run that is refused before anything was done leaves no folder.
    """
    from bmdp.learn.runs import RunFolder, discard

    old = _old(out) if force and (out / SPEC).is_file() else None
    if old is not None:
        discard(old)
        with RunFolder(out).locked():
            os.rename(out, old)
    elif force:
        discard(out)  # which refuses folders that are no runs
    is_new = not out.exists()
    try:
        yield
    except BmdpError:
        if is_new and out.exists() and not _is_begun(out):
            discard(out)
        raise
    finally:
        if old is not None and out.exists():
            discard(old)
        elif old is not None:
            os.rename(old, out)


def _old(run: Path) -> Path:
    """Where a run is while another one takes its place."""
    return run.with_name(f".{run.name}.old")


def _is_begun(run: Path) -> bool:
    """Whether a run has something to go on from, but for its log."""
    kept = ("records.jsonl", "steps/rounds/*.npz", "steps/candidates/*/policy")
    return any(True for name in kept for _ in run.glob(name))


def _exploring_spec(
    name: str, preset: str | None, settings: Sequence[str], episodes: int | None
) -> TrainingSpec:
    from bmdp.learn.presets import exploring_spec
    from bmdp.learn.spec import with_setting

    spec = reduce(with_setting, settings, exploring_spec(name, preset))
    if episodes is None or spec.exploration is None:
        return spec
    n_rounds = min(spec.exploration.rounds, episodes)
    each = -(-episodes // n_rounds)  # or a few more, where rounds do not divide them
    if each * n_rounds != episodes:
        typer.echo(
            f"note: {n_rounds} rounds of {each} episodes, {each * n_rounds} in all", err=True
        )
    return replace(spec, exploration=replace(spec.exploration, rounds=n_rounds, episodes=each))


def _log_spec(
    preset_name: str | None, gamma: float | None, settings: Sequence[str]
) -> TrainingSpec:
    from bmdp.learn.learners import BFTQConfig, Learner
    from bmdp.learn.presets import preset
    from bmdp.learn.spec import TrainingSpec, with_setting

    if preset_name is not None:
        learner: Learner = preset(preset_name).learner
    else:
        assert gamma is not None
        learner = BFTQConfig(gamma=gamma)
    return reduce(with_setting, settings, TrainingSpec(None, learner, None))


def _shortcuts(
    gamma: float | None, cost_gamma: float | None, budget_range: str | None
) -> Iterator[str]:
    for name, value in (("gamma", gamma), ("cost_gamma", cost_gamma)):
        if value is not None:
            yield f"learner.{name}={value!r}"
    if budget_range is not None:
        yield f"learner.budget_range={list(parse_range(budget_range, '--budget-range'))}"


def _tell(run: Path, seconds: float, as_json: bool) -> None:
    """Prints where the policy is, and what it will earn and pay."""
    from bmdp.learn.auto import read_fitted
    from bmdp.learn.runs import RunFolder

    folder = RunFolder(run)
    if folder.header.get("kind") == "fit":
        _tell_fitted(run, read_fitted(folder), seconds, as_json)
        return
    records = folder.records()
    _warn_if_unsettled(records)
    predicted = folder.prediction()
    if predicted is None:
        typer.echo(f"note: {NO_PREDICTION}", err=True)
    if as_json:
        rounds = [record for record in records if record["kind"] != "prediction"]
        last: dict[str, Any] = rounds[-1] if rounds else {}
        found = {
            "run": str(run),
            "policy": str(run / "policy"),
            "seed": folder.header["seed"],
            "device": folder.header["device"],
            "rounds": last.get("round", -1) + 1,
            "iterations": sum(record["kind"] == "iteration" for record in rounds),
            "last": last,
            "prediction": predicted,
            "seconds": round(seconds, 3),
        }
        print_json(found)
        return
    typer.echo(f"policy: {run / 'policy'}")
    if predicted is None:
        return
    forms = {"budgets": "g", "cost": ".3f", "reward": ".4g"}
    told = [[format(value, form) for value in predicted[name]] for name, form in forms.items()]
    print_columns(dict(zip(("asked", "predicted cost", "predicted reward"), told, strict=True)))
    typer.echo(f"predicted from {predicted['n_episodes']:,} episodes that were not learned from")


def _tell_fitted(run: Path, fitted: Fitted, seconds: float, as_json: bool) -> None:
    """Prints what was inferred, the candidates, the forecast and the notes."""
    where = {"run": str(run), "policy": str(run / "policy")}
    if as_json:
        print_json({**fitted.as_dict(), **where, "seconds": round(seconds, 3)})
        return
    typer.echo(f"{fitted}\n\npolicy: {where['policy']}")


def _warn_if_unsettled(records: list[dict[str, Any]]) -> None:
    """Says that the values of the last round may still change, if they may."""
    rows = [record for record in records if record["kind"] == "iteration"]
    if not rows or rows[-1]["has_settled"] is not False:
        return
    n_done, change = rows[-1]["iteration"] + 1, rows[-1]["change"]
    by = "" if change is None else f" by {100 * change:{',.0f' if change > 0.1 else '.2g'}} %"
    typer.echo(
        f"note: values have not settled after {n_done} iterations; they may still change{by}: give "
        f"more by --set learner.schedule=Iterations --set learner.schedule.n={4 * n_done}",
        err=True,
    )
