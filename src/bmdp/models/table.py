"""Means of targets in a table, for states that repeat: exact on exhaustive data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numba import njit
from torch import Tensor

from bmdp.arrays import FloatArray, IntArray
from bmdp.errors import StoreError
from bmdp.kinds import checked
from bmdp.models.regressor import (
    Averager,
    Part,
    Problem,
    Sizes,
    Sum,
    register_regressor,
    weighed,
    whole,
)

_WHOLE = 2.0**53  # whole numbers below it are exact
_STEP = -7046029254386353131  # 2**64 over the golden ratio, and two multipliers of splitmix64
_FIRST, _SECOND = -4658895280553007687, -7723592293110705685


@checked
@register_regressor
@dataclass(frozen=True)
class TableModel:
    """A table of Q-values, each the mean of its targets, for states that are few.

    States are the same if all their numbers are, fractions in single precision. A state and action
    that never occur together are not played. A model of the ensemble that lacks a pair takes the
    mean of all models' rows; at a state that never occurs, the mean of the action.

    >>> from bmdp import BFTQ, BFTQConfig, TransitionBatch
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> config = BFTQConfig(gamma=0.9, model=TableModel(), ensemble=1)
    >>> frontier = BFTQ(config).fit(log, seed=0).frontier([0])
    >>> frontier.costs.round(6).tolist(), frontier.rewards.round(6).tolist()
    ([0.0, 1.0], [0.0, 10.0])
    """

    def empty(self, sizes: Sizes) -> TableQ:
        """Returns tables of 0."""
        return TableQ(self, sizes)


class TableQ(Averager):
    """Tables of means. The last cell is that of states which never occur."""

    common = frozenset({"cells", "seen"})
    weighs_rows = True

    cells: Tensor  # [S], keys of the states that occur, rising
    seen: Tensor  # [S + 1, A], which actions occur there
    table: Tensor  # [E, steps, S + 1, 2, A, H]

    def __init__(self, settings: TableModel, sizes: Sizes) -> None:
        super().__init__(settings, sizes)
        self._set_cells(torch.zeros(0, dtype=torch.int64))

    def _set_cells(self, cells: Tensor) -> None:
        n_members, n_steps, n_actions, _, heads = self.sizes
        shape = (n_members, n_steps, len(cells) + 1, 2, n_actions, len(heads))
        device = cells.device
        self.register_buffer("cells", cells)
        seen = torch.zeros((len(cells) + 1, n_actions), dtype=torch.bool, device=device)
        self.register_buffer("seen", seen)
        self.register_buffer("table", torch.zeros(shape, dtype=torch.float64, device=device))

    def build(self, problem: Problem) -> None:
        """Makes a cell for each state that occurs."""
        states = torch.from_numpy(problem.states).to(self.device)
        self._set_cells(torch.unique(keys_of(states)))
        self.seen[self.embed(states), torch.tensor(problem.actions, device=self.device)] = True

    def embed(self, states: Tensor) -> Tensor:
        """Number of the cell of each state; the last one, if it never occurs."""
        if len(self.cells) == 0:
            return torch.zeros(len(states), dtype=torch.int64, device=states.device)
        keys = keys_of(states)
        places = torch.searchsorted(self.cells, keys).clamp(max=len(self.cells) - 1)
        return torch.where(self.cells[places] == keys, places, len(self.cells))

    @property
    def n_cells(self) -> int:
        """Number of cells, that of states which never occur included."""
        return len(self.cells) + 1

    def cell_numbers(self, rows: FloatArray) -> IntArray:
        """Returns what `embed` does, of an array `[n, D]`, without torch."""
        known = self.cells.cpu().numpy()
        found = np.empty(len(rows), np.int64)
        _find_cells(np.ascontiguousarray(rows, np.float64), known, found)
        return found

    def known(self, embedded: Tensor) -> Tensor:
        """Actions that occur in the cell."""
        return self.seen[embedded]

    def grams(self, found: Sum, step: int, member: int, part: Part, scale: float) -> Tensor:
        """Weight of the rows of each cell and action."""
        return self._added(found, part, whole(torch.ones_like(part.actions), scale))

    def moments(
        self, found: Sum, step: int, member: int, part: Part, values: Tensor, scale: float
    ) -> Tensor:
        """Sums of targets of each cell and action, `[cells * A, 2, H]`."""
        return self._added(found, part, whole(values, scale))

    def _added(self, found: Sum, part: Part, values: Tensor) -> Tensor:
        """Sums of whole numbers `[n, ...]` of each cell and action."""
        if found is None:
            found = values.new_zeros((self.seen.numel(), *values.shape[1:]))
        pairs = part.rows * self.sizes.n_actions + part.actions
        return found.index_add_(0, pairs, weighed(values, part.weights))

    def solve(self, step: int, sums: list[tuple[Tensor, Tensor]]) -> None:
        """Takes means: of the member's rows, of all rows of the pair, or of the action."""
        shape = -1, self.sizes.n_actions, 2, len(self.sizes.heads)
        own = [(count.view(shape[:2]), total.view(shape)) for count, total in sums]
        count, total = (
            own[0] if len(own) == 1 else (sum(column) for column in zip(*own, strict=True))
        )
        by_action = total.sum(0) / count.sum(0).clamp(min=1)[:, None, None]
        by_action[count.sum(0) == 0] = total.sum((0, 1)) / count.sum()
        pooled = _mean(total, count, by_action)
        for member, (counted, added) in enumerate(own):
            means = pooled if len(own) == 1 else _mean(added, counted, pooled)
            self.table[member, step] = means.transpose(1, 2)

    def read_member(self, member: int, embedded: Tensor, step: int) -> Tensor:
        """Values of one table, `[n, 2, A, H]`."""
        return self.table[member, step][embedded]

    def check(self) -> None:
        """Checks that the tables have a row for each cell.

        Raises:
            StoreError: if not.
        """
        n_members, n_steps, n_actions, _, heads = self.sizes
        self.require("cells", (self.cells.numel(),))
        self.require("seen", (self.n_cells, n_actions))
        self.require("table", (n_members, n_steps, self.n_cells, 2, n_actions, len(heads)))
        if (self.cells[1:] <= self.cells[:-1]).any():
            raise StoreError("TableQ.cells must rise strictly.")


