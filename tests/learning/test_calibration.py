import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec, WrapperSpec

import bmdp
from bmdp import BudgetError, BudgetStatus, ConfigError, DataError, FiniteBMDP, PolicyError
from bmdp.envs import CostFunction, ScriptedPolicy
from bmdp.envs.slots import find_spec, open_slots
from bmdp.evaluation import (
    bernstein_interval,
    bounded_interval,
    calibrate,
    evaluate,
    share_interval,
)
from bmdp.evaluation import calibration as calibration_module
from bmdp.evaluation.calibration import Bounds, upper_means
from bmdp.exact import budgeted_value_iteration, evaluate_policy
from bmdp.exact.textbook import TextbookProblem, branches, forever, ladder
from bmdp.policies import Certificate, Portfolio, PricedPolicy, RandomBudgetedPolicy
from problems import Walk, always, finite_spec, walk_spec

SOME = {"confidence": 0.95, "n_episodes": 20, "seed": 0}
RULES = [ScriptedPolicy(f"slot-filling/{rule}") for rule in ("voice-again", "key-pad")]
SAFE = ScriptedPolicy("corridors/safe")
RISKY = ScriptedPolicy("corridors/risky")
ANY = RandomBudgetedPolicy(2, 0.0, 1.0)
WILD = RandomBudgetedPolicy(5, 0.0, 1.0)
GRID = np.linspace(0.0, 0.45, 4)


def hazard():
    """One decision: the more an action pays, the more often a cost of 1 follows at the next step.

    Discounted, an episode costs 0 or 0.9.
    """
    chances = np.array([0.02, 0.2, 0.5])
    transition = np.zeros((3, 3, 3))
    transition[0, :, 1], transition[0, :, 2], transition[1, :, 2] = chances, 1 - chances, 1
    model = FiniteBMDP(
        transition=transition,
        reward=[[0.0, 5.0, 8.0], [0.0] * 3, [0.0] * 3],
        cost=[[0.0] * 3, [1.0] * 3, [0.0] * 3],
        gamma=0.9,
        terminal=[False, False, True],
    )
    return TextbookProblem(model, 0, None)


HAZARD = finite_spec(hazard())
DIAL = budgeted_value_iteration(hazard().model, GRID, tol=1e-9, max_iterations=100).policy()
TRUE_COSTS = evaluate_policy(hazard().model, DIAL, GRID)[1][0]  # [4], of the inner budgets


def n_broken_promises(n_calibrations, **settings):
    """How many of many calibrations cost more than a budget, by the exact costs of members."""
    n_broken = 0
    for seed in range(n_calibrations):
        policy = calibrate(
            DIAL,
            HAZARD,
            budgets=GRID,
            confidence=0.95,
            n_episodes=150,
            seed=seed,
            cost_range=(0.0, 0.9),
            **settings,
        )
        asked = np.linspace(policy.certificate.smallest_budget, policy.budget_range[1], 21)
        mixed = policy.portfolio.mixtures(asked)
        low, high = TRUE_COSTS[mixed.lower], TRUE_COSTS[mixed.upper]
        n_broken += bool((low + mixed.p_upper * (high - low) > asked + 1e-12).any())
    return n_broken


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(
    ("n_calibrations", "most"), [(120, 12), pytest.param(400, 31, marks=pytest.mark.slow)]
)
def test_promises_are_broken_as_rarely_as_the_confidence_says(n_calibrations, most, binary):
    """Of 400 at 95 %, 20 may be on average: more than 31 is 2.5 deviations too many.

    Of 120 it is 6, and more than 12.
    """
    assert n_broken_promises(n_calibrations, binary_costs=binary) <= most


def test_without_bounds_promises_are_broken_most_of_the_time(monkeypatch):
    monkeypatch.setattr(
        calibration_module, "upper_means", lambda samples, bounds, chance: samples.mean(axis=1)
    )
    assert n_broken_promises(60) > 30


