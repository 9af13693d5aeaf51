import numpy as np
import pytest
from scipy import stats

import bmdp
from bmdp import BudgetError, BudgetStatus, ConfigError, DataError, EpisodeStreams
from bmdp.frontier import hull_mixture
from bmdp.policies import HullPolicy, Portfolio, PriceDial, RandomBudgetedPolicy, TabularQ

INFEASIBLE, TIGHT, SLACK = BudgetStatus
N = 20_000
GRID = np.array([0.0, 0.5, 1.0])
STATES = np.zeros(N, int)


def always(action):
    """A policy that plays one action, whatever the state, and always hands on 0.5."""
    q_r = np.zeros((1, 5, 3))
    q_r[0, action, 1] = 1
    return HullPolicy(TabularQ(q_r, np.zeros((1, 5, 3))), GRID)


def of_actions(costs, rewards, /, **changes):
    """A portfolio whose member k plays action k."""
    n = len(costs)
    members = {
        "policies": tuple(map(always, range(n))),
        "which": np.arange(n),
        "budgets": np.full(n, 0.5),
        "costs": np.array(costs),
        "rewards": np.array(rewards),
    }
    return Portfolio(**members | changes)


def start(policy, budget, n=N):
    return policy.start(STATES[:n], budget, np.random.default_rng(0))


def is_share(hits, probability):
    """Whether N tosses are what a coin of that probability gives, but for one time in 1,000."""
    return stats.binomtest(int(hits.sum()), N, probability).pvalue > 1e-3


COIN = Portfolio.coin(always(1), always(2), cheap_cost=0.2, dear_cost=1.0)
CONCAVE = of_actions([1.0, 0.1, 0.4, 0.5, 0.4], [8.0, 1.0, 6.0, 4.0, 5.0])  # vertices 1, 2, 0


@pytest.mark.parametrize(
    ("beta", "p_dear", "status"),
    [
        (0.0, 0.0, INFEASIBLE),
        (0.2, 0.0, TIGHT),
        (0.4, 0.25, TIGHT),
        (1.0, 1.0, SLACK),
        (7.0, 1.0, SLACK),
        (np.inf, 1.0, SLACK),
    ],
)
def test_a_coin_spends_the_budget_on_average(beta, p_dear, status):
    decision = start(COIN, beta).decide(STATES)
    assert is_share(decision.action == 2, p_dear)
    assert (decision.status == status).all()


@pytest.mark.parametrize(
    ("beta", "chances", "status"),
    [
        (0.0, [0, 1, 0, 0, 0], INFEASIBLE),
        (0.1, [0, 1, 0, 0, 0], TIGHT),
        (0.25, [0, 0.5, 0.5, 0, 0], TIGHT),
        (0.4, [0, 0, 1, 0, 0], TIGHT),
        (0.9, [5 / 6, 0, 1 / 6, 0, 0], TIGHT),
        (1.0, [1, 0, 0, 0, 0], SLACK),
    ],
)
def test_neighbouring_vertices_are_mixed_and_no_others(beta, chances, status):
    decision = start(CONCAVE, beta).decide(STATES)
    assert all(is_share(decision.action == k, chances[k]) for k in range(5))
    assert (decision.status == status).all()


def test_mixtures_are_those_of_the_curve():
    asked = np.linspace(0, 1.2, 25)
    found = CONCAVE.mixtures(asked)
    assert CONCAVE.curve.index.tolist() == [1, 2, 0]
    assert CONCAVE.budget_range == (0.0, 1.0)
    for i, beta in enumerate(asked):
        wanted = hull_mixture(CONCAVE.curve, beta)
        got = (found.status[i], found.cost[i], found.reward[i])
        assert got == pytest.approx((wanted.status, wanted.cost, wanted.reward))


@pytest.mark.parametrize(
    ("beta", "member", "status"),
    [
        (0.0, 2, INFEASIBLE),  # the cheapest, of which member 2 is paid best
        (0.19, 2, INFEASIBLE),
        (0.2, 2, TIGHT),
        (0.49, 2, TIGHT),
        (0.5, 0, TIGHT),
        (0.9, 0, TIGHT),  # member 3 costs more, and earns the same
        (1.0, 4, SLACK),
        (9.0, 4, SLACK),
    ],
)
def test_without_mixing_it_is_the_best_paid_member_within_the_budget(beta, member, status):
    policy = of_actions([0.5, 0.2, 0.2, 0.9, 1.0], [3.0, 1.0, 2.0, 3.0, 5.0], mixes=False)
    decision = start(policy, beta, 10).decide(STATES[:10])
    assert (decision.action == member).all()
    assert (decision.status == status).all()
    assert policy.budget_range == (0.0, 1.0)


