"""The values of a given policy, by a model in training. Importing this module imports torch.

A model is asked at states where the policy does what is rare in the data, and may say anything
there. As every regression learns from the one before, such errors would grow from step to step. So
nothing is believed beyond what the model was fitted to: no value of an action at a budget is below
the least or above the most of its targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from bmdp.arrays import FloatArray, IntArray
from bmdp.data import TransitionBatch
from bmdp.errors import PolicyError
from bmdp.models import Model, Regression
from bmdp.models.fitting import device_of, make_fitter
from bmdp.models.problem import Problem
from bmdp.policies.decisions import Options
from bmdp.policies.expectation import Places, expected, places_of
from bmdp.policies.protocol import OneStepPolicy

_CHUNK = 16_384  # states that are valued at a time


@dataclass(frozen=True, eq=False)
class Terms:
    """What all models of an evaluation share."""

    model: Model
    beta_grid: FloatArray  # [B]
    discounts: tuple[float, float]  # of rewards and of costs
    reward_scale: float
    n_actions: int
    seed: int
    device: str

    def choices(
        self, policy: OneStepPolicy, states: list[FloatArray], budgets: FloatArray
    ) -> list[Places]:
        """Returns what a policy does at states, in parts, at each of the budgets `[L]`.

        Raises:
            PolicyError: if it plays an action that there is not.
        """
        return [self._placed(policy.options_at(part, budgets)) for part in states]

    def _placed(self, options: Options) -> Places:
        unknown = options.action[(options.action < 0) | (options.action >= self.n_actions)]
        if len(unknown):
            raise PolicyError(
                f"the policy plays action {unknown[0]}; the batch has actions 0 to "
                f"{self.n_actions - 1}."
            )
        return places_of(options, self.beta_grid)


class PolicyFit:
    """The values of a policy, by a model in training on some transitions."""

    def __init__(
        self, terms: Terms, batch: TransitionBatch, columns: IntArray | None = None
    ) -> None:
        """Makes a model that knows nothing, and sees some columns of states, or all."""
        self.terms, self.batch, self.columns = terms, batch, columns
        self.device = device_of(terms.model, terms.device)
        self.going = np.flatnonzero(~batch.terminal)
        problem = Problem(
            states=self._seen(batch.state),
            actions=batch.action,
            members=np.ones((1, len(batch)), np.bool_),
            n_actions=terms.n_actions,
            beta_grid=terms.beta_grid,
            reward_scale=terms.reward_scale,
            seed=terms.seed,
        )
        self.models = make_fitter(terms.model, problem, Regression(), self.device)
        self.bounds = np.zeros((2, 2, terms.n_actions, len(terms.beta_grid)), np.float32)

    def next_states(self) -> Iterator[FloatArray]:
        """Those of rows that go on, some at a time."""
        for first in range(0, len(self.going), _CHUNK):
            yield self.batch.next_state[self.going[first : first + _CHUNK]]

    def learn(self, name: str, following: FloatArray | None) -> FloatArray:
        """Fits to what was earned and paid and, of rows that go on, what follows `[n, B, 2]`.

        Returns what it was fitted to, `[N, B, 2]`, of scaled rewards.
        """
        own = np.stack((self.batch.reward / self.terms.reward_scale, self.batch.cost), axis=-1)
        targets = np.repeat(own[:, None], len(self.terms.beta_grid), axis=1)
        if following is not None:
            targets[self.going] += np.array(self.terms.discounts) * following
        budgets, values = (
            torch.tensor(array, dtype=torch.float32, device=self.device)
            for array in (self.terms.beta_grid, targets)
        )
        if not self.terms.model.covers_grid:
            budgets = budgets.expand(len(values), -1)
        self.models.fit(name, budgets, values)
        self.bounds = _bounds(targets, self.batch.action, self.terms.n_actions)
        return targets

    def worth(self, states: list[FloatArray], choices: list[Places]) -> FloatArray:
        """Values `[n, L, 2]` of choices at states, in parts; with no part, there is no value."""
        parts = [
            np.moveaxis(expected(self._values(part), chosen), 1, 2)
            for part, chosen in zip(states, choices, strict=True)
        ]
        return np.concatenate(parts) if parts else np.empty((0, len(self.terms.beta_grid), 2))

    def _values(self, states: FloatArray) -> FloatArray:
        """Values `[n, 2, A, B]` at states, within their bounds."""
        found: FloatArray = self.models.grid(self._seen(states))[0].cpu().numpy()
        return found.clip(*self.bounds)

    def _seen(self, states: FloatArray) -> FloatArray:
        return states if self.columns is None else states[:, self.columns]


def _bounds(targets: FloatArray, actions: IntArray, n_actions: int) -> FloatArray:
    """Least and largest targets of each action, `[2, 2, A, B]`; of all, if an action has none."""
    every = np.ones(len(actions), np.bool_)
    masks = [actions == action for action in range(n_actions)]
    own = [targets[mask if mask.any() else every] for mask in masks]
    ends = [np.stack([part.min(axis=0), part.max(axis=0)]) for part in own]  # [2, B, 2] each
    return np.stack(ends).transpose(1, 3, 0, 2).astype(np.float32)
