import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bmdp import BudgetStatus, ConfigError, DataError
from bmdp.frontier import hull_mixture, upper_frontier
from bmdp.policies import HullPolicy, HullRule, TabularQ
from bmdp.policies.policy import OneStepPolicy
from clouds import clouds, points

GRID = np.array([0.0, 0.5, 1.0])
RNG = np.random.default_rng
INFEASIBLE, TIGHT, SLACK = BudgetStatus

# One state, two actions. Points (cost, reward) by action and budget handed on:
#   action 0: (0, 0) (0.2, 1) (0.3, 1);   action 1: (0.1, -1) (0.9, 3) (1.0, 3.2)
# Frontier: (0, 0) -> (0.2, 1) -> (0.9, 3) -> (1.0, 3.2).
Q_C = np.array([[[0.0, 0.2, 0.3], [0.1, 0.9, 1.0]]])
Q_R = np.array([[[0.0, 1.0, 1.0], [-1.0, 3.0, 3.2]]])
POLICY = HullPolicy(TabularQ(Q_R, Q_C), GRID)


def test_a_budget_between_two_vertices_is_spent_by_mixing_them():
    n = 100_000
    beta = 0.55  # halfway from 0.2 to 0.9
    decision = POLICY.decide(np.zeros(n, int), beta, RNG(0))
    plays_1 = decision.action == 1
    assert (decision.next_budget == 0.5).all()  # both vertices hand on 0.5
    assert (decision.status == TIGHT).all()
    cost = np.where(plays_1, 0.9, 0.2)
    assert abs(cost.mean() - beta) < 3.3 * cost.std() / np.sqrt(n)  # 99.9 %


@pytest.mark.parametrize(
    ("beta", "action", "next_budget", "status"),
    [(0.0, 0, 0.0, TIGHT), (0.2, 0, 0.5, TIGHT), (1.0, 1, 1.0, SLACK)],
)
def test_a_budget_on_a_vertex_plays_its_augmented_action(beta, action, next_budget, status):
    assert POLICY.act(0, beta, RNG(0)) == (action, next_budget, status)


def test_budget_zero_is_a_budget():
    decision = POLICY.decide(np.zeros(1000, int), 0.0, RNG(0))
    assert (decision.action == 0).all()
    assert (decision.next_budget == 0).all()


def test_an_infeasible_budget_plays_the_cheapest_augmented_action():
    policy = HullPolicy(TabularQ(Q_R, Q_C + 0.05), GRID)
    assert policy.act(0, 0.0, RNG(0)) == (0, 0.0, INFEASIBLE)


def test_the_frontier_of_a_state_names_augmented_actions():
    frontier = POLICY.frontier(0)
    assert frontier.costs.tolist() == [0.0, 0.2, 0.9, 1.0]
    assert frontier.index.tolist() == [0, 1, 4, 5]


def test_q_values_may_come_from_any_function():
    policy = HullPolicy(lambda states: (Q_R[[0] * len(states)], Q_C[[0] * len(states)]), GRID)
    assert policy.act(np.array([0.3, 7.0]), 0.2, RNG(0)).next_budget == 0.5


def test_the_function_is_asked_once_for_each_state():
    seen = []

    def counted(states):
        seen.append(len(states))
        return POLICY.q_function(states)

    HullPolicy(counted, GRID).options_at(np.zeros(40, int), np.linspace(0, 1, 28))
    assert seen == [40]


@pytest.mark.parametrize("seed", range(5))
def test_of_points_on_one_line_any_two_will_do(seed):
    """Rounded values have equal points and points on one line, which rounding may tell apart."""
    q_r, q_c = np.round(RNG(seed).random((2, 40, 3, 3)) + 0.05, 1)
    policy, states, budgets = HullPolicy(TabularQ(q_r, q_c), GRID), np.arange(40), np.linspace(0, 1)
    values = []
    for options in (
        policy.options_at(states, budgets),
        OneStepPolicy.options_at(policy, states, budgets),
    ):
        places = states[:, None, None], options.action, np.searchsorted(GRID, options.next_budget)
        values.append([(q[places] * options.probability).sum(-1) for q in (q_r, q_c)])
    np.testing.assert_allclose(values[0], values[1], atol=1e-12)


