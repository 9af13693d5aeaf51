"""The nature of a log: what its states are, how its episodes end, and which prices matter.

Everything here is read off the data, and none of it changes with the unit of rewards, costs or
states.
"""

from __future__ import annotations

import math
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
_LEFT = 5e-4  # discount after the last iteration
_NOTHING = 0.003  # share of the range of costs that is not worth saving
_CLOSE = 0.02  # logarithms of prices that are the same
_MOST_CELLS = 50_000  # of tables with a model for each step
_LEAST_ROWS = 5  # rows of each of them, on average
_LEAST_ENDS = 0.1  # share of episodes that reach the last step, where there is a last step
_MATTERS = 0.2  # discount of what follows the last step, from which on it is not the end of all


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
        return _with_columns(batch, columns, batch.state_names)

    def shown(self, batch: TransitionBatch) -> TransitionBatch:
        """Returns a batch whose states show the step, if the model is to see it."""
        if self.clock == 0:
            return batch
        assert batch.step is not None
        columns = batch.to_arrays()
        columns["state"] = self.shown_states(batch.state, batch.step)
        columns["next_state"] = self.shown_states(batch.next_state, batch.step + 1)
        return _with_columns(batch, columns, None)

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
    return _with_columns(batch, columns, batch.state_names)


def _with_columns(
    batch: TransitionBatch, columns: dict[str, Any], names: tuple[str, ...] | None
) -> TransitionBatch:
    return TransitionBatch(**columns, n_actions=batch.n_actions, state_names=names)


def nature_of(batch: TransitionBatch, gamma: float) -> Nature:
    """Returns what the states are, and how episodes end.

    A last step is one that a tenth of the episodes reach and none goes beyond. If they are cut off
    there, that is their end where what would follow still counts, by the discount.
    """
    n_states = _few_states(batch.state)
    endless = Iterations()
    if 0 < gamma < 1:
        endless = Iterations(math.ceil(math.log(_LEFT) / math.log(gamma)))
    if batch.step is None:
        return Nature(n_states, None, 0, endless)
    n_steps = int(batch.step.max()) + 1
    is_last = batch.step == n_steps - 1
    ends = batch.terminal | (False if batch.truncated is None else batch.truncated)
    n_episodes = np.count_nonzero(batch.step == 0)
    is_end = ends[is_last].all() and is_last.sum() >= max(10, _LEAST_ENDS * n_episodes)
    is_cut = not batch.terminal[is_last].any()
    if not is_end or (is_cut and gamma**n_steps <= _MATTERS):
        return Nature(n_states, None, 0, endless)
    if n_steps <= MOST_STEPS or (n_states or np.inf) * n_steps <= _MOST_CELLS:
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


def first_prices(batch: TransitionBatch, gamma: float, n: int) -> FloatArray:
    """Prices that are spread widely around the deviation of rewards over that of costs, falling.

    Both are of episodes, where these are known. Where nothing varies the only price is 0.
    """
    found = np.column_stack((batch.reward, batch.cost))
    if batch.episode is not None and batch.step is not None:
        found = returns(batch, gamma)
    reward, cost = found.std(axis=0) > 1e-9 * np.abs(found).max(axis=0, initial=0)
    if not (reward and cost):
        return np.zeros(1)
    ratio = float(found[:, 0].std() / found[:, 1].std())
    return np.append(ratio * np.geomspace(1e3, 1e-3, n - 1), 0.0)


def refined_prices(prices: FloatArray, costs: FloatArray, n: int) -> FloatArray:
    """Places prices where cost changes with them, falling, the last one 0.

    Costs that are spread evenly have prices between those that were tried, as if cost were a line
    in the logarithm of the price. The first price is the least one of the least cost, give or take
    next to nothing: to save that, a higher one would throw away what pays.

    Args:
        prices: that were tried, falling, the last one 0.
        costs: that they are thought to have.
        n: number of prices, at most.

    >>> prices = np.array([1e4, 100.0, 1.0, 0.0])
    >>> refined_prices(prices, np.array([0, 0, 2, 2]), 4).round(3).tolist()
    [100.0, 10.0, 1.0, 0.0]
    """
    rising = np.maximum.accumulate(np.asarray(costs, np.float64))
    if rising[-1] <= rising[0]:
        return prices
    nothing = rising[0] + _NOTHING * (rising[-1] - rising[0])
    first = int(np.flatnonzero(rising <= nothing)[-1])
    logs = np.log(np.maximum(prices, prices[-2] / 10))[first:]
    levels = np.linspace(rising[first], rising[-1], n - 1)
    places = np.interp(levels, _strictly(rising[first:]), logs)
    apart = [float(places[0])]
    for place in places[1:]:
        if apart[-1] - place > _CLOSE:
            apart.append(float(place))
    return np.append(np.exp(apart), 0.0)


def _strictly(values: FloatArray) -> FloatArray:
    """Values that rise, where they do not, by next to nothing."""
    found: FloatArray = values + np.arange(len(values)) * 1e-9 * np.ptp(values)
    return found


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
