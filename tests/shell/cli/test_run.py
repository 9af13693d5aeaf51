import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

import commands
from bmdp.cli import run_progress
from bmdp.cli.run_progress import RunProgress, line_of, summary
from bmdp.experiments.running import runner
from bmdp.experiments.running.store import ExperimentFolder, Task
from bmdp.experiments.running.watching import Run, Sight
from commands import assert_is_user_error
from tiny_experiments import COUNT, results, run_inline

COUNTING, ERRING = "tiny_experiments:COUNTING", "tiny_experiments:ERRING"
TRAINING = "tiny_experiments:TRAINING"


def run(*arguments):
    return commands.run("run", *arguments, columns=200)


@pytest.fixture(autouse=True)
def inline(monkeypatch):
    """No other processes."""
    monkeypatch.setattr(runner, "run_here", run_inline)


# What is told


def test_an_experiment_is_run_and_the_way_to_its_report_is_told(tmp_path):
    out = tmp_path / "run"
    result = run(COUNTING, "--preset", "smoke", "--seeds", "0:2", "--out", out)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"folder: {out}\nreport: bmdp report {out}\n"
    told = result.stderr.splitlines()
    assert [line.partition(":")[0] for line in told] == [
        *("once", "seed-0", "again/seed-0", "seed-1", "again/seed-1")
    ]
    assert told[1].startswith("seed-0: done in 0.")
    assert told[1].endswith(" s (2 of 5)")
    assert ExperimentFolder(out).header["seeds"] == [0, 1]


def test_defaults_are_the_quick_preset_and_its_seeds(tmp_path):
    assert run(COUNTING, "--out", tmp_path / "run").exit_code == 0
    header = ExperimentFolder(tmp_path / "run").header
    assert (header["preset"], header["seeds"], header["threads"]) == ("quick", [0], 1)


def test_the_result_is_there_as_json(tmp_path):
    result = run(COUNTING, "--device", "cpu", "--out", tmp_path / "run", "--json")
    found = json.loads(result.stdout)
    assert found.pop("seconds") > 0
    assert found == {
        "folder": str(tmp_path / "run"),
        "experiment": COUNTING,
        "preset": "quick",
        "seeds": [0],
        "device": "cpu",
        "finished": ["once", "seed-0", "again/seed-0"],
        "failed": [],
    }


def test_what_failed_is_told_with_part_and_seed(tmp_path):
    asked = (ERRING, "--preset=smoke", "--seeds=0:2", "--out", tmp_path / "run")
    result = run(*asked)
    assert result.exit_code == 1
    assert result.stdout == ""
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert errors == [
        "error: bug/seed-0 failed: ZeroDivisionError: nobody thought of this",
        "error: error/seed-1 failed: the data are wrong.",
        "error: bug/seed-1 failed: ZeroDivisionError: nobody thought of this",
    ]
    assert result.stderr.count("Traceback") == 2
    assert "error/seed-1: failed (2 of 6)" in result.stderr
    found = json.loads(run(*asked, "--json").stdout)
    assert found["finished"] == ["error/seed-0", "good/seed-0", "good/seed-1"]
    assert found["failed"][1] == {"task": "error/seed-1", "error": "the data are\nwrong."}


# Going on


def test_the_same_command_goes_on_after_control_c(tmp_path, monkeypatch):
    out, seen = tmp_path / "my run", []
    asked = (TRAINING, "--seeds", "0:2", "--tensorboard", "--workers", 2, "--out", out)

    def interrupted(self, task, sights):
        seen.append(task)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RunProgress, "tell", interrupted)
        result = run(*asked)
    assert result.exit_code == 130
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line == (
        f"stopped; go on with: bmdp run {TRAINING} --preset quick --seeds 0:2 --device cpu "
        f"--threads 1 --out '{out}' --workers 2 --tensorboard"
    )
    result = run(*asked)
    assert result.exit_code == 0
    assert [line.partition(":")[0] for line in result.stderr.splitlines()] == ["seed-1"]
    assert run(*asked[:3], "--out", tmp_path / "whole").exit_code == 0
    assert results(tmp_path / "whole").items() <= results(out).items()
    files = sorted((out / "tensorboard").glob("seed-*/events*"))
    assert [path.parent.name for path in files] == ["seed-0", "seed-1"]


def test_a_folder_of_another_spec_is_refused(tmp_path):
    run(COUNTING, "--out", tmp_path)
    result = run(COUNTING, "--preset", "smoke", "--out", tmp_path)
    assert_is_user_error(result, "is of another spec: its preset is 'quick', asked is 'smoke'")
    result = run(COUNTING, "--threads", 2, "--out", tmp_path)
    assert_is_user_error(result, "its threads is 1, asked is 2", "--force deletes it")


def test_a_folder_in_use_is_refused(tmp_path):
    folder = ExperimentFolder.of(tmp_path, COUNT)
    with folder.locked():
        result = run(COUNTING, "--preset=smoke", "--seeds=0:2", "--tensorboard", "--out", tmp_path)
    assert_is_user_error(result, "is in use by process")
    assert not (tmp_path / "tensorboard").exists()


