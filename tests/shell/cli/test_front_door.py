"""`bmdp fit` without settings, on a ferry that is known: by exploring, and from a log."""

import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import bmdp
import commands
import ferries
from bmdp.cli.progress import Progress
from bmdp.learn.auto import read_fitted
from bmdp.learn.runs import RunFolder
from training import content

TESTS = Path(__file__).parents[2]
FERRY = f"ferries:{ferries.ENV}"
FEW = ("--episodes", 1000)


def run(*arguments):
    return commands.run("fit", *arguments, columns=200)


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result


@pytest.fixture(autouse=True, scope="module")
def _register():
    ferries.register()


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "log.parquet"
    ferries.log().to_parquet(path)
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory, log):
    """A folder with a run by exploring and one from a log, and what the commands printed."""
    place = tmp_path_factory.mktemp("runs")
    explored = done(FERRY, *FEW, "--seed", 3, "--out", place / "ferry")
    learned = done("--data", log, "--gamma", 1, "--out", place / "log")
    return place, explored, learned


# What is printed


@pytest.mark.parametrize(("name", "number"), [("ferry", 1), ("log", 2)])
def test_the_whole_answer_is_printed_and_kept(runs, name, number):
    place, result = runs[0], runs[number]
    fitted = read_fitted(RunFolder(place / name))
    assert result.stdout == f"{fitted}\n\npolicy: {place / name / 'policy'}\n"
    for word in ("Learned from", "candidate", "asked", "table"):
        assert word in result.stdout


def test_the_policy_is_that_of_the_library(runs):
    fitted = bmdp.fit(ferries.ENV, episodes=1000, seed=3)
    found = bmdp.load_policy(runs[0] / "ferry")
    assert type(found) is type(fitted.policy)
    np.testing.assert_array_equal(found.costs, fitted.policy.costs)
    np.testing.assert_array_equal(
        read_fitted(RunFolder(runs[0] / "ferry")).forecast.cost, fitted.forecast.cost
    )


def test_notes_are_printed_with_the_answer(tmp_path):
    batch = ferries.log()
    columns = {**batch.to_arrays(), "cost": np.zeros(len(batch))}
    bmdp.TransitionBatch(**columns).to_npz(tmp_path / "free.npz")
    result = done("--data", tmp_path / "free.npz", "--gamma", 1, "--out", tmp_path / "run")
    assert "note: all costs are 0: every budget is the same" in result.stdout
    found = json.loads(done("--resume", tmp_path / "run", "--json").stdout)
    assert "all costs are 0: every budget is the same" in found["notes"]


def test_the_answer_is_there_as_json(tmp_path, log):
    out = tmp_path / "run"
    found = json.loads(done("--data", log, "--gamma", 1, "--out", out, "--json").stdout)
    assert (found["run"], found["policy"]) == (str(out), str(out / "policy"))
    assert found["seconds"] > 0
    assert len(found["forecast"]["budgets"]) == len(found["forecast"]["cost_high"]) == 11
    assert [one["is_taken"] for one in found["candidates"]].count(True) == 1
    assert found["summary"].startswith("Learned from 900 transitions of 300 episodes")


def test_the_share_that_is_done_is_told_with_what_goes_on(tmp_path, monkeypatch, log):
    seen = []

    def update(self, done, total=None, text="", name=""):
        seen.append((done / total, text))

    monkeypatch.setattr(Progress, "update", update)
    done(FERRY, *FEW, "--out", tmp_path / "run")
    shares = [share for share, _ in seen]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, 1)
    assert seen[0][1] == "exploring, round 1"
    assert any(text == "learning: table" for _, text in seen)


# What is asked


