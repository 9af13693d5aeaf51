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
from bmdp.evaluate import measure_portfolio
from bmdp.experiments.parts.training import all_prices, playable
from bmdp.learn.learners import BFTQ
from bmdp.learn.spec import EnvConfig, TrainingSpec
from bmdp.learn.fit import TrainedPolicy, reward_scale
from bmdp.learn.learners import BFTQConfig, FitConfig, FTQConfig, LagrangianConfig
from bmdp.learn.learners import FTQ
from bmdp.learn.learners import PricedDial, fit_prices
from bmdp.learn.presets import preset
from bmdp.policies import Portfolio
from bmdp.policies.policy import Policy

PAPER_PRICES = (0.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0, 60.0)
"""Of a hang-up on slot-filling, in rewards, in the paper's figure."""

SCRIPTS = {
    "corridors": ("corridors/safe", "corridors/risky"),
    "slot-filling": ("slot-filling/voice-again", "slot-filling/key-pad"),
}
"""By task, a rule that is safe and one that is not."""

_CORRIDORS_SCALE = 5.0  # of prices there, as rewards are larger
_PRICES = 10 ** (np.arange(8, -9, -1) / 4)  # of a unit of cost, in reward scales


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
    explored: TrainedPolicy
    seconds: float
    seed: int
    device: str
    n_measuring: int = 1000
    fits: dict[LagrangianConfig, tuple[PricedDial, float]] = field(default_factory=dict)


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
class Method:
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
    config = preset(f"paper-{lesson.spec.env.id}").learner
    assert isinstance(config, BFTQConfig)
    begin = time.perf_counter()
    policy = BFTQ(config).fit(lesson.batch, seed=lesson.seed, device=lesson.device)
    return Learned(policy, 1, time.perf_counter() - begin)


def _lagrangian(**changes: Any) -> Callable[[Lesson], Learned]:
    """Prices, played in one of several ways."""

    def learn(lesson: Lesson) -> Learned:
        assert isinstance(lesson.spec.learner, BFTQConfig)
        config = all_prices(lesson.spec.learner)
        scale = reward_scale(config, lesson.batch.reward)
        settings: dict[str, Any] = {"prices": (np.inf, *(scale * _PRICES), 0.0)} | changes
        config = replace(config, **settings)
        dial, seconds = _prices(lesson, config)
        n_models = _n_models(config, lesson)
        n_models *= 1 if config.model.covers_grid else len(dial.prices)
        return Learned(dial.policy(config), n_models, seconds)

    return learn


def _networks(lesson: Lesson) -> Learned:
    """The paper's FTQ(lambda): a network for each of its prices, and the curve by rollouts."""
    ftq = preset(f"paper-{lesson.spec.env.id}-ftq").learner
    assert isinstance(ftq, FTQConfig)
    scale = 1.0 if lesson.spec.env.id == "slot-filling" else _CORRIDORS_SCALE
    ftq = replace(ftq, regression=replace(ftq.regression, stop_loss=None), stop_delta=0.0)
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
    learned = Learned(policy, len(networks), seconds)
    return _measured(learned, policy, lesson, lesson.spec.env)


def _scripted(lesson: Lesson) -> Learned:
    """A coin between two rules written by hand, whose costs were measured."""
    safe, risky = (ScriptedPolicy(name) for name in SCRIPTS[lesson.task])
    coin = Portfolio.coin(safe, risky, 0.0, 1.0)
    env = shown_env(lesson.spec.env, policy_is_scripted=True)
    return _measured(Learned(coin, 0, 0.0), coin, lesson, env)


METHODS: dict[str, Method] = {
    "bftq": Method("BFTQ", _bftq),
    "bftq-paper": Method("BFTQ, paper's network", _paper_bftq),
    "ftq-paper": Method("FTQ(lambda), paper's networks", _networks),
    "ftq-mixture": Method("FTQ(lambda), mixture", _lagrangian()),
    "coin": Method("coin", _lagrangian(prices=(np.inf, 0.0))),
    "multiplier": Method("carried price", _lagrangian(plays="carried")),
    "scripted": Method("scripted", _scripted, tuple(SCRIPTS)),
}
"""All methods, by the name of their piece."""

WITH_NETWORKS = ("bftq-paper", "ftq-paper")
"""Methods that take a GPU."""


def _prices(lesson: Lesson, config: LagrangianConfig) -> tuple[PricedDial, float]:
    """A policy for each price, and seconds that it took, whichever way they are played."""
    key = replace(config, plays="mixture")
    if key not in lesson.fits:
        begin = time.perf_counter()
        found = fit_prices(key, lesson.batch, seed=lesson.seed, device=lesson.device)
        lesson.fits[key] = found, time.perf_counter() - begin
    return lesson.fits[key]


def _measured(found: Learned, policy: Policy, lesson: Lesson, env: EnvConfig) -> Learned:
    """A portfolio whose costs are those that were measured, which takes more episodes."""
    assert isinstance(policy, Portfolio)
    begin = time.perf_counter()
    measured = measure_portfolio(
        policy, env.spec(), n_episodes=lesson.n_measuring, seed=lesson.seed
    )
    return replace(
        found,
        policy=measured,
        seconds=found.seconds + time.perf_counter() - begin,
        n_more=lesson.n_measuring * len(policy.which),
    )


def _n_models(config: FitConfig, lesson: Lesson) -> int:
    """Regressions that are kept: one, or one for each step, of each model that acts."""
    assert lesson.batch.step is not None
    n_steps = int(lesson.batch.step.max()) + 1 if config.stages != "none" else 1
    n_acting = 1 if config.acting == "pooled" else config.n_models
    return n_steps * n_acting