def test_any_device_will_do_to_go_on(tmp_path):
    ExperimentFolder.of(tmp_path, COUNT)
    path = tmp_path / "spec.json"
    path.write_text(path.read_text().replace('"cpu"', '"abacus"'))
    result = run(COUNTING, "--preset", "smoke", "--seeds", "0:2", "--out", tmp_path)
    assert_is_user_error(result, "device must be", "got 'abacus'")


def test_force_deletes_experiments_and_nothing_else(tmp_path):
    out, mine = tmp_path / "run", tmp_path / "mine"
    run(COUNTING, "--out", out)
    result = run(COUNTING, "--preset", "smok", "--out", out, "--force")
    assert_is_user_error(result, "Did you mean 'smoke'?")
    assert (out / "seed-0" / "number.json").exists()
    assert run(COUNTING, "--preset", "smoke", "--out", out, "--force").exit_code == 0
    assert json.loads((out / "seed-0" / "number.json").read_text())["size"] == 1
    mine.mkdir()
    (mine / "thesis.txt").write_text("all I have")
    result = run(COUNTING, "--out", mine, "--force")
    assert_is_user_error(result, "is no experiment, and is not overwritten")
    assert_is_user_error(run(COUNTING, "--out", mine), "is no experiment")
    assert [path.name for path in mine.iterdir()] == ["thesis.txt"]


# Errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("slotfilling",), ("no experiment is called 'slotfilling'", "Did you mean 'slot-filling")),
        ((COUNTING, "--preset", "papr"), ("no preset of", "there are smoke, quick.")),
        ((COUNTING, "--seeds", "0-4"), ("--seeds must be like 0:4 or 0,3,7; got '0-4'",)),
        ((COUNTING, "--seeds", "4:4"), ("--seeds must name at least one; got '4:4'",)),
        ((COUNTING, "--device", "abacus"), ("device must be 'auto', 'cpu' or 'cuda'",)),
    ],
)
def test_errors_of_the_user_are_told_in_one_line(tmp_path, arguments, words):
    assert_is_user_error(run(*arguments, "--out", tmp_path / "run"), *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("extra", ["ray", "tensorboard"])
def test_without_an_extra_the_way_to_install_it_is_told(tmp_path, monkeypatch, extra):
    find = importlib.util.find_spec
    missing = lambda name, package=None: None if name == extra else find(name, package)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", missing)
    option = ("--engine", "ray") if extra == "ray" else ("--tensorboard",)
    result = run(COUNTING, *option, "--out", tmp_path / "run")
    assert_is_user_error(result, "must be installed", f"pip install 'bmdp[{extra}]'")
    assert not list(tmp_path.iterdir())


def test_no_experiment_and_no_folder_are_bad_usage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("--out", "run").exit_code == 2
    assert run(COUNTING).exit_code == 2
    assert run(COUNTING, "--engine", "steam", "--out", "run").exit_code == 2
    assert not list(Path().iterdir())


# Progress

RECORD = {"kind": "iteration", "round": 1, "iteration": 4}
TRAINED = Sight(Task("ftq", 3), "training", 0.25, 0.0, 30.0, Run("", RECORD, 10, 12))


def test_a_task_at_work_has_a_line():
    assert line_of(TRAINED).split() == [
        *("ftq/seed-3", "round", "2/10", "iteration", "5/12", "25%")
    ]
    assert line_of(Sight(Task("", 0), "working", seconds=61)).endswith("at work for 1:01")
    inner = replace(TRAINED, run=Run("exploring", {"kind": "collection", "round": 0}, 10, 12))
    assert line_of(inner).split() == ["ftq/seed-3", "round", "1/10", "exploring"]


def test_all_tasks_have_a_summary():
    done = Sight(Task("", 0), "finished", 1.0)
    assert summary([done, TRAINED], None) == "1 of 2 done, 62%"
    assert summary([done, TRAINED], 3700) == "1 of 2 done, 62%, about 1:01:40 left"


def test_a_terminal_sees_tasks_at_work(tmp_path, monkeypatch):
    seen = []
    console = run_progress.Console
    monkeypatch.setattr(run_progress, "Console", lambda **k: console(**k, force_terminal=True))
    update = run_progress.Live.update
    watch = lambda self, text: [seen.append(text.plain), update(self, text)]  # noqa: E731
    monkeypatch.setattr(run_progress.Live, "update", watch)
    assert run(TRAINING, "--seeds", 0, "--out", tmp_path / "run").exit_code == 0
    assert seen[0] == "0 of 2 done, 0%"
    assert seen[-1].startswith("2 of 2 done, 100%")


def test_elsewhere_a_line_a_minute_is_enough(capsys):
    seconds = [0.0]
    progress = RunProgress(lambda: seconds[0])
    with progress.shown():
        for seconds[0] in (59.0, 61.0, 62.0, 122.0):
            progress.show([TRAINED], 60.0)
    assert capsys.readouterr().err.splitlines() == ["0 of 1 done, 25%, about 1:00 left"] * 2
