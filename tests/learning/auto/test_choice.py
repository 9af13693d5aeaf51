"""The rule that chooses among dials, and the race that finds out: cases whose answer is known."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import bmdp
from bmdp import TransitionBatch
from bmdp.learn import contest, evidence
from bmdp.learn.candidates import Dial, Lesson, Recipe, placed_prices, with_highest
from bmdp.learn.evidence import Spread, bare_curve, blended, choice_values, chosen, handed_over
from bmdp.learn.natures import completed, nature_of, returns
from bmdp.learn.race import Race, Runner, Tally, in_doubt
from bmdp.learn.shelf import Shelf
from bmdp.models import TableModel
from bmdp.policies import HullPolicy, Portfolio, PriceDial, TabularQ
from small_logs import grid

COSTS = np.linspace(0, 1, 5)


def curve(costs, rewards):
    return bare_curve(np.column_stack((costs, rewards)), np.full(len(costs), 100.0))


# The rule


def test_the_value_of_a_line_is_its_mean():
    assert choice_values([curve(COSTS, 4 * COSTS)])[0] == pytest.approx(2.0)


def test_more_reward_at_every_budget_is_taken():
    assert chosen([curve(COSTS, 4 * COSTS), curve(COSTS, 5 * COSTS)]) == 1


def test_who_cannot_spend_little_is_not_taken_though_its_members_earn_more():
    """They earn 3 at a cost of 1, so a coin with nothing 1.5 on average; the other one earns 2."""
    able, wasteful = curve(COSTS, 4 * COSTS), curve(np.full(5, 1.0), np.full(5, 3.0))
    assert wasteful.reward.mean() > choice_values([able])[0]
    assert chosen([wasteful, able]) == 1


def test_where_nothing_is_earned_the_one_that_spends_least_is_taken():
    assert chosen([curve(np.full(5, 0.8), np.zeros(5)), curve(COSTS, np.zeros(5))]) == 1


def test_who_earns_nothing_is_not_taken_though_it_alone_can_spend_little():
    """With a coin between the two, the dear one earns 5 at a cost of 2."""
    dear, idle = curve(1.5 + COSTS / 2, 4 + COSTS), curve(COSTS / 100, np.zeros(5))
    assert chosen([idle, dear]) == 1


@pytest.mark.parametrize(("more", "taken"), [(1.001, 0), (1.1, 1)])
def test_of_equals_the_first_is_taken(more, taken):
    assert chosen([curve(COSTS, 4 * COSTS), curve(COSTS, more * 4 * COSTS)]) == taken


def test_below_the_least_cost_of_a_dial_the_cheapest_candidate_has_its_turn():
    """At a cost of 1 the dial earns 4; half of the time it is left to one that does nothing."""
    members = np.arange(2.0)
    q = TabularQ(q_r=np.zeros((1, 2, 2)), q_c=np.zeros((1, 2, 2)))
    policy = HullPolicy(lambda states: q(states[:, 0].astype(int)), members)
    dear, idle = (
        Dial(Recipe(n, TableModel(), "budgets"), policy, members, 0.0, True) for n in "ab"
    )
    found = handed_over(
        dear,
        curve([1.0, 2.0], [4.0, 5.0]),
        SimpleNamespace(clock=0),
        (idle, curve([0.0, 0.1], [0.0, 0.0])),
    )
    mixed = found.mixtures([0.5])
    assert (float(mixed.cost[0]), float(mixed.reward[0])) == (0.5, 2.0)
    assert (found.which.tolist(), found.budgets.tolist()) == ([1, 0, 0], [0.0, 0.0, 1.0])
    assert found.budget_range[1] == 2.0


NEAR = curve([0.0, 0.001, 0.5, 1.0], [0.0, 6.0, 8.0, 10.0])
"""The first member saves a thousandth, and earns nothing."""


def test_a_member_that_saves_next_to_nothing_and_earns_nothing_is_not_played():
    members = np.arange(4.0)
    q = TabularQ(q_r=np.zeros((1, 2, 4)), q_c=np.zeros((1, 2, 4)))
    dial = Dial(Recipe("a", TableModel()), PriceDial(q, [3.0, 2.0, 1.0, 0.0]), members, 0.0, True)
    found = handed_over(dial, NEAR, SimpleNamespace(clock=0))
    points = found.dial.points(np.zeros(3, int))
    mixed = found.first_mixtures(points, np.array([0.0, 0.0005, 0.2505]))
    assert mixed.lower.tolist() == [1, 1, 1]
    assert mixed.p_upper.round(3).tolist() == [0.0, 0.0, 0.5]
    shares = evidence.shares_at(NEAR, np.array([0.0, 0.2505]))
    np.testing.assert_allclose(shares, [[0, 1, 0, 0], [0, 0.5, 0.5, 0]])


def test_the_choice_does_not_see_it_either():
    """Beside it is a dial that is the same without that member, and a worse one."""
    same, worse = curve([0.001, 0.5, 1.0], [6.0, 8.0, 10.0]), curve([0.0, 1.0], [5.0, 9.0])
    values = choice_values([NEAR, same, worse])
    assert values[0] == pytest.approx(values[1])
    assert chosen([worse, NEAR]) == 1


def test_the_cheapest_member_is_played_where_little_more_is_to_be_earned():
    assert curve([0.0, 0.001, 1.0], [6.0, 6.01, 10.0]).first() == 0
    assert curve([0.0, 0.01, 1.0], [0.0, 6.0, 10.0]).first() == 0  # and where it saves a hundredth


def test_a_price_is_tried_that_is_far_above_those_that_make_a_difference():
    batch = completed(grid())
    lesson = Lesson(batch, nature_of(batch, 0.9), 0.9, 0, "cpu")
    prices = placed_prices(lesson, n=8)
    assert prices[0] == pytest.approx(10 * prices[1])
    assert len(prices) <= 9
    higher = with_highest(prices, lesson)
    assert higher[2:].tolist() == prices.tolist()
    reward, cost = returns(batch, 0.9).std(axis=0)
    assert higher[0] == pytest.approx(1e3 * reward / cost)
    assert higher[1] == pytest.approx(np.sqrt(higher[0] * prices[0]))


def test_no_price_is_added_where_the_highest_one_is_high_already():
    batch = completed(grid())
    lesson = Lesson(batch, nature_of(batch, 0.9), 0.9, 0, "cpu")
    prices = np.array([1e9, 1.0, 0.0])
    assert with_highest(prices, lesson) is prices
    free = replace(lesson, batch=replace(batch, cost=np.zeros(len(batch))))
    assert with_highest(np.zeros(1), free).tolist() == [0.0]


def test_where_episodes_are_few_looks_and_forecasts_have_a_fair_part_of_them():
    """There is time for a hundredth of them: 600 of 60,000 choose, 1,500 of 150,000 measure."""
    terms = contest.Terms(1.0, 0, None, 1.0, 1, "cpu")
    work, plan = contest._Work(terms, Shelf(None), lambda *now: None), contest.EpisodePlan.of(None)
    few = work.sized(plan, 1.0, pace=0.2 * 60 / (0.01 * plan.evidence))
    assert (few.choose, few.measure) == (600, 1_500)
    assert few.look == 600 // 8  # a hundredth of 1,000 would be 10
    assert few.forecast == int(0.05 * 0.01 * plan.evidence)  # a hundredth of 4,400 would be 44


def test_a_log_tells_what_such_a_coin_costs(monkeypatch):
    """Another candidate is taken for a cheaper one: the forecast has its cheapest member, too."""
    monkeypatch.setattr(contest, "_CHEAPER", -9.0)
    monkeypatch.setattr(evidence, "cheapest", lambda curves: len(curves) - 1)
    found = bmdp.fit(grid(), gamma=0.9, device="cpu")
    assert isinstance(found.policy, Portfolio)
    assert any("there is a coin with" in note for note in found.notes)
    low, high = found.policy.budget_range
    np.testing.assert_allclose(found.forecast.budgets[[0, -1]], [low, high])
    assert np.isfinite(found.forecast.cost_high).all()
    assert (np.diff(found.forecast.cost) > -0.05).all()


def test_a_cost_that_is_never_negative_has_no_interval_below_0():
    """With so few episodes an interval is wider than its mean."""
    found = bmdp.fit("corridors", episodes=150, device="cpu").forecast
    assert found.is_played
    assert (found.cost_low >= 0).all()
    assert found.cost_low.min() == 0 < found.cost_high.min()


# Doubt


def test_doubt_is_about_those_within_two_errors():
    """Repeats of a mean of 8 numbers, one left out at a time, have the error of the mean."""
    rng = np.random.default_rng(0)
    found = rng.normal([0.0, -0.3, -5.0], 1.0, size=(8, 3))
    total = found.sum(axis=0)
    repeats = (total - found) / 7
    values = total / 8
    best = int(np.argmax(values))
    errors = (found[:, [best]] - found).std(axis=0, ddof=1) / np.sqrt(8)
    expected = values[best] - values <= 2 * errors
    assert in_doubt(values, repeats, 0.0).tolist() == expected.tolist()
    assert expected.tolist() == [True, True, False]


def test_a_difference_that_does_not_matter_is_no_doubt():
    repeats = np.array([[1.0, 0.9999], [1.0, 0.9998]])
    assert in_doubt(np.array([1.0, 0.9999]), repeats, 0.01).tolist() == [True, False]
    assert in_doubt(np.array([1.0, 0.9999]), repeats, 0.0).tolist() == [True, True]


# What a dial says of itself, and what was measured


def test_a_member_that_was_not_played_is_corrected_as_the_others_are():
    model = curve([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    counts = np.array([1e6, 0.0, 1e6])
    measured = bare_curve(np.array([[2.0, 2.0], [0.0, 0.0], [6.0, 6.0]]), counts)
    found = blended(model, measured, Spread(1.0, 1.0), 0.05)
    np.testing.assert_allclose(found.cost, [2.0, 4.0, 6.0], rtol=0.01)
    np.testing.assert_allclose(found.reward, [2.0, 4.0, 6.0], rtol=0.01)


def test_a_tally_without_a_group_is_that_of_the_other_episodes():
    rng = np.random.default_rng(1)
    found, which = rng.normal(size=(60, 2)), rng.integers(3, size=60)
    tally = Tally.of(found, which, 3)
    for member in range(3):
        own = found[which == member]
        np.testing.assert_allclose(tally.means()[member], own.mean(axis=0))
        rest = np.delete(own, np.arange(2, len(own), 8), axis=0)
        np.testing.assert_allclose(tally.means(without=2)[member], rest.mean(axis=0))
    both = tally + tally
    np.testing.assert_allclose(both.means(), tally.means())
    assert both.counts.sum() == 120


# The race


MEMBERS = np.arange(3.0)


class Booth:
    """Episodes of one step: a member costs its number, and earns as much as the dial is worth."""

    gamma = 1.0

    def __init__(self, seed):
        self.rng, self.asked = np.random.default_rng(seed), []

    def returns(self, batch):
        return returns(batch, self.gamma)

    def play(self, policy, members, first):
        worth = policy.worth
        self.asked.append((worth, len(members), first))
        n = len(members)
        reward = members * worth + self.rng.normal(size=n)
        cost = self.rng.poisson(members).astype(np.float64)
        return TransitionBatch(
            np.zeros(n),
            np.zeros(n, np.int64),
            reward,
            cost,
            np.zeros(n),
            np.ones(n, np.bool_),
            episode=np.arange(n),
            step=np.zeros(n, np.int64),
        )


def race_of(seed, worths, n_look=24):
    """A race of dials, of which a first look was had; they promise themselves the same."""
    booth = Booth(seed)
    lesson = SimpleNamespace(nature=SimpleNamespace(clock=0))
    race = Race(booth, lesson, Spread(1.0, 1.0), Shelf(None), 100)
    model = curve(MEMBERS, MEMBERS)
    runners = []
    for number, worth in enumerate(worths):
        policy = SimpleNamespace(worth=worth, q_function=None)
        dial = SimpleNamespace(policy=policy, members=MEMBERS)
        empty = Tally.of(np.zeros((0, 2)), np.zeros(0, np.int64), 3)
        which = np.arange(n_look) % 3
        runners.append(race._played(Runner(str(number), dial, model, empty), which, "look"))
    return booth, race, runners


def best_of(runners):
    return int(np.argmax(choice_values([runner.curve(Spread(1.0, 1.0)) for runner in runners])))


@pytest.mark.slow
def test_a_race_tells_dials_apart_that_a_look_does_not():
    worths, looked, raced = (1.0, 0.9, 0.2), 0, 0
    for seed in range(30):
        _, race, runners = race_of(seed, worths)
        looked += best_of(runners) == 0
        raced += best_of(race.run(runners, 24, 20_000, np.inf)) == 0
    assert looked < 27
    assert raced >= 29


def test_the_worse_ones_are_played_less_and_the_bound_holds():
    booth, race, runners = race_of(0, (1.0, 0.97, 0.2))
    most = 3_000
    found = race.run(runners, 24, most, np.inf)
    n_each = [runner.tally.counts.sum() for runner in found]
    assert n_each[2] < n_each[0] / 4
    assert n_each[2] < n_each[1] / 4
    assert race.n_played - 72 <= most
    assert sum(n for _, n, _ in booth.asked) == race.n_played


def test_all_dials_are_played_in_the_same_episodes_and_in_none_twice():
    booth, race, runners = race_of(0, (1.0, 1.0))
    race.run(runners, 24, 2_000, np.inf)
    assert booth.asked[::2] == booth.asked[1::2]
    firsts = [(first, n) for _, n, first in booth.asked[::2]]
    ends = [first + n for first, n in firsts]
    assert [first for first, _ in firsts[1:]] == ends[:-1]
    assert race.next == ends[-1]


def test_a_race_without_time_ends_at_once():
    booth, race, runners = race_of(0, (1.0, 1.0))
    race.run(runners, 24, 20_000, 0.0)
    assert len(booth.asked) == 2


def test_who_is_thought_to_be_cheap_is_played_until_that_is_clear():
    """Its cheapest member costs 1, but the dial says 0.1, and was hardly played.

    To tell 0.1 from 1 by three errors takes (3 / 0.9)^2 = 11 episodes for each unit of variance.
    That is thought to be 20, which would be 222 episodes, but for what three of them say.
    """
    booth, race, runners = race_of(0, (1.0,), n_look=3)
    race.spread = Spread(20.0, 1.0)
    dial = SimpleNamespace(policy=runners[0].dial.policy, members=MEMBERS + 1)
    said = replace(runners[0], dial=dial, model=curve([0.1, 2.0, 3.0], MEMBERS))
    before, n_looked = said.curve(race.spread).cost[0], len(booth.asked)
    found = race.prove(said, 0.9, 10_000, np.inf)
    counts = found.tally.counts.sum(axis=0)
    assert (counts[1:] == 1).all()
    assert 100 < counts[0] < 222
    assert [n for _, n, _ in booth.asked[n_looked:]] == [counts[0] - 1]
    assert before < 0.5
    assert found.curve(race.spread).cost[0] == pytest.approx(1.0, abs=0.3)
    assert race.prove(found, 9.0, 10_000, np.inf) is found
    assert race.prove(said, 0.9, counts[0] - 2, np.inf) is None
    assert race.prove(said, 0.9, 10_000, 0.0) is None


def candidate(name, costs):
    dial = SimpleNamespace(recipe=Recipe(name, TableModel()))
    return contest._Tried(dial, curve(costs, 4 * COSTS), 0.0)


@pytest.mark.parametrize(
    ("truth", "taken", "says"),
    [
        ({}, "lucky", 0.0),
        ({"lucky": 0.4}, "cheap", 0.1),
        ({"lucky": 0.05}, "lucky", 0.05),
        ({"lucky": 0.4, "cheap": 0.3}, None, None),
        ({"lucky": None}, "cheap", 0.1),
        ({"lucky": 0.4, "cheap": None}, None, None),
    ],
)
def test_a_coin_is_tossed_with_whom_more_episodes_say_is_cheaper(truth, taken, says):
    work = contest._Work(contest.Terms(1.0, 0, None, 1.0, 1, "cpu"), Shelf(None), lambda *now: None)
    best = candidate("best", 0.3 + COSTS)
    tried = [best, candidate("cheap", 0.1 + COSTS), candidate("lucky", COSTS)]
    asked = []

    def proven(one, gap):
        name = one.dial.recipe.name
        asked.append((name, round(gap, 9)))
        if name in truth and truth[name] is None:
            return None
        known = [other for other, _ in asked].count(name) > 1
        return one if known or name not in truth else candidate(name, truth[name] + COSTS)

    other = work.cheaper(tried, best.curve, proven)
    assert asked[0] == ("lucky", 0.3)
    if taken is None:
        assert other is None
        assert work.notes == []
    else:
        assert other.dial.recipe.name == taken
        assert other.curve.cost[0] == says
        assert work.notes[0].endswith(f"a coin with {taken}, which costs {says:.4g}")


def test_costs_are_measured_to_a_fiftieth():
    """Costs of a member are Poisson: to know a mean of 1 to 2 % takes 2,500 episodes, of 2 half."""
    errors = []
    for seed in range(20):
        _, race, runners = race_of(seed, (1.0,), n_look=600)
        runner = race.measure(runners[0], 100_000, np.inf)
        counts = runner.tally.counts.sum(axis=0)
        assert counts[1] == pytest.approx(2_500, rel=0.2)
        assert counts[2] == pytest.approx(1_250, rel=0.2)
        errors.append(runner.tally.means()[1:, 1] / MEMBERS[1:] - 1)
    deviation = np.std(errors, axis=0)
    assert (deviation > 0.01).all()
    assert (deviation < 0.035).all()


def test_where_nothing_costs_nothing_is_measured():
    _, race, runners = race_of(0, (1.0,))
    free = replace(runners[0], model=curve(np.zeros(3), MEMBERS))
    free = replace(free, tally=replace(free.tally, sums=free.tally.sums * [1.0, 0.0]))
    assert race.measure(free, 500, np.inf) is free


def test_measuring_keeps_to_its_bound():
    _, race, runners = race_of(0, (1.0,))
    assert race.measure(runners[0], 500, np.inf).tally.counts.sum() <= 24 + 500


def test_a_curve_is_like_itself_alone():
    one = curve(COSTS, 4 * COSTS)
    assert one.is_like(curve(COSTS, 4.001 * COSTS))
    assert not one.is_like(curve(COSTS, 4.1 * COSTS))


def test_a_model_that_is_right_but_on_one_member_is_not_believed_there():
    """Errors are 0.1; the model is right to 1 % on all members but one, which it has off by 2."""
    model = np.linspace(4, 8, 9)
    truth = np.where(model == 6, 8.0, 1.01 * model)
    measured = replace(curve(truth, truth), counts=600.0 * np.ones(9))
    found = blended(curve(model, model), measured, Spread(1.0, 6.0), 0.05)
    np.testing.assert_allclose(found.cost, truth, rtol=0.02)


def test_the_variance_of_episodes_is_found_by_those_that_were_played():
    """Costs are 3 times a Poisson number: their variance is 3 times their mean."""
    rng, which = np.random.default_rng(0), np.arange(60_000) % 20
    costs = 3 * rng.poisson((which + 1) / 5)
    rewards = rng.normal(0, 2, size=60_000)
    tally = Tally.of(np.column_stack((rewards, costs)), which, 20)
    found = tally.spread(Spread(cost=20.0, reward=4.0))
    assert found.cost == pytest.approx(3, rel=0.05)
    assert found.reward == pytest.approx(4, rel=0.05)
    nothing = Tally.of(np.zeros((40, 2)), which[:40], 20)
    assert nothing.spread(Spread(20.0, 4.0)) == Spread(20.0, 4.0)


def test_neighbours_tell_how_far_a_model_is_off():
    """It underrates cheap members, and overrates dear ones; each was played 600 times."""
    rng = np.random.default_rng(0)
    model = np.linspace(0.001, 0.45, 24)
    true, n, errors = model * (1.1 - 0.25 * model / model.max()), np.full(24, 600.0), []
    for _ in range(100):
        counted = rng.poisson(true * n) / n
        measured = bare_curve(np.column_stack((counted, counted)), n)
        found = blended(curve(model, model), measured, Spread(1.0, 1.0), 0.05)
        errors.append((found.cost - true, counted - true, model - true))
    ours, alone, promised = np.sqrt(np.mean(np.square(errors), axis=(0, 2)))
    assert ours < alone / 2
    assert ours < promised / 2


def test_a_few_members_that_are_far_off_are_believed():
    """Four of 24 cost 1.1, where the model says 0.4 to 0.5; each was played 20 times."""
    rng = np.random.default_rng(0)
    model, n, tops = np.linspace(0.001, 0.5, 24), np.full(24, 20.0), []
    true = np.where(np.arange(24) < 20, model, 1.1)
    for _ in range(50):
        counted = rng.poisson(true * n) / n
        measured = bare_curve(np.column_stack((counted, counted)), n)
        tops.append(blended(curve(model, model), measured, Spread(1.0, 1.0), 0.05).rising()[-1])
    assert np.mean(tops) == pytest.approx(1.1, abs=0.15)
    assert np.min(tops) > 0.7


@pytest.mark.parametrize(("least", "told"), [(0.0, [0.0, 1.1]), (-1.0, [-0.5, 1.1])])
def test_no_promise_is_below_0_where_no_cost_is(monkeypatch, least, told):
    monkeypatch.setattr(evidence, "promised", lambda dial, lesson: np.array([[-0.5, 3], [1.1, 4]]))
    lesson = SimpleNamespace(batch=SimpleNamespace(cost=np.array([least, 1.0])))
    assert evidence.promised_curve(None, lesson).cost.tolist() == told
