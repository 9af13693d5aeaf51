"""A known finite BMDP: states, actions, transition probabilities, rewards, costs, discounts.

At each step of an episode the state is s, an action a is played, `reward[s, a]` is earned and
`cost[s, a]` is paid, and the next state is drawn from P(. | s, a). An episode ends in a *terminal*
state, where nothing more is earned or paid, or after `horizon` steps, or never. Returns are
discounted: the sum of gamma^t reward and of gamma^t cost.

Costs may have a discount of their own where there is a horizon. Without one, policies that do not
look at the clock would no longer be enough: as time goes by, the heavier discounted of the two
stops to matter, so the best thing to do at a state would change with time for ever.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from bmdp.arrays import BoolArray, FloatArray, read_only, real_array
from bmdp.errors import ModelError, StoreError

_TOLERANCE = 1e-8  # of a sum of probabilities
_FORMAT = "bmdp.FiniteBMDP/1"


@dataclass(frozen=True, eq=False)
class FiniteBMDP:
    """A finite BMDP, checked once and read-only.

    Args:
        transition: P(s' | s, a), dense `[S, A, S]` or sparse `[S*A, S]` with row s*A + a. Rows of
            terminal states are ignored, and so are their rewards and costs.
        reward: `[S, A]`, R_r.
        cost: `[S, A]`, R_c.
        gamma: discount of rewards and costs, above 0 and at most 1. 1 needs a horizon, or terminal
            states that are reached whatever is played.
        terminal: `[S]`, True where an episode ends.
        horizon: number of steps after which an episode ends.
        cost_gamma: discount of costs where it is not `gamma`; needs a horizon.

    Raises:
        ModelError: naming what is wrong, where, and how often.

    Paper: Section 2, the tuple (S, A, P, R_r, R_c, gamma).

    >>> model = FiniteBMDP(
    ...     transition=[[[0.0, 1.0], [0.5, 0.5]], [[0.0, 0.0], [0.0, 0.0]]],
    ...     reward=[[0.0, 1.0], [0.0, 0.0]],
    ...     cost=[[0.0, 1.0], [0.0, 0.0]],
    ...     gamma=0.9,
    ...     terminal=[False, True],
    ... )
    >>> model.n_states, model.n_actions
    (2, 2)
    """

    _: KW_ONLY
    transition: sparse.csr_array  # [S*A, S], rows of terminal states empty
    reward: FloatArray  # [S, A], 0 at terminal states
    cost: FloatArray  # [S, A], 0 at terminal states
    gamma: float
    terminal: BoolArray = None  # type: ignore[assignment]  # [S], always an array once made
    horizon: int | None = None
    cost_gamma: float = None  # type: ignore[assignment]  # always a number once made

    def __post_init__(self) -> None:
        """Checks the model, and makes its arrays read-only."""
        reward = _table("reward", self.reward)
        cost = _table("cost", self.cost)
        n_states, n_actions = reward.shape
        if cost.shape != reward.shape:
            raise ModelError(
                f"FiniteBMDP.cost must have the shape of reward, {list(reward.shape)}; "
                f"got {list(cost.shape)}."
            )
        terminal = _terminal_mask(self.terminal, n_states)
        live = np.repeat(~terminal, n_actions)
        transition = _rows(self.transition, n_states, n_actions)
        _require_distributions(transition, live, n_actions)
        transition = sparse.csr_array(sparse.diags_array(live.astype(np.float64)) @ transition)
        transition.eliminate_zeros()
        self._set(transition=transition, terminal=read_only(terminal))
        self._set(reward=read_only(np.where(terminal[:, None], 0.0, reward)))
        self._set(cost=read_only(np.where(terminal[:, None], 0.0, cost)))
        _require_finite_returns(self)
        if self.cost_gamma is None:
            self._set(cost_gamma=self.gamma)

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def n_states(self) -> int:
        """S."""
        return int(self.reward.shape[0])

    @property
    def n_actions(self) -> int:
        """A."""
        return int(self.reward.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """(S, A)."""
        return self.n_states, self.n_actions

    def expected_next(self, values: FloatArray) -> FloatArray:
        """Returns the expectation of `values` `[S, ...]` at the next state, `[S, A, ...]`."""
        flat = values.reshape(self.n_states, -1)
        expected: FloatArray = self.transition @ flat
        return expected.reshape(*self.shape, *values.shape[1:])

    def start_distribution(self, start: int | ArrayLike) -> FloatArray:
        """Returns a distribution `[S]`, given one or a state.

        Raises:
            ModelError: if it is neither.
        """
        weights = np.asarray(start)
        if weights.ndim == 0:
            if weights.dtype.kind not in "iu" or not 0 <= int(weights) < self.n_states:
                raise ModelError(
                    f"start must be a state from 0 to {self.n_states - 1}; got {weights}."
                )
            one_hot: FloatArray = np.eye(1, self.n_states, int(weights))[0]
            return one_hot
        distribution = real_array("start", weights).astype(np.float64)
        if distribution.shape != (self.n_states,):
            raise ModelError(
                f"start must be a state or a distribution [S] = [{self.n_states}]; "
                f"got shape {list(distribution.shape)}."
            )
        if not (distribution >= 0).all() or abs(distribution.sum() - 1) > _TOLERANCE:
            raise ModelError(
                "start must be a distribution: numbers from 0 on that sum to 1; "
                f"the sum is {distribution.sum():g}, the least is {distribution.min():g}."
            )
        return distribution

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes the model to an npz file, without pickle.

        Raises:
            StoreError: if the file exists, unless `overwrite`, or cannot be written.
        """
        target = Path(path)
        if target.exists() and not overwrite:
            raise StoreError(f"{target} exists already. Choose another name, or overwrite it.")
        arrays: dict[str, Any] = {
            "format": np.array(_FORMAT),
            "probability": self.transition.data,
            "next_state": self.transition.indices.astype(np.int64),
            "row_start": self.transition.indptr.astype(np.int64),
            "reward": self.reward,
            "cost": self.cost,
            "gamma": np.float64(self.gamma),
            "cost_gamma": np.float64(self.cost_gamma),
            "terminal": self.terminal,
            "horizon": np.int64(0 if self.horizon is None else self.horizon),
        }
        aside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            with aside.open("wb") as file:
                np.savez_compressed(file, **arrays)
            aside.replace(target)
        except OSError as error:
            aside.unlink(missing_ok=True)
            raise StoreError(f"{target} cannot be written: {error}.") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FiniteBMDP:
        """Reads a model that `save` wrote.

        Raises:
            StoreError: if there is no such file, or it is truncated, or holds something else.
            ModelError: if what it holds is no model.
        """
        try:
            with Path(path).open("rb") as opened, _archive(opened) as file:
                if str(file["format"]) != _FORMAT:
                    raise StoreError(f"{path} has format {file['format']}, not {_FORMAT}.")
                reward = file["reward"]
                shape = (reward.size, len(reward))
                rows = (file["probability"], file["next_state"], file["row_start"])
                horizon = int(file["horizon"])
                return cls(
                    transition=_stored_rows(rows, shape),
                    reward=reward,
                    cost=file["cost"],
                    gamma=float(file["gamma"]),
                    terminal=file["terminal"],
                    horizon=None if horizon == 0 else horizon,
                    cost_gamma=float(file["cost_gamma"]),
                )
        except FileNotFoundError as error:
            raise StoreError(f"{path} does not exist.") from error
        except (OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(
                f"{path} is not a whole model file ({error}). Write one with FiniteBMDP.save."
            ) from error
        except ValueError as error:
            if isinstance(error, ModelError):
                raise
            raise StoreError(
                f"{path} is not a model file ({error}). Write one with FiniteBMDP.save."
            ) from error


def _archive(opened: BinaryIO) -> Any:
    """Opens an npz file, without pickle."""
    file = np.load(opened, allow_pickle=False)
    if not isinstance(file, np.lib.npyio.NpzFile):
        raise ValueError("a single array")
    return file


def _stored_rows(rows: tuple[Any, Any, Any], shape: tuple[int, int]) -> sparse.csr_array:
    """Builds a sparse matrix from stored arrays, checking that they fit together."""
    matrix = sparse.csr_array(rows, shape=shape)
    matrix.check_format(full_check=True)
    return matrix


def _table(name: str, values: ArrayLike) -> FloatArray:
    """Checks a table `[S, A]` of finite numbers."""
    try:
        table = real_array(f"FiniteBMDP.{name}", values).astype(np.float64)
    except ValueError as error:
        raise ModelError(str(error)) from error
    if table.ndim != 2 or table.size == 0:
        raise ModelError(f"FiniteBMDP.{name} must have shape [S, A]; got {list(table.shape)}.")
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        s, a = bad[0]
        raise ModelError(
            f"FiniteBMDP.{name} must be finite; got {table[s, a]:g} at [{s}, {a}]. "
            f"({len(bad)} of {table.size} values are not.)"
        )
    return table


def _terminal_mask(terminal: Any, n_states: int) -> BoolArray:
    """Checks the mask of terminal states."""
    if terminal is None:
        return np.zeros(n_states, np.bool_)
    mask = np.asarray(terminal)
    if mask.shape != (n_states,) or mask.dtype != np.bool_:
        raise ModelError(
            f"FiniteBMDP.terminal must be a boolean mask [S] = [{n_states}]; "
            f"got {mask.dtype} of shape {list(mask.shape)}."
        )
    return mask


def _rows(transition: Any, n_states: int, n_actions: int) -> sparse.csr_array:
    """Brings transition probabilities into the form `[S*A, S]`."""
    wanted = (n_states * n_actions, n_states)
    if sparse.issparse(transition):
        if transition.shape != wanted:
            raise ModelError(
                f"FiniteBMDP.transition must have shape [S*A, S] = {list(wanted)} if it is sparse; "
                f"got {list(transition.shape)}."
            )
        rows = sparse.csr_array(transition, dtype=np.float64, copy=True)
        rows.sum_duplicates()
        return rows
    try:
        dense = real_array("FiniteBMDP.transition", transition).astype(np.float64)
    except ValueError as error:
        raise ModelError(str(error)) from error
    if dense.shape != (n_states, n_actions, n_states):
        raise ModelError(
            f"FiniteBMDP.transition must have shape [S, A, S] = "
            f"{[n_states, n_actions, n_states]}; got {list(dense.shape)}."
        )
    return sparse.csr_array(dense.reshape(wanted))


def _require_distributions(rows: sparse.csr_array, live: BoolArray, n_actions: int) -> None:
    """Checks that the live rows are probability distributions."""

    def place(row: int) -> str:
        return f"[{row // n_actions}, {row % n_actions}, :]"

    entry_row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    bad = np.flatnonzero(~((rows.data >= 0) & (rows.data < np.inf)) & live[entry_row])
    if len(bad):
        row = int(entry_row[bad[0]])
        raise ModelError(
            f"FiniteBMDP.transition must hold finite numbers from 0 on; transition{place(row)} has "
            f"{rows.data[bad[0]]:g}. ({len(bad)} values are bad.)"
        )
    sums = np.asarray(rows.sum(axis=1)).ravel()
    off = np.flatnonzero(live & ~(abs(sums - 1) <= _TOLERANCE))
    if len(off):
        row = int(off[0])
        raise ModelError(
            "FiniteBMDP.transition: probabilities must sum to 1 for every (state, action); "
            f"transition{place(row)} sums to {sums[row]:.9g}. "
            f"({len(off)} of {int(live.sum())} rows are off.)"
        )


def _require_finite_returns(model: FiniteBMDP) -> None:
    """Checks discounts and horizon: returns must be finite whatever is played."""
    for name, value in (("gamma", model.gamma), ("cost_gamma", model.cost_gamma)):
        if value is not None and not 0 < value <= 1:
            raise ModelError(f"FiniteBMDP.{name} must be above 0 and at most 1; got {value}.")
    if model.horizon is not None:
        if not isinstance(model.horizon, int | np.integer) or model.horizon < 1:
            raise ModelError(f"FiniteBMDP.horizon must be a count from 1 on; got {model.horizon}.")
        return
    if model.cost_gamma is not None and model.cost_gamma != model.gamma:
        raise ModelError(
            f"FiniteBMDP.cost_gamma must equal gamma unless there is a horizon; got "
            f"{model.cost_gamma} and {model.gamma}. With two discounts and no end, the best policy "
            "would have to look at the clock for ever."
        )
    if model.gamma == 1:
        state = _state_that_may_never_end(model)
        if state is not None:
            raise ModelError(
                f"FiniteBMDP.gamma must be below 1 unless every policy ends; from state {state} "
                "one can go on for ever. Give a horizon, or mark terminal states."
            )


def _state_that_may_never_end(model: FiniteBMDP) -> int | None:
    """A state from which some policy never reaches a terminal state, if there is one.

    Such states form the largest set that some action keeps within itself, from each of its states.
    """
    inside = ~model.terminal
    while inside.any():
        leaves = np.asarray(model.transition @ (~inside).astype(np.float64)).reshape(model.shape)
        stays = inside & (leaves <= 0).any(axis=1)
        if (stays == inside).all():
            return int(np.flatnonzero(inside)[0])
        inside = stays
    return None
