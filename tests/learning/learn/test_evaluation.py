"""What a policy will earn and pay, told from logged episodes; and episodes that are held out."""

import json
import os
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch

import bmdp
from batches import bandit, every_step, exhaustive_batch, fraction_model, seen_with
from bmdp import (
    BFTQ,
    BFTQConfig,
    BudgetError,
    ConfigError,
    DataError,
    PolicyError,
    TransitionBatch,
    explore,
)
from bmdp.exact import budgeted_value_iteration, evaluate_policy
from bmdp.exact.textbook import forever
from bmdp.learn import (
    Backward,
    EnvConfig,
    Exploration,
    FTQConfig,
    Iterations,
    Prediction,
    TrainingSpec,
    collect,
    resume,
    train,
    train_from_data,
)
from bmdp.learn.evaluation import SMOOTH, HeldOut, fitted_evaluation, split_episodes
from bmdp.learn.explore import round_seed
from bmdp.learn.runs import RunFolder
from bmdp.learn.spec import from_json, to_json, with_setting
from bmdp.models import (
    EncoderNet,
    FrontierNet,
    KernelModel,
    LinearModel,
    Regression,
    TableModel,
)
from bmdp.models.regressor import Loss, QModel
from bmdp.policies import HullPolicy, Portfolio, PricedPolicy, RandomBudgetedPolicy, TabularQ
from bmdp.policies.exploring import ExploringPolicy
from training import LEARNER, SPEC, Killed, content, kill_after, told

GRID = np.linspace(0, 2, 21)
EXACT = {"gamma": 0.9, "budgets": GRID, "model": TableModel(), "seed": 0, "n_budgets": 21}
NUMBERS = np.arange(4)


@dataclass(frozen=True, eq=False)
class ByNumber:
    """Tables of states whose only number is their own; of one step or several."""

    table: TabularQ

    @property
    def n_steps(self):
        return self.table.n_steps

    def __call__(self, states, step=0):
        return self.table(np.asarray(states).reshape(len(states)).astype(int), step)


def by_number(q_r, q_c):
    return ByNumber(TabularQ(q_r, q_c))


def any_table(seed):
    """Q-values of four states that no model has."""
    q_r, q_c = np.random.default_rng(seed).random((2, 4, 3, 21)) * [[[[1.0]]], [[[2.0]]]]
    return by_number(q_r, q_c)


def best_policy(model):
    found = budgeted_value_iteration(model, GRID, max_iterations=200)
    return HullPolicy(by_number(found.q_r, found.q_c), GRID)


def staged(n_steps):
    """Does something else at every step."""
    tables = [any_table(seed).table for seed in range(n_steps)]
    q_r, q_c = (np.stack([getattr(t, name) for t in tables]) for name in ("q_r", "q_c"))
    return HullPolicy(by_number(q_r, q_c), GRID)


def with_columns(batch, **changes):
    """A batch with other columns; None takes one away."""
    columns = batch.to_arrays() | changes
    known = {name: values for name, values in columns.items() if values is not None}
    return TransitionBatch.from_arrays(known, n_actions=batch.n_actions)


def beginning_at(batch, state):
    """A batch whose episodes begin at one state."""
    return with_columns(batch, step=(batch.state[:, 0] != state).astype(int))


def assert_equal(prediction, values, rows):
    """Reward and cost are the means over the states of rows."""
    for found, of_states in zip((prediction.reward, prediction.cost), values, strict=True):
        np.testing.assert_allclose(found, of_states[rows].mean(axis=0), atol=1e-4)


# Against exact values


@pytest.mark.parametrize("state", range(3))
@pytest.mark.parametrize(
    "policy",
    [
        best_policy(fraction_model(1, 0.9)),
        HullPolicy(any_table(0), GRID),
    ],
    ids=["best", "any"],
)
def test_where_all_transitions_are_known_it_is_exact(policy, state):
    model = fraction_model(1, 0.9)
    batch = beginning_at(exhaustive_batch(model, parts=4, n_copies=1), state)
    found = fitted_evaluation(policy, batch, **EXACT, schedule=Iterations(300, settled=0.0))
    assert_equal(found, evaluate_policy(model, policy, GRID), [state])
    assert (found.n_episodes, found.n_transitions) == (len(batch.starts()), len(batch))