def test_options_reach_the_library_and_the_folder(tmp_path):
    options = ("--gamma", 0.9, "--budget-range", "0:2", "--minutes", 1, "--seed", 7)
    done(FERRY, *FEW, *options, "--device", "cpu", "--out", tmp_path / "a run")
    header = RunFolder(tmp_path / "a run").header
    asked = {"gamma": 0.9, "budget_range": [0.0, 2.0], "episodes": 1000, "minutes": 1.0}
    asked |= {"support": None, "cost_gamma": None, "episode_limit": None}
    assert (header["kind"], header["asked"], header["seed"]) == ("fit", asked, 7)
    assert (header["source"]["env"], header["source"]["settings"]) == (FERRY, {})
    words = ["bmdp", "fit", FERRY, *map(str, FEW), *map(str, options), "--device", "cpu"]
    assert shlex.split(header["command"]) == [*words, "--out", str(tmp_path / "a run")]
    assert bmdp.load_policy(tmp_path / "a run").budget_range == (0.0, 2.0)


def test_several_logs_are_learned_from(tmp_path, log):
    ferries.log(seed=1).to_npz(tmp_path / "more.npz")
    done("--data", log, tmp_path / "more.npz", "--gamma", 1, "--out", tmp_path / "run")
    source = RunFolder(tmp_path / "run").header["source"]
    assert source["files"] == [str(log), str(tmp_path / "more.npz")]
    assert source["transitions"] == 1800


def test_train_is_the_same_verb(tmp_path, log, runs):
    result = commands.run("train", "--data", log, "--gamma", 1, "--out", tmp_path / "run")
    assert result.exit_code == 0
    assert content(tmp_path / "run/policy") == content(runs[0] / "log/policy")


@pytest.mark.parametrize("option", [("--preset", "corridors"), ("--set", "learner.ensemble=1")])
def test_experts_get_the_run_that_they_ask_for(tmp_path, log, option):
    fast = ("--set", "learner.model=LinearModel", "--gamma", 1)
    done("--data", log, *option, *fast, "--out", tmp_path / "run")
    assert RunFolder(tmp_path / "run").header["kind"] == "data"


# Folders


def test_a_run_is_overwritten_only_by_force(tmp_path, log):
    asked = ("--data", log, "--gamma", 1, "--out", tmp_path / "run")
    done(*asked)
    commands.assert_is_user_error(run(*asked), "exists already", "or resume the run in it")
    done(*asked, "--seed", 5, "--force")
    assert RunFolder(tmp_path / "run").header["seed"] == 5
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


class Free(ferries.Ferry):
    """Does not tell its costs."""

    def step(self, action):
        """Takes them away."""
        *found, _ = super().step(action)
        return *found, {}


@pytest.fixture
def free():
    gymnasium.register("Free-v0", Free)
    yield "Free-v0"
    gymnasium.registry.pop("Free-v0")


def test_a_run_that_is_refused_leaves_no_folder_and_the_old_one_as_it_was(tmp_path, free, log):
    refused = run(free, *FEW, "--out", tmp_path / "run")
    commands.assert_is_user_error(refused, "must give info['cost'] at every step")
    assert not list(tmp_path.iterdir())
    done("--data", log, "--gamma", 1, "--out", tmp_path / "run")
    before = content(tmp_path / "run/policy")
    refused = run(free, *FEW, "--out", tmp_path / "run", "--force")
    commands.assert_is_user_error(refused, "must give info['cost'] at every step")
    assert content(tmp_path / "run/policy") == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# Resuming


def command_line(words):
    """A process of its own that knows the ferry and runs `bmdp`."""
    code = "import ferries; ferries.register(); from bmdp.cli.main import main; main()"
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_killed_run_ends_with_the_policy_of_one_that_was_not(tmp_path, runs):
    words = ["fit", FERRY, *map(str, FEW), "--seed", "3", "--out", str(tmp_path / "run")]
    process = command_line(words)
    explored, ending = tmp_path / "run/steps/rounds/1.npz", time.monotonic() + 120
    while not explored.exists() and process.poll() is None and time.monotonic() < ending:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert explored.exists()
    assert not (tmp_path / "run/done").exists()
    kept = explored.stat().st_mtime_ns
    result = done("--resume", tmp_path / "run")
    assert result.stdout.endswith(f"policy: {tmp_path / 'run/policy'}\n")
    assert content(tmp_path / "run/policy") == content(runs[0] / "ferry/policy")
    assert explored.stat().st_mtime_ns == kept
    ours, theirs = (read_fitted(RunFolder(p)) for p in (tmp_path / "run", runs[0] / "ferry"))
    assert ours.table() == theirs.table()


