import dataclasses

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from bmdp import BudgetError, ConfigError, DataError, EnvError, PolicyError
from bmdp.envs import ScriptedPolicy
from bmdp.envs.corridors import CorridorsVectorEnv
from bmdp.envs.episodes import environment_seeds
from bmdp.envs.slots import BatchedSlots, SingleSlots, find_spec
from bmdp.evaluation import Evaluation, evaluate
from bmdp.exact import (
    FiniteBMDP,
    allocate_budgets,
    budgeted_value_iteration,
    evaluate_policy,
)
from bmdp.exact.textbook import TextbookProblem, branches, crossing, decision, forever, ladder
from bmdp.policies import HullPolicy, Portfolio, RandomBudgetedPolicy, TabularQ
from bmdp.policies.policy import StepTracker
from problems import Deadly, always, by_hand, finite_spec, walk_spec

COIN = Portfolio.coin(
    ScriptedPolicy("corridors/safe"), ScriptedPolicy("corridors/risky"), 0.0, 1.1168
)
RANDOM = RandomBudgetedPolicy(5, 0.0, 1.0)
ARRAYS = [f.name for f in dataclasses.fields(Evaluation) if f.type == "FloatArray"]


def assert_same(one, other):
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def holds(evaluation, name, expected, *, n_deviations=5):
    """Whether a mean is within so many standard errors of an expectation, at all budgets."""
    mean, high = (getattr(evaluation, f"{name}_{end}") for end in ("mean", "high"))
    error = (high - mean) / 1.96  # many episodes at confidence 0.95
    return (abs(mean - expected) <= n_deviations * error + 1e-9).all()


@pytest.mark.parametrize(
    ("rule", "reward", "cost"),
    [
        ("slot-filling/key-pad", 100 * 0.75**3, 1 - 0.75**3),  # by arithmetic
        ("corridors/risky", 282.96, 1.1168),  # by 2,000,000 episodes of other seeds
        ("corridors/safe", 134.2, 0.0),
        ("slot-filling/voice-again", 25.4, 0.0),
        ("slot-filling/voice-until-sure", 26.1, 0.0),
        ("slot-filling/key-pad-again", 56.0, 0.440),
    ],
)
def test_scripted_policies_earn_and_pay_what_is_known_of_them(rule, reward, cost):
    policy, env = ScriptedPolicy(rule), rule.split("/")[0]
    found = evaluate(policy, env, budgets=[0.0], n_episodes=20_000, seed=1)
    assert holds(found, "reward", reward)
    assert holds(found, "cost", cost)


@pytest.mark.parametrize("make", [decision, branches, ladder, crossing])
def test_a_policy_earns_and_pays_its_exact_values(make):
    known = make()
    grid = np.linspace(0.0, known.frontier.costs[-1], 5)
    policy = budgeted_value_iteration(known.model, grid).policy()
    v_r, v_c = evaluate_policy(known.model, policy, grid)
    found = evaluate(policy, finite_spec(known), budgets=grid, n_episodes=4_000, seed=0)
    assert found.gamma == known.model.gamma
    assert holds(found, "discounted_reward", v_r[known.start])
    assert holds(found, "discounted_cost", v_c[known.start])


def test_intervals_cover_as_often_as_they_say():
    policy, n = ScriptedPolicy("slot-filling/key-pad"), 300
    hits = 0
    for seed in range(n):
        found = evaluate(
            policy, "slot-filling", budgets=[0], n_episodes=100, seed=seed, confidence=0.8
        )
        hits += int(found.cost_low[0] <= 1 - 0.75**3 <= found.cost_high[0])
    assert abs(hits / n - 0.8) < 4.5 * np.sqrt(0.8 * 0.2 / n)


def leaving():
    """Each step costs 1 and earns 2, whatever is played, and ends the episode by a coin."""
    model = FiniteBMDP(
        transition=[[[0.5, 0.5]] * 2, [[0.0, 1.0]] * 2],
        reward=np.full((2, 2), 2.0),
        cost=np.ones((2, 2)),
        gamma=1.0,
        terminal=[False, True],
        horizon=10,
    )
    return finite_spec(TextbookProblem(model, 0, None))


def test_what_a_slot_plays_after_its_episode_is_not_counted():
    found = evaluate(always(0, 2), leaving(), budgets=[0.5], n_episodes=4_000, seed=0)
    assert holds(found, "cost", sum(0.5**k for k in range(10)))
    assert found.reward_mean == 2 * found.cost_mean == 2 * found.episode_length_mean


