"""`bmdp evaluate`: whether the dial of a policy tells the truth, and what it earns."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from gymnasium.envs.registration import EnvSpec

from bmdp.cli.opening import EnvName, EnvSettings, RunPath, open_run
from bmdp.cli.progress import episode_bar
from bmdp.cli.tables import print_columns
from bmdp.cli.values import AsJson, parse_budgets
from bmdp.envs import Corridors, SlotFilling, corridors, slot_filling
from bmdp.errors import ConfigError
from bmdp.evaluation import DialReport, Evaluation, measure_dial
from bmdp.evaluation import evaluate as play_episodes
from bmdp.frontier import Frontier
from bmdp.policies import BudgetedPolicy
from bmdp.storage import SPEC

RESOLUTION = 17  # of the grid of corridors, which takes seconds; its own value is 1 % off
N_BINS = 4  # of the scores of slot-filling


@dataclass(frozen=True)
class Optimum:
    """The best that can be had, or why it is not known."""

    frontier: Frontier | None
    source: str


def evaluate(  # noqa: PLR0913
    run: RunPath,
    budgets: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NUMBER|LOW:HIGH:STEP",
            help="Budgets to ask for; may be repeated; a range includes both ends. "
            "Without: eleven from end to end of what the policy takes.",
        ),
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, help="Played at each budget.")] = 20_000,
    env: EnvName = None,
    setting: EnvSettings = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that play episodes.")] = 1,
    device: Annotated[
        str, typer.Option(help="cpu, cuda or auto; of a learned policy; a GPU takes one worker.")
    ] = "cpu",
    seed: Annotated[int, typer.Option(min=0, help="Of all that is random.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Play a policy at several budgets: what was asked, what was paid, and what was earned."""
    asked = parse_budgets(budgets or (), option="--budgets")
    policy, spec = open_run(run, env, setting or ())
    policy = _on_device(policy, device, workers)
    low, high = policy.budget_range
    optimum = known_optimum(spec)
    with episode_bar("episodes") as progress:
        found = play_episodes(
            policy,
            spec,
            budgets=asked or np.linspace(low, high, 11),
            n_episodes=episodes,
            seed=seed,
            workers=workers,
            progress=progress,
        )
    report = None if optimum.frontier is None else measure_dial(found, optimum.frontier)
    columns = _columns(found, report) | _predicted(run, found)
    (_print_json if as_json else _print_table)(found, report, optimum, columns)


def _on_device(policy: BudgetedPolicy, device: str, workers: int) -> BudgetedPolicy:
    """The policy, computed on a GPU if one was asked for and is here."""
    if device == "cpu":
        return policy
    from bmdp.learn.runs import checked_device
    from bmdp.models.regressor import placed

    there = checked_device(device)
    if there == "cpu":
        return policy
    if workers > 1:
        raise ConfigError(f"--device {device} takes one worker; got {workers}.")
    on_gpu: BudgetedPolicy = placed(policy, there)
    return on_gpu


def known_optimum(spec: EnvSpec) -> Optimum:
    """Returns the true frontier of an environment, where it can be computed in seconds."""
    settings = spec.kwargs
    if spec.id == "bmdp/Corridors-v0" and set(settings) <= {"observe_time"}:
        true = corridors.true_frontier(
            Corridors(**settings), resolution=RESOLUTION, max_disagreement=0.02
        )
        how = f"corridors on a grid of resolution {RESOLUTION}"
    elif spec.id == "bmdp/SlotFilling-v0" and set(settings) <= {"features"}:
        true = slot_filling.true_frontier(SlotFilling(**settings), n_bins=N_BINS)
        how = f"slot-filling with scores in {N_BINS} bins"
    else:
        return Optimum(None, "no optimum known")
    return Optimum(true.frontier, f"optimum: {how}, rewards within {true.reward_error:.2g}")


def _columns(found: Evaluation, report: DialReport | None) -> dict[str, Any]:
    """What is told of each budget, `[B]` each; costs and rewards are discounted."""
    columns = {"budget": found.budgets}
    for name in ("cost", "reward"):
        for end, suffix in (("mean", ""), ("low", "_low"), ("high", "_high")):
            columns[name + suffix] = getattr(found, f"discounted_{name}_{end}")
    columns["infeasible_share"] = found.infeasible_share
    if report is not None:
        columns |= {name: getattr(report, name) for name in ("score", "overshoot", "dial_error")}
    return columns


def _predicted(run: Path, found: Evaluation) -> dict[str, Any]:
    """What the run predicted from episodes that it held out, `[B]` each, if it did."""
    from bmdp.learn.runs import RunFolder

    prediction = RunFolder(run).prediction() if (run / SPEC).exists() else None
    if prediction is None:
        return {}
    return {
        f"predicted_{name}": np.interp(found.budgets, prediction["budgets"], prediction[name])
        for name in ("cost", "reward")
    }


def _print_table(
    found: Evaluation, report: DialReport | None, optimum: Optimum, columns: dict[str, Any]
) -> None:
    def told(name: str, form: str) -> list[str]:
        return [format(value, form) for value in columns[name]]

    ends = zip(told("cost_low", ".3f"), told("cost_high", ".3f"), strict=True)
    asked, cost, reward = told("budget", "g"), told("cost", ".3f"), told("reward", ".4g")
    shown = {
        "asked": asked,
        "cost": cost,
        f"{found.confidence:.0%} interval": [f"{low} to {high}" for low, high in ends],
        "reward": reward,
    }
    for name in ("score", "overshoot", "dial_error"):
        if name in columns:
            shown[name.replace("_", " ")] = told(name, ".3f")
    print_columns(shown)
    if "predicted_cost" in columns:  # by itself, so that it fits in a narrow terminal
        predicted = told("predicted_cost", ".3f"), told("predicted_reward", ".4g")
        names = ("asked", "predicted cost", "cost", "predicted reward", "reward")
        both = (asked, predicted[0], cost, predicted[1], reward)
        print_columns(dict(zip(names, both, strict=True)))
    lines = [f"{found.n_episodes:,} episodes a budget in {found.env}, gamma {found.gamma:g}"]
    if report is not None:
        lines.append(
            f"mean score {report.mean_score:.3f}, worst overshoot {report.worst_overshoot:.3f}, "
            f"mean dial error {report.mean_dial_error:.3f}"
        )
    for line in (*lines, optimum.source):
        typer.echo(line)


def _print_json(
    found: Evaluation, report: DialReport | None, optimum: Optimum, columns: dict[str, Any]
) -> None:
    rows = [
        {name: _finite(float(values[i])) for name, values in columns.items()}
        for i in range(len(found.budgets))
    ]
    fields: dict[str, Any] = {
        "env": found.env,
        "gamma": found.gamma,
        "episodes": found.n_episodes,
        "seed": found.seed,
        "confidence": found.confidence,
        "optimum": optimum.source,
        "rows": rows,
    }
    if report is not None:
        for name in ("mean_score", "worst_overshoot", "mean_dial_error"):
            fields[name] = _finite(getattr(report, name))
    typer.echo(json.dumps(fields, indent=2, allow_nan=False))


def _finite(number: float) -> float | None:
    """A number as JSON has it, which has none for what is not finite."""
    return number if math.isfinite(number) else None
