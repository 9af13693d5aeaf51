"""What a policy will earn and pay, with intervals, told from logged episodes.

There are two methods. "fitted" learns the values of the policy from the transitions
(`bmdp.learn.fitted_evaluation`). "importance" weights the episodes by how likely they are under the
policy (`bmdp.evaluation.importance`): it needs the probabilities of logged actions, and no model.

Both are repeated with episodes that are drawn anew, for intervals (`bmdp.evaluation.bootstrap`).
What that does not show is not in an interval: that a model is too smooth, that the policy does what
the log does not hold, that a rare cost has not occurred.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from bmdp.arrays import FloatArray, freeze_columns
from bmdp.checks import require_choice, require_count, require_share
from bmdp.data import TransitionBatch
from bmdp.errors import ConfigError, DataError, PolicyError
from bmdp.evaluation.bootstrap import Fits, interval_ends, repeat_fitted, repeat_weighted
from bmdp.evaluation.episodes import checked_budgets
from bmdp.evaluation.importance import weighted_episodes
from bmdp.evaluation.logged import logged_episodes
from bmdp.evaluation.statistics import simultaneous_confidence
from bmdp.evaluation.workers import Progress
from bmdp.policies.policy import BudgetedPolicy, SteppedPolicy

if TYPE_CHECKING:
    from bmdp.learn.fit import Schedule
    from bmdp.models import Regressor

Method: TypeAlias = Literal["fitted", "importance"]
METHODS = ("fitted", "importance")

_REPEATS = {"fitted": 50, "importance": 1_000}
_UNFIT = (IndexError, RuntimeError, TypeError, ValueError)  # of a policy at foreign states


@dataclass(frozen=True, eq=False)
class OfflineEvaluation:
    """What a policy is expected to earn and pay at each of `B` budgets, from the first states.

    Each interval has the given confidence by itself. Without repeats its ends are NaN.

    >>> from bmdp.policies import HullPolicy, TabularQ
    >>> q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    >>> policy = HullPolicy(lambda states: q(states[:, 0].astype(int)), [0.0, 1.0])
    >>> ends = {"next_state": [0] * 4, "terminal": [True] * 4, "episode": [0, 1, 2, 3]}
    >>> known = {"step": [0] * 4, "probability": [0.5] * 4}
    >>> log = TransitionBatch([0] * 4, [0, 1] * 2, [0, 10] * 2, [0, 1] * 2, **ends, **known)
    >>> asked = {"gamma": 1.0, "budgets": [0.25, 1.0], "method": "importance", "seed": 0}
    >>> found = evaluate_offline(policy, log, **asked)
    >>> found.reward.tolist(), found.cost.tolist(), found.effective_episodes.round(9).tolist()
    ([2.5, 10.0], [0.25, 1.0], [3.2, 2.0])
    """

    budgets: FloatArray  # [B], asked
    reward: FloatArray  # [B], discounted
    reward_low: FloatArray  # [B]
    reward_high: FloatArray  # [B]
    cost: FloatArray  # [B], discounted
    cost_low: FloatArray  # [B]
    cost_high: FloatArray  # [B]
    effective_episodes: FloatArray  # [B], that would tell as much if all had the same weight
    method: str  # "fitted" or "importance"
    n_episodes: int  # of the log
    n_transitions: int  # of the log
    n_bootstrap: int  # repeats for the intervals
    confidence: float  # of each interval by itself
    seed: int  # of all that is random

    def __post_init__(self) -> None:
        """Checks shapes, and makes arrays read-only."""
        require_choice("OfflineEvaluation.method", self.method, METHODS)
        simultaneous_confidence(self.confidence, 1)
        freeze_columns(self, "[B]")


def evaluate_offline(  # noqa: PLR0913
    policy: SteppedPolicy,
    batch: TransitionBatch,
    *,
    gamma: float,
    cost_gamma: float | None = None,
    budgets: ArrayLike,
    method: Method = "fitted",
    confidence: float = 0.95,
    n_bootstrap: int | None = None,
    seed: int,
    model: Regressor | None = None,
    device: str = "auto",
    schedule: Schedule | None = None,
    n_budgets: int = 41,
    n_paths: int = 8,
    workers: int = 1,
    progress: Progress | None = None,
) -> OfflineEvaluation:
    """Returns what a policy will earn and pay at each budget, told from logged episodes.

    Intervals are estimate +- q s: s is the deviation of the evaluation over samples of episodes,
    and q Student's quantile of the effective episodes, or of the number of samples. On finite
    problems this kind covers best of three, and it needs the fewest samples (docs/offline.md).

    Args:
        policy: one whose probabilities are known: what a learner returned, or a `HullPolicy`.
        batch: whole episodes that had no part in choosing the policy. To "importance", nothing
            more comes after one that was cut off.
        gamma: discount of rewards, and of costs if these have none of their own.
        cost_gamma: discount of costs.
        budgets: to ask for, `[B]`, in expected discounted cost; above `policy.budget_range` they
            are taken as its top.
        method: "fitted", or "importance" where probabilities of actions were logged.
        confidence: of each interval by itself.
        n_bootstrap: how often the evaluation is repeated for the intervals. If not given, 50 times
            with "fitted", and 1,000 times with "importance". With 0 there are no intervals.
        seed: of all that is random.
        model: of "fitted", as are `device`, `schedule` and `n_budgets`: see `fitted_evaluation`.
            A smaller one saves time.
        device: "cpu", "cuda", or "auto" for the GPU if there is one.
        schedule: `Backward` or `Iterations`; what suits the policy, if not given.
        n_budgets: of the grid; best the policy's own.
        n_paths: of budgets that "importance" draws for each episode.
        workers: number of processes for "fitted". With more than one, the policy must be one that
            can be saved, and a script must start its work under `if __name__ == "__main__":`.
        progress: called with the number of evaluations made so far, and of all.

    Raises:
        DataError: if episodes, steps or probabilities are needed and not known, if there is one
            episode only, or none that the policy could have played.
        PolicyError: if it is not known with which probabilities the policy acts, or it cannot act
            on the states of the batch.
        BudgetError: if the policy does not take a budget.
        ConfigError: if a setting is out of range.

    >>> from bmdp import BFTQ, BFTQConfig
    >>> from bmdp.models import TableModel
    >>> ends = {"next_state": [0] * 4, "terminal": [True] * 4, "episode": [0, 1, 2, 3]}
    >>> log = TransitionBatch([0] * 4, [0, 1] * 2, [0, 10] * 2, [0, 1] * 2, **ends)
    >>> config = BFTQConfig(gamma=1.0, model=TableModel(), ensemble=1)
    >>> policy = BFTQ(config).fit(log, seed=0)
    >>> asked = {"gamma": 1.0, "budgets": [0.25], "model": TableModel(), "seed": 0}
    >>> found = evaluate_offline(policy, log, **asked, n_bootstrap=10)
    >>> found.reward.tolist(), found.cost.tolist(), bool(found.cost_low[0] < 0.25)
    ([2.5], [0.25], True)
    """
    require_choice("method", method, METHODS)
    n_repeats = _REPEATS[method] if n_bootstrap is None else n_bootstrap
    discounts = gamma, gamma if cost_gamma is None else cost_gamma
    _check_settings(discounts, confidence, n_repeats)
    require_count("n_paths", n_paths, 1)
    require_count("workers", workers, 1)
    asked = _checked(policy, batch, budgets)
    log = logged_episodes(batch, needs_steps=method == "importance")
    if n_repeats and len(log) < 2:
        raise DataError(
            "intervals need at least 2 episodes, which are drawn again and again; the batch has "
            "1. Give more of them, or n_bootstrap=0."
        )
    report = _counter(1 + n_repeats, progress)
    if method == "importance":
        settings: dict[str, Any] = {"discounts": discounts, "budgets": asked, "seed": seed}
        weighted = weighted_episodes(policy, log, n_paths=n_paths, **settings)
        effective = weighted.effective_episodes()
        found = repeat_weighted(weighted, log, n_repeats, seed, report)
    else:
        settings = {"gamma": gamma, "cost_gamma": cost_gamma, "budgets": asked, "model": model}
        settings |= {"device": device, "schedule": schedule, "n_budgets": n_budgets}
        effective = np.full(len(asked), float(len(log)))
        found = repeat_fitted(policy, Fits(log, settings, seed), n_repeats, workers, report)
    (reward, cost), ends = found[0].T, interval_ends(found, effective, confidence)
    return OfflineEvaluation(
        budgets=asked,
        reward=reward,
        reward_low=ends[0, :, 0],
        reward_high=ends[1, :, 0],
        cost=cost,
        cost_low=ends[0, :, 1],
        cost_high=ends[1, :, 1],
        effective_episodes=effective,
        method=method,
        n_episodes=len(log),
        n_transitions=len(batch),
        n_bootstrap=int(n_repeats),
        confidence=confidence,
        seed=int(seed),
    )


def _check_settings(discounts: tuple[float, float], confidence: float, n_repeats: int) -> None:
    for name, discount in zip(("gamma", "cost_gamma"), discounts, strict=True):
        require_share(name, discount)
    simultaneous_confidence(confidence, 1)
    require_count("n_bootstrap", n_repeats, 0)
    if n_repeats == 1:
        raise ConfigError("n_bootstrap must be 0, or at least 2 to have a deviation; got 1.")


def _checked(policy: SteppedPolicy, batch: TransitionBatch, budgets: ArrayLike) -> FloatArray:
    """Returns the budgets `[B]`, if the policy takes them and the states of the batch."""
    if not hasattr(policy, "at_step"):
        raise PolicyError(
            "evaluate_offline needs a policy with a one-step form at each step; "
            f"{type(policy).__name__} has none."
        )
    asked = checked_budgets("budgets", budgets, cast(BudgetedPolicy, policy))
    within = np.minimum(asked[:1], policy.budget_range[1])
    try:
        policy.at_step(0).options_at(batch.state[:1], within)
    except PolicyError:
        raise
    except _UNFIT as error:
        raise PolicyError(
            f"the policy cannot act on the states of the batch, of shape [{batch.state_size}] and "
            f"type {batch.state.dtype}; {type(policy).__name__} said: {error}"
        ) from error
    return asked


def _counter(total: int, progress: Progress | None) -> Callable[[int], None]:
    """What adds up evaluations, and tells of them."""
    done = 0

    def report(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(done, total)

    return report
