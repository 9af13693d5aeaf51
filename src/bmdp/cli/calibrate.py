"""`bmdp calibrate`: a policy that keeps its budget on average, and the certificate of that.

It plays in a simulator, or, with `--data`, is told by logged episodes alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import bmdp
from bmdp.cli.options import (
    AsJson,
    Budgets,
    CostGamma,
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
from bmdp.data.encoder import without_encoder
from bmdp.errors import ConfigError, StoreError
from bmdp.evaluation import calibrate as certify
from bmdp.policies import load_policy
from bmdp.policies.limited import without_limit
from bmdp.policies.portfolio import CalibratedPolicy, LogCertificate
from bmdp.report.opened import cost_gamma_of
from bmdp.storage import POLICY, SPEC, arrays_hash, files_hash

ABOUT = ("env", "gamma", "confidence", "seed", "cost_range", "binary_costs", "smallest_budget")
OF_LOG = ("gamma", "confidence", "seed", "cost_range", "smallest_budget", "n_episodes")
NOT_PROMISED_BY_LOG = (
    "Not promised: the cost of a single episode; a smaller budget, whose status is INFEASIBLE; "
    "episodes that start otherwise, or a world that has changed; rewards; anything, if the policy "
    "was learned from, or chosen by, episodes of this log."
)
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
    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE...",
            help="Play nothing: certify by logged episodes that the policy was not learned from.",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD=COLUMN,...",
            help="With --data: columns of the log that have no common name; as those of the run.",
        ),
    ] = None,
    gamma: Annotated[
        float | None,
        typer.Option(help="With --data: discount of rewards and costs; that of the run."),
    ] = None,
    cost_gamma: CostGamma = None,
    worst_cost: Annotated[
        float | None,
        typer.Option(
            metavar="COST",
            help="With --data: the most that the rest of an episode can cost; the most seen.",
        ),
    ] = None,
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
    """Play policies, and save one that costs at most its budget on average, with a certificate.

    With --data nothing is played: logged episodes tell.
    """
    if data:
        of_env = {"--env": env, "--set": setting, "--cost-range": cost_range, "--budgets": budgets}
        _require_none(of_env, "--data plays nothing")
        _require_room(out, force)
        told = _Logged(runs, data, columns, gamma, cost_gamma, worst_cost, confidence, seed)
        _by_log(told, out, force, as_json)
        return
    of_log = {"--columns": columns, "--gamma": gamma, "--worst-cost": worst_cost}
    _require_none(of_log, "it is for --data")
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
    known = {cost_gamma_of(run, one, spec) for run, (one, _) in zip(runs, opened, strict=True)}
    if cost_gamma is None and len(known) > 1:
        raise ConfigError("the runs discount costs differently: give --cost-gamma G.")
    with Progress("calibrating", unit="episodes") as progress:
        found = certify(
            [policy for policy, _ in opened],
            spec,
            confidence=confidence,
            n_episodes=episodes,
            seed=seed,
            budgets=inner or None,
            workers=workers,
            cost_range=ends,
            progress=progress.update,
            cost_gamma=known.pop() if cost_gamma is None else cost_gamma,
        )
    found.save(out, overwrite=force)
    policy: CalibratedPolicy = without_limit(found)
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


@dataclass(frozen=True)
class _Logged:
    """A policy, a log, and how to certify the one by the other."""

    runs: Sequence[Path]
    files: Sequence[Path]
    columns: str | None
    gamma: float | None
    cost_gamma: float | None
    worst_cost: float | None
    confidence: float
    seed: int

    def certified(self, progress: Any) -> Any:
        """Returns the policy with its certificate."""
        from bmdp.data import Columns, load_log
        from bmdp.data.encoder import EncodedPolicy
        from bmdp.learn.runs import RunFolder  # torch takes long to import

        if len(self.runs) > 1:
            raise ConfigError(f"--data certifies one policy; got {len(self.runs)}.")
        run = self.runs[0]
        policy, header = load_policy(run), dict[str, Any]()
        if (run / SPEC).exists():
            header = dict(RunFolder(run).header)
        asked = header.get("asked") or {}
        gamma = asked.get("gamma") if self.gamma is None else self.gamma
        if gamma is None:
            raise ConfigError(f"{run} does not say its discount: give --gamma, from 0 to 1.")
        columns = Columns.from_dict(asked["columns"]) if asked.get("columns") else None
        if self.columns is not None:
            columns = Columns.from_text(self.columns)
        encoder = policy.encoder if isinstance(policy, EncodedPolicy) else None
        files = list(map(str, self.files))
        log = load_log(files if len(files) > 1 else files[0], columns, encoder=encoder)
        learned = (header.get("source") or header.get("data") or {}).get("sha256")
        if learned in (arrays_hash(log.batch.to_arrays()), _hash_of_files(self.files)):
            raise ConfigError(
                f"{run} was learned from this very log: a promise needs other episodes. Keep some "
                "apart before you learn, or log new ones."
            )
        return bmdp.certify(
            policy,
            log.batch,
            gamma=gamma,
            cost_gamma=asked.get("cost_gamma") if self.cost_gamma is None else self.cost_gamma,
            confidence=self.confidence,
            worst_cost=self.worst_cost,
            seed=self.seed,
            progress=progress,
        )


def _hash_of_files(paths: Sequence[Path]) -> str | None:
    """The hash of a large log, whose rows are not held in memory: that of its files."""
    return files_hash(paths) if all(path.exists() for path in paths) else None


def _by_log(told: _Logged, out: Path, force: bool, as_json: bool) -> None:
    """Certifies by a log, saves the policy, and prints its certificate."""
    with Progress("certifying", unit="evaluations") as progress:
        found = told.certified(progress.update)
    found.save(out, overwrite=force)
    policy: CalibratedPolicy = without_limit(without_encoder(found))
    promise = policy.certificate
    assert isinstance(promise, LogCertificate)
    names = {
        "member": policy.portfolio.budgets,
        "cost": promise.cost_mean,
        "promised": promise.cost_high,
        "reward": promise.reward_mean,
        "effective": promise.effective_episodes,
        "unknown": promise.outside_share,
    }
    if as_json:
        rows = [
            {name: float(values[k]) for name, values in names.items()}
            for k in np.argsort(promise.cost_high, kind="stable")
        ]
        about = {name: getattr(promise, name) for name in (*OF_LOG, "n_refused")}
        print_json({"policy": str(out), **about, "rows": rows})
        return
    order = np.argsort(promise.cost_high, kind="stable")
    shown = {"effective": ",.0f", "unknown": ".1%"}  # episodes, and decisions
    print_columns(
        {n: [format(v, shown.get(n, ".4g")) for v in values[order]] for n, values in names.items()}
    )
    typer.echo(f"{promise}\n{NOT_PROMISED_BY_LOG}\npolicy: {out}")


def _require_none(given: dict[str, Any], why: str) -> None:
    """Checks that options were not given."""
    wrong = [name for name, value in given.items() if value]
    if wrong:
        raise ConfigError(f"{wrong[0]} is of no use here: {why}.")


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
