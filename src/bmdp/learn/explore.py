"""Learning by exploring: rounds of episodes, after each of which the policy is learned anew.

Paper: Algorithm 4. *Risk-sensitive*: the policy that explores is the budgeted one. *Risk-neutral*:
it is the one of fitted Q-iteration, which looks at rewards alone (`FTQConfig`), or the budgeted one
whose budgets stay at the top of the range (`Exploration.budgets`). A policy that takes any budget
can be learned from its data. *By prices* (ours): a policy of prices explores (`LagrangianConfig`),
each episode by a random one of them.

Differs: if wanted, what is unknown looks good while exploring (`Exploration.optimism`,
`Exploration.count_bonus`), of which the last round of learning knows nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from gymnasium.envs.registration import EnvSpec

from bmdp.arrays import FloatArray
from bmdp.cluster import Engine, engaged
from bmdp.data import TransitionBatch
from bmdp.envs.slots import open_slots
from bmdp.errors import ConfigError, StoreError
from bmdp.kinds import checked
from bmdp.learn.collect import collect
from bmdp.learn.evaluation import HeldOut, Parts, PredictionRecord, split_episodes
from bmdp.learn.fit import Iterations, Keeper, Record
from bmdp.learn.learners import LagrangianConfig, Learner, learner_of
from bmdp.learn.spec import Exploration, TrainingSpec
from bmdp.policies.exploring import ExploringPolicy
from bmdp.policies.policy import OneStepPolicy, Policy
from bmdp.policies.portfolio import Portfolio
from bmdp.policies.prices import MultiplierPolicy, PriceDial
from bmdp.policies.random import RandomBudgetedPolicy, UniformPolicy
from bmdp.randomness import named_generator

_CELL = 0.5  # side of a cell of states whose rows are counted, in deviations


@dataclass(frozen=True)
class CollectionRecord:
    """Episodes collected in a round: sizes and means."""

    kind: ClassVar[str] = "collection"

    round: int  # from 0 on
    transitions: int  # of all rounds so far
    reward: float  # of an episode, mean over the round
    cost: float
    seconds: float
    n_rounds: int

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, for a file."""
        return asdict(self)


@dataclass(frozen=True)
class RoundRecord:
    """An iteration of a round: its losses, values and seconds."""

    kind: ClassVar[str] = "iteration"

    round: int  # from 0 on
    of: Record
    n_rounds: int = 1
    n_iterations: int | None = None  # of the round, at most

    def as_dict(self) -> dict[str, Any]:
        """The fields of both by name, for a file."""
        sizes = {"n_rounds": self.n_rounds, "n_iterations": self.n_iterations}
        return {"round": self.round, **sizes, **self.of.as_dict()}


RunRecord = CollectionRecord | RoundRecord | PredictionRecord
OnRunRecord = Callable[[RunRecord], None]


@checked
@dataclass(frozen=True, eq=False)
class ExplorationResult:
    """Episodes, policy and records of a training run.

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


class RunStore(Protocol):
    """Keeps what a run has done, so that it can go on after a kill."""

    def batch(self, number: int) -> TransitionBatch | None:
        """Episodes of a round, if they were played."""

    def keep_batch(self, number: int, batch: TransitionBatch) -> None:
        """Keeps the episodes of a round."""

    def policy(self, number: int) -> Any:
        """The policy of a round, if it was learned."""

    def keep_policy(self, number: int, policy: Policy) -> None:
        """Keeps the policy of a round."""

    def keeper(self, number: int) -> Keeper:
        """Keeps the learner of a round as far as it is."""


@checked
def explore(
    spec: TrainingSpec,
    *,
    seed: int,
    workers: int = 1,
    device: str = "auto",
    engine: Engine = "local",
    on_record: OnRunRecord = lambda record: None,
) -> ExplorationResult:
    """Explores an environment, and learns from it.

    Args:
        spec: what to learn, and how.
        seed: of everything.
        workers: processes that collect episodes; any number collects the same ones.
        device: of the learner.
        engine: "ray" to collect episodes on a Ray cluster (`bmdp.cluster`); they are the same.
        on_record: called after each collection and each iteration with how it went.

    Raises:
        MissingDependency: if Ray is asked for and not installed.

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

    batch, policy = Rounds(spec, seed, note, workers, device, engine=engine).explore()
    return ExplorationResult(batch, policy, tuple(records))


