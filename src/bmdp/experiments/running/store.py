"""The folder of an experiment, which is right at every moment, whenever it is killed.

    FOLDER/
      spec.json            schema, experiment, preset, seeds, settings, versions, machine, command
      lock                 of the process that runs it
      COMMON/              a part that is done once, whatever the seeds
      seed-0/              the main part of a seed
      PART/seed-0/         another part of a seed
      .locks/              one for each part and seed, of the process that does it
      tensorboard/         event files, if wanted
      report/              made by `bmdp report`

A part is done once there is a finished.json in its folder.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bmdp.errors import StoreError
from bmdp.experiments.experiment import Experiment, read_piece
from bmdp.experiments.running.machine import machine
from bmdp.experiments.running.spec import KIND, ExperimentSpec
from bmdp.storage import SPEC, create_folder, discard_folder, locked, read_header, write_text

FINISHED, TENSORBOARD = "finished.json", "tensorboard"
_LOCK, _LOCKS = "lock", ".locks"


@dataclass(frozen=True)
class Task:
    """A part of an experiment, for one seed.

    Args:
        part: its name; the main part is "".
        seed: None for a part that is done once, whatever the seeds.
    """

    part: str
    seed: int | None

    @property
    def name(self) -> str:
        """Its folder, within that of the experiment."""
        if self.seed is None:
            return self.part
        return f"{self.part}/seed-{self.seed}" if self.part else f"seed-{self.seed}"


def tasks_of(experiment: Experiment, seeds: Sequence[int]) -> tuple[Task, ...]:
    """Returns all that is to do: parts that are done once, then those of each seed in turn."""
    once = (Task(part, None) for part in experiment.common)
    return (*once, *(Task(part, seed) for seed in seeds for part in experiment.parts))


class ExperimentFolder:
    """A folder that holds an experiment."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Opens an experiment that is there.

        Raises:
            StoreError: if there is none, or it is of a newer schema.
        """
        self.path = Path(path)
        self.header = read_header(self.path, KIND, lambda header: header.get("kind") == KIND)

    @classmethod
    def of(cls, path: str | os.PathLike[str], spec: ExperimentSpec) -> ExperimentFolder:
        """Opens the folder of an experiment, or makes it, whole or not at all.

        One that is there may lack some of the seeds: `add_seeds`.

        Raises:
            StoreError: if there is something else, or it is of another spec, or cannot be written.
        """
        target = Path(path)
        if not target.exists() or (target.is_dir() and not any(target.iterdir())):
            try:
                create_folder(target, spec.header(str(path)))
            except StoreError:
                if not (target / SPEC).exists():  # else another process was faster
                    raise
        folder = cls(target)
        spec.require_same(folder.header, str(path), may_add_seeds=True)
        return folder

    def add_seeds(self, spec: ExperimentSpec) -> None:
        """Makes the folder one of this spec, which may have more seeds; it must be locked."""
        self.header = read_header(self.path, KIND, lambda header: header.get("kind") == KIND)
        spec.require_same(self.header, str(self.path), may_add_seeds=True)
        if self.header["seeds"] != list(spec.seeds):
            changes = {"seeds": list(spec.seeds), "command": spec.command(str(self.path))}
            self.header |= changes
            write_text(self.path / SPEC, json.dumps(self.header, indent=1) + "\n")

    def locked(self) -> AbstractContextManager[None]:
        """Keeps others from running this experiment.

        Raises:
            StoreError: if another process does.
        """
        return locked(self.path / _LOCK, self.path)

    def folder_of(self, part: str, seed: int | None) -> Path:
        """Where a part is done; it need not be there yet."""
        return self.path / Task(part, seed).name

    def lock_of(self, task: Task) -> Path:
        """The lock of a task; it is written when the task is begun."""
        return self.path / _LOCKS / task.name.replace("/", "-")

    @contextmanager
    def held(self, task: Task, *, wait: float = 0.0) -> Iterator[None]:
        """Keeps others from doing a task, and takes away what a kill left of it.

        Args:
            task: what is to do.
            wait: seconds that another process is given to end.

        Raises:
            StoreError: if another process does it still.
        """
        lock, place = self.lock_of(task), self.folder_of(task.part, task.seed)
        lock.parent.mkdir(exist_ok=True)
        with locked(lock, place, wait=wait):
            for left in (*place.parent.glob(f".{place.name}-*"), *place.glob(".*.new*")):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            yield

    def is_finished(self, task: Task) -> bool:
        """Whether a task is done."""
        return (self.folder_of(task.part, task.seed) / FINISHED).exists()

    def finished(self, task: Task) -> dict[str, Any]:
        """What is known of a task that is done: seconds that it took at last, and the machine.

        Raises:
            StoreError: if that is damaged.
        """
        return read_piece(self.folder_of(task.part, task.seed) / FINISHED)

    def finish(self, task: Task, seconds: float) -> None:
        """Marks a task as done."""
        place = self.folder_of(task.part, task.seed)
        place.mkdir(parents=True, exist_ok=True)
        told = {"seconds": round(seconds, 3), "machine": machine()}
        write_text(place / FINISHED, json.dumps(told) + "\n")


def discard(path: str | os.PathLike[str]) -> None:
    """Deletes an experiment, and nothing that is none.

    Raises:
        StoreError: if the folder holds something else, or a process is at work in it.
    """
    discard_folder(path, KIND, _held_by_nobody)


@contextmanager
def _held_by_nobody(path: Path) -> Iterator[None]:
    """Holds all locks of an experiment."""
    folder = ExperimentFolder(path)
    with ExitStack() as locks:
        locks.enter_context(folder.locked())
        for lock in sorted((path / _LOCKS).glob("*")):
            locks.enter_context(locked(lock, path))
        yield
