"""Fitted Q-iteration for a price on cost: the risk-neutral explorer, and the paper's baseline.

Q_r and Q_c are estimated side by side, and the best action is that of the most Q_r - price * Q_c.
For one policy after the other this is fitted Q-iteration on reward - price * cost, and it says what
its policy costs, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from bmdp.data import TransitionBatch
from bmdp.learn.fit import Keeper, Record, reward_scale, run_iterations
from bmdp.learn.fit_config import FTQConfig
from bmdp.models.fitting import device_of, make_fitter
from bmdp.models.problem import Problem
from bmdp.policies.priced import PricedPolicy


@dataclass(frozen=True)
class FTQ:
    """Learns from logged transitions, without a dial.

    Paper: FTQ(lambda) of Section 5 and the Lagrangian appendix.

    >>> from bmdp.models import TableModel
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> for price in (0.0, 20.0):
    ...     config = FTQConfig(gamma=0.9, price=price, model=TableModel(), iterations=1)
    ...     print(FTQ(config).fit(log, seed=0).act([0], 0.5, np.random.default_rng(0)).action)
    1
    0
    """

    config: FTQConfig  # all settings

    def fit(
        self,
        batch: TransitionBatch,
        *,
        seed: int,
        device: str = "auto",
        on_record: Callable[[Record], None] = lambda record: None,
        keeper: Keeper | None = None,
    ) -> PricedPolicy:
        """Returns the greedy policy of the price.

        Args:
            batch: transitions.
            seed: of all that is random.
            device: "cpu", "cuda", or "auto" for the GPU if there is one.
            on_record: called after every iteration with how it went.
            keeper: of what is needed to go on after a kill.
        """
        fit = OnePriceFit(self.config, batch, seed, device_of(self.config.model, device))
        run_iterations(fit, self.config.iterations, on_record, keeper)
        return PricedPolicy(fit.models.result(0), self.config.price, *self.config.budget_range)


class OnePriceFit:
    """A model in training on one batch, and the values that it is fitted to."""

    def __init__(
        self, config: FTQConfig, batch: TransitionBatch, seed: int, device: torch.device
    ) -> None:
        """Makes a model that knows nothing."""
        self.config, self.batch, self.device = config, batch, device
        self.scale = reward_scale(config, batch.reward - config.price * batch.cost)
        problem = Problem(
            states=batch.state,
            actions=batch.action,
            members=np.ones((1, len(batch)), np.bool_),
            n_actions=batch.n_actions,
            beta_grid=np.zeros(1),
            reward_scale=self.scale,
            seed=seed,
        )
        self.models = make_fitter(config.model, problem, config.regression, device)

    def iterate(self, iteration: int) -> Record:
        """Values the next states, and fits the model to that."""
        begin = time.perf_counter()
        config, batch = self.config, self.batch
        budgets = torch.zeros(1, device=self.device)
        paid = np.stack((batch.reward / self.scale, batch.cost), axis=-1)
        targets = torch.tensor(paid, dtype=torch.float32, device=self.device)[:, None]
        going = np.flatnonzero(~batch.terminal)
        if iteration > 0 and len(going):
            values = self.models.grid(batch.next_state[going])[0, ..., 0]  # [n, 2, A]
            best = (values[:, 0] - config.price / self.scale * values[:, 1]).argmax(dim=1)
            which = best[:, None, None].expand(-1, 2, 1)
            places = torch.tensor(going, device=self.device)
            targets[places] += config.gamma * values.gather(2, which)[:, None, :, 0]
        delta = self.models.error(budgets, targets)
        is_fitted = iteration > 0 and delta <= config.stop_delta
        record: Record = {"iteration": iteration, "delta": delta}
        if not is_fitted:
            record |= self.models.fit(f"iteration-{iteration}", budgets, targets).as_dict()
        record["seconds"] = time.perf_counter() - begin
        record["is_last"] = is_fitted or iteration + 1 == config.iterations
        return record
