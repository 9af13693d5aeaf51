"""The dial moved in the middle of episodes: what is paid from there on, against what should be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from bmdp.envs import Corridors
from bmdp.envs.corridors.frontier import Grid, corridors_grid, cost_range
from bmdp.evaluation import evaluate_move
from bmdp.experiments.experiment import Piece
from bmdp.learn.collect import collect
from bmdp.learn.spec import EnvConfig
from bmdp.policies.policy import BudgetedPolicy

FIRST_BUDGETS = (0.0, 0.5, 1.0)
"""Budgets before the dial is moved."""

NEW_BUDGETS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Budgets after."""


def moves(
    policy: BudgetedPolicy,
    env: EnvConfig,
    *,
    at_step: int,
    n_episodes: int,
    seed: int,
    resolution: int = 17,
) -> list[Piece]:
    """Returns what a policy pays and earns after its dial was moved, for each first budget.

    Args:
        policy: of any kind.
        env: where it is played.
        at_step: steps made before the dial is moved.
        n_episodes: for each pair of budgets.
        seed: of everything.
        resolution: of the grid on which the ideal costs of corridors are computed.

    Returns:
        For each first budget: `from`, `budgets` (the new ones), `going` (share of episodes that are
        not over at that step), `infeasible` share, `cost` and `reward` from there on (None if none
        is going on), and `ideal`, the mean cost of an honest dial, None where it is not known.
    """
    how: dict[str, Any] = {"n_episodes": n_episodes, "seed": seed}
    found = []
    for first in FIRST_BUDGETS:
        move = evaluate_move(
            policy,
            env.spec(),
            first_budget=first,
            new_budgets=NEW_BUDGETS,
            at_step=at_step,
            **how,
        )
        is_over = move.n_going == 0
        found.append(
            {
                "from": first,
                "budgets": list(NEW_BUDGETS),
                "going": move.going_share,
                "infeasible": None if is_over else move.infeasible_share.tolist(),
                "cost": None if is_over else move.cost_mean.tolist(),
                "reward": None if is_over else move.reward_mean.tolist(),
                "ideal": _ideal(policy, env, first, at_step, resolution, **how),
            }
        )
    return found


def _ideal(  # noqa: PLR0913
    policy: BudgetedPolicy,
    env: EnvConfig,
    first: float,
    step: int,
    resolution: int,
    *,
    n_episodes: int,
    seed: int,
) -> list[float] | None:
    """Corridors: mean cost-to-go of an honest dial, E[clip(budget, least, most of a state)]."""
    if env.id != "corridors":
        return None
    budgets = np.full(n_episodes, first)
    batch = collect(policy, env.spec(), range(n_episodes), budgets=budgets, seed=seed)
    assert batch.step is not None
    states = np.asarray(batch.state[batch.step == step], np.float64)[:, :2]
    if len(states) == 0:
        return None
    ends = cost_range(_grid(tuple(sorted(env.settings.items())), resolution), states, step)
    return [float(np.clip(budget, *ends.T).mean()) for budget in NEW_BUDGETS]


@lru_cache(maxsize=1)  # it takes seconds, and is the same for all methods of a task
def _grid(settings: tuple[tuple[str, Any], ...], resolution: int) -> Grid:
    return corridors_grid(Corridors(**dict(settings)), resolution)


class MoveErrors(NamedTuple):
    """How far costs are from where they should be, after the dial was moved."""

    worst: float  # what is paid too much, at most
    mean: float  # of distances


def move_errors(found: Iterable[Sequence[Piece]]) -> MoveErrors | None:
    """Returns the errors of all moves of several seeds; None if there are none.

    Where the ideal cost is not known it is the new budget, and only what is paid above it counts.
    """
    errors: list[float] = []
    for move in (move for moves in found for move in moves if move["cost"] is not None):
        is_known = move["ideal"] is not None
        off = np.subtract(move["cost"], move["ideal"] if is_known else move["budgets"])
        errors += (off if is_known else off.clip(0)).tolist()
    return MoveErrors(max(errors), float(np.abs(errors).mean())) if errors else None
