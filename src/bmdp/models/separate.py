"""A model of its own for each output, fitted one after the other.

Importing this module imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bmdp.arrays import FloatArray
from bmdp.models.problem import FitRecord, Fitter, Problem
from bmdp.policies.hull import QFunction
from bmdp.policies.stored import storable


@storable
@dataclass(frozen=True, eq=False)
class SideBySideQ:
    """Q-functions of some outputs each, one after the other along the last axis."""

    functions: tuple[QFunction, ...]

    def __call__(self, states: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c), each `[N, A, M]`."""
        rewards, costs = zip(*(q(states) for q in self.functions), strict=True)
        return np.concatenate(rewards, axis=-1), np.concatenate(costs, axis=-1)


class SeparateFitter:
    """`E` models for each output, where `E` is what the problem says."""

    def __init__(
        self, problem: Problem, make: Callable[[Problem], Fitter], *, covers_grid: bool
    ) -> None:
        """Makes models that know nothing.

        Args:
            problem: with as many outputs as its grid is long.
            make: makes the models of one output.
            covers_grid: whether these are fitted on a grid, or at labels of their rows.
        """
        self._covers_grid = covers_grid
        self._fitters = [
            make(replace(problem, beta_grid=np.zeros(1), seed=problem.seed + 7919 * m))
            for m in range(len(problem.beta_grid))
        ]

    def fit(self, name: str, budgets: Tensor, targets: Tensor) -> FitRecord:
        """Fits each output to its targets, of `[N, M, 2]`."""
        one = self._only(targets)
        records = [f.fit(name, one, targets[:, m : m + 1]) for m, f in enumerate(self._fitters)]
        return FitRecord(
            float(np.mean([r.first_loss for r in records])),
            float(np.mean([r.last_loss for r in records])),
            records[0].n_steps,
        )

    def error(self, budgets: Tensor, targets: Tensor) -> float:
        """Mean error over outputs."""
        one = self._only(targets)
        errors = [f.error(one, targets[:, m : m + 1]) for m, f in enumerate(self._fitters)]
        return float(np.mean(errors))

    def grid(self, states: NDArray[Any]) -> Tensor:
        """Values at states `[n, D]`: `[E, n, 2, A, M]`."""
        return torch.cat([f.grid(states) for f in self._fitters], dim=-1)

    def result(self, model: int) -> SideBySideQ:
        """The trained models of all outputs, side by side."""
        return SideBySideQ(tuple(f.result(model) for f in self._fitters))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that they need to go on."""
        each = ((m, f.arrays()) for m, f in enumerate(self._fitters))
        return {f"{m}/{name}": array for m, found in each for name, array in found.items()}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Goes on from there."""
        for m, fitter in enumerate(self._fitters):
            mine = {k.partition("/")[2]: v for k, v in arrays.items() if k.startswith(f"{m}/")}
            fitter.restore(mine)

    def _only(self, targets: Tensor) -> Tensor:
        """The only budget that the models of an output know, for all rows or for each."""
        return targets.new_zeros(1 if self._covers_grid else (len(targets), 1))
