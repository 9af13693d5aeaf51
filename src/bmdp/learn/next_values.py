"""Values of the next state: the one thing in which learners differ.

Each function returns a `NextValues`: given the models of a step, how the next states are valued.
An ensemble of several models values by *cross-fitting*: the mean of the others chooses, each model
values what was chosen, and the mean over models is taken. With caution, all models choose and value
together, by their mean less some deviations of rewards and more of costs. One model does both, as
in the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from bmdp.arrays import FloatArray, IntArray
from bmdp.errors import PolicyError
from bmdp.frontier import crossed_values
from bmdp.learn.fit import NextValues, Source
from bmdp.learn.rows import Values, Worth
from bmdp.models.regressor import LearnedQ, MeanQ, barred, combined
from bmdp.policies.hull import HullRule
from bmdp.policies.policy import Options, SteppedPolicy
from bmdp.policies.prices import PriceDial, best_actions, raised

TOLERANCE = 0.01
"""At an infinite price, costs that are closer than this share of their range are equal."""

_MOST_LOOKS = 300_000  # states that are kept as a policy reads them

Greedy = Callable[[Tensor, Tensor, Tensor], Values]
"""From values that choose and values that value, `[n, 2, A, H]` each, and heads or labels."""


def hull_values(
    slope_cap: float,
    *,
    costs_from_zero: bool,
    cost_cap: float | None = None,
    caution: float = 0.0,
) -> NextValues:
    """Values of the hull policy: the best mixture of two vertices around each budget.

    Args:
        slope_cap: of `HullRule.of`; 0 for the paper's rule.
        costs_from_zero: whether Q_c below 0 is raised to 0.
        cost_cap: Q_c above it is lowered to it, in costs of the data; None for no such cap.
        caution: of an ensemble.

    Paper: Eq. 11 by Algorithm 3. Every frontier serves all budgets (Algorithm 5).
    """

    def at_step(source: Source) -> Worth:
        q_r, q_c = barred(combined(source.sample, caution), source.known).unbind(1)
        most = None if cost_cap is None else cost_cap / source.units[1]
        ends: dict[str, Any] = {"costs_from_zero": costs_from_zero, "cost_cap": most}
        rule = HullRule.of(q_r, q_c, slope_cap, **ends)

        def greedy(choosing: Tensor, valuing: Tensor, asked: Tensor) -> Values:
            points = rule.points(choosing[:, 0], choosing[:, 1])
            budgets = points.raised(asked).to(points.costs.dtype)
            flat = valuing.flatten(2)  # [n, 2, A * H]
            costs = rule.clipped(flat[:, 1])
            clouds: Any = (points.costs, points.rewards, costs, flat[:, 0])
            cheapest: Any = points.cheapest
            if costs.device.type == "cpu":  # numba is the faster one there
                *clouds, budgets, cheapest = (t.numpy() for t in (*clouds, budgets, cheapest))
            found, n_infeasible = crossed_values(clouds[:2], clouds[2:], budgets, cheapest=cheapest)
            return Values(torch.as_tensor(found), n_infeasible)

        return _checked(greedy, caution)

    return at_step


def priced_values(prices: FloatArray, *, caution: float = 0.0, growth: float = 1.0) -> NextValues:
    """Values of the greedy policy of each price: the action of the most Q_r - price * Q_c.

    Args:
        prices: of a unit of cost, in rewards, one for each head; `inf` looks at costs first.
        caution: of an ensemble.
        growth: of prices with each step, as of `PriceDial`: step t has price * growth^t.

    Paper: FTQ(lambda) of Section 5, for all multipliers at once.
    Differs: Q_r and Q_c are estimated side by side, not the scalar r - lambda c.
    """

    def at_step(source: Source) -> Worth:
        reward_unit, cost_unit = source.units
        now = np.asarray(prices) * raised(growth, source.step) * cost_unit / reward_unit
        with np.errstate(over="ignore"):  # a price beyond all numbers looks at costs first
            scaled = torch.tensor(now.astype(np.float32))
        scaled = scaled.to(source.sample.device)
        tolerance = cost_tolerance(source.sample)

        def greedy(choosing: Tensor, valuing: Tensor, asked: Tensor) -> Values:
            heads = asked.long()
            if choosing.device.type == "cpu":
                found = np.empty((len(choosing), *heads.shape[-1:], 2), np.float32)
                chosen = np.empty(found.shape[:2], np.int32)
                at = heads.expand(len(choosing), -1).numpy()
                both = choosing.numpy(), valuing.numpy()
                _fill_priced(*both, scaled.numpy(), at, tolerance, found, chosen)
                return Values(torch.from_numpy(found), actions=torch.from_numpy(chosen))
            q_r, q_c = choosing[..., heads].unbind(1)
            actions = best_actions(q_r, q_c, scaled[heads], tolerance)  # [n, L]
            which = actions[:, None, None].expand(-1, 2, 1, -1)
            valued = valuing[..., heads].gather(2, which)[:, :, 0].movedim(1, 2)
            return Values(valued, actions=actions)

        return _checked(greedy, caution)

    return at_step


@njit(cache=True)
def _fill_priced(choosing, valuing, prices, heads, tolerance, found, chosen):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Fills in the actions `[n, L]` that `best_actions` chooses, and their values `[n, L, 2]`."""
    n_actions = choosing.shape[2]
    for i in range(len(choosing)):
        for column in range(heads.shape[1]):
            head = heads[i, column]
            price, most, best, highest = prices[head], np.float32(np.inf), 0, -np.float32(np.inf)
            if price == np.inf:
                price, most = np.float32(0), choosing[i, 1, :, head].min() + np.float32(tolerance)
            for action in range(n_actions):
                cost = choosing[i, 1, action, head]
                worth = choosing[i, 0, action, head]
                if np.isfinite(cost):
                    worth -= price * cost
                if cost <= most and worth > highest:
                    best, highest = action, worth
            chosen[i, column] = best
            found[i, column, 0] = valuing[i, 0, best, head]
            found[i, column, 1] = valuing[i, 1, best, head]


