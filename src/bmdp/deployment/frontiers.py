"""The upper frontier in a graph of ONNX: the best mixture of `K` points at one budget.

It is Algorithm 3 in the form of `bmdp.frontier.kernels`: of the chord between the two ends of a
frontier, the point furthest above is a vertex, and takes the place of the end that the budget does
not need. It ends where no point is above the chord. Comparisons are those of the kernel, in the
same precision, so ties fall as they do there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bmdp.deployment.graph import Graph, Value
from bmdp.frontier import BudgetStatus
from bmdp.policies.hull import HullRule

INFEASIBLE, TIGHT, SLACK = (int(s) for s in BudgetStatus)


class MixtureValues(NamedTuple):
    """The mixture of each row: arrays `[n, 1]` of a graph."""

    lower: Value  # place of a point
    upper: Value  # place of a point
    p_upper: Value  # float64
    status: Value


def mixture_values(costs: Value, rewards: Value, budgets: Value) -> MixtureValues:
    """Returns the best mixtures of points `[n, K]` at budgets `[n, 1]`.

    Paper: Algorithm 3.
    """
    graph, x, y = costs.graph, costs, rewards
    beta = budgets.cast(x.dtype)

    def above(x: Value, y: Value, low: Value, high: Value) -> Value:
        """Points above the chord of two points."""
        x0, y0 = x.at(low), y.at(low)
        return (y - y0) * (x.at(high) - x0) > (x - x0) * (y.at(high) - y0)

    def goes_on(graph: Graph, state: Sequence[Value]) -> Value:
        n_above = state[2].within(graph).cast(np.int64).reduce("Sum", 1).reduce("Sum", 0)
        return (n_above > 0).reshape()  # also of no rows at all

    def turn(graph: Graph, state: Sequence[Value]) -> Sequence[Value]:
        low, high, mask = state
        x, y, held = (v.within(graph) for v in (costs, rewards, beta))
        x0, y0 = x.at(low), y.at(low)
        height = (y - y0) * (x.at(high) - x0) - (x - x0) * (y.at(high) - y0)
        seen = graph.where(mask, height, -np.inf)
        tops = mask & seen.equals(seen.reduce("Max", 1))
        peak = graph.where(tops, x, np.inf).place("ArgMin", 1)
        at_peak, moves = x.at(peak), mask.any(1)
        is_left = held < at_peak
        low = graph.where(moves & ~is_left, peak, low)
        high = graph.where(moves & is_left, peak, high)
        side = (is_left & (x < at_peak)) | (~is_left & (x > at_peak))
        return low, high, mask & above(x, y, low, high) & side

    low = graph.where(x.equals(x.reduce("Min", 1)), y, -np.inf).place("ArgMax", 1)
    high = graph.where(y.equals(y.reduce("Max", 1)), x, np.inf).place("ArgMin", 1)
    mask = above(x, y, low, high) & (x < x.at(high))
    low, high, _ = graph.loop((low, high, mask), goes_on, turn)
    x0, x1 = x.at(low), x.at(high)
    is_one = y.at(high) <= y.at(low)  # the frontier is a single vertex
    is_infeasible = beta < x0
    is_slack = ~is_infeasible & (is_one | (beta >= x1))
    is_tight = ~(is_infeasible | is_slack)
    run = graph.where(is_tight, x1 - x0, 1.0)
    share = ((beta - x0) / run).at_least(0.0).at_most(1.0)
    lower = graph.where(is_slack & ~is_one, high, low)
    status = graph.where(is_tight, graph.constant(TIGHT), graph.constant(SLACK))
    return MixtureValues(
        lower,
        graph.where(is_tight, high, lower),
        graph.where(is_tight, share, 0.0).cast(np.float64),
        graph.where(is_infeasible, graph.constant(INFEASIBLE), status),
    )


class PointValues(NamedTuple):
    """Points `[n, K]`, and where their frontier begins, `[n, 1]`; as `hull.Points`."""

    costs: Value
    rewards: Value
    cheapest: Value
    first_cost: Value
    least_budget: Value


def ruled_points(rule: HullRule, q_r: Value, q_c: Value, step: Value | int) -> PointValues:
    """Returns the points that `HullRule.points` makes of values `[n, K]`."""
    graph = q_r.graph
    rewards, costs = q_r, q_c
    is_barred = rewards.equals(-np.inf)
    dearest = graph.where(is_barred, -np.inf, costs).reduce("Max", 1)
    worst = graph.where(is_barred, np.inf, rewards).reduce("Min", 1)
    costs = graph.where(is_barred, dearest, costs)
    rewards = graph.where(is_barred, _lower_than(worst), rewards)
    if rule.costs_from_zero:
        costs = costs.at_least(0.0)
    if rule.cost_cap is not None:
        costs = costs.at_most(rule.cost_cap)
    least = costs.reduce("Min", 1)
    cheapest = graph.where(costs > least, -np.inf, rewards).place("ArgMax", 1)
    if not rule.slope.any():
        return PointValues(costs, rewards, cheapest, least, least)
    n_steps = max(len(rule.slope), len(rule.slack))
    slopes, slacks = (
        np.array([v[min(s, len(v) - 1)] for s in range(n_steps)], costs.dtype)
        for v in (rule.slope, rule.slack)
    )
    slope, slack = (of_step(graph, v, step) for v in (slopes, np.where(slopes > 0, slacks, 0)))
    worth = graph.where(costs > least + slack, -np.inf, rewards - costs * slope)
    first = worth.place("ArgMax", 1)
    first_cost = costs.at(first)
    is_cheaper = costs < first_cost
    rewards = graph.where(is_cheaper, _lower_than(rewards.at(first)), rewards)
    costs = graph.where(is_cheaper, first_cost, costs)
    return PointValues(costs, rewards, cheapest, first_cost, least - slack)


def of_step(graph: Graph, arrays: np.ndarray, step: Value | int) -> Value:
    """The part of arrays `[S, ...]` of a step, the last one being for later steps, too."""
    if len(arrays) == 1 or isinstance(step, int):
        return graph.constant(arrays[min(step, len(arrays) - 1) if isinstance(step, int) else 0])
    return graph.constant(arrays).take(step.at_most(len(arrays) - 1))


def _lower_than(rewards: Value) -> Value:
    """Rewards that are surely lower, as the rule has them."""
    return rewards - rewards.one("Abs") * 0.5 - 1.0
