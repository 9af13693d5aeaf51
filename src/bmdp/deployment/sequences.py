r"""Tests and intervals that may be looked at after every episode, and stopped at any time.

An interval for n episodes holds if one looks once. Who looks after each episode, and stops when it
says what he waits for, is wrong far more often than it says. What is here holds at all times
together: with probability 1 - alpha it is never wrong, however often and whenever one looks.

*The alarm* (`Capital`) is a bet against the promise "each episode costs at most the budget b_i that
was asked, on average". Capital 1 is put on several shares k in (0, 1), and an episode of cost y_i
multiplies what is on k by

    1 + k (y_i / b_i - 1)  >=  0,   of mean at most 1 if the promise is kept.

So capital is a nonnegative supermartingale, and reaches 1 / alpha with probability at most alpha
(Ville, 1939; Waudby-Smith and Ramdas, 2024, "Estimating means of bounded random variables by
betting"). Costs must not be below 0; *nothing else* is asked of them, not even a bound. Capital
rises with each cost: where a part of a cost is not known yet, to leave it out can only hide an
alarm. A part of the capital is kept back, and joins when 64, 128, 256 ... episodes are over, so
that a promise that was kept for long and is broken then is found, too.

*The band* (`Band`) is around the mean of E[y_i] - b_i over the episodes so far, which may differ
from each other. For any prediction p_i that is known before the episode, and any s in (0, 1/c),

    exp(s (y_i - p_i) - psi(s) (y_i - p_i)^2),   psi(s) = (-log(1 - c s) - c s) / c^2

has mean at most exp(s (E[y_i] - p_i)) if y_i - p_i >= -c. So the sum of y_i - E[y_i] is above
(log(1 / a) + psi(s) V) / s with probability at most a, ever, where V is the sum of (y_i - p_i)^2
(Fan, Grama and Liu, 2015; Howard, Ramdas, McAuliffe and Sekhon, 2021, Theorem 4). The least of this
over many s, which share a, is the end of the band. For its low end c is the largest prediction that
is made, which we choose; for its high end c is the most that an episode can cost: without that,
nothing is known of the high end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from bmdp.arrays import FloatArray, IntArray

_SHARES = np.array([0.95, *0.5 ** np.arange(1.0, 14.0)])  # k: from sure costs to rare large ones
_LEAST = 1e-12  # budget that capital is put against, where it is 0
_FIRST_JOIN = 64  # episodes
_MOST_ROWS = 4_096  # that are added at a time

_SLOPES = 0.9 * 0.5 ** np.arange(24.0)  # c s
_SHARED = np.log((np.arange(24.0) + 1) * (np.arange(24.0) + 2))  # -log of their shares of a
_PSI = -np.log1p(-_SLOPES) - _SLOPES


@dataclass(frozen=True, eq=False)
class Capital:
    """The capital of a bet against a promise, after `n` episodes of each of `[...]` streams.

    >>> start, asked = Capital.start(), np.full(200, 0.5)
    >>> kept, _ = start.after(asked, np.tile([0.0, 1.0], 100))
    >>> broken, _ = start.after(asked, np.tile([0.0, 1.0, 1.0, 1.0], 50))
    >>> bool(kept.log < np.log(20)), bool(broken.log > np.log(20))  # an alarm at 0.05 is from 20 on
    (True, True)
    """

    n: int
    on_shares: FloatArray  # [..., L], logs of what is on each share
    kept_back: float  # what has not joined yet

    @classmethod
    def start(cls, shape: tuple[int, ...] = ()) -> Self:
        """Returns capital 1, half of which joins later, for streams of a shape."""
        return cls(0, np.full((*shape, len(_SHARES)), np.log(0.5 / len(_SHARES))), 0.5)

    @property
    def log(self) -> FloatArray:
        """Logarithm of the whole capital, `[...]`."""
        return _whole(self.on_shares, self.kept_back)

    @property
    def pace(self) -> FloatArray:
        """Growth of the log with each episode on the share that does best, `[...]`."""
        most = self.on_shares.max(axis=-1) - np.log(0.5 / len(_SHARES))
        pace: FloatArray = most / max(self.n, 1)
        return pace

    def after(self, asked: ArrayLike, paid: ArrayLike) -> tuple[Self, FloatArray]:
        """Returns the capital after more episodes, and the log of the whole after each of them.

        Args:
            asked: budgets b_i, from 0 on, `[..., m]`.
            paid: costs y_i, from 0 on, `[..., m]`, or what is known of them so far.
        """
        gain = np.asarray(paid, np.float64) / np.maximum(asked, _LEAST) - 1
        capital, paths, i = self, [np.empty((*gain.shape[:-1], 0))], 0
        while i < gain.shape[-1]:
            m = min(_next_join(capital.n) - capital.n, gain.shape[-1] - i, _MOST_ROWS)
            growth = np.log1p(gain[..., i : i + m, None] * _SHARES)
            grown = capital.on_shares[..., None, :] + np.cumsum(growth, axis=-2)
            paths.append(_whole(grown, capital.kept_back))
            capital, i = capital._joined(capital.n + m, grown[..., -1, :]), i + m
        return capital, np.concatenate(paths, axis=-1)

    def _joined(self, n: int, on_shares: FloatArray) -> Self:
        """The same after `n` episodes, with the part that joins then."""
        if n < _FIRST_JOIN or n & (n - 1):
            return replace(self, n=n, on_shares=on_shares)
        number = n.bit_length() - _FIRST_JOIN.bit_length() + 1
        joins = 0.5 / (number * (number + 1))  # all of these together are the half
        on_shares = np.logaddexp(on_shares, np.log(joins / len(_SHARES)))
        return replace(self, n=n, on_shares=on_shares, kept_back=0.5 / (number + 1))


def _next_join(n: int) -> int:
    """The number of episodes at which capital joins next, after n of them."""
    return max(_FIRST_JOIN, 1 << n.bit_length())


def _whole(on_shares: FloatArray, kept_back: float) -> FloatArray:
    """Log of all capital; by hand, as scipy's `logsumexp` takes three times as long."""
    top = np.maximum(on_shares.max(axis=-1), np.log(kept_back))
    total = np.exp(on_shares - top[..., None]).sum(axis=-1) + np.exp(np.log(kept_back) - top)
    whole: FloatArray = top + np.log(total)
    return whole


