"""Exploring where little is known: what is unknown is made to look good, and is asked for more.

Three ways to make it look good (`Exploration.bonus`), of which the last round of learning knows
nothing:

- *count*: a reward for rows of an action that are alone in their cell of states, and less of it
  the more there are (Strehl and Littman, 2008, have the root);
- *ensemble*: several models were fitted to different episodes, and disagree where these are few;
  the policy plays by the most that they may mean;
- *targets*: the models learn from such values, too, so that what leads to the unknown looks good.

And budgets that are worth asking for (`Exploration.budgets`): those of which the models disagree
what they earn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import FloatArray
from bmdp.data import TransitionBatch
from bmdp.errors import ConfigError
from bmdp.frontier import frontier_values
from bmdp.learn.collect import threads
from bmdp.learn.config import TrainingSpec
from bmdp.learn.fit import LearnedPolicy, reward_scale
from bmdp.learn.fit_config import BFTQConfig, FTQConfig
from bmdp.policies.crossed import MeanQ
from bmdp.policies.hull import HullPolicy
from bmdp.policies.protocol import OneStepPolicy
from bmdp.policies.staged import StagedPolicy
from bmdp.randomness import named_generator

_N_STATES = 100  # first states at which models are compared


def lesson(
    spec: TrainingSpec, batch: TransitionBatch, *, is_last: bool
) -> tuple[BFTQConfig | FTQConfig, TransitionBatch]:
    """What a round is learned with, and from; the last one as if there were no bonus.

    Rewards with a bonus are divided by what those without are, so that a slope cap, which is in
    scaled rewards, means the same.
    """
    if is_last:
        return spec.learner, batch
    if spec.exploration.bonus != "count":
        return spec.exploring_learner, batch
    scale = reward_scale(spec.learner, batch.reward)
    bonus = count_bonus(batch, spec.exploration.weight, spec.exploration.cell, scale)
    columns = batch.to_arrays() | {"reward": batch.reward + bonus}
    return (
        replace(spec.learner, reward_scale=scale),
        TransitionBatch.from_arrays(columns, n_actions=batch.n_actions),
    )


def count_bonus(batch: TransitionBatch, weight: float, cell: float, scale: float) -> FloatArray:
    """What each row earns on top, `[N]`: weight * scale / sqrt(n).

    Args:
        batch: `N` transitions.
        weight: of the bonus.
        cell: side of a cell, in deviations of each number of the states.
        scale: of rewards.

    Returns:
        The bonus; n is the number of rows of the same action with states in the same cell.

    >>> state, zeros = [0.0, 0.0, 9.0], [0, 0, 0]
    >>> batch = TransitionBatch(state, zeros, zeros, zeros, state, zeros)
    >>> count_bonus(batch, 2.0, 0.5, 1.0).round(3).tolist()
    [1.414, 1.414, 2.0]
    """
    states = np.asarray(batch.state, np.float64)
    deviations = states.std(axis=0)
    sides = cell * np.where(deviations > 0, deviations, 1.0)
    cells = np.floor((states - states.mean(axis=0)) / sides).astype(np.int64)
    _, which, counts = np.unique(
        np.column_stack((cells, batch.action)), axis=0, return_inverse=True, return_counts=True
    )
    bonus: FloatArray = weight * scale / np.sqrt(counts[which.ravel()])
    return bonus


def optimistic(policy: LearnedPolicy, weight: float) -> LearnedPolicy:
    """Returns a policy that acts on more reward and less cost, by deviations over its models.

    Raises:
        ConfigError: if it does not act on the mean of some models.
    """
    if isinstance(policy, StagedPolicy):
        return StagedPolicy(tuple(_optimistic(stage, weight) for stage in policy.stages))
    return _optimistic(policy, weight)


def _optimistic(policy: OneStepPolicy, weight: float) -> HullPolicy:
    hull, mean = _parts(policy)
    return replace(hull, q_function=replace(mean, caution=-weight))


def disagreement(policy: LearnedPolicy, states: NDArray[Any], budgets: FloatArray) -> FloatArray:
    """How much the models of a policy disagree on what budgets earn, `[M]`.

    It is the deviation over models of the reward of each one's own frontier, in the mean over
    states; of the first step, if the policy counts steps.

    Args:
        policy: that acts on the mean of some models.
        states: `[N, ...]`.
        budgets: `[M]`.

    Raises:
        ConfigError: if it does not act on the mean of some models.
    """
    hull, mean = _parts(policy.at_step(0))
    found = [
        frontier_values(*hull.rule.points(*function(states)), budgets)[0]
        for function in mean.functions
    ]
    mean_deviation: FloatArray = np.std(np.asarray(found, np.float64), axis=0).mean(axis=0)
    return mean_deviation


def draw_budgets(
    grid: FloatArray, weights: FloatArray, n: int, rng: np.random.Generator
) -> FloatArray:
    """Draws `n` budgets with a density that is in proportion to the weight of the nearest one.

    Uniform, if all weights are 0.

    Args:
        grid: budgets `[B]`, rising; nothing is drawn below the first or above the last.
        weights: of each, `[B]`, from 0 on.
        n: how many.
        rng: of the draws.
    """
    edges = np.concatenate((grid[:1], (grid[1:] + grid[:-1]) / 2, grid[-1:]))
    widths = np.diff(edges)
    masses = widths * weights if np.any(weights > 0) else widths
    cells = rng.choice(len(grid), size=n, p=masses / masses.sum())
    return rng.uniform(edges[cells], edges[cells + 1])


def first_budgets(
    spec: TrainingSpec,
    policy: LearnedPolicy | None,
    before: list[TransitionBatch],
    seed: int,
) -> FloatArray:
    """Budgets with which the episodes of a round begin.

    Args:
        spec: what is learned, and how.
        policy: of the round before, if any.
        before: batches of all rounds before.
        seed: of the run.
    """
    number = len(before)
    rng = named_generator(seed, f"explore/budgets/{number}")
    budgets = rng.uniform(*spec.learner.budget_range, spec.exploration.episodes)
    if spec.exploration.budgets == "uniform" or policy is None:
        return budgets
    assert isinstance(spec.learner, BFTQConfig)
    grid = spec.learner.beta_grid
    starts = np.concatenate([batch.state[batch.starts()] for batch in before])[:_N_STATES]
    with threads(1):  # as many as there are where episodes are played
        weights = disagreement(policy, starts, grid)
    rng = named_generator(seed, f"explore/uncertain-budgets/{number}")
    budgets[1::2] = draw_budgets(grid, weights, len(budgets) // 2, rng)
    return budgets


def _parts(policy: OneStepPolicy) -> tuple[HullPolicy, MeanQ]:
    """A greedy policy, and the mean that it acts on."""
    if isinstance(policy, HullPolicy) and isinstance(policy.q_function, MeanQ):
        return policy, policy.q_function
    raise ConfigError("exploring by models needs a policy that acts on the mean of several models.")
