import numpy as np
import pytest

from bmdp import BudgetError, ConfigError
from bmdp.envs import ScriptedPolicy
from bmdp.evaluation import evaluate, evaluate_move
from bmdp.exact import FiniteBMDP, allocate_budgets
from bmdp.exact.textbook import TextbookProblem, branches, crossing, ladder
from bmdp.policies import Portfolio, RandomBudgetedPolicy
from problems import always, finite_spec, walk_spec


def move(policy, spec, new_budgets, *, first_budget, at_step, n_episodes=50, **settings):
    return evaluate_move(
        policy,
        spec,
        first_budget=first_budget,
        new_budgets=new_budgets,
        at_step=at_step,
        n_episodes=n_episodes,
        seed=0,
        **settings,
    )


def test_a_dial_that_is_turned_up_on_the_ladder_buys_more_rungs():
    known = ladder(6)  # rung k pays 1 / k
    policy = allocate_budgets(known.model).policy()
    found = move(policy, finite_spec(known), [0.0, 2.0, 5.0], first_budget=1.0, at_step=1)
    assert found.cost_mean.tolist() == [0.0, 2.0, 5.0]
    assert found.reward_mean == pytest.approx([0, 1 / 2 + 1 / 3, sum(1 / k for k in range(2, 7))])
    assert found.excess == pytest.approx([0, 0, 0])
    assert (found.n_going, found.going_share) == (50, 1.0)


def test_a_mixture_spends_the_new_budget_on_average():
    known = ladder(6)
    policy = allocate_budgets(known.model).policy()
    found = move(policy, finite_spec(known), [2.5], first_budget=6.0, at_step=3, n_episodes=4_000)
    assert found.excess_low < 0 < found.excess_high
    assert found.reward_low < 1 / 4 + 1 / 5 + 1 / 12 < found.reward_high
    assert found.excess_high - found.excess_low < 0.05


def test_a_coin_does_not_know_what_is_left_to_pay():
    stop, climb = always(0, 7, high=6.0), always(1, 7, high=6.0)
    coin = Portfolio.coin(stop, climb, 0.0, 6.0)
    found = move(coin, finite_spec(ladder(6)), [3.0], first_budget=6.0, at_step=3, n_episodes=4_000)
    assert found.cost_low < 1.5 < found.cost_high  # three rungs are left, half of the coins climb
    assert found.excess_high < 0


def paying(gamma=0.5, horizon=4):
    """At each of a few steps, pay 1 to earn 3."""
    model = FiniteBMDP(
        transition=np.ones((1, 2, 1)),
        reward=[[0.0, 3.0]],
        cost=[[0.0, 1.0]],
        gamma=gamma,
        horizon=horizon,
    )
    return TextbookProblem(model, 0, None)


def test_what_is_left_to_pay_is_discounted_from_the_move_on():
    found = move(always(1, 1), finite_spec(paying()), [1.0], first_budget=0.0, at_step=2)
    assert found.cost_mean.tolist() == [1.5]
    assert found.reward_mean.tolist() == [4.5]
    assert found.excess.tolist() == [0.5]


def test_a_move_at_the_start_is_an_evaluation_at_the_new_budget():
    known = branches()
    policy, spec = allocate_budgets(known.model).policy(), finite_spec(known)
    found = move(policy, spec, [0.0, 1.0], first_budget=0.5, at_step=0)
    wanted = evaluate(policy, spec, budgets=[0.0, 1.0], n_episodes=50, seed=0)
    assert found.cost_mean.tolist() == wanted.cost_mean.tolist()
    assert found.reward_mean.tolist() == wanted.reward_mean.tolist()


def test_only_episodes_still_going_count():
    policy = RandomBudgetedPolicy(2, 0.0, 1.0)
    found = move(policy, walk_spec(longest=5), [0.5], first_budget=0.5, at_step=3, n_episodes=1_000)
    assert found.going_low < 2 / 5 < found.going_high  # of lengths 1 to 5, those of 4 and 5
    assert found.n_going == round(1_000 * found.going_share)
    assert found.cost_low < 1.5 < found.cost_high


def test_the_share_still_going_is_that_of_the_first_budget():
    policy = allocate_budgets(crossing().model).policy()
    spec = finite_spec(crossing())
    for first_budget, share in ((0.0, 1.0), (0.25, 0.0)):
        found = move(policy, spec, [0.25], first_budget=first_budget, at_step=1)
        assert found.going_share == share


def test_if_no_episode_is_still_going_there_are_no_means():
    found = move(always(1, 5), finite_spec(crossing()), [0.0, 1.0], first_budget=0.0, at_step=9)
    assert (found.n_going, found.going_share) == (0, 0.0)
    assert np.isnan([found.cost_mean, found.reward_mean, found.infeasible_share]).all()
    assert found.cost_high.tolist() == [np.inf, np.inf]


def test_it_is_said_where_no_policy_can_keep_the_new_budget():
    model = paying().model
    forced = FiniteBMDP(
        transition=model.transition, reward=[[3.0, 3.0]], cost=[[1.0, 2.0]], gamma=0.5, horizon=4
    )
    policy = allocate_budgets(forced).policy()
    spec = finite_spec(TextbookProblem(forced, 0, None))
    found = move(policy, spec, [0.1, 1.5, 2.9], first_budget=3.0, at_step=2)
    assert found.infeasible_share.tolist() == [1.0, 0.0, 0.0]
    assert found.cost_mean[:2].tolist() == [1.5, 1.5]


def test_up_to_the_move_episodes_are_the_same_for_all_new_budgets():
    policy = RandomBudgetedPolicy(5, 0.0, 1.0)
    one, both = (
        move(policy, "corridors", new, first_budget=0.5, at_step=2) for new in ([0.9], [0.1, 0.9])
    )
    assert one.n_going == both.n_going
    assert one.cost_mean[0] == both.cost_mean[1]


def test_workers_give_the_same_moves():
    coin = Portfolio.coin(
        ScriptedPolicy("corridors/safe"), ScriptedPolicy("corridors/risky"), 0.0, 1.1168
    )
    one, two = (
        move(coin, "corridors", [0.2], first_budget=0.5, at_step=2, workers=w) for w in (1, 2)
    )
    assert one.cost_mean.tolist() == two.cost_mean.tolist()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"first_budget": -1.0}, BudgetError, "numbers from 0 on"),
        ({"new_budgets": [0.1, np.nan]}, BudgetError, "new_budgets must be finite"),
        ({"at_step": -1}, ConfigError, "at_step must be a whole number from 0 on"),
        ({"n_episodes": 0}, ConfigError, "n_episodes must be a whole number from 1 on"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, error, message):
    asked = {"new_budgets": [0.5], "first_budget": 0.5, "at_step": 1} | changes
    with pytest.raises(error, match=message):
        move(RandomBudgetedPolicy(5, 0.0, 1.0), "corridors", **asked)
