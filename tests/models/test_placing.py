"""A policy that is computed on a device does what it does elsewhere."""

import numpy as np
import pytest

import bmdp
from bmdp import BFTQ, BFTQConfig, ConfigError, LagrangianConfig, LagrangianFTQ
from bmdp.models import EncoderNet, FrontierNet, KernelModel, LinearModel, Regression
from bmdp.models.placing import placed
from devices import each_device
from training import SPEC

KERNEL = KernelModel(20, (0.5, 1.0), (0.1, 1.0))
CONFIGS = {
    "self": BFTQConfig(gamma=1.0, n_budgets=5, model=KERNEL, valuation="self", iterations=2),
    "folds": BFTQConfig(gamma=1.0, n_budgets=5, model=KERNEL, stages="shared", folds=3),
    "cautious": BFTQConfig(
        gamma=1.0, n_budgets=5, model=KERNEL, valuation="pessimistic", caution=0.5, iterations=2
    ),
    "encoder": BFTQConfig(
        gamma=1.0, n_budgets=5, model=EncoderNet((8,), (2,)), regression=Regression(steps=3)
    ),
    "frontier": BFTQConfig(
        gamma=1.0, n_budgets=5, model=FrontierNet((8,)), regression=Regression(steps=3)
    ),
}


@pytest.fixture(scope="module")
def batch():
    spec = bmdp.learn.TrainingSpec(
        SPEC.env, BFTQConfig(gamma=1.0, n_budgets=3, model=LinearModel()), SPEC.exploration
    )
    return bmdp.explore(spec, seed=0, device="cpu").batch


@each_device
@pytest.mark.parametrize("name", CONFIGS)
def test_a_policy_has_the_same_options_on_a_device(name, device, batch):
    policy = BFTQ(CONFIGS[name]).fit(batch, seed=0, device="cpu")
    there = placed(policy, device)
    states, budgets = batch.state[:200], np.linspace(0, 1, 200)
    for step in (0, 1):
        q_r, q_c = policy.at_step(step).q_function(states)
        on_r, on_c = there.at_step(step).q_function(states)
        np.testing.assert_allclose(on_r, q_r, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(on_c, q_c, rtol=1e-4, atol=1e-4)
        assert there.at_step(step).options(states, budgets).action.shape[0] == 200


@each_device
@pytest.mark.parametrize("plays", ["mixture", "carried"])
def test_policies_of_prices_play_alike_on_a_device(plays, device, batch):
    config = LagrangianConfig(
        gamma=1.0, prices=(300.0, 100.0, 0.0), model=KERNEL, stages="shared", folds=2, plays=plays
    )
    policy = LagrangianFTQ(config).fit(batch, seed=0, device="cpu")
    there, states = placed(policy, device), batch.state[:200]
    one, other = (
        p.start(states, 0.5, np.random.default_rng(0)).decide(states) for p in (policy, there)
    )
    assert (one.action == other.action).mean() > 0.99  # but for rounding


@each_device
def test_a_calibrated_policy_plays_alike_on_a_device(device, batch):
    policy = BFTQ(CONFIGS["folds"]).fit(batch, seed=0, device="cpu")
    how = {"confidence": 0.9, "n_episodes": 20, "seed": 0, "budgets": [0.0, 1.0]}
    calibrated = bmdp.calibrate(policy, SPEC.env.spec(), **how)
    there, states = placed(calibrated, device), batch.state[:200]
    one, other = (
        p.start(states, 0.9, np.random.default_rng(0)).decide(states) for p in (calibrated, there)
    )
    assert (one.action == other.action).mean() > 0.99


def test_what_is_neither_network_nor_kernel_cannot_be_placed(batch):
    config = BFTQConfig(gamma=1.0, n_budgets=3, model=LinearModel(), valuation="self")
    policy = BFTQ(config).fit(batch, seed=0)
    with pytest.raises(ConfigError, match="LinearQ cannot be placed on a device"):
        placed(policy, "cpu")
    with pytest.raises(ConfigError, match="ScriptedPolicy cannot be placed"):
        placed(bmdp.envs.ScriptedPolicy("corridors/safe"), "cpu")
