"""One iteration of fitted Q: values of next states, and models fitted to them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bmdp.arrays import FloatArray, IntArray
from bmdp.data import TransitionBatch
from bmdp.learn.fit_config import FitConfig, FTQConfig
from bmdp.learn.targets import NextValues, cautious
from bmdp.models.fitting import make_fitter
from bmdp.models.problem import FitRecord, Fitter, Problem
from bmdp.policies.crossed import MeanQ
from bmdp.policies.hull import QFunction
from bmdp.policies.multiplier import MultiplierPolicy
from bmdp.policies.portfolio import Portfolio
from bmdp.policies.protocol import OneStepPolicy
from bmdp.policies.staged import NarrowQ, StagedPolicy
from bmdp.randomness import named_generator

Record = dict[str, Any]
LearnedPolicy = OneStepPolicy | StagedPolicy
"""What is learned for budgets, or for one price."""
PricedPlay = Portfolio | MultiplierPolicy
"""What is learned for many prices."""
TrainedPolicy = LearnedPolicy | PricedPlay
"""What a run leaves."""

_CHUNK = 16_384  # states that are valued at a time


class Keeper(Protocol):
    """Keeps what a fit needs to go on after it was killed."""

    def load(self) -> tuple[int, dict[str, NDArray[Any]]] | None:
        """Number of iterations done (all of them, if it stopped early) and the arrays, if any."""

    def save(self, n_done: int, arrays: dict[str, NDArray[Any]]) -> None:
        """Keeps the arrays after an iteration."""


class Iterating(Protocol):
    """What is learned by one iteration after the other."""

    models: Fitter

    def iterate(self, iteration: int) -> Record:
        """Does one, and tells how it went; `is_last` if there is nothing more to do."""


def run_iterations(
    fit: Iterating, n_iterations: int, on_record: Callable[[Record], None], keeper: Keeper | None
) -> None:
    """Does all iterations but those that were done before a kill."""
    n_done = 0
    if keeper is not None and (kept := keeper.load()) is not None:
        n_done, arrays = kept
        fit.models.restore(arrays)
    for iteration in range(n_done, n_iterations):
        record = fit.iterate(iteration)
        on_record(record)  # before it is kept: an iteration that is done has its record
        if keeper is not None:
            n_done = n_iterations if record["is_last"] else iteration + 1
            keeper.save(n_done, fit.models.arrays())
        if record["is_last"]:
            break


@dataclass(frozen=True, eq=False)
class Prepared:
    """What an iteration fits the models to, and what is known before it does."""

    budgets: Tensor  # [N, L], or the grid [B]
    targets: Tensor  # [N, L, 2], of scaled rewards
    is_fitted: bool  # whether the models are good enough as they are
    record: Record
    seconds: tuple[float, float, float]  # of the models, of frontiers, and of all so far

    @property
    def name(self) -> str:
        """Of the iteration, for random numbers."""
        return f"iteration-{self.record['iteration']}"


class Fit(ABC):
    """Models in training on one batch, and the values that they are fitted to.

    Members say what is greedy, and what policy comes of it.
    """

    def __init__(
        self,
        config: FitConfig,
        batch: TransitionBatch,
        seed: int,
        device: torch.device,
        *,
        folds: IntArray | None = None,
        columns: IntArray | None = None,
    ) -> None:
        """Makes models that know nothing.

        Args:
            config: settings.
            batch: transitions.
            seed: of all that is random.
            device: of the models.
            folds: `[N]`, of the rows; drawn, if not given.
            columns: of states, that the models see; all, if not given.
        """
        self.config, self.batch, self.seed, self.device = config, batch, seed, device
        self.columns = columns
        self.reward_scale = reward_scale(config, batch.reward)
        n_models = config.n_models
        if folds is None:
            folds = batch.folds(n_models, named_generator(seed, "fit/folds"))
        self.members = folds == np.arange(n_models)[:, None]  # [E, N]
        if config.acting == "pooled" and n_models > 1:
            self.members = np.vstack((self.members, np.ones_like(self.members[:1])))
        problem = Problem(
            states=self._seen(batch.state),
            actions=batch.action,
            members=self.members,
            n_actions=batch.n_actions,
            beta_grid=config.beta_grid,
            reward_scale=self.reward_scale,
            seed=seed,
        )
        self.models = self._make_models(problem)
        self.grid = torch.tensor(config.beta_grid, dtype=torch.float32, device=device)
        starts = batch.starts()
        self.starts = self._seen(batch.state[starts if len(starts) else slice(None)][:1000])

    def iterate(self, iteration: int, source: Fitter | None = None) -> Record:
        """Values the next states, by these models or by others, and fits the models to that."""
        prepared = self.prepare(iteration, source)
        begin = time.perf_counter()
        fitted = None
        if not prepared.is_fitted:
            fitted = self.models.fit(prepared.name, prepared.budgets, prepared.targets)
        return self.finish(prepared, fitted, begin)

    def prepare(self, iteration: int, source: Fitter | None = None) -> Prepared:
        """Values the next states, by these models or by others."""
        begin = time.perf_counter()
        budgets = self._labels(iteration)
        forward = frontier = 0.0
        n_infeasible = 0
        own = torch.tensor(
            np.stack((self.batch.reward / self.reward_scale, self.batch.cost), axis=-1),
            dtype=torch.float32,
            device=self.device,
        )
        targets = own[:, None].expand(-1, budgets.shape[-1], -1).clone()
        if source is not None or iteration > 0:
            rows = np.flatnonzero(~self.batch.terminal)
            discount = targets.new_tensor([self.config.gamma, self.config.discount_of_costs])
            for first in range(0, len(rows), _CHUNK):
                part = rows[first : first + _CHUNK]
                at = time.perf_counter()
                values = (source or self.models).grid(self._seen(self.batch.next_state[part]))
                self._wait()
                forward += time.perf_counter() - at
                at = time.perf_counter()
                found = self._next_values(values, part, budgets)
                places = torch.tensor(part, device=self.device)
                targets[places] += discount * found.values
                n_infeasible += found.n_infeasible
                self._wait()
                frontier += time.perf_counter() - at
        delta = self.models.error(budgets, targets)
        record: Record = {
            "iteration": iteration,
            "delta": delta,
            "share_infeasible": n_infeasible / max(1, len(targets) * targets.shape[1]),
        }
        is_fitted = source is None and iteration > 0 and delta <= self.config.stop_delta
        seconds = (forward, frontier, time.perf_counter() - begin)
        return Prepared(budgets, targets, is_fitted, record, seconds)

    def finish(self, prepared: Prepared, fitted: FitRecord | None, begin: float) -> Record:
        """How an iteration went whose fit, if there was one, began at a time of the clock."""
        record = prepared.record | (fitted.as_dict() if fitted is not None else {})
        record |= self._promised()
        forward, frontier, before = prepared.seconds
        regression = time.perf_counter() - begin
        is_end = prepared.record["iteration"] + 1 == self.config.iterations
        return record | {
            "seconds_forward": forward,
            "seconds_frontier": frontier,
            "seconds_regression": regression,
            "seconds": before + regression,
            "is_last": prepared.is_fitted or is_end,
        }

    @abstractmethod
    def policy(self) -> OneStepPolicy:
        """What the models have learned."""

    @abstractmethod
    def _greedy(self, choosing: Tensor, valuing: Tensor, asked: Tensor) -> NextValues:
        """What is best by values `[n, 2, A, B]`, valued by others, at what is asked for.

        That is `[n, L]`, or `[L]` for all.
        """

    @abstractmethod
    def _ends(self) -> Tensor:
        """What is asked for, `[2]`, where least and where most is spent."""

    def _make_models(self, problem: Problem) -> Fitter:
        """Models that know nothing."""
        return make_fitter(self.config.model, problem, self.config.regression, self.device)

    def _learned(self) -> QFunction:
        """What a policy acts on: the model, the mean of several, or the pooled one."""
        results = [self._result(e) for e in range(len(self.members))]
        if len(results) == 1 or self.config.acting == "pooled":
            return results[-1]
        caution = self.config.caution if self.config.valuation == "pessimistic" else 0.0
        return MeanQ(tuple(results), caution)

    def _result(self, model: int) -> QFunction:
        """A trained model, as a function of all that is seen."""
        found = self.models.result(model)
        return found if self.columns is None else NarrowQ(found, self.columns)

    def _seen(self, states: NDArray[Any]) -> NDArray[Any]:
        """What the models see of states."""
        return states if self.columns is None else states[:, self.columns]

    def _labels(self, iteration: int) -> Tensor:
        """Where rows are fitted: the grid `[B]`."""
        return self.grid

    def _next_values(self, values: Tensor, rows: NDArray[Any], budgets: Tensor) -> NextValues:
        """Values of next states `[n, L, 2]` by models `[E, n, 2, A, B]`.

        Each model values what the mean of the others chooses, and the mean over all models is
        taken; or all models do both together, with caution.
        """
        values = values[: self.config.n_models]
        asked = budgets if budgets.ndim == 1 else budgets[torch.tensor(rows)]
        if self.config.valuation in ("self", "pessimistic"):
            one = self._together(values)
            return self._greedy(one, one, asked)
        total = values.sum(dim=0)
        parts = [self._greedy((total - own) / (len(values) - 1), own, asked) for own in values]
        mean = torch.stack([part.values for part in parts]).mean(dim=0)
        return NextValues(mean, sum(part.n_infeasible for part in parts) // len(parts))

    def _together(self, values: Tensor) -> Tensor:
        """What the policy acts on `[n, 2, A, B]`, given what its models say `[E, n, 2, A, B]`."""
        if self.config.valuation == "pessimistic":
            return cautious(values, self.config.caution)
        return values[-1] if self.config.acting == "pooled" else values.mean(dim=0)

    def at_starts(self, asked: Tensor) -> Tensor:
        """What the models promise at the first states, (V_r, V_c) of scaled rewards, `[L, 2]`."""
        values = self._together(self.models.grid(self.starts))
        return self._greedy(values, values, asked).values.mean(dim=0)

    def _promised(self) -> Record:
        """What the models promise at the ends."""
        (low_r, low_c), (high_r, high_c) = self.at_starts(self._ends()).tolist()
        scale = self.reward_scale
        return {
            "start_reward_low": low_r * scale,
            "start_cost_low": low_c,
            "start_reward_high": high_r * scale,
            "start_cost_high": high_c,
        }

    def _wait(self) -> None:
        """Waits for the GPU, so that seconds are told apart."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def reward_scale(config: FitConfig | FTQConfig, rewards: FloatArray) -> float:
    """What rewards are divided by: the setting, or the largest magnitude of the data."""
    largest = float(np.abs(rewards).max())
    return config.reward_scale or (largest if largest > 0 else 1.0)
