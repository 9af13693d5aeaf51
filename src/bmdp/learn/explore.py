"""Learning by exploring: rounds of episodes, after each of which the policy is learned anew.

Paper: Algorithm 4. *Risk-sensitive*: the policy that explores is the budgeted one. *Risk-neutral*:
it is the one of fitted Q-iteration, which looks at rewards alone (`FTQConfig`); the budgeted one
can be learned from its data.

Differs: if wanted, what is unknown looks good while exploring (`Exploration.optimism`,
`Exploration.count_bonus`), of which the last round of learning knows nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from gymnasium.envs.registration import EnvSpec

from bmdp.arrays import FloatArray
from bmdp.data import TransitionBatch
from bmdp.envs.slots import open_slots
from bmdp.errors import ConfigError, StoreError
from bmdp.learn.collect import collect
from bmdp.learn.evaluation import HeldOut, Parts, PredictionRecord, split_episodes
from bmdp.learn.fit import Keeper, Record
from bmdp.learn.learners import learner_of
from bmdp.learn.spec import TrainingSpec
from bmdp.policies.exploring import ExploringPolicy
from bmdp.policies.policy import OneStepPolicy, Policy
from bmdp.policies.random import RandomBudgetedPolicy
from bmdp.randomness import named_generator

_CELL = 0.5  # side of a cell of states whose rows are counted, in deviations


@dataclass(frozen=True)
class CollectionRecord:
    """How the collection of a round went."""

    kind: ClassVar[str] = "collection"

    round: int
    transitions: int  # of all rounds so far
    reward: float  # of an episode, mean over the round
    cost: float
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, for a file."""
        return asdict(self)


@dataclass(frozen=True)
class RoundRecord:
    """How an iteration of a round went."""

    kind: ClassVar[str] = "iteration"

    round: int
    of: Record

    def as_dict(self) -> dict[str, Any]:
        """The fields of both by name, for a file."""
        return {"round": self.round, **self.of.as_dict()}


RunRecord = CollectionRecord | RoundRecord | PredictionRecord
Note = Callable[[RunRecord], None]


@dataclass(frozen=True, eq=False)
class ExplorationResult:
    """What a training run leaves.

    >>> from bmdp.learn import BFTQConfig, EnvConfig, Exploration, Iterations
    >>> from bmdp.models import LinearModel
    >>> fast = {"model": LinearModel(), "schedule": Iterations(2), "n_budgets": 5}
    >>> learner, how = BFTQConfig(gamma=1.0, **fast), Exploration(rounds=2, episodes=4)
    >>> spec = TrainingSpec(EnvConfig("corridors", {"height": 3}), learner, how)
    >>> [record.kind for record in explore(spec, seed=0).records]
    ['collection', 'iteration', 'iteration', 'collection', 'iteration', 'iteration']
    """

    batch: TransitionBatch  # all episodes of all rounds
    policy: Any  # of the last round
    records: tuple[RunRecord, ...]  # how each collection and each iteration went


class Place(Protocol):
    """Where a run keeps what it has done, so that it can go on after a kill."""

    def batch(self, number: int) -> TransitionBatch | None:
        """Episodes of a round, if they were played."""

    def keep_batch(self, number: int, batch: TransitionBatch) -> None:
        """Keeps the episodes of a round."""

    def policy(self, number: int) -> Any:
        """The policy of a round, if it was learned."""

    def keep_policy(self, number: int, policy: Policy) -> None:
        """Keeps the policy of a round."""

    def keeper(self, number: int) -> Keeper:
        """Keeps what the learner of a round needs to go on."""


@dataclass(frozen=True)
class Manner:
    """How a run is computed, which changes nothing in what it learns, but for rounding."""

    seed: int
    workers: int = 1
    device: str = "auto"


def explore(
    spec: TrainingSpec,
    *,
    seed: int,
    workers: int = 1,
    device: str = "auto",
    on_record: Note = lambda record: None,
) -> ExplorationResult:
    """Explores an environment, and learns from it.

    Args:
        spec: what to learn, and how.
        seed: of everything.
        workers: processes that collect episodes; any number collects the same ones.
        device: of the learner.
        on_record: called after each collection and each iteration with how it went.

    Paper: Algorithm 4.

    >>> from bmdp.learn import BFTQConfig, EnvConfig, Exploration, Iterations
    >>> from bmdp.models import LinearModel
    >>> fast = {"model": LinearModel(), "schedule": Iterations(2), "n_budgets": 5}
    >>> learner, how = BFTQConfig(gamma=1.0, **fast), Exploration(rounds=2, episodes=4)
    >>> spec = TrainingSpec(EnvConfig("corridors", {"height": 3}), learner, how)
    >>> found = explore(spec, seed=0)
    >>> len(found.batch.starts()), found.policy.budget_range
    (8, (0.0, 1.0))
    """
    records: list[RunRecord] = []

    def note(record: RunRecord) -> None:
        records.append(record)
        on_record(record)

    batch, policy = play_rounds(spec, Manner(seed, workers, device), None, note)
    return ExplorationResult(batch, policy, tuple(records))


