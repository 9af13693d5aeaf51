"""The policy that follows optimal frontiers, with a budget for every next state.

A vertex of a state's frontier is an action and a number of edges of its Minkowski sum, the steepest
ones. They belong to the frontiers of next states, and tell which vertex of each of them is meant:
its cost is the budget to hold there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray, require_finite, require_shape
from bmdp.checks import require_count
from bmdp.errors import DataError, PolicyError
from bmdp.exact.minkowski import Dynamics, Frontiers, steepest_first, sum_row
from bmdp.frontier import BudgetStatus, Frontier, Mixtures, mixtures_at, upper_frontier
from bmdp.kinds import checked
from bmdp.policies.hull import state_numbers
from bmdp.policies.policy import (
    Decisions,
    EpisodeTracker,
    Policy,
    Randomness,
    episode_streams,
    idle_decisions,
)
from bmdp.policies.state import StateReader, refusal
from bmdp.randomness import EpisodeStreams
from bmdp.storage import storable


class Vertices(NamedTuple):
    """The vertices of a state's frontier, each with its action and the budgets it hands on."""

    frontier: Frontier
    action: IntArray  # [V]
    next_states: tuple[IntArray, ...]  # of each vertex, those that may follow
    next_budgets: tuple[FloatArray, ...]  # of each vertex, the budget of each of them
    expected_budget: FloatArray  # [V]


@checked
@storable
@dataclass(frozen=True, eq=False)
class AllocationPolicy(Policy):
    """Follows the frontiers of all states: the next budget depends on the next state.

    After the first decision every budget is a vertex of the next state's frontier, so chance is
    needed only once, unless the dial is moved. Episode form only.

    >>> from bmdp.exact import allocate_budgets
    >>> from bmdp.exact.textbook import branches
    >>> policy = allocate_budgets(branches().model).policy()
    >>> tracker = policy.start([0, 0], 0.5, np.random.default_rng(0))
    >>> tracker.decide([0, 0]).next_budget.tolist()
    [0.5, 0.5]
    >>> tracker.observe(costs=0.0, next_states=[1, 2], ended=False)  # risks pay 10 at 1, 1 at 2
    >>> tracker.budgets.tolist()
    [1.0, 0.0]
    """

    row_start: IntArray  # [S * A + 1], the model as in `Dynamics`
    next_state: IntArray  # [E], of the E transitions that may occur
    probability: FloatArray  # [E], of each of them
    reward: FloatArray  # [S, A], of a step
    cost: FloatArray  # [S, A], of a step
    gamma: float  # discount of rewards
    cost_gamma: float  # discount of costs
    first: IntArray  # [stages, S + 1], as in `Frontiers`
    stage_start: IntArray  # [stages + 1], where the vertices of each stage begin
    vertex_cost: FloatArray  # [V], of the vertices of all stages
    vertex_reward: FloatArray  # [V], likewise

    why_no_one_step_form = "chooses the next budget when it sees the next state"

    def __post_init__(self) -> None:
        """Checks all arrays: compiled code relies on them.

        Raises:
            DataError: naming the array, and the rule.
        """
        n_states, n_actions = (*np.shape(self.reward), 0, 0)[:2]
        stages = len(self.first)
        require_shape("AllocationPolicy.reward", self.reward, (None, None), "[S, A]")
        require_shape("AllocationPolicy.cost", self.cost, self.reward.shape, "[S, A]")
        if not (n_states and n_actions and stages):
            raise DataError("AllocationPolicy must have a state, an action and a stage.")
        n_rows, n_entries, n_vertices = n_states * n_actions, len(self.next_state), None
        for name, shape, letters in (
            ("row_start", (n_rows + 1,), "[S * A + 1]"),
            ("next_state", (None,), "[E]"),
            ("probability", (n_entries,), "[E]"),
            ("first", (None, n_states + 1), "[stages, S + 1]"),
            ("stage_start", (stages + 1,), "[stages + 1]"),
            ("vertex_cost", (n_vertices,), "[V]"),
            ("vertex_reward", (len(self.vertex_cost),), "[V]"),
        ):
            require_shape(f"AllocationPolicy.{name}", getattr(self, name), shape, letters)
        for name in ("probability", "reward", "cost", "vertex_cost", "vertex_reward"):
            require_finite(f"AllocationPolicy.{name}", getattr(self, name))
        _require_whole(self, "first", "next_state", "row_start", "stage_start")
        _require_starts("row_start", self.row_start, n_entries, least=0)
        _require_starts("stage_start", self.stage_start, len(self.vertex_cost), least=1)
        for starts, n_own in zip(self.first, np.diff(self.stage_start), strict=True):
            _require_starts("first", starts, int(n_own), least=1)
        if ((self.next_state < 0) | (self.next_state >= n_states)).any():
            raise DataError(f"AllocationPolicy.next_state must be from 0 to {n_states - 1}.")
        if ((self.probability <= 0) | (self.probability > 1 + 1e-6)).any():
            raise DataError("AllocationPolicy.probability must be above 0 and at most 1.")
        inner = np.ones(len(self.vertex_cost) - 1, np.bool_)  # edges between vertices of a state
        ends = (self.first[:, :-1] + self.stage_start[:-1, None]).ravel()
        inner[ends[ends > 0] - 1] = False
        if (np.diff(self.vertex_cost)[inner] <= 0).any():
            raise DataError("AllocationPolicy.vertex_cost must rise strictly at each state.")
        for name in ("gamma", "cost_gamma"):
            if not 0 < getattr(self, name) <= 1:
                raise DataError(f"AllocationPolicy.{name} must be above 0 and at most 1.")

    @property
    def budget_range(self) -> tuple[float, float]:
        """From 0, or the least cost of a state if that is negative, to the largest cost."""
        costs = self.vertex_cost[: self.stage_start[1]]
        return min(0.0, float(costs.min())), max(0.0, float(costs.max()))

    @property
    def n_steps(self) -> int | None:
        """Number of steps after which nothing more is planned; None without a horizon."""
        return None if len(self.first) == 1 else len(self.first) - 1

    def frontiers(self, step: int) -> Frontiers:
        """Returns the frontiers of all states at one step."""
        stage = min(step, len(self.first) - 1)
        mine = slice(self.stage_start[stage], self.stage_start[stage + 1])
        return Frontiers(self.first[stage], self.vertex_cost[mine], self.vertex_reward[mine])

    def frontier(self, state: int) -> Frontier:
        """Returns what can be had from a state at the first step."""
        return self.plan(state, 0).frontier

    def plan(self, state: int, step: int) -> Vertices:
        """Returns the vertices of a state's frontier, with their actions and next budgets."""
        require_count("state", state, 0, self.first.shape[1] - 2)
        require_count("step", step, 0)
        following = self.frontiers(step + 1)
        dynamics = Dynamics(*(getattr(self, name) for name in Dynamics._fields))
        n_actions = self.reward.shape[1]
        rows = range(state * n_actions, (state + 1) * n_actions)
        sums = [
            sum_row(following, dynamics, row, self.cost[state, a], self.reward[state, a])
            for a, row in enumerate(rows)
        ]
        owner = np.concatenate([np.full(len(x), a) for a, (x, _) in enumerate(sums)])
        place = np.concatenate([np.arange(len(x)) for x, _ in sums])
        frontier = upper_frontier(*(np.concatenate(t) for t in zip(*sums, strict=True)))
        assert frontier.index is not None
        handed = [
            _handed_out(following, dynamics, rows[owner[i]], int(place[i])) for i in frontier.index
        ]
        return Vertices(
            frontier,
            owner[frontier.index],
            tuple(states for states, _, _ in handed),
            tuple(budgets for _, budgets, _ in handed),
            np.array([float(chances @ budgets) for _, budgets, chances in handed]),
        )

    def start(self, states: ArrayLike, budgets: ArrayLike, rng: Randomness) -> AllocationTracker:
        """Starts `N` episodes."""
        return AllocationTracker(self, budgets, episode_streams(rng, states))