def test_q_values_must_match_the_grid():
    with pytest.raises(DataError, match=r"beta_grid must be as many as heads of .*, 3; got 2"):
        HullPolicy(TabularQ(Q_R, Q_C), [0.0, 1.0])
    policy = HullPolicy(lambda states: TabularQ(Q_R, Q_C)(states), [0.0, 1.0])
    message = "q_r must have shape [1, A, 2]; got [1, 2, 3]."
    with pytest.raises(DataError, match=re.escape(message)):
        policy.act(0, 0.5, RNG(0))


def test_both_tables_have_the_finer_precision_of_the_two():
    q = TabularQ(np.array(Q_R, np.float32), np.array(Q_C, np.float64))
    assert q.q_r.dtype == q.q_c.dtype == np.float64
    q = TabularQ(np.array(Q_R, np.float32), np.array(Q_C, np.float32))
    assert q.q_r.dtype == q.q_c.dtype == np.float32


@pytest.mark.parametrize("grid", [[], [0.0, 0.0], [1.0, 0.0]])
def test_the_grid_must_rise(grid):
    with pytest.raises(DataError, match="beta_grid must hold at least one budget and rise"):
        HullPolicy(TabularQ(Q_R, Q_C), grid)


# Tables


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ([0, 1], "states must be from 0 to 0; got 1 at [1]."),
        ([-1], "states must be from 0 to 0; got -1 at [0]."),
        ([0.0], "states must be whole numbers; got type float64."),
        ([[0]], "states must have shape [N]; got [1, 1]."),
    ],
)
def test_states_of_a_table_are_numbers_within_it(states, message):
    with pytest.raises(DataError, match=re.escape(message)):
        POLICY.decide(states, 0.0, RNG(0))


def test_tables_must_be_finite_and_of_one_shape():
    with pytest.raises(DataError, match=r"TabularQ.q_c must be finite; got nan at \[0, 0, 0\]"):
        TabularQ(Q_R, np.full_like(Q_C, np.nan))
    with pytest.raises(DataError, match=r"TabularQ.q_c must have shape \[S, A, B\] = \[1, 2, 3\]"):
        TabularQ(Q_R, Q_C[:, :1])


@pytest.mark.parametrize("shape", [(2,), (2, 2), (2, 2, 2, 2, 2)])
def test_tables_have_three_axes_or_one_of_steps_before_them(shape):
    with pytest.raises(DataError, match=r"TabularQ.q_r must have shape"):
        TabularQ(np.zeros(shape), np.zeros(shape))


@pytest.mark.parametrize("step", range(5))
def test_the_table_of_a_step_is_its_own_and_the_last_one_goes_on(step):
    q_r, q_c = RNG(0).random((2, 3, 4, 2, 3))
    tables, one = TabularQ(q_r, q_c), TabularQ(q_r[min(step, 2)], q_c[min(step, 2)])
    assert (tables.n_steps, one.n_steps) == (3, 1)
    states = np.array([3, 0, 3])
    np.testing.assert_array_equal(tables(states, step), one(states))
    np.testing.assert_array_equal(one(states, step), one(states))


# The rule by which a frontier begins


def of_points(costs, rewards, rule):
    """The policy of one state, or of several, whose point k is action k."""
    q_c, q_r = (np.atleast_2d(values)[..., None] for values in (costs, rewards))
    return HullPolicy(TabularQ(q_r, q_c), [0.0], rule)


@settings(deadline=None)
@given(points(), st.floats(0.1, 100), st.booleans(), st.floats(1e-3, 10))
def test_below_all_that_is_affordable_the_cheapest_point_is_played(cloud, cap, from_zero, missing):
    costs, rewards, _ = cloud
    q_r, q_c = (values[None, :, None] for values in (rewards, costs))
    policy = of_points(costs, rewards, HullRule.of(q_r, q_c, cap, costs_from_zero=from_zero))
    least = policy.points(np.array([0])).least_budget
    found = policy.mixtures(np.array([0]), least - missing * np.maximum(1, abs(least)))
    assert found.status[0] == INFEASIBLE
    held = costs.clip(0) if from_zero else costs
    for played in (found.lower[0], found.upper[0]):
        assert held[played] == held.min()
        assert rewards[played] == rewards[held == held.min()].max()


