"""A task of an experiment, done in whichever process it is handed to."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass

from bmdp.errors import BmdpError
from bmdp.experiments.catalog import experiment
from bmdp.experiments.experiment import Work
from bmdp.experiments.running.spec import ExperimentSpec
from bmdp.experiments.running.store import ExperimentFolder, Task
from bmdp.learn.collect import threads
from bmdp.learn.runs import checked_device

_WAIT = 60.0  # seconds that the process of a run that was killed is given to end


@dataclass(frozen=True)
class Job:
    """All that a process must know to do a task."""

    spec: ExperimentSpec
    folder: str
    task: Task


@dataclass(frozen=True)
class Failure:
    """A task that ended with an error.

    Args:
        task: which one.
        message: what went wrong, in a line.
        trace: of an error that nobody expected.
    """

    task: Task
    message: str
    trace: str = ""


def do_task(job: Job) -> None:
    """Does a task, or what a kill left to do of it; one that is done is left as it is.

    Raises:
        StoreError: if another process does it, or the folder is of another spec.
    """
    begin, task = time.monotonic(), job.task
    folder, found = ExperimentFolder(job.folder), experiment(job.spec.experiment)
    job.spec.require_same(folder.header, job.folder)  # on this machine, too
    do = (found.common if task.seed is None else found.parts)[task.part]
    with folder.held(task, wait=_WAIT), threads(job.spec.threads):
        if folder.is_finished(task):
            return
        place = folder.folder_of(task.part, task.seed)
        work = Work(place, task.seed or 0, checked_device(job.spec.device))
        do(job.spec.settings, work)
        folder.finish(task, time.monotonic() - begin)


def attempt(job: Job) -> Failure | None:
    """Does a task, and returns what went wrong, if anything did."""
    try:
        do_task(job)
    except BmdpError as error:
        return Failure(job.task, str(error))
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        return Failure(job.task, told, traceback.format_exc())
    return None
