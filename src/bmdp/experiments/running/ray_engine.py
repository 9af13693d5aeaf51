"""Tasks on the machines of a Ray cluster.

All machines must see the folder of the experiment under the same name, and have the same versions
installed. A task whose machine is lost is done again on another, where it goes on from its folder.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bmdp.errors import ConfigError, MissingDependency
from bmdp.experiments.running.local_engine import BEAT, THREADS, Outcomes
from bmdp.experiments.running.tasks import Failure, Job, attempt

_RETRIES = 5  # machines that a task may lose


def require_ray() -> None:
    """Checks that Ray is there.

    Raises:
        MissingDependency: if it is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise MissingDependency("Ray must be installed to run on it: pip install 'bmdp[ray]'")


def run_on_ray(jobs: Sequence[Job], *, workers: int | None, threads: int, device: str) -> Outcomes:
    """Does jobs on a cluster, and tells of each that ended.

    The cluster is the one that this process has joined, or that RAY_ADDRESS names; else one is
    started on this machine, and ended at last.

    Args:
        jobs: what to do, in the order in which it is begun.
        workers: tasks at a time; without, as many as the cluster has room for.
        threads: cores of each of them.
        device: "cpu" or "cuda"; on GPUs tasks share them if there are more workers.

    Raises:
        ConfigError: if the cluster has no GPU and one is asked for.
    """
    import ray

    with _joined(workers, threads):
        share = _share_of_gpu(workers) if device == "cuda" else 0
        do = ray.remote(
            num_cpus=threads,
            num_gpus=share,
            max_retries=_RETRIES,
            retry_exceptions=False,
            runtime_env={"env_vars": dict.fromkeys(THREADS, str(threads))},
        )(attempt)
        waiting: list[Job] = list(reversed(jobs))
        at_work: dict[Any, Job] = {}
        try:
            while waiting or at_work:
                while waiting and len(at_work) < (workers or len(jobs)):
                    job = waiting.pop()
                    at_work[do.remote(job)] = job
                ready, _ = ray.wait(list(at_work), timeout=BEAT)
                if not ready:
                    yield None
                for ref in ready:
                    job = at_work.pop(ref)
                    try:
                        failure = ray.get(ref)
                    except ray.exceptions.RayError as error:
                        lines = str(error).strip().splitlines() or ["nothing is said"]
                        failure = Failure(job.task, f"{type(error).__name__}: {lines[0]}")
                    yield job, failure
        finally:
            for ref in at_work:
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
    """Of each task, so that so many fit."""
    import ray

    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    n_gpus = resources.get("GPU", 0.0)
    if n_gpus < 1:
        raise ConfigError("device is 'cuda', but no machine of the Ray cluster has a GPU.")
    return 1.0 if workers is None else min(1.0, n_gpus / workers)
