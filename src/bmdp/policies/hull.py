"""The greedy policy of a budgeted Q-function: the mixture that spends the budget (Algorithm 3).

Estimates are noisy, and a frontier picks the cheapest and the best paid of hundreds of them. At the
cheap end that does harm: the cheapest point is whichever the noise put lowest, and often earns
nothing. `HullRule` says what is done about it, in units of the data themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import (
    MAGNITUDE,
    BoolArray,
    FloatArray,
    IntArray,
    read_only,
    real_array,
    require_finite,
    require_shape,
)
from bmdp.errors import ConfigError, DataError
from bmdp.frontier import (
    BudgetStatus,
    Frontier,
    Mixtures,
    best_mixtures,
    mixtures_at,
    upper_frontier,
)
from bmdp.frontier.known import KnownFrontiers
from bmdp.kinds import checked
from bmdp.policies.policy import (
    MOST_KEPT,
    Decision,
    Decisions,
    Options,
    QFunction,
    QPolicy,
    admitted_mask,
    cell_values,
    cells_of,
    require_heads,
    require_step,
)
from bmdp.storage import storable


class Points(NamedTuple):
    """Costs and rewards of augmented actions at `N` states, and where their frontier begins.

    Arrays of numpy or tensors of torch alike.
    """

    costs: Any  # [N, K]
    rewards: Any  # [N, K]
    cheapest: Any  # [N], position of the cheapest point, the best paid of several
    first_cost: Any  # [N], of the first vertex
    least_budget: Any  # [N], below it no point is affordable

    def raised(self, budgets: Any) -> Any:
        """Budgets `[L]` or `[N, L]`, those within the slack raised to the first vertex."""
        first, least = self.first_cost[:, None], self.least_budget[:, None]
        return _where((budgets >= least) & (budgets < first), first, budgets)


@checked
@storable
@dataclass(frozen=True, eq=False)
class HullRule:
    """The rule by which Q-values become points, at each of `S` steps.

    The frontier begins at the point of the most `reward - slope * cost` among those that cost at
    most `slack` more than the cheapest: saving cost is worth `slope` a unit, and no more, and costs
    this close cannot be told apart. A budget that is short of the cheapest point by the slack at
    most plays that point; below that the status is INFEASIBLE and the cheapest point is played.
    With slope 0 the frontier begins at the cheapest point, as in the paper.

    Both numbers follow from the frontiers of a sample of states (`HullRule.of`), so that no unit
    matters: the slope is a multiple of their mean chord, the slack a share of their mean width.

    Args:
        costs_from_zero: whether Q_c below 0 is raised to 0.
        slope: `[S]`, reward for a unit of cost; 0 for no cap.
        slack: `[S]`, in cost.
        cost_cap: Q_c above it is lowered to it; None for no such cap.

    >>> q_r, q_c = np.array([[[0.0], [5.0], [6.0]]]), np.array([[[-0.1], [0.1], [1.0]]])
    >>> HullRule(costs_from_zero=True).points(q_r, q_c).costs.tolist()
    [[0.0, 0.1, 1.0]]
    >>> points = HullRule(slope=[20.0], slack=[0.2]).points(q_r, q_c)
    >>> points.costs.tolist(), points.first_cost.tolist()
    ([[0.1, 0.1, 1.0]], [0.1])
    """

    costs_from_zero: bool = False
    slope: FloatArray = field(default_factory=lambda: np.zeros(1))
    slack: FloatArray = field(default_factory=lambda: np.zeros(1))
    cost_cap: float | None = None

    def __post_init__(self) -> None:
        """Checks the numbers and makes them read-only."""
        for name in ("slope", "slack"):
            values = real_array(f"HullRule.{name}", getattr(self, name)).astype(np.float64)
            require_shape(f"HullRule.{name}", values, (None,), "[S]")
            require_finite(f"HullRule.{name}", values)
            if len(values) == 0 or (values < 0).any():
                raise ConfigError(f"HullRule.{name} must be from 0 on; got {values.tolist()}.")
            object.__setattr__(self, name, read_only(values))
        if self.cost_cap is not None and not np.isfinite(self.cost_cap):
            raise ConfigError(f"HullRule.cost_cap must be finite, or None; got {self.cost_cap}.")

    @classmethod
    def of(
        cls,
        q_r: Any,
        q_c: Any,
        cap: float,
        *,
        costs_from_zero: bool,
        cost_cap: float | None = None,
    ) -> HullRule:
        """Returns the rule of one step, given Q-values `[N, A, B]` at a sample of states.

        Args:
            q_r: of rewards; minus infinity for actions that must not be played.
            q_c: of costs.
            cap: slope in mean chords of the sample's frontiers, and their width in slacks; 0 for no
                cap.
            costs_from_zero: as in `HullRule`.
            cost_cap: as there.
        """
        plain = cls(costs_from_zero, cost_cap=cost_cap)
        if cap == 0 or len(q_r) == 0:
            return plain
        costs, rewards, cheapest, first_cost, _ = plain.points(q_r, q_c)
        best = -_least(-rewards)
        rise = best - _at(rewards, cheapest[:, None])[:, 0]
        top = _masked(-costs, rewards < best[:, None]).argmax(1)[:, None]  # cheapest of the best
        run = _at(costs, top)[:, 0] - first_cost
        width = float(run.mean())
        if width <= 0:
            return plain
        slope = cap * float(rise.mean()) / width
        return replace(plain, slope=np.array([slope]), slack=np.array([width / cap]))

    def scaled(self, reward_unit: float, cost_unit: float) -> HullRule:
        """Returns the same rule for rewards and costs that are so many times larger."""
        return replace(
            self,
            slope=self.slope * (reward_unit / cost_unit),
            slack=self.slack * cost_unit,
            cost_cap=None if self.cost_cap is None else self.cost_cap * cost_unit,
        )

    def from_cheapest(self) -> HullRule:
        """Returns the rule whose frontier begins at the cheapest point."""
        return replace(self, slope=np.zeros(1), slack=np.zeros(1))

    def clipped(self, costs: Any) -> Any:
        """Costs from 0 on, and up to the cap, where the rule says so."""
        least = 0 if self.costs_from_zero else None
        if least is None and self.cost_cap is None:
            return costs
        return costs.clip(least, self.cost_cap)

    def points(self, q_r: Any, q_c: Any, step: int = 0) -> Points:
        """From (q_r, q_c), each `[N, A, B]`, to points `[N, A * B]`."""
        n_points = q_r.shape[1] * q_r.shape[2]
        costs, rewards = _playable(q_c.reshape(len(q_c), n_points), q_r.reshape(len(q_r), n_points))
        costs = self.clipped(costs)
        least = _least(costs)[:, None]
        cheapest = _masked(rewards, costs > least).argmax(1)
        slope, slack = (float(v[min(step, len(v) - 1)]) for v in (self.slope, self.slack))
        if slope == 0:
            return Points(costs, rewards, cheapest, least[:, 0], least[:, 0])
        first = _masked(rewards - slope * costs, costs > least + slack).argmax(1)[:, None]
        first_cost = _at(costs, first)
        # Points that are cheaper are put beneath the first one, where no frontier passes.
        is_cheaper = costs < first_cost
        costs = _where(is_cheaper, first_cost, costs)
        rewards = _where(is_cheaper, _lower_than(_at(rewards, first)), rewards)
        return Points(costs, rewards, cheapest, first_cost[:, 0], least[:, 0] - slack)


PLAIN = HullRule()
"""Points as they are."""


@checked
@storable
@dataclass(frozen=True, eq=False)
class TabularQ:
    """Q-values of a finite model, a table of each. States are whole numbers.

    Q_r is in rewards, Q_c in costs, both expected and discounted. With an axis of steps in front,
    each step of an episode has tables of its own.

    >>> q = TabularQ(q_r=[[[0.0], [10.0]], [[0.0], [1.0]]], q_c=[[[0.0], [1.0]], [[0.0], [1.0]]])
    >>> q_r, q_c = q(np.array([1]))
    >>> q_r.tolist(), q_c.tolist()
    ([[[0.0], [1.0]]], [[[0.0], [1.0]]])
    """

    q_r: FloatArray  # [S, A, B], or [T, S, A, B] for T steps
    q_c: FloatArray  # of the same shape

    def __post_init__(self) -> None:
        """Checks the tables and makes them read-only."""
        q_r, q_c = real_array("TabularQ.q_r", self.q_r), real_array("TabularQ.q_c", self.q_c)
        require_shape("TabularQ.q_r", q_r, (None,) * max(3, min(q_r.ndim, 4)), "[S, A, B]")
        require_shape("TabularQ.q_c", q_c, q_r.shape, "[S, A, B]")
        require_finite("TabularQ.q_r", q_r)
        require_finite("TabularQ.q_c", q_c)
        if q_r.size == 0:
            raise DataError(f"TabularQ.q_r must hold values; got shape {list(q_r.shape)}.")
        precision = np.result_type(q_r, q_c)
        object.__setattr__(self, "q_r", read_only(q_r.astype(precision, copy=False)))
        object.__setattr__(self, "q_c", read_only(q_c.astype(precision, copy=False)))

    @property
    def n_heads(self) -> int:
        """Number of heads, B."""
        return int(self.q_r.shape[-1])

    @property
    def n_steps(self) -> int:
        """Number of steps that have tables of their own."""
        return 1 if self.q_r.ndim == 3 else len(self.q_r)

    def cells(self, states: NDArray[Any], step: int = 0) -> IntArray:
        """Numbers of the states."""
        return state_numbers(states, self.q_r.shape[-3])

    def cell_values(self, step: int = 0) -> tuple[FloatArray, FloatArray]:
        """The tables of a step."""
        if self.q_r.ndim == 3:
            return self.q_r, self.q_c
        step = min(step, len(self.q_r) - 1)
        return self.q_r[step], self.q_c[step]

    def __call__(self, states: NDArray[Any], step: int = 0) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c) of the states `[N]`, each `[N, A, B]`."""
        rows = self.cells(states)
        q_r, q_c = self.cell_values(step)
        return q_r[rows], q_c[rows]


