"""Models for each step of an episode, which must give what backups from the last step give."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import bmdp
from batches import Memory, bandit, chain, every_step, fraction_model, seen_with
from bmdp import BFTQ, BFTQConfig, ConfigError, DataError, TransitionBatch
from bmdp.exact import budgeted_value_iteration
from bmdp.exact.operators import backup, optimality_operator
from bmdp.learn.learners import BudgetedFit
from bmdp.learn.collect import collect
from bmdp.learn.spec import EnvConfig
from bmdp.learn.spec import with_setting
from bmdp.learn.stages import Stages, told_by_step
from bmdp.models import EncoderNet, FrontierNet, KernelModel, Regression, TableModel
from bmdp.policies import RandomBudgetedPolicy
from training import SPEC

STATES = np.arange(4)[:, None]
EXACT = BFTQConfig(
    gamma=0.9,
    budget_range=(0.0, 2.0),
    n_budgets=21,
    model=TableModel(),
    valuation="self",
    slope_cap=0.0,
    cost_floor=-1e9,
)
LEARNED = BFTQConfig(
    gamma=1.0,
    n_budgets=11,
    model=KernelModel(50),
    regression=Regression(steps=100, learning_rate=0.015),
)
NETWORK = FrontierNet((32,), "monotone")

each_kind = pytest.mark.parametrize("stages", ["shared", "alike"])


def fitted(batch, config=EXACT, **changes):
    return BFTQ(replace(config, **changes)).fit(batch, seed=0, device="cpu")


def tables(policy, states=STATES):
    """Q-values of all stages, `[2, T, S, A, B]`."""
    return np.stack([stage.q_function(states) for stage in policy.stages], axis=1)


def decisions(policy, states):
    """What each stage decides at states, given some budgets and uniform numbers, `[T, 3, N]`."""
    draws = np.random.default_rng(0).random((len(states), 3))
    return np.array([stage.choose(states, draws[:, 0], draws[:, 1:]) for stage in policy.stages])


# Against backups


@each_kind
@pytest.mark.parametrize("valuation", ["self", "crossed"])
@pytest.mark.parametrize(("seed", "horizon"), [(0, 1), (0, 2), (1, 3), (2, 5)])
def test_every_stage_is_as_many_backups_as_there_are_steps_to_go(stages, valuation, seed, horizon):
    """Two copies are whole each, so it makes no difference which model values which."""
    model = fraction_model(seed, 0.9, horizon=horizon, cost_gamma=0.7)
    batch = every_step(model, horizon, n_copies=2)
    policy = fitted(batch, cost_gamma=0.7, valuation=valuation, stages=stages)
    solution = budgeted_value_iteration(model, EXACT.beta_grid)
    np.testing.assert_allclose(tables(policy), solution.stages, atol=1e-5)


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
    policy = fitted(every_step(model, 4, last=end), stages="shared")
    np.testing.assert_allclose(tables(policy), np.stack(expected, axis=1), atol=1e-5)


def test_shared_stages_learn_from_transitions_of_other_steps():
    """Each action at a state is seen at one of the first three steps, and at the last."""
    model = fraction_model(1, 0.9, horizon=4)
    batch = every_step(model, 4)
    place = (batch.state[:, 0] * 3 + batch.action) % 3
    part = batch.take((place == batch.step) | (batch.step == 3))
    solution = budgeted_value_iteration(model, EXACT.beta_grid)
    np.testing.assert_allclose(tables(fitted(part, stages="shared")), solution.stages, atol=1e-5)


def test_a_last_step_that_is_like_the_others_learns_from_their_transitions():
    """Each action at a state is seen at one step only, the last one included."""
    model = fraction_model(1, 0.9, horizon=4)
    batch = every_step(model, 4)
    place = (batch.state[:, 0] * 3 + batch.action) % 3
    part = batch.take((place == batch.step) | ((batch.step == 3) & (place == 0)))
    solution = budgeted_value_iteration(model, EXACT.beta_grid)
    alike, shared = (tables(fitted(part, stages=stages)) for stages in ("alike", "shared"))
    np.testing.assert_allclose(alike, solution.stages, atol=1e-5)
    assert abs(shared - solution.stages).max() > 0.1


@each_kind
def test_what_follows_the_last_step_is_worth_nothing_even_if_the_log_just_stops(stages):
    model = fraction_model(1, 0.9, horizon=3)
    arrays = every_step(model, 3).to_arrays()
    arrays["terminal"] = model.terminal[arrays["next_state"][:, 0].astype(int)]
    policy = fitted(TransitionBatch.from_arrays(arrays), stages=stages)
    solution = budgeted_value_iteration(model, EXACT.beta_grid)
    np.testing.assert_allclose(tables(policy), solution.stages, atol=1e-5)


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
def test_a_number_is_told_by_the_step_if_it_is_one_at_each_of_them(columns, expected):
    states, steps = np.column_stack(list(columns.values())), np.repeat([0, 1, 2], 2)
    order = np.array([4, 0, 3, 1, 5, 2])
    for rows in (np.arange(6), order):
        assert told_by_step(states[rows], steps[rows]).tolist() == expected


def test_where_every_step_has_one_row_nothing_is_told():
    states = np.arange(6.0).reshape(3, 2)
    assert told_by_step(states, np.arange(3)).tolist() == [False, False]


@pytest.mark.parametrize("acting", ["average", "pooled"])
def test_shared_stages_look_at_no_clock_even_after_they_were_stored(acting, tmp_path):
    """A table takes the first number that it is shown for the state."""
    plain = every_step(fraction_model(2, 0.9), 4, n_copies=2)
    batch = seen_with(plain, lambda step, row: step / 4, lambda step, row: 3.0 * (step % 2))
    changes = {"valuation": "crossed", "acting": acting, "stages": "shared"}
    policy = fitted(batch, **changes)
    policy.save(tmp_path / "p")
    numbers = np.random.default_rng(1).integers(3, size=(60, 1))
    expected = decisions(fitted(plain, **changes), numbers)
    assert all(len(np.unique(actions)) > 1 for actions in expected[:, 0])
    for played in (policy, bmdp.load_policy(tmp_path / "p")):
        for said in (0.0, 0.25, 99.0):
            seen = np.column_stack([np.full((60, 2), said), numbers])
            assert (decisions(played, seen) == expected).all()


@each_kind
def test_what_the_step_does_not_tell_is_looked_at(stages):
    """One of two numbers is the clock until the last step, where it is noise."""
    plain = every_step(fraction_model(2, 0.9), 4)
    batch = seen_with(plain, lambda step, row: np.where(step < 3, step, row % 2))
    policy = fitted(batch, model=KernelModel(20, (1.0,), (1e-3,)), stages=stages)
    early, late = (
        tables(policy, np.column_stack([np.full(4, said), STATES])) for said in (0.0, 2.5)
    )
    assert (early != late).any(axis=(0, 2, 3, 4)).all()


def test_the_clock_of_corridors_is_told_by_the_step():
    spec = EnvConfig("corridors", {"observe_time": True}).spec()
    explorer = RandomBudgetedPolicy(5, 0.0, 1.0)
    batch = collect(explorer, spec, range(30), budgets=np.full(30, 0.5), seed=0)
    assert told_by_step(batch.state, batch.step).tolist() == [False, False, True]


# Learning


@pytest.mark.parametrize(
    "changes",
    [
        {"stages": "shared", "valuation": "self", "model": NETWORK},
        {"stages": "shared", "valuation": "crossed"},
        {"stages": "shared", "valuation": "crossed", "acting": "pooled"},
    ],
)
def test_stage_by_stage_budgets_are_handed_on_through_a_chain(changes, tmp_path):
    batch = chain()
    policy = fitted(batch, LEARNED, **changes)
    starts, seconds = batch.state[batch.starts()], batch.next_state[batch.starts()]
    policy.save(tmp_path / "p")
    for played in (policy, bmdp.load_policy(tmp_path / "p")):
        tracker = played.start(starts, 0.4, np.random.default_rng(0))
        tracker.decide(starts)
        tracker.observe(np.zeros(len(starts)), seconds, np.zeros(len(starts), bool))
        assert tracker.decide(seconds).action.mean() == pytest.approx(0.4, abs=0.15)


def test_stages_are_in_one_unit_whatever_each_of_them_earns():
    """Both steps pay, the second one fifty times as much as the first."""
    arrays = chain().to_arrays()
    arrays["reward"] = np.where(arrays["step"] == 0, 1.0, 50.0 * arrays["reward"])
    batch = TransitionBatch.from_arrays(arrays)
    policy = fitted(batch, LEARNED, stages="shared")
    top = policy.stages[0].frontier(batch.state[batch.starts()[0]])
    assert top.rewards[-1] == pytest.approx(51, rel=0.02)
    assert top.costs[-1] == pytest.approx(1, abs=0.02)


# The run of stages

KERNEL = KernelModel(3, (0.5, 1.0), (1e-3, 0.1))


@each_kind
@pytest.mark.parametrize(
    ("model", "kill_at"),
    [
        (TableModel(), 1),
        (TableModel(), 4),
        (KERNEL, 1),
        (KERNEL, 2),
        (KERNEL, 3),
        (FrontierNet((8,)), 2),
        (EncoderNet((8,), (4,)), 2),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else type(value).__name__,
)
def test_stages_that_were_killed_go_on_as_if_nothing_had_been(model, kill_at, stages):
    batch, records = every_step(fraction_model(1, 0.9), 4, n_copies=2), []
    few = Regression(steps=3, batch_size=16, keep_moments=True)
    learner = BFTQ(replace(EXACT, model=model, regression=few, valuation="crossed", stages=stages))
    whole = learner.fit(batch, seed=3, device="cpu")
    memory = Memory(kill_at)
    with pytest.raises(KeyboardInterrupt):
        learner.fit(batch, seed=3, device="cpu", on_record=records.append, keeper=memory)
    again = learner.fit(batch, seed=3, device="cpu", on_record=records.append, keeper=memory)
    assert [record["step"] for record in records] == [3, 2, 1, 0]
    assert (tables(again) == tables(whole)).all()
    assert (tables(whole)[:, 0] != tables(whole)[:, 1]).any()


@each_kind
def test_every_stage_is_recorded_with_its_step(stages):
    records = []
    learner = BFTQ(replace(EXACT, iterations=2, stop_delta=9.0, stages=stages))
    batch = every_step(fraction_model(1, 0.9), 4)
    learner.fit(batch, seed=0, device="cpu", on_record=records.append)
    assert [record["iteration"] for record in records] == [0, 1, 2, 3]
    assert [record["step"] for record in records] == [3, 2, 1, 0]
    assert [record["is_last"] for record in records] == [False, False, False, True]
    assert all(np.isfinite(record["last_loss"]) for record in records)


@each_kind
def test_an_episode_is_in_the_same_half_at_every_stage(stages):
    """So that no model is valued by one that has seen its episodes."""
    learner = Stages(
        BudgetedFit, replace(LEARNED, stages=stages), chain(50), 0, torch.device("cpu")
    )
    halves = {0: set(), 1: set()}
    for step in range(2):
        fit = learner.fit(step)
        for half, mask in enumerate(fit.members):
            halves[half].update(fit.batch.episode[mask].tolist())
    assert len(halves[0]) == len(halves[1]) == 25
    assert not halves[0] & halves[1]


# What they need


@each_kind
def test_stages_need_steps(stages):
    arrays = bandit().to_arrays()
    del arrays["step"]
    with pytest.raises(DataError, match="stages need a batch with steps"):
        fitted(TransitionBatch.from_arrays(arrays), stages=stages)


def test_stages_need_both_halves_at_the_last_step():
    few = bandit(4).to_arrays() | {"step": np.array([0, 0, 0, 1])}
    with pytest.raises(DataError, match="step 1 have 1 transitions"):
        fitted(TransitionBatch.from_arrays(few), valuation="crossed", stages="shared")


def test_a_step_without_transitions_is_no_obstacle():
    model = fraction_model(1, 0.9, horizon=4)
    batch = every_step(model, 4, n_copies=2)
    batch = batch.take((batch.step != 1) & ((batch.step != 2) | (batch.episode == 0)))
    policy = fitted(batch, valuation="crossed", stages="shared")
    solution = budgeted_value_iteration(model, EXACT.beta_grid)
    np.testing.assert_allclose(tables(policy), solution.stages, atol=1e-5)


@each_kind
def test_the_last_step_alone_is_not_enough(stages):
    batch = every_step(fraction_model(1, 0.9), 4)
    with pytest.raises(DataError, match="0 transitions"):
        fitted(batch.take(batch.step == 3), stages=stages)


def test_there_are_three_kinds_of_stages():
    with pytest.raises(ConfigError, match="stages must be one of none, shared, alike; got 'each'"):
        replace(EXACT, stages="each")
    with pytest.raises(ConfigError, match=r"learner\.stages must be one of none, shared"):
        with_setting(SPEC, "learner.stages=each")
