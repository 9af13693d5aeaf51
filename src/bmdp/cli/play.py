"""`bmdp play`: one episode of a policy, step by step, with the dial moved on the way."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np
import typer
from gymnasium.envs.registration import EnvSpec

from bmdp.cli.options import (
    AsJson,
    EnvName,
    EnvSettings,
    RunPath,
    open_run,
    print_json,
    require_new_file,
    write_picture,
)
from bmdp.cli.progress import Progress
from bmdp.envs import TwoWay
from bmdp.envs.episodes import Episode, Step, play_episode
from bmdp.envs.two_way import film
from bmdp.errors import BudgetError, ConfigError
from bmdp.frontier import BudgetStatus

_DRIVING = "bmdp/TwoWay-v0"


def play(  # noqa: PLR0913
    run: RunPath,
    budget: Annotated[float, typer.Option(help="Expected cost allowed, from the start on.")],
    then: Annotated[
        list[str] | None,
        typer.Option(metavar="B@K", help="Move the dial to B at step K; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of the episode.")] = 0,
    env: EnvName = None,
    setting: EnvSettings = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw into FILE: .png, or .svg for a film of two-way."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --out overwrite FILE.")] = False,
    as_json: AsJson = False,
) -> None:
    """Play one episode, a line a step: what was done, earned, paid, and which budget was held."""
    moves = dict(_move(text) for text in then or ())
    policy, spec = open_run(run, env, setting or ())
    about = _metadata(spec)
    modes = list(about.get("render_modes") or ())
    if out is not None:
        _check_picture(out, force, spec, modes)
    wanted = "ansi" if "ansi" in modes else "rgb_array" if out is not None else None
    mode = wanted if wanted in modes else None
    with Progress("playing"):
        played = play_episode(policy, spec, budget=budget, seed=seed, moves=moves, render_mode=mode)
    for late in sorted(step for step in moves if step >= len(played.steps)):
        typer.echo(f"note: the episode ended before step {late}", err=True)
    rows = [_row(step, about.get("action_names")) for step in played.steps]
    transcript = played.picture if mode == "ansi" else None
    sums = {name: sum(row[name] for row in rows) for name in ("reward", "cost")}
    if as_json:
        print_json({"steps": rows, **sums, "transcript": transcript})
    else:
        _print_lines(rows, sums, transcript)
    if out is not None:
        is_film = out.suffix.lower() == ".svg"
        write_picture(out, _film(played, spec) if is_film else _png(played), force)


def _row(step: Step, names: Sequence[str] | None) -> dict[str, Any]:
    action = int(step.actions[0])
    return {
        "step": step.index,
        "action": action,
        "name": str(names[action]) if names else str(action),
        "reward": float(step.rewards[0]),
        "cost": float(step.costs[0]),
        "budget": float(step.budgets[0]),  # held before the decision
        "next_budget": float(step.decision.next_budget[0]),
        "status": BudgetStatus(int(step.decision.status[0])).name,
    }


def _metadata(spec: EnvSpec) -> dict[str, Any]:
    env = gymnasium.make(spec, disable_env_checker=True)
    env.close()
    return env.unwrapped.metadata


def _move(text: str) -> tuple[int, float]:
    """Reads `B@K`; returns the step and the budget."""
    budget, _, number = text.partition("@")
    try:
        step, moved = int(number), float(budget)
    except ValueError:
        raise BudgetError(f"--then must be BUDGET@STEP, such as 0.1@4; got '{text}'.") from None
    if step < 0:
        raise BudgetError(f"--then must name a step from 0 on; got '{text}'.")
    return step, moved


def _print_lines(
    rows: Sequence[dict[str, Any]], sums: dict[str, float], transcript: str | None
) -> None:
    width = max(6, *(len(row["name"]) for row in rows))
    typer.echo(f"step  {'action':<{width}}  {'reward':>8}  {'cost':>8}  {'budget':>8}  status")
    for row in rows:
        typer.echo(
            f"{row['step']:>4}  {row['name']:<{width}}  {row['reward']:>8.4g}  "
            f"{row['cost']:>8.4g}  {row['budget']:>8.4g}  {row['status']}"
        )
    typer.echo(f"{'sum':>4}  {'':<{width}}  {sums['reward']:>8.4g}  {sums['cost']:>8.4g}")
    if transcript:
        typer.echo(f"\n{transcript}")


def _check_picture(path: Path, force: bool, spec: EnvSpec, modes: Sequence[str]) -> None:
    """Finds out what is wrong with a picture before any work is done."""
    suffix = path.suffix.lower()
    if suffix not in (".png", ".svg"):
        raise ConfigError(f"--out must end in .png or .svg; got '{path}'.")
    if suffix == ".svg" and spec.id != _DRIVING:
        raise ConfigError(f"{spec.id} has no film, only two-way has: --out must end in .png.")
    if suffix == ".png" and "rgb_array" not in modes:
        raise ConfigError(f"{spec.id} has no picture: leave --out away.")
    require_new_file(path, force)


def _film(played: Episode, spec: EnvSpec) -> bytes:
    task, frames = TwoWay(**spec.kwargs), played.states[:1]
    for state, step in zip(played.states[:-1], played.steps, strict=True):
        frames += task.frames(state, step.actions)
    return film(frames).encode()


def _png(played: Episode) -> bytes:
    from matplotlib.image import imsave  # takes long to import

    picture = BytesIO()
    imsave(picture, np.asarray(played.picture), format="png")
    return picture.getvalue()
