"""Fitting backwards: a model for each step of an episode, from the last to the first.

Where steps are known nothing has to settle: what a step is worth follows from the step after it.
All transitions are fitted at every step, which is right where what an action leads to depends on
what is seen, but not on the step. Two things are put apart: the last step, after which all ends,
and which may have rules of its own, unless it is told to be like the others; and numbers of the
state that the step determines, such as a clock, which the policy need not see, as it counts steps
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bmdp.arrays import BoolArray, IntArray
from bmdp.data import TransitionBatch
from bmdp.errors import DataError
from bmdp.learn.fit import Fit, Keeper, Record, reward_scale
from bmdp.learn.fit_config import FitConfig
from bmdp.policies.staged import StagedPolicy
from bmdp.randomness import named_generator


def fit_stages(
    stages: Stages, on_record: Callable[[Record], None], keeper: Keeper | None
) -> StagedPolicy:
    """Fits all stages but those that were fitted before a kill."""
    n_done, arrays = (keeper.load() if keeper is not None else None) or (0, {})
    policies, source = [], None
    for number, step in enumerate(reversed(range(stages.n_stages))):
        fit = stages.fit(step)
        if number < n_done:
            fit.models.restore(_of_step(arrays, step))
        else:
            record = fit.iterate(number, source)
            on_record({**record, "iteration": number, "step": step, "is_last": step == 0})
            arrays = arrays | {f"{step}/{k}": v for k, v in fit.models.arrays().items()}
            if keeper is not None:
                keeper.save(number + 1, arrays)
        source = fit.models
        policies.append(fit.policy())
    return StagedPolicy(tuple(reversed(policies)))


@dataclass(frozen=True, eq=False)
class Stages:
    """What is fitted at each step."""

    kind: type[Fit]
    config: FitConfig
    batch: TransitionBatch
    seed: int
    device: torch.device

    @cached_property
    def n_stages(self) -> int:
        """Number of steps of the longest episode."""
        return int(self._step.max()) + 1

    def fit(self, step: int) -> Fit:
        """Returns the models of a step in training; but for the last, those of all steps."""
        if step == self.n_stages - 1:
            is_alike = self.config.stages == "alike"
            rows = np.full(len(self.batch), is_alike) | (self._step == step)
            return self._fit(rows, step)
        return self._shared

    @cached_property
    def _shared(self) -> Fit:
        return self._fit(self._step < self.n_stages - 1, 0)

    def _fit(self, rows: BoolArray, step: int) -> Fit:
        places = np.flatnonzero(rows)
        if len(np.unique(self._folds[places])) < self.config.n_models:
            raise DataError(
                f"stages need episodes of every model; those of step {step} have "
                f"{len(places)} transitions."
            )
        return self.kind(
            self._in_one_unit,
            self.batch.take(places),
            self.seed + step,
            self.device,
            folds=self._folds[places],
            columns=self._seen,
        )

    @cached_property
    def _in_one_unit(self) -> FitConfig:
        """The settings, with a scale of rewards that all stages have."""
        return replace(self.config, reward_scale=reward_scale(self.config, self.batch.reward))

    @property
    def _step(self) -> IntArray:
        if self.batch.step is None:
            raise DataError("stages need a batch with steps; this one has none.")
        return self.batch.step

    @cached_property
    def _folds(self) -> IntArray:
        return self.batch.folds(self.config.n_models, named_generator(self.seed, "fit/folds"))

    @cached_property
    def _seen(self) -> IntArray:
        return np.flatnonzero(~told_by_step(self.batch.state, self._step))


def told_by_step(states: NDArray[Any], steps: IntArray) -> BoolArray:
    """Which numbers of states `[N, D]` are the same in all rows of a step, `[D]`.

    All are kept, as if none were, where that is all of them.

    >>> told_by_step(np.array([[0.0, 1.0], [0.0, 2.0], [0.5, 1.0]]), np.array([0, 0, 1])).tolist()
    [True, False]
    """
    told = np.ones(states.shape[1], np.bool_)
    for step in np.unique(steps):
        told &= np.ptp(states[steps == step], axis=0) == 0
    return told & ~told.all()


def _of_step(arrays: dict[str, NDArray[Any]], step: int) -> dict[str, NDArray[Any]]:
    """What was kept of one step."""
    return {k.partition("/")[2]: v for k, v in arrays.items() if k.startswith(f"{step}/")}