@njit(cache=True, nogil=True)
def _find_cells(rows, known, found):  # type: ignore[no-untyped-def]
    """Fills in the cells of rows `[n, D]`, given rising keys: `keys_of` and a search."""
    one = np.empty(1, np.float64)
    bits = one.view(np.int64)
    for i in range(rows.shape[0]):
        key = np.int64(0)
        for d in range(rows.shape[1]):
            x = rows[i, d]
            is_whole = x == np.rint(x) and abs(x) < _WHOLE
            one[0] = (x if is_whole else np.float64(np.float32(x))) + 0.0
            b = bits[0] + np.int64(d + 1) * _STEP
            b = (b ^ (b >> 30)) * _FIRST
            b = (b ^ (b >> 27)) * _SECOND
            key += b ^ (b >> 31)
        place = np.searchsorted(known, key)
        is_there = place < len(known) and known[place] == key
        found[i] = place if is_there else len(known)


def _mean(total: Tensor, count: Tensor, otherwise: Tensor) -> Tensor:
    """Means of sums `[C, A, 2, H]` over counts `[C, A]`; something else where there are none."""
    means = total / count.clamp(min=1)[:, :, None, None]
    is_empty = count == 0
    means[is_empty] = otherwise.expand_as(means)[is_empty]
    return means


def keys_of(states: Tensor) -> Tensor:
    """Keys `[n]` of states `[n, D]`: the same for the same numbers, and only for them.

    (Two of a million different states share one with a probability of a hundred-millionth.)

    >>> states = torch.tensor([[0.0, 0.1], [-0.0, 0.1], [0.1, 0.0]], dtype=torch.float64)
    >>> torch.unique(keys_of(states), return_inverse=True)[1].tolist() in ([0, 0, 1], [1, 1, 0])
    True
    """
    is_whole = (states == states.round()) & (states.abs() < _WHOLE)
    same = torch.where(is_whole, states, states.float().double()) + 0.0  # -0 becomes 0
    columns = torch.arange(1, states.shape[1] + 1, device=states.device)
    bits = same.contiguous().view(torch.int64) + columns * _STEP
    bits = (bits ^ (bits >> 30)) * _FIRST
    bits = (bits ^ (bits >> 27)) * _SECOND
    return (bits ^ (bits >> 31)).sum(1)