@pytest.mark.parametrize("options", ["options", "options_at"])
def test_the_cheapest_point_is_played_for_sure_where_the_frontier_begins_later(options):
    policy = of_points([0.5, 0.6, 1.0], [0.0, 5.0, 6.0], HullRule(slope=[10.0], slack=[0.2]))
    assert policy.frontier(0).costs.tolist() == [0.6, 1.0]
    found = getattr(policy, options)(np.array([0]), np.array([0.25]))
    assert (found.probability * (found.action == 0)).sum() == 1


SLOPE, SHORT = 2.0, 0.8


def first_vertex(costs, rewards):
    """By its definition, of points that have no ties."""
    near = np.flatnonzero(costs <= costs.min() + SHORT)
    return near[np.argmax((rewards - SLOPE * costs)[near])]


@pytest.mark.parametrize("seed", range(3))
def test_a_budget_within_the_slack_plays_the_first_vertex(seed):
    costs, rewards, _ = clouds(200, 8, seed=seed, ties=0)
    rule = HullRule(slope=[SLOPE], slack=[SHORT])
    policy, states = of_points(costs, rewards, rule), np.arange(200)
    first = np.array([first_vertex(c, r) for c, r in zip(costs, rewards, strict=True)])
    first_cost, least = costs[states, first], costs.min(axis=1)
    assert (first_cost > least).mean() > 0.2
    for share in (0.0, 0.3, 0.99):  # of the way from the least budget to the first vertex
        budgets = (least - SHORT) + share * (first_cost - (least - SHORT))
        found = policy.mixtures(states, budgets)
        assert (found.lower == first).all()
        assert (found.p_upper == 0).all()
        assert (found.status != INFEASIBLE).all()
    assert (policy.mixtures(states, least - SHORT - 1e-9).status == INFEASIBLE).all()


@pytest.mark.parametrize("seed", range(3))
def test_from_the_first_vertex_on_the_frontier_is_that_of_points_that_are_not_cheaper(seed):
    all_costs, all_rewards, _ = clouds(100, 8, seed=seed, ties=0)
    policy = of_points(all_costs, all_rewards, HullRule(slope=[SLOPE], slack=[SHORT]))
    for state, (costs, rewards) in enumerate(zip(all_costs, all_rewards, strict=True)):
        kept = costs >= costs[first_vertex(costs, rewards)]
        frontier = upper_frontier(costs[kept], rewards[kept])
        shown = policy.frontier(state)
        assert shown.costs.tolist() == frontier.costs.tolist()
        assert shown.index.tolist() == np.flatnonzero(kept)[frontier.index].tolist()
        for budget in np.append(frontier.costs, np.linspace(frontier.costs[0], 3, 7)):
            found = policy.mixtures(np.array([state]), np.array([budget]))
            wanted = hull_mixture(frontier, budget)
            assert shown.index[wanted.lower] == found.lower[0]
            assert shown.index[wanted.upper] == found.upper[0]
            assert found.p_upper[0] == pytest.approx(wanted.p_upper)
            assert (found.status[0], found.cost[0]) == (wanted.status, wanted.cost)


@pytest.mark.parametrize("seed", range(3))
def test_without_a_cap_the_frontier_is_the_papers(seed):
    costs, rewards, _ = clouds(100, 8, seed=seed)
    policy = of_points(costs, rewards, HullRule())
    for state in range(100):
        frontier = upper_frontier(costs[state], rewards[state])
        assert policy.frontier(state).index.tolist() == frontier.index.tolist()