@pytest.mark.parametrize("horizon", [1, 2, 5])
def test_a_policy_that_counts_steps_is_evaluated_step_by_step(horizon):
    model, policy = fraction_model(2, 0.9, horizon=horizon, cost_gamma=0.6), staged(horizon)
    batch = every_step(model, horizon)
    batch = batch.take(batch.state[:, 0] != 3)  # nothing begins at the end
    found = fitted_evaluation(policy, batch, **EXACT, cost_gamma=0.6, schedule=Backward())
    starts = batch.state[batch.starts(), 0].astype(int)
    assert_equal(found, evaluate_policy(model, policy, GRID), starts)


def test_it_goes_backwards_if_the_policy_counts_steps_and_nothing_is_said():
    """Each action at a state is seen at one of the first three steps, and at the last."""
    model, policy = fraction_model(1, 0.9, horizon=4), staged(4)
    batch = every_step(model, 4)
    part = batch.take((batch.state[:, 0] * 3 + batch.action) % 3 == batch.step)
    part = bmdp.TransitionBatch.concatenate([part, batch.take(batch.step == 3)])
    found = fitted_evaluation(policy, part, **EXACT)
    starts = part.state[part.starts(), 0].astype(int)
    assert_equal(found, evaluate_policy(model, policy, GRID), starts)


def test_a_policy_that_looks_at_a_clock_is_shown_that_of_the_step():
    """Its states begin with the share of steps that have passed, which the model does not see."""
    model, steps = fraction_model(0, 0.9, horizon=4), staged(4)

    def by_the_clock(states):
        found = [any_table(step)(states[:, 1:]) for step in range(4)]
        step = np.rint(states[:, 0] * 4).astype(int)
        return tuple(np.stack(q)[step, np.arange(len(states))] for q in zip(*found, strict=True))

    plain = every_step(model, 4)
    plain = plain.take(plain.state[:, 0] != 3)
    seen = seen_with(plain, lambda step, row: step / 4)
    found = fitted_evaluation(HullPolicy(by_the_clock, GRID), seen, **EXACT, schedule=Backward())
    expected = fitted_evaluation(steps, plain, **EXACT)
    np.testing.assert_allclose(found.reward, expected.reward, atol=1e-6)
    np.testing.assert_allclose(found.cost, expected.cost, atol=1e-6)


def test_what_follows_a_truncated_row_counts_and_what_follows_a_terminal_one_does_not():
    model, policy = fraction_model(1, 0.9), HullPolicy(any_table(0), GRID)
    batch = beginning_at(exhaustive_batch(model, parts=4, n_copies=1), 0)
    cut = with_columns(batch, truncated=~batch.terminal)
    same = fitted_evaluation(policy, batch, **EXACT), fitted_evaluation(policy, cut, **EXACT)
    assert (same[0].reward == same[1].reward).all()
    ended = with_columns(batch, terminal=np.ones(len(batch), bool))
    one_step = fitted_evaluation(policy, ended, **EXACT)
    options = policy.options_at(np.zeros(1), GRID)
    expected = (options.probability * model.cost[0, options.action]).sum(axis=-1)[0]
    np.testing.assert_allclose(one_step.cost, expected, atol=1e-6)


@pytest.mark.parametrize("n_budgets", [2, 3, 30, 101])
def test_budgets_between_those_of_the_grid_are_interpolated(n_budgets):
    """Of a policy whose reward and cost are straight in its budget any grid will do."""
    problem = forever()
    grid = np.linspace(0, 10, 41)
    found = budgeted_value_iteration(problem.model, grid)
    policy = HullPolicy(by_number(found.q_r, found.q_c), grid)
    batch = exhaustive_batch(problem.model, parts=1, n_copies=2)
    settings = EXACT | {"budgets": [0.0, 3.3, 7.7, 10.0], "n_budgets": n_budgets}
    schedule = Iterations(200, settled=0.0)
    predicted = fitted_evaluation(policy, batch, **settings, schedule=schedule)
    np.testing.assert_allclose(predicted.cost, predicted.budgets, atol=1e-3)
    np.testing.assert_allclose(predicted.reward, 2 * predicted.budgets, atol=1e-3)


