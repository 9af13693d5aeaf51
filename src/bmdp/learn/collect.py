"""Episodes played for learning: every transition is kept.

What episode k does is a function of the seed and of k, by whichever process it is played, so that
any number of workers collects the same batch. A network rounds differently in batches of different
size and with different numbers of threads: episodes are therefore played in parts whose size does
not depend on the number of workers, and with one thread in each process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from bmdp.arrays import FloatArray
from bmdp.checks import require_count
from bmdp.cluster import Engine, require_engine
from bmdp.data import TransitionBatch
from bmdp.envs.episodes import OnPlayed, environment_seeds, play_episodes, play_parts
from bmdp.envs.slots import BatchedSlots, Slots, open_slots
from bmdp.kinds import checked
from bmdp.policies.policy import BudgetedPolicy
from bmdp.randomness import EpisodeStreams

_LEAST, _LEAST_BATCHED = 64, 256  # episodes of a part; a batch plays many as quickly as a few
_N_PARTS = 16  # where that makes them larger


@dataclass(frozen=True, eq=False)
class Part:
    """Some of the episodes."""

    numbers: range
    budgets: FloatArray

    def __len__(self) -> int:
        return len(self.numbers)


Arrays = dict[str, NDArray[Any]]


@checked
def collect(  # noqa: PLR0913
    policy: BudgetedPolicy,
    spec: EnvSpec,
    episodes: range,
    *,
    budgets: FloatArray,
    seed: int,
    workers: int = 1,
    engine: Engine = "local",
    progress: OnPlayed | None = None,
) -> TransitionBatch:
    """Plays episodes side by side, and returns their transitions, episode by episode.

    Args:
        policy: which one plays. For several workers, one that can be saved.
        spec: the environment. An episode that it does not end in time is truncated.
        episodes: their numbers.
        budgets: of each of them at the start, `[N]`, in expected discounted cost.
        seed: of the environment and of the policy.
        workers: number of processes.
        engine: "ray" to play on a Ray cluster (`bmdp.cluster`); the episodes are the same.
        progress: called with the number of episodes played so far, and of all.

    Raises:
        PolicyError: if the policy does not fit the environment, or cannot travel to the workers.
        ConfigError: if the environment cannot travel, or there is no such engine.
        MissingDependency: if Ray is asked for and not installed.
        EnvError: if the environment gives no cost, or a worker ends.

    Paper: the episodes of Algorithm 4.

    >>> from bmdp.envs.slots import find_spec
    >>> from bmdp.policies import RandomBudgetedPolicy
    >>> policy, budgets = RandomBudgetedPolicy(5, 0.0, 1.0), np.array([0.2, 0.8])
    >>> batch = collect(policy, find_spec("corridors"), range(2), budgets=budgets, seed=0)
    >>> batch.budget[batch.starts()].tolist(), bool((batch.reward >= 0).all())
    ([0.2, 0.8], True)
    """
    require_count("workers", workers, 1)
    require_engine(engine)
    with closing(open_slots(spec)) as slots:
        least = _LEAST_BATCHED if isinstance(slots, BatchedSlots) else _LEAST
        size = min(slots.most, max(least, -(-len(episodes) // _N_PARTS)))
        parts = [
            Part(episodes[first : first + size], budgets[first : first + size])
            for first in range(0, len(episodes), size)
        ]
        play = partial(_transitions, seed=seed)
        how: dict[str, Any] = {"workers": workers, "engine": engine, "progress": progress}
        found = play_parts(play, policy, slots, parts, **how)
    joined = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    return TransitionBatch.from_arrays(joined, n_actions=int(slots.action_space.n))


def _transitions(policy: BudgetedPolicy, slots: Slots, part: Part, *, seed: int) -> Arrays:
    """Columns of a part, episode by episode."""
    columns: dict[str, list[NDArray[Any]]] = {}
    with threads(1):
        for step in play_episodes(
            policy,
            slots,
            budgets=part.budgets,
            seeds=environment_seeds(seed, part.numbers, "collect/environment"),
            streams=EpisodeStreams.named(seed, "collect/policy", part.numbers),
            cut=True,
        ):
            now = {
                "state": step.states,
                "action": step.actions - int(slots.action_space.start),
                "reward": step.rewards,
                "cost": step.costs,
                "next_state": step.next_states,
                "terminal": step.ended & ~step.truncated,
                "truncated": step.truncated,
                "episode": np.asarray(part.numbers),
                "step": np.full(len(part), step.index),
                "budget": step.budgets,
                "next_budget": step.decision.next_budget,
            }
            if step.available is not None and step.next_available is not None:
                now |= {"available": step.available, "next_available": step.next_available}
            for name, values in now.items():
                columns.setdefault(name, []).append(values[step.going])
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    order = np.lexsort((joined["step"], joined["episode"]))
    return {name: values[order] for name, values in joined.items()}


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Lets torch compute with so many threads: sums are rounded as their parts are cut."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
