"""Episodes that are played for evidence: as many as it takes to tell dials apart.

Every dial is played a little, all of them in the same episodes. Those that are clearly worse than
the best one drop out, and the others are played twice as much, until one is left, or the rest makes
no difference, or episodes or time are used up. Then the members of the best one are played where
their costs are least known.

What a dial promises itself is corrected by what was measured (`bmdp.learn.evidence.blended`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.learn.candidates import Dial, Lesson, played
from bmdp.learn.evidence import (
    Curve,
    Player,
    Spread,
    bare_curve,
    blended,
    choice_values,
    jackknife_error,
    little,
    promised_curve,
)
from bmdp.learn.shelf import Shelf

_N_GROUPS = 8  # of episodes, one of which is left out at a time
_CLEAR = 2.0  # standard errors by which the worse ones are told
_PROVEN = 3.0  # standard errors by which a cheaper member is told: it is the least of many
_BEFORE = 10.0  # episodes that what is thought of variances counts for
_DOUBT = 0.05  # of what dials promise themselves
_EACH = 4  # episodes of a member, at least
_NEAR = 0.02  # share of its cost to which a member's cost is to be known
_LEAST = 0.04  # share of the largest cost, below which costs are known alike


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums of what episodes of `M` members earned and cost, in some groups of episodes.

    >>> tally = Tally.of(np.array([[1.0, 0.5], [3.0, 0.7]]), np.array([1, 1]), 2)
    >>> tally.means().round(2).tolist()  # rewards and costs; the first member was not played
    [[0.0, 0.0], [2.0, 0.6]]
    """

    counts: FloatArray  # [G, M]
    sums: FloatArray  # [G, M, 2]
    squares: FloatArray  # [M, 2], of all groups

    @classmethod
    def of(cls, found: FloatArray, which: IntArray, n_members: int) -> Tally:
        """Rewards and costs `[N, 2]` of episodes of members `[N]`, dealt out to the groups."""
        order = np.argsort(which, kind="stable")
        rank = np.arange(len(which)) - np.searchsorted(which[order], which[order])
        counts, sums = np.zeros((_N_GROUPS, n_members)), np.zeros((_N_GROUPS, n_members, 2))
        cell = rank % _N_GROUPS, which[order]
        np.add.at(counts, cell, 1)
        np.add.at(sums, cell, found[order])
        squares = np.zeros((n_members, 2))
        np.add.at(squares, which, found**2)
        return cls(counts, sums, squares)

    def __add__(self, other: Tally) -> Tally:
        """Both together."""
        squares = self.squares + other.squares
        return Tally(self.counts + other.counts, self.sums + other.sums, squares)

    def means(self, without: int | None = None) -> FloatArray:
        """Rewards and costs `[M, 2]`, with a group left out or not; 0 where nothing was played."""
        counts = self._kept(self.counts, without)
        sums = self._kept(self.sums, without)
        return np.asarray(sums / np.maximum(counts, 1)[:, None])

    def spread(self, before: Spread) -> Spread:
        """Variance of episodes, by those that were played.

        Args:
            before: what was thought of it, which counts for a few episodes.

        >>> rng, which = np.random.default_rng(0), np.arange(8_000) % 2
        >>> found = rng.normal([[1.0, 4.0]], [[3.0, 2.0]], size=(8_000, 2))  # rewards and costs
        >>> own = Tally.of(found, which, 2).spread(Spread(cost=5.0, reward=5.0))
        >>> round(own.cost, 1), round(own.reward)
        (1.0, 9)
        """
        counts = self.counts.sum(axis=0)  # [M]
        off_r, off_c = (self.squares - counts[:, None] * self.means() ** 2).sum(axis=0)
        n, paid = counts.sum(), float(counts @ np.abs(self.means()[:, 1]))
        if paid == 0:
            return before
        cost = (off_c + _BEFORE * before.cost * paid / n) / (paid + _BEFORE * paid / n)
        return Spread(float(cost), float((off_r + _BEFORE * before.reward) / (n + _BEFORE)))

    def curve(self, without: int | None = None) -> Curve:
        """The same as a curve."""
        return bare_curve(self.means(without)[:, ::-1], self._kept(self.counts, without))

    @staticmethod
    def _kept(values: FloatArray, without: int | None) -> FloatArray:
        total: FloatArray = values.sum(axis=0)
        return total if without is None else total - values[without]