@pytest.mark.parametrize("seed", range(20))
def test_without_mixing_all_members_have_been_looked_at(seed):
    costs, rewards = np.random.default_rng(seed).random((2, 5)).round(1)
    policy = of_actions(costs, rewards, mixes=False)
    asked = np.linspace(0, 1, 11)
    found = policy.mixtures(asked)
    for i, beta in enumerate(asked):
        fits = rewards[costs <= beta]
        if len(fits):
            assert found.reward[i] == fits.max()
            assert found.cost[i] == costs[(costs <= beta) & (rewards == fits.max())].min()
            assert found.status[i] == (SLACK if fits.max() == rewards.max() else TIGHT)
        else:
            assert (found.cost[i], found.status[i]) == (costs.min(), INFEASIBLE)
            assert found.reward[i] == rewards[costs == costs.min()].max()


@pytest.mark.parametrize("mixes", [True, False])
@pytest.mark.parametrize(("beta", "status"), [(0.0, INFEASIBLE), (0.3, SLACK), (1.0, SLACK)])
def test_a_single_member_is_always_played(mixes, beta, status):
    policy = of_actions([0.3], [7.0], policies=(always(4),), mixes=mixes)
    decision = start(policy, beta, 10).decide(STATES[:10])
    assert (decision.action == 4).all()
    assert (decision.status == status).all()
    assert policy.budget_range == (0.0, 0.3)


def test_costs_may_be_negative():
    policy = of_actions([-1.0, -0.5], [0.0, 1.0])
    assert policy.budget_range == (-1.0, -0.5)
    assert is_share(start(policy, -0.75).decide(STATES).action == 1, 0.5)


def test_a_member_stays_for_the_episode():
    tracker = start(COIN, 0.6)
    first = tracker.decide(STATES).action
    for _ in range(3):
        tracker.observe(0.0, STATES, False)
        assert (tracker.decide(STATES).action == first).all()


def test_moving_the_dial_chooses_again():
    tracker = start(COIN, 0.6)
    first = tracker.decide(STATES).action == 2
    tracker.observe(0.0, STATES, False)
    tracker.set_budget(0.6)
    second = tracker.decide(STATES).action == 2
    assert is_share(first & second, 0.25)


def test_ended_episodes_are_not_started_again_by_a_move():
    tracker = start(COIN, 0.6)
    tracker.decide(STATES)
    tracker.observe(0.0, STATES, np.arange(N) % 2 == 0)
    tracker.set_budget(1.0)
    assert (tracker.decide(STATES).action == np.where(np.arange(N) % 2 == 0, 0, 2)).all()


@pytest.mark.parametrize("nested", [False, True])
def test_a_member_that_takes_over_in_the_middle_goes_on_at_that_step(nested):
    tables = [always(action).q_function for action in range(4)]
    steps = TabularQ(np.stack([q.q_r for q in tables]), np.stack([q.q_c for q in tables]))
    clock = HullPolicy(steps, GRID)  # plays action t at step t
    member = Portfolio.coin(always(4), clock, 0.2, 1.0) if nested else clock
    tracker = Portfolio.coin(always(4), member, 0.2, 1.0).start(STATES[:5], 0.0, new_streams(5))
    seen = []
    for budget in (0.0, 1.0, None, 0.0, 1.0):
        if budget is not None:
            tracker.set_budget(budget)
        seen.append(int(tracker.decide(STATES[:5]).action[0]))
        tracker.observe(0.0, STATES[:5], False)
    assert seen == [4, 1, 2, 4, 3]


def new_streams(n):
    return EpisodeStreams.named(0, "test", range(n))


class Plain:
    """A policy of someone else, whose trackers do not count steps."""

    budget_range = (0.0, 1.0)

    def start(self, states, budgets, rng):
        class Tracker:
            budgets = np.zeros(len(states))

            def decide(self, states):
                n = len(states)
                return np.full(n, 3), np.zeros(n), np.full(n, SLACK)

            def observe(self, costs, next_states, ended):
                pass

        return Tracker()


def test_trackers_of_others_need_not_count_steps():
    tracker = start(Portfolio.coin(always(1), Plain(), 0.2, 1.0), 0.2, 5)
    tracker.decide(STATES[:5])
    tracker.observe(0.0, STATES[:5], False)
    tracker.set_budget(1.0)
    assert (tracker.decide(STATES[:5]).action == 3).all()


