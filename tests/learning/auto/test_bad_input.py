"""Bad input is refused in a sentence; a log that teaches little gives a policy and a note."""

import dataclasses
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

import bmdp
from bmdp import BudgetError, ConfigError, DataError, EnvError, StoreError, TransitionBatch
from bmdp.envs import CostFunction
from bmdp.learn.candidates import Recipe, learned, recipes
from bmdp.learn.natures import first_prices
from bmdp.models import ForestModel
from problems import walk_spec
from small_logs import changed, ferry, grid, lesson_of, plane

pandas = pytest.importorskip("pandas")


# What is refused


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["state", "next_state", "reward", "cost"])
def test_an_entry_that_is_no_number_is_named_with_its_row(name, value):
    frame = changed(ferry(20)).to_pandas()
    column = next(c for c in frame.columns if c.startswith(name))
    frame[column] = frame[column].astype(float)
    frame.loc[7, column] = value
    with pytest.raises(DataError, match=rf"{name}.* must be finite; 1 of 60 rows is not.*\[7\]"):
        bmdp.fit(frame, gamma=1.0)


@pytest.mark.parametrize("name", ["state_0", "reward", "cost", "action", "terminal"])
def test_a_column_of_text_is_refused_by_name(name):
    frame = changed(ferry(20)).to_pandas()
    frame[name] = "blue"
    with pytest.raises(DataError, match=f"{name.removesuffix('_0')}.* must"):
        bmdp.fit(frame, gamma=1.0)


def test_a_log_without_rows_is_refused():
    with pytest.raises(DataError, match="at least one transition"):
        bmdp.fit(ferry(20).to_pandas().iloc[:0], gamma=1.0)


def test_gamma_must_be_given_for_a_log():
    with pytest.raises(ConfigError, match="gamma must be given for a log"):
        bmdp.fit(ferry())


@pytest.mark.parametrize("gamma", [-0.1, 1.01, np.nan, np.inf])
def test_gamma_is_a_share(gamma):
    with pytest.raises(ConfigError, match="gamma must be"):
        bmdp.fit(ferry(), gamma=gamma)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget_range": (1.0, 0.0)}, "budget_range must"),
        ({"budget_range": (0.0, np.nan)}, "budget_range must"),
        ({"minutes": 0}, "minutes must be above 0"),
        ({"minutes": np.inf}, "minutes must be above 0 and finite"),
        ({"workers": 0}, "workers must be"),
        ({"episodes": 100}, "episodes are for exploring"),
        ({"seed": -1}, "seed must"),
        ({"device": "abacus"}, "device"),
    ],
)
def test_settings_are_checked_before_anything_is_done(settings, message):
    with pytest.raises(ConfigError, match=message):
        bmdp.fit(ferry(), gamma=0.9, **settings)


def test_too_few_episodes_of_exploring_are_refused():
    with pytest.raises(ConfigError, match="episodes must be"):
        bmdp.fit("corridors", episodes=10)


@pytest.mark.parametrize("source", [None, 3, [], {}, np.zeros((3, 4)), object(), [1, 2]])
def test_a_source_of_another_type_is_refused(source):
    with pytest.raises(DataError, match="source must be a TransitionBatch, a data frame"):
        bmdp.fit(source, gamma=0.9)


@pytest.mark.parametrize("name", ["nowhere.parquet", "nowhere.npz", "nowhere.h5", "nowhere.csv"])
def test_a_file_that_does_not_exist_is_refused(tmp_path, name):
    with pytest.raises(StoreError, match="nowhere"):
        bmdp.fit(str(tmp_path / name), gamma=0.9)
    with pytest.raises(StoreError, match="nowhere"):
        bmdp.fit([tmp_path / name], gamma=0.9)


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "log.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="csv"):
        bmdp.fit(str(tmp_path / "log.csv"), gamma=0.9)


