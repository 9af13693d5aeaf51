"""From estimated Q-values to points: what is done about their errors before a frontier is built.

Estimates are noisy, and a frontier picks the cheapest and the best paid of hundreds of them. At the
cheap end that does harm: the cheapest point is whichever the noise put lowest, and often earns
nothing. The *slope cap* L makes the frontier begin at the point with the most Q_r - L Q_c instead:
saving cost is worth L a unit, and no more.

Works on numpy arrays and on torch tensors alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bmdp.checks import require_from_0
from bmdp.policies.stored import storable


@storable
@dataclass(frozen=True)
class GreedyRule:
    """How Q-values become points.

    Args:
        cost_floor: Q_c below it are raised to it; costs that are never negative have floor 0.
        slope_cap: most reward that a unit of cost can be worth at the cheap end; 0 for no cap.

    >>> q_r, q_c = np.array([[[0.0], [5.0], [6.0]]]), np.array([[[-0.1], [0.1], [1.0]]])
    >>> GreedyRule(cost_floor=0.0).points(q_r, q_c)[0].tolist()
    [[0.0, 0.1, 1.0]]
    """

    cost_floor: float = -1e30
    slope_cap: float = 0.0

    def __post_init__(self) -> None:
        """Checks the cap."""
        require_from_0("slope_cap", self.slope_cap)

    def scaled(self, scale: float) -> GreedyRule:
        """Returns the same rule for rewards that are so many times larger."""
        return replace(self, slope_cap=self.slope_cap * scale)

    def points(self, q_r: Any, q_c: Any) -> tuple[Any, Any]:
        """From (q_r, q_c), each `[N, A, B]`, to costs and rewards `[N, A * B]`."""
        costs = q_c.reshape(len(q_c), -1).clip(self.cost_floor)
        rewards = q_r.reshape(len(q_r), -1)
        return capped(costs, rewards, self.slope_cap) if self.slope_cap > 0 else (costs, rewards)


PLAIN = GreedyRule()
"""Points as they are."""


def capped(costs: Any, rewards: Any, slope: float) -> tuple[Any, Any]:
    """Takes away the points that are cheaper than the one with the most reward - slope * cost.

    They are put below that point, where no frontier passes.

    >>> costs, rewards = np.array([[0.0, 0.1, 1.0]]), np.array([[0.0, 5.0, 6.0]])
    >>> capped(costs, rewards, 10.0)[0].tolist()
    [[0.1, 0.1, 1.0]]
    """
    if costs.shape[0] == 0:
        return costs, rewards
    best = (rewards - slope * costs).argmax(1)[:, None]
    cost, reward = at(costs, best), at(rewards, best)
    cheap = costs < cost
    return where(cheap, cost, costs), where(cheap, reward - 1, rewards)


def where(mask: Any, one: Any, other: Any) -> Any:
    """The one where the mask says so, else the other."""
    return np.where(mask, one, other) if isinstance(mask, np.ndarray) else other.where(~mask, one)


def at(values: Any, places: Any) -> Any:
    """Values `[N, K]` at places `[N, J]`."""
    return (
        np.take_along_axis(values, places, 1)
        if isinstance(values, np.ndarray)
        else values.gather(1, places)
    )
