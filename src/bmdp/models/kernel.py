"""Regression with a Gaussian kernel: smooth, in closed form, and as smooth as the data ask for.

Every action has a function of its own: a mean plus bumps around *centres*, states of the data that
are far from each other,

    q(s) = m + sum over c of w_c exp(-|s - c|^2 / (2 l^2)),

whose weights make the squared errors plus `ridge` times w' K w least, K being the bumps of centres
at each other. It is the mean of a Gaussian process that is told of the data at the centres alone.
The length l and the ridge are those whose *leave-one-out* error is least: what each row would be
given by the others, which needs no second fit.

A value is a weighted sum of the targets nearby, with the same weights for all budgets. So the
errors of all budgets are alike, and a frontier cannot pick the luckiest of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import FloatArray
from bmdp.checks import require_count
from bmdp.errors import ConfigError
from bmdp.models.plain import flat_states
from bmdp.policies.stored import storable

if TYPE_CHECKING:
    from bmdp.models.bumps import Sums


@storable
@dataclass(frozen=True)
class KernelModel:
    """Regression with a Gaussian kernel.

    An action that never occurs has the mean target of all actions everywhere.

    Args:
        centres: of bumps, for each action, at most.
        lengths: of bumps, to choose from, in deviations of the numbers of a state.
        ridges: to choose from.
    """

    centres: int = 300
    lengths: tuple[float, ...] = (0.2, 0.35, 0.6, 1.0, 2.0, 4.0)
    ridges: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)

    covers_grid: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Checks the settings."""
        require_count("centres", self.centres, 1)
        for name in ("lengths", "ridges"):
            given = getattr(self, name)
            values = tuple(given) if isinstance(given, list | tuple) else (np.nan,)
            if not values or not all(0 < value < np.inf for value in values):
                raise ConfigError(f"{name} must be numbers above 0; got {given}.")
            object.__setattr__(self, name, values)


@storable
@dataclass(frozen=True, eq=False)
class KernelQ:
    """Q-values that are sums of bumps, in the units of the data."""

    centres: FloatArray  # [A, C, D], of scaled states
    lengths: FloatArray  # [A]
    weights: FloatArray  # [A, C, 2, B], of Q_r and Q_c, float32
    means: FloatArray  # [A, 2, B]
    centre: FloatArray  # [D], of states
    scale: FloatArray  # [D]
    reward_scale: float

    def __call__(self, states: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c) of the states `[N, D]`, each `[N, A, B]`."""
        import torch

        rows = torch.from_numpy((flat_states(states) - self.centre) / self.scale)
        values = self.sums.at(rows).numpy()
        return values[:, 0] * self.reward_scale, values[:, 1]

    @cached_property
    def sums(self) -> Sums:
        """The sums, as tensors."""
        import torch

        from bmdp.models.bumps import Sums

        arrays = (self.centres, self.lengths, self.weights, self.means)
        return Sums(*(torch.from_numpy(np.array(array)) for array in arrays))