def test_each_step_has_its_own_cap_and_the_last_one_goes_on():
    rule = HullRule(slope=[0.0, 10.0], slack=[0.0, 0.2])
    q_r, q_c = np.array([[[0.0], [5.0], [6.0]]]), np.array([[[0.5], [0.6], [1.0]]])
    assert [rule.points(q_r, q_c, step).first_cost[0] for step in range(4)] == [0.5, 0.6, 0.6, 0.6]
    tables = TabularQ(np.stack([q_r] * 3), np.stack([q_c] * 3))
    policy = HullPolicy(tables, [0.0], rule)
    assert [policy.frontier(0, step).costs[0] for step in range(4)] == [0.5, 0.6, 0.6, 0.6]


# How the rule follows from data


# Two states: from (0, 0) to (1, 2) with nothing above the chord, and from (0.5, 1) to (2.5, 7).
TWO_R = np.array([[[0.0, -1.0], [2.0, 0.5]], [[1.0, 6.0], [7.0, 0.0]]])
TWO_C = np.array([[[0.0, 0.5], [1.0, 0.9]], [[0.5, 2.0], [2.5, 3.0]]])


@pytest.mark.parametrize("cap", [0.5, 10.0])
def test_slope_and_slack_are_measured_in_mean_chords(cap):
    rule = HullRule.of(TWO_R, TWO_C, cap, costs_from_zero=False)
    assert rule.slope.tolist() == pytest.approx([cap * (2 + 6) / (1 + 2)])
    assert rule.slack.tolist() == pytest.approx([(1 + 2) / 2 / cap])


def test_chords_of_costs_from_zero_begin_there():
    rule = HullRule.of(TWO_R, TWO_C - 1.0, 10.0, costs_from_zero=True)
    # The first state: all costs are 0, and the best is paid 2. The second: (0, 1) to (1.5, 7).
    assert rule.slope.tolist() == pytest.approx([10 * 6 / 1.5])
    assert rule.costs_from_zero


def test_actions_that_must_not_be_played_have_no_part_in_chords():
    q_r, q_c = (np.concatenate((q, q[:, :1]), axis=1) for q in (TWO_R, TWO_C))
    q_r[:, 2], q_c[:, 2] = -np.inf, np.inf
    rule = HullRule.of(q_r, q_c, 10.0, costs_from_zero=False)
    assert rule.slope.tolist() == pytest.approx([10 * 8 / 3])
    assert rule.slack.tolist() == pytest.approx([0.15])


@pytest.mark.parametrize(
    ("q_r", "q_c", "cap"),
    [
        (TWO_R, TWO_C, 0.0),
        (TWO_R[:0], TWO_C[:0], 10.0),
        (TWO_R, np.ones_like(TWO_C), 10.0),
        (np.ones_like(TWO_R), np.ones_like(TWO_C), 10.0),
    ],
    ids=["no cap", "no states", "one cost", "one point"],
)
def test_without_a_cap_or_a_chord_there_is_no_slope(q_r, q_c, cap):
    rule = HullRule.of(q_r, q_c, cap, costs_from_zero=False)
    assert (rule.slope.tolist(), rule.slack.tolist()) == ([0.0], [0.0])


SCALES = [(4.0, 1.0), (1.0, 0.125), (0.5, 16.0), (0.001, 1.0), (1.0, 0.001), (1000.0, 0.001)]


@pytest.mark.parametrize("cap", [1.0, 10.0])
@pytest.mark.parametrize("from_zero", [False, True])
@pytest.mark.parametrize(("k_r", "k_c"), SCALES)
def test_no_unit_matters(k_r, k_c, cap, from_zero):
    """Rewards and costs in other units: the same is played with the same probabilities."""
    rng = RNG(3)
    q_r, q_c = rng.normal(size=(2, 60, 3, 3))
    q_c += 0.7
    budgets, found = rng.random(30) * 3 - 1, []
    for x, y in ((1.0, 1.0), (k_r, k_c)):
        rule = HullRule.of(q_r * x, q_c * y, cap, costs_from_zero=from_zero)
        policy = HullPolicy(TabularQ(q_r * x, q_c * y), GRID * y, rule)
        found.append(policy.options_at(np.arange(60), budgets * y))
    one, other = found
    assert (one.action == other.action).all()
    np.testing.assert_allclose(other.next_budget, one.next_budget * k_c)
    np.testing.assert_allclose(other.probability, one.probability, atol=1e-9)
    if np.log2(k_r) % 1 == 0 and np.log2(k_c) % 1 == 0:  # nothing is rounded
        assert (one.probability == other.probability).all()


