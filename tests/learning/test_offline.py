"""Evaluation by logged episodes: near what is exact, with intervals that hold as often as said."""

import sys
from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

import bmdp
from batches import changed, fraction_model, played
from bmdp import BudgetError, ConfigError, DataError, FiniteBMDP, PolicyError, TransitionBatch
from bmdp.evaluation import OfflineEvaluation, evaluate_offline, mean_interval
from bmdp.evaluation.offline import (
    Weighted,
    interval_ends,
    logged_episodes,
    weighted_episodes,
    with_probabilities,
)
from bmdp.exact import budgeted_value_iteration, evaluate_policy
from bmdp.learn import (
    Backward,
    BFTQConfig,
    EnvConfig,
    Exploration,
    TrainingSpec,
    collect,
    explore,
    fitted_evaluation,
)
from bmdp.models import KernelModel, TableModel
from bmdp.policies import (
    ExploringPolicy,
    HullPolicy,
    MultiplierPolicy,
    PriceDial,
    RandomBudgetedPolicy,
    TabularQ,
)
from bmdp.policies.policy import Options
from bmdp.policies.portfolio import Portfolio
from problems import FloatTable

GRID = np.linspace(0, 2, 11)
ASKED = [0.2, 0.6, 1.0]
FITTED = {"method": "fitted", "model": TableModel(), "n_budgets": 11, "device": "cpu"}
IMPORTANCE = {"method": "importance"}

ROBUST = FITTED | {"method": "doubly-robust"}

both_methods = pytest.mark.parametrize("method", [FITTED, IMPORTANCE], ids=["fitted", "importance"])
all_methods = pytest.mark.parametrize(
    "method", [FITTED, IMPORTANCE, ROBUST], ids=["fitted", "importance", "doubly-robust"]
)


# Logs whose probabilities are known


def uniform_log(model, n, *, seed):
    """Episodes of random actions: whatever its budget, this policy plays all alike."""
    policy = RandomBudgetedPolicy(model.n_actions, 0.0, 2.0)
    batch = played(policy, model, n, seed=seed)
    return changed(batch, probability=np.full(len(batch), 1 / model.n_actions))


def probabilities(policy, batch):
    """Of logged actions, under a policy that made the log: at the budgets that it held."""
    found = np.empty(len(batch))
    for step in np.unique(batch.step):
        rows = batch.step == step
        options = policy.at_step(step).options(batch.state[rows], batch.budget[rows])
        same = options.action == batch.action[rows, None]
        found[rows] = np.where(same, options.probability, 0.0).sum(axis=1)
    return found


# Problems whose answer is known


@cache
def solved(seed, horizon):
    """A model of four states, and the policy that counts its steps."""
    model = fraction_model(seed, 0.9, horizon=horizon)
    return model, HullPolicy(FloatTable(*budgeted_value_iteration(model, GRID).stages), GRID)


MODEL, POLICY = solved(1, 3)
LOG = uniform_log(MODEL, 30, seed=0)


def truth(model, policy):
    """Reward and cost from state 0 at the budgets that are asked, `[2, B]`."""
    values = evaluate_policy(model, policy, GRID)
    return np.stack([of_states[0, [1, 3, 5]] for of_states in values])


def ends(found):
    return (
        np.stack([found.reward_low, found.cost_low]),
        np.stack([found.reward_high, found.cost_high]),
    )


def means(found):
    return np.stack([found.reward, found.cost])


def covers(found, values):
    low, high = ends(found)
    return (low <= values + 1e-9) & (values - 1e-9 <= high)


def then_risk():
    """Two steps, where the second budget tells which first action was taken.

    At state 0, budget b means: action 1 with probability b, which hands on 1, else action 0, which
    hands on 0. Action 0 leads to state 1, action 1 to state 2. There, budget 0 is action 0, and
    budget 1 is action 1, which earns 10 at state 1, and 1 at state 2, and costs 1.
    """
    transition = np.zeros((4, 2, 4))
    transition[0, 0, 1] = transition[0, 1, 2] = 1
    transition[1:, :, 3] = 1
    reward, cost = np.zeros((2, 4, 2))
    reward[1, 1], reward[2, 1], cost[1:3, 1] = 10, 1, 1
    model = FiniteBMDP(
        transition=transition,
        reward=reward,
        cost=cost,
        gamma=0.5,
        terminal=np.arange(4) == 3,
    )
    q_r = np.full((4, 2, 2), -9.0)
    q_c = np.ones((4, 2, 2))
    q_r[:, 0, 0], q_c[:, 0, 0] = 0, 0
    q_r[:, 1, 1] = 1
    return model, HullPolicy(FloatTable(q_r, q_c), np.array([0.0, 1.0]))


# Against exact values


