"""The reward of a driver who knows the future of the two-way road: a yardstick for learned ones.

The task has no frontier in closed form, but nothing is left to chance once the cars are placed. So
the best sequence of actions can be searched for in each situation, by driving all of them at once
in the batched simulation. What is found can be driven, so the curve is achievable; the driver who
achieves it sees cars that are far away, and knows how they will drive, so it may be above what a
policy can reach that sees only what the task shows.

The search is a beam search. After each decision, sequences are grouped by situation, target lane
and target speed, and within each group the best few are kept for each of several prices on cost,
and those that stay furthest behind.
Every sequence that comes to its end is a point of its situation, and the upper frontier of these
points is that of the situation. The curve is the mean of the situations' frontiers: it begins at
the smallest cost that can be achieved, and has all their edges, by falling slope.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bmdp.arrays import FloatArray, IntArray
from bmdp.checks import require_count
from bmdp.envs.tasks import rows_of
from bmdp.envs.two_way.physics import (
    FASTER,
    IDLE,
    LANE_LEFT,
    LANE_RIGHT,
    NO_ACTION,
    OWN,
    SLOWER,
    SPEED,
    RoadState,
    speed_number,
)
from bmdp.envs.two_way.task import HORIZON, TwoWay
from bmdp.exact.minkowski import steepest_first
from bmdp.frontier import Frontier, hull_mixture, upper_frontier
from bmdp.randomness import EpisodeStreams

PRICES = (0.0, 1.0, 3.0, 6.0, 10.0, 20.0, 40.0, 1000.0)
"""Of cost, for which sequences are kept; the last stands for the least cost, whatever it takes."""

STREAM = "two-way/reference"
"""Name of the random streams of the situations, which no test of a policy takes."""

_HUGE_PRICE = 1e6
_CHUNK = 50  # situations searched together


@dataclass(frozen=True, eq=False)
class Drives:
    """The best drives that were found from one start.

    >>> found = reference_curve(TwoWay(vehicles=1), n_situations=1, width=1).situations[0]
    >>> found.actions[0].tolist() == [IDLE] * 15  # the cheapest
    True
    >>> found.actions[-1].tolist() == [LANE_LEFT] + [IDLE] * 14  # the best paid
    True
    """

    frontier: Frontier  # in discounted cost and reward
    actions: IntArray  # [vertices, 15], those of each vertex; NO_ACTION after a crash


@dataclass(frozen=True, eq=False)
class ReferenceCurve:
    """Mean reward and cost, discounted, of drivers who know the future.

    >>> curve = reference_curve(TwoWay(), n_situations=2, width=1)
    >>> curve.smallest_cost, len(curve.situations), curve.starts.x.shape
    (0.0, 2, (2, 6))
    """

    frontier: Frontier  # of the mean over situations
    situations: tuple[Drives, ...]  # what was found from each start
    starts: RoadState  # of the situations
    width: int  # of the beam

    @property
    def smallest_cost(self) -> float:
        """That any of them achieved, on average."""
        return float(self.frontier.costs[0])

    @property
    def least_costs(self) -> FloatArray:
        """Least cost that was found in each situation, `[S]`."""
        return np.array([drives.frontier.costs[0] for drives in self.situations])

    def at_price(self, price: float) -> tuple[FloatArray, FloatArray]:
        """Returns costs and rewards `[S]` of the best drive of each situation at a price."""
        found = [drives.frontier for drives in self.situations]
        best = [int((f.rewards - price * f.costs).argmax()) for f in found]
        points = [(f.costs[k], f.rewards[k]) for f, k in zip(found, best, strict=True)]
        costs, rewards = np.array(points).T
        return costs, rewards

    def reward_error_at(self, costs: FloatArray) -> FloatArray:
        """Returns the standard error of the curve's reward at each of some mean costs.

        By the delta method, over situations: at a point of the curve whose slope is p, every
        situation is at its best drive for price p, and the error is that of the mean of
        reward - p x cost. At the smallest cost, and below, it is the plain error of the reward.

        >>> curve = reference_curve(TwoWay(), n_situations=4, width=1)
        >>> curve.reward_error_at(np.array([0.1, 0.5])).round(2).tolist()
        [0.54, 0.23]
        """
        slopes = slopes_at(self.frontier, costs)
        points = [self.at_price(_HUGE_PRICE if np.isnan(p) else p) for p in slopes]
        return np.array([_error(c, r, p) for (c, r), p in zip(points, slopes, strict=True)])


@dataclass(frozen=True, eq=False)
class MeasuredCurve:
    """Drives with a dial in `S` situations, which are the same for each of its `K` settings.

    >>> reference = reference_curve(TwoWay(), n_situations=2, width=1)
    >>> curve = equal_budget_curve(reference, budgets=np.array([0.0, 0.1, 1.0]))
    >>> curve.n_situations, curve.cost_means.round(3).tolist()
    (2, [0.0, 0.1, 0.44])
    """

    dial: FloatArray  # [K], prices or budgets
    costs: FloatArray  # [K, S], discounted
    rewards: FloatArray  # [K, S], discounted

    @property
    def n_situations(self) -> int:
        """Number of situations, S."""
        return int(self.costs.shape[1])

    @property
    def cost_means(self) -> FloatArray:
        """Mean costs `[K]`."""
        return np.asarray(self.costs.mean(axis=1))

    @property
    def reward_means(self) -> FloatArray:
        """Mean rewards `[K]`."""
        return np.asarray(self.rewards.mean(axis=1))

    @property
    def cost_errors(self) -> FloatArray:
        """Standard errors of the mean costs `[K]`."""
        return np.array([_error(-c, c, 0.0) for c in self.costs])

    @property
    def reward_errors(self) -> FloatArray:
        """Standard errors of the mean rewards `[K]`."""
        return np.array([_error(r, r, 0.0) for r in self.rewards])

    @property
    def frontier(self) -> Frontier:
        """Upper frontier of the mean points: a coin at the start falls on one of two settings."""
        return upper_frontier(self.cost_means, self.reward_means)

    @property
    def least_costs(self) -> FloatArray:
        """Costs `[S]` at the setting that costs least on average."""
        return np.asarray(self.costs[self.cost_means.argmin()])

    def reward_error_at(self, costs: FloatArray) -> FloatArray:
        """Returns the standard error of the frontier's reward at each of some mean costs.

        By the delta method, over situations: that of the mean of reward - slope x cost, where
        each situation has what the mixture of the two settings gives it. At the smallest cost, and
        below, it is the plain error of the reward.
        """
        found, errors = self.frontier, []
        assert found.index is not None
        for cost, slope in zip(costs, slopes_at(found, costs), strict=True):
            coin = hull_mixture(found, float(cost))
            low, high = found.index[coin.lower], found.index[coin.upper]
            c, r = (
                values[low] + coin.p_upper * (values[high] - values[low])
                for values in (self.costs, self.rewards)
            )
            errors.append(_error(c, r, slope))
        return np.array(errors)


def slopes_at(frontier: Frontier, costs: FloatArray) -> FloatArray:
    """Slopes of a frontier at costs: NaN up to its start, 0 from its end on."""
    slopes = np.concatenate(([np.nan], np.diff(frontier.rewards) / np.diff(frontier.costs), [0.0]))
    places = np.searchsorted(frontier.costs, costs, side="left")
    return np.asarray(np.where(costs >= frontier.costs[-1], 0.0, slopes[places]))


def _error(costs: FloatArray, rewards: FloatArray, slope: float) -> float:
    """Standard error of the mean of reward - slope x cost; of the reward alone, if slope is NaN."""
    values = rewards if np.isnan(slope) else rewards - slope * costs
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan


def reference_curve(
    task: TwoWay,
    *,
    n_situations: int,
    width: int = 8,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ReferenceCurve:
    """Searches for the best drives of random situations.

    Args:
        task: the road; its observation does not matter.
        n_situations: number of random starts.
        width: of the beam, in each group and for each price.
        seed: of the starts.
        progress: called with the number of situations that are done, and of all.

    >>> curve = reference_curve(TwoWay(vehicles=1), n_situations=1, width=1).frontier
    >>> curve.costs[[0, -1]].round(3).tolist(), curve.rewards[[0, -1]].round(3).tolist()
    ([0.0, 0.529], [6.353, 7.941])
    """
    require_count("n_situations", n_situations, 1)
    require_count("width", width, 1)
    streams = EpisodeStreams.named(seed, STREAM, range(n_situations))
    starts = task.start(streams.uniforms(0, task.n_draws))
    drives: list[Drives] = []
    for first in range(0, n_situations, _CHUNK):
        rows = np.arange(first, min(first + _CHUNK, n_situations))
        drives += best_drives(task, rows_of(starts, rows), width=width)
        progress(len(drives), n_situations)
    curve = mean_frontier([found.frontier for found in drives])
    return ReferenceCurve(curve, tuple(drives), starts, width)


def equal_budget_curve(
    reference: ReferenceCurve, budgets: FloatArray | None = None
) -> MeasuredCurve:
    """Returns how drivers who know the future do if every situation gets the same budget.

    Each situation is driven at the point of its own frontier that costs the budget; at its least
    cost, where the budget is below, and at its best paid drive, where that costs less. It is the
    most that the operator T of the paper can reach, which gives all next states, and so all
    starts, the same budget.

    Args:
        reference: drives of the situations.
        budgets: `[K]`, increasing; 400 steps over all costs, if not given.

    Paper: Eq. 11, with full sight.

    >>> reference = reference_curve(TwoWay(), n_situations=5, width=1)
    >>> curve = equal_budget_curve(reference).frontier
    >>> bool(curve.reward_at(0.1) < reference.frontier.reward_at(0.1))
    True
    >>> curve.rewards[-1].round(3) == reference.frontier.rewards[-1].round(3)
    np.True_
    """
    found = [drives.frontier for drives in reference.situations]
    if budgets is None:
        budgets = np.linspace(0, max(f.costs[-1] for f in found), 401)
    costs = [np.clip(budgets, f.costs[0], f.costs[-1]) for f in found]
    rewards = [f.reward_at(paid) for f, paid in zip(found, costs, strict=True)]
    return MeasuredCurve(budgets, np.stack(costs, axis=1), np.stack(rewards, axis=1))


def best_drives(
    task: TwoWay,
    starts: RoadState,
    *,
    width: int,
    n_decisions: int = HORIZON,
    prices: Sequence[float] = PRICES,
) -> list[Drives]:
    """Returns the frontier of each situation and its drives, as far as the beam finds them.

    Args:
        task: the road.
        starts: of `S` situations.
        width: of the beam, in each group and for each price.
        n_decisions: after which the search ends.
        prices: of cost, for which sequences are kept.
    """
    n_situations = len(starts.time)
    state, beam = starts, _Beam.of(n_situations, n_decisions)
    ends = []
    for time in range(n_decisions):
        parent, actions = _choices(state, np.array(task.target_speeds))
        outcome = task.step(rows_of(state, parent), actions, np.empty((len(parent), 0)))
        beam = rows_of(beam, parent)
        beam.actions[:, time] = actions
        beam.reward[:] += task.gamma**time * outcome.rewards
        beam.cost[:] += task.gamma**time * outcome.costs
        ended = outcome.ended | (time + 1 == n_decisions)
        ends.append(rows_of(beam, ended))
        state, beam = rows_of(outcome.state, ~ended), rows_of(beam, ~ended)
        kept = _best(state, beam, width, prices)
        state, beam = rows_of(state, kept), rows_of(beam, kept)
    every = _Beam(*(np.concatenate(column) for column in zip(*ends, strict=True)))
    return [_drives(rows_of(every, every.situation == s)) for s in range(n_situations)]


def mean_frontier(frontiers: Sequence[Frontier]) -> Frontier:
    """Returns the frontier of the mean over situations, each at a point of its own frontier."""
    run = np.concatenate([np.diff(f.costs) for f in frontiers])
    rise = np.concatenate([np.diff(f.rewards) for f in frontiers])
    order = steepest_first(rise, run)
    costs = np.cumsum([sum(f.costs[0] for f in frontiers), *run[order]])
    rewards = np.cumsum([sum(f.rewards[0] for f in frontiers), *rise[order]])
    return upper_frontier(costs / len(frontiers), rewards / len(frontiers))


def _choices(state: RoadState, speeds: FloatArray) -> tuple[IntArray, IntArray]:
    """Roads and actions that are worth trying: those that change something, and idling."""
    lane, number = state.target_lane[:, 0], state.speed_index
    nearest = np.array([speed_number(speed, speeds) for speed in state.cars[:, 0, SPEED]])
    last = len(speeds) - 1
    useful = np.zeros((len(lane), 5), np.bool_)
    useful[:, IDLE] = True
    useful[:, LANE_LEFT], useful[:, LANE_RIGHT] = lane == OWN, lane != OWN
    useful[:, FASTER] = np.minimum(nearest + 1, last) != number
    useful[:, SLOWER] = np.maximum(nearest - 1, 0) != number
    roads, actions = np.nonzero(useful)
    return roads, actions


class _Beam(NamedTuple):
    """Sequences of actions that are being tried."""

    situation: IntArray  # [n]
    reward: FloatArray  # [n], so far
    cost: FloatArray  # [n]
    actions: IntArray  # [n, decisions]

    @classmethod
    def of(cls, n_situations: int, n_decisions: int) -> _Beam:
        """One for each situation, in which nothing has been done yet."""
        actions = np.full((n_situations, n_decisions), NO_ACTION)
        nothing = np.zeros(n_situations)
        return cls(np.arange(n_situations), nothing, nothing.copy(), actions)


def _drives(ended: _Beam) -> Drives:
    """The best of the sequences of one situation."""
    frontier = upper_frontier(ended.cost, ended.reward)
    assert frontier.index is not None
    return Drives(frontier, ended.actions[frontier.index])


def _best(state: RoadState, beam: _Beam, width: int, prices: Sequence[float]) -> IntArray:
    """Places of those that are among the best of their group, for one of the prices.

    And of those that have cost least and are furthest behind: they can still avoid a crash.
    """
    is_own, n_speeds = state.target_lane[:, 0] == OWN, state.speed_index.max(initial=0) + 1
    group = (beam.situation * n_speeds + state.speed_index) * 2 + is_own
    losses = [price * beam.cost - beam.reward for price in prices]
    losses.append(_HUGE_PRICE * beam.cost + state.x[:, 0])
    kept = np.zeros(len(group), np.bool_)
    for loss in losses:
        order = np.lexsort((loss, group))
        _, first, counts = np.unique(group[order], return_index=True, return_counts=True)
        rank = np.arange(len(order)) - np.repeat(first, counts)
        kept[order[rank < width]] = True
    return np.flatnonzero(kept)