@pytest.mark.parametrize(("k_r", "k_c"), SCALES)
def test_a_rule_for_other_units_is_the_one_that_is_measured_in_them(k_r, k_c):
    q_r, q_c = RNG(2).random((2, 30, 2, 5))
    rule = HullRule.of(q_r, q_c, 10.0, costs_from_zero=True).scaled(k_r, k_c)
    measured = HullRule.of(q_r * k_r, q_c * k_c, 10.0, costs_from_zero=True)
    np.testing.assert_allclose(rule.slope, measured.slope)
    np.testing.assert_allclose(rule.slack, measured.slack)
    assert rule.costs_from_zero


@pytest.mark.parametrize("kind", [np.array, torch.tensor], ids=["numpy", "torch"])
@pytest.mark.parametrize(
    ("from_zero", "cost_cap", "expected"),
    [
        (False, None, [-1.0, 0.5, 3.0]),
        (True, None, [0.0, 0.5, 3.0]),
        (False, 1.5, [-1.0, 0.5, 1.5]),
        (True, 1.5, [0.0, 0.5, 1.5]),
    ],
)
def test_costs_are_clipped_at_zero_and_at_the_cap_where_asked(from_zero, cost_cap, expected, kind):
    q_r, q_c = kind([[[0.0], [1.0], [2.0]]]), kind([[[-1.0], [0.5], [3.0]]])
    rule = HullRule(from_zero, cost_cap=cost_cap)
    assert rule.points(q_r, q_c).costs.tolist() == [expected]


def test_a_cap_of_costs_makes_dear_points_affordable_and_is_played_so():
    q_r, q_c = [[[0.0], [10.0]]], [[[0.0], [4.0]]]
    policy = HullPolicy(TabularQ(q_r, q_c), [0.0], HullRule(cost_cap=2.0))
    assert policy.options(np.array([0]), np.array([1.0])).probability.tolist() == [[0.5, 0.5]]


def test_chords_end_at_the_cap_of_costs():
    rule = HullRule.of(TWO_R, TWO_C, 10.0, costs_from_zero=False, cost_cap=1.5)
    # From (0, 0) to (1, 2), and from (0.5, 1) to (1.5, 7).
    assert rule.slope.tolist() == pytest.approx([10 * (2 + 6) / (1 + 1)])
    assert rule.scaled(3.0, 2.0).cost_cap == 3.0


def test_a_rule_from_the_cheapest_point_keeps_the_ends_of_costs():
    rule = HullRule(True, [3.0], [0.1], 1.5).from_cheapest()
    assert (rule.costs_from_zero, rule.cost_cap) == (True, 1.5)
    assert (rule.slope.tolist(), rule.slack.tolist()) == ([0.0], [0.0])


@pytest.mark.parametrize("name", ["slope", "slack"])
@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ([-0.1], ConfigError, r"must be from 0 on; got \[-0.1\]"),
        ([], ConfigError, "must be from 0 on"),
        ([np.inf], DataError, "must be finite"),
        (1.0, DataError, "must be an array of real numbers"),
        ([[1.0]], DataError, r"must have shape \[S\]"),
    ],
)
def test_wrong_rules_are_refused(name, values, error, message):
    with pytest.raises(error, match=f"{name} {message}"):
        HullRule(**{name: values})


# Actions that must not be played


def barred_values(seed, dtype=np.float64):
    """Q-values of 60 states, four actions, three budgets, and which actions are barred `[N, A]`.

    The first state has a single action left.
    """
    rng = RNG(seed)
    q_r, q_c = rng.normal(size=(2, 60, 4, 3)).astype(dtype)
    is_barred = rng.random((60, 4)) < 0.5
    is_barred[:, 0] &= ~is_barred.all(axis=1)
    is_barred[0] = [True, True, False, True]
    q_r[is_barred], q_c[is_barred] = -np.inf, np.inf
    return q_r, q_c, is_barred


