"""Budgeted fitted Q-iteration: from a batch of transitions to a policy that takes any budget.

Every iteration values the next states at budgets by the frontier of the models as they are, adds
what was earned and paid on the way there, and fits the models to that (Algorithm 2; Algorithm 5 is
its frontier, built once for each state). The budget handed on changes no transition, so a row is
a sample for every budget: labels are drawn anew at every iteration.

Where the steps of episodes are known, there can be models of its own for each (`stages`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bmdp.arrays import FloatArray
from bmdp.data import TransitionBatch
from bmdp.errors import DataError
from bmdp.learn.fit import Fit, Keeper, LearnedPolicy, Record, run_iterations
from bmdp.learn.fit_config import BFTQConfig
from bmdp.learn.stages import Stages, fit_stages
from bmdp.learn.targets import NextValues, mixture_values
from bmdp.models.fitting import device_of
from bmdp.policies.greedy import GreedyRule
from bmdp.policies.hull import HullPolicy
from bmdp.policies.protocol import OneStepPolicy
from bmdp.randomness import named_generator


class BudgetedFit(Fit):
    """Models of what budgets earn and pay: the greedy step is the best mixture (Algorithm 3)."""

    config: BFTQConfig

    def policy(self) -> OneStepPolicy:
        """Plays the mixture that spends the budget."""
        rule = self._rule.scaled(self.reward_scale)
        return HullPolicy(self._learned(), self.config.beta_grid, rule)

    @property
    def _rule(self) -> GreedyRule:
        return GreedyRule(self.config.cost_floor, self.config.slope_cap)

    def _greedy(self, choosing: Tensor, valuing: Tensor, asked: Tensor) -> NextValues:
        return mixture_values(choosing, valuing, asked, self._rule)

    def _ends(self) -> Tensor:
        return torch.tensor(self.config.budget_range, dtype=torch.float32, device=self.device)

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


@dataclass(frozen=True)
class BFTQ:
    """Learns from logged transitions.

    Paper: Algorithm 2.

    >>> from bmdp.models import TableModel
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> config = BFTQConfig(gamma=0.9, model=TableModel(), valuation="self", iterations=1)
    >>> frontier = BFTQ(config).fit(log, seed=0).frontier([0])
    >>> frontier.costs.tolist(), frontier.rewards.tolist()
    ([0.0, 1.0], [0.0, 10.0])
    """

    config: BFTQConfig  # all settings

    def fit(
        self,
        batch: TransitionBatch,
        *,
        seed: int,
        device: str = "auto",
        on_record: Callable[[Record], None] = lambda record: None,
        keeper: Keeper | None = None,
    ) -> LearnedPolicy:
        """Returns a policy that takes any budget of the range.

        Args:
            batch: transitions.
            seed: of all that is random.
            device: "cpu", "cuda", or "auto" for the GPU if there is one.
            on_record: called after every iteration with how it went.
            keeper: of what is needed to go on after a kill.
        """
        on = device_of(self.config.model, device)
        if self.config.stages != "none":
            return fit_stages(Stages(BudgetedFit, self.config, batch, seed, on), on_record, keeper)
        fit = BudgetedFit(self.config, batch, seed, on)
        run_iterations(fit, self.config.iterations, on_record, keeper)
        return fit.policy()
