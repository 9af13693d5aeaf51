import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import tiny_experiments
from bmdp import ConfigError, MissingDependency, StoreError
from bmdp.experiments.running import local_engine, ray_engine, runner
from bmdp.experiments.running.runner import Event, run_experiment
from bmdp.experiments.running.store import ExperimentFolder, Task, tasks_of
from bmdp.experiments.running.tasks import Job, do_task
from bmdp.learn.runs import RunFolder
from tiny_experiments import COUNT, COUNTING, FAIL, LONG, SHORT, results, run_inline
from training import told

COMMAND = [sys.executable, "-c", "from bmdp.cli.main import main; main()", "run"]
TESTS = Path(tiny_experiments.__file__).parent


@pytest.fixture
def inline(monkeypatch):
    """No other processes."""
    monkeypatch.setattr(runner, "run_here", run_inline)


def numbers(folder):
    """What the tasks that count have found."""
    return {
        path.parent.relative_to(folder).as_posix(): json.loads(path.read_text())
        for path in folder.rglob("number.json")
    }


# What is done


def test_all_tasks_are_done_by_so_many_processes_with_so_many_threads(tmp_path):
    assert run_experiment(replace(COUNT, threads=3), tmp_path / "run", workers=2) == ()
    found = numbers(tmp_path / "run")
    assert set(found) == {task.name for task in tasks_of(COUNTING, COUNT.seeds)}
    assert [found[f"again/seed-{seed}"]["seed"] for seed in (0, 1)] == [0, 1]
    assert os.getpid() not in {number["by"] for number in found.values()}
    assert len({number["by"] for number in found.values()}) <= 2
    assert {number["threads"] for number in found.values()} == {"3"}
    assert os.environ.get("OMP_NUM_THREADS") != "3"


def test_what_is_finished_is_not_done_again(tmp_path, inline):
    run_experiment(COUNT, tmp_path, workers=1)
    (tmp_path / "seed-1" / "finished.json").unlink()
    (tmp_path / "seed-1" / "number.json").unlink()
    (tmp_path / "seed-0" / "number.json").unlink()
    events = []
    assert run_experiment(COUNT, tmp_path, on_event=events.append) == ()
    assert events == [Event("beat"), Event("finished", Task("", 1))]
    assert not (tmp_path / "seed-0" / "number.json").exists()
    assert (tmp_path / "seed-1" / "number.json").exists()


def test_seeds_can_be_added(tmp_path, inline):
    run_experiment(COUNT, tmp_path, workers=1)
    events = []
    more = replace(COUNT, seeds=(0, 1, 5))
    assert run_experiment(more, tmp_path, on_event=events.append) == ()
    done = [event.task.name for event in events if event.task is not None]
    assert done == [t.name for t in tasks_of(COUNTING, (5,)) if t.seed is not None]
    header = ExperimentFolder(tmp_path).header
    assert header["seeds"] == [0, 1, 5]
    assert "--seeds 0,1,5" in header["command"]
    with pytest.raises(StoreError, match=r"its seeds is \[0, 1, 5\], asked is \[0, 1\]"):
        run_experiment(COUNT, tmp_path)
    assert run_experiment(more, tmp_path) == ()


def test_a_task_that_another_process_finished_meanwhile_is_left_as_it_is(tmp_path):
    folder = ExperimentFolder.of(tmp_path / "run", COUNT)
    folder.finish(Task("", 0), 1.0)
    do_task(Job(COUNT, str(folder.path), Task("", 0)))
    assert numbers(folder.path) == {}


def test_a_machine_with_other_settings_refuses_its_task(tmp_path, monkeypatch):
    folder = ExperimentFolder.of(tmp_path / "run", COUNT)
    other = replace(COUNTING, presets={"smoke": tiny_experiments.Size(9)})
    monkeypatch.setattr(tiny_experiments, "COUNTING", other)
    with pytest.raises(StoreError, match=r"another spec: its settings.size is 1, asked is 9"):
        do_task(Job(COUNT, str(folder.path), Task("", 0)))


# What goes wrong


