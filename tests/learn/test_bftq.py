"""Budgeted fitted Q-iteration on problems whose answer is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import bmdp
from batches import Memory, bandit, chain
from bmdp import BFTQ, FTQ, BFTQConfig, ConfigError, FTQConfig, TransitionBatch
from bmdp.learn.learners import BudgetedFit
from bmdp.models import EncoderNet, FrontierNet, LinearModel, Regression

SMALL = Regression(steps=150, learning_rate=0.01)
NETWORKS = {"encoder": EncoderNet((32, 16), (4,)), "frontier": FrontierNet((32,), "monotone")}


def config(**changes):
    settings = {
        "gamma": 1.0,
        "n_budgets": 11,
        "model": NETWORKS["encoder"],
        "regression": SMALL,
        "iterations": 3,
    }
    return BFTQConfig(**(settings | changes))


@pytest.mark.parametrize("model", NETWORKS.values(), ids=NETWORKS.keys())
@pytest.mark.parametrize("valuation", ["self", "crossed"])
def test_the_policy_mixes_so_that_it_spends_the_budget(model, valuation):
    policy = BFTQ(config(model=model, valuation=valuation)).fit(bandit(), seed=0, device="cpu")
    states = np.random.default_rng(5).normal(size=(2000, 2))
    for budget in (0.1, 0.5, 0.9):
        decision = policy.decide(states, budget, np.random.default_rng(1))
        assert decision.action.mean() == pytest.approx(budget, abs=0.12)
    frontier = policy.frontier(states[0])
    assert frontier.reward_at(0.5) == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize("model", NETWORKS.values(), ids=NETWORKS.keys())
def test_budgets_are_handed_on_through_a_chain(model):
    batch = chain()
    policy = BFTQ(config(model=model)).fit(batch, seed=0, device="cpu")
    starts = batch.state[batch.starts()]
    first = policy.decide(starts, 0.4, np.random.default_rng(0))
    second = policy.decide(
        batch.next_state[batch.starts()], first.next_budget, np.random.default_rng(1)
    )
    assert second.action.mean() == pytest.approx(0.4, abs=0.15)


def test_fits_are_repeatable_and_seeds_matter():
    fits = [
        BFTQ(config(model=NETWORKS["encoder"])).fit(bandit(), seed=seed, device="cpu")
        for seed in (3, 3, 4)
    ]
    states = np.random.default_rng(5).normal(size=(10, 2))
    values = [policy.q_function(states)[0] for policy in fits]
    assert (values[0] == values[1]).all()
    assert (values[0] != values[2]).any()


@pytest.mark.parametrize("start", ["warm", "restart"])
@pytest.mark.parametrize("model", NETWORKS.values(), ids=NETWORKS.keys())
def test_a_fit_that_was_killed_goes_on_as_if_nothing_had_been(model, start):
    regression = Regression(steps=20, start=start, batch_size=64)
    learner = BFTQ(config(model=model, regression=regression, iterations=4))
    whole = learner.fit(bandit(), seed=1, device="cpu")
    memory = Memory(kill_at=2)
    with pytest.raises(KeyboardInterrupt):
        learner.fit(bandit(), seed=1, device="cpu", keeper=memory)
    again = learner.fit(bandit(), seed=1, device="cpu", keeper=memory)
    states = np.random.default_rng(5).normal(size=(10, 2))
    for one, other in zip(whole.q_function(states), again.q_function(states), strict=True):
        assert (one == other).all()


def test_every_iteration_is_recorded():
    records = []
    BFTQ(config(iterations=3)).fit(bandit(100), seed=0, device="cpu", on_record=records.append)
    assert [r["iteration"] for r in records] == [0, 1, 2]
    assert [r["is_last"] for r in records] == [False, False, True]
    for key in ("delta", "last_loss", "share_infeasible", "start_reward_high", "start_cost_low"):
        assert all(np.isfinite(r[key]) for r in records)
    assert all(
        r["seconds"] >= r["seconds_forward"] + r["seconds_frontier"] + r["seconds_regression"]
        for r in records
    )


def test_it_stops_when_targets_no_longer_change():
    records = []
    learner = BFTQ(config(iterations=9, stop_delta=0.5, model=NETWORKS["frontier"]))
    learner.fit(bandit(), seed=0, device="cpu", on_record=records.append)
    assert len(records) == 2
    assert records[-1]["is_last"]


@pytest.mark.parametrize("folds", [2, 3, 5])
@pytest.mark.parametrize("on_grid", [True, False])
def test_models_that_check_each_other_are_not_deceived_by_noise(folds, on_grid):
    """Nothing earns or costs anything, but for noise: whoever believes its own choice, earns."""
    batch, grid = bandit(2000), torch.linspace(0, 1, 11)
    noise = torch.randn((folds, 2000, 2, 3, 11), generator=torch.Generator().manual_seed(0))
    budgets = grid if on_grid else torch.full((2000, 1), 0.5)
    plain = {"n_budgets": 11, "slope_cap": 0.0, "cost_floor": -1e9}
    found = {}
    for valuation, values in (("crossed", noise), ("self", noise[:1])):
        settings = config(valuation=valuation, folds=folds, **plain)
        fit = BudgetedFit(settings, batch, 0, torch.device("cpu"))
        found[valuation] = fit._next_values(values, np.arange(2000), budgets).values[:, :, 0]
    error = found["crossed"].mean(dim=1).std() / 2000**0.5
    assert abs(float(found["crossed"].mean())) < 4 * float(error)
    assert float(found["self"].mean()) > 0.5


def test_the_mean_of_all_models_acts():
    policy = BFTQ(config(folds=4, iterations=1)).fit(bandit(100), seed=0, device="cpu")
    states = np.random.default_rng(5).normal(size=(10, 2))
    values = [function(states) for function in policy.q_function.functions]
    assert len(values) == 4
    for found, parts in zip(policy.q_function(states), zip(*values, strict=True), strict=True):
        np.testing.assert_allclose(found, np.mean(parts, axis=0), rtol=1e-5, atol=1e-7)


def test_a_pooled_model_learns_from_all_episodes_what_the_others_teach():
    """It has no say in what is learned, and fits to that what least squares fit to all rows."""
    batch = chain(200)
    linear = config(model=LinearModel(), folds=3, gamma=0.5)
    mean, pooled = (
        BudgetedFit(replace(linear, acting=acting), batch, 0, torch.device("cpu"))
        for acting in ("average", "pooled")
    )
    for iteration in range(3):
        prepared = [fit.prepare(iteration) for fit in (mean, pooled)]
        assert (prepared[0].targets == prepared[1].targets).all()
        for fit in (mean, pooled):
            fit.iterate(iteration)
    everything = replace(linear, valuation="self")
    alone = BudgetedFit(everything, batch, 0, torch.device("cpu"))
    alone.models.fit("iteration-2", prepared[1].budgets, prepared[1].targets)
    states = np.random.default_rng(5).normal(size=(10, 2))
    for one, other in zip(
        pooled.policy().q_function(states), alone.policy().q_function(states), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert (mean.models.grid(states) == pooled.models.grid(states)[:3]).all()


def test_a_pessimist_acts_on_less_than_the_mean():
    settings = {"valuation": "pessimistic", "caution": 0.75, "folds": 3, "iterations": 2}
    learner = BFTQ(config(**settings, regression=Regression(steps=3)))
    policy = learner.fit(bandit(100), seed=0, device="cpu")
    states = np.random.default_rng(5).normal(size=(10, 2))
    rewards, costs = zip(*(q(states) for q in policy.q_function.functions), strict=True)
    q_r, q_c = policy.q_function(states)
    expected_r = np.mean(rewards, axis=0) - 0.75 * np.std(rewards, axis=0)
    expected_c = np.mean(costs, axis=0) + 0.75 * np.std(costs, axis=0)
    np.testing.assert_allclose(q_r, expected_r, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(q_c, expected_c, rtol=1e-5, atol=1e-6)


def test_stored_budgets_may_be_the_labels():
    policy = BFTQ(config(labels="stored", iterations=2)).fit(bandit(), seed=0, device="cpu")
    assert policy.decide(np.zeros((4, 2)), 0.5, np.random.default_rng(0)).action.shape == (4,)
    batch = bandit().to_arrays()
    del batch["budget"]
    with pytest.raises(bmdp.DataError, match="labels='stored' needs a batch with budgets"):
        BFTQ(config(labels="stored")).fit(TransitionBatch.from_arrays(batch), seed=0, device="cpu")


def test_costs_may_have_a_discount_of_their_own():
    batch = chain()
    policy = BFTQ(config(gamma=1.0, cost_gamma=0.5)).fit(batch, seed=0, device="cpu")
    top = policy.frontier(batch.state[batch.starts()[0]])
    assert top.rewards[-1] == pytest.approx(1, abs=0.25)
    assert top.costs[-1] == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 1.5}, "gamma must be from 0 to 1; got 1.5"),
        ({"cost_gamma": -0.1}, "cost_gamma must be from 0 to 1"),
        ({"budget_range": (1.0, 0.0)}, "budget_range must be two rising numbers"),
        ({"n_budgets": 1}, "n_budgets must be a whole number from 2 on"),
        ({"iterations": 0}, "iterations must be a whole number from 1 on"),
        ({"slope_cap": -1.0}, "slope_cap must be from 0 on"),
        ({"reward_scale": 0.0}, "reward_scale must be above 0"),
        ({"valuation": "double"}, "one of crossed, pessimistic, self; got 'double'"),
        ({"caution": np.inf}, "caution must be finite; got inf"),
        (
            {"acting": "pooled", "valuation": "pessimistic"},
            "acting must be 'average' with valuation 'pessimistic'",
        ),
        ({"acting": "vote"}, "acting must be one of average, pooled"),
        ({"folds": 1}, "folds must be a whole number from 2 on"),
        ({"stages": "two"}, "stages must be one of none, shared"),
        ({"labels": "none"}, "labels must be one of uniform, stored"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        config(**settings)


@pytest.mark.parametrize(("price", "best"), [(0.0, 1), (0.5, 1), (2.0, 0)])
def test_fitted_q_iteration_takes_what_is_worth_its_price(price, best):
    model = FrontierNet((32,), "free")
    learner = FTQ(FTQConfig(gamma=1.0, price=price, model=model, regression=SMALL, iterations=3))
    batch = chain()
    policy = learner.fit(batch, seed=0, device="cpu")
    assert (
        policy.decide(batch.next_state[batch.starts()], 0.0, np.random.default_rng(0)).action
        == best
    ).mean() > 0.97
    q_r, q_c = policy.q_function(batch.state[batch.starts()])
    assert q_r.max(axis=1).mean() == pytest.approx(best, abs=0.15)
    assert q_c[..., 0].mean() == pytest.approx(best, abs=0.2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 2.0}, "gamma must be from 0 to 1"),
        ({"price": np.inf}, "price must be finite"),
        ({"iterations": 0}, "iterations must be a whole number from 1 on"),
        ({"budget_range": (1.0, 1.0)}, "budget_range must be two rising numbers"),
    ],
)
def test_settings_of_fitted_q_iteration_are_checked(settings, message):
    with pytest.raises(ConfigError, match=message):
        FTQConfig(**({"gamma": 1.0} | settings))


def test_costs_may_count_now_alone():
    assert config(cost_gamma=0.0).discount_of_costs == 0
    assert config(gamma=0.5).discount_of_costs == 0.5


def test_fitted_q_iteration_stops_resumes_and_is_stored(tmp_path):
    learner = FTQ(FTQConfig(gamma=1.0, regression=SMALL, iterations=9, stop_delta=0.5))
    records = []
    learner.fit(bandit(), seed=0, device="cpu", on_record=records.append)
    assert len(records) == 2
    short = FTQ(FTQConfig(gamma=1.0, regression=Regression(steps=20), iterations=4))
    whole = short.fit(chain(100), seed=0, device="cpu")
    memory = Memory(kill_at=2)
    with pytest.raises(KeyboardInterrupt):
        short.fit(chain(100), seed=0, device="cpu", keeper=memory)
    again = short.fit(chain(100), seed=0, device="cpu", keeper=memory)
    states = np.zeros((3, 2))
    assert (whole.q_function(states)[0] == again.q_function(states)[0]).all()
    whole.save(tmp_path / "p")
    loaded = bmdp.load_policy(tmp_path / "p")
    assert (loaded.q_function(states)[0] == whole.q_function(states)[0]).all()