def test_what_was_promised_is_seen_when_it_is_played():
    policy = calibrate(DIAL, HAZARD, confidence=0.95, n_episodes=2_000, seed=1, cost_range=(0, 0.9))
    asked = [policy.certificate.smallest_budget, 0.2, 0.4]
    found = evaluate(policy, HAZARD, budgets=asked, n_episodes=20_000, seed=1)
    assert (found.discounted_cost_high <= asked).all()
    assert (found.discounted_cost_mean >= np.array(asked) - 0.05).all()
    assert found.discounted_reward_mean[1] > 4
    assert (found.infeasible_share == 0).all()


def test_below_the_smallest_budget_it_says_so_and_plays_the_cheapest_member():
    policy = calibrate(RULES, "slot-filling", **SOME)
    states = open_slots(find_spec("slot-filling")).reset([0, 1, 2])
    least = policy.certificate.smallest_budget
    rng = np.random.default_rng(0)
    below, at = (policy.start(states, b, rng).decide(states) for b in (least - 1e-9, least))
    assert (below.status == BudgetStatus.INFEASIBLE).all()
    assert (at.status == BudgetStatus.TIGHT).all()
    assert below.action.tolist() == at.action.tolist() == [1, 1, 1]  # asks by voice


def test_binary_costs_are_bounded_by_clopper_and_pearson():
    found = calibrate(RULES, "slot-filling", confidence=0.95, n_episodes=500, seed=3).certificate
    assert (found.cost_range, found.binary_costs) == ((0.0, 1.0), True)
    hits = 500 * found.cost_mean
    wanted = share_interval(hits, 500, confidence=0.9, n_together=2)  # upper ends at 95 % together
    assert found.cost_high == pytest.approx(wanted.high)


def test_costs_that_were_not_seen_are_bounded_all_the_same():
    found = calibrate(SAFE, "corridors", **SOME).certificate
    assert found.cost_mean.tolist() == [0.0]
    assert found.smallest_budget == pytest.approx(9 / 8 * (1 - (0.05 / 2) ** (1 / 20)))
    assert found.n_members == 1


def test_other_costs_are_bounded_by_the_better_of_two_bounds():
    few, many = np.zeros((1, 20)), np.tile([0.4, 0.5], (1, 20_000))
    for samples, bound in ((few, bounded_interval), (many, bernstein_interval)):
        found = upper_means(samples, Bounds(0.0, 1.0), chance=0.02)
        settings = {"lowest": 0.0, "highest": 1.0, "confidence": 0.98}
        other = ({bounded_interval, bernstein_interval} - {bound}).pop()
        assert found == bound(samples, **settings).high
        assert found < other(samples, **settings).high


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("p", [0.01, 0.3, 0.9])
def test_one_bound_fails_as_rarely_as_it_should(p, binary):
    samples = -2.0 + 5 * (np.random.default_rng(0).random((20_000, 60)) < p)
    high = upper_means(samples, Bounds(-2.0, 3.0, binary), chance=0.1)
    assert (high < -2.0 + 5 * p).mean() < 0.1 + 4.5 * np.sqrt(0.1 * 0.9 / 20_000)


@pytest.mark.parametrize("chance", [0.4, 0.6, 0.99])
def test_a_small_confidence_is_no_error(chance):
    high = upper_means(np.zeros((1, 10)), Bounds(0.0, 1.0, True), chance=chance)
    assert 0 < high[0] <= 1


def test_rewards_are_means_unless_their_range_is_known():
    plain, bounded = (
        calibrate(RULES, "slot-filling", confidence=0.9, n_episodes=400, seed=0, reward_range=r)
        for r in (None, (0.0, 100.0))
    )
    assert (plain.certificate.reward_low == -np.inf).all()
    assert plain.portfolio.rewards.tolist() == plain.certificate.reward_mean.tolist()
    assert plain.certificate.reward_mean.tolist() == bounded.certificate.reward_mean.tolist()
    assert (bounded.certificate.reward_low < bounded.certificate.reward_mean).all()
    assert bounded.portfolio.rewards.tolist() == bounded.certificate.reward_low.tolist()
    assert (bounded.certificate.cost_high > plain.certificate.cost_high).all()  # half of the risk


