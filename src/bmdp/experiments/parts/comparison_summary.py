"""What the comparison found, as rows of a table: means over seeds, and how much seeds differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bmdp.evaluation import DialReport, measure_dial, seed_interval
from bmdp.experiments.experiment import Piece
from bmdp.experiments.parts.measuring import evaluation_of
from bmdp.experiments.parts.moved_dial import MoveErrors, move_errors
from bmdp.frontier import Frontier

COLUMNS = (
    *("method", "seeds", "score", "between seeds", "worst overshoot", "dial error"),
    *("moved: worst, mean error", "seconds", "models"),
    *("certified from", "calibrated: score", "calibrated: worst overshoot"),
)
"""Of a table of rows, as `cells` has them."""


@dataclass(frozen=True)
class CalibratedRow:
    """A method before and after calibration, at budgets from the smallest certified one on."""

    smallest_budget: float  # mean over seeds
    score_before: float  # mean
    score: float
    overshoot_before: float  # worst of any budget and seed
    overshoot: float


@dataclass(frozen=True)
class MethodRow:
    """A method on a task.

    `score_low` and `score_high` are a 95 % interval over seeds, and `score_deviation` is between
    seeds; they are None if there is one seed.
    """

    method: str
    seeds: tuple[int, ...]
    scores: tuple[float, ...]  # of each seed
    score: float  # mean
    score_low: float | None
    score_high: float | None
    score_deviation: float | None
    worst_overshoot: float  # of any budget and seed
    dial_error: float  # mean
    moved: MoveErrors | None
    seconds: float  # of learning, mean
    n_models: int
    calibrated: CalibratedRow | None


def method_rows(pieces: Mapping[str, Sequence[Piece]], truth: Frontier) -> list[MethodRow]:
    """Returns a row for each method, given its pieces of all seeds."""
    return [_row(found, truth) for found in pieces.values()]


def _row(pieces: Sequence[Piece], truth: Frontier) -> MethodRow:
    reports = [_report(piece, truth) for piece in pieces]
    scores = np.array([report.mean_score for report in reports])
    ends: tuple[float, float] | tuple[None, None] = (None, None)
    if len(pieces) > 1:
        interval = seed_interval(scores[:, None], confidence=0.95)
        ends = float(interval.low[0]), float(interval.high[0])
    return MethodRow(
        method=pieces[0]["method"],
        seeds=tuple(int(piece["seed"]) for piece in pieces),
        scores=tuple(scores.tolist()),
        score=float(scores.mean()),
        score_low=ends[0],
        score_high=ends[1],
        score_deviation=float(scores.std(ddof=1)) if len(pieces) > 1 else None,
        worst_overshoot=max(report.worst_overshoot for report in reports),
        dial_error=float(np.mean([report.mean_dial_error for report in reports])),
        moved=move_errors(piece["moved"] for piece in pieces),
        seconds=float(np.mean([piece["seconds"]["train"] for piece in pieces])),
        n_models=int(pieces[0]["n_models"]),
        calibrated=_calibrated([piece["calibrated"] for piece in pieces], reports, truth),
    )


def _report(piece: Mapping[str, Any], truth: Frontier) -> DialReport:
    return measure_dial(evaluation_of(piece["evaluation"]), truth)


def _calibrated(
    found: Sequence[Piece | None], before: Sequence[DialReport], truth: Frontier
) -> CalibratedRow | None:
    """From the smallest certified budget on, over the seeds that have one."""
    rows = []
    for piece, as_it_was in zip(found, before, strict=True):
        if piece is None or "evaluation" not in piece:
            continue
        report = _report(piece, truth)
        smallest = piece["certificate"]["smallest_budget"]
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


def cells(row: MethodRow) -> tuple[str, ...]:
    """Returns a row as text, in the order of `COLUMNS`."""
    half = "" if row.score_high is None else f" ± {row.score_high - row.score:.3f}"
    moved = "-" if row.moved is None else f"{row.moved.worst:.3f}, {row.moved.mean:.4f}"
    after = row.calibrated
    return (
        *(row.method, str(len(row.seeds)), f"{row.score:.3f}{half}"),
        "-" if row.score_deviation is None else f"{row.score_deviation:.3f}",
        *(f"{row.worst_overshoot:.3f}", f"{row.dial_error:.3f}", moved),
        *(f"{row.seconds:.0f}" if row.seconds >= 10 else f"{row.seconds:.1f}", str(row.n_models)),
        *(("-", "-", "-") if after is None else _calibrated_cells(after)),
    )


def _calibrated_cells(row: CalibratedRow) -> tuple[str, str, str]:
    return (
        f"{row.smallest_budget:.3f}",
        f"{row.score_before:.3f} to {row.score:.3f}",
        f"{row.overshoot_before:.3f} to {row.overshoot:.3f}",
    )
