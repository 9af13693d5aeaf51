"""What models have in common that are fitted at once, on the CPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.models.problem import FitRecord, Problem
from bmdp.policies.hull import QFunction

if TYPE_CHECKING:
    from torch import Tensor


_MOST_JUDGED = 4096  # rows of a model that tell its error


class Rows(NamedTuple):
    """What one model is fitted to."""

    states: FloatArray  # [n, D]
    actions: IntArray  # [n]
    budgets: FloatArray  # [n, L]
    targets: FloatArray  # [n, L, 2], of (Q_r, Q_c)

    def take(self, rows: Any) -> Rows:
        """Some of the rows."""
        return Rows(self.states[rows], self.actions[rows], self.budgets[rows], self.targets[rows])

    def by_action(self, n_actions: int) -> Iterator[tuple[BoolArray, Rows]]:
        """For each action, which rows have it, and these rows."""
        for action in range(n_actions):
            mask = self.actions == action
            yield mask, self.take(mask)


class PlainFitter(ABC):
    """`E` models that are fitted at once. Before anything was fitted they are 0 everywhere."""

    def __init__(self, problem: Problem) -> None:
        """Makes models that know nothing."""
        self.problem = problem
        self._states = flat_states(problem.states)
        self._members = [np.flatnonzero(mask) for mask in problem.members]

    def fit(self, name: str, budgets: Tensor, targets: Tensor) -> FitRecord:
        """Fits to targets `[N, L, 2]` at budgets `[N, L]`, or at the grid `[B]`."""
        first_loss = self.error(budgets, targets)
        for model, rows in enumerate(self._rows(budgets, targets)):
            self._learn(f"fit/{name}/model-{model}", model, rows)
        return FitRecord(first_loss, self.error(budgets, targets), 1)

    def error(self, budgets: Tensor, targets: Tensor) -> float:
        """Mean squared error of Q_r plus that of Q_c, mean over models on some of their rows."""
        losses = []
        for model, every in enumerate(self._rows(budgets, targets)):
            rows = every.take(slice(None, None, -(-len(every.states) // _MOST_JUDGED) or 1))
            errors = np.square(self._taken(model, rows) - rows.targets)
            losses.append(float(errors.mean(axis=(0, 1)).sum()) if errors.size else 0.0)
        return float(np.mean(losses))

    def grid(self, states: NDArray[Any]) -> Tensor:
        """Values at states `[n, D]`: `[E, n, 2, A, B]`, of scaled rewards."""
        import torch

        rows = flat_states(states)
        values = [self._values(model, rows) for model in range(len(self._members))]
        return torch.from_numpy(np.stack(values).astype(np.float32))

    @abstractmethod
    def result(self, model: int) -> QFunction:
        """A model as it is, as a function of states that can be stored."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that it needs to go on."""

    @abstractmethod
    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Goes on from there."""

    @abstractmethod
    def _learn(self, name: str, model: int, rows: Rows) -> None:
        """Fits one model; the name is for random numbers."""

    @abstractmethod
    def _taken(self, model: int, rows: Rows) -> FloatArray:
        """Values of the actions of rows at their budgets, `[n, L, 2]`."""

    @abstractmethod
    def _values(self, model: int, states: FloatArray) -> FloatArray:
        """Values at states `[n, D]` on the grid, `[n, 2, A, B]`."""

    def _rows(self, budgets: Tensor, targets: Tensor) -> Iterator[Rows]:
        """The rows of each model."""
        values: FloatArray = targets.detach().cpu().numpy()
        held: FloatArray = self.problem.beta_grid
        if budgets.ndim > 1:
            held = budgets.detach().cpu().numpy()
        held = np.broadcast_to(held, values.shape[:2])
        for own in self._members:
            yield Rows(self._states[own], self.problem.actions[own], held[own], values[own])


def flat_states(states: NDArray[Any]) -> FloatArray:
    """States `[N, ...]` as `[N, D]`, in double precision."""
    rows = np.asarray(states, np.float64)
    return rows.reshape(len(rows), int(np.prod(rows.shape[1:])))
