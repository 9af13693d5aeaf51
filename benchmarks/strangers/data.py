"""Logs of tasks: whole episodes of uniformly random actions."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp import TransitionBatch
from bmdp.arrays import FloatArray
from bmdp.envs.slots import find_spec, open_slots
from bmdp.frontier import BudgetStatus
from bmdp.learn.collect import collect
from bmdp.policies.policy import Decision, Decisions, OneStepPolicy
from strangers.tasks import Stranger


@dataclass(frozen=True)
class UniformPolicy(OneStepPolicy):
    """Plays every action with the same chance, whatever the budget."""

    n_actions: int

    budget_range = (0.0, 1.0)
    n_draws = 1

    def choose(self, states: NDArray[Any], budgets: FloatArray, uniforms: FloatArray) -> Decisions:
        """Draws actions."""
        action = np.minimum((uniforms[:, 0] * self.n_actions).astype(np.int64), self.n_actions - 1)
        return Decision(action, budgets, np.full(len(budgets), BudgetStatus.TIGHT, np.int8))


def random_log(task: Stranger, episodes: int, seed: int) -> TransitionBatch:
    """Returns whole episodes of uniformly random actions.

    Args:
        task: one of `TASKS`. It is played by its tables where it has some.
        episodes: number of them.
        seed: of everything.
    """
    spec = find_spec(task.fast_id)
    policy = UniformPolicy(n_actions_of(task))
    played = collect(policy, spec, range(episodes), budgets=np.zeros(episodes), seed=seed)
    columns = {k: v for k, v in played.to_arrays().items() if k not in ("budget", "next_budget")}
    return TransitionBatch.from_arrays(columns, n_actions=policy.n_actions)


def n_actions_of(task: Stranger) -> int:
    """Returns how many actions a task has."""
    with closing(open_slots(find_spec(task.fast_id))) as slots:
        return int(slots.action_space.n)