def paying(n_budgets):
    """Of two actions one earns and costs 1, the other nothing."""
    q = np.tile([[[0.0], [1.0]]], (1, 1, n_budgets))
    return lambda states: (q.repeat(len(states), axis=0),) * 2


def test_any_model_will_do():
    """One that does not cover the grid, for example. A budget buys itself."""
    policy = HullPolicy(paying(3), np.linspace(0, 1, 3))
    settings = {"budgets": [0.0, 0.3, 2.0], "n_budgets": 3, "gamma": 1.0, "seed": 0}
    found = fitted_evaluation(policy, bandit(60), model=LinearModel(), **settings)
    assert found.budgets.tolist() == [0.0, 0.3, 2.0]  # above the range it is the top
    np.testing.assert_allclose(found.cost, [0.0, 0.3, 1.0], atol=0.01)
    np.testing.assert_allclose(found.reward, [0.0, 0.3, 1.0], atol=0.01)


@dataclass(frozen=True)
class Wild:
    """A model that says a million of everything."""

    def empty(self, sizes):
        return WildQ(self, sizes)


class WildQ(QModel):
    def prepare(self, problem):
        """Looks at nothing."""

    def fit(self, step, rows, labels, targets, name):
        return Loss(0.0, 0.0)

    def error(self, step, rows, labels, targets):
        return 1.0

    def read(self, embedded, step, members=slice(None)):
        all_members, _, n_actions, _, heads = self.sizes
        n_members = len(range(all_members)[members])
        return torch.full((n_members, len(embedded), 2, n_actions, len(heads)), 1e6)


def test_nothing_is_believed_beyond_what_was_earned_and_paid():
    batch = every_step(fraction_model(1, 1.0), 3)
    found = fitted_evaluation(staged(3), batch, **EXACT | {"gamma": 1.0, "model": Wild()})
    assert (found.reward <= 3 * batch.reward.max() + 1e-6).all()
    assert (found.cost <= 3 * batch.cost.max() + 1e-6).all()


def test_a_price_has_no_dial():
    policy = PricedPolicy(paying(1), 0.5)
    settings = {"budgets": [0.0, 1.0], "n_budgets": 2, "gamma": 1.0, "seed": 0}
    found = fitted_evaluation(policy, bandit(60), model=KernelModel(10), **settings)
    np.testing.assert_allclose(found.cost, 1.0, atol=1e-3)


# Against playing

RANDOM = RandomBudgetedPolicy(5, 0.0, 1.0)
SHORT = EnvConfig("corridors", {"height": 3, "horizon": 5})


@cache
def in_corridors(schedule):
    """A policy of short corridors, and other episodes of it, a third of whose acts are random."""
    model = KernelModel(40)
    learner = BFTQConfig(gamma=1.0, n_budgets=11, model=model, ensemble=1, schedule=schedule)
    how = Exploration(2, 200, decay=0.01, floor=0.3, hold=3)
    policy = explore(TrainingSpec(SHORT, learner, how), seed=0, device="cpu").policy
    explorer = ExploringPolicy(policy, RANDOM, decay=1.0, floor=0.33)
    budgets = np.random.default_rng(0).random(2400)
    return policy, collect(explorer, SHORT.spec(), range(99, 2499), budgets=budgets, seed=2)


@pytest.mark.parametrize("schedule", [Iterations(9), Backward()], ids=["iterations", "backward"])
def test_what_is_predicted_in_corridors_is_what_comes_of_it(schedule):
    """Within three deviations of batches of 2,400 episodes: up to 4 in reward, and 0.01 in cost.

    Time is hidden, so a policy that does not count steps is evaluated step by step as well.
    """
    policy, batch = in_corridors(schedule)
    asked = [0.0, 0.5, 1.0]
    settings = {"gamma": 1.0, "budgets": asked, "n_budgets": 11, "device": "cpu"}
    found = fitted_evaluation(
        policy, batch, model=KernelModel(80), seed=0, schedule=Backward(), **settings
    )
    played = bmdp.evaluate(policy, SHORT.spec(), budgets=asked, n_episodes=4000, seed=3)
    for low, mean, high in (
        (played.reward_low - 12, found.reward, played.reward_high + 12),
        (played.cost_low - 0.03, found.cost, played.cost_high + 0.03),
    ):
        assert ((low <= mean) & (mean <= high)).all(), (low, mean, high)


