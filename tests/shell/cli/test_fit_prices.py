"""`bmdp fit --data` with many prices of cost, on a ferry that is known and in corridors."""

import json

import numpy as np
import pytest

import bmdp
import commands
from bmdp.learn import Backward, LagrangianConfig, collect
from bmdp.learn.runs import RunFolder, spec_of
from bmdp.models import KernelModel, TableModel
from bmdp.policies import MultiplierPolicy, RandomBudgetedPolicy
from training import SPEC

N_DAYS = 3000
DAMAGE = 0.2  # probability that haste costs 1
PRICES = ("--set", "learner=LagrangianConfig", "--set", "learner.plays=carried")
TABLE = ("--set", "learner.model=TableModel", "--set", "learner.schedule=Backward")


def run(*arguments):
    return commands.run("fit", *arguments, columns=200)


def haste(action):
    """What a crossing earns."""
    return 1.0 + 2.0 * action


@pytest.fixture(scope="module")
def ferry(tmp_path_factory):
    """Three crossings a day, in haste or not by a coin: the log of docs/data.md."""
    rng, n_rows = np.random.default_rng(0), 3 * N_DAYS
    crossing, action = np.arange(n_rows) % 3, rng.integers(2, size=n_rows)
    batch = bmdp.TransitionBatch(
        state=crossing,
        action=action,
        reward=haste(action),
        cost=1.0 * action * (rng.random(n_rows) < DAMAGE),
        next_state=crossing + 1,
        terminal=crossing == 2,
        episode=np.arange(n_rows) // 3,
        step=crossing,
    )
    path = tmp_path_factory.mktemp("logs") / "log.parquet"
    batch.to_parquet(path)
    return path


def sailed(policy, budget, n_days=20_000):
    """Rewards and costs of days under a policy, `[n]` each."""
    rng = np.random.default_rng(1)
    tracker = policy.start(np.zeros((n_days, 1)), budget, rng)
    rewards, costs = np.zeros((2, n_days))
    for crossing in range(3):
        action = tracker.decide(np.full((n_days, 1), crossing)).action
        paid = 1.0 * action * (rng.random(n_days) < DAMAGE)
        rewards, costs = rewards + haste(action), costs + paid
        tracker.observe(paid, np.full((n_days, 1), crossing + 1), crossing == 2)
    return rewards, costs


def test_a_carried_price_is_learned_from_a_log_and_costs_what_is_asked(tmp_path, ferry):
    """The frontier is straight, and what a price of its very slope does is noise: so two ends."""
    ends = ("--set", 'learner.prices=[0, "inf"]')
    asked = ("--gamma", 1, "--budget-range", "0:1", *PRICES, *TABLE, *ends)
    result = run("--data", ferry, *asked, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"policy: {tmp_path / 'run' / 'policy'}\n"
    policy = bmdp.load_policy(tmp_path / "run")
    assert isinstance(policy, MultiplierPolicy)
    assert policy.budget_range == (0.0, 1.0)
    # What a day in haste costs, 0.6, is told by the log with this relative standard error.
    of_log = np.sqrt(3 * DAMAGE * (1 - DAMAGE) / (N_DAYS / 2)) / (3 * DAMAGE)
    for budget in (0.0, 0.2, 0.4, 1.0):
        rewards, costs = sailed(policy, budget)
        of_playing = costs.std() / np.sqrt(len(costs))
        wanted = min(budget, 3 * DAMAGE)
        error = np.hypot(of_playing, of_log * wanted)
        assert abs(costs.mean() - wanted) <= 4 * error  # confidence 0.9999 each
        assert abs(rewards.mean() - (3 + 10 * costs.mean())) <= 40 * of_playing


def test_options_are_kept_through_the_change_of_the_learner(tmp_path, ferry):
    before = ("--gamma", 0.5, "--budget-range", "0:2", "--set", "learner.ensemble=4")
    after = ("--set", 'learner.prices=[0, 10, "inf"]', *TABLE)
    assert run("--data", ferry, *before, *PRICES, *after, "--out", tmp_path / "run").exit_code == 0
    assert spec_of(RunFolder(tmp_path / "run")).learner == LagrangianConfig(
        gamma=0.5,
        budget_range=(0.0, 2.0),
        ensemble=4,
        plays="carried",
        prices=(0.0, 10.0, np.inf),
        model=TableModel(),
        schedule=Backward(),
    )


def test_a_preset_says_how_prices_are_learned(tmp_path, ferry):
    asked = ("--preset", "corridors", *PRICES, "--set", "learner.schedule=Backward")
    assert run("--data", ferry, *asked, "--out", tmp_path / "run").exit_code == 0
    learner, ours = spec_of(RunFolder(tmp_path / "run")).learner, bmdp.preset("corridors").learner
    assert isinstance(learner, LagrangianConfig)
    assert (learner.model, learner.ensemble) == (ours.model, ours.ensemble)


def test_what_to_expect_is_told_of_held_out_days(tmp_path, ferry):
    asked = ("--gamma", 1, "--set=held_out=0.5", *PRICES, *TABLE, "--out", tmp_path / "run")
    result = run("--data", ferry, *asked, "--json")
    assert result.exit_code == 0, result.stderr
    said = json.loads(result.stdout)["prediction"]
    assert said["n_episodes"] == N_DAYS // 2
    allowed = 4 * np.sqrt(3 * DAMAGE * (1 - DAMAGE) / (N_DAYS / 4)) + 0.01
    for budget, cost in zip(said["budgets"], said["cost"], strict=True):
        assert cost == pytest.approx(
            sailed(bmdp.load_policy(tmp_path / "run"), budget)[1].mean(), abs=allowed
        )


def test_a_run_of_prices_is_evaluated_where_the_environment_is_named(tmp_path):
    log = collect(
        RandomBudgetedPolicy(5, 0.0, 1.0), SPEC.env.spec(), range(60), budgets=[0.5] * 60, seed=0
    )
    log.to_npz(tmp_path / "log.npz")
    asked = ("--gamma", 1, *PRICES, "--set", "learner.model=KernelModel")
    once = "--set=learner.schedule=Iterations", "--set=learner.schedule.n=1"
    small = ("--set", "learner.model.centres=5", *once)
    result = run("--data", tmp_path / "log.npz", *asked, *small, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    assert spec_of(RunFolder(tmp_path / "run")).learner.model == KernelModel(5)
    there = ("--env", "corridors", "--set", "env.observe_time=true", "--set", "env.height=4")
    played = commands.run("evaluate", tmp_path / "run", *there, "--episodes", 20, "--json")
    assert played.exit_code == 0, played.stderr
    assert [row["budget"] for row in json.loads(played.stdout)["rows"]][-1] == 1.0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("learner=Lagrangian",), ("got 'Lagrangian'", "Did you mean 'LagrangianConfig'?")),
        (("learner.plays=carried",), ("say learner=LagrangianConfig before",)),
    ],
)
def test_errors_of_the_user_are_told_in_one_line(tmp_path, ferry, settings, words):
    options = [f"--set={text}" for text in settings]
    result = run("--data", ferry, "--gamma", 1, *options, "--out", tmp_path / "run")
    commands.assert_is_user_error(result, *words)
    assert not list(tmp_path.iterdir())


def test_prices_explore_an_environment(tmp_path):
    small = ("exploration.rounds=2", "exploration.episodes=20", "learner.model.centres=5")
    options = [f"--set={text}" for text in small]
    result = run("corridors", *PRICES, *options, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "run" / "policy").is_dir()
