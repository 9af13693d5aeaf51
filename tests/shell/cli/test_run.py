import importlib.util
import json
import os
from pathlib import Path

import pytest

import commands
from bmdp.cli import run as verb
from bmdp.cli.tensorboard import Board
from bmdp.paper import CATALOG, runner
from bmdp.paper.runner import ExperimentFolder
from commands import assert_is_user_error
from tiny_experiments import COUNT, results, run_inline

COUNTING, ERRING = "tiny_experiments:COUNTING", "tiny_experiments:ERRING"
TRAINING = "tiny_experiments:TRAINING"


def run(*arguments):
    return commands.run("run", *arguments, columns=200)


class Bars:
    """Stands for progress, and keeps what it is told."""

    def __init__(self, title, unit="", *, before=0.0):
        self.before, self.told = before, []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def update(self, done, total=None, text="", name=""):
        self.told.append((name, done, total, text))


@pytest.fixture(autouse=True)
def bars(monkeypatch):
    """No other processes; gives all progress that there was."""
    made = []
    monkeypatch.setattr(runner, "run_jobs", run_inline)
    monkeypatch.setattr(
        verb, "Progress", lambda *given, **how: made.append(Bars(*given, **how)) or made[-1]
    )
    return made


# What is told


def test_an_experiment_is_run_and_the_way_to_its_report_is_told(tmp_path):
    out = tmp_path / "run"
    result = run(COUNTING, "--preset", "smoke", "--seeds", "0:2", "--out", out)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"folder: {out}\nreport: bmdp report {out}\n"
    assert result.stderr == ""
    assert ExperimentFolder(out).header["seeds"] == [0, 1]


def test_defaults_are_the_quick_preset_and_its_seeds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(COUNTING, "--out", "run").exit_code == 0
    header = ExperimentFolder(tmp_path / "run").header
    assert (header["preset"], header["seeds"], header["threads"]) == ("quick", [100], 1)
    assert header["command"].endswith(" --threads 1 --out run")


def test_the_result_is_there_as_json(tmp_path):
    result = run(COUNTING, "--device", "cpu", "--out", tmp_path / "run", "--json")
    found = json.loads(result.stdout)
    assert found.pop("seconds") > 0
    assert found == {
        "folder": str(tmp_path / "run"),
        "experiment": COUNTING,
        "preset": "quick",
        "seeds": [100],
        "device": "cpu",
        "finished": ["once", "seed-100", "again/seed-100"],
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
    found = json.loads(run(*asked, "--json").stdout)
    assert found["finished"] == ["error/seed-0", "good/seed-0", "good/seed-1"]
    assert found["failed"][1] == {"task": "error/seed-1", "error": "the data are wrong."}


def test_every_task_has_a_bar_and_so_have_all(tmp_path, bars):
    run(COUNTING, "--out", tmp_path)
    run(COUNTING, "--seeds", "100,101", "--out", tmp_path)
    first, second = bars
    assert first.before == 0.0
    assert first.told[:4] == [
        *(("once", 0.0, 1.0, ""), ("", 0.0, 3, "")),
        *(("once", 1.0, 1.0, "done"), ("", 1.0, 3, "")),
    ]
    assert first.told[-1] == ("", 3.0, 3, "")
    assert second.before == 3 / 5
    assert second.told[-2:] == [("again/seed-101", 1.0, 1.0, "done"), ("", 5.0, 5, "")]


# Going on


def test_the_same_command_goes_on_after_control_c(tmp_path, monkeypatch):
    out = tmp_path / "my run"
    asked = (TRAINING, "--seeds", "0:2", "--tensorboard", "--workers", 2, "--out", out)

    def interrupted(self, name):
        if name == "seed-1":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Board, "look", interrupted)
        result = run(*asked)
    assert result.exit_code == 130
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.endswith(
        f"go on with: bmdp run {TRAINING} --preset quick --seeds 0:2 --device cpu "
        f"--threads 1 --out '{out}' --workers 2 --tensorboard"
    )
    assert not (out / "seed-1" / "finished.json").exists()
    assert run(*asked).exit_code == 0
    assert run(*asked[:3], "--out", tmp_path / "whole").exit_code == 0
    assert results(tmp_path / "whole").items() <= results(out).items()
    files = sorted((out / "tensorboard").glob("seed-*/events*"))
    assert [path.parent.name for path in files] == ["seed-0", "seed-1"]


def test_a_folder_of_another_spec_is_refused(tmp_path):
    run(COUNTING, "--out", tmp_path)
    result = run(COUNTING, "--preset", "smoke", "--out", tmp_path)
    assert_is_user_error(result, "preset is 'quick', asked is 'smoke'")
    result = run(COUNTING, "--threads", 2, "--out", tmp_path)
    assert_is_user_error(result, "threads is 1, asked is 2", "--force")


def test_a_folder_in_use_is_refused(tmp_path):
    with ExperimentFolder.at_work(tmp_path, COUNT):
        result = run(COUNTING, "--preset=smoke", "--seeds=0:2", "--tensorboard", "--out", tmp_path)
    assert_is_user_error(result, "in use by process")
    assert not (tmp_path / "tensorboard").exists()


