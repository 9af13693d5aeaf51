"""Pieces of experiments as values: read from JSON, checked, and frozen.

A piece that is not what it should be raises `StoreError`, with the name of what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from bmdp.arrays import FloatArray
from bmdp.errors import StoreError
from bmdp.evaluation.statistics import Interval
from bmdp.experiments.parts.measuring import evaluation_of
from bmdp.frontier import BudgetStatus, Frontier, Mixture, upper_frontier

Piece = Mapping[str, Any]
"""What JSON can say."""

ENVS = ("corridors", "slot-filling", "two-way")
"""Environments of which executions can be shown."""

_REALISED = ("cost", "reward", "cost_low", "cost_high", "reward_low", "reward_high")


@dataclass(frozen=True, eq=False)
class Truth:
    """The true frontier of a task, and how far its rewards may be off."""

    frontier: Frontier
    reward_error: float


@dataclass(frozen=True, eq=False)
class Prices:
    """What each of `P` policies costs and earns, that were learned for a price of cost each."""

    prices: FloatArray  # [P], rising
    cost_mean: FloatArray  # [P]
    cost_low: FloatArray  # [P]
    cost_high: FloatArray  # [P]
    reward_mean: FloatArray  # [P]
    reward_low: FloatArray  # [P]
    reward_high: FloatArray  # [P]
    cost_deviation: FloatArray  # [P], standard deviation over episodes
    n_episodes: int
    gamma: float


@dataclass(frozen=True, eq=False)
class Hull:
    """The points of one state, their frontier, and the mixture at one budget."""

    state: tuple[float, ...]
    costs: FloatArray  # [K]
    rewards: FloatArray  # [K]
    action: tuple[int, ...]  # [K]
    handed_on: FloatArray  # [K]
    action_names: tuple[str, ...]
    vertex_costs: FloatArray  # [V], of the frontier
    vertex_rewards: FloatArray  # [V]
    budget: float
    mixture: Mixture


@dataclass(frozen=True, eq=False)
class Executions:
    """What a policy does at each of `B` budgets; `piece` is the whole of it, for a dial."""

    env: str
    budgets: FloatArray  # [B]
    cost: FloatArray  # [B], realised
    reward: FloatArray  # [B], realised
    layout: Piece
    episodes: tuple[tuple[Piece, ...], ...]  # [B][E]
    piece: Piece


@dataclass(frozen=True, eq=False)
class Scripts:
    """What policies that were written by hand pay and earn, over episodes."""

    names: tuple[str, ...]  # [S]
    cost: Interval  # [S]
    reward: Interval  # [S]


@dataclass(frozen=True, eq=False)
class Round:
    """One round of exploration, and some of its episodes."""

    number: int
    n_episodes: int
    reward: float  # mean
    cost: float  # mean
    episodes: tuple[Piece, ...]


@dataclass(frozen=True, eq=False)
class Rounds:
    """Exploration round by round; `piece` is the whole of it, for a film."""

    env: str
    rounds: tuple[Round, ...]
    layout: Piece
    piece: Piece


def _truth(piece: Piece) -> Truth:
    costs, rewards = columns(piece, ("costs", "rewards"))
    return Truth(upper_frontier(costs, rewards), float(entry(piece, "reward_error")))


def _prices(piece: Piece) -> Prices:
    names = [f.name for f in fields(Prices) if f.type == "FloatArray"]
    found = columns(piece, names)
    order = np.argsort(found[0], kind="stable")
    rising = {name: column[order] for name, column in zip(names, found, strict=True)}
    return Prices(
        **rising, n_episodes=int(entry(piece, "n_episodes")), gamma=float(entry(piece, "gamma"))
    )


def _hull(piece: Piece) -> Hull:
    costs, rewards, handed_on = columns(piece, ("costs", "rewards", "handed_on"))
    frontier, mixture = entry(piece, "frontier"), entry(piece, "mixture")
    vertices = columns(frontier, ("costs", "rewards"))
    return Hull(
        state=tuple(float(x) for x in entry(piece, "state")),
        costs=costs,
        rewards=rewards,
        action=tuple(int(a) for a in entry(piece, "action")),
        handed_on=handed_on,
        action_names=tuple(map(str, entry(piece, "action_names"))),
        vertex_costs=vertices[0],
        vertex_rewards=vertices[1],
        budget=float(entry(piece, "budget")),
        mixture=Mixture(
            int(mixture["lower"]),
            int(mixture["upper"]),
            float(mixture["p_upper"]),
            BudgetStatus[mixture["status"]],
            float(mixture["cost"]),
            float(mixture["reward"]),
        ),
    )


def _executions(piece: Piece) -> Executions:
    env = _env(piece)
    (budgets,) = columns(piece, ("budgets",))
    cost, reward, *_ = columns(entry(piece, "realised"), _REALISED)
    columns(entry(piece, "frontier"), ("costs", "rewards"))
    episodes = tuple(tuple(map(mapping, some)) for some in entry(piece, "episodes"))
    n_choices = len(entry(piece, "choices"))
    if not len(budgets) == len(cost) == len(episodes) == n_choices:
        raise StoreError("budgets, choices, realised and episodes must be as many")
    if not len(budgets) or (np.diff(budgets) <= 0).any():
        raise StoreError("budgets must increase, and be at least one")
    for episode in (e for some in episodes for e in some):
        _require_steps(env, episode)
    layout = mapping(piece.get("layout") or {})
    if env != "slot-filling":
        _require_layout(env, layout)
    return Executions(env, budgets, cost, reward, layout, episodes, piece)


def _scripts(piece: Piece) -> Scripts:
    cost, reward = (
        Interval(*columns(piece, [f"discounted_{what}_{end}" for end in Interval._fields]))
        for what in ("cost", "reward")
    )
    names = tuple(map(str, entry(piece, "names")))
    if not len(names) == len(cost.mean) == len(reward.mean):
        raise StoreError("names, costs and rewards must be as many")
    return Scripts(names, cost, reward)


def _exploration(piece: Piece) -> Rounds:
    rounds = tuple(
        Round(
            number=int(entry(found, "round")),
            n_episodes=int(entry(found, "n_episodes")),
            reward=float(entry(found, "reward")),
            cost=float(entry(found, "cost")),
            episodes=tuple(map(mapping, entry(found, "episodes"))),
        )
        for found in entry(piece, "rounds")
    )
    for episode in (e for one in rounds for e in one.episodes):
        columns(episode, ("x", "y"))
    layout = mapping(entry(piece, "layout"))
    _require_layout(_env(piece), layout)
    return Rounds(_env(piece), rounds, layout, piece)


READERS: Mapping[str, Callable[[Piece], Any]] = {
    "evaluation": evaluation_of,
    "truth": _truth,
    "prices": _prices,
    "hull": _hull,
    "executions": _executions,
    "exploration": _exploration,
    "scripts": _scripts,
}
"""By the first word of their names."""


def entry(piece: Any, name: str) -> Any:
    """Returns what a piece has under a name.

    Raises:
        StoreError: if it has nothing.
    """
    if name not in mapping(piece):
        raise StoreError(f"there is no '{name}' in it")
    return piece[name]


def mapping(value: Any) -> Piece:
    """Returns values by name.

    Raises:
        StoreError: if they are something else.
    """
    if not isinstance(value, Mapping):
        raise StoreError(f"values by name were expected; got {type(value).__name__}")
    return value


def _env(piece: Piece) -> str:
    env = entry(piece, "env")
    if env not in ENVS:
        raise StoreError(f"'env' must be one of {', '.join(ENVS)}; got {env!r}")
    return str(env)


def columns(piece: Any, names: Sequence[str]) -> list[FloatArray]:
    """Returns lists of numbers, of the same length.

    Raises:
        StoreError: if one is missing, or they are something else.
    """
    found: list[FloatArray]  # of null: NaN
    found = [np.asarray(entry(piece, name), np.float64) for name in names]
    if any(column.ndim != 1 or column.shape != found[0].shape for column in found):
        raise StoreError(f"{', '.join(names)} must be lists of numbers, of the same length")
    return found


def require_numbers(piece: Any, names: Sequence[str]) -> None:
    """Checks that a piece has numbers under some names.

    Raises:
        StoreError: if one is missing, or is something else.
    """
    for name in names:
        if not np.isfinite(float(entry(piece, name))):
            raise StoreError(f"'{name}' must be a number")


def _require_steps(env: str, episode: Piece) -> None:
    if env == "corridors":
        columns(episode, ("x", "y"))
    elif env == "slot-filling":
        for line in entry(episode, "lines"):
            entry(line, "text")
    else:
        for car in entry(episode, "cars"):
            columns(car, ("x", "y", "heading"))


def _require_layout(env: str, layout: Piece) -> None:
    if env == "corridors":
        for cell in entry(layout, "cells"):
            require_numbers(cell, ("x", "y", "reward", "cost"))
        require_numbers(layout, ("columns", "rows"))
    else:
        require_numbers(layout, ("lane_width", "n_lanes"))
