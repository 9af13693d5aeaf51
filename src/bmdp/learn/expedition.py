"""Exploring without a setting: rounds that look for rewards, and learn prices in between.

The first round plays at random, with actions held for a step, for a few, and for many: some goals
are reached by steadiness alone. Every later one plays by prices that were learned from all rounds
before it, a third of it as they are, a third with held random actions, and a third with a bonus for
what was rarely tried (Strehl and Littman, 2008); of late rounds, two thirds as they are.

The first episodes tell the pace of the simulator. If it is too slow for all episodes, there are as
many as can be played in time, in fewer rounds if these would be small.

Paper: Algorithm 4, with prices in place of budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bmdp.arrays import FloatArray
from bmdp.data import TransitionBatch
from bmdp.envs.slots import open_slots
from bmdp.learn.candidates import Lesson, learned, placed_prices, played, promised, quick_recipe
from bmdp.learn.evidence import Player
from bmdp.learn.explore import with_bonus
from bmdp.learn.fit import Backward
from bmdp.learn.natures import nature_of, refined_prices, some_episodes
from bmdp.learn.shelf import Numbers, Shelf
from bmdp.policies.exploring import ExploringPolicy
from bmdp.policies.random import UniformPolicy

_ROUNDS = (0.1, 0.1, 0.1, 0.1, 0.12, 0.14, 0.16, 0.18)  # shares of the episodes
_HOLDS = (1, 4, 16)  # steps for which random actions are held, of the first round
_MOST_ROWS = 400_000  # of all rounds
_MOST_OF_NUMBERS = 80_000  # rows of all rounds, where states are many and steps are known
_MOST_LEARNED = 15_000  # rows that explorers iterate over, where states are many
_LATE = 0.35  # share of the episodes after which most are played as prices say
_N_PRICES = 10
_FOR_PACE = 0.1  # share of the time in which the pace is found out
_PLAYED = 0.7  # share of the time in which episodes are played; the rest is for learning
_SOON = 0.5  # share of the time after which the pace is that of learning and playing
_LEAST_FIRST = 6  # episodes of the first round
_LEAST_ROUND = 20  # episodes of a round, below which there are fewer rounds
_HARDLY = 0.05  # share of the episodes that may be missing without a word
_NEVER = 1e3  # decay of epsilon from which on it is at its floor


@dataclass(frozen=True, eq=False)
class Explored:
    """Episodes that were explored."""

    batch: TransitionBatch
    pace: float  # seconds of playing an episode, in the last round
    length: float  # steps of an episode, in the last round


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
) -> Explored:
    """Returns the episodes of all rounds, and how long one takes.

    Args:
        how: where, and how much.
        shelf: where rounds are kept.
        on_progress: called with the share that is done, and with what goes on.
        on_note: called with what is to be known of it.
    """
    on_progress(0.0, "exploring, round 1")
    journey = _Journey(how, shelf)
    for number in range(len(_ROUNDS)):
        if not journey.sized(number):
            break
        told = _told(how.player.returns(journey.batches[-1])) if number else ""
        on_progress(journey.share, f"exploring, round {number + 1}{told}")
        journey.play(number)
    if journey.is_short:
        on_note(journey.why_short())
    batch = TransitionBatch.concatenate(journey.batches)
    _note_cuts(batch, on_note)
    last = journey.batches[-1]
    return Explored(batch, journey.pace, len(last) / len(last.starts()))


class _Journey:
    """Rounds that were played, and how long they took.

    Seconds and sizes are kept, so that a run that is resumed goes on at the pace it had.
    """

    def __init__(self, how: Expedition, shelf: Shelf) -> None:
        self.how, self.shelf = how, shelf
        self.batches: list[TransitionBatch] = []
        self.prices: FloatArray = np.zeros(0)
        self.n_episodes, self.seconds = 0, 0.0  # played so far, and in which time
        self.probe, self.pace = self._probed()
        self.size: Numbers = {}  # of the round that is next
        self.was_slow = False  # whether time cut a round

    @property
    def share(self) -> float:
        """The share of the episodes that are played."""
        return float(min(1.0, self.n_episodes / self.size["all"]))

    @property
    def is_short(self) -> bool:
        """Whether there were clearly fewer episodes than were asked for."""
        planned = sum(_planned(self.how, number) for number in range(len(_ROUNDS)))
        return self.n_episodes < (1 - _HARDLY) * planned

    def why_short(self) -> str:
        """Says how many episodes there were, and why no more."""
        length = sum(map(len, self.batches)) / self.n_episodes
        if not self.was_slow:
            why = f"{length:.0f} steps each"
        elif self.pace * self.how.n_episodes > _PLAYED * self.how.seconds:
            why = f"time is short, one takes {self.pace:.2g} s"
        else:  # learning between rounds took it
            why = "time is short"
        return (
            f"exploring was cut to {self.n_episodes:,} of {self.how.n_episodes:,} episodes: {why}"
        )

    def sized(self, number: int) -> bool:
        """Finds the size of a round, and returns whether it is to be played."""
        self.size = self.shelf.numbers(f"rounds/{number}-size", lambda: self._size(number))
        self.was_slow |= bool(self.size["is_slow"])
        return bool(self.size["n"] >= 3)

    def _size(self, number: int) -> Numbers:
        """Episodes of a round as `n`: its share, or as many as rows and time allow.

        `all` is how many there will be in all rounds, as it looks, and `is_slow` whether time is
        what they are short of.
        """
        how, seen = self.how, self.batches or [self.probe]
        done = self.n_episodes if number else len(self.probe.starts())
        rows = sum(map(len, seen))
        by_time = self._left(done)
        by_rows = max(0.0, self._most_rows() - rows) / (rows / done)
        planned = max(3, round(_ROUNDS[number] * min(how.n_episodes, done + by_rows)))
        n, is_slow = planned, done + by_time < how.n_episodes
        if is_slow:
            left = by_time if number else by_time + done
            left /= self._growth() if number == 1 else 1.0
            n_rounds = int(np.clip(left // _LEAST_ROUND, 1, len(_ROUNDS) - number))
            n = min(planned, int(left / n_rounds))
        if number == 0:
            n = max(n, done, min(planned, _LEAST_FIRST))
        return {
            "n": int(min(n, by_rows)),
            "all": float(min(how.n_episodes, max(1.0, done + min(by_time, by_rows)))),
            "is_slow": float(is_slow and n <= by_rows),
        }

    def _most_rows(self) -> int:
        """Rows of all rounds that can be learned from in time."""
        if not self.batches:
            return _MOST_ROWS
        player = self.how.player
        batch = TransitionBatch.concatenate(self.batches)
        nature = nature_of(batch, player.gamma, cost_gamma=player.cost_gamma)
        has_steps = isinstance(nature.schedule, Backward)
        return _MOST_OF_NUMBERS if nature.n_states is None and has_steps else _MOST_ROWS

    def _growth(self) -> float:
        """The longest random episode over the mean: learned policies may last as long."""
        step = self.batches[0].step
        assert step is not None
        return float((step.max() + 1) * len(self.batches[0].starts()) / len(step))

    def _left(self, done: int) -> float:
        """Episodes that there is still time for, after so many."""
        seconds, spent = self.how.seconds, self.shelf.seconds
        left = max(0.0, _PLAYED * seconds - self.seconds) / max(self.pace, 1e-9)
        if self.batches and spent > _SOON * seconds:
            left = min(left, max(0.0, seconds - spent) / (spent / done))
        return left

    def _probed(self) -> tuple[TransitionBatch, float]:
        """Plays the first episodes: one, one, two, four, and so on, while they take no time.

        Returns:
            The episodes, which are the first ones of the first round, and the seconds of one. The
            very first does not tell: it may import, compile and open whatever is needed.
        """
        policy, most = _random_policies(self.how.player)[0], _thirds(_planned(self.how, 0))[0]
        limit, found = _FOR_PACE * self.how.seconds, {"pace": 0.0, "played": 0.0}

        def make() -> TransitionBatch:
            parts: list[TransitionBatch] = []
            took, done, size = [0.0], 0, 1
            while done < most and (len(parts) < 2 or sum(took[2:]) + 2 * took[-1] < limit):
                size = min(done or 1, most - done)
                batches, seconds = self._timed([_Part(policy, np.zeros(size), done + 1)])
                parts += batches
                took.append(seconds)
                done += size
            found.update(pace=took[-1] / size, played=sum(took))
            self.shelf.numbers("probe-pace", lambda: found)  # before the episodes are kept
            return TransitionBatch.concatenate(parts)

        batch = self.shelf.batch("probe", make)
        kept = self.shelf.numbers("probe-pace", lambda: found)
        self.seconds += float(kept["played"])
        return batch, float(kept["pace"])

    def _timed(self, plan: Sequence[_Part]) -> tuple[list[TransitionBatch], float]:
        """Plays episodes, and measures the seconds."""
        begin, player = self.shelf.seconds, self.how.player
        parts = [player.play(part.policy, part.budgets, part.first) for part in plan]
        return parts, self.shelf.seconds - begin

    def play(self, number: int) -> None:
        """Plays a round of the size that was found, and learns prices for the next one."""
        name, n = f"rounds/{number}", int(self.size["n"])
        n_probed = 0 if number else len(self.probe.starts())
        found: Numbers = {"found": self.prices, "played": 0.0}

        def make() -> TransitionBatch:
            if number:
                known = self.batches, self.prices
                plan, found["found"] = _plan(self.how, *known, n, self.n_episodes)
                parts, found["played"] = self._timed(plan)
                batch = TransitionBatch.concatenate(parts)
            else:
                rest, found["played"] = self._timed(list(_first_plan(self.how, n, n_probed)))
                batch = TransitionBatch.concatenate([self.probe, *rest])
            self.shelf.numbers(f"{name}-prices", lambda: found)  # before the episodes are kept
            return batch

        self.batches.append(self.shelf.batch(name, make))
        kept = self.shelf.numbers(f"{name}-prices", lambda: found)
        self.prices, seconds = kept["found"], float(kept["played"])
        self.n_episodes += n
        self.seconds += seconds
        if n > n_probed:
            self.pace = seconds / (n - n_probed)


def _planned(how: Expedition, number: int) -> int:
    """Episodes of a round if there is time for all."""
    return max(3, round(_ROUNDS[number] * how.n_episodes))


def _thirds(n: int) -> tuple[int, int, int]:
    return n - 2 * (n // 3), n // 3, n // 3


@dataclass(frozen=True)
class _Part:
    """Episodes of one policy."""

    policy: Any
    budgets: FloatArray
    first: int


def _random_policies(player: Player) -> list[ExploringPolicy]:
    """Policies of the first round."""
    uniform = UniformPolicy(_n_actions(player), 0.0, 1.0)
    return [ExploringPolicy(uniform, uniform, decay=0.0, hold=hold) for hold in _HOLDS]


def _n_actions(player: Player) -> int:
    with closing(open_slots(player.spec)) as slots:
        return int(slots.action_space.n)


def _first_plan(how: Expedition, n: int, n_probed: int) -> Iterator[_Part]:
    """Policies and episodes of the first round, without those of the first policy that are played.

    A slow simulator may have played more than a third by then; the others share what is left.
    """
    first = max(_thirds(n)[0], n_probed)
    sizes = (first - n_probed, n - first - (n - first) // 2, (n - first) // 2)
    return _parts(_random_policies(how.player), [np.zeros(size) for size in sizes], n_probed)


def _plan(
    how: Expedition,
    batches: list[TransitionBatch],
    prices: FloatArray,
    n: int,
    first: int,
) -> tuple[list[_Part], FloatArray]:
    """Policies and episodes of a later round, and the prices that were learned."""
    lesson = _lesson(how, TransitionBatch.concatenate(batches), first)
    seconds = how.seconds / (3 * len(_ROUNDS))  # of each fit
    if len(prices) < 2:
        prices = placed_prices(lesson, _N_PRICES, seconds)
    recipe = quick_recipe(lesson.nature)
    plain = learned(recipe, lesson, prices, seconds)
    bold = learned(recipe, replace(lesson, batch=with_bonus(lesson.batch, 1.0)), prices, seconds)
    uniform = UniformPolicy(_n_actions(how.player), 0.0, max(1.0, len(prices) - 1.0))
    policies = [
        ExploringPolicy(played(dial, lesson.nature), uniform, _NEVER, floor, hold)
        for dial, floor, hold in ((plain, 0.1, 1), (plain, 0.2, 4), (bold, 0.05, 1))
    ]
    rng = lesson.generator(f"auto/explore/prices/{first}")
    is_late = first >= _LATE * how.n_episodes
    sizes = (n - 2 * (n // 6), n // 6, n // 6) if is_late else _thirds(n)
    numbers = [rng.integers(len(prices), size=size).astype(np.float64) for size in sizes]
    if len(prices) > 1:
        prices = refined_prices(prices, promised(plain, lesson)[:, 0], _N_PRICES)
    return list(_parts(policies, numbers, first)), prices


def _lesson(how: Expedition, batch: TransitionBatch, first: int) -> Lesson:
    """All that was seen, or a part of it where it is iterated over and states are many."""
    player = how.player
    nature = nature_of(batch, player.gamma, cost_gamma=player.cost_gamma)
    terms: Any = {"gamma": player.gamma, "cost_gamma": player.cost_gamma}
    terms |= {"seed": player.seed, "device": how.device}
    lesson = Lesson(nature.ended(batch), nature, **terms)
    if nature.n_states is not None or isinstance(nature.schedule, Backward):
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


def _told(found: FloatArray) -> str:
    reward, cost = found.mean(axis=0)
    return f"; the last one earned {reward:.3g} at cost {cost:.3g} an episode"


def _note_cuts(batch: TransitionBatch, on_note: Callable[[str], None]) -> None:
    """Says so if many episodes were cut off."""
    assert batch.truncated is not None
    assert batch.step is not None
    n_episodes = len(batch.starts())
    share = np.count_nonzero(batch.truncated) / n_episodes
    if share > 0.1:
        n_steps = int(batch.step.max()) + 1
        on_note(f"{share:.0%} of the episodes did not end by themselves within {n_steps:,} steps")
