"""Exploring without a setting: rounds that look for rewards, and learn prices in between.

The first round plays at random, with actions held for a step, for a few, and for many: some goals
are reached by steadiness alone. Every later one plays by prices that were learned from all rounds
before it, a third of it as they are, a third with held random actions, and a third with a bonus for
what was rarely tried (Strehl and Littman, 2008).

Paper: Algorithm 4, with prices in place of budgets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bmdp.arrays import FloatArray
from bmdp.data import TransitionBatch
from bmdp.envs.slots import open_slots
from bmdp.learn.candidates import Lesson, learned, placed_prices, played, promised, quick_recipe
from bmdp.learn.evidence import Player
from bmdp.learn.explore import with_bonus
from bmdp.learn.natures import nature_of, refined_prices, returns, some_episodes
from bmdp.learn.shelf import Shelf
from bmdp.policies.exploring import ExploringPolicy
from bmdp.policies.random import UniformPolicy

_ROUNDS = (0.1, 0.1, 0.1, 0.1, 0.12, 0.14, 0.16, 0.18)  # shares of the episodes
_HOLDS = (1, 4, 16)  # steps for which random actions are held, of the first round
_MOST_ROWS = 400_000  # of all rounds
_MOST_LEARNED = 15_000  # rows that explorers learn from, where states are many
_N_PRICES = 10
_SOON = 0.5  # share of the time after which the pace matters
_NEVER = 1e3  # decay of epsilon from which on it is at its floor


@dataclass(frozen=True)
class Expedition:
    """Where to explore, and how much."""

    player: Player
    n_episodes: int
    seconds: float  # that it may take
    device: str = "auto"


def explored(
    how: Expedition,
    shelf: Shelf,
    on_progress: Callable[[float, str], None],
    on_note: Callable[[str], None],
) -> TransitionBatch:
    """Returns the episodes of all rounds.

    Args:
        how: where, and how much.
        shelf: where rounds are kept.
        on_progress: called with the share that is done, and with what goes on.
        on_note: called with what is to be known of it.
    """
    begin, done = time.monotonic(), 0
    batches: list[TransitionBatch] = []
    prices: FloatArray = np.zeros(0)
    for number, share in enumerate(_ROUNDS):
        spent = done, time.monotonic() - begin
        size = partial(_size, how, tuple(batches), share, spent, on_note)
        n = int(shelf.numbers(f"rounds/{number}-size", size)["n"])
        if n < 3:
            break
        means = "" if not batches else _told(batches[-1], how.player.gamma)
        on_progress(done / how.n_episodes, f"exploring, round {number + 1}{means}")
        batch, prices = _round(how, shelf, number, batches, prices, n, done)
        batches.append(batch)
        done += n
    _note_cuts(batches, on_note)
    return TransitionBatch.concatenate(batches)


def _round(  # noqa: PLR0913
    how: Expedition,
    shelf: Shelf,
    number: int,
    batches: list[TransitionBatch],
    prices: FloatArray,
    n: int,
    done: int,
) -> tuple[TransitionBatch, FloatArray]:
    """Episodes of a round, and prices for the next one."""
    name, found = f"rounds/{number}", prices

    def make() -> TransitionBatch:
        nonlocal found
        plan, found = _plan(how, batches, prices, n, done)
        shelf.numbers(f"{name}-prices", lambda: {"found": found})
        parts = [how.player.play(part.policy, part.budgets, part.first) for part in plan]
        return TransitionBatch.concatenate(parts)

    batch = shelf.batch(name, make)
    return batch, shelf.numbers(f"{name}-prices", lambda: {"found": found})["found"]


def _size(
    how: Expedition,
    batches: Sequence[TransitionBatch],
    share: float,
    spent: tuple[int, float],
    on_note: Callable[[str], None],
) -> dict[str, int]:
    """Episodes of the next round as `n`: its share, or as many as rows and time allow.

    Args:
        how: how much to explore.
        batches: of the rounds before.
        share: of the round.
        spent: episodes and seconds.
        on_note: called if there are fewer.
    """
    n = max(3, round(share * how.n_episodes))
    if not batches:
        return {"n": n}
    (done, seconds), rows = spent, sum(map(len, batches))
    by_rows = (_MOST_ROWS - rows) / (rows / done)
    by_time = (
        (how.seconds - seconds) / (seconds / done) if seconds > _SOON * how.seconds else np.inf
    )
    most = int(min(by_rows, by_time, n))
    if most < n:
        on_note(
            f"exploring was cut to {done + max(0, most):,} of {how.n_episodes:,} episodes: they "
            f"have {rows / done:.0f} steps on average"
        )
    return {"n": most}


@dataclass(frozen=True)
class _Part:
    """Episodes of one policy."""

    policy: Any
    budgets: FloatArray
    first: int


def _plan(
    how: Expedition,
    batches: list[TransitionBatch],
    prices: FloatArray,
    n: int,
    first: int,
) -> tuple[list[_Part], FloatArray]:
    """Policies and episodes of a round, and the prices that were learned."""
    player, third = how.player, n // 3
    sizes = (n - 2 * third, third, third)
    slots = open_slots(player.spec)
    n_actions = int(slots.action_space.n)
    slots.close()
    if not batches:
        uniform = UniformPolicy(n_actions, 0.0, 1.0)
        policies = [ExploringPolicy(uniform, uniform, decay=0.0, hold=hold) for hold in _HOLDS]
        return list(_parts(policies, [np.zeros(size) for size in sizes], first)), prices
    lesson = _lesson(how, TransitionBatch.concatenate(batches), first)
    seconds = how.seconds / (3 * len(_ROUNDS))  # of each fit
    if len(prices) < 2:
        prices = placed_prices(lesson, _N_PRICES, seconds)
    recipe = quick_recipe(lesson.nature)
    plain = learned(recipe, lesson, prices, seconds)
    bold = learned(recipe, replace(lesson, batch=with_bonus(lesson.batch, 1.0)), prices, seconds)
    uniform = UniformPolicy(n_actions, 0.0, max(1.0, len(prices) - 1.0))
    policies = [
        ExploringPolicy(played(dial, lesson.nature), uniform, _NEVER, floor, hold)
        for dial, floor, hold in ((plain, 0.1, 1), (plain, 0.2, 4), (bold, 0.05, 1))
    ]
    rng = lesson.generator(f"auto/explore/prices/{first}")
    numbers = [rng.integers(len(prices), size=size).astype(np.float64) for size in sizes]
    if len(prices) > 1:
        prices = refined_prices(prices, promised(plain, lesson)[:, 0], _N_PRICES)
    return list(_parts(policies, numbers, first)), prices


def _lesson(how: Expedition, batch: TransitionBatch, first: int) -> Lesson:
    """All that was seen, or a part of it where states are many."""
    gamma, seed = how.player.gamma, how.player.seed
    nature = nature_of(batch, gamma)
    lesson = Lesson(nature.ended(batch), nature, gamma, seed, how.device)
    if nature.n_states is not None:
        return lesson
    rng = lesson.generator(f"auto/explore/rows/{first}")
    return replace(lesson, batch=some_episodes(lesson.batch, _MOST_LEARNED, rng))


def _parts(
    policies: Sequence[ExploringPolicy], budgets: Sequence[FloatArray], first: int
) -> Iterator[_Part]:
    for policy, numbers in zip(policies, budgets, strict=True):
        if len(numbers):
            yield _Part(policy, numbers, first + 1)  # epsilon of episode 0 is 1
            first += len(numbers)


def _told(batch: TransitionBatch, gamma: float) -> str:
    reward, cost = returns(batch, gamma).mean(axis=0)
    return f"; the last one earned {reward:.3g} at cost {cost:.3g} an episode"


def _note_cuts(batches: list[TransitionBatch], on_note: Callable[[str], None]) -> None:
    """Says so if many episodes were cut off."""
    whole = TransitionBatch.concatenate(batches)
    assert whole.truncated is not None
    assert whole.step is not None
    n_episodes = len(whole.starts())
    share = np.count_nonzero(whole.truncated) / n_episodes
    if share > 0.1:
        n_steps = int(whole.step.max()) + 1
        on_note(f"{share:.0%} of the episodes did not end by themselves within {n_steps:,} steps")