def test_a_tracker_is_told_of_its_own_episodes_only(monkeypatch):
    told = []
    monkeypatch.setattr(
        StepTracker, "_observe", lambda self, costs, states, ended: told.append((costs, ended))
    )
    evaluate(always(0, 2), leaving(), budgets=[0.5], n_episodes=50, seed=0)
    over = np.zeros(50, bool)
    for costs, ended in told:
        assert (costs == ~over).all()  # 1 at each step of an episode, the last included
        assert (ended >= over).all()
        over = ended
    assert over.all()
    assert len(told) > 3


def test_discounts_are_those_of_the_environment():
    known = crossing(detour=3, gamma=0.9)
    found = evaluate(always(0, 5), finite_spec(known), budgets=[0.0, 1.0], n_episodes=10, seed=0)
    assert found.reward_mean == pytest.approx([1.0, 1.0])
    assert found.discounted_reward_mean == pytest.approx([0.9**3, 0.9**3])
    assert found.episode_length_mean.tolist() == [4.0, 4.0]


def test_without_a_discount_in_the_metadata_there_is_none():
    policy = RandomBudgetedPolicy(2, 0.0, 1.0)
    found = evaluate(policy, walk_spec(longest=5), budgets=[0.5], n_episodes=500, seed=0)
    assert found.gamma == 1.0
    assert found.discounted_cost_mean == found.cost_mean == found.episode_length_mean
    assert found.reward_mean == 2 * found.cost_mean
    assert holds(found, "cost", 3.0)  # no more than the first episode of each slot
    assert found.cost_quantiles[0, 2] == 5.0


def test_the_size_of_batches_changes_nothing(monkeypatch):
    asked = {"budgets": [0.2, 0.7], "n_episodes": 2_500, "seed": 3}
    whole = evaluate(COIN, "corridors", **asked)
    monkeypatch.setattr(BatchedSlots, "most", 1_000)
    assert_same(evaluate(COIN, "corridors", **asked), whole)


def test_single_environments_give_what_a_batch_gives(monkeypatch):
    asked = {"budgets": [0.5], "n_episodes": 60, "seed": 3}
    whole = evaluate(RANDOM, "corridors", **asked)
    monkeypatch.setattr(SingleSlots, "most", 25)
    single = dataclasses.replace(find_spec("corridors"), vector_entry_point=None)
    assert_same(evaluate(RANDOM, single, **asked), whole)


def test_the_number_of_workers_changes_nothing():
    calls = []
    asked = {"budgets": [0.2, 0.7], "n_episodes": 501, "seed": 3}
    one = evaluate(COIN, "corridors", **asked)
    two = evaluate(COIN, "corridors", **asked, workers=2, progress=lambda *done: calls.append(done))
    assert_same(two, one)
    assert sorted(calls)[-1] == (1002, 1002)
    assert len(calls) == 4


def test_errors_of_workers_come_through():
    policy = ScriptedPolicy("slot-filling/key-pad")
    with pytest.raises(PolicyError, match=r"bmdp/Corridors-v0 shows, states of shape \[2\]"):
        evaluate(policy, "corridors", budgets=[0.0], n_episodes=2, seed=0, workers=2)


def test_at_all_budgets_an_episode_meets_the_same_chances():
    policy = ScriptedPolicy("corridors/risky")
    found = evaluate(policy, "corridors", budgets=[0.0, 0.5], n_episodes=100, seed=0)
    assert found.reward_mean[0] == found.reward_mean[1]


def test_at_each_budget_the_policy_draws_its_own_numbers():
    found = evaluate(RANDOM, "corridors", budgets=[0.5, 0.5], n_episodes=200, seed=0)
    assert found.cost_mean[0] != found.cost_mean[1]


def test_another_seed_gives_other_episodes_and_the_same_one_the_same():
    policy = ScriptedPolicy("corridors/risky")
    first, second, again = (
        evaluate(policy, "corridors", budgets=[0.0], n_episodes=100, seed=seed)
        for seed in (0, 1, 0)
    )
    assert first.reward_mean != second.reward_mean
    assert_same(first, again)