def test_the_truth_of_rewards_is_above_their_bounds():
    settings = {"n_episodes": 100, "confidence": 0.8, "reward_range": (0.0, 100.0)}
    lows = [
        calibrate(RULES[1], "slot-filling", seed=s, **settings).certificate.reward_low[0]
        for s in range(50)
    ]
    assert (np.array(lows) > 100 * 0.75**3).mean() <= 0.2


def test_members_are_all_policies_at_all_inner_budgets():
    dial = RandomBudgetedPolicy(5, 0.1, 0.7)
    policy = calibrate([dial, SAFE, dial], "corridors", **SOME | {"n_episodes": 2})
    members = policy.portfolio
    assert members.policies == (dial, SAFE)
    assert members.which.tolist() == [0] * 11 + [1]
    assert members.budgets[:11] == pytest.approx(np.linspace(0.1, 0.7, 11))


def test_inner_budgets_are_brought_into_the_range_of_each_policy():
    dials = [RandomBudgetedPolicy(5, 0.0, 0.4), RandomBudgetedPolicy(5, 0.2, 1.0)]
    policy = calibrate(dials, "corridors", budgets=[0.9, 0.1, 0.5], **SOME)
    assert policy.portfolio.which.tolist() == [0, 0, 1, 1, 1]
    assert policy.portfolio.budgets.tolist() == [0.1, 0.4, 0.2, 0.5, 0.9]


def test_policies_without_a_dial_say_so():
    assert not ScriptedPolicy.has_dial
    assert not PricedPolicy.has_dial
    assert Portfolio.has_dial


def test_members_are_played_as_they_would_be_alone():
    alone = calibrate(RULES[1], "slot-filling", **SOME).certificate
    both = calibrate(RULES, "slot-filling", **SOME).certificate
    assert both.cost_mean[1] == alone.cost_mean[0]  # the same seeds of the environment


def test_episodes_are_others_than_those_of_an_evaluation_with_the_same_seed():
    found = calibrate(RULES[1], "slot-filling", confidence=0.9, n_episodes=5_000, seed=0)
    seen = evaluate(RULES[1], "slot-filling", budgets=[0.0], n_episodes=5_000, seed=0)
    assert found.certificate.cost_mean[0] != seen.cost_mean[0]


def test_workers_find_the_same():
    one, two = (calibrate(RULES[1], "slot-filling", workers=w, **SOME) for w in (1, 2))
    assert one.certificate.cost_high.tolist() == two.certificate.cost_high.tolist()
    assert one.certificate.reward_mean.tolist() == two.certificate.reward_mean.tolist()


def test_progress_counts_episodes_of_all_members():
    told = []
    calibrate(RULES, "slot-filling", progress=lambda *now: told.append(now), **SOME)
    assert told == [(20, 40), (40, 40)]


def test_it_is_saved_and_loaded_with_its_certificate(tmp_path):
    policy = calibrate(RULES, "slot-filling", **SOME)
    policy.save(tmp_path / "policy")
    loaded = bmdp.load_policy(tmp_path / "policy")
    assert str(loaded.certificate) == str(policy.certificate)
    assert loaded.certificate.reward_low.tolist() == [-np.inf, -np.inf]
    one, other = (
        evaluate(p, "slot-filling", budgets=[0.1, 0.5], n_episodes=200, seed=0)
        for p in (policy, loaded)
    )
    assert one.discounted_cost_mean.tolist() == other.discounted_cost_mean.tolist()


def test_the_certificate_says_what_is_promised_and_for_what():
    spec = spec_of(find_spec("two-way"), vehicles=6)
    policy = calibrate(ScriptedPolicy("two-way/slow"), spec, **SOME)
    promise, scope, effort = str(policy.certificate).splitlines()
    least = policy.certificate.smallest_budget
    assert promise.startswith(f"Promised with confidence 0.95: at every budget from {least:.4g} on")
    assert 'start like those of bmdp/TwoWay-v0 with settings {"vehicles": 6}' in scope
    assert "if each costs from 0 to 1.06667" in scope
    assert "not cover a budget that is changed in the middle of an episode" in scope
    assert effort == "Checked with 20 episodes of each of 1 members. Seed 0."