def cost_tolerance(values: Tensor) -> float:
    """Difference of costs `[..., n, 2, A, H]` that an infinite price takes for none."""
    costs = values[..., 1, :, :]
    return TOLERANCE * float(costs.max() - costs.min())


def policy_values(
    policy: SteppedPolicy,
    heads: FloatArray,
    n_actions: int,
    shown: Callable[[int, Any], Any],
    outside: tuple[float, float] | None = None,
) -> NextValues:
    """Values of a given policy: the mean of Q over what it does at the next state.

    Args:
        policy: one whose probabilities are known.
        heads: budgets `[H]` that it is asked at; those that it hands on are interpolated.
        n_actions: of the batch.
        shown: what the policy is shown of states at a step.
        outside: reward and cost of what the data do not know, from there to the end of the episode;
            what models make of it, if not given.

    Paper: Eq. 6, the operator T^pi, estimated as T is in Section 3.1.
    """
    lasting: dict[tuple[int, int, int], Any] = {}  # what a policy does that never changes
    looks: dict[tuple[int, int, int], Any] = {}  # states as it reads them at every step

    def at_step(source: Source) -> Worth:
        states = shown(source.step, source.states)
        now = policy.at_step(source.step)
        done = lasting if getattr(policy, "n_steps", 2) == 1 and shown is as_it_is else {}
        q = getattr(policy, "q_function", None)
        is_same = states is source.states and len(states) <= _MOST_LOOKS
        looks_once = is_same and isinstance(q, LearnedQ | MeanQ) and q.clock == 0

        def actions(key: tuple[int, int, int], part: slice, masks: tuple[Any, ...]) -> IntArray:
            assert isinstance(now, PriceDial)
            if not looks_once:
                return now.points(states[part], *masks).actions
            assert isinstance(q, LearnedQ | MeanQ)
            if key not in looks:
                looks[key] = q.look(states[part], 0, *masks)
            return now.best(*q.at(looks[key], source.step))

        def worth(values: Tensor, known: Tensor, asked: Tensor, part: slice) -> Values:
            if part.stop == 0:  # a promise, which a given policy does not make
                return Values(values.new_zeros((1, 2, 2)))
            values = beyond(values, known, outside, source.units)
            key = (len(states), part.start, part.stop)
            masks = () if source.available is None else (source.available[part],)
            if isinstance(now, PriceDial):  # it plays one action, and keeps its price
                if key not in done:
                    numbers = np.rint(heads).astype(np.int64)
                    done[key] = torch.from_numpy(actions(key, part, masks)[:, numbers])
                which = done[key].to(values.device)[:, None, None].expand(-1, 2, 1, -1)
                return Values(values[0].gather(2, which)[:, :, 0].movedim(1, 2))
            if key not in done:
                options = now.options_at(states[part], heads, *masks)
                done[key] = places_of(options, heads, n_actions)
            found = expected(values[0].cpu().numpy(), done[key])
            return Values(torch.from_numpy(np.moveaxis(found, 1, 2)).to(values))

        return worth

    return at_step


