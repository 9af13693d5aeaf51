"""Transitions as a fit reads them: all of a batch, or a chunk of a log.

Here is everything that stays the same from iteration to iteration: rows in the units of the fit,
next states as the regressor reads them, and which actions may be played there. Equal rows, and
equal next states, are worked on once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bmdp.arrays import BoolArray, FloatArray, IntArray, rows_at
from bmdp.data import TransitionBatch
from bmdp.errors import DataError
from bmdp.models.regressor import QModel, RowSet, cover

_CHUNK = 16_384  # next states that are valued at a time
_GPU_CHUNK = 131_072  # the same on a GPU, which is slow at small things
_N_COLUMNS = 8  # after which rows are looked at whether many are equal


class Values(NamedTuple):
    """Values of next states, and how many of their budgets were infeasible."""

    values: Tensor  # [n, L, 2], of (V_r, V_c), in scaled units
    n_infeasible: int = 0  # of n * L
    actions: Tensor | None = None  # [n, L], the best ones, where one action is played


class Worth(Protocol):
    """Values next states, given what models say of them."""

    def __call__(self, values: Tensor, known: Tensor, asked: Tensor, part: slice) -> Values:
        """Returns values of the states of a part.

        Args:
            values: `[E, n, 2, A, H]`.
            known: `[n, A]`, actions that may be played.
            asked: heads `[H]`, or labels `[n, L]`.
            part: of the states.
        """


@dataclass(frozen=True, eq=False)
class Rows:
    """Transitions as models are fitted to them; equal ones are one row that weighs their number."""

    states: NDArray[Any]  # [N, D], as the model sees them
    actions: IntArray  # [N]
    rewards: FloatArray  # [N], scaled; means of equal rows
    costs: FloatArray  # [N]
    next_states: NDArray[Any]  # [N, D], all their numbers
    terminal: BoolArray  # [N]
    is_last: BoolArray | None  # [N], of the last step, where steps have models of their own
    members: BoolArray  # [E, N]
    budgets: FloatArray | None = None  # [N], held in the log
    weights: FloatArray | None = None  # [N]
    next_available: BoolArray | None = None  # [N, A], actions at next states, if not all

    def merged(self, columns: IntArray, *, is_part: bool = False) -> Rows:
        """Returns the same with equal rows as one, where that halves their number.

        Args:
            columns: numbers of a next state that matter.
            is_part: whether there are other rows, which keep their own numbers.
        """
        going = ~self.terminal
        flags = self.terminal if self.is_last is None else self.terminal + 2 * self.is_last
        following = [np.where(going, self.next_states[:, c], 0) for c in columns]
        following += _columns(self.next_available)
        keys = (self.actions, flags, *self.members, *self.states.T, *following)
        found = equal_rows(keys)
        if found is None:
            return self
        first, which = found
        counts = np.bincount(which)
        # A log that was copied several times over is that log.
        n_copies = 1 if is_part else np.gcd.reduce(counts)
        weights = (counts // n_copies).astype(np.float64)
        rewards, costs = (np.bincount(which, c) / counts for c in (self.rewards, self.costs))
        return Rows(
            states=np.asfortranarray(self.states[first]),  # as it was: sums are rounded alike
            actions=self.actions[first],
            rewards=rewards,
            costs=costs,
            next_states=self.next_states[first],
            terminal=self.terminal[first],
            is_last=None if self.is_last is None else self.is_last[first],
            members=self.members[:, first],
            weights=None if (weights == 1).all() else weights,
            next_available=rows_at(self.next_available, first),
        )

    def outcomes(self, columns: IntArray) -> FloatArray:
        """Outcomes `[N, 3 + D]`: reward, cost, whether it was the end, change of the state.

        The last of a known number of steps is no end that a state could tell of. After an end there
        is no state, and the change is the mean of all.
        """
        is_end = self.terminal if self.is_last is None else self.terminal & ~self.is_last
        change = self.next_states[:, columns] - self.states
        going = ~self.terminal
        if not going.all():
            weights = None if self.weights is None else self.weights[going]
            some = change[going]
            change[~going] = np.average(some, axis=0, weights=weights) if len(some) else 0.0
        return np.column_stack((self.rewards, self.costs, is_end, change))


class Look(NamedTuple):
    """Some states, as the regressor reads them."""

    embedded: Tensor
    known: Tensor  # [n, A], actions that may be played there


class SetRows(NamedTuple):
    """A set of rows, with all that every iteration needs of it."""

    rows: RowSet
    paid: Tensor  # [n, 1, 2], rewards and costs
    going: Tensor  # [m], rows that are not terminal


class NextStates(NamedTuple):
    """Next states of the rows of a set that go on, each once where many are the same."""

    states: NDArray[Any]  # [n, D], all numbers
    embedded: Tensor  # as the regressor reads them
    known: Tensor  # [n, A], actions that may be played there
    which: Tensor | None  # [m], which of them follows each row; None if each has its own
    available: BoolArray | None = None  # [n, A], actions that there are, if not all


class Log(Protocol):
    """Transitions in chunks of whole episodes."""

    @property
    def n_chunks(self) -> int:
        """Number of chunks."""

    @property
    def largest(self) -> tuple[float, float]:
        """Largest magnitudes of a reward and of a cost."""

    @property
    def counts(self) -> Any:
        """Number of times that each action was taken, `[A]`."""

    @property
    def least_cost(self) -> float:
        """The least cost of a row."""

    def __len__(self) -> int:
        """Number of rows."""

    def chunk(self, number: int) -> TransitionBatch:
        """Returns the transitions of a chunk."""


class Reader(Protocol):
    """Reads states: a fit."""

    q: QModel
    device: torch.device
    columns: IntArray
    n_choosing: int

    def look(self, states: NDArray[Any], available: BoolArray | None) -> Look:
        """States as the regressor reads them, and actions that may be played there."""


class Portion:
    """Some transitions, with all that every iteration needs of them."""

    def __init__(self, fit: Reader, batch: TransitionBatch, rows: Rows, *, traces: bool) -> None:
        """Takes rows of a batch."""
        self._fit, self.held, self.is_merged = fit, rows, len(rows.actions) < len(batch)
        self._sets: dict[str, SetRows] = {}
        self._next: dict[str, NextStates] = {}
        device = fit.device
        follows = self._followed(batch) if traces else None
        self.follows = None if follows is None else torch.from_numpy(follows).to(device)
        self.next_actions = torch.tensor(np.roll(rows.actions, -1), device=device)

    def rows(self, name: str) -> SetRows:
        """A set of rows: "all", "last" of the last step, "others" of those before."""
        if name not in self._sets:
            self._sets[name] = self._set_rows(name)
        return self._sets[name]

    def _set_rows(self, name: str) -> SetRows:
        positions = np.arange(len(self.held.actions))
        if name != "all":
            assert self.held.is_last is not None
            positions = positions[self.held.is_last == (name == "last")]
        paid = np.stack((self.held.rewards[positions], self.held.costs[positions]), axis=-1)
        going = np.flatnonzero(~self.held.terminal[positions])
        return SetRows(
            RowSet(name, positions),
            torch.tensor(paid[:, None], dtype=torch.float32, device=self._fit.device),
            torch.from_numpy(going).to(self._fit.device),
        )

    def require_members(self, name: str) -> None:
        """Checks that every model of the ensemble has rows of a set.

        Raises:
            DataError: if not.
        """
        positions = self.rows(name).rows.positions
        if name != "all" and not all(mask[positions].any() for mask in self.held.members):
            raise DataError(
                f"every model of the ensemble needs rows; the {name} step"
                f"{'' if name == 'last' else 's'} have {len(positions)} transitions."
            )

    def next_states(self, own: SetRows, *, one_each: bool = False) -> NextStates:
        """Next states of the rows of a set that go on."""
        name, positions = own.rows
        if name not in self._next:
            held, columns = self.held, self._fit.columns
            going = positions[own.going.cpu().numpy()]
            states, which = held.next_states[going], None
            available = rows_at(held.next_available, going)
            # A row that stands for several has one of their clocks.
            seen = states[:, columns] if self.is_merged else states
            found = None if one_each else equal_rows([*seen.T, *_columns(available)])
            if found is not None:
                states, which = states[found[0]], torch.from_numpy(found[1]).to(self._fit.device)
                available = rows_at(available, found[0])
            look = self._fit.look(states, available)
            self._next[name] = NextStates(states, *look, which, available)
        return self._next[name]

    def _followed(self, batch: TransitionBatch) -> BoolArray | None:
        """Whether the next row of the batch goes on from each row, `[N]`."""
        if self.is_merged or batch.episode is None or batch.step is None:
            return None
        follows = np.zeros(len(batch), np.bool_)
        follows[:-1] = (
            (batch.episode[1:] == batch.episode[:-1])
            & (batch.step[1:] == batch.step[:-1] + 1)
            & ~batch.terminal[:-1]
            & (batch.next_state[:-1] == batch.state[1:]).all(axis=1)
        )
        return follows


def valued(
    fit: Reader, source: int, states: NextStates, value: Worth, asked: Tensor
) -> tuple[Values, tuple[float, float]]:
    """Values of next states by the models of a step, one for each row, and seconds of two parts.

    Args:
        fit: that reads.
        source: the step.
        states: that are valued.
        value: what a state is worth, given what models say of it.
        asked: heads `[H]`, or labels `[m, L]` of the rows.
    """
    found, chosen, n_infeasible, forward, frontier = [], [], 0, 0.0, 0.0
    size = _GPU_CHUNK if fit.device.type == "cuda" else _CHUNK
    for part in cover(len(states.embedded), size):
        at = time.perf_counter()
        values = fit.q.read(states.embedded[part], source, slice(fit.n_choosing))
        wait(fit.device)
        forward, at = forward + time.perf_counter() - at, time.perf_counter()
        of_part = asked if asked.ndim == 1 else asked[part]
        valued = value(values, states.known[part], of_part, part)
        found.append(valued.values)
        if valued.actions is not None:
            chosen.append(valued.actions)
        n_infeasible += valued.n_infeasible
        wait(fit.device)
        frontier += time.perf_counter() - at
    joined = torch.cat(found) if len(found) > 1 else found[0]
    actions = torch.cat(chosen) if chosen else None
    if states.which is not None:
        n_infeasible = n_infeasible * len(states.which) // len(joined)
        joined = joined[states.which]
        actions = None if actions is None else actions[states.which]
    return Values(joined, n_infeasible, actions), (forward, frontier)


def on_device(states: NDArray[Any], device: torch.device) -> Tensor:
    """States `[n, D]` on a device, float64; they go there as they are."""
    held = states if states.flags.writeable else states.copy()
    return torch.from_numpy(np.ascontiguousarray(held)).to(device).double()


def wait(device: torch.device) -> None:
    """Waits for the GPU, so that seconds are told apart."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _columns(mask: BoolArray | None) -> list[BoolArray]:
    """Columns of a mask, if there is one."""
    return [] if mask is None else list(mask.T)


