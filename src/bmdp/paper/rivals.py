"""Ways to spend a budget that are learned from the same episodes: BFTQ, and what else one could do.

A method is given a `Lesson`, and returns a policy with what it took. See docs/comparison.md for
what each of them is, and cannot do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

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
from bmdp.paper.pricing import PAPER_PRICES
from bmdp.paper.training import all_prices, explored, playable
from bmdp.policies import MultiplierPolicy, Portfolio, PriceDial
from bmdp.policies.policy import Policy

SCRIPTS = {
    "corridors": ("corridors/safe", "corridors/risky"),
    "slot-filling": ("slot-filling/voice-again", "slot-filling/key-pad"),
}
"""By task, a rule that is safe and one that is not."""

_CORRIDORS_SCALE = 5.0  # of prices there, as rewards are larger
_PRICES = 10 ** (np.arange(8, -9, -1) / 4)  # of a unit of cost, in largest rewards


@dataclass(frozen=True, eq=False)
class Lesson:
    """What a method learns from.

    Args:
        task: its name.
        spec: with which it was explored.
        batch: the episodes.
        explored: the policy of the last round.
        seconds: of exploring.
        seed: of all that is random.
        device: of learners.
        n_measuring: episodes that each member of a portfolio is measured by, where one is.
        fits: prices that were learned already, and seconds that it took: methods that differ in how
            they play share them.
    """

    task: str
    spec: TrainingSpec
    batch: TransitionBatch
    explored: Policy
    seconds: float
    seed: int
    device: str
    n_measuring: int = 1000
    fits: dict[LagrangianConfig, tuple[PriceDial, float]] = field(default_factory=dict)

    @property
    def env(self) -> EnvConfig:
        """Where it was explored."""
        return explored(self.spec)[0]


@dataclass(frozen=True, eq=False)
class Learned:
    """A policy, and what it took.

    Args:
        policy: what was learned.
        n_models: regressions that it keeps.
        seconds: of learning.
        n_more: episodes that were played to choose it, beside those of the lesson.
    """

    policy: Policy
    n_models: int
    seconds: float
    n_more: int = 0


@dataclass(frozen=True)
class Rival:
    """A way to spend a budget.

    Args:
        title: of its row in a table.
        learn: learns it.
        tasks: for which there is one; empty for all.
    """

    title: str
    learn: Callable[[Lesson], Learned]
    tasks: tuple[str, ...] = ()


def shown_env(lesson_env: EnvConfig, policy_is_scripted: bool) -> EnvConfig:
    """Returns where a policy is played: the rules of slot-filling read the paper's features."""
    if lesson_env.id == "slot-filling" and policy_is_scripted:
        return replace(lesson_env, settings={**lesson_env.settings, "features": "paper"})
    return lesson_env


def _bftq(lesson: Lesson) -> Learned:
    """Ours, with the settings of the preset."""
    assert isinstance(lesson.spec.learner, BFTQConfig)
    return Learned(lesson.explored, _n_models(lesson.spec.learner, lesson), lesson.seconds)


def _paper_bftq(lesson: Lesson) -> Learned:
    """The paper's network and rules."""
    config = preset(f"paper-{lesson.env.id}").learner
    assert isinstance(config, BFTQConfig)
    begin = time.perf_counter()
    policy = BFTQ(config).fit(lesson.batch, seed=lesson.seed, device=lesson.device)
    return Learned(policy, 1, time.perf_counter() - begin)


def _lagrangian(**changes: Any) -> Callable[[Lesson], Learned]:
    """Prices, played in one of two ways."""

    def learn(lesson: Lesson) -> Learned:
        assert isinstance(lesson.spec.learner, BFTQConfig)
        largest = float(np.abs(lesson.batch.reward).max()) or 1.0
        settings: dict[str, Any] = {"prices": (np.inf, *(largest * _PRICES), 0.0)} | changes
        config = replace(all_prices(lesson.spec.learner), **settings)
        dial, seconds = _prices(lesson, config)
        policy: Policy = MultiplierPolicy(dial, *config.budget_range)
        if config.plays == "mixture":
            policy = portfolio_of(dial, lesson.batch)
        return Learned(policy, _n_models(config, lesson), seconds)

    return learn


def _networks(lesson: Lesson) -> Learned:
    """The paper's FTQ(lambda): a network for each of its prices, and the curve by rollouts."""
    ftq = preset(f"paper-{lesson.env.id}-ftq").learner
    assert isinstance(ftq, FTQConfig)
    network, schedule = ftq.model, ftq.schedule
    assert isinstance(network, FrontierNet)
    assert isinstance(schedule, Iterations)
    whole = replace(network, regression=replace(network.regression, stop_loss=None))
    ftq = replace(ftq, model=whole, schedule=replace(schedule, stop_loss=0.0))
    scale = 1.0 if lesson.env.id == "slot-filling" else _CORRIDORS_SCALE
    begin = time.perf_counter()
    networks = tuple(
        FTQ(replace(ftq, price=scale * price)).fit(
            lesson.batch, seed=lesson.seed, device=lesson.device
        )
        for price in reversed(PAPER_PRICES)
    )
    seconds = time.perf_counter() - begin
    members, nothing = np.arange(len(networks)), np.zeros(len(networks))
    policy = playable(Portfolio(networks, members, nothing, nothing, nothing), lesson.device)
    return _measured(policy, len(networks), seconds, lesson, lesson.env)


def _scripted(lesson: Lesson) -> Learned:
    """A coin between two rules written by hand, whose costs were measured."""
    safe, risky = (ScriptedPolicy(name) for name in SCRIPTS[lesson.task])
    coin = Portfolio.coin(safe, risky, 0.0, 1.0)
    env = shown_env(lesson.env, policy_is_scripted=True)
    return _measured(coin, 0, 0.0, lesson, env)


METHODS: dict[str, Rival] = {
    "bftq": Rival("BFTQ", _bftq),
    "bftq-paper": Rival("BFTQ, paper's network", _paper_bftq),
    "ftq-paper": Rival("FTQ(lambda), paper's networks", _networks),
    "ftq-mixture": Rival("FTQ(lambda), mixture", _lagrangian(plays="mixture")),
    "coin": Rival("coin", _lagrangian(prices=(np.inf, 0.0), plays="mixture")),
    "multiplier": Rival("carried price", _lagrangian(plays="carried")),
    "scripted": Rival("scripted", _scripted, tuple(SCRIPTS)),
}
"""All methods, by the name of their piece."""

WITH_NETWORKS = ("bftq-paper", "ftq-paper")
"""Methods that take a GPU."""


def _prices(lesson: Lesson, config: LagrangianConfig) -> tuple[PriceDial, float]:
    """A policy for each price, and seconds that it took, whichever way they are played."""
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
