import json

import gymnasium
import numpy as np
import pandas as pd
import pytest

import bmdp
import commands
from bmdp import FiniteBMDP
from bmdp.envs import ScriptedPolicy
from bmdp.envs.finite import FiniteEnv, FiniteVectorEnv
from bmdp.exact import budgeted_value_iteration, evaluate_policy
from bmdp.learn import EnvConfig, Exploration, TrainingSpec, auto, train
from bmdp.policies import RandomBudgetedPolicy
from commands import assert_is_user_error
from problems import walk_spec
from training import LEARNER, SPEC

GRID = [0.0, 0.15, 0.3, 0.45]
ASKED = ("--env", "Hazard-v0", "--cost-range", "0:0.9", "--budgets", "0:0.45:0.15")


def run(*arguments):
    return commands.run("calibrate", *arguments, columns=200)


def found(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def hazard():
    """One decision: the more an action pays, the more often a cost of 1 follows, discounted 0.9."""
    chances = np.array([0.02, 0.2, 0.5])
    transition = np.zeros((3, 3, 3))
    transition[0, :, 1], transition[0, :, 2], transition[1, :, 2] = chances, 1 - chances, 1
    return FiniteBMDP(
        transition=transition,
        reward=[[0.0, 5.0, 8.0], [0.0] * 3, [0.0] * 3],
        cost=[[0.0] * 3, [1.0] * 3, [0.0] * 3],
        gamma=0.9,
        terminal=[False, False, True],
    )


@pytest.fixture
def dial(tmp_path, monkeypatch):
    """Folder of a policy whose exact costs are known, in an environment that has an id."""
    entry = {"entry_point": FiniteEnv, "vector_entry_point": FiniteVectorEnv}
    spec = gymnasium.envs.registration.EnvSpec("Hazard-v0", kwargs={"model": hazard()}, **entry)
    monkeypatch.setitem(gymnasium.registry, "Hazard-v0", spec)
    solution = budgeted_value_iteration(hazard(), GRID, tol=1e-9, max_iterations=100)
    solution.policy().save(tmp_path / "dial")
    return tmp_path / "dial"


def true_costs(policy):
    return evaluate_policy(hazard(), policy, np.array(GRID))[1][0]


def scripted(tmp_path, *rules):
    for rule in rules:
        ScriptedPolicy(f"slot-filling/{rule}").save(tmp_path / rule)
    return [tmp_path / rule for rule in rules]


# Promises


def test_promised_costs_are_above_the_exact_ones(tmp_path, dial):
    promised = found(dial, *ASKED, "--confidence", 0.99, "--out", tmp_path / "out", "--seed", 3)
    rows = sorted(promised["rows"], key=lambda row: row["budget"])
    assert [row["budget"] for row in rows] == GRID
    exact = true_costs(bmdp.load_policy(dial))
    assert (np.array([row["promised_cost"] for row in rows]) > exact).all()
    assert [row["cost"] for row in rows] == pytest.approx(exact, abs=0.06)


def test_what_is_saved_keeps_every_budget_exactly(tmp_path, dial):
    found(dial, *ASKED, "--out", tmp_path / "out")
    policy, costs = bmdp.load_policy(tmp_path / "out"), true_costs(bmdp.load_policy(dial))
    asked = np.linspace(policy.certificate.smallest_budget, policy.budget_range[1], 21)
    mixed = policy.portfolio.mixtures(asked)
    low, high = costs[mixed.lower], costs[mixed.upper]
    assert (low + mixed.p_upper * (high - low) <= asked).all()


def test_the_certificate_is_that_of_the_library(tmp_path):
    folders = scripted(tmp_path, "voice-again", "key-pad")
    asked = ("--env", "slot-filling", "--episodes", 300, "--confidence", 0.9, "--seed", 7)
    told = found(*folders, *asked, "--out", tmp_path / "out")
    policies = [bmdp.load_policy(folder) for folder in folders]
    same = bmdp.calibrate(policies, "slot-filling", confidence=0.9, n_episodes=300, seed=7)
    expected = same.certificate
    assert [row["promised_cost"] for row in told["rows"]] == expected.cost_high.tolist()
    assert [row["run"] for row in told["rows"]] == [str(folder) for folder in folders]
    assert [row["reward"] for row in told["rows"]] == expected.reward_mean.tolist()
    assert told["smallest_budget"] == expected.smallest_budget
    names = ("env", "confidence", "episodes", "seed", "cost_range", "binary_costs")
    about = ["bmdp/SlotFilling-v0", 0.9, 300, 7, [0.0, 1.0], True]
    assert [told[name] for name in names] == about
    saved = bmdp.load_policy(tmp_path / "out").certificate
    assert saved.cost_high.tolist() == expected.cost_high.tolist()


def test_the_table_says_what_is_promised_and_what_is_not(tmp_path):
    folders = scripted(tmp_path, "voice-again", "key-pad")
    result = run(*folders, "--env", "slot-filling", "--episodes", 500, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    head, *rows = [
        [cell.strip() for cell in line.replace("┃", "│").split("│")[1:-1]]
        for line in result.stdout.splitlines()
        if "│" in line or "┃" in line
    ]
    assert head == ["budget", "member", "seen cost", "promised cost", "reward"]
    assert [row[1] for row in rows] == [str(folder) for folder in folders]
    assert float(rows[0][3]) == pytest.approx(np.log(40) / 500, rel=0.01)
    *_, promised, scope, counts, not_promised, place = result.stdout.splitlines()
    assert promised.startswith("Promised with confidence 0.95: at every budget from 0.007")
    assert "bmdp/SlotFilling-v0" in scope
    assert "500 episodes of each of 2 members" in counts
    for words in ("a single episode", "INFEASIBLE", "rewards", "--seed"):
        assert words in not_promised
    assert place == f"policy: {tmp_path / 'out'}"


def test_a_member_that_another_beats_is_never_played(tmp_path):
    folders = scripted(tmp_path, "voice-again", "key-pad")
    ScriptedPolicy("slot-filling/voice-again").save(tmp_path / "same")
    asked = ("--env", "slot-filling", "--episodes", 200, "--out", tmp_path / "out")
    told = found(*folders, tmp_path / "same", *asked)
    assert [row["played"] for row in told["rows"]].count(False) == 1


# Where it is played


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibrate") / "run"
    train(TrainingSpec(SPEC.env, LEARNER, Exploration(1, 20)), folder, seed=0)
    return folder


def test_a_run_is_played_in_its_own_environment_and_so_is_the_new_policy(tmp_path, trained):
    out = tmp_path / "out"
    told = found(trained, "--episodes", 20, "--budgets", "0:1:0.5", "--out", out)
    assert (told["env"], told["settings"]) == ("bmdp/Corridors-v0", {"observe_time": True})
    asked = ("--budgets", 1, "--episodes", 5, "--set", "env.height=5", "--json")
    played = commands.run("evaluate", out, *asked)
    assert played.exit_code == 0, played.stderr
    assert json.loads(played.stdout)["env"] == "bmdp/Corridors-v0"


def test_workers_change_nothing_but_rounding(tmp_path):
    (folder,) = scripted(tmp_path, "key-pad")
    asked = (folder, "--env", "slot-filling", "--episodes", 50)
    one, two = (found(*asked, "--workers", n, "--out", tmp_path / f"{n}")["rows"] for n in (1, 2))
    assert one == two


def test_runs_of_different_environments_need_one_that_is_named(tmp_path, trained):
    smaller = EnvConfig("corridors", {"observe_time": True, "height": 5})
    train(TrainingSpec(smaller, LEARNER, Exploration(1, 20)), tmp_path / "other", seed=0)
    asked = (trained, tmp_path / "other", "--episodes", 5, "--out", tmp_path / "out")
    assert_is_user_error(run(*asked), str(tmp_path / "other"), "different", "--env")
    named = ("--env", "corridors", "--set", "env.observe_time=true")
    assert len(found(*asked, *named)["rows"]) == 22


# What it refuses


def test_a_policy_is_overwritten_only_by_force_and_only_if_it_is_one(tmp_path, monkeypatch):
    (folder,) = scripted(tmp_path, "key-pad")
    asked = (folder, "--env", "slot-filling", "--episodes", 20, "--out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all I have")
    with monkeypatch.context() as patched:
        patched.setattr("bmdp.cli.calibrate.certify", lambda *_, **__: pytest.fail("played first"))
        assert_is_user_error(run(*asked, folder), "exists already", "--force")
        result = run(*asked, tmp_path / "mine", "--force")
        assert_is_user_error(result, "is no policy, and is not overwritten")
    assert (tmp_path / "mine" / "thesis.txt").exists()
    assert run(*asked, tmp_path / "out").exit_code == 0
    assert found(*asked, tmp_path / "out", "--force", "--seed", 5)["seed"] == 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--confidence", 1), ("confidence", "1")),
        (("--budgets", "0:1"), ("--budgets", "0:1")),
        (("--cost-range", "1:0"), ("--cost-range", "must rise", "1:0")),
        (("--cost-range", "0:0.5"), ("cost of an episode must be", "got 1 at episode")),
    ],
)
def test_errors_of_the_user_are_told_in_one_line(tmp_path, arguments, words):
    (folder,) = scripted(tmp_path, "key-pad")
    asked = (folder, "--episodes", 20, "--out", tmp_path / "out", "--env", "slot-filling")
    assert_is_user_error(run(*asked, *arguments), *words)
    assert not (tmp_path / "out").exists()


