"""Training as a part of an experiment: begun, or gone on with where a kill left it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TypeVar, cast

import numpy as np

from bmdp.data import TransitionBatch
from bmdp.errors import ConfigError, StoreError
from bmdp.experiments.experiment import Work
from bmdp.learn.spec import DataSpec, Exploration, TrainingSpec
from bmdp.learn.fit import TrainedPolicy
from bmdp.learn.learners import BFTQConfig, FitConfig, FTQConfig, LagrangianConfig
from bmdp.learn.learners import FTQ
from bmdp.learn.learners import LagrangianFTQ
from bmdp.learn.runs import POLICY, SPEC, RunFolder, discard
from bmdp.learn.runs import resume, spec_of, train, train_from_data
from bmdp.storage import FitKeeper, save_policy
from bmdp.models import EncoderNet, FrontierNet, Model
from bmdp.models.networks import torch_device
from bmdp.models.placing import placed
from bmdp.policies.policy import load_policy
from bmdp.policies.prices import MultiplierPolicy, PriceDials
from bmdp.policies.portfolio import Portfolio
from bmdp.policies.policy import BudgetedPolicy

AnyPolicy = TypeVar("AnyPolicy", bound=BudgetedPolicy)

_FIT = "fit.safetensors"


def trained(spec: TrainingSpec, work: Work, folder: Path | None = None) -> TrainedPolicy:
    """Explores and learns, or goes on with that.

    Args:
        spec: what to learn, and how.
        work: whose seed and device are taken.
        folder: of the run; that of the work, if not given.

    Raises:
        StoreError: if the folder holds a run of other settings, or something else.
    """
    place = folder or work.folder
    if not _is_begun(place, spec, work):
        return train(spec, place, seed=work.seed, device=work.device)
    return resume(place)


def trained_from(
    batch: TransitionBatch, learner: BFTQConfig | FTQConfig, work: Work, folder: Path
) -> TrainedPolicy:
    """Learns from a log, or goes on with that.

    Raises:
        StoreError: if the folder holds a run of other settings, or something else.
    """
    if _is_begun(folder, DataSpec(learner), work):
        if RunFolder(folder).batch(0) is not None:
            return resume(folder)
        discard(folder)  # it was killed before it had its data
    return train_from_data(batch, learner, folder, seed=work.seed, device=work.device)


def _is_begun(folder: Path, spec: TrainingSpec | DataSpec, work: Work) -> bool:
    """Whether there is such a run; an empty folder is none, and is taken away."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    if not (folder / SPEC).exists():
        return False
    run = RunFolder(folder)
    if spec_of(run) != spec or run.header.get("seed") != work.seed:
        raise StoreError(f"{folder} holds a run of other settings: choose another folder.")
    return True


def rounds_of(folder: Path) -> list[TransitionBatch]:
    """Returns the episodes of each round of a run."""
    run, found = RunFolder(folder), list[TransitionBatch]()
    while (batch := run.batch(len(found))) is not None:
        found.append(batch)
    return found


def fitted(
    learner: FTQ | LagrangianFTQ, batch: TransitionBatch, work: Work, folder: Path
) -> BudgetedPolicy:
    """Returns the policy of a folder, or learns and keeps it; a kill loses one iteration at most.

    Args:
        learner: of the policy.
        batch: what it is learned from, which is not kept.
        work: whose seed and device are taken.
        folder: of this policy alone.
    """
    place, keeper = folder / POLICY, FitKeeper(folder / _FIT)
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        policy = learner.fit(batch, seed=work.seed, device=work.device, keeper=keeper)
        save_policy(policy, place)
    keeper.path.unlink(missing_ok=True)
    return load_policy(place)


def fitted_prices(
    learner: FTQConfig | LagrangianConfig,
    prices: Sequence[float],
    batch: TransitionBatch,
    work: Work,
    folder: Path,
) -> Portfolio:
    """Learns a policy for each price of a unit of cost from the same log, or goes on with that.

    Args:
        learner: of one price at a time, as in the paper, or of all of them at once.
        prices: of a unit of cost, in rewards.
        batch: the log.
        work: whose seed and device are taken.
        folder: of what is learned.

    Returns:
        A portfolio with a member for each price, by falling price. What they cost and earn is what
        they are thought to; nothing, if each was learned by itself.
    """
    if isinstance(learner, LagrangianConfig):
        several = LagrangianFTQ(replace(learner, prices=tuple(prices), plays="mixture"))
        return cast(Portfolio, fitted(several, batch, work, folder))
    falling = sorted(map(float, prices), reverse=True)
    policies = tuple(
        fitted(FTQ(replace(learner, price=price)), batch, work, folder / f"price-{price:g}")
        for price in falling
    )
    members, nothing = np.arange(len(falling)), np.zeros(len(falling))
    return Portfolio(policies, members, nothing, nothing, nothing)


def carried_price(learned: Portfolio, learner: LagrangianConfig) -> MultiplierPolicy:
    """Returns the policy that carries a price, of prices that were learned at once."""
    (dial,) = learned.policies
    return MultiplierPolicy(cast(PriceDials, dial), *learner.budget_range)


def playable(policy: AnyPolicy, device: str) -> AnyPolicy:
    """Returns the policy on a device, or as it is if it cannot be there."""
    if torch_device(device).type == "cpu":
        return policy
    try:
        return cast(AnyPolicy, placed(policy, device))
    except ConfigError:
        return policy


def risk_neutral(spec: TrainingSpec) -> TrainingSpec:
    """Returns the same exploration without regard to costs, by fitted Q-iteration."""
    budgeted, how = spec.learner, spec.exploration
    learner = FTQConfig(
        gamma=budgeted.gamma,
        model=_of_one(budgeted.model),
        regression=budgeted.regression,
        iterations=budgeted.iterations,
    )
    plain = Exploration(how.rounds, how.episodes, how.decay, how.floor, how.hold)
    return TrainingSpec(spec.env, learner, plain)


def all_prices(learner: BFTQConfig) -> LagrangianConfig:
    """Returns settings for all prices at once, with those of budgets that they share."""
    shared = {field.name: getattr(learner, field.name) for field in fields(FitConfig)}
    shared["model"] = _of_one(learner.model)
    return LagrangianConfig(**shared)


def _of_one(model: Model) -> Model:
    """The same model, but one that is not told of budgets."""
    return FrontierNet(model.hidden, "free") if isinstance(model, EncoderNet) else model