def test_the_device_is_that_of_the_folder(tmp_path):
    path = tmp_path / "spec.json"
    with ExperimentFolder.at_work(tmp_path, COUNT):
        assert path.exists()
    header = json.loads(path.read_text().replace('"cpu"', '"abacus"'))
    del header["checksum"]
    path.write_text(json.dumps(header))
    result = run(COUNTING, "--preset", "smoke", "--seeds", "0:2", "--out", tmp_path)
    assert_is_user_error(result, "device", "'abacus'")
    assert "asked is" not in result.stderr  # it was taken from there
    asked = (COUNTING, "--preset", "smoke", "--out", tmp_path, "--force", "--json")
    assert json.loads(run(*asked).stdout)["device"] in ("cpu", "cuda")


def test_force_deletes_experiments_and_nothing_else(tmp_path):
    out, mine = tmp_path / "run", tmp_path / "mine"
    run(COUNTING, "--out", out)
    result = run(COUNTING, "--preset", "smok", "--out", out, "--force")
    assert_is_user_error(result, "'smok'", "'smoke'?")
    assert (out / "seed-100" / "number.json").exists()
    assert run(COUNTING, "--preset", "smoke", "--out", out, "--force").exit_code == 0
    assert json.loads((out / "seed-100" / "number.json").read_text())["size"] == 1
    mine.mkdir()
    (mine / "thesis.txt").write_text("all I have")
    assert_is_user_error(run(COUNTING, "--out", mine, "--force"), "mine", "experiment")
    assert_is_user_error(run(COUNTING, "--out", mine), "mine", "experiment")
    assert [path.name for path in mine.iterdir()] == ["thesis.txt"]


# Errors


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (("slotfilling",), ("'slotfilling'", "'slot-filling'?")),
        ((COUNTING, "--preset", "papr"), ("'papr'", "smoke, quick")),
        ((COUNTING, "--seeds", "0-4"), ("--seeds", "'0-4'")),
        ((COUNTING, "--seeds", "4:4"), ("--seeds", "'4:4'")),
        ((COUNTING, "--device", "abacus"), ("device", "'abacus'")),
    ],
)
def test_errors_of_the_user_are_told_in_one_line(tmp_path, arguments, facts):
    assert_is_user_error(run(*arguments, "--out", tmp_path / "run"), *facts)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("extra", ["ray", "tensorboard"])
def test_without_an_extra_the_way_to_install_it_is_told(tmp_path, monkeypatch, extra):
    find = importlib.util.find_spec
    missing = lambda name, package=None: None if name == extra else find(name, package)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", missing)
    option = ("--engine", "ray") if extra == "ray" else ("--tensorboard",)
    result = run(COUNTING, *option, "--out", tmp_path / "run")
    assert_is_user_error(result, f"pip install 'bmdp[{extra}]'")
    assert not list(tmp_path.iterdir())


def test_no_experiment_and_no_folder_are_bad_usage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("--out", "run").exit_code == 2
    assert run(COUNTING).exit_code == 2
    assert run(COUNTING, "--engine", "steam", "--out", "run").exit_code == 2
    assert not list(Path().iterdir())


def test_the_help_names_all_experiments():
    told = " ".join(run("--help").stdout.split())
    assert [name for name in CATALOG if name not in told] == []


# TensorBoard


def line(number, iteration=None, **more):
    kind = "collection" if iteration is None else "iteration"
    record = {"kind": kind, "round": number, "iteration": iteration, "last_loss": 0.5}
    return json.dumps({name: v for name, v in record.items() if v is not None} | more) + "\n"


def charts_of(folder):
    module = "tensorboard.backend.event_processing.event_accumulator"
    found = pytest.importorskip(module).EventAccumulator(str(folder))
    found.Reload()
    return {
        tag: [(event.step, event.value) for event in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }


def test_records_are_charts_of_tensorboard_and_each_is_told_once(tmp_path):
    (tmp_path / "tensorboard" / "old").mkdir(parents=True)
    path = tmp_path / "ftq" / "seed-1" / "learning" / "records.jsonl"
    path.parent.mkdir(parents=True)
    rounds = [line(n, reward=n + 1.0) + line(n, 0) + line(n, 1) for n in range(2)]
    board = Board(tmp_path)
    for text in ("", rounds[0], rounds[0][:-9], line(0, reward=1.0), rounds[0] + rounds[1]):
        path.write_text(text)
        board.look("ftq/seed-1")
    assert os.listdir(tmp_path / "tensorboard") == ["ftq"]
    assert charts_of(tmp_path / "tensorboard" / "ftq" / "seed-1" / "learning") == {
        "collection/reward": [(0, 1.0), (1, 2.0)],
        "collection/last_loss": [(0, 0.5), (1, 0.5)],
        "iteration/last_loss": [(step, 0.5) for step in range(4)],
    }
