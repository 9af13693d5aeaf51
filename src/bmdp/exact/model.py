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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from bmdp.arrays import BoolArray, FloatArray, read_only, real_array, require_shape
from bmdp.errors import ModelError, StoreError
from bmdp.exact import checks
from bmdp.kinds import checked
from bmdp.storage import npz_arrays, one_line, written

_FORMAT = "bmdp.FiniteBMDP/1"
_STORED = (
    *("format", "probability", "next_state", "row_start", "reward", "cost"),
    *("gamma", "cost_gamma", "terminal", "horizon"),
)


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
        from bmdp import __version__

        arrays: dict[str, Any] = {
            "format": np.array(_FORMAT),
            "bmdp": np.array(__version__),
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
            names, found = npz_arrays(Path(path), _STORED)
            mark = str(found.get("format", ""))
            if mark and mark != _FORMAT:
                own = mark.startswith(_FORMAT.split("/")[0])
                hint = ": upgrade bmdp to read it." if own else "."
                raise StoreError(f"{path} has format {one_line(mark)}, not {_FORMAT}{hint}")
            if set(names) - {"bmdp"} != set(_STORED):
                raise ValueError("its arrays are not those of a model")
            reward = found["reward"]
            shape = (reward.size, len(reward))
            rows = (found["probability"], found["next_state"], found["row_start"])
            horizon = _number("horizon", found["horizon"], "i")
            return cls(
                transition=_stored_rows(rows, shape),
                reward=reward,
                cost=found["cost"],
                gamma=float(_number("gamma", found["gamma"], "f")),
                terminal=found["terminal"],
                horizon=None if horizon == 0 else horizon,
                cost_gamma=float(_number("cost_gamma", found["cost_gamma"], "f")),
            )
        except FileNotFoundError as error:
            raise StoreError(f"{path} does not exist.") from error
        except (StoreError, ModelError):
            raise
        except (OSError, ValueError, TypeError, IndexError) as error:
            raise StoreError(
                f"{path} is not a whole model file ({one_line(error)}). Write one with "
                "FiniteBMDP.save."
            ) from error


def _number(name: str, stored: NDArray[Any], kind: str) -> Any:
    """A single number of a file."""
    if stored.shape != () or stored.dtype.kind != kind:
        raise ValueError(f"{name} is no single number")
    return stored.item()


def _stored_rows(rows: tuple[Any, Any, Any], shape: tuple[int, int]) -> sparse.csr_array:
    """Builds a sparse matrix from stored arrays, checking that they fit together."""
    probability, next_state, row_start = rows
    if next_state.dtype.kind != "i" or row_start.dtype.kind != "i":
        raise ValueError("next_state and row_start are no whole numbers")
    if probability.dtype.kind != "f" or probability.shape != next_state.shape:
        raise ValueError("probability does not match next_state")
    begins = (row_start.shape, next_state.ndim) == ((shape[0] + 1,), 1) and row_start[0] == 0
    if not begins or (np.diff(row_start) < 0).any() or row_start[-1] != len(next_state):
        raise ValueError("row_start does not rise from 0 to the number of entries")
    if ((next_state < 0) | (next_state >= shape[1])).any():
        raise ValueError("next_state is no state")
    return sparse.csr_array(rows, shape=shape)
