"""The policy of exploration: greedy but for an epsilon that falls with episodes, or with steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray, rows_at
from bmdp.checks import require_from_0, require_share
from bmdp.errors import ConfigError
from bmdp.kinds import checked
from bmdp.policies.policy import (
    Decisions,
    EpisodeTracker,
    OneStepPolicy,
    Policy,
    Randomness,
    SteppedPolicy,
    episode_streams,
    idle_decisions,
)
from bmdp.policies.state import LARGEST, StateReader
from bmdp.randomness import EpisodeStreams
from bmdp.storage import storable


@checked
@storable
@dataclass(frozen=True)
class ExploringPolicy(Policy):
    """Follows `explorer` with probability epsilon at every step, else `greedy`.

    Epsilon of episode i is floor + (1 - floor) * exp(-decay * i). Given a `length`, it falls by the
    step: that of step t of episode i is floor + (1 - floor) * exp(-decay * (length * i + t)).
    Episodes are played side by side, so the steps before an episode are counted by their mean.

    What `explorer` does may be held for a few steps: far away places need several steps in one
    direction. And the dial may be moved in the middle, so that it is learned what to do then: a
    policy that was given much to spend does not see how to get out of danger with little.

    Paper: Algorithm 4, "Explore" and "Exploit".

    Args:
        greedy: the policy that was learned.
        explorer: a random one, of the same budget range.
        decay: of epsilon, for an episode, or for a step if there is a length.
        floor: least epsilon.
        hold: a random action is held for 1 to so many steps, the number being random, too.
        move: probability, at every step, that the next budget is a new one, uniform in the range.
        length: mean number of steps of an episode; if not given, epsilon falls by the episode.
        at_top: whether the dial stays at the top of the range from the second step on, whatever
            budget is handed on, so that costs matter as little as they can.

    >>> from bmdp.policies import HullPolicy, RandomBudgetedPolicy, TabularQ
    >>> q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    >>> greedy, random = HullPolicy(q, [0.0, 1.0]), RandomBudgetedPolicy(2, 0.0, 1.0)
    >>> policy = ExploringPolicy(greedy, random, decay=0.01, floor=0.1)
    >>> policy.epsilon(np.array([0, 100, 1000])).round(2).tolist()
    [1.0, 0.43, 0.1]
    """

    greedy: SteppedPolicy
    explorer: OneStepPolicy
    decay: float = 0.001
    floor: float = 0.0
    hold: int = 1
    move: float = 0.0
    length: float | None = None
    at_top: bool = False

    why_no_one_step_form = "explores less from episode to episode"
    takes_masks = True

    def __post_init__(self) -> None:
        is_whole = isinstance(self.hold, int | np.integer) and 1 <= self.hold <= LARGEST
        if not 0 <= self.decay < np.inf or not 0 <= self.floor <= 1 or not is_whole:
            raise ConfigError(
                "decay must be from 0 on, floor from 0 to 1 and hold from 1 on, all finite; "
                f"got {self.decay}, {self.floor} and {self.hold}."
            )
        require_share("move", self.move)
        if self.length is not None:
            require_from_0("length", self.length)
            if np.isinf(self.length):
                raise ConfigError("length must be finite; got inf.")

    @property
    def budget_range(self) -> tuple[float, float]:
        """That of both policies."""
        return self.greedy.budget_range

    def epsilon(self, episodes: IntArray, step: int = 0) -> FloatArray:
        """Probability of a random action at a step of some episodes, by number."""
        passed = episodes if self.length is None else self.length * episodes + step
        shrunk: FloatArray = np.exp(-self.decay * passed)
        return self.floor + (1 - self.floor) * shrunk

    def start(self, states: ArrayLike, budgets: ArrayLike, rng: Randomness) -> ExploringTracker:
        """Starts `N` episodes."""
        return ExploringTracker(self, budgets, episode_streams(rng, states))


@checked
class ExploringTracker(EpisodeTracker[ExploringPolicy]):
    """Episodes under an `ExploringPolicy`."""

    def __init__(
        self, policy: ExploringPolicy, budgets: ArrayLike, streams: EpisodeStreams
    ) -> None:
        """Starts one episode for each stream."""
        self._held: IntArray = np.zeros(len(streams), np.int64)
        self._left: IntArray = np.zeros(len(streams), np.int64)  # steps for which it is still held
        super().__init__(policy, budgets, streams)

    def _decide(self, states: NDArray[Any]) -> Decisions:
        policy, going = self._policy, ~self._ended
        greedy = policy.greedy.at_step(self._step)
        n_greedy, n_random = greedy.n_draws, policy.explorer.n_draws
        uniforms = self._streams.uniforms(self._step, 2 + n_greedy + n_random)
        if self._available is not None:
            last = self._available.shape[1] - 1
            is_there = self._available[np.arange(len(going)), np.minimum(self._held, last)]
            self._left[~is_there | (self._held > last)] = 0
        holds = going & (self._left > 0)
        epsilon = policy.epsilon(self._streams.episodes, self._step)
        explores = going & ~holds & (uniforms[:, 0] < epsilon)
        decision = idle_decisions(self._budgets)
        for part, rows, draws in (
            (greedy, going & ~holds & ~explores, uniforms[:, 2 : 2 + n_greedy]),
            (policy.explorer, explores, uniforms[:, 2 + n_greedy :]),
        ):
            if rows.any():
                masks = rows_at(self._available, rows)
                chosen = part.decide_from(states[rows], self._budgets[rows], draws[rows], masks)
                for column, values in zip(decision, chosen, strict=True):
                    column[rows] = values
        decision.action[holds] = self._held[holds]
        self._held[explores] = decision.action[explores]
        self._left[holds] -= 1
        n_steps = np.floor(uniforms[:, 1] * policy.hold).astype(np.int64)
        self._left[explores] = n_steps[explores]
        self._move(decision.next_budget, going)
        return decision

    def _move(self, next_budgets: FloatArray, going: BoolArray) -> None:
        """Draws some of the next budgets anew, or sets all of them to the top."""
        low, high = self._policy.budget_range
        if self._policy.at_top:
            next_budgets[going] = high
            return
        if self._policy.move == 0:
            return
        draws = self._streams.child("move").uniforms(self._step, 2)
        moved = going & (draws[:, 0] < self._policy.move)
        next_budgets[moved] = low + (high - low) * draws[moved, 1]

    def _own_state(self) -> dict[str, Any]:
        return {"left": self._left.tolist(), "held": self._held.tolist()}

    def _take_over(self, kept: StateReader) -> None:
        shape = (len(self._streams),)
        n_actions = getattr(self._policy.explorer, "n_actions", LARGEST + 1)
        self._left = kept.whole_numbers("left", shape, 0, self._policy.hold)
        self._held = kept.whole_numbers("held", shape, 0, n_actions - 1)

    def _observe(self, costs: FloatArray, next_states: NDArray[Any], ended: BoolArray) -> None:
        """Does nothing."""
