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

Budgets are about discounted costs, so C and R are discounted means. With a discount of costs, or a
limit on episodes, C is what budgets are about then (`Evaluation.dial_cost_mean`). Where R* is not
above 0 there is nothing to be a share of, and the score is NaN.

Noise makes dial errors larger on average: at the optimum, |C - beta| is about 0.8 standard
errors. Its interval then reaches down to 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bmdp.arrays import FloatArray, freeze_columns, real_array, require_shape
from bmdp.errors import DataError
from bmdp.evaluation.rollouts import Evaluation
from bmdp.evaluation.statistics import Interval, seed_interval, widened
from bmdp.frontier import Frontier
from bmdp.kinds import checked


class DialMeasures(NamedTuple):
    """The three measures at each of `B` budgets."""

    score: FloatArray  # [B], NaN where the frontier has nothing to earn
    overshoot: FloatArray  # [B], in cost
    dial_error: FloatArray  # [B], in cost


@checked
def dial_measures(
    budgets: ArrayLike, costs: ArrayLike, rewards: ArrayLike, frontier: Frontier
) -> DialMeasures:
    """Returns the three measures of mean costs and rewards at budgets.

    Args:
        budgets: asked, `[B]`.
        costs: realised, `[B]`.
        rewards: realised, `[B]`.
        frontier: the best that can be had from the start, with the same discount.

    Raises:
        DataError: if shapes differ.

    >>> from bmdp import upper_frontier
    >>> found = dial_measures([0.5], [0.6], [30.0], upper_frontier([0.0, 1.0], [0.0, 100.0]))
    >>> found.score.round(6), found.overshoot.round(6), found.dial_error.round(6)
    (array([0.5]), array([0.1]), array([0.1]))
    """
    asked, paid, earned = (
        real_array(name, values).astype(np.float64)
        for name, values in (("budgets", budgets), ("costs", costs), ("rewards", rewards))
    )
    require_shape("budgets", asked, (None,), "[B]")
    for name, values in (("costs", paid), ("rewards", earned)):
        require_shape(name, values, asked.shape, "[B]")
    cheapest, dearest = float(frontier.costs[0]), float(frontier.costs[-1])
    return DialMeasures(
        earned / _best(asked, paid, frontier),
        paid - np.maximum(asked, cheapest),
        np.abs(paid - np.clip(asked, cheapest, dearest)),
    )


def _best(budgets: FloatArray, costs: FloatArray, frontier: Frontier) -> FloatArray:
    """The best reward for what was allowed, or paid if that is more; NaN if it is not above 0."""
    spent = np.maximum(budgets, costs)
    rewards = frontier.reward_at(np.clip(spent, frontier.costs[0], frontier.costs[-1]))
    return np.where(rewards > 0, rewards, np.nan)


@checked
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


@checked
def measure_dial(evaluation: Evaluation, frontier: Frontier) -> DialReport:
    """Returns the measures of one evaluation, with intervals that follow from its own.

    The intervals of costs are widened until they hold at all budgets together, and so are those of
    rewards and costs together for the score, which is then the least and the largest that they
    allow.

    Args:
        evaluation: of the policy.
        frontier: the best that can be had from the start, in discounted cost and reward. To
            measure by other means, such as undiscounted ones, see `dial_measures`.

    >>> import bmdp
    >>> from bmdp.envs import ScriptedPolicy
    >>> policy = ScriptedPolicy("slot-filling/voice-again")  # never costs anything
    >>> played = bmdp.evaluate(policy, "slot-filling", budgets=[0, 1], n_episodes=100, seed=0)
    >>> measure_dial(played, bmdp.upper_frontier([0.0, 0.578], [80.0, 100.0])).dial_error.tolist()
    [0.0, 0.578]
    """
    budgets = evaluation.budgets
    _, costs = _returns(evaluation, n_together=len(budgets))
    rewards, at_costs = _returns(evaluation, n_together=2 * len(budgets))
    mean, low, high = (dial_measures(budgets, end, rewards.mean, frontier) for end in costs)
    target = np.clip(budgets, frontier.costs[0], frontier.costs[-1])
    is_inside = (costs.low <= target) & (target <= costs.high)
    nearest = np.minimum(low.dial_error, high.dial_error)
    furthest = np.maximum(low.dial_error, high.dial_error)
    intervals = {
        "score": _score(rewards, at_costs, budgets, frontier),
        "overshoot": Interval(mean.overshoot, low.overshoot, high.overshoot),
        "dial_error": Interval(mean.dial_error, np.where(is_inside, 0.0, nearest), furthest),
    }
    worst = float(mean.overshoot.max())
    return _report(intervals, evaluation, worst_overshoot=worst, n_seeds=1)