def test_an_episode_is_what_one_environment_plays_from_its_seed():
    policy = ScriptedPolicy("corridors/risky")
    short, one_more = (
        evaluate(policy, "corridors", budgets=[0.0], n_episodes=n, seed=4).reward_mean[0] * n
        for n in (9, 10)
    )
    env, (seed,) = gymnasium.make("bmdp/Corridors-v0"), environment_seeds(4, range(9, 10))
    (state, _), reward, ended = env.reset(seed=seed), 0.0, False
    while not ended:
        action = policy.act(state, 0.0, np.random.default_rng(0)).action
        state, earned, ended, _, _ = env.step(action)
        reward += earned
    assert one_more - short == pytest.approx(reward)


def test_seeds_of_environments_stay_below_their_limit():
    base = environment_seeds(0, range(1))[0]
    near = environment_seeds(0, range(2**32 - base - 1, 2**32 - base + 1))
    assert near == [2**32 - 1, 0]


def test_tails_of_cost_are_those_of_episodes():
    policy = ScriptedPolicy("slot-filling/key-pad-again")  # hangs up in 44 of 100
    found = evaluate(policy, "slot-filling", budgets=[0.0], n_episodes=1_000, seed=0)
    assert found.cost_quantiles.tolist() == [[0.0, 1.0, 1.0]]
    assert found.cost_cvar.tolist() == [1.0]


def test_infeasible_is_the_share_of_first_decisions_below_the_frontier():
    q_r, q_c = np.zeros((2, 2, 2, 2))
    q_c[0] = 0.5  # where it starts, nothing costs less
    policy = HullPolicy(TabularQ(q_r, q_c), np.array([0.0, 1.0]))
    found = evaluate(
        policy,
        finite_spec(decision((0.5, 1.0), (0.0, 1.0))),
        budgets=[0.2, 0.5],
        n_episodes=5,
        seed=0,
    )
    assert found.infeasible_share.tolist() == [1.0, 0.0]


def test_one_episode_has_means_but_no_intervals():
    found = evaluate(
        ScriptedPolicy("corridors/safe"), "corridors", budgets=[0.0], n_episodes=1, seed=0
    )
    assert np.isfinite(found.reward_mean).all()
    assert found.reward_high.tolist() == [np.inf]


def test_progress_is_told_after_every_batch(monkeypatch):
    monkeypatch.setattr(BatchedSlots, "most", 40)
    calls = []
    evaluate(
        ScriptedPolicy("corridors/safe"),
        "corridors",
        budgets=[0.0, 1.0],
        n_episodes=60,
        seed=0,
        progress=lambda *done: calls.append(done),
    )
    assert calls == [(40, 120), (60, 120), (100, 120), (120, 120)]


def test_an_endless_problem_can_be_cut_by_a_limit_of_time():
    known = forever(gamma=0.5)
    policy = allocate_budgets(known.model).policy()
    spec = finite_spec(known, max_episode_steps=40)
    found = evaluate(policy, spec, budgets=[0.0, 1.0, 2.0], n_episodes=1_000, seed=0)
    assert holds(found, "discounted_cost", [0.0, 1.0, 2.0])
    assert holds(found, "discounted_reward", [0.0, 2.0, 4.0])


@pytest.mark.parametrize(
    ("budgets", "message"),
    [
        ([], r"shape \[B\], with at least one budget; got \[0\]"),
        (0.5, r"shape \[B\]"),
        ([[0.5]], r"shape \[B\]"),
        ([0.1, np.nan], r"budgets must be finite; got nan at \[1\]"),
        ([np.inf], "budgets must be finite"),
        ([0.1, -0.1], r"from 0 on .*got -0.1 at \[1\]"),
        (["half"], "real numbers"),
    ],
)
def test_budgets_that_make_no_sense_are_refused(budgets, message):
    with pytest.raises(BudgetError, match=message):
        evaluate(RANDOM, "corridors", budgets=budgets, n_episodes=1, seed=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_episodes": 0}, "n_episodes must be a whole number from 1"),
        ({"n_episodes": 1.5}, "n_episodes must be a whole number"),
        ({"workers": 0}, "workers must be a whole number from 1"),
        ({"max_steps": 0}, "max_steps must be a whole number"),
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"confidence": 1.0}, "confidence must be above 0 and below 1"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    asked = {"budgets": [0.5], "n_episodes": 1, "seed": 0} | settings
    with pytest.raises(ConfigError, match=message):
        evaluate(RANDOM, "corridors", **asked)


