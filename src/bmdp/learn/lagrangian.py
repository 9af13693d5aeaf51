"""Fitted Q-iteration for many prices of cost at once, and the policies with a budget made of it.

For each price the values (Q_r, Q_c) of its own greedy policy are estimated, all of them from the
same transitions, in the way of `bmdp.learn.fit`: with several models that check each other, and
backwards, if steps are known. There are several ways to play within a budget by them (`plays`):

- "mixture": a coin between two prices, tossed once per episode, by what they are thought to cost
  from the start, or by what was measured (`bmdp.evaluate.measure_portfolio`);
- "carried": a price chosen at the start by what it is thought to cost from the state there, and
  kept;
- "switching": at every step the best action that is thought to fit the budget left.

Paper: FTQ(lambda) of Section 5, and the Lagrangian appendix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
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
from bmdp.policies.greedy import lowered
from bmdp.policies.multiplier import MultiplierPolicy, PriceDials, SwitchingPolicy
from bmdp.policies.portfolio import Portfolio
from bmdp.policies.priced import PriceDial, best_actions

_STEPS = np.arange(-4, 5) / 2  # powers of 10 of the prices, in reward scales, that are tried first
_GAP = 0.02  # share of the range of costs that neighbouring prices may differ by
_MOST_NEW = 8  # prices, in a refinement

_PRICES = "prices"  # name of those of a refinement, beside the arrays that are kept of it

Note = Callable[[Record], None]


@dataclass(frozen=True, eq=False)
class PricedDial:
    """A policy for each price, and what each is thought to cost and earn from the start."""

    dial: PriceDials
    prices: FloatArray  # [M], falling
    costs: FloatArray  # [M]
    rewards: FloatArray  # [M]
    scale: float  # of rewards

    def policy(self, config: LagrangianConfig) -> PricedPlay:
        """Plays within a budget by them, as settings say."""
        ends, gamma = config.budget_range, config.discount_of_costs
        margin = config.margin * self.scale
        if config.plays == "carried":
            return MultiplierPolicy(self.dial, *ends, gamma=gamma, margin=margin)
        if config.plays == "switching":
            return SwitchingPolicy(self.dial, *ends, gamma=gamma)
        numbers = np.arange(len(self.prices))
        of_one = np.zeros_like(numbers), numbers.astype(np.float64)
        rewards = lowered(self.costs[None], self.rewards[None], margin)[0]
        return Portfolio((self.dial,), *of_one, self.costs, rewards)


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
        on_record: called after every iteration with how it went. Those of a refinement are numbered
            from where those before it would end at the latest.
        keeper: of what is needed to go on after a kill.
    """
    n_iterations = config.iterations
    if config.stages != "none" and batch.step is not None:
        n_iterations = int(batch.step.max()) + 1
    kept = keeper.load() if keeper is not None else None
    number, prices = 0, config.prices or _first_prices(reward_scale(config, batch.reward))
    if kept is not None and _PRICES in kept[1]:
        number, prices = (kept[0] - 1) // n_iterations, tuple(kept[1][_PRICES].tolist())
    while True:
        part = _Part(number * n_iterations, prices, number == config.refinements, on_record, keeper)
        noting = part.note, part if keeper is not None else None
        fitted = _fit(replace(config, prices=prices), batch, seed, device, noting)
        more = refined(fitted.prices, fitted.costs)
        if part.is_last or len(more) == len(fitted.prices):
            return fitted
        number, prices = number + 1, more


