"""The nature of a log: what its states are, how its episodes end, and which prices matter.

Everything here is read off the data, and none of it changes with the unit of rewards, costs or
states.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import FloatArray, IntArray
from bmdp.data import TransitionBatch
from bmdp.data.episodes import in_order, numbered_by_ends, rows_follow
from bmdp.learn.fit import Backward, Iterations, Schedule
from bmdp.models.regressor import with_clock

MOST_STEPS = 60
"""Steps of an episode that have models of their own, at most; longer ones show the step."""

_MOST_STATES = 5_000  # states that are few
_LEAST_ROWS = 5  # rows of each of them, on average
_LEAST_ENDS = 0.1  # share of episodes that reach the last step, where there is a last step
_MATTERS = 0.05  # discount of what follows the last step, from which on it is not the end of all


@dataclass(frozen=True)
class Nature:
    """States and episodes of a log, in words and numbers."""

    n_states: int | None  # different ones, if they are few
    n_steps: int | None  # of an episode, where all end there at the latest
    clock: int  # steps that are shown to the model as a number; 0 if none are
    schedule: Schedule

    @property
    def states(self) -> str:
        """The states in words."""
        if self.n_states is None:
            return "numbers"
        return f"{self.n_states:,} different states"

    @property
    def horizon(self) -> str:
        """The episodes in words."""
        if self.n_steps is None:
            return "episodes without a last step"
        if self.clock:
            return f"episodes of {self.n_steps} steps, the step being shown to the model"
        return f"episodes of {self.n_steps} steps, each with a model of its own"

    def ended(self, batch: TransitionBatch) -> TransitionBatch:
        """Returns a batch whose episodes end at the last step, those that are cut off, too."""
        if self.n_steps is None or batch.truncated is None:
            return batch
        columns = batch.to_arrays()
        is_cut = columns["truncated"] & (columns["step"] == self.n_steps - 1)
        columns["terminal"] = columns["terminal"] | is_cut
        columns["truncated"] = columns["truncated"] & ~is_cut
        return _with_columns(batch, columns)

    def shown(self, batch: TransitionBatch) -> TransitionBatch:
        """Returns a batch whose states show the step, if the model is to see it."""
        if self.clock == 0:
            return batch
        assert batch.step is not None
        columns = batch.to_arrays()
        columns["state"] = self.shown_states(batch.state, batch.step)
        columns["next_state"] = self.shown_states(batch.next_state, batch.step + 1)
        return TransitionBatch(**columns, n_actions=batch.n_actions)

    def shown_states(self, states: NDArray[Any], steps: IntArray | int) -> NDArray[Any]:
        """States `[N, D]` at steps, with the step as one more number if the model is to see it."""
        return with_clock(states, steps, self.clock) if self.clock else states


def completed(batch: TransitionBatch) -> TransitionBatch:
    """Returns a batch with episodes and steps, as far as its rows tell them."""
    columns = batch.to_arrays()
    if "episode" not in columns:
        if "step" in columns:
            columns["episode"] = np.cumsum(columns["step"] == 0)
        else:
            ended = columns["terminal"] | columns.get("truncated", np.zeros(len(batch), np.bool_))
            numbers = numbered_by_ends(ended)
            if not rows_follow(columns["state"], columns["next_state"], numbers):
                return batch
            columns["episode"] = numbers
    if "step" not in columns:
        order = in_order(columns["episode"], None)
        numbers = columns["episode"][order]
        first = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
        length = np.diff(np.append(first, len(order)))
        steps = np.empty(len(order), np.int64)
        steps[order] = np.arange(len(order)) - np.repeat(first, length)
        columns["step"] = steps
    return _with_columns(batch, columns)


def _with_columns(batch: TransitionBatch, columns: dict[str, NDArray[Any]]) -> TransitionBatch:
    return TransitionBatch(**columns, n_actions=batch.n_actions, state_names=batch.state_names)


def nature_of(batch: TransitionBatch, gamma: float) -> Nature:
    """Returns what the states are, and how episodes end.

    A last step is one that a tenth of the episodes reach and none goes beyond. If they are cut off
    there, that is their end where what would follow still counts, by the discount.
    """
    n_states = _few_states(batch.state)
    if batch.step is None:
        return Nature(n_states, None, 0, Iterations())
    n_steps = int(batch.step.max()) + 1
    is_last = batch.step == n_steps - 1
    ends = batch.terminal | (False if batch.truncated is None else batch.truncated)
    n_episodes = np.count_nonzero(batch.step == 0)
    is_end = ends[is_last].all() and is_last.sum() >= max(10, _LEAST_ENDS * n_episodes)
    is_cut = not batch.terminal[is_last].any()
    if not is_end or (is_cut and gamma**n_steps <= _MATTERS):
        return Nature(n_states, None, 0, Iterations())
    if n_steps <= MOST_STEPS:
        return Nature(n_states, n_steps, 0, Backward())
    return Nature(n_states, n_steps, n_steps, Iterations(n_steps + 1))


def _few_states(states: NDArray[Any]) -> int | None:
    """The number of different states, if each has several rows."""
    some = states[:: max(1, len(states) // 2000)]
    if len(np.unique(some, axis=0)) > _MOST_STATES:
        return None
    n_states = len(np.unique(states, axis=0))
    return n_states if n_states <= min(_MOST_STATES, len(states) / _LEAST_ROWS) else None


def returns(batch: TransitionBatch, gamma: float) -> FloatArray:
    """Discounted rewards and costs of each episode, `[N, 2]`, in the order of their numbers."""
    assert batch.episode is not None
    assert batch.step is not None
    _, which = np.unique(batch.episode, return_inverse=True)
    discount = gamma ** batch.step.astype(np.float64)
    return np.column_stack(
        [np.bincount(which, discount * paid) for paid in (batch.reward, batch.cost)]
    )


def first_prices(batch: TransitionBatch, n: int) -> FloatArray:
    """Prices that are spread widely around the deviation of rewards over that of costs, falling."""
    ratio = float(batch.reward.std()) / max(float(batch.cost.std()), 1e-300)
    if not 0 < ratio < np.inf or batch.cost.std() == 0:
        return np.zeros(1)
    return np.append(ratio * np.geomspace(1e3, 1e-3, n - 1), 0.0)


def refined_prices(prices: FloatArray, costs: FloatArray, n: int) -> FloatArray:
    """Places prices where cost changes with them.

    Args:
        prices: that were tried, falling, the last one 0.
        costs: that they are thought to have.
        n: number of prices.

    Of two neighbours the widest gap of costs is halved, again and again, as if cost were a line in
    the logarithm of the price.

    >>> refined_prices(np.array([100.0, 1.0, 0.0]), np.array([0.0, 1.0, 1.0]), 4).round(6).tolist()
    [100.0, 10.0, 1.0, 0.0]
    """
    rising = np.maximum.accumulate(costs)
    width = max(float(rising[-1] - rising[0]), 1e-300)
    lowest = prices[prices > 0].min(initial=np.inf) / 10
    kept = [0]
    for i in range(1, len(prices)):  # one of those that cost the same is enough
        if rising[i] - rising[kept[-1]] > 1e-3 * width or i == len(prices) - 1:
            if i - 1 > kept[-1]:
                kept.append(i - 1)
            kept.append(i)
    places = sorted(set(kept))
    found = [(float(np.log(max(prices[i], lowest))), float(rising[i])) for i in places]
    while len(found) < n:
        gaps = [(b[1] - a[1]) if a[0] - b[0] > 0.02 else 0.0 for a, b in itertools.pairwise(found)]
        i = int(np.argmax(gaps))
        if gaps[i] <= 0:
            break
        (high, cheap), (low, dear) = found[i], found[i + 1]
        found.insert(i + 1, ((high + low) / 2, (cheap + dear) / 2))
    return np.append(np.exp([place for place, _ in found[:-1]]), 0.0)


def some_episodes(batch: TransitionBatch, most: int, rng: np.random.Generator) -> TransitionBatch:
    """Returns whole episodes of a batch, drawn at random, of about so many rows at most."""
    if len(batch) <= most:
        return batch
    episode = np.arange(len(batch)) if batch.episode is None else batch.episode
    names, which, counts = np.unique(episode, return_inverse=True, return_counts=True)
    order: IntArray = rng.permutation(len(names))
    chosen = order[np.cumsum(counts[order]) <= most]
    chosen = chosen if len(chosen) else order[:1]
    return batch.take(np.isin(which, chosen))
