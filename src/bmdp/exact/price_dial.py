"""The exact values of the best policies of several prices on cost, as a dial of prices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bmdp.arrays import FloatArray
from bmdp.errors import ConfigError
from bmdp.exact.model import FiniteBMDP
from bmdp.exact.multiplier import PlainPolicy, best_policy, cheapest_policy
from bmdp.policies.hull import TabularQ
from bmdp.policies.prices import PriceDial

_TIE = 1e-9  # costs that are closer are equal


def price_dial(model: FiniteBMDP, prices: Sequence[float]) -> PriceDial:
    """Returns what the best policy of each price does, costs and earns at every state.

    `MultiplierPolicy(price_dial(model, prices))` is the constrained optimum (Eq. 1) at every budget
    that a vertex of `optimal_frontier`, or a mixture of two neighbours, spends, as long as there is
    a price for each vertex.

    Args:
        model: the BMDP; with a horizon, the dial counts steps.
        prices: from 0 on; `inf` looks at costs first.

    Raises:
        ConfigError: if prices are not different numbers from 0 on.

    >>> from bmdp.exact.textbook import branches
    >>> dial = price_dial(branches().model, (np.inf, 5.0, 0.0))
    >>> float(dial.frontier(0).reward_at(0.5))
    5.0
    """
    falling = sorted(map(float, prices), reverse=True)
    if not falling or not all(price >= 0 for price in falling):
        raise ConfigError(f"prices must be numbers from 0 on, at least one; got {list(prices)}.")
    best = [cheapest_policy(model) if p == np.inf else best_policy(model, p) for p in falling]
    q_r, q_c = (np.stack(tables) for tables in zip(*_tables(model, best), strict=True))
    if model.horizon is None:
        q_r, q_c = q_r[0], q_c[0]
    return PriceDial(TabularQ(q_r, q_c), np.array(falling), _TIE)


def _tables(model: FiniteBMDP, best: list[PlainPolicy]) -> list[tuple[FloatArray, FloatArray]]:
    """(Q_r, Q_c) `[S, A, M]` of policies, at each step, or at all if there is no horizon."""
    if model.horizon is None:
        return [_one_step(model, [(p.v_r, p.v_c) for p in best])]
    values = [(np.zeros(model.n_states), np.zeros(model.n_states)) for _ in best]
    found, rows = [], np.arange(model.n_states)
    for step in reversed(range(model.horizon)):
        q_r, q_c = _one_step(model, values)
        found.append((q_r, q_c))
        values = [
            (q_r[rows, p.action[step], m], q_c[rows, p.action[step], m]) for m, p in enumerate(best)
        ]
    return found[::-1]


def _one_step(
    model: FiniteBMDP, values: Sequence[tuple[FloatArray, FloatArray]]
) -> tuple[FloatArray, FloatArray]:
    """(Q_r, Q_c) `[S, A, M]`, given what next states are worth to each of `M` policies."""
    q_r = [model.reward + model.gamma * model.expected_next(v_r) for v_r, _ in values]
    q_c = [model.cost + model.cost_gamma * model.expected_next(v_c) for _, v_c in values]
    return np.stack(q_r, axis=-1), np.stack(q_c, axis=-1)
