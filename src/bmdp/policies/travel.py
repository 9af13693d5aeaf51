"""Policies that travel to other processes: as a saved folder, which these load as anyone would."""

from __future__ import annotations

import os
import pickle
import signal
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from gymnasium.envs.registration import EnvSpec

from bmdp.errors import ConfigError, EnvError, PolicyError, StoreError
from bmdp.policies.policy import BudgetedPolicy, load_policy
from bmdp.storage import modules_of

Setting = TypeVar("Setting")
Job = TypeVar("Job")
Played = TypeVar("Played")

MakePlayer: TypeAlias = Callable[[BudgetedPolicy, Setting], Callable[[Job], Played]]
"""A function of a module: from a policy and what jobs have in common to what plays a job."""


def play_elsewhere(
    make_player: MakePlayer[Setting, Job, Played],
    policy: BudgetedPolicy,
    setting: Setting,
    jobs: Sequence[Job],
    take: Callable[[int, Played], None],
    *,
    workers: int,
) -> None:
    """Plays jobs in other processes.

    Args:
        make_player: called once in each process.
        policy: one that can be saved.
        setting: what jobs have in common.
        jobs: what to play, in any order.
        take: called with the position of each job and what came of it.
        workers: number of processes, at most.

    Raises:
        PolicyError: if the policy cannot be saved.
        EnvError: if a process ends before its jobs.
    """
    with tempfile.TemporaryDirectory(prefix="bmdp-") as place:
        folder = Path(place) / "policy"
        _save(policy, folder)
        pool = ProcessPoolExecutor(
            min(workers, len(jobs)),
            mp_context=get_context("spawn"),
            initializer=_enter,
            initargs=(make_player, folder, setting, modules_of(folder) - {"__main__"}),
        )
        try:
            futures = {pool.submit(_play_here, job): i for i, job in enumerate(jobs)}
            for future in as_completed(futures):
                take(futures[future], future.result())
        except BrokenProcessPool as error:
            raise EnvError(
                "a worker process ended before its episodes did. A script that uses workers must "
                "be a file that starts its work under `if __name__ == '__main__':`; otherwise, "
                "memory may be short, or workers=1 shows the reason."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def require_portable(spec: EnvSpec) -> None:
    """Checks that other processes can make an environment.

    Raises:
        ConfigError: if they cannot.
    """
    try:
        pickle.dumps(spec)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise ConfigError(
            f"several workers need an environment that other processes can make; {spec.id} "
            f"cannot be handed over: {error}. Use workers=1, or an entry point in a module."
        ) from error


_HERE: dict[str, Any] = {}
"""In a worker process: how to make what plays, the folder of the policy, the setting, modules."""


def _enter(make_player: Any, folder: Path, setting: Any, modules: set[str]) -> None:
    """Starts a worker. It loads nothing yet, so that errors of loading are those of a job."""
    serve_parent()
    _HERE.update(make_player=make_player, folder=folder, setting=setting, modules=modules)


def serve_parent() -> None:
    """Makes this process one that works for the one that started it.

    Ctrl-C is left to that one, and when it is gone, killed or not, this one ends, too.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """Ends this process when the one that started it is gone."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _play_here(job: Any) -> Any:
    """Plays a job in a worker."""
    if "play" not in _HERE:
        for module in _HERE["modules"]:  # which register what the policy is made of
            import_module(module)
        _HERE["play"] = _HERE["make_player"](load_policy(_HERE["folder"]), _HERE["setting"])
    return _HERE["play"](job)


def _save(policy: Any, folder: Path) -> None:
    try:
        policy.save(folder)
    except (AttributeError, StoreError) as error:
        raise PolicyError(
            "several workers need a policy that can be saved, because it travels to them as a "
            f"folder; {type(policy).__name__} cannot be: {error} Use workers=1."
        ) from error
