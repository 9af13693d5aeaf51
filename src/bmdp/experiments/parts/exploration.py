"""How corridors were explored, round by round, as a piece of an experiment."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bmdp.data import TransitionBatch
from bmdp.experiments.experiment import Piece
from bmdp.experiments.parts.measuring import rounded
from bmdp.experiments.parts.scenes import layout_of
from bmdp.experiments.parts.traces import task_of
from bmdp.experiments.parts.training import explored, rounds_of
from bmdp.learn.spec import Exploration, TrainingSpec

_MOST_SHOWN = 30  # episodes of a round


def exploration_piece(spec: TrainingSpec, folder: Path) -> Piece:
    """Returns what the rounds of a run of corridors earned and paid, and where some episodes went.

    Args:
        spec: of the run.
        folder: of the run.
    """
    env, how = explored(spec)
    return {
        "env": env.id,
        "rounds": [_round(i, batch, how) for i, batch in enumerate(rounds_of(folder))],
        "layout": layout_of(task_of(env)),
    }


def _round(number: int, batch: TransitionBatch, how: Exploration) -> Piece:
    """One round; epsilon is the mean over its episodes."""
    starts = batch.starts()
    n = len(starts)
    ends = np.append(starts[1:], len(batch))
    episodes = number * how.episodes + np.arange(n)
    epsilon = how.floor + (1 - how.floor) * np.exp(-how.decay * episodes)
    shown = np.linspace(0, n - 1, min(n, _MOST_SHOWN)).astype(int)
    return {
        "round": number,
        "n_episodes": n,
        "reward": round(float(batch.reward.sum() / n), 4),
        "cost": round(float(batch.cost.sum() / n), 5),
        "epsilon": round(float(epsilon.mean()) if number else 1.0, 4),
        "episodes": [_way(batch, int(starts[k]), int(ends[k])) for k in shown],
    }


def _way(batch: TransitionBatch, first: int, after: int) -> Piece:
    """Where one episode went, the budget that it began with, and what it paid."""
    assert batch.budget is not None
    places = np.vstack((batch.state[first:after, :2], batch.next_state[after - 1 : after, :2]))
    return {
        "x": rounded(places[:, 0], 2),
        "y": rounded(places[:, 1], 2),
        "budget": round(float(batch.budget[first]), 3),
        "cost": round(float(batch.cost[first:after].sum()), 4),
    }