def _require_whole(policy: AllocationPolicy, *names: str) -> None:
    for name in names:
        if getattr(policy, name).dtype.kind != "i":
            raise DataError(f"AllocationPolicy.{name} must be of whole numbers.")


def _require_starts(name: str, starts: IntArray, end: int, *, least: int) -> None:
    """Checks where parts begin: from 0, each `least` after the one before it, to the end."""
    if starts[0] != 0 or starts[-1] != end or (np.diff(starts) < least).any():
        raise DataError(f"AllocationPolicy.{name} must rise from 0 to {end}, by {least} at least.")


def _handed_out(
    following: Frontiers, dynamics: Dynamics, row: int, n_edges: int
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Next states, their budgets and chances, if the first edges of a row's sum are taken."""
    entries = slice(dynamics.row_start[row], dynamics.row_start[row + 1])
    states, chances = dynamics.next_state[entries], dynamics.probability[entries]
    firsts = following.first[states]
    counts = following.first[states + 1] - firsts - 1
    owner = np.repeat(np.arange(len(states)), counts)
    before = np.cumsum(counts) - counts
    low = firsts[owner] + np.arange(len(owner)) - before[owner]
    x_scale, y_scale = (g * chances[owner] for g in (dynamics.cost_gamma, dynamics.gamma))
    run = x_scale * (following.costs[low + 1] - following.costs[low])
    rise = y_scale * (following.rewards[low + 1] - following.rewards[low])
    taken = owner[steepest_first(rise, run)[:n_edges]]
    vertices = firsts + np.bincount(taken, minlength=len(states))
    return states, following.costs[vertices], chances


@checked
class AllocationTracker(EpisodeTracker[AllocationPolicy]):
    """Episodes under an `AllocationPolicy`."""

    def __init__(
        self, policy: AllocationPolicy, budgets: ArrayLike, streams: EpisodeStreams
    ) -> None:
        """Starts one episode for each stream."""
        self._plans: dict[tuple[int, int], Vertices] = {}
        self._chosen: list[tuple[int, int, IntArray]] = []  # a state, a vertex, who plays it
        super().__init__(policy, budgets, streams)

    def _plan(self, state: int, step: int) -> Vertices:
        if self._policy.n_steps is None:
            step = 0
        if (step, state) not in self._plans:
            self._plans[step, state] = self._policy.plan(state, step)
        return self._plans[step, state]

    def _decide(self, states: NDArray[Any]) -> Decisions:
        decision = idle_decisions(self._budgets)
        uniforms = self._streams.uniforms(self._step, 1)[:, 0]
        going = np.flatnonzero(~self._ended)
        self._chosen = []
        numbers = state_numbers(states[going], self._policy.first.shape[1] - 1)
        for state in np.unique(numbers):
            rows = going[numbers == state]
            plan = self._plan(int(state), self._step)
            held = np.minimum(self._budgets[rows], self._budget_range[1])
            found = mixtures_at(plan.frontier.costs[None], plan.frontier.rewards[None], held)
            mixtures = Mixtures(*(column[0] for column in found))
            vertex = np.where(uniforms[rows] < mixtures.p_upper, mixtures.upper, mixtures.lower)
            above = self._budgets[rows] > self._budget_range[1]
            decision.action[rows] = plan.action[vertex]
            decision.next_budget[rows] = plan.expected_budget[vertex]
            decision.status[rows] = np.where(above, np.int8(BudgetStatus.SLACK), mixtures.status)
            self._chosen += [(int(state), int(v), rows[vertex == v]) for v in np.unique(vertex)]
        return decision

    def _observe(self, costs: FloatArray, next_states: NDArray[Any], ended: BoolArray) -> None:
        for state, vertex, players in self._chosen:
            plan = self._plan(state, self._step - 1)
            rows = players[~ended[players]]
            numbers = state_numbers(next_states[rows], self._policy.first.shape[1] - 1)
            is_next = plan.next_states[vertex] == numbers[:, None]
            lost = np.flatnonzero(~is_next.any(axis=1))
            if len(lost):
                row = int(rows[lost[0]])
                raise PolicyError(
                    f"state {next_states[row]} cannot follow in episode {row}: "
                    "the model gives it no probability."
                )
            self._budgets[rows] = plan.next_budgets[vertex][is_next.argmax(axis=1)]

    def _own_state(self) -> dict[str, Any]:
        """The states and vertices at which it decided, where an observation is due."""
        if not self._has_decided:
            return {"states": None, "vertices": None}
        places = np.full((2, len(self._streams)), -1)
        for state, vertex, players in self._chosen:
            places[:, players] = [[state], [vertex]]
        return {"states": places[0].tolist(), "vertices": places[1].tolist()}

    def _take_over(self, kept: StateReader) -> None:
        states, vertices = kept.item("states"), kept.item("vertices")
        if not self._has_decided:
            if states is not None or vertices is not None:
                raise refusal('state["states"]', "null before a decision, like vertices", states)
            return
        shape, last = (len(self._streams),), self._policy.first.shape[1] - 2
        states = kept.whole_numbers("states", shape, -1, last)
        largest = len(self._policy.vertex_cost)
        vertices = kept.whole_numbers("vertices", shape, -1, largest)
        wrong = np.flatnonzero(((states < 0) != self._ended) | ((vertices < 0) != self._ended))
        if len(wrong):
            raise PolicyError(
                'state["states"] and state["vertices"] must be -1 where an episode is over, and '
                f"there alone; got {states[wrong[0]]} and {vertices[wrong[0]]} at [{wrong[0]}]."
            )
        self._chosen = []
        played = np.stack((states, vertices))[:, ~self._ended]
        for state, vertex in np.unique(played, axis=1).T.tolist():
            players = np.flatnonzero((states == state) & (vertices == vertex))
            n_vertices = len(self._plan(state, self._step - 1).action)
            if vertex >= n_vertices:
                raise PolicyError(
                    f'state["vertices"] must be from 0 to {n_vertices - 1} at state {state}; got '
                    f"{vertex} at [{players[0]}]."
                )
            self._chosen.append((state, vertex, players))

    def _spends(self) -> BoolArray:
        """None: budgets that were handed out may be below those of the start."""
        return np.zeros(len(self._streams), np.bool_)
