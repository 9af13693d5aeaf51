"""How honest learned dials are: trains by many rules and seeds, and measures reward and cost.

    python benchmarks/dial.py goals --seeds 0:10 --out out/goals --workers 2
    python benchmarks/dial.py goals --out out/goals --table

A *study* is some variants of settings, of `dial_studies.py`. Those of "goals", "exploration",
"episodes" and the like explore and learn; those that are named "... batch" learn from the same
episodes, which the preset explored with the seed. Every finished variant and seed is a line of
FOLDER/rows.jsonl, and is not done again. `--table` prints what is there as Markdown.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dial_studies import PLAIN, STUDIES, Study, Variant
from measuring import (
    add_row,
    do_all,
    measured,
    moved_errors,
    optimum_of,
    options,
    rows_of,
)


@dataclass(frozen=True)
class Job:
    """One study and seed, and the variants to do."""

    study: str
    seed: int
    variants: tuple[str, ...]
    n_tests: int
    device: str
    out: str


def do(job: Job) -> None:
    """Trains and measures, and writes a line for each variant."""
    import torch

    torch.set_num_threads(1)
    study = STUDIES[job.study]
    batch = None
    for variant in study.variants:
        if variant.name not in job.variants:
            continue
        begin = time.perf_counter()
        if study.same_batch:
            batch = batch or _explored(job, study).batch
            begin = time.perf_counter()
            row = _learned(job, study, variant, batch)
        else:
            result = _explored(job, study, variant)
            row = _measured(job, study, variant, result.policy, result.records, begin)
        add_row(job.out, {"study": job.study, **asdict(variant), **row})
        print(job.study, variant.name, job.seed, f"{row['train_seconds']:.0f} s", flush=True)


def _spec(study: Study, variant: Variant = PLAIN[0]) -> Any:
    import bmdp
    from bmdp.learn.spec import with_setting

    spec = bmdp.preset(study.preset)
    for setting in (*study.settings, *variant.settings):
        spec = with_setting(spec, setting)
    return spec


def _explored(job: Job, study: Study, variant: Variant = PLAIN[0]) -> Any:
    import bmdp

    return bmdp.explore(_spec(study, variant), seed=job.seed, device=job.device)


def _learned(job: Job, study: Study, variant: Variant, batch: Any) -> dict[str, Any]:
    from bmdp.learn.learners import learner_of

    begin, records = time.perf_counter(), list[Any]()
    policy = learner_of(_spec(study, variant).learner).fit(
        batch, seed=job.seed, device=job.device, on_record=records.append
    )
    return _measured(job, study, variant, policy, records, begin)


def _measured(
    job: Job, study: Study, variant: Variant, policy: Any, records: Any, begin: float
) -> dict[str, Any]:
    """What a policy earns and pays, and what it promised."""
    from bmdp.paper.training import playable

    train_seconds, env = time.perf_counter() - begin, _spec(study, variant).env
    policy = playable(policy, job.device)
    return {
        "seed": job.seed,
        "train_seconds": train_seconds,
        "promised": _promised(records),
        "rounds": [[r.reward, r.cost] for r in records if r.kind == "collection"],
        **measured(policy, env, n_tests=job.n_tests, seed=1000 + job.seed, moved_at=study.moved_at),
    }


def _promised(records: Any) -> list[float]:
    """Reward and cost at the largest budget: of held-out episodes, or of the models themselves."""
    last = records[-1]
    if last.kind == "prediction":
        return [last.reward[-1], last.cost[-1]]
    told = last.as_dict()
    return [told["start_reward_high"], told["start_cost_high"]]


def run(arguments: argparse.Namespace) -> None:
    """Does what is not done yet, several jobs at a time."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    done = {(r["study"], r["name"], r["seed"]) for r in rows_of(arguments.out)}
    first, _, last = arguments.seeds.partition(":")
    jobs = []
    for name in arguments.asked:
        for seed in range(int(first), int(last)):
            names = [v.name for v in STUDIES[name].variants if (name, v.name, seed) not in done]
            names = [n for n in names if not arguments.only or n in arguments.only]
            groups = [tuple(names)] if STUDIES[name].same_batch else [(n,) for n in names]
            settings = (arguments.tests, arguments.device, str(arguments.out))
            jobs += [Job(name, seed, group, *settings) for group in groups if group]
    do_all(do, jobs, arguments.workers)


def print_table(folder: Path) -> None:
    """Prints a line for each study and variant: mean over seeds, and the worst overshoot."""
    from bmdp.evaluation import measure_dial
    from bmdp.paper.results import evaluation_of

    optima: dict[str, Any] = {}
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows_of(folder):
        groups.setdefault((row["study"], row["name"]), []).append(row)
    columns = ("study", "variant", "seeds", "score (each)", "overshoot (worst)", "dial error")
    print("|".join(("", *columns, "promised", "moved", "")))
    print("|---" * (len(columns) + 2) + "|")
    for (study, name), rows in groups.items():
        if study not in optima:
            optima[study] = optimum_of(_spec(STUDIES[study]).env, folder)
        rows.sort(key=lambda row: row["seed"])
        found = [evaluation_of(row["evaluation"]) for row in rows]
        each = [measure_dial(one, optima[study]) for one in found]
        score, over, error = (
            np.array([getattr(report, field) for report in each])
            for field in ("mean_score", "worst_overshoot", "mean_dial_error")
        )
        ends = [(one.discounted_reward_mean[-1], one.discounted_cost_mean[-1]) for one in found]
        gain, gap = np.mean(np.array([row["promised"] for row in rows]) - ends, axis=0)
        scores = ", ".join(f"{s:.3f}" for s in score)
        print(
            f"| {study} | {name} | {len(rows)} | **{score.mean():.3f}** ({scores}) | "
            f"{over.max():.3f} (mean {over.mean():.3f}) | {error.mean():.4f} | "
            f"{gain:+.1f} at {gap:+.3f} | {moved_errors(rows)} |"
        )


def main(arguments: list[str] | None = None) -> None:
    """Parses the command line."""
    found = options(__doc__ or "", "study", STUDIES).parse_args(arguments)
    print_table(found.out) if found.table else run(found)


if __name__ == "__main__":
    main()
