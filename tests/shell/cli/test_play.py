import json
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.image import imread

import commands
from bmdp.envs import ScriptedPolicy
from bmdp.learn import Exploration, train
from bmdp.policies import RandomBudgetedPolicy
from training import SPEC


def run(*arguments):
    return commands.run("play", *arguments)


def played(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def random_policy(tmp_path, n_actions):
    RandomBudgetedPolicy(n_actions, 0.0, 1.0).save(tmp_path / "policy")
    return tmp_path / "policy"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("play") / "run"
    train(replace(SPEC, exploration=Exploration(1, 20)), folder, seed=0)
    return folder


def test_a_run_is_played_in_its_own_environment(trained):
    found = played(trained, "--budget", 0.3)
    assert found["steps"][0]["budget"] == 0.3
    assert found["steps"][0]["name"] in ("stop", "up", "right", "down", "left")
    assert found["reward"] == sum(step["reward"] for step in found["steps"])


def test_each_step_holds_the_budget_that_was_handed_on(tmp_path):
    steps = played(random_policy(tmp_path, 7), "--env", "slot-filling", "--budget", 0.4)["steps"]
    assert len(steps) > 2
    assert [s["step"] for s in steps] == list(range(len(steps)))
    assert [s["budget"] for s in steps[1:]] == [s["next_budget"] for s in steps[:-1]]


def test_the_dial_is_moved_at_its_step(tmp_path):
    asked = (random_policy(tmp_path, 7), "--env", "slot-filling", "--budget", 0.4)
    still = played(*asked)["steps"]
    moved = played(*asked, "--then", "0.9@1", "--then", "0.1@2")["steps"]
    assert moved[0] == still[0]
    assert [step["budget"] for step in moved[1:3]] == [0.9, 0.1]


def test_a_move_after_the_end_is_noted(tmp_path):
    result = run(
        random_policy(tmp_path, 7), "--env", "slot-filling", "--budget", 0.4, "--then", "0.9@99"
    )
    assert result.exit_code == 0
    assert result.stderr == "note: the episode ended before step 99\n"


def test_a_seed_is_an_episode(tmp_path):
    asked = (random_policy(tmp_path, 5), "--env", "two-way", "--budget", 0.4)
    assert played(*asked, "--seed", 1) == played(*asked, "--seed", 1)
    assert played(*asked, "--seed", 1) != played(*asked, "--seed", 2)


def test_lines_and_transcript_tell_the_same_dialogue(tmp_path):
    ScriptedPolicy("slot-filling/key-pad").save(tmp_path / "policy")
    lines = run(tmp_path / "policy", "--env", "slot-filling", "--budget", 1).stdout.splitlines()
    empty = lines.index("")
    assert lines[0].split() == ["step", "action", "reward", "cost", "budget", "status"]
    assert lines[empty - 1].startswith(" sum")
    for line, said in zip(lines[1 : empty - 1], lines[empty + 1 :], strict=True):
        assert f"system: {' '.join(line.split()[1:-4])}" in said


@pytest.mark.parametrize("name", ["corridors", "two-way"])
def test_a_picture_is_drawn(tmp_path, name):
    asked = (random_policy(tmp_path, 5), "--env", name, "--budget", 0.4)
    result = run(*asked, "--out", tmp_path / "picture.png")
    assert result.exit_code == 0
    assert result.stderr == f"picture: {tmp_path / 'picture.png'}\n"
    assert np.unique(imread(tmp_path / "picture.png").reshape(-1, 4), axis=0).shape[0] > 3
    assert "exists already" in run(*asked, "--out", tmp_path / "picture.png").stderr
    assert run(*asked, "--out", tmp_path / "picture.png", "--force").exit_code == 0


def test_a_drive_is_filmed_to_its_end(tmp_path):
    asked = (random_policy(tmp_path, 5), "--env", "two-way", "--budget", 0.4, "--seed", 3)
    found = played(*asked, "--out", tmp_path / "drive.svg")
    film = (tmp_path / "drive.svg").read_text()
    seconds = len(found["steps"]) + 1 / 15
    assert f"Drive of {seconds:.1f} s on the two-way road" in film
    crashed = any(step["cost"] >= 1 for step in found["steps"])
    assert ("the ego car crashes" in film) == crashed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--budget", -1), "budgets must be numbers from 0 on"),
        (("--budget", "nan"), "budgets must be numbers from 0 on"),
        (("--budget", 0.1, "--then", "0.5"), "--then must be BUDGET@STEP"),
        (("--budget", 0.1, "--then", "x@1"), "--then must be BUDGET@STEP"),
        (("--budget", 0.1, "--then", "0.1@-1"), "--then must name a step from 0 on"),
        (("--budget", 0.1, "--out", "a.gif"), "--out must end in .png or .svg"),
        (("--budget", 0.1, "--out", "a.svg"), "has no film, only two-way has"),
        (("--budget", 0.1, "--out", "no/a.png"), "there is no folder no"),
        (("--budget", 0.1, "--env", "slot-filling", "--out", "a.png"), "has no picture"),
    ],
)
def test_errors_of_the_user_are_told_in_one_line(trained, arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(trained, *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert words in line
