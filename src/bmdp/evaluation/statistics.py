"""Means with intervals, and tails, of samples on the last axis.

`mean_interval` is Student's: exact for normal samples of any number, right for others if there are
many of them and the rare ones among them have been seen. With `law="normal"` the quantile is that
of the normal law, which is too small for few samples. `bounds.py` has intervals that hold always.

Several intervals hold *together* with a given confidence if each of them has more (Bonferroni): for
m of them, each may fail with probability (1 - confidence) / m, however they depend on each other.

Samples of several seeds, each with many episodes, are not samples of one law: take the mean of each
seed first, then the mean over seeds of these, with an interval over the seeds (`seed_interval`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri, stdtrit

from bmdp.arrays import FloatArray, real_array
from bmdp.checks import require_choice
from bmdp.errors import ConfigError, DataError

Law: TypeAlias = Literal["student", "normal"]
LAWS = ("student", "normal")


class Interval(NamedTuple):
    """An estimate, and from where to where the truth may lie.

    >>> found = mean_interval([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]], confidence=0.95)
    >>> found.mean.tolist(), found.low.round(3).tolist(), found.high.round(3).tolist()
    ([2.0, 5.0], [-0.484, 5.0], [4.484, 5.0])
    """

    mean: FloatArray  # the estimate
    low: FloatArray  # of the same shape
    high: FloatArray  # of the same shape


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
    if n_together < 1:
        raise ConfigError(f"n_together must be from 1 on; got {n_together}.")
    return 1 - (1 - confidence) / n_together


def mean_interval(
    samples: ArrayLike, *, confidence: float, n_together: int = 1, law: Law = "student"
) -> Interval:
    """Returns the mean over the last axis, with an interval.

    That is mean +- q s / sqrt(n), for the deviation s of n samples and the quantile q of Student's
    law with n - 1 degrees of freedom, or of the normal law. One sample says nothing of s: its
    interval is the whole line. No sample has mean NaN.

    Args:
        samples: `[..., n]`.
        confidence: probability that the interval covers the expectation.
        n_together: number of intervals that are to hold together with that probability.
        law: whose quantile is taken.

    >>> mean, low, high = mean_interval([1.0, 2.0, 3.0], confidence=0.95)
    >>> float(mean), round(float(low), 3), round(float(high), 3)
    (2.0, -0.484, 4.484)
    """
    values = sample_array(samples)
    factor = _quantile(values.shape[-1], simultaneous_confidence(confidence, n_together), law)
    n = values.shape[-1]
    if n < 2:
        mean = values[..., 0] if n else np.full(values.shape[:-1], np.nan)
        return Interval(mean, np.full_like(mean, -np.inf), np.full_like(mean, np.inf))
    mean = values.mean(axis=-1)
    half = factor * values.std(axis=-1, ddof=1) / np.sqrt(n)
    return Interval(mean, mean - half, mean + half)


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
    if not ((shares >= 0) & (shares <= 1)).all():
        raise ConfigError(f"levels must be from 0 to 1; got {shares.tolist()}.")
    found: FloatArray = np.quantile(values, shares, axis=-1, method="inverted_cdf")
    return np.moveaxis(found, 0, -1) if shares.ndim else found


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
    return values


def _quantile(n_samples: int, confidence: float, law: Law = "student") -> float:
    """How many standard errors a two-sided interval reaches to either side."""
    require_choice("law", law, LAWS)
    if law == "normal":
        return float(ndtri((1 + confidence) / 2))
    return float(stdtrit(max(n_samples - 1, 1), (1 + confidence) / 2))
