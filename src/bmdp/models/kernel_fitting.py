"""Kernel models in training, on a device. Importing this module imports torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bmdp.models.bumps import Basis, Sums, far_apart
from bmdp.models.kernel import KernelModel, KernelQ
from bmdp.models.networks import Scaling
from bmdp.models.plain import flat_states
from bmdp.models.problem import FitRecord, Problem
from bmdp.randomness import named_generator

_MOST_JUDGED = 4096  # rows of a model that tell its error


class KernelFitter:
    """Kernel models in training. What depends on the states alone is computed once."""

    def __init__(self, model: KernelModel, problem: Problem, device: Any) -> None:
        """Makes models that are 0 everywhere."""
        self.model, self.problem, self.device = model, problem, torch.device(device)
        self.scaling = Scaling.of(flat_states(problem.states))
        self._rows = self._scaled(problem.states)
        self._own = [
            [self._places(mask & (problem.actions == a)) for a in range(problem.n_actions)]
            for mask in problem.members
        ]
        self._found = [self._nothing() for _ in problem.members]
        self._bases: dict[tuple[int, int], Basis] = {}

    def fit(self, name: str, budgets: Tensor, targets: Tensor) -> FitRecord:
        """Fits to targets `[N, B, 2]` at the grid."""
        values = targets.to(self.device).transpose(1, 2)
        first_loss = self._error(values)
        for model, own in enumerate(self._own):
            if any(map(len, own)):
                self._found[model] = self._solved(model, values)
        return FitRecord(first_loss, self._error(values), 1)

    def error(self, budgets: Tensor, targets: Tensor) -> float:
        """Mean squared error of Q_r plus that of Q_c, mean over models on some of their rows."""
        return self._error(targets.to(self.device).transpose(1, 2))

    def grid(self, states: NDArray[Any]) -> Tensor:
        """Values at states `[n, D]`: `[E, n, 2, A, B]`, of scaled rewards."""
        rows = self._scaled(states)
        return torch.stack([found.at(rows).float() for found in self._found])

    def result(self, model: int) -> KernelQ:
        """A model as it is."""
        centres, lengths, weights, means = (t.cpu().numpy() for t in self._found[model])
        by = self.scaling
        return KernelQ(
            centres, lengths, weights, means, by.centre, by.scale, self.problem.reward_scale
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Centres, lengths, weights and means of each model."""
        return {
            f"{model}/{name}": tensor.cpu().numpy()
            for model, found in enumerate(self._found)
            for name, tensor in found._asdict().items()
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Goes on from there."""
        for model in range(len(self._found)):
            kept = (np.array(arrays[f"{model}/{name}"]) for name in Sums._fields)
            self._found[model] = Sums(*(torch.from_numpy(a).to(self.device) for a in kept))

    def _solved(self, model: int, values: Tensor) -> Sums:
        """Solves for each action; values are `[N, 2, B]`."""
        found = self._nothing()
        found.means[:] = values[torch.cat(self._own[model])].double().mean(0)
        for action, own in enumerate(self._own[model]):
            if len(own) == 0:
                continue
            targets = values[own].double()
            found.means[action] = targets.mean(0)
            basis = self._basis(model, action)
            length, weights = basis.solution(targets - found.means[action])
            found.centres[action, : len(weights)] = basis.centres
            found.lengths[action] = length
            found.weights[action, : len(weights)] = weights
        return found

    def _basis(self, model: int, action: int) -> Basis:
        """Bumps for the rows of one model and action, which are the same at every fit."""
        if (model, action) not in self._bases:
            rng = named_generator(self.problem.seed, f"fit/centres/{model}/{action}")
            rows, asked = self._rows[self._own[model][action]], self.model
            centres = torch.from_numpy(far_apart(rows.cpu().numpy(), asked.centres, rng))
            self._bases[model, action] = Basis(
                rows, centres.to(self.device), asked.lengths, asked.ridges, rng
            )
        return self._bases[model, action]

    def _error(self, values: Tensor) -> float:
        """Error on values `[N, 2, B]`."""
        losses = []
        for found, own in zip(self._found, self._own, strict=True):
            n_rows = sum(map(len, own))
            step = -(-n_rows // _MOST_JUDGED) or 1
            squares = [
                (found.of_action(self._rows[rows], action) - values[rows]).square().sum((0, 1))
                for action, rows in enumerate(own_rows[::step] for own_rows in own)
            ]
            n_judged = sum(len(rows[::step]) for rows in own)
            losses.append(float(torch.stack(squares).sum(0).mean()) / max(1, n_judged))
        return float(np.mean(losses))

    def _nothing(self) -> Sums:
        problem = self.problem
        shape = (problem.n_actions, self.model.centres, self._rows.shape[1], len(problem.beta_grid))
        return Sums.nothing(shape, self.device)

    def _scaled(self, states: NDArray[Any]) -> Tensor:
        rows = (flat_states(states) - self.scaling.centre) / self.scaling.scale
        return torch.from_numpy(rows).to(self.device)

    def _places(self, mask: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.flatnonzero(mask)).to(self.device)
