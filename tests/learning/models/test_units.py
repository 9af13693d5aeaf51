"""Whatever units rewards and costs are in, the same is done; what was never done is never done."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import bmdp
from bmdp import (
    BFTQ,
    FTQ,
    BFTQConfig,
    DataError,
    FTQConfig,
    LagrangianConfig,
    LagrangianFTQ,
    TransitionBatch,
)
from bmdp.learn.fit import Backward, Iterations
from bmdp.models import TableModel
from regressors import dice, each, each_free, places
from small_logs import grid

BUDGETS = np.array([0.0, 0.3, 1.0, 2.0, 4.0])
PRICES = (np.inf, 2.0, 0.7, 0.2, 0.0)
SCHEDULES = {"iterations": Iterations(3, settled=0.0), "backward": Backward()}
UNITS = {"reward 0.001": (0.001, 1), "reward 1000": (1000, 1)}
UNITS |= {"cost 0.001": (1, 0.001), "cost 1000": (1, 1000)}

each_unit = pytest.mark.parametrize("units", UNITS.values(), ids=UNITS.keys())
each_schedule = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())


def told_in(batch, reward, cost):
    """The same log in other units."""
    arrays = batch.to_arrays()
    arrays["reward"], arrays["cost"] = arrays["reward"] * reward, arrays["cost"] * cost
    return TransitionBatch.from_arrays(arrays, n_actions=batch.n_actions)


def played(actions, probabilities, n_actions=4):
    """Probabilities of actions, `[..., A]`, given those of options `[..., J]`."""
    return (np.eye(n_actions)[actions] * probabilities[..., None]).sum(axis=-2)


def bftq(model, schedule, batch, reward=1.0, cost=1.0):
    """What the policy does at places, steps and budgets."""
    config = BFTQConfig(
        gamma=0.9, budget_range=(0.0, 4.0 * cost), n_budgets=5, model=model, schedule=schedule
    )
    policy = BFTQ(replace(config, ensemble=2)).fit(batch, seed=0, device="cpu")
    each = [policy.at_step(t).options_at(places(), BUDGETS * cost) for t in range(policy.n_steps)]
    return np.stack([played(options.action, options.probability) for options in each])


def ftq(model, schedule, batch, reward=1.0, cost=1.0):
    config = FTQConfig(gamma=0.9, price=0.7 * reward / cost, model=model, schedule=schedule)
    policy = FTQ(replace(config, ensemble=2)).fit(batch, seed=0, device="cpu")
    each = [policy.at_step(t).options_at(places(), np.zeros(1)) for t in range(policy.n_steps)]
    return np.stack([played(options.action, options.probability) for options in each])


def lagrangian(model, schedule, batch, reward=1.0, cost=1.0, prices=PRICES):
    config = LagrangianConfig(
        gamma=0.9,
        budget_range=(0.0, 4.0 * cost),
        model=model,
        schedule=schedule,
        ensemble=2,
        prices=tuple(price * reward / cost for price in prices),
    )
    policy = LagrangianFTQ(config).fit(batch, seed=0, device="cpu")
    found = []
    for step in range(policy.dial.n_steps):
        points = policy.dial.at_step(step).points(places())
        for budget in BUDGETS * cost:
            mixture = policy.mixtures(points, np.full(len(points.costs), budget))
            numbers = np.stack((mixture.lower, mixture.upper), axis=-1)
            actions = np.take_along_axis(points.actions, numbers, 1)
            chances = np.stack((1 - mixture.p_upper, mixture.p_upper), axis=-1)
            found.append(played(actions, chances))
    return np.stack(found)


def automatic(model, schedule, batch, reward=1.0, cost=1.0):
    return lagrangian(model, schedule, batch, reward, cost, prices=())


@cache
def in_own_units(decisions, model, schedule):
    return decisions(model, schedule, dice())


def check_units(decisions, model, schedule, units):
    tolerance = 1e-2 if hasattr(model, "regression") else 1e-3  # networks round
    plain = in_own_units(decisions, model, schedule)
    other = decisions(model, schedule, told_in(dice(), *units), *units)
    assert plain.shape == other.shape
    np.testing.assert_allclose(other, plain, atol=tolerance)


@each_unit
@each_schedule
@each
def test_bftq_does_the_same_in_other_units(model, schedule, units):
    """But for networks that take costs as they are, as in the authors' code."""
    if units[1] == 1 or not getattr(model, "keeps_costs", False):
        check_units(bftq, model, schedule, units)
    else:
        with pytest.raises(AssertionError, match="Not equal to tolerance"):
            check_units(bftq, model, schedule, units)


@each_unit
@each_schedule
@each_free
@pytest.mark.parametrize("decisions", [ftq, lagrangian, automatic])
def test_prices_do_the_same_in_other_units(decisions, model, schedule, units):
    check_units(decisions, model, schedule, units)


@each_schedule
@each
def test_these_decisions_are_of_several_kinds(model, schedule):
    found = in_own_units(bftq, model, schedule)
    assert (found.max(axis=(0, 1, 2))[:3] > 0.5).all()
    assert np.ptp(found, axis=2).max() > 0.5


# What was never done


@each_schedule
@each
def test_an_action_that_was_never_taken_is_not_played_by_bftq(model, schedule):
    assert not bftq(model, schedule, dice(n_actions=4))[..., 3].any()


@each_schedule
@each_free
@pytest.mark.parametrize("decisions", [ftq, lagrangian, automatic])
def test_an_action_that_was_never_taken_is_not_played_at_a_price(decisions, model, schedule):
    assert not decisions(model, schedule, dice(n_actions=4))[..., 3].any()


@pytest.mark.parametrize("name", ["reward", "cost"])
@pytest.mark.parametrize("unit", [1e-300, 1e-16, 1e18, 1e45])
def test_units_that_models_do_not_hold_are_refused(name, unit):
    """They were rounded to 0 or to infinity, and other policies came of it."""
    log = told_in(grid(60), **{"reward": 1.0, "cost": 1.0, name: unit})
    words = f"{name}s must be 0, or the largest from 1e-15 to 1e.17 in magnitude, .* another unit"
    with pytest.raises(DataError, match=words):
        bmdp.fit(log, gamma=1.0)
    for learner in (bftq, lagrangian):
        with pytest.raises(DataError, match=words):
            learner(TableModel(), SCHEDULES["backward"], log)


@pytest.mark.parametrize("units", [(1e-14, 1e16), (1e16, 1e-14)])
def test_units_at_the_ends_of_what_models_hold_change_nothing(units):
    """Forecasts are those of the same log in units of 1."""
    usual, other = (
        bmdp.fit(told_in(grid(60), *each), gamma=1.0).forecast for each in ((1.0, 1.0), units)
    )
    np.testing.assert_allclose(other.reward / units[0], usual.reward, rtol=1e-6)
    np.testing.assert_allclose(other.cost / units[1], usual.cost, rtol=1e-6, atol=1e-9)
