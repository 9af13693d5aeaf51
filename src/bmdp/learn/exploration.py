"""Learning by exploring: rounds of episodes, after each of which the policy is learned anew.

Paper: Algorithm 4. *Risk-sensitive*: the policy that explores is the budgeted one. *Risk-neutral*:
it is the one of fitted Q-iteration, which looks at rewards alone (`FTQConfig`); the budgeted one
can be learned from its data.

Differs: if wanted, what is unknown looks good while exploring (`bmdp.learn.curiosity`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, overload

from gymnasium.envs.registration import EnvSpec

from bmdp.data import TransitionBatch
from bmdp.envs.slots import open_slots
from bmdp.errors import StoreError
from bmdp.learn.bftq import BFTQ
from bmdp.learn.collect import collect
from bmdp.learn.config import TrainingSpec
from bmdp.learn.curiosity import lesson
from bmdp.learn.exploring import ExploringPolicy
from bmdp.learn.fit import Keeper, LearnedPolicy, PricedPlay, Record, TrainedPolicy
from bmdp.learn.fit_config import BFTQConfig, FTQConfig, LagrangianConfig, Learner
from bmdp.learn.ftq import FTQ
from bmdp.learn.held_out import HeldOut, Parts, split_episodes
from bmdp.learn.lagrangian import LagrangianFTQ
from bmdp.policies.random_budgeted import RandomBudgetedPolicy
from bmdp.randomness import named_generator


@dataclass(frozen=True, eq=False)
class ExplorationResult:
    """What a training run leaves.

    >>> from bmdp.learn import EnvConfig, Exploration
    >>> from bmdp.models import LinearModel
    >>> learner = BFTQConfig(gamma=1.0, model=LinearModel(), iterations=2, n_budgets=5)
    >>> how = Exploration(rounds=2, episodes=4)
    >>> spec = TrainingSpec(EnvConfig("corridors", {"height": 3}), learner, how)
    >>> [record["kind"] for record in explore(spec, seed=0).records]
    ['collection', 'iteration', 'iteration', 'collection', 'iteration', 'iteration']
    """

    batch: TransitionBatch  # all episodes of all rounds
    policy: LearnedPolicy  # of the last round
    records: tuple[Record, ...]  # how each collection and each iteration went


class Place(Protocol):
    """Where a run keeps what it has done, so that it can go on after a kill."""

    def batch(self, number: int) -> TransitionBatch | None:
        """Episodes of a round, if they were played."""

    def keep_batch(self, number: int, batch: TransitionBatch) -> None:
        """Keeps the episodes of a round."""

    def policy(self, number: int) -> TrainedPolicy | None:
        """The policy of a round, if it was learned."""

    def keep_policy(self, number: int, policy: TrainedPolicy) -> None:
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

    def policy(self, number: int) -> TrainedPolicy | None:
        """None."""
        return None

    def keep_policy(self, number: int, policy: TrainedPolicy) -> None:
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

    Paper: Algorithm 4.

    >>> from bmdp.learn import EnvConfig, Exploration
    >>> from bmdp.models import LinearModel
    >>> learner = BFTQConfig(gamma=1.0, model=LinearModel(), iterations=2, n_budgets=5)
    >>> how = Exploration(rounds=2, episodes=4)
    >>> spec = TrainingSpec(EnvConfig("corridors", {"height": 3}), learner, how)
    >>> found = explore(spec, seed=0)
    >>> len(found.batch.starts()), found.policy.budget_range
    (8, (0.0, 1.0))
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

    What is done is noted before it is kept, so that whatever is kept has been noted. What held-out
    episodes say of the policy is noted at the very end.

    Args:
        spec: what to learn, and how.
        manner: seed, workers and device.
        place: where it is kept.
        note: called after each collection and each iteration with how it went.
    """
    env = spec.env.spec()
    batches: list[TransitionBatch] = []
    parts: list[Parts] = []
    policy: LearnedPolicy | None = None
    for number in range(spec.exploration.rounds):
        begin = time.perf_counter()
        batch = place.batch(number)
        if batch is None:
            batch = collect_round(spec, env, policy, batches, manner)
            note(collection_record(spec, [*batches, batch], time.perf_counter() - begin))
            place.keep_batch(number, batch)
        batches.append(batch)
        parts.append(split_episodes(batch, spec.held_out, seed=manner.seed, number=number))
        policy = _explored(place.policy(number))
        is_last = number + 1 == spec.exploration.rounds
        held_out = None
        if is_last:
            held_out = HeldOut.of(parts, spec.learner, manner.seed, manner.device)
        if policy is None:
            learner, rows = lesson(
                spec, TransitionBatch.concatenate(part.learned for part in parts), is_last=is_last
            )
            policy = learner_of(learner).fit(
                rows,
                seed=round_seed(manner.seed, number),
                device=manner.device,
                on_record=of_round(note, number),
                keeper=place.keeper(number),
            )
            place.keep_policy(number, policy)
        if held_out is not None:
            note(held_out.prediction(policy, number))
    assert policy is not None
    return TransitionBatch.concatenate(batches), policy


def collection_record(
    spec: TrainingSpec, batches: Sequence[TransitionBatch], seconds: float
) -> Record:
    """What is noted of the last round of those that were collected."""
    batch = batches[-1]
    return {
        "kind": "collection",
        "round": len(batches) - 1,
        "transitions": sum(map(len, batches)),
        "reward": float(batch.reward.sum() / spec.exploration.episodes),
        "cost": float(batch.cost.sum() / spec.exploration.episodes),
        "seconds": seconds,
    }


def of_round(note: Callable[[Record], None], number: int) -> Callable[[Record], None]:
    """Notes iterations as those of a round."""
    return lambda record: note({"kind": "iteration", "round": number, **record})


def _explored(policy: TrainedPolicy | None) -> LearnedPolicy | None:
    """What was kept of a round, which is never of prices."""
    if isinstance(policy, PricedPlay):
        raise StoreError(f"a round left a {type(policy).__name__}, which does not explore.")
    return policy


@overload
def learner_of(config: BFTQConfig | FTQConfig) -> BFTQ | FTQ: ...
@overload
def learner_of(config: LagrangianConfig) -> LagrangianFTQ: ...
def learner_of(config: Learner) -> BFTQ | FTQ | LagrangianFTQ:
    """The learner that settings are of."""
    if isinstance(config, LagrangianConfig):
        return LagrangianFTQ(config)
    return BFTQ(config) if isinstance(config, BFTQConfig) else FTQ(config)


def collect_round(
    spec: TrainingSpec,
    env: EnvSpec,
    policy: LearnedPolicy | None,
    before: list[TransitionBatch],
    manner: Manner,
) -> TransitionBatch:
    """Episodes of the round after some batches, which the policy was learned from."""
    slots = open_slots(env)
    n_actions = int(slots.action_space.n)
    slots.close()
    low, high = spec.learner.budget_range
    random = RandomBudgetedPolicy(n_actions, low, high)
    how, number = spec.exploration, len(before)
    rng = named_generator(manner.seed, f"explore/budgets/{number}")
    budgets = rng.uniform(low, high, how.episodes)
    explorer = ExploringPolicy(policy or random, random, how.decay, how.floor, how.hold, how.move)
    episodes = range(number * how.episodes, (number + 1) * how.episodes)
    return collect(
        explorer, env, episodes, budgets=budgets, seed=manner.seed, workers=manner.workers
    )


def round_seed(seed: int, number: int) -> int:
    """The seed of the learner of a round."""
    return int(named_generator(seed, f"explore/round/{number}").integers(2**31))