@pytest.mark.parametrize("name", ["log.xlsx", "logs/nothing.txt", "corridor"])
def test_a_text_that_names_neither_a_file_nor_an_environment_is_refused(name):
    with pytest.raises(ConfigError, match=f"no environment is called '{name}'"):
        bmdp.fit(name, gamma=0.9)


def test_a_text_that_looks_like_a_file_is_said_to_be_none():
    with pytest.raises(ConfigError, match="Nor is it a file"):
        bmdp.fit("logs/nothing.txt", gamma=0.9)


@pytest.mark.parametrize("kind", [str, Path, lambda path: [path]])
def test_a_folder_without_parquet_is_no_log(tmp_path, kind):
    with pytest.raises(DataError, match=f"{tmp_path.name} holds no Parquet"):
        bmdp.fit(kind(tmp_path), gamma=0.9)


def test_a_folder_that_exists_is_not_written_to(tmp_path):
    with pytest.raises(StoreError, match="exists already: choose another folder"):
        bmdp.fit(ferry(), gamma=0.9, out=tmp_path)
    assert list(tmp_path.iterdir()) == []


# Budgets


@pytest.fixture(scope="module")
def fitted():
    return bmdp.fit(grid(), gamma=0.9)


@pytest.mark.parametrize("budget", [-0.5, np.nan])
def test_a_budget_below_the_range_is_refused(fitted, budget):
    with pytest.raises(BudgetError):
        fitted.policy.start(grid().state[:2], budget, np.random.default_rng(0))


def test_a_budget_above_the_range_buys_the_most(fitted):
    tracker = fitted.policy.start(grid().state[:2], 1e6, np.random.default_rng(0))
    assert (tracker.decide(grid().state[:2]).status == bmdp.BudgetStatus.SLACK).all()


@pytest.mark.parametrize(
    ("ends", "note"), [((-3.0, -2.0), "is below the least cost"), ((50.0, 60.0), "is above the")]
)
def test_a_range_of_budgets_beyond_all_costs_is_noted(ends, note):
    found = bmdp.fit(grid(), gamma=0.9, budget_range=ends)
    assert any(f"budget_range, {ends[0]:g} to {ends[1]:g}, {note}" in line for line in found.notes)
    assert found.policy.budget_range[1] == ends[1]


# Logs that teach little


def flat(name, value):
    return lambda log: {name: np.full(len(log), value)}


def same_state(log):
    return {name: np.zeros_like(log.state) for name in ("state", "next_state")}


FIRST = {
    "no costs": (flat("cost", 0.0), "all costs are 0"),
    "only costs": (flat("reward", 0.0), "all rewards are 0"),
    "costs that never vary": (flat("cost", 0.1), "all costs are 0.1"),
    "costs below 0": (flat("cost", -0.1), "all costs are -0.1"),
    "rewards that never vary": (flat("reward", 0.1), "all rewards are 0.1"),
    "one action": (flat("action", 0), "only action 0 was ever taken"),
    "a single state": (same_state, "all states are the same"),
    "all terminal": (flat("terminal", True), "every row is terminal"),
    "none terminal": (flat("terminal", False), "no row is terminal"),
}
each_fault = pytest.mark.parametrize(("change", "note"), FIRST.values(), ids=FIRST.keys())


def assert_is_told(found, log, note):
    """A policy that plays at any of its budgets, numbers in its forecast, and a note."""
    for budget in found.policy.budget_range:
        tracker = found.policy.start(log.state[:3], budget, np.random.default_rng(0))
        assert (tracker.decide(log.state[:3]).action < log.n_actions).all()
    assert np.isfinite(found.forecast.cost).all()
    assert np.isfinite(found.forecast.reward).all()
    assert any(note in line for line in found.notes), found.notes
    assert note in str(found)


@each_fault
@pytest.mark.parametrize("log", [grid, plane])
def test_a_log_that_teaches_little_gives_a_policy_and_a_note(log, change, note):
    batch = log(30)
    batch = changed(batch, **change(batch))
    minutes = None if log is grid else 0.01  # time for a candidate or two
    assert_is_told(bmdp.fit(batch, gamma=0.5, minutes=minutes), batch, note)