@dataclass(frozen=True, eq=False)
class Runner:
    """A dial in the race."""

    name: str
    dial: Dial
    model: Curve  # that it promises itself
    tally: Tally  # of members that differ
    seconds: float = 0.0  # that the last episodes took, each

    def curve(self, spread: Spread, without: int | None = None) -> Curve:
        """The curve that is known, with a group of episodes left out or not."""
        _, kind = alike(self.model)
        measured = self.tally.curve(without).take(kind)
        measured = replace(measured, counts=measured.counts / np.bincount(kind)[kind])
        return blended(self.model, measured, self.tally.spread(spread), _DOUBT)


def alike(model: Curve) -> tuple[IntArray, IntArray]:
    """Returns members that differ from the one before, and which of them each member is, `[M]`."""
    points = np.column_stack((model.cost, model.reward))
    differs = (np.abs(np.diff(points, axis=0)) > 1e-6 * np.abs(points).max(axis=0)).any(axis=1)
    kind = np.append(0, np.cumsum(differs))
    return np.flatnonzero(np.append(True, differs)), kind


def in_doubt(values: FloatArray, repeats: FloatArray, nothing: float) -> BoolArray:
    """Says which dials may be the best one, `[C]`: that one, and those not clearly worse.

    If all of them are as good as the best one, none is in doubt but that one.

    Args:
        values: of dials, `[C]`.
        repeats: the same with each of K groups of episodes left out in turn, `[K, C]`.
        nothing: difference that does not matter.

    >>> repeats = np.array([[1.0, 0.9, 0.2], [1.0, 1.1, 0.3]])
    >>> in_doubt(np.array([1.01, 1.0, 0.25]), repeats, 0.001).tolist()
    [True, True, False]
    """
    best = int(np.argmax(values))
    error = jackknife_error(repeats[:, [best]] - repeats)
    gap = values[best] - values
    is_open = (gap <= _CLEAR * error) & (gap + _CLEAR * error > nothing)
    is_open[best] = True
    return np.asarray(is_open)


