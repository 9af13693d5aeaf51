"""Dials that are read by an evaluation; see `test_contract.py` for what all policies do."""

import numpy as np
import pytest

import bmdp
from bmdp import BudgetStatus, ConfigError, hull_mixture, upper_frontier
from bmdp.policies import HullPolicy, TabularQ
from bmdp.policies.audited import AuditedPolicy, BoundedQ
from bmdp.policies.staged import StagedPolicy
from contracts.policy import CHECKS, Case

GRID = np.linspace(0, 1, 6)
N = 20_000


def table(costs, rewards):
    """Values of two actions that do not depend on the budget handed on, one state."""
    q_r, q_c = (np.repeat(np.array(v, float)[None, :, None], 6, axis=2) for v in (rewards, costs))
    return TabularQ(q_r, q_c)


BELIEVED = HullPolicy(table([0.0, 0.5], [0.0, 10.0]), GRID)  # the second action costs 0.5
TRUTH = table([0.0, 1.0], [0.0, 10.0])  # but in truth 1
POLICY = AuditedPolicy(BELIEVED, (TRUTH,), GRID)


def random_tables(seed, n_states=4):
    rng = np.random.default_rng(seed)
    return TabularQ(*rng.normal(0.5, 0.4, (2, n_states, 3, 6)))


def audited(seed=0):
    stages = tuple(HullPolicy(random_tables(seed + i), GRID) for i in range(3))
    return AuditedPolicy(
        StagedPolicy(stages), tuple(random_tables(seed + 10 + i) for i in range(3)), GRID
    )


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("policy", [audited(), AuditedPolicy(BELIEVED, (TRUTH,), GRID)])
def test_an_audited_policy_is_a_policy(check, policy):
    states = np.arange(4) if policy is not None and len(policy.audits) > 1 else np.zeros(4, int)
    check(Case(policy, states, n_actions=3, one_step=False))


def played(policy, asked, step=0):
    """Shares of the second action, and the status, of episodes asked at a step."""
    states = np.zeros(N, int)
    tracker = policy.start(states, 0.0, np.random.default_rng(0))
    for _ in range(step):
        tracker.decide(states)
        tracker.observe(np.zeros(N), states, np.zeros(N, bool))
    tracker.set_budget(asked)
    decision = tracker.decide(states)
    assert len(set(decision.status.tolist())) == 1
    return (decision.action == 1).mean(), decision.status[0]


@pytest.mark.parametrize("asked", [0.0, 0.1, 0.25, 0.7, 1.0])
def test_what_is_spent_is_what_was_asked_and_not_what_is_believed(asked):
    share, _ = played(POLICY, asked)
    assert share == pytest.approx(asked, abs=4 * 0.5 / np.sqrt(N))
    believed, _ = played(BELIEVED, asked)
    assert believed == pytest.approx(min(1, 2 * asked), abs=4 * 0.5 / np.sqrt(N))


def test_the_status_is_that_of_the_evaluation():
    dear = AuditedPolicy(BELIEVED, (table([0.3, 0.8], [1.0, 5.0]),), GRID)
    assert [played(dear, b)[1] for b in (0.2, 0.5, 0.9)] == [
        BudgetStatus.INFEASIBLE,
        BudgetStatus.TIGHT,
        BudgetStatus.SLACK,
    ]


def test_a_dial_moved_in_the_middle_is_read_by_the_evaluation_of_that_step():
    policy = AuditedPolicy(
        StagedPolicy((BELIEVED, BELIEVED)), (TRUTH, table([0.0, 0.5], [0.0, 10.0])), GRID
    )
    for step, share in ((0, 0.4), (1, 0.8), (5, 0.8)):
        assert played(policy, 0.4, step)[0] == pytest.approx(share, abs=4 * 0.5 / np.sqrt(N))


def test_between_two_settings_of_the_dial_it_is_read_once():
    states = np.zeros(N, int)
    tracker = POLICY.start(states, 1.0, np.random.default_rng(0))
    tracker.decide(states)
    tracker.observe(np.zeros(N), states, np.zeros(N, bool))
    held = tracker.budgets
    inner = BELIEVED.start(states, held, np.random.default_rng(0))
    assert (inner.budgets == held).all()
    share = (tracker.decide(states).action == 1).mean()
    assert share == pytest.approx(np.minimum(held / 0.5, 1).mean(), abs=4 * 0.5 / np.sqrt(N))


