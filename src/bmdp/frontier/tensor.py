"""The geometry of `N` states at once, on torch tensors, on the device they are on.

No loop over states: each step of a loop below is a step of the bridge search (see
`bmdp.frontier.kernels`) taken by all states that still need one. Importing this module imports
torch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bmdp.arrays import require_shape
from bmdp.errors import BmdpError, BudgetError, DataError
from bmdp.frontier.batched import LIMITS
from bmdp.frontier.mixtures import Mixtures, Vertices
from bmdp.frontier.single import BudgetStatus


@torch.no_grad()
def best_mixtures(costs: Tensor, rewards: Tensor, betas: Tensor) -> Mixtures[Tensor]:
    """Torch side of `bmdp.frontier.best_mixtures`."""
    costs, rewards, betas = _checked(costs, rewards, betas)
    require_shape("betas", betas, tuple(costs.shape[:1]), "[N]")
    x0, y0, x1, y1 = _ends(costs, rewards)
    infeasible, slack = betas < x0, betas >= x1
    status = torch.full_like(betas, BudgetStatus.TIGHT, dtype=torch.int8)
    status[infeasible], status[slack] = int(BudgetStatus.INFEASIBLE), int(BudgetStatus.SLACK)
    x1, y1 = torch.where(infeasible, x0, x1), torch.where(infeasible, y0, y1)
    x0, y0 = torch.where(slack, x1, x0), torch.where(slack, y1, y0)
    edges = torch.stack((x0, y0, x1, y1), 1)
    tight = torch.nonzero(~infeasible & ~slack)[:, 0]
    edges[tight] = _edges(costs[tight], rewards[tight], betas[tight], edges[tight])
    x0, y0, x1, y1 = edges.unbind(1)
    p_upper = torch.where(x1 > x0, (betas - x0) / (x1 - x0), 0)
    return Mixtures(
        lower=_first(costs, rewards, x0, y0),
        upper=_first(costs, rewards, x1, y1),
        p_upper=p_upper,
        cost=torch.where(x1 > x0, betas, x0),
        reward=y0 + p_upper * (y1 - y0),
        status=status,
    )


@torch.no_grad()
def frontier_values(costs: Tensor, rewards: Tensor, betas: Tensor) -> tuple[Tensor, Tensor]:
    """Torch side of `bmdp.frontier.frontier_values`."""
    costs, rewards, betas = _checked(costs, rewards, betas)
    require_shape("betas", betas, (None,), "[M]")
    n_states, n_betas = len(costs), len(betas)
    if n_states == 0:
        return costs.new_empty((0, n_betas)), costs.new_empty((0, n_betas))
    index, n_vertices = _vertices(costs, rewards)
    x, y = costs.gather(1, index), rewards.gather(1, index)
    asked = betas.expand(n_states, n_betas).contiguous()
    last = n_vertices[:, None] - 1
    lower = (torch.searchsorted(x, asked, right=True) - 1).clamp(min=0).minimum(last)
    upper = (lower + 1).minimum(last)
    x0, x1, y0, y1 = x.gather(1, lower), x.gather(1, upper), y.gather(1, lower), y.gather(1, upper)
    between = (x0 < asked) & (x0 < x1)
    share = torch.where(between, (asked - x0) / (x1 - x0), 0)
    return y0 + share * (y1 - y0), torch.where(between, asked, x0)


@torch.no_grad()
def frontier_vertices(costs: Tensor, rewards: Tensor) -> Vertices[Tensor]:
    """Torch side of `bmdp.frontier.frontier_vertices`."""
    costs, rewards, _ = _checked(costs, rewards, costs.new_zeros(0))
    if len(costs) == 0:
        none = torch.zeros((0, 1), dtype=torch.int64, device=costs.device)
        return Vertices(none, none[:, 0])
    return Vertices(*_vertices(costs, rewards))


@torch.no_grad()
def crossed_values(
    chosen_by: tuple[Tensor, Tensor],
    valued_by: tuple[Tensor, Tensor],
    betas: Tensor,
) -> tuple[Tensor, int]:
    """Torch side of `bmdp.frontier.batched.crossed_values`; points must be finite."""
    costs, rewards = chosen_by
    if len(costs) == 0:
        return costs.new_empty((*betas.shape, 2)), 0
    index, n_vertices = _vertices(costs, rewards)
    asked = betas.to(costs.dtype).contiguous()
    last = n_vertices[:, None] - 1
    place = torch.searchsorted(costs.gather(1, index), asked, right=True) - 1
    is_infeasible = place < 0
    place = place.clamp(min=0).minimum(last)
    above = torch.where(is_infeasible, place, (place + 1).minimum(last))
    lower, upper = index.gather(1, place), index.gather(1, above)
    low, high = valued_by[0].gather(1, lower), valued_by[0].gather(1, upper)
    share = torch.where(high > low, ((asked - low) / (high - low)).clamp(0, 1), 1.0)
    ends = ((v.gather(1, lower), v.gather(1, upper)) for v in reversed(valued_by))
    values = torch.stack([torch.lerp(one, other, share) for one, other in ends], dim=-1)
    return values, int(is_infeasible.sum())


def _checked(costs: Tensor, rewards: Tensor, betas: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Checks points and budgets, and gives all the same precision."""
    for name, tensor in (("costs", costs), ("rewards", rewards), ("betas", betas)):
        if not isinstance(tensor, Tensor):
            raise DataError(
                f"{name} must be a tensor as the other arguments; got {type(tensor).__name__}."
            )
        if tensor.is_complex():
            raise DataError(f"{name} must be real numbers; got type {tensor.dtype}.")
        if tensor.device != costs.device:
            raise DataError(
                f"{name} must be on the device of costs, {costs.device}; got {tensor.device}."
            )
    require_shape("costs", costs, (None, None), "[N, K]")
    require_shape("rewards", rewards, tuple(costs.shape), "[N, K]")
    if costs.shape[1] == 0:
        raise DataError(
            f"costs must have at least one point for each state; got {list(costs.shape)}."
        )
    narrow = all(t.is_floating_point() and t.element_size() <= 4 for t in (costs, rewards))
    costs, rewards, betas = (
        t.to(torch.float32 if narrow else torch.float64) for t in (costs, rewards, betas)
    )
    limit = LIMITS["float32" if narrow else "float64"]
    _require_finite("costs", costs, limit, DataError)
    _require_finite("rewards", rewards, limit, DataError)
    _require_finite("betas", betas, float("inf"), BudgetError)
    return costs, rewards, betas


