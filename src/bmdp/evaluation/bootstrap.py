"""An evaluation of logged episodes that is repeated with episodes drawn anew, for intervals.

The bootstrap over episodes: as many episodes as there are, and whole ones, are drawn with
replacement, the evaluation is repeated with these, and so on. With the deviation s of what the
repeats say an interval is

    estimate +- q s sqrt(n / (n - 1)).

Here n is the number of *effective* episodes: all of them in fitted evaluation, those of equal
weight that would tell as much in importance sampling. The quantile q is that of Student's law with
n - 1 degrees of freedom, or one less than the number of repeats, if there are fewer. Of plain means
that is Student's interval.

On finite problems intervals between quantiles of the repeats cover less often, with both methods
(docs/offline.md). They need more repeats, and are shifted by rows that occur twice in a sample: to
a model these look like less noise than there is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy.special import stdtrit

from bmdp.arrays import FloatArray
from bmdp.evaluation.importance import Weighted
from bmdp.evaluation.logged import LoggedEpisodes
from bmdp.policies.policy import BudgetedPolicy, SteppedPolicy
from bmdp.policies.travel import play_elsewhere
from bmdp.randomness import stream_key

_TOGETHER = 50  # repeats by weights that are made at once


def repeat_weighted(
    weighted: Weighted,
    log: LoggedEpisodes,
    n_repeats: int,
    seed: int,
    report: Callable[[int], None],
) -> FloatArray:
    """Reward and cost by weights, of all episodes and of each repeat, `[1 + R, B, 2]`."""
    found = []
    for first in range(0, 1 + n_repeats, _TOGETHER):
        repeats = range(first, min(first + _TOGETHER, 1 + n_repeats))
        drawn = [np.bincount(log.drawn(seed, repeat), minlength=len(log)) for repeat in repeats]
        found.append(weighted.estimate(np.array(drawn, np.float64)))
        report(len(repeats))
    return np.concatenate(found)


@dataclass(frozen=True)
class Fits:
    """What fitted evaluations of a log have in common."""

    log: LoggedEpisodes
    settings: dict[str, Any]
    seed: int

    def told(self, policy: SteppedPolicy, repeat: int) -> FloatArray:
        """Reward and cost by a fitted evaluation, `[B, 2]`; repeat 0 is that of the log itself."""
        from bmdp.learn.evaluation import fitted_evaluation

        batch, seed = self.log.batch, self.seed
        if repeat > 0:
            batch = self.log.sample(self.log.drawn(self.seed, repeat))
            seed = stream_key(self.seed, f"evaluate-offline/model/{repeat}")[0] % 2**31
        found = fitted_evaluation(policy, batch, seed=seed, **self.settings)
        return np.stack((found.reward, found.cost), axis=1).astype(np.float64)


def repeat_fitted(
    policy: SteppedPolicy,
    fits: Fits,
    n_repeats: int,
    workers: int,
    report: Callable[[int], None],
) -> FloatArray:
    """Reward and cost by fitted evaluations, of the log and of each repeat, `[1 + R, B, 2]`."""
    found: dict[int, FloatArray] = {}

    def take(repeat: int, told: FloatArray) -> None:
        found[repeat] = told
        report(1)

    repeats = range(1 + n_repeats)
    if workers == 1 or n_repeats == 0:
        for repeat in repeats:
            take(repeat, fits.told(policy, repeat))
    else:
        travelling = cast(BudgetedPolicy, policy)
        play_elsewhere(_teller, travelling, fits, repeats, take, workers=workers)
    return np.stack([found[repeat] for repeat in repeats])


def _teller(policy: BudgetedPolicy, fits: Fits) -> Callable[[int], FloatArray]:
    """What evaluates in a worker, with one thread."""
    import torch

    torch.set_num_threads(1)
    return lambda repeat: fits.told(cast(SteppedPolicy, policy), repeat)


def interval_ends(found: FloatArray, effective: FloatArray, confidence: float) -> FloatArray:
    """Ends of the intervals `[2, B, 2]`, given the estimate and its repeats `[1 + R, B, 2]`.

    A repeat without an estimate does not count. Fewer than 2 effective episodes say nothing: their
    interval is the whole line.
    """
    estimate, repeats = found[0], found[1:]
    if not len(repeats):
        return np.full((2, *estimate.shape), np.nan)
    is_known = ~np.isnan(repeats)
    n_known, n = is_known.sum(axis=0), effective[:, None]
    mean = np.where(is_known, repeats, 0.0).sum(axis=0) / n_known.clip(1)
    squares = np.where(is_known, np.square(repeats - mean), 0.0).sum(axis=0)
    variance = squares / (n_known - 1).clip(1) * n / (n - 1).clip(1)
    degrees = np.minimum(n_known, n) - 1
    half = stdtrit(degrees.clip(1), (1 + confidence) / 2) * np.sqrt(variance)
    half = np.where(degrees < 1 - 1e-9, np.inf, half)
    return np.stack((estimate - half, estimate + half))
