"""Several Q-functions that know different data, taken together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import FloatArray
from bmdp.errors import ConfigError
from bmdp.policies.hull import QFunction
from bmdp.policies.stored import storable


@storable
@dataclass(frozen=True, eq=False)
class MeanQ:
    """The mean of some Q-functions, or less than that of rewards and more of costs.

    Args:
        functions: at least one.
        caution: by how many of their deviations Q_r is lowered and Q_c raised where the functions
            disagree; below 0, what is unknown looks good.

    >>> from bmdp.policies import TabularQ
    >>> functions = TabularQ([[[1.0]]], [[[0.25]]]), TabularQ([[[3.0]]], [[[0.75]]])
    >>> for caution in (0.0, 1.0):
    ...     q_r, q_c = MeanQ(functions, caution)(np.array([0]))
    ...     print(q_r.item(), q_c.item())
    2.0 0.5
    1.0 0.75
    """

    functions: tuple[QFunction, ...]
    caution: float = 0.0

    def __post_init__(self) -> None:
        """Checks the caution."""
        if not np.isfinite(self.caution):
            raise ConfigError(f"MeanQ.caution must be finite; got {self.caution}.")

    def __call__(self, states: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c), each `[N, A, B]`."""
        rewards, costs = zip(*(q(states) for q in self.functions), strict=True)
        return leaning(rewards, -self.caution), leaning(costs, self.caution)


def leaning(values: Any, deviations: float) -> Any:
    """The mean of some arrays, or tensors, moved by so many of their deviations.

    >>> leaning([np.array([1.0]), np.array([3.0])], 0.5).tolist()
    [2.5]
    """
    mean = sum(values) / len(values)
    if deviations == 0:
        return mean
    return mean + deviations * (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