RECIPES = recipes(lesson_of(plane()).nature, 2)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
@each_fault
def test_every_candidate_learns_from_a_log_that_teaches_little(change, note, recipe):
    batch = plane(30)
    lesson = lesson_of(changed(batch, **change(batch)), gamma=0.5)
    prices = first_prices(lesson.batch, 0.5, 4)
    points = learned(recipe, lesson, prices).policy.at_step(0).points(lesson.batch.state)
    assert np.isfinite(points.costs).all()
    assert np.isfinite(points.rewards).all()


def some(log, rows):
    return log.take(np.flatnonzero(rows(log)))


SMALL = {
    "one episode": (some(plane(), lambda log: log.episode == 3), "the log has 1 episodes"),
    "one row": (some(plane(), lambda log: np.arange(len(log)) == 0), "the log has 1 episodes"),
    "three rows": (some(plane(), lambda log: (log.episode == 3) & (log.step < 3)), "the log has 1"),
    "two episodes": (some(grid(), lambda log: log.episode < 2), "the log has 2 episodes"),
    "one row an episode": (some(plane(), lambda log: log.step == 3), "every episode has one row"),
}


SMALL_CASES = [pytest.param(*case, id=name) for name, case in SMALL.items()]


@pytest.mark.parametrize(("log", "note"), SMALL_CASES)
def test_a_small_log_gives_a_policy_and_a_note(log, note):
    assert_is_told(bmdp.fit(log, gamma=0.9), log, note)


