"""BFTQ against what else one could do, all learned from the same episodes.

    FOLDER/truth/truth-TASK.json            the true frontier of a task
    FOLDER/TASK/seed-N/                     a training run: the exploration that all learn from
    FOLDER/TASK/seed-N/method-NAME.json     one method

TASK is a key of `TASKS`, NAME one of `METHODS` in `bmdp.paper.rivals`.

method-NAME.json: `method` (title), `task`, `seed`; `n_models` (regressions that are kept), `n_more`
    (episodes played to choose it, beside those it learned from); `evaluation`; `moved`, as `moves`
    has it; `calibrated`: null, or `error`, or `certificate` (`confidence`, `n_episodes` of each
    member, `smallest_budget`, and of each member `cost_mean`, `cost_high`, `reward_mean`; `text`)
    and `evaluation`; `seconds`: `train`, `test`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from bmdp.envs import Corridors, corridors, slot_filling, two_way
from bmdp.envs.corridors.frontier import Grid, corridors_grid, cost_range
from bmdp.envs.tasks import TrueFrontier
from bmdp.errors import BmdpError
from bmdp.evaluation import DialReport, Evaluation, evaluate_move, measure_dial, seed_interval
from bmdp.frontier import Frontier
from bmdp.learn.collect import collect
from bmdp.learn.presets import preset
from bmdp.learn.runs import RunFolder
from bmdp.learn.spec import EnvConfig, TrainingSpec, with_setting
from bmdp.paper import measuring, training
from bmdp.paper.results import Results, evaluation_of, truth_of
from bmdp.paper.rivals import METHODS, WITH_NETWORKS, Lesson, scripted_env
from bmdp.paper.runner import Piece, Work
from bmdp.policies.policy import BudgetedPolicy
from bmdp.report import drawing as ink
from bmdp.report.curves import Drawn, Style, trade_off_figure
from bmdp.report.drawing import new_figure, tidy
from bmdp.report.section import Column, Data, Picture, Section, Table
from bmdp.report.series import budget_curve

TITLE = "BFTQ against other ways to spend a budget"
QUESTION = (
    "From the same episodes, which way to spend a budget earns most, keeps to it, and follows a "
    "dial that is moved?"
)


@dataclass(frozen=True)
class ComparedTask:
    """A task that is explored."""

    preset: str  # of training
    settings: tuple[str, ...]  # changes of it
    moved_at: int  # step at which the dial is moved


TASKS = {
    "corridors": ComparedTask("corridors", ("env.observe_time=true",), 4),
    "routes-4": ComparedTask("corridors", ("env.observe_time=true", "env.routes=4"), 4),
    "slot-filling": ComparedTask("slot-filling", (), 3),
    "two-way": ComparedTask("two-way", ("exploration.episodes=150", "exploration.decay=0.003"), 5),
}

PARTS, COMMON = tuple(TASKS), ("truth",)

CONFIDENCE = 0.95  # of a calibrated dial

FIRST_BUDGETS, NEW_BUDGETS = (0.0, 0.5, 1.0), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Budgets before and after the dial is moved."""

_FINEST_ROUTES = 17  # resolution of the grid, where there are more corridors

_STYLES = {
    "bftq": Style(ink.BLUE, "^"),
    "bftq-paper": Style(ink.SKY, "^"),
    "ftq-paper": Style(ink.ORANGE, "v"),
    "ftq-mixture": Style(ink.RED, "v"),
    "coin": Style(ink.GREEN, "o"),
    "multiplier": Style(ink.PURPLE, "s"),
    "switching": Style(ink.GREY, "P"),
    "ridge": Style(ink.GREEN, "X"),
    "scripted": Style(ink.BLACK, "D"),
}


