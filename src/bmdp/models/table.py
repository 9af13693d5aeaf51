"""Means of targets in a table, for states that are whole numbers: exact on exhaustive data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bmdp.arrays import BoolArray, FloatArray, IntArray, require_shape
from bmdp.errors import DataError
from bmdp.models.plain import PlainFitter, Rows, flat_states
from bmdp.models.problem import Fitter, Problem
from bmdp.policies.stored import storable


@storable
@dataclass(frozen=True)
class TableModel:
    """A table of Q-values, each the mean of its targets.

    States are whole numbers: the first column of the data. A state and action that never occur
    together keep the value 0, in reward and cost. Where costs are never negative that is as cheap
    as can be, so see to it that the data hold all actions at all states that matter.

    >>> from bmdp import BFTQ, BFTQConfig, TransitionBatch
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> config = BFTQConfig(gamma=0.9, model=TableModel(), valuation="self", iterations=1)
    >>> frontier = BFTQ(config).fit(log, seed=0).frontier([0])
    >>> frontier.costs.round(6).tolist(), frontier.rewards.round(6).tolist()
    ([0.0, 1.0], [0.0, 10.0])
    """

    covers_grid: ClassVar[bool] = True

    def fitter(self, problem: Problem) -> Fitter:
        """Returns tables of 0, one for each row of `problem.members`."""
        return TableFitter(problem)


@storable
@dataclass(frozen=True, eq=False)
class TableQ:
    """Q-values in a table, in the units of the data. A state that is not in it has value 0.

    >>> q = TableQ(np.array([3, 7]), np.array([[[1.0]], [[2.0]]]), np.array([[[0.1]], [[0.2]]]))
    >>> q(np.array([7, 5]))[0].tolist()
    [[[2.0]], [[0.0]]]
    """

    numbers: IntArray  # [S], of the states, rising
    q_r: FloatArray  # [S, A, B]
    q_c: FloatArray  # [S, A, B]

    def __post_init__(self) -> None:
        """Checks the shapes."""
        require_shape("TableQ.numbers", self.numbers, (None,), "[S]")
        require_shape("TableQ.q_r", self.q_r, (len(self.numbers), None, None), "[S, A, B]")
        require_shape("TableQ.q_c", self.q_c, self.q_r.shape, "[S, A, B]")

    def __call__(self, states: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c) of the states `[N]` or `[N, D]`, each `[N, A, B]`."""
        places, known = _places(self.numbers, flat_states(states))
        return self.q_r[places] * known[:, None, None], self.q_c[places] * known[:, None, None]


class TableFitter(PlainFitter):
    """Tables in training."""

    def __init__(self, problem: Problem) -> None:
        """Makes tables of 0."""
        super().__init__(problem)
        self.numbers = np.unique(_state_numbers(self._states))
        shape = (len(self.numbers), 2, problem.n_actions, len(problem.beta_grid))
        self.tables = np.zeros((len(problem.members), *shape))

    def result(self, model: int) -> TableQ:
        """A table as it is."""
        table = self.tables[model]
        return TableQ(self.numbers, table[:, 0] * self.problem.reward_scale, table[:, 1].copy())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The tables."""
        return {"tables": self.tables.copy()}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Goes on from there."""
        self.tables = np.array(arrays["tables"])

    def _learn(self, name: str, model: int, rows: Rows) -> None:
        """Takes the mean of targets for each state and action."""
        n_states, _, n_actions, n_budgets = self.tables[model].shape
        pair = _places(self.numbers, rows.states)[0] * n_actions + rows.actions
        n, n_pairs = len(pair), n_states * n_actions
        chosen = sparse.csr_array((np.ones(n), (pair, np.arange(n))), shape=(n_pairs, n))
        sums = chosen @ rows.targets.reshape(n, 2 * n_budgets).astype(np.float64)
        means = sums / np.bincount(pair, minlength=n_pairs).clip(1)[:, None]
        found = means.reshape(n_states, n_actions, n_budgets, 2)
        self.tables[model] = found.transpose(0, 3, 1, 2)

    def _taken(self, model: int, rows: Rows) -> FloatArray:
        """Values of the actions of rows, `[n, B, 2]`."""
        places, _ = _places(self.numbers, rows.states)
        taken: FloatArray = self.tables[model][places, :, rows.actions]
        return taken.transpose(0, 2, 1)

    def _values(self, model: int, states: FloatArray) -> FloatArray:
        """Values at states `[n, D]` on the grid, `[n, 2, A, B]`."""
        places, known = _places(self.numbers, states)
        values: FloatArray = self.tables[model][places] * known[:, None, None, None]
        return values


def _places(numbers: IntArray, states: FloatArray) -> tuple[IntArray, BoolArray]:
    """Where states `[n, D]` are in a table, and whether they are."""
    wanted = _state_numbers(states)
    places = np.searchsorted(numbers, wanted).clip(max=len(numbers) - 1)
    return places, numbers[places] == wanted


def _state_numbers(states: FloatArray) -> IntArray:
    """First column of the states, checked to be whole numbers.

    Raises:
        DataError: naming the first state that is none.
    """
    if states.shape[1] == 0:
        raise DataError("states must have a column, their number; got none.")
    wanted = states[:, 0]
    bad = np.flatnonzero((wanted != np.round(wanted)) | ~(np.abs(wanted) < 2**53))
    if len(bad):
        i = int(bad[0])
        raise DataError(f"states of a table must be whole numbers; got {wanted[i]:g} at [{i}].")
    return wanted.astype(np.int64)
