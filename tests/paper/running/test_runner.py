"""Experiments in their folders: nothing is lost, done twice, or done by two."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

import tiny_experiments
import training
from bmdp import ConfigError, MissingDependency, StoreError, cluster
from bmdp.learn import train
from bmdp.learn.runs import RunFolder
from bmdp.learn.runs import discard as discard_run
from bmdp.paper import runner
from bmdp.paper.runner import ExperimentFolder, Work, attempt, discard, run_experiment
from bmdp.storage import create_folder
from tiny_experiments import COUNT, COUNTING, FAIL, LONG, SHORT, results, run_inline
from training import told

COMMAND = [sys.executable, "-c", "from bmdp.cli.main import main; main()", "run"]
TASKS = ["once", "seed-0", "again/seed-0", "seed-1", "again/seed-1"]


@pytest.fixture
def inline(monkeypatch):
    """No other processes."""
    monkeypatch.setattr(runner, "run_jobs", run_inline)


def made(path):
    """The folder of COUNT, in which nothing is done."""
    with ExperimentFolder.at_work(path, COUNT) as folder:
        return folder


@pytest.fixture
def folder(tmp_path):
    return made(tmp_path / "run")


def numbers(folder):
    """Pieces of the tasks that count, by task."""
    return {
        path.parent.relative_to(folder).as_posix(): json.loads(path.read_text())
        for path in folder.rglob("number.json")
    }


def run_told(spec, folder, **how):
    """Runs an experiment, and returns what was told of its progress."""
    seen = []
    assert run_experiment(spec, folder, **how, on_progress=lambda *said: seen.append(said)) == ()
    return seen


# What is done


def test_all_tasks_are_done_by_so_many_processes_with_so_many_threads(tmp_path):
    assert run_experiment(replace(COUNT, threads=3), tmp_path / "run", workers=2) == ()
    found = numbers(tmp_path / "run")
    assert set(found) == set(TASKS)
    assert [found[f"again/seed-{seed}"]["seed"] for seed in (0, 1)] == [0, 1]
    assert os.getpid() not in {number["by"] for number in found.values()}
    assert len({number["by"] for number in found.values()}) <= 2
    assert {number["threads"] for number in found.values()} == {"3"}
    assert os.environ.get("OMP_NUM_THREADS") != "3"


def test_what_is_finished_is_not_done_again(tmp_path, inline):
    run_experiment(COUNT, tmp_path)
    (tmp_path / "seed-1" / "finished.json").unlink()
    (tmp_path / "seed-1" / "number.json").unlink()
    (tmp_path / "seed-0" / "number.json").unlink()
    seen = run_told(COUNT, tmp_path)
    others = [(name, 1.0, "done") for name in TASKS if name != "seed-1"]
    assert seen[:4] == others
    assert seen[4:] == [("seed-1", 0.0, ""), ("seed-1", 1.0, "done")]
    assert not (tmp_path / "seed-0" / "number.json").exists()
    assert (tmp_path / "seed-1" / "number.json").exists()


def test_seeds_can_be_added_and_not_taken_away(tmp_path, inline):
    run_experiment(COUNT, tmp_path)
    more = replace(COUNT, seeds=(0, 1, 5))
    done = [name for name, share, text in run_told(more, tmp_path) if text != "done"]
    assert done == ["seed-5", "again/seed-5"]
    header = ExperimentFolder(tmp_path).header
    assert header["seeds"] == [0, 1, 5]
    assert "--seeds 0,1,5" in header["command"]
    with pytest.raises(StoreError, match=r"seeds is \[0, 1, 5\], asked is \[0, 1\]"):
        run_experiment(COUNT, tmp_path)
    assert run_experiment(more, tmp_path) == ()


def test_a_task_that_another_process_finished_meanwhile_is_left_as_it_is(folder):
    (folder.path / "seed-0").mkdir()
    (folder.path / "seed-0" / "finished.json").write_text("{}")
    assert attempt((COUNT, str(folder.path), "seed-0")) is None
    assert numbers(folder.path) == {}


def test_a_machine_with_other_settings_refuses_its_task(folder, monkeypatch):
    other = replace(COUNTING, SETTINGS={"smoke": tiny_experiments.Size(9)})
    monkeypatch.setattr(tiny_experiments, "COUNTING", other)
    failure = attempt((COUNT, str(folder.path), "seed-0"))
    assert "settings.size is 1, asked is 9" in failure.message
    assert numbers(folder.path) == {}


def test_a_task_tells_how_far_its_training_is(tmp_path, monkeypatch, inline):
    seen, note = [], RunFolder.note

    def note_and_look(run, record):
        note(run, record)
        seen.append(SHORT.tasks(tmp_path)["seed-0"].how_far())

    monkeypatch.setattr(RunFolder, "note", note_and_look)
    run_experiment(SHORT, tmp_path)
    assert [share for share, _ in seen] == pytest.approx([0, 1 / 6, 2 / 6, 2 / 6, 4 / 6, 1])
    assert "round 2" in seen[-1][1]


def test_a_run_within_a_task_is_told_until_it_is_done(tmp_path):
    (tmp_path / "exploring").mkdir()
    (tmp_path / "learning").mkdir()
    for name, number in (("exploring", 4), ("learning", 6)):
        record = {"kind": "collection", "round": number, "transitions": 5, "reward": 1, "cost": 0}
        (tmp_path / name / "records.jsonl").write_text(json.dumps(record) + '\n{"kind": ')
    (tmp_path / "exploring" / "done").write_text("")
    share, text = Work(tmp_path, 0, "cpu").how_far()
    assert share == 0.0
    assert "round 7" in text


# Pieces


def test_a_piece_is_made_once(tmp_path):
    work = Work(tmp_path / "seed-0", 0, "cpu")
    assert [work.piece("found", lambda n=n: {"n": n}) for n in (1, 2)] == [{"n": 1}] * 2


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_damaged_piece_is_told(tmp_path, text):
    (tmp_path / "found.json").write_text(text)
    with pytest.raises(StoreError, match=r"found\.json"):
        Work(tmp_path, 0, "cpu").piece("found", dict)


# What goes wrong


def test_what_fails_is_told_and_all_else_is_done(tmp_path):
    seen = []
    failures = run_experiment(FAIL, tmp_path / "run", on_progress=lambda *said: seen.append(said))
    told_of = {failure.task: failure for failure in failures}
    assert set(told_of) == {"error/seed-1", "bug/seed-0", "bug/seed-1", "death/seed-0"}
    assert told_of["error/seed-1"].message == "the data are wrong."
    assert not told_of["error/seed-1"].trace
    assert told_of["bug/seed-0"].message == "ZeroDivisionError: nobody thought of this"
    assert "in _bug" in told_of["bug/seed-0"].trace
    assert "SIGKILL" in told_of["death/seed-0"].message
    done = [name for name, work in FAIL.tasks(tmp_path / "run").items() if work.is_finished]
    assert done == ["error/seed-0", "good/seed-0", "death/seed-1", "good/seed-1"]
    assert {name for name, _, text in seen if text == "failed"} == set(told_of)
    assert {name for name, _, text in seen if text == "done"} == set(done)


@pytest.mark.parametrize(
    ("changes", "how", "facts"),
    [
        ({}, {"engine": "steam"}, "engine.*local, ray.*'steam'"),
        ({}, {"workers": 0}, "workers.*0"),
        ({"device": "cuda:99"}, {}, "'cuda:99'"),
    ],
)
def test_nothing_is_written_or_deleted_if_it_cannot_be_done(folder, changes, how, facts):
    before = training.content(folder.path)
    with pytest.raises(ConfigError, match=facts):
        run_experiment(replace(COUNT, **changes), folder.path, **how, force=True)
    assert training.content(folder.path) == before


def test_without_ray_the_way_to_install_it_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"pip install 'bmdp\[ray\]'"):
        run_experiment(COUNT, tmp_path / "run", engine="ray")
    assert not list(tmp_path.iterdir())


def test_an_interruption_leaves_no_process_behind(tmp_path):
    def interrupt(*said):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment(SHORT, tmp_path / "run", on_progress=interrupt)
    assert not serving(os.getpid())
    with ExperimentFolder(tmp_path / "run").locked():
        pass


# The folder


def test_a_folder_is_made_once_and_opened_later(folder):
    written = (folder.path / "spec.json").read_text()
    header = json.loads(written)
    assert header.pop("checksum")
    assert made(folder.path).header == header
    assert (folder.path / "spec.json").read_text() == written


def test_a_folder_that_another_process_made_meanwhile_is_opened(tmp_path, monkeypatch):
    def too_late(target, header):
        create_folder(target, header)
        raise StoreError("is there already")

    monkeypatch.setattr(runner, "create_folder", too_late)
    assert made(tmp_path / "run").header["seeds"] == [0, 1]


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file/run"):
        run_experiment(COUNT, tmp_path / "file" / "run")


@pytest.mark.parametrize(
    ("name", "text", "facts"),
    [
        ("thesis.txt", "all I have", r"spec\.json"),
        ("spec.json", "{", "JSON"),
        ("spec.json", '{"schema": 2, "kind": "exploration"}', "experiment"),
        ("spec.json", '{"schema": 3, "kind": "experiment"}', "schema 3"),
        ("spec.json", '{"schema": 1, "kind": "experiment"}', r"0\.1\.0"),
    ],
)
def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path, name, text, facts):
    (tmp_path / name).write_text(text)
    with pytest.raises(StoreError, match=facts):
        run_experiment(COUNT, tmp_path)
    assert os.listdir(tmp_path) == [name]


def test_what_a_kill_left_of_a_task_is_taken_away_and_nothing_else(folder):
    place = folder.path / "seed-0"
    place.mkdir()
    (place / "number.json").write_text("{}")
    (place / ".number.json.a1b2.new").mkdir()
    (folder.path / ".seed-0.a1b2.new").mkdir()
    (folder.path / ".seed-1.a1b2.new").mkdir()
    with folder.held("seed-0"):
        assert os.listdir(place) == ["number.json"]
    left = {name for name in os.listdir(folder.path) if name.endswith(".new")}
    assert left == {".seed-1.a1b2.new"}


def test_a_task_is_waited_for_and_then_refused(folder):
    with (
        folder.held("again/seed-0"),
        pytest.raises(StoreError, match=f"again/seed-0 .*process {os.getpid()} "),
        folder.held("again/seed-0", wait=0.1),
    ):
        pass


def test_a_task_whose_process_ends_is_taken_over(folder):
    begun, may_end = threading.Event(), threading.Event()

    def other():
        with folder.held("seed-0"):
            begun.set()
            may_end.wait()

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait()
    threading.Timer(0.2, may_end.set).start()
    with folder.held("seed-0", wait=60):
        assert may_end.is_set()
    thread.join()


def test_only_experiments_are_discarded(folder, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all I have")
    with pytest.raises(StoreError, match="mine"):
        discard(tmp_path / "mine")
    discard(tmp_path / "nothing")
    discard(folder.path)
    assert os.listdir(tmp_path) == ["mine"]


def test_runs_and_experiments_are_not_taken_for_each_other(folder, tmp_path):
    train(training.SPEC, tmp_path / "training", seed=0)
    with pytest.raises(StoreError, match="experiment"):
        discard(tmp_path / "training")
    with pytest.raises(StoreError, match="training run"):
        discard_run(folder.path)
    assert RunFolder(tmp_path / "training").is_done
    assert ExperimentFolder(folder.path)


@pytest.mark.parametrize("hold", [lambda f: f.locked(), lambda f: f.held("seed-0")])
def test_an_experiment_at_work_is_not_discarded(folder, hold):
    with hold(folder), pytest.raises(StoreError, match=str(os.getpid())):
        discard(folder.path)
    assert ExperimentFolder(folder.path)


# A kill in the middle


@pytest.mark.parametrize("n_writes", range(1, 46, 2))
def test_a_kill_at_any_time_that_the_disk_is_written_changes_nothing(
    tmp_path, monkeypatch, inline, once, n_writes
):
    left, fsync = [n_writes], os.fsync

    def killing(file):
        left[0] -= 1
        if left[0] == 0:
            raise training.Killed
        fsync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", killing)
        with pytest.raises(training.Killed):
            run_experiment(SHORT, tmp_path / "run")
    assert run_experiment(SHORT, tmp_path / "run") == ()
    assert results(tmp_path / "run") == results(once)


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """SHORT, which nothing interrupted."""
    folder = tmp_path_factory.mktemp("once") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "run_jobs", run_inline)
        assert run_experiment(SHORT, folder) == ()
    return folder


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


def test_processes_end_with_the_one_that_is_killed_and_the_run_ends_as_if_it_had_not_been(
    whole, tmp_path
):
    folder = tmp_path / "run"
    options = ["--preset", "smoke", "--seeds", "0:2", "--workers", "2", "--out", str(folder)]
    paths = [str(Path(tiny_experiments.__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.Popen([*COMMAND, LONG.experiment, *options], env=environment)
    while max(n_records(folder)) < 4 or len(serving(process.pid)) < 2:
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
    assert "in use by process" in str(refused.value)
    assert (len(servants), left) == (2, [])
    assert max(n_records(folder)) < 15  # it was in the middle
    assert run_experiment(LONG, folder) == ()
    assert results(folder) == results(whole)
    for seed in ("seed-0", "seed-1"):
        records = (RunFolder(place / seed).records() for place in (folder, whole))
        assert len(set(map(str, map(told, records)))) == 1


def test_two_workers_find_what_one_finds(tmp_path, monkeypatch):
    spec = replace(SHORT, seeds=(0, 1))
    assert run_experiment(spec, tmp_path / "two", workers=2) == ()
    monkeypatch.setattr(runner, "run_jobs", run_inline)
    assert run_experiment(spec, tmp_path / "one") == ()
    assert results(tmp_path / "two") == results(tmp_path / "one")


def test_a_task_says_how_long_it_took_and_where(tmp_path, inline):
    run_experiment(COUNT, tmp_path)
    found = json.loads((tmp_path / "again" / "seed-1" / "finished.json").read_text())
    assert 0 <= found["seconds"] < 60
    assert found["machine"]["cores"] == os.cpu_count()


def test_a_folder_that_is_empty_is_taken(tmp_path):
    made(tmp_path)
    assert "spec.json" in os.listdir(tmp_path)