def play_rounds(
    spec: TrainingSpec, manner: Manner, place: Place | None, note: Note
) -> tuple[TransitionBatch, Any]:
    """Plays and learns, but for what the place has already; returns all episodes and the policy.

    What is done is noted before it is kept, so that whatever is kept has been noted. What held-out
    episodes say of the policy is noted at the very end.

    Args:
        spec: what to learn, and how.
        manner: seed, workers and device.
        place: where it is kept, if anywhere.
        note: called after each collection and each iteration with how it went.
    """
    if spec.env is None or spec.exploration is None:
        raise ConfigError("TrainingSpec needs env and exploration to explore.")
    env, how = spec.env.spec(), spec.exploration
    batches: list[TransitionBatch] = []
    parts: list[Parts] = []
    policy: Any = None
    for number in range(how.rounds):
        begin = time.perf_counter()
        batch = place.batch(number) if place else None
        if batch is None:
            batch = _collect_round(spec, env, policy, number, manner)
            note(_collected(how.episodes, [*batches, batch], time.perf_counter() - begin))
            if place:
                place.keep_batch(number, batch)
        batches.append(batch)
        parts.append(split_episodes(batch, spec.held_out, seed=manner.seed, number=number))
        is_last = number + 1 == how.rounds
        learned = TransitionBatch.concatenate(part.learned for part in parts)
        settings = _learning(spec) if is_last else _exploring(spec)
        policy = learn_round(settings, learned, number, manner, place, note)
        held_out = HeldOut.of(parts, spec.learner, manner.seed, manner.device) if is_last else None
        if held_out is not None:
            note(held_out.prediction(policy, number))
    return TransitionBatch.concatenate(batches), policy


def learn_round(
    spec: TrainingSpec,
    batch: TransitionBatch,
    number: int,
    manner: Manner,
    place: Place | None,
    note: Note,
) -> Any:
    """Returns the policy of a round: the one that was kept, or a new one, which is kept."""
    policy = place.policy(number) if place else None
    if policy is not None and spec.env is not None and not isinstance(policy, OneStepPolicy):
        raise StoreError(
            f"the policy of round {number} is a {type(policy).__name__}, which does not explore: "
            "delete its folder and resume."
        )
    if policy is None:
        if spec.exploration is not None and spec.exploration.count_bonus > 0:
            batch = _with_bonus(batch, spec.exploration.count_bonus)
        policy = learner_of(spec.learner).fit(
            batch,
            seed=round_seed(manner.seed, number) if spec.env is not None else manner.seed,
            device=manner.device,
            on_record=lambda record: note(RoundRecord(number, record)),
            keeper=place.keeper(number) if place else None,
        )
        if place:
            place.keep_policy(number, policy)
    return policy


def round_seed(seed: int, number: int) -> int:
    """The seed of the learner of a round."""
    return int(named_generator(seed, f"explore/round/{number}").integers(2**31))


def count_bonus(batch: TransitionBatch, weight: float) -> FloatArray:
    """The reward that each row earns on top, `[N]`: weight times the largest one, over root n.

    n is the number of rows of the same action with states in the same cell (Strehl and Littman,
    2008, have the root).

    >>> state, zeros = [0.0, 0.0, 9.0], [0, 0, 0]
    >>> batch = TransitionBatch(state, zeros, zeros, zeros, state, zeros)
    >>> count_bonus(batch, 2.0).round(3).tolist()
    [1.414, 1.414, 2.0]
    """
    states = np.asarray(batch.state, np.float64)
    deviations = states.std(axis=0)
    sides = _CELL * np.where(deviations > 0, deviations, 1.0)
    cells = np.floor((states - states.mean(axis=0)) / sides).astype(np.int64)
    _, which, counts = np.unique(
        np.column_stack((cells, batch.action)), axis=0, return_inverse=True, return_counts=True
    )
    largest = float(np.abs(batch.reward).max()) or 1.0
    bonus: FloatArray = weight * largest / np.sqrt(counts[which.ravel()])
    return bonus


def _with_bonus(batch: TransitionBatch, weight: float) -> TransitionBatch:
    columns = batch.to_arrays() | {"reward": batch.reward + count_bonus(batch, weight)}
    return TransitionBatch.from_arrays(columns, n_actions=batch.n_actions)


def _exploring(spec: TrainingSpec) -> TrainingSpec:
    """The settings of all rounds but the last."""
    return replace(spec, learner=spec.exploring_learner)


def _learning(spec: TrainingSpec) -> TrainingSpec:
    """The settings of the last round, which knows nothing of what made the others explore."""
    assert spec.exploration is not None
    return replace(spec, exploration=replace(spec.exploration, optimism=0.0, count_bonus=0.0))


def _collected(
    n_episodes: int, batches: Sequence[TransitionBatch], seconds: float
) -> CollectionRecord:
    """How the last round of those that were collected went."""
    batch = batches[-1]
    return CollectionRecord(
        round=len(batches) - 1,
        transitions=sum(map(len, batches)),
        reward=float(batch.reward.sum() / n_episodes),
        cost=float(batch.cost.sum() / n_episodes),
        seconds=seconds,
    )


def _collect_round(
    spec: TrainingSpec, env: EnvSpec, policy: Any, number: int, manner: Manner
) -> TransitionBatch:
    """Episodes of a round, by the policy of the round before."""
    slots = open_slots(env)
    n_actions = int(slots.action_space.n)
    slots.close()
    how, ends = spec.exploration, spec.learner.budget_range
    assert how is not None
    random = RandomBudgetedPolicy(n_actions, *ends)
    budgets = named_generator(manner.seed, f"explore/budgets/{number}").uniform(*ends, how.episodes)
    explorer = ExploringPolicy(policy or random, random, how.decay, how.floor, how.hold, how.move)
    episodes = range(number * how.episodes, (number + 1) * how.episodes)
    return collect(
        explorer, env, episodes, budgets=budgets, seed=manner.seed, workers=manner.workers
    )
