"""Jobs played in batches, by this process or by several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from bmdp.envs.slots import Facts
from bmdp.evaluation.episodes import Job, Player, Returns, Setting
from bmdp.policies.policy import BudgetedPolicy
from bmdp.policies.travel import play_elsewhere, require_portable

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of episodes played so far, and of all."""


def part_of(progress: Progress | None, n_before: int, n_all: int) -> Progress | None:
    """Returns the progress of a part of the episodes, before which some were played."""
    if progress is None:
        return None
    return lambda done, _: progress(n_before + done, n_all)


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

    def take(i: int, returns: Returns) -> None:
        nonlocal done
        results[jobs[i]] = returns
        done += len(jobs[i])
        if progress is not None:
            progress(done, total)

    try:
        if workers == 1:
            for i, job in enumerate(jobs):
                take(i, player.play(job))
        else:
            require_portable(setting.spec)
            play_elsewhere(_player, policy, setting, jobs, take, workers=workers)
    finally:
        player.slots.close()
    by_plan = [[results[job] for job in of_plan] for of_plan in batches]
    joined = [Returns(*map(np.concatenate, zip(*parts, strict=True))) for parts in by_plan]
    return joined, player.slots.facts


def _player(policy: BudgetedPolicy, setting: Setting) -> Callable[[Job], Returns]:
    """What plays jobs in a worker."""
    return Player(policy, setting).play


def _batches(plan: Job, most: int, workers: int) -> list[Job]:
    """A job as several of limited size."""
    size = min(most, -(-len(plan) // workers))
    firsts = range(plan.first, plan.last, size)
    return [replace(plan, first=first, last=min(first + size, plan.last)) for first in firsts]
