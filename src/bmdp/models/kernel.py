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
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import FloatArray
from bmdp.checks import require_count
from bmdp.errors import ConfigError
from bmdp.models.networks import Scaling
from bmdp.models.plain import PlainFitter, Rows, flat_states
from bmdp.models.problem import Fitter, Problem
from bmdp.policies.stored import storable
from bmdp.randomness import named_generator

_CHUNK = 2**22  # bumps that are held at a time
_N_JUDGED = 1024  # rows by which the length and the ridge are chosen
_LEAST = 1e-7  # directions of bumps that are told apart, next to the largest


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
            self._bases[model, action] = Basis(self._scaled(states), self.model, rng)
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


class Basis:
    """Bumps around centres of some rows, for each length, in directions that are orthogonal."""

    def __init__(self, rows: FloatArray, model: KernelModel, rng: np.random.Generator) -> None:
        """Chooses centres, and the rows that judge."""
        self._rows, self._model = rows, model
        self.centres = far_apart(rows, model.centres, rng)
        self._judged = rng.permutation(len(rows))[:_N_JUDGED]
        self._whole: dict[float, Directions] = {}

    def solution(self, targets: FloatArray) -> tuple[float, FloatArray]:
        """Fits to targets `[n, 2, B]` of mean 0: the length, and weights of centres `[C, 2, B]`."""
        length, ridge = self._smoothness(targets)
        if length not in self._whole:
            self._whole[length] = directions(self._rows, self.centres, length)
        root, sizes, _ = self._whole[length]
        columns = targets.reshape(len(targets), -1)
        moment = np.zeros((len(sizes), columns.shape[1]))
        for part in _chunks(len(self._rows), len(self.centres)):
            near = bumps(self._rows[part], self.centres, length) @ root
            moment += near.T @ columns[part]
        weights = root @ (moment / (sizes + ridge)[:, None])
        return length, weights.reshape(-1, *targets.shape[1:])

    def _smoothness(self, targets: FloatArray) -> tuple[float, float]:
        """The length and the ridge of the least leave-one-out error, on some rows and budgets."""
        n_budgets = targets.shape[2]
        budgets = [0, n_budgets // 2, n_budgets - 1]
        columns = targets[self._judged][:, :, budgets].reshape(len(self._judged), -1)
        deviation = columns.std(axis=0)
        varies = deviation > 1e-6 * np.abs(targets).max()
        columns = columns[:, varies] / deviation[varies]
        errors = {}
        for length, (_, sizes, features) in self._judging:
            moment = features.T @ columns
            squares = features**2
            for ridge in self._model.ridges:
                shrunk = 1 / (sizes + ridge)
                left = columns - features @ (shrunk[:, None] * moment)
                own_share = (squares @ shrunk).clip(max=0.99)  # of a row in its own value
                errors[length, ridge] = np.square(left / (1 - own_share)[:, None]).sum()
        return min(errors, key=errors.__getitem__)

    @cached_property
    def _judging(self) -> list[tuple[float, Directions]]:
        rows = self._rows[self._judged]
        return [(length, directions(rows, self.centres, length)) for length in self._model.lengths]


class Directions(NamedTuple):
    """Combinations of bumps that are orthogonal, on some rows and in the sense of the kernel."""

    root: FloatArray  # [C, M], combinations
    sizes: FloatArray  # [M], sums of their squares on the rows
    features: FloatArray  # [n, M], their values at the rows; none if these are many


def directions(rows: FloatArray, centres: FloatArray, length: float) -> Directions:
    """Turns bumps into directions."""
    own, turn = np.linalg.eigh(bumps(centres, centres, length))
    kept = own > _LEAST * own[-1]
    root = turn[:, kept] / np.sqrt(own[kept])
    gram = np.zeros((root.shape[1], root.shape[1]))
    near = np.empty((0, root.shape[1]))
    for part in _chunks(len(rows), len(centres)):
        near = bumps(rows[part], centres, length) @ root
        gram += near.T @ near
    sizes, turn = np.linalg.eigh(gram)
    features = near @ turn if len(near) == len(rows) <= _N_JUDGED else near[:0]
    return Directions(root @ turn, sizes.clip(0), features)


def bumps(rows: FloatArray, centres: FloatArray, length: float) -> FloatArray:
    """How near rows `[n, D]` are to centres `[C, D]`: `[n, C]`, from 0 to 1.

    >>> bumps(np.array([[0.0], [2.0]]), np.array([[0.0]]), 1.0).round(3).tolist()
    [[1.0], [0.135]]
    """
    squares = rows @ (-2 * centres.T)
    squares += np.square(rows).sum(axis=1)[:, None]
    squares += np.square(centres).sum(axis=1)
    np.maximum(squares, 0, out=squares)
    squares *= -0.5 / length**2
    return np.exp(squares, out=squares)


def far_apart(rows: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
    """Returns at most n different rows, each as far as can be from those before it.

    >>> far_apart(np.array([[0.0], [0.0], [1.0], [5.0]]), 3, np.random.default_rng(0)).T.tolist()
    [[5.0, 0.0, 1.0]]
    """
    chosen = [int(rng.integers(len(rows)))]
    distance = np.square(rows - rows[chosen[0]]).sum(axis=1)
    while len(chosen) < n and distance.max() > 0:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, np.square(rows - rows[chosen[-1]]).sum(axis=1))
    return rows[chosen]


def _by_value(targets: FloatArray) -> FloatArray:
    """Targets `[n, B, 2]` as `[n, 2, B]`, in double precision."""
    return np.moveaxis(targets, 1, 2).astype(np.float64)


def _chunks(n_rows: int, n_centres: int) -> list[slice]:
    """Parts of the rows that are small enough."""
    step = max(_N_JUDGED, _CHUNK // n_centres)
    return [slice(first, first + step) for first in range(0, n_rows, step)]