def by_cost():
    """Plays action 0 within a budget of 0.2, and action 1 within one of 1."""
    q_c = np.array([[[0.0, 0.0, 0.2], [1.0, 1.0, 1.0]]])
    q_r = np.array([[[0.0, 0.0, 1.0], [4.0, 4.0, 4.0]]])
    return HullPolicy(TabularQ(q_r, q_c), GRID)


def test_each_side_of_a_coin_is_played_at_the_budget_it_is_said_to_cost():
    coin = Portfolio.coin(by_cost(), by_cost(), 0.2, 1.0)
    decision = start(coin, 0.6).decide(STATES)
    assert set(zip(decision.action.tolist(), decision.next_budget.tolist(), strict=True)) == {
        (0, 1.0),  # cheap: the vertex of cost 0.2
        (1, 0.0),  # dear: the vertex of cost 1
    }


def test_the_number_of_a_price_is_told_to_nobody_as_a_budget():
    q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    dial = PriceDial(q, prices=[20.0, 0.0])
    coin = Portfolio((dial,), [0, 0], [0.0, 1.0], costs=[0.1, 0.3], rewards=[0.0, 10.0])
    tracker = start(coin, 0.2)
    decision = tracker.decide(STATES)
    expected = np.where(decision.action == 1, 0.3, 0.1)
    assert set(decision.action.tolist()) == {0, 1}
    assert decision.next_budget.tolist() == expected.tolist()
    tracker.observe(0.0, STATES, False)
    assert tracker.budgets.tolist() == expected.tolist()
    resumed = coin.resume(tracker.state())
    assert (resumed.decide(STATES).action == decision.action).all()


def test_a_policy_of_several_members_is_stored_once(tmp_path):
    hull = by_cost()
    coin = Portfolio.coin(hull, hull, -0.1, 1.0)
    assert len(coin.policies) == 1
    assert coin.budgets.tolist() == [0.0, 1.0]  # the policy takes none below 0
    coin.save(tmp_path / "coin")
    loaded = bmdp.load_policy(tmp_path / "coin")
    assert len(loaded.policies) == 1
    one, other = (start(policy, 0.3).decide(STATES) for policy in (coin, loaded))
    assert (one.action == other.action).all()


def test_only_chosen_members_are_started(monkeypatch):
    started = []
    whole = HullPolicy.start
    monkeypatch.setattr(
        HullPolicy,
        "start",
        lambda self, states, *rest: (
            started.append((CONCAVE.policies.index(self), len(states)))
            or whole(self, states, *rest)
        ),
    )
    tracker = CONCAVE.start(STATES[:50], np.repeat([0.0, 0.4], 25), new_streams(50))
    tracker.decide(STATES[:50])
    assert started == [(1, 25), (2, 25)]


def test_arrays_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        COIN.costs[0] = 0.0


@pytest.mark.parametrize("costs", [(1.0, 1.0), (0.5, 0.2), (0.0, np.inf), (np.nan, 1.0)])
def test_the_dear_side_of_a_coin_must_cost_more(costs):
    with pytest.raises(ConfigError, match="cheap_cost must be below dear_cost"):
        Portfolio.coin(always(0), always(1), *costs)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"policies": ()}, ConfigError, "at least one policy and one member"),
        ({"which": np.array([], int)}, ConfigError, "at least one policy and one member"),
        ({"which": np.array([[0, 1]])}, DataError, r"which must have shape \[K\]"),
        ({"which": np.array([0.0, 1.0])}, DataError, "which must be an array of whole numbers"),
        ({"which": np.array([0, 2])}, DataError, r"from 0 to 1; got 2 at \[1\]"),
        ({"which": np.array([-1, 1])}, DataError, r"from 0 to 1; got -1 at \[0\]"),
        ({"costs": np.array([0.1])}, DataError, r"costs must have shape \[K\] = \[2\]; got \[1\]"),
        ({"rewards": np.array([0.1, np.inf])}, DataError, r"rewards must be finite; got inf"),
        ({"budgets": np.array([0.1, np.nan])}, DataError, r"budgets must be finite; got nan"),
        (
            {"budgets": np.array([0.1, -0.1])},
            BudgetError,
            r"taken by their policies, here from 0 on; got -0.1 at \[1\]",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(changes, error, message):
    with pytest.raises(error, match=message):
        of_actions([0.1, 0.2], [0.0, 1.0], **changes)


def test_a_policy_that_cannot_be_saved_makes_a_portfolio_that_cannot(tmp_path):
    blind = HullPolicy(lambda states: None, GRID)
    coin = Portfolio.coin(blind, RandomBudgetedPolicy(2, 0.0, 1.0), 0.1, 0.2)
    with pytest.raises(bmdp.StoreError, match="cannot be stored"):
        coin.save(tmp_path / "coin")
