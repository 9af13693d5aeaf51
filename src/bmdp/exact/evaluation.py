"""Values of given policies: of plain ones by a linear system, of budgeted ones likewise.

A budgeted policy walks over pairs (state, budget). Where it is known with which probabilities it
plays which actions and hands on which budgets, its values are the solution of one sparse linear
system over all pairs, or of a backward recursion where there is a horizon.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.linalg import splu

from bmdp.arrays import FloatArray, IntArray
from bmdp.errors import PolicyError
from bmdp.exact.model import FiniteBMDP
from bmdp.exact.operators import checked_grid
from bmdp.kinds import checked
from bmdp.policies.policy import Options

_ON_GRID = 1e-9  # how far from a grid point a budget may lie, relative to the grid's range


@runtime_checkable
class KnownPolicy(Protocol):
    """A budgeted policy whose probabilities are known."""

    def options(self, states: IntArray, budgets: FloatArray) -> Options:
        """Returns what it may do at `N` states with their budgets, and with which probability."""


@runtime_checkable
class ClockedPolicy(Protocol):
    """A policy that looks at the clock."""

    def at_step(self, step: int) -> KnownPolicy:
        """Returns what it does at one step of the episode."""


def policy_matrix(
    model: FiniteBMDP, policy: KnownPolicy, beta_grid: FloatArray
) -> sparse.csr_array:
    """Returns the probabilities `[S*B, S*A*B]` of a policy on a grid of budgets.

    Row s*B + b has the chance of action a and next budget b' in column (s*A + a)*B + b'.

    Raises:
        PolicyError: if the policy hands on a budget that is not on the grid.
    """
    n_states, n_budgets = model.n_states, len(beta_grid)
    states = np.repeat(np.arange(n_states), n_budgets)
    chosen = policy.options(states, np.tile(beta_grid, n_states))
    places = np.clip(np.searchsorted(beta_grid, chosen.next_budget), 1, max(n_budgets - 1, 1))
    lower = beta_grid[places - 1]
    upper = beta_grid[np.minimum(places, n_budgets - 1)]
    places = places - (abs(chosen.next_budget - lower) < abs(chosen.next_budget - upper))
    places = np.minimum(places, n_budgets - 1)
    off = abs(beta_grid[places] - chosen.next_budget) > _ON_GRID * (1 + np.ptp(beta_grid))
    if off.any():
        row, option = np.argwhere(off)[0]
        raise PolicyError(
            f"the policy hands on budget {chosen.next_budget[row, option]:g} at state "
            f"{states[row]}, which is not on beta_grid. Evaluate it on the grid it was made with."
        )
    columns = (states[:, None] * model.n_actions + chosen.action) * n_budgets + places
    rows = np.repeat(np.arange(len(states)), chosen.action.shape[1])
    shape = (len(states), n_states * model.n_actions * n_budgets)
    entries = (chosen.probability.ravel(), (rows, columns.ravel()))
    return sparse.csr_array(sparse.coo_array(entries, shape=shape))


@checked
def evaluate_policy(
    model: FiniteBMDP, policy: KnownPolicy | ClockedPolicy, beta_grid: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Returns reward and cost of a budgeted policy from every state and budget, each `[S, B]`.

    Args:
        model: the BMDP.
        policy: one whose probabilities are known, such as `Solution.policy()` or a `HullPolicy`.
        beta_grid: budgets `[B]`, among them all that the policy hands on.

    Returns:
        (v_r, v_c) at the first step, expected and discounted.

    Raises:
        PolicyError: if its probabilities are not known, or it leaves the grid.

    Paper: Proposition 1, V^pi by solving Eq. 5 rather than by iterating it.

    >>> from bmdp.exact import budgeted_value_iteration
    >>> from bmdp.exact.textbook import branches
    >>> model, grid = branches().model, [0.0, 0.5, 1.0]
    >>> v_r, v_c = evaluate_policy(model, budgeted_value_iteration(model, grid).policy(), grid)
    >>> v_r[0].tolist(), v_c[0].tolist()
    ([0.0, 2.75, 5.5], [0.0, 0.5, 1.0])
    """
    grid = checked_grid(beta_grid)
    if model.horizon is None:
        if not isinstance(policy, KnownPolicy):
            raise PolicyError(f"evaluate_policy needs a policy with `options`; {_named(policy)}.")
        pairs, reward, cost = _on_pairs(model, policy, grid)
        system = splu(sparse.csc_array(sparse.eye_array(pairs.shape[0]) - model.gamma * pairs))
        v_r, v_c = system.solve(reward), system.solve(cost)
    else:
        v_r = v_c = np.zeros(model.n_states * len(grid))
        for step in reversed(range(model.horizon)):
            now = policy.at_step(step) if isinstance(policy, ClockedPolicy) else policy
            if not isinstance(now, KnownPolicy):
                raise PolicyError(f"evaluate_policy needs a policy with `options`; {_named(now)}.")
            pairs, reward, cost = _on_pairs(model, now, grid)
            v_r = reward + model.gamma * (pairs @ v_r)
            v_c = cost + model.cost_gamma * (pairs @ v_c)
    shape = (model.n_states, len(grid))
    return v_r.reshape(shape), v_c.reshape(shape)


def _named(policy: object) -> str:
    return f"{type(policy).__name__} does not say with which probabilities it acts"


def _on_pairs(
    model: FiniteBMDP, policy: KnownPolicy, grid: FloatArray
) -> tuple[sparse.csr_array, FloatArray, FloatArray]:
    """The chain of (state, budget) pairs under a policy, and its reward and cost at each pair."""
    n_budgets = len(grid)
    matrix = policy_matrix(model, policy, grid)
    by_row = [np.repeat(t.reshape(-1), n_budgets) for t in (model.reward, model.cost)]
    next_pairs = sparse.kron(model.transition, sparse.eye_array(n_budgets), format="csr")
    return sparse.csr_array(matrix @ next_pairs), matrix @ by_row[0], matrix @ by_row[1]


def evaluate_actions(model: FiniteBMDP, chances: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns reward and cost of a plain stationary policy from every state, each `[S]`.

    Args:
        model: a BMDP without horizon.
        chances: probabilities of actions, `[S, A]`.
    """
    n_states, n_actions = model.shape
    states = np.repeat(np.arange(n_states), n_actions)
    rows = sparse.csr_array(
        (chances.ravel(), (states, np.arange(n_states * n_actions))),
        shape=(n_states, n_states * n_actions),
    )
    system = splu(
        sparse.csc_array(sparse.eye_array(n_states) - model.gamma * (rows @ model.transition))
    )
    return system.solve(rows @ model.reward.ravel()), system.solve(rows @ model.cost.ravel())
