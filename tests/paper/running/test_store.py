import json
import os
import threading

import pytest

import training
from bmdp import StoreError
from bmdp.experiments.running import store
from bmdp.experiments.running.store import ExperimentFolder, Task, discard, tasks_of
from bmdp.learn import train
from bmdp.learn.runs import RunFolder
from bmdp.learn.runs import discard as discard_run
from bmdp.storage import create_folder
from tiny_experiments import COUNT, COUNTING, LONG

TASK = Task("", 0)


@pytest.fixture
def folder(tmp_path):
    return ExperimentFolder.of(tmp_path / "run", COUNT)


def test_tasks_are_common_parts_and_those_of_each_seed():
    names = [task.name for task in tasks_of(COUNTING, (0, 3))]
    assert names == ["once", "seed-0", "again/seed-0", "seed-3", "again/seed-3"]


def test_a_folder_is_made_once_and_opened_later(folder):
    written = (folder.path / "spec.json").read_text()
    assert ExperimentFolder.of(folder.path, COUNT).header == json.loads(written)
    assert (folder.path / "spec.json").read_text() == written
    assert folder.folder_of("again", 1) == folder.path / "again" / "seed-1"
    assert folder.folder_of("once", None) == folder.path / "once"


def test_a_folder_that_is_empty_is_taken(tmp_path):
    ExperimentFolder.of(tmp_path, COUNT)
    assert os.listdir(tmp_path) == ["spec.json"]


def test_a_folder_that_another_process_made_meanwhile_is_opened(tmp_path, monkeypatch):
    def too_late(target, header):
        create_folder(target, header)
        raise StoreError("is there already")

    monkeypatch.setattr(store, "create_folder", too_late)
    assert ExperimentFolder.of(tmp_path / "run", COUNT).header["seeds"] == [0, 1]


def test_a_folder_of_another_spec_is_refused(folder):
    with pytest.raises(StoreError, match="is of another spec: its experiment is"):
        ExperimentFolder.of(folder.path, LONG)


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        ExperimentFolder.of(tmp_path / "file" / "run", COUNT)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("thesis.txt", "all I have", r"is no experiment: there is no spec\.json in it"),
        ("spec.json", "{", r"spec\.json is not JSON"),
        (
            "spec.json",
            '{"schema": 2, "kind": "exploration"}',
            r"spec\.json is not of an experiment",
        ),
        ("spec.json", '{"schema": 3, "kind": "experiment"}', "is of schema 3, newer than 2"),
        ("spec.json", '{"schema": 1, "kind": "experiment"}', r"was begun by bmdp 0\.1\.0"),
    ],
)
def test_a_folder_of_something_else_is_refused(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(StoreError, match=words):
        ExperimentFolder.of(tmp_path, COUNT)


# What is done


def test_a_task_is_finished_once_it_says_so(folder):
    assert not folder.is_finished(TASK)
    folder.finish(TASK, 1.23456)
    assert folder.is_finished(TASK)
    assert folder.finished(TASK)["seconds"] == 1.235
    assert folder.finished(TASK)["machine"]["cores"] == os.cpu_count()


def test_what_a_kill_left_of_a_task_is_taken_away_and_nothing_else(folder):
    place = folder.folder_of("", 0)
    place.mkdir()
    for name in ("number.json", ".number.json.77.new"):
        (place / name).write_text("{}")
    (place / "..policy.77.new-a1b2").mkdir()
    (folder.path / ".seed-0-a1b2").mkdir()
    (folder.path / ".seed-1-a1b2").mkdir()
    with folder.held(TASK):
        assert os.listdir(place) == ["number.json"]
    assert sorted(os.listdir(folder.path)) == [".locks", ".seed-1-a1b2", "seed-0", "spec.json"]


# One process at a time


def test_two_processes_cannot_run_one_experiment(folder):
    with (
        folder.locked(),
        pytest.raises(StoreError, match=f"run is in use by process {os.getpid()} on"),
        ExperimentFolder(folder.path).locked(),
    ):
        pass


def test_a_task_is_waited_for_and_then_refused(folder):
    with (
        folder.held(TASK),
        pytest.raises(StoreError, match="seed-0 is in use by process"),
        folder.held(TASK, wait=0.1),
    ):
        pass


def test_a_task_whose_process_ends_is_taken_over(folder):
    begun, may_end = threading.Event(), threading.Event()

    def other():
        with folder.held(TASK):
            begun.set()
            may_end.wait()

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait()
    threading.Timer(0.2, may_end.set).start()
    with folder.held(TASK, wait=60):
        assert may_end.is_set()
    thread.join()


def test_a_lock_that_cannot_be_written_is_told(folder):
    (folder.path / "lock").mkdir()
    with pytest.raises(StoreError, match="lock cannot be written"), folder.locked():
        pass


# Deleting


def test_only_experiments_are_discarded(folder, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all I have")
    with pytest.raises(StoreError, match="is no experiment, and is not overwritten"):
        discard(tmp_path / "mine")
    discard(tmp_path / "nothing")
    discard(folder.path)
    assert os.listdir(tmp_path) == ["mine"]


def test_runs_and_experiments_are_not_taken_for_each_other(folder, tmp_path):
    train(training.SPEC, tmp_path / "training", seed=0)
    with pytest.raises(StoreError, match=r"spec\.json is not of an experiment"):
        discard(tmp_path / "training")
    with pytest.raises(StoreError, match=r"spec\.json is not of a training run"):
        discard_run(folder.path)
    assert RunFolder(tmp_path / "training").is_done
    assert ExperimentFolder(folder.path)


def test_an_experiment_at_work_is_not_discarded(folder):
    with folder.locked(), pytest.raises(StoreError, match="is in use"):
        discard(folder.path)
    with (
        folder.held(TASK),
        pytest.raises(StoreError, match="is in use"),
    ):  # of a run that was killed
        discard(folder.path)
    assert ExperimentFolder(folder.path)
