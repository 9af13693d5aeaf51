"""Bins for actions that are numbers, such as a dose or a force: few enough to choose from.

Edges are quantiles, so that each bin has about as many rows. More bins say more of an action, and
have fewer rows to learn from. How many there are is chosen by held-out error: of a small regression
of rewards, costs and next states on the state and the bin. Of those that are as good, up to one
standard error or a hundredth of the variance, it is the fewest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import FloatArray, IntArray, real_array
from bmdp.data.checks import require_rows
from bmdp.errors import DataError
from bmdp.kinds import checked
from bmdp.randomness import named_generator
from bmdp.storage import storable

N_BINS = (2, 3, 5, 7, 9)
"""Numbers of bins that are tried, for each number of an action."""

_FEW = 9  # different values that are actions as they are
_MOST_ACTIONS = 50
_MOST_LISTED = 10  # of the values that stand for actions, in a note
_MOST_ROWS = 5_000  # that the regression is fitted to and asked at
_NO_DIFFERENCE = 0.01  # of errors, in units of the variance of rewards or costs
_N_FOLDS, _N_TREES, _LEAST_ROWS = 4, 20, 5


@checked
@storable
@dataclass(frozen=True)
class ActionBins:
    """Bins of actions of `K` numbers, of which `A` occur.

    >>> bins = ActionBins(("dose",), edges=((0.5,),), cells=(0, 1), values=((0.2,), (0.7,)))
    >>> bins.numbers([0.1, 0.5, 3.0]).tolist(), bins.labels
    ([0, 1, 1], ('0.2', '0.7'))
    """

    names: tuple[str, ...]  # [K], of the columns
    edges: tuple[tuple[float, ...], ...]  # [K], between bins; a number at an edge is above it
    cells: tuple[int, ...]  # [A], which bin of each column, as one number
    values: tuple[tuple[float, ...], ...]  # [A, K], that stand for the actions: medians
    is_exact: bool = False  # whether the values are all that there were

    def __post_init__(self) -> None:
        """Checks that bins are told by rising edges, and that each action has its values.

        Raises:
            DataError: if not.
        """
        n_bins = math.prod(len(edge) + 1 for edge in self.edges)
        cells = (-1, *self.cells, n_bins)
        is_whole = self.names and len(self.names) == len(self.edges)
        if not is_whole or not self.cells or any(b <= a for a, b in pairwise(cells)):
            raise DataError(f"ActionBins.cells must rise from 0 to {n_bins - 1}; got {self.cells}.")
        if not all(map(math.isfinite, (e for edge in self.edges for e in edge))) or any(
            b <= a for edge in self.edges for a, b in pairwise(edge)
        ):
            raise DataError("ActionBins.edges must be finite and rise strictly.")
        if len(self.values) != len(self.cells) or not all(
            len(row) == len(self.names) and all(map(math.isfinite, row)) for row in self.values
        ):
            raise DataError(
                f"ActionBins.values must be {len(self.names)} numbers for each of "
                f"{len(self.cells)} actions."
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the actions: the numbers that stand for them."""
        if len(self.names) == 1:
            return tuple(f"{value:g}" for (value,) in self.values)
        return tuple(
            ", ".join(f"{name}={value:g}" for name, value in zip(self.names, row, strict=True))
            for row in self.values
        )

    def numbers(self, values: ArrayLike) -> IntArray:
        """Returns the number of each action, `[N]` or `[N, K]`.

        Raises:
            DataError: if there are not K numbers, or one is in bins that never occurred together.
        """
        rows = action_rows(values)
        if rows.shape[1] != len(self.names):
            raise DataError(
                f"action must have {len(self.names)} numbers, {', '.join(self.names)}; "
                f"got shape {list(rows.shape)}."
            )
        cells, known = _cells(rows, self.edges), np.array(self.cells)
        place = np.minimum(np.searchsorted(known, cells), len(known) - 1)
        require_rows("action", "be in bins that were in the log", known[place] != cells)
        return place

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence on what was made of the actions."""
        comma = ", " if len(self.names) == 1 else "; "
        more = f"{comma}..." if len(self.labels) > _MOST_LISTED else ""
        listed = comma.join(self.labels[:_MOST_LISTED]) + more
        named = "" if self.names == ("action",) else f" {' and '.join(self.names)}"
        said = f"action{named} {'was a number' if len(self.names) == 1 else 'were numbers'}"
        if self.is_exact:
            return (f"{said}: each of its {len(self.cells)} values is an action, {listed}",)
        return (f"{said}: binned into {len(self.cells)} by quantiles, at {listed}",)


def action_rows(values: ArrayLike) -> FloatArray:
    """Returns actions `[N, K]`, of `[N]` too.

    Raises:
        DataError: if they are not finite numbers.
    """
    rows = real_array("action", values).astype(np.float64)
    if rows.ndim == 0:
        raise DataError("action must have shape [N, K]; got [].")
    if not rows.size:
        raise DataError(f"action must have at least one number; got {list(rows.shape)}.")
    rows = rows.reshape(len(rows), -1)
    require_rows("action", "be finite", ~np.isfinite(rows).all(axis=1))
    return rows


def learned_bins(
    names: Sequence[str], actions: FloatArray, columns: dict[str, NDArray[Any]], seed: int = 0
) -> ActionBins:
    """Returns the bins of the actions of a log.

    Args:
        names: of the numbers of an action, `[K]`.
        actions: `[N, K]`.
        columns: of the transitions, as a batch has them, all but actions.
        seed: of the folds.

    Raises:
        DataError: if an action has too many numbers.
    """
    if all(len(np.unique(column)) <= _FEW for column in actions.T):
        few = _few(names, actions)
        if len(few.cells) <= _MOST_ACTIONS:
            return few
    tried = [n for n in N_BINS if n ** len(names) <= _MOST_ACTIONS]
    if not tried:
        raise DataError(
            f"action must have at most {int(np.log2(_MOST_ACTIONS))} numbers to be binned; got "
            f"{len(names)}. Make a TransitionBatch of the log, with discretise."
        )
    found: dict[int, ActionBins] = {n: _quantile_bins(names, actions, n) for n in tried}
    errors = {n: _held_out_errors(bins, actions, columns, seed) for n, bins in found.items()}
    best = min(errors, key=lambda n: float(errors[n].mean()))
    for n in tried:
        worse = errors[n] - errors[best]
        if worse.mean() <= max(_NO_DIFFERENCE, worse.std() / np.sqrt(len(worse))):
            return found[n]
    raise AssertionError("the best one is as good as itself")


def _few(names: Sequence[str], actions: FloatArray) -> ActionBins:
    """Bins of numbers that take a few values only: one for each."""
    values = [np.unique(column) for column in actions.T]
    edges = [(column[1:] + column[:-1]) / 2 for column in values]
    return _binned(names, actions, edges, is_exact=True)


def _quantile_bins(names: Sequence[str], actions: FloatArray, n_bins: int) -> ActionBins:
    """Bins with edges at quantiles; where these fall together there are fewer."""
    shares = np.linspace(0, 1, n_bins + 1)[1:-1]
    edges = [np.unique(np.quantile(column, shares)) for column in actions.T]
    kept = [edge[edge > column.min()] for edge, column in zip(edges, actions.T, strict=True)]
    return _binned(names, actions, kept, is_exact=False)


def _binned(
    names: Sequence[str], actions: FloatArray, edges: Sequence[FloatArray], *, is_exact: bool
) -> ActionBins:
    told = tuple(tuple(map(float, edge)) for edge in edges)
    cells = _cells(actions, told)
    known = np.unique(cells)
    values = [np.median(actions[cells == cell], axis=0) for cell in known]
    return ActionBins(
        tuple(names),
        told,
        tuple(map(int, known)),
        tuple(tuple(map(float, value)) for value in values),
        is_exact,
    )


def _cells(actions: FloatArray, edges: Sequence[Sequence[float]]) -> IntArray:
    """The bins of each action as one number; those of the last column count fastest."""
    cells = np.zeros(len(actions), np.int64)
    for column, edge in zip(actions.T, edges, strict=True):
        cells = cells * (len(edge) + 1) + np.searchsorted(np.array(edge), column, side="right")
    return cells


def _held_out_errors(
    bins: ActionBins, actions: FloatArray, columns: dict[str, NDArray[Any]], seed: int
) -> FloatArray:
    """Squared errors of a regression that knows the bin, one for each row that is held out."""
    from sklearn.ensemble import ExtraTreesRegressor  # takes long to import

    rng = named_generator(seed, "data/bins")
    order = rng.permutation(len(actions))
    rows = np.sort(order[:_MOST_ROWS])
    groups = columns["episode"][rows] if "episode" in columns else rows
    _, group = np.unique(groups, return_inverse=True)
    fold = rng.permutation(int(group.max()) + 1)[group] % _N_FOLDS
    known = np.array(bins.values)[bins.numbers(actions)][rows]
    inputs = np.hstack([columns["state"][rows], known])
    targets, weights = _targets(columns, rows)
    errors = []
    for k in range(_N_FOLDS if fold.max() else 0):
        learned, asked = fold != k, fold == k
        model = ExtraTreesRegressor(_N_TREES, min_samples_leaf=_LEAST_ROWS, random_state=0)
        model.fit(inputs[learned], targets[learned])
        told = model.predict(inputs[asked]).reshape(-1, targets.shape[1])
        errors.append((told - targets[asked]) ** 2 @ weights)
    return np.concatenate(errors) if errors else np.zeros(1)


def _targets(columns: dict[str, NDArray[Any]], rows: IntArray) -> tuple[FloatArray, FloatArray]:
    """Rewards, costs and changes of states, in units of their deviations, and their weights."""
    change = columns["next_state"][rows].astype(np.float64) - columns["state"][rows]
    change = np.where(columns["terminal"][rows][:, None], 0.0, change)
    targets = np.column_stack([columns["reward"][rows], columns["cost"][rows], change])
    spread = targets.std(axis=0)
    weights = np.concatenate([[1.0, 1.0], np.full(change.shape[1], 1 / change.shape[1])])
    return (targets - targets.mean(axis=0)) / np.where(spread > 0, spread, 1.0), weights
