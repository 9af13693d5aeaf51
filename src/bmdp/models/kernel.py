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

    >>> from bmdp import BFTQ, BFTQConfig, TransitionBatch
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> config = BFTQConfig(gamma=0.9, model=KernelModel(), valuation="self", iterations=1)
    >>> frontier = BFTQ(config).fit(log, seed=0).frontier([0])
    >>> frontier.costs.round(6).tolist(), frontier.rewards.round(6).tolist()
    ([0.0, 1.0], [0.0, 10.0])
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
    """Q-values that are sums of bumps, in the units of the data.

    >>> bump = {"centres": np.zeros((1, 1, 1)), "lengths": np.ones(1)}
    >>> sums = {"weights": np.ones((1, 1, 2, 1)), "means": np.zeros((1, 2, 1))}
    >>> q = KernelQ(**bump, **sums, centre=np.zeros(1), scale=np.ones(1), reward_scale=10.0)
    >>> q(np.array([[0.0], [1.0]]))[0].round(2).tolist()  # 10, and 10 exp(-1/2)
    [[[10.0]], [[6.07]]]
    """

    centres: FloatArray  # [A, C, D], of scaled states
    lengths: FloatArray  # [A], of bumps
    weights: FloatArray  # [A, C, 2, B], of Q_r and Q_c, float32
    means: FloatArray  # [A, 2, B], to which bumps are added
    centre: FloatArray  # [D], of states
    scale: FloatArray  # [D], of states
    reward_scale: float  # that rewards were divided by

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
