"""Policies measured against the truth of a task.

C and R are the means of discounted cost and reward at an asked budget b, and c_min, c_max the ends
of the true frontier. *Overshoot* is C - max(b, c_min), *relative overshoot* is that over
max(b, c_min) where this is not next to 0, *dial error* is |C - clip(b, c_min, c_max)|. The score is
that of `tasks.py`.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student

import bmdp
from bmdp.arrays import FloatArray, IntArray, read_only
from bmdp.policies.policy import BudgetedPolicy
from strangers.envs import has_batch
from strangers.tasks import Stranger

ABSOLUTE, RELATIVE = 0.01, 0.05  # overshoots that are allowed: the larger of the two
N_BUDGETS = 7
SECONDS, SLOW_SECONDS = 20.0, 120.0  # the latter where there is no batched simulation
PILOT, SLOW_PILOT = 500, 30  # episodes at each budget, at least
_CONFIDENCE = 0.95
_NOTHING = 1e-3  # budgets below this share of the largest are as good as 0


@dataclass(frozen=True, eq=False)
class Measured:
    """What a policy did at each of `B` budgets."""

    asked: FloatArray  # [B]
    cost: FloatArray  # [B], mean discounted
    cost_error: FloatArray  # [B], standard error
    reward: FloatArray  # [B], mean discounted
    reward_error: FloatArray  # [B], standard error
    score: FloatArray  # [B], NaN where no frontier is known, or nothing can be earned
    overshoot: FloatArray  # [B], absolute; below 0 where less is paid
    relative_overshoot: FloatArray  # [B], NaN where the budget is 0, or next to it
    dial_error: FloatArray  # [B]
    n_episodes: IntArray  # [B]

    def __post_init__(self) -> None:
        """Makes arrays read-only."""
        for field in fields(self):
            object.__setattr__(self, field.name, read_only(np.asarray(getattr(self, field.name))))

    @property
    def mean_score(self) -> float:
        """Mean over the budgets that have a score; NaN if none has."""
        scored = self.score[~np.isnan(self.score)]
        return float(scored.mean()) if len(scored) else float("nan")

    @property
    def worst_overshoot(self) -> float:
        """Largest over budgets, at least 0."""
        return max(0.0, float(self.overshoot.max()))

    @property
    def worst_relative_overshoot(self) -> float:
        """Largest over budgets above 0, at least 0."""
        return max(0.0, float(np.nanmax(self.relative_overshoot, initial=0.0)))

    @property
    def worst_excess(self) -> float:
        """Largest overshoot in units of what is allowed: 1 is on the border."""
        allowed = np.maximum(ABSOLUTE, RELATIVE * (self.cost - self.overshoot))
        return max(0.0, float((self.overshoot / allowed).max()))

    @property
    def mean_dial_error(self) -> float:
        """Mean over budgets."""
        return float(self.dial_error.mean())

    @property
    def worst_dial_error(self) -> float:
        """Largest over budgets."""
        return float(self.dial_error.max())

    def summary(self) -> dict[str, float]:
        """Returns one number for each question."""
        names = ("mean_score", "worst_overshoot", "worst_relative_overshoot", "worst_excess")
        return {
            name: getattr(self, name) for name in (*names, "mean_dial_error", "worst_dial_error")
        }

    def to_json(self) -> dict[str, Any]:
        """Returns plain data, with the summary; NaN is None."""

        def plain(value: float) -> float | None:
            return None if np.isnan(value) else float(value)

        columns = {name: [plain(v) for v in values] for name, values in asdict(self).items()}
        return {**{name: plain(v) for name, v in self.summary().items()}, "at_budgets": columns}


class _Means(NamedTuple):
    """Means of `N` episodes, and their squared standard errors, at each of `B` budgets."""

    n: IntArray  # [B]
    cost: FloatArray  # [B]
    cost_square: FloatArray  # [B]
    reward: FloatArray  # [B]
    reward_square: FloatArray  # [B]


def default_budgets(policy: BudgetedPolicy, task: Stranger) -> FloatArray:
    """Returns 7 budgets over the true frontier, or over the policy's range if there is none."""
    truth = task.truth()
    low, high = truth.cost_range if truth.is_known else policy.budget_range
    return np.linspace(low, high, N_BUDGETS)


