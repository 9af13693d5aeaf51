"""`bmdp evaluate`: whether the dial of a policy tells the truth, and what it earns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bmdp.arrays import FloatArray
from bmdp.cli.options import (
    AsJson,
    Budgets,
    CostGamma,
    EnvName,
    EnvSettings,
    RunPath,
    Seed,
    Workers,
    open_run,
    parse_budgets,
    print_columns,
    print_json,
)
from bmdp.cli.progress import Progress
from bmdp.envs import known_frontier
from bmdp.errors import ConfigError
from bmdp.evaluation import Evaluation, measure_dial
from bmdp.evaluation import evaluate as play_episodes
from bmdp.policies import BudgetedPolicy
from bmdp.report.opened import cost_gamma_of, gammas_asked, prediction_of
from bmdp.storage import SPEC

SCORES = ("score", "overshoot", "dial_error")
MEASURES = ("mean_score", "worst_overshoot", "mean_dial_error")


def evaluate(  # noqa: PLR0913
    run: RunPath,
    budgets: Budgets = None,
    episodes: Annotated[int, typer.Option(min=1, help="Played at each budget.")] = 20_000,
    env: EnvName = None,
    setting: EnvSettings = None,
    workers: Workers = 1,
    device: Annotated[
        str, typer.Option(help="cpu, cuda or auto; of a learned policy; a GPU takes one worker.")
    ] = "cpu",
    cost_gamma: CostGamma = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Play a policy at several budgets: what was asked, what was paid, and what was earned."""
    asked = parse_budgets(budgets or (), option="--budgets")
    policy, spec = open_run(run, env, setting or ())
    cost_gamma = cost_gamma_of(run, policy, spec) if cost_gamma is None else cost_gamma
    policy = _on_device(policy, device, workers)
    with Progress("evaluating", unit="episodes") as progress:
        found = play_episodes(
            policy,
            spec,
            budgets=asked or np.linspace(*policy.budget_range, 11),
            n_episodes=episodes,
            seed=seed,
            workers=workers,
            progress=progress.update,
            cost_gamma=cost_gamma,
        )
    true, source = None, "no optimum is known for budgets that count costs in this way"
    if found.episode_limit is None and found.cost_gamma in (None, found.gamma):
        with Progress("finding the optimum"):
            true, source = known_frontier(spec)
    columns, measures = _columns(run, found), dict[str, float]()
    if true is not None:
        report = measure_dial(found, true.frontier)
        columns |= {name: getattr(report, name) for name in SCORES}
        measures = {name: getattr(report, name) for name in MEASURES}
    if as_json:
        rows = [
            {name: float(values[i]) for name, values in columns.items()}
            for i in range(len(found.budgets))
        ]
        about = {"env": found.env, "gamma": found.gamma, "episodes": found.n_episodes}
        about |= {"cost_gamma": found.cost_gamma, "episode_limit": found.episode_limit}
        about |= {"seed": found.seed, "confidence": found.confidence, "optimum": source}
        print_json({**about, "rows": rows, **measures})
        return
    _print_tables(columns, found.confidence)
    if "predicted_cost" in columns and "predicted_reward" not in columns:
        typer.echo(
            f"Rewards are discounted by {found.gamma:g}, as the environment says, and those of the "
            f"run by {gammas_asked(run)[0]:g}: its prediction of rewards is of another quantity."
        )
    told_gamma = f"gamma {found.gamma:g}"
    if found.cost_gamma is not None:
        told_gamma += f", cost gamma {found.cost_gamma:g}"
    typer.echo(f"{found.n_episodes:,} episodes a budget in {found.env}, {told_gamma}")
    if found.episode_limit is not None:
        typer.echo(f"over limit: share of episodes that cost more than {found.episode_limit:g}")
    if measures:
        told = (f"{name.replace('_', ' ')} {value:.3f}" for name, value in measures.items())
        typer.echo(", ".join(told))
    typer.echo(source)


def _on_device(policy: BudgetedPolicy, device: str, workers: int) -> BudgetedPolicy:
    """The policy, computed on a GPU if one was asked for and is here."""
    from bmdp.learn.runs import checked_device
    from bmdp.models.regressor import placed

    if device == "cpu" or (there := checked_device(device)) == "cpu":
        return policy
    if workers > 1:
        raise ConfigError(f"--device {device} takes one worker; got {workers}.")
    on_gpu: BudgetedPolicy = placed(policy, there)
    return on_gpu


def _columns(run: Path, found: Evaluation) -> dict[str, FloatArray]:
    """Costs as budgets count them, and rewards, `[B]` each, and what the run predicted."""
    from bmdp.learn.runs import RunFolder

    columns = {"budget": found.budgets}
    for name, kind in (("cost", "dial_cost"), ("reward", "discounted_reward")):
        for end, suffix in (("mean", ""), ("low", "_low"), ("high", "_high")):
            columns[name + suffix] = getattr(found, f"{kind}_{end}")
    if found.episode_limit is not None:
        columns["episode_cost"] = found.cost_mean
    columns["infeasible_share"] = found.infeasible_share
    said = prediction_of(RunFolder(run)) if (run / SPEC).exists() else None
    if said is not None:
        names = ["cost"]
        if gammas_asked(run)[0] in (None, found.gamma):
            names.append("reward")
        for name in names:
            columns[f"predicted_{name}"] = np.interp(found.budgets, said["budgets"], said[name])
    return columns


def _print_tables(columns: dict[str, FloatArray], confidence: float) -> None:
    def told(name: str, form: str = ".3f") -> list[str]:
        return [format(value, form) for value in columns[name]]

    asked, cost, reward = told("budget", "g"), told("cost"), told("reward", ".4g")
    ends = zip(told("cost_low"), told("cost_high"), strict=True)
    interval = {f"{confidence:.0%} interval": [f"{low} to {high}" for low, high in ends]}
    scores = {name.replace("_", " "): told(name) for name in SCORES if name in columns}
    costs = {"cost": cost}
    if "episode_cost" in columns:
        costs = {"over limit": cost}
        interval |= {"mean cost": told("episode_cost")}
    print_columns({"asked": asked, **costs, **interval, "reward": reward, **scores})
    if "predicted_cost" in columns:  # by itself, so that it fits in a narrow terminal
        predicted = {"predicted cost": told("predicted_cost"), "cost": cost}
        if "predicted_reward" in columns:
            predicted |= {"predicted reward": told("predicted_reward", ".4g"), "reward": reward}
        print_columns({"asked": asked, **predicted})
