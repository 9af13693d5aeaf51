"""The nature of a log: what its states are, how its episodes end, and which prices matter.

Everything here is read off the data, and none of it changes with the unit of rewards, costs or
states.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bmdp.arrays import FloatArray, IntArray
from bmdp.data import TransitionBatch
from bmdp.data.checks import MASKS
from bmdp.data.episodes import counted_steps, numbered_by_ends, rows_follow
from bmdp.errors import DataError
from bmdp.learn.fit import Backward, Iterations, Schedule, require_steps, told_by_step
from bmdp.learn.rows import equal_rows
from bmdp.models.regressor import with_clock
from bmdp.randomness import named_generator

MOST_STEPS = 60
"""Steps of an episode that have models of their own, at most; longer ones show the step."""

_MOST_STATES = 50_000  # states that are few
_LEFT = 5e-4  # discount after the last iteration
_NOTHING = 0.003  # share of the range of costs that is not worth saving
_CLOSE = 0.02  # logarithms of prices that are the same
_MOST_CELLS = 50_000  # of tables with a model for each step
_LEAST_ROWS = 5  # rows of each of them, on average
_LEAST_ENDS = 0.1  # share of episodes that reach the last step, where there is a last step
_ENDS = 0.5  # share of episodes that end at the last step by themselves, if that is their end
_MATTERS = 0.2  # discount of what follows the last step, from which on it is not the end of all
_COPIED = 20  # different episodes from which on it is no chance that all are there equally often
_RARE = 10  # times that an action was taken, below which little is known of it
_LEAST_KNOWN = 3  # rows for each number of a state, below which little is known of it


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
        if self.n_steps == 1:
            return "episodes of one step"
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
        columns: dict[str, Any] = batch.to_arrays()
        columns["state"] = self.shown_states(batch.state, batch.step)
        columns["next_state"] = self.shown_states(batch.next_state, batch.step + 1)
        return _with_columns(batch, columns, None)

    def shown_states(self, states: NDArray[Any], steps: IntArray | int) -> NDArray[Any]:
        """States `[N, D]` at steps, with the step as one more number if the model is to see it."""
        return with_clock(states, steps, self.clock) if self.clock else states


def completed(batch: TransitionBatch) -> TransitionBatch:
    """Returns a batch with episodes and steps, as far as its rows tell them, in a fixed order.

    The order is drawn by what rows say. Neither the order in which they came nor the numbers of
    episodes and actions have a part in it, nor units. If every episode is there several times, the
    log was copied, and each is taken once.

    >>> log = TransitionBatch([0, 1, 5], [0, 1, 1], [1, 2, 3], [0, 0, 1], [1, 2, 6], [0, 1, 1])
    >>> found = completed(log)
    >>> sorted(zip(found.state[:, 0].tolist(), found.step.tolist()))
    [(0.0, 0), (1.0, 1), (5.0, 0)]
    """
    columns = dict(batch.to_arrays())
    ended = columns["terminal"] | columns.get("truncated", np.zeros(len(batch), np.bool_))
    if "step" in columns:
        columns["step"] = columns["step"] - columns["step"].min()  # some count from 1
    if "episode" not in columns:
        numbers = numbered_by_ends(ended, columns.get("step"))
        is_counted = _counts_rows(columns["step"], numbers) if "step" in columns else False
        if is_counted or rows_follow(columns["state"], columns["next_state"], numbers):
            columns["episode"] = numbers
    if "step" not in columns and "episode" in columns:
        told = columns["state"], columns["next_state"], ended, columns["episode"]
        steps = counted_steps(*told)
        if steps is not None:
            columns["step"] = steps
    order, episodes = _fixed_order(columns)
    columns = {name: values[order] for name, values in columns.items()}
    if episodes is not None:
        columns["episode"] = episodes
    return _with_columns(batch, columns, batch.state_names)


def _counts_rows(step: IntArray, episode: IntArray) -> bool:
    """Whether steps go up by one from 0 on, in each of the episodes."""
    begins = np.append(True, episode[1:] != episode[:-1])
    follows = np.append(False, step[1:] == step[:-1] + 1)
    return bool(np.where(begins, step == 0, follows).all())


def _fixed_order(columns: dict[str, NDArray[Any]]) -> tuple[IntArray, IntArray | None]:
    """Rows in an order that is drawn by what they say, and their episodes, numbered anew."""
    kind = _kinds(_telling(columns))
    rng = named_generator(0, "natures/order")
    if "episode" not in columns:
        order: IntArray = np.argsort(kind, kind="stable")
        return order[rng.permutation(len(order))], None
    rows = np.lexsort((kind, columns.get("step", np.zeros(len(kind))), columns["episode"]))
    number = columns["episode"][rows]
    first = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
    length = np.diff(np.append(first, len(rows)))
    of_episode = _kinds(
        np.where(length > t, kind[rows[np.minimum(first + t, len(rows) - 1)]], -1)
        for t in range(int(length.max()))
    )
    _, counts = np.unique(of_episode, return_counts=True)
    n_copies = int(np.gcd.reduce(counts)) if len(counts) >= _COPIED else 1
    episodes = np.argsort(of_episode, kind="stable")[::n_copies]
    episodes = episodes[rng.permutation(len(episodes))]
    length = length[episodes]
    ends = np.cumsum(length)
    within = np.arange(ends[-1]) - np.repeat(ends - length, length)
    chosen: IntArray = rows[np.repeat(first[episodes], length) + within]
    return chosen, np.repeat(np.arange(len(episodes)), length)


def _telling(columns: dict[str, NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Columns `[N]` by which rows are told apart, those that differ most likely first."""
    yield from columns["state"].T
    yield from (columns["reward"], columns["cost"], columns["terminal"])
    yield from columns["next_state"].T
    yield _described(columns)[columns["action"]]
    for name in ("step", "truncated", "budget", "next_budget", "probability"):
        if name in columns:
            yield columns[name]
    for name in MASKS:
        if name in columns:
            yield columns[name].sum(axis=1)


