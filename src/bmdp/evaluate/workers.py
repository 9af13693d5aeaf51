"""Jobs played in batches, by this process or by several.

To other processes the policy travels as a saved folder, which they load as anyone would.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from gymnasium.envs.registration import EnvSpec

from bmdp.envs.slots import Facts
from bmdp.errors import ConfigError, EnvError, PolicyError, StoreError
from bmdp.evaluate.episodes import Job, Player, Returns, Setting
from bmdp.policies.loading import load_policy
from bmdp.policies.protocol import BudgetedPolicy

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of episodes played so far, and of all."""


def play_plans(
    policy: BudgetedPolicy,
    setting: Setting,
    plans: Sequence[Job],
    *,
    workers: int = 1,
    progress: Progress | None = None,
) -> tuple[list[Returns], Facts]:
    """Plays jobs of any size; returns what the episodes of each did, and facts of the environment.

    Args:
        policy: the policy. For several workers, one that can be saved.
        setting: environment and seed.
        plans: the jobs, which are played in batches.
        workers: number of processes.
        progress: called with the number of episodes played so far, and of all.

    Raises:
        PolicyError: if the policy does not fit the environment, or cannot travel to the workers.
        EnvError: if an episode does not end, or a worker does.
    """
    player = Player(policy, setting)  # an environment that cannot be made is refused here, once
    batches = [_batches(plan, player.slots.most, workers) for plan in plans]
    jobs = [job for of_plan in batches for job in of_plan]
    results: dict[Job, Returns] = {}
    done, total = 0, sum(map(len, jobs))

    def take(job: Job, returns: Returns) -> None:
        nonlocal done
        results[job] = returns
        done += len(job)
        if progress is not None:
            progress(done, total)

    try:
        if workers == 1:
            for job in jobs:
                take(job, player.play(job))
        else:
            _play_elsewhere(policy, setting, jobs, workers, take)
    finally:
        player.slots.close()
    by_plan = [[results[job] for job in of_plan] for of_plan in batches]
    joined = [Returns(*map(np.concatenate, zip(*parts, strict=True))) for parts in by_plan]
    return joined, player.slots.facts


def _batches(plan: Job, most: int, workers: int) -> list[Job]:
    """A job as several of limited size."""
    size = min(most, -(-len(plan) // workers))
    firsts = range(plan.first, plan.last, size)
    return [replace(plan, first=first, last=min(first + size, plan.last)) for first in firsts]


def _play_elsewhere(
    policy: BudgetedPolicy,
    setting: Setting,
    jobs: Sequence[Job],
    workers: int,
    take: Callable[[Job, Returns], None],
) -> None:
    """Plays jobs in other processes, to which the policy travels as a saved folder."""
    _require_portable(setting.spec)
    with tempfile.TemporaryDirectory(prefix="bmdp-") as place:
        folder = Path(place) / "policy"
        _save(policy, folder)
        pool = ProcessPoolExecutor(
            min(workers, len(jobs)),
            mp_context=get_context("spawn"),
            initializer=_enter,
            initargs=(folder, setting),
        )
        try:
            futures = {pool.submit(_play_here, job): job for job in jobs}
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


_WORKER: dict[str, Any] = {}
"""In a worker process: the folder of the policy, the setting, and then the player."""


def _enter(folder: Path, setting: Setting) -> None:
    """Starts a worker. It loads nothing yet, so that errors of loading are those of a job."""
    _WORKER.update(folder=folder, setting=setting)


def _play_here(job: Job) -> Returns:
    """Plays a job in a worker."""
    if "player" not in _WORKER:
        _WORKER["player"] = Player(load_policy(_WORKER["folder"]), _WORKER["setting"])
    player: Player = _WORKER["player"]
    return player.play(job)


def _save(policy: Any, folder: Path) -> None:
    try:
        policy.save(folder)
    except (AttributeError, StoreError) as error:
        raise PolicyError(
            "several workers need a policy that can be saved, because it travels to them as a "
            f"folder; {type(policy).__name__} cannot be: {error} Use workers=1."
        ) from error


def _require_portable(spec: EnvSpec) -> None:
    try:
        pickle.dumps(spec)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise ConfigError(
            f"several workers need an environment that other processes can make; {spec.id} "
            f"cannot be handed over: {error}. Use workers=1, or an entry point in a module."
        ) from error
