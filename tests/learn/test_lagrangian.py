"""Learning for many prices at once, on problems whose answer is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from batches import Memory, bandit, chain, every_step, exhaustive_batch, fraction_model
from bmdp import FTQ, ConfigError, FTQConfig
from bmdp.exact.price_dial import price_dial
from bmdp.learn import LagrangianConfig, LagrangianFTQ
from bmdp.learn.learners import PricedFit, fit_prices
from bmdp.models import EncoderNet, FrontierNet, KernelModel, LinearModel, Regression, TableModel
from bmdp.policies import MultiplierPolicy, Portfolio, StagedPolicy

PRICES = (np.inf, 2.0, 1.1, 0.4, 0.0)
EXACT = LagrangianConfig(
    gamma=0.75, model=TableModel(), prices=PRICES, iterations=60, reward_scale=1.0
)
NETWORK = FrontierNet((16,), "free")
SMALL = Regression(steps=60, learning_rate=0.02)
STATES = np.arange(4)


@pytest.mark.parametrize("valuation", ["self", "crossed", "pessimistic"])
@pytest.mark.parametrize("seed", range(3))
def test_with_all_transitions_it_finds_the_exact_values_of_every_price(seed, valuation):
    model = fraction_model(seed, 0.75)
    config = replace(EXACT, valuation=valuation)
    batch = exhaustive_batch(model, parts=4, n_copies=2)
    found = fit_prices(config, batch, seed=0, device="cpu")
    exact = price_dial(model, PRICES)
    np.testing.assert_allclose(
        found.dial.points(STATES).costs, exact.points(STATES).costs, atol=2e-5
    )
    np.testing.assert_allclose(
        found.dial.points(STATES).rewards, exact.points(STATES).rewards, atol=2e-5
    )


@pytest.mark.parametrize("scale", [None, 7.0])
def test_prices_are_in_rewards_as_they_are_whatever_their_scale(scale):
    model = fraction_model(0, 0.75)
    batch = exhaustive_batch(model, parts=4, n_copies=2)
    found = fit_prices(replace(EXACT, reward_scale=scale), batch, seed=0, device="cpu")
    costs, exact = (dial.points(STATES).costs for dial in (found.dial, price_dial(model, PRICES)))
    np.testing.assert_allclose(costs, exact, atol=5e-5)


def test_backwards_it_finds_the_exact_values_at_every_step():
    model = fraction_model(1, 0.75, horizon=3)
    batch = every_step(model, 3, n_copies=2)
    found = fit_prices(replace(EXACT, stages="shared"), batch, seed=0, device="cpu")
    assert isinstance(found.dial, StagedPolicy)
    exact = price_dial(model, PRICES)
    for step in range(3):
        one, other = (dial.at_step(step).points(STATES[:3]) for dial in (found.dial, exact))
        np.testing.assert_allclose(one.costs, other.costs, atol=2e-5)
        np.testing.assert_allclose(one.rewards, other.rewards, atol=2e-5)


def test_a_single_price_is_what_fitted_q_iteration_finds():
    config = FTQConfig(gamma=1.0, price=0.5, model=TableModel(), iterations=4)
    model = fraction_model(0, 1.0)
    batch = exhaustive_batch(model, parts=4, n_copies=2)
    one = FTQ(config).fit(batch, seed=0, device="cpu")
    priced = replace(EXACT, gamma=1.0, prices=(0.5,), iterations=4, valuation="self")
    found = fit_prices(priced, batch, seed=0, device="cpu")
    for mine, other in zip(
        found.dial.q_function(STATES), one.q_function(STATES[:, None]), strict=True
    ):
        np.testing.assert_allclose(mine, other, atol=1e-5)


@pytest.mark.parametrize("model", [EncoderNet((16,), (2,)), LinearModel()], ids=str)
def test_prices_with_models_of_their_own_learn_as_they_do_alone(model):
    """As one stack of networks, or one after the other."""
    config = LagrangianConfig(
        gamma=1.0, model=model, regression=SMALL, iterations=2, prices=(3.0, 0.5), folds=2
    )
    batch = chain(80)
    states = batch.state[:20]
    together = fit_prices(config, batch, seed=0, device="cpu").dial.q_function(states)
    alone = fit_prices(replace(config, prices=(3.0,)), batch, seed=0, device="cpu").dial
    for both, one in zip(together, alone.q_function(states), strict=True):
        np.testing.assert_allclose(both[..., :1], one, atol=1e-3)
    assert np.abs(together[0][..., 0] - together[0][..., 1]).max() > 1e-3


@pytest.mark.parametrize("folds", [2, 3])
def test_models_that_check_each_other_are_not_deceived_by_noise(folds):
    batch = bandit(3000)
    noise = torch.randn((folds, 3000, 2, 3, 1), generator=torch.Generator().manual_seed(0))
    config = LagrangianConfig(gamma=1.0, prices=(0.0,), model=KernelModel(5), reward_scale=1.0)
    means = {}
    for valuation in ("crossed", "pessimistic"):
        changed = replace(config, valuation=valuation, folds=folds, caution=0.0)
        fit = PricedFit(changed, batch, 0, torch.device("cpu"))
        found = fit._next_values(noise, np.arange(3000), fit.grid)
        means[valuation] = float(found.values[..., 0].mean())
    assert abs(means["crossed"]) < 4 / np.sqrt(3000 * folds)
    assert means["pessimistic"] > 0.4


def test_a_fit_that_was_killed_goes_on_as_if_nothing_had_been():
    config = LagrangianConfig(
        gamma=1.0, model=NETWORK, regression=SMALL, iterations=3, prices=(3.0, 0.5)
    )
    batch = chain(60)
    whole = fit_prices(config, batch, seed=1, device="cpu").dial
    memory = Memory(kill_at=2)
    with pytest.raises(KeyboardInterrupt):
        fit_prices(config, batch, seed=1, device="cpu", keeper=memory)
    again = fit_prices(config, batch, seed=1, device="cpu", keeper=memory).dial
    for one, other in zip(
        whole.q_function(batch.state), again.q_function(batch.state), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_it_plays_as_the_settings_say_and_can_be_kept(tmp_path):
    import bmdp

    batch = chain(80)
    config = LagrangianConfig(
        gamma=1.0, model=KernelModel(20), prices=(np.inf, 1.5, 0.5, 0.0), stages="shared", folds=2
    )
    kinds = {"mixture": Portfolio, "carried": MultiplierPolicy}
    for plays, kind in kinds.items():
        policy = LagrangianFTQ(replace(config, plays=plays)).fit(batch, seed=0, device="cpu")
        assert isinstance(policy, kind)
        policy.save(tmp_path / plays)
        again = bmdp.load_policy(tmp_path / plays)
        starts = batch.state[batch.starts()]
        one, other = (
            p.start(starts, 0.5, np.random.default_rng(3)).decide(starts) for p in (policy, again)
        )
        assert (one.action == other.action).all()


def test_a_mixture_of_prices_spends_the_budget_of_a_bandit():
    """Action 1 earns 1 for cost 1: a price of 2 forbids it, a price of 0.5 does not."""
    config = LagrangianConfig(
        gamma=1.0, model=KernelModel(20), prices=(2.0, 0.5), iterations=1, folds=2
    )
    policy = LagrangianFTQ(config).fit(bandit(400), seed=0, device="cpu")
    np.testing.assert_allclose(policy.costs, [0, 1], atol=0.02)
    states = np.random.default_rng(1).normal(size=(4000, 2))
    tracker = policy.start(states, 0.3, np.random.default_rng(2))
    assert tracker.decide(states).action.mean() == pytest.approx(0.3, abs=0.04)


def test_prices_are_made_of_the_data():
    config = LagrangianConfig(gamma=1.0, model=KernelModel(20), iterations=1, folds=2)
    first = fit_prices(config, bandit(400), seed=0, device="cpu")
    assert first.prices[0] == np.inf
    assert first.prices[-1] == 0
    assert len(first.prices) == 11


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prices": (1.0, -1.0)}, "prices must be"),
        ({"prices": (1.0, 1.0)}, "prices must be"),
        ({"prices": (np.nan,)}, "prices must be"),
        ({"plays": "dice"}, "plays must be one of"),
    ],
)
def test_wrong_settings_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        replace(EXACT, **changes)