def _described(columns: dict[str, NDArray[Any]]) -> IntArray:
    """Numbers of actions `[A]` by how often they were taken, and what they earned and cost."""
    action = columns["action"]
    told = np.zeros((int(action.max()) + 1, 3))
    for number in np.unique(action):
        own = action == number
        sums = (np.sort(columns[name][own]).sum() for name in ("reward", "cost"))
        told[number] = np.count_nonzero(own), *sums
    return _kinds(told.T)


def _kinds(columns: Iterable[NDArray[Any]]) -> IntArray:
    """Numbers `[N]` of equal rows, which rise as rows do, the first column counting most."""
    kind: IntArray = np.zeros(0, np.int64)
    for column in columns:
        kind = kind if len(kind) else np.zeros(len(column), np.int64)
        order = np.lexsort((column, kind))
        differs = (np.diff(column[order]) != 0) | (np.diff(kind[order]) != 0)
        kind = np.empty_like(kind)
        kind[order] = np.append(0, np.cumsum(differs))
        if kind[order[-1]] == len(kind) - 1:
            break
    return kind


def cautions(
    batch: TransitionBatch, whole: TransitionBatch, gamma: float, cost_gamma: float | None = None
) -> Iterator[str]:
    """Warnings about a log, in plain words.

    Args:
        batch: as it was given.
        whole: the same, completed.
        gamma: discount.
        cost_gamma: discount of costs, if it is another one.
    """
    if len(whole) < len(batch):
        yield f"every episode is there {len(batch) // len(whole)} times: each was taken once"
    if np.ptp(batch.state, axis=0).max(initial=0) == 0 and len(batch) > 1:
        yield "all states are the same: a decision depends on the budget alone"
    if whole.episode is not None and whole.episode[-1] + 1 == len(whole) > 1:
        yield "every episode has one row: what is done has no part in what comes later"
    counts = np.bincount(batch.action, minlength=batch.n_actions)
    rare = np.count_nonzero((counts > 0) & (counts < _RARE))
    if rare:
        yield (
            f"{rare} of {batch.n_actions} actions were taken less than {_RARE} times: little is "
            "known of what follows"
        )
    n_numbers = np.count_nonzero(np.ptp(batch.state, axis=0))
    if len(batch) < _LEAST_KNOWN * n_numbers:
        yield (
            f"{len(batch):,} transitions are few for states of {n_numbers:,} numbers: which of "
            "them matter is not known"
        )
    slowest = gamma if cost_gamma is None else max(gamma, cost_gamma)
    if slowest == 1 and not batch.terminal.any():
        nature = nature_of(whole, gamma, cost_gamma=cost_gamma)
        if nature.n_steps is None:
            n = nature.clock or Iterations().most(1.0)
            name = "gamma" if gamma == 1 else "cost_gamma"
            yield (
                f"no episode ends and {name} is 1, so costs and rewards add up for ever: they are "
                f"counted for {n} steps. Give a {name} below 1"
            )


