"""What a policy takes and what it gives: states, budgets and random numbers; decisions.

States are rows of an array, with a budget for each; what is given is checked here, once for all
policies.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray, real_array, require_shape
from bmdp.errors import BudgetError, PolicyError
from bmdp.frontier import BudgetStatus
from bmdp.randomness import EpisodeStreams

ActionT = TypeVar("ActionT")
BudgetT = TypeVar("BudgetT")
StatusT = TypeVar("StatusT")


class Decision(NamedTuple, Generic[ActionT, BudgetT, StatusT]):
    """What to do now, the budget to hold next, and how the budget lay to the frontier.

    One of each from `act`, arrays `[N]` from `decide`.

    Paper: the augmented action (a, beta_a) of Section 2.

    >>> from bmdp.policies import HullPolicy, TabularQ
    >>> q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    >>> HullPolicy(q, [0.0, 1.0]).act(0, 1.0, np.random.default_rng(0))
    Decision(action=1, next_budget=0.0, status=<BudgetStatus.SLACK: 2>)
    """

    action: ActionT  # number of an action
    next_budget: BudgetT  # in expected discounted cost, from the next state on
    status: StatusT  # of the budget held


OneDecision: TypeAlias = Decision[int, float, BudgetStatus]
Decisions: TypeAlias = Decision[IntArray, FloatArray, IntArray]
"""The same three as arrays `[N]`."""


class Options(NamedTuple):
    """What a policy may do at `N` states with their budgets, `J` things at each.

    `[N, L, J]` where each state is asked at `L` budgets.
    """

    action: IntArray  # [N, J]
    next_budget: FloatArray  # [N, J]
    probability: FloatArray  # [N, J], rows sum to 1


Randomness: TypeAlias = np.random.Generator | EpisodeStreams


def admitted_budgets(
    budgets: ArrayLike, n_rows: int, budget_range: tuple[float, float]
) -> NDArray[np.float64]:
    """Returns budgets `[N]` that a policy takes; one for all may be given.

    Raises:
        BudgetError: naming the first that is not a number, or below the range.
        DataError: if there are not `N`.

    >>> admitted_budgets(0.5, 2, (0.0, 1.0))
    array([0.5, 0.5])
    """
    held = real_array("budgets", budgets).astype(np.float64)
    if held.ndim == 0:
        held = np.full(n_rows, held)
    require_shape("budgets", held, (n_rows,), "[N]")
    low, high = budget_range
    refused = np.flatnonzero(~(held >= low))  # NaN included
    if len(refused):
        i = int(refused[0])
        raise BudgetError(
            f"budgets must be numbers from {low:g} on (budget_range is {low:g} to {high:g}); "
            f"got {held[i]:g} at [{i}]."
        )
    return held


def episode_streams(rng: Randomness, states: ArrayLike) -> EpisodeStreams:
    """Returns a stream for each episode that starts: those given, or new ones of a generator."""
    n_episodes = len(state_rows(states))
    if isinstance(rng, EpisodeStreams):
        if len(rng) != n_episodes:
            raise PolicyError(
                f"rng must have one stream for each of {n_episodes} episodes; got {len(rng)}."
            )
        return rng
    return EpisodeStreams.from_generator(rng, n_episodes)


def idle_decisions(budgets: FloatArray) -> Decisions:
    """Decisions of ended episodes: action 0, the budget as it is, SLACK."""
    status = np.full(len(budgets), BudgetStatus.SLACK, np.int8)
    return Decision(np.zeros(len(budgets), np.int64), budgets.copy(), status)


def ended_episodes(ended: ArrayLike, n_rows: int) -> BoolArray:
    """Checks the mask of ended episodes, `[N]` or one for all."""
    mask = np.asarray(ended, np.bool_)
    if mask.ndim == 0:
        mask = np.full(n_rows, mask)
    require_shape("ended", mask, (n_rows,), "[N]")
    return mask


def state_rows(states: ArrayLike, n_rows: int | None = None) -> NDArray[Any]:
    """States as an array `[N, ...]`."""
    rows = np.asarray(states)
    if rows.ndim == 0 or (n_rows is not None and len(rows) != n_rows):
        count = "[N, ...]" if n_rows is None else f"[{n_rows}, ...]"
        require_shape("states", rows, (n_rows, *rows.shape[1:]), count)
    return rows
