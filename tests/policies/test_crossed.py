"""The mean of several Q-functions, the price on cost, and stages."""

from dataclasses import replace

import numpy as np
import pytest

import bmdp
from bmdp import ConfigError
from bmdp.policies.crossed import MeanQ
from bmdp.policies.greedy import GreedyRule
from bmdp.policies.hull import HullPolicy, TabularQ
from bmdp.policies.prices import PricedPolicy
from bmdp.policies.staged import StagedPolicy
from bmdp.storage import from_stored, to_stored
from contracts.policy import CHECKS, Case, a_saved_policy_decides_as_before, contract_tests

GRID = np.array([0.0, 0.5, 1.0])
# One state, two actions; the first of both functions thinks the second action costs 1, the other 2.
FIRST = TabularQ(np.array([[[0.0] * 3, [1.0] * 3]]), np.array([[[0.0] * 3, [1.0] * 3]]))
SECOND = TabularQ(np.array([[[0.0] * 3, [1.2] * 3]]), np.array([[[0.0] * 3, [2.0] * 3]]))
STATES = np.zeros(4000, np.int64)


def tables(seed):
    q = np.random.default_rng(seed).random((2, 6, 4, 3))
    return TabularQ(q[0], q[1])


CASES = {
    "mean": Case(
        HullPolicy(MeanQ((tables(0), tables(1))), GRID, GreedyRule(0.0, 2.0)), np.arange(6), 4
    ),
    "cautious": Case(HullPolicy(MeanQ((tables(0), tables(1)), 0.5), GRID), np.arange(6), 4),
    "priced": Case(PricedPolicy(tables(2), 0.5), np.arange(6), 4),
}


test_contract, test_saving = contract_tests(CASES)


def test_the_mean_of_both_is_what_is_shown():
    q_r, q_c = MeanQ((FIRST, SECOND))(STATES[:1])
    assert q_r[0, 1].tolist() == pytest.approx([1.1] * 3)
    assert q_c[0, 1].tolist() == [1.5] * 3


def test_caution_lowers_rewards_and_raises_costs_by_deviations():
    for caution in (2.0, -1.0):
        q_r, q_c = MeanQ((FIRST, SECOND), caution)(STATES[:1])
        assert q_r[0].tolist() == [[0.0] * 3, pytest.approx([1.1 - caution * 0.1] * 3)]
        assert q_c[0].tolist() == [[0.0] * 3, pytest.approx([1.5 + caution * 0.5] * 3)]
    with pytest.raises(ConfigError, match=r"MeanQ\.caution must be finite; got nan"):
        MeanQ((FIRST, SECOND), float("nan"))


def test_a_mean_that_was_stored_without_caution_has_none():
    assert to_stored(MeanQ((FIRST, SECOND), 0.5)).settings == {"caution": 0.5}
    old = from_stored(replace(to_stored(MeanQ((FIRST, SECOND), 0.5)), settings={}))
    assert old.caution == 0
    assert old(STATES[:1])[0][0, 1].tolist() == pytest.approx([1.1] * 3)


def test_a_price_decides():
    cheap, dear = PricedPolicy(FIRST, 2.0), PricedPolicy(FIRST, 0.5)
    rng = np.random.default_rng(0)
    assert (cheap.decide(STATES[:5], 1.0, rng).action == 0).all()
    decision = dear.decide(STATES[:5], 0.25, rng)
    assert (decision.action == 1).all()
    assert (decision.next_budget == 0.25).all()


def test_a_negative_cap_is_refused():
    with pytest.raises(ConfigError, match="slope_cap must be from 0 on"):
        GreedyRule(slope_cap=-1.0)


STAGED = Case(
    StagedPolicy(tuple(HullPolicy(tables(seed), GRID) for seed in range(12))),
    np.arange(6),
    4,
    one_step=False,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_contract_of_stages(check):
    check(STAGED)


def test_stages_are_stored_in_their_order(tmp_path):
    a_saved_policy_decides_as_before(STAGED, tmp_path)
    STAGED.policy.save(tmp_path / "again")
    loaded = bmdp.load_policy(tmp_path / "again")
    assert len(loaded.stages) == 12
    for one, other in zip(STAGED.policy.stages, loaded.stages, strict=True):
        assert (one.q_function.q_r == other.q_function.q_r).all()


def test_each_step_has_its_policy_and_the_last_one_goes_on():
    policy = StagedPolicy((PricedPolicy(FIRST, 2.0), PricedPolicy(FIRST, 0.5)))
    tracker = policy.start(STATES[:3], 0.5, np.random.default_rng(0))
    actions = []
    for _ in range(4):
        actions.append(int(tracker.decide(STATES[:3]).action[0]))
        tracker.observe(np.zeros(3), STATES[:3], np.zeros(3, bool))
    assert actions == [0, 1, 1, 1]
    with pytest.raises(ConfigError, match="at least one policy"):
        StagedPolicy(())
    with pytest.raises(ConfigError, match="the same budget_range"):
        StagedPolicy((PricedPolicy(FIRST, 2.0), PricedPolicy(FIRST, 0.5, high=2.0)))