class Course(NamedTuple):
    """Means and their band after each of `m` episodes."""

    n: IntArray  # [m], episodes so far
    asked: FloatArray  # [m], mean budget
    paid: FloatArray  # [m], mean cost, or what is known of it
    low: FloatArray  # [m], of the mean excess
    high: FloatArray  # [m]


@dataclass(frozen=True, eq=False)
class Band:
    """An interval of the mean excess over budgets that holds at all times, of streams `[...]`.

    >>> band = Band.start(confidence=0.95, largest_prediction=1.0, most_cost=1.0)
    >>> band, path = band.after(np.full(2_000, 0.5), *[np.tile([0.0, 0.0, 1.0, 0.0], 500)] * 2)
    >>> low, high = band.ends
    >>> round(float(low), 2), round(float(high), 2)
    (-0.29, -0.21)
    """

    confidence: float
    largest_prediction: float  # c of the low end
    most_cost: float  # c of the high end; infinite, if it is not known
    n: int
    asked: FloatArray  # [...], sums
    least: FloatArray  # [...], of costs, as far as they are known
    most: FloatArray  # [...], of costs, at most
    squares: tuple[FloatArray, FloatArray]  # V of the low end, and of the high end

    @classmethod
    def start(
        cls,
        *,
        confidence: float,
        largest_prediction: float,
        most_cost: float = np.inf,
        shape: tuple[int, ...] = (),
    ) -> Self:
        """Returns the band before the first episode: the whole line."""
        zero = np.zeros(shape)
        prediction = min(max(largest_prediction, _LEAST), most_cost)
        return cls(confidence, prediction, most_cost, 0, zero, zero, zero, (zero, zero))

    @property
    def ends(self) -> tuple[FloatArray, FloatArray]:
        """Low and high end of the mean excess, `[...]` each."""
        n = np.array(self.n)
        return self._low(n, self.least - self.asked, self.squares[0]), self._high(
            n, self.most - self.asked, self.squares[1]
        )

    def after(
        self, asked: ArrayLike, least: ArrayLike, most: ArrayLike, *, at: IntArray | None = None
    ) -> tuple[Self, Course]:
        """Returns the band after more episodes, and the means and ends on the way.

        Args:
            asked: budgets, `[..., m]`.
            least: costs, `[..., m]`; of episodes that were cut, what is known.
            most: costs, `[..., m]`; of episodes that were cut, the most that they can have been.
            at: which of the new episodes the path tells of, from 0 on; all, if not given.
        """
        b, y, z = (np.asarray(values, np.float64) for values in (asked, least, most))
        shown = np.arange(b.shape[-1]) if at is None else at
        n = self.n + np.arange(1, b.shape[-1] + 1)
        sums = [
            before[..., None] + np.cumsum(values, axis=-1)
            for before, values in ((self.asked, b), (self.least, y - b), (self.most, z - b))
        ]
        sums[1] = sums[1] - self.asked[..., None]
        sums[2] = sums[2] - self.asked[..., None]
        below = self._squares(0, y, b, sums[1], n, self.largest_prediction)
        above = self._squares(1, z, b, sums[2], n, self.most_cost)
        path = Course(
            n[shown],
            sums[0][..., shown] / n[shown],
            (sums[1] + sums[0])[..., shown] / n[shown],
            self._low(n[shown], sums[1][..., shown], below[..., shown]),
            self._high(n[shown], sums[2][..., shown], above[..., shown]),
        )
        if not b.shape[-1]:
            return self, path
        now = replace(
            self,
            n=int(n[-1]),
            asked=sums[0][..., -1],
            least=(sums[0] + sums[1])[..., -1],
            most=(sums[0] + sums[2])[..., -1],
            squares=(below[..., -1], above[..., -1]),
        )
        return now, path

    def width_after(self, n: int, *, high: bool) -> float:
        """Returns how far an end is from the mean after n episodes that vary as those so far."""
        squares = self.squares[int(high)] * n / max(self.n, 1)
        c = self.most_cost if high else self.largest_prediction
        return float(_boundary(squares, c, self._chance)) / n

    @property
    def _chance(self) -> float:
        """Chance that one end is ever wrong."""
        return (1 - self.confidence) / 2

    def _squares(
        self,
        end: int,
        paid: FloatArray,
        asked: FloatArray,
        excess: FloatArray,
        n: IntArray,
        largest: float,
    ) -> FloatArray:
        """V after each new episode; predictions are the budget and the mean excess before."""
        before = excess - (paid - asked)
        predicted = np.clip(asked + before / n, 0.0, largest)
        return self.squares[end][..., None] + np.cumsum((paid - predicted) ** 2, axis=-1)

    def _low(self, n: IntArray, excess: FloatArray, squares: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            low = (excess - _boundary(squares, self.largest_prediction, self._chance)) / n
        return np.where(n > 0, low, -np.inf)

    def _high(self, n: IntArray, excess: FloatArray, squares: FloatArray) -> FloatArray:
        if not np.isfinite(self.most_cost):
            return np.full(np.shape(excess), np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            high = (excess + _boundary(squares, self.most_cost, self._chance)) / n
        return np.where(n > 0, high, np.inf)


def _boundary(squares: FloatArray, c: float, chance: float) -> FloatArray:
    """Bound of a sum of deviations, `[...]`, that fails with a probability of `chance`, ever."""
    lines = c * (_SHARED - np.log(chance)) / _SLOPES
    best = np.full(np.shape(squares), np.inf)
    for line, psi, slope in zip(lines, _PSI, _SLOPES, strict=True):
        best = np.minimum(best, line + psi * squares / (c * slope))
    return best
