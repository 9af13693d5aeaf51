"""Episodes played for learning: every transition is kept.

What episode k does is a function of the seed and of k, by whichever process it is played, so that
any number of workers collects the same batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from bmdp.arrays import FloatArray
from bmdp.data import TransitionBatch
from bmdp.envs.slots import open_slots
from bmdp.policies.protocol import BudgetedPolicy
from bmdp.randomness import EpisodeStreams, stream_key

_MOST_STEPS = 10_000  # of an episode
_N_SEEDS = 2**32


def collect(
    policy: BudgetedPolicy, spec: EnvSpec, episodes: range, *, budgets: FloatArray, seed: int
) -> TransitionBatch:
    """Plays episodes side by side, and returns their transitions, episode by episode.

    Args:
        policy: which one plays.
        spec: the environment.
        episodes: their numbers.
        budgets: of each of them at the start.
        seed: of the environment and of the policy.
    """
    slots = open_slots(spec)
    try:
        parts = []
        for first in range(0, len(episodes), slots.most):
            numbers = episodes[first : first + slots.most]
            held = budgets[first : first + slots.most]
            parts.append(_play(policy, slots, numbers, held, seed))
        return TransitionBatch.concatenate(parts) if len(parts) > 1 else parts[0]
    finally:
        slots.close()


def _play(
    policy: BudgetedPolicy, slots: Any, numbers: range, budgets: FloatArray, seed: int
) -> TransitionBatch:
    """Transitions of some episodes, side by side."""
    base = stream_key(seed, "collect/environment")[0]
    states = slots.reset([(base + number) % _N_SEEDS for number in numbers])
    tracker = policy.start(states, budgets, EpisodeStreams.named(seed, "collect/policy", numbers))
    going = np.ones(len(numbers), np.bool_)
    columns: dict[str, list[NDArray[Any]]] = {}
    for step in range(slots.facts.horizon or _MOST_STEPS):
        held = tracker.budgets
        decision = tracker.decide(states)
        actions = np.where(going, decision.action, slots.action_space.start)
        after, rewards, costs, ended = slots.step(actions, going)
        now = {
            "state": states,
            "action": actions - slots.action_space.start,
            "reward": rewards,
            "cost": costs,
            "next_state": after,
            "terminal": ended,
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
    return TransitionBatch(
        **{name: values[order] for name, values in joined.items()},
        n_actions=int(slots.action_space.n),
    )
