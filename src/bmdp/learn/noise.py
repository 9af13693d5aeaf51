"""Noise injected into an exact dynamic program: which greedy rule survives errors, in seconds.

Learning makes errors, and the greedy step picks the luckiest of hundreds of them. To compare rules
without training, take a known finite problem with a horizon and go backwards from its end. At each
step

    Q_e = R + gamma P V_e + noise,      one table for each "network" e, its noise its own,

and the rule under test turns the tables into mixtures, and those into the next V_e. The policy that
acts by the same tables and the same rule is valued beside it, exactly:

    V = the mixtures of R + gamma P V,  no noise.

V_e at the start is what the rule *predicts*, V what its policy *realises*. Without noise the two
are the same, and are those of the operator T (Eq. 11) where the rule has neither cap nor tolerance.

Networks know different data, so network e is fitted to values that it has chosen itself and that
the others may have valued, as in `bmdp.learn.bftq`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bmdp.arrays import FloatArray, IntArray
from bmdp.errors import ConfigError
from bmdp.exact import FiniteBMDP, optimal_frontier
from bmdp.exact.operators import QTables, backup, checked_grid
from bmdp.frontier import Frontier, crossed_share, mixtures_at
from bmdp.policies.greedy import GreedyRule, at
from bmdp.randomness import named_generator

_COSTS_FROM_0 = GreedyRule(cost_floor=0.0)


@dataclass(frozen=True, kw_only=True)
class NoiseRule:
    """A rule under test: who chooses, who sets the probability, who values, and who acts.

    Args:
        valuation: who values what network e chose: "self", or "crossed" for the mean of the others.
        probability: by whose costs the mixture spends the budget: "own", of the network that chose,
            or "other", of the mean of the others.
        acting: "coin": a coin says which network chooses, as in valuing; "average": the mean of
            all networks does everything.
        greedy: floor of the costs, and slope cap.
        tolerance: how much dearer than the cheapest point the frontier may begin, if that pays.
        folds: number of networks.
    """

    valuation: Literal["self", "crossed"] = "crossed"
    probability: Literal["own", "other"] = "other"
    acting: Literal["coin", "average"] = "coin"
    greedy: GreedyRule = _COSTS_FROM_0
    tolerance: float = 0.0
    folds: int = 2

    def __post_init__(self) -> None:
        """Checks that there are others to ask."""
        if self.folds < 1 or not self.tolerance >= 0:
            raise ConfigError(
                "folds must be from 1 on and tolerance from 0 on; "
                f"got {self.folds} and {self.tolerance}."
            )
        asks_others = self.valuation == "crossed" or self.probability == "other"
        if self.folds == 1 and asks_others:
            raise ConfigError('with one fold, valuation must be "self" and probability "own".')


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Gaussian errors of Q-values.

    Args:
        reward: deviation of the errors of Q_r.
        cost: deviation of the errors of Q_c.
        beta_length: over which part of the grid's range errors of one action are alike; 0 for
            errors of their own at every budget, infinity for the same at all.
        splits_data: whether the networks share the data, so that each has sqrt(folds) times the
            noise.
    """

    reward: float
    cost: float
    beta_length: float = 0.0
    splits_data: bool = False

    def __post_init__(self) -> None:
        """Checks the sizes."""
        if not min(self.reward, self.cost, self.beta_length) >= 0:
            raise ConfigError(f"sizes and lengths of noise must be from 0 on; got {self}.")

    def added(self, q: QTables, grid: FloatArray, rng: np.random.Generator) -> QTables:
        """Returns tables `[S, A, B]` with errors."""
        errors = rng.standard_normal((2, *q.q_r.shape))
        if self.beta_length > 0:
            apart = (grid[:, None] - grid) / (np.ptp(grid) or 1.0) / self.beta_length
            sizes, ways = np.linalg.eigh(np.exp(-(apart**2) / 2))
            errors = errors @ (ways * np.sqrt(sizes.clip(0))).T
        return QTables(q.q_r + self.reward * errors[0], q.q_c + self.cost * errors[1])


@dataclass(frozen=True, eq=False)
class NoiseProblem:
    """A finite problem with a horizon, and the best that can be had from its start."""

    name: str
    model: FiniteBMDP
    start: int
    beta_grid: FloatArray  # [B]
    frontier: Frontier

    @property
    def chord_slope(self) -> float:
        """Reward for a unit of cost, from the cheapest to the best paid."""
        costs, rewards = self.frontier.costs, self.frontier.rewards
        return float((rewards[-1] - rewards[0]) / (costs[-1] - costs[0])) if len(costs) > 1 else 0.0

    def noise(self, size: float, **settings: Any) -> Noise:
        """Noise of a size relative to the best reward and the largest cost of the frontier."""
        reward, cost = abs(self.frontier.rewards[-1]), abs(self.frontier.costs[-1])
        return Noise(reward=size * float(reward), cost=size * float(cost), **settings)


def noise_problem(
    name: str, model: FiniteBMDP, beta_grid: ArrayLike, *, start: int
) -> NoiseProblem:
    """Solves a problem, to compare with.

    Raises:
        ConfigError: if it has no horizon.
    """
    if model.horizon is None:
        raise ConfigError(f"{name} must have a horizon, to be solved backwards from its end.")
    best = optimal_frontier(model, start=start)
    return NoiseProblem(name, model, start, checked_grid(beta_grid), best)


class NoiseRun(NamedTuple):
    """What a rule predicted at the start, what its policy realises, and by which tables it acts."""

    predicted_reward: FloatArray  # [B]
    predicted_cost: FloatArray  # [B]
    reward: FloatArray  # [B]
    cost: FloatArray  # [B]
    stages: list[list[QTables]]  # noisy tables, by step and by network


