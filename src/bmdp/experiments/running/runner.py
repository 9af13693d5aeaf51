"""Runs experiments: what is done is kept, what is not is done, by however many processes.

Tasks do not know of each other, and each has its own folder and its own seeds, so that the order in
which they are done, and by whom, changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from bmdp.checks import require_choice, require_count
from bmdp.experiments.catalog import experiment
from bmdp.experiments.running.local_engine import Outcomes, run_here
from bmdp.experiments.running.ray_engine import require_ray, run_on_ray
from bmdp.experiments.running.spec import ExperimentSpec
from bmdp.experiments.running.store import ExperimentFolder, Task, tasks_of
from bmdp.experiments.running.tasks import Failure, Job
from bmdp.learn.runs import checked_device

ENGINES = ("local", "ray")


@dataclass(frozen=True)
class Event:
    """What happened while an experiment runs.

    Args:
        kind: "beat": nothing for half a second; "finished": a task is done; "failed": it is not.
        task: which one.
        failure: what went wrong.
    """

    kind: Literal["beat", "finished", "failed"]
    task: Task | None = None
    failure: Failure | None = None


def run_experiment(
    spec: ExperimentSpec,
    folder: str | os.PathLike[str],
    *,
    workers: int | None = None,
    engine: str = "local",
    on_event: Callable[[Event], None] = lambda event: None,
) -> tuple[Failure, ...]:
    """Runs an experiment, or goes on with it; returns the tasks that failed.

    A task that fails does not keep the others from being done. It can be killed at any time, and
    called again: the result is that of a run that was not, to the last bit on a CPU.

    Args:
        spec: what is asked for.
        folder: of the experiment; a new one, or one of the same spec, but for seeds that are added.
        workers: tasks at a time; without, one on this machine ("local"), or as many as the cluster
            has room for ("ray"). Any number gives the same results.
        engine: "local" for processes of this machine, "ray" for a cluster.
        on_event: called when a task ends, and twice a second.

    Raises:
        StoreError: if the folder holds something else, is of another spec, or in use.
        ConfigError: if the device is not here, or there is no such engine.
        MissingDependency: if Ray is asked for and not installed.
    """
    require_engine(spec, engine)
    if workers is not None:
        require_count("workers", workers, 1)
    place = ExperimentFolder.of(os.path.abspath(folder), spec)
    failures = []
    with place.locked():
        place.add_seeds(spec)
        tasks = tasks_of(experiment(spec.experiment), spec.seeds)
        jobs = [Job(spec, str(place.path), task) for task in tasks if not place.is_finished(task)]
        with closing(_outcomes(jobs, spec, workers, engine)) as outcomes:
            for outcome in outcomes:
                if outcome is None:
                    on_event(Event("beat"))
                    continue
                job, failure = outcome
                if failure is not None:
                    failures.append(failure)
                on_event(Event("failed" if failure else "finished", job.task, failure))
    return tuple(failures)


def require_engine(spec: ExperimentSpec, engine: str) -> None:
    """Checks that there is what does the work.

    Raises:
        ConfigError: if the device is not here, or there is no such engine.
        MissingDependency: if Ray is asked for and not installed.
    """
    require_choice("engine", engine, ENGINES)
    if engine == "ray":
        require_ray()
    else:
        checked_device(spec.device)


def _outcomes(
    jobs: Sequence[Job], spec: ExperimentSpec, workers: int | None, engine: str
) -> Outcomes:
    if engine == "ray" and jobs:
        return run_on_ray(jobs, workers=workers, threads=spec.threads, device=spec.device_kind)
    return run_here(jobs, workers=workers or 1, threads=spec.threads)
