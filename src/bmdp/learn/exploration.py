"""Learning by exploring: rounds of episodes, after each of which the policy is learned anew.

Paper: Algorithm 4. The first budgets of episodes are uniform. *Risk-sensitive*: the policy that
explores is the budgeted one. *Risk-neutral*: it is the one of fitted Q-iteration, which looks at
rewards alone (`FTQConfig`); the budgeted one can be learned from its data.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gymnasium.envs.registration import EnvSpec

from bmdp.data import TransitionBatch
from bmdp.envs.slots import open_slots
from bmdp.learn.bftq import BFTQ
from bmdp.learn.collect import collect
from bmdp.learn.config import BFTQConfig, FTQConfig, TrainingSpec
from bmdp.learn.exploring import ExploringPolicy
from bmdp.learn.fit import Keeper, LearnedPolicy, Record
from bmdp.learn.ftq import FTQ
from bmdp.policies.random_budgeted import RandomBudgetedPolicy
from bmdp.randomness import named_generator


@dataclass(frozen=True, eq=False)
class ExplorationResult:
    """What a training run leaves."""

    batch: TransitionBatch
    policy: LearnedPolicy
    records: tuple[Record, ...]


class Place(Protocol):
    """Where a run keeps what it has done, so that it can go on after a kill."""

    def batch(self, number: int) -> TransitionBatch | None:
        """Episodes of a round, if they were played."""

    def keep_batch(self, number: int, batch: TransitionBatch) -> None:
        """Keeps the episodes of a round."""

    def policy(self, number: int) -> LearnedPolicy | None:
        """The policy of a round, if it was learned."""

    def keep_policy(self, number: int, policy: LearnedPolicy) -> None:
        """Keeps the policy of a round."""

    def keeper(self, number: int) -> Keeper | None:
        """Of what the learner of a round needs to go on."""


class Nowhere:
    """Keeps nothing."""

    def batch(self, number: int) -> TransitionBatch | None:
        """None."""
        return None

    def keep_batch(self, number: int, batch: TransitionBatch) -> None:
        """Does nothing."""

    def policy(self, number: int) -> LearnedPolicy | None:
        """None."""
        return None

    def keep_policy(self, number: int, policy: LearnedPolicy) -> None:
        """Does nothing."""

    def keeper(self, number: int) -> Keeper | None:
        """None."""
        return None


@dataclass(frozen=True)
class Manner:
    """How a run is done, which is not what it does."""

    seed: int
    workers: int = 1
    device: str = "auto"


def explore(
    spec: TrainingSpec,
    *,
    seed: int,
    workers: int = 1,
    device: str = "auto",
    on_record: Callable[[Record], None] = lambda record: None,
) -> ExplorationResult:
    """Explores an environment, and learns from it.

    Args:
        spec: what to learn, and how.
        seed: of everything.
        workers: processes that collect episodes; any number collects the same ones.
        device: of the learner.
        on_record: called after each collection and each iteration with how it went.
    """
    records: list[Record] = []

    def note(record: Record) -> None:
        records.append(record)
        on_record(record)

    batch, policy = play_rounds(spec, Manner(seed, workers, device), Nowhere(), note)
    return ExplorationResult(batch, policy, tuple(records))


def play_rounds(
    spec: TrainingSpec, manner: Manner, place: Place, note: Callable[[Record], None]
) -> tuple[TransitionBatch, LearnedPolicy]:
    """Plays and learns, but for what the place has already; returns all episodes and the policy.

    What is done is noted before it is kept, so that whatever is kept has been noted.

    Args:
        spec: what to learn, and how.
        manner: seed, workers and device.
        place: where it is kept.
        note: called after each collection and each iteration with how it went.
    """
    env = spec.env.spec()
    batches: list[TransitionBatch] = []
    policy: LearnedPolicy | None = None
    for number in range(spec.exploration.rounds):
        begin = time.perf_counter()
        batch = place.batch(number)
        if batch is None:
            batch = collect_round(spec, env, policy, number, manner)
            n_before = sum(map(len, batches))
            note(
                {
                    "kind": "collection",
                    "round": number,
                    "transitions": n_before + len(batch),
                    "reward": float(batch.reward.sum() / spec.exploration.episodes),
                    "cost": float(batch.cost.sum() / spec.exploration.episodes),
                    "seconds": time.perf_counter() - begin,
                }
            )
            place.keep_batch(number, batch)
        batches.append(batch)
        policy = place.policy(number)
        if policy is None:
            policy = learner_of(spec.learner).fit(
                TransitionBatch.concatenate(batches),
                seed=round_seed(manner.seed, number),
                device=manner.device,
                on_record=of_round(note, number),
                keeper=place.keeper(number),
            )
            place.keep_policy(number, policy)
    assert policy is not None
    return TransitionBatch.concatenate(batches), policy


def of_round(note: Callable[[Record], None], number: int) -> Callable[[Record], None]:
    """Notes iterations as those of a round."""
    return lambda record: note({"kind": "iteration", "round": number, **record})


def learner_of(config: BFTQConfig | FTQConfig) -> BFTQ | FTQ:
    """The learner that settings are of."""
    return BFTQ(config) if isinstance(config, BFTQConfig) else FTQ(config)


def collect_round(
    spec: TrainingSpec, env: EnvSpec, policy: LearnedPolicy | None, number: int, manner: Manner
) -> TransitionBatch:
    """Episodes of one round, with uniform budgets."""
    slots = open_slots(env)
    n_actions = int(slots.action_space.n)
    slots.close()
    low, high = spec.learner.budget_range
    random = RandomBudgetedPolicy(n_actions, low, high)
    how = spec.exploration
    explorer = ExploringPolicy(policy or random, random, how.decay, how.floor, how.hold)
    episodes = range(number * how.episodes, (number + 1) * how.episodes)
    drawn = named_generator(manner.seed, f"explore/budgets/{number}")
    budgets = drawn.uniform(low, high, how.episodes)
    return collect(
        explorer, env, episodes, budgets=budgets, seed=manner.seed, workers=manner.workers
    )


def round_seed(seed: int, number: int) -> int:
    """The seed of the learner of a round."""
    return int(named_generator(seed, f"explore/round/{number}").integers(2**31))
