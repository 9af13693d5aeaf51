"""Models whose costs are chances: the cost so far is part of the state."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from bmdp.arrays import FloatArray, IntArray
from bmdp.errors import ModelError
from bmdp.exact.model import FiniteBMDP
from bmdp.kinds import checked
from bmdp.policies.limited import Spent, require_limit

_MOST_STATES = 1_000_000
_APART = 1e-9  # sums of costs that are closer are the same


@checked
def with_cost_so_far(model: FiniteBMDP, limit: float) -> FiniteBMDP:
    """Returns a model whose expected cost is the chance that an episode costs more than a limit.

    A state is one of the model and a sum of costs so far. A step costs 1 where that sum first
    exceeds the limit, and 0 elsewhere, undiscounted. The first `S` states are those of the model
    before anything was paid. Rewards, their discount and the horizon are the same. Costs of the
    model are taken to be paid for sure, not on average.

    Args:
        model: with a horizon, so that sums of costs are finitely many.
        limit: on the plain sum of the costs of an episode.

    Raises:
        ModelError: if there is no horizon, or there are too many sums.
        ConfigError: if the limit is not a finite number from 0 on.

    >>> paid = {"reward": [[0.0, 1.0]], "cost": [[0.0, 1.0]]}
    >>> risk = FiniteBMDP(transition=[[[1.0], [1.0]]], **paid, gamma=1.0, horizon=3)
    >>> from bmdp.exact import optimal_frontier
    >>> chance = with_cost_so_far(risk, 1.0)
    >>> chance.n_states  # sums 0 and 1, and a sum above the limit
    3
    >>> found = optimal_frontier(chance, start=0)
    >>> found.costs.tolist(), found.rewards.tolist()
    ([0.0, 1.0], [1.0, 3.0])
    """
    limit = require_limit(limit)
    if model.horizon is None:
        raise ModelError("a limit on an episode needs FiniteBMDP.horizon; the model has none.")
    sums = _sums(model, limit)
    n_states, n_actions = model.shape
    n_sums = len(sums) + 1  # the last one is above the limit
    first = np.append(sums, limit)
    exceeded = np.arange(n_sums) == len(sums)
    spent = Spent(*(np.repeat(column, model.cost.size) for column in (first, exceeded)))
    then = spent.after(np.tile(model.cost.ravel(), n_sums), limit)
    place = np.where(then.exceeded, len(sums), _places(sums, then.so_far))
    rows, columns = model.transition.nonzero()
    pairs = n_states * n_actions
    # Row (k, s, a) leads to (place of its sum, s').
    row = (np.arange(n_sums)[:, None] * pairs + rows).ravel()
    column = place[row] * n_states + np.tile(columns, n_sums)
    size = (n_sums * pairs, n_sums * n_states)
    chances = np.tile(np.asarray(model.transition[rows, columns]).ravel(), n_sums)
    return FiniteBMDP(
        transition=sparse.csr_array((chances, (row, column)), shape=size),
        reward=np.tile(model.reward, (n_sums, 1)),
        cost=then.crossed(spent).reshape(n_sums * n_states, n_actions),
        gamma=model.gamma,
        cost_gamma=1.0,
        terminal=np.tile(model.terminal, n_sums),
        horizon=model.horizon,
    )


def _sums(model: FiniteBMDP, limit: float) -> FloatArray:
    """Sums of costs up to the limit that an episode can come to, 0 first."""
    assert model.horizon is not None
    steps = np.unique(model.cost[~model.terminal])
    found: FloatArray = np.zeros(1)
    new = found
    for _ in range(model.horizon):
        spent = Spent(np.repeat(new, len(steps)), np.zeros(new.size * len(steps), np.bool_))
        then = spent.after(np.tile(steps, len(new)), limit)
        reached = np.unique(then.so_far[~then.exceeded])
        is_known = np.abs(found[_places(found, reached)] - reached) < 0.5 * _APART
        new = reached[~is_known]
        new = new[np.diff(new, prepend=-np.inf) >= 0.5 * _APART]
        found = np.append(found, new)  # not rounded: sums of many would exceed a limit, or not
        if model.n_states * len(found) > _MOST_STATES:
            raise ModelError(
                f"costs must have few different sums up to the limit; got more than "
                f"{len(found) - 1:,} in {model.n_states:,} states. Round them to a coarser unit."
            )
        if len(new) == 0:
            break
    return found


def _places(sums: FloatArray, so_far: FloatArray) -> IntArray:
    """Numbers of sums, by their value."""
    order = np.argsort(sums)
    nearest = np.searchsorted(sums[order] - 0.5 * _APART, so_far, side="right") - 1
    found: IntArray = order[np.clip(nearest, 0, len(sums) - 1)]
    return found
