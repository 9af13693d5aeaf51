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

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import FloatArray
from bmdp.checks import require_count
from bmdp.errors import ConfigError
from bmdp.models.bumps import Basis, bumps, far_apart
from bmdp.models.networks import Scaling
from bmdp.models.plain import PlainFitter, Rows, flat_states
from bmdp.models.problem import Fitter, Problem
from bmdp.policies.stored import storable
from bmdp.randomness import named_generator

_CHUNK = 2**22  # bumps that are held at a time


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

    def fitter(self, problem: Problem) -> Fitter:
        """Returns models that know nothing yet, one for each row of `problem.members`."""
        return KernelFitter(self, problem)


@storable
@dataclass(frozen=True, eq=False)
class KernelQ:
    """Q-values that are sums of bumps, in the units of the data."""

    centres: FloatArray  # [A, C, D], of scaled states
    lengths: FloatArray  # [A]
    weights: FloatArray  # [A, C, 2, B], of Q_r and Q_c
    means: FloatArray  # [A, 2, B]
    centre: FloatArray  # [D], of states
    scale: FloatArray  # [D]
    reward_scale: float

    def __call__(self, states: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c) of the states `[N, D]`, each `[N, A, B]`."""
        values = self.scaled(flat_states(states))
        return values[:, 0] * self.reward_scale, values[:, 1]

    def scaled(self, states: FloatArray) -> FloatArray:
        """Values `[n, 2, A, B]` at states `[n, D]`, of scaled rewards."""
        n_actions, n_centres, _, n_budgets = self.weights.shape
        values = np.empty((len(states), 2, n_actions, n_budgets))
        rows = (states - self.centre) / self.scale
        step = max(1, _CHUNK // (n_centres + 2 * n_budgets))
        for first in range(0, len(rows), step):
            part = slice(first, first + step)
            for action in range(n_actions):
                values[part, :, action] = self.of_action(rows[part], action)
        return values

    def of_action(self, rows: FloatArray, action: int) -> FloatArray:
        """Values `[n, 2, B]` of one action at scaled states `[n, D]`."""
        near = bumps(rows, self.centres[action], float(self.lengths[action]))
        sums = near @ self.weights[action].reshape(near.shape[1], -1)
        values: FloatArray = self.means[action] + sums.reshape(len(rows), *self.means.shape[1:])
        return values


class KernelFitter(PlainFitter):
    """Kernel models in training. What depends on the states alone is computed once."""

    def __init__(self, model: KernelModel, problem: Problem) -> None:
        """Makes models that are 0 everywhere."""
        super().__init__(problem)
        self.model, self.scaling = model, Scaling.of(self._states)
        self._found = [self._q(self._nothing()) for _ in problem.members]
        self._bases: dict[tuple[int, int], Basis] = {}

    def result(self, model: int) -> KernelQ:
        """A model as it is."""
        return self._found[model]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Centres, lengths, weights and means of each model."""
        return {
            f"{model}/{name}": getattr(found, name)
            for model, found in enumerate(self._found)
            for name in Fitted._fields
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Goes on from there."""
        for model in range(len(self._found)):
            kept = (np.array(arrays[f"{model}/{name}"]) for name in Fitted._fields)
            self._found[model] = self._q(Fitted(*kept))

    def _q(self, fitted: Fitted) -> KernelQ:
        scaling, reward_scale = self.scaling, self.problem.reward_scale
        return KernelQ(**fitted._asdict(), **asdict(scaling), reward_scale=reward_scale)

    def _nothing(self) -> Fitted:
        """Arrays of functions that are 0."""
        n_actions, n_centres = self.problem.n_actions, self.model.centres
        n_numbers, n_budgets = self._states.shape[1], len(self.problem.beta_grid)
        return Fitted(
            np.zeros((n_actions, n_centres, n_numbers)),
            np.ones(n_actions),
            np.zeros((n_actions, n_centres, 2, n_budgets)),
            np.zeros((n_actions, 2, n_budgets)),
        )

    def _learn(self, name: str, model: int, rows: Rows) -> None:
        """Solves for each action."""
        if len(rows.states) == 0:
            return
        fitted = self._nothing()
        fitted.means[:] = _by_value(rows.targets).mean(axis=0)
        for action, (mask, own) in enumerate(rows.by_action(self.problem.n_actions)):
            if not mask.any():
                continue
            targets = _by_value(own.targets)
            fitted.means[action] = targets.mean(axis=0)
            basis = self._basis(model, action, own.states)
            length, weights = basis.solution(targets - fitted.means[action])
            fitted.centres[action, : len(weights)] = basis.centres
            fitted.lengths[action] = length
            fitted.weights[action, : len(weights)] = weights
        self._found[model] = self._q(fitted)

    def _basis(self, model: int, action: int, states: FloatArray) -> Basis:
        """Bumps for the rows of one model and action, which are the same at every fit."""
        if (model, action) not in self._bases:
            rng = named_generator(self.problem.seed, f"fit/centres/{model}/{action}")
            rows, asked = self._scaled(states), self.model
            centres = far_apart(rows, asked.centres, rng)
            self._bases[model, action] = Basis(rows, centres, asked.lengths, asked.ridges, rng)
        return self._bases[model, action]

    def _taken(self, model: int, rows: Rows) -> FloatArray:
        """Values of the actions of rows at their budgets, `[n, L, 2]`."""
        values = np.empty((*rows.budgets.shape, 2))
        for action, (mask, own) in enumerate(rows.by_action(self.problem.n_actions)):
            if mask.any():
                found = self._found[model].of_action(self._scaled(own.states), action)
                values[mask] = np.moveaxis(found, 1, 2)
        return values

    def _values(self, model: int, states: FloatArray) -> FloatArray:
        """Values at states `[n, D]` on the grid, `[n, 2, A, B]`."""
        return self._found[model].scaled(states)

    def _scaled(self, states: FloatArray) -> FloatArray:
        return (states - self.scaling.centre) / self.scaling.scale


class Fitted(NamedTuple):
    """What is learned, as in `KernelQ`."""

    centres: FloatArray
    lengths: FloatArray
    weights: FloatArray
    means: FloatArray


def _by_value(targets: FloatArray) -> FloatArray:
    """Targets `[n, B, 2]` as `[n, 2, B]`, in double precision."""
    return np.moveaxis(targets, 1, 2).astype(np.float64)
