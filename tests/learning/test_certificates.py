"""Certificates from logs: estimates near what is exact, bounds that hold, and refusals."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import bmdp
from batches import changed, played
from bmdp import ConfigError, DataError, FiniteBMDP, PolicyError, TransitionBatch, certify
from bmdp.data import EncodedPolicy, Encoder, StateColumn
from bmdp.envs import ScriptedPolicy
from bmdp.evaluation.certificates import marginal_weights, members_of, upper_bounds
from bmdp.exact import budgeted_value_iteration, evaluate_policy
from bmdp.exact.textbook import garnet
from bmdp.policies import (
    CalibratedPolicy,
    HullPolicy,
    MultiplierPolicy,
    Policy,
    PriceDial,
    RandomBudgetedPolicy,
    TabularQ,
)

GAMMA, N_STEPS = 0.9, 4


@cache
def model():
    made = garnet(5, 3, 2, gamma=GAMMA, rng=np.random.default_rng(3))
    tables = {name: getattr(made, name) for name in ("transition", "reward", "cost")}
    return FiniteBMDP(**tables, gamma=GAMMA, horizon=N_STEPS)


def dial(prices=(4.0, 1.0, 0.0)):
    """For each price a policy that looks at one step alone: what it costs is easy to compute."""
    shape = (5, 3, len(prices))
    q_r, q_c = (np.broadcast_to(t[..., None], shape) for t in (model().reward, model().cost))
    return PriceDial(FloatStates(TabularQ(q_r, q_c)), prices)


class FloatStates:
    """Tables that take states as a log has them."""

    def __init__(self, tables):
        self.tables = tables

    def __call__(self, states):
        return self.tables(np.asarray(states)[:, 0].astype(int))


def exact_costs(prices=(4.0, 1.0, 0.0)):
    """Costs of the prices from state 0, by matrix products alone."""
    chances = model().transition.toarray().reshape(5, 3, 5)
    found = []
    for price in prices:
        action = (model().reward - price * model().cost).argmax(axis=1)
        at, total = np.eye(5)[0], 0.0
        for step in range(N_STEPS):
            total += GAMMA**step * at @ model().cost[np.arange(5), action]
            at = at @ chances[np.arange(5), action]
        found.append(total)
    return np.array(found)


@cache
def log(n=600, seed=0):
    batch = played(RandomBudgetedPolicy(3, 0.0, 1.0), model(), n, seed=seed)
    return changed(batch, budget=None, next_budget=None, probability=None)


# Weights, and bounds


def test_marginal_weights_are_the_ratio_of_how_often_states_are_met():
    batch = log(4_000)
    order = np.lexsort((batch.step, batch.episode))
    state, step = batch.state[order, 0].astype(int), batch.step[order]
    action = (model().reward - model().cost).argmax(axis=1)
    ratio = 3.0 * (batch.action[order] == action[state])[:, None]
    cells = (state * N_STEPS + step)[:, None]
    found = marginal_weights(ratio, cells, step >= 0, step == 0, GAMMA, steps=step)
    chances = model().transition.toarray().reshape(5, 3, 5)
    mine, logged = np.eye(5)[0], np.eye(5)[0]
    for t in range(N_STEPS):
        for s in np.flatnonzero(logged > 0.02):
            exact = GAMMA**t * mine[s] / logged[s]
            assert found[(state == s) & (step == t), 0] == pytest.approx(exact, abs=0.15)
        mine, logged = mine @ chances[np.arange(5), action], logged @ chances.mean(axis=1)


def test_weights_that_are_iterated_are_those_of_one_pass_over_the_steps():
    batch = log(300)
    order = np.lexsort((batch.step, batch.episode))
    step = batch.step[order]
    ratio = np.random.default_rng(0).random((len(step), 2))
    cells = (batch.state[order, 0].astype(int) * N_STEPS + step)[:, None]
    asked = (ratio, cells, step >= 0, step == 0, GAMMA)
    np.testing.assert_allclose(
        marginal_weights(*asked), marginal_weights(*asked, steps=step), rtol=1e-9
    )


class Told:
    """Scores of episodes."""

    def __init__(self, costs, parts=None):
        costs = np.asarray(costs, float)[:, None]
        self.told = np.stack((costs, costs), axis=2)
        self.weight = np.ones(costs.shape)
        self.by_parts = np.full((5, 1), costs.mean()) if parts is None else parts


def test_what_was_never_seen_is_bounded_as_a_share_without_a_case():
    found = upper_bounds(Told(np.zeros(200)), 0.05, largest=2.0)
    exact = 2.0 * (1 - 0.05 ** (1 / 200))  # Clopper and Pearson
    assert found.high[0] == pytest.approx(exact, rel=0.01)


def test_a_bound_is_a_students_one_where_episodes_are_many_and_parts_agree():
    costs = np.random.default_rng(0).normal(1.0, 0.5, 10_000)
    found = upper_bounds(Told(costs), 0.05, largest=0.0)
    assert found.high[0] == pytest.approx(costs.mean() + 1.645 * 0.5 / 100, abs=2e-4)


def test_parts_that_disagree_or_drift_raise_the_bound():
    costs = np.random.default_rng(0).normal(1.0, 0.5, 1_000)
    plain = upper_bounds(Told(costs), 0.05, largest=0.0).high[0]
    apart = np.array([[0.5], [1.5], [0.5], [1.5], [1.0]]) + costs.mean() - 1.0
    lower = np.full((5, 1), costs.mean() - 0.3)
    assert upper_bounds(Told(costs, apart), 0.05, largest=0.0).high[0] > plain + 0.2
    assert upper_bounds(Told(costs, lower), 0.05, largest=0.0).high[0] == pytest.approx(
        plain + 0.3 / (5 ** (1 / 3) - 1)
    )


# Policies


def test_prices_are_certified_near_their_exact_costs():
    policy = certify(dial(), log(), gamma=GAMMA)
    promise = policy.certificate
    assert isinstance(policy, CalibratedPolicy)
    off = np.abs(promise.cost_mean - exact_costs())
    assert (off < 0.25 * np.ptp(exact_costs())).all()
    assert (promise.cost_high >= exact_costs()).all()
    assert (promise.outside_share < 0.01).all()
    assert (promise.effective_episodes > 50).all()


@pytest.mark.slow
def test_bounds_hold_as_often_as_they_say():
    held = [
        (certify(dial(), log(300, seed), gamma=GAMMA, seed=seed).certificate.cost_high)
        >= exact_costs()
        for seed in range(100)
    ]
    assert np.mean(np.all(held, axis=1)) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 100)


def test_a_policy_that_hands_budgets_on_is_certified_near_its_exact_costs():
    grid = np.linspace(0.0, 2.0, 11)  # as many as members that are certified
    solved = budgeted_value_iteration(model(), grid, tol=1e-9, max_iterations=50)
    q_r, q_c = solved.q_r[:, :, :], solved.q_c[:, :, :]
    policy = HullPolicy(FloatStates(TabularQ(q_r, q_c)), grid)
    known = HullPolicy(TabularQ(q_r, q_c), grid)
    promise = certify(policy, log(), gamma=GAMMA)
    _, exact = evaluate_policy(model(), known, grid)
    np.testing.assert_allclose(promise.portfolio.budgets, grid)
    assert (promise.certificate.cost_high >= exact[0]).all()
    assert np.abs(promise.certificate.cost_mean - exact[0]).max() < 0.3


def test_a_certificate_is_of_what_a_dial_plays():
    measured = {"costs": [0.1, 0.2, 0.3], "rewards": [1.0, 0.5, 2.0]}  # the second is never played
    policy = MultiplierPolicy(dial(), high=0.3, **measured)
    assert members_of(policy).budgets.tolist() == [0.0, 2.0]


def test_units_of_cost_do_not_matter():
    plain = certify(dial(), log(200), gamma=GAMMA).certificate
    dear = certify(dial(), changed(log(200), cost=1_000 * log(200).cost), gamma=GAMMA).certificate
    np.testing.assert_allclose(dear.cost_high, 1_000 * plain.cost_high, rtol=1e-3)


def test_probabilities_that_were_logged_are_used():
    whole = log(200)
    known = changed(whole, probability=np.full(len(whole), 1 / 3))
    wrong = changed(whole, probability=np.full(len(whole), 1.0))
    plain, told, misled = (
        certify(dial(), batch, gamma=GAMMA).certificate for batch in (whole, known, wrong)
    )
    np.testing.assert_allclose(told.effective_episodes, plain.effective_episodes, rtol=0.1)
    assert (misled.effective_episodes < 0.8 * plain.effective_episodes).all()
    np.testing.assert_allclose(misled.cost_mean, plain.cost_mean, atol=0.05)  # doubly robust


# Logs that know too little


def careful(n=400):
    """Risks are taken where they are free, in state 0; in state 1 they cost 1, and nobody tries."""
    rng = np.random.default_rng(0)
    state, risks = rng.integers(2, size=n), rng.integers(2, size=n)
    action = np.where(state == 0, risks, 0)
    reward, nothing = action.astype(float), np.zeros(n)
    return TransitionBatch(
        state, action, reward, nothing, state, nothing == 0, episode=np.arange(n), n_actions=2
    )


class Always:
    """Values of which one action is the best at all states."""

    def __init__(self, action, n_actions=2):
        self.q_r = np.eye(n_actions)[action][None, :, None]

    def __call__(self, states):
        q_r = np.repeat(self.q_r, len(states), axis=0)
        return q_r, np.zeros_like(q_r)


def test_a_careful_log_does_not_certify_risks_that_nobody_took():
    costs = {"cost": np.arange(400) % 40 == 0}  # of something else
    with pytest.raises(DataError, match=r"certifies no budget.* It needs about .* episodes"):
        certify(PriceDial(Always(1), [0.0]), changed(careful(), **costs), gamma=1.0)
    safe = certify(PriceDial(Always(0), [0.0]), changed(careful(), **costs), gamma=1.0)
    assert 0.025 < safe.certificate.cost_high[0] < 0.15


def test_a_log_without_costs_does_not_say_how_bad_it_may_be():
    with pytest.raises(DataError, match=r"no row of the log has a cost.* give worst_cost"):
        certify(PriceDial(Always(0), [0.0]), careful(), gamma=1.0)
    safe = certify(PriceDial(Always(0), [0.0]), careful(), gamma=1.0, worst_cost=1.0)
    assert 3 / 400 <= safe.certificate.cost_high[0] < 0.03  # never seen in 400 episodes


def test_an_action_that_was_never_taken_is_not_certified():
    batch = changed(careful(), action=np.zeros(400, int), cost=np.arange(400) % 40 == 0)
    batch = TransitionBatch(**batch.to_arrays(), n_actions=3)
    with pytest.raises(DataError, match="certifies no budget"):
        certify(PriceDial(Always(2, 3), [0.0]), batch, gamma=1.0)


def test_members_of_whom_the_log_knows_too_little_are_left_out():
    class Both(Always):
        def __call__(self, states):
            parts = [Always(action)(states)[0] for action in (0, 1)]
            q_r = np.concatenate(parts, axis=2)
            return q_r, np.zeros_like(q_r)

    costs = (np.random.default_rng(1).random(400) < 0.1).astype(float)
    found = certify(PriceDial(Both(0), [1.0, 0.0]), changed(careful(), cost=costs), gamma=1.0)
    assert found.portfolio.budgets.tolist() == [0.0]
    assert (found.certificate.n_members, found.certificate.n_refused) == (1, 1)
    assert "too little about them: 1. Seed 0." in str(found.certificate)


def test_a_certificate_says_what_it_rests_on():
    safe = certify(PriceDial(Always(0), [0.0]), careful(), gamma=1.0, worst_cost=1.5).certificate
    promise, scope, effort = str(safe).splitlines()
    assert promise.endswith("an episode costs at most the budget on average (discount 1).")
    assert "like those of the log, if none costs more than 1.5 from any step to its end." in scope
    assert effort.startswith("Checked with 400 logged episodes; for the cheapest of 1 members")
    promise, scope, _ = str(replace(safe, episode_limit=2.0)).splitlines()
    assert promise.endswith("the chance that an episode costs more than 2 is at most the budget.")
    assert "like those of the log. It does not cover" in scope  # no chance is above 1


def test_an_episode_that_is_cut_off_may_cost_the_worst():
    whole = log(200)
    order = np.lexsort((whole.step, whole.episode))
    whole = whole.take(order)
    short = whole.take(whole.step < 2)
    cut = changed(short, truncated=(short.step == 1) & (short.episode % 3 > 0))
    certify(dial(), whole, gamma=GAMMA, worst_cost=5.0)
    with pytest.raises(
        DataError, match=r"8.% of the episodes come to a decision that the log does"
    ):
        certify(dial(), cut, gamma=GAMMA, worst_cost=5.0)


# Use


def test_a_certified_policy_is_saved_and_loaded_with_its_promise(tmp_path):
    fitted = bmdp.fit(log(200), gamma=GAMMA)
    policy = certify(fitted.policy, log(300, 1), gamma=GAMMA)
    policy.save(tmp_path / "safe")
    loaded = bmdp.load_policy(tmp_path / "safe")
    assert str(loaded.certificate) == str(policy.certificate)
    assert "from a log: at every budget from" in str(policy.certificate)
    smallest = policy.certificate.smallest_budget
    tracker = loaded.start([[0.0]] * 2, [0.0, 2 * smallest], np.random.default_rng(0))
    assert tracker.decide([[0.0]] * 2).status.tolist()[0] == bmdp.BudgetStatus.INFEASIBLE


def test_a_policy_that_takes_text_has_the_promise_of_the_one_inside():
    encoder = Encoder((StateColumn("state", "numbers"),), actions=("wait", "go", "run"))
    assert EncodedPolicy(dial(), encoder).certificate is None
    safe = certify(EncodedPolicy(dial(), encoder), log(), gamma=GAMMA)
    assert safe.certificate is safe.policy.certificate
    known = certify(dial(), log(), gamma=GAMMA).certificate
    np.testing.assert_array_equal(safe.certificate.cost_high, known.cost_high)


def test_progress_is_told():
    told = []
    certify(dial(), log(200), gamma=GAMMA, progress=lambda done, n: told.append((done, n)))
    assert told[0][0] == 0
    assert told[-1] == (7, 7)


def test_the_same_seed_gives_the_same_certificate():
    one, other = (certify(dial(), log(200), gamma=GAMMA, seed=4).certificate for _ in range(2))
    np.testing.assert_array_equal(one.cost_high, other.cost_high)


# Bad input


class Whole(Policy):
    """A policy that says nothing of its single steps."""

    budget_range = (0.0, 1.0)

    def start(self, states, budgets, rng):
        raise AssertionError("no episode is played")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"gamma": 1.5}, ConfigError, "gamma must be"),
        ({"confidence": 1.0}, ConfigError, "confidence must be"),
        ({"worst_cost": -1.0}, ConfigError, "worst_cost must be"),
        ({"worst_cost": 0.0}, ConfigError, "worst_cost must be above 0"),
        ({"batch": "log.parquet"}, DataError, "batch must be a TransitionBatch; got 'log"),
        ({"policy": ScriptedPolicy("slot-filling/key-pad")}, PolicyError, "no `options`"),
        ({"policy": Whole()}, PolicyError, "one-step form.* Whole has neither"),
        ({"policy": "policy"}, ConfigError, "policy must be a BudgetedPolicy; got 'policy'"),
    ],
)
def test_bad_settings_are_named(change, error, words):
    asked = {"policy": dial(), "batch": log(200), "gamma": GAMMA} | change
    with pytest.raises(error, match=words):
        certify(asked.pop("policy"), asked.pop("batch"), **asked)


def test_a_log_of_few_episodes_is_refused():
    with pytest.raises(DataError, match="at least 100 episodes; the log has 60"):
        certify(dial(), log(60), gamma=GAMMA)


def test_a_log_without_episodes_is_refused():
    shuffled = log(200).take(np.random.default_rng(0).permutation(len(log(200))))
    bare = changed(shuffled, episode=None, step=None)
    with pytest.raises(DataError, match="episodes and steps are known"):
        certify(dial(), bare, gamma=GAMMA)


def test_episodes_with_gaps_are_refused():
    with pytest.raises(DataError, match="whole episodes"):
        certify(dial(), log(200).take(log(200).step != 1), gamma=GAMMA)
