"""Means of targets in a table, for states that are whole numbers: exact on exhaustive data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bmdp.arrays import FloatArray
from bmdp.errors import DataError, StoreError
from bmdp.models.regressor import Averager, Problem, Sizes, register_regressor

_MOST = 2.0**62  # keys of cells stay below it


@register_regressor
@dataclass(frozen=True)
class TableModel:
    """A table of Q-values, each the mean of its targets. States are whole numbers.

    A state and action that never occur together are not played. A model of the ensemble that lacks
    a pair takes the mean of all models' rows; at a state that never occurs, the mean of the action.

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

    common = frozenset({"least", "most", "cells", "seen"})
    weighs_rows = True

    least: Tensor  # [D], of each number of a state
    most: Tensor  # [D]
    cells: Tensor  # [S], keys of the states that occur, rising
    seen: Tensor  # [S + 1, A], which actions occur there
    table: Tensor  # [E, steps, S + 1, 2, A, H]

    def __init__(self, settings: TableModel, sizes: Sizes) -> None:
        super().__init__(settings, sizes)
        for name in ("least", "most"):
            self.register_buffer(name, torch.zeros(sizes.n_numbers, dtype=torch.float64))
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
        states, device = problem.states, self.least.device
        _require_whole(states)
        for name, ends in (("least", states.min(axis=0)), ("most", states.max(axis=0))):
            self.get_buffer(name)[:] = torch.from_numpy(ends)
        if np.prod(states.max(axis=0) - states.min(axis=0) + 1) > _MOST:
            raise DataError("states of a table span too many numbers to be counted.")
        keys = self._keys(torch.from_numpy(states).to(device))
        self._set_cells(torch.unique(keys))
        places = self.embed(torch.from_numpy(states).to(device))
        self.seen[places, torch.tensor(problem.actions, device=device)] = True

    def embed(self, states: Tensor) -> Tensor:
        """Number of the cell of each state; the last one, if it never occurs."""
        inside = ((states >= self.least) & (states <= self.most)).all(1)
        keys = self._keys(torch.where(inside[:, None], states, self.least))
        places = torch.searchsorted(self.cells, keys).clamp(max=max(0, len(self.cells) - 1))
        is_cell = inside & (states == states.round()).all(1)
        if len(self.cells):
            is_cell &= self.cells[places] == keys
        return torch.where(is_cell, places, len(self.cells))

    def _keys(self, states: Tensor) -> Tensor:
        spans = (self.most - self.least + 1).long()
        place = torch.cumprod(torch.cat((spans.new_ones(1), spans[:-1])), 0)
        return ((states - self.least).long() * place).sum(1)

    def known(self, embedded: Tensor) -> Tensor:
        """Actions that occur in the cell."""
        return self.seen[embedded]

    def grams(
        self, member: int, rows: Tensor, actions: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Number of rows of each cell and action."""
        pairs = rows * self.sizes.n_actions + actions
        counts = torch.bincount(pairs, weights, minlength=self.seen.numel())
        return counts.double()

    def moments(self, member: int, rows: Tensor, actions: Tensor, targets: Tensor) -> Tensor:
        """Sums of targets of each cell and action, `[cells * A, 2, H]`."""
        pairs = rows * self.sizes.n_actions + actions
        total = targets.new_zeros((self.seen.numel(), *targets.shape[1:]))
        return total.index_add_(0, pairs, targets)

    def solve(self, step: int, sums: list[tuple[Tensor, Tensor]]) -> None:
        """Takes means: of the member's rows, of all rows of the pair, or of the action."""
        n_actions = self.sizes.n_actions
        count, total = (sum(column) for column in zip(*sums, strict=True))
        by_action = (
            total.view(-1, n_actions, *total.shape[1:]).sum(0)
            / count.view(-1, n_actions).sum(0).clamp(min=1)[:, None, None]
        )
        overall = total.sum(0) / count.sum()
        by_action[count.view(-1, n_actions).sum(0) == 0] = overall
        pooled = _mean(total, count, by_action.repeat(len(count) // n_actions, 1, 1))
        for member, (own, sum_of) in enumerate(sums):
            means = _mean(sum_of, own, pooled).view(-1, n_actions, *total.shape[1:])
            self.table[member, step] = means.transpose(1, 2)

    def read_member(self, member: int, embedded: Tensor, step: int) -> Tensor:
        """Values of one table, `[n, 2, A, H]`."""
        return self.table[member, step][embedded]

    def check(self) -> None:
        """Checks that the tables have a row for each cell.

        Raises:
            StoreError: if not.
        """
        n_cells = len(self.cells) + 1
        fits = len(self.seen) == n_cells and self.table.shape[2] == n_cells
        if not fits or (self.cells[1:] <= self.cells[:-1]).any():
            raise StoreError("TableQ: its cells do not match its tables.")


def _mean(total: Tensor, count: Tensor, otherwise: Tensor) -> Tensor:
    """Means of sums `[K, 2, H]` over counts `[K]`; where nothing was counted, something else."""
    means = total / count.clamp(min=1)[:, None, None]
    return torch.where((count > 0)[:, None, None], means, otherwise)


def _require_whole(states: FloatArray) -> None:
    """Checks that states are whole numbers.

    Raises:
        DataError: naming the first that is none.
    """
    if states.shape[1] == 0:
        raise DataError("states must have a column, their number; got none.")
    bad = np.argwhere((states != np.round(states)) | ~(np.abs(states) < 2**53))
    if len(bad):
        row, column = map(int, bad[0])
        raise DataError(
            f"states of a table must be whole numbers; got {states[row, column]:g} at "
            f"[{row}, {column}]."
        )