def equal_rows(columns: Sequence[NDArray[Any]]) -> tuple[IntArray, IntArray] | None:
    """Finds equal rows of columns `[N]`: the first of each kind, and the kind of each row.

    Rows are compared by sums of 64 bits over their numbers, and then by the numbers themselves. It
    looks at few columns where these tell that most rows differ.

    Returns:
        Positions of the first rows of their kind, rising, and kinds `[N]`; None where there are
        more kinds than half the rows, or no columns.

    >>> [array.tolist() for array in equal_rows([np.array([5, 3, 5, 3])])]
    [[0, 1], [0, 1, 0, 1]]
    >>> equal_rows([np.array([5, 3, 5])])
    """
    if not columns:
        return None
    n, sums = len(columns[0]), np.zeros(len(columns[0]), np.uint64)
    for number, column in enumerate(columns):
        bits = (np.asarray(column, np.float64) + 0.0).view(np.uint64)  # -0 becomes 0
        sums = (sums ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        sums ^= sums >> np.uint64(29)
        is_look = number % _N_COLUMNS == _N_COLUMNS - 1 and number + 1 < len(columns)
        if is_look and 2 * len(np.unique(sums)) > n:
            return None
    _, first, which = np.unique(sums, return_index=True, return_inverse=True)
    if 2 * len(first) > n:
        return None
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    first, which = first[order], place[which.ravel()]
    if not all(np.array_equal(column[first][which], column) for column in columns):
        return None  # two different rows have the same sum
    return first, which