@checked
@storable
@dataclass(frozen=True, eq=False)
class HullPolicy(QPolicy):
    """Plays the best mixture of augmented actions (a, beta_a) that the budget affords.

    Any Q-function will do: a table, or a function of continuous states.

    Paper: Algorithm 3, which is the greedy policy of Eq. 12 by Proposition 3.
    Differs: a budget below the frontier plays the cheapest augmented action (status INFEASIBLE).

    >>> q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    >>> policy = HullPolicy(q, beta_grid=[0.0, 1.0])
    >>> policy.options(np.array([0]), np.array([0.25])).probability.tolist()
    [[0.75, 0.25]]
    >>> policy.frontier(0).reward_at(0.25)
    2.5
    """

    q_function: QFunction  # from states [N, ...] to (q_r, q_c), each [N, A, B]
    beta_grid: FloatArray  # [B], budgets that can be handed on, rising
    rule: HullRule = PLAIN  # how Q-values become points
    step: int | None = None  # the only step that it plays; all of them, if not given

    def __post_init__(self) -> None:
        """Checks the grid and makes it read-only."""
        grid = real_array("HullPolicy.beta_grid", self.beta_grid).astype(np.float64)
        require_shape("HullPolicy.beta_grid", grid, (None,), "[B]")
        require_finite("HullPolicy.beta_grid", grid, limit=MAGNITUDE)
        if len(grid) == 0 or (np.diff(grid) <= 0).any():
            raise DataError("HullPolicy.beta_grid must hold at least one budget and rise strictly.")
        require_heads("HullPolicy.beta_grid", self.q_function, len(grid))
        require_step("HullPolicy.step", self.step, self.q_function)
        object.__setattr__(self, "beta_grid", read_only(grid))

    @property
    def budget_range(self) -> tuple[float, float]:
        """Ends of the grid."""
        return float(self.beta_grid[0]), float(self.beta_grid[-1])

    @property
    def n_draws(self) -> int:
        """One: which of the two vertices is played."""
        return 1

    def choose(
        self,
        states: NDArray[Any],
        budgets: FloatArray,
        uniforms: FloatArray,
        available: BoolArray | None = None,
    ) -> Decisions:
        """Draws from the best mixture at each state."""
        mixtures = self.mixtures(states, budgets, available)
        point = np.where(uniforms[:, 0] < mixtures.p_upper, mixtures.upper, mixtures.lower)
        return Decision(*augmented_actions(point, self.beta_grid), mixtures.status)

    def options(
        self, states: NDArray[Any], budgets: FloatArray, available: BoolArray | None = None
    ) -> Options:
        """Returns the two augmented actions of each mixture, and their probabilities."""
        return self._options(self.mixtures(states, budgets, available))

    def options_at(
        self, states: NDArray[Any], budgets: FloatArray, available: BoolArray | None = None
    ) -> Options:
        """Returns the mixtures of each state at all budgets `[L]`, from its one frontier."""
        points = self.points(states, available)
        found = mixtures_at(points.costs, points.rewards, points.raised(budgets))
        return self._options(_with_cheapest(found, points))

    def mixtures(
        self, states: NDArray[Any], budgets: FloatArray, available: BoolArray | None = None
    ) -> Mixtures[NDArray[Any]]:
        """Returns the mixtures of states at their budgets `[N]`, as points a * B + b."""
        if available is None and self._known is not None:
            cells = cells_of(self.q_function, states, self.step or 0)
            return self._known.mixtures(cells, np.asarray(budgets))
        points = self.points(states, available)
        held = points.raised(np.asarray(budgets)[:, None])[:, 0]
        found = best_mixtures(points.costs, points.rewards, held)
        playing: Mixtures[NDArray[Any]] = _with_cheapest(found, points)
        return playing

    @cached_property
    def _known(self) -> KnownFrontiers | None:
        """Frontiers of all states, if they are few, found at the first decision."""
        if self.n_steps > 1:
            return None
        values = cell_values(self.q_function, self.step or 0)
        n_heads = len(self.beta_grid)
        if values is None or values[0].size > MOST_KEPT or values[0].shape[2] != n_heads:
            return None
        points = self.rule.points(*values, self.step or 0)
        if not KnownFrontiers.can_hold(points.costs, points.rewards):
            return None
        least = points.least_budget
        return KnownFrontiers(points.costs, points.rewards, points.cheapest, np.asarray(least))

    def frontier(
        self, state: ArrayLike, step: int = 0, available: ArrayLike | None = None
    ) -> Frontier:
        """Returns what the policy expects to be able to get; `index` is a * B + b of a vertex."""
        points = self.at_step(step).points(np.asarray(state)[None], admitted_mask(available))
        return upper_frontier(points.costs[0], points.rewards[0])

    def points(self, states: NDArray[Any], available: BoolArray | None = None) -> Points:
        """Returns what all augmented actions promise at states `[N, ...]`, if they are there."""
        q_r, q_c = self.q_values(states, len(self.beta_grid), available)
        return self.rule.points(q_r, q_c, self.step or 0)

    def _options(self, mixtures: Mixtures[NDArray[Any]]) -> Options:
        points = np.stack((mixtures.lower, mixtures.upper), axis=-1)
        chances = np.stack((1 - mixtures.p_upper, mixtures.p_upper), axis=-1)
        return Options(*augmented_actions(points, self.beta_grid), chances)


