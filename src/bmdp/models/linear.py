"""Least squares on features of the state: fitted in closed form, and right or wrong in a known way.

Features are 1, the numbers of a state after scaling, and perhaps their products. Every action and
head has coefficients of its own, found in double precision from the normal equations of

    mean of (w . features - (target - m))^2  +  ridge |w|^2

where m is the mean target of the action: what the data do not say is that mean, and not 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from bmdp.checks import require_choice
from bmdp.errors import ConfigError
from bmdp.kinds import checked
from bmdp.models.regressor import (
    Averager,
    Part,
    Problem,
    Scaling,
    Sizes,
    Sum,
    plus,
    register_regressor,
    weighed,
    whole,
)


@checked
@register_regressor
@dataclass(frozen=True)
class LinearModel:
    """Least squares on features of the state.

    Args:
        state_features: "linear", or "quadratic" with products of two numbers.
        ridge: from 0 on.

    >>> from bmdp import BFTQ, BFTQConfig, TransitionBatch
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> config = BFTQConfig(gamma=0.9, model=LinearModel(), ensemble=1)
    >>> frontier = BFTQ(config).fit(log, seed=0).frontier([0])
    >>> frontier.costs.round(6).tolist(), frontier.rewards.round(6).tolist()
    ([0.0, 1.0], [0.0, 10.0])
    """

    state_features: Literal["linear", "quadratic"] = "linear"
    ridge: float = 1e-6

    def __post_init__(self) -> None:
        require_choice("state_features", self.state_features, ("linear", "quadratic"))
        if not 0 <= self.ridge < float("inf"):
            raise ConfigError(f"ridge must be a number from 0 on; got {self.ridge}.")

    def empty(self, sizes: Sizes) -> LinearQ:
        """Returns models that are 0 everywhere."""
        return LinearQ(self, sizes)


class LinearQ(Averager):
    """Values that are linear in features."""

    common = frozenset({"centre", "scale"})
    weighs_rows = True

    settings: LinearModel
    centre: Tensor  # [D], of states
    scale: Tensor  # [D], of states
    coefficients: Tensor  # [E, S, A, P, 2, H]

    def __init__(self, settings: LinearModel, sizes: Sizes) -> None:
        """Makes models whose coefficients are 0."""
        super().__init__(settings, sizes)
        for name, value in {"centre": 0.0, "scale": 1.0}.items():
            self.register_buffer(name, torch.full((sizes.n_numbers,), value, dtype=torch.float64))
        n_features = state_features(self.centre[None], settings.state_features).shape[1]
        shape = (*sizes[:3], n_features, 2, len(sizes.heads))
        self.register_buffer("coefficients", torch.zeros(shape, dtype=torch.float64))

    def build(self, problem: Problem) -> None:
        """Takes the scale of states."""
        by = Scaling.of(problem.states, problem.weights)
        self.centre[:], self.scale[:] = torch.from_numpy(by.centre), torch.from_numpy(by.scale)
        largest = np.abs((problem.states - by.centre) / by.scale).max(initial=1.0)
        self.reach = float(largest) ** (1 if self.settings.state_features == "linear" else 2)

    def embed(self, states: Tensor) -> Tensor:
        """Features of states, `[n, P]`."""
        return state_features((states - self.centre) / self.scale, self.settings.state_features)

    def grams(self, found: Sum, step: int, member: int, part: Part, scale: float) -> Tensor:
        """Products of features with each other for each action, `[A, P, P]`."""
        rows = part.rows.clamp(-self.reach, self.reach)
        heavy = weighed(rows, part.weights)
        own = (part.actions == action for action in range(self.sizes.n_actions))
        each = torch.stack([heavy[mask].T @ rows[mask] for mask in own])
        return plus(found, whole(each, scale))

    def moments(
        self, found: Sum, step: int, member: int, part: Part, values: Tensor, scale: float
    ) -> Tensor:
        """Products of features with targets for each action, `[A, P, 2, H]`."""
        rows = part.rows.clamp(-self.reach, self.reach)
        targets = weighed(values.double(), part.weights)
        own = (part.actions == action for action in range(self.sizes.n_actions))
        each = [torch.einsum("np,nvh->pvh", rows[mask], targets[mask]) for mask in own]
        return plus(found, whole(torch.stack(each), scale))

    def solve(self, step: int, sums: list[tuple[Tensor, Tensor]]) -> None:
        """Solves for each member and action; the first feature is 1, so its gram is the count."""
        for member, (grams, moments) in enumerate(sums):
            everywhere = moments[:, 0].sum(0) / grams[:, 0, 0].sum()
            for action, (gram, moment) in enumerate(zip(grams, moments, strict=True)):
                found = torch.zeros_like(moment)
                mean, count = everywhere, gram[0, 0]
                if count > 0:
                    mean = moment[0] / count
                    left = (moment - gram[:, :1, None] * mean).flatten(1)
                    ridge = self.settings.ridge
                    found = ridge_solution(gram / count, left / count, ridge).view_as(moment)
                found[0] += mean
                self.coefficients[member, step, action] = found

    def check(self) -> None:
        """Checks that there are coefficients of all features.

        Raises:
            StoreError: if not.
        """
        self.require_scaling()
        n_features = state_features(self.centre[None], self.settings.state_features).shape[1]
        self.require("coefficients", (*self.sizes[:3], n_features, 2, len(self.sizes.heads)))

    def read_member(self, member: int, embedded: Tensor, step: int) -> Tensor:
        """Values of one model, `[n, 2, A, H]`."""
        return torch.einsum("np,apvh->nvah", embedded, self.coefficients[member, step])


def state_features(states: Tensor, kind: str) -> Tensor:
    """Features `[n, P]` of scaled states `[n, D]`: 1, the numbers, and perhaps their products.

    >>> state_features(torch.tensor([[2.0, 3.0]]), "quadratic").tolist()
    [[1.0, 2.0, 3.0, 4.0, 6.0, 9.0]]
    """
    parts = [states.new_ones((len(states), 1)), states]
    if kind == "quadratic":
        first, second = torch.triu_indices(states.shape[1], states.shape[1], device=states.device)
        parts.append(states[:, first] * states[:, second])
    return torch.cat(parts, dim=1)


def ridge_solution(gram: Tensor, moment: Tensor, ridge: float) -> Tensor:
    """Returns the w `[F, K]` of (gram + ridge I) w = moment, the smallest if there are many.

    Args:
        gram: products of features with each other, `[F, F]`.
        moment: products of features with targets, `[F, K]`.
        ridge: from 0 on.

    >>> ridge_solution(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[3.0], [0.0]]), 0.5)
    tensor([[2.],
            [0.]])
    """
    sizes, directions = torch.linalg.eigh(gram)
    stiffness = sizes.clip(0) + ridge
    kind = torch.finfo(gram.dtype)
    least = len(gram) * kind.eps * max(float(stiffness[-1]), kind.tiny)
    inverse = torch.where(stiffness > least, 1 / stiffness.clip(least), 0.0)
    solution: Tensor = directions @ (inverse[:, None] * (directions.T @ moment))
    return solution
