"""Budgeted fitted Q-iteration: from a batch of transitions to a policy that takes any budget.

Every iteration values the next states at budgets by the frontier of the models as they are, adds
what was earned and paid on the way there, and fits the models to that (Algorithm 2; Algorithm 5 is
its frontier, built once for each state). The budget handed on changes no transition, so a row is
a sample for every budget: labels are drawn anew at every iteration.

*Stage-wise*, where the steps of episodes are known, there is one regression for each step, from the
last to the first, and models of its own for each: nothing has to settle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from bmdp.data import TransitionBatch
from bmdp.errors import DataError
from bmdp.learn.config import BFTQConfig
from bmdp.learn.fit import Fit, Keeper, LearnedPolicy, Record, reward_scale, run_iterations
from bmdp.models.fitting import device_of
from bmdp.policies.staged import StagedPolicy
from bmdp.randomness import named_generator


@dataclass(frozen=True)
class BFTQ:
    """Learns from logged transitions.

    >>> BFTQ(BFTQConfig(gamma=0.9)).config.valuation
    'crossed'
    """

    config: BFTQConfig

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
        if self.config.stagewise:
            return self._stagewise(batch, seed, on, on_record, keeper)
        fit = Fit(self.config, batch, seed, on)
        run_iterations(fit, self.config.iterations, on_record, keeper)
        return fit.policy()

    def _stagewise(
        self,
        batch: TransitionBatch,
        seed: int,
        device: torch.device,
        on_record: Callable[[Record], None],
        keeper: Keeper | None,
    ) -> StagedPolicy:
        """One regression for each step, from the last to the first."""
        if batch.step is None:
            raise DataError("stagewise needs a batch with steps; this one has none.")
        n_done, arrays = (keeper.load() if keeper is not None else None) or (0, {})
        n_folds = 2 if self.config.valuation == "crossed" else 1
        folds = batch.folds(n_folds, named_generator(seed, "fit/folds"))
        n_stages = int(batch.step.max()) + 1
        config = replace(
            self.config, reward_scale=reward_scale(self.config, batch.reward)
        )  # of all stages
        stages: list[Fit] = []
        for number, step in enumerate(reversed(range(n_stages))):
            rows = np.flatnonzero(batch.step == step)
            if len(np.unique(folds[rows])) < n_folds:
                raise DataError(
                    f"stagewise needs episodes of every half at every step; step {step} has "
                    f"{len(rows)} transitions."
                )
            fit = Fit(config, batch.take(rows), seed + step, device, folds[rows])
            own = {k.partition("/")[2]: v for k, v in arrays.items() if k.startswith(f"{step}/")}
            if number < n_done:
                fit.models.restore(own)
            else:
                record = fit.iterate(0, stages[-1].models if stages else None)
                on_record({**record, "iteration": number, "step": step, "is_last": step == 0})
                arrays = arrays | {f"{step}/{k}": v for k, v in fit.models.arrays().items()}
                if keeper is not None:
                    keeper.save(number + 1, arrays)
            stages.append(fit)
        return StagedPolicy(tuple(fit.policy() for fit in reversed(stages)))