def test_an_inner_budget_that_earns_too_little_is_passed_over_by_a_coin():
    """At 0.4 the inner policy plays what is worth nothing; 0 and 0.8 are mixed instead."""
    q_c = np.zeros((1, 3, 6)) + np.array([0.0, 0.4, 0.8])[:, None]
    inner = HullPolicy(TabularQ(np.zeros((1, 3, 6)) + np.array([0, 5, 8])[:, None], q_c), GRID)
    truth = TabularQ(np.zeros((1, 3, 6)) + np.array([0, -3, 8])[:, None], q_c)
    policy = AuditedPolicy(inner, (truth,), GRID)
    states = np.zeros(N, int)
    actions = policy.start(states, 0.4, np.random.default_rng(0)).decide(states).action
    shares = np.bincount(actions, minlength=3) / N
    assert shares == pytest.approx([0.5, 0.0, 0.5], abs=4 * 0.5 / np.sqrt(N))


@pytest.mark.parametrize("seed", range(5))
def test_what_inner_budgets_are_worth_is_the_mean_over_what_is_done_at_them(seed):
    policy, step = audited(seed), seed % 3
    costs, rewards = policy.worth(np.arange(4), step)
    q_r, q_c = policy.audits[step](np.arange(4))
    for state in range(4):
        for i, budget in enumerate(GRID):
            options = policy.inner.at_step(step).options(np.array([state]), np.array([budget]))
            cost = reward = 0.0
            for action, next_budget, p in zip(*(c[0] for c in options), strict=True):
                cost += p * np.interp(next_budget, GRID, q_c[state, action])
                reward += p * np.interp(next_budget, GRID, q_r[state, action])
            assert (costs[state, i], rewards[state, i]) == pytest.approx((cost, reward), abs=1e-6)
    frontier = policy.frontier(2, step)
    expected = upper_frontier(costs[2], rewards[2])
    assert (frontier.costs == expected.costs).all()
    assert hull_mixture(frontier, 0.5) == hull_mixture(expected, 0.5)


def test_budgets_handed_on_between_those_of_the_audit_are_interpolated():
    coarse = np.array([0.0, 1.0])
    inner = HullPolicy(table([0.0, 0.5], [0.0, 10.0]), GRID)
    audit = TabularQ(np.array([[[0.0, 4.0], [10.0, 20.0]]]), np.array([[[0.0, 0.0], [0.0, 1.0]]]))
    costs, rewards = AuditedPolicy(inner, (audit,), coarse).worth(np.zeros(1, int), 0)
    options = inner.options_at(np.zeros(1, int), coarse)
    handed_on = options.next_budget[0, 1, options.action[0, 1] == 1][0]
    assert (costs[0, 1], rewards[0, 1]) == pytest.approx((handed_on, 10 + 10 * handed_on))


def test_what_is_beyond_all_targets_is_not_believed():
    bounds = np.zeros((2, 1, 1)), np.array([5.0, 0.3]).reshape(2, 1, 1)
    bounded = BoundedQ(
        TabularQ(np.array([[[9.0]], [[-1.0]]]), np.array([[[0.2]], [[0.9]]])), *bounds
    )
    q_r, q_c = bounded(np.arange(2))
    assert (q_r.ravel().tolist(), q_c.ravel().tolist()) == ([5.0, 0.0], [0.2, 0.3])


def test_it_is_stored(tmp_path):
    policy = AuditedPolicy(
        BELIEVED, (BoundedQ(TRUTH, np.zeros((2, 1, 1)), np.full((2, 1, 1), 9.0)),), GRID
    )
    policy.save(tmp_path / "policy")
    loaded = bmdp.load_policy(tmp_path / "policy")
    assert np.array_equal(loaded.worth(np.zeros(1, int), 0), policy.worth(np.zeros(1, int), 0))


def test_there_is_something_to_read_the_dial_by():
    with pytest.raises(ConfigError, match="audits must hold at least one"):
        AuditedPolicy(BELIEVED, (), GRID)
    with pytest.raises(ConfigError, match="must span the budget_range of inner"):
        AuditedPolicy(BELIEVED, (TRUTH,), 2 * GRID)