def test_an_environment_that_does_not_say_its_costs_needs_their_range(tmp_path, monkeypatch):
    monkeypatch.setitem(gymnasium.registry, "Walk-v0", walk_spec())
    RandomBudgetedPolicy(2, 0.0, 9.0).save(tmp_path / "any")
    asked = (tmp_path / "any", "--env", "Walk-v0", "--episodes", 20, "--out", tmp_path / "out")
    assert_is_user_error(run(*asked), "cost_range must be given", "Walk-v0")
    assert found(*asked, "--cost-range", "1:5")["cost_range"] == [1.0, 5.0]


@pytest.mark.parametrize("arguments", [(), ("--out", "x"), ("RUN",), ("RUN", "--episodes", 0)])
def test_bad_usage(arguments):
    assert run(*arguments).exit_code == 2


# By a log


def write_log(path, n=300, seed=0):
    """Calm days and storms; to hurry earns more, and costs more in a storm."""
    rng = np.random.default_rng(seed)
    storm, hurry = rng.random(n) < 0.5, rng.random(n) < 0.5
    columns = {
        "weather": np.where(storm, "storm", "calm"),
        "choice": np.where(hurry, "hurry", "wait"),
        "reward": 1.0 * hurry,
        "cost": 1.0 * (rng.random(n) < np.where(hurry, np.where(storm, 0.6, 0.1), 0.0)),
        "terminal": np.ones(n, bool),
        "episode": np.arange(n),
    }
    pd.DataFrame(columns).to_parquet(path)
    return path


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """A run that was learned from one log, and another log."""
    folder = tmp_path_factory.mktemp("logged")
    learned = write_log(folder / "learned.parquet")
    columns = bmdp.Columns(state="weather", action="choice")
    bmdp.fit(learned, gamma=1.0, columns=columns, out=folder / "run")
    return folder / "run", write_log(folder / "later.parquet", 600, seed=1)