@dataclass(frozen=True, eq=False)
class _Part:
    """One fit of several, which notes and keeps its iterations as those after all before it."""

    n_before: int  # iterations of those before it, at most
    prices: tuple[float, ...]
    is_last: bool  # whether no other can follow
    on_record: Note
    keeper: Keeper | None

    def note(self, record: Record) -> None:
        """Notes an iteration."""
        number, is_last = self.n_before + record["iteration"], self.is_last and record["is_last"]
        self.on_record({**record, "iteration": number, "is_last": is_last})

    def load(self) -> tuple[int, dict[str, NDArray[Any]]] | None:
        """What was kept of this fit, if anything."""
        assert self.keeper is not None
        kept = self.keeper.load()
        if kept is None or kept[0] <= self.n_before:
            return None
        arrays = {name: array for name, array in kept[1].items() if name != _PRICES}
        return kept[0] - self.n_before, arrays

    def save(self, n_done: int, arrays: dict[str, NDArray[Any]]) -> None:
        """Keeps an iteration; of a refinement, with its prices."""
        own = {_PRICES: np.array(self.prices)} if self.n_before else {}
        assert self.keeper is not None
        self.keeper.save(self.n_before + n_done, {**arrays, **own})


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
        return PriceDial(self._learned(), np.array(self.config.prices), self.config.tolerance)

    def _make_models(self, problem: Problem) -> Fitter:
        def make(part: Problem) -> Fitter:
            return make_fitter(self.config.model, part, self.config.regression, self.device)

        if self.config.sharing == "all":
            return make(problem)
        return SeparateFitter(problem, make, covers_grid=self.config.model.covers_grid)

    def _greedy(self, choosing: Tensor, valuing: Tensor, asked: Tensor) -> NextValues:
        numbers = asked.long()
        prices = torch.tensor(self.config.prices, dtype=torch.float32, device=choosing.device)
        actions = best_actions(
            choosing[:, 0][..., numbers],
            choosing[:, 1][..., numbers],
            (prices / self.reward_scale)[numbers],
            self.config.tolerance,
        )  # [n, L]
        which = actions[:, None, None].expand(-1, 2, 1, -1)
        return NextValues(valuing[..., numbers].gather(2, which)[:, :, 0].movedim(1, 2), 0)

    def _ends(self) -> Tensor:
        return self.grid[[0, -1]]


def _fit(
    config: LagrangianConfig,
    batch: TransitionBatch,
    seed: int,
    device: str,
    noting: tuple[Note, Keeper | None],
) -> PricedDial:
    """Learns a policy for each of the prices of the settings."""
    on, scale = device_of(config.model, device), reward_scale(config, batch.reward)
    if config.stages != "none":
        stages = Stages(PricedFit, config, batch, seed, on)
        staged = fit_stages(stages, *noting)
        return _told(staged, staged.at_step(0), batch, scale)
    fit = PricedFit(config, batch, seed, on)
    run_iterations(fit, config.iterations, *noting)
    policy = fit.policy()
    return _told(policy, policy, batch, scale)


def _told(dial: PriceDials, first: object, batch: TransitionBatch, scale: float) -> PricedDial:
    """Adds what prices are thought to cost and earn at the first states."""
    assert isinstance(first, PriceDial)
    starts = batch.starts()
    points = first.points(batch.state[starts if len(starts) else slice(None)][:1000])
    costs, rewards = (
        np.asarray(m.mean(axis=0), np.float64) for m in (points.costs, points.rewards)
    )
    return PricedDial(dial, first.prices, costs, rewards, scale)


def _first_prices(scale: float) -> tuple[float, ...]:
    return (np.inf, *(scale * 10**power for power in _STEPS[::-1]), 0.0)


def refined(prices: FloatArray, costs: FloatArray) -> tuple[float, ...]:
    """Prices `[M]`, falling, and more of them between neighbours whose costs differ most.

    A new price is the geometric mean of its neighbours; beside 0, a tenth of the other; beside
    infinity, ten times the other.

    >>> refined(np.array([np.inf, 10.0, 0.1, 0.0]), np.array([0.0, 0.0, 1.0, 1.0]))
    (inf, 10.0, 1.0, 0.1, 0.0)
    """
    gaps = np.abs(np.diff(costs))
    widest = [
        i for i in np.argsort(-gaps, kind="stable")[:_MOST_NEW] if gaps[i] > _GAP * np.ptp(costs)
    ]
    between = {_between(float(prices[i]), float(prices[i + 1])) for i in widest}
    return tuple(sorted({*map(float, prices), *between}, reverse=True))


def _between(high: float, low: float) -> float:
    if high == np.inf and low == 0:
        return 1.0
    if high == np.inf:
        return 10 * low
    return high / 10 if low == 0 else float(np.sqrt(high * low))