@dataclass(frozen=True)
class Rounds:
    """Rounds of playing and learning, but for those that are done already.

    What is done is noted before it is kept, so whatever is kept has been noted. What held-out
    episodes say of the policy is noted at the very end.
    """

    spec: TrainingSpec
    seed: int
    note: OnRunRecord
    workers: int = 1
    device: str = "auto"
    store: RunStore | None = None
    engine: Engine = "local"

    def explore(self) -> tuple[TransitionBatch, Any]:
        """Returns the episodes of all rounds, and the policy of the last one."""
        with engaged(self.engine, self.workers):
            return self._explored()

    def _explored(self) -> tuple[TransitionBatch, Any]:
        spec, how = self.spec, self.spec.exploration
        if spec.env is None or how is None:
            raise ConfigError("TrainingSpec needs env and exploration to explore.")
        env = spec.env.spec()
        batches: list[TransitionBatch] = []
        parts: list[Parts] = []
        policy: Any = None
        for number in range(how.rounds):
            begin = time.perf_counter()
            batch = self.store.batch(number) if self.store else None
            if batch is None:
                batch = self._collect(env, how, policy, batches)
                seconds = time.perf_counter() - begin
                self.note(_collected(how, [*batches, batch], seconds))
                if self.store:
                    self.store.keep_batch(number, batch)
            batches.append(batch)
            parts.append(split_episodes(batch, spec.held_out, seed=self.seed, number=number))
            learned = TransitionBatch.concatenate(part.learned for part in parts)
            if number + 1 == how.rounds:
                policy = self._learn(spec.learner, learned, number)
            else:
                policy = self._learn(spec.exploring_learner, learned, number, how.count_bonus)
        self._predict(parts, policy)
        return TransitionBatch.concatenate(batches), policy

    def learn_from(self, parts: Parts) -> Any:
        """Returns the policy of a log, which is a single round."""
        policy = self._learn(self.spec.learner, parts.learned, 0)
        self._predict([parts], policy)
        return policy

    def _learn(
        self, learner: Learner, batch: TransitionBatch, number: int, bonus: float = 0.0
    ) -> Any:
        """The policy of a round: the one that was kept, or a new one, which is kept."""
        explores = self.spec.env is not None
        policy = self.store.policy(number) if self.store else None
        by_prices = isinstance(learner, LagrangianConfig)
        plays = (MultiplierPolicy, Portfolio) if by_prices else OneStepPolicy
        if policy is not None and explores and not isinstance(policy, plays):
            raise StoreError(
                f"the policy of round {number} is a {type(policy).__name__}, which does not "
                "explore: delete its folder and resume."
            )
        if policy is None:
            policy = learner_of(learner).fit(
                with_bonus(batch, bonus) if bonus > 0 else batch,
                seed=round_seed(self.seed, number) if explores else self.seed,
                device=self.device,
                on_record=lambda record: self.note(self._of_round(number, record)),
                keeper=self.store.keeper(number) if self.store else None,
            )
            if self.store:
                self.store.keep_policy(number, policy)
        return policy

    def _of_round(self, number: int, record: Record) -> RoundRecord:
        learner, how = self.spec.learner, self.spec.exploration
        if record.is_last:
            most = record.iteration + 1
        elif record.step is not None:
            most = record.iteration + record.step + 1
        else:
            schedule = learner.schedule if isinstance(learner.schedule, Iterations) else None
            most = (schedule or Iterations()).most(max(learner.gamma, learner.cost_gamma or 0.0))
        return RoundRecord(number, record, how.rounds if how else 1, most)

    def _predict(self, parts: Sequence[Parts], policy: Any) -> None:
        held_out = HeldOut.of(parts, self.spec.learner, self.seed, self.device)
        if held_out is not None:
            self.note(held_out.prediction(policy, len(parts) - 1))

    def _collect(
        self, env: EnvSpec, how: Exploration, policy: Any, before: Sequence[TransitionBatch]
    ) -> TransitionBatch:
        """Episodes of a round, by the policy of the round before."""
        number = len(before)
        slots = open_slots(env)
        n_actions = int(slots.action_space.n)
        slots.close()
        by_prices = isinstance(self.spec.learner, LagrangianConfig)
        if by_prices and policy is not None:
            policy = dial_of(policy)
        ends = self.spec.learner.budget_range
        if by_prices:
            ends = (0.0, 1.0) if policy is None else policy.budget_range
        random: OneStepPolicy = (UniformPolicy if by_prices else RandomBudgetedPolicy)(
            n_actions, *ends
        )
        stream = named_generator(self.seed, f"explore/budgets/{number}")
        at_top = how.budgets == "top"
        budgets = np.full(how.episodes, ends[1]) if at_top else stream.uniform(*ends, how.episodes)
        explorer = ExploringPolicy(
            policy or random,
            random,
            how.decay,
            how.floor,
            how.hold,
            how.move,
            length=mean_length(how, before) if how.decay_by == "step" else None,
            at_top=at_top,
        )
        episodes = range(number * how.episodes, (number + 1) * how.episodes)
        by: dict[str, Any] = {"workers": self.workers, "engine": self.engine}
        batch = collect(explorer, env, episodes, budgets=budgets, seed=self.seed, **by)
        return _without_budgets(batch) if by_prices else batch


def dial_of(policy: MultiplierPolicy | Portfolio) -> PriceDial:
    """The prices that a policy chooses from."""
    found = policy.dial if isinstance(policy, MultiplierPolicy) else policy.policies[0]
    assert isinstance(found, PriceDial)
    return found


def _without_budgets(batch: TransitionBatch) -> TransitionBatch:
    """The transitions without what was on the dial: numbers of prices are no budgets."""
    columns = {name: found for name, found in batch.to_arrays().items() if name != "budget"}
    return TransitionBatch.from_arrays(columns, n_actions=batch.n_actions)


def mean_length(how: Exploration, before: Sequence[TransitionBatch]) -> float:
    """Mean number of steps of the episodes of some rounds; 0 if there are none."""
    return sum(map(len, before)) / max(1, len(before) * how.episodes)


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


def with_bonus(batch: TransitionBatch, weight: float) -> TransitionBatch:
    """Returns a batch whose rewards are raised by `count_bonus`."""
    columns = batch.to_arrays() | {"reward": batch.reward + count_bonus(batch, weight)}
    return TransitionBatch.from_arrays(columns, n_actions=batch.n_actions)


def _collected(
    how: Exploration, batches: Sequence[TransitionBatch], seconds: float
) -> CollectionRecord:
    """The record of the round that was collected last."""
    batch = batches[-1]
    return CollectionRecord(
        round=len(batches) - 1,
        transitions=sum(map(len, batches)),
        reward=float(batch.reward.sum() / how.episodes),
        cost=float(batch.cost.sum() / how.episodes),
        seconds=seconds,
        n_rounds=how.rounds,
    )
