"""Whether episodes in production begin as those that a policy was learned from.

The first state of an episode is compared, and no other: later ones of the same episode are not
independent of it, and depend on what the policy does, which is not what the log did.

Each number of the state is compared by itself, by the largest distance D of its distribution
function from that of the training log (Kolmogorov and Smirnov), and so are a few random directions
of all numbers together, which see how they go together. With n states of the log and m new ones, D
is above d by chance with probability 2 exp(-2 d^2 n m / (n + m)) at most, for large n and m.

New episodes are compared in blocks, of 100, 200, 400 ..., each once, when it is full. The k-th
block may give a false alarm with probability alpha / (k (k + 1)), which its comparisons share. So
all blocks together give one with probability alpha at most, however often the log is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bmdp.arrays import MAGNITUDE, FloatArray, real_array, require_finite, require_shape
from bmdp.errors import DataError
from bmdp.kinds import checked
from bmdp.randomness import named_generator

FIRST_BLOCK = 100
"""Episodes of the first block."""

_DIRECTIONS = 8
LEAST_STATES = 50
"""First states that a training log must have."""

_ALL = "all together"


class Comparison(NamedTuple):
    """Distances of `F` comparisons, and how likely chance makes them as large."""

    distance: FloatArray  # [F]
    chance: FloatArray  # [F]


@dataclass(frozen=True)
class Shift:
    """A number of the state that begins otherwise than in the training log."""

    name: str
    distance: float  # of distribution functions, from 0 to 1
    first: int  # episode of the block, from 1 on
    last: int
    before: float  # mean in the training log
    now: float  # mean in the block


@dataclass(frozen=True)
class DriftReport:
    """All shifts that were found, in the order of their blocks."""

    n_training: int  # states that are compared with
    n_seen: int  # episodes
    n_blocks: int  # that were compared
    next_block: int  # episodes at which the next is full
    n_unlike: int  # states that are no numbers, or of another length
    shifts: tuple[Shift, ...]

    def notes(self) -> list[str]:
        """Returns what is known, a sentence each."""
        notes = []
        if self.n_unlike:
            notes.append(f"{self.n_unlike:,} first states are not like those of the training log.")
        if not self.n_blocks:
            return [*notes, f"Drift is looked for from {self.next_block:,} episodes on."]
        names = ", ".join(dict.fromkeys(shift.name for shift in self.shifts))
        said = f"otherwise than in training: {names}" if names else "as in training, so far"
        blocks = f"{self.n_blocks} block{'s' if self.n_blocks > 1 else ''}"
        return [*notes, f"Episodes begin {said} ({blocks} of {self.n_seen:,} episodes)."]


@checked
class Drift:
    """Compares first states with those of a training log, block by block.

    Args:
        training: first states of its episodes, `[n, D]`, or `[n]` of a single number.
        names: of the numbers of a state, `[D]`.
        confidence: that all blocks are right together, if nothing has changed.

    Raises:
        DataError: if there are fewer than 50.

    >>> rng = np.random.default_rng(0)
    >>> drift = Drift(rng.normal(size=(500, 2)), names=("age", "dose"))
    >>> drift.add(rng.normal(size=(100, 2)) + [0, 1])
    >>> [(shift.name, shift.last) for shift in drift.report().shifts if shift.name == "dose"]
    [('dose', 100)]
    """

    def __init__(
        self, training: ArrayLike, names: Sequence[str] | None = None, *, confidence: float = 0.95
    ) -> None:
        states = np.atleast_1d(real_array("training", training)).astype(np.float64)
        require_finite("training", states, limit=MAGNITUDE)
        states = states[:, None] if states.ndim == 1 else states.reshape(len(states), -1)
        if len(states) < LEAST_STATES:
            raise DataError(
                f"training must have at least {LEAST_STATES} episodes to compare with; got "
                f"{len(states)}."
            )
        self.names = tuple(names or (f"state[{i}]" for i in range(states.shape[1])))
        self.confidence = confidence
        self._means = states.mean(axis=0)
        self._sorted = np.sort(states, axis=0)
        n_directions = _DIRECTIONS if states.shape[1] > 1 else 0
        rng = named_generator(0, "directions of drift")
        self._directions = rng.normal(size=(states.shape[1], n_directions))
        self._projected = np.sort(self._seen_together(states), axis=0)
        self._waiting: list[FloatArray] = []
        self._n_seen = self._n_unlike = self._n_blocks = 0
        self._shifts: list[Shift] = []

    def add(self, states: Iterable[object]) -> None:
        """Records first states, and compares the blocks that are full.

        Args:
            states: each a list of numbers, `[D]`, or a number.
        """
        for state in states:
            row = self._row(state)
            if row is None:
                self._n_unlike += 1
                continue
            self._waiting.append(row)
            self._n_seen += 1
            if self._n_seen == _end(self._n_blocks + 1):
                self._n_blocks += 1
                self._judge(np.stack(self._waiting))
                self._waiting = []

    def compared(self, states: ArrayLike) -> Comparison:
        """Returns how far states are from those of the training log.

        Args:
            states: `[m, D]`.

        Returns:
            Numbers of a state, then random directions.
        """
        block = real_array("states", states).astype(np.float64)
        require_shape("states", block, (None, len(self.names)), "[m, D]")
        together = self._seen_together(block)
        distance = np.array(
            [
                _distance(before, now)
                for known, new in ((self._sorted, block), (self._projected, together))
                for before, now in zip(known.T, new.T, strict=True)
            ]
        )
        n, m = len(self._sorted), len(block)
        return Comparison(distance, np.minimum(2 * np.exp(-2 * distance**2 * n * m / (n + m)), 1.0))

    def report(self) -> DriftReport:
        """Returns the shifts that were found so far."""
        return DriftReport(
            len(self._sorted),
            self._n_seen,
            self._n_blocks,
            _end(self._n_blocks + 1),
            self._n_unlike,
            tuple(self._shifts),
        )

    def _row(self, state: object) -> FloatArray | None:
        """A state as numbers; None if it is not like those of the training log."""
        try:
            row = np.asarray(state, np.float64).reshape(-1)
        except (TypeError, ValueError, RuntimeError):
            return None
        return row if len(row) == len(self.names) and (np.abs(row) <= MAGNITUDE).all() else None

    def _judge(self, block: FloatArray) -> None:
        found = self.compared(block)
        share = (1 - self.confidence) / (self._n_blocks * (self._n_blocks + 1))
        first, last = _end(self._n_blocks - 1) + 1, _end(self._n_blocks)
        is_far = found.chance < share / len(found.chance)
        n_numbers = len(self.names)
        for i in np.flatnonzero(is_far[:n_numbers]):
            ends = float(self._means[i]), float(block[:, i].mean())
            self._shifts.append(Shift(self.names[i], float(found.distance[i]), first, last, *ends))
        if is_far[n_numbers:].any() and not is_far[:n_numbers].any():
            distance = float(found.distance[n_numbers:].max())
            self._shifts.append(Shift(_ALL, distance, first, last, np.nan, np.nan))

    def _seen_together(self, states: FloatArray) -> FloatArray:
        """States in random directions, `[m, directions]`, each number by its rank in the log."""
        columns = zip(self._sorted.T, states.T, strict=True)
        ranks = [
            np.searchsorted(known, new, "left") + np.searchsorted(known, new, "right")
            for known, new in columns
        ]
        seen: FloatArray = np.stack(ranks, axis=1) / (2 * len(self._sorted)) @ self._directions
        return seen


def _end(n_blocks: int) -> int:
    """Episodes of the first blocks."""
    return FIRST_BLOCK * ((1 << n_blocks) - 1)


def _distance(before: FloatArray, now: FloatArray) -> float:
    """Largest distance of two distribution functions; `before` is sorted."""
    after = np.sort(now)
    points = np.concatenate((before, after))
    shares = (np.searchsorted(sample, points, "right") / len(sample) for sample in (before, after))
    first, second = shares
    return float(np.abs(first - second).max())