def spec_of(spec, **settings):
    return EnvSpec(
        spec.id,
        entry_point=spec.entry_point,
        vector_entry_point=spec.vector_entry_point,
        kwargs=settings,
    )


def test_settings_that_are_no_json_are_named_by_their_type():
    policy = calibrate(DIAL, HAZARD, cost_range=(0.0, 1.0), **SOME)
    assert policy.certificate.settings == '{"model": "<FiniteBMDP>", "start": 0}'
    limited = walk_spec(longest=np.int64(3))
    limited.max_episode_steps = 2
    found = calibrate(ANY, limited, budgets=[0.5], cost_range=(0.0, 2.0), **SOME).certificate
    assert found.settings == '{"longest": 3, "max_episode_steps": 2}'


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        ("corridors", {}),
        ("corridors", {"height": 4, "horizon": 12}),
        ("corridors", {"routes": 3}),
        ("slot-filling", {"hang_up": 0.9}),
        ("two-way", {}),
        ("two-way", {"crash_cost": 0.0}),
    ],
)
def test_no_episode_leaves_the_range_that_a_task_has(env, settings):
    spec = spec_of(find_spec(env), **settings)
    slots = open_slots(spec)
    dial = RandomBudgetedPolicy(int(slots.action_space.n), 0.0, 1.0)
    found = calibrate(dial, spec, budgets=[0.5], confidence=0.9, n_episodes=2_000, seed=0)
    assert found.certificate.cost_range == tuple(slots.metadata["cost_range"])
    assert 0 <= found.certificate.cost_mean[0] < found.certificate.cost_range[1]


def test_the_ranges_of_tasks_are_what_their_rules_allow():
    said = {name: open_slots(find_spec(name)).metadata["cost_range"] for name in bmdp.envs.ENV_IDS}
    assert said["corridors"] == (0.0, 9 / 8)
    assert said["slot-filling"] == (0.0, 1.0)
    assert said["two-way"] == (0.0, pytest.approx(1 + 1 / 15))
    all_lane = (1 - 0.9**15) / (1 - 0.9) / 15  # without a price on crashes
    free = open_slots(spec_of(find_spec("two-way"), crash_cost=0.0))
    assert free.metadata["cost_range"] == (0.0, pytest.approx(all_lane))


def test_the_range_of_a_finite_model_is_that_of_all_its_steps():
    def said(model):
        return open_slots(finite_spec(TextbookProblem(model, 0, None))).metadata["cost_range"]

    def model(**changes):
        settings = {"transition": np.ones((1, 2, 1)), "reward": [[0.0, 1.0]], "gamma": 0.5}
        return FiniteBMDP(**settings | {"cost": [[-1.0, 3.0]]} | changes)

    assert said(model()) == (-2.0, 6.0)
    assert said(model(horizon=2)) == (-1.5, 4.5)
    assert said(model(cost=[[1.0, 3.0]], gamma=1.0, horizon=4)) == (0.0, 12.0)
    assert said(forever().model) == (0.0, pytest.approx(10.0))
    assert said(ladder(3).model) is None


def test_an_environment_without_costs_has_budgets_that_cost_nothing():
    model = FiniteBMDP(
        transition=np.ones((1, 2, 1)), reward=[[0.0, 1.0]], cost=[[0, 0]], gamma=1.0, horizon=3
    )
    policy = calibrate(always(1, 1), finite_spec(TextbookProblem(model, 0, None)), **SOME)
    assert (policy.certificate.cost_high == 0).all()
    assert policy.budget_range == (0.0, 0.0)


class Dearer(gymnasium.Wrapper):
    """Doubles costs, and says nothing of it."""

    def step(self, action):
        *answer, info = self.env.step(action)
        return *answer, {**info, "cost": 2 * info["cost"]}


def test_what_an_environment_says_of_costs_does_not_count_in_a_wrapper():
    unwrapped = finite_spec(hazard(), batched=False)
    assert open_slots(unwrapped).metadata["cost_range"] == (0.0, pytest.approx(10))
    wrapped = finite_spec(
        hazard(), additional_wrappers=(WrapperSpec("Dearer", f"{__name__}:Dearer", {}),)
    )
    assert open_slots(wrapped).facts.gamma == 0.9
    assert open_slots(wrapped).metadata == {}
    own = EnvSpec("Own-v0", entry_point=lambda: CostFunction(gymnasium.make("CartPole-v1"), abs))
    assert open_slots(own).metadata == {}


