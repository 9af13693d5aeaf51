"""Limits other than a discounted cost, as transforms of a batch of whole episodes.

- *Two discounts*: rewards are weighed by (gamma / cost_gamma)^step. Then both rewards and costs
  have the discount of costs, and a reward counts what it counts at the start of the episode.
- *A chance limit*: the cost so far joins the state, and a step costs 1 if the sum first exceeds the
  limit there (`bmdp.policies.limited`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bmdp.arrays import MAGNITUDE, FloatArray
from bmdp.checks import require_share
from bmdp.data.batch import TransitionBatch
from bmdp.data.checks import require_rows
from bmdp.data.episodes import in_order
from bmdp.errors import ConfigError, DataError
from bmdp.kinds import checked
from bmdp.policies.limited import Spent, require_limit


@checked
def weighed(batch: TransitionBatch, gamma: float, cost_gamma: float) -> TransitionBatch:
    """Returns a batch whose rewards are weighted so that the discount of costs serves for both.

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
    require_share("gamma", gamma)
    require_share("cost_gamma", cost_gamma)
    if gamma == cost_gamma:
        return batch
    if cost_gamma == 0:
        raise ConfigError("cost_gamma must be above 0, as rewards are weighed by it; got 0.")
    if batch.step is None:
        raise DataError("rewards are weighed by the step: give the batch column step.")
    columns: dict[str, Any] = dict(batch.to_arrays())
    most = np.log(MAGNITUDE) / max(np.log(gamma / cost_gamma), 1e-300) if gamma else np.inf
    hint = f" A reward of step n weighs ({gamma:g} / {cost_gamma:g}) ** n: take discounts closer."
    rule = f"be at most {most:.0f} with these discounts"
    require_rows("step", rule, batch.step > most, hint=hint)
    columns["reward"] = columns["reward"] * (gamma / cost_gamma) ** batch.step.astype(np.float64)
    return TransitionBatch(**columns, n_actions=batch.n_actions, state_names=batch.state_names)


@checked
def cost_so_far(batch: TransitionBatch, limit: float) -> TransitionBatch:
    """Returns a batch whose expected cost is the probability to exceed a limit per episode.

    States have two numbers more: what the episode has cost so far, and whether that exceeds the
    limit. The cost of a row is 1 where it first does, and 0 elsewhere.

    Args:
        batch: whole episodes, with steps.
        limit: on the plain sum of the costs of an episode.

    Raises:
        DataError: if episodes or steps are not known, or rows are missing.
        ConfigError: if the limit is not a finite number from 0 on.

    >>> log = TransitionBatch(
    ...     [0, 1], [0, 0], [8, 8], [2, 1], [1, 2], [False, True], episode=[0, 0], step=[0, 1]
    ... )
    >>> found = cost_so_far(log, 2.0)
    >>> found.state.tolist(), found.cost.tolist()
    ([[0.0, 0.0, 0.0], [1.0, 2.0, 0.0]], [0.0, 1.0])
    """
    limit = require_limit(limit)
    if batch.episode is None or batch.step is None:
        raise DataError(
            "episode_limit needs whole episodes in order: give the log columns episode and step."
        )
    order = in_order(batch.episode, batch.step)
    episode, step = batch.episode[order], batch.step[order]
    begins = np.append(True, episode[1:] != episode[:-1])
    if (step[begins] != 0).any() or (np.diff(step)[~begins[1:]] != 1).any():
        raise DataError(
            "episode_limit needs whole episodes: steps 0, 1, 2 and so on, each once; rows are "
            "missing, or there twice."
        )
    before, after = (np.empty((len(batch), 2)) for _ in range(2))  # cost so far, exceeded
    crossed: FloatArray = np.empty(len(batch))
    spent = Spent.nothing(int(begins.sum()))
    which = np.cumsum(begins) - 1
    by_step = np.argsort(step, kind="stable")
    for rows in np.split(by_step, np.cumsum(np.bincount(step))[:-1]):
        own, at = which[rows], order[rows]
        now = Spent(spent.so_far[own], spent.exceeded[own])
        then = now.after(batch.cost[at], limit)
        none = np.empty((len(rows), 0))
        before[at], after[at], crossed[at] = now.shown(none), then.shown(none), then.crossed(now)
        spent.so_far[own], spent.exceeded[own] = then
    columns: dict[str, Any] = dict(batch.to_arrays())
    for name, more in (("state", before), ("next_state", after)):
        columns[name] = np.column_stack((np.asarray(columns[name], np.float64), more))
    columns["cost"] = crossed
    names = None
    if batch.state_names is not None:
        names = (*batch.state_names, "cost so far", "limit exceeded")
    return TransitionBatch(**columns, n_actions=batch.n_actions, state_names=names)
