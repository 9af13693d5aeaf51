"""`bmdp train`: learns a policy, by exploring an environment or from a log, and can be resumed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bmdp.cli.progress import TrainingProgress
from bmdp.cli.tables import print_columns
from bmdp.cli.values import AsJson, parse_range
from bmdp.envs import ENV_IDS

if TYPE_CHECKING:
    from bmdp.learn.runs import RunFolder
    from bmdp.learn.spec import TrainingSpec

INTERRUPTED = 130  # exit code of Ctrl-C
NO_PREDICTION = (
    "no episodes were held out, so all promises are the models' own, which are optimistic"
)


@dataclass(frozen=True)
class Wishes:
    """What was asked to be learned."""

    preset: str | None
    settings: Sequence[str]
    episodes: int | None
    gamma: float | None
    budget_range: str | None

    @property
    def is_any(self) -> bool:
        """Whether anything was asked."""
        return self != Wishes(None, (), None, None, None)


def train(  # noqa: PLR0913
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ENV", help=f"An environment: {', '.join(ENV_IDS)}, or the id of another."
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE...", help="Learn from logged transitions: .parquet, .h5, .hdf5, .npz."
        ),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with a run that was interrupted.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Settings; without: those named like ENV.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="a.b=c", help="Change a setting; may be repeated."),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Episodes in all, split over the preset's rounds."),
    ] = None,
    gamma: Annotated[float | None, typer.Option(help="Discount of rewards and costs.")] = None,
    budget_range: Annotated[
        str | None, typer.Option(metavar="LOW:HIGH", help="Budgets that the policy will take.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of all that is random; 0.")] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or auto; with --resume: as it was.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that play episodes.")] = 1,
    out: Annotated[Path | None, typer.Option(metavar="RUN", help="Folder of the run.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the run of --out.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a policy that takes any budget, in a folder from which a killed run can be resumed."""
    wishes = Wishes(preset, tuple(setting or ()), episodes, gamma, budget_range)
    begin = time.monotonic()
    if resume is not None:
        if names or data or out or force or wishes.is_any or seed is not None:
            raise typer.BadParameter("--resume takes everything from the run, but for --device.")
        run = resume
        _resume(run, workers, device)
    else:
        if not names and not data:
            raise typer.BadParameter("give ENV, --data FILE or --resume RUN, one of them.")
        if out is None:
            raise typer.BadParameter("--out RUN must be given: the folder to write.")
        run = out
        how = {"seed": seed or 0, "device": device or "auto"}
        if data:
            _train_from_data([*map(Path, data), *map(Path, names or ())], wishes, out, force, how)
        else:
            env = _only(names or [])
            _train(env, wishes, out, force, {**how, "workers": workers})
    _tell(run, time.monotonic() - begin, as_json)


def _only(names: list[str]) -> str:
    if len(names) > 1:
        raise typer.BadParameter(f"one ENV at a time; got {' '.join(names)}.")
    return names[0]


def _train(env: str, wishes: Wishes, out: Path, force: bool, how: dict[str, Any]) -> None:
    """Learns by exploring."""
    from bmdp.learn import runs  # torch takes long to import

    spec = _spec(env, wishes)
    _make_room(out, force)
    with _watched(out, _progress(spec)) as on_record:
        runs.train(spec, out, on_record=on_record, **how)


def _train_from_data(
    files: list[Path], wishes: Wishes, out: Path, force: bool, how: dict[str, Any]
) -> None:
    """Learns from logged transitions."""
    from bmdp.data import load_batches
    from bmdp.learn import runs
    from bmdp.learn.evaluation import split_episodes

    spec = _data_spec(wishes)
    batch = load_batches(files)
    parts = split_episodes(batch, spec.held_out, seed=how["seed"], number=0)
    for note in runs.data_notes(parts.learned, spec.learner):
        typer.echo(f"note: {note}", err=True)
    _make_room(out, force)
    how = {**how, "held_out": spec.held_out, "files": files}
    with _watched(out, _progress(spec)) as on_record:
        runs.train_from_data(batch, spec.learner, out, on_record=on_record, **how)


def _resume(run: Path, workers: int, device: str | None) -> None:
    from bmdp.learn import runs

    folder = runs.RunFolder(run)
    if folder.is_done:
        typer.echo(f"{run} is finished.", err=True)
    with _watched(run, _progress(runs.spec_of(folder))) as on_record:
        runs.resume(run, workers=workers, device=device, on_record=on_record)


def _progress(spec: TrainingSpec) -> TrainingProgress:
    """How far the run of some settings is."""
    n_rounds = 1 if spec.exploration is None else spec.exploration.rounds
    return TrainingProgress(n_rounds, spec.learner)


def _make_room(out: Path, force: bool) -> None:
    """Deletes the run that is to be overwritten; settings have been checked by now."""
    from bmdp.learn.runs import discard

    if force:
        discard(out)


@contextmanager
def _watched(run: Path, progress: TrainingProgress) -> Iterator[Callable[[Any], None]]:
    """Shows progress, and says how to go on after Ctrl-C."""
    try:
        with progress.shown():
            yield progress
    except KeyboardInterrupt:
        said = f"stopped; go on with: bmdp train --resume {run}" if run.exists() else "stopped"
        typer.echo(said, err=True)
        raise typer.Exit(INTERRUPTED) from None


