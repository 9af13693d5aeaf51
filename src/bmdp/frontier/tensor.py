"""The geometry of `N` states at once, on torch tensors, on the device they are on.

The frontier of all states is found by *quickhull*, without a loop over states. A level of it finds
the point furthest above each chord of each state, and splits the chord there. Importing this module
imports torch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bmdp.arrays import require_finite
from bmdp.errors import BudgetError, DataError
from bmdp.frontier.kernels import INFEASIBLE, LEAST, LIMITS, SLACK, TIGHT, crossed_share


def checked(named: dict[str, Any], betas: Any) -> tuple[dict[str, Tensor], Tensor]:
    """Checks tensors of points, and budgets, and gives all the same precision."""
    first, costs = next(iter(named.items()))
    for name, values in (*named.items(), ("betas", betas)):
        if not isinstance(values, Tensor):
            raise DataError(
                f"{name} must be a tensor as the other arguments; got {type(values).__name__}."
            )
        if values.is_complex():
            raise DataError(f"{name} must be real numbers; got type {values.dtype}.")
        if values.device != costs.device:
            raise DataError(
                f"{name} must be on the device of {first}, {costs.device}; got {values.device}."
            )
    narrow = all(t.is_floating_point() and t.element_size() <= 4 for t in named.values())
    both, limit = (torch.float32 if narrow else torch.float64), LIMITS[f"float{64 >> narrow}"]
    points = {name: values.detach().to(both) for name, values in named.items()}
    for name, values in points.items():
        if not (values.abs() <= limit).all():
            require_finite(name, values.cpu().numpy(), limit=limit)
    if not torch.isfinite(betas).all():
        require_finite("betas", betas.detach().cpu().numpy(), error=BudgetError)
    return points, betas.detach().to(both)


@torch.no_grad()
def mixtures(points: dict[str, Tensor], betas: Tensor) -> tuple[Tensor, ...]:
    """Returns the columns of `Mixtures`, `[N, M]`, at budgets `[N, M]` or `[1, M]`."""
    costs, rewards = points.values()
    asked, lower, upper, status = _around(costs, rewards, betas)
    (x0, x1), (y0, y1) = ((c.gather(1, lower), c.gather(1, upper)) for c in (costs, rewards))
    is_tight = status == TIGHT
    p_upper = torch.where(is_tight, crossed_share(x0, x1, asked), 0)
    cost = torch.where(is_tight, asked, x0)
    return lower, upper, p_upper, cost, y0 + p_upper * (y1 - y0), status


@torch.no_grad()
def values(
    points: dict[str, Tensor], betas: Tensor, cheapest: Tensor | None, *, axis: int
) -> tuple[Tensor, int]:
    """Returns rewards and costs at budgets, stacked along an axis, and how many are infeasible.

    Points are two columns, costs and rewards, or four: two that choose the vertices, two that value
    them.
    """
    costs, rewards, *others = points.values()
    asked, lower, upper, status = _around(costs, rewards, betas)
    is_infeasible = status == INFEASIBLE
    if cheapest is not None:
        lower, upper = (
            torch.where(is_infeasible, cheapest.long()[:, None], v) for v in (lower, upper)
        )
    (u0, u1), (v0, v1) = (
        (c.gather(1, lower), c.gather(1, upper)) for c in (others or (costs, rewards))
    )
    reward = v0 + crossed_share(u0, u1, asked) * (v1 - v0)
    cost = torch.where(u0 < u1, asked.maximum(u0).minimum(u1), u1)
    return torch.stack((reward, cost), dim=axis), int(is_infeasible.sum())


def _around(costs: Tensor, rewards: Tensor, betas: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Budgets `[N, M]`, positions of the vertices around them, and their status.

    Outside the frontier both are its nearest end. (Algorithm 3, lines 4 to 8.)
    """
    asked = betas.expand(len(costs), betas.shape[1]).contiguous()
    if len(costs) == 0:
        none = torch.zeros_like(asked, dtype=torch.int64)
        return asked, none, none, none.to(torch.int8)
    vertices, n_vertices = _vertices(costs, rewards)
    last = n_vertices[:, None] - 1
    place = torch.searchsorted(costs.gather(1, vertices), asked, right=True) - 1
    status = torch.full_like(place, TIGHT, dtype=torch.int8)
    status[place >= last] = SLACK
    status[place < 0] = INFEASIBLE
    below = place.clamp(min=0).minimum(last)
    above = below + (status == TIGHT)
    return asked, vertices.gather(1, below), vertices.gather(1, above), status


