"""Whether the dial tells the truth: budget against realised cost, and reward against the best.

C and R are the realised means at the asked budget beta; R* is the true frontier, from cost c_min to
cost c_max:

    overshoot   C - max(beta, c_min)                  above 0: more is paid than was allowed
    dial error  |C - clip(beta, c_min, c_max)|        the dial does not mean what it says
    score       R / R*(clip(max(beta, C), c_min, c_max))

The score compares with the best that could be had for what was allowed, or for what was paid if
that is more. A policy that ignores the dial does badly on at least one of them: one that is always
safe has low scores and dial errors at high budgets, one that is always risky overshoots at low
ones.

Budgets are about discounted costs, so C and R are discounted means. Where R* is not above 0 there
is nothing to be a share of, and the score is NaN.

Noise makes dial errors larger on average: at the optimum, |C - beta| is about 0.8 standard
errors. Its interval then reaches down to 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bmdp.arrays import FloatArray, freeze_columns
from bmdp.errors import DataError
from bmdp.evaluation.rollouts import Evaluation
from bmdp.evaluation.statistics import Interval, seed_interval, widened
from bmdp.frontier import Frontier


@dataclass(frozen=True, eq=False)
class DialReport:
    """The three measures at each of `B` budgets, with intervals.

    The intervals of a measure hold together, for all budgets, with the given confidence: over
    episodes if there is one seed (`measure_dial`), over seeds if there are several
    (`measure_dials`).

    >>> import bmdp
    >>> from bmdp.envs import ScriptedPolicy
    >>> policy = ScriptedPolicy("slot-filling/key-pad")  # costs 0.578 at any budget
    >>> played = bmdp.evaluate(policy, "slot-filling", budgets=[0, 1], n_episodes=100, seed=0)
    >>> report = measure_dial(played, bmdp.upper_frontier([0.0, 0.578], [80.0, 100.0]))
    >>> report.overshoot.round(2).tolist(), report.dial_error.round(2).tolist()
    ([0.56, -0.44], [0.56, 0.02])
    >>> round(report.worst_overshoot, 2), round(report.mean_score, 2)
    (0.56, 0.44)
    """

    budgets: FloatArray  # [B], asked
    overshoot: FloatArray  # [B], in discounted cost
    overshoot_low: FloatArray  # [B]
    overshoot_high: FloatArray  # [B]
    dial_error: FloatArray  # [B], in discounted cost
    dial_error_low: FloatArray  # [B]
    dial_error_high: FloatArray  # [B]
    score: FloatArray  # [B], NaN where the frontier has nothing to earn
    score_low: FloatArray  # [B]
    score_high: FloatArray  # [B]
    mean_score: float  # over budgets that have one
    worst_overshoot: float  # over budgets, and over seeds
    mean_dial_error: float  # over budgets
    confidence: float  # of the intervals of a measure together
    n_seeds: int  # of policies

    def __post_init__(self) -> None:
        """Checks shapes, and makes arrays read-only."""
        freeze_columns(self, "[B]")


def measure_dial(
    evaluation: Evaluation, frontier: Frontier, *, gamma_matches: bool = True
) -> DialReport:
    """Returns the measures of one evaluation, with intervals that follow from its own.

    The intervals of costs are widened until they hold at all budgets together, and so are those of
    rewards and costs together for the score, which is then the least and the largest that they
    allow.

    Args:
        evaluation: of the policy.
        frontier: the best that can be had from the start, in discounted cost and reward.
        gamma_matches: whether the frontier has the discount of the environment. If not, it is taken
            to be one of undiscounted returns, and undiscounted means are compared with it.

    >>> import bmdp
    >>> from bmdp.envs import ScriptedPolicy
    >>> policy = ScriptedPolicy("slot-filling/voice-again")  # never costs anything
    >>> played = bmdp.evaluate(policy, "slot-filling", budgets=[0, 1], n_episodes=100, seed=0)
    >>> measure_dial(played, bmdp.upper_frontier([0.0, 0.578], [80.0, 100.0])).dial_error.tolist()
    [0.0, 0.578]
    """
    n_budgets = len(evaluation.budgets)
    alone = _measures(evaluation, frontier, gamma_matches, n_together=n_budgets)
    both = _measures(evaluation, frontier, gamma_matches, n_together=2 * n_budgets)
    return _report(
        Measures(alone.overshoot, alone.dial_error, both.score),
        evaluation,
        worst_overshoot=float(alone.overshoot.mean.max()),
        n_seeds=1,
    )


def measure_dials(
    evaluations: Sequence[Evaluation], frontier: Frontier, *, gamma_matches: bool = True
) -> DialReport:
    """Returns the measures of several seeds: means over seeds, with Student intervals over seeds.

    Each seed is measured by itself first: a dial that is too high in one seed and too low in
    another has errors in both. `worst_overshoot` is the worst of any seed.

    Args:
        evaluations: one of each seed's policy, at the same budgets.
        frontier: as for `measure_dial`.
        gamma_matches: as for `measure_dial`.

    Raises:
        DataError: if there is none, or budgets or confidences differ.

    >>> import bmdp
    >>> from bmdp.envs import ScriptedPolicy
    >>> setting = {"env": "slot-filling", "budgets": [0.2], "n_episodes": 100, "seed": 0}
    >>> rules = [ScriptedPolicy(f"slot-filling/{rule}") for rule in ("voice-again", "key-pad")]
    >>> played = [bmdp.evaluate(rule, **setting) for rule in rules]  # as if they were of two seeds
    >>> report = measure_dials(played, bmdp.upper_frontier([0.0, 0.578], [80.0, 100.0]))
    >>> report.dial_error.round(2).tolist(), round(report.worst_overshoot, 2)  # 0.2 and 0.36 off
    ([0.28], 0.36)
    """
    if not evaluations:
        raise DataError("evaluations must hold at least one; got none.")
    first = evaluations[0]
    for i, other in enumerate(evaluations):
        same = np.array_equal(first.budgets, other.budgets) and first.gamma == other.gamma
        if not same or first.confidence != other.confidence:
            raise DataError(
                "evaluations must have the same budgets, gamma and confidence; "
                f"those of [{i}] are not those of [0]."
            )
    each = [_measures(e, frontier, gamma_matches, n_together=1) for e in evaluations]
    over_seeds = [
        seed_interval([interval.mean for interval in of_seeds], confidence=first.confidence)
        for of_seeds in zip(*each, strict=True)
    ]
    worst = max(float(measures.overshoot.mean.max()) for measures in each)
    return _report(Measures(*over_seeds), first, worst_overshoot=worst, n_seeds=len(each))


class Measures(NamedTuple):
    """The three measures, each with intervals `[B]`."""

    overshoot: Interval
    dial_error: Interval
    score: Interval


def _measures(
    evaluation: Evaluation, frontier: Frontier, gamma_matches: bool, *, n_together: int
) -> Measures:
    """The measures of one evaluation, from intervals of which so many hold together."""
    prefix = "discounted_" if gamma_matches else ""
    rewards, costs = (
        widened(
            Interval(*(getattr(evaluation, f"{prefix}{name}_{end}") for end in Interval._fields)),
            n_samples=evaluation.n_episodes,
            confidence=evaluation.confidence,
            n_together=n_together,
        )
        for name in ("reward", "cost")
    )
    cheapest, dearest = float(frontier.costs[0]), float(frontier.costs[-1])
    allowed = np.maximum(evaluation.budgets, cheapest)
    return Measures(
        Interval(*(cost - allowed for cost in costs)),
        _distance(costs, np.clip(evaluation.budgets, cheapest, dearest)),
        _score(rewards, costs, evaluation.budgets, frontier),
    )


def _distance(costs: Interval, target: FloatArray) -> Interval:
    """From costs to where they should be."""
    ends = np.abs(costs.low - target), np.abs(costs.high - target)
    is_inside = (costs.low <= target) & (target <= costs.high)
    least = np.where(is_inside, 0.0, np.minimum(*ends))
    return Interval(np.abs(costs.mean - target), least, np.maximum(*ends))


def _score(rewards: Interval, costs: Interval, budgets: FloatArray, frontier: Frontier) -> Interval:
    """Rewards as a share of the best for what was allowed or paid."""
    cheapest, dearest = float(frontier.costs[0]), float(frontier.costs[-1])

    def best(cost: FloatArray) -> FloatArray:
        at = np.clip(np.maximum(budgets, cost), cheapest, dearest)
        rewards_at = frontier.reward_at(at)
        return np.where(rewards_at > 0, rewards_at, np.nan)

    def share(reward: FloatArray, of: FloatArray) -> FloatArray:
        limit = np.where(reward == 0, 0.0, np.copysign(np.inf, reward))  # of ever smaller bests
        return np.where(np.isnan(of), limit, reward / of)

    mean, least, most = best(costs.mean), best(costs.low), best(costs.high)
    low = np.minimum(share(rewards.low, least), share(rewards.low, most))
    high = np.maximum(share(rewards.high, least), share(rewards.high, most))
    is_defined = ~np.isnan(mean)
    ends = (np.where(is_defined, end, np.nan) for end in (low, high))
    return Interval(rewards.mean / mean, *ends)


def _report(
    measures: Measures, evaluation: Evaluation, *, worst_overshoot: float, n_seeds: int
) -> DialReport:
    intervals = {
        f"{name}_{end}".removesuffix("_mean"): values
        for name, interval in measures._asdict().items()
        for end, values in interval._asdict().items()
    }
    scores = measures.score.mean
    defined = scores[~np.isnan(scores)]
    return DialReport(
        budgets=evaluation.budgets,
        **intervals,
        mean_score=float(defined.mean()) if len(defined) else np.nan,
        worst_overshoot=worst_overshoot,
        mean_dial_error=float(measures.dial_error.mean.mean()),
        confidence=evaluation.confidence,
        n_seeds=n_seeds,
    )