def test_control_c_is_told_in_one_line_with_the_command(tmp_path, monkeypatch, log, runs):
    def interrupted(self, done, *others, **more):
        if done >= 0.75:
            raise KeyboardInterrupt

    folder = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(Progress, "update", interrupted)
        result = run("--data", log, "--gamma", 1, "--out", folder)
    assert (result.exit_code, result.stdout) == (130, "")
    told = result.stderr.splitlines()[-1]  # a busy machine has said how long it took before
    assert told == f"stopped; go on with: bmdp fit --resume {folder}"
    (folder / "steps/log.npz").stat()  # the log itself is no longer needed
    done("--resume", folder)
    assert content(folder / "policy") == content(runs[0] / "log/policy")
    again = done("--resume", folder)
    assert again.stderr == f"{folder} is finished.\n"


def test_a_fit_that_is_not_whole_is_told_in_one_line(tmp_path, log):
    done("--data", log, "--gamma", 1, "--out", tmp_path / "run")
    (tmp_path / "run/fitted.json").write_text("{")
    result = run("--resume", tmp_path / "run")
    assert (result.exit_code, result.stdout) == (1, "")
    finished, error = result.stderr.splitlines()
    assert finished == f"{tmp_path / 'run'} is finished."
    assert error.startswith(f"error: {tmp_path / 'run/fitted.json'} is damaged")


# Other verbs


def test_the_policy_is_evaluated_where_it_explored(runs):
    asked = ("evaluate", runs[0] / "ferry", "--budgets", 0.3, "--episodes", 2000, "--json")
    result = commands.run(*asked)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    (row,) = found["rows"]
    assert (found["env"], found["gamma"]) == (ferries.ENV, 1.0)
    policy = bmdp.load_policy(runs[0] / "ferry")
    played = bmdp.evaluate(policy, ferries.ENV, budgets=[0.3], n_episodes=2000, seed=0)
    assert row["cost"] == played.discounted_cost_mean[0] == pytest.approx(0.3, abs=0.1)
    assert row["reward"] == played.discounted_reward_mean[0] > 4.5  # 3 are free
    forecast = read_fitted(RunFolder(runs[0] / "ferry")).forecast
    assert row["predicted_cost"] == pytest.approx(np.interp(0.3, forecast.budgets, forecast.cost))