def augmented_actions(points: IntArray, beta_grid: FloatArray) -> tuple[IntArray, FloatArray]:
    """Actions and next budgets of points, which are numbered a * B + b."""
    return points // len(beta_grid), beta_grid[points % len(beta_grid)]


def _with_cheapest(found: Any, points: Points) -> Any:
    """Mixtures `[N]` or `[N, L]` that play the cheapest point where the budget is infeasible.

    Their cost and reward are left as they are, those of the first vertex.
    """
    is_infeasible = found.status == BudgetStatus.INFEASIBLE
    cheapest = points.cheapest.reshape(-1, *[1] * (found.status.ndim - 1))
    lower, upper = (np.where(is_infeasible, cheapest, p) for p in (found.lower, found.upper))
    return found._replace(lower=lower, upper=upper)


def _playable(costs: Any, rewards: Any) -> tuple[Any, Any]:
    """Points with those that must not be played where no frontier passes: dear, and worst paid."""
    is_barred = rewards == -np.inf
    if not is_barred.any():
        return costs, rewards
    dearest = -_least(-_where(is_barred, -np.inf, costs))[:, None]
    worst = _least(_where(is_barred, np.inf, rewards))[:, None]
    return _where(is_barred, dearest, costs), _where(is_barred, _lower_than(worst), rewards)


