import json
import os

import pytest

from bmdp.experiments.running.boards import Board
from bmdp.experiments.running.store import ExperimentFolder, Task, tasks_of
from bmdp.experiments.running.watching import Sight, Watcher, time_left
from bmdp.learn import Backward, BFTQConfig, EnvConfig, Exploration, Iterations, TrainingSpec
from bmdp.learn.spec import to_json
from tiny_experiments import LONG, TRAINING

SEED, OTHER = Task("", 0), Task("", 1)


def header(schedule):
    """Of a run of four rounds."""
    learner = BFTQConfig(gamma=1.0, schedule=schedule)
    spec = TrainingSpec(EnvConfig("corridors"), learner, Exploration(rounds=4))
    return {"schema": 2, "kind": "exploration", "spec": to_json(spec)}


RUN = header(Iterations(4))


class Place:
    """A folder that is written as a run would write it, and a clock."""

    def __init__(self, path):
        self.folder = ExperimentFolder.of(path, LONG)
        self.seconds = 1.0
        self.watcher = self.another_watcher()

    def another_watcher(self):
        return Watcher(self.folder, tasks_of(TRAINING, LONG.seeds), lambda: self.seconds)

    def begin(self, task, run=RUN):
        place = self.folder.folder_of(task.part, task.seed)
        with self.folder.held(task):
            os.utime(self.folder.lock_of(task), (self.seconds, self.seconds))
        place.mkdir(exist_ok=True)
        (place / "spec.json").write_text(json.dumps(run))

    def write(self, task, text, mode="a"):
        path = self.folder.folder_of(task.part, task.seed) / "records.jsonl"
        if mode == "w":
            path.rename(path.with_suffix(".old"))
        with path.open("a") as file:
            file.write(text)

    def sight(self, task):
        return next(s for s in self.watcher.look().sights if s.task == task)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "run")


def line(number, iteration=None, **more):
    kind = "collection" if iteration is None else "iteration"
    what = {"iteration": iteration, "is_last": iteration == 3, "last_loss": 0.5}
    record = {"kind": kind, "round": number, **({} if iteration is None else what), **more}
    return json.dumps(record) + "\n"


# Looking


def test_tasks_wait_work_train_and_are_finished(place):
    assert place.sight(SEED).state == "waiting"
    place.begin(SEED)
    assert place.sight(SEED).state == "working"
    place.write(SEED, line(0) + line(0, 0) + line(0, 1))
    seen = place.sight(SEED)
    assert (seen.state, seen.run.record["iteration"], seen.run.n_rounds) == ("training", 1, 4)
    assert seen.share == pytest.approx(2 / 40)
    (place.folder.folder_of("", 0) / "done").write_text("")
    assert place.sight(SEED).state == "working"
    place.folder.finish(SEED, 7.0)
    seen = place.sight(SEED)
    assert (seen.state, seen.share, seen.seconds) == ("finished", 1.0, 7.0)
    assert place.sight(OTHER).state == "waiting"


@pytest.mark.parametrize("schedule", [Backward(), None])
def test_records_tell_how_many_steps_have_models(place, schedule):
    place.begin(SEED, header(schedule))
    place.write(SEED, line(0))
    assert (place.sight(SEED).state, place.sight(SEED).share) == ("training", 0.0)
    place.write(SEED, line(0, 0, step=8) + line(0, 1, step=7))
    assert place.sight(SEED).run.n_iterations == 9
    assert place.sight(SEED).share == pytest.approx(2 / 90)
    place.write(SEED, line(1))
    assert place.sight(SEED).share == pytest.approx(9 / 90)


@pytest.mark.parametrize("schedule", [Iterations(), None])
def test_iterations_that_may_end_early_count_as_all_of_them(place, schedule):
    place.begin(SEED, header(schedule))
    place.write(SEED, line(0) + line(0, 0, step=None) + line(0, 1, step=None))
    assert place.sight(SEED).run.n_iterations == 100
    place.write(SEED, line(0, 5, step=None, is_last=True))
    assert place.sight(SEED).share == pytest.approx(1 / 10)


def test_a_task_that_failed_is_at_work_no_more(place):
    place.begin(SEED)
    place.watcher.note_failure(SEED)
    assert place.sight(SEED).state == "failed"
    place.begin(OTHER)
    assert place.sight(OTHER).state == "working"
    place.folder.finish(OTHER, 60.0)
    assert time_left(place.watcher.look().sights) == 60.0  # of the truth, which waits


