"""Methods side by side: tasks that are explored once, and what is measured of each method."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bmdp.data import TransitionBatch
from bmdp.envs import Corridors, corridors, slot_filling
from bmdp.errors import BmdpError
from bmdp.evaluation import calibrate
from bmdp.experiments.experiment import Piece, Work
from bmdp.experiments.parts.measuring import evaluation_piece, evenly, other_seed, truth_piece
from bmdp.experiments.parts.moved_dial import moves
from bmdp.experiments.parts.rivals import METHODS, Learned, Lesson, shown_env
from bmdp.experiments.parts.training import explored, playable, rounds_of, trained
from bmdp.learn.presets import preset
from bmdp.learn.runs import RunFolder
from bmdp.learn.spec import EnvConfig, TrainingSpec, with_setting
from bmdp.policies.policy import Policy
from bmdp.policies.portfolio import Certificate

CONFIDENCE = 0.95
"""Of a calibrated dial."""

_FINEST_ROUTES = 17  # resolution of the grid, where there are more corridors


@dataclass(frozen=True)
class Task:
    """What is explored.

    Args:
        preset: settings of training.
        settings: changes of them.
        moved_at: step at which the dial is moved.
    """

    preset: str
    settings: tuple[str, ...]
    moved_at: int


TASKS = {
    "corridors": Task("corridors", ("env.observe_time=true",), 4),
    "routes-4": Task("corridors", ("env.observe_time=true", "env.routes=4"), 4),
    "slot-filling": Task("slot-filling", (), 3),
}
"""By name."""


@dataclass(frozen=True)
class Measuring:
    """How methods are measured.

    Args:
        n_tests: test episodes a budget; a quarter of it for each pair of budgets of a moved dial.
        n_calibrating: episodes of each member of a calibrated policy; 0 for no calibration.
        resolution: nodes along a cell of corridors, for true frontiers and ideal costs.
        bins: of scores, for the true frontier of slot-filling.
        n_budgets: from 0 to 1, at which methods are measured.
    """

    n_tests: int
    n_calibrating: int
    resolution: int = 33
    bins: int = 4
    n_budgets: int = 11

    @property
    def budgets(self) -> tuple[float, ...]:
        """At which methods are measured, and of the members of calibrated policies."""
        return evenly(self.n_budgets)


def spec_of(task: Task, changes: tuple[str, ...] = ()) -> TrainingSpec:
    """Returns the settings of a task, with further changes."""
    spec = preset(task.preset)
    for setting in (*task.settings, *changes):
        spec = with_setting(spec, setting)
    return spec


def lesson_of(name: str, changes: tuple[str, ...], work: Work) -> Lesson:
    """Explores a task in the folder of the work, or goes on with that."""
    spec = spec_of(TASKS[name], changes)
    policy = trained(spec, work)
    batch = TransitionBatch.concatenate(rounds_of(work.folder))
    seconds = sum(float(r.get("seconds", 0)) for r in RunFolder(work.folder).records())
    return Lesson(name, spec, batch, policy, seconds, work.seed, work.device)


def method_piece(name: str, lesson: Lesson, how: Measuring) -> Piece:
    """Learns by a method, and measures it as it is and after it was calibrated.

    Returns:
        `method` (its title), `task`, `seed`, `n_models`, `n_more`, `evaluation`, `moved`,
        `calibrated` and `seconds`, as the catalog's module has them.
    """
    learned = METHODS[name].learn(lesson)
    policy = playable(learned.policy, lesson.device)
    env = shown_env(lesson.env, policy_is_scripted=name == "scripted")
    begin = time.perf_counter()
    seed = other_seed(lesson.seed, "comparison/test")
    piece: Piece = {
        "method": METHODS[name].title,
        "task": lesson.task,
        "seed": lesson.seed,
        "n_models": learned.n_models,
        "n_more": learned.n_more,
        "evaluation": evaluation_piece(policy, env, how.budgets, how.n_tests, seed),
        "moved": moves(
            policy,
            env,
            at_step=TASKS[lesson.task].moved_at,
            n_episodes=-(-how.n_tests // 4),
            seed=seed,
            resolution=min(how.resolution, _FINEST_ROUTES),
        ),
        "calibrated": _calibrated(policy, env, lesson, how) if how.n_calibrating else None,
    }
    return piece | {"seconds": _seconds(learned, time.perf_counter() - begin)}


def _seconds(learned: Learned, testing: float) -> dict[str, float]:
    return {"train": learned.seconds, "test": testing}


def _calibrated(policy: Policy, env: EnvConfig, lesson: Lesson, how: Measuring) -> Piece:
    """What a policy does after it was calibrated, or why it cannot be."""
    try:
        calibrated = calibrate(
            policy,
            env.spec(),
            confidence=CONFIDENCE,
            n_episodes=how.n_calibrating,
            seed=other_seed(lesson.seed, "comparison/calibrate"),
            budgets=how.budgets,
        )
    except BmdpError as error:
        return {"error": str(error)}
    seed = other_seed(lesson.seed, "comparison/test")
    return {
        "certificate": certificate_piece(calibrated.certificate),
        "evaluation": evaluation_piece(calibrated, env, how.budgets, how.n_tests, seed),
    }


def certificate_piece(certificate: Certificate) -> Piece:
    """Returns what was measured of the members of a calibrated policy, and what follows."""
    return {
        "confidence": certificate.confidence,
        "n_episodes": certificate.n_episodes,
        "smallest_budget": certificate.smallest_budget,
        "cost_mean": certificate.cost_mean.tolist(),
        "cost_high": certificate.cost_high.tolist(),
        "reward_mean": certificate.reward_mean.tolist(),
        "text": str(certificate),
    }


def task_truth(name: str, how: Measuring) -> Piece:
    """Returns the true frontier of a task: it takes up to a minute."""
    env, _ = explored(spec_of(TASKS[name]))
    kept = {k: v for k, v in env.settings.items() if k not in ("observe_time", "features")}
    if env.id == "slot-filling":
        found = slot_filling.true_frontier(n_bins=how.bins)
        return truth_piece(found, {"bins": how.bins})
    resolution = min(how.resolution, _FINEST_ROUTES) if kept else how.resolution
    is_fine = resolution >= 33  # coarser ones promise what is not earned: measured values count
    found = corridors.true_frontier(
        Corridors(**kept),
        resolution=resolution,
        n_episodes=100_000 if resolution >= _FINEST_ROUTES else 10_000,
        max_disagreement=0.003 if is_fine else 1.0,
    )
    return truth_piece(found, {"resolution": resolution, **kept})
