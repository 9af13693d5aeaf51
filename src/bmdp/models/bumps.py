"""Sums of bumps around centres that are fitted to targets: ridge regression in closed form.

Bumps of near centres are nearly the same. They are therefore turned into *directions*: combinations
that are orthogonal in the sense of the kernel, and on the rows. In these a ridge is a division, and
the leave-one-out error of every ridge follows from one decomposition.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bmdp.arrays import FloatArray

_CHUNK = 2**22  # bumps that are held at a time
_N_JUDGED = 1024  # rows by which the length and the ridge are chosen
_LEAST = 1e-7  # directions of bumps that are told apart, next to the largest


class Basis:
    """Bumps around centres of some rows, for each length, in directions that are orthogonal."""

    def __init__(
        self,
        rows: FloatArray,
        centres: FloatArray,
        lengths: Sequence[float],
        ridges: Sequence[float],
        rng: np.random.Generator,
    ) -> None:
        """Chooses the rows that judge.

        Args:
            rows: `[n, D]`.
            centres: `[C, D]`.
            lengths: to choose from.
            ridges: to choose from.
            rng: of the rows that judge.
        """
        self._rows, self.centres = rows, centres
        self._lengths, self._ridges = lengths, ridges
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
            for ridge in self._ridges:
                shrunk = 1 / (sizes + ridge)
                left = columns - features @ (shrunk[:, None] * moment)
                own_share = (squares @ shrunk).clip(max=0.99)  # of a row in its own value
                errors[length, ridge] = np.square(left / (1 - own_share)[:, None]).sum()
        return min(errors, key=errors.__getitem__)

    @cached_property
    def _judging(self) -> list[tuple[float, Directions]]:
        rows = self._rows[self._judged]
        return [(length, directions(rows, self.centres, length)) for length in self._lengths]


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


def _chunks(n_rows: int, n_centres: int) -> list[slice]:
    """Parts of the rows that are small enough."""
    step = max(_N_JUDGED, _CHUNK // n_centres)
    return [slice(first, first + step) for first in range(0, n_rows, step)]
