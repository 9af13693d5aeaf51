"""Jobs in other processes of this machine, and work in threads of this one.

Episodes, experiments and whatever else is done by several processes go through `run_jobs`. A worker
is a `ProcessPoolExecutor` of one process, so that a process that dies takes one job with it, and it
is known which.

Compiled loops over large arrays go through `in_threads`. Parts write to places of their own, so the
number of threads does not change what is computed. Products and decompositions of matrices are
rounded as threads cut them: within `alone` torch computes them with one thread.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from multiprocessing import connection
from typing import Any

BEAT = 0.5
"""Seconds after which `run_jobs` yields None if no job ended."""

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
"""Variables from which libraries take their number of threads when they are loaded."""


LEAST_WORK = 100_000
"""Numbers that a thread works on, at least: to hand over fewer takes longer than to do them."""


_ALONE = [0, 1]  # how many times `alone` was entered and not left, and the threads before
_LOCK = threading.Lock()


def n_threads() -> int:
    """Threads that work may be spread over: those of torch, or those that it had before `alone`."""
    import torch  # takes long to import, and is there where there is much to do

    return _ALONE[1] if _ALONE[0] else torch.get_num_threads()


@contextmanager
def alone() -> Iterator[None]:
    """Lets torch compute with one thread, so that the number of threads changes no bit.

    >>> import torch
    >>> with alone():
    ...     torch.get_num_threads()
    1
    """
    import torch

    with _LOCK:
        if not _ALONE[0]:
            _ALONE[1] = torch.get_num_threads()
        _ALONE[0] += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _LOCK:
            _ALONE[0] -= 1
            if not _ALONE[0]:  # else another thread of this process computes alone still
                torch.set_num_threads(_ALONE[1])


@contextmanager
def compiled_threads(most: int | None = None) -> Iterator[None]:
    """Lets compiled loops take at most so many threads, and at most `OMP_NUM_THREADS`.

    numba itself does not read that variable. Its threads become those of torch, where both use the
    same OpenMP, so torch gets its own number back.
    """
    from numba import get_num_threads, set_num_threads  # takes long to import

    torch = sys.modules.get("torch")
    of_torch = None if torch is None else torch.get_num_threads()
    before = get_num_threads()
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    limits = [before if most is None else most, before]
    limits += [int(asked)] if asked.isdigit() and "NUMBA_NUM_THREADS" not in os.environ else []
    set_num_threads(max(1, min(limits)))
    try:
        yield
    finally:
        set_num_threads(before)
        if torch is not None and torch.get_num_threads() != of_torch:
            torch.set_num_threads(of_torch)


def in_threads(work: Callable[[slice], None], n: int, n_numbers: int) -> None:
    """Works on parts of `n` things, each in a thread: `n_threads()` of them, at most.

    Args:
        work: on a part; it must not hold the interpreter for long, and write to the part alone.
        n: number of things.
        n_numbers: of all of them, which says whether threads are worth it.

    >>> found = [0, 0, 0]
    >>> in_threads(lambda part: found.__setitem__(part, [1] * len(found[part])), 3, 10**6)
    >>> found
    [1, 1, 1]
    """
    n_parts = max(1, min(n_threads(), n, n_numbers // LEAST_WORK))
    if n_parts == 1:
        work(slice(0, n))
        return
    ends = [n * k // n_parts for k in range(n_parts + 1)]
    parts = [slice(*pair) for pair in pairwise(ends)]
    list(_pool(os.getpid()).map(work, parts))


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    """The threads of a process: those of another one are not there after a fork."""
    return ThreadPoolExecutor(os.cpu_count(), "bmdp")


@dataclass(frozen=True)
class Died:
    """The result of a job whose process ended before it.

    Args:
        reason: why, as far as it is known.
    """

    reason: str


def run_jobs(
    do: Callable[[Any], Any],
    jobs: Sequence[Any],
    *,
    workers: int,
    threads: int | None = None,
    setup: Callable[[], None] | None = None,
) -> Generator[tuple[int, Any] | None]:
    """Does jobs in other processes, and yields the position and the result of each that ended.

    Jobs are begun in their order, and end in any. When the generator is closed, jobs that are not
    done are killed; when this process is killed, so are its workers. Ctrl-C reaches this process
    alone.

    Args:
        do: a function of a module; an error in it is raised here.
        jobs: arguments of `do`, which can be pickled.
        workers: processes, at most.
        threads: of each process; without, as many as libraries take.
        setup: called once in each process, before its first job; it can be pickled.

    Yields:
        `(position, result)`, the result a `Died` if the process ended; or None now and then.

    >>> sorted(found for found in run_jobs(abs, [-3, 4], workers=2) if found)
    [(0, 3), (1, 4)]
    """
    waiting = deque(enumerate(jobs))
    free: list[_Worker] = []
    running: dict[Future[Any], tuple[int, _Worker]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                worker = free.pop() if free else _Worker(threads, setup)
                position, job = waiting.popleft()
                running[worker.submit(do, job)] = position, worker
            ended, _ = wait(running, timeout=BEAT, return_when=FIRST_COMPLETED)
            if not ended:
                yield None
            for future in ended:
                position, worker = running.pop(future)
                try:
                    result = future.result()
                except BrokenProcessPool:
                    result = Died(worker.last_word())
                else:
                    free.append(worker)
                yield position, result
    finally:
        for worker in (*free, *(worker for _, worker in running.values())):
            worker.kill()


class _Worker:
    """One process."""

    def __init__(self, threads: int | None, setup: Callable[[], None] | None) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, context, initializer=_enter, initargs=(setup,))
        self._threads = threads
        self._process: multiprocessing.process.BaseProcess | None = None

    def submit(self, do: Callable[[Any], Any], job: Any) -> Future[Any]:
        """Hands it a job; the first one starts the process."""
        if self._process is not None:
            return self._pool.submit(do, job)
        before = set(multiprocessing.active_children())
        with _undisturbed(), _environment(self._threads):
            future = self._pool.submit(do, job)
        (self._process,) = set(multiprocessing.active_children()) - before
        return future

    def last_word(self) -> str:
        """Returns why the process is gone."""
        assert self._process is not None
        self._pool.shutdown()
        self._process.join()
        code = self._process.exitcode
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            hint = ": memory may be short" if name == "SIGKILL" else ""
            return f"its process was ended by {name}{hint}."
        return (
            f"its process ended with exit code {code}. A script that uses workers must be a file "
            "that starts its work under `if __name__ == '__main__':`."
        )

    def kill(self) -> None:
        """Ends the process at once."""
        if self._process is not None:
            self._process.kill()
        self._pool.shutdown(cancel_futures=True)


def _enter(setup: Callable[[], None] | None) -> None:
    """Makes this process a worker, which ends with the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":  # even in the middle of a computation that holds the interpreter
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    if setup is not None:
        setup()


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Blocks Ctrl-C, for good in a process that is started now."""
    if not hasattr(signal, "pthread_sigmask"):  # pragma: no cover (Windows)
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _environment(threads: int | None) -> Iterator[None]:
    """Sets the number of threads for a process that is started now."""
    values = {} if threads is None else dict.fromkeys(THREADS, str(threads))
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
