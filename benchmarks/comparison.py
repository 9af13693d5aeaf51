"""BFTQ against what else one could do: trains all of it on the same episodes, and measures it.

    python benchmarks/comparison.py --seeds 0:5 --workers 2 --out out/comparison
    python benchmarks/comparison.py --out out/comparison --table

For each task and seed the preset explores; every method learns from those 5,000 episodes, and is
measured as it is and after it was calibrated. Finished rows are kept and not done again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from measuring import (
    add_row,
    do_all,
    measured,
    move_errors,
    on_device,
    optimum_of,
    options,
    require_known,
    rows_of,
)

CONFIDENCE = 0.95
SCRIPTS = {
    "corridors": ("corridors/safe", "corridors/risky"),
    "slot-filling": ("slot-filling/voice-again", "slot-filling/key-pad"),
}


@dataclass(frozen=True)
class Task:
    """A preset with settings, and the step at which the dial is moved."""

    preset: str
    settings: tuple[str, ...]
    moved_at: int


TASKS = {
    "corridors": Task("corridors", ("env.observe_time=true",), 4),
    "routes=4": Task(
        "corridors", ("env.observe_time=true", "env.routes=4", "learner.slope_cap=50"), 4
    ),
    "slot-filling": Task("slot-filling", (), 3),
}


@dataclass(frozen=True)
class Lesson:
    """What a method learns from."""

    task: str
    spec: Any  # TrainingSpec
    batch: Any
    explored: Any  # the policy that explored
    seconds: float  # of exploring
    seed: int
    device: str


@dataclass(frozen=True)
class Learned:
    """A policy, how many regressions it has, and what it took."""

    policy: Any
    n_models: int
    seconds: float
    n_more: int = 0  # episodes that were played to choose it


def spec_of(task: Task) -> Any:
    """Settings of a task."""
    import bmdp
    from bmdp.learn.spec_files import with_setting

    spec = bmdp.preset(task.preset)
    for setting in task.settings:
        spec = with_setting(spec, setting)
    return spec


def _bftq(lesson: Lesson) -> Learned:
    """Ours, with the settings of the preset."""
    config = lesson.spec.learner
    return Learned(lesson.explored, _n_models(config, lesson), lesson.seconds)


def _paper_bftq(lesson: Lesson) -> Learned:
    """The paper's network and rules."""
    import bmdp

    config = bmdp.preset(f"paper-{lesson.spec.env.id}").learner
    return _fitted(lesson, bmdp.BFTQ(config), 1)


def _priced(lesson: Lesson, **changes: Any) -> Any:
    """Settings for prices with those of the preset that they share."""
    from bmdp import LagrangianConfig
    from bmdp.learn.fit_config import FitConfig

    shared = {f.name: getattr(lesson.spec.learner, f.name) for f in fields(FitConfig)}
    return LagrangianConfig(**shared | {"refinements": 2, "sharing": "all"} | changes)


def _lagrangian(**changes: Any) -> Callable[[Lesson], Learned]:
    """Prices, played in one of several ways."""

    def learn(lesson: Lesson) -> Learned:
        import bmdp

        config = _priced(lesson, **changes)
        found = _fitted(lesson, bmdp.LagrangianFTQ(config), 0)
        n_prices = _n_prices(found.policy) if config.sharing == "none" else 1
        return replace(found, n_models=n_prices * _n_models(config, lesson))

    return learn


def _networks(lesson: Lesson) -> Learned:
    """The paper's FTQ(lambda): a network for each of its prices, and the curve by rollouts."""
    import bmdp
    from bmdp import LagrangianConfig
    from bmdp.evaluate import measure_portfolio

    ftq = bmdp.preset(f"paper-{lesson.spec.env.id}-ftq").learner
    scale = 1.0 if lesson.task == "slot-filling" else 5.0
    prices = tuple(scale * price for price in (0, 15, 20, 25, 30, 35, 40, 60))
    regression = replace(ftq.regression, stop_loss=None)
    config = LagrangianConfig(
        gamma=ftq.gamma,
        prices=prices,
        model=ftq.model,
        regression=regression,
        iterations=ftq.iterations,
        valuation="self",
    )
    begin = time.perf_counter()
    policy = on_device(_fitted(lesson, bmdp.LagrangianFTQ(config), 0).policy, lesson.device)
    policy = measure_portfolio(policy, lesson.spec.env.spec(), n_episodes=1000, seed=lesson.seed)
    more = 1000 * len(prices)
    return Learned(policy, len(prices), time.perf_counter() - begin, more)


def _ridge(lesson: Lesson) -> Learned:
    """Ridge regression on the numbers of the state, step by step."""
    from bmdp.models import LinearModel

    changes = {"model": LinearModel(), "stages": "own", "valuation": "self", "acting": "average"}
    return _lagrangian(**changes, sharing="none")(lesson)


