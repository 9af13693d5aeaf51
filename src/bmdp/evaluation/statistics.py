"""Means with intervals, and tails, of samples on the last axis.

`mean_interval` is Student's: exact for normal samples of any number, right for others if there are
many of them and the rare ones among them have been seen.

Other intervals cover at least as often as they say, always: `share_interval` (Clopper and Pearson)
of a probability, `bounded_interval` (Hoeffding) and `bernstein_interval` (Maurer and Pontil) of the
mean of samples from a known range. These are wider than Student's, and do not shrink to a point
where a rare cost has not been seen yet. Bernstein's is narrower than Hoeffding's where there are
many samples that vary much less than their range would allow.

Several intervals hold *together* with a given confidence if each of them has more (Bonferroni): for
m of them, each may fail with probability (1 - confidence) / m, however they depend on each other.

Samples of several seeds, each with many episodes, are not samples of one law: take the mean of each
seed first, then the mean over seeds of these, with an interval over the seeds (`seed_interval`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, rel_entr, stdtrit

from bmdp.arrays import FloatArray, real_array, require_magnitude
from bmdp.checks import require_count
from bmdp.errors import ConfigError, DataError
from bmdp.kinds import checked


class Interval(NamedTuple):
    """An estimate, and from where to where the truth may lie.

    >>> found = mean_interval([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]], confidence=0.95)
    >>> found.mean.tolist(), found.low.round(3).tolist(), found.high.round(3).tolist()
    ([2.0, 5.0], [-0.484, 5.0], [4.484, 5.0])
    """

    mean: FloatArray  # the estimate
    low: FloatArray  # of the same shape
    high: FloatArray  # of the same shape


@checked
def simultaneous_confidence(confidence: float, n_together: int) -> float:
    """Returns the confidence that each of several intervals needs, for all to hold together.

    Args:
        confidence: of all of them together, above 0 and below 1.
        n_together: number of intervals.

    Raises:
        ConfigError: if the confidence is not between 0 and 1, or the number not from 1 on.

    >>> round(simultaneous_confidence(0.9, 5), 12)
    0.98
    """
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence must be above 0 and below 1; got {confidence}.")
    require_count("n_together", n_together, 1)
    return 1 - (1 - confidence) / n_together


@checked
def mean_interval(samples: ArrayLike, *, confidence: float, n_together: int = 1) -> Interval:
    """Returns the mean over the last axis, with an interval.

    That is mean +- q s / sqrt(n), for the deviation s of n samples and the quantile q of Student's
    law with n - 1 degrees of freedom. One sample says nothing of s: its interval is the whole line.
    No sample has mean NaN.

    Args:
        samples: `[..., n]`.
        confidence: probability that the interval covers the expectation.
        n_together: number of intervals that are to hold together with that probability.

    >>> mean, low, high = mean_interval([1.0, 2.0, 3.0], confidence=0.95)
    >>> float(mean), round(float(low), 3), round(float(high), 3)
    (2.0, -0.484, 4.484)
    """
    values = sample_array(samples)
    factor = _quantile(values.shape[-1], simultaneous_confidence(confidence, n_together))
    n = values.shape[-1]
    if n < 2:
        mean = values[..., 0] if n else np.full(values.shape[:-1], np.nan)
        return Interval(mean, np.full_like(mean, -np.inf), np.full_like(mean, np.inf))
    mean = values.mean(axis=-1)
    half = factor * values.std(axis=-1, ddof=1) / np.sqrt(n)
    return Interval(mean, mean - half, mean + half)


@checked
def widened(interval: Interval, *, n_samples: int, confidence: float, n_together: int) -> Interval:
    """Returns Student intervals that hold together, given ones that hold one by one.

    Args:
        interval: of `mean_interval(samples, confidence=confidence)`.
        n_samples: n of those samples.
        confidence: of each of them, and then of all together.
        n_together: number of intervals that are to hold together.

    >>> one_by_one = mean_interval([[0.0, 1.0], [0.0, 3.0]], confidence=0.95)
    >>> both = widened(one_by_one, n_samples=2, confidence=0.95, n_together=2)
    >>> wanted = mean_interval([[0.0, 1.0], [0.0, 3.0]], confidence=0.95, n_together=2)
    >>> bool(np.allclose(both.high, wanted.high))
    True
    """
    each = simultaneous_confidence(confidence, n_together)
    if n_samples < 2:
        return interval
    wider = _quantile(n_samples, each) / _quantile(n_samples, confidence)
    half = wider * (interval.high - interval.mean)
    return Interval(interval.mean, interval.mean - half, interval.mean + half)


@checked
def seed_interval(per_seed: ArrayLike, *, confidence: float) -> Interval:
    """Returns the mean over seeds, with Student intervals over seeds that hold together.

    Args:
        per_seed: a number (a mean over episodes, as a rule) for each seed and budget, `[seeds, M]`.
        confidence: probability that all M intervals cover.

    Returns:
        Interval of arrays `[M]`. With a single seed, intervals are the whole line.

    >>> seed_interval([[1.0, 5.0], [3.0, 5.0]], confidence=0.9).mean.tolist()
    [2.0, 5.0]
    """
    values = sample_array(per_seed)
    if values.ndim != 2 or not values.size:
        raise DataError(f"per_seed must have shape [seeds, M]; got {list(values.shape)}.")
    return mean_interval(values.T, confidence=confidence, n_together=values.shape[1])


@checked
def quantiles(samples: ArrayLike, levels: ArrayLike) -> FloatArray:
    """Returns the least sample such that a share of at least `levels` is not above it.

    Args:
        samples: `[..., n]`.
        levels: shares `[L]`.

    Returns:
        Samples `[..., L]`, never numbers between two of them.

    >>> quantiles([0.0, 0.0, 0.0, 1.0], [0.5, 0.75, 0.8]).tolist()
    [0.0, 0.0, 1.0]
    """
    values, shares = sample_array(samples), real_array("levels", levels)
    if not values.shape[-1]:
        raise DataError("samples must be at least one; got none.")
    if shares.ndim > 1:
        raise ConfigError(f"levels must have shape [L]; got {list(shares.shape)}.")
    if not ((shares >= 0) & (shares <= 1)).all():
        raise ConfigError(f"levels must be from 0 to 1; got {shares.tolist()}.")
    found: FloatArray = np.quantile(values, shares, axis=-1, method="inverted_cdf")
    return np.moveaxis(found, 0, -1) if shares.ndim else found


@checked
def worst_mean(samples: ArrayLike, share: float) -> FloatArray:
    """Returns the mean of the largest `share` of the samples: CVaR of a cost.

    Where the share is no whole number of samples, the last one counts in part (Rockafellar and
    Uryasev, 2002).

    Args:
        samples: `[..., n]`.
        share: above 0 and at most 1; with 1 it is the mean.

    >>> float(worst_mean([0.0, 0.0, 1.0, 4.0], 0.5)), float(worst_mean([0.0, 0.0, 1.0, 4.0], 0.375))
    (2.5, 3.0)
    """
    values = sample_array(samples)
    n = values.shape[-1]
    if not n:
        raise DataError("samples must be at least one; got none.")
    if not 0 < share <= 1:
        raise ConfigError(f"share must be above 0 and at most 1; got {share}.")
    weights = np.clip(share * n - np.arange(n), 0.0, 1.0)
    largest_first = np.sort(values, axis=-1)[..., ::-1]
    worst: FloatArray = (largest_first * weights).sum(axis=-1) / (share * n)
    return worst


def sample_array(samples: ArrayLike) -> FloatArray:
    """Samples `[..., n]` as floats.

    Raises:
        DataError: if it is a single number.
    """
    values = real_array("samples", samples).astype(np.float64)
    if values.ndim == 0:
        raise DataError("samples must have shape [..., n]; got a single number.")
    require_magnitude("samples", values)
    return values


def _quantile(n_samples: int, confidence: float) -> float:
    """Half-width of a two-sided interval of Student's, in standard errors."""
    return float(stdtrit(max(n_samples - 1, 1), (1 + confidence) / 2))


@checked
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


@checked
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


@checked
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
    if not -np.inf < lowest < highest < np.inf:
        raise ConfigError(
            f"lowest must be below highest, and both finite; got {lowest} and {highest}."
        )
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