def test_an_environment_of_others_may_say_what_an_episode_can_cost():
    class Sure(Walk):
        metadata = {"cost_range": (0, 5), "render_modes": []}  # noqa: RUF012

    found = calibrate(ANY, EnvSpec("Sure-v0", entry_point=Sure), budgets=[0.5], **SOME)
    assert found.certificate.cost_range == (0.0, 5.0)
    assert not found.certificate.binary_costs


@pytest.mark.parametrize(
    ("policies", "env", "changes", "error", "message"),
    [
        (SAFE, "corridors", {"confidence": 0.0}, ConfigError, "confidence must be above 0"),
        (SAFE, "corridors", {"confidence": 1.0}, ConfigError, "confidence must be above 0"),
        (SAFE, "corridors", {"n_episodes": 0}, ConfigError, "n_episodes must be a whole number"),
        (SAFE, "corridors", {"workers": 0}, ConfigError, "workers must be a whole number"),
        (SAFE, "corridors", {"seed": -1}, ConfigError, "seed must be a whole number from 0"),
        (SAFE, "corridor", {}, ConfigError, "Did you mean 'corridors'"),
        ([], "corridors", {}, ConfigError, "policies must hold at least one policy"),
        (ANY, "corridors", {"budgets": []}, BudgetError, "with at least one budget"),
        (ANY, "corridors", {"budgets": [np.nan]}, BudgetError, "budgets must be finite"),
        (RULES[0], "corridors", {}, PolicyError, "cannot act on what bmdp/Corridors-v0 shows"),
        (ANY, walk_spec(), {}, ConfigError, "cost_range must be given: the metadata of Walk-v0"),
        (always(1, 4), finite_spec(branches()), {}, ConfigError, "cost_range must be given"),
        (
            RISKY,
            "corridors",
            {"cost_range": (0, 0.5)},
            DataError,
            r"the cost of an episode must be from 0 to 0.5 \(cost_range\); got 1.* at episode",
        ),
        (
            WILD,
            "corridors",
            {"binary_costs": True},
            DataError,
            r"must be 0 or 1.125, as costs are said to be binary \(cost_range\); got",
        ),
        (
            SAFE,
            "corridors",
            {"reward_range": (0, 1)},
            DataError,
            r"the reward of an episode must be from 0 to 1 \(reward_range\); got",
        ),
        (SAFE, "corridors", {"cost_range": (1, 0)}, ConfigError, "cost_range must have the lower"),
        (SAFE, "corridors", {"cost_range": (0, np.inf)}, ConfigError, "two finite numbers"),
        (SAFE, "corridors", {"reward_range": 3}, ConfigError, "reward_range must be"),
    ],
)
def test_what_makes_no_sense_is_refused(policies, env, changes, error, message):
    with pytest.raises(error, match=message) as caught:
        calibrate(policies, env, **SOME | changes)
    assert "\n" not in str(caught.value)


def test_a_certificate_belongs_to_its_portfolio():
    policy = calibrate(RULES, "slot-filling", **SOME)
    other = calibrate(RULES[0], "slot-filling", **SOME)
    with pytest.raises(ConfigError, match="must be certificate"):
        bmdp.policies.CalibratedPolicy(policy.portfolio, other.certificate)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cost_high": np.zeros(3)}, r"cost_high must have shape \[K\] = \[2\]; got \[3\]"),
        ({"cost_mean": np.zeros(0)}, "at least one member"),
    ],
)
def test_a_certificate_has_one_number_for_each_member(changes, message):
    values = dict.fromkeys(("cost_mean", "cost_high", "reward_mean", "reward_low"), np.zeros(2))
    with pytest.raises(DataError, match=message):
        Certificate(0.9, 1, 0, "Any-v0", "{}", 1.0, (0.0, 1.0), False, **values | changes)