def _masked(values: Any, mask: Any) -> Any:
    """Values, minus infinity where the mask says so."""
    return _where(mask, -np.inf, values)


def _least(values: Any) -> Any:
    """The least value of each row `[N, K]`."""
    return values.min(1) if isinstance(values, np.ndarray) else values.amin(1)


def _lower_than(rewards: Any) -> Any:
    """Rewards that are surely lower, in any precision."""
    return rewards - 0.5 * abs(rewards) - 1


def _where(mask: Any, one: Any, other: Any) -> Any:
    if isinstance(mask, np.ndarray):
        return np.where(mask, one, other)
    if isinstance(one, float):
        return other.masked_fill(mask, one)
    return one.where(mask, other)


def _at(values: Any, places: Any) -> Any:
    """Values `[N, K]` at places `[N, J]`."""
    if isinstance(values, np.ndarray):
        return np.take_along_axis(values, places, 1)
    return values.gather(1, places)


def state_numbers(states: NDArray[Any], n_states: int) -> IntArray:
    """Checks the numbers `[N]` of states of a finite model."""
    require_shape("states", states, (None,), "[N]")
    if states.dtype.kind not in "iu":
        raise DataError(f"states must be whole numbers; got type {states.dtype}.")
    outside = np.flatnonzero((states < 0) | (states >= n_states))
    if len(outside):
        i = int(outside[0])
        raise DataError(f"states must be from 0 to {n_states - 1}; got {states[i]} at [{i}].")
    return states