def _spec(env: str, wishes: Wishes) -> TrainingSpec:
    """What to learn in an environment."""
    from bmdp.learn.presets import preset
    from bmdp.learn.spec import EnvConfig, with_setting

    short = {env_id: name for name, env_id in ENV_IDS.items()}.get(env, env)
    if wishes.preset is not None:
        spec = preset(wishes.preset)
        is_of_env = spec.env is not None and spec.env.id == short
        spec = spec if is_of_env else replace(spec, env=EnvConfig(env))
    else:
        spec = preset(short) if short in ENV_IDS else _default_spec(env)
    for text in (*_shortcuts(wishes), *wishes.settings):
        spec = with_setting(spec, text)
    return spec if wishes.episodes is None else _with_episodes(spec, wishes.episodes)


def _default_spec(env: str) -> TrainingSpec:
    """For an environment that is not ours, which may say what it is like."""
    from bmdp.envs.slots import find_spec, open_slots
    from bmdp.learn.learners import BFTQConfig
    from bmdp.learn.spec import EnvConfig, Exploration, TrainingSpec

    slots = open_slots(find_spec(env))
    slots.close()
    return TrainingSpec(EnvConfig(env), BFTQConfig(gamma=slots.facts.gamma), Exploration())


def _data_spec(wishes: Wishes) -> TrainingSpec:
    """What to learn from a log."""
    from bmdp.learn.learners import BFTQConfig
    from bmdp.learn.presets import preset
    from bmdp.learn.spec import TrainingSpec, with_setting

    if wishes.episodes is not None:
        raise typer.BadParameter("--episodes is for exploring; a log has the episodes it has.")
    if wishes.preset is not None:
        spec = TrainingSpec(None, preset(wishes.preset).learner, None)
    elif wishes.gamma is None:
        raise typer.BadParameter("--data needs --gamma: a log does not say how it is discounted.")
    else:
        spec = TrainingSpec(None, BFTQConfig(gamma=wishes.gamma), None)
    for text in (*_shortcuts(wishes), *wishes.settings):
        spec = with_setting(spec, text)
    return spec


def _shortcuts(wishes: Wishes) -> Iterator[str]:
    """Options that are settings."""
    if wishes.gamma is not None:
        yield f"learner.gamma={wishes.gamma!r}"
    if wishes.budget_range is not None:
        yield f"learner.budget_range={list(parse_range(wishes.budget_range))}"


def _with_episodes(spec: TrainingSpec, n_episodes: int) -> TrainingSpec:
    """So many episodes in all, or a few more where rounds do not divide them."""
    assert spec.exploration is not None
    n_rounds = min(spec.exploration.rounds, n_episodes)
    each = -(-n_episodes // n_rounds)
    if each * n_rounds != n_episodes:
        typer.echo(
            f"note: {n_rounds} rounds of {each} episodes, {each * n_rounds} in all", err=True
        )
    return replace(spec, exploration=replace(spec.exploration, rounds=n_rounds, episodes=each))


def _tell(run: Path, seconds: float, as_json: bool) -> None:
    """Where the policy is, and what it will earn and pay."""
    from bmdp.learn.runs import RunFolder

    folder = RunFolder(run)
    _warn_if_unsettled(folder)
    predicted = folder.prediction()
    if predicted is None:
        typer.echo(f"note: {NO_PREDICTION}; --set held_out=0.2 holds some out", err=True)
    if as_json:
        typer.echo(json.dumps(_found(folder, predicted, seconds), indent=2, allow_nan=False))
        return
    typer.echo(f"policy: {run / 'policy'}")
    if predicted is not None:
        _print_prediction(predicted)


def _warn_if_unsettled(folder: RunFolder) -> None:
    """Says that the values of the last round may still change, if they may."""
    rows = [row for row in folder.records() if row["kind"] == "iteration"]
    if not rows or rows[-1]["has_settled"] is not False:
        return
    n_done, change = rows[-1]["iteration"] + 1, rows[-1]["change"]
    by = "" if change is None else f" by {100 * change:{',.0f' if change > 0.1 else '.2g'}} %"
    typer.echo(
        f"note: values have not settled after {n_done} iterations; they may still change{by}: give "
        f"more by --set learner.schedule=Iterations --set learner.schedule.n={4 * n_done}",
        err=True,
    )


def _found(folder: RunFolder, predicted: dict[str, Any] | None, seconds: float) -> dict[str, Any]:
    """The result as JSON has it."""
    records = [record for record in folder.records() if record["kind"] != "prediction"]
    last: dict[str, Any] = records[-1] if records else {}
    return {
        "run": str(folder.path),
        "policy": str(folder.path / "policy"),
        "seed": folder.header["seed"],
        "device": folder.header["device"],
        "rounds": last.get("round", -1) + 1,
        "iterations": sum(record["kind"] == "iteration" for record in records),
        "last": last,
        "prediction": predicted,
        "seconds": round(seconds, 3),
    }


def _print_prediction(predicted: dict[str, Any]) -> None:
    """A table of what held-out episodes say."""
    forms = {"budgets": "g", "cost": ".3f", "reward": ".4g"}
    told = [[format(value, form) for value in predicted[name]] for name, form in forms.items()]
    print_columns(dict(zip(("asked", "predicted cost", "predicted reward"), told, strict=True)))
    typer.echo(f"predicted from {predicted['n_episodes']:,} episodes that were not learned from")