def _scripted(lesson: Lesson) -> Learned:
    """A coin between two rules written by hand, whose costs were measured."""
    from bmdp.envs import ScriptedPolicy
    from bmdp.evaluate import measure_portfolio
    from bmdp.policies import Portfolio

    begin = time.perf_counter()
    safe, risky = (ScriptedPolicy(name) for name in SCRIPTS[lesson.task])
    env = lesson.spec.env
    if env.id == "slot-filling":  # the rules read the paper's features
        env = replace(env, settings={**env.settings, "features": "paper"})
    coin = measure_portfolio(
        Portfolio.coin(safe, risky, 0.0, 1.0), env.spec(), n_episodes=1000, seed=lesson.seed
    )
    return Learned(coin, 0, time.perf_counter() - begin, 2000)


METHODS: dict[str, Callable[[Lesson], Learned]] = {
    "BFTQ": _bftq,
    "BFTQ, paper": _paper_bftq,
    "FTQ(lambda), paper": _networks,
    "FTQ(lambda), mixture": _lagrangian(),
    "coin": _lagrangian(prices=(math.inf, 0.0), refinements=0),
    "multiplier": _lagrangian(plays="carried"),
    "switching": _lagrangian(plays="switching", refinements=0),
    "ridge, stages": _ridge,
    "scripted": _scripted,
}
ON_GPU_ONLY = ("BFTQ, paper", "FTQ(lambda), paper")


def _fitted(lesson: Lesson, learner: Any, n_models: int) -> Learned:
    begin = time.perf_counter()
    policy = learner.fit(lesson.batch, seed=lesson.seed, device=lesson.device)
    return Learned(policy, n_models, time.perf_counter() - begin)


def _n_models(config: Any, lesson: Lesson) -> int:
    """Regressions that are kept: one, or one for each step, of each model that acts."""
    n_steps = int(lesson.batch.step.max()) + 1 if config.stages != "none" else 1
    n_acting = 1 if config.acting == "pooled" else config.n_models
    return n_steps * n_acting


def _n_prices(policy: Any) -> int:
    from bmdp.policies import Portfolio

    dial: Any = policy.policies[0] if isinstance(policy, Portfolio) else policy.dial
    return len(dial.at_step(0).prices)


@dataclass(frozen=True)
class Job:
    """One task and seed, and the methods to do."""

    task: str
    seed: int
    methods: tuple[str, ...]
    n_tests: int
    n_calibrating: int
    device: str
    out: str
    settings: tuple[str, ...] = ()


def do(job: Job) -> None:
    """Explores, trains and measures, and writes a line for each method."""
    import torch

    import bmdp
    from bmdp.learn.spec_files import with_setting

    torch.set_num_threads(1)
    task = TASKS[job.task]
    spec = spec_of(task)
    for setting in job.settings:
        spec = with_setting(spec, setting)
    begin = time.perf_counter()
    result = bmdp.explore(spec, seed=job.seed, device=job.device)
    seconds = time.perf_counter() - begin
    lesson = Lesson(job.task, spec, result.batch, result.policy, seconds, job.seed, job.device)
    for name in job.methods:
        row = _row(job, lesson, task, METHODS[name](lesson))
        add_row(job.out, {"task": job.task, "method": name, "seed": job.seed, **row})
        print(job.task, name, job.seed, f"{row['train_seconds']:.0f} s", flush=True)


def _row(job: Job, lesson: Lesson, task: Task, learned: Learned) -> dict[str, Any]:
    """What a policy does, as it is and calibrated."""
    import bmdp
    from bmdp import BmdpError

    env = lesson.spec.env
    if env.id == "slot-filling" and learned.n_models == 0:
        env = replace(env, settings={**env.settings, "features": "paper"})
    policy = on_device(learned.policy, job.device)
    how = {"n_tests": job.n_tests, "seed": 1000 + job.seed}
    row = {
        "train_seconds": learned.seconds,
        "n_models": learned.n_models,
        "n_more": learned.n_more,
        **measured(policy, env, **how, moved_at=task.moved_at),
    }
    if job.n_calibrating:
        try:
            calibrated = bmdp.calibrate(
                policy,
                env.spec(),
                confidence=CONFIDENCE,
                n_episodes=job.n_calibrating,
                seed=2000 + job.seed,
                budgets=np.linspace(0, 1, 11),
            )
        except BmdpError as error:
            return row | {"calibrated": {"error": str(error)}}
        row["calibrated"] = {
            "smallest": calibrated.certificate.smallest_budget,
            **measured(calibrated, env, **how),
        }
    return row


