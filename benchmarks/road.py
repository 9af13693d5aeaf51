"""What is learned of the two-way road, by ways to explore, numbers of episodes and regressors.

    python benchmarks/road.py run budgets-1500 prices-1500 --seeds 100:110 --workers 2 --out FOLDER
    python benchmarks/road.py keep FOLDER ...     # into benchmarks/results/road/record.json
    python benchmarks/road.py page                # tables of docs/paper/driving.md
    python benchmarks/road.py page --check        # whether the page has them

A lesson is a way to explore and a number of episodes, such as `prices-5000`; with a third word, the
features that are seen: `budgets-1500-kinematics`. `fit-1500` is `bmdp.fit` with so many episodes in
all, and `fit` its default call. Every method learns from all episodes of a lesson. Rewards are
compared with those of the replanning driver at the same cost.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measuring import add_row, do_all, rows_of
from tables import ROOT, markdown, write_page

import bmdp
from bmdp.data import TransitionBatch
from bmdp.envs.two_way import known_curve
from bmdp.evaluation.dial import dial_measures
from bmdp.frontier import Frontier, upper_frontier
from bmdp.learn.candidates import Dial, Lesson, Recipe, averaged, learned
from bmdp.learn.learners import BFTQ, BFTQConfig, LagrangianConfig, of_kind
from bmdp.learn.natures import nature_of
from bmdp.learn.presets import preset
from bmdp.learn.runs import machine
from bmdp.learn.spec import EnvConfig, TrainingSpec
from bmdp.models import ForestModel, KernelModel, Regressor
from bmdp.paper.driving import explored_for
from bmdp.paper.pricing import found_prices
from bmdp.paper.published import published_curve
from bmdp.policies import MultiplierPolicy, PriceDial
from bmdp.report.section import Column, Table

RECORD = ROOT / "benchmarks/results/road/record.json"
SETTINGS = ROOT / "benchmarks/results/road/paper-settings.json"
"""The paper's network, with what is known of its settings changed one by one."""

PAGE = ROOT / "docs/paper/driving.md"
BUDGETS = (0.0, 0.025, 0.05, 0.075, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6)
COSTS = (0.05, 0.1, 0.15, 0.2, 0.3)
ROUNDS = 6
GAMMA = 0.9
"""Of the road."""

FEATURES = ("kinematics", "time-to-collision", "full")
QUICK = ForestModel(10)
"""The regressor of explorers."""

MODELS: dict[str, Regressor] = {
    "forest": ForestModel(),
    "regrown forest": ForestModel(regrown=True),
    "kernel": KernelModel(),
}
"""Regressors that learn prices."""


@dataclass(frozen=True)
class Asked:
    """A lesson of one seed."""

    name: str
    seed: int
    n_tests: int
    folder: str

    @property
    def words(self) -> tuple[str, int | None, str]:
        """How it is explored, by how many episodes, and what is seen."""
        way, _, rest = self.name.partition("-")
        number, _, features = rest.partition("-")
        return way, int(number) if number else None, features or "full"