@pytest.mark.parametrize(
    ("policy", "env", "message"),
    [
        (
            ScriptedPolicy("slot-filling/key-pad"),
            "corridors",
            r"what bmdp/Corridors-v0 shows, states of shape \[2\] and type float64; "
            "ScriptedPolicy said: these rules read the 26 features",
        ),
        (always(0, 3), "corridors", "HullPolicy said: states must have shape"),
        (  # at its third step only
            always(1, 2),
            finite_spec(ladder(3)),
            r"Textbook-v0 shows, states of shape \[\].* said: states must be from 0 to 1; got 2",
        ),
        (
            RandomBudgetedPolicy(9, 0.0, 1.0),
            "corridors",
            "bmdp/Corridors-v0 has actions 0 to 4; RandomBudgetedPolicy chose [5-8]",
        ),
    ],
)
def test_a_policy_that_does_not_fit_is_told_apart_by_what_both_say(policy, env, message):
    with pytest.raises(PolicyError, match=message):
        evaluate(policy, env, budgets=[0.5], n_episodes=50, seed=0)


def test_an_episode_that_does_not_end_is_an_error():
    spec, policy = finite_spec(forever(gamma=0.5)), always(0, 1)
    with pytest.raises(EnvError, match=r"within max_steps, 20 steps; episode 0 at budget 0.5"):
        evaluate(policy, spec, budgets=[0.5], n_episodes=3, seed=0, max_steps=20)


class Overlong(CorridorsVectorEnv):
    """Says that an episode has 3 steps."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.metadata["horizon"] = 3


def test_an_episode_that_goes_on_after_its_horizon_is_an_error():
    spec = dataclasses.replace(find_spec("corridors"), vector_entry_point=Overlong)
    policy = ScriptedPolicy("corridors/safe")
    with pytest.raises(EnvError, match="within its horizon, 3 steps; episode 0 at budget 0"):
        evaluate(policy, spec, budgets=[0.0], n_episodes=2, seed=0)


def test_costs_that_are_not_numbers_are_an_error():
    policy = RandomBudgetedPolicy(2, 0.0, 1.0)
    with pytest.raises(EnvError, match="Walk-v0 must give a finite cost at every step; got nan"):
        evaluate(policy, walk_spec(cost=np.nan), budgets=[0.5], n_episodes=2, seed=0)


def test_a_policy_that_cannot_be_saved_cannot_travel_to_workers():
    policy = HullPolicy(lambda states: (np.zeros((len(states), 5, 1)),) * 2, np.array([0.5]))
    with pytest.raises(
        PolicyError,
        match=r"several workers need a policy that can be saved.*"
        r"HullPolicy cannot be.*Use workers=1",
    ):
        evaluate(policy, "corridors", budgets=[0.5], n_episodes=2, seed=0, workers=2)


def test_a_worker_that_dies_is_an_error():
    policy, spec = RandomBudgetedPolicy(2, 0.0, 1.0), EnvSpec("Deadly-v0", entry_point=Deadly)
    with pytest.raises(EnvError, match=r"a worker process ended.*if __name__ == '__main__':"):
        evaluate(policy, spec, budgets=[0.5], n_episodes=2, seed=0, workers=2)


class Debtor(RandomBudgetedPolicy):
    """Hands on budgets that it does not take."""

    def choose(self, states, budgets, uniforms):
        return super().choose(states, budgets, uniforms)._replace(next_budget=-1 - budgets)


def test_a_policy_that_hands_on_what_it_does_not_take_is_not_said_to_misfit():
    with pytest.raises(BudgetError, match=r"got -1\.5"):
        evaluate(Debtor(5, 0.0, 1.0), "corridors", budgets=[0.5], n_episodes=20, seed=0)


def test_an_environment_made_on_the_spot_cannot_travel_to_workers():
    walk = walk_spec()
    spec = EnvSpec("Here-v0", entry_point=lambda: walk.make())
    policy = RandomBudgetedPolicy(2, 0.0, 1.0)
    assert evaluate(policy, spec, budgets=[0.5], n_episodes=2, seed=0).env == "Here-v0"
    with pytest.raises(ConfigError, match=r"Here-v0 cannot be handed over.*Use workers=1"):
        evaluate(policy, spec, budgets=[0.5], n_episodes=2, seed=0, workers=2)


def test_evaluations_are_read_only_and_of_one_length():
    found = by_hand([0.0, 1.0], [1.0, 2.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="read-only"):
        found.cost_mean[0] = 1.0
    with pytest.raises(DataError, match=r"Evaluation.cost_mean must have shape \[B\] = \[2\]"):
        dataclasses.replace(found, cost_mean=np.zeros(3))