@all_methods
@pytest.mark.parametrize("seed", [1, 2])
def test_intervals_of_many_episodes_are_narrow_and_cover_what_is_exact(method, seed):
    """Six numbers, each with confidence 0.999: one of 18 fails with probability 0.018, at most."""
    model, policy = solved(seed, 3)
    log = uniform_log(model, 4000, seed=seed)
    settings = method | {"n_bootstrap": 30 if method is FITTED else 300}
    found = evaluate_offline(
        policy, log, gamma=0.9, budgets=ASKED, confidence=0.999, seed=0, **settings
    )
    assert covers(found, truth(model, policy)).all()
    low, high = ends(found)
    assert (high - low < 0.25).all()
    assert (found.n_episodes, found.n_transitions) == (4000, len(log))


@all_methods
def test_costs_may_have_a_discount_of_their_own(method):
    model, policy = solved(1, 3)
    other = fraction_model(1, 0.9, horizon=3, cost_gamma=0.2)
    found = evaluate_offline(
        policy,
        uniform_log(model, 4000, seed=5),
        **{"gamma": 0.9, "cost_gamma": 0.2, "budgets": ASKED, "seed": 0},
        **method | {"n_bootstrap": 30, "confidence": 0.999},
    )
    assert covers(found, truth(other, policy)).all()
    plain = truth(model, policy)[1]
    assert (np.abs(plain - found.cost) > 2 * (found.cost_high - found.cost_low)).any()


@pytest.mark.parametrize("n_paths", [1, 8])
def test_the_next_budget_is_drawn_given_the_logged_action(n_paths):
    """Drawn whatever was logged, rewards at budget 0.5 would be 0.5 * 2.75 rather than 0.5 * 0.5.

    What is logged is a coin at each step, so 2,000 episodes have a deviation of 0.02.
    """
    model, policy = then_risk()
    log = uniform_log(model, 2000, seed=0)
    found = evaluate_offline(
        policy,
        log,
        **{"gamma": 0.5, "budgets": [0.0, 0.5, 1.0], "seed": 1, "n_bootstrap": 0},
        **{"method": "importance", "n_paths": n_paths},
    )
    values = evaluate_policy(model, policy, np.array([0.0, 1.0]))
    exact = [np.interp([0.0, 0.5, 1.0], [0.0, 1.0], of_states[0]) for of_states in values]
    np.testing.assert_allclose(exact, 0.5 * np.array([[0.0, 0.5, 1.0]] * 2))
    np.testing.assert_allclose(means(found), exact, atol=0.06)


def every_path(policy, batch, rows, budget):
    """Weight of an episode after each of its steps, by all paths of budgets."""
    paths, weights = [(budget, 1.0)], []
    for row in rows:
        following = []
        for held, weight in paths:
            now = policy.at_step(batch.step[row])
            options = now.options(batch.state[[row]], np.array([held]))
            for action, next_budget, p in zip(*(column[0] for column in options), strict=True):
                if action == batch.action[row]:
                    following.append((next_budget, weight * p / batch.probability[row]))
        paths = following
        weights.append(sum(weight for _, weight in paths))
    return weights


def mixing(n_steps):
    """A policy with up to two options at each of so many steps, some of the same action."""
    q_r, q_c = np.random.default_rng(0).random((2, n_steps, 4, 3, 11))
    return HullPolicy(FloatTable(q_r, 2 * q_c), GRID)


def test_weights_are_those_of_all_paths_and_stay_when_an_episode_ends():
    """A weight on a path is up to 81, and half so if it has a choice: a deviation of 0.3, or less.

    That is of 20,000 paths. Most weights have much less.
    """
    model, _ = solved(1, 4)
    policy = mixing(n_steps=4)
    log = uniform_log(model, 120, seed=3)
    episodes = logged_episodes(log, needs_steps=True)
    budgets = np.array([0.3, 0.7])
    settings = {"discounts": (0.9, 0.5), "n_paths": 20_000, "seed": 0}
    found = weighted_episodes(policy, episodes, budgets=budgets, **settings)
    rows = [np.flatnonzero(log.episode == k) for k in range(120)]
    wanted, paid = np.zeros((2, 120, 4)), np.zeros((2, 120, 4))
    for k, own in enumerate(rows):
        paid[:, k, : len(own)] = log.reward[own], log.cost[own]
        for b, budget in enumerate(budgets):
            weights = every_path(policy, log, own, budget)
            wanted[b, k] = weights + weights[-1:] * (4 - len(own))
    np.testing.assert_allclose(found.weight, wanted, atol=0.1, rtol=0.05)
    discounts = np.array([[[0.9]], [[0.5]]]) ** np.arange(4)
    np.testing.assert_allclose(found.paid, paid * discounts)
    assert len({len(own) for own in rows}) > 2
    assert ((wanted > 0).sum(axis=1) > 10).all()


class Forgetful:
    """Action 0 always at budget 0, and half of the time at 1; next budgets are 0 or 1 by a coin."""

    budget_range = (0.0, 1.0)

    def at_step(self, step):
        return self

    def options(self, states, budgets):
        rest = np.where(budgets == 0, 0.0, 0.5)
        shape = (len(states), 1)
        action, following = np.tile([0, 0, 1], shape), np.tile([0.0, 1.0, 0.0], shape)
        return Options(action, following, np.column_stack([(1 - rest) / 2, (1 - rest) / 2, rest]))


