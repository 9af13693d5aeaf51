"""A dial as data: expectations at typical states, and actions, at each budget.

*Views* are what a policy expects at a state: its frontier, and which vertices it mixes at each
budget. *Shares* say how often it takes each action: counted while it is played, or by asking it at
states of a log.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.evaluation import Evaluation, evaluate
from bmdp.frontier import BudgetStatus, Frontier, Mixture, hull_mixture, mixtures_at, upper_frontier
from bmdp.policies import CalibratedPolicy, HullPolicy, MultiplierPolicy, Portfolio, PriceDial
from bmdp.policies.hull import augmented_actions
from bmdp.policies.policy import BudgetedPolicy, Decisions, Randomness, Tracker
from bmdp.randomness import named_generator
from bmdp.report.figures import Hull, Shares
from bmdp.report.section import Data

N_BUDGETS = 11
N_PLACES = 4  # states that stand for the data, besides the first one
MOST_ACTIONS, MOST_STEPS = 8, 40  # that are told apart
_STEPS = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)  # between budgets, times a power of ten
_MOST_ROWS = 4_000  # by which states are grouped
_MOST_STARTS = 250  # first states at which a policy is asked what it expects
_ROWS_A_STEP = 50  # of a log, at which a policy is asked what it does


class Rows(NamedTuple):
    """States that were seen."""

    states: NDArray[Any]  # [N, ...]
    steps: IntArray  # [N], of their episodes
    starts: IntArray  # rows at which episodes begin
    names: Sequence[str] | None = None  # of the numbers of a state
    available: BoolArray | None = None  # [N, A], actions that could be taken; None if all could


class Place(NamedTuple):
    """A state that the page shows."""

    name: str
    state: NDArray[Any]
    step: int


class View(NamedTuple):
    """The frontier that a policy expects at a place, and its mixtures there."""

    frontier: Frontier
    labels: Sequence[str]  # of vertices; none if they have no names
    mixtures: Sequence[Mixture]  # [B]


class Play(NamedTuple):
    """A policy that was played: what came of it, and what it did and met."""

    evaluation: Evaluation
    shares: Shares
    status: list[str]  # [B], of most first decisions
    rows: Rows  # some of the states that it met


# Places


def typical_places(rows: Rows) -> list[Place]:
    """Returns the most common first state, or the most central, and states that stand for others.

    Groups are those of k-means; each is shown by the state next to its centre. The same rows give
    the same places.
    """
    from sklearn.cluster import KMeans

    flat = rows.states.reshape(len(rows.states), -1).astype(np.float64)
    first, how = _central(flat, rows.starts)
    found = {flat[first].tobytes(): (first, f"first state, {how}")}
    chosen = _spread(len(flat), _MOST_ROWS)
    deviations = flat[chosen].std(axis=0)
    scaled = (flat[chosen] - flat[chosen].mean(axis=0)) / np.where(deviations > 0, deviations, 1)
    n_groups = min(N_PLACES, len(np.unique(scaled, axis=0)))
    groups = KMeans(n_groups, n_init=4, random_state=0).fit(scaled)
    sizes = np.bincount(groups.labels_, minlength=n_groups)
    for group in np.argsort(-sizes, kind="stable"):
        distance = ((scaled - groups.cluster_centers_[group]) ** 2).sum(axis=1)
        row = int(chosen[int(distance.argmin())])
        share = f"stands for {sizes[group] / len(chosen):.0%} of the data"
        found.setdefault(flat[row].tobytes(), (row, share))
    return [
        Place(f"{_numbers(flat[row], rows.names)}: {why}", rows.states[row], int(rows.steps[row]))
        for row, why in found.values()
    ]


def _spread(n: int, most: int) -> IntArray:
    """Some numbers from 0 to n - 1, from end to end."""
    return np.unique(np.linspace(0, n - 1, most).astype(np.int64))


def _central(flat: FloatArray, starts: IntArray) -> tuple[int, str]:
    """A row among those that begin, and why it was chosen."""
    _, which, counts = np.unique(flat[starts], axis=0, return_inverse=True, return_counts=True)
    if counts.max() > 1:
        return int(starts[int((which.ravel() == counts.argmax()).argmax())]), "the most common one"
    distance = ((flat[starts] - flat[starts].mean(axis=0)) ** 2).sum(axis=1)
    return int(starts[int(distance.argmin())]), "the most central one"


def _numbers(state: FloatArray, names: Sequence[str] | None = None) -> str:
    """A state as text.

    >>> _numbers(np.array([3.0])), _numbers(np.array([0.25, 1.0]))
    ('state 3', 'state (0.25, 1)')
    >>> _numbers(np.array([0.25, 1.0]), ("speed", "gap"))
    'speed 0.25, gap 1'
    """
    shown = [f"{x:.3g}" for x in state[:5]]
    if names is not None:
        shown = [f"{name} {text}" for name, text in zip(names, shown, strict=False)]
    listed = ", ".join([*shown, "…"] if len(state) > 5 else shown)
    if names is not None:
        return listed
    return f"state {listed}" if len(state) == 1 else f"state ({listed})"


# What a policy expects


def first_form(policy: Any, step: int = 0) -> Any:
    """Returns what decides at a step: of a calibrated policy, its portfolio."""
    if isinstance(policy, CalibratedPolicy):
        return policy.portfolio
    return policy.at_step(step) if isinstance(policy, HullPolicy) else policy


class _Choices(NamedTuple):
    """The points between which a policy chooses at `N` states."""

    costs: FloatArray  # [N, K]
    rewards: FloatArray  # [N, K]
    budgets: FloatArray  # [N, B], to which it compares them
    label: Callable[[int], str]  # of a point of the first state


def _choices(
    form: Any, states: NDArray[Any], step: int, budgets: FloatArray, names: Sequence[str] = ()
) -> _Choices | None:
    if isinstance(form, HullPolicy):
        points, n = form.points(states), len(form.beta_grid)
        label = lambda k: f"{names[k // n]}, then budget {form.beta_grid[k % n]:.3g}"  # noqa: E731
        return _Choices(points.costs, points.rewards, points.raised(budgets), label)
    if isinstance(form, MultiplierPolicy):
        priced, prices = form.dial.at_step(step).points(states), form.dial.prices
        label = lambda k: f"{names[priced.actions[0, k]]}, {_price(prices[k])}"  # noqa: E731
        asked = np.broadcast_to(budgets, (len(states), len(budgets)))
        costs = priced.costs
        if step == 0 and len(form.costs):  # at the start it goes by costs that were measured
            costs = np.tile(form.costs, (len(states), 1))
        return _Choices(costs, priced.rewards, asked, label)
    return None


def view_of(policy: Any, place: Place, budgets: FloatArray, names: Sequence[str]) -> View | None:
    """Returns what a policy expects at a place; None if it does not say."""
    form, labels, asked = first_form(policy, place.step), list[str](), budgets
    found = _choices(form, place.state[None], place.step, budgets, names)
    if found is not None:
        frontier, asked = upper_frontier(found.costs[0], found.rewards[0]), found.budgets[0]
        labels = [found.label(int(k)) for k in _indices(frontier)]
    elif isinstance(form, Portfolio) and form.mixes:
        frontier = form.curve
        labels = [_member(form, k) for k in _indices(frontier)]
    elif hasattr(form, "frontier") and not isinstance(form, PriceDial):
        frontier = form.frontier(place.state if np.ndim(place.state) else place.state.item())
    else:
        return None
    return View(frontier, labels, [hull_mixture(frontier, float(b)) for b in asked])


def believed(policy: Any, states: NDArray[Any], budgets: FloatArray) -> FloatArray | None:
    """Returns mean costs and rewards `[2, B]` that a policy expects from first states."""
    form, some = first_form(policy), states[_spread(len(states), _MOST_STARTS)]
    found = _choices(form, some, 0, budgets)
    if found is not None:
        mixed = mixtures_at(found.costs, found.rewards, found.budgets)
        return np.stack([mixed.cost.mean(axis=0), mixed.reward.mean(axis=0)])
    return members_means(policy, budgets) if isinstance(form, Portfolio) else None


def members_means(policy: Any, budgets: FloatArray) -> FloatArray:
    """Returns mean costs and rewards `[2, B]` of the members that a portfolio mixes at budgets."""
    form = first_form(policy)
    chosen, means = form.mixtures(budgets), (form.costs, form.rewards)
    if isinstance(policy, CalibratedPolicy):  # its costs are upper bounds
        means = policy.certificate.cost_mean, policy.certificate.reward_mean
    p = chosen.p_upper
    return np.stack([(1 - p) * v[chosen.lower] + p * v[chosen.upper] for v in means])


def hull_of(policy: Any, place: Place, budget: float, names: Sequence[str]) -> Hull | None:
    """Returns all augmented actions at a place, those included that the rule leaves out."""
    form = first_form(policy, place.step)
    if not isinstance(form, HullPolicy):
        return None
    q_r, q_c = form.q_values(place.state[None], len(form.beta_grid))
    every = form.rule.from_cheapest().points(q_r, q_c)
    known = np.isfinite(q_r.reshape(-1))
    actions, handed_on = augmented_actions(np.flatnonzero(known), form.beta_grid)
    points = form.points(place.state[None])
    frontier = upper_frontier(points.costs[0], points.rewards[0])
    return Hull(
        state=tuple(place.state.reshape(-1).astype(float).tolist()),
        costs=every.costs[0][known],
        rewards=every.rewards[0][known],
        action=tuple(actions.tolist()),
        handed_on=handed_on,
        action_names=tuple(names),
        vertex_costs=frontier.costs,
        vertex_rewards=frontier.rewards,
        budget=budget,
        mixture=hull_mixture(frontier, float(points.raised(np.array([budget]))[0, 0])),
    )


def dial_budgets(policy: BudgetedPolicy, states: NDArray[Any] | None) -> FloatArray:
    """Returns budgets from end to end of the range, or of the part of it that can be spent."""
    low, high = policy.budget_range
    if isinstance(policy, PriceDial):
        return np.unique(np.rint(np.linspace(low, high, N_BUDGETS)))
    if high <= low or not getattr(policy, "has_dial", True):
        return np.array([low])
    top = None if states is None else believed(policy, states, np.array([high]))
    if top is not None and 0 < (spent := 1.25 * (float(top[0, 0]) - low)) < (high - low) / 2:
        high = low + spent
    step = (high - low) / (N_BUDGETS - 1)
    if not math.isclose(step, float(f"{step:.2g}")):  # a budget above the range is its top
        unit = 10.0 ** math.floor(math.log10(step))
        step = next(times * unit for times in _STEPS if times * unit >= step)
    return np.array([float(f"{low + i * step:.10g}") for i in range(N_BUDGETS)])


def choice_words(policy: Any) -> str:
    """Returns what it is that a policy chooses at a state, in a sentence."""
    form = first_form(policy)
    if isinstance(form, HullPolicy):
        return "A choice is an action, and the budget that is held after it."
    if isinstance(form, MultiplierPolicy):
        return "A price of cost is chosen at the start and kept; the action is the best at it."
    if isinstance(form, Portfolio):
        return "A coin is tossed once, and the whole episode is played by one of the two."
    return ""


def _indices(frontier: Frontier) -> IntArray:
    assert frontier.index is not None
    return frontier.index


def _price(price: float) -> str:
    return "cost first" if np.isinf(price) else f"at a price of {price:.3g} for a unit of cost"


def _member(portfolio: Portfolio, k: int) -> str:
    policy = portfolio.policies[portfolio.which[k]]
    if isinstance(policy, PriceDial):
        return f"the whole episode {_price(policy.prices[round(portfolio.budgets[k])])}"
    which = f"policy {portfolio.which[k] + 1}" if len(portfolio.policies) > 1 else "the policy"
    return f"the whole episode by {which} at its own budget {portfolio.budgets[k]:.3g}"


# What a policy does


class _Watched:
    """A policy whose decisions are counted while it is played, at one budget at a time."""

    def __init__(self, policy: BudgetedPolicy, budgets: FloatArray, n_actions: int) -> None:
        self.policy, self.budget_range = policy, policy.budget_range
        self.budgets, self.n_actions = budgets, n_actions
        self.counts: list[IntArray] = []  # of each step, [B, A]
        self.statuses = np.zeros((len(budgets), len(BudgetStatus)), np.int64)
        self.seen: list[tuple[int, NDArray[Any]]] = []  # steps, and states at them
        self.n_seen = 0

    def start(self, states: ArrayLike, budgets: ArrayLike, rng: Randomness) -> Any:
        which = int(np.abs(self.budgets - np.ravel(budgets)[0]).argmin())
        return _WatchedTracker(self.policy.start(states, budgets, rng), self, which)

    def note(self, step: int, which: int, states: NDArray[Any], decided: Decisions) -> None:
        if step == 0:
            self.statuses[which] += np.bincount(decided.status, minlength=len(BudgetStatus))
        if step == len(self.counts):
            self.counts.append(np.zeros((len(self.budgets), self.n_actions), np.int64))
        self.counts[step][which] += np.bincount(decided.action, minlength=self.n_actions)
        if self.n_seen < _MOST_ROWS:
            self.seen.append((step, states))
            self.n_seen += len(states)


class _WatchedTracker:
    """Hands everything on, and takes note of decisions of episodes that are going on."""

    def __init__(self, inner: Tracker, owner: _Watched, which: int) -> None:
        self._inner, self._owner, self._which, self._step = inner, owner, which, 0
        self._going: Any = slice(None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def decide(self, states: ArrayLike, *masks: ArrayLike) -> Decisions:
        decision, going = self._inner.decide(states, *masks), self._going
        decided = Decisions(*(values[going] for values in decision))
        self._owner.note(self._step, self._which, np.asarray(states)[going], decided)
        self._step += 1
        return decision

    def observe(
        self, costs: ArrayLike, next_states: ArrayLike, ended: ArrayLike, *masks: ArrayLike
    ) -> None:
        self._inner.observe(costs, next_states, ended, *masks)
        self._going = ~np.asarray(ended)


def play(
    policy: BudgetedPolicy,
    spec: EnvSpec,
    budgets: FloatArray,
    names: Sequence[str],
    **how: Any,
) -> Play:
    """Plays a policy at each budget; `how` is as for `bmdp.evaluate`."""
    watched: Any = _Watched(policy, budgets, len(names))
    found = evaluate(watched, spec, budgets=budgets, **how)
    counts = np.stack(watched.counts, axis=1)  # [B, T, A]
    status = [BudgetStatus(int(row.argmax())).name for row in watched.statuses]
    states = np.concatenate([states for _, states in watched.seen])
    steps = np.concatenate([np.full(len(states), step) for step, states in watched.seen])
    rows = Rows(states, steps, np.flatnonzero(steps == 0))
    shares = _shares(counts / found.n_episodes, counts.sum(axis=1), budgets, names)
    return Play(found, shares, status, rows)


def asked_shares(
    policy: BudgetedPolicy, rows: Rows, budgets: FloatArray, names: Sequence[str], seed: int
) -> Shares:
    """Returns how often each action is taken if a policy is asked at states that were seen."""
    rng = named_generator(seed, "report/actions")
    steps, n_rows = np.unique(rows.steps, return_counts=True)
    kept = _spread(len(steps), MOST_STEPS)
    by_step = np.zeros((len(budgets), len(kept), len(names)))
    for t, step in enumerate(steps[kept]):
        here = np.flatnonzero(rows.steps == step)
        here = here[_spread(len(here), _ROWS_A_STEP)]
        for b, budget in enumerate(budgets):
            tracker: Any = policy.start(rows.states[here], float(budget), rng)
            if step and hasattr(tracker, "begin_at"):
                tracker.begin_at(int(step))
            masks = () if rows.available is None else (rows.available[here],)
            actions = tracker.decide(rows.states[here], *masks).action
            by_step[b, t] = np.bincount(actions, minlength=len(names)) / len(here)
    weights = n_rows[kept] / n_rows[kept].sum()
    return _shares(by_step, (by_step * weights[:, None]).sum(axis=1), budgets, names, steps[kept])


def _shares(
    by_step: FloatArray,
    by_budget: FloatArray,
    budgets: FloatArray,
    names: Sequence[str],
    steps: IntArray | None = None,
) -> Shares:
    """Shares of some actions, the rarest together, at some steps, neighbours together."""
    by_budget = by_budget / np.maximum(by_budget.sum(axis=1, keepdims=True), 1e-12)
    if len(names) > MOST_ACTIONS:
        usual = np.sort(np.argsort(-by_budget.sum(axis=0), kind="stable")[: MOST_ACTIONS - 1])
        rare = np.setdiff1d(np.arange(len(names)), usual)
        names = [*(names[a] for a in usual), f"{len(rare)} others"]
        by_budget, by_step = (
            np.concatenate([v[..., usual], v[..., rare].sum(axis=-1, keepdims=True)], axis=-1)
            for v in (by_budget, by_step)
        )
    if steps is None:
        width = -(-by_step.shape[1] // MOST_STEPS)
        firsts = np.arange(0, by_step.shape[1], width)
        lengths = np.diff(np.append(firsts, by_step.shape[1]))
        by_step = np.add.reduceat(by_step, firsts, axis=1) / lengths[:, None]
        steps = firsts
    return Shares(tuple(names), budgets, by_budget, np.asarray(steps, np.float64) + 1, by_step)


# As data of the page


def rounded(values: ArrayLike) -> list[Any]:
    """Returns numbers with six digits, and None for what is not finite.

    >>> rounded([1 / 3, np.nan])
    [0.333333, None]
    """
    flat = np.asarray(values, np.float64)
    if flat.ndim > 1:
        return [rounded(row) for row in flat]
    return [float(f"{x:.6g}") if math.isfinite(x) else None for x in flat.tolist()]


def view_data(view: View) -> dict[str, Any]:
    """Returns `frontier` and `choices` of a dial."""
    choices = [
        {
            "lower": int(one.lower),
            "upper": int(one.upper),
            **{name: rounded([getattr(one, name)])[0] for name in ("p_upper", "cost", "reward")},
            "status": one.status.name,
        }
        for one in view.mixtures
    ]
    curve: Data = {"costs": rounded(view.frontier.costs), "rewards": rounded(view.frontier.rewards)}
    return {"frontier": {**curve, "labels": list(view.labels)}, "choices": choices}


def shares_data(shares: Shares, source: str) -> dict[str, Any]:
    """Returns `actions` of a dial."""
    found: dict[str, Any] = {"names": list(shares.names), "source": source}
    found["by_budget"] = rounded(shares.by_budget.round(4))
    if len(shares.steps) > 1:
        found |= {"steps": rounded(shares.steps), "by_step": rounded(shares.by_step.round(4))}
    return found
