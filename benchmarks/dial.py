"""How honest learned dials are: trains by many rules and seeds, and measures reward and cost.

    python benchmarks/dial.py goals --seeds 0:10 --out out/goals --workers 2
    python benchmarks/dial.py goals --out out/goals --table

A *study* is some variants of settings. Those of "goals", "exploration", "episodes" and the like
explore and learn; those that are named "... batch" learn from the same episodes, which the preset
explored with the seed. Every finished variant and seed is a line of FOLDER/rows.jsonl, and is not
done again. `--table` prints what is there as Markdown.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from measuring import (
    add_row,
    do_all,
    measured,
    moved_errors,
    optimum_of,
    options,
    require_known,
    rows_of,
)


@dataclass(frozen=True)
class Variant:
    """A name and settings that are changed."""

    name: str
    settings: tuple[str, ...] = ()
    tolerance: float = 0.0  # on the cost of the cheapest vertex, in acting


@dataclass(frozen=True)
class Study:
    """Variants of a preset."""

    preset: str
    variants: tuple[Variant, ...]
    settings: tuple[str, ...] = ()  # of all variants
    same_batch: bool = False
    moved_at: int = 0  # step at which the dial is moved, too


SELF = "learner.valuation=self"
CROSSED = "learner.valuation=crossed"
ROUTES = ("env.settings.routes=4", "learner.slope_cap=50")
PAPER_FEATURES = ("env.settings.features=paper",)


def _rules() -> tuple[Variant, ...]:
    """Ways to learn from a batch; models act by their mean, unless it says otherwise."""
    folds = {f"crossed, {k} folds": (CROSSED, f"learner.folds={k}") for k in (2, 3, 5, 8)}
    wary = {
        f"pessimistic, {c:g} deviations": (
            "learner.valuation=pessimistic",
            "learner.folds=5",
            f"learner.caution={c}",
        )
        for c in (0.0, 0.5, 1.0)
    }
    every = {
        "self": (SELF,),
        **folds,
        "crossed values, 3 folds": ("learner.valuation=values", "learner.folds=3"),
        "crossed when acting, too": (CROSSED, "learner.folds=2", "learner.acting=crossed"),
        **wary,
        "self, no cap": (SELF, "learner.slope_cap=0"),
        "3 folds, no cap": (CROSSED, "learner.folds=3", "learner.slope_cap=0"),
        "self, rows of each step": (SELF, "learner.stages=own"),
        "self, iterations": (SELF, "learner.stages=none"),
    }
    mean = ("learner.acting=average",)
    return tuple(Variant(name, (*mean, *settings)) for name, settings in every.items())


def _explorations() -> tuple[Variant, ...]:
    """Ways to explore."""
    every = {
        "independent": ("exploration.bonus=none", "exploration.hold=1"),
        "held 3": ("exploration.bonus=none", "exploration.hold=3"),
        "held 5": ("exploration.bonus=none", "exploration.hold=5"),
        "held 8": ("exploration.bonus=none", "exploration.hold=8"),
        "counts 0.1": ("exploration.bonus=count", "exploration.weight=0.1"),
        "counts 1": ("exploration.bonus=count", "exploration.weight=1"),
        "ensemble 1": (
            "learner.acting=average",
            "exploration.bonus=ensemble",
            "exploration.weight=1",
        ),
        "ensemble 3": (
            "learner.acting=average",
            "exploration.bonus=ensemble",
            "exploration.weight=3",
        ),
        "targets 0.3": ("exploration.bonus=targets", "exploration.weight=0.3"),
        "targets 1": ("exploration.bonus=targets", "exploration.weight=1"),
        "uncertain budgets": ("learner.acting=average", "exploration.budgets=uncertain"),
        "moved 0.1": ("exploration.move=0.1",),
    }
    return tuple(Variant(name, settings) for name, settings in every.items())


def _models(decay: float) -> tuple[Variant, ...]:
    """What values can be estimated by, step by step, or by iterations of one model."""
    how = ("learner.regression.steps=600", f"learner.regression.weight_decay={decay}")
    kinds = {
        "EncoderNet": ("learner.model=EncoderNet", *how),
        "FrontierNet": ("learner.model=FrontierNet", *how),
        "LinearModel": ("learner.model=LinearModel",),
        "TreesModel": ("learner.model=TreesModel",),
    }
    one = ("learner.stages=none", "learner.acting=average")
    return (
        *PLAIN,
        *(Variant(f"{name}, stages", settings) for name, settings in kinds.items()),
        *(Variant(f"{name}, iterations", (*kinds[name], *one)) for name in list(kinds)[:2]),
    )


def _decays() -> tuple[Variant, ...]:
    """Weights of the regularisation of networks."""
    how = (
        "model=EncoderNet",
        "stages=none",
        "folds=2",
        "iterations=11",
        "regression.steps=1000",
        "regression.batch_size=2048",
    )
    every = (CROSSED, *(f"learner.{h}" for h in how))
    return tuple(
        Variant(f"decay {decay:g}", (*every, f"learner.regression.weight_decay={decay}"))
        for decay in (0.0, 1e-5, 1e-4, 5e-4, 2e-3, 1e-2)
    )


PLAIN = (Variant("preset"),)
CAPS = (
    *(Variant(f"cap {c:g}", (f"learner.slope_cap={c}",)) for c in (0, 4, 15, 60)),
    *(Variant(f"tolerance {t:g}", ("learner.slope_cap=0",), t) for t in (0.005, 0.02, 0.05)),
)
MOVED = (*PLAIN, *(Variant(f"moved {p:g}", (f"exploration.move={p}",)) for p in (0.1, 0.2)))
HELD_OUT = (Variant("audited by 0.3", ("held_out=0.3", "audit=true")), *PLAIN)
ATTEMPTS = (
    Variant("less random", ("exploration.decay=0.002", "exploration.floor=0.1")),
    Variant("600 centres", ("learner.model.centres=600",)),
    Variant("5 folds", ("learner.folds=5",)),
    Variant("held 3", ("exploration.hold=3",)),
    Variant("11 budgets", ("learner.n_budgets=11",)),
)
SLOT_ATTEMPTS = (
    *(
        Variant(
            f"{n} budgets, caution {c:g}",
            (f"learner.n_budgets={n}", "learner.valuation=pessimistic", f"learner.caution={c}"),
        )
        for n, c in ((21, 0.5), (11, 0.3), (11, 0.5), (6, 0.5))
    ),
    *(Variant(f"{n} budgets", (CROSSED, f"learner.n_budgets={n}")) for n in (21, 11, 6)),
    Variant("8 folds", (CROSSED, "learner.n_budgets=21", "learner.folds=8")),
    Variant("200 centres", (CROSSED, "learner.n_budgets=21", "learner.model.centres=200")),
)
EPISODES = tuple(
    Variant(f"{n:,}", (f"exploration.episodes={n // 10}", f"exploration.decay={5 / n}"))
    for n in (1_000, 5_000, 20_000, 100_000)
)
STUDIES = {
    "episodes corridors": Study("corridors", EPISODES),
    "episodes slot-filling": Study("slot-filling", EPISODES),
    "attempts corridors": Study("corridors", ATTEMPTS, moved_at=4),
    "attempts routes": Study("corridors", ATTEMPTS, ROUTES, moved_at=4),
    "attempts slot-filling": Study("slot-filling", SLOT_ATTEMPTS, moved_at=3),
    "attempts slot-filling paper": Study("slot-filling", SLOT_ATTEMPTS, PAPER_FEATURES, moved_at=3),
    "goals corridors": Study("corridors", MOVED, moved_at=4),
    "goals corridors seen": Study("corridors", PLAIN, ("env.settings.observe_time=true",)),
    "goals routes": Study("corridors", MOVED, ROUTES, moved_at=4),
    "goals slot-filling": Study("slot-filling", (*HELD_OUT, *MOVED[1:]), moved_at=3),
    "goals slot-filling paper": Study("slot-filling", HELD_OUT, PAPER_FEATURES, moved_at=3),
    "rules corridors batch": Study("corridors", _rules(), same_batch=True),
    "rules routes batch": Study("corridors", _rules(), ROUTES, same_batch=True),
    "rules slot-filling batch": Study("slot-filling", _rules(), same_batch=True),
    "rules slot-filling paper batch": Study(
        "slot-filling", _rules(), PAPER_FEATURES, same_batch=True
    ),
    "models corridors batch": Study("corridors", _models(0.0), same_batch=True),
    "models slot-filling batch": Study("slot-filling", _models(5e-4), same_batch=True),
    "decays slot-filling batch": Study("slot-filling", _decays(), same_batch=True),
    "decays slot-filling paper batch": Study(
        "slot-filling", _decays(), PAPER_FEATURES, same_batch=True
    ),
    "caps corridors batch": Study("corridors", CAPS, same_batch=True, moved_at=4),
    "caps slot-filling batch": Study("slot-filling", CAPS, same_batch=True, moved_at=3),
    "exploration corridors": Study("corridors", _explorations()),
    "exploration routes": Study("corridors", _explorations(), ROUTES),
}


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
    from bmdp.learn.spec_files import with_setting

    spec = bmdp.preset(study.preset)
    for setting in (*study.settings, *variant.settings):
        spec = with_setting(spec, setting)
    return spec


def _explored(job: Job, study: Study, variant: Variant = PLAIN[0]) -> Any:
    import bmdp

    return bmdp.explore(_spec(study, variant), seed=job.seed, device=job.device)


def _learned(job: Job, study: Study, variant: Variant, batch: Any) -> dict[str, Any]:
    from bmdp.learn.exploration import learner_of

    begin, records = time.perf_counter(), list[Any]()
    policy = learner_of(_spec(study, variant).learner).fit(
        batch, seed=job.seed, device=job.device, on_record=records.append
    )
    return _measured(job, study, variant, policy, records, begin)


@dataclass(frozen=True, eq=False)
class TolerantQ:
    """Values whose frontier may begin at what is a little dearer than the cheapest, if it pays."""

    values: Any
    tolerance: float

    def __call__(self, states: Any) -> tuple[Any, Any]:
        """Returns (q_r, q_c)."""
        from bmdp.learn.noise import tolerated

        q_r, q_c = self.values(states)
        costs, rewards = (q.reshape(len(q), -1) for q in (q_c.clip(0), q_r))
        costs, rewards = tolerated(costs, rewards, self.tolerance)
        return rewards.reshape(q_r.shape), costs.reshape(q_c.shape)


def _tolerant(policy: Any, tolerance: float) -> Any:
    """A policy of stages that acts with a tolerance."""
    return replace(
        policy,
        stages=tuple(
            replace(stage, q_function=TolerantQ(stage.q_function, tolerance))
            for stage in policy.stages
        ),
    )


def _measured(
    job: Job, study: Study, variant: Variant, policy: Any, records: Any, begin: float
) -> dict[str, Any]:
    """What a policy earns and pays, and what it promised."""
    from bmdp.experiments.parts.training import playable

    train_seconds, env = time.perf_counter() - begin, _spec(study, variant).env
    policy = playable(policy, job.device)
    if variant.tolerance > 0:
        policy = _tolerant(policy, variant.tolerance)
    return {
        "seed": job.seed,
        "train_seconds": train_seconds,
        "promised": _promised(records),
        "rounds": [[r["reward"], r["cost"]] for r in records if r.get("kind") == "collection"],
        **measured(policy, env, n_tests=job.n_tests, seed=1000 + job.seed, moved_at=study.moved_at),
    }


def _promised(records: Any) -> list[float]:
    """Reward and cost at the largest budget: of held-out episodes, or of the models themselves."""
    last = records[-1]
    if last.get("kind") == "prediction":
        return [last["reward"][-1], last["cost"][-1]]
    return [last["start_reward_high"], last["start_cost_high"]]


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
    from bmdp.evaluate import measure_dial
    from bmdp.experiments.parts.measuring import evaluation_of

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
    parser = options(__doc__ or "", "study", STUDIES)
    found = parser.parse_args(arguments)
    require_known(parser, "study", found.asked, STUDIES)
    print_table(found.out) if found.table else run(found)


if __name__ == "__main__":
    main()
