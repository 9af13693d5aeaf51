"""Fitted Q-iteration for many prices of cost at once, and the policies with a budget made of it.

For each price the values (Q_r, Q_c) of its own greedy policy are estimated, all of them from the
same transitions, in the way of `bmdp.learn.fit`: with several models that check each other, and
backwards, if steps are known. There are two ways to play within a budget by them (`plays`):

- "mixture": a coin between two prices, tossed once per episode, by what they are thought to cost
  from the start, or by what was measured (`bmdp.evaluate.measure_portfolio`);
- "carried": a price chosen at the start by what it is thought to cost from the state there, and
  kept.

Paper: FTQ(lambda) of Section 5, and the Lagrangian appendix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from bmdp.arrays import FloatArray
from bmdp.data import TransitionBatch
from bmdp.learn.fit import Fit, Keeper, PricedPlay, Record, reward_scale, run_iterations
from bmdp.learn.fit_config import LagrangianConfig
from bmdp.learn.stages import Stages, fit_stages
from bmdp.learn.targets import NextValues
from bmdp.models.fitting import device_of, make_fitter
from bmdp.models.problem import Fitter, Problem
from bmdp.models.separate import SeparateFitter
from bmdp.policies.multiplier import MultiplierPolicy, PriceDials
from bmdp.policies.portfolio import Portfolio
from bmdp.policies.priced import PriceDial, best_actions

_STEPS = np.arange(-4, 5) / 2  # powers of 10 of the prices, in reward scales, that are tried first
_TOLERANCE = 0.01  # at an infinite price, costs that are closer than this are equal

Note = Callable[[Record], None]


@dataclass(frozen=True, eq=False)
class PricedDial:
    """A policy for each price, and what each is thought to cost and earn from the start."""

    dial: PriceDials
    prices: FloatArray  # [M], falling
    costs: FloatArray  # [M]
    rewards: FloatArray  # [M]

    def policy(self, config: LagrangianConfig) -> PricedPlay:
        """Plays within a budget by them, as settings say."""
        if config.plays == "carried":
            return MultiplierPolicy(self.dial, *config.budget_range)
        numbers = np.arange(len(self.prices))
        of_one = np.zeros_like(numbers), numbers.astype(np.float64)
        return Portfolio((self.dial,), *of_one, self.costs, self.rewards)


def fit_prices(
    config: LagrangianConfig,
    batch: TransitionBatch,
    *,
    seed: int,
    device: str = "auto",
    on_record: Note = lambda record: None,
    keeper: Keeper | None = None,
) -> PricedDial:
    """Learns a policy for each price.

    Args:
        config: settings.
        batch: transitions.
        seed: of all that is random.
        device: "cpu", "cuda", or "auto" for the GPU if there is one.
        on_record: called after every iteration with how it went.
        keeper: of what is needed to go on after a kill.
    """
    config = replace(
        config, prices=config.prices or _first_prices(reward_scale(config, batch.reward))
    )
    on = device_of(config.model, device)
    if config.stages != "none":
        stages = Stages(PricedFit, config, batch, seed, on)
        staged = fit_stages(stages, on_record, keeper)
        return _told(staged, staged.at_step(0), batch)
    fit = PricedFit(config, batch, seed, on)
    run_iterations(fit, config.iterations, on_record, keeper)
    policy = fit.policy()
    return _told(policy, policy, batch)


@dataclass(frozen=True)
class LagrangianFTQ:
    """Learns a policy for each price from logged transitions, and plays within a budget by them.

    Paper: the Lagrangian appendix.

    >>> from bmdp.models import TableModel
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> tables = {"model": TableModel(), "valuation": "self", "iterations": 1}
    >>> config = LagrangianConfig(gamma=0.9, prices=(0, 100), **tables)
    >>> policy = LagrangianFTQ(config).fit(log, seed=0)
    >>> policy.costs.tolist(), policy.rewards.tolist(), policy.mixtures([0.25]).reward.tolist()
    ([0.0, 1.0], [0.0, 10.0], [2.5])
    """

    config: LagrangianConfig  # all settings

    def fit(
        self,
        batch: TransitionBatch,
        *,
        seed: int,
        device: str = "auto",
        on_record: Note = lambda record: None,
        keeper: Keeper | None = None,
    ) -> PricedPlay:
        """Returns the policy that the setting `plays` asks for; arguments as for `fit_prices`."""
        found = fit_prices(
            self.config, batch, seed=seed, device=device, on_record=on_record, keeper=keeper
        )
        return found.policy(self.config)


class PricedFit(Fit):
    """Models of what prices earn and pay: the greedy step is the best action of each price."""

    config: LagrangianConfig

    def policy(self) -> PriceDial:
        """Plays the best action of the price on the dial."""
        return PriceDial(self._learned(), np.array(self.config.prices), _TOLERANCE)

    def _make_models(self, problem: Problem) -> Fitter:
        def make(part: Problem) -> Fitter:
            return make_fitter(self.config.model, part, self.config.regression, self.device)

        if self.config.model.covers_grid:
            return make(problem)
        return SeparateFitter(problem, make, covers_grid=False)

    def _greedy(self, choosing: Tensor, valuing: Tensor, asked: Tensor) -> NextValues:
        numbers = asked.long()
        prices = torch.tensor(self.config.prices, dtype=torch.float32, device=choosing.device)
        actions = best_actions(
            choosing[:, 0][..., numbers],
            choosing[:, 1][..., numbers],
            (prices / self.reward_scale)[numbers],
            _TOLERANCE,
        )  # [n, L]
        which = actions[:, None, None].expand(-1, 2, 1, -1)
        return NextValues(valuing[..., numbers].gather(2, which)[:, :, 0].movedim(1, 2), 0)

    def _ends(self) -> Tensor:
        return self.grid[[0, -1]]


def _told(dial: PriceDials, first: object, batch: TransitionBatch) -> PricedDial:
    """Adds what prices are thought to cost and earn at the first states."""
    assert isinstance(first, PriceDial)
    starts = batch.starts()
    points = first.points(batch.state[starts if len(starts) else slice(None)][:1000])
    costs, rewards = (
        np.asarray(m.mean(axis=0), np.float64) for m in (points.costs, points.rewards)
    )
    return PricedDial(dial, first.prices, costs, rewards)


def _first_prices(scale: float) -> tuple[float, ...]:
    return (np.inf, *(scale * 10**power for power in _STEPS[::-1]), 0.0)
