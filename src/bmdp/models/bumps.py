"""Sums of bumps around centres that are fitted to targets: ridge regression in closed form.

Bumps of near centres are nearly the same. They are therefore turned into *directions*: combinations
that are orthogonal in the sense of the kernel, and on the rows. In these a ridge is a division, and
the leave-one-out error of every ridge follows from one decomposition.

All is on the device of the rows. Importing this module imports torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bmdp.arrays import FloatArray

WEIGHTS = torch.float32
"""Type of weights."""

_CHUNK = 2**22  # bumps that are held at a time
_N_JUDGED = 8192  # rows by which the length and the ridge are chosen, at most
_FARTHEST = -80.0  # exponent of a bump: smaller numbers are slow, as they are not normal
_LEAST = 1e-7  # directions of bumps that are told apart, next to the largest


class Sums(NamedTuple):
    """Functions of states: for each action a mean, and a sum of bumps.

    Weights are in single precision: it is in products with them that time is spent.
    """

    centres: Tensor  # [A, C, D]
    lengths: Tensor  # [A]
    weights: Tensor  # [A, C, 2, B], of type `WEIGHTS`
    means: Tensor  # [A, 2, B]

    @classmethod
    def nothing(cls, shape: tuple[int, int, int, int], device: torch.device) -> Sums:
        """Functions that are 0, of A actions, C centres, D numbers and B budgets."""
        n_actions, n_centres, n_numbers, n_budgets = shape
        shapes = (
            (n_actions, n_centres, n_numbers),
            (n_actions,),
            (n_actions, n_centres, 2, n_budgets),
            (n_actions, 2, n_budgets),
        )
        found = cls(*(torch.zeros(s, dtype=torch.float64, device=device) for s in shapes))
        found.lengths.fill_(1)
        return found._replace(weights=found.weights.to(WEIGHTS))

    def at(self, rows: Tensor) -> Tensor:
        """Values `[n, 2, A, B]` at rows `[n, D]`."""
        n_actions, n_centres, _, n_budgets = self.weights.shape
        centres, lengths = self.centres.flatten(0, 1), self.lengths.repeat_interleave(n_centres)
        weights = self.weights.flatten(2)
        values = rows.new_empty((len(rows), 2, n_actions, n_budgets))
        step = max(1, _CHUNK // (n_actions * (n_centres + 2 * n_budgets)))
        for first in range(0, len(rows), step):
            part = slice(first, first + step)
            near = bumps(rows[part], centres, lengths, weights.dtype)
            sums = torch.bmm(near.view(-1, n_actions, n_centres).transpose(0, 1), weights)
            values[part] = sums.view(n_actions, -1, 2, n_budgets).permute(1, 2, 0, 3)
        values += self.means.transpose(0, 1)
        return values

    def of_action(self, rows: Tensor, action: int) -> Tensor:
        """Values `[n, 2, B]` of one action at rows `[n, D]`."""
        one = Sums(*(tensor[action : action + 1] for tensor in self))
        return one.at(rows)[:, :, 0]


class Basis:
    """Bumps around centres of some rows, for each length, in directions that are orthogonal."""

    def __init__(
        self,
        rows: Tensor,
        centres: Tensor,
        lengths: Sequence[float],
        ridges: Sequence[float],
        rng: np.random.Generator,
    ) -> None:
        """Chooses the rows that judge: all of them, unless there are many.

        Args:
            rows: `[n, D]`.
            centres: `[C, D]`.
            lengths: to choose from.
            ridges: to choose from.
            rng: of the rows that judge.
        """
        self._rows, self.centres = rows, centres
        self._lengths, self._ridges = lengths, rows.new_tensor(ridges)
        judged = rng.permutation(len(rows))[:_N_JUDGED]
        self._judged = torch.from_numpy(judged).to(rows.device)
        self._whole: dict[float, Directions] = {}

    def solution(self, targets: Tensor) -> tuple[float, Tensor]:
        """Fits to targets `[n, 2, B]` of mean 0: the length, and weights of centres `[C, 2, B]`."""
        length, ridge = self._smoothness(targets)
        if length not in self._whole:
            self._whole[length] = directions(self._rows, self.centres, length)
        root, sizes = self._whole[length]
        columns = targets.flatten(1)
        moment = columns.new_zeros((len(self.centres), columns.shape[1]))
        for part in _chunks(len(self._rows), len(self.centres)):
            moment += bumps(self._rows[part], self.centres, length).T @ columns[part]
        weights = root @ (root.T @ moment / (sizes + ridge)[:, None])
        return length, weights.reshape(-1, *targets.shape[1:])

    def _smoothness(self, targets: Tensor) -> tuple[float, float]:
        """The length and the ridge of the least leave-one-out error, on some rows and budgets."""
        n_budgets = targets.shape[2]
        budgets = [0, n_budgets // 2, n_budgets - 1]
        columns = targets[self._judged][:, :, budgets].flatten(1)
        deviation = columns.std(0, correction=0)
        varies = deviation > 1e-6 * targets.abs().max()
        columns = (columns / torch.where(varies, deviation, torch.inf)).float()
        errors = []
        for judge in self._judges:
            moment = judge.features.T @ columns  # [M, K]
            found = judge.features @ (judge.shrunk[:, :, None] * moment)  # [R, n, K]
            errors.append(((columns - found) / judge.left[:, :, None]).square().sum((1, 2)))
        best = int(torch.stack(errors).argmin())
        n_ridges = len(self._ridges)
        return self._lengths[best // n_ridges], float(self._ridges[best % n_ridges])

    @cached_property
    def _judges(self) -> list[Judge]:
        """One for each length."""
        rows = self._rows[self._judged]
        judges = []
        for length in self._lengths:
            root, sizes = directions(rows, self.centres, length)
            features = bumps(rows, self.centres, length) @ root
            shrunk = 1 / (sizes + self._ridges[:, None])
            left = 1 - (shrunk @ features.square().T).clip(max=0.99)
            judges.append(Judge(features.float(), shrunk.float(), left.float()))
        return judges


class Judge(NamedTuple):
    """What the leave-one-out errors of one length follow from, in single precision."""

    features: Tensor  # [n, M], directions at the rows
    shrunk: Tensor  # [R, M], what a ridge leaves of a direction, over its size
    left: Tensor  # [R, n], what others have in the value of a row


class Directions(NamedTuple):
    """Combinations of bumps that are orthogonal, on some rows and in the sense of the kernel."""

    root: Tensor  # [C, M], combinations
    sizes: Tensor  # [M], sums of their squares on the rows


def directions(rows: Tensor, centres: Tensor, length: float) -> Directions:
    """Turns bumps into directions."""
    own, turn = _eigh(bumps(centres, centres, length))
    kept = own > _LEAST * own[-1]
    root = turn[:, kept] / own[kept].sqrt()
    gram = root.new_zeros((len(centres), len(centres)))
    for part in _chunks(len(rows), len(centres)):
        near = bumps(rows[part], centres, length)
        gram += near.T @ near
    sizes, turn = _eigh(root.T @ gram @ root)
    return Directions(root @ turn, sizes.clip(0))


def bumps(
    rows: Tensor, centres: Tensor, lengths: float | Tensor, dtype: torch.dtype = torch.float64
) -> Tensor:
    """How near rows `[n, D]` are to centres `[C, D]`: `[n, C]`, from 0 to 1.

    Lengths are one, or one for each centre, `[C]`.

    >>> rows = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    >>> bumps(rows, rows[:1], 1.0).numpy().round(3).tolist()
    [[1.0], [0.135]]
    """
    squares = torch.addmm(centres.square().sum(1), rows, centres.T, alpha=-2)
    squares += rows.square().sum(1)[:, None]
    squares *= -0.5 / lengths**2
    return squares.to(dtype).clamp_(_FARTHEST, 0).exp_()


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


def _eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, rising, and vectors; by the CPU, which is faster at matrices of this size."""
    sizes, vectors = torch.linalg.eigh(matrix.cpu())
    return sizes.to(matrix.device), vectors.to(matrix.device)


def _chunks(n_rows: int, n_centres: int) -> list[slice]:
    """Parts of the rows that are small enough."""
    step = max(1, _CHUNK // n_centres)
    return [slice(first, first + step) for first in range(0, n_rows, step)]
