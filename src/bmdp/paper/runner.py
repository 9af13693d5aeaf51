"""Runs experiments: what is done is kept, what is not is done, by however many processes.

An experiment is made of *tasks*: its common parts, and its parts for each seed. A task has its own
folder and its own seed and knows of no other, so the order in which tasks are done, and by whom,
changes nothing. It keeps what it finds as *pieces*, JSON files that are there whole or not at all.
A task that was killed is begun again: its training goes on where it was, and pieces that are there
are not made again, so the result is the same, to the last bit on a CPU.

    FOLDER/
      spec.json            schema, experiment, preset, seeds, settings, versions, machine, command
      lock                 of the process that runs it
      COMMON/              a part that is done once, whatever the seeds
      seed-100/            the main part of a seed: a training run, with pieces beside it
      PART/seed-100/       another part of a seed
      .locks/              one for each task, of the process that does it
      tensorboard/         event files, if wanted
      report/              made by `bmdp report`

A task is done once there is a finished.json in its folder.
"""

from __future__ import annotations

import json
import os
import shlex
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from bmdp.checks import require_count, require_name
from bmdp.cluster import require_engine, run_on_ray
from bmdp.errors import BmdpError, ConfigError, StoreError
from bmdp.learn import runs
from bmdp.learn.collect import threads
from bmdp.paper import experiment
from bmdp.randomness import stream_key
from bmdp.settings import plain
from bmdp.storage import (
    SPEC,
    AnyPath,
    create_folder,
    discard_folder,
    header_text,
    locked,
    read_header,
    sweep,
    write_text,
)
from bmdp.workers import Died, run_jobs

Piece = dict[str, Any]
"""Values by name, as JSON has them."""

KIND, FINISHED = "experiment", "finished"
FIRST_SEED = 100
"""First of the seeds of a preset: our settings were chosen on seeds 0 to 9."""

_LOCK, _LOCKS = "lock", ".locks"
_MOST_TOLD = 3  # differences in one message
_WAIT = 60.0  # seconds that the process of a run that was killed is given to end


@dataclass(frozen=True)
class Work:
    """A task: one part of an experiment for one seed, where it is done, and how."""

    folder: Path  # it need not be there yet
    seed: int  # 0 for a common part
    device: str  # of learners and policies
    part: str = ""  # the main one

    @property
    def is_finished(self) -> bool:
        """Whether the task is done."""
        return (self.folder / f"{FINISHED}.json").exists()

    def how_far(self) -> tuple[float, str]:
        """Returns the share that is done, of a training run at least, and a few words."""
        if self.is_finished:
            return 1.0, "done"
        files = (self.folder / runs.RECORDS, *self.folder.glob(f"*/{runs.RECORDS}"))
        going = (path for path in files if path.exists() and not (path.parent / runs.DONE).exists())
        records = next(map(runs.read_records, going), [])
        return runs.share_done(self.folder), runs.last_line(records[-1]) if records else ""

    def piece(self, name: str, make: Callable[[], Piece]) -> Piece:
        """Returns a piece that is there, or makes and keeps it; a StoreError if it is damaged."""
        path = self.folder / f"{name}.json"
        if path.exists():
            return read_piece(path)
        found = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(found, allow_nan=False) + "\n")
        return found


