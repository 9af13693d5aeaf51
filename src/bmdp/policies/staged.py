"""A policy for each step of an episode, which need not look at a clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import FloatArray, IntArray
from bmdp.errors import ConfigError, PolicyError
from bmdp.frontier import Frontier
from bmdp.policies.decisions import Randomness, episode_streams
from bmdp.policies.hull import QFunction
from bmdp.policies.protocol import OneStepPolicy, Policy, StepTracker
from bmdp.policies.stored import storable


@storable
@dataclass(frozen=True, eq=False)
class NarrowQ:
    """A Q-function of some numbers of a state."""

    q_function: QFunction
    columns: IntArray  # [J], which ones

    def __call__(self, states: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c) of the states `[N, D]`, each `[N, A, B]`."""
        rows = np.asarray(states)
        flat = rows.reshape(len(rows), int(np.prod(rows.shape[1:])))
        return self.q_function(flat[:, self.columns])


@storable
@dataclass(frozen=True)
class StagedPolicy(Policy):
    """Plays one policy at the first step, another at the second, and so on; then the last one.

    >>> from bmdp.policies import PricedPolicy, TabularQ
    >>> q = TabularQ(q_r=[[[0.0], [10.0]]], q_c=[[[0.0], [1.0]]])
    >>> policy = StagedPolicy((PricedPolicy(q, price=20.0), PricedPolicy(q, price=0.0)))
    >>> tracker = policy.start([0], 1.0, np.random.default_rng(0))
    >>> first = tracker.decide([0]).action.tolist()
    >>> tracker.observe(costs=0.0, next_states=[0], ended=False)
    >>> first, tracker.decide([0]).action.tolist()
    ([0], [1])
    """

    stages: tuple[OneStepPolicy, ...]  # one for each step, all of the same budget_range

    why_no_one_step_form = "looks at the clock"

    def __post_init__(self) -> None:
        """Checks that budgets can be handed on."""
        if not self.stages:
            raise ConfigError("StagedPolicy.stages must hold at least one policy.")
        if any(stage.budget_range != self.budget_range for stage in self.stages):
            raise ConfigError("StagedPolicy.stages must all have the same budget_range.")

    @property
    def budget_range(self) -> tuple[float, float]:
        """That of all stages."""
        return self.stages[0].budget_range

    def at_step(self, step: int) -> OneStepPolicy:
        """Returns what it does at one step."""
        return self.stages[min(step, len(self.stages) - 1)]

    def frontier(self, state: ArrayLike, step: int = 0) -> Frontier:
        """Returns what the policy expects to be able to get from a state that is met at a step.

        Raises:
            PolicyError: if what is played at that step estimates no values.
        """
        stage = self.at_step(step)
        ask = getattr(stage, "frontier", None)
        if ask is None:
            raise PolicyError(f"{type(stage).__name__} estimates no values: it has no frontier.")
        found: Frontier = ask(state)
        return found

    def start(self, states: ArrayLike, budgets: ArrayLike, rng: Randomness) -> StepTracker:
        """Starts `N` episodes."""
        return StepTracker(self, budgets, episode_streams(rng, states))