class Endless(ferries.Ferry):
    """A ferry that never stops, and does not say when it is to be stopped."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self):
        self.crossings, self.sinks = 0, False

    def step(self, action):
        """Forgets how often it has crossed."""
        _, *others = super().step(action)
        assert self.crossing <= 50, "the episode was not ended"
        return 0, *others


def test_an_environment_without_end_is_played_as_it_was_explored(tmp_path):
    gymnasium.register("Endless-v0", Endless)
    try:
        done("Endless-v0", "--episodes", 60, "--gamma", 0.5, "--out", tmp_path / "run")
        asked = ("evaluate", tmp_path / "run", "--budgets", 0, "--episodes", 5)
        result = commands.run(*asked)
    finally:
        gymnasium.registry.pop("Endless-v0")
    assert result.exit_code == 0, result.stderr


def test_one_episode_is_played_and_the_dial_moved(runs):
    asked = ("play", runs[0] / "ferry", "--budget", 0.6, "--then", "0@1", "--json")
    result = commands.run(*asked)
    assert result.exit_code == 0, result.stderr
    assert [step["name"] for step in json.loads(result.stdout)["steps"][1:]] == ["wait", "wait"]


def test_a_fit_is_calibrated(runs, tmp_path):
    asked = ("calibrate", runs[0] / "ferry", "--episodes", 100, "--out", tmp_path / "certified")
    result = commands.run(*asked)
    assert result.exit_code == 0, result.stderr
    assert bmdp.load_policy(tmp_path / "certified").certificate.env == ferries.ENV


def test_a_page_is_made_of_a_fit(runs):
    result = commands.run("report", runs[0] / "ferry", "--episodes", 20, columns=200)
    assert result.exit_code == 0, result.stderr
    assert "20 episodes at each of 11 budgets" in result.stdout
    place = runs[0] / "ferry/report/tables/ferry-candidates.csv"
    names = [row["name"] for row in csv.DictReader(place.read_text().splitlines())]
    assert names[0] == read_fitted(RunFolder(runs[0] / "ferry")).candidates[0].name


# Logs as people have them


@pytest.fixture(scope="module")
def trips(tmp_path_factory):
    """A log of text, under names of its own."""
    rng, n = np.random.default_rng(0), 300
    hurry = rng.integers(2, size=n)
    columns = {
        "weather": rng.choice(["calm", "storm"], n),
        "crossing": np.arange(n) % 3,
        "hurry": np.array(["no", "yes"])[hurry],
        "fare": 1.0 + hurry,
        "damage": 0.5 * hurry,
        "done": np.arange(n) % 3 == 2,
    }
    path = tmp_path_factory.mktemp("trips") / "trips.csv"
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]))
    return path


NAMED = "state=weather+crossing,action=hurry,reward=fare,cost=damage"


def test_columns_are_named_and_text_is_remembered(tmp_path, trips):
    named = ("--columns", NAMED, "--unseen", "other", "--minutes", 0.05)
    done("--data", trips, *named, "--gamma", 1, "--out", tmp_path / "run")
    policy = bmdp.load_policy(tmp_path / "run")
    assert policy.action_names == ("no", "yes")
    states = [{"weather": "fog", "crossing": 0}, {"weather": "calm", "crossing": 2}]
    tracker = policy.start(states, 0.0, np.random.default_rng(0))
    assert [policy.action_name(a) for a in tracker.decide(states).action] == ["no", "no"]
    header = json.loads((tmp_path / "run/spec.json").read_text())
    assert header["asked"]["columns"]["state"] == ["weather", "crossing"]
    assert header["asked"]["unseen"] == "other"
    page = commands.run("report", tmp_path / "run")
    assert page.exit_code == 0, page.stderr


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--columns", "cots=damage"), "Did you mean 'cost'?"),
        (("--columns", f"{NAMED},cost=fare"), "columns must name a field once; got 'cost' twice"),
        (("--columns", NAMED.replace("damage", "damge")), "Did you mean 'damage'?"),
        (("--columns", NAMED, "--missing", "drop"), "missing must be one of error, impute"),
    ],
)
def test_columns_that_are_wrong_are_told_in_one_line(tmp_path, trips, option, words):
    result = run("--data", trips, *option, "--gamma", 1, "--out", tmp_path / "run")
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_folder_without_parquet_is_told_in_one_line(tmp_path):
    result = run("--data", tmp_path, "--gamma", 1, "--out", tmp_path / "run")
    assert result.exit_code == 1
    assert "holds no Parquet" in result.stderr


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ((FERRY, "--columns", "cost=damage"), "--columns is for --data."),
        ((FERRY, "--missing", "impute"), "--missing is for --data."),
        (
            ("--data", "x.csv", "--gamma", 1, "--unseen", "other", "--set", "a=b"),
            "--unseen are for",
        ),
    ],
)
def test_options_of_logs_that_do_not_go_together_are_bad_usage(tmp_path, option, words):
    result = run(*option, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.replace("│", " ").split())
