"""Learning by exploring: rounds, and exploring where little is known, by counts or optimism."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from bmdp import ConfigError, TransitionBatch, explore, load_policy
from bmdp.learn import (
    Backward,
    Exploration,
    FTQConfig,
    Iterations,
    TrainingSpec,
    collect,
    resume,
    train,
)
from bmdp.learn.explore import (
    CollectionRecord,
    RoundRecord,
    Rounds,
    count_bonus,
    round_seed,
)
from bmdp.learn.learners import learner_of
from bmdp.models import FrontierNet, LinearModel, Regression
from bmdp.policies import ExploringPolicy, RandomBudgetedPolicy
from training import LEARNER, SPEC, content

PRICED = FTQConfig(
    gamma=1.0,
    model=FrontierNet((8,), "free", regression=Regression(steps=30, learning_rate=0.03)),
    schedule=Iterations(2, settled=0.0),
    ensemble=2,
)


def batch_of(state, action, **changes):
    n = len(action)
    columns = {"reward": np.zeros(n), "cost": np.zeros(n), "terminal": np.ones(n, bool)}
    return TransitionBatch(state=state, action=action, next_state=state, **(columns | changes))


# Counts


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_bonus_is_that_of_rows_that_are_counted_one_by_one(dtype):
    rng = np.random.default_rng(0)
    state = np.column_stack([rng.normal(7, 3, 300), rng.integers(2, size=300), np.full(300, 4.0)])
    reward = np.where(np.arange(300) == 7, -10.0, 1.0)
    batch = batch_of(state.astype(dtype), rng.integers(3, size=300), reward=reward)
    found = count_bonus(batch, 2.0)
    x = batch.state.astype(float)
    sides = 0.5 * np.array([x[:, 0].std(), x[:, 1].std(), 1.0])
    places = [tuple(np.floor((row - x.mean(axis=0)) / sides)) for row in x]
    rows = list(zip(places, batch.action.tolist(), strict=True))
    expected = [20 / sum(other == row for other in rows) ** 0.5 for row in rows]
    assert found.tolist() == pytest.approx(expected)
    assert len(set(expected)) > 5


def test_cells_are_of_states_in_their_own_deviations():
    state = np.random.default_rng(1).normal(size=(200, 2))
    action = np.zeros(200, int)
    one = count_bonus(batch_of(state, action), 1.0)
    other = count_bonus(batch_of(state * [1024, 0.125], action), 1.0)
    assert one.tolist() == other.tolist()


# Rounds


class Kept:
    """Keeps the policies of all rounds, and nothing else."""

    def __init__(self):
        self.policies = []

    def batch(self, number):
        return None

    policy = keeper = batch

    def keep_batch(self, number, batch):
        """Not kept."""

    def keep_policy(self, number, policy):
        self.policies.append(policy)


def exploring(learner=LEARNER, **changes):
    return replace(SPEC, learner=learner, exploration=replace(SPEC.exploration, **changes))


@cache
def played(spec_name):
    """All episodes, and the policies of both rounds."""
    store = Kept()
    rounds = Rounds(SPECS[spec_name], 0, lambda record: None, device="cpu", store=store)
    return rounds.explore()[0], store.policies


SPECS = {
    "none": exploring(),
    "count": exploring(count_bonus=5.0),
    "optimism": exploring(optimism=2.0),
    "none, priced": exploring(PRICED),
    "count, priced": exploring(PRICED, count_bonus=5.0),
    "optimism, priced": exploring(PRICED, optimism=2.0),
}
CURIOUS = [name for name in SPECS if not name.startswith("none")]


def of_round(batch, number):
    return batch.take(batch.episode // 20 == number)


def q_values(policy, states):
    return np.stack(policy.q_function(states))


def same_rows(one, other):
    return len(one) == len(other) and all(
        np.array_equal(a, other.to_arrays()[name]) for name, a in one.to_arrays().items()
    )


@pytest.mark.parametrize("name", CURIOUS)
def test_what_is_played_differs_from_the_second_round_on(name):
    plain = played("none, priced" if "priced" in name else "none")[0]
    found = played(name)[0]
    assert same_rows(of_round(found, 0), of_round(plain, 0))
    assert not same_rows(of_round(found, 1), of_round(plain, 1))


@pytest.mark.parametrize("name", CURIOUS)
def test_the_last_round_learns_from_plain_rewards_without_a_bonus(name):
    batch, (_, last) = played(name)
    learner = PRICED if "priced" in name else LEARNER
    expected = learner_of(learner).fit(batch, seed=round_seed(0, 1), device="cpu")
    states = batch.state[:50]
    np.testing.assert_array_equal(q_values(last, states), q_values(expected, states))


@pytest.mark.parametrize("name", ["count", "count, priced"])
def test_the_first_round_learns_from_rewards_with_counts(name):
    batch, (first, _) = played(name)
    rows = of_round(batch, 0)
    columns = rows.to_arrays() | {"reward": rows.reward + count_bonus(rows, 5.0)}
    rich = TransitionBatch.from_arrays(columns, n_actions=5)
    learner = learner_of(SPECS[name].learner)
    expected = learner.fit(rich, seed=round_seed(0, 0), device="cpu")
    states = batch.state[:50]
    np.testing.assert_array_equal(q_values(first, states), q_values(expected, states))


@pytest.mark.parametrize("name", ["optimism", "optimism, priced"])
def test_learning_is_optimistic_but_in_the_last_round(name):
    batch, (first, last) = played(name)
    assert (first.q_function.caution, last.q_function.caution) == (-2.0, 0.0)
    rows, settings = of_round(batch, 0), replace(SPECS[name].learner, caution=-2.0)
    expected = learner_of(settings).fit(rows, seed=round_seed(0, 0), device="cpu")
    states = batch.state[:50]
    np.testing.assert_array_equal(q_values(first, states), q_values(expected, states))


@pytest.mark.parametrize(
    "changes",
    [{"count_bonus": 1.0}, {"optimism": 2.0}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_curious_run_that_was_killed_ends_as_if_it_had_not_been(changes, tmp_path):
    spec, seen = exploring(**changes), []

    def killed(record):
        seen.append(record)
        if len(seen) == 4:  # the second round was played, but is not yet kept
            raise KeyboardInterrupt

    train(spec, tmp_path / "whole", seed=0, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        train(spec, tmp_path / "run", seed=0, device="cpu", on_record=killed)
    resume(tmp_path / "run")
    for part in ("policy", "round-000", "round-001"):
        assert content(tmp_path / "run" / part) == content(tmp_path / "whole" / part)


def test_epsilon_falls_by_the_steps_of_all_rounds_before():
    spec = exploring(decay=0.01, floor=0.2, decay_by="step")
    store = Kept()
    batch, _ = Rounds(spec, 0, lambda record: None, device="cpu", store=store).explore()
    first, second = (of_round(batch, number) for number in range(2))
    random = RandomBudgetedPolicy(5, 0.0, 1.0)
    explorer = ExploringPolicy(store.policies[0], random, 0.01, 0.2, length=len(first) / 20)
    budgets = second.budget[second.starts()]
    by_hand = collect(explorer, SPEC.env.spec(), range(20, 40), budgets=budgets, seed=0)
    assert same_rows(second, by_hand)
    assert not same_rows(
        second, of_round(explore(exploring(decay=0.01, floor=0.2), seed=0).batch, 1)
    )


def test_budgets_may_stay_at_the_top_of_the_range():
    learner = replace(LEARNER, budget_range=(0.0, 1.5))
    batch = explore(exploring(learner, budgets="top", move=0.5), seed=0, device="cpu").batch
    assert set(batch.budget) == set(batch.next_budget) == {1.5}
    free = explore(exploring(learner, move=0.5), seed=0, device="cpu").batch
    assert free.budget.min() < 0.5
    assert not same_rows(of_round(batch, 1), of_round(free, 1))


@pytest.mark.slow
@pytest.mark.parametrize("decay_by", ["episode", "step"])
def test_any_number_of_workers_explores_the_same(decay_by):
    how = Exploration(2, 70, decay=0.05, optimism=2.0, decay_by=decay_by)  # of two parts a round
    spec = replace(SPEC, exploration=how)
    one, two = (explore(spec, seed=1, workers=workers, device="cpu") for workers in (1, 2))
    assert same_rows(one.batch, two.batch)


def test_steps_are_explored_by_their_models():
    learner = replace(LEARNER, schedule=Backward(), model=LinearModel())
    spec = exploring(learner, optimism=2.0)
    result = explore(spec, seed=0, device="cpu")
    plain = explore(exploring(learner), seed=0, device="cpu")
    assert not same_rows(of_round(result.batch, 1), of_round(plain.batch, 1))


def test_a_policy_that_was_learned_with_optimism_is_stored(tmp_path):
    policy = played("optimism")[1][0]
    policy.save(tmp_path / "policy")
    assert load_policy(tmp_path / "policy").q_function.caution == -2.0


# Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 0}, "rounds must be a whole number from 1 on; got 0"),
        ({"optimism": -1.0}, "optimism must be from 0 on; got -1.0"),
        ({"optimism": np.inf}, "optimism must be finite; got inf"),
        ({"count_bonus": -1.0}, "count_bonus must be from 0 on; got -1.0"),
        ({"count_bonus": np.inf}, "count_bonus must be finite; got inf"),
        ({"floor": 1.5}, "floor must be from 0 to 1; got 1.5"),
        ({"move": -0.5}, "move must be from 0 to 1; got -0.5"),
        ({"budgets": "low"}, "budgets must be one of uniform, top; got 'low'"),
        ({"decay_by": "day"}, "decay_by must be one of episode, step; got 'day'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Exploration(**settings)


def test_one_model_has_no_deviations_to_be_optimistic_by():
    with pytest.raises(ConfigError, match=r"optimism needs learner\.ensemble above 1; got 1"):
        exploring(replace(LEARNER, ensemble=1), optimism=2.0)


def test_a_log_is_not_explored():
    with pytest.raises(ConfigError, match="needs env and exploration to explore"):
        explore(TrainingSpec(None, LEARNER, None), seed=0)


def test_records_say_what_kind_they_are_and_of_which_round():
    seen = []
    result = explore(exploring(), seed=0, device="cpu", on_record=seen.append)
    assert list(result.records) == seen
    first, *_, last = seen
    assert (type(first), type(last)) == (CollectionRecord, RoundRecord)
    assert first.transitions == len(of_round(result.batch, 0))
    assert first.cost == pytest.approx(of_round(result.batch, 0).cost.sum() / 20)
    sizes = {"round": 1, "n_rounds": 2, "n_iterations": 2}
    assert last.as_dict() == {**sizes, **last.of.as_dict()}
    assert last.of.is_last


@pytest.mark.parametrize(
    ("schedule", "most"),
    [
        (Iterations(3, settled=0.0), [3, 3, 3]),
        (Iterations(5, settled=0.0, stop_loss=1e9), [5, 2]),  # the last one knows that it is
        (Backward(), [9] * 9),
    ],
)
def test_records_tell_how_many_iterations_there_are_at_most(schedule, most):
    learner = replace(LEARNER, schedule=schedule, model=LinearModel())
    records = explore(exploring(learner, rounds=1), seed=0, device="cpu").records
    assert [r.n_iterations for r in records if r.kind == "iteration"] == most


def test_no_two_rounds_of_two_runs_share_a_seed():
    """If a round's were the run's plus its number, round 1 of seed 0 would be round 0 of seed 1."""
    seeds = [round_seed(seed, number) for seed in range(20) for number in range(20)]
    assert len(set(seeds)) == len(seeds)
