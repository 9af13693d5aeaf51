"""Jobs on the machines of a Ray cluster, as `bmdp.workers.run_jobs` does them on this one.

All machines must have the same versions installed. A job whose machine is lost is done again on
another.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, TypeAlias

from bmdp.checks import require_choice
from bmdp.errors import ConfigError, MissingDependency
from bmdp.workers import BEAT, THREADS, Died

Engine: TypeAlias = Literal["local", "ray"]
"""Processes of this machine, or of a Ray cluster."""

_RETRIES = 5  # machines that a job may lose


def require_engine(engine: str) -> None:
    """Checks that there is an engine of a name, and that it is installed.

    Raises:
        ConfigError: if there is none.
        MissingDependency: if Ray is asked for and not installed.
    """
    require_choice("engine", engine, ("local", "ray"))
    if engine == "ray" and importlib.util.find_spec("ray") is None:
        raise MissingDependency("Ray must be installed to run on it: pip install 'bmdp[ray]'")


def run_on_ray(
    do: Callable[..., Any],
    jobs: Sequence[Any],
    *,
    workers: int | None,
    threads: int,
    device: str,
    common: tuple[Any, ...] = (),
) -> Generator[tuple[int, Any] | None]:
    """Does jobs on a cluster, and yields the position and the result of each that ended.

    The cluster is that of `joined`. Jobs that are not done when the generator is closed are
    cancelled. Jobs share GPUs if there are more workers.

    Args:
        do: a function of a module that raises no error.
        jobs: last arguments of `do`, in the order in which they are begun.
        workers: jobs at a time; without, as many as the cluster has room for.
        threads: cores of each of them.
        device: "cpu" or "cuda"; a ConfigError if the cluster has no GPU.
        common: arguments of `do` before the job, sent to each machine once.

    Yields:
        `(position, result)`, the result a `Died` if Ray gave the job up; or None now and then.
    """
    if not jobs:
        return
    import ray

    with joined(workers, threads):
        remote = ray.remote(
            num_cpus=threads,
            num_gpus=_share_of_gpu(workers) if device == "cuda" else 0,
            max_retries=_RETRIES,
            retry_exceptions=False,
            runtime_env=environment(threads),
        )(do)
        sent = [ray.put(given) for given in common]
        running: dict[Any, int] = {}
        n_begun = 0
        try:
            while n_begun < len(jobs) or running:
                while n_begun < len(jobs) and len(running) < (workers or len(jobs)):
                    running[remote.remote(*sent, jobs[n_begun])] = n_begun
                    n_begun += 1
                ended, _ = ray.wait(list(running), timeout=BEAT)
                if not ended:
                    yield None
                for ref in ended:
                    position = running.pop(ref)
                    try:
                        result = ray.get(ref)
                    except ray.exceptions.RayError as error:
                        result = Died(reason_of(error))
                    yield position, result
        finally:
            for ref in running:
                ray.cancel(ref, force=True)


@contextmanager
def joined(workers: int | None = None, threads: int = 1) -> Iterator[None]:
    """Joins a cluster, if this process has not, and leaves it at the end.

    The cluster is the one that RAY_ADDRESS names; else one is started on this machine, and ended at
    last.

    Args:
        workers: for which a cluster on this machine has room; all its cores, if not given.
        threads: of each of them.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS") or "local"
    room: dict[str, Any] = {}
    if address == "local":
        room["include_dashboard"] = False
        if workers is not None:
            room["num_cpus"] = workers * threads
    ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **room)
    try:
        yield
    finally:
        ray.shutdown()


def engaged(engine: Engine, workers: int) -> AbstractContextManager[None]:
    """Keeps the cluster of an engine joined, for several calls of `run_on_ray`.

    >>> with engaged("local", workers=2):
    ...     pass
    """
    require_engine(engine)
    return joined(workers) if engine == "ray" else nullcontext()


def environment(threads: int) -> dict[str, Any]:
    """The environment of processes that compute with so many threads, as Ray takes it.

    >>> environment(2)["env_vars"]["OMP_NUM_THREADS"]
    '2'
    """
    return {"env_vars": dict.fromkeys(THREADS, str(threads))}


def reason_of(error: Exception) -> str:
    """Returns the kind of an error, and the first line of what it says.

    >>> reason_of(ValueError("no such thing"))
    'ValueError: no such thing'
    """
    lines = str(error).strip().splitlines() or ["nothing is said"]
    return f"{type(error).__name__}: {lines[0]}"


def _share_of_gpu(workers: int | None) -> float:
    """The GPU share of each job, so that so many fit."""
    import ray

    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    n_gpus = resources.get("GPU", 0.0)
    if n_gpus < 1:
        raise ConfigError("device is 'cuda', but no machine of the Ray cluster has a GPU.")
    return 1.0 if workers is None else min(1.0, n_gpus / workers)
