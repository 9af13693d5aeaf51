"""`bmdp watch`: a table, a page, exit codes, and a log that grows."""

import json
import threading
import time

import numpy as np
import pytest

import ferries
from bmdp.policies import HullPolicy, TabularQ
from commands import assert_is_user_error, run


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    place = tmp_path_factory.mktemp("policies") / "policy"
    q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    HullPolicy(q, [0.0, 1.0]).save(place)
    return place


def lines(n, share, budget=0.5, state=lambda rng: [0.0], seed=0):
    rng = np.random.default_rng(seed)
    return "".join(
        json.dumps(
            {
                "episode": f"{seed}-{i}",
                "step": 0,
                "budget": budget,
                "action": 0,
                "cost": float(rng.random() < share),
                "ended": True,
                "state": state(rng),
            }
        )
        + "\n"
        for i in range(n)
    )


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(lines(1_500, 0.3))
    return path


def test_a_promise_that_is_kept_is_told_and_ends_with_0(log, policy):
    result = run("watch", log, "--policy", policy, "--gamma", 1, "--most-cost", 1)
    assert result.exit_code == 0
    assert "all budgets: kept" in result.stdout
    assert "drift needs the folder of the run, or --training" in result.stdout


def test_a_promise_that_is_broken_is_told_and_ends_with_1(log, policy):
    log.write_text(lines(1_500, 0.8))
    result = run("watch", log, "--policy", policy, "--gamma", 1)
    assert result.exit_code == 1
    assert "all budgets: broken since episode " in result.stdout
    assert "(at confidence 0.95)" in result.stdout


def test_json_says_the_same(log, policy):
    result = run("watch", log, "--policy", policy, "--gamma", 1, "--most-cost", 1, "--json")
    said = json.loads(result.stdout)
    assert said["broken"] is False
    assert [(row["budgets"], row["verdict"]) for row in said["rows"]] == [
        ("all", "kept"),
        ("0.4 to 0.6", "kept"),
    ]
    assert said["rows"][0]["n"] == 1_500
    assert said["drift"] is None


def test_a_page_with_figure_and_tables_is_written_and_not_overwritten(log, policy, tmp_path):
    words = ("watch", log, "--policy", policy, "--gamma", 1, "--out", tmp_path / "page")
    assert run(*words).exit_code == 0
    written = {p.relative_to(tmp_path / "page").as_posix() for p in tmp_path.glob("page/**/*.*")}
    figures = {f"figures/asked-and-realised.{suffix}" for suffix in ("png", "svg")}
    assert written == {"index.html", "tables/verdicts.csv", "tables/course.csv", *figures}
    rows = (tmp_path / "page" / "tables" / "course.csv").read_text().splitlines()
    assert rows[-1].startswith("1482,")  # the last that is shown of 1,500
    assert_is_user_error(run(*words), "exists already", "--force")
    assert run(*words, "--force").exit_code == 0


def test_a_log_that_grows_is_followed_until_the_promise_is_broken(log, policy):
    def grow():
        time.sleep(0.5)
        with log.open("a") as file:
            file.write(lines(1_500, 0.9, seed=1))

    thread = threading.Thread(target=grow)
    thread.start()
    result = run("watch", log, "--policy", policy, "--gamma", 1, "--follow", "--minutes", 1)
    thread.join()
    assert result.exit_code == 1
    assert "all budgets: broken since episode" in result.stdout


def test_a_log_that_keeps_its_promise_is_followed_as_long_as_said(log, policy):
    words = ("watch", log, "--policy", policy, "--gamma", 1, "--follow", "--minutes", 0.001)
    assert run(*words).exit_code == 0


def test_a_run_says_discount_bound_and_training_states(tmp_path):
    folder = ferries.from_log(tmp_path / "run")
    log = tmp_path / "log.jsonl"
    log.write_text(lines(400, 0.1, budget=0.5, state=lambda rng: [0.0, float(rng.integers(2))]))
    result = run("watch", log, "--policy", folder, "--json")
    said = json.loads(result.stdout)
    assert (said["gamma"], said["most_cost"], said["drift"]) == (1.0, None, [])
    log.write_text(lines(400, 0.1, budget=0.5, state=lambda rng: [0.0, 1.0]))
    said = json.loads(run("watch", log, "--policy", folder, "--json").stdout)
    assert {shift["name"] for shift in said["drift"]} == {"tide"}
    ferries.log().to_npz(tmp_path / "training.npz")
    words = ("--training", tmp_path / "training.npz", "--json")
    assert (
        json.loads(run("watch", log, "--policy", folder, *words).stdout)["drift"] == said["drift"]
    )


def test_a_run_in_an_environment_says_the_most_that_an_episode_can_cost(tmp_path):
    folder = ferries.explored(tmp_path / "run")
    log = tmp_path / "log.jsonl"
    log.write_text(lines(100, 0.1))
    said = json.loads(run("watch", log, "--policy", folder, "--json").stdout)
    assert said["most_cost"] == 3.0
    policy = ferries.calibrated(tmp_path / "safe", folder)  # no run, but a certificate
    said = json.loads(run("watch", log, "--policy", policy, "--json").stdout)
    assert (said["most_cost"], said["gamma"], said["drift"]) == (3.0, 1.0, None)


def test_wrong_use_is_told_in_one_line(log, policy, tmp_path):
    words = ("watch", log, "--policy", policy)
    assert_is_user_error(run(*words), "does not say its discount: give --gamma")
    assert_is_user_error(run(*words, "--gamma", 1, "--minutes", 1), "it is for --follow")
    assert_is_user_error(run("watch", tmp_path / "no", "--policy", policy), "is not there")
    log.write_text("nonsense\n" + lines(1, 0.5))
    assert_is_user_error(run(*words, "--gamma", 1), "line 1, is no JSON")