class Race:
    """The episodes of a contest in a simulator; all that is played is kept."""

    def __init__(
        self, player: Player, lesson: Lesson, spread: Spread, shelf: Shelf, first: int
    ) -> None:
        """Begins with the episode of number `first`."""
        self.player, self.lesson, self.spread, self.shelf = player, lesson, spread, shelf
        self.n_played = 0
        self.next = first  # number of the next episode

    def enter(self, dial: Dial, n_episodes: int) -> Runner:
        """Returns a dial after a first look at it, by episodes that all dials have."""
        name, model = dial.recipe.name, promised_curve(dial, self.lesson)
        kinds, _ = alike(model)
        empty = Tally.of(np.zeros((0, 2)), np.zeros(0, np.int64), len(kinds))
        runner = Runner(name, dial, model, empty)
        return self._played(runner, _evenly(n_episodes, len(kinds)), f"candidates/{name}/look")

    def run(
        self, runners: Sequence[Runner], n_look: int, most: int, seconds: float
    ) -> list[Runner]:
        """Returns the dials after the race.

        Args:
            runners: the dials.
            n_look: episodes of their first looks.
            most: episodes of all dials together, at most.
            seconds: that it may take.
        """
        found, n, number, left = list(runners), n_look, 0, seconds
        self.next += n_look
        while True:
            doubted = self.in_doubt(found)
            n_going = int(doubted.sum())
            needed = n * sum(r.seconds for r, is_in in zip(found, doubted, strict=True) if is_in)
            goes_on = n_going > 1 and n * n_going <= most and needed <= left
            now = {"goes_on": goes_on, "doubted": doubted}
            kept = self.shelf.numbers(f"race/{number}", partial(dict, now))
            if not kept["goes_on"]:
                return found
            begin = time.monotonic()
            for place in np.flatnonzero(kept["doubted"]):
                runner = found[place]
                which = _evenly(n, runner.tally.counts.shape[1])
                found[place] = self._played(runner, which, f"race/{number}-{runner.name}")
            self.next += n
            most, left = most - n * n_going, left - (time.monotonic() - begin)
            n, number = 2 * n, number + 1

    def measure(self, runner: Runner, most: int, seconds: float) -> Runner:
        """Returns a dial whose members were played until their costs are known well enough.

        Args:
            runner: the dial.
            most: episodes, at most.
            seconds: that it may take.
        """
        kinds, _ = alike(runner.model)
        cost = np.abs(runner.curve(self.spread).cost[kinds])
        if cost.max() == 0:
            return runner
        size = np.maximum(cost, _LEAST * cost.max())
        needed = self._needed(runner, size, _NEAR * size)
        if needed.sum() == 0:
            return runner
        in_time = seconds / max(runner.seconds, 1e-9)
        share = min(1.0, min(most, in_time) / needed.sum())
        kept = self.shelf.numbers("measure", lambda: {"n": (share * needed).astype(np.int64)})
        which = np.repeat(np.arange(len(kinds)), kept["n"])
        found = self._played(runner, which, "measured")
        self.next += len(which)
        return found

    def prove(self, runner: Runner, cheaper: float, most: int, seconds: float) -> Runner | None:
        """Returns a dial whose cheapest member was played until it is clear whether it is cheap.

        Of several dials the one that is thought to cost least is likely the one that errs most.

        Args:
            runner: the dial; itself is returned if that is clear already.
            cheaper: cost by which the member is thought to be cheaper than others.
            most: episodes, at most; None is returned if it would take more.
            seconds: that it may take, likewise.
        """
        curve, (_, kind) = runner.curve(self.spread), alike(runner.model)
        member = curve.first()
        needed = np.zeros(runner.tally.counts.shape[1])
        size = np.full(len(needed), max(curve.cost[member], 0.0) + cheaper)
        needed[kind[member]] = self._needed(runner, size, cheaper / _PROVEN)[kind[member]]
        n, name = math.ceil(needed.sum()), f"proof/{self.next}-{runner.name}"
        can = n <= min(most, seconds / max(runner.seconds, 1e-9))
        kept = self.shelf.numbers(f"{name}/n", lambda: {"n": n, "can": can})
        if not kept["can"]:
            return None
        which = np.full(kept["n"], kind[member])
        found = self._played(runner, which, f"{name}/found")
        self.next += len(which)
        return found

    def _needed(self, runner: Runner, size: FloatArray, error: FloatArray | float) -> FloatArray:
        """Episodes of members that are missing, for costs of a size to be known to an error."""
        spread = runner.tally.spread(self.spread).cost
        counts: FloatArray = runner.tally.counts.sum(axis=0)
        return np.asarray(np.maximum(spread * size / error**2 - counts, 0.0))

    def in_doubt(self, runners: Sequence[Runner]) -> BoolArray:
        """Says which dials may be the best one, by all that was played."""
        curves = [runner.curve(self.spread) for runner in runners]
        repeats = np.array(
            [
                choice_values([runner.curve(self.spread, group) for runner in runners])
                for group in range(_N_GROUPS)
            ]
        )
        return in_doubt(choice_values(curves), repeats, little(curves))

    def _played(self, runner: Runner, which: IntArray, name: str) -> Runner:
        """Plays members `[N]` of a dial, and returns it with what they earned and cost."""
        kinds, _ = alike(runner.model)
        self.n_played += len(which)
        if len(which) == 0:
            return runner

        def make() -> dict[str, FloatArray | float]:
            begin = time.monotonic()
            members = runner.dial.members[kinds[which]]
            batch = self.player.play(played(runner.dial, self.lesson.nature), members, self.next)
            tally = Tally.of(self.player.returns(batch), which, len(kinds))
            seconds = (time.monotonic() - begin) / len(which)
            return {**vars(tally), "seconds": seconds}

        kept = self.shelf.numbers(name, make)
        tally = runner.tally + Tally(kept["counts"], kept["sums"], kept["squares"])
        return replace(runner, tally=tally, seconds=float(kept["seconds"]))


def _evenly(n_episodes: int, n_members: int) -> IntArray:
    """Members of episodes `[N]`: all in turn, or some of them where episodes are few."""
    n_some = max(2, min(n_members, n_episodes // _EACH))
    some = np.unique(np.linspace(0, n_members - 1, n_some).round().astype(np.int64))
    return np.asarray(some[np.arange(max(n_episodes, len(some))) % len(some)])
