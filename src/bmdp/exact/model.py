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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from bmdp.arrays import BoolArray, FloatArray, read_only, real_array, require_shape
from bmdp.errors import ModelError, StoreError
from bmdp.exact import checks
from bmdp.kinds import checked
from bmdp.storage import written

_FORMAT = "bmdp.FiniteBMDP/1"


@checked
@dataclass(frozen=True, eq=False, init=False)
class FiniteBMDP:
    """A finite BMDP, checked once and read-only.

    Args:
        transition: P(s' | s, a), dense `[S, A, S]` or sparse `[S*A, S]` with row s*A + a. Rows of
            terminal states are ignored, and so are their rewards and costs.
        reward: `[S, A]`, R_r, earned in a step.
        cost: `[S, A]`, R_c, paid in a step.
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

    transition: sparse.csr_array  # [S*A, S], rows of terminal states empty
    reward: FloatArray  # [S, A], 0 at terminal states
    cost: FloatArray  # [S, A], 0 at terminal states
    gamma: float
    terminal: BoolArray  # [S]
    horizon: int | None
    cost_gamma: float

    def __init__(  # noqa: PLR0913
        self,
        *,
        transition: Any,
        reward: ArrayLike,
        cost: ArrayLike,
        gamma: float,
        terminal: ArrayLike | None = None,
        horizon: int | None = None,
        cost_gamma: float | None = None,
    ) -> None:
        """Checks the model, and makes its arrays read-only."""
        earned, paid = checks.table("reward", reward), checks.table("cost", cost)
        n_states, n_actions = earned.shape
        if paid.shape != earned.shape:
            raise ModelError(
                f"FiniteBMDP.cost must have the shape of reward, {list(earned.shape)}; "
                f"got {list(paid.shape)}."
            )
        over = checks.terminal_mask(terminal, n_states)
        live = np.repeat(~over, n_actions)
        rows = checks.transition_rows(transition, n_states, n_actions)
        checks.require_distributions(rows, live, n_actions)
        rows = sparse.csr_array(sparse.diags_array(live.astype(np.float64)) @ rows)
        rows.eliminate_zeros()
        values = {
            "transition": rows,
            "reward": read_only(np.where(over[:, None], 0.0, earned)),
            "cost": read_only(np.where(over[:, None], 0.0, paid)),
            "gamma": gamma,
            "terminal": read_only(over),
            "horizon": horizon,
            "cost_gamma": gamma if cost_gamma is None else cost_gamma,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        checks.require_discounts(gamma, self.cost_gamma, horizon)
        if gamma == 1 and horizon is None:
            checks.require_end(rows, over, n_actions)

    @property
    def n_states(self) -> int:
        """Number of states, S."""
        return int(self.reward.shape[0])

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return int(self.reward.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """(S, A)."""
        return self.n_states, self.n_actions

    def expected_next(self, values: FloatArray) -> FloatArray:
        """Returns the expectation of `values` `[S, ...]` at the next state, `[S, A, ...]`."""
        require_shape("values", values, (self.n_states, *values.shape[1:]), "[S, ...]")
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
        if not (distribution >= 0).all() or abs(distribution.sum() - 1) > checks.TOLERANCE:
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
        with written(path, overwrite=overwrite) as new, new.open("wb") as file:
            np.savez_compressed(file, **arrays)

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