def _require_finite(name: str, tensor: Tensor, limit: float, error: type[BmdpError]) -> None:
    """Raises for the first value that is not finite, or above `limit` in magnitude."""
    good = torch.isfinite(tensor) & (tensor.abs() <= limit)
    if good.all():
        return
    index = torch.nonzero(~good)[0].tolist()
    value = float(tensor[tuple(index)])
    rule = f"at most {limit:g} in magnitude" if abs(value) < float("inf") else "finite"
    raise error(f"{name} must be {rule}; got {value:g} at {index}.")


def _ends(costs: Tensor, rewards: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Coordinates of the first and the last vertex of each state: x0, y0, x1, y1."""
    x0, y1 = costs.amin(1), rewards.amax(1)
    y0 = rewards.masked_fill(costs != x0[:, None], -torch.inf).amax(1)
    x1 = costs.masked_fill(rewards != y1[:, None], torch.inf).amin(1)
    return x0, y0, x1, y1


def _first(costs: Tensor, rewards: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Lowest position of the point (x, y) in each state."""
    return ((costs == x[:, None]) & (rewards == y[:, None])).to(torch.int8).argmax(1)


def _edges(costs: Tensor, rewards: Tensor, betas: Tensor, chords: Tensor) -> Tensor:
    """Ends of the frontier edge of each state over its budget, as rows (x0, y0, x1, y1).

    `chords`, in the same form, go from the first to the last vertex.
    """
    edges = chords.clone()
    rows = torch.arange(len(costs), device=costs.device)
    while len(rows):
        x0, y0, x1, y1 = (chords[:, i : i + 1] for i in range(4))
        heights = (rewards - y0) * (x1 - x0) - (costs - x0) * (y1 - y0)
        highest = heights.amax(1, keepdim=True)
        below = (heights < highest) | (highest <= 0) | (costs <= x0) | (costs >= x1)
        left = costs.masked_fill(below, torch.inf).amin(1, keepdim=True)
        right = costs.masked_fill(below, -torch.inf).amax(1, keepdim=True)
        y_left = rewards.masked_fill(below | (costs != left), -torch.inf).amax(1, keepdim=True)
        y_right = rewards.masked_fill(below | (costs != right), -torch.inf).amax(1, keepdim=True)
        beta = betas[:, None]
        some = left <= right
        moves_low, moves_high = some & (right <= beta), some & (left > beta)
        spans = some & ~moves_low & ~moves_high
        chords = torch.where(moves_low, torch.cat((right, y_right, x1, y1), 1), chords)
        chords = torch.where(moves_high, torch.cat((x0, y0, left, y_left), 1), chords)
        chords = torch.where(spans, torch.cat((left, y_left, right, y_right), 1), chords)
        edges[rows] = chords
        going = torch.nonzero((moves_low | moves_high)[:, 0])[:, 0]
        rows, costs, rewards, betas, chords = (
            t[going] for t in (rows, costs, rewards, betas, chords)
        )
    return edges


def _vertices(costs: Tensor, rewards: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of all vertices by rising cost, `[N, V]`, and their number `[N]`.

    A level of the loop finds the points furthest above every chord of every state. A point knows
    its chord by the position of the chord's low end; those above no chord are dropped. Rows are
    filled up with their last vertex.
    """
    n_states, n_points = costs.shape
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
        x, y, x0, y0, x1, y1 = (
            flat_x[points],
            flat_y[points],
            flat_x[low],
            flat_y[low],
            flat_x[high],
            flat_y[high],
        )
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
