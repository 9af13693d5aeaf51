"""Training as a part of an experiment: begun, or gone on with where a kill left it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from bmdp.data import TransitionBatch
from bmdp.errors import ConfigError, StoreError
from bmdp.learn import runs
from bmdp.learn.fit import torch_device
from bmdp.learn.learners import (
    FTQ,
    BFTQConfig,
    FTQConfig,
    LagrangianConfig,
    LagrangianFTQ,
    Learner,
    of_kind,
)
from bmdp.learn.spec import EnvConfig, Exploration, TrainingSpec
from bmdp.models import EncoderNet, FrontierNet, Regressor
from bmdp.models.regressor import placed
from bmdp.paper.runner import Work
from bmdp.policies.policy import BudgetedPolicy, load_policy
from bmdp.policies.portfolio import Portfolio
from bmdp.storage import SPEC

AnyPolicy = TypeVar("AnyPolicy", bound=BudgetedPolicy)


def trained(spec: TrainingSpec, work: Work, folder: Path | None = None) -> Any:
    """Explores and learns in a folder, that of the work if none is given, or goes on with that.

    Raises:
        StoreError: if the folder holds a run of other settings, or something else.
    """
    place = folder or work.folder
    if _is_begun(place, spec, work):
        return runs.resume(place)
    return runs.train(spec, place, seed=work.seed, device=work.device)


def trained_from(batch: TransitionBatch, learner: Learner, work: Work, folder: Path) -> Any:
    """Learns from a log in a folder, or goes on with that; a StoreError as of `trained`."""
    if _is_begun(folder, TrainingSpec(None, learner, None), work):
        return runs.resume(folder)
    return runs.train_from_data(batch, learner, folder, seed=work.seed, device=work.device)


def _is_begun(folder: Path, spec: TrainingSpec, work: Work) -> bool:
    """Whether there is such a run; an empty folder is none, and is taken away."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    if not (folder / SPEC).exists():
        return False
    run = runs.RunFolder(folder)
    if runs.spec_of(run) != spec or run.header.get("seed") != work.seed:
        raise StoreError(f"{folder} holds a run of other settings: choose another folder.")
    return True


def explored(spec: TrainingSpec) -> tuple[EnvConfig, Exploration]:
    """Returns where a spec explores, and how; a ConfigError if it learns from a log."""
    if spec.env is None or spec.exploration is None:
        raise ConfigError("TrainingSpec needs env and exploration to explore.")
    return spec.env, spec.exploration


def changed(
    spec: TrainingSpec, learner: Mapping[str, Any], exploration: Mapping[str, Any]
) -> TrainingSpec:
    """Returns settings with some of the learner and of the exploration changed."""
    _, how = explored(spec)
    return replace(
        spec, learner=replace(spec.learner, **learner), exploration=replace(how, **exploration)
    )


def log_of(folder: Path) -> TransitionBatch:
    """Returns the episodes of all rounds of a run."""
    return TransitionBatch.concatenate(rounds_of(folder))


def rounds_of(folder: Path) -> list[TransitionBatch]:
    """Returns the episodes of each round of a run."""
    run, found = runs.RunFolder(folder), list[TransitionBatch]()
    while (batch := run.batch(len(found))) is not None:
        found.append(batch)
    return found


def fitted(
    learner: FTQ | LagrangianFTQ, batch: TransitionBatch, work: Work, folder: Path
) -> BudgetedPolicy:
    """Returns the policy of a folder, or learns and keeps it; a kill loses one iteration at most.

    The log is not kept.
    """
    place, keeper = folder / runs.POLICY, runs.FitKeeper(folder / "fit")
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        policy = learner.fit(batch, seed=work.seed, device=work.device, keeper=keeper)
        runs.save_policy(policy, place)
    keeper.discard()
    return load_policy(place)


def fitted_prices(
    learner: FTQConfig | LagrangianConfig,
    prices: Sequence[float],
    batch: TransitionBatch,
    work: Work,
    folder: Path,
) -> Portfolio:
    """Learns a policy for each price of a unit of cost from the same log, or goes on with that.

    Returns:
        A portfolio with a member for each price, by falling price. Their costs and rewards are
        forecasts of all prices learned at once; 0 where each was learned by itself, as in the
        paper.
    """
    if isinstance(learner, LagrangianConfig):
        several = LagrangianFTQ(replace(learner, prices=tuple(prices), plays="mixture"))
        return cast(Portfolio, fitted(several, batch, work, folder))
    return unmeasured(
        fitted(FTQ(replace(learner, price=price)), batch, work, folder / f"price-{price:g}")
        for price in sorted(map(float, prices), reverse=True)
    )


def unmeasured(policies: Iterable[BudgetedPolicy]) -> Portfolio:
    """Returns a portfolio of policies whose costs and rewards are not known: all are 0."""
    members = tuple(policies)
    nothing = np.zeros(len(members))
    return Portfolio(members, np.arange(len(members)), nothing, nothing, nothing)


def playable(policy: AnyPolicy, device: str) -> AnyPolicy:
    """Returns the policy with its learned models on a device."""
    if torch_device(device).type == "cpu":
        return policy
    return cast(AnyPolicy, placed(policy, device))


def all_prices(learner: BFTQConfig) -> LagrangianConfig:
    """Returns settings for all prices at once, with those of budgets that they share."""
    without = replace(learner, model=_without_budgets(learner.model))
    return cast(LagrangianConfig, of_kind(without, LagrangianConfig))


def _without_budgets(model: Regressor) -> Regressor:
    if isinstance(model, EncoderNet):
        return FrontierNet(model.hidden, "free", regression=model.regression)
    return model