def run_noise(problem: NoiseProblem, rule: NoiseRule, noise: Noise, *, seed: int) -> NoiseRun:
    """Goes backwards through a problem with noise, and values the policy without.

    All rules meet the same errors: those of a network and step depend on the seed only.
    """
    model, grid = problem.model, problem.beta_grid
    assert model.horizon is not None
    times = float(np.sqrt(rule.folds)) if noise.splits_data else 1.0
    sized = replace(noise, reward=times * noise.reward, cost=times * noise.cost)
    nothing: FloatArray = np.zeros((model.n_states, len(grid)))
    values, true = [(nothing, nothing)] * rule.folds, (nothing, nothing)
    stages: list[list[QTables]] = []
    for step in reversed(range(model.horizon)):
        tables = [
            sized.added(backup(model, *v), grid, named_generator(seed, f"noise/{step}/{e}"))
            for e, v in enumerate(values)
        ]
        true_q = backup(model, *true)
        mixes, values = learned(tables, rule, grid)
        predicted = _mean(values)
        if rule.acting == "average":
            mean = _mean(tables)
            mixes = [mixtures(mean, mean, rule, grid)]
            predicted = mixed(mean, mixes[0], rule.greedy.cost_floor)
        true = _mean([mixed(true_q, mix) for mix in mixes])
        stages.insert(0, tables)
    (told_r, told_c), (v_r, v_c) = predicted, true
    start = problem.start
    return NoiseRun(told_r[start], told_c[start], v_r[start], v_c[start], stages)


class Mixes(NamedTuple):
    """For each state and budget two points, and the probability of the second."""

    lower: IntArray  # [S, B], among the A * B points
    upper: IntArray  # [S, B]
    share: FloatArray  # [S, B]


def learned(
    tables: list[QTables], rule: NoiseRule, grid: FloatArray
) -> tuple[list[Mixes], list[tuple[FloatArray, FloatArray]]]:
    """What each network chooses, and the values (V_r, V_c) `[S, B]` that it is then fitted to."""
    mixes, values = [], []
    for e, own in enumerate(tables):
        others = _mean(tables[:e] + tables[e + 1 :]) if rule.folds > 1 else own
        mixes.append(mixtures(own, own if rule.probability == "own" else others, rule, grid))
        valuing = own if rule.valuation == "self" else others
        values.append(mixed(valuing, mixes[-1], rule.greedy.cost_floor))
    return mixes, values


def mixtures(choosing: QTables, sharing: QTables, rule: NoiseRule, grid: FloatArray) -> Mixes:
    """The points of one table around each budget, and by another's costs what spends it.

    Paper: Algorithm 3, for `sharing` the same as `choosing`.
    """
    costs, rewards = tolerated(*rule.greedy.points(*choosing), rule.tolerance)
    found = mixtures_at(costs, rewards, grid)
    low, high = found.lower, found.upper
    # As `CrossedPolicy`: below the cheapest vertex and above the last one, that one alone; at a
    # vertex whatever the costs of `sharing` say, which is that one alone if they are its own.
    paid = sharing.q_c.reshape(len(costs), -1).clip(rule.greedy.cost_floor)
    return Mixes(low, high, crossed_share(at(paid, low), at(paid, high), grid) * (low != high))


def mixed(q: QTables, mixes: Mixes, floor: float = -np.inf) -> tuple[FloatArray, FloatArray]:
    """What tables say that mixtures earn and pay, (V_r, V_c), each `[S, B]`."""
    flat = (t.reshape(len(t), -1) for t in (q.q_r, q.q_c.clip(floor)))
    v_r, v_c = (
        at(t, mixes.lower) * (1 - mixes.share) + at(t, mixes.upper) * mixes.share for t in flat
    )
    return v_r, v_c


def tolerated(
    costs: FloatArray, rewards: FloatArray, tolerance: float
) -> tuple[FloatArray, FloatArray]:
    """Takes away the points that are cheaper than the best paid of the nearly cheapest ones.

    They are put below that point, where no frontier passes, as `bmdp.policies.greedy.capped` does.

    >>> tolerated(np.array([[0.0, 0.1, 1.0]]), np.array([[0.0, 5.0, 6.0]]), 0.2)[0].tolist()
    [[0.1, 0.1, 1.0]]
    """
    if tolerance == 0:
        return costs, rewards
    is_near = costs <= costs.min(axis=1, keepdims=True) + tolerance
    best = np.where(is_near, rewards, -np.inf).argmax(axis=1)[:, None]
    cost, reward = at(costs, best), at(rewards, best)
    is_cheap = costs < cost
    return np.where(is_cheap, cost, costs), np.where(is_cheap, reward - 1, rewards)


def _mean(pairs: Any) -> Any:
    """Mean of pairs of arrays."""
    return QTables(*(sum(arrays) / len(pairs) for arrays in zip(*pairs, strict=True)))


class Measured(NamedTuple):
    """The measures of `bmdp.evaluate.dial`, without intervals, as nothing is sampled."""

    overshoot: FloatArray  # [B]
    dial_error: FloatArray  # [B]
    score: FloatArray  # [B]


def measured(problem: NoiseProblem, run: NoiseRun) -> Measured:
    """Compares what was realised with the exact optimum."""
    best, budgets = problem.frontier, problem.beta_grid
    cheapest, dearest = float(best.costs[0]), float(best.costs[-1])
    possible = best.reward_at(np.clip(np.maximum(budgets, run.cost), cheapest, dearest))
    return Measured(
        run.cost - np.maximum(budgets, cheapest),
        np.abs(run.cost - np.clip(budgets, cheapest, dearest)),
        run.reward / np.where(possible > 0, possible, np.nan),
    )