@checked
def measure_dials(evaluations: Sequence[Evaluation], frontier: Frontier) -> DialReport:
    """Returns the measures of several seeds: means over seeds, with Student intervals over seeds.

    Each seed is measured by itself first: a dial that is too high in one seed and too low in
    another has errors in both. `worst_overshoot` is the worst of any seed.

    Args:
        evaluations: one of each seed's policy, at the same budgets.
        frontier: as for `measure_dial`.

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
        same = np.array_equal(first.budgets, other.budgets) and _counted(first) == _counted(other)
        if not same or first.confidence != other.confidence:
            raise DataError(
                "evaluations must have the same budgets, gamma and confidence; "
                f"those of [{i}] are not those of [0]."
            )
    each = [
        dial_measures(e.budgets, e.dial_cost_mean, e.discounted_reward_mean, frontier)
        for e in evaluations
    ]
    intervals = {
        name: seed_interval([getattr(one, name) for one in each], confidence=first.confidence)
        for name in DialMeasures._fields
    }
    worst = max(float(one.overshoot.max()) for one in each)
    return _report(intervals, first, worst_overshoot=worst, n_seeds=len(each))


def _counted(one: Evaluation) -> tuple[float | None, ...]:
    """Discounts and limit by which rewards and costs are counted."""
    return one.gamma, one.cost_gamma, one.episode_limit


def _returns(evaluation: Evaluation, *, n_together: int) -> tuple[Interval, Interval]:
    """Rewards and costs `[B]`, with intervals of which so many hold together."""
    rewards, costs = (
        widened(
            Interval(*(getattr(evaluation, f"{name}_{end}") for end in Interval._fields)),
            n_samples=evaluation.n_episodes,
            confidence=evaluation.confidence,
            n_together=n_together,
        )
        for name in ("discounted_reward", "dial_cost")
    )
    return rewards, costs


def _score(rewards: Interval, costs: Interval, budgets: FloatArray, frontier: Frontier) -> Interval:
    """Rewards as a share of the best, from the least to the largest that the intervals allow."""

    def share(reward: FloatArray, of: FloatArray) -> FloatArray:
        limit = np.where(reward == 0, 0.0, np.copysign(np.inf, reward))  # of ever smaller bests
        return np.where(np.isnan(of), limit, reward / of)

    mean, least, most = (_best(budgets, cost, frontier) for cost in costs)
    low = np.minimum(share(rewards.low, least), share(rewards.low, most))
    high = np.maximum(share(rewards.high, least), share(rewards.high, most))
    ends = (np.where(np.isnan(mean), np.nan, end) for end in (low, high))
    return Interval(rewards.mean / mean, *ends)


def _report(
    intervals: dict[str, Interval], evaluation: Evaluation, *, worst_overshoot: float, n_seeds: int
) -> DialReport:
    columns = {
        f"{name}_{end}".removesuffix("_mean"): values
        for name, interval in intervals.items()
        for end, values in interval._asdict().items()
    }
    scores = intervals["score"].mean
    defined = scores[~np.isnan(scores)]
    return DialReport(
        budgets=evaluation.budgets,
        **columns,
        mean_score=float(defined.mean()) if len(defined) else np.nan,
        worst_overshoot=worst_overshoot,
        mean_dial_error=float(intervals["dial_error"].mean.mean()),
        confidence=evaluation.confidence,
        n_seeds=n_seeds,
    )
