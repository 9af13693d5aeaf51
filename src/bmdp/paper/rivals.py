"""Ways to spend a budget that are learned from the same episodes: BFTQ, and what else one could do.

A method is given a `Lesson`, and returns a policy and its price in models, seconds and episodes.
See docs/paper/comparison.md for the methods, and their limits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from bmdp.data import TransitionBatch
from bmdp.envs import ScriptedPolicy
from bmdp.evaluation import measure_portfolio
from bmdp.learn.fit import Backward, Iterations
from bmdp.learn.learners import (
    BFTQ,
    FTQ,
    BFTQConfig,
    FTQConfig,
    LagrangianConfig,
    LagrangianFTQ,
    portfolio_of,
    schedule_of,
)
from bmdp.learn.presets import preset
from bmdp.learn.spec import EnvConfig, TrainingSpec
from bmdp.models import FrontierNet
from bmdp.paper.driving import PAPER_PRICES as ROAD_PRICES
from bmdp.paper.pricing import PAPER_PRICES, found_prices
from bmdp.paper.training import all_prices, explored, playable, unmeasured
from bmdp.policies import MultiplierPolicy, Portfolio, PriceDial
from bmdp.policies.policy import Policy

SCRIPTS = {
    "corridors": ("corridors/safe", "corridors/risky"),
    "slot-filling": ("slot-filling/voice-again", "slot-filling/key-pad"),
    "two-way": ("two-way/slow", "two-way/overtake"),
}
"""By task, a rule that is safe and one that is not."""

_PAPER = {"two-way": "driving"}  # names of tasks in presets, where these differ
_NETWORK_PRICES = {
    "slot-filling": PAPER_PRICES,
    "corridors": tuple(5.0 * price for price in PAPER_PRICES),  # as rewards are larger
    "two-way": ROAD_PRICES,
}
"""Prices of a unit of cost that networks are learned for: those of the paper, where it has some."""


@dataclass(frozen=True, eq=False)
class Lesson:
    """Episodes of a task, from which a method learns."""

    task: str
    spec: TrainingSpec  # with which it was explored
    batch: TransitionBatch
    explored: Policy  # of the last round
    seconds: float  # of exploring
    seed: int
    device: str
    n_measuring: int = 1000  # episodes that each member of a portfolio is measured by
    fits: dict[LagrangianConfig, tuple[PriceDial, float]] = field(default_factory=dict)
    """Prices that were learned already, with seconds: methods that differ in play share them."""

    @property
    def env(self) -> EnvConfig:
        """Where it was explored."""
        return explored(self.spec)[0]

    @cached_property
    def prices(self) -> tuple[tuple[float, ...], float]:
        """Prices that are found from the episodes, falling, and seconds of finding them.

        The first one is infinite: of actions of the least cost, but for what cannot be told apart,
        it takes the best paid. A high price that is finite throws away all reward for such a
        difference.
        """
        begin, gamma = time.perf_counter(), self.spec.learner.gamma
        found = found_prices(self.batch, gamma, seed=self.seed, device=self.device)
        return (np.inf, *found), time.perf_counter() - begin


@dataclass(frozen=True, eq=False)
class Learned:
    """A policy, and its price."""

    policy: Policy
    n_models: int  # regressions that it keeps
    seconds: float  # of learning
    n_more: int = 0  # episodes that were played to choose it, beside those of the lesson


@dataclass(frozen=True)
class Rival:
    """A way to spend a budget."""

    title: str  # of its row in a table
    learn: Callable[[Lesson], Learned]
    tasks: tuple[str, ...] = ()  # for which there is one; empty for all


def scripted_env(env: EnvConfig) -> EnvConfig:
    """Returns an environment for scripts, which read what the paper's agents saw."""
    seen = {"slot-filling": "paper", "two-way": "kinematics"}
    if env.id not in seen:
        return env
    return replace(env, settings={**env.settings, "features": seen[env.id]})


def _paper_name(lesson: Lesson) -> str:
    return _PAPER.get(lesson.env.id, lesson.env.id)


def _bftq(lesson: Lesson) -> Learned:
    assert isinstance(lesson.spec.learner, BFTQConfig)
    return Learned(lesson.explored, _n_models(lesson.spec.learner, lesson), lesson.seconds)


def _paper_bftq(lesson: Lesson) -> Learned:
    config = preset(f"paper-{_paper_name(lesson)}").learner
    assert isinstance(config, BFTQConfig)
    begin = time.perf_counter()
    policy = BFTQ(config).fit(lesson.batch, seed=lesson.seed, device=lesson.device)
    return Learned(policy, 1, time.perf_counter() - begin)


