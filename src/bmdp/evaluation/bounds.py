"""Intervals that cover at least as often as they say, always: of shares, and of bounded means.

- `share_interval` (Clopper and Pearson): of a probability.
- `bounded_interval` (Hoeffding): of the mean of samples from a known range. It is wider than
  Student's, and does not shrink to a point where a rare cost has not been seen yet.
- `bernstein_interval` (Maurer and Pontil): the same. It is narrower than Hoeffding's where there
  are many samples that vary much less than their range would allow.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, rel_entr

from bmdp.arrays import FloatArray, real_array
from bmdp.errors import ConfigError, DataError
from bmdp.evaluation.statistics import Interval, sample_array, simultaneous_confidence


def share_interval(
    n_hits: ArrayLike, n_trials: int, *, confidence: float, n_together: int = 1
) -> Interval:
    """Returns a share of trials, with the interval of Clopper and Pearson for its probability.

    It covers at least as often as it says, whatever the probability and the number of trials.

    Args:
        n_hits: counts, of any shape.
        n_trials: number of trials, from 0 on. Without trials the share is NaN, from 0 to 1.
        confidence: probability that the interval covers.
        n_together: number of intervals that are to hold together with that probability.

    >>> share, low, high = share_interval(0, 100, confidence=0.95)
    >>> float(share), float(low), round(float(high), 4)
    (0.0, 0.0, 0.0362)
    """
    hits = real_array("n_hits", n_hits).astype(np.float64)
    if not ((hits >= 0) & (hits <= n_trials)).all():
        raise DataError(
            f"n_hits must be from 0 to n_trials, which is {n_trials}; got {hits.tolist()}."
        )
    tail = (1 - simultaneous_confidence(confidence, n_together)) / 2
    with np.errstate(invalid="ignore"):
        share = hits / np.float64(n_trials)
    some, not_all = np.maximum(hits, 1), np.minimum(hits, n_trials - 1)
    low = np.where(hits > 0, betaincinv(some, n_trials - some + 1, tail), 0.0)
    high = np.where(hits < n_trials, betaincinv(not_all + 1, n_trials - not_all, 1 - tail), 1.0)
    return Interval(share, low, high)


def bounded_interval(
    samples: ArrayLike,
    *,
    lowest: float,
    highest: float,
    confidence: float,
    n_together: int = 1,
) -> Interval:
    """Returns the mean over the last axis, with an interval that holds for bounded samples.

    With means m of samples scaled to [0, 1], it has all p for which n KL(m, p) <= log(2 / delta),
    where KL is the relative entropy of two coins: Hoeffding (1963), Theorem 1, first inequality,
    once for each side.

    Args:
        samples: `[..., n]`.
        lowest: no sample can be lower, whether seen or not.
        highest: no sample can be higher.
        confidence: probability that the interval covers the expectation, at least.
        n_together: number of intervals that are to hold together with that probability.

    Raises:
        DataError: if there is no sample, or one is out of range.

    >>> mean, low, high = bounded_interval([0.0] * 100, lowest=0, highest=1, confidence=0.95)
    >>> float(low), round(float(high), 4)
    (0.0, 0.0362)
    """
    values, delta = _bounded_samples(samples, lowest, highest), _failure(confidence, n_together)
    mean = values.mean(axis=-1)
    share = np.clip((mean - lowest) / (highest - lowest), 0.0, 1.0)
    allowed = np.log(2 / delta) / values.shape[-1]
    low, high = (lowest + (highest - lowest) * _far_coin(share, allowed, e) for e in (0.0, 1.0))
    return Interval(mean, low, high)


def bernstein_interval(
    samples: ArrayLike,
    *,
    lowest: float,
    highest: float,
    confidence: float,
    n_together: int = 1,
) -> Interval:
    """Returns the mean over the last axis, with an interval by the variance of bounded samples.

    With variance v (that of n - 1) of samples scaled to [0, 1], it reaches to either side of their
    mean by sqrt(2 v L / n) + 7 L / (3 (n - 1)), where L = log(2 / (delta / 2)): Maurer and Pontil
    (2009), Theorem 4, with half of delta for each side. One sample has no variance: its interval
    is the whole range.

    Args:
        samples: `[..., n]`.
        lowest: no sample can be lower, whether seen or not.
        highest: no sample can be higher.
        confidence: probability that the interval covers the expectation, at least.
        n_together: number of intervals that are to hold together with that probability.

    Raises:
        DataError: if there is no sample, or one is out of range.

    >>> mean, low, high = bernstein_interval([0.0] * 1000, lowest=0, highest=1, confidence=0.95)
    >>> float(low), round(float(high), 4)
    (0.0, 0.0102)
    """
    values, delta = _bounded_samples(samples, lowest, highest), _failure(confidence, n_together)
    n, mean = values.shape[-1], values.mean(axis=-1)
    if n == 1:
        return Interval(mean, np.full_like(mean, lowest), np.full_like(mean, highest))
    log = np.log(4 / delta)
    half = values.std(axis=-1, ddof=1) * np.sqrt(2 * log / n)
    half += (highest - lowest) * 7 * log / (3 * (n - 1))
    return Interval(mean, np.maximum(mean - half, lowest), np.minimum(mean + half, highest))


def _bounded_samples(samples: ArrayLike, lowest: float, highest: float) -> FloatArray:
    values = sample_array(samples)
    if not lowest < highest:
        raise ConfigError(f"lowest must be below highest; got {lowest} and {highest}.")
    if not values.shape[-1] or not ((values >= lowest) & (values <= highest)).all():
        raise DataError(f"samples must be numbers from {lowest} to {highest}, at least one.")
    return values


def _failure(confidence: float, n_together: int) -> float:
    """Probability with which each of several intervals may fail, for all to hold together."""
    return 1 - simultaneous_confidence(confidence, n_together)


def _far_coin(share: FloatArray, allowed: float, end: float) -> FloatArray:
    """The coin furthest towards `end` whose relative entropy to `share` is allowed, by bisection.

    What is returned is not allowed any more, by less than rounding, or is the end itself.
    """
    inside, outside = share, np.full_like(share, end)
    for _ in range(60):
        middle = (inside + outside) / 2
        allows = rel_entr(share, middle) + rel_entr(1 - share, 1 - middle) <= allowed
        inside, outside = np.where(allows, middle, inside), np.where(allows, outside, middle)
    return outside
