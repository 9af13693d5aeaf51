"""What a policy expects and does, on tables that are easy to check."""

from dataclasses import replace

import numpy as np
import pytest

import ferries
from bmdp.envs.slots import find_spec
from bmdp.policies import HullPolicy, MultiplierPolicy, Portfolio, PriceDial, TabularQ
from bmdp.report.dial import (
    Place,
    Rows,
    asked_shares,
    believed,
    dial_budgets,
    hull_of,
    play,
    typical_places,
    view_of,
)

NAMES = ["wait", "go"]


def table(costs, rewards):
    """One state, whose actions have costs and rewards at two budgets handed on."""
    return TabularQ(q_r=[[[r] * 2 for r in rewards]], q_c=[[[c] * 2 for c in costs]])


POLICY = HullPolicy(table([0.0, 0.5], [1.0, 3.0]), [0.0, 1.0])
HERE = Place("state 0", np.array(0), 0)
BUDGETS = np.array([0.0, 0.25, 1.0])


def ferry(**settings):
    ferries.register()
    return replace(find_spec(ferries.ENV), kwargs=settings)


def some_rows(states, steps=None):
    states = np.asarray(states, float)
    known = np.zeros(len(states), int) if steps is None else np.asarray(steps)
    return Rows(states, known, np.flatnonzero(known == 0))


def test_a_view_has_vertices_with_names_and_a_mixture_at_each_budget():
    view = view_of(POLICY, HERE, BUDGETS, NAMES)
    assert view.frontier.costs.tolist() == [0.0, 0.5]
    assert view.labels == ["wait, then budget 0", "go, then budget 0"]
    assert [m.p_upper for m in view.mixtures] == [0.0, 0.5, 0.0]
    assert [m.status.name for m in view.mixtures] == ["TIGHT", "TIGHT", "SLACK"]


def test_prices_and_members_have_views():
    dial = PriceDial(table([0.0, 0.5], [1.0, 3.0]), prices=[np.inf, 0.0])
    priced = view_of(MultiplierPolicy(dial), HERE, BUDGETS, NAMES)
    assert priced.labels == ["wait, cost first", "go, at a price of 0 for a unit of cost"]
    assert priced.mixtures[1].reward == pytest.approx(2.0)
    members = Portfolio((POLICY,), [0, 0], [0.0, 1.0], [0.1, 0.5], [1.0, 3.0])
    held = view_of(members, HERE, BUDGETS, NAMES)
    assert held.frontier.costs.tolist() == [0.1, 0.5]
    assert "own budget 1" in held.labels[1]
    assert held.mixtures[0].status.name == "INFEASIBLE"


def test_at_the_start_a_price_is_chosen_by_costs_that_were_measured():
    dial = PriceDial(table([0.0, 0.5], [1.0, 3.0]), [9.0, 0.0])
    measured = MultiplierPolicy(dial, costs=[0.1, 0.7], rewards=[0.0, 1.0])
    found = view_of(measured, HERE, BUDGETS, NAMES)
    assert found.frontier.costs.tolist() == [0.1, 0.7]
    assert found.frontier.rewards.tolist() == [1.0, 3.0]  # by the model
    assert [mixture.status.name for mixture in found.mixtures] == ["INFEASIBLE", "TIGHT", "SLACK"]
    assert found.mixtures[1].p_upper == pytest.approx(0.25)
    later = view_of(measured, HERE._replace(step=1), BUDGETS, NAMES)
    assert later.frontier.costs.tolist() == [0.0, 0.5]


def test_policies_that_say_nothing_have_no_view():
    single = Portfolio((POLICY,), [0], [0.0], [0.1], [1.0], mixes=False)
    assert view_of(single, HERE, BUDGETS, NAMES) is None
    assert view_of(PriceDial(POLICY.q_function, [1.0, 0.0]), HERE, BUDGETS, NAMES) is None


def test_beliefs_are_means_over_first_states():
    both = TabularQ(q_r=[[[0.0], [2.0]], [[4.0], [4.0]]], q_c=[[[0.0], [1.0]], [[0.0], [0.0]]])
    policy = HullPolicy(both, [0.0])
    cost, reward = believed(policy, np.array([0, 1]), np.array([0.0, 0.5, 1.0]))
    assert cost.tolist() == [0.0, 0.25, 0.5]
    assert reward.tolist() == [2.0, 2.5, 3.0]


def test_a_hull_has_all_points_and_the_mixture():
    hull = hull_of(POLICY, HERE, 0.25, NAMES)
    assert hull.costs.tolist() == [0.0, 0.0, 0.5, 0.5]
    assert hull.action == (0, 0, 1, 1)
    assert (hull.mixture.cost, hull.mixture.reward) == (0.25, 2.0)
    assert (
        hull_of(MultiplierPolicy(PriceDial(POLICY.q_function, [1.0, 0.0])), HERE, 0.2, NAMES)
        is None
    )