def read_piece(path: Path) -> Piece:
    """Returns a piece of a folder; a StoreError if it is not one."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} is not JSON: {error}. Delete it and run again.") from error
    if not isinstance(found, dict):
        raise StoreError(f"{path} is no piece of an experiment. Delete it and run again.")
    return found


@dataclass(frozen=True)
class ExperimentSpec:
    """An experiment, its size, its seeds, and what numbers depend on besides.

    Raises:
        ConfigError: if there is no such experiment or preset, or a number is wrong.
    """

    experiment: str  # as `bmdp.paper.experiment` takes it
    preset: str  # its size
    seeds: tuple[int, ...]  # each once
    device: str = "cpu"  # of learners and policies: "cpu", "cuda" or "cuda:1"
    threads: int = 1  # of each process; sums are rounded as threads cut them

    def __post_init__(self) -> None:
        plain(self.settings)
        require_count("threads", self.threads, 1)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds must be at least one, each once; got {list(self.seeds)}.")
        for seed in self.seeds:
            stream_key(seed, "")  # checks it

    @property
    def settings(self) -> Any:
        """Those of the preset."""
        presets = experiment(self.experiment).SETTINGS
        require_name(f"preset of {self.experiment}", self.preset, presets)
        return presets[self.preset]

    @property
    def device_kind(self) -> str:
        """The device, whichever of its kind."""
        return self.device.partition(":")[0]

    def tasks(self, folder: Path) -> dict[str, Work]:
        """Returns all tasks by name, which is their folder within that of the experiment."""
        found = experiment(self.experiment)
        parts = {part: (0, part) for part in found.COMMON}
        for seed in self.seeds:
            parts |= {f"{part}/seed-{seed}".lstrip("/"): (seed, part) for part in found.PARTS}
        return {
            name: Work(folder / name, seed, self.device, part)
            for name, (seed, part) in parts.items()
        }

    def command(self, folder: AnyPath) -> str:
        """Returns the command that runs it, and goes on with it after a kill."""
        first, last = self.seeds[0], self.seeds[-1]
        is_range = self.seeds == tuple(range(first, last + 1))
        seeds = f"{first}:{last + 1}" if is_range else ",".join(map(str, self.seeds))
        words = ["bmdp", "run", self.experiment, "--preset", self.preset, "--seeds", seeds]
        words += ["--device", self.device_kind, "--threads", str(self.threads)]
        return shlex.join([*words, "--out", str(folder)])

    def header(self, folder: AnyPath) -> dict[str, Any]:
        """Returns the content of spec.json, but for its schema."""
        return {
            "kind": KIND,
            **self._compared(),
            "versions": runs.versions(),
            "machine": runs.machine(),
            "began": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": self.command(folder),
        }

    def require_same(self, header: Mapping[str, Any], folder: AnyPath) -> None:
        """Checks that a folder, which may lack seeds, is of this spec; a StoreError says if not."""
        asked = self._compared()
        there = {name: header.get(name) for name in asked}
        if there["seeds"] and set(there["seeds"]) <= set(self.seeds):
            there["seeds"] = asked["seeds"]
        told = list(_differences(there, asked, ""))
        if told:
            told[_MOST_TOLD:] = [f"and {len(told) - _MOST_TOLD} more"] * (len(told) > _MOST_TOLD)
            raise StoreError(
                f"{folder} is of another spec: {'; '.join(told)}. Choose another folder; --force "
                "deletes it."
            )

    def _compared(self) -> dict[str, Any]:
        """If one of these differs, so do results."""
        return {
            "experiment": self.experiment,
            "preset": self.preset,
            "seeds": list(self.seeds),
            "device": self.device_kind,
            "threads": self.threads,
            "settings": plain(self.settings),
        }


def _differences(there: Any, asked: Any, where: str) -> Iterator[str]:
    if isinstance(there, Mapping) and isinstance(asked, Mapping):
        for name in dict.fromkeys((*there, *asked)):
            inner = f"{where}.{name}" if where else name
            yield from _differences(there.get(name), asked.get(name), inner)
    elif there != asked:
        yield f"its {where} is {there!r}, asked is {asked!r}"


def asked_spec(
    experiment: str,
    preset: str,
    *,
    seeds: Sequence[int] | None = None,
    device: str = "auto",
    threads: int = 1,
    folder: AnyPath | None = None,
) -> ExperimentSpec:
    """Returns a spec with defaults filled in.

    Without seeds there are as many as the preset says (`n_seeds`), or one, from `FIRST_SEED` on.
    Device "auto" is that of the folder to go on with, if it is there, else the GPU, if there is
    one.
    """
    if device == "auto" and folder is not None and Path(folder, SPEC).exists():
        device = str(ExperimentFolder(folder).header.get("device", device))
    device = runs.checked_device("auto") if device == "auto" else device
    spec = ExperimentSpec(experiment, preset, (FIRST_SEED,), device, threads)
    if seeds is None:
        seeds = range(FIRST_SEED, FIRST_SEED + getattr(spec.settings, "n_seeds", 1))
    return replace(spec, seeds=tuple(seeds))


class ExperimentFolder:
    """A folder that holds an experiment; a StoreError if it does not."""

    def __init__(self, path: AnyPath) -> None:
        self.path = Path(path)
        self.header = read_header(self.path, KIND, lambda header: header.get("kind") == KIND)

    @classmethod
    @contextmanager
    def at_work(cls, path: AnyPath, spec: ExperimentSpec) -> Iterator[ExperimentFolder]:
        """Opens a folder, or makes it, and keeps others from running its experiment.

        Seeds that it lacks are added.

        Raises:
            StoreError: if there is something else, it is of another spec, or another process
                runs it, or it cannot be written.
        """
        target = Path(os.path.abspath(path))
        if not target.exists() or (target.is_dir() and not any(target.iterdir())):
            try:
                create_folder(target, spec.header(path))
            except StoreError:
                if not (target / SPEC).exists():  # else another process was faster
                    raise
        with cls(target).locked():
            sweep(target, within=True)
            folder = cls(target)
            spec.require_same(folder.header, path)
            if folder.header["seeds"] != list(spec.seeds):
                folder.header |= {"seeds": list(spec.seeds), "command": spec.command(path)}
                write_text(target / SPEC, header_text(folder.header))
            yield folder

    def locked(self) -> AbstractContextManager[None]:
        """Keeps others from running this experiment; a StoreError if another process does."""
        return locked(self.path / _LOCK, self.path)

    @contextmanager
    def held(self, name: str, *, wait: float = 0.0) -> Iterator[None]:
        """Keeps others from doing a task, and takes away what a kill left of it.

        Another process is given some seconds to end; a StoreError if it does the task still.
        """
        lock, place = self.path / _LOCKS / name.replace("/", "-"), self.path / name
        lock.parent.mkdir(exist_ok=True)
        with locked(lock, place, wait=wait):
            sweep(place, within=True)
            yield


def discard(path: AnyPath) -> None:
    """Deletes an experiment that nobody is at work in; a StoreError if there is something else."""
    discard_folder(path, KIND, _held_by_nobody)


@contextmanager
def _held_by_nobody(path: Path) -> Iterator[None]:
    with ExperimentFolder(path).locked(), ExitStack() as locks:
        for lock in sorted((path / _LOCKS).glob("*")):
            locks.enter_context(locked(lock, path))
        yield


@dataclass(frozen=True)
class Failure:
    """A task that ended with an error."""

    task: str
    message: str  # in a line
    trace: str = ""  # of an error that nobody expected


def run_experiment(
    spec: ExperimentSpec,
    folder: AnyPath,
    *,
    workers: int | None = None,
    engine: str = "local",
    force: bool = False,
    on_progress: Callable[[str, float, str], None] = lambda task, share, text: None,
) -> tuple[Failure, ...]:
    """Runs an experiment, or goes on with it; returns the tasks that failed.

    A task that fails does not keep the others from being done.

    Args:
        spec: what is asked for.
        folder: of the experiment; a new one, or one of the same spec, but for seeds that are added.
        workers: tasks at a time; without, one on this machine ("local"), or as many as the cluster
            has room for ("ray"). Any number gives the same results.
        engine: "local" for processes of this machine, "ray" for a cluster.
        force: deletes an experiment that is there.
        on_progress: called with a task, the share of it that is done and a few words: for each task
            that is done already, twice a second for each that is at work, and for each that ends.

    Raises:
        StoreError: if the folder holds something else, is of another spec, or in use.
        ConfigError: if the device is not here, or there is no such engine.
        MissingDependency: if Ray is asked for and not installed.
    """
    do_all = _engine(spec, engine, workers)  # all is checked before anything is deleted
    if force:
        discard(folder)
    failures = []
    with ExperimentFolder.at_work(folder, spec) as place:
        tasks = spec.tasks(place.path)
        left = [name for name, work in tasks.items() if not work.is_finished]
        jobs = [(spec, place.path, name) for name in left]
        for name in (name for name in tasks if name not in left):
            on_progress(name, 1.0, "done")
        with closing(do_all(jobs)) as outcomes:
            for outcome in outcomes:
                if outcome is None:
                    n_at_work = workers or (1 if engine == "local" else len(left))
                    for name in left[:n_at_work]:  # tasks are begun in their order
                        on_progress(name, *tasks[name].how_far())
                    continue
                name, failure = jobs[outcome[0]][-1], outcome[1]
                left.remove(name)
                share, text = tasks[name].how_far()
                if isinstance(failure, Died):
                    failure = Failure(name, failure.reason)
                if failure is not None:
                    failures.append(failure)
                on_progress(name, share, "failed" if failure else text)
    return tuple(failures)


def _engine(
    spec: ExperimentSpec, engine: str, workers: int | None
) -> Callable[[Sequence[Any]], Generator[tuple[int, Any] | None]]:
    require_engine(engine)
    if workers is not None:
        require_count("workers", workers, 1)
    if engine == "ray":
        kind = spec.device_kind
        return partial(run_on_ray, attempt, workers=workers, threads=spec.threads, device=kind)
    runs.checked_device(spec.device)
    return partial(run_jobs, attempt, workers=workers or 1, threads=spec.threads)


def attempt(job: tuple[ExperimentSpec, AnyPath, str]) -> Failure | None:
    """Does a task of a folder, or what a kill left to do of it; returns what went wrong, if at all.

    A task that is done is left as it is. The spec is compared here, too: settings on another
    machine may be others.
    """
    begin, (spec, folder, name) = time.monotonic(), job
    try:
        place = ExperimentFolder(folder)
        spec.require_same(place.header, folder)
        work = spec.tasks(place.path)[name]
        with place.held(name, wait=_WAIT), threads(spec.threads):
            if not work.is_finished:
                here = replace(work, device=runs.checked_device(work.device))
                experiment(spec.experiment).run(spec.settings, here)
                told = {"seconds": round(time.monotonic() - begin, 3), "machine": runs.machine()}
                work.piece(FINISHED, lambda: told)
    except BmdpError as error:
        return Failure(name, str(error))
    except Exception as error:
        return Failure(name, f"{type(error).__name__}: {error}", traceback.format_exc())
    return None
