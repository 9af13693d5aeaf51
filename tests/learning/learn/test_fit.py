"""The loop of fitted Q-iteration: its targets, its schedules, and how it goes on after a kill."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

import bmdp
from batches import Memory, bandit, chain, every_step, fraction_model, seen_with
from bmdp import (
    BFTQ,
    FTQ,
    BFTQConfig,
    ConfigError,
    DataError,
    FTQConfig,
    TransitionBatch,
)
from bmdp.exact import budgeted_value_iteration
from bmdp.exact.operators import backup, optimality_operator
from bmdp.learn import Backward, EnvConfig, Iterations, LagrangianConfig, LagrangianFTQ, collect
from bmdp.learn.fit import (
    Ensemble,
    Fit,
    Heads,
    Rows,
    bootstrap_targets,
    told_by_step,
    traced_targets,
)
from bmdp.learn.learners import schedule_of
from bmdp.learn.rows import equal_rows
from bmdp.learn.runs import FitKeeper
from bmdp.learn.spec import with_setting
from bmdp.models import (
    EncoderNet,
    ForestModel,
    FrontierNet,
    KernelModel,
    LinearModel,
    Regression,
    TableModel,
)
from bmdp.policies import RandomBudgetedPolicy
from regressors import dice
from training import SPEC

STATES = np.arange(3)[:, None]  # the fourth is the end, where nothing is played
EXACT = BFTQConfig(
    gamma=0.9,
    budget_range=(0.0, 2.0),
    n_budgets=21,
    model=TableModel(),
    schedule=Backward(),
    ensemble=1,
    slope_cap=0.0,
    costs_from_zero=False,
)
LEARNED = BFTQConfig(gamma=1.0, n_budgets=11, model=KernelModel(50), schedule=Backward())
ONCE, NEAR = Iterations(1), LinearModel("quadratic")
LAGRANGIAN = LagrangianConfig(gamma=0.99, prices=(0.0, 100.0))
FEW = Regression(steps=3, batch_size=16)
QUICK = FrontierNet((32,), regression=Regression(steps=100, learning_rate=0.015))

each_last_step = pytest.mark.parametrize("last_step", ["own", "shared"])


def fitted(batch, config=EXACT, **changes):
    return BFTQ(replace(config, **changes)).fit(batch, seed=0, device="cpu")


def tables(policy, states=STATES):
    """Q-values of all steps, `[2, T, S, A, B]`."""
    return np.stack([policy.q_function(states, t) for t in range(policy.n_steps)], axis=1)


def backups(model):
    """The same, exact."""
    return np.stack(budgeted_value_iteration(model, EXACT.beta_grid).stages)[:, :, :3]


def without(batch, *names, **columns):
    """A batch without some columns, and with others."""
    arrays = {k: v for k, v in batch.to_arrays().items() if k not in names}
    return TransitionBatch.from_arrays(arrays | columns, n_actions=batch.n_actions)


# Targets


def test_targets_are_what_is_paid_and_what_the_next_state_is_worth_discounted():
    """Rows 0 and 2 go on, row 1 is terminal; rewards have discount 1/2, costs 1/4."""
    paid = torch.tensor([[[1.0, 0.0]], [[2.0, 3.0]], [[0.0, 1.0]]]).expand(-1, 2, -1)
    worth = torch.tensor([[[8.0, 4.0], [16.0, 8.0]], [[2.0, 2.0], [4.0, -4.0]]])
    discounts = torch.tensor([0.5, 0.25])
    found = bootstrap_targets(paid, torch.tensor([0, 2]), worth, discounts)
    assert found.tolist() == [
        [[5.0, 1.0], [9.0, 2.0]],
        [[2.0, 3.0], [2.0, 3.0]],
        [[1.0, 1.5], [2.0, 0.0]],
    ]


def test_at_the_last_step_targets_are_what_is_paid_and_a_copy_of_it():
    paid = torch.ones((2, 1, 2))
    found = bootstrap_targets(paid, torch.tensor([0]), None, torch.tensor([0.5, 0.5]))
    assert (found == paid).all()
    bootstrap_targets(paid, torch.tensor([0]), paid[:1], torch.tensor([0.5, 0.5]))
    assert (paid == 1).all()


# Iterations until values settle

GAMMA = 0.99


def endless_log(n=12):
    """One state that never ends: action 1 earns 1 for a cost of 0.01, action 0 nothing."""
    action = np.arange(n) % 2
    state = np.zeros(n)
    return TransitionBatch(state, action, 1.0 * action, 0.01 * action, state, np.zeros(n, bool))


def paid_for(policy, budgets):
    """What a policy pays in `endless_log` when asked for budgets, by its own probabilities."""
    asked = np.concatenate((policy.beta_grid, budgets))
    action, next_budget, probability = policy.options(np.zeros((len(asked), 1)), asked)
    steps = np.zeros((len(asked), len(asked)))
    places = np.searchsorted(policy.beta_grid, next_budget)
    np.add.at(steps, (np.arange(len(asked))[:, None], places), probability)
    now = 0.01 * (probability * action).sum(axis=1)
    return np.linalg.solve(np.eye(len(asked)) - GAMMA * steps, now)[-len(budgets) :]


@pytest.mark.parametrize(
    "changes",
    [
        {"model": TableModel(), "ensemble": 3},
        {"model": LinearModel()},
        {"model": KernelModel(5, (1.0,), (1e-3,))},
    ],
    ids=lambda changes: type(changes["model"]).__name__,
)
def test_it_goes_on_until_values_settle_so_that_what_is_asked_is_paid(changes):
    records, budgets = [], np.array([0.05, 0.1, 0.5])
    learner = BFTQ(BFTQConfig(**{"gamma": GAMMA, "ensemble": 1} | changes))
    policy = learner.fit(endless_log(), seed=0, device="cpu", on_record=records.append)
    np.testing.assert_allclose(paid_for(policy, budgets), budgets, rtol=0.05)
    assert [record.has_settled for record in records[-2:]] == [None, True]


def test_it_says_that_values_have_not_settled_if_it_had_to_stop_before():
    """After 10 steps of 459 an act looks a tenth as dear as it is, so too much is paid."""
    records = []
    learner = BFTQ(BFTQConfig(gamma=GAMMA, model=TableModel(), schedule=Iterations(10)))
    policy = learner.fit(endless_log(), seed=0, device="cpu", on_record=records.append)
    assert (len(records), records[-1].is_last, records[-1].has_settled) == (10, True, False)
    assert paid_for(policy, np.array([0.5])) > 0.6


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.95, 0.97])
def test_the_default_number_of_iterations_is_enough_to_settle(gamma):
    records = []
    learner = BFTQ(BFTQConfig(gamma=gamma, model=TableModel(), n_budgets=2, ensemble=1))
    learner.fit(endless_log(), seed=0, device="cpu", on_record=records.append)
    assert records[-1].has_settled


def test_a_deadline_ends_iterations_which_are_then_not_settled():
    records = []
    learner = BFTQ(BFTQConfig(gamma=GAMMA, model=TableModel(), ensemble=1))
    late = iter([False, False, True])
    policy = learner.fit(
        endless_log(),
        seed=0,
        device="cpu",
        on_record=records.append,
        until=lambda: next(late),
    )
    assert [record.has_settled for record in records] == [None, None, False]
    assert records[-1].is_last
    expected = [0, 0.01 * (1 + GAMMA + GAMMA**2)]
    assert policy.frontier([0]).costs.tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("learner", [FTQ(FTQConfig(gamma=GAMMA)), LagrangianFTQ(LAGRANGIAN)])
def test_every_learner_has_a_deadline(learner):
    records = []
    how = {"seed": 0, "device": "cpu", "on_record": records.append}
    learner.fit(endless_log(), **how, until=lambda: True)
    assert [record.has_settled for record in records] == [False]


def test_a_deadline_does_not_cut_steps():
    records = []
    learner, batch = BFTQ(EXACT), every_step(fraction_model(1, 0.9), 4)
    learner.fit(batch, seed=0, device="cpu", on_record=records.append, until=lambda: True)
    assert [record.step for record in records] == [3, 2, 1, 0]
    assert records[-1].has_settled


@pytest.mark.parametrize("gamma", [0.95, 0.99, 0.995, pytest.param(0.999, marks=pytest.mark.slow)])
def test_values_that_are_said_to_have_settled_are_near_their_limit(gamma):
    """One action that earns 1 for ever: the limit is 1 / (1 - gamma)."""
    records, zeros = [], np.zeros(4)
    log = TransitionBatch(zeros, zeros.astype(int), zeros + 1, zeros, zeros, zeros > 0)
    config = BFTQConfig(
        gamma=gamma, model=TableModel(), ensemble=1, n_budgets=2, schedule=Iterations(20_000)
    )
    policy = BFTQ(config).fit(log, seed=0, device="cpu", on_record=records.append)
    assert records[-1].has_settled
    assert policy.frontier([0]).rewards.max() == pytest.approx(1 / (1 - gamma), rel=0.02)


def test_every_iteration_is_recorded():
    records = []
    config = replace(LEARNED, model=LinearModel(), schedule=Iterations(3, settled=0.0))
    BFTQ(config).fit(chain(50), seed=0, device="cpu", on_record=records.append)
    assert [record.iteration for record in records] == [0, 1, 2]
    assert [record.is_last for record in records] == [False, False, True]
    assert all(record.step is None for record in records)
    for name in ("delta", "last_loss", "share_infeasible", "start_reward_high", "start_cost_low"):
        assert all(np.isfinite(getattr(record, name)) for record in records)
    for record in records:
        parts = record.seconds_forward + record.seconds_frontier + record.seconds_regression
        assert record.seconds >= parts
    assert records[0].as_dict() == asdict(records[0])


def test_the_paper_stops_when_targets_no_longer_change():
    records = []
    schedule = Iterations(9, settled=0.0, stop_loss=0.5)
    learner = BFTQ(replace(LEARNED, model=QUICK, schedule=schedule))
    learner.fit(bandit(), seed=0, device="cpu", on_record=records.append)
    assert len(records) == 2
    assert records[-1].is_last
    assert records[-1].last_loss is None  # nothing was fitted


# Traces

LENGTH = 60
FOLLOWED = LagrangianConfig(
    gamma=0.9,
    prices=(0.0, 20.0),
    model=TableModel(),
    ensemble=1,
    schedule=Iterations(6, settled=0.0, traces=True),
)


def followed_by_hand(targets, worth, kept, gamma):
    """Each row by itself: what is earned until the first row that is not kept."""
    found = targets.clone()
    for i, head in np.ndindex(kept.shape):
        row, discount = i, torch.ones(2)
        while kept[row, head]:
            discount = discount * gamma
            found[i, head] += discount * (targets[row + 1, head] - worth[row, head])
            row += 1
    return found


@pytest.mark.parametrize("seed", range(3))
def test_traced_targets_follow_rows_until_one_is_not_kept(seed):
    generator = torch.Generator().manual_seed(seed)
    targets, worth = torch.randn((2, 40, 3, 2), generator=generator)
    kept = torch.rand((40, 3), generator=generator) < 0.7
    kept[-1] = False
    gamma = torch.tensor([0.9, 0.5])
    found = traced_targets(targets, worth, kept, gamma)
    torch.testing.assert_close(found, followed_by_hand(targets, worth, kept, gamma))


def way(**columns):
    """A way of 60 steps to a reward of 10 at cost 3; each state has another end, of -1 at cost 1.

    The first episode goes all the way, each other one takes one of the ends at once.
    """
    places = np.concatenate((np.arange(LENGTH), np.arange(LENGTH)))
    ends = np.arange(2 * LENGTH) >= LENGTH
    log = {
        "state": places.astype(float),
        "action": ends.astype(int),
        "reward": np.where(ends, -1.0, 10.0 * (places == LENGTH - 1)),
        "cost": np.where(ends, 1.0, 3.0 * (places == LENGTH - 1)),
        "next_state": places + 1.0,
        "terminal": ends | (places == LENGTH - 1),
        "episode": np.where(ends, places + 1, 0),
        "step": np.where(ends, 0, places),
    }
    return TransitionBatch(**{**log, **columns})


def values_on_the_way(log, **changes):
    policy = LagrangianFTQ(replace(FOLLOWED, **changes)).fit(log, seed=0, device="cpu")
    q_r, q_c = policy.dial.q_function(np.arange(LENGTH)[:, None].astype(float))
    return q_r[:, 0], q_c[:, 0]  # of going on, [S, prices]


def exact_on_the_way():
    """Values of going on, from the last state to the first."""
    q_r, q_c = np.zeros((2, LENGTH, 2))
    q_r[-1], q_c[-1] = 10, 3
    for place in range(LENGTH - 2, -1, -1):
        for head, price in enumerate((20.0, 0.0)):
            goes_on = q_r[place + 1, head] - price * q_c[place + 1, head] > -1 - price
            q_r[place, head] = 0.9 * (q_r[place + 1, head] if goes_on else -1.0)
            q_c[place, head] = 0.9 * (q_c[place + 1, head] if goes_on else 1.0)
    return q_r, q_c


def test_with_traces_few_iterations_reach_what_many_of_one_step_do():
    exact, found = exact_on_the_way(), values_on_the_way(way())
    np.testing.assert_allclose(found, exact, atol=1e-5)
    plain = values_on_the_way(way(), schedule=Iterations(LENGTH + 5, settled=0.0))
    np.testing.assert_allclose(plain, exact, atol=1e-5)
    short = values_on_the_way(way(), schedule=Iterations(6, settled=0.0))
    assert np.abs(np.subtract(short, exact)).max() > 0.5


@pytest.mark.parametrize(
    "log",
    [way(episode=None), way(step=None), way(next_state=np.full(2 * LENGTH, -1.0))],
    ids=["no episodes", "no steps", "rows that do not go on from each other"],
)
def test_rows_that_do_not_go_on_from_each_other_are_not_followed(log):
    traced = values_on_the_way(log)
    plain = values_on_the_way(log, schedule=Iterations(6, settled=0.0))
    assert np.array_equal(traced, plain)


# Backwards, against backups


@each_last_step
@pytest.mark.parametrize("ensemble", [1, 2])
@pytest.mark.parametrize(("seed", "horizon"), [(0, 1), (0, 2), (1, 3), (2, 5)])
def test_every_step_is_as_many_backups_as_there_are_steps_to_go(last_step, ensemble, seed, horizon):
    """Two copies are whole each, so it makes no difference which model values which."""
    model = fraction_model(seed, 0.9, horizon=horizon, cost_gamma=0.7)
    batch = every_step(model, horizon, n_copies=2)
    policy = fitted(batch, cost_gamma=0.7, ensemble=ensemble, schedule=Backward(last_step))
    assert policy.n_steps == horizon
    np.testing.assert_allclose(tables(policy), backups(model), atol=1e-5)


def with_another_end(seed):
    """A model; and one whose last step moves as it does, but earns more and costs nothing."""
    model = fraction_model(seed, 0.9)
    end = bmdp.FiniteBMDP(
        transition=model.transition,
        reward=10 * model.reward[:, ::-1],
        cost=np.zeros_like(model.cost),
        gamma=0.9,
        terminal=model.terminal,
    )
    return model, end


@pytest.mark.parametrize("seed", range(3))
def test_the_last_step_may_have_rules_of_its_own(seed):
    model, end = with_another_end(seed)
    nothing = np.zeros((4, 21))
    expected = [backup(end, nothing, nothing)]
    for _ in range(3):
        expected.insert(0, optimality_operator(model, expected[0], EXACT.beta_grid))
    policy = fitted(every_step(model, 4, last=end))
    np.testing.assert_allclose(tables(policy), np.stack(expected, axis=1)[:, :, :3], atol=1e-5)


def test_steps_learn_from_transitions_of_other_steps():
    """Each action at a state is seen at one of the first three steps, and at the last."""
    model = fraction_model(1, 0.9, horizon=4)
    batch = every_step(model, 4)
    place = (batch.state[:, 0] * 3 + batch.action) % 3
    part = batch.take((place == batch.step) | (batch.step == 3))
    np.testing.assert_allclose(tables(fitted(part)), backups(model), atol=1e-5)


def test_a_last_step_that_is_like_the_others_learns_from_their_transitions():
    """Each action at a state is seen at one step only, the last one included."""
    model = fraction_model(1, 0.9, horizon=4)
    batch = every_step(model, 4)
    place = (batch.state[:, 0] * 3 + batch.action) % 3
    part = batch.take((place == batch.step) | ((batch.step == 3) & (place == 0)))
    shared, own = (
        tables(fitted(part, schedule=Backward(last_step))) for last_step in ("shared", "own")
    )
    np.testing.assert_allclose(shared, backups(model), atol=1e-5)
    assert abs(own - backups(model)).max() > 0.1


@each_last_step
def test_what_follows_the_last_step_is_worth_nothing_even_if_the_log_just_stops(last_step):
    model = fraction_model(1, 0.9, horizon=3)
    batch = every_step(model, 3)
    ends = model.terminal[batch.next_state[:, 0].astype(int)]
    policy = fitted(without(batch, terminal=ends), schedule=Backward(last_step))
    np.testing.assert_allclose(tables(policy), backups(model), atol=1e-5)


def test_a_step_without_transitions_is_no_obstacle():
    model = fraction_model(1, 0.9, horizon=4)
    batch = every_step(model, 4, n_copies=2)
    batch = batch.take((batch.step != 1) & ((batch.step != 2) | (batch.episode == 0)))
    np.testing.assert_allclose(tables(fitted(batch, ensemble=2)), backups(model), atol=1e-5)


def test_backwards_every_step_is_recorded_and_nothing_has_to_settle():
    records = []
    batch = every_step(fraction_model(1, 0.9), 4)
    BFTQ(EXACT).fit(batch, seed=0, device="cpu", on_record=records.append)
    assert [record.iteration for record in records] == [0, 1, 2, 3]
    assert [record.step for record in records] == [3, 2, 1, 0]
    assert [record.is_last for record in records] == [False, False, False, True]
    assert [record.has_settled for record in records] == [None, None, None, True]
    assert all(np.isfinite(record.last_loss) for record in records)


# Rows that are equal


def small_walk():
    """A log of few states, so that most rows are equal but for what they earn and cost."""
    batch = dice(150)
    state, following = (np.minimum(s, 2) for s in (batch.state, batch.next_state))
    return without(batch, state=state, next_state=following)


def q_values(policy):
    """Values of all steps."""
    q = policy.q_function if hasattr(policy, "q_function") else policy.dial.q_function
    every = np.stack(np.meshgrid(range(3), range(3)), axis=-1).reshape(-1, 2) * 1.0
    return np.array([q(every, step) for step in range(q.n_steps)])


MERGING = {
    "table": TableModel(),
    "linear": LinearModel(),
    "kernel": KernelModel(20),
    "forest": ForestModel(5),
    "forest of a leaf": ForestModel(5, 4),
}
each_merging = pytest.mark.parametrize("model", MERGING.values(), ids=MERGING.keys())
each_way = pytest.mark.parametrize(
    "schedule", [Iterations(4, settled=0.0), Backward("own"), Backward("shared")], ids=str
)


def learned(batch, model, schedule, ensemble=2):
    config = BFTQConfig(gamma=0.9, n_budgets=3, model=model, schedule=schedule, ensemble=ensemble)
    return q_values(BFTQ(config).fit(batch, seed=0, device="cpu"))


@each_way
@each_merging
@pytest.mark.parametrize("copies", [2, 3])
def test_a_log_that_is_copied_is_the_same_log(model, schedule, copies):
    batch = small_walk()
    rows = np.tile(np.arange(len(batch)), copies)
    once, again = (learned(b, model, schedule) for b in (batch, batch.take(rows)))
    np.testing.assert_allclose(again, once, rtol=1e-4, atol=1e-4)


@each_way
@each_merging
def test_a_log_of_different_rows_that_is_copied_is_the_same_log(model, schedule):
    """Its own rows are not merged, and those of the copy are."""
    batch = dice(60)
    rng = np.random.default_rng(0)
    state, following = (s + rng.random(s.shape) for s in (batch.state, batch.next_state))
    model = NEAR if isinstance(model, TableModel) else model
    batch = without(batch, state=state, next_state=following)
    rows = np.repeat(np.arange(len(batch)), 2)
    once, again = (learned(b, model, schedule) for b in (batch, batch.take(rows)))
    np.testing.assert_allclose(again, once, rtol=1e-4, atol=1e-4)


@each_way
@pytest.mark.parametrize("model", [TableModel(), LinearModel(), KernelModel(9, (1.0,), (0.1,))])
def test_merging_equal_rows_changes_nothing(model, schedule, monkeypatch):
    """For one model: of several, rounding may choose another."""
    batch = small_walk()
    merged = learned(batch, model, schedule, ensemble=1)
    monkeypatch.setattr(Rows, "merged", lambda self, columns: self)
    plain = learned(batch, model, schedule, ensemble=1)
    np.testing.assert_allclose(merged, plain, rtol=1e-4, atol=1e-4)


def rows_of(batch, model=EXACT.model, schedule=ONCE):
    heads, device = Heads(np.zeros(1), False), torch.device("cpu")
    fit = Fit(batch, model, heads, (0.9, 0.9), schedule, Ensemble(), 0, device, False, 0.0)
    return fit.whole.held


def test_equal_rows_are_one_that_weighs_their_number_and_has_their_mean():
    state, action = [0, 1, 0, 0, 0, 0, 1], [0, 1, 0, 0, 1, 0, 1]
    after, done = [1, 0, 1, 0, 1, 7, 0], [False] * 5 + [True, False]
    log = TransitionBatch(state, action, [1, 0, 3, 0, 0, 0, 8], [0, 2, 4, 0, 0, 0, 2], after, done)
    log = TransitionBatch.concatenate([log, log.take([0])])
    rows = rows_of(log.take([0, 1, 2, 0, 2, 1, 3, 4, 5, 6, 3, 4, 5, 0]))
    assert rows.weights.tolist() == [5, 3, 2, 2, 2]
    assert rows.rewards[:2] * 8 == pytest.approx([9 / 5, 8 / 3])
    assert rows.costs[:2] * 4 == pytest.approx([8 / 5, 2])
    assert rows.terminal.tolist() == [False] * 4 + [True]


def test_next_states_of_terminal_rows_do_not_matter():
    done = np.ones(6, bool)
    log = TransitionBatch(np.zeros(6), np.zeros(6, int), done, done, np.arange(6), done)
    assert len(rows_of(log).actions) == 1


def test_rows_of_different_members_and_of_the_last_step_are_kept_apart():
    batch = small_walk()
    rows = rows_of(batch, schedule=Backward())
    assert rows.weights.sum() == len(batch)
    assert rows.weights @ rows.is_last == (batch.step == 3).sum()


def test_networks_have_all_rows():
    batch = small_walk()
    assert len(rows_of(batch, FrontierNet((4,))).actions) == len(batch)


@pytest.mark.parametrize("n_columns", [1, 2, 9, 20])
def test_equal_rows_are_those_of_numpy(n_columns):
    rng = np.random.default_rng(n_columns)
    table = rng.integers(2, size=(300, n_columns)) * 1.0
    table = table[rng.integers(40, size=300)]
    first, which = equal_rows(list(table.T))
    assert (table[first][which] == table).all()
    assert len(first) == len(np.unique(table, axis=0))
    assert (np.diff(first) > 0).all()


def test_rows_that_differ_are_not_merged():
    table = np.random.default_rng(0).random((300, 20))
    table[:140] = table[140:280]
    assert equal_rows(list(table.T)) is None
    assert equal_rows([np.array([0.0, -0.0])])[1].tolist() == [0, 0]
    assert equal_rows([]) is None


def test_rows_whose_sums_are_equal_by_chance_are_not_merged(monkeypatch):
    """As if all numbers had the same bits."""
    real = np.unique
    monkeypatch.setattr(np, "unique", lambda sums, **how: real(np.zeros_like(sums), **how))
    assert equal_rows([np.arange(4.0)]) is None


# What the step tells


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"clock": [0, 0, 1, 1, 2, 2], "state": [0, 1, 2, 3, 4, 5]}, [True, False]),
        ({"not rising": [7, 7, 1, 1, 7, 7], "state": [0, 1, 0, 1, 0, 1]}, [True, False]),
        ({"constant": [3] * 6, "state": [0, 1, 0, 1, 0, 1]}, [True, False]),
        ({"free at one step": [0, 0, 1, 1, 2, 2.5], "clock": [0, 0, 1, 1, 2, 2]}, [False, True]),
        ({"state": [0, 1, 0, 1, 0, 1], "all but one row": [0, 0, 1, 1, 2, 1]}, [False, False]),
        ({"clock": [0, 0, 1, 1, 2, 2], "constant": [1] * 6}, [False, False]),
        ({"clock": [0, 0, 1, 1, 2, 2]}, [False]),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [4, 0, 3, 1, 5, 2]], ids=["sorted", "mixed"])
def test_a_number_is_told_by_the_step_if_it_is_one_at_each_of_them(columns, expected, order):
    states, steps = np.column_stack(list(columns.values())), np.repeat([0, 1, 2], 2)
    assert told_by_step(states[order], steps[order]).tolist() == expected


def test_where_every_step_has_one_row_nothing_is_told():
    states = np.arange(6.0).reshape(3, 2)
    assert told_by_step(states, np.arange(3)).tolist() == [False, False]


def decisions(policy, states):
    """What is decided at each step, given some budgets and uniform numbers, `[T, 3, N]`."""
    draws = np.random.default_rng(0).random((len(states), 3))
    steps = (policy.at_step(step) for step in range(policy.n_steps))
    return np.array([step.choose(states, draws[:, 0], draws[:, 1:]) for step in steps])


@pytest.mark.parametrize("pooled", [True, False])
def test_backwards_no_clock_is_looked_at_even_after_the_policy_was_stored(pooled, tmp_path):
    """A table takes the first number that it is shown for the state."""
    plain = every_step(fraction_model(2, 0.9), 4, n_copies=2)
    batch = seen_with(plain, lambda step, row: step / 4, lambda step, row: 3.0 * (step % 2))
    policy = fitted(batch, ensemble=2, pooled=pooled)
    policy.save(tmp_path / "p")
    numbers = np.random.default_rng(1).integers(3, size=(60, 1))
    expected = decisions(fitted(plain, ensemble=2, pooled=pooled), numbers)
    assert all(len(np.unique(actions)) > 1 for actions in expected[:, 0])
    for played in (policy, bmdp.load_policy(tmp_path / "p")):
        for said in (0.0, 0.25, 99.0):
            seen = np.column_stack([np.full((60, 2), said), numbers])
            assert (decisions(played, seen) == expected).all()


@each_last_step
def test_what_the_step_does_not_tell_is_looked_at(last_step):
    """One of two numbers is the clock until the last step, where it is noise."""
    plain = every_step(fraction_model(2, 0.9), 4)
    batch = seen_with(plain, lambda step, row: np.where(step < 3, step, row % 2))
    kernel = KernelModel(20, (1.0,), (1e-3,))
    policy = fitted(batch, model=kernel, schedule=Backward(last_step))
    early, late = (
        tables(policy, np.column_stack([np.full(3, said), STATES])) for said in (0.0, 2.5)
    )
    assert (early != late).any(axis=(0, 2, 3, 4)).all()


def test_the_clock_of_corridors_is_told_by_the_step():
    spec = EnvConfig("corridors", {"observe_time": True}).spec()
    explorer = RandomBudgetedPolicy(5, 0.0, 1.0)
    batch = collect(explorer, spec, range(30), budgets=np.full(30, 0.5), seed=0)
    assert told_by_step(batch.state, batch.step).tolist() == [False, False, True]


# Learning step by step


@pytest.mark.parametrize(
    "changes",
    [{"ensemble": 1, "model": QUICK}, {"ensemble": 2, "pooled": False}, {"ensemble": 2}],
    ids=["network", "mean", "pooled"],
)
def test_backwards_budgets_are_handed_on_through_a_chain(changes, tmp_path):
    batch = chain()
    policy = fitted(batch, LEARNED, **changes)
    starts, seconds = batch.state[batch.starts()], batch.next_state[batch.starts()]
    policy.save(tmp_path / "p")
    for played in (policy, bmdp.load_policy(tmp_path / "p")):
        tracker = played.start(starts, 0.4, np.random.default_rng(0))
        tracker.decide(starts)
        tracker.observe(np.zeros(len(starts)), seconds, np.zeros(len(starts), bool))
        assert tracker.decide(seconds).action.mean() == pytest.approx(0.4, abs=0.15)


def test_steps_are_in_one_unit_whatever_each_of_them_earns():
    """Both steps pay, the second one fifty times as much as the first."""
    batch = chain()
    rich = without(batch, reward=np.where(batch.step == 0, 1.0, 50.0 * batch.reward))
    top = fitted(rich, LEARNED).frontier(batch.state[batch.starts()[0]])
    assert top.rewards[-1] == pytest.approx(51, rel=0.02)
    assert top.costs[-1] == pytest.approx(1, abs=0.02)


# After a kill

MODELS = {
    "table": TableModel(),
    "linear": LinearModel("quadratic"),
    "kernel": KernelModel(3, (0.5, 1.0), (1e-3, 0.1)),
    "forest": ForestModel(trees=3),
    "frontier": FrontierNet((8,), regression=FEW),
    "encoder": EncoderNet((8,), (4,), regression=FEW),
    "restarted": EncoderNet((8,), (4,), regression=replace(FEW, start="restart")),
    "forgetful": FrontierNet((8,), regression=replace(FEW, keep_moments=False)),
}


@pytest.mark.parametrize("kill_at", [1, 3, 4])
@pytest.mark.parametrize(
    "schedule", [Iterations(4, settled=0.0), Backward()], ids=["iterations", "backward"]
)
@pytest.mark.parametrize("name", MODELS)
def test_a_fit_that_was_killed_goes_on_as_if_nothing_had_been(name, schedule, kill_at):
    batch, records = every_step(fraction_model(1, 0.9), 4, n_copies=2), []
    config = replace(EXACT, model=MODELS[name], ensemble=2, schedule=schedule, n_budgets=5)
    whole = BFTQ(config).fit(batch, seed=3, device="cpu")
    memory = Memory(kill_at)
    for _ in range(2):
        try:
            again = BFTQ(config).fit(
                batch, seed=3, device="cpu", on_record=records.append, keeper=memory
            )
        except KeyboardInterrupt:
            memory.kill_at = None
    assert [record.iteration for record in records] == [0, 1, 2, 3]
    np.testing.assert_array_equal(tables(again), tables(whole))
    if schedule == Backward():
        assert (tables(whole)[:, 0] != tables(whole)[:, 1]).any()


@pytest.mark.parametrize("kill_at", [1, 20, 40])
def test_a_fit_that_was_killed_settles_when_it_would_have(kill_at):
    config, counts = BFTQConfig(gamma=0.9, model=TableModel(), n_budgets=3, ensemble=1), []
    for memory in (Memory(None), Memory(kill_at)):
        records = []
        learn = {"seed": 0, "device": "cpu", "on_record": records.append, "keeper": memory}
        if memory.kill_at is not None:
            with pytest.raises(KeyboardInterrupt):
                BFTQ(config).fit(endless_log(), **learn)
        BFTQ(config).fit(endless_log(), **learn)
        counts.append((len(records), records[-1].change, records[-1].has_settled))
    assert counts[0] == counts[1]
    assert counts[0][0] > kill_at


@pytest.mark.parametrize("schedule", [Iterations(3, settled=0.0), Backward()], ids=str)
def test_prices_that_were_killed_go_on_as_if_nothing_had_been(schedule):
    network = FrontierNet((16,), "free", regression=Regression(steps=20))
    config = LagrangianConfig(gamma=1.0, model=network, schedule=schedule, prices=(3.0, 0.5))
    learner, batch, memory = LagrangianFTQ(config), chain(60), Memory(1)
    whole = learner.fit(batch, seed=1, device="cpu").dial
    with pytest.raises(KeyboardInterrupt):
        learner.fit(batch, seed=1, device="cpu", keeper=memory)
    again = learner.fit(batch, seed=1, device="cpu", keeper=memory).dial
    np.testing.assert_array_equal(tables(again, batch.state), tables(whole, batch.state))


# Files of a fit


def files_of(folder, n_steps):
    """Sizes of all files that are written of a fit of so many steps, in the order of time."""
    sizes = []

    class Watched(FitKeeper):
        def save(self, *what):
            before = {path: path.stat().st_mtime_ns for path in self.path.glob("*")}
            super().save(*what)
            after = {path: path.stat().st_mtime_ns for path in self.path.glob("*")}
            written = [path for path, at in after.items() if before.get(path) != at]
            sizes.extend(path.stat().st_size for path in written)

    batch = every_step(fraction_model(1, 0.9), n_steps)
    keeper = Watched(folder)
    BFTQ(replace(EXACT, n_budgets=3)).fit(batch, seed=0, device="cpu", keeper=keeper)
    return sizes, sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_for_each_step_and_as_large_however_many_there_are(tmp_path):
    few, few_names = files_of(tmp_path / "few", 2)
    many, many_names = files_of(tmp_path / "many", 12)
    assert few_names == [f"step-{step:04d}.safetensors" for step in range(2)]
    assert many_names == [f"step-{step:04d}.safetensors" for step in range(12)]
    assert (len(few), len(many)) == (2, 12)
    assert max(many) - min(few) <= 16  # the number of iterations may have another digit


@pytest.mark.parametrize("change", [None, 0.1, 1 / 3])
def test_what_is_kept_of_a_fit_comes_back_as_it_was(tmp_path, change):
    keeper = FitKeeper(tmp_path / "fit")
    assert (keeper.n_done(), keeper.load()) == (0, (0, None, {}))
    parts = {step: {"weights": torch.rand(2, 3), "moments": torch.rand(1)} for step in (7, 6)}
    keeper.save(1, 0.9, 7, parts[7])
    keeper.save(2, change, 6, parts[6])
    n_done, last, found = keeper.load()
    assert (keeper.n_done(), n_done, last, list(found)) == (2, 2, change, [7, 6])
    assert all((found[s][n] == parts[s][n]).all() for s in parts for n in parts[s])
    keeper.discard()
    assert not keeper.path.exists()


# Which schedule


def ending(n_episodes, lengths, *, terminal=True):
    """Episodes of some lengths, which end or are cut."""
    counts = np.resize(lengths, n_episodes)
    step = np.concatenate([np.arange(count) for count in counts])
    episode = np.repeat(np.arange(n_episodes), counts)
    n, is_end = len(step), step == counts[episode] - 1
    state = np.arange(n) % 5.0
    return TransitionBatch(
        *(state, np.arange(n) % 2, state, state, state, is_end & terminal),
        **{"episode": episode, "step": step},
    )


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (ending(100, [9]), Backward()),
        (ending(400, [9, 9, 3, 2]), Backward()),
        (ending(100, [9], terminal=False), Iterations()),
        (ending(400, np.random.default_rng(0).geometric(0.2, 400)), Iterations()),
        (without(ending(100, [9]), "step"), Iterations()),
        (ending(70, [300]), Iterations()),
        (ending(30, [9]), Iterations()),
    ],
    ids=["horizon", "most", "cut", "by chance", "no steps", "long", "few"],
)
def test_it_goes_backwards_by_itself_if_the_log_has_a_horizon(batch, expected):
    config = BFTQConfig(gamma=0.9, model=LinearModel(), n_budgets=3)
    assert schedule_of(config, batch) == expected
    policy = BFTQ(config).fit(batch, seed=0, device="cpu")
    assert policy.n_steps == (9 if expected == Backward() else 1)


def test_a_schedule_that_is_given_is_taken():
    config = BFTQConfig(gamma=0.9, model=LinearModel(), schedule=Iterations(1))
    assert schedule_of(config, ending(100, [9])) is config.schedule
    backward = replace(config, schedule=Backward("shared"))
    assert schedule_of(backward, ending(70, [300])) is backward.schedule


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Iterations(0), "n must be a whole number from 1 on; got 0"),
        (lambda: Iterations(settled=-1.0), "settled must be from 0 on"),
        (lambda: Iterations(stop_loss=-1.0), "stop_loss must be from 0 on"),
        (lambda: Backward("each"), "last_step must be one of own, shared; got 'each'"),
        (
            lambda: replace(EXACT, schedule="none"),
            "schedule must be an Iterations or a Backward or None",
        ),
        (
            lambda: with_setting(SPEC, "learner.schedule=Bakward"),
            "one of Iterations, Backward; got 'Bakward'. Did you mean 'Backward'?",
        ),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


# What a log must have


@each_last_step
def test_backwards_a_log_needs_steps(last_step):
    batch = without(bandit(), "step")
    with pytest.raises(DataError, match="needs a batch with steps; this one has none"):
        fitted(batch, schedule=Backward(last_step), model=LinearModel())


def test_a_step_of_millions_is_refused_at_once():
    step = np.where(np.arange(400) == 7, 10**7, 0)
    with pytest.raises(DataError, match=r"step must be below 10000 .* got 10000000"):
        fitted(without(bandit(), step=step), model=LinearModel())


def test_backwards_every_model_needs_rows_of_the_last_step():
    few = without(bandit(4), step=np.array([0, 0, 0, 1]))
    with pytest.raises(DataError, match="the last step have 1 transitions"):
        fitted(few, ensemble=2, model=LinearModel())


@each_last_step
def test_the_last_step_alone_is_not_enough(last_step):
    batch = every_step(fraction_model(1, 0.9), 4)
    with pytest.raises(DataError, match="step must be 0, 1, 2 and so on"):
        fitted(batch.take(batch.step == 3), schedule=Backward(last_step))


def test_an_ensemble_needs_as_many_episodes():
    with pytest.raises(DataError, match=r"an ensemble of 3 needs as many episodes.*got 2\. Use"):
        fitted(chain(2), ensemble=3, model=LinearModel())


# Rows and seeds


@pytest.mark.parametrize("schedule", [Iterations(20), Backward()], ids=["iterations", "backward"])
@pytest.mark.parametrize("model", [TableModel(), LinearModel()], ids=["table", "linear"])
@pytest.mark.parametrize("ensemble", [1, 2])
def test_the_order_of_rows_changes_nothing_but_rounding(model, schedule, ensemble):
    batch = every_step(fraction_model(1, 0.9), 3, n_copies=2)
    order = np.random.default_rng(0).permutation(len(batch))
    shuffled = without(batch, **{name: v[order] for name, v in batch.to_arrays().items()})
    config = replace(EXACT, model=model, schedule=schedule, ensemble=ensemble, slope_cap=10.0)
    one, other = (fitted(rows, config) for rows in (batch, shuffled))
    np.testing.assert_allclose(tables(one), tables(other), atol=1e-5)
    for state in range(3):
        first, second = (policy.frontier([state]) for policy in (one, other))
        budgets = np.linspace(0, 2, 7)
        np.testing.assert_allclose(
            first.reward_at(budgets), second.reward_at(budgets), atol=1e-4, equal_nan=True
        )


def centres(seed):
    config = replace(LEARNED, model=KernelModel(5, (1.0,), (0.1,)), schedule=Iterations(1))
    return BFTQ(config).fit(bandit(), seed=seed, device="cpu").q_function.model.centres


def test_the_same_seed_gives_the_same_centres_and_another_seed_others():
    first, again, other = centres(0), centres(0), centres(1)
    assert (first == again).all()
    one, another = ({tuple(c) for c in found[0, 0, 0].tolist()} for found in (first, other))
    assert one != another


def fitted_labels(seed, schedule):
    """Labels of all iterations, as the network is fitted to them."""
    seen = []

    class Watched(EncoderNet):
        def empty(self, sizes):
            model = super().empty(sizes)
            plain = model.labels
            model.labels = lambda k, device: seen.append(plain(k, device)) or seen[-1]
            return model

    network = Watched((4,), (4,), regression=Regression(steps=1))
    config = replace(LEARNED, model=network, schedule=schedule, ensemble=1)
    BFTQ(config).fit(chain(20), seed=seed, device="cpu")
    return seen


@pytest.mark.parametrize("schedule", [Iterations(3, settled=0.0), Backward()], ids=str)
def test_no_two_iterations_and_no_two_seeds_share_their_labels(schedule):
    """If labels came from the seed plus a number, seed 0 would later draw what seed 1 drew."""
    found = [labels for seed in (0, 1, 2) for labels in fitted_labels(seed, schedule)]
    assert len(found) == 9 if isinstance(schedule, Iterations) else 6
    assert len({tuple(labels.flatten().tolist()) for labels in found}) == len(found)