@dataclass(frozen=True)
class Measuring:
    """Numbers of episodes and budgets."""

    n_tests: int  # episodes a budget; a quarter for each pair of budgets of a moved dial
    n_calibrating: int  # episodes of each member of a calibrated policy; 0 for no calibration
    resolution: int = 33  # nodes along a cell of corridors, for true frontiers and ideal costs
    n_budgets: int = 11  # from 0 to 1, at which methods are measured

    @property
    def budgets(self) -> tuple[float, ...]:
        """At which methods are measured, and of the members of calibrated policies."""
        return measuring.evenly(self.n_budgets)


@dataclass(frozen=True)
class ComparisonSettings:
    """Settings of the experiment."""

    n_seeds: int
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    changes: tuple[str, ...]  # of the settings of all tasks
    measuring: Measuring


_TWO_TASKS = ("corridors", "slot-filling")
_WITHOUT_NETWORKS = tuple(name for name in METHODS if name not in WITH_NETWORKS)

SETTINGS = {
    "smoke": ComparisonSettings(
        n_seeds=2,
        tasks=_TWO_TASKS,
        methods=("bftq", "coin", "scripted"),
        changes=(
            *("exploration.rounds=2", "exploration.episodes=60", "learner.ensemble=2"),
            *("learner.n_budgets=5", "learner.model.centres=20"),
            *("learner.model.lengths=[2.0]", "learner.model.ridges=[0.1]"),
        ),
        measuring=Measuring(60, 60, resolution=5, n_budgets=6),
    ),
    "quick": ComparisonSettings(
        n_seeds=2,
        tasks=_TWO_TASKS,
        methods=_WITHOUT_NETWORKS,
        changes=(
            *("exploration.rounds=6", "learner.ensemble=3", "learner.n_budgets=11"),
            *("learner.model.centres=150", "learner.model.lengths=[0.35, 0.6, 1.0, 2.0, 4.0]"),
            "learner.model.ridges=[0.001, 0.01, 0.1]",
        ),
        measuring=Measuring(1_000, 1_000, resolution=17),
    ),
    "paper": ComparisonSettings(5, tuple(TASKS), tuple(METHODS), (), Measuring(20_000, 5_000)),
    "best": ComparisonSettings(5, tuple(TASKS), _WITHOUT_NETWORKS, (), Measuring(5_000, 5_000)),
}


def run(settings: ComparisonSettings, work: Work) -> None:
    """Computes true frontiers; or explores a task once, then does one method after the other."""
    if work.part == "truth":
        for name in settings.tasks:
            work.piece(f"truth-{name}", partial(task_truth, name, settings.measuring))
    elif work.part in settings.tasks:
        lesson = lesson_of(work.part, settings.changes, work)
        for name in settings.methods:
            tasks = METHODS[name].tasks
            if not tasks or work.part in tasks:
                make = partial(method_piece, name, lesson, settings.measuring)
                work.piece(f"method-{name}", make)


def spec_of(task: ComparedTask, changes: tuple[str, ...] = ()) -> TrainingSpec:
    """Returns the settings of a task, with further changes."""
    spec = preset(task.preset)
    for setting in (*task.settings, *changes):
        spec = with_setting(spec, setting)
    return spec


def lesson_of(name: str, changes: tuple[str, ...], work: Work) -> Lesson:
    """Explores a task in the folder of the work, or goes on with that."""
    spec = spec_of(TASKS[name], changes)
    policy, batch = training.trained(spec, work), training.log_of(work.folder)
    seconds = sum(float(r.get("seconds", 0)) for r in RunFolder(work.folder).records())
    return Lesson(name, spec, batch, policy, seconds, work.seed, work.device)