def test_what_fails_is_told_and_all_else_is_done(tmp_path):
    events = []
    failures = run_experiment(FAIL, tmp_path / "run", on_event=events.append)
    told_of = {failure.task.name: failure for failure in failures}
    assert set(told_of) == {*("error/seed-1", "bug/seed-0", "bug/seed-1", "death/seed-0")}
    assert told_of["error/seed-1"].message == "the data are\nwrong."
    assert not told_of["error/seed-1"].trace
    assert told_of["bug/seed-0"].message == "ZeroDivisionError: nobody thought of this"
    assert "in _bug" in told_of["bug/seed-0"].trace
    assert told_of["death/seed-0"].message.startswith("its process was ended by SIGKILL")
    folder = ExperimentFolder(tmp_path / "run")
    done = [task.name for task in tasks_of(tiny_experiments.FAILING, (0, 1))]
    done = [name for name in done if (folder.path / name / "finished.json").exists()]
    assert done == ["error/seed-0", "good/seed-0", "death/seed-1", "good/seed-1"]
    assert [event.failure for event in events if event.kind == "failed"] == list(failures)


def test_a_process_that_ends_by_itself_says_how_to_start_others():
    assert "exit code 1. A script that runs experiments" in local_engine._last_word(1)


@pytest.mark.parametrize(
    ("changes", "how", "words"),
    [
        ({}, {"engine": "steam"}, "engine must be one of local, ray; got 'steam'"),
        ({}, {"workers": 0}, "workers must be"),
        ({"device": "cuda:99"}, {}, "device 'cuda:99' is not here"),
    ],
)
def test_nothing_is_written_if_it_cannot_be_done(tmp_path, changes, how, words):
    with pytest.raises(ConfigError, match=words):
        run_experiment(replace(COUNT, **changes), tmp_path / "run", **how)
    assert not list(tmp_path.iterdir())


def test_without_ray_the_way_to_install_it_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_engine.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"pip install 'bmdp\[ray\]'"):
        run_experiment(COUNT, tmp_path / "run", engine="ray")
    assert not list(tmp_path.iterdir())


def test_an_interruption_leaves_no_process_behind(tmp_path):
    def interrupt(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment(SHORT, tmp_path / "run", on_event=interrupt)
    assert not serving(os.getpid())
    with ExperimentFolder(tmp_path / "run").locked():
        pass


# A kill in the middle


@dataclass(frozen=True)
class Killed:
    """What was seen of a run before it was killed, and after."""

    folder: Path
    n_serving: int
    refusal: str
    n_records: list[int]
    n_left: int


def serving(parent):
    """Processes that do the work of another, as Linux knows them."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [child for child in map(int, children) if b"spawn_main" in command_of(child)]


def command_of(process):
    """Nothing if it has ended."""
    path = Path(f"/proc/{process}/cmdline")
    return path.read_bytes() if path.exists() else b""


def n_records(folder):
    paths = [folder / f"seed-{seed}" / "records.jsonl" for seed in (0, 1)]
    return [len(path.read_text().splitlines()) if path.exists() else 0 for path in paths]


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Two processes that train are killed with the one that waits for them, and gone on with."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    options = ["--preset", "smoke", "--workers", "2", "--out", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    process = subprocess.Popen([*COMMAND, LONG.experiment, *options], env=environment)
    while min(n_records(folder)) < 4:
        assert process.poll() is None
        time.sleep(0.02)
    servants = serving(process.pid)
    with pytest.raises(StoreError) as refused:
        run_experiment(LONG, folder)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until = time.monotonic() + 30
    while any(map(command_of, servants)) and time.monotonic() < until:
        time.sleep(0.02)
    left = [servant for servant in servants if command_of(servant)]
    seen = Killed(folder, len(servants), str(refused.value), n_records(folder), len(left))
    assert run_experiment(LONG, folder) == ()
    return seen


def test_a_run_that_is_killed_ends_as_if_it_had_not_been(killed, whole):
    assert max(killed.n_records) < 15  # it was in the middle
    assert results(killed.folder) == results(whole)
    for seed in ("seed-0", "seed-1"):
        records = (RunFolder(folder / seed).records() for folder in (killed.folder, whole))
        assert len(set(map(str, map(told, records)))) == 1


def test_processes_end_with_the_one_that_is_killed(killed):
    assert killed.n_serving == 2
    assert killed.n_left == 0


def test_a_second_process_is_refused(killed):
    assert "is in use by process" in killed.refusal