def measure(
    policy: BudgetedPolicy,
    task: Stranger,
    budgets: ArrayLike | None = None,
    *,
    episodes: int | None = None,
    seed: int = 0,
    seconds: float | None = None,
) -> Measured:
    """Plays a policy at several budgets, and compares with the truth.

    A budget below what the policy takes is played at the least that it takes, and counts as asked.

    Args:
        policy: any policy.
        task: one of `TASKS`. It is played by its tables where it has some.
        budgets: `[B]`; `default_budgets` if not given.
        episodes: at each budget. If not given, as many as bring the standard error of each cost to
            a fifth of the allowed overshoot, or as there is time for.
        seed: of all episodes.
        seconds: about how long this may take, where `episodes` is not given: 20, or 120 for a task
            without a batched simulation.
    """
    asked = default_budgets(policy, task) if budgets is None else np.asarray(budgets, np.float64)
    truth = task.truth()
    low, high = truth.cost_range if truth.is_known else (0.0, np.inf)
    least = np.maximum(asked, low)
    if episodes is not None:
        found = _play(policy, task, asked, episodes, seed)
    else:
        goal = np.maximum(ABSOLUTE, RELATIVE * least) / 5
        found = _play_until(policy, task, asked, goal, seed=seed, seconds=seconds)
    overshoot = found.cost - least
    is_positive = least > _NOTHING * max(abs(least).max(), 1e-12)
    relative = np.where(is_positive, overshoot / np.where(is_positive, least, 1.0), np.nan)
    return Measured(
        asked=asked,
        cost=found.cost,
        cost_error=np.sqrt(found.cost_square),
        reward=found.reward,
        reward_error=np.sqrt(found.reward_square),
        score=truth.score(asked, found.reward, found.cost),
        overshoot=overshoot,
        relative_overshoot=relative,
        dial_error=abs(found.cost - np.clip(asked, low, high)),
        n_episodes=found.n,
    )


def _play(
    policy: BudgetedPolicy, task: Stranger, asked: FloatArray, episodes: int, seed: int
) -> _Means:
    taken = np.maximum(asked, policy.budget_range[0])
    found = bmdp.evaluate(
        policy,
        task.fast_id,
        budgets=taken,
        n_episodes=episodes,
        seed=seed,
        confidence=_CONFIDENCE,
    )
    assert abs(found.gamma - task.gamma) < 1e-12, "the environment tells its discount"
    factor = float(student.ppf((1 + _CONFIDENCE) / 2, max(episodes - 1, 1)))

    def square(mean: FloatArray, high: FloatArray) -> FloatArray:
        return ((high - mean) / factor) ** 2

    return _Means(
        np.full(len(asked), episodes),
        found.discounted_cost_mean,
        square(found.discounted_cost_mean, found.discounted_cost_high),
        found.discounted_reward_mean,
        square(found.discounted_reward_mean, found.discounted_reward_high),
    )


def _play_until(
    policy: BudgetedPolicy,
    task: Stranger,
    asked: FloatArray,
    goal: FloatArray,
    *,
    seed: int,
    seconds: float | None,
) -> _Means:
    """Plays some episodes at all budgets, and more where the standard error is above the goal."""
    is_fast = has_batch(task.name)
    first = PILOT if is_fast else SLOW_PILOT
    limit = seconds or (SECONDS if is_fast else SLOW_SECONDS)
    begun = time.monotonic()
    found = _play(policy, task, asked, first, seed)
    each = (time.monotonic() - begun) / (first * len(asked))  # seconds of an episode
    needed = found.n * (found.cost_square / goal**2 * 1.1 - 1)
    more = np.maximum(np.ceil(needed), 0)
    left = max(limit - (time.monotonic() - begun), 0.0)
    more = np.floor(_shared(more, left / each))
    for i in np.flatnonzero(more > 1):
        further = _play(
            policy, task, asked[i : i + 1], int(more[i]), seed + 1_000_003 * (int(i) + 1)
        )
        found = _joined(found, further, int(i))
    return found


def _shared(wanted: FloatArray, total: float) -> FloatArray:
    """What each gets of a total that may not be enough for all: the same, if it wants as much."""
    given, left = np.zeros(len(wanted)), total
    for rank, place in enumerate(np.argsort(wanted)):
        given[place] = min(wanted[place], left / (len(wanted) - rank))
        left -= given[place]
    return given


def _joined(found: _Means, further: _Means, place: int) -> _Means:
    """Means of the episodes of both at one of the budgets."""
    columns: list[Any] = [np.array(column) for column in found]
    n, m = float(found.n[place]), float(further.n[0])
    share = m / (n + m)
    columns[0][place] = found.n[place] + further.n[0]
    for mean, square in ((1, 2), (3, 4)):
        columns[mean][place] += share * (further[mean][0] - columns[mean][place])
        columns[square][place] = (1 - share) ** 2 * columns[square][place] + (
            share**2 * further[square][0]
        )
    return _Means(*columns)