def _with_columns(
    batch: TransitionBatch, columns: dict[str, Any], names: tuple[str, ...] | None
) -> TransitionBatch:
    return TransitionBatch(**columns, n_actions=batch.n_actions, state_names=names)


def nature_of(
    batch: TransitionBatch,
    gamma: float,
    n_steps: int | None = None,
    cost_gamma: float | None = None,
) -> Nature:
    """Returns what the states are, and how episodes end.

    A last step is one that a tenth of the episodes reach and none goes beyond. If they are cut off
    there, that is their end where what would follow still counts, by the discount. With two
    discounts a reward counts less, or more, against a cost at each step, so models are of a step,
    or are shown it, whether episodes have a last step or not.

    Args:
        batch: transitions, whose episodes and steps are `completed`.
        gamma: discount.
        n_steps: of the longest episode, if the batch is a sample of a larger log.
        cost_gamma: discount of costs, if it is another one.

    Raises:
        DataError: if there are two discounts, and steps are not known.
    """
    cost_gamma = gamma if cost_gamma is None else cost_gamma
    found = _nature_of(batch, max(gamma, cost_gamma), n_steps)
    if cost_gamma == gamma or found.n_steps is not None:
        return found
    if batch.step is None:
        raise DataError(
            f"cost_gamma other than gamma ({cost_gamma:g}, {gamma:g}) needs a log whose steps are "
            "known: a price means another thing at each. Give columns episode and step."
        )
    if n_steps is None:
        require_steps(batch.step)
        n_steps = int(batch.step.max()) + 1
    n_cells = found.n_states or np.inf
    if n_steps <= MOST_STEPS or n_cells * n_steps <= _MOST_CELLS:
        return Nature(found.n_states, n_steps, 0, Backward("shared"))
    traces = found.n_states is None
    return Nature(found.n_states, None, n_steps, Iterations(n_steps + 1, traces=traces))


def _nature_of(batch: TransitionBatch, gamma: float, n_steps: int | None) -> Nature:
    """The same for one discount."""
    n_states = _few_states(batch.state)
    traces = n_states is None  # cells of a table blur nothing, and are quick
    endless = Iterations(traces=traces)
    if 0 < gamma < 1:
        endless = Iterations(math.ceil(math.log(_LEFT) / math.log(gamma)), traces=traces)
    if batch.step is None:
        return Nature(n_states, None, 0, endless)
    n_steps = int(batch.step.max()) + 1 if n_steps is None else n_steps
    is_last = batch.step == n_steps - 1
    ends = batch.terminal | (False if batch.truncated is None else batch.truncated)
    n_episodes = np.count_nonzero(batch.step == 0)
    is_end = ends[is_last].all() and is_last.sum() >= max(10, _LEAST_ENDS * n_episodes)
    is_cut = is_end and batch.terminal[is_last].mean() < _ENDS
    if not is_end or (is_cut and gamma**n_steps <= _MATTERS):
        return Nature(n_states, None, 0, endless)
    if n_steps <= MOST_STEPS:
        return Nature(n_states, n_steps, 0, Backward())
    told = told_by_step(batch.state, batch.step)  # a clock, which is no part of a cell
    n_cells = _few_states(batch.state[:, ~told]) if told.any() else n_states
    if n_cells is not None and n_cells * n_steps <= _MOST_CELLS:
        return Nature(n_cells, n_steps, 0, Backward())
    return Nature(n_states, n_steps, n_steps, Iterations(n_steps + 1, traces=traces))


