"""One iteration of budgeted fitted Q: values of next states, and models fitted to them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bmdp.arrays import FloatArray, IntArray
from bmdp.data import TransitionBatch
from bmdp.errors import DataError
from bmdp.learn.config import BFTQConfig, FTQConfig
from bmdp.learn.targets import NextValues, cautious, mixture_values
from bmdp.models.fitting import make_fitter
from bmdp.models.problem import FitRecord, Fitter, Problem
from bmdp.policies.audited import AuditedPolicy
from bmdp.policies.crossed import CrossedPolicy, MeanQ
from bmdp.policies.greedy import GreedyRule
from bmdp.policies.hull import HullPolicy, QFunction
from bmdp.policies.protocol import OneStepPolicy
from bmdp.policies.staged import NarrowQ, StagedPolicy
from bmdp.randomness import named_generator

Record = dict[str, Any]
LearnedPolicy = OneStepPolicy | StagedPolicy
TrainedPolicy = LearnedPolicy | AuditedPolicy


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


class Fit:
    """Models in training on one batch, and the values that they are fitted to."""

    def __init__(
        self,
        config: BFTQConfig,
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
        self.models = make_fitter(config.model, problem, config.regression, device)
        self.rule = GreedyRule(config.cost_floor, config.slope_cap)
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
            for first in range(0, len(rows), self.config.chunk):
                part = rows[first : first + self.config.chunk]
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
        record |= self._at_starts()
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

    def policy(self) -> OneStepPolicy:
        """What the models have learned."""
        rule = replace(self.rule, slope_cap=self.rule.slope_cap * self.reward_scale)
        results = [self._result(e) for e in range(len(self.members))]
        if len(results) == 1:
            return HullPolicy(results[0], self.config.beta_grid, rule)
        if self.config.acting == "pooled":
            return HullPolicy(results[-1], self.config.beta_grid, rule)
        if self.config.acting == "crossed":
            return CrossedPolicy(results[0], results[1], self.config.beta_grid, rule)
        caution = self.config.caution if self.config.valuation == "pessimistic" else 0.0
        return HullPolicy(MeanQ(tuple(results), caution), self.config.beta_grid, rule)

    def _result(self, model: int) -> QFunction:
        """A trained model, as a function of all that is seen."""
        found = self.models.result(model)
        return found if self.columns is None else NarrowQ(found, self.columns)

    def _seen(self, states: NDArray[Any]) -> NDArray[Any]:
        """What the models see of states."""
        return states if self.columns is None else states[:, self.columns]

    def _labels(self, iteration: int) -> Tensor:
        """Budgets at which rows are fitted, `[N, L]`, or the grid `[B]`."""
        if self.config.model.covers_grid:
            return self.grid
        if self.config.labels == "stored":
            if self.batch.budget is None:
                raise DataError(
                    "labels='stored' needs a batch with budgets; this one has none. Use "
                    "labels='uniform'."
                )
            drawn: FloatArray = np.asarray(self.batch.budget, np.float64)[:, None]
        else:
            rng = named_generator(self.seed, f"fit/labels/{iteration}")
            shape = (len(self.batch), self.config.n_labels)
            drawn = rng.uniform(*self.config.budget_range, shape)
        return torch.tensor(drawn, dtype=torch.float32, device=self.device)

    def _next_values(self, values: Tensor, rows: NDArray[Any], budgets: Tensor) -> NextValues:
        """Values of next states `[n, L, 2]` by models `[E, n, 2, A, B]`.

        Each model values what the mean of the others chooses, and the mean over all models is
        taken; or all models do both together, with caution.
        """
        valuation = self.config.valuation
        values = values[: self.config.n_models]
        asked = budgets if budgets.ndim == 1 else budgets[torch.tensor(rows)]
        if valuation in ("self", "pessimistic"):
            one = self._together(values)
            return mixture_values(one, one, asked, self.rule)
        total, mixes = values.sum(dim=0), valuation == "values"
        parts = [
            mixture_values(
                (total - own) / (len(values) - 1), own, asked, self.rule, chooser_mixes=mixes
            )
            for own in values
        ]
        mean = torch.stack([part.values for part in parts]).mean(dim=0)
        return NextValues(mean, sum(part.n_infeasible for part in parts) // len(parts))

    def _together(self, values: Tensor) -> Tensor:
        """What the policy acts on `[n, 2, A, B]`, given what its models say `[E, n, 2, A, B]`."""
        if self.config.valuation == "pessimistic":
            return cautious(values, self.config.caution)
        return values[-1] if self.config.acting == "pooled" else values.mean(dim=0)

    def _at_starts(self) -> Record:
        """What the models promise at the first states, at the ends of the budget range."""
        values = self._together(self.models.grid(self.starts))
        ends = torch.tensor(self.config.budget_range, dtype=torch.float32, device=self.device)
        found = mixture_values(values, values, ends, self.rule).values.mean(dim=0)
        (low_r, low_c), (high_r, high_c) = found.tolist()
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


def reward_scale(config: BFTQConfig | FTQConfig, rewards: FloatArray) -> float:
    """What rewards are divided by: the setting, or the largest magnitude of the data."""
    largest = float(np.abs(rewards).max())
    return config.reward_scale or (largest if largest > 0 else 1.0)
