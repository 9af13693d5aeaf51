"""Episodes played for learning: every transition is kept.

What episode k does is a function of the seed and of k, by whichever process it is played, so that
any number of workers collects the same batch. A network rounds differently in batches of different
size and with different numbers of threads: episodes are therefore played in parts whose size does
not depend on the number of workers, and with one thread in each process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from bmdp.arrays import FloatArray
from bmdp.checks import require_count
from bmdp.data import TransitionBatch
from bmdp.envs.slots import Slots, open_slots
from bmdp.policies.policy import BudgetedPolicy
from bmdp.policies.travel import play_elsewhere, require_portable
from bmdp.randomness import EpisodeStreams, stream_key

_MOST_STEPS = 10_000  # of an episode
_N_SEEDS = 2**32
_LEAST, _N_PARTS = 64, 16  # episodes of a part, and parts where that makes them larger


@dataclass(frozen=True, eq=False)
class Part:
    """Some of the episodes."""

    numbers: range
    budgets: FloatArray


Columns = dict[str, NDArray[Any]]


def collect(
    policy: BudgetedPolicy,
    spec: EnvSpec,
    episodes: range,
    *,
    budgets: FloatArray,
    seed: int,
    workers: int = 1,
) -> TransitionBatch:
    """Plays episodes side by side, and returns their transitions, episode by episode.

    Args:
        policy: which one plays. For several workers, one that can be saved.
        spec: the environment.
        episodes: their numbers.
        budgets: of each of them at the start, `[N]`, in expected discounted cost.
        seed: of the environment and of the policy.
        workers: number of processes.

    Raises:
        PolicyError: if the policy cannot travel to the workers.
        ConfigError: if the environment cannot.

    Paper: the episodes of Algorithm 4.

    >>> from bmdp.envs.slots import find_spec
    >>> from bmdp.policies import RandomBudgetedPolicy
    >>> policy, budgets = RandomBudgetedPolicy(5, 0.0, 1.0), np.array([0.2, 0.8])
    >>> batch = collect(policy, find_spec("corridors"), range(2), budgets=budgets, seed=0)
    >>> batch.budget[batch.starts()].tolist(), bool((batch.reward >= 0).all())
    ([0.2, 0.8], True)
    """
    require_count("workers", workers, 1)
    slots = open_slots(spec)  # an environment that cannot be made is refused here, once
    try:
        size = min(slots.most, max(_LEAST, -(-len(episodes) // _N_PARTS)))
        parts = [
            Part(episodes[first : first + size], budgets[first : first + size])
            for first in range(0, len(episodes), size)
        ]
        found: dict[int, Columns] = {}
        if workers == 1 or len(parts) == 1:
            for i, part in enumerate(parts):
                found[i] = _play(policy, slots, part, seed)
        else:
            require_portable(spec)
            play_elsewhere(_player, policy, (spec, seed), parts, found.__setitem__, workers=workers)
    finally:
        slots.close()
    in_order = [found[i] for i in range(len(parts))]
    joined = {name: np.concatenate([part[name] for part in in_order]) for name in in_order[0]}
    return TransitionBatch.from_arrays(joined, n_actions=int(slots.action_space.n))


def _player(policy: BudgetedPolicy, setting: tuple[EnvSpec, int]) -> Callable[[Part], Columns]:
    """What plays parts in a worker."""
    spec, seed = setting
    slots = open_slots(spec)
    return lambda part: _play(policy, slots, part, seed)


def _play(policy: BudgetedPolicy, slots: Slots, part: Part, seed: int) -> Columns:
    """Transitions of some episodes, side by side."""
    numbers, base = part.numbers, stream_key(seed, "collect/environment")[0]
    first_action = int(slots.action_space.start)
    states = slots.reset([(base + number) % _N_SEEDS for number in numbers])
    streams = EpisodeStreams.named(seed, "collect/policy", numbers)
    tracker = policy.start(states, part.budgets, streams)
    going = np.ones(len(numbers), np.bool_)
    columns: dict[str, list[NDArray[Any]]] = {}
    with threads(1):
        limit = slots.facts.horizon or _MOST_STEPS
        for step in range(limit):
            held = tracker.budgets
            decision = tracker.decide(states)
            actions = np.where(going, decision.action, first_action)
            after, rewards, costs, ended, truncated = slots.step(actions, going)
            truncated = truncated | (~ended if step + 1 == limit else False)
            now = {
                "state": states,
                "action": actions - first_action,
                "reward": rewards,
                "cost": costs,
                "next_state": after,
                "terminal": ended & ~truncated,
                "truncated": truncated,
                "episode": np.asarray(numbers),
                "step": np.full(len(numbers), step),
                "budget": held,
                "next_budget": decision.next_budget,
            }
            for name, values in now.items():
                columns.setdefault(name, []).append(np.asarray(values)[going])
            going = going & ~ended
            tracker.observe(costs, after, ~going)
            states = after
            if not going.any():
                break
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