def rules_of(q_r, q_c):
    """The paper's rule, and those of two caps."""
    caps, from_zero = (0.0, 1.0, 10.0), (False, True, False)
    return [
        HullRule.of(q_r, q_c, cap, costs_from_zero=floor)
        for cap, floor in zip(caps, from_zero, strict=True)
    ]


EACH_RULE = pytest.mark.parametrize("which", range(3), ids=["no cap", "cap 1", "cap 10"])


@EACH_RULE
def test_barred_actions_are_never_played(which):
    q_r, q_c, is_barred = barred_values(0)
    rule = rules_of(q_r, q_c)[which]
    policy = HullPolicy(lambda states: (q_r[states], q_c[states]), GRID - 2, rule)
    states, rows = np.arange(60), np.arange(60)[:, None, None]
    budgets = np.linspace(-4, 4, 41)
    options = policy.options_at(states, budgets)
    assert not (is_barred[rows, options.action] & (options.probability > 0)).any()
    for beta in budgets[budgets >= -2]:
        assert not is_barred[states, policy.decide(states, beta, RNG(0)).action].any()
    for state in states:
        assert not is_barred[state, policy.frontier(state).index // 3].any()


@EACH_RULE
def test_what_is_played_is_as_if_barred_actions_were_not_there(which):
    q_r, q_c, is_barred = barred_values(1)
    rule, budgets = rules_of(q_r, q_c)[which], np.linspace(-4, 4, 41)
    for state in range(60):
        whole = HullPolicy(lambda states, s=state: (q_r[[s]], q_c[[s]]), GRID, rule)
        kept = np.flatnonzero(~is_barred[state])
        rest = HullPolicy(TabularQ(q_r[[state]][:, kept], q_c[[state]][:, kept]), GRID, rule)
        one, other = (p.options_at(np.array([0]), budgets) for p in (whole, rest))
        assert (one.action == kept[other.action]).all()
        assert (one.next_budget == other.next_budget).all()
        assert (one.probability == other.probability).all()


@EACH_RULE
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tensors_are_treated_as_arrays_are(which, dtype):
    q_r, q_c, _ = barred_values(2, dtype)
    rule = rules_of(q_r, q_c)[which]
    arrays = rule.points(q_r, q_c)
    tensors = rule.points(torch.tensor(q_r), torch.tensor(q_c))
    for array, tensor in zip(arrays, tensors, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), array)
    budgets = np.linspace(-4, 4, 41)
    for asked in (budgets, np.tile(budgets, (60, 1))):
        found = tensors.raised(torch.tensor(asked)).numpy()
        np.testing.assert_array_equal(found, arrays.raised(asked))
    assert np.isfinite([*arrays.costs, *arrays.rewards]).all()


@pytest.mark.parametrize("cap", [1.0, 10.0])
def test_tensors_are_measured_as_arrays_are(cap):
    q_r, q_c, _ = barred_values(3)
    one = HullRule.of(q_r, q_c, cap, costs_from_zero=True)
    other = HullRule.of(torch.tensor(q_r), torch.tensor(q_c), cap, costs_from_zero=True)
    np.testing.assert_allclose(other.slope, one.slope)
    np.testing.assert_allclose(other.slack, one.slack)


def test_the_policy_of_a_step_keeps_rule_and_grid():
    tables = TabularQ(np.stack([Q_R] * 2), np.stack([Q_C] * 2))
    rule = HullRule(slope=[3.0, 1.0], slack=[0.1, 0.2])
    policy = HullPolicy(tables, GRID, rule)
    one = policy.at_step(1)
    assert one.rule is rule
    assert one.points(np.array([0])).least_budget[0] == pytest.approx(-0.2)
    assert replace(one, step=0).points(np.array([0])).least_budget[0] == pytest.approx(-0.1)
