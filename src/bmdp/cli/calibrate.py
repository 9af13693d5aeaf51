"""`bmdp calibrate`: a policy that keeps its budget on average, and the certificate of that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from bmdp.cli.options import (
    AsJson,
    Budgets,
    EnvName,
    EnvSettings,
    Seed,
    Workers,
    open_run,
    parse_budgets,
    parse_range,
    print_columns,
    print_json,
)
from bmdp.cli.progress import Progress
from bmdp.errors import ConfigError, StoreError
from bmdp.evaluation import calibrate as certify
from bmdp.policies.portfolio import CalibratedPolicy
from bmdp.storage import POLICY

ABOUT = ("env", "gamma", "confidence", "seed", "cost_range", "binary_costs", "smallest_budget")
NOT_PROMISED = (
    "Not promised: the cost of a single episode; a smaller budget, whose status is INFEASIBLE; "
    "another environment, or other settings; rewards, which are means of what was seen; anything, "
    "if these policies were chosen by episodes of the same seed: then take another --seed."
)


def calibrate(  # noqa: PLR0913
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Folders of training runs, or of policies."),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the policy is saved.")],
    env: EnvName = None,
    setting: EnvSettings = None,
    confidence: Annotated[
        float, typer.Option(metavar="P", help="Probability that the promise holds.")
    ] = 0.95,
    episodes: Annotated[int, typer.Option(min=1, help="Played by each member.")] = 2_000,
    budgets: Budgets = None,
    cost_range: Annotated[
        str | None,
        typer.Option(
            metavar="LOW:HIGH",
            help="No episode costs less, or more; without: as the environment says.",
        ),
    ] = None,
    workers: Workers = 1,
    seed: Seed = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the policy of --out.")] = False,
    as_json: AsJson = False,
) -> None:
    """Play policies, and save one that costs at most its budget on average, with a certificate."""
    inner = parse_budgets(budgets or (), option="--budgets")
    ends = None if cost_range is None else parse_range(cost_range, "--cost-range")
    _require_room(out, force)
    opened = [open_run(run, env, setting or ()) for run in runs]
    spec = opened[0][1]
    other = next((run for run, (_, its) in zip(runs, opened, strict=True) if its != spec), None)
    if other is not None:
        raise ConfigError(
            f"{runs[0]} and {other} are of different environments, or settings: give --env ENV."
        )
    with Progress("calibrating", unit="episodes") as progress:
        policy = certify(
            [policy for policy, _ in opened],
            spec,
            confidence=confidence,
            n_episodes=episodes,
            seed=seed,
            budgets=inner or None,
            workers=workers,
            cost_range=ends,
            progress=progress.update,
        )
    policy.save(out, overwrite=force)
    rows = _rows(policy, runs)
    if as_json:
        about = {name: getattr(policy.certificate, name) for name in ABOUT}
        about |= {"settings": json.loads(policy.certificate.settings), "episodes": episodes}
        print_json({"policy": str(out), **about, "rows": rows})
        return
    print_columns(
        {
            "budget": [f"{row['budget']:g}" for row in rows],
            "member": [f"{row['run']}{'' if row['played'] else ' (never played)'}" for row in rows],
            "seen cost": [f"{row['cost']:.4g}" for row in rows],
            "promised cost": [f"{row['promised_cost']:.4g}" for row in rows],
            "reward": [f"{row['reward']:.4g}" for row in rows],
        },
        left=("member",),
    )
    typer.echo(f"{policy.certificate}\n{NOT_PROMISED}\npolicy: {out}")


def _require_room(out: Path, force: bool) -> None:
    """Checks that the policy can be saved there, before anything is played."""
    if out.exists() and not force:
        raise StoreError(f"{out} exists already. Choose another name, or overwrite with --force.")
    if out.exists() and not (out / POLICY).is_file():
        raise StoreError(f"{out} is no policy, and is not overwritten.")


def _rows(policy: CalibratedPolicy, runs: list[Path]) -> list[dict[str, Any]]:
    """Members, the cheapest first; those below the frontier of all are never played."""
    certificate, members = policy.certificate, policy.portfolio
    played = {*members.curve.index.tolist()} if members.curve.index is not None else set()
    return [
        {
            "budget": float(members.budgets[k]),
            "run": str(runs[members.which[k]]),
            "cost": float(certificate.cost_mean[k]),
            "promised_cost": float(certificate.cost_high[k]),
            "reward": float(certificate.reward_mean[k]),
            "played": int(k) in played,
        }
        for k in np.argsort(certificate.cost_high, kind="stable")
    ]
