"""Tasks in processes of this machine.

A process does one task after another. If it dies, its task has failed, and a new process takes its
place. If the process that waits for them is killed, they end, too.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context
from multiprocessing.context import SpawnProcess
from typing import Any

from bmdp.experiments.running.tasks import Failure, Job, attempt
from bmdp.workers import _enter

BEAT = 0.5  # seconds after which is told that nothing happened
Outcomes = Generator[tuple[Job, Failure | None] | None]
"""Jobs that ended, with what went wrong, if anything did; None now and then if none ended."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
"""What libraries take their numbers of threads from, when they are loaded."""


def run_here(jobs: Sequence[Job], *, workers: int, threads: int) -> Outcomes:
    """Does jobs in other processes, and tells of each that ended.

    Args:
        jobs: what to do, in the order in which it is begun.
        workers: processes, at most.
        threads: of each of them.
    """
    waiting = list(reversed(jobs))
    staff: dict[connection.Connection[Any, Any], _Worker] = {}
    try:
        while waiting or staff:
            while waiting and len(staff) < workers:
                worker = _Worker(threads)
                staff[worker.pipe] = worker
                worker.take(waiting.pop())
            ready = connection.wait(list(staff), timeout=BEAT)
            if not ready:
                yield None
            for pipe in ready:
                assert isinstance(pipe, connection.Connection)
                worker = staff[pipe]
                yield worker.outcome()
                if worker.is_alive and waiting:
                    worker.take(waiting.pop())
                else:
                    staff.pop(pipe).dismiss()
    finally:
        for worker in staff.values():
            worker.kill()


class _Worker:
    """A process that does what it is told."""

    def __init__(self, threads: int) -> None:
        """Starts it."""
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(target=_serve, args=(theirs,))
        with _undisturbed(), _environment(dict.fromkeys(THREADS, str(threads))):
            self._process.start()
        theirs.close()
        self._job: Job | None = None
        self.is_alive = True

    def take(self, job: Job) -> None:
        """Hands it a job."""
        self._job = job
        with suppress(BrokenPipeError):  # it is dead, which `outcome` will tell
            self.pipe.send(job)

    def outcome(self) -> tuple[Job, Failure | None]:
        """How its job ended."""
        job = self._job
        assert job is not None
        try:
            return job, self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.is_alive = False
            self._process.join()
            return job, Failure(job.task, _last_word(self._process.exitcode))

    def dismiss(self) -> None:
        """Lets it go."""
        self.pipe.close()
        self._process.join()

    def kill(self) -> None:
        """Ends it at once: what it does can be gone on with."""
        self._process.kill()
        self.dismiss()


def _last_word(code: int | None) -> str:
    """Why a process is no more."""
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = ": memory may be short" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{hint}."
    return (
        f"its process ended with exit code {code}. A script that runs experiments must be a file "
        "that starts its work under `if __name__ == '__main__':`."
    )


def _serve(pipe: connection.Connection[Any, Any]) -> None:
    """What a worker does: jobs, until there is nobody to hand it one."""
    _die_with_parent()
    _enter(None)
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        pipe.send(attempt(job))


def _die_with_parent() -> None:
    """Asks Linux to end this process with its parent, even in the middle of a computation."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Holds Ctrl-C back; for good from processes that are started now."""
    if not hasattr(signal, "pthread_sigmask"):  # pragma: no cover (Windows)
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Sets variables of the environment, which processes that are started now will have."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