def run(arguments: argparse.Namespace) -> None:
    """Does what is not done yet, several tasks and seeds at a time."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    done = {(r["task"], r["method"], r["seed"]) for r in rows_of(arguments.out)}
    first, _, last = arguments.seeds.partition(":")
    methods = [m for m in METHODS if not arguments.only or m in arguments.only]
    if arguments.device == "cpu":
        methods = [m for m in methods if m not in ON_GPU_ONLY or arguments.only]
    jobs = []
    for task in arguments.asked or TASKS:
        for seed in range(int(first), int(last)):
            able = [m for m in methods if m != "scripted" or task in SCRIPTS]
            left = tuple(m for m in able if (task, m, seed) not in done)
            if left:
                how = (arguments.tests, arguments.calibrating, arguments.device)
                jobs.append(Job(task, seed, left, *how, str(arguments.out), tuple(arguments.set)))
    do_all(do, jobs, arguments.workers)


def summary(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """What rows say of each task and method; lists have a number for each seed."""
    from bmdp.evaluate import Evaluation, measure_dial

    rows = sorted(rows_of(folder), key=lambda row: row["seed"])
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for task in dict.fromkeys(row["task"] for row in rows):
        optimum = optimum_of(spec_of(TASKS[task]).env, folder)
        found[task] = {}
        for method in METHODS:
            group = [r for r in rows if (r["task"], r["method"]) == (task, method)]
            if not group:
                continue
            reports = [measure_dial(Evaluation(**r["evaluation"]), optimum) for r in group]
            errors = [move_errors(row) for row in group]
            found[task][method] = {
                "seeds": [row["seed"] for row in group],
                "score": [report.mean_score for report in reports],
                "worst_overshoot": [report.worst_overshoot for report in reports],
                "dial_error": [report.mean_dial_error for report in reports],
                "moved_overshoot": [float(e.max()) for e in errors if e.size],
                "moved_error": [float(np.abs(e).mean()) for e in errors if e.size],
                "seconds": float(np.mean([row["train_seconds"] for row in group])),
                "models": group[0]["n_models"],
                "more_episodes": group[0]["n_more"],
                "calibrated": _calibrated(group, reports, optimum),
            }
    return found


def _calibrated(rows: list[dict[str, Any]], before: list[Any], optimum: Any) -> dict[str, Any]:
    """The same after calibrating, and before, from the smallest certified budget on."""
    from bmdp.evaluate import Evaluation, measure_dial

    names = ("seeds", "smallest", "score", "score_before", "overshoot", "overshoot_before")
    found: dict[str, list[float]] = {name: [] for name in names}
    for row, as_it_was in zip(rows, before, strict=True):
        one = row.get("calibrated", {})
        if "evaluation" not in one:
            continue
        report = measure_dial(Evaluation(**one["evaluation"]), optimum)
        certified = report.budgets >= one["smallest"]
        scores, overshoots = zip(*(_there(r, certified) for r in (report, as_it_was)), strict=True)
        values = (row["seed"], one["smallest"], *scores, *overshoots)
        for name, value in zip(names, values, strict=True):
            found[name].append(value)
    return found


def _there(report: Any, where: Any) -> tuple[float, float]:
    """Mean score and worst overshoot at some of the budgets."""
    return float(report.score[where].mean()), float(report.overshoot[where].max())


def print_table(folder: Path) -> None:
    """Prints a table for each task, and writes `summary.json`."""
    found = summary(folder)
    (folder / "summary.json").write_text(json.dumps(_rounded(found), indent=1) + "\n")
    columns = ("method", "seeds", "score", "between seeds", "worst overshoot", "dial error")
    more = ("moved", "seconds", "models", "calibrated: from", "score", "worst overshoot")
    for task, methods in found.items():
        print(f"\n### {task}\n")
        print("| " + " | ".join((*columns, *more)) + " |")
        print("|---" * (len(columns) + len(more)) + "|")
        for method, one in methods.items():
            print("| " + " | ".join((method, *_cells(one))) + " |")


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    """Means over seeds, how much seeds differ, and the worst of them."""
    from bmdp.evaluate import seed_interval

    scores = np.array(one["score"])
    half, deviation, moved = "", "-", "-"
    if len(scores) > 1:
        interval = seed_interval(scores[:, None], confidence=0.95)
        half = f" +- {float(interval.high[0] - scores.mean()):.3f}"
        deviation = f"{scores.std(ddof=1):.3f}"
    if one["moved_error"]:
        moved = f"{max(one['moved_overshoot']):.3f}, {np.mean(one['moved_error']):.4f}"
    after = one["calibrated"]
    certified = ("-", "-", "-")
    if after["seeds"]:
        certified = (
            f"{np.mean(after['smallest']):.3f}",
            f"{np.mean(after['score_before']):.3f} to {np.mean(after['score']):.3f}",
            f"{max(after['overshoot_before']):.3f} to {max(after['overshoot']):.3f}",
        )
    return (
        *(str(len(scores)), f"{scores.mean():.3f}{half}", deviation),
        *(f"{max(one['worst_overshoot']):.3f}", f"{np.mean(one['dial_error']):.3f}", moved),
        *(f"{one['seconds']:.0f}", str(one["models"]), *certified),
    )


def _rounded(value: Any) -> Any:
    """The same with five decimals."""
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return round(value, 5) if isinstance(value, float) else value


def main(arguments: list[str] | None = None) -> None:
    """Parses the command line."""
    parser = options(__doc__ or "", "task", TASKS)
    parser.add_argument(
        "--calibrating", type=int, default=5_000, help="episodes of each member; 0 for none"
    )
    parser.add_argument("--set", nargs="*", default=[], help="changes of the presets")
    found = parser.parse_args(arguments)
    require_known(parser, "task", found.asked, TASKS)
    require_known(parser, "method", found.only, METHODS)
    print_table(found.out) if found.table else run(found)


if __name__ == "__main__":
    main()
