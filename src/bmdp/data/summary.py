"""A log in a few numbers, with warnings for who learns from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp.kinds import checked

_MOST_LISTED = 10


@checked
@dataclass(frozen=True)
class BatchSummary:
    """Sizes, ranges and warnings of a batch of transitions. Its text is a table.

    >>> from bmdp import TransitionBatch
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True], episode=[0, 1])
    >>> found = log.summary()
    >>> found.action_counts, found.cost_range, found.mean_episode_cost
    ((1, 1), (0.0, 1.0), 0.5)
    >>> found.notes
    ('every row is terminal: nothing ever follows an action',)
    """

    n_transitions: int  # N
    n_episodes: int | None  # None if unknown
    n_actions: int  # A
    state_size: int  # D, numbers of a state
    action_counts: tuple[int, ...]  # [A], how often each was taken
    reward_range: tuple[float, float]  # of a step
    cost_range: tuple[float, float]  # of a step
    share_terminal: float  # of rows
    mean_episode_reward: float | None  # undiscounted; None if episodes are unknown
    mean_episode_cost: float | None  # likewise
    mean_available: float | None  # actions that could be taken at a state; None if all always could
    notes: tuple[str, ...]  # what to beware of, in plain words

    def __str__(self) -> str:
        counts = [f"{count:,}" for count in self.action_counts[:_MOST_LISTED]]
        more = ", ..." if self.n_actions > _MOST_LISTED else ""
        lines = [
            ("transitions", f"{self.n_transitions:,}"),
            ("episodes", "unknown" if self.n_episodes is None else f"{self.n_episodes:,}"),
            ("numbers a state", f"{self.state_size}"),
            ("actions", f"{self.n_actions}, taken {', '.join(counts)}{more} times"),
            ("rewards", "from {:g} to {:g}".format(*self.reward_range)),
            ("costs", "from {:g} to {:g}".format(*self.cost_range)),
            ("terminal", f"{self.share_terminal:.1%}"),
        ]
        if self.mean_episode_reward is not None:
            lines.append(("reward an episode", f"{self.mean_episode_reward:g}"))
            lines.append(("cost an episode", f"{self.mean_episode_cost:g}"))
        if self.mean_available is not None:
            lines.append(("available", f"{self.mean_available:.3g} actions a state"))
        lines.extend(("note", note) for note in self.notes)
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in lines)


def summarised(columns: Mapping[str, NDArray[Any]], n_actions: int) -> BatchSummary:
    """Returns the summary of the columns of a batch."""
    reward, cost = columns["reward"], columns["cost"]
    counts = tuple(np.bincount(columns["action"], minlength=n_actions).tolist())
    n_episodes, mean_reward, mean_cost = None, None, None
    if "episode" in columns:
        n_episodes = len(np.unique(columns["episode"]))
        mean_reward, mean_cost = (float(x.sum()) / n_episodes for x in (reward, cost))
    available = columns.get("available")
    return BatchSummary(
        n_transitions=len(reward),
        n_episodes=n_episodes,
        n_actions=n_actions,
        state_size=int(columns["state"].shape[1]),
        action_counts=counts,
        reward_range=(float(reward.min()), float(reward.max())),
        cost_range=(float(cost.min()), float(cost.max())),
        share_terminal=float(columns["terminal"].mean()),
        mean_episode_reward=mean_reward,
        mean_episode_cost=mean_cost,
        mean_available=float(available.sum(axis=1).mean()) if available is not None else None,
        notes=(*_action_notes(counts), *_value_notes(columns), *_end_notes(columns)),
    )


def _action_notes(counts: tuple[int, ...]) -> list[str]:
    taken = [a for a, count in enumerate(counts) if count]
    never = [str(a) for a, count in enumerate(counts) if not count]
    if len(taken) == 1:
        return [f"only action {taken[0]} was ever taken: there is nothing to choose from"]
    if never:
        listed = ", ".join(never[:_MOST_LISTED]) + (", ..." if len(never) > _MOST_LISTED else "")
        named = f"action {listed} was" if len(never) == 1 else f"actions {listed} were"
        return [f"{named} never taken: the log says nothing of what follows"]
    return []


def _value_notes(columns: Mapping[str, NDArray[Any]]) -> list[str]:
    notes = []
    reward, cost = columns["reward"], columns["cost"]
    n_negative = int((cost < 0).sum())
    if not cost.any():
        notes.append("all costs are 0: every budget is the same")
    elif (cost == cost[0]).all():
        notes.append(f"all costs are {cost[0]:g}: only the length of an episode makes a difference")
    if n_negative:
        notes.append(f"{n_negative:,} costs are below 0: budgets are earned back there")
    if (reward == reward[0]).all():
        notes.append(f"all rewards are {reward[0]:g}")
    return notes


def _end_notes(columns: Mapping[str, NDArray[Any]]) -> list[str]:
    notes = []
    terminal = columns["terminal"]
    if not terminal.any():
        notes.append("no row is terminal: the process is taken to go on for ever")
    elif terminal.all():
        notes.append("every row is terminal: nothing ever follows an action")
    if "episode" not in columns:
        notes.append("episodes are unknown: each row is taken as one")
    if "available" in columns and "next_available" not in columns:
        notes.append("available actions of next states are unknown: all are taken to be there")
    return notes