def test_budgets_of_one_step_are_drawn_independently_of_the_step_before():
    """A weight is 1, then 1.5 on average, then 1.5 * 1.5; if a coin were kept, (1 + 4) / 2."""
    log = TransitionBatch(
        **{"state": np.zeros(3), "action": [0, 0, 0], "reward": np.ones(3), "cost": np.ones(3)},
        **{"next_state": np.zeros(3), "terminal": [0, 0, 1], "probability": np.full(3, 0.5)},
        **{"episode": np.zeros(3, int), "step": np.arange(3), "n_actions": 2},
    )
    episodes = logged_episodes(log, needs_steps=True)
    settings = {"discounts": (1.0, 1.0), "n_paths": 10_000, "seed": 0}
    found = weighted_episodes(Forgetful(), episodes, budgets=np.array([1.0]), **settings)
    np.testing.assert_allclose(found.weight[0, 0], [1.0, 1.5, 2.25], atol=0.05)


def test_an_estimate_divides_by_the_weights_of_each_step():
    """By hand: weights 1 and 3, then 1 and 0; then the second episode counts twice, or alone."""
    weight = np.array([[[1.0, 1.0], [3.0, 0.0]]])
    paid = np.array([[[2.0, 4.0], [6.0, 9.0]], [[0.0, 1.0], [1.0, 1.0]]])
    weighted = Weighted(weight, paid)
    found = weighted.estimate(np.array([[1.0, 1.0], [1.0, 2.0], [0.0, 1.0]]))
    np.testing.assert_allclose(found[:, 0, 0], [20 / 4 + 4, 38 / 7 + 4, np.nan])
    np.testing.assert_allclose(found[:, 0, 1], [3 / 4 + 1, 6 / 7 + 1, np.nan])
    np.testing.assert_allclose(weighted.effective_episodes(), [1.0])


def only(action):
    """A policy of one action."""
    q_r = np.zeros((4, 3, 11))
    q_r[:, action] = 1.0
    return HullPolicy(FloatTable(q_r, np.zeros_like(q_r)), GRID)


def test_an_episode_that_the_policy_would_not_have_played_says_nothing():
    """The second one takes another action at its first step; the first one ends there."""
    log = TransitionBatch(
        **{
            "state": np.zeros(3),
            "action": [0, 1, 0],
            "reward": [3.0, 5.0, 7.0],
            "cost": np.ones(3),
        },
        **{"next_state": np.zeros(3), "terminal": [1, 0, 1], "probability": np.full(3, 0.5)},
        **{"episode": [0, 1, 1], "step": [0, 0, 1], "n_actions": 3},
    )
    settings = {"gamma": 0.9, "budgets": [1.0], "seed": 0, "n_bootstrap": 9}
    found = evaluate_offline(only(0), log, **settings, **IMPORTANCE)
    assert (found.reward[0], found.cost[0], found.effective_episodes[0]) == (3.0, 1.0, 1.0)
    assert (found.reward_low[0], found.cost_high[0]) == (-np.inf, np.inf)


def test_the_log_of_the_policy_itself_has_weights_1_and_plain_means():
    """What it hands on is told by what it does, so all paths are the one that was played."""
    model, policy = then_risk()
    log = played(policy, model, 400, seed=0, budgets=0.5)
    log = changed(log, probability=probabilities(policy, log))
    found = evaluate_offline(policy, log, gamma=0.5, budgets=[0.5], seed=0, **IMPORTANCE)
    returns = 0.5 * log.reward[log.step == 1]
    student = mean_interval(returns, confidence=0.95)
    np.testing.assert_allclose(found.effective_episodes, 400)
    np.testing.assert_allclose(found.reward, student.mean)
    width = found.reward_high - found.reward_low
    assert abs(width[0] / (student.high - student.low) - 1) < 0.1  # 4 deviations of 1,000 repeats


def test_logged_budgets_and_the_order_of_rows_do_not_matter():
    model, policy = solved(1, 3)
    log = uniform_log(model, 100, seed=0)
    mixed = log.take(np.random.default_rng(0).permutation(len(log)))
    mixed = changed(mixed, budget=None, next_budget=None, episode=1000 - mixed.episode)
    settings = {"gamma": 0.9, "budgets": ASKED, "seed": 0, "n_bootstrap": 3}
    found, again = (evaluate_offline(policy, one, **settings, **FITTED) for one in (log, mixed))
    np.testing.assert_allclose(means(found), means(again), rtol=1e-5)


def test_what_is_drawn_at_a_budget_does_not_depend_on_others():
    model, policy = solved(2, 3)
    log = uniform_log(model, 300, seed=0)
    settings = {"gamma": 0.9, "seed": 0, "n_bootstrap": 20} | IMPORTANCE
    found = evaluate_offline(policy, log, budgets=ASKED, **settings)
    alone = evaluate_offline(policy, log, budgets=ASKED[1:2], **settings)
    assert found.reward[1] == alone.reward[0]
    assert found.cost_high[1] == alone.cost_high[0]
    other = evaluate_offline(policy, log, budgets=ASKED, **settings | {"seed": 1})
    assert (found.reward != other.reward).any()