def spec_of(way: str, n_episodes: int, features: str) -> TrainingSpec:
    """Returns settings that explore by budgets, or by prices."""
    spec = explored_for(ROUNDS, n_episodes // ROUNDS, features)
    budgeted = replace(spec.learner, model=QUICK)
    learner = budgeted if way == "budgets" else of_kind(budgeted, LagrangianConfig)
    return replace(spec, learner=learner)


def measured(policy: Any, env: EnvConfig, asked: Asked) -> dict[str, Any]:
    """Returns what a policy pays and earns at budgets."""
    how: dict[str, Any] = {"n_episodes": asked.n_tests, "seed": asked.seed + 1}
    found = bmdp.evaluate(policy, env.spec(), budgets=BUDGETS, **how)
    return {
        "cost": found.discounted_cost_mean.round(6).tolist(),
        "reward": found.discounted_reward_mean.round(5).tolist(),
    }


def ways_to_learn(batch: TransitionBatch, seed: int) -> dict[str, Callable[[], tuple[Any, float]]]:
    """Returns methods by name: each learns a policy, and tells its seconds."""
    lesson = Lesson(batch, nature_of(batch, GAMMA), GAMMA, seed, "cpu")
    prices = np.array(found_prices(batch, GAMMA, seed=seed, device="cpu"))
    kept: dict[str, Dial] = {}

    def dial(name: str) -> Dial:
        if name not in kept:
            kept[name] = learned(Recipe(name, MODELS[name]), lesson, prices)
        return kept[name]

    def priced(*names: str) -> tuple[Any, float]:
        found = dial(names[0])
        if len(names) > 1:
            found = averaged(found, dial(names[1]))
        assert isinstance(found.policy, PriceDial)
        return MultiplierPolicy(found.policy, 0.0, 1.0), sum(dial(n).seconds for n in names)

    def budgeted() -> tuple[Any, float]:
        begin, config = time.perf_counter(), preset("two-way").learner
        assert isinstance(config, BFTQConfig)
        policy = BFTQ(config).fit(batch, seed=seed, device="cpu")
        return policy, time.perf_counter() - begin

    return {
        "prices, forest": partial(priced, "forest"),
        "prices, regrown forest": partial(priced, "regrown forest"),
        "prices, kernel": partial(priced, "kernel"),
        "prices, regrown forest + kernel": partial(priced, "regrown forest", "kernel"),
        "BFTQ, regrown forest": budgeted,
    }


def study(asked: Asked) -> None:
    """Explores, learns by all methods that are not there yet, and keeps what each comes to."""
    way, n_episodes, features = asked.words
    env = EnvConfig("two-way", {"features": features, "observe_time": True})
    done = {r["method"] for r in rows_of(asked.folder) if _is_of(r, asked)}
    where = machine()
    row = {"lesson": asked.name, "seed": asked.seed, "n_tests": asked.n_tests}
    row["machine"] = f"{where.get('cores')} cores of {where.get('processor')}"
    if way == "fit":
        if not done:
            begin = time.perf_counter()
            fitted = bmdp.fit(env.spec(), seed=asked.seed, episodes=n_episodes, device="cpu")
            seconds = time.perf_counter() - begin
            taken = {"taken": fitted.candidates[0].name}
            found = measured(fitted.policy, env, asked) | taken
            add_row(asked.folder, row | {"method": "bmdp.fit", "seconds": seconds} | found)
        return
    assert n_episodes is not None
    begin = time.perf_counter()
    explored = bmdp.explore(spec_of(way, n_episodes, features), seed=asked.seed, device="cpu")
    exploring = time.perf_counter() - begin
    for name, learn in ways_to_learn(explored.batch, asked.seed).items():
        if name not in done:
            policy, seconds = learn()
            told = {"method": name, "seconds": seconds, "exploring": exploring}
            add_row(asked.folder, row | told | measured(policy, env, asked))


def _is_of(row: Mapping[str, Any], asked: Asked) -> bool:
    return (row["lesson"], row["seed"]) == (asked.name, asked.seed)


def curve_of(row: Mapping[str, Any]) -> Frontier:
    """The best mixtures of what was measured at budgets."""
    return upper_frontier(np.array(row["cost"]), np.array(row["reward"]))


def shares(row: Mapping[str, Any], best: Frontier) -> list[float]:
    """Rewards at costs as shares of the best; NaN at costs below the least one."""
    curve = curve_of(row)
    return [
        float(curve.reward_at(c) / best.reward_at(c)) if c >= curve.costs[0] else np.nan
        for c in COSTS
    ]


def lesson_table(rows: Sequence[Mapping[str, Any]], lessons: Sequence[str]) -> Table:
    """Returns a line for each lesson and method: shares at costs, least cost, overshoot, error."""
    best = known_curve("replanning").frontier
    keys = list(dict.fromkeys((r["lesson"], r["method"]) for r in rows if r["lesson"] in lessons))
    keys.sort(key=lambda key: lessons.index(key[0]))
    groups = [[r for r in rows if (r["lesson"], r["method"]) == key] for key in keys]
    columns: list[list[Any]] = [[] for _ in range(len(COSTS) + 6)]
    for group in groups:
        every = np.array([shares(row, best) for row in group])
        reports = [dial_measures(np.array(BUDGETS), *_points(row), best) for row in group]
        over = np.array([report.overshoot.max() for report in reports])
        values = [
            len(group),
            *(None if np.isnan(share) else float(share) for share in every.mean(axis=0)),
            float(np.mean([min(row["cost"]) for row in group])),
            float(np.mean([report.score.mean() for report in reports])),
            float(max(0.0, over.mean())),
            float(np.mean([report.dial_error.mean() for report in reports])),
            float(np.mean([row["seconds"] for row in group])),
        ]
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    names = ["seeds", *(f"{c:g}" for c in COSTS), "least cost", "score", "overshoot"]
    forms = ["d", *(".3f" for _ in COSTS), ".3f", ".3f", ".3f", ".3f", ".0f"]
    named = zip([*names, "dial error", "seconds"], columns, forms, strict=True)
    return Table(
        "road",
        "",
        [
            Column("episodes", [key[0] for key in keys], "s"),
            Column("learned by", [key[1] for key in keys], "s"),
            *(Column(name, values, form) for name, values, form in named),
        ],
    )


def _points(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return np.array(row["cost"]), np.array(row["reward"])


TABLES = {
    "road: paper": ("budgets-1500", "prices-1500", "fit-1500"),
    "road: sizes": ("budgets-5000", "prices-5000", "budgets-20000", "prices-20000", "fit"),
    "road: features": tuple(f"budgets-1500-{name}" for name in FEATURES[:2]),
}
"""Lessons of each table of the page; those without a record are left out."""


def settings_table(record: Mapping[str, Any]) -> Table:
    """Returns reward at cost by budget, for each change of the paper's settings and each seed."""
    rows, published = record["rows"], published_curve("highway", "BFTQ")
    shown = [0.0, 0.1, 0.2, 0.3, 0.4, 1.0]
    places = [int(np.abs(published.settings - budget).argmin()) for budget in shown]
    columns = []
    for budget, place in zip(shown, places, strict=True):
        cells = [_point(published.reward.mean[place], published.cost.mean[place])]
        for row in rows:
            at = row["budgets"].index(budget)
            cells.append(_point(row["reward"][at], row["cost"][at]))
        columns.append(Column(f"{budget:g}", cells, "s"))
    changed = Column("changed", ["(published)", *(row["changed"] for row in rows)], "s")
    return Table("settings", "", [changed, Column("seed", _seeds(rows), "s"), *columns])


def _seeds(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return ["", *(str(row["seed"]) for row in rows)]


def _point(reward: float, cost: float) -> str:
    return f"{reward:.2f} at {cost:.3f}"


def page_tables(record: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns the tables of the page, by the names of their places."""
    there = {row["lesson"] for row in record["rows"]}
    found = {"road: settings": markdown(settings_table(settings))}
    for name, lessons in TABLES.items():
        if there & set(lessons):
            found[name] = markdown(lesson_table(record["rows"], lessons))
    return found


def keep(folders: Sequence[Path]) -> None:
    """Adds what was measured to the record; a lesson, seed and method is there once."""
    rows = json.loads(RECORD.read_text())["rows"] if RECORD.exists() else []
    for folder in folders:
        rows += rows_of(folder)
    every = {(r["lesson"], r["seed"], r["method"]): r for r in rows}
    record = {"budgets": list(BUDGETS), "rows": [every[k] for k in sorted(every)]}
    text = json.dumps(record, separators=(",", ":")).replace('{"lesson":', '\n{"lesson":')
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(text + "\n")


def main(arguments: list[str] | None = None) -> None:
    """Runs lessons, keeps what they came to, or writes the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(required=True, dest="command")
    running = commands.add_parser("run")
    running.add_argument("lessons", nargs="+")
    running.add_argument("--seeds", default="100:110", help="first:last, without the last")
    running.add_argument("--tests", type=int, default=1_000, help="test episodes a budget")
    running.add_argument("--workers", type=int, default=2)
    running.add_argument("--out", type=Path, required=True)
    keeping = commands.add_parser("keep")
    keeping.add_argument("folders", type=Path, nargs="+")
    paging = commands.add_parser("page")
    paging.add_argument("--check", action="store_true")
    asked = parser.parse_args(arguments)
    if asked.command == "keep":
        keep(asked.folders)
    elif asked.command == "page":
        tables = page_tables(*(json.loads(path.read_text()) for path in (RECORD, SETTINGS)))
        write_page(PAGE, tables, "python benchmarks/road.py page", is_check=asked.check)
    else:
        asked.out.mkdir(parents=True, exist_ok=True)
        first, _, last = asked.seeds.partition(":")
        jobs = [
            Asked(lesson, seed, asked.tests, str(asked.out))
            for lesson in asked.lessons
            for seed in range(int(first), int(last))
        ]
        do_all(study, jobs, asked.workers)


if __name__ == "__main__":
    main()
