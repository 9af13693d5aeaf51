"""What a policy earns and pays at each budget, measured by playing it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import FloatArray, read_only, require_shape
from bmdp.checks import require_count
from bmdp.envs.slots import find_spec
from bmdp.evaluation.episodes import Job, Setting, checked_budgets
from bmdp.evaluation.statistics import (
    mean_interval,
    quantiles,
    simultaneous_confidence,
    worst_mean,
)
from bmdp.evaluation.workers import Progress, play_plans
from bmdp.policies.policy import BudgetedPolicy

COST_LEVELS = (0.5, 0.9, 0.99)
"""Levels of `Evaluation.cost_quantiles`."""

WORST_SHARE = 0.1
"""Share of episodes of `Evaluation.cost_cvar`."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a policy earned and paid at each of `B` budgets: means over episodes, with intervals.

    Intervals are Student's, each with the given confidence by itself. `discounted_*` are returns
    with the discount of the environment, which is what budgets are about; the others are plain sums
    over an episode.

    >>> from bmdp.envs import ScriptedPolicy
    >>> policy = ScriptedPolicy("slot-filling/key-pad")
    >>> found = evaluate(policy, "slot-filling", budgets=[0.2, 0.8], n_episodes=100, seed=0)
    >>> found.cost_mean.tolist(), found.cost_quantiles[0].tolist()  # it does not look at the budget
    ([0.56, 0.56], [1.0, 1.0, 1.0])
    """

    budgets: FloatArray  # [B], asked
    reward_mean: FloatArray  # [B], of the sum of an episode
    reward_low: FloatArray  # [B]
    reward_high: FloatArray  # [B]
    cost_mean: FloatArray  # [B], of the sum of an episode
    cost_low: FloatArray  # [B]
    cost_high: FloatArray  # [B]
    discounted_reward_mean: FloatArray  # [B]
    discounted_reward_low: FloatArray  # [B]
    discounted_reward_high: FloatArray  # [B]
    discounted_cost_mean: FloatArray  # [B]
    discounted_cost_low: FloatArray  # [B]
    discounted_cost_high: FloatArray  # [B]
    cost_quantiles: FloatArray  # [B, 3], of undiscounted costs, at `COST_LEVELS`
    cost_cvar: FloatArray  # [B], mean undiscounted cost of the worst tenth of episodes
    episode_length_mean: FloatArray  # [B], steps
    infeasible_share: FloatArray  # [B], of episodes whose first decision was INFEASIBLE
    n_episodes: int  # at each budget
    confidence: float  # of each interval by itself
    seed: int  # of everything
    env: str  # its id
    gamma: float  # discount of `discounted_*`

    def __post_init__(self) -> None:
        """Checks shapes, and makes arrays read-only."""
        simultaneous_confidence(self.confidence, 1)
        n_budgets = np.shape(self.budgets)[:1]
        for field in fields(self):
            if field.type != "FloatArray":
                continue
            array: NDArray[Any] = np.asarray(getattr(self, field.name), np.float64)
            is_table = field.name == "cost_quantiles"
            shape = (*n_budgets, len(COST_LEVELS)) if is_table else n_budgets
            letters = f"[B, {len(COST_LEVELS)}]" if is_table else "[B]"
            require_shape(f"Evaluation.{field.name}", array, shape, letters)
            object.__setattr__(self, field.name, read_only(array))


def evaluate(  # noqa: PLR0913
    policy: BudgetedPolicy,
    env: str | EnvSpec,
    *,
    budgets: ArrayLike,
    n_episodes: int,
    seed: int,
    workers: int = 1,
    confidence: float = 0.95,
    max_steps: int = 10_000,
    progress: Progress | None = None,
) -> Evaluation:
    """Returns what a policy earns and pays at each budget, by playing it.

    Episode k is the same in any batch and on any worker. At all budgets it draws the environment's
    numbers from the same seed (common random numbers), which makes differences between budgets less
    noisy; the policy's numbers differ from budget to budget.

    Args:
        policy: any policy; it is played in episode form.
        env: an id, a short name ("corridors"), or a Gymnasium specification with its settings.
            Returns are discounted by the `gamma` of its metadata, and not at all if these have
            none.
        budgets: to ask for, `[B]`, in expected discounted cost.
        n_episodes: number of episodes at each budget.
        seed: of everything, from 0 on.
        workers: number of processes. With more than one, the policy must be one that can be saved,
            and a script must start its work under `if __name__ == "__main__":`.
        confidence: of each interval by itself.
        max_steps: of an episode, where the environment's metadata have no `horizon`.
        progress: called with the number of episodes played so far, and of all.

    Raises:
        BudgetError: if a budget is not a finite number, or the policy does not take it.
        ConfigError: if there is no such environment, or a setting is out of range.
        PolicyError: if the policy does not fit the environment, or cannot travel to the workers.
        EnvError: if an episode does not end in time, or the environment gives no cost.

    >>> from bmdp.envs import ScriptedPolicy
    >>> policy = ScriptedPolicy("slot-filling/key-pad")
    >>> found = evaluate(policy, "slot-filling", budgets=[0.5], n_episodes=2_000, seed=0)
    >>> bool(found.cost_low[0] < 1 - 0.75**3 < found.cost_high[0])
    True
    """
    setting = Setting(find_spec(env), seed, max_steps)
    asked = checked_budgets("budgets", budgets, policy)
    require_count("n_episodes", n_episodes, 1)
    require_count("workers", workers, 1)
    simultaneous_confidence(confidence, 1)
    plans = [Job(0, n_episodes, float(b), f"evaluate/{i}") for i, b in enumerate(asked)]
    played, facts = play_plans(policy, setting, plans, workers=workers, progress=progress)
    intervals: dict[str, FloatArray] = {}
    for name in ("reward", "cost", "discounted_reward", "discounted_cost"):
        samples = np.stack([getattr(returns, name) for returns in played])
        found = mean_interval(samples, confidence=confidence)
        intervals |= {f"{name}_{end}": values for end, values in found._asdict().items()}
    costs = np.stack([returns.cost for returns in played])
    return Evaluation(
        budgets=asked,
        **intervals,
        cost_quantiles=quantiles(costs, COST_LEVELS),
        cost_cvar=worst_mean(costs, WORST_SHARE),
        episode_length_mean=np.array([returns.length.mean() for returns in played]),
        infeasible_share=np.array([returns.infeasible.mean() for returns in played]),
        n_episodes=int(n_episodes),
        confidence=confidence,
        seed=int(seed),
        env=setting.spec.id,
        gamma=facts.gamma,
    )
