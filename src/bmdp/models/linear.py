"""Least squares on features: fitted in closed form, and right or wrong in a known way.

A feature is the product of one of the state and one of the budget. Those of the state are 1, its
numbers after scaling, and perhaps their products. Those of the budget are *hats* on knots: 1 at a
knot, 0 at the others, linear in between. They sum to 1, so that any dependence on the budget that
is linear between knots can be had, with coefficients that vary with the state.

Every action has coefficients of its own, found in double precision from the normal equations of

    mean of (w . features - (target - m))^2  +  ridge |w|^2

where m is the mean target of the action: what the data do not say is that mean, and not 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import FloatArray
from bmdp.checks import require_choice, require_count
from bmdp.errors import ConfigError
from bmdp.models.networks import Scaling
from bmdp.models.plain import PlainFitter, Rows, flat_states
from bmdp.models.problem import Fitter, Problem
from bmdp.policies.stored import storable

_CHUNK = 2**22  # features that are held at a time


@storable
@dataclass(frozen=True)
class LinearModel:
    """Least squares on products of features of the state and of the budget.

    An action that never occurs has the mean target of all actions everywhere.

    Args:
        state_features: "linear": 1 and the numbers of the state; "quadratic": their products too.
        budget_knots: number of knots over the range of the grid.
        ridge: weight of the squared coefficients, next to the mean squared error; with 0, the
            smallest of the best coefficients are taken.

    >>> from bmdp import BFTQ, BFTQConfig, TransitionBatch
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> config = BFTQConfig(gamma=0.9, model=LinearModel(), valuation="self", iterations=1)
    >>> frontier = BFTQ(config).fit(log, seed=0).frontier([0])
    >>> frontier.costs.round(6).tolist(), frontier.rewards.round(6).tolist()
    ([0.0, 1.0], [0.0, 10.0])
    """

    state_features: Literal["linear", "quadratic"] = "linear"
    budget_knots: int = 5
    ridge: float = 1e-6

    covers_grid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Checks the settings."""
        require_choice("state_features", self.state_features, ("linear", "quadratic"))
        require_count("budget_knots", self.budget_knots, 2)
        if not 0 <= self.ridge < np.inf:
            raise ConfigError(f"ridge must be a number from 0 on; got {self.ridge}.")

    def fitter(self, problem: Problem) -> Fitter:
        """Returns models that know nothing yet, one for each row of `problem.members`."""
        return LinearFitter(self, problem)


