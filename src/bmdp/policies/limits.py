"""From a limit on what an episode may cost to a budget."""

from __future__ import annotations

import numpy as np

from bmdp.checks import require_count, require_share
from bmdp.errors import BudgetError


def discounted_budget(limit: float, *, gamma: float, n_steps: int) -> float:
    """Returns the budget that stands for an undiscounted limit on the cost of an episode.

    A limit L over T steps becomes L (1 + gamma + ... + gamma**(T - 1)) / T, the discounted cost of
    an episode that pays L / T at each of T steps. It is right only where costs are spread evenly
    over episodes of T steps. An episode of the same limit that pays everything at the first step
    costs L, and one that pays everything at the last step L gamma**(T - 1).

    Args:
        limit: of the sum of all costs of an episode, undiscounted.
        gamma: discount of costs, from 0 to 1. With 1 the budget is the limit.
        n_steps: T, of an episode.

    Raises:
        BudgetError: if the limit is not a finite number.
        ConfigError: if the discount or the number of steps is out of range.

    >>> round(discounted_budget(25.0, gamma=0.99, n_steps=1_000), 3)
    2.5
    >>> discounted_budget(0.3, gamma=1.0, n_steps=9)
    0.3
    """
    if not np.isfinite(limit):
        raise BudgetError(f"limit must be a finite number; got {limit}.")
    require_share("gamma", gamma)
    require_count("n_steps", n_steps, 1)
    return float(limit * np.mean(float(gamma) ** np.arange(n_steps)))