def _lagrangian(
    plays: Literal["carried", "mixture"], *, only_ends: bool = False
) -> Callable[[Lesson], Learned]:
    """Prices that are found from the episodes, the same for all ways to play them."""

    def learn(lesson: Lesson) -> Learned:
        assert isinstance(lesson.spec.learner, BFTQConfig)
        prices, finding = lesson.prices
        prices = (prices[0], prices[-1]) if only_ends else prices
        config = replace(all_prices(lesson.spec.learner), prices=prices, plays=plays)
        dial, seconds = _prices(lesson, config)
        policy: Policy = MultiplierPolicy(dial, *config.budget_range)
        if config.plays == "mixture":
            policy = portfolio_of(dial, lesson.batch)
        return Learned(policy, _n_models(config, lesson), finding + seconds)

    return learn


def _networks(lesson: Lesson) -> Learned:
    """The paper's FTQ(lambda): a network for each of its prices, and the curve by rollouts."""
    ftq = preset(f"paper-{_paper_name(lesson)}-ftq").learner
    assert isinstance(ftq, FTQConfig)
    network, schedule = ftq.model, ftq.schedule
    assert isinstance(network, FrontierNet)
    assert isinstance(schedule, Iterations)
    whole = replace(network, regression=replace(network.regression, stop_loss=None))
    ftq = replace(ftq, model=whole, schedule=replace(schedule, stop_loss=0.0))
    prices = _NETWORK_PRICES[lesson.env.id]
    begin = time.perf_counter()
    how: dict[str, Any] = {"seed": lesson.seed, "device": lesson.device}
    networks = unmeasured(
        FTQ(replace(ftq, price=price)).fit(lesson.batch, **how) for price in reversed(prices)
    )
    seconds, n = time.perf_counter() - begin, len(prices)
    return _measured(playable(networks, lesson.device), n, seconds, lesson, lesson.env)


def _scripted(lesson: Lesson) -> Learned:
    """A coin between two rules written by hand, whose costs were measured."""
    safe, risky = (ScriptedPolicy(name) for name in SCRIPTS[lesson.task])
    coin = Portfolio.coin(safe, risky, 0.0, 1.0)
    return _measured(coin, 0, 0.0, lesson, scripted_env(lesson.env))


METHODS: dict[str, Rival] = {
    "bftq": Rival("BFTQ", _bftq),
    "bftq-paper": Rival("BFTQ, paper's network", _paper_bftq),
    "ftq-paper": Rival("FTQ(lambda), paper's networks", _networks),
    "ftq-mixture": Rival("FTQ(lambda), mixture", _lagrangian("mixture")),
    "coin": Rival("coin", _lagrangian("mixture", only_ends=True)),
    "multiplier": Rival("carried price", _lagrangian("carried")),
    "scripted": Rival("scripted", _scripted, tuple(SCRIPTS)),
}
"""All methods, by the name of their piece."""

WITH_NETWORKS = ("bftq-paper", "ftq-paper")
"""Methods that take a GPU."""


def _prices(lesson: Lesson, config: LagrangianConfig) -> tuple[PriceDial, float]:
    """A policy for each price, and seconds of learning, whichever way they are played."""
    key = replace(config, plays="carried")
    if key not in lesson.fits:
        begin = time.perf_counter()
        found = LagrangianFTQ(key).fit(lesson.batch, seed=lesson.seed, device=lesson.device)
        assert isinstance(found, MultiplierPolicy)
        lesson.fits[key] = found.dial, time.perf_counter() - begin
    return lesson.fits[key]


def _measured(
    portfolio: Portfolio, n_models: int, seconds: float, lesson: Lesson, env: EnvConfig
) -> Learned:
    """A portfolio whose costs are those that were measured, which takes more episodes."""
    begin, n = time.perf_counter(), lesson.n_measuring
    measured = measure_portfolio(portfolio, env.spec(), n_episodes=n, seed=lesson.seed)
    seconds += time.perf_counter() - begin
    return Learned(measured, n_models, seconds, n_more=n * len(portfolio.which))


def _n_models(config: BFTQConfig | LagrangianConfig, lesson: Lesson) -> int:
    """Regressions that are kept: one, or one for each step, of each model that acts."""
    n_steps = 1
    if isinstance(schedule_of(config, lesson.batch), Backward):
        assert lesson.batch.step is not None
        n_steps = int(lesson.batch.step.max()) + 1
    is_pooled = config.pooled and config.caution == 0
    return n_steps * (1 if is_pooled else config.ensemble)