def beyond(
    values: Tensor,
    known: Tensor,
    outside: tuple[float, float] | None,
    units: tuple[float, float],
) -> Tensor:
    """Values `[..., n, 2, A, H]`, those of actions that are not known `[n, A]` as they are given.

    Args:
        values: in units of rewards and of costs.
        known: actions that the data know.
        outside: reward and cost of others; None for what models make of them.
        units: of rewards and of costs.
    """
    if outside is None or bool(known.all()):
        return values
    given = values.new_tensor([part / unit for part, unit in zip(outside, units, strict=True)])
    return torch.where(known[:, None, :, None], values, given[:, None, None])


def as_it_is(step: int, states: Any) -> Any:
    """States as they are, at whatever step."""
    return states


def _checked(greedy: Greedy, caution: float) -> Worth:
    """A greedy step by an ensemble whose models check each other."""

    def worth(values: Tensor, known: Tensor, asked: Tensor, part: slice) -> Values:
        if len(values) == 1 or caution != 0:
            own = combined(values, caution)
            return greedy(barred(own, known), own, asked)
        total, others = values.sum(dim=0), len(values) - 1
        parts = [greedy(barred((total - own) / others, known), own, asked) for own in values]
        mean = torch.stack([part.values for part in parts]).mean(dim=0)
        return Values(mean, sum(part.n_infeasible for part in parts) // len(parts))

    return worth


class Places(NamedTuple):
    """Decisions of a policy, as places among the values `[A * B]` of a state, with weights."""

    place: IntArray  # [N, L, J], of the grid budget below the one handed on
    below: FloatArray  # [N, L, J], weight of that place
    above: FloatArray  # [N, L, J], weight of the place after it


def places_of(options: Options, grid: FloatArray, n_actions: int) -> Places:
    """Puts options `[N, L, J]` on a grid of budgets `[B]`; those between two of them are shared.

    Raises:
        PolicyError: if an action is not one of `n_actions`.

    >>> one = Options(np.array([[[1]]]), np.array([[[0.75]]]), np.array([[[1.0]]]))
    >>> [column.tolist() for column in places_of(one, np.array([0.0, 0.5, 1.0]), 2)]
    [[[[4]]], [[[0.5]]], [[[0.5]]]]
    """
    action, next_budget, probability = options
    unknown = action[(action < 0) | (action >= n_actions)]
    if len(unknown):
        raise PolicyError(
            f"the policy plays action {unknown[0]}; the batch has actions 0 to {n_actions - 1}."
        )
    place = (np.searchsorted(grid, next_budget, side="right") - 1).clip(0, max(0, len(grid) - 2))
    gaps = np.diff(grid) if len(grid) > 1 else np.array([np.inf])
    share = ((next_budget - grid[place]) / gaps[place]).clip(0, 1)
    return Places(
        (action * len(grid) + place).astype(np.int32),
        (probability * (1 - share)).astype(np.float32),
        (probability * share).astype(np.float32),
    )


def expected(values: FloatArray, places: Places) -> FloatArray:
    """Means `[N, K, L]` of K kinds of values `[N, K, A, B]` over what is done at each budget."""
    flat = values.reshape(*values.shape[:2], -1)
    at = places.place.reshape(len(values), 1, -1)
    lower, upper = (
        np.take_along_axis(flat, place, axis=2).reshape(*values.shape[:2], *places.place.shape[1:])
        for place in (at, np.minimum(at + 1, flat.shape[2] - 1))
    )
    mean: FloatArray = (places.below[:, None] * lower + places.above[:, None] * upper).sum(axis=-1)
    return mean