@pytest.mark.parametrize(
    ("policy", "states", "first", "step", "last"),
    [
        (POLICY, None, 0.0, 0.1, 1.0),
        (HullPolicy(table([0.0, 0.02], [1.0, 3.0]), [0.0, 1.0]), [0], 0.0, 0.0025, 0.025),
        (HullPolicy(table([0.0, 0.5], [1.0, 3.0]), [0.0, 0.8319]), [0], 0.0, 0.1, 1.0),
        (HullPolicy(table([0.0, 0.0], [1.0, 3.0]), [0.0, 20.0]), [0], 0.0, 2.0, 20.0),
    ],
)
def test_budgets_are_easy_to_read_and_cover_what_can_be_spent(policy, states, first, step, last):
    found = dial_budgets(policy, None if states is None else np.array(states))
    assert len(found) == 11
    assert found[[0, 1, -1]].tolist() == [first, step, last]


def test_a_range_of_one_budget_has_one():
    assert dial_budgets(HullPolicy(TabularQ([[[1.0]]], [[[0.0]]]), [0.5]), None) == [0.5]


def test_actions_of_episodes_that_ended_are_not_counted():
    spec = ferry(sinks=True)
    q = TabularQ(q_r=[[[1.0], [3.0], [0.0]]] * 4, q_c=[[[0.0], [0.2], [0.0]]] * 4)
    names = ["wait", "leave", "sleep"]
    found = play(HullPolicy(q, [0.5]), spec, np.array([0.5]), names, n_episodes=600, seed=0)
    assert found.shares.by_budget.tolist() == [[0.0, 1.0, 0.0]]
    assert found.shares.by_step[0, :, 1] == pytest.approx([1.0, 0.8, 0.64], abs=0.06)
    assert found.shares.by_step[0, :, 0].tolist() == [0.0, 0.0, 0.0]
    assert found.status == ["SLACK"]
    assert len(found.rows.states) == len(found.rows.steps) > 1200
    assert found.evaluation.cost_mean[0] == pytest.approx(1 - 0.8**3, abs=0.06)


def test_a_policy_is_asked_at_the_step_of_each_state():
    q = TabularQ(q_r=[[[[1.0], [0.0]]], [[[0.0], [1.0]]]], q_c=np.zeros((2, 1, 2, 1)))
    rows = Rows(np.zeros(4, int), np.array([0, 0, 0, 1]), np.arange(3))
    shares = asked_shares(HullPolicy(q, [0.0]), rows, np.array([0.0]), NAMES, seed=0)
    assert shares.by_step.tolist() == [[[1.0, 0.0], [0.0, 1.0]]]
    assert shares.by_budget.tolist() == [[0.75, 0.25]]
    assert shares.steps.tolist() == [1, 2]


def test_rare_actions_are_put_together():
    n = 20
    rewards = [[1.0] if a == 11 else [0.0] for a in range(n)]
    policy = HullPolicy(TabularQ([rewards], np.zeros((1, n, 1))), [0.0])
    names = [f"a{i}" for i in range(n)]
    rows = Rows(np.zeros(3, int), np.zeros(3, int), np.arange(3))
    shares = asked_shares(policy, rows, np.array([0.0]), names, seed=0)
    assert len(shares.names) == shares.by_budget.shape[1] == 8
    assert shares.names[-1] == "13 others"
    assert dict(zip(shares.names, shares.by_budget[0], strict=True))["a11"] == 1.0


def test_steps_that_are_many_are_put_together():
    spec = ferry(crossings=100)
    q = TabularQ(q_r=np.ones((101, 1, 1)), q_c=np.zeros((101, 1, 1)))
    found = play(HullPolicy(q, [0.5]), spec, np.array([0.5]), NAMES, n_episodes=2, seed=0)
    assert found.shares.by_step.shape == (1, 34, 2)
    assert found.shares.by_step[0, :, 0] == pytest.approx(1.0)
    assert found.shares.steps[:3].tolist() == [1, 4, 7]


def test_places_are_the_first_state_and_the_middle_of_groups():
    near = [[0.0, 0.0], [0.0, 0.0], [0.1, 0.0]]
    far = [[9.0, 9.0], [9.1, 9.0], [9.0, 9.1], [9.03, 9.03]]
    rows = some_rows([*near, *far], [0, 0, 1, 2, 2, 2, 2])
    names = [place.name for place in typical_places(rows)]
    assert names[0] == "state (0, 0): first state, the most common one"
    assert len(set(names)) == len(names) <= 5
    assert any(name.startswith("state (9") for name in names)
    steps = {place.name: place.step for place in typical_places(rows)}
    assert all(step == 2 for name, step in steps.items() if name.startswith("state (9"))
    assert names == [place.name for place in typical_places(rows)]


def test_of_first_states_that_all_differ_the_central_one_is_shown():
    first, *_ = typical_places(some_rows([[0.0], [5.0], [10.0]]))
    assert first.name == "state 5: first state, the most central one"


def test_a_single_state_is_one_place():
    (place,) = typical_places(some_rows([[2.0]] * 5))
    assert place.name.startswith("state 2:")


def test_long_states_are_cut_short():
    first, *_ = typical_places(some_rows([list(range(20))] * 2))
    assert first.name.startswith("state (0, 1, 2, 3, 4, …):")