def test_a_policy_may_be_asked_in_parts(monkeypatch):
    model, policy = solved(2, 3)
    log = uniform_log(model, 100, seed=0)
    settings = {"gamma": 0.9, "seed": 0, "n_bootstrap": 0, "budgets": ASKED} | IMPORTANCE
    found = evaluate_offline(policy, log, **settings)
    monkeypatch.setattr(sys.modules[Weighted.__module__], "_CHUNK", 7)
    np.testing.assert_array_equal(means(found), means(evaluate_offline(policy, log, **settings)))


class Strict(HullPolicy):
    """A policy that must not be asked above its range."""

    def options(self, states, budgets):
        assert (budgets <= self.budget_range[1]).all()
        return super().options(states, budgets)

    def options_at(self, states, budgets):
        assert (budgets <= self.budget_range[1]).all()
        return super().options_at(states, budgets)


@both_methods
def test_a_budget_above_the_range_is_taken_as_its_top(method):
    model, policy = then_risk()
    log = uniform_log(model, 50, seed=0)
    strict = Strict(policy.q_function, policy.beta_grid)
    settings = {"gamma": 0.5, "seed": 0, "n_bootstrap": 2} | method | {"n_budgets": 2}
    found = evaluate_offline(strict, log, budgets=[1.0, 7.0], **settings)
    assert found.budgets.tolist() == [1.0, 7.0]
    np.testing.assert_allclose(found.reward, 0.5, rtol=1e-6)
    np.testing.assert_array_equal(*ends(found)[0].T)


# Intervals


@pytest.mark.parametrize("columns", [{}, {"step": None}], ids=["steps", "no steps"])
def test_first_states_are_drawn_with_their_episodes(columns):
    """What is earned is told by the first state alone: the interval is Student's of the mean.

    200 repeats tell a deviation to 5 %.
    """
    rng = np.random.default_rng(0)
    state = rng.integers(2, size=50)
    log = TransitionBatch(
        state=np.repeat(state, 2) + np.tile([0, 2], 50),
        action=np.zeros(100, int),
        reward=np.where(np.arange(100) % 2, np.repeat(state, 2), 0),
        cost=np.zeros(100),
        next_state=np.repeat(state, 2) + 2,
        terminal=np.arange(100) % 2 == 1,
        episode=np.repeat(np.arange(50), 2),
        step=np.tile([0, 1], 50),
    )
    q = np.zeros((4, 1, 2))
    policy = HullPolicy(FloatTable(q, q), np.array([0.0, 1.0]))
    settings = {"gamma": 1.0, "budgets": [0.5], "seed": 0, "n_bootstrap": 200, "n_budgets": 2}
    found = evaluate_offline(policy, changed(log, **columns), **FITTED | settings)
    student = mean_interval(state, confidence=0.95)
    assert found.reward[0] == pytest.approx(student.mean)
    half, wanted = found.reward_high[0] - found.reward[0], student.high - student.mean
    assert abs(half / wanted - 1) < 0.15
    assert found.cost_low[0] == found.cost_high[0] == 0  # a cost that never occurred


def test_drawn_episodes_are_whole_and_have_numbers_of_their_own():
    model, _ = solved(1, 4)
    log = uniform_log(model, 12, seed=0)
    log = TransitionBatch(**log.to_arrays(), n_actions=7)
    mixed = log.take(np.random.default_rng(1).permutation(len(log)))
    episodes = logged_episodes(mixed, needs_steps=True)
    drawn = np.array([3, 3, 0])
    sample = episodes.sample(drawn)
    names = [mixed.episode[episodes.row[episodes.first[k]]] for k in drawn]
    for number, name in enumerate(names):
        own, original = sample.take(sample.episode == number), log.take(log.episode == name)
        assert own.step.tolist() == list(range(len(original)))
        np.testing.assert_array_equal(own.state, original.state)
        np.testing.assert_array_equal(own.reward, original.reward)
    assert len(sample) == sum((log.episode == name).sum() for name in names)
    assert sample.n_actions == 7
    assert episodes.drawn(0, 0).tolist() == list(range(12))
    assert len(set(episodes.drawn(0, 1).tolist())) < 12
    assert (episodes.drawn(0, 1) != episodes.drawn(0, 2)).any()


def test_the_estimate_is_that_of_fitted_evaluation_whatever_is_repeated():
    model, policy = solved(2, 3)
    log = uniform_log(model, 100, seed=1)
    settings = {"gamma": 0.9, "budgets": ASKED, "seed": 3, "n_budgets": 11, "device": "cpu"}
    wanted = fitted_evaluation(policy, log, model=KernelModel(20), **settings)
    found = evaluate_offline(policy, log, model=KernelModel(20), **settings, n_bootstrap=2)
    np.testing.assert_array_equal(means(found), [wanted.reward, wanted.cost])
    assert found.effective_episodes.tolist() == [100.0] * 3
    assert (found.reward_low < found.reward).all()
    np.testing.assert_allclose(found.reward - found.reward_low, found.reward_high - found.reward)


