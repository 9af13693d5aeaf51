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

from bmdp.data import TransitionBatch
from bmdp.learn.config import BFTQConfig
from bmdp.learn.fit import Fit, Keeper, LearnedPolicy, Record, run_iterations
from bmdp.learn.stages import Stages, fit_stages
from bmdp.models.fitting import device_of


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
        if self.config.stages != "none":
            return fit_stages(Stages(self.config, batch, seed, on), on_record, keeper)
        fit = Fit(self.config, batch, seed, on)
        run_iterations(fit, self.config.iterations, on_record, keeper)
        return fit.policy()
