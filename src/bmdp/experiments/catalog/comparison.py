"""Comparison: BFTQ against what else one could do, all learned from the same episodes.

    FOLDER/truth/truth-TASK.json            the true frontier of a task
    FOLDER/TASK/seed-N/                     a training run: the exploration that all learn from
    FOLDER/TASK/seed-N/method-NAME.json     one method

TASK is "corridors" (with the time in the state), "routes-4" or "slot-filling"; NAME is a key of
`METHODS` in `bmdp.experiments.parts.rivals`, and `comparison_summary` beside it makes table rows.

truth-TASK.json: `costs` and `rewards` of the frontier, `reward_error`, `settings`.
method-NAME.json: `method` (title), `task`, `seed`; `n_models` (regressions that are kept), `n_more`
    (episodes played to choose it, beside those it learned from); `evaluation` (fields of
    `bmdp.Evaluation`, `env`, `env_settings`); `moved`, a list of what follows when the dial is
    moved in the middle, one for each first budget: `from`, `budgets` (new ones), `going` (share of
    episodes not over by then), `infeasible`, `cost`, `reward` (null if none goes on) and `ideal`
    (cost of an honest dial; null where it is not known); `calibrated`: null, or `error`, or
    `certificate` (`confidence`, `n_episodes` of each member, `smallest_budget`, and of each member
    `cost_mean`, `cost_high`, `reward_mean`; `text`) and `evaluation`; `seconds`: `train`, `test`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bmdp.experiments.experiment import Experiment, Work
from bmdp.experiments.parts.comparing import TASKS, Measuring, lesson_of, method_piece, task_truth
from bmdp.experiments.parts.rivals import METHODS, WITH_NETWORKS


@dataclass(frozen=True)
class ComparisonSettings:
    """What is compared.

    Args:
        n_seeds: that it is done with, unless others are asked for.
        tasks: that are explored.
        methods: that learn.
        changes: of the settings of all tasks.
        measuring: how much is measured.
    """

    n_seeds: int
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    changes: tuple[str, ...]
    measuring: Measuring


def truth(settings: ComparisonSettings, work: Work) -> None:
    """Computes the true frontiers."""
    for name in settings.tasks:
        work.piece(f"truth-{name}", partial(task_truth, name, settings.measuring))


def task_part(task: str) -> Callable[[ComparisonSettings, Work], None]:
    """Returns the part of a task: explores once, then does one method after the other."""

    def part(settings: ComparisonSettings, work: Work) -> None:
        if task not in settings.tasks:
            return
        lesson = lesson_of(task, settings.changes, work)
        for name in settings.methods:
            tasks = METHODS[name].tasks
            if not tasks or task in tasks:
                make = partial(method_piece, name, lesson, settings.measuring)
                work.piece(f"method-{name}", make)

    return part


_WITHOUT_NETWORKS = tuple(name for name in METHODS if name not in WITH_NETWORKS)

EXPERIMENT = Experiment(
    name="comparison",
    title="BFTQ against other ways to spend a budget",
    question=(
        "From the same episodes, which way to spend a budget earns most, keeps to it, and follows "
        "a dial that is moved?"
    ),
    parts={name: task_part(name) for name in TASKS},
    presets={
        "smoke": ComparisonSettings(
            n_seeds=2,
            tasks=("corridors", "slot-filling"),
            methods=("bftq", "coin", "scripted"),
            changes=(
                *("exploration.rounds=2", "exploration.episodes=60", "learner.ensemble=2"),
                *("learner.n_budgets=5", "learner.model.centres=20"),
                *("learner.model.lengths=[2.0]", "learner.model.ridges=[0.1]"),
            ),
            measuring=Measuring(60, 60, resolution=5, bins=2, n_budgets=6),
        ),
        "quick": ComparisonSettings(
            n_seeds=2,
            tasks=("corridors", "slot-filling"),
            methods=_WITHOUT_NETWORKS,
            changes=(
                *("exploration.rounds=6", "learner.ensemble=3", "learner.n_budgets=11"),
                *("learner.model.centres=150", "learner.model.lengths=[0.35, 0.6, 1.0, 2.0, 4.0]"),
                "learner.model.ridges=[0.001, 0.01, 0.1]",
            ),
            measuring=Measuring(1_000, 1_000, resolution=17),
        ),
        "paper": ComparisonSettings(
            n_seeds=5,
            tasks=tuple(TASKS),
            methods=tuple(METHODS),
            changes=(),
            measuring=Measuring(20_000, 5_000),
        ),
        "best": ComparisonSettings(
            n_seeds=5,
            tasks=tuple(TASKS),
            methods=_WITHOUT_NETWORKS,
            changes=(),
            measuring=Measuring(20_000, 5_000),
        ),
    },
    common={"truth": truth},
)