def method_piece(name: str, lesson: Lesson, how: Measuring) -> Piece:
    """Learns by a method, and measures it as it is and after it was calibrated."""
    learned = METHODS[name].learn(lesson)
    policy = training.playable(learned.policy, lesson.device)
    env = scripted_env(lesson.env) if name == "scripted" else lesson.env
    begin = time.perf_counter()
    seed = measuring.other_seed(lesson.seed, "comparison/test")
    asked = how.budgets, how.n_tests, seed
    piece: Piece = {
        "method": METHODS[name].title,
        "task": lesson.task,
        "seed": lesson.seed,
        "n_models": learned.n_models,
        "n_more": learned.n_more,
        "evaluation": measuring.evaluation_piece(policy, env, *asked),
        "moved": moves(
            policy,
            env,
            at_step=TASKS[lesson.task].moved_at,
            n_episodes=-(-how.n_tests // 4),
            seed=seed,
            resolution=min(how.resolution, _FINEST_ROUTES),
        ),
        "calibrated": None,
    }
    if how.n_calibrating:
        other = measuring.other_seed(lesson.seed, "comparison/calibrate")
        numbers: dict[str, Any] = {"n_episodes": how.n_calibrating, "seed": other}
        numbers["confidence"] = CONFIDENCE
        try:
            piece["calibrated"] = measuring.calibrated_piece(policy, env, asked, **numbers)
        except BmdpError as error:
            piece["calibrated"] = {"error": str(error)}
    return piece | {"seconds": {"train": learned.seconds, "test": time.perf_counter() - begin}}


def task_truth(name: str, how: Measuring) -> Piece:
    """Returns the true frontier of a task, which takes up to a minute.

    On the road it is the curve of the replanning driver.
    """
    env, _ = training.explored(spec_of(TASKS[name]))
    kept = {k: v for k, v in env.settings.items() if k not in ("observe_time", "features")}
    if env.id == "slot-filling":
        solved = slot_filling.true_frontier()
        return measuring.truth_piece(solved, {"bins": solved.settings["n_bins"]})
    if env.id == "two-way":  # what can be driven without foresight
        return measuring.truth_piece(two_way.known_curve("replanning"), {"curve": "replanning"})
    resolution = min(how.resolution, _FINEST_ROUTES) if kept else how.resolution
    is_fine = resolution >= 33  # coarser ones promise what is not earned: measured values count
    found = corridors.true_frontier(
        Corridors(**kept),
        resolution=resolution,
        n_episodes=100_000 if resolution >= _FINEST_ROUTES else 10_000,
        max_disagreement=0.003 if is_fine else 1.0,
    )
    return measuring.truth_piece(found, {"resolution": resolution, **kept})


def moves(
    policy: BudgetedPolicy,
    env: EnvConfig,
    *,
    at_step: int,
    n_episodes: int,
    seed: int,
    resolution: int = 17,
) -> list[Piece]:
    """Returns what a policy pays and earns after its dial was moved at a step.

    The resolution is of the grid on which the ideal costs of corridors are computed.

    Returns:
        For each first budget: `from`, `budgets` (the new ones), `going` (share of episodes that are
        not over at that step), `infeasible` share, `cost` and `reward` from there on (None if none
        is going on), and `ideal`, the mean cost of an honest dial, None where it is not known.
    """

    def ideal(first: float) -> list[float] | None:
        """Corridors: mean cost-to-go of an honest dial, E[clip(budget, least, most of a state)]."""
        if env.id != "corridors":
            return None
        budgets = np.full(n_episodes, first)
        batch = collect(policy, env.spec(), range(n_episodes), budgets=budgets, seed=seed)
        assert batch.step is not None
        states = np.asarray(batch.state[batch.step == at_step], np.float64)[:, :2]
        if len(states) == 0:
            return None
        ends = cost_range(_grid(tuple(sorted(env.settings.items())), resolution), states, at_step)
        return [float(np.clip(budget, *ends.T).mean()) for budget in NEW_BUDGETS]

    how: dict[str, Any] = {"new_budgets": NEW_BUDGETS, "n_episodes": n_episodes, "seed": seed}
    found = []
    for first in FIRST_BUDGETS:
        move = evaluate_move(policy, env.spec(), first_budget=first, at_step=at_step, **how)
        row: Piece = {"from": first, "budgets": list(NEW_BUDGETS), "going": move.going_share}
        for column in ("infeasible_share", "cost_mean", "reward_mean"):
            name = column.partition("_")[0]
            row[name] = None if move.n_going == 0 else getattr(move, column).tolist()
        found.append({**row, "ideal": ideal(first)})
    return found


@lru_cache(maxsize=1)  # it takes seconds, and is the same for all methods of a task
def _grid(settings: tuple[tuple[str, Any], ...], resolution: int) -> Grid:
    return corridors_grid(Corridors(**dict(settings)), resolution)


class MoveErrors(NamedTuple):
    """Distances of costs from where they should be, after the dial was moved."""

    worst: float  # paid too much, at most
    mean: float


def move_errors(found: Iterable[Sequence[Data]]) -> MoveErrors | None:
    """Returns the errors of all moves of several seeds; None if there are none.

    Where the ideal cost is not known it is the new budget, and only what is paid above it counts.
    """
    errors: list[float] = []
    for move in (move for moves in found for move in moves if move["cost"] is not None):
        is_known = move["ideal"] is not None
        off = np.subtract(move["cost"], move["ideal"] if is_known else move["budgets"])
        errors += (off if is_known else off.clip(0)).tolist()
    return MoveErrors(max(errors), float(np.abs(errors).mean())) if errors else None


class SeedOfMethod(NamedTuple):
    """A method of one seed."""

    title: str
    seed: int
    evaluation: Evaluation
    calibrated: tuple[Evaluation, float] | None  # and the smallest certified budget
    moved: Sequence[Data]  # as `moves` has it
    seconds: float  # of learning
    n_models: int  # regressions that are kept
    n_more: int  # episodes that were played to choose it


def method_of(piece: Data) -> SeedOfMethod:
    """Returns a method of one seed."""
    after, calibrated = piece["calibrated"], None
    if after is not None and "error" not in after:
        smallest = float(after["certificate"]["smallest_budget"])
        calibrated = evaluation_of(after["evaluation"]), smallest
    evaluation, seconds = evaluation_of(piece["evaluation"]), float(piece["seconds"]["train"])
    title, seed, n_models = str(piece["method"]), int(piece["seed"]), int(piece["n_models"])
    numbers = seconds, n_models, int(piece.get("n_more", 0))
    return SeedOfMethod(title, seed, evaluation, calibrated, piece["moved"], *numbers)


class CalibratedRow(NamedTuple):
    """A method before and after calibration, at budgets from the smallest certified one on."""

    smallest_budget: float  # mean over seeds
    score_before: float  # mean
    score: float
    overshoot_before: float  # worst of any budget and seed
    overshoot: float


@dataclass(frozen=True)
class MethodRow:
    """A method on a task."""

    method: str
    seeds: tuple[int, ...]
    scores: tuple[float, ...]  # of each seed
    score: float  # mean
    score_low: float | None  # of a 95 % interval over seeds; None if there is one
    score_high: float | None
    score_deviation: float | None  # between seeds
    worst_overshoot: float  # of any budget and seed
    dial_error: float  # mean
    moved: MoveErrors | None
    seconds: float  # of learning, mean
    n_models: int
    calibrated: CalibratedRow | None


def method_row(found: Sequence[SeedOfMethod], truth: Frontier) -> MethodRow:
    """Returns the row of a method, of all seeds."""
    reports = [measure_dial(one.evaluation, truth) for one in found]
    scores = np.array([report.mean_score for report in reports])
    low, high, deviation = None, None, None
    if len(found) > 1:
        interval = seed_interval(scores[:, None], confidence=CONFIDENCE)
        low, high = float(interval.low[0]), float(interval.high[0])
        deviation = float(scores.std(ddof=1))
    return MethodRow(
        method=found[0].title,
        seeds=tuple(one.seed for one in found),
        scores=tuple(scores.tolist()),
        score=float(scores.mean()),
        score_low=low,
        score_high=high,
        score_deviation=deviation,
        worst_overshoot=max(report.worst_overshoot for report in reports),
        dial_error=float(np.mean([report.mean_dial_error for report in reports])),
        moved=move_errors(one.moved for one in found),
        seconds=float(np.mean([one.seconds for one in found])),
        n_models=found[0].n_models,
        calibrated=_calibrated_row(found, reports, truth),
    )


def _calibrated_row(
    found: Sequence[SeedOfMethod], before: Sequence[DialReport], truth: Frontier
) -> CalibratedRow | None:
    rows = []
    for one, as_it_was in zip(found, before, strict=True):
        if one.calibrated is None:
            continue
        report, smallest = measure_dial(one.calibrated[0], truth), one.calibrated[1]
        certified = report.budgets >= smallest
        if certified.any():
            scores = (np.nanmean(r.score[certified]) for r in (as_it_was, report))
            overshoots = (r.overshoot[certified].max() for r in (as_it_was, report))
            rows.append((smallest, *scores, *overshoots))
    if not rows:
        return None
    columns = np.array(rows, np.float64).T
    means, worst = columns[:3].mean(axis=1), columns[3:].max(axis=1)
    return CalibratedRow(*means.tolist(), *worst.tolist())


def analyse(results: Results, anchor: str) -> Section:
    """Returns the section of a report, as far as parts are done."""
    pictures, tables, told = list[Picture](), list[Table](), list[str]()
    for task in sorted({one.part for one in results.parts if one.seed is not None}):
        each = {
            name: list(results.each(f"method-{name}", method_of, task).values()) for name in _STYLES
        }
        methods = {name: found for name, found in each.items() if found}
        truth = results.common(f"truth-{task}", truth_of)
        if not methods or truth is None:
            continue
        rows = [method_row(found, truth.frontier) for found in methods.values()]
        pictures += [_scores(anchor, task, rows), _trade_off(anchor, task, methods, truth)]
        tables.append(_table(anchor, task, rows))
        told.append(_told(task, rows))
    settings = results.settings
    how = {"n_tests": 0, "n_budgets": 0, "n_calibrating": 0, **(settings.get("measuring") or {})}
    return Section(
        anchor,
        "",
        answer=" ".join(told),
        facts={
            "Setting": f"tasks: {', '.join(settings.get('tasks') or ())}; {how['n_tests']:,} test "
            f"episodes at each of {how['n_budgets']} budgets; {how['n_calibrating']:,} episodes of "
            "each member to calibrate",
            "Bands and boxes": "Lines at scores: Student's 95 % intervals over seeds of each "
            "seed's mean score.",
        },
        pictures=pictures,
        tables=tables,
    )


def _scores(anchor: str, task: str, rows: Sequence[MethodRow]) -> Picture:
    caption = (
        "Score: reward over the best for what was allowed, or paid if that is more; mean over "
        "budgets. Squares: mean over seeds, with a 95 % interval; dots: seeds. Worst overshoot: "
        "of any budget and seed. Diamonds: after calibration, from the smallest certified budget."
    )
    alt = "; ".join(
        f"{row.method}: score {row.score:.3f}, worst overshoot {row.worst_overshoot:.3f}"
        for row in rows
    )
    title = f"Methods on {task}"
    return Picture(f"{anchor}-{task}-scores", title, caption, f"{alt}.", methods_figure(rows))


def _trade_off(
    anchor: str, task: str, methods: Mapping[str, Sequence[SeedOfMethod]], truth: TrueFrontier
) -> Picture:
    drawn = [
        Drawn(budget_curve(found[0].title, [one.evaluation for one in found]), _STYLES[name])
        for name, found in methods.items()
    ]
    error = truth.reward_error
    figure = trade_off_figure(drawn, truth.frontier, reward_error=error, has_boxes=False)
    caption = (
        "Means over seeds at each budget, all learned from the same episodes. Optimum: the true "
        f"frontier, rewards within {error:.2g}."
    )
    alt = "Reward against cost of " + ", ".join(one.curve.label for one in drawn) + "."
    title = f"Reward against cost on {task}"
    return Picture(f"{anchor}-{task}-trade-off", title, caption, alt, figure)


def _table(anchor: str, task: str, rows: Sequence[MethodRow]) -> Table:
    def column(name: str, key: str, form: str = ".3f", part: str = "") -> Column:
        """Numbers of rows, or of a part of them that may not be there."""
        found = [getattr(row, part) if part else row for row in rows]
        return Column(
            name, [getattr(one, key, None) for one in found], form, f"{part}_{key}" if part else key
        )

    half = [None if row.score_high is None else row.score_high - row.score for row in rows]
    return Table(
        f"{anchor}-{task}",
        f"Methods on {task}",
        [
            column("method", "method", "s"),
            Column("seeds", [len(row.seeds) for row in rows], "d"),
            column("score", "score"),
            Column("±", half, key="score_half_width"),
            column("between seeds", "score_deviation"),
            column("worst overshoot", "worst_overshoot"),
            column("dial error", "dial_error"),
            column("moved: worst", "worst", part="moved"),
            column("moved: mean error", "mean", ".4f", "moved"),
            column("seconds", "seconds", ".3g"),
            column("models", "n_models", "d"),
            column("certified from", "smallest_budget", part="calibrated"),
            column("score before", "score_before", part="calibrated"),
            column("calibrated: score", "score", part="calibrated"),
            column("worst overshoot before", "overshoot_before", part="calibrated"),
            column("calibrated: worst overshoot", "overshoot", part="calibrated"),
        ],
        "±: half of a 95 % interval over seeds. Moved: cost after the dial was moved in the "
        "middle, against that of an honest dial. Certified from: the smallest budget of the "
        "promise; before and calibrated: at budgets from there on.",
    )


def _told(task: str, rows: Sequence[MethodRow]) -> str:
    best = max(rows, key=lambda row: row.score)
    ours = next((row for row in rows if row.method == METHODS["bftq"].title), None)
    text = f"On {task}, {best.method} has the best score, {best.score:.3f}"
    if ours is None:
        return text + "."
    own = "" if best is ours else f"; BFTQ has {ours.score:.3f}"
    return f"{text}{own}. BFTQ exceeds a budget by {ours.worst_overshoot:.3f} at worst."


def methods_figure(rows: Sequence[MethodRow]) -> Figure:
    """Returns score and worst overshoot of methods, a line each; intervals may leave the axes.

    Dots are seeds; hollow marks are after calibration, from the smallest certified budget on.
    """
    figure = new_figure(width=7.0, height=1.1 + 0.36 * len(rows))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[1.5, 1])
    for axes, best in ((left, 1), (right, 0)):
        tidy(axes)
        axes.axvline(best, color=ink.GREY, linewidth=1, linestyle="--")
    scores = [1.0]
    for i, row in enumerate(rows):
        left.plot(row.scores, [i] * len(row.scores), "o", color=ink.SKY, markersize=4, alpha=0.8)
        if row.score_low is not None and row.score_high is not None:
            ends = [row.score_low, row.score_high]
            left.plot(ends, [i, i], color=ink.BLUE, linewidth=1.5, alpha=0.6)
        left.plot(row.score, i, "s", color=ink.BLUE)
        right.plot(row.worst_overshoot, i, "s", color=ink.BLUE)
        scores += row.scores
        if row.calibrated is not None:
            hollow: dict[str, Any] = {
                "markerfacecolor": "white",
                "color": ink.GREEN,
                "markersize": 5,
            }
            left.plot(row.calibrated.score, i, "D", **hollow)
            right.plot(row.calibrated.overshoot, i, "D", **hollow)
            scores.append(row.calibrated.score)
    margin = 0.08 * (max(scores) - min(scores)) + 0.01
    left.set_xlim(min(scores) - margin, max(scores) + margin)
    left.set_yticks(range(len(rows)), [row.method for row in rows])
    left.set_ylim(len(rows) - 0.5, -0.5)
    left.set_xlabel("score (1: optimum)")
    right.set_xlabel("worst overshoot")
    return figure