class Noting(TableModel):
    """A table that notes with which seed it is fitted."""

    seeds = []  # noqa: RUF012

    def empty(self, sizes):
        model = super().empty(sizes)
        prepare = model.prepare

        def noting(problem):
            self.seeds.append(problem.seed)
            prepare(problem)

        model.prepare = noting
        return model


def test_every_repeat_has_a_model_of_its_own_seed():
    """What a model leaves to chance is in the interval, too."""
    log = uniform_log(MODEL, 20, seed=1)
    policy = POLICY.at_step(0)
    settings = {"gamma": 0.9, "budgets": ASKED, "seed": 3, "n_budgets": 11}
    evaluate_offline(policy, log, model=Noting(), **settings, n_bootstrap=5)
    assert Noting.seeds[0] == 3
    assert len(set(Noting.seeds)) == len(Noting.seeds) == 6


def test_an_interval_is_students_of_effective_episodes_or_of_repeats():
    """By hand: the quantile of 2 degrees of freedom is 4.303, that of 1 is 12.706."""
    found = np.zeros((5, 4, 2))
    found[1:, :, 0] = np.array([-1.0, 1.0, -1.0, 1.0])[:, None]  # variance 4 / 3
    found[3:, 3] = np.nan  # without an estimate; variance 2
    low, high = interval_ends(found, np.array([3.0, 2.0, 1.9, 9.0]), 0.95)
    wanted = [4.303 * (4 / 3 * 3 / 2) ** 0.5, 12.706 * (4 / 3 * 2) ** 0.5, np.inf]
    np.testing.assert_allclose(high[:, 0], [*wanted, 12.706 * (2 * 9 / 8) ** 0.5], rtol=1e-4)
    np.testing.assert_array_equal(low, -high)
    assert high[:, 1].tolist() == [0.0, 0.0, np.inf, 0.0]


@both_methods
def test_without_repeats_there_are_no_intervals_and_one_episode_will_do(method):
    model, policy = solved(1, 2)
    log = uniform_log(model, 200, seed=0)
    settings = {"gamma": 0.9, "budgets": [2.0], "seed": 0, "n_bootstrap": 0} | method
    found = evaluate_offline(policy, log, **settings)
    assert np.isnan(ends(found)).all()
    assert np.isfinite(means(found)).all()
    chances = weighted_episodes(
        policy,
        logged_episodes(log, needs_steps=True),
        **{"discounts": (1.0, 1.0), "budgets": np.array([2.0]), "n_paths": 1, "seed": 0},
    )
    likely = int(chances.weight[0, :, -1].argmax())
    one = evaluate_offline(policy, log.take(log.episode == likely), **settings)
    assert one.n_episodes == 1


@all_methods
def test_progress_is_told_to_its_end(method):
    model, policy = solved(1, 2)
    told = []
    settings = {"gamma": 0.9, "budgets": [1.0], "seed": 0, "n_bootstrap": 60} | method
    log = uniform_log(model, 60, seed=0)
    evaluate_offline(policy, log, **settings, progress=lambda *now: told.append(now))
    assert told == sorted(told)
    assert told[-1] == (61, 61)


def test_several_workers_say_what_one_says():
    model, policy = solved(1, 2)
    log = uniform_log(model, 60, seed=0)
    settings = {"gamma": 0.9, "budgets": ASKED, "seed": 0, "n_bootstrap": 3} | FITTED
    one, two = (evaluate_offline(policy, log, **settings, workers=n) for n in (1, 2))
    np.testing.assert_allclose(ends(one), ends(two), rtol=1e-4)


# Coverage


def coverage(method, n_logs, n_episodes, n_steps, **settings):
    """How many of logs cover each number, and half widths over the deviation of estimates."""
    model, policy = solved(1, n_steps)
    logs = (uniform_log(model, n_episodes, seed=100 + seed) for seed in range(n_logs))
    common = {"gamma": 0.9, "budgets": ASKED, "seed": 0} | method | settings
    found = [evaluate_offline(policy, log, **common) for log in logs]
    n_covered = sum(covers(one, truth(model, policy)).astype(int) for one in found)
    half = np.mean([(ends(one)[1] - ends(one)[0]) / 2 for one in found], axis=0)
    return n_covered, half / np.std([means(one) for one in found], axis=0)


def assert_covered(n_covered, n_logs, at_least):
    """No count is so low that it had probability 0.0005, were coverage as it is promised here."""
    assert (n_covered >= binom.ppf(0.0005, n_logs, at_least)).all(), n_covered / n_logs


@pytest.mark.slow
def test_intervals_by_weights_cover_as_often_as_they_say():
    """Of 300 episodes some 40 to 50 are effective."""
    n_covered, ratio = coverage(IMPORTANCE, 150, 300, 2, n_bootstrap=100)
    assert_covered(n_covered, 150, 0.93)
    assert ((ratio > 1.6) & (ratio < 2.6)).all(), ratio  # 1.96 if deviations were known


@pytest.mark.slow
def test_fitted_intervals_cover_as_often_as_they_say():
    n_covered, ratio = coverage(FITTED, 50, 100, 2, n_bootstrap=15)
    assert_covered(n_covered, 50, 0.93)
    assert ((ratio > 1.6) & (ratio < 2.8)).all(), ratio


