"""Learning by exploring: rounds of episodes, after each of which the policy is learned anew.

Paper: Algorithm 4. The first budgets of episodes are uniform. *Risk-sensitive*: the policy that
explores is the budgeted one. *Risk-neutral*: it is the one of fitted Q-iteration, which looks at
rewards alone (`FTQConfig`); the budgeted one can be learned from its data.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from gymnasium.envs.registration import EnvSpec

from bmdp.data import TransitionBatch
from bmdp.envs.slots import open_slots
from bmdp.learn.bftq import BFTQ, Record
from bmdp.learn.collect import collect
from bmdp.learn.config import BFTQConfig, TrainingSpec
from bmdp.learn.exploring import ExploringPolicy
from bmdp.learn.ftq import FTQ
from bmdp.policies.protocol import OneStepPolicy
from bmdp.policies.random_budgeted import RandomBudgetedPolicy
from bmdp.randomness import named_generator


@dataclass(frozen=True, eq=False)
class ExplorationResult:
    """What a training run leaves."""

    batch: TransitionBatch
    policy: OneStepPolicy
    records: tuple[Record, ...]


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
    env = spec.env.spec()
    records: list[Record] = []

    def note(record: Record) -> None:
        records.append(record)
        on_record(record)

    batches: list[TransitionBatch] = []
    policy: OneStepPolicy | None = None
    for number in range(spec.exploration.rounds):
        begin = time.perf_counter()
        batches.append(collect_round(spec, env, policy, number, seed=seed))
        batch = TransitionBatch.concatenate(batches)
        note(
            {
                "kind": "collection",
                "round": number,
                "transitions": len(batch),
                "reward": float(batches[-1].reward.sum() / spec.exploration.episodes),
                "cost": float(batches[-1].cost.sum() / spec.exploration.episodes),
                "seconds": time.perf_counter() - begin,
            }
        )
        policy = learner_of(spec).fit(
            batch,
            seed=round_seed(seed, number),
            device=device,
            on_record=lambda r, n=number: note({"kind": "iteration", "round": n, **r}),  # type: ignore[misc]
        )
    assert policy is not None
    return ExplorationResult(batch, policy, tuple(records))


def learner_of(spec: TrainingSpec) -> BFTQ | FTQ:
    """The learner that a specification asks for."""
    learner = spec.learner
    return BFTQ(learner) if isinstance(learner, BFTQConfig) else FTQ(learner)


def collect_round(
    spec: TrainingSpec, env: EnvSpec, policy: OneStepPolicy | None, number: int, *, seed: int
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
    budgets = named_generator(seed, f"explore/budgets/{number}").uniform(low, high, how.episodes)
    return collect(explorer, env, episodes, budgets=budgets, seed=seed)


def round_seed(seed: int, number: int) -> int:
    """The seed of the learner of a round."""
    return int(named_generator(seed, f"explore/round/{number}").integers(2**31))
