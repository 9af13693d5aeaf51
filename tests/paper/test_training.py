from dataclasses import replace

import numpy as np
import pytest
import torch

import bmdp
from bmdp import ConfigError
from bmdp.learn import (
    FTQ,
    Backward,
    FTQConfig,
    Iterations,
    LagrangianConfig,
    LagrangianFTQ,
    collect,
)
from bmdp.learn.runs import FitKeeper
from bmdp.models import (
    EncoderNet,
    FrontierNet,
    KernelModel,
    LearnedQ,
    Regression,
)
from bmdp.paper import training
from bmdp.paper.measuring import Trials, other_seed
from bmdp.paper.runner import Work
from bmdp.paper.training import (
    all_prices,
    fitted_prices,
    playable,
)
from bmdp.policies import RandomBudgetedPolicy
from training import SPEC, Killed

PRICES = (0.0, 5.0, 20.0)
NETWORK = FTQConfig(
    gamma=1.0,
    model=FrontierNet((8,), "free", regression=Regression(steps=3)),
    schedule=Iterations(2, settled=0.0),
    ensemble=1,
)


@pytest.fixture(scope="module")
def log():
    random = RandomBudgetedPolicy(5, 0.0, 1.0)
    return collect(random, SPEC.env.spec(), range(60), budgets=np.linspace(0, 1, 60), seed=0)


def test_a_policy_for_each_price_is_that_of_ftq_with_this_price(log, tmp_path):
    portfolio = fitted_prices(NETWORK, PRICES, log, Work(tmp_path, 7, "cpu", ""), tmp_path / "p")
    assert portfolio.which.tolist() == [0, 1, 2]
    for policy, price in zip(portfolio.policies, PRICES[::-1], strict=True):
        alone = FTQ(replace(NETWORK, price=price)).fit(log, seed=7, device="cpu")
        assert policy.price == price
        assert np.array_equal(policy.q_function(log.state), alone.q_function(log.state))


def test_prices_that_are_there_are_not_learned_again(log, tmp_path, monkeypatch):
    work, fit, n_fits = Work(tmp_path, 7, "cpu", ""), FTQ.fit, []

    def second_is_killed(self, *args, **kwargs):
        n_fits.append(self.config.price)
        if len(n_fits) == 2:
            raise Killed
        return fit(self, *args, **kwargs)

    monkeypatch.setattr(FTQ, "fit", second_is_killed)
    with pytest.raises(Killed):
        fitted_prices(NETWORK, PRICES, log, work, tmp_path / "p")
    fitted_prices(NETWORK, PRICES, log, work, tmp_path / "p")
    assert n_fits == [20, 5, 5, 0]
    assert not list(tmp_path.rglob("step-*.safetensors"))


def test_a_fit_that_was_killed_goes_on(log, tmp_path, monkeypatch):
    work, folder = Work(tmp_path, 7, "cpu", ""), tmp_path / "p"
    whole = fitted_prices(NETWORK, PRICES[:1], log, work, tmp_path / "whole").policies[0]
    save = FitKeeper.save

    def killed(self, *kept):
        save(self, *kept)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(FitKeeper, "save", killed)
        with pytest.raises(Killed):
            fitted_prices(NETWORK, PRICES[:1], log, work, folder)
    records = []
    fit = FTQ.fit
    monkeypatch.setattr(FTQ, "fit", lambda *a, **k: fit(*a, **k, on_record=records.append))
    found = fitted_prices(NETWORK, PRICES[:1], log, work, folder).policies[0]
    assert [record.iteration for record in records] == [1]
    assert np.array_equal(found.q_function(log.state), whole.q_function(log.state))


def test_all_prices_at_once_are_those_of_the_lagrangian_learner(log, tmp_path):
    learner = LagrangianConfig(
        gamma=1.0,
        model=KernelModel(10, (1.0,), (0.1,)),
        schedule=Backward(last_step="shared"),
        ensemble=1,
    )
    found = fitted_prices(learner, PRICES, log, Work(tmp_path, 7, "cpu", ""), tmp_path / "p")
    config = replace(learner, prices=PRICES, plays="mixture")
    alone = LagrangianFTQ(config).fit(log, seed=7, device="cpu")
    assert np.array_equal(found.costs, alone.costs)
    assert found.policies[0].at_step(0).prices.tolist() == list(PRICES[::-1])


def test_what_was_learned_is_placed_on_a_device_that_is_not_the_cpu(log, monkeypatch):
    policy, devices = FTQ(NETWORK).fit(log, seed=7, device="cpu"), []
    assert playable(policy, "cpu") is policy
    monkeypatch.setattr(training, "torch_device", lambda device: torch.device("meta"))
    monkeypatch.setattr(LearnedQ, "to", lambda self, device: devices.append(device) or self)
    assert type(playable(policy, "cuda")) is type(policy)
    assert devices == ["cuda"]


def test_models_that_are_told_a_budget_become_models_without_one():
    spec = bmdp.preset("paper-driving")
    assert isinstance(spec.learner.model, EncoderNet)
    before = spec.learner.model
    network = FrontierNet(before.hidden, "free", regression=before.regression)
    several = all_prices(spec.learner)
    assert (several.model, several.schedule) == (network, spec.learner.schedule)


# Measuring


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budgets": ()}, "must hold at least one budget"),
        ({"dial": ()}, "must hold at least one budget"),
        ({"n_episodes": 1}, "n_episodes must be a whole number from 2 on; got 1"),
        ({"n_shown": 0}, "n_shown must be a whole number from 1 on; got 0"),
    ],
)
def test_nothing_is_tested_by_nothing(changes, message):
    with pytest.raises(ConfigError, match=message):
        replace(Trials((0.0,), 10, (0.0,), 2), **changes)


def test_other_seeds_are_others_and_always_the_same():
    found = {other_seed(seed, name) for seed in range(4) for name in ("a", "b")}
    assert len(found | {0, 1, 2, 3}) == 12
    assert other_seed(2, "a") == other_seed(2, "a")