@pytest.mark.slow
@pytest.mark.parametrize("n_steps", [2, 3])
@both_methods
def test_intervals_cover_as_often_as_they_say_in_many_logs(method, n_steps):
    n_logs, n_bootstrap = (200, 30) if method is FITTED else (600, 200)
    n_covered, _ = coverage(method, n_logs, 600, n_steps, n_bootstrap=n_bootstrap)
    assert_covered(n_covered, n_logs, 0.93)


# Against playing

SHORT = EnvConfig("corridors", {"height": 3, "horizon": 5})
EPSILON = 0.33


@cache
def in_corridors():
    """A policy of short corridors that counts steps."""
    learner = BFTQConfig(
        gamma=1.0,
        n_budgets=11,
        model=KernelModel(40),
        ensemble=1,
        schedule=Backward(),
    )
    how = Exploration(2, 200, decay=0.01, floor=0.3, hold=3)
    return explore(TrainingSpec(SHORT, learner, how), seed=0, device="cpu").policy


def explored(policy, n, *, seed):
    """Episodes of a policy, a third of whose acts are random, and with which probability."""
    explorer = ExploringPolicy(policy, RandomBudgetedPolicy(5, 0.0, 1.0), decay=1.0, floor=EPSILON)
    budgets = np.random.default_rng(seed).random(n)
    batch = collect(explorer, SHORT.spec(), range(99, 99 + n), budgets=budgets, seed=seed)
    return changed(batch, probability=(1 - EPSILON) * probabilities(policy, batch) + EPSILON / 5)


def assert_near_what_is_played(found, policy, *, reward=0.0, cost=0.0):
    """Intervals of both, of confidence 0.999, meet, or nearly so."""
    played = bmdp.evaluate(
        policy, SHORT.spec(), budgets=found.budgets, n_episodes=4000, seed=3, confidence=0.999
    )
    low, high = ends(found)
    slack = np.array([[reward], [cost]])
    assert (low - slack <= [played.reward_high, played.cost_high]).all()
    assert ([played.reward_low, played.cost_low] <= high + slack).all()


def test_importance_in_corridors_is_what_comes_of_it():
    """At each budget 40 or more of 4,000 episodes are effective."""
    policy = in_corridors()
    found = evaluate_offline(
        policy,
        explored(policy, 4000, seed=2),
        **{"gamma": 1.0, "budgets": [0.0, 0.5, 1.0], "seed": 0, "confidence": 0.999},
        **IMPORTANCE,
    )
    assert (found.effective_episodes > 30).all()
    assert_near_what_is_played(found, policy)


FEW = {"gamma": 1.0, "budgets": [0.0, 0.5, 1.0], "seed": 0, "n_budgets": 11, "device": "cpu"}


@pytest.mark.slow
def test_fitted_intervals_in_corridors_are_near_what_comes_of_it():
    """A model may be too smooth by some 2 in reward and 0.005 in cost, which no repeat tells."""
    policy = in_corridors()
    settings = FEW | {"model": KernelModel(40), "n_bootstrap": 12, "confidence": 0.999}
    found = evaluate_offline(policy, explored(policy, 1500, seed=2), **settings)
    assert_near_what_is_played(found, policy, reward=2, cost=0.005)
    low, high = ends(found)
    assert (high - low < [[80], [0.1]]).all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 16))
def test_fitted_intervals_of_more_episodes_are_near_what_comes_of_it(seed):
    policy = in_corridors()
    settings = FEW | {"model": KernelModel(80), "n_bootstrap": 30, "confidence": 0.999}
    found = evaluate_offline(policy, explored(policy, 3000, seed=seed), **settings)
    assert_near_what_is_played(found, policy, reward=2, cost=0.005)
    low, high = ends(found)
    assert (high - low < [[40], [0.05]]).all()


# What it needs


def test_what_it_finds_cannot_be_changed():
    columns = {field: np.zeros(2) for field in OfflineEvaluation.__annotations__}
    columns |= {"method": "fitted", "confidence": 0.9, "seed": 0, "n_bootstrap": 0}
    columns |= {
        "n_episodes": 3,
        "n_transitions": 9,
        "outside_rows": (1, 2),
        "probability_error": 0.0,
    }
    found = OfflineEvaluation(**columns)
    with pytest.raises(ValueError, match="read-only"):
        found.cost_low[0] = 9.0
    with pytest.raises(DataError, match=r"OfflineEvaluation.cost must have shape \[B\] = \[2\]"):
        OfflineEvaluation(**columns | {"cost": np.zeros(3)})
    with pytest.raises(ConfigError, match="method must be one of fitted, importance"):
        OfflineEvaluation(**columns | {"method": "guess"})


class ByEpisode:
    """A policy without a one-step form."""

    budget_range = (0.0, 2.0)


class OnlyAtAll(HullPolicy):
    """Says what it does at all budgets, not at a budget for each state."""

    options = None


