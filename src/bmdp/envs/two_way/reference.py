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
from bmdp.frontier import Frontier, upper_frontier
from bmdp.randomness import EpisodeStreams

PRICES = (0.0, 1.0, 3.0, 6.0, 10.0, 20.0, 1000.0)
"""Of cost, for which sequences are kept; the last stands for the least cost, whatever it takes."""

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
    streams = EpisodeStreams.named(seed, "two-way/reference", range(n_situations))
    starts = task.start(streams.uniforms(0, task.n_draws))
    drives: list[Drives] = []
    for first in range(0, n_situations, _CHUNK):
        rows = np.arange(first, min(first + _CHUNK, n_situations))
        drives += best_drives(task, rows_of(starts, rows), width=width)
        progress(len(drives), n_situations)
    curve = mean_frontier([found.frontier for found in drives])
    return ReferenceCurve(curve, tuple(drives), starts, width)


def best_drives(
    task: TwoWay, starts: RoadState, *, width: int, n_decisions: int = HORIZON
) -> list[Drives]:
    """Returns the frontier of each situation and its drives, as far as the beam finds them.

    Args:
        task: the road.
        starts: of `S` situations.
        width: of the beam, in each group and for each price.
        n_decisions: after which the search ends.
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
        kept = _best(state, beam, width)
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


def _best(state: RoadState, beam: _Beam, width: int) -> IntArray:
    """Places of those that are among the best of their group, for one of the prices.

    And of those that have cost least and are furthest behind: they can still avoid a crash.
    """
    is_own, n_speeds = state.target_lane[:, 0] == OWN, state.speed_index.max(initial=0) + 1
    group = (beam.situation * n_speeds + state.speed_index) * 2 + is_own
    losses = [price * beam.cost - beam.reward for price in PRICES]
    losses.append(_HUGE_PRICE * beam.cost + state.x[:, 0])
    kept = np.zeros(len(group), np.bool_)
    for loss in losses:
        order = np.lexsort((loss, group))
        _, first, counts = np.unique(group[order], return_index=True, return_counts=True)
        rank = np.arange(len(order)) - np.repeat(first, counts)
        kept[order[rank < width]] = True
    return np.flatnonzero(kept)
