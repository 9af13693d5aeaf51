"""Moving the dial in the middle of an episode, and whether what is left to pay follows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import ArrayLike

from bmdp.arrays import FloatArray, freeze_columns
from bmdp.checks import require_count
from bmdp.envs.slots import find_spec
from bmdp.evaluation.bounds import share_interval
from bmdp.evaluation.episodes import Job, Setting, checked_budgets
from bmdp.evaluation.statistics import mean_interval
from bmdp.evaluation.workers import Progress, play_plans
from bmdp.policies.policy import BudgetedPolicy


@dataclass(frozen=True, eq=False)
class MoveEvaluation:
    """What was earned and paid from a step on, at which the dial was moved, for `M` new budgets.

    Rewards and costs are discounted from that step on, as the new budget is. Means are over the
    episodes still going at that step, which are the same ones for all new budgets; intervals of
    means are Student's, that of the share Clopper and Pearson's, each with the given confidence by
    itself. If no episode is still going, means are NaN.

    >>> from bmdp.envs import ScriptedPolicy
    >>> move = {"first_budget": 0.5, "new_budgets": [0.2, 0.8], "at_step": 1}
    >>> policy = ScriptedPolicy("slot-filling/key-pad")  # it does not look at the budget
    >>> found = evaluate_move(policy, "slot-filling", **move, n_episodes=100, seed=0)
    >>> found.n_going, (found.excess - found.cost_mean).round(2).tolist()
    (78, [-0.2, -0.8])
    """

    first_budget: float  # held at the start, in expected discounted cost
    new_budgets: FloatArray  # [M], held from that step on
    at_step: int  # steps made before the dial was moved
    reward_mean: FloatArray  # [M], discounted reward-to-go
    reward_low: FloatArray  # [M]
    reward_high: FloatArray  # [M]
    cost_mean: FloatArray  # [M], discounted cost-to-go
    cost_low: FloatArray  # [M]
    cost_high: FloatArray  # [M]
    excess: FloatArray  # [M], cost-to-go less the new budget
    excess_low: FloatArray  # [M]
    excess_high: FloatArray  # [M]
    infeasible_share: FloatArray  # [M], of those still going whose next decision was INFEASIBLE
    n_episodes: int  # started
    n_going: int  # still going at that step
    going_share: float  # n_going / n_episodes
    going_low: float  # of its interval
    going_high: float  # likewise
    confidence: float  # of each interval by itself
    seed: int  # of everything
    env: str  # its id

    def __post_init__(self) -> None:
        """Checks shapes, and makes arrays read-only."""
        freeze_columns(self, "[M]")


def evaluate_move(  # noqa: PLR0913
    policy: BudgetedPolicy,
    env: str | EnvSpec,
    *,
    first_budget: float,
    new_budgets: ArrayLike,
    at_step: int,
    n_episodes: int,
    seed: int,
    workers: int = 1,
    confidence: float = 0.95,
    max_steps: int = 10_000,
    progress: Progress | None = None,
) -> MoveEvaluation:
    """Returns what a policy earns and pays after its budget is replaced in the middle.

    Episodes run for `at_step` steps with `first_budget`; then `tracker.set_budget` moves the dial.
    Up to there they are the same for all new budgets. `excess` is measured against the new budget
    itself: from some states no policy may be able to keep it (see `infeasible_share`).

    Args:
        policy: any policy; it is played in episode form.
        env: an id, a short name, or a Gymnasium specification.
        first_budget: held at the start, in expected discounted cost.
        new_budgets: held from that step on, `[M]`, in cost discounted from there.
        at_step: number of steps before the dial is moved, from 0 on.
        n_episodes: number of episodes for each new budget.
        seed: of everything, from 0 on.
        workers: number of processes, as in `evaluate`.
        confidence: of each interval by itself.
        max_steps: of an episode, where the environment's metadata have no `horizon`.
        progress: called with the number of episodes played so far, and of all.

    Raises:
        BudgetError: if a budget is not a finite number, or the policy does not take it.
        ConfigError: if there is no such environment, or a setting is out of range.
        PolicyError: if the policy does not fit the environment, or cannot travel to the workers.
        EnvError: if an episode does not end in time, or the environment gives no cost.

    >>> from bmdp.envs import ScriptedPolicy
    >>> move = {"first_budget": 0.5, "new_budgets": [0.2], "at_step": 1}
    >>> policy = ScriptedPolicy("slot-filling/key-pad")
    >>> found = evaluate_move(policy, "slot-filling", **move, n_episodes=2_000, seed=0)
    >>> bool(found.cost_low[0] < 1 - 0.75**2 < found.cost_high[0])  # two of three are to be asked
    True
    """
    setting = Setting(find_spec(env), seed, max_steps)
    first = float(checked_budgets("first_budget", [first_budget], policy)[0])
    asked = checked_budgets("new_budgets", new_budgets, policy)
    require_count("n_episodes", n_episodes, 1)
    require_count("workers", workers, 1)
    require_count("at_step", at_step, 0)
    name = f"evaluate-move/{at_step}"
    plans = [Job(0, n_episodes, first, name, at_step, float(budget)) for budget in asked]
    played, _ = play_plans(policy, setting, plans, workers=workers, progress=progress)
    going = played[0].going
    assert all((returns.going == going).all() for returns in played)
    rewards, costs = (
        mean_interval(np.stack([getattr(r, which)[going] for r in played]), confidence=confidence)
        for which in ("discounted_reward", "discounted_cost")
    )
    n_going = int(going.sum())
    share = share_interval(n_going, n_episodes, confidence=confidence)
    infeasible = np.array([int(returns.infeasible.sum()) for returns in played])
    return MoveEvaluation(
        first_budget=first,
        new_budgets=asked,
        at_step=int(at_step),
        reward_mean=rewards.mean,
        reward_low=rewards.low,
        reward_high=rewards.high,
        cost_mean=costs.mean,
        cost_low=costs.low,
        cost_high=costs.high,
        excess=costs.mean - asked,
        excess_low=costs.low - asked,
        excess_high=costs.high - asked,
        infeasible_share=share_interval(infeasible, n_going, confidence=confidence).mean,
        n_episodes=int(n_episodes),
        n_going=n_going,
        going_share=float(share.mean),
        going_low=float(share.low),
        going_high=float(share.high),
        confidence=confidence,
        seed=int(seed),
        env=setting.spec.id,
    )
