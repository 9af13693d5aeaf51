import json
import time
from dataclasses import replace

import pytest

import bmdp
import commands
from bmdp.cli import progress
from bmdp.envs import Corridors, corridors, known_frontier, optimum
from bmdp.envs.slots import find_spec
from bmdp.evaluation import measure_dial
from bmdp.learn import EnvConfig, Exploration, train
from bmdp.learn.runs import RunFolder
from bmdp.models import LearnedQ
from training import LEARNER, SPEC


def run(*arguments):
    return commands.run("evaluate", *arguments, columns=120)


def trained(tmp_path, env, learner=LEARNER):
    spec = replace(SPEC, env=env, learner=learner, exploration=Exploration(1, 20))
    train(spec, tmp_path / "run", seed=0)
    return tmp_path / "run"


@pytest.fixture(scope="module")
def in_corridors(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("corridors"), SPEC.env)


@pytest.fixture
def quick_optimum(monkeypatch):
    """A coarse grid, which takes half a second."""
    monkeypatch.setattr(optimum, "RESOLUTION", 5)
    coarse = corridors.true_frontier(
        Corridors(), resolution=5, n_episodes=1000, max_disagreement=1.0
    )
    monkeypatch.setattr(corridors, "true_frontier", lambda task, **settings: coarse)
    return coarse


def test_the_measures_are_those_of_the_library(in_corridors, quick_optimum):
    asked = ("--budgets", "0:1:0.5", "--episodes", 50, "--seed", 3, "--json")
    found = json.loads(run(in_corridors, *asked).stdout)
    expected = bmdp.evaluate(
        bmdp.load_policy(in_corridors), SPEC.env.spec(), budgets=[0, 0.5, 1], n_episodes=50, seed=3
    )
    report = measure_dial(expected, quick_optimum.frontier)
    assert [row["budget"] for row in found["rows"]] == [0, 0.5, 1]
    assert [row["cost"] for row in found["rows"]] == expected.discounted_cost_mean.tolist()
    assert [row["reward_high"] for row in found["rows"]] == (
        expected.discounted_reward_high.tolist()
    )
    assert [row["dial_error"] for row in found["rows"]] == report.dial_error.tolist()
    assert found["worst_overshoot"] == report.worst_overshoot
    assert (found["env"], found["gamma"]) == ("bmdp/Corridors-v0", 1.0)
    assert "resolution 5" in found["optimum"]


def test_the_table_has_a_row_for_each_budget(in_corridors, quick_optimum):
    result = run(in_corridors, "--budgets", 0.3, "--budgets", "0.5:1:0.5", "--episodes", 20)
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "predicted" not in result.stdout
    rows = [line.split("│")[1].strip() for line in result.stdout.splitlines() if "│" in line]
    assert rows == ["0.3", "0.5", "1"]
    for words in ("dial error", "mean score", "worst overshoot", "optimum: corridors on a grid"):
        assert words in result.stdout


def test_without_budgets_it_is_eleven_of_the_policy(in_corridors, quick_optimum):
    found = json.loads(run(in_corridors, "--episodes", 1, "--json").stdout)
    assert [row["budget"] for row in found["rows"]] == pytest.approx([i / 10 for i in range(11)])
    assert found["rows"][0]["cost_high"] is None  # one episode says nothing


def test_what_was_predicted_stands_beside_what_came_of_it(tmp_path):
    spec = replace(SPEC, env=EnvConfig("corridors", {"height": 5}), held_out=0.3)
    train(spec, tmp_path / "run", seed=0)
    predicted = RunFolder(tmp_path / "run").prediction()
    asked = (tmp_path / "run", "--budgets", 0.5, "--budgets", 0.95, "--episodes", 5)
    rows = json.loads(run(*asked, "--json").stdout)["rows"]
    for name in ("reward", "cost"):
        between = sum(predicted[name][-2:]) / 2
        expected = pytest.approx([predicted[name][5], between])
        assert [row[f"predicted_{name}"] for row in rows] == expected
    table = [line.split("│")[1:-1] for line in run(*asked).stdout.splitlines() if "│" in line]
    beside = [[float(cell) for cell in row] for row in table if len(row) == 5]
    assert [row[0] for row in beside] == [0.5, 0.95]
    assert beside[0][1:3] == pytest.approx([predicted["cost"][5], rows[0]["cost"]], abs=5e-4)
    assert beside[0][3:] == pytest.approx([predicted["reward"][5], rows[0]["reward"]], rel=1e-3)