@storable
@dataclass(frozen=True, eq=False)
class LinearQ:
    """Q-values that are linear in features, in the units of the data.

    >>> coefficients = np.array([[[[0.0, 1.0], [0.0, 0.0]]], [[[0.0, 0.5], [0.0, 0.0]]]])
    >>> units = {"centre": np.zeros(1), "scale": np.ones(1), "reward_scale": 10.0}
    >>> knots, grid = np.array([0.0, 1.0]), np.array([0.0, 0.5, 1.0])
    >>> q_r, q_c = LinearQ("linear", coefficients, knots, grid, **units)(np.array([[0.0]]))
    >>> q_r.tolist(), q_c.tolist()
    ([[[0.0, 5.0, 10.0]]], [[[0.0, 0.25, 0.5]]])
    """

    state_features: str  # "linear" or "quadratic"
    coefficients: FloatArray  # [2, A, P, K], of Q_r and Q_c, for features of states and knots
    knots: FloatArray  # [K], of budgets
    beta_grid: FloatArray  # [B], budgets that can be handed on
    centre: FloatArray  # [D], of states
    scale: FloatArray  # [D], of states
    reward_scale: float  # that rewards were divided by

    def __call__(self, states: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c) of the states `[N, D]`, each `[N, A, B]`."""
        rows = (flat_states(states) - self.centre) / self.scale
        features = state_features(rows, self.state_features)
        values = _on_grid(self.coefficients, features, hats(self.beta_grid, self.knots))
        return values[:, 0] * self.reward_scale, values[:, 1]


class LinearFitter(PlainFitter):
    """Linear models in training."""

    def __init__(self, model: LinearModel, problem: Problem) -> None:
        """Makes models whose coefficients are 0."""
        super().__init__(problem)
        self.model = model
        self.scaling = Scaling.of(self._states)
        grid = np.asarray(problem.beta_grid, np.float64)
        self.knots = np.linspace(grid[0], grid[-1], model.budget_knots)
        n_features = self._features(self._states[:1]).shape[1]
        shape = (2, problem.n_actions, n_features, len(self.knots))
        self.coefficients = np.zeros((len(problem.members), *shape))

    def result(self, model: int) -> LinearQ:
        """A model as it is."""
        return LinearQ(
            self.model.state_features,
            self.coefficients[model].copy(),
            self.knots,
            self.problem.beta_grid,
            self.scaling.centre,
            self.scaling.scale,
            self.problem.reward_scale,
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The coefficients."""
        return {"coefficients": self.coefficients.copy()}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Goes on from there."""
        self.coefficients = np.array(arrays["coefficients"])

    def _learn(self, name: str, model: int, rows: Rows) -> None:
        """Solves for each action."""
        if len(rows.states) == 0:
            return
        everywhere = rows.targets.mean(axis=(0, 1), dtype=np.float64)
        found = np.zeros_like(self.coefficients[model])
        for action, (_, own) in enumerate(rows.by_action(self.problem.n_actions)):
            mean = everywhere
            if len(own.states):
                mean = own.targets.mean(axis=(0, 1), dtype=np.float64)
                found[:, action] = self._solution(own, mean)
            found[:, action, 0] += mean[:, None]  # hats sum to 1
        self.coefficients[model] = found

    def _solution(self, rows: Rows, mean: FloatArray) -> FloatArray:
        """Coefficients `[2, P, K]` of what is left of the targets without their mean."""
        n_features, n_knots = self.coefficients.shape[-2:]
        size, n_labels = n_features * n_knots, rows.budgets.shape[1]
        gram, moment = np.zeros((size, size)), np.zeros((size, 2))
        step = max(1, _CHUNK // (size * n_labels))
        for first in range(0, len(rows.states), step):
            part = rows.take(slice(first, first + step))
            products = (
                self._features(part.states)[:, None, :, None]
                * hats(part.budgets, self.knots)[:, :, None, :]
            ).reshape(-1, size)
            gram += products.T @ products
            moment += products.T @ (part.targets - mean).reshape(-1, 2)
        n_samples = len(rows.states) * n_labels
        weights = ridge_solution(gram / n_samples, moment / n_samples, self.model.ridge)
        return weights.T.reshape(2, n_features, n_knots)

    def _taken(self, model: int, rows: Rows) -> FloatArray:
        """Values of the actions of rows at their budgets, `[n, L, 2]`."""
        values = np.empty((*rows.budgets.shape, 2))
        for action, (mask, own) in enumerate(rows.by_action(self.problem.n_actions)):
            at_knots = np.einsum(
                "np,vpk->nkv", self._features(own.states), self.coefficients[model][:, action]
            )
            values[mask] = hats(own.budgets, self.knots) @ at_knots
        return values

    def _values(self, model: int, states: FloatArray) -> FloatArray:
        """Values at states `[n, D]` on the grid, `[n, 2, A, B]`."""
        at_grid = hats(self.problem.beta_grid, self.knots)
        return _on_grid(self.coefficients[model], self._features(states), at_grid)

    def _features(self, states: FloatArray) -> FloatArray:
        rows = (states - self.scaling.centre) / self.scaling.scale
        return state_features(rows, self.model.state_features)


def state_features(states: FloatArray, kind: str) -> FloatArray:
    """Features `[n, P]` of scaled states `[n, D]`: 1, the numbers, and perhaps their products.

    >>> state_features(np.array([[2.0, 3.0]]), "quadratic").tolist()
    [[1.0, 2.0, 3.0, 4.0, 6.0, 9.0]]
    """
    parts = [np.ones((len(states), 1)), states]
    if kind == "quadratic":
        first, second = np.triu_indices(states.shape[1])
        parts.append(states[:, first] * states[:, second])
    return np.concatenate(parts, axis=1)


def hats(budgets: FloatArray, knots: FloatArray) -> FloatArray:
    """How near budgets `[...]` are to each of the knots, `[..., K]`, from 0 to 1; the sum is 1.

    >>> hats(np.array([0.0, 0.25, 2.0]), np.array([0.0, 1.0, 2.0])).tolist()
    [[1.0, 0.0, 0.0], [0.75, 0.25, 0.0], [0.0, 0.0, 1.0]]
    """
    places = np.interp(budgets, knots, np.arange(len(knots)))
    return (1 - np.abs(places[..., None] - np.arange(len(knots)))).clip(0)


def ridge_solution(gram: FloatArray, moment: FloatArray, ridge: float) -> FloatArray:
    """Returns the w `[F, 2]` of (gram + ridge I) w = moment, the smallest if there are many.

    Args:
        gram: products of features with each other, `[F, F]`.
        moment: products of features with targets, `[F, 2]`.
        ridge: from 0 on.

    >>> ridge_solution(np.diag([1.0, 0.0]), np.array([[3.0], [0.0]]), 0.5).tolist()
    [[2.0], [0.0]]
    """
    sizes, directions = np.linalg.eigh(gram)
    stiffness = sizes.clip(0) + ridge
    least = len(gram) * np.finfo(np.float64).eps * max(stiffness[-1], np.finfo(np.float64).tiny)
    inverse = np.where(stiffness > least, 1 / stiffness.clip(least), 0.0)
    solution: FloatArray = directions @ (inverse[:, None] * (directions.T @ moment))
    return solution


def _on_grid(coefficients: FloatArray, features: FloatArray, at_grid: FloatArray) -> FloatArray:
    """From coefficients `[2, A, P, K]`, features `[n, P]` and hats `[B, K]` to `[n, 2, A, B]`."""
    n_values, n_actions, n_features, _ = coefficients.shape
    table = np.moveaxis(coefficients @ at_grid.T, 2, 0)  # [P, 2, A, B]
    values = features @ table.reshape(n_features, -1)
    return values.reshape(len(features), n_values, n_actions, len(at_grid))
