"""How far an experiment is, by a look at its folder: whoever does the work, on whatever machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from bmdp.errors import StoreError
from bmdp.experiments.running.store import ExperimentFolder, Task
from bmdp.experiments.running.tails import Record, RunTail
from bmdp.learn.runs import RECORDS

State = Literal["waiting", "working", "training", "finished", "failed"]
AT_WORK = ("working", "training")


@dataclass(frozen=True)
class Run:
    """A training run at work.

    Args:
        name: of its folder within that of the task; "" if it is the same.
        record: its last.
        n_rounds: of all of it.
        n_iterations: of a round, at most.
    """

    name: str
    record: Record
    n_rounds: int
    n_iterations: int


@dataclass(frozen=True)
class Sight:
    """How far a task is.

    Args:
        task: which one.
        state: "waiting", "working", "training" once it says how far it is, "finished" or "failed".
        share: of its work that is done, as far as is known.
        begun: what its share was when it was first seen at work.
        seconds: since then; once it is finished, that it took.
        run: that is at work, if it is training.
    """

    task: Task
    state: State
    share: float = 0.0
    begun: float = 0.0
    seconds: float = 0.0
    run: Run | None = None


@dataclass(frozen=True)
class News:
    """What a look at a folder tells.

    Args:
        sights: of all tasks.
        records: of training runs, which were not there before, each with the folder of its run
            within that of the experiment.
    """

    sights: tuple[Sight, ...]
    records: tuple[tuple[str, Record], ...]


class Watcher:
    """Looks at the folder of an experiment again and again."""

    def __init__(
        self,
        folder: ExperimentFolder,
        tasks: Sequence[Task],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Of a folder in which no task is at work yet."""
        self._folder = folder
        self._views = [_View(folder, task, clock) for task in tasks]

    def note_failure(self, task: Task) -> None:
        """Takes note that nobody does a task any more, which a folder does not tell."""
        for view in self._views:
            view.has_failed = view.has_failed or view.task == task

    def look(self) -> News:
        """Returns how far all tasks are, and what is new."""
        records = [found for view in self._views for found in view.new_records()]
        return News(tuple(view.sight() for view in self._views), tuple(records))


def time_left(sights: Sequence[Sight]) -> float | None:
    """Returns the seconds that are left, going by what is done; None if nothing is known.

    A part takes as long as it took with other seeds, or as its pace says; one of which nothing is
    known, as long as the others on average. As many tasks will be done at a time as are now.
    """
    known: dict[str, list[float]] = {}
    for sight in sights:
        gained = 1.0 if sight.state == "finished" else sight.share - sight.begun
        if gained > 0.01 and sight.seconds > 0:
            known.setdefault(sight.task.part, []).append(sight.seconds / gained)
    if not known:
        return None
    usual = fmean(map(fmean, known.values()))
    left = [
        (1 - sight.share) * fmean(known.get(sight.task.part, [usual]))
        for sight in sights
        if sight.state not in ("finished", "failed")
    ]
    n_at_work = sum(sight.state in AT_WORK for sight in sights)
    return sum(left) / max(1, n_at_work)


class _View:
    """What is seen of one task."""

    def __init__(self, folder: ExperimentFolder, task: Task, clock: Callable[[], float]) -> None:
        self.task = task
        self.has_failed = False
        self._folder, self._clock = folder, clock
        self._place = folder.folder_of(task.part, task.seed)
        self._mark = self._lock_time()
        self._since: tuple[float, float] | None = None  # when it was first seen at work, and share
        self._main = RunTail(self._place)
        self._runs = {"": self._main}

    def new_records(self) -> Iterator[tuple[str, Record]]:
        """Those that were not there before, each with the folder of its run."""
        for path in sorted(self._place.glob(f"*/{RECORDS}")):
            self._runs.setdefault(path.parent.name, RunTail(path.parent))
        for name, run in self._runs.items():
            place = f"{self.task.name}/{name}" if name else self.task.name
            yield from ((place, record) for record in run.read())

    def sight(self) -> Sight:
        """How far it is, by the records that were read."""
        if self._folder.is_finished(self.task):
            return Sight(self.task, "finished", 1.0, seconds=self._seconds())
        share = self._main.share
        if self.has_failed or self._lock_time() == self._mark:
            return Sight(self.task, "failed" if self.has_failed else "waiting", share)
        self._since = self._since or (self._clock(), share)
        begin, begun = self._since
        sight = Sight(self.task, "working", share, begun, self._clock() - begin)
        for name, run in self._runs.items():
            if run.is_at_work and run.shape and run.last:
                return replace(sight, state="training", run=Run(name, run.last, *run.shape))
        return sight

    def _seconds(self) -> float:
        try:
            return float(self._folder.finished(self.task).get("seconds", 0.0))
        except StoreError:
            return 0.0

    def _lock_time(self) -> int:
        """When the task was begun last; the clock of the machine does not matter."""
        try:
            return self._folder.lock_of(self.task).stat().st_mtime_ns
        except OSError:
            return -1
