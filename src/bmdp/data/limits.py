"""Limits other than a discounted cost, as transforms of a batch of whole episodes.

- *Two discounts*: rewards are weighed by (gamma / cost_gamma)^step. Then both rewards and costs
  have the discount of costs, and a reward counts what it counts at the start of the episode.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bmdp.data.batch import TransitionBatch
from bmdp.errors import DataError


def weighed(batch: TransitionBatch, gamma: float, cost_gamma: float) -> TransitionBatch:
    """Returns a batch in which one discount, that of costs, does for rewards, too.

    A reward of step t becomes (gamma / cost_gamma)^t of it.

    Args:
        batch: transitions, with steps.
        gamma: discount of rewards.
        cost_gamma: discount of costs, above 0.

    Raises:
        DataError: if steps are not known.

    >>> log = TransitionBatch([0, 1], [0, 0], [8, 8], [1, 1], [1, 2], [False, True], step=[0, 1])
    >>> weighed(log, 0.5, 1.0).reward.tolist()
    [8.0, 4.0]
    """
    if gamma == cost_gamma:
        return batch
    if batch.step is None:
        raise DataError("rewards are weighed by the step: give the batch column step.")
    columns: dict[str, Any] = dict(batch.to_arrays())
    columns["reward"] = columns["reward"] * (gamma / cost_gamma) ** batch.step.astype(np.float64)
    return TransitionBatch(
        **columns, n_actions=batch.n_actions, state_names=batch.state_names
    )