def test_a_small_log_is_learned_from_without_a_warning():
    lesson = lesson_of(plane(10))
    forest = Recipe("forest", ForestModel(trees=2, leaf=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learned(forest, lesson, first_prices(lesson.batch, 0.9, 4))


def test_a_log_without_an_end_at_gamma_1_is_counted_for_so_many_steps():
    log = changed(grid(30), terminal=np.zeros(120, bool))
    found = bmdp.fit(log, gamma=1.0, minutes=0.01)
    assert_is_told(found, log, "costs and rewards add up for ever: they are counted for 100 steps")
    assert found.forecast.cost.max() <= 100 * log.cost.max()


@pytest.mark.parametrize("drop", [("episode",), ("step",), ("episode", "step")])
def test_what_a_log_does_not_say_of_episodes_is_found(drop):
    log = grid(60).take(np.lexsort((grid(60).step, grid(60).episode)))
    whole, found = bmdp.fit(log, gamma=0.9), bmdp.fit(changed(log, drop), gamma=0.9)
    np.testing.assert_array_equal(found.forecast.cost, whole.forecast.cost)


def test_a_log_in_no_order_without_episodes_is_noted():
    log = changed(grid(60), ("episode", "step"))  # step by step, over all episodes
    assert_is_told(bmdp.fit(log, gamma=0.5), log, "episodes are unknown")


def test_many_actions_and_few_rows_of_each_are_noted():
    rng = np.random.default_rng(0)
    arrays = plane(60).to_arrays() | {"action": rng.integers(50, size=240)}
    log = TransitionBatch(**arrays, n_actions=50)
    found = bmdp.fit(log, gamma=0.5, minutes=0.01)
    assert_is_told(found, log, "of 50 actions were taken less than 10 times")


def test_many_numbers_and_few_rows_are_noted():
    rng = np.random.default_rng(0)
    state, following = rng.random((2, 300, 200))
    log = changed(plane(75), state=state, next_state=following)
    found = bmdp.fit(log, gamma=0.5, minutes=0.01)
    assert_is_told(found, log, "300 transitions are few for states of 200 numbers")


def test_where_a_step_always_costs_the_same_the_dial_is_of_lengths():
    """One may stop at once, or go on for a reward at cost 1 a step: what pays is longer."""
    rng = np.random.default_rng(0)
    rows = []
    for episode in range(200):
        for step in range(3):
            goes_on = int(rng.integers(2))
            rows.append((step, goes_on, 2.0 * goes_on, 1.0, step + 1, not goes_on, episode, step))
            if not goes_on:
                break
    names = ("state", "action", "reward", "cost", "next_state", "terminal", "episode", "step")
    arrays = {n: np.array(c) for n, c in zip(names, zip(*rows, strict=True), strict=True)}
    arrays["terminal"] |= arrays["step"] == 2
    found = bmdp.fit(TransitionBatch(**arrays), gamma=1.0)
    states = np.zeros((400, 1))
    low, high = (
        found.policy.start(states, budget, np.random.default_rng(0)).decide(states).action.mean()
        for budget in (1.0, 3.0)
    )
    assert (low, high) == (0.0, 1.0)


def test_where_nothing_is_earned_little_is_spent_at_budget_0(fitted):
    log = changed(grid(200), reward=np.zeros(800))
    found = bmdp.fit(log, gamma=0.9)
    tracker = found.policy.start(log.state, 0.0, np.random.default_rng(0))
    assert (tracker.decide(log.state).action == 0).all()  # the only one that never costs


# Environments


class Endless(gymnasium.Env):
    """Never ends by itself; action 1 earns, and costs half of the time."""

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space, action_space = spaces.Discrete(1), spaces.Discrete(2)

    def __init__(self, breaks=False, cost=True, made=True):
        if not made:
            raise OSError("no such display")
        self.breaks, self.cost = breaks, cost

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        if self.breaks and action == 1:
            raise KeyError("wheel")
        info = {"cost": float(action * self.np_random.integers(2))} if self.cost else {}
        return 0, float(action), False, False, info


def endless(**settings):
    return EnvSpec("tests/Endless-v0", entry_point=Endless, kwargs=settings)


def test_an_environment_that_never_ends_is_cut_off_and_that_is_said():
    found = bmdp.fit(endless(), gamma=0.5, episodes=50)
    assert any("did not end by themselves within 50 steps" in note for note in found.notes)
    assert found.forecast.cost.max() < 2  # 1 / (1 - 0.5)


def test_an_environment_that_raises_is_named_with_its_error():
    message = r"tests/Endless-v0 failed while it was played: KeyError: 'wheel'"
    with pytest.raises(EnvError, match=message):
        bmdp.fit(endless(breaks=True), gamma=0.5, episodes=50)


def test_an_environment_that_cannot_be_made_is_named_with_its_error():
    with pytest.raises(EnvError, match="tests/Endless-v0 cannot be made: OSError: no such display"):
        bmdp.fit(endless(made=False), gamma=0.5, episodes=50)


def test_an_environment_without_costs_is_refused():
    with pytest.raises(EnvError, match=r"must give info\['cost'\] at every step"):
        bmdp.fit(endless(cost=False), gamma=0.5, episodes=50)


def test_an_environment_of_continuous_actions_is_refused():
    with pytest.raises(EnvError, match="Pendulum-v1 must have discrete actions"):
        bmdp.fit("Pendulum-v1", episodes=50)
    costly = EnvSpec(
        "tests/CostlyPendulum-v0",
        entry_point=lambda: CostFunction(gymnasium.make("Pendulum-v1"), lambda *_: 0.0),
    )
    with pytest.raises(EnvError, match="only Discrete actions are supported; got Box"):
        bmdp.fit(costly, episodes=50)


def test_settings_that_an_environment_does_not_have_are_refused():
    spec = dataclasses.replace(walk_spec(), kwargs={"colour": 3})
    with pytest.raises(ConfigError, match="does not take the settings"):
        bmdp.fit(spec, episodes=50)


def test_an_environment_that_cannot_be_made_again_is_no_run(tmp_path):
    with pytest.raises(ConfigError, match="can be made again by its id"):
        bmdp.fit(walk_spec(), episodes=50, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
