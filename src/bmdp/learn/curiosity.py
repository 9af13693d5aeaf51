"""Exploring where little is known: what is unknown is made to look good.

There are two ways (`Exploration.bonus`), of which the last round of learning knows nothing:

- *count*: a reward for rows of an action that are alone in their cell of states, and less of it
  the more there are (Strehl and Littman, 2008, have the root);
- *targets*: several models were fitted to different episodes, and disagree where these are few;
  they learn from the most that they may mean, so that what leads to the unknown looks good, too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bmdp.arrays import FloatArray
from bmdp.data import TransitionBatch
from bmdp.learn.config import TrainingSpec
from bmdp.learn.fit import reward_scale
from bmdp.learn.fit_config import BFTQConfig, FTQConfig


def lesson(
    spec: TrainingSpec, batch: TransitionBatch, *, is_last: bool
) -> tuple[BFTQConfig | FTQConfig, TransitionBatch]:
    """What a round is learned with, and from; the last one as if there were no bonus.

    Rewards with a bonus are divided by what those without are, so that a slope cap, which is in
    scaled rewards, means the same.
    """
    if is_last:
        return spec.learner, batch
    if spec.exploration.bonus != "count":
        return spec.exploring_learner, batch
    scale = reward_scale(spec.learner, batch.reward)
    bonus = count_bonus(batch, spec.exploration.weight, spec.exploration.cell, scale)
    columns = batch.to_arrays() | {"reward": batch.reward + bonus}
    return (
        replace(spec.learner, reward_scale=scale),
        TransitionBatch.from_arrays(columns, n_actions=batch.n_actions),
    )


def count_bonus(batch: TransitionBatch, weight: float, cell: float, scale: float) -> FloatArray:
    """What each row earns on top, `[N]`: weight * scale / sqrt(n).

    Args:
        batch: `N` transitions.
        weight: of the bonus.
        cell: side of a cell, in deviations of each number of the states.
        scale: of rewards.

    Returns:
        The bonus; n is the number of rows of the same action with states in the same cell.

    >>> state, zeros = [0.0, 0.0, 9.0], [0, 0, 0]
    >>> batch = TransitionBatch(state, zeros, zeros, zeros, state, zeros)
    >>> count_bonus(batch, 2.0, 0.5, 1.0).round(3).tolist()
    [1.414, 1.414, 2.0]
    """
    states = np.asarray(batch.state, np.float64)
    deviations = states.std(axis=0)
    sides = cell * np.where(deviations > 0, deviations, 1.0)
    cells = np.floor((states - states.mean(axis=0)) / sides).astype(np.int64)
    _, which, counts = np.unique(
        np.column_stack((cells, batch.action)), axis=0, return_inverse=True, return_counts=True
    )
    bonus: FloatArray = weight * scale / np.sqrt(counts[which.ravel()])
    return bonus
