"""Two Q-functions that know different data: one chooses, the other sets the probabilities.

A frontier of estimates is optimistic: it is made of those that the noise put highest and cheapest.
What an independent estimate says of the same augmented actions is not. So one function says which
two vertices are around the budget, the other what they cost, and the probability that spends the
budget follows from the latter. A coin says which of the two functions has which part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import FloatArray
from bmdp.errors import ConfigError
from bmdp.frontier import Frontier, Mixtures, crossed_share, mixtures_at, upper_frontier
from bmdp.policies.decisions import Decision, Decisions, Options
from bmdp.policies.greedy import PLAIN, GreedyRule, at
from bmdp.policies.hull import HullPolicy, QFunction, augmented_actions
from bmdp.policies.protocol import OneStepPolicy
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


@storable
@dataclass(frozen=True, eq=False)
class CrossedPolicy(OneStepPolicy):
    """Vertices by one of two Q-functions, probabilities by the other's costs.

    Paper: Algorithm 3.
    Differs: there, both are taken from one Q-function.

    >>> from bmdp.policies import TabularQ
    >>> rewards = [[[0.0, 0.0], [10.0, 10.0]]]
    >>> first = TabularQ(rewards, q_c=[[[0.0, 0.0], [0.5, 0.5]]])
    >>> second = TabularQ(rewards, q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    >>> policy = CrossedPolicy(first, second, beta_grid=[0.0, 1.0])
    >>> found = policy.options(np.array([0]), np.array([0.25]))
    >>> found.action.tolist(), found.probability.tolist()  # half of 1/4, and half of 1/2
    ([[0, 1, 0, 1]], [[0.375, 0.125, 0.25, 0.25]])
    """

    first: QFunction  # from states [N, ...] to (q_r, q_c), each [N, A, B]
    second: QFunction  # of the same shapes, from other data
    beta_grid: FloatArray  # [B], budgets that can be handed on, rising
    rule: GreedyRule = PLAIN  # how Q-values become points

    def __post_init__(self) -> None:
        """Checks the grid, as any policy on a grid does."""
        object.__setattr__(self, "beta_grid", HullPolicy(self.first, self.beta_grid).beta_grid)

    @property
    def budget_range(self) -> tuple[float, float]:
        """Ends of the grid."""
        return float(self.beta_grid[0]), float(self.beta_grid[-1])

    @property
    def n_draws(self) -> int:
        """Two: which function chooses, and which vertex is played."""
        return 2

    def choose(self, states: NDArray[Any], budgets: FloatArray, uniforms: FloatArray) -> Decisions:
        """Tosses the coin, and draws from the mixture."""
        first, second = self.first(states), self.second(states)
        heads = uniforms[:, 0] < 0.5
        found = self._mixtures(
            _where(heads, first, second), _where(heads, second, first), budgets[:, None]
        )
        lower, upper, shares, *_, status = (column[:, 0] for column in found)
        point = np.where(uniforms[:, 1] < shares, upper, lower)
        return Decision(*augmented_actions(point, self.beta_grid), status)

    def options(self, states: NDArray[Any], budgets: FloatArray) -> Options:
        """Returns the two augmented actions of each way round, and their probabilities."""
        action, next_budget, probability = self.options_at(states, budgets[:, None])
        return Options(action[:, 0], next_budget[:, 0], probability[:, 0])

    def options_at(self, states: NDArray[Any], budgets: FloatArray) -> Options:
        """Returns the same for all budgets `[L]` or `[N, L]`, from one frontier of each."""
        first, second = self.first(states), self.second(states)
        one, other = (self._mixtures(*pair, budgets) for pair in ((first, second), (second, first)))
        points = np.stack((one.lower, one.upper, other.lower, other.upper), axis=-1)
        shares = (1 - one.p_upper, one.p_upper, 1 - other.p_upper, other.p_upper)
        return Options(*augmented_actions(points, self.beta_grid), np.stack(shares, axis=-1) / 2)

    def frontier(self, state: ArrayLike) -> Frontier:
        """Returns the frontier of the mean of both; `index` is a * B + b of a vertex."""
        q_r, q_c = MeanQ((self.first, self.second))(np.asarray(state)[None])
        costs, rewards = self.rule.points(q_r, q_c)
        return upper_frontier(costs[0], rewards[0])

    def _mixtures(
        self,
        choosing: tuple[FloatArray, FloatArray],
        valuing: tuple[FloatArray, FloatArray],
        budgets: FloatArray,
    ) -> Mixtures[NDArray[Any]]:
        """Mixtures `[N, L]` of what one function chooses, with probabilities by another's costs."""
        found = mixtures_at(*self.rule.points(*choosing), budgets)
        costs = valuing[1].reshape(len(found.lower), -1).clip(self.rule.cost_floor)
        shares = crossed_share(at(costs, found.lower), at(costs, found.upper), budgets)
        return found._replace(p_upper=np.where(found.lower == found.upper, 0.0, shares))


def _where(
    heads: Any, one: tuple[FloatArray, FloatArray], other: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """The one where heads, else the other, of both arrays."""
    mask = heads[:, None, None]
    return np.where(mask, one[0], other[0]), np.where(mask, one[1], other[1])