def noise(seed, n=400):
    """20 states and 4 actions, none of which matters: reward 0 and cost 1/2, both by chance."""
    rng = np.random.default_rng(seed)
    state = rng.integers(20, size=n)
    return TransitionBatch(
        state=state,
        action=rng.integers(4, size=n),
        reward=rng.normal(size=n),
        cost=rng.integers(2, size=n),
        next_state=state,
        terminal=np.ones(n, bool),
        episode=np.arange(n),
        step=np.zeros(n, int),
        n_actions=4,
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_learner_promises_more_than_other_episodes_say(seed):
    """Five rows for each state and action: the best mean of four is 0.46 high, on average.

    What other episodes say has a deviation of 0.1 in reward, and of 0.05 in cost.
    """
    learned, others = noise(seed), noise(100 + seed)
    config = BFTQConfig(gamma=1.0, model=TableModel(), ensemble=1, slope_cap=0.0, n_budgets=11)
    policy = BFTQ(config).fit(learned, seed=0)
    promised = [policy.frontier([state]) for state in range(20)]
    reward = np.mean([frontier.rewards[-1] for frontier in promised])
    cost = np.mean([frontier.costs[0] for frontier in promised])
    assert reward > 0.35
    assert cost < 0.35
    settings = EXACT | {"budgets": [0.0, 1.0], "n_budgets": 11}
    found = fitted_evaluation(policy, others, **settings)
    assert abs(found.reward[1]) < 0.3
    assert abs(found.cost[0] - 0.5) < 0.15
    believed = fitted_evaluation(policy, learned, **settings)  # by the same episodes
    assert believed.reward[1] > 0.35
    assert believed.cost[0] < 0.35


# What it needs


def test_what_it_finds_cannot_be_changed():
    found = Prediction([0.0, 1.0], [1.0, 2.0], [0.0, 0.5], 3, 9)
    with pytest.raises(ValueError, match="read-only"):
        found.reward[0] = 9.0
    with pytest.raises(
        DataError, match=r"Prediction.cost must have shape \[M\] = \[2\]; got \[1\]"
    ):
        Prediction([0.0, 1.0], [1.0, 2.0], [0.0], 3, 9)


PLAIN = exhaustive_batch(fraction_model(1, 0.9), parts=4, n_copies=1)
STEPS = every_step(fraction_model(1, 0.9), 3)
ANY = HullPolicy(any_table(0), GRID)
COIN = Portfolio.coin(ANY, ANY, 0.1, 0.9)


@pytest.mark.parametrize(
    ("policy", "batch", "changes", "error", "message"),
    [
        (staged(3), PLAIN, {}, DataError, "needs a batch with steps.* this one has none"),
        (ANY, PLAIN, {"schedule": Backward()}, DataError, "needs a batch with steps"),
        (staged(3), STEPS.take(STEPS.step > 0), {}, DataError, "no row has step 0"),
        (ANY, with_columns(PLAIN, episode=None), {}, DataError, "give episode or step"),
        (
            ANY,
            TransitionBatch.from_arrays(PLAIN.take(PLAIN.action < 2).to_arrays()),
            {},
            PolicyError,
            "plays action 2; the batch has actions 0 to 1",
        ),
        (COIN, PLAIN, {}, PolicyError, "one-step form at each step; Portfolio has none"),
        (RandomBudgetedPolicy(3, 0.0, 2.0), PLAIN, {}, PolicyError, "does not say with which"),
        (ANY, PLAIN, {"budgets": [0.5, -1.0]}, BudgetError, r"got -1 at \[1\]"),
        (ANY, PLAIN, {"budgets": []}, BudgetError, "budgets must hold at least one"),
        (ANY, PLAIN, {"gamma": 1.1}, ConfigError, "gamma must be from 0 to 1"),
        (ANY, PLAIN, {"cost_gamma": -0.1}, ConfigError, "cost_gamma must be from 0 to 1"),
        (ANY, PLAIN, {"n_budgets": 1}, ConfigError, "n_budgets must be a whole number from 2"),
        (ANY, PLAIN, {"model": EncoderNet()}, ConfigError, "values on all heads: not an Encoder"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(policy, batch, changes, error, message):
    with pytest.raises(error, match=message):
        fitted_evaluation(policy, batch, **EXACT | changes)


# Episodes that are held out

QUICK = replace(LEARNER, model=LinearModel(), n_budgets=3)
HOLDING = replace(SPEC, learner=QUICK, held_out=0.3)
FROM_LOG = TrainingSpec(None, LEARNER, None)


@pytest.fixture(scope="module")
def log():
    random_policy = RandomBudgetedPolicy(5, 0.0, 1.0)
    budgets = np.linspace(0, 1, 40)
    return collect(random_policy, SPEC.env.spec(), range(40), budgets=budgets, seed=0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(HOLDING, folder, seed=0)
    return folder


def same(one, other):
    """Whether a policy has the same values as another."""
    states = np.random.default_rng(0).random((20, 3))
    both = zip(one.q_function(states), other.q_function(states), strict=True)
    return all((a == b).all() for a, b in both)


# Which ones


@pytest.mark.parametrize(("share", "n"), [(0.5, 20), (0.1, 4), (0.001, 1), (0.999, 39)])
def test_a_share_of_the_episodes_is_held_out_but_neither_none_nor_all(log, share, n):
    learned, others = split_episodes(log, share, seed=0, number=0)
    both = set(learned.episode.tolist()), set(others.episode.tolist())
    assert (len(both[0]), len(both[1])) == (40 - n, n)
    assert both[0] | both[1] == set(range(40))
    assert len(learned) + len(others) == len(log)
    assert (np.diff(learned.episode) >= 0).all()


def test_nothing_is_held_out_unless_asked_for(log):
    assert split_episodes(log, 0.0, seed=0, number=0) == (log, None)
    assert split_episodes(with_columns(log, episode=None), 0.0, seed=0, number=0).held_out is None


def test_they_are_drawn_by_seed_and_round(log):
    def drawn(seed, number):
        return np.unique(split_episodes(log, 0.5, seed=seed, number=number).held_out.episode)

    assert (drawn(0, 1) == drawn(0, 1)).all()
    assert (drawn(0, 1) != drawn(0, 2)).any()
    assert (drawn(0, 1) != drawn(1, 1)).any()


def test_episodes_that_cannot_be_told_apart_or_split_are_refused(log):
    for batch, message in (
        (with_columns(log, episode=None), "held_out needs a batch with episodes"),
        (log.take(log.episode == 0), "at least 2 episodes"),
        (log.take(log.step > 0), "where episodes begin; no row has step 0"),
    ):
        with pytest.raises(DataError, match=message):
            split_episodes(batch, 0.5, seed=0, number=0)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_the_share_is_below_one(share):
    for spec in (SPEC, FROM_LOG):
        with pytest.raises(ConfigError, match="held_out must be from 0 to below 1"):
            replace(spec, held_out=share)
    with pytest.raises(ConfigError, match="rounds of at least 2 episodes"):
        replace(SPEC, held_out=0.5, exploration=Exploration(2, 1))


def test_the_share_is_a_setting():
    spec = with_setting(SPEC, "held_out=0.25")
    assert spec.held_out == 0.25
    assert from_json(to_json(spec)) == spec
    data = with_setting(FROM_LOG, "held_out=0.25")
    assert from_json(to_json(data)) == data
    assert from_json({k: v for k, v in to_json(SPEC).items() if k != "held_out"}) == SPEC


# Learning without them


def test_what_is_held_out_is_kept_but_not_learned_from(whole):
    batches = [RunFolder(whole).batch(number) for number in range(2)]
    assert [len(np.unique(batch.episode)) for batch in batches] == [20, 20]
    parts = [split_episodes(batch, 0.3, seed=0, number=i) for i, batch in enumerate(batches)]
    learned = TransitionBatch.concatenate(part.learned for part in parts)
    expected = BFTQ(QUICK).fit(learned, seed=round_seed(0, 1))
    assert same(bmdp.load_policy(whole), expected)
    every = BFTQ(QUICK).fit(TransitionBatch.concatenate(batches), seed=round_seed(0, 1))
    assert not same(bmdp.load_policy(whole), every)


def test_the_prediction_is_that_of_the_episodes_held_out(whole):
    record = RunFolder(whole).prediction()
    assert record == RunFolder(whole).records()[-1]
    assert (record["kind"], record["round"], record["n_episodes"]) == ("prediction", 1, 12)
    assert record["budgets"] == pytest.approx([i / 10 for i in range(11)])
    batches = [RunFolder(whole).batch(number) for number in range(2)]
    parts = [split_episodes(batch, 0.3, seed=0, number=i) for i, batch in enumerate(batches)]
    rest = HeldOut.of(parts, QUICK, 0, "cpu")
    assert told([record]) == told([rest.prediction(bmdp.load_policy(whole), 1)])
    assert record["n_transitions"] == sum(len(part.held_out) for part in parts)


def test_exploring_without_a_folder_predicts_the_same(whole):
    result = explore(HOLDING, seed=0)
    assert told(result.records) == told(RunFolder(whole).records())
    assert len(np.unique(result.batch.episode)) == 40


def test_without_held_out_episodes_there_is_no_prediction(tmp_path):
    train(replace(HOLDING, held_out=0.0), tmp_path / "run", seed=0)
    assert RunFolder(tmp_path / "run").prediction() is None


def test_a_log_is_learned_from_without_them(tmp_path, log):
    policy = train_from_data(log, QUICK, tmp_path / "run", seed=2, held_out=0.4)
    parts = split_episodes(log, 0.4, seed=2, number=0)
    assert same(policy, BFTQ(QUICK).fit(parts.learned, seed=2))
    assert len(RunFolder(tmp_path / "run").batch(0)) == len(log)
    record = RunFolder(tmp_path / "run").prediction()
    again = HeldOut(parts.held_out, QUICK, 2, "cpu").prediction(policy, 0)
    assert told([record]) == told([again])
    assert record["n_episodes"] == 16


@pytest.mark.parametrize("schedule", [Iterations(2), Backward()], ids=["iterations", "backward"])
def test_a_prediction_is_that_of_fitted_evaluation(tmp_path, log, schedule):
    learner = replace(QUICK, ensemble=1, schedule=schedule)
    policy = train_from_data(log, learner, tmp_path / "run", seed=2, held_out=0.4)
    parts = split_episodes(log, 0.4, seed=2, number=0)
    assert policy.n_steps == BFTQ(learner).fit(parts.learned, seed=2).n_steps
    record = RunFolder(tmp_path / "run").prediction()
    found = bmdp.fitted_evaluation(
        policy,
        parts.held_out,
        gamma=1.0,
        budgets=record["budgets"],
        model=learner.model,
        seed=0,
        n_budgets=learner.n_budgets,
        schedule=Backward(),
    )
    assert record["cost"] == pytest.approx(found.cost.tolist(), rel=1e-5)
    assert record["reward"] == pytest.approx(found.reward.tolist(), rel=1e-5)


def test_a_log_that_cannot_be_split_leaves_no_folder(tmp_path, log):
    with pytest.raises(DataError, match="held_out needs a batch with episodes"):
        train_from_data(
            with_columns(log, episode=None), QUICK, tmp_path / "run", seed=2, held_out=0.4
        )
    few = log.take(log.episode < 2)
    with pytest.raises(DataError, match="must name at least 2 episodes"):
        train_from_data(few, QUICK, tmp_path / "run", seed=2, held_out=0.4)
    assert not list(tmp_path.iterdir())


# After a kill


@pytest.mark.parametrize("n_records", range(1, 8))
def test_a_run_that_is_killed_predicts_the_same_once(whole, tmp_path, n_records):
    with pytest.raises(Killed):
        train(HOLDING, tmp_path / "run", seed=0, on_record=kill_after(n_records))
    resume(tmp_path / "run")
    assert content(tmp_path / "run" / "policy") == content(whole / "policy")
    assert told(RunFolder(tmp_path / "run").records()) == told(RunFolder(whole).records())


def test_a_run_that_is_killed_before_its_mark_predicts_the_same_once(whole, tmp_path):
    train(HOLDING, tmp_path / "run", seed=0)
    os.unlink(tmp_path / "run" / "done")
    resume(tmp_path / "run")
    assert told(RunFolder(tmp_path / "run").records()) == told(RunFolder(whole).records())


@pytest.mark.parametrize("n_records", [1, 2, 3])
def test_learning_from_a_log_that_is_killed_predicts_the_same_once(tmp_path, log, n_records):
    train_from_data(log, QUICK, tmp_path / "whole", seed=2, held_out=0.4)
    with pytest.raises(Killed):
        train_from_data(
            log, QUICK, tmp_path / "run", seed=2, held_out=0.4, on_record=kill_after(n_records)
        )
    resume(tmp_path / "run")
    records = [RunFolder(tmp_path / name).records() for name in ("run", "whole")]
    assert told(records[0]) == told(records[1])
    assert [record["kind"] for record in records[0]] == ["iteration", "iteration", "prediction"]


def test_a_prediction_is_plain_json(whole):
    lines = (whole / "records.jsonl").read_text().splitlines()
    found = json.loads(lines[-1], parse_constant=lambda name: pytest.fail(name))
    assert np.isfinite(found["reward"]).all()
    assert np.isfinite(found["cost"]).all()


# How it is evaluated


def said_of(learner, batch):
    """What the held-out half of a log says of what the other half taught, and by which schedule."""
    parts = split_episodes(batch, 0.5, seed=0, number=0)
    policy = BFTQ(learner).fit(parts.learned, seed=0, device="cpu")
    record = HeldOut(parts.held_out, learner, 0, "cpu").prediction(policy, 0)
    asked = {"gamma": learner.gamma, "cost_gamma": learner.cost_gamma, "budgets": record.budgets}
    asked |= {"n_budgets": learner.n_budgets, "seed": 0, "device": "cpu"}
    return record, lambda **how: fitted_evaluation(policy, parts.held_out, **asked, **how)


def matches(record, prediction):
    return record.cost == pytest.approx(prediction.cost.tolist(), rel=1e-4, abs=1e-6)


def test_it_is_evaluated_step_by_step_where_episodes_end(log):
    learner = replace(QUICK, ensemble=1, cost_gamma=0.5)
    record, evaluation = said_of(learner, log)
    assert matches(record, evaluation(model=learner.model, schedule=Backward()))
    assert not matches(record, evaluation(model=learner.model, schedule=Iterations(2)))


@pytest.mark.parametrize(
    "change",
    [
        lambda log: {"terminal": np.zeros(len(log), bool)},
        lambda log: {"step": np.where(log.step == 0, 0, log.step + 60)},
        lambda log: {"step": None},
    ],
    ids=["cut", "long", "no steps"],
)
def test_it_is_iterated_where_episodes_are_cut_or_long_or_have_no_steps(log, change):
    learner = replace(QUICK, ensemble=1, gamma=0.5)
    record, evaluation = said_of(learner, with_columns(log, **change(log)))
    assert matches(record, evaluation(model=learner.model, schedule=Iterations(50, settled=1e-5)))


def test_a_network_is_evaluated_by_a_kernel(log):
    network = FrontierNet((8,), regression=Regression(steps=3))
    record, evaluation = said_of(replace(LEARNER, model=network), log)
    assert abs(np.array(record.cost) - evaluation(model=SMOOTH, schedule=Backward()).cost).max() < (
        0.02  # centres are drawn by another seed
    )


def test_a_policy_without_a_dial_is_predicted_too(log):
    network = FrontierNet((8,), "free", regression=Regression(steps=3))
    learner = FTQConfig(gamma=1.0, model=network, schedule=Iterations(2))
    parts = split_episodes(log, 0.5, seed=0, number=0)
    policy = bmdp.FTQ(learner).fit(parts.learned, seed=0)
    record = HeldOut(parts.held_out, learner, 0, "cpu").prediction(policy, 0)
    assert np.ptp(record.cost) < 1e-6