@pytest.mark.parametrize("name", ["two-way", "corridors"])
def test_where_no_optimum_is_known_it_is_said(tmp_path, name):
    env = EnvConfig(name, {"height": 5} if name == "corridors" else {})
    learner = replace(LEARNER, gamma=0.9)
    result = run(trained(tmp_path, env, learner), "--budgets", 0.5, "--episodes", 3)
    assert result.exit_code == 0
    assert "no optimum known" in result.stdout
    assert "score" not in result.stdout


def test_the_environment_of_the_run_can_be_changed(in_corridors):
    asked = (in_corridors, "--budgets", 0.5, "--episodes", 3, "--json")
    found = json.loads(run(*asked, "--set", "env.height=5").stdout)
    assert found["optimum"] == "no optimum known"
    other = run(
        *asked, "--env", "corridors", "--set", "env.observe_time=true", "--set", "env.heigt=5"
    )
    assert other.exit_code == 1
    assert "Did you mean 'height'?" in other.stderr


def test_long_work_is_told_of_with_the_time_left(in_corridors, quick_optimum, monkeypatch):
    monkeypatch.setattr(progress, "SILENCE", 0.0)
    monkeypatch.setattr(progress, "BEAT", 0.001)
    known = corridors.true_frontier
    slow = lambda task, **settings: time.sleep(0.3) or known(task)  # noqa: E731
    monkeypatch.setattr(corridors, "true_frontier", slow)
    result = run(in_corridors, "--budgets", "0:1:0.25", "--episodes", 100)
    assert result.exit_code == 0
    told = result.stderr.splitlines()
    assert any("of 500 episodes" in line and "left" in line for line in told)
    assert any(line.startswith("finding the optimum: ") for line in told)


@pytest.mark.slow
def test_workers_change_nothing(in_corridors):
    asked = (in_corridors, "--set", "env.height=5", "--budgets", 0.5, "--episodes", 30, "--json")
    one, two = (json.loads(run(*asked, "--workers", n).stdout) for n in (1, 2))
    assert two["rows"][0]["cost"] == pytest.approx(one["rows"][0]["cost"], abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["corridors", "slot-filling"])
def test_the_optimum_of_our_tasks_is_found_in_seconds(name):
    known, source = known_frontier(find_spec(name))
    assert known.frontier.rewards[-1] > 10
    assert source.startswith(f"optimum: {name}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--budgets", "-1"), "budgets must be numbers from 0 on"),
        (("--budgets", "0:1"), "--budgets must be a number or low:high:step"),
        (("--env", "corridor"), "Did you mean 'corridors'?"),
        (("--set", "learner.gamma=1"), "--set is for the environment here"),
        (("--device", "abacus"), 'device must be "cpu", "cuda" or "auto"'),
        (("--set", "env.observe_time=false"), "the policy cannot act on what bmdp/Corridors-v0"),
    ],
)
def test_errors_of_the_user_are_told_in_one_line(in_corridors, quick_optimum, arguments, words):
    result = run(in_corridors, "--episodes", 2, *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert words in line


def test_a_policy_without_a_run_needs_an_environment(in_corridors, tmp_path):
    assert run(tmp_path).stderr.startswith(f"error: {tmp_path}")
    result = run(in_corridors / "policy")
    assert result.exit_code == 1
    assert "does not name an environment: give --env ENV" in result.stderr


def test_a_policy_that_is_computed_elsewhere_pays_and_earns_the_same(
    in_corridors, quick_optimum, monkeypatch
):
    """The CPU stands for a GPU."""
    asked = (in_corridors, "--budgets", "0:1:0.5", "--episodes", 50, "--seed", 3, "--json")
    here = json.loads(run(*asked).stdout)
    placed, place = [], LearnedQ.to

    def watched(q_function, device):
        placed.append(device)
        return place(q_function, "cpu")

    monkeypatch.setattr("bmdp.learn.runs.checked_device", lambda name: "cuda")
    monkeypatch.setattr(LearnedQ, "to", watched)
    there = json.loads(run(*asked, "--device", "auto").stdout)
    assert placed == ["cuda"]
    for one, other in zip(here["rows"], there["rows"], strict=True):
        assert (one["cost"], one["reward"]) == pytest.approx((other["cost"], other["reward"]))
    result = run(*asked, "--device", "cuda", "--workers", 2)
    assert (result.exit_code, "takes one worker; got 2" in result.stderr) == (1, True)