def test_what_was_done_before_a_kill_is_no_work_of_now(place):
    place.begin(SEED)
    place.write(SEED, line(0) + line(0, 0))
    place.watcher, place.seconds = place.another_watcher(), 5.0
    assert place.sight(SEED).state == "waiting"
    place.begin(SEED)
    assert (place.sight(SEED).begun, place.sight(SEED).seconds) == (1 / 40, 0.0)
    place.write(SEED, line(0, 1))
    place.seconds = 8.0
    seen = place.sight(SEED)
    assert (seen.begun, seen.share, seen.seconds) == (1 / 40, 2 / 40, 3.0)


def test_records_are_told_once_even_if_they_are_written_again(place):
    place.begin(SEED)
    place.write(SEED, line(0) + line(0, 0))
    assert [r.get("iteration") for _, r in place.watcher.look().records] == [None, 0]
    assert place.watcher.look().records == ()
    place.write(SEED, line(0), mode="w")
    assert place.watcher.look().records == ()
    assert place.sight(SEED).share == 0
    place.write(SEED, "", mode="w")
    assert place.sight(SEED).state == "working"
    place.write(SEED, line(0, 0) + line(0, 1))
    assert [(n, r["iteration"]) for n, r in place.watcher.look().records] == [("seed-0", 1)]


def test_runs_within_a_task_are_seen_in_turn(place):
    place.begin(SEED)
    outer = place.folder.folder_of("", 0)
    (outer / "spec.json").unlink()
    for name in ("exploring", "learning"):
        (outer / name).mkdir()
        (outer / name / "spec.json").write_text(json.dumps(RUN))
        (outer / name / "records.jsonl").write_text(line(0) + line(0, 0))
        assert place.watcher.look().records[0][0] == f"seed-0/{name}"
        seen = place.sight(SEED)
        assert (seen.state, seen.run.name, seen.share) == ("training", name, 0.0)
        (outer / name / "done").write_text("")
    assert place.sight(SEED).state == "working"


def test_half_a_line_is_read_once_it_is_whole(place):
    place.begin(SEED)
    place.write(SEED, line(0)[:9])
    assert place.watcher.look().records == ()
    place.write(SEED, line(0)[9:] + "[]\n{}\n")
    assert [record["round"] for _, record in place.watcher.look().records] == [0]


def test_a_damaged_folder_stops_nobody_from_looking(place):
    place.begin(SEED)
    (place.folder.folder_of("", 0) / "spec.json").write_text("{}")
    place.write(SEED, line(0))
    assert place.sight(SEED).state == "working"
    (place.folder.folder_of("", 0) / "finished.json").write_text("{")
    assert (place.sight(SEED).state, place.sight(SEED).seconds) == ("finished", 0.0)


# How long it will take


def test_nothing_is_known_of_the_time_left_at_first():
    assert time_left([Sight(SEED, "waiting"), Sight(OTHER, "working", seconds=9.0)]) is None


def test_a_seed_takes_as_long_as_another():
    done = Sight(SEED, "finished", 1.0, seconds=60.0)
    assert time_left([done, Sight(OTHER, "working", seconds=1.0)]) == 60.0
    assert time_left([done]) == 0.0


def test_the_pace_is_that_of_what_was_done_now():
    half = Sight(SEED, "training", 0.5, begun=0.25, seconds=10.0)
    assert time_left([half]) == pytest.approx(20.0)


def test_tasks_that_are_done_at_a_time_take_half_as_long():
    both = [Sight(task, "training", 0.5, seconds=10.0) for task in (SEED, OTHER)]
    assert time_left(both) == pytest.approx(10.0)
    waiting = Sight(Task("", 2), "waiting")
    assert time_left([*both, waiting]) == pytest.approx(20.0)


def test_a_part_of_which_nothing_is_known_takes_as_long_as_others():
    done = [Sight(SEED, "finished", 1.0, seconds=2.0), Sight(OTHER, "finished", 1.0, seconds=4.0)]
    assert time_left([*done, Sight(Task("ftq", 0), "waiting")]) == 3.0


# TensorBoard


def events_of(folder):
    module = "tensorboard.backend.event_processing.event_accumulator"
    found = pytest.importorskip(module).EventAccumulator(str(folder))
    found.Reload()
    return {
        tag: [(event.step, event.value) for event in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }


def test_records_are_charts_of_tensorboard(tmp_path):
    (tmp_path / "tensorboard" / "old").mkdir(parents=True)
    board = Board(tmp_path / "tensorboard")
    for number in range(2):
        lines = [line(number, reward=number + 1.0), line(number, 0), line(number, 3)]
        board.add(("ftq/seed-1", json.loads(text)) for text in lines)
    board.close()
    assert os.listdir(tmp_path / "tensorboard") == ["ftq"]
    assert events_of(tmp_path / "tensorboard" / "ftq" / "seed-1") == {
        "collection/reward": [(0, 1.0), (1, 2.0)],
        "iteration/last_loss": [(step, 0.5) for step in range(4)],
    }