def _few_states(states: NDArray[Any]) -> int | None:
    """The number of different states, if each has several rows."""
    found = equal_rows(list(states.T))
    if found is None:
        return None
    n_states = len(found[0])
    return n_states if n_states <= min(_MOST_STATES, len(states) / _LEAST_ROWS) else None


def returns(batch: TransitionBatch, gamma: float, cost_gamma: float | None = None) -> FloatArray:
    """Discounted rewards and costs of each episode, `[N, 2]`, in the order of their numbers."""
    assert batch.episode is not None
    assert batch.step is not None
    _, which = np.unique(batch.episode, return_inverse=True)
    steps = batch.step.astype(np.float64)
    both = (gamma, batch.reward), (gamma if cost_gamma is None else cost_gamma, batch.cost)
    return np.column_stack([np.bincount(which, g**steps * paid) for g, paid in both])


Ends = tuple[float, float]
"""Reward and cost."""


def extremes_to_go(
    batch: TransitionBatch, gamma: float, cost_gamma: float | None = None
) -> tuple[Ends, Ends]:
    """The worst and the best reward and cost from a row to the end of its episode, discounted.

    Where episodes are not known they are those of a row, for ever.

    >>> rows = {"episode": [0, 0], "step": [0, 1]}
    >>> log = TransitionBatch([0, 1], [0, 0], [1, 2], [1, 4], [1, 2], [False, True], **rows)
    >>> extremes_to_go(log, 0.5)
    ((2.0, 4.0), (2.0, 3.0))
    """
    paid = np.column_stack((batch.reward, batch.cost)).astype(np.float64)
    discounts = np.array((gamma, gamma if cost_gamma is None else cost_gamma))
    if batch.episode is None or batch.step is None:
        found = paid / np.where(discounts < 1, 1 - discounts, 1.0)
    else:
        order = np.lexsort((-batch.step, batch.episode))  # the last step of each comes first
        begins = np.append(True, np.diff(batch.episode[order]) != 0)
        found = _summed(paid[order], begins, discounts)
    (low_r, low_c), (high_r, high_c) = found.min(axis=0).tolist(), found.max(axis=0).tolist()
    return (low_r, high_c), (high_r, low_c)


@njit(cache=True)
def _summed(paid, begins, discounts):  # type: ignore[no-untyped-def]
    """Discounted sums of rows `[N, 2]`, of which each follows in time the one below it."""
    found = paid.copy()
    for i in range(1, len(paid)):
        if not begins[i]:
            found[i] += discounts * found[i - 1]
    return found


def first_prices(
    batch: TransitionBatch, gamma: float, n: int, cost_gamma: float | None = None
) -> FloatArray:
    """Prices that are spread widely around the deviation of rewards over that of costs, falling.

    Both are of episodes, where these are known. Where costs do not vary the only price is 0. Where
    rewards do not, prices are of their size; where there are none, any price above 0 saves.
    """
    found = np.column_stack((batch.reward, batch.cost))
    if batch.episode is not None and batch.step is not None:
        found = returns(batch, gamma, cost_gamma)
    deviation, largest = found.std(axis=0), np.abs(found).max(axis=0, initial=0)
    varies = deviation > 1e-9 * largest
    if not varies[1]:
        return np.zeros(1)
    ratio = float((deviation[0] if varies[0] else largest[0] or 1.0) / deviation[1])
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