@both_methods
@pytest.mark.parametrize(
    ("policy", "batch", "changes", "error", "message"),
    [
        (POLICY, LOG.take(LOG.episode == 0), {}, DataError, "at least 2 episodes.* n_bootstrap=0"),
        (POLICY, changed(LOG, episode=None), {}, DataError, "give episode of each row"),
        (POLICY, LOG.take(LOG.step != 0), {}, DataError, r"has step 1 in place of 0, at \[\d+\]"),
        (POLICY, LOG, {"confidence": 1.0}, ConfigError, "confidence must be above 0 and below 1"),
        (POLICY, LOG, {"confidence": 0.0}, ConfigError, "confidence must be above 0 and below 1"),
        (POLICY, LOG, {"n_bootstrap": -1}, ConfigError, "n_bootstrap must be a whole number"),
        (POLICY, LOG, {"n_bootstrap": 1}, ConfigError, "n_bootstrap must be 0, or at least 2"),
        (POLICY, LOG, {"n_paths": 0}, ConfigError, "n_paths must be a whole number from 1 on"),
        (POLICY, LOG, {"workers": 0}, ConfigError, "workers must be a whole number from 1 on"),
        (POLICY, LOG, {"gamma": 1.1}, ConfigError, "gamma must be from 0 to 1"),
        (POLICY, LOG, {"cost_gamma": -1}, ConfigError, "cost_gamma must be from 0 to 1"),
        (POLICY, LOG, {"budgets": [-1.0]}, BudgetError, r"got -1 at \[0\]"),
        (POLICY, LOG, {"budgets": []}, BudgetError, "at least one budget"),
        (POLICY, LOG, {"seed": -1}, ConfigError, "seed must be a whole number from 0 on"),
        (ByEpisode(), LOG, {}, PolicyError, "one-step form at each step.* ByEpisode is neither"),
        (RandomBudgetedPolicy(3, 0.0, 2.0), LOG, {}, PolicyError, "does not say with which"),
        (
            HullPolicy(TabularQ(*np.zeros((2, 4, 3, 11))), GRID),
            LOG,
            {},
            PolicyError,
            r"states of the batch, of shape \[1\].* states must have shape \[N\]; got \[1, 1\]",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_refused(method, policy, batch, changes, error, message):
    settings = {"gamma": 0.9, "budgets": [1.0], "seed": 0} | method | changes
    with pytest.raises(error, match=message):
        evaluate_offline(policy, batch, **settings)


@pytest.mark.parametrize(
    ("policy", "batch", "error", "message"),
    [
        (POLICY, changed(LOG, step=None), DataError, "give step of each row"),
        (
            only(2),
            changed(LOG, action=LOG.action % 2),
            DataError,
            "no logged episode could have been played by the policy at budget 1: at step 0",
        ),
        (OnlyAtAll(only(0).q_function, GRID), LOG, PolicyError, "it has no `options`"),
    ],
)
def test_what_cannot_be_weighted_is_refused(policy, batch, error, message):
    with pytest.raises(error, match=message):
        evaluate_offline(policy, batch, gamma=0.9, budgets=[1.0], seed=0, method="importance")


def test_weights_need_probabilities():
    log = logged_episodes(changed(LOG, probability=None), needs_steps=True)
    how = {"discounts": (0.9, 0.9), "budgets": np.array([1.0]), "n_paths": 1, "seed": 0}
    with pytest.raises(DataError, match=r'give probability.*method="fitted"'):
        weighted_episodes(POLICY, log, **how)


def test_probabilities_that_were_not_logged_are_shares_of_a_table():
    log = uniform_log(MODEL, 400, seed=0)
    batch, off = with_probabilities(changed(log, probability=None), seed=0)
    found = batch.probability
    assert off < 0.1
    for state in np.unique(log.state):
        own = log.state[:, 0] == state
        for action in range(MODEL.n_actions):
            taken = log.action[own] == action
            np.testing.assert_allclose(found[own][taken], taken.mean(), atol=1e-6)
    assert with_probabilities(log, seed=0)[0] is log


def test_a_doubly_robust_estimate_is_less_noisy_than_weights_alone():
    """The errors of both, over 30 logs of 200 episodes."""
    errors = {}
    for name, method in (("importance", IMPORTANCE), ("doubly-robust", ROBUST)):
        found = []
        for seed in range(30):
            model, policy = solved(1 + seed % 3, 3)
            log = uniform_log(model, 200, seed=seed)
            how = {"gamma": 0.9, "budgets": ASKED, "seed": seed, "n_bootstrap": 0}
            found.append(means(evaluate_offline(policy, log, **how, **method)))
            found[-1] -= truth(model, policy)
        errors[name] = np.sqrt(np.square(found).mean(axis=0))
    assert (errors["doubly-robust"] < 0.8 * errors["importance"]).all()


def test_a_doubly_robust_estimate_with_wrong_probabilities_is_right_by_its_values():
    """A log of 6,000 episodes, whose probabilities are half of what they were where action 0 is."""
    model, policy = solved(1, 3)
    log = uniform_log(model, 6000, seed=0)
    wrong = changed(log, probability=np.where(log.action == 0, 0.5, 1.0) * log.probability)
    how = {"gamma": 0.9, "budgets": ASKED, "seed": 0, "n_bootstrap": 0}
    off = {
        name: np.abs(means(evaluate_offline(policy, wrong, **how, **method)) - truth(model, policy))
        for name, method in (("importance", IMPORTANCE), ("doubly-robust", ROBUST))
    }
    assert off["doubly-robust"].max() < 0.03
    assert off["importance"].max() > 0.1


def test_a_doubly_robust_estimate_with_wrong_values_is_right_by_its_weights():
    """A table of one cell has the same values everywhere."""
    model, policy = solved(1, 3)
    log = uniform_log(model, 6000, seed=0)
    blind = ROBUST | {"model": KernelModel(1)}
    how = {"gamma": 0.9, "budgets": ASKED, "seed": 0, "n_bootstrap": 0}
    robust = means(evaluate_offline(policy, log, **how, **blind)) - truth(model, policy)
    fitted = blind | {"method": "fitted"}
    alone = means(evaluate_offline(policy, log, **how, **fitted)) - truth(model, policy)
    assert np.abs(robust).max() < 0.06
    assert np.abs(alone).max() > 2 * np.abs(robust).max()


def test_a_doubly_robust_estimate_needs_episodes_in_both_halves():
    log = LOG.take(np.isin(LOG.episode, np.unique(LOG.episode)[:3]))
    with pytest.raises(DataError, match="give at least 4 episodes; got 3"):
        evaluate_offline(POLICY, log, gamma=0.9, budgets=[1.0], seed=0, **ROBUST)


def test_an_unknown_method_is_refused():
    with pytest.raises(ConfigError, match="method must be one of fitted, importance"):
        evaluate_offline(POLICY, LOG, gamma=0.9, budgets=[1.0], seed=0, method="guess")


# What the log leaves open


def careful(n=400):
    """Risks are taken in state 0 alone, where they are free; in state 1 they would cost 1."""
    rng = np.random.default_rng(0)
    state = rng.integers(2, size=n)
    action = np.where(state == 0, rng.integers(2, size=n), 0)
    cost = (rng.random(n) < 0.05).astype(float)  # of something else
    last = np.ones(n, bool)
    numbers = {"episode": np.arange(n), "step": np.zeros(n, int), "n_actions": 2}
    return TransitionBatch(state, action, 1.0 * action, cost, state, last, **numbers)


@all_methods
def test_intervals_allow_for_what_a_careful_log_does_not_know(method):
    """A policy that takes the risk everywhere costs 0.525: half of the time nobody knows."""
    q_r = np.broadcast_to([0.0, 1.0], (2, 2))[..., None].repeat(11, axis=2)
    policy = HullPolicy(FloatTable(q_r, np.zeros_like(q_r)), GRID)
    asked = {"gamma": 1.0, "budgets": [1.0], "seed": 0} | method
    found = evaluate_offline(policy, careful(), **asked)
    assert found.outside_share[0] == pytest.approx(0.5, abs=0.06)
    assert found.cost_high[0] >= 0.525
    assert found.cost_low[0] <= 0.1
    rows = careful().state[list(found.outside_rows), 0]
    assert len(rows) == 10
    assert (rows == 1).all()


def test_a_policy_that_keeps_to_the_log_leaves_nothing_open():
    policy = HullPolicy(FloatTable(*np.zeros((2, 2, 2, 11))), GRID)
    asked = {"gamma": 1.0, "budgets": [1.0], "seed": 0, "n_bootstrap": 0}
    found = evaluate_offline(policy, careful(), **asked, **FITTED)
    assert (found.outside_share[0], found.outside_rows) == (0.0, ())


@all_methods
def test_carried_prices_are_evaluated_as_the_coin_that_they_are(method):
    """By exact values of each price, mixed by what they were said to cost."""
    prices = np.array([4.0, 0.0])
    shape = (*MODEL.shape, 2)
    q_r, q_c = (np.broadcast_to(t[..., None], shape) for t in (MODEL.reward, MODEL.cost))
    dial = PriceDial(FloatTable(q_r, q_c), prices)
    policy = MultiplierPolicy(dial, high=1.0, costs=[0.0, 1.0], rewards=[0.0, 1.0])
    log = uniform_log(MODEL, 2_000, seed=4)
    asked = {"gamma": 0.9, "seed": 0, "n_bootstrap": 0} | method
    found = evaluate_offline(policy, log, budgets=[0.0, 0.25, 1.0], **asked)
    alone = evaluate_offline(dial, log, budgets=[0.0, 1.0], **asked)
    mixed = 0.75 * alone.cost[0] + 0.25 * alone.cost[1]
    np.testing.assert_allclose(found.cost, [alone.cost[0], mixed, alone.cost[1]], rtol=1e-6)
    members = Portfolio((dial,), [0, 0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0])
    same = evaluate_offline(members, log, budgets=[0.0, 0.25, 1.0], **asked)
    np.testing.assert_allclose(same.reward, found.reward, rtol=1e-6)