def test_a_run_is_certified_by_another_log_with_the_columns_and_discount_of_the_run(
    logged, tmp_path
):
    run_folder, later = logged
    told = found(run_folder, "--data", later, "--out", tmp_path / "safe")
    assert (told["n_episodes"], told["gamma"], told["confidence"]) == (600, 1.0, 0.95)
    policy = bmdp.load_policy(tmp_path / "safe")
    assert policy.action_names == ("hurry", "wait")
    assert told["smallest_budget"] == policy.policy.certificate.smallest_budget
    costs = [row["cost"] for row in told["rows"]]
    highs = [row["promised"] for row in told["rows"]]
    assert (np.array(highs) > costs).all()
    assert max(highs) >= 0.35  # what it costs to hurry at all times


@pytest.mark.parametrize("name", ["learned.parquet", "the same.csv"])
def test_the_log_that_a_run_was_learned_from_promises_nothing(logged, tmp_path, name):
    learned = logged[0].parent / "learned.parquet"
    if name != learned.name:
        learned, written = tmp_path / name, pd.read_parquet(learned)
        written.to_csv(learned, index=False)
    result = run(logged[0], "--data", learned, "--out", tmp_path / "safe")
    assert_is_user_error(result, "was learned from this very log: a promise needs other episodes")
    assert not (tmp_path / "safe").exists()


def test_a_large_log_is_known_by_its_files(tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "LARGE", 100)
    learned = write_log(tmp_path / "learned.parquet")
    columns = bmdp.Columns(state="weather", action="choice")
    bmdp.fit(learned, gamma=1.0, columns=columns, out=tmp_path / "run")
    result = run(tmp_path / "run", "--data", learned, "--out", tmp_path / "safe")
    assert_is_user_error(result, "was learned from this very log")


def test_a_certificate_of_a_log_is_told_in_words(logged, tmp_path):
    run_folder, later = logged
    result = run(run_folder, "--data", later, "--out", tmp_path / "safe", "--confidence", 0.9)
    assert result.exit_code == 0, result.stderr
    assert "Promised with confidence 0.9, from a log" in result.stdout
    assert "Not promised: the cost of a single episode" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--env", "corridors"), "--env is of no use here: --data plays nothing"),
        (("--gamma", 2), "gamma must be"),
        (("--columns", "action=nothing"), "nothing"),
        (("--worst-cost", -1), "worst_cost must be"),
    ],
)
def test_bad_words_about_a_log_are_named(logged, tmp_path, words, message):
    run_folder, later = logged
    result = run(run_folder, "--data", later, "--out", tmp_path / "safe", *words)
    assert_is_user_error(result, message)


def test_a_log_needs_data(logged, tmp_path):
    result = run(logged[0], "--gamma", 0.9, "--out", tmp_path / "safe")
    assert_is_user_error(result, "--gamma is of no use here: it is for --data")


def test_a_log_certifies_one_policy(logged, tmp_path):
    result = run(*[logged[0]] * 2, "--data", logged[1], "--out", tmp_path / "safe")
    assert_is_user_error(result, "--data certifies one policy; got 2")


def test_a_policy_without_a_run_needs_a_discount(logged, tmp_path):
    result = run(logged[0] / "policy", "--data", logged[1], "--out", tmp_path / "safe")
    assert_is_user_error(result, "does not say its discount: give --gamma")


def test_a_log_that_is_too_small_says_how_many_episodes_it_needs(logged, tmp_path):
    few = write_log(tmp_path / "few.parquet", 60)
    result = run(logged[0], "--data", few, "--out", tmp_path / "safe")
    assert_is_user_error(result, "at least 100 episodes; the log has 60")
    assert not (tmp_path / "safe").exists()
