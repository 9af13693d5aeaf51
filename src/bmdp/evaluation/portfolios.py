"""What the members of a portfolio cost and earn, by playing them: the calibration curve.

Paper: the figure of the Lagrangian appendix, cost against multiplier, and its two rules.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from gymnasium.envs.registration import EnvSpec

from bmdp.arrays import FloatArray
from bmdp.checks import require_choice, require_count
from bmdp.envs.slots import find_spec
from bmdp.evaluation.episodes import Job, Setting
from bmdp.evaluation.workers import Progress, part_of, play_plans
from bmdp.policies.portfolio import Portfolio

_N_GROUPS = 10  # of episodes, for the largest deviation


def measure_portfolio(  # noqa: PLR0913
    portfolio: Portfolio,
    env: str | EnvSpec,
    *,
    n_episodes: int,
    seed: int,
    by: Literal["mean", "deviation"] = "mean",
    workers: int = 1,
    max_steps: int = 10_000,
    progress: Progress | None = None,
) -> Portfolio:
    """Returns the portfolio with costs and rewards of its members as they were measured.

    Args:
        portfolio: such as `LagrangianFTQ` returns, with a member for each price.
        env: an id, a short name, or a Gymnasium specification.
        n_episodes: that each member is played for.
        seed: of everything, from 0 on.
        by: "mean": a member costs its mean. "deviation": it costs the mean of the worst of 10
            groups of episodes, so that safer members are chosen where costs vary more.
        workers: number of processes.
        max_steps: of an episode, where the environment's metadata have no `horizon`.
        progress: called with the number of episodes played so far, and of all.

    Raises:
        ConfigError: if a setting is out of range, or there are too few episodes for groups.
        PolicyError: if a member does not fit the environment.

    Paper: the figure of the Lagrangian appendix.

    >>> from bmdp.envs import ScriptedPolicy
    >>> rules = [ScriptedPolicy(f"slot-filling/{rule}") for rule in ("voice-again", "key-pad")]
    >>> guess = {"budgets": [0, 0], "costs": [0, 0], "rewards": [0, 0]}
    >>> unknown = Portfolio(tuple(rules), which=[0, 1], **guess)
    >>> found = measure_portfolio(unknown, "slot-filling", n_episodes=100, seed=0)
    >>> found.costs.tolist(), found.mixtures([0.28]).p_upper.tolist()
    ([0.0, 0.56], [0.5])
    """
    require_choice("by", by, ("mean", "deviation"))
    require_count("n_episodes", n_episodes, 1 if by == "mean" else _N_GROUPS)
    require_count("workers", workers, 1)
    setting = Setting(find_spec(env), seed, max_steps)
    costs, rewards = np.zeros((2, len(portfolio.which)))
    n_before, n_all = 0, n_episodes * len(portfolio.which)
    for number, policy in enumerate(portfolio.policies):
        members = np.flatnonzero(portfolio.which == number)
        report = part_of(progress, n_before, n_all)
        n_before += n_episodes * len(members)
        plans = [Job(0, n_episodes, float(portfolio.budgets[k]), f"portfolio/{k}") for k in members]
        played, _ = play_plans(policy, setting, plans, workers=workers, progress=report)
        rewards[members] = [returns.discounted_reward.mean() for returns in played]
        costs[members] = [_cost(returns.discounted_cost, by) for returns in played]
    return replace(portfolio, costs=costs, rewards=rewards)


def _cost(costs: FloatArray, by: str) -> float:
    """What a member is said to cost, given what episodes cost."""
    if by == "mean":
        return float(costs.mean())
    return max(float(group.mean()) for group in np.array_split(costs, _N_GROUPS))
