"""The learners, on problems whose answer is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import bmdp
from batches import bandit, chain, every_step, exhaustive_batch, fraction_model
from bmdp import BFTQ, FTQ, BFTQConfig, ConfigError, DataError, FTQConfig, TransitionBatch
from bmdp.exact.price_dial import price_dial
from bmdp.learn import Backward, Iterations, LagrangianConfig, LagrangianFTQ
from bmdp.learn.fit import Ensemble, Heads, fit_q
from bmdp.learn.learners import learner_of, of_kind, portfolio_of
from bmdp.learn.next_values import hull_values
from bmdp.models import (
    EncoderNet,
    FrontierNet,
    KernelModel,
    LinearModel,
    Regression,
    TableModel,
)
from bmdp.policies import HullPolicy, MultiplierPolicy, Portfolio, PricedPolicy

SMALL = Regression(steps=150, learning_rate=0.01)
NETWORKS = {
    "encoder": EncoderNet((32, 16), (16,), regression=SMALL),
    "frontier": FrontierNet((32,), regression=SMALL),
}
THREE = Iterations(3, settled=0.0)
SOME = np.random.default_rng(5).normal(size=(10, 2))


def config(**changes):
    settings = {"gamma": 1.0, "n_budgets": 11, "model": NETWORKS["encoder"], "schedule": THREE}
    return BFTQConfig(**({"ensemble": 2} | settings | changes))


def fitted(config, batch, seed=0):
    return learner_of(config).fit(batch, seed=seed, device="cpu")


# Budgets


@pytest.mark.parametrize("model", NETWORKS.values(), ids=NETWORKS.keys())
@pytest.mark.parametrize("ensemble", [1, 2])
def test_the_policy_mixes_so_that_it_spends_the_budget(model, ensemble):
    policy = fitted(config(model=model, ensemble=ensemble), bandit())
    states = np.random.default_rng(5).normal(size=(2000, 2))
    for budget in (0.1, 0.5, 0.9):
        decision = policy.decide(states, budget, np.random.default_rng(1))
        assert decision.action.mean() == pytest.approx(budget, abs=0.12)
    frontier = policy.frontier(states[0])
    assert frontier.reward_at(0.5) == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize("model", NETWORKS.values(), ids=NETWORKS.keys())
def test_budgets_are_handed_on_through_a_chain(model):
    batch = chain()
    policy = fitted(config(model=model), batch)
    starts = batch.state[batch.starts()]
    first = policy.decide(starts, 0.4, np.random.default_rng(0))
    second = policy.decide(
        batch.next_state[batch.starts()], first.next_budget, np.random.default_rng(1)
    )
    assert second.action.mean() == pytest.approx(0.4, abs=0.15)


@pytest.mark.parametrize("name", NETWORKS)
def test_fits_are_repeatable_and_seeds_matter(name):
    fits = [fitted(config(model=NETWORKS[name]), bandit(100), seed) for seed in (3, 3, 4)]
    values = [policy.q_function(SOME)[0] for policy in fits]
    assert (values[0] == values[1]).all()
    assert (values[0] != values[2]).any()


def test_costs_may_have_a_discount_of_their_own():
    batch = chain()
    policy = fitted(config(gamma=1.0, cost_gamma=0.5), batch)
    top = policy.frontier(batch.state[batch.starts()[0]])
    assert top.rewards[-1] == pytest.approx(1, abs=0.25)
    assert top.costs[-1] == pytest.approx(0.5, abs=0.2)


def test_costs_may_count_now_alone():
    """At the first step nothing is paid, so with a discount of 0 all of it is free."""
    batch = chain(100)
    policy = fitted(config(cost_gamma=0.0, model=LinearModel(), schedule=Backward()), batch)
    assert policy.frontier(batch.state[0]).costs.max() == pytest.approx(0, abs=1e-3)
    assert policy.frontier(batch.state[0]).rewards.max() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(("shift", "lowest"), [(0.0, 0.0), (-2.0, -2.0)])
def test_costs_are_taken_to_be_from_0_on_where_no_cost_of_the_log_is_negative(shift, lowest):
    arrays = bandit(200).to_arrays()
    batch = TransitionBatch.from_arrays(arrays | {"cost": arrays["cost"] + shift})
    policy = fitted(config(model=KernelModel(10), budget_range=(-3.0, 1.0)), batch)
    assert policy.rule.costs_from_zero == (shift == 0)
    assert policy.frontier(SOME[0]).costs[0] == pytest.approx(lowest, abs=0.05)


@pytest.mark.parametrize("unit", [1.0, 40.0])
def test_costs_above_a_cap_are_not_believed_by_the_policy(unit):
    arrays = bandit(200).to_arrays()
    batch = TransitionBatch.from_arrays(arrays | {"cost": arrays["cost"] * unit})
    capped = config(model=LinearModel(), budget_range=(0.0, unit), cost_cap=0.5 * unit)
    policy = fitted(capped, batch)
    assert policy.rule.cost_cap == pytest.approx(0.5 * unit)
    assert policy.frontier(SOME[0]).costs[-1] == pytest.approx(0.5 * unit)
    half = policy.options(SOME, np.full(10, 0.25 * unit))
    assert (half.action * half.probability).sum(axis=1) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("cost_cap", [0.0, -1.0, np.inf, np.nan])
def test_a_cap_of_costs_is_a_number_above_the_lowest_budget(cost_cap):
    with pytest.raises(ConfigError, match="cost_cap must be finite and above the lowest budget, 0"):
        BFTQConfig(gamma=1.0, cost_cap=cost_cap)


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_other_units_of_rewards_and_costs_give_the_same_policy(unit):
    arrays = bandit(100).to_arrays()
    other = {"reward": arrays["reward"] * unit, "cost": arrays["cost"] / unit}
    plain = fitted(config(model=LinearModel()), TransitionBatch.from_arrays(arrays))
    scaled = config(model=LinearModel(), budget_range=(0.0, 1 / unit))
    policy = fitted(scaled, TransitionBatch.from_arrays(arrays | other))
    budgets = np.random.default_rng(0).random(10)
    one, two = (
        (found.action * found.probability).sum(axis=1)
        for found in (plain.options(SOME, budgets), policy.options(SOME, budgets / unit))
    )
    np.testing.assert_allclose(one, two, atol=1e-4)
    assert 0.1 < one.mean() < 0.9


# Models that check each other


def parts_of(batch, ensemble, seed=0):
    """All models of an ensemble after three iterations, at some states, `[E, n, 2, A, H]`."""
    *_, last = fit_q(
        batch,
        LinearModel(),
        hull_values(0.0, costs_from_zero=False),
        heads=Heads(np.linspace(0, 1, 5), True),
        gammas=(0.5, 0.5),
        schedule=THREE,
        ensemble=ensemble,
        seed=seed,
        device="cpu",
    )
    return last.fit.q.read(last.fit.embedded(SOME), 0), last.fit.q_function()(SOME)


def test_a_pooled_model_acts_but_has_no_say_in_what_the_others_learn():
    batch = chain(200)
    alone, mean = parts_of(batch, Ensemble(3, pooled=False))
    taught, pooled = parts_of(batch, Ensemble(3, pooled=True))
    assert (len(alone), len(taught)) == (3, 4)
    assert (alone == taught[:3]).all()
    np.testing.assert_allclose(np.stack(mean, 1), alone.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.stack(pooled, 1), taught[3], rtol=1e-5, atol=1e-6)


def test_a_pooled_model_is_fitted_to_all_episodes():
    """After one iteration, which learns from nobody, it is what a single model is."""
    once = config(model=LinearModel(), schedule=Iterations(1))
    batch = chain(50)
    pooled, single = fitted(once, batch), fitted(replace(once, ensemble=1), batch)
    np.testing.assert_array_equal(pooled.q_function(SOME), single.q_function(SOME))
    mean = fitted(replace(once, pooled=False), batch)
    assert (np.array(mean.q_function(SOME)) != np.array(single.q_function(SOME))).any()


@pytest.mark.parametrize("caution", [0.75, -2.0])
def test_with_caution_a_policy_acts_on_the_mean_and_deviations(caution):
    """Pooled or not: a single model has no deviations."""
    changes = {"ensemble": 3, "caution": caution, "model": LinearModel()}
    policy = fitted(config(**changes), bandit(50))
    values = policy.q_function.model(torch.from_numpy(SOME)).numpy()  # [3, n, 2, A, H]
    assert len(values) == 3
    mean, deviation = values.mean(axis=0), values.std(axis=0)
    q_r, q_c = policy.q_function(SOME)
    np.testing.assert_allclose(q_r, mean[:, 0] - caution * deviation[:, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(q_c, mean[:, 1] + caution * deviation[:, 1], rtol=1e-5, atol=1e-6)


def test_rows_without_episodes_are_their_own():
    arrays = bandit(60).to_arrays()
    del arrays["episode"], arrays["step"]
    policy = fitted(config(model=LinearModel()), TransitionBatch.from_arrays(arrays))
    assert policy.frontier(SOME[0]).rewards[-1] == pytest.approx(1, abs=0.01)


# What a log must be

CONFIGS = {
    "BFTQ": BFTQConfig(gamma=1.0, model=LinearModel()),
    "FTQ": FTQConfig(gamma=1.0, model=LinearModel()),
    "LagrangianFTQ": LagrangianConfig(gamma=1.0, model=LinearModel()),
}


@pytest.mark.parametrize("batch", [None, {"state": [0.0]}, "log.npz", np.zeros(3)], ids=repr)
@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_no_batch_is_refused(name, batch):
    with pytest.raises(DataError, match="batch must be a TransitionBatch; got"):
        fitted(CONFIGS[name], batch)


def test_stored_budgets_may_be_the_labels():
    network = EncoderNet((8,), (4,), labels="stored", regression=Regression(steps=3))
    policy = fitted(config(model=network), bandit())
    assert policy.decide(np.zeros((4, 2)), 0.5, np.random.default_rng(0)).action.shape == (4,)
    arrays = bandit().to_arrays()
    del arrays["budget"]
    with pytest.raises(DataError, match="labels='stored' needs a batch with budgets"):
        fitted(config(model=network), TransitionBatch.from_arrays(arrays))


# Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 1.5}, "gamma must be from 0 to 1; got 1.5"),
        ({"cost_gamma": -0.1}, "cost_gamma must be from 0 to 1"),
        ({"budget_range": (1.0, 0.0)}, "budget_range must be two rising numbers"),
        ({"n_budgets": 1}, "n_budgets must be a whole number from 2 on"),
        ({"slope_cap": -1.0}, "slope_cap must be from 0 on"),
        ({"slope_cap": 0.5}, "slope_cap must be 0 or above 1; got 0.5"),
        ({"caution": np.inf}, "caution must be finite; got inf"),
        ({"ensemble": 0}, "ensemble must be a whole number from 1 on"),
        ({"model": "KernelModel"}, "model must be a Regressor; got 'KernelModel'"),
        ({"schedule": 3}, "schedule must be an Iterations or a Backward or None; got 3"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        config(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 2.0}, "gamma must be from 0 to 1"),
        ({"price": np.inf}, "price must be finite"),
        ({"price": -1.0}, "price must be finite and from 0 on; got -1.0"),
        ({"budget_range": (1.0, 1.0)}, "budget_range must be two rising numbers"),
        ({"model": EncoderNet()}, "must not take its heads for budgets .* got EncoderNet"),
        ({"model": FrontierNet()}, "must not take its heads for budgets .* got FrontierNet"),
    ],
)
def test_settings_of_fitted_q_iteration_are_checked(settings, message):
    with pytest.raises(ConfigError, match=message):
        FTQConfig(**({"gamma": 1.0} | settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prices": (1.0, -1.0)}, "prices must be"),
        ({"prices": (1.0, 1.0)}, "prices must be"),
        ({"prices": (np.nan,)}, "prices must be"),
        ({"plays": "dice"}, "plays must be one of carried, mixture"),
        ({"model": EncoderNet()}, "must not take its heads for budgets"),
    ],
)
def test_settings_of_prices_are_checked(settings, message):
    with pytest.raises(ConfigError, match=message):
        LagrangianConfig(**({"gamma": 1.0} | settings))


@pytest.mark.parametrize("kind", [BFTQConfig, FTQConfig, LagrangianConfig])
def test_settings_of_another_kind_keep_what_both_have(kind):
    shared = {"gamma": 0.5, "cost_gamma": 0.25, "ensemble": 4, "pooled": False, "caution": 1.0}
    own = {"n_budgets": 7} if kind is BFTQConfig else {}
    found = of_kind(BFTQConfig(**shared, n_budgets=7, schedule=Backward()), kind)
    assert found == kind(**shared, **own, schedule=Backward())


# One price


@pytest.mark.parametrize(("price", "best"), [(0.0, 1), (0.5, 1), (2.0, 0)])
def test_fitted_q_iteration_takes_what_is_worth_its_price(price, best):
    network = FrontierNet((32,), "free", regression=SMALL)
    learner = FTQConfig(gamma=1.0, price=price, model=network, schedule=THREE, ensemble=1)
    batch = chain()
    policy = fitted(learner, batch)
    later = policy.decide(batch.next_state[batch.starts()], 0.0, np.random.default_rng(0))
    assert (later.action == best).mean() > 0.97
    q_r, q_c = policy.q_function(batch.state[batch.starts()])
    assert q_r.max(axis=1).mean() == pytest.approx(best, abs=0.15)
    assert q_c[..., 0].mean() == pytest.approx(best, abs=0.2)


def test_a_policy_of_one_price_is_stored(tmp_path):
    policy = fitted(FTQConfig(gamma=1.0, model=KernelModel(10), schedule=THREE), chain(60))
    policy.save(tmp_path / "p")
    loaded = bmdp.load_policy(tmp_path / "p")
    assert isinstance(loaded, PricedPolicy)
    np.testing.assert_array_equal(loaded.q_function(SOME), policy.q_function(SOME))


# Many prices

PRICES = (np.inf, 2.0, 1.1, 0.4, 0.0)
EXACT = LagrangianConfig(
    gamma=0.75, model=TableModel(), prices=PRICES, schedule=Iterations(60, settled=0.0), ensemble=2
)
STATES = np.arange(3)[:, None]  # the fourth is the end


def assert_same_points(dial, exact, atol=2e-5):
    found, expected = dial.points(STATES), exact.points(STATES[:, 0])
    np.testing.assert_allclose(found.costs, expected.costs, atol=atol)
    np.testing.assert_allclose(found.rewards, expected.rewards, atol=atol)


@pytest.mark.parametrize("changes", [{"ensemble": 1}, {}, {"caution": 0.5}], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_with_all_transitions_it_finds_the_exact_values_of_every_price(seed, changes):
    model = fraction_model(seed, 0.75)
    batch = exhaustive_batch(model, parts=4, n_copies=2)
    found = fitted(replace(EXACT, **changes), batch)
    assert_same_points(found.dial, price_dial(model, PRICES))


def test_prices_are_in_rewards_for_a_unit_of_cost_whatever_the_units():
    model = fraction_model(0, 0.75)
    arrays = exhaustive_batch(model, parts=4, n_copies=2).to_arrays()
    arrays |= {"reward": 70 * arrays["reward"], "cost": 10 * arrays["cost"]}
    prices = tuple(7 * price for price in PRICES)
    found = fitted(replace(EXACT, prices=prices), TransitionBatch.from_arrays(arrays)).dial
    exact = price_dial(model, PRICES).points(STATES[:, 0])
    np.testing.assert_allclose(found.points(STATES).costs, 10 * exact.costs, atol=5e-4)
    np.testing.assert_allclose(found.points(STATES).rewards, 70 * exact.rewards, atol=5e-3)


def test_backwards_it_finds_the_exact_values_at_every_step():
    model = fraction_model(1, 0.75, horizon=3)
    found = fitted(replace(EXACT, schedule=Backward()), every_step(model, 3, n_copies=2))
    exact = price_dial(model, PRICES)
    assert found.dial.n_steps == 3
    for step in range(3):
        assert_same_points(found.dial.at_step(step), exact.at_step(step))


def test_a_single_price_is_what_fitted_q_iteration_finds():
    batch = exhaustive_batch(fraction_model(0, 0.9), parts=4, n_copies=2)
    settings = {"gamma": 0.9, "model": TableModel(), "schedule": THREE, "ensemble": 2}
    one = fitted(FTQConfig(price=0.5, **settings), batch)
    many = fitted(LagrangianConfig(prices=(0.5,), **settings), batch)
    np.testing.assert_array_equal(many.dial.q_function(STATES), one.q_function(STATES))


@pytest.mark.parametrize(
    "model", [KernelModel(20, (1.0,), (0.01,)), LinearModel()], ids=["kernel", "linear"]
)
def test_prices_that_are_learned_together_learn_as_they_do_alone(model):
    settings = {"gamma": 1.0, "model": model, "schedule": THREE}
    batch = chain(80)
    together, alone = (
        fitted(LagrangianConfig(prices=prices, **settings), batch).dial.q_function(batch.state[:20])
        for prices in ((3.0, 0.5), (3.0,))
    )
    for both, one in zip(together, alone, strict=True):
        np.testing.assert_allclose(both[..., :1], one, atol=1e-3)
    assert np.abs(together[0][..., 0] - together[0][..., 1]).max() > 1e-3


@pytest.mark.parametrize(("plays", "kind"), [("mixture", Portfolio), ("carried", MultiplierPolicy)])
def test_it_plays_as_the_settings_say_and_can_be_kept(tmp_path, plays, kind):
    batch = chain(80)
    prices = (np.inf, 1.5, 0.5, 0.0)
    settings = {"model": KernelModel(20), "prices": prices, "schedule": Backward(), "plays": plays}
    policy = fitted(LagrangianConfig(gamma=1.0, **settings), batch)
    assert isinstance(policy, kind)
    policy.save(tmp_path / "p")
    starts = batch.state[batch.starts()]
    one, other = (
        p.start(starts, 0.5, np.random.default_rng(3)).decide(starts)
        for p in (policy, bmdp.load_policy(tmp_path / "p"))
    )
    assert (one.action == other.action).all()


def test_a_mixture_of_prices_spends_the_budget_of_a_bandit():
    """Action 1 earns 1 for cost 1: a price of 2 forbids it, a price of 0.5 does not."""
    settings = {"model": KernelModel(20), "prices": (2.0, 0.5), "schedule": Iterations(1)}
    policy = fitted(LagrangianConfig(gamma=1.0, plays="mixture", **settings), bandit())
    np.testing.assert_allclose(policy.costs, [0, 1], atol=0.02)
    states = np.random.default_rng(1).normal(size=(4000, 2))
    tracker = policy.start(states, 0.3, np.random.default_rng(2))
    assert tracker.decide(states).action.mean() == pytest.approx(0.3, abs=0.04)


def test_a_coin_between_prices_is_made_of_what_they_cost_at_the_first_states():
    settings = {"model": KernelModel(20), "prices": (2.0, 0.5), "schedule": Backward()}
    batch = chain(80)
    carried, mixture = (
        fitted(LagrangianConfig(gamma=1.0, plays=plays, **settings), batch)
        for plays in ("carried", "mixture")
    )
    again = portfolio_of(carried.dial, batch)
    points = carried.dial.at_step(0).points(batch.state[batch.starts()])
    assert again.costs.tolist() == mixture.costs.tolist()
    np.testing.assert_allclose(again.costs, points.costs.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(again.rewards, points.rewards.mean(axis=0), rtol=1e-6)


def test_prices_are_made_of_the_data():
    """From a hundredth to a hundred times the largest reward over the largest cost."""
    arrays = bandit(100).to_arrays()
    batch = TransitionBatch.from_arrays(arrays | {"reward": 6 * arrays["reward"]})
    settings = {"model": KernelModel(20), "schedule": Iterations(1)}
    prices = fitted(LagrangianConfig(gamma=1.0, **settings), batch).dial.prices
    assert (len(prices), prices[0], prices[-1]) == (11, np.inf, 0)
    np.testing.assert_allclose(prices[[1, 5, 9]], [600, 6, 0.06])


def test_every_learner_is_that_of_its_settings():
    kinds = [type(learner_of(CONFIGS[name])).__name__ for name in CONFIGS]
    assert kinds == list(CONFIGS)
    assert isinstance(fitted(CONFIGS["BFTQ"], bandit(60)), HullPolicy)
    assert isinstance(fitted(CONFIGS["FTQ"], bandit(60)), PricedPolicy)
    assert isinstance(fitted(CONFIGS["LagrangianFTQ"], bandit(60)), MultiplierPolicy)
    assert all(type(x) in (BFTQ, FTQ, LagrangianFTQ) for x in map(learner_of, CONFIGS.values()))
