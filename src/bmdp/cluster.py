"""Jobs on the machines of a Ray cluster, as `bmdp.workers.run_jobs` does them on this one.

All machines must see the folder of the experiment under the same name, and have the same versions
installed. A job whose machine is lost is done again on another, where it goes on from its folder.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bmdp.errors import ConfigError, MissingDependency
from bmdp.workers import BEAT, THREADS, Died

_RETRIES = 5  # machines that a job may lose


def require_ray() -> None:
    """Checks that Ray is there; a MissingDependency if it is not."""
    if importlib.util.find_spec("ray") is None:
        raise MissingDependency("Ray must be installed to run on it: pip install 'bmdp[ray]'")


def run_on_ray(
    do: Callable[[Any], Any],
    jobs: Sequence[Any],
    *,
    workers: int | None,
    threads: int,
    device: str,
) -> Generator[tuple[int, Any] | None]:
    """Does jobs on a cluster, and yields the position and the result of each that ended.

    The cluster is the one that this process has joined, or that RAY_ADDRESS names; else one is
    started on this machine, and ended at last. Jobs that are not done when the generator is closed
    are cancelled. Jobs share GPUs if there are more workers.

    Args:
        do: a function of a module that raises no error.
        jobs: arguments of `do`, in the order in which they are begun.
        workers: jobs at a time; without, as many as the cluster has room for.
        threads: cores of each of them.
        device: "cpu" or "cuda"; a ConfigError if the cluster has no GPU.

    Yields:
        `(position, result)`, the result a `Died` if Ray gave the job up; or None now and then.
    """
    if not jobs:
        return
    import ray

    with _joined(workers, threads):
        remote = ray.remote(
            num_cpus=threads,
            num_gpus=_share_of_gpu(workers) if device == "cuda" else 0,
            max_retries=_RETRIES,
            retry_exceptions=False,
            runtime_env={"env_vars": dict.fromkeys(THREADS, str(threads))},
        )(do)
        running: dict[Any, int] = {}
        n_begun = 0
        try:
            while n_begun < len(jobs) or running:
                while n_begun < len(jobs) and len(running) < (workers or len(jobs)):
                    running[remote.remote(jobs[n_begun])] = n_begun
                    n_begun += 1
                ended, _ = ray.wait(list(running), timeout=BEAT)
                if not ended:
                    yield None
                for ref in ended:
                    position = running.pop(ref)
                    try:
                        result = ray.get(ref)
                    except ray.exceptions.RayError as error:
                        lines = str(error).strip().splitlines() or ["nothing is said"]
                        result = Died(f"{type(error).__name__}: {lines[0]}")
                    yield position, result
        finally:
            for ref in running:
                ray.cancel(ref, force=True)


@contextmanager
def _joined(workers: int | None, threads: int) -> Iterator[None]:
    """Joins a cluster, if this process has not."""
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


def _share_of_gpu(workers: int | None) -> float:
    """The GPU share of each job, so that so many fit."""
    import ray

    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    n_gpus = resources.get("GPU", 0.0)
    if n_gpus < 1:
        raise ConfigError("device is 'cuda', but no machine of the Ray cluster has a GPU.")
    return 1.0 if workers is None else min(1.0, n_gpus / workers)