def _ends(costs: Tensor, rewards: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Coordinates of the first and the last vertex of each state: x0, y0, x1, y1."""
    x0, y1 = costs.amin(1), rewards.amax(1)
    y0 = rewards.masked_fill(costs != x0[:, None], -torch.inf).amax(1)
    x1 = costs.masked_fill(rewards != y1[:, None], torch.inf).amin(1)
    return x0, y0, x1, y1


def _unit(size: Tensor) -> Tensor:
    """Powers of two that make sizes about 1, or 1 if they are larger: so no number is rounded."""
    return torch.ldexp(torch.ones_like(size), (-torch.frexp(size)[1]).clamp(0, 1000))


def _first(costs: Tensor, rewards: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Lowest position of the point (x, y) in each state."""
    return ((costs == x[:, None]) & (rewards == y[:, None])).to(torch.int8).argmax(1)


def _vertices(costs: Tensor, rewards: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of all vertices by rising cost, `[N, V]`, and their number `[N]`.

    A level of the loop finds the points furthest above every chord of every state. A point knows
    its chord by the position of the chord's low end; those above no chord are dropped. Rows are
    filled up with their last vertex.
    """
    n_states, n_points = costs.shape
    x0, y0, x1, y1 = _ends(costs, rewards)
    run, rise = x1 - x0, y1 - y0
    if (is_small := (torch.minimum(run, rise) > 0) & (run * rise < LEAST)).any():
        # Products of differences might vanish: costs and rewards are in other units.
        by_x, by_y = (_unit(size.double().where(is_small, 1.0))[:, None] for size in (run, rise))
        costs, rewards = costs * by_x, rewards * by_y
        x0, y0, x1, y1 = _ends(costs, rewards)
    flat_x, flat_y = costs.reshape(-1), rewards.reshape(-1)
    first_of_row = torch.arange(n_states, device=costs.device) * n_points
    low, high = (first_of_row + _first(costs, rewards, x, y) for x, y in ((x0, y0), (x1, y1)))
    is_vertex = torch.zeros_like(flat_x, dtype=torch.bool)
    is_vertex[low] = is_vertex[high] = True
    points = torch.arange(n_states * n_points, device=costs.device)
    low, high = low.repeat_interleave(n_points), high.repeat_interleave(n_points)
    highest = torch.empty_like(flat_x)
    leftmost = torch.empty_like(flat_x)
    winner = torch.empty_like(points)
    while True:
        x, x0, x1 = (flat_x[ends] for ends in (points, low, high))
        y, y0, y1 = (flat_y[ends] for ends in (points, low, high))
        heights = (y - y0) * (x1 - x0) - (x - x0) * (y1 - y0)
        above = torch.nonzero((heights > 0) & (x > x0) & (x < x1))[:, 0]
        if len(above) == 0:
            break
        points, low, high, x, heights = (t[above] for t in (points, low, high, x, heights))
        highest[low] = 0
        highest.scatter_reduce_(0, low, heights, "amax")
        top = torch.nonzero(heights == highest[low])[:, 0]
        leftmost[low] = torch.inf
        leftmost.scatter_reduce_(0, low[top], x[top], "amin")
        top = top[x[top] == leftmost[low[top]]]
        winner[low] = len(is_vertex)
        winner.scatter_reduce_(0, low[top], points[top], "amin")
        split = winner[low]
        is_vertex[split] = True
        is_left = x < flat_x[split]
        low, high = torch.where(is_left, low, split), torch.where(is_left, split, high)
    found = torch.nonzero(is_vertex)[:, 0]
    found = found[torch.argsort(flat_x[found], stable=True)]
    found = found[torch.argsort(found // n_points, stable=True)]
    rows = found // n_points
    n_vertices = torch.bincount(rows, minlength=n_states)
    place = (
        torch.arange(len(found), device=costs.device) - (n_vertices.cumsum(0) - n_vertices)[rows]
    )
    last = found[n_vertices.cumsum(0) - 1] % n_points
    index = last[:, None].repeat(1, int(n_vertices.max()))
    index[rows, place] = found % n_points
    return index, n_vertices
