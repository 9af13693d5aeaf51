"""`bmdp play`: one episode of a policy, step by step, with the dial moved on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import gymnasium
import numpy as np
import typer
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from bmdp.cli.options import (
    AsJson,
    EnvName,
    EnvSettings,
    RunPath,
    open_run,
    require_place,
    write_picture,
)
from bmdp.envs import TwoWay
from bmdp.envs.gym import Episodes
from bmdp.envs.two_way import film
from bmdp.errors import BudgetError, ConfigError, EnvError, PolicyError
from bmdp.frontier import BudgetStatus
from bmdp.policies import BudgetedPolicy
from bmdp.randomness import EpisodeStreams

_MOST_STEPS = 10_000
_DRIVING = "bmdp/TwoWay-v0"


class Move(NamedTuple):
    """The dial, moved."""

    budget: float
    step: int


class Played(NamedTuple):
    """What happened at one step."""

    step: int
    action: int
    name: str
    reward: float
    cost: float
    budget: float  # held before the decision
    next_budget: float  # handed on
    status: str


@dataclass(frozen=True)
class Screen:
    """What there is to see of an episode when it is over."""

    transcript: str | None
    picture: NDArray[np.uint8] | None
    svg: str | None


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
    moves = [_move(text) for text in then or ()]
    policy, spec = open_run(run, env, setting or ())
    if out is not None:
        _check_picture(out, force, spec)
    steps, screen = _episode(policy, spec, [Move(budget, 0), *moves], seed, out)
    late = [move for move in moves if move.step > steps[-1].step]
    for move in late:
        typer.echo(f"note: the episode ended before step {move.step}", err=True)
    (_print_json if as_json else _print_lines)(steps, screen)
    if out is not None:
        _draw(screen, out, force)


def _episode(
    policy: BudgetedPolicy, spec: EnvSpec, moves: Sequence[Move], seed: int, out: Path | None
) -> tuple[list[Played], Screen]:
    """Plays, and returns what happened and what there is to see."""
    modes = _modes(spec)
    wanted = "ansi" if "ansi" in modes else "rgb_array" if out is not None else None
    env = gymnasium.make(
        spec, render_mode=wanted if wanted in modes else None, disable_env_checker=True
    )
    try:
        steps = list(_steps(policy, env, moves, seed))
        seen: Any = env.render() if env.render_mode is not None else None
    finally:
        env.close()
    is_film = out is not None and out.suffix.lower() == ".svg"
    return steps, Screen(
        transcript=seen if isinstance(seen, str) else None,
        picture=seen if isinstance(seen, np.ndarray) else None,
        svg=_film(spec, [step.action for step in steps], seed) if is_film else None,
    )


def _steps(
    policy: BudgetedPolicy, env: gymnasium.Env[Any, Any], moves: Sequence[Move], seed: int
) -> Iterator[Played]:
    names = env.unwrapped.metadata.get("action_names")
    horizon = env.unwrapped.metadata.get("horizon")
    state, _ = env.reset(seed=seed)
    streams = EpisodeStreams.named(seed, "play", [0])
    with _fits(policy, env):
        tracker = policy.start(np.asarray(state)[None], moves[0].budget, streams)
    for step in range(horizon or _MOST_STEPS):
        for move in moves:
            if move.step == step:
                tracker.set_budget(move.budget)
        held = float(tracker.budgets[0])
        with _fits(policy, env):
            action, next_budget, status = (c[0] for c in tracker.decide(np.asarray(state)[None]))
        state, reward, terminated, truncated, info = env.step(int(action))
        if "cost" not in info:
            raise EnvError(f"{_id(env)} must give info['cost'] at every step; a step had none.")
        ended = bool(terminated or truncated)
        tracker.observe([info["cost"]], np.asarray(state)[None], [ended])
        yield Played(
            step=step,
            action=int(action),
            name=str(names[action]) if names else str(action),
            reward=float(reward),
            cost=float(info["cost"]),
            budget=held,
            next_budget=float(next_budget),
            status=BudgetStatus(int(status)).name,
        )
        if ended:
            return


@contextmanager
def _fits(policy: BudgetedPolicy, env: gymnasium.Env[Any, Any]) -> Iterator[None]:
    """Says so if the policy cannot act on what it is shown."""
    try:
        yield
    except (BudgetError, PolicyError):
        raise
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        raise PolicyError(
            f"the policy cannot act on what {_id(env)} shows; {type(policy).__name__} said: {error}"
        ) from error


def _id(env: gymnasium.Env[Any, Any]) -> str:
    return env.spec.id if env.spec is not None else "the environment"


def _film(spec: EnvSpec, actions: Sequence[int], seed: int) -> str:
    """The same drive again, frame by frame."""
    task = TwoWay(**spec.kwargs)
    episodes, only = Episodes(task, 1), np.array([0])
    episodes.seed(np.array([seed]))
    episodes.start(only)
    frames = [episodes.state]
    for action in actions:
        frames += task.frames(episodes.state, np.array([action]))
        episodes.step(only, np.array([action]))
    return film(frames)


def _modes(spec: EnvSpec) -> Sequence[str]:
    env = gymnasium.make(spec, disable_env_checker=True)
    env.close()
    return list(env.metadata.get("render_modes") or ())


def _move(text: str) -> Move:
    """Reads `B@K`."""
    budget, _, step = text.partition("@")
    try:
        move = Move(float(budget), int(step))
    except ValueError:
        raise BudgetError(f"--then must be BUDGET@STEP, such as 0.1@4; got '{text}'.") from None
    if move.step < 0:
        raise BudgetError(f"--then must name a step from 0 on; got '{text}'.")
    return move


def _print_lines(steps: Sequence[Played], screen: Screen) -> None:
    width = max(6, *(len(step.name) for step in steps))
    typer.echo(f"step  {'action':<{width}}  {'reward':>8}  {'cost':>8}  {'budget':>8}  status")
    for step in steps:
        typer.echo(
            f"{step.step:>4}  {step.name:<{width}}  {step.reward:>8.4g}  {step.cost:>8.4g}  "
            f"{step.budget:>8.4g}  {step.status}"
        )
    reward, cost = (sum(getattr(step, name) for step in steps) for name in ("reward", "cost"))
    typer.echo(f"{'sum':>4}  {'':<{width}}  {reward:>8.4g}  {cost:>8.4g}")
    if screen.transcript:
        typer.echo(f"\n{screen.transcript}")


def _print_json(steps: Sequence[Played], screen: Screen) -> None:
    found = {
        "steps": [step._asdict() for step in steps],
        "reward": sum(step.reward for step in steps),
        "cost": sum(step.cost for step in steps),
        "transcript": screen.transcript,
    }
    typer.echo(json.dumps(found, indent=2, allow_nan=False))


def _check_picture(path: Path, force: bool, spec: EnvSpec) -> None:
    """Finds out what is wrong with a picture before any work is done."""
    suffix = path.suffix.lower()
    if suffix not in (".png", ".svg"):
        raise ConfigError(f"--out must end in .png or .svg; got '{path}'.")
    if suffix == ".svg" and spec.id != _DRIVING:
        raise ConfigError(f"{spec.id} has no film, only two-way has: --out must end in .png.")
    if suffix == ".png" and "rgb_array" not in _modes(spec):
        raise ConfigError(f"{spec.id} has no picture: leave --out away.")
    require_place(path, force)


def _draw(screen: Screen, path: Path, force: bool) -> None:
    if screen.svg is not None:
        content = screen.svg.encode()
    else:
        from matplotlib.image import imsave  # takes long to import

        picture = BytesIO()
        imsave(picture, np.asarray(screen.picture), format="png")
        content = picture.getvalue()
    write_picture(path, content, force)
