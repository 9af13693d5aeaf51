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
from bmdp.learn.bftq import Keeper
from bmdp.learn.config import FTQConfig
from bmdp.learn.fit import Record
from bmdp.models.fitting import device_of, make_fitter
from bmdp.models.problem import Problem
from bmdp.policies.priced import PricedPolicy


@dataclass(frozen=True)
class FTQ:
    """Learns from logged transitions, without a dial.

    >>> FTQ(FTQConfig(gamma=1.0)).config.price
    0.0
    """

    config: FTQConfig

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
        config, on = self.config, device_of(self.config.model, device)
        net = batch.reward - config.price * batch.cost
        largest = float(np.abs(net).max())
        scale = config.reward_scale or (largest if largest > 0 else 1.0)
        grid = np.zeros(1)
        problem = Problem(
            states=batch.state,
            actions=batch.action,
            members=np.ones((1, len(batch)), np.bool_),
            n_actions=batch.n_actions,
            beta_grid=grid,
            reward_scale=scale,
            seed=seed,
        )
        models = make_fitter(config.model, problem, config.regression, on)
        first = 0
        if keeper is not None and (kept := keeper.load()) is not None:
            first, arrays = kept
            models.restore(arrays)
        budgets = torch.tensor(grid, dtype=torch.float32, device=on)
        paid = np.stack((batch.reward / scale, batch.cost), axis=-1)
        own = torch.tensor(paid, dtype=torch.float32, device=on)[:, None]
        going = np.flatnonzero(~batch.terminal)
        places = torch.tensor(going, device=on)
        for iteration in range(first, config.iterations):
            begin = time.perf_counter()
            targets = own.clone()
            if iteration > 0 and len(going):
                values = models.grid(batch.next_state[going])[0, ..., 0]  # [n, 2, A]
                best = (values[:, 0] - config.price / scale * values[:, 1]).argmax(dim=1)
                which = best[:, None, None].expand(-1, 2, 1)
                targets[places] += config.gamma * values.gather(2, which)[:, None, :, 0]
            delta = models.error(budgets, targets)
            is_fitted = iteration > 0 and delta <= config.stop_delta
            record: Record = {"iteration": iteration, "delta": delta}
            if not is_fitted:
                record |= models.fit(f"iteration-{iteration}", budgets, targets).as_dict()
            record["seconds"] = time.perf_counter() - begin
            record["is_last"] = is_fitted or iteration + 1 == config.iterations
            on_record(record)  # before it is kept: an iteration that is done has its record
            if keeper is not None:
                n_done = config.iterations if is_fitted else iteration + 1
                keeper.save(n_done, models.arrays())
            if is_fitted:
                break
        return PricedPolicy(models.result(0), config.price, *config.budget_range)
