"""The true frontier of slot-filling, between two bounds, by dynamic programming over beliefs.

Let scores take finitely many values. Then there are finitely many beliefs (probabilities of each
combination of right and wrong slots), up to the order of the slots. Two such tasks bound the real
one, whose scores are real numbers:

- *From below*: scores are put into bins, and the system is told the bin only. Such a system can be
  played in the real task.
- *From above*: a score says that its value is right with a probability p between two points; the
  system is told one of the two points, drawn so that their mean is p. What is drawn tells as much
  as the score and more (it is a mean-preserving spread), so no real system does better.

Edges of bins are quantiles of a fixed distribution. So twice as many bins are the same bins halved,
and the bounds close in on the truth from both sides.

Each level of beliefs is listed once, forwards; then every price on hang-ups is solved backwards,
and the frontier found by search over the price. The last turn is a summary: nothing else can pay.
So the last two turns are known in closed form, and their beliefs are not listed.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, dataclass, replace
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtr, ndtri

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.envs.episodes import play_task
from bmdp.envs.slot_filling.task import SlotFilling
from bmdp.envs.tasks import TrueFrontier
from bmdp.errors import ConfigError
from bmdp.exact.multiplier import Point, search_frontier
from bmdp.frontier import Frontier
from bmdp.policies.policy import (
    Decisions,
    EpisodeTracker,
    Policy,
    Randomness,
    episode_streams,
    idle_decisions,
)
from bmdp.policies.state import StateReader, plain_numbers, refusal
from bmdp.randomness import EpisodeStreams

_STEPS = 1e12  # beliefs are rounded to so many steps of a unit
_WIDTH = 1.3  # of the distribution whose quantiles are edges; scores have 1
_TINY_PRICE, _HUGE_PRICE = 1e-7, 1e9  # stand for the ends of the frontier
_TOL = 1e-5  # of the search over prices, relative to the rewards
_LARGEST = 200.0  # reward and gain in reward, together
_COARSE = 4  # bins, of settings of which nothing is kept

KEPT = "frontier.json"
"""Beside this module: the frontier of the paper's settings, made by examples/environments.py."""


class Scores(NamedTuple):
    """Scores that take finitely many values, and the chances that acts fail."""

    edges: FloatArray  # [bins - 1], of the normal number behind a score
    chance: FloatArray  # [K], of each value
    right: FloatArray  # [K], P(the slot is right | value)
    error_rate: float
    hang_up: float


class Level(NamedTuple):
    """All beliefs that can be held at one turn, and where each outcome leads.

    Outcomes are a denial, each slot with each score, and each slot by key pad. At the last level
    that is listed, nothing follows.
    """

    beliefs: FloatArray  # [n, 2**slots]
    following: NDArray[np.int32]  # [n, outcomes], among the beliefs of the next turn
    order: NDArray[np.uint16]  # [n, outcomes], which order of slots the next belief is listed in


@dataclass(frozen=True, eq=False)
class BeliefTree:
    """The task with scores that take finitely many values."""

    task: SlotFilling
    scores: Scores
    levels: tuple[Level, ...]  # one for each turn but the last two

    @property
    def n_beliefs(self) -> int:
        """Number of beliefs that are listed."""
        return sum(len(level.beliefs) for level in self.levels)


def binned_scores(task: SlotFilling, n_bins: int) -> Scores:
    """Returns scores of which only the bin is told.

    Edges are quantiles, at equal steps, of a normal distribution 1.3 times as wide as that of the
    number behind a score. Bins of equal chance would be too coarse where scores tell the most.

    Args:
        task: its settings.
        n_bins: number of bins, from 1 on.
    """
    if n_bins < 1:
        raise ConfigError(f"n_bins must be from 1 on; got {n_bins}.")
    error, apart = task.error_rate, task.mean_right - task.mean_wrong
    spread = np.sqrt(task.std**2 + error * (1 - error) * apart**2)
    middle = task.mean_wrong + (1 - error) * apart
    edges = middle + _WIDTH * spread * ndtri(np.arange(1, n_bins) / n_bins)
    borders = np.concatenate(([-np.inf], edges, [np.inf]))
    wrong = error * np.diff(ndtr((borders - task.mean_wrong) / task.std))
    right = (1 - error) * np.diff(ndtr((borders - task.mean_right) / task.std))
    chance = wrong + right
    return Scores(edges, chance, right / np.where(chance > 0, chance, 1), error, task.hang_up)


def spread_scores(task: SlotFilling, n_bins: int) -> Scores:
    """Returns scores that tell more than the real ones: one of the two edges of the bin.

    Edges are those of `binned_scores`, with 0 and 1 for the P(right) of the outer ones. Which edge
    is told is drawn so that the mean of P(right) over a bin is as before.
    """
    binned = binned_scores(task, n_bins)
    apart, middle = task.mean_right - task.mean_wrong, (task.mean_right + task.mean_wrong) / 2
    with np.errstate(divide="ignore"):
        prior = np.log1p(-task.error_rate) - np.log(task.error_rate)
    inner = expit(prior + apart / task.std**2 * (binned.edges - middle))
    points = np.concatenate(([apart < 0], inner, [apart >= 0]))
    low, width = points[:-1], np.diff(points)
    to_high = ((binned.right - low) / np.where(width != 0, width, 1)).clip(0, 1)
    chance = np.zeros(n_bins + 1)
    chance[:-1] += binned.chance * (1 - to_high)
    chance[1:] += binned.chance * to_high
    return binned._replace(chance=chance, right=points)


def belief_tree(task: SlotFilling, scores: Scores) -> BeliefTree:
    """Lists the beliefs of a task, turn by turn.

    Args:
        task: its settings; what it shows does not matter.
        scores: of `binned_scores` or `spread_scores`.
    """
    beliefs: FloatArray = np.eye(1, 2**task.slots)
    levels: list[Level] = []
    for _ in range(task.horizon - 3):
        following, order, kept = _next_level(beliefs, task.slots, scores.right)
        levels.append(Level(beliefs, following, order))
        beliefs = kept
    if task.horizon > 2:
        nothing = np.empty((len(beliefs), 0))
        levels.append(Level(beliefs, nothing.astype(np.int32), nothing.astype(np.uint16)))
    return BeliefTree(task, scores, tuple(levels))


@njit(cache=True)
def _next_level(beliefs: FloatArray, n_slots: int, right: FloatArray) -> Any:
    """Where each outcome leads, which order of slots that is listed in, and all next beliefs."""
    n_outcomes, size = 1 + n_slots * (len(right) + 1), beliefs.shape[1]
    following = np.empty((len(beliefs), n_outcomes), np.int32)
    order = np.empty((len(beliefs), n_outcomes), np.uint16)
    kept, n_kept = np.empty((64, size)), 0
    table = np.full(256, -1, np.int32)  # places of what is kept, by hash
    after, listed = np.empty(size), np.empty(size)
    ranked = np.empty(n_slots, np.int64)
    for i in range(len(beliefs)):
        for outcome in range(n_outcomes):
            _follow(beliefs[i], outcome, n_slots, right, after)
            order[i, outcome] = _put_in_order(after, ranked, listed)
            cell = _find(table, kept, listed)
            if table[cell] < 0:
                if n_kept == len(kept):
                    kept = np.concatenate((kept, np.empty_like(kept)))
                    table = np.full(4 * len(kept), -1, np.int32)
                    for k in range(n_kept):
                        table[_find(table, kept, kept[k])] = k
                    cell = _find(table, kept, listed)
                kept[n_kept] = listed
                table[cell] = n_kept
                n_kept += 1
            following[i, outcome] = table[cell]
    return following, order, kept[:n_kept].copy()


@njit(cache=True)
def _follow(
    belief: FloatArray, outcome: int, n_slots: int, right: FloatArray, after: FloatArray
) -> None:
    """Writes the belief after an outcome."""
    n_voice, size = n_slots * len(right), len(belief)
    if outcome > 0:
        is_voice = outcome <= n_voice
        slot = (outcome - 1) // len(right) if is_voice else outcome - 1 - n_voice
        chance = right[(outcome - 1) % len(right)] if is_voice else 1.0
        for v in range(size):
            both = belief[v] + belief[v ^ (1 << slot)]
            after[v] = both * (chance if v >> slot & 1 else 1 - chance)
        return
    rest = belief[:-1].sum()
    for v in range(size - 1):
        after[v] = belief[v] / rest if rest > 0 else 0.0  # nothing, where no denial can be
    after[size - 1] = 0.0


@njit(cache=True)
def _put_in_order(belief: FloatArray, ranked: IntArray, listed: FloatArray) -> int:
    """Writes a belief, rounded, with its slots sorted by their chance to be right.

    Returns which order of slots that is, counted as `itertools.permutations` does.
    """
    n_slots, size = len(ranked), len(belief)
    chance = np.empty(n_slots)
    for slot in range(n_slots):
        right = 0.0
        for v in range(size):
            right += belief[v] * (v >> slot & 1)
        right = np.floor(right * _STEPS + 0.5)
        place = slot
        while place > 0 and chance[place - 1] < right:
            chance[place], ranked[place] = chance[place - 1], ranked[place - 1]
            place -= 1
        chance[place], ranked[place] = right, slot
    for v in range(size):
        source = 0
        for place in range(n_slots):
            source |= (v >> place & 1) << ranked[place]
        listed[v] = np.floor(belief[source] * _STEPS + 0.5) / _STEPS
    order = 0
    for place in range(n_slots):
        smaller = 0
        for later in range(place + 1, n_slots):
            smaller += ranked[later] < ranked[place]
        order = order * (n_slots - place) + smaller
    return order


@njit(cache=True)
def _find(table: NDArray[np.int32], kept: FloatArray, belief: FloatArray) -> int:
    """The cell of a hash table that holds a belief, or that is free for it."""
    mixed = 1
    for v in range(len(belief)):
        share = int(belief[v] * _STEPS + 0.5)
        mixed = ((mixed ^ share) * 0x9E3779B97F4A7C1) & 0x3FFFFFFFFFFFFFFF
        mixed ^= mixed >> 29
    cell = mixed & (len(table) - 1)
    while table[cell] >= 0:
        v, there = 0, kept[table[cell]]
        while v < len(belief) and there[v] == belief[v]:
            v += 1
        if v == len(belief):
            break
        cell = (cell + 1) & (len(table) - 1)
    return cell


@dataclass(frozen=True, eq=False)
class TreePolicy(Policy):
    """The best acts for a price, at the belief that the scores seen so far make, at any budget."""

    tree: BeliefTree
    price: float
    acts: tuple[NDArray[np.int8], ...]  # [n] for each level

    budget_range = (0.0, 1.0)
    why_no_one_step_form = "keeps a belief"

    def start(self, states: ArrayLike, budgets: ArrayLike, rng: Randomness) -> _TreeTracker:
        """Starts `N` dialogues."""
        return _TreeTracker(self, budgets, episode_streams(rng, states))


def best_policy(tree: BeliefTree, price: float) -> tuple[Point, TreePolicy]:
    """Maximises reward - price * cost; returns (cost, reward) from the start, and the policy."""
    n_slots, scores = tree.task.slots, tree.scores
    values = np.zeros((1, 2))  # reward and cost from each belief of a turn
    if tree.task.horizon == 2:
        values[0] = _two_turns(np.eye(1, 2**n_slots)[0], n_slots, scores, price)[1:]
    acts: list[NDArray[np.int8]] = []
    for level in reversed(tree.levels):
        is_last = level is tree.levels[-1]
        act, values = (
            _three_turns(level.beliefs, n_slots, scores, price)
            if is_last
            else _more_turns(level, n_slots, scores, values, price)
        )
        acts.insert(0, act)
    reward, cost = values[0].tolist()
    return (cost, reward), TreePolicy(tree, price, tuple(acts))


@njit(cache=True)
def _two_turns(belief: FloatArray, n_slots: int, scores: Scores, price: float) -> Any:
    """Best act with two turns left, its reward and its cost: the last is a summary."""
    last, hang_up = len(belief) - 1, scores.hang_up
    act, reward, cost = 0, 100 * belief[last], 0.0
    for slot in range(n_slots):
        rest = belief[last] + belief[last ^ (1 << slot)]  # P(all others are right)
        voice, pad = 100 * (1 - scores.error_rate) * rest, 100 * (1 - hang_up) * rest
        if voice > reward - price * cost:
            act, reward, cost = 1 + slot, voice, 0.0
        if pad - price * hang_up > reward - price * cost:
            act, reward, cost = 1 + n_slots + slot, pad, hang_up
    return act, reward, cost


@njit(cache=True)
def _three_turns(beliefs: FloatArray, n_slots: int, scores: Scores, price: float) -> Any:
    """Best acts with three turns left, and their values."""
    n, last, n_bins = len(beliefs), beliefs.shape[1] - 1, len(scores.chance)
    acts, values, q = np.empty(n, np.int8), np.empty((n, 2)), np.empty((1 + 2 * n_slots, 2))
    denied = np.empty(last + 1)
    for i in range(n):
        b = beliefs[i]
        _follow(b, 0, n_slots, scores.right, denied)
        _, reward, cost = _two_turns(denied, n_slots, scores, price)
        q[0, 0], q[0, 1] = 100 * b[last] + (1 - b[last]) * reward, (1 - b[last]) * cost
        for slot in range(n_slots):
            one = last ^ (1 << slot)
            rest, fewer = b[last] + b[one], 0.0
            for other in range(n_slots):
                if other != slot:
                    two = b[last ^ (1 << other)] + b[one ^ (1 << other)]
                    fewer = max(fewer, rest + two)
            q[1 + slot] = 0.0
            for k in range(n_bins):
                reward, cost = _after_value(scores.right[k], rest, fewer, scores, price)
                q[1 + slot, 0] += scores.chance[k] * reward
                q[1 + slot, 1] += scores.chance[k] * cost
            reward, cost = _after_value(1.0, rest, fewer, scores, price)
            _ask_by_key_pad(q[1 + n_slots + slot], reward, cost, scores.hang_up)
        acts[i] = _best_of(q, price)
        values[i] = q[acts[i]]
    return acts, values


@njit(cache=True)
def _after_value(p: float, rest: float, fewer: float, scores: Scores, price: float) -> Any:
    """Reward and cost of the best two turns after a slot got a value.

    Args:
        p: P(the value is right).
        rest: P(all other slots are right).
        fewer: P(all but one of the others are right), for that one where it is highest.
        scores: with the chances that acts fail.
        price: of a hang-up.
    """
    voice, pad, hang_up = 1 - scores.error_rate, 1 - scores.hang_up, scores.hang_up
    reward, cost = 100 * max(p * rest, voice * p * fewer, voice * rest), 0.0
    dear = 100 * pad * max(p * fewer, rest)
    if dear - price * hang_up > reward:
        reward, cost = dear, hang_up
    return reward, cost


@njit(cache=True)
def _more_turns(level: Level, n_slots: int, scores: Scores, after: FloatArray, price: float) -> Any:
    """Best acts of a level, and their values, given those of the next level."""
    n, n_bins = len(level.beliefs), len(scores.chance)
    acts, values, q = np.empty(n, np.int8), np.empty((n, 2)), np.empty((1 + 2 * n_slots, 2))
    for i in range(n):
        right, following = level.beliefs[i, -1], level.following[i]
        q[0, 0] = 100 * right + (1 - right) * after[following[0], 0]
        q[0, 1] = (1 - right) * after[following[0], 1]
        for slot in range(n_slots):
            q[1 + slot] = 0.0
            for k in range(n_bins):
                place = following[1 + slot * n_bins + k]
                q[1 + slot, 0] += scores.chance[k] * after[place, 0]
                q[1 + slot, 1] += scores.chance[k] * after[place, 1]
            reward, cost = after[following[1 + n_slots * n_bins + slot]]
            _ask_by_key_pad(q[1 + n_slots + slot], reward, cost, scores.hang_up)
        acts[i] = _best_of(q, price)
        values[i] = q[acts[i]]
    return acts, values


@njit(cache=True)
def _ask_by_key_pad(q: FloatArray, reward: float, cost: float, hang_up: float) -> None:
    """Writes the values of a question by key pad, given those that follow if it is answered."""
    q[0], q[1] = (1 - hang_up) * reward, (1 - hang_up) * cost + hang_up


@njit(cache=True)
def _best_of(q: FloatArray, price: float) -> int:
    """The act of most reward - price * cost; the first of equals."""
    best = 0
    for act in range(1, len(q)):
        if q[act, 0] - price * q[act, 1] > q[best, 0] - price * q[best, 1]:
            best = act
    return best


def tree_frontier(tree: BeliefTree, *, tol: float = _TOL) -> Frontier:
    """Returns the frontier of all systems that hear such scores.

    Args:
        tree: of `belief_tree`.
        tol: what a vertex must gain over its chord, relative to the rewards.
    """
    ends = best_policy(tree, _HUGE_PRICE)[0], best_policy(tree, _TINY_PRICE)[0]
    return search_frontier(lambda price: best_policy(tree, price)[0], ends, tol=tol)


def frontier_bounds(task: SlotFilling, n_bins: int) -> tuple[Frontier, Frontier]:
    """Returns the frontier from below and from above.

    Args:
        task: its settings.
        n_bins: bins of scores, from 1 on. Time and memory grow with their fifth power.

    >>> below, above = frontier_bounds(SlotFilling(slots=1, horizon=3), 8)
    >>> [round(float(bound.reward_at(0.0)), 2) for bound in (below, above)]
    [47.73, 47.86]
    """
    binned = tree_frontier(belief_tree(task, binned_scores(task, n_bins)))
    return binned, tree_frontier(belief_tree(task, spread_scores(task, n_bins)))


def largest_gap(below: Frontier, above: Frontier) -> float:
    """Returns the most reward that can be missing from below, at any cost.

    That is the largest gap between both, and what the search over prices leaves out above.
    """
    costs = np.union1d(below.costs, above.costs).clip(below.costs[0], None)
    return float((above.reward_at(costs) - below.reward_at(costs)).max()) + _TOL * _LARGEST


def true_frontier(task: SlotFilling | None = None, *, n_bins: int | None = None) -> TrueFrontier:
    """Returns a frontier of slot-filling, from below.

    Args:
        task: its settings; the paper's if not given.
        n_bins: bins of scores. If not given, the frontier that is kept with the package, of the
            paper's settings and 16 bins; 4 bins with other settings.

    Returns:
        TrueFrontier. `reward_error` is the largest distance to the bound from above.

    >>> found = true_frontier(SlotFilling(slots=1, horizon=2), n_bins=2)  # one turn, then summary
    >>> found.frontier.costs.tolist(), found.frontier.rewards.round(9).tolist()
    ([0.0, 0.25], [40.0, 75.0])
    >>> known = true_frontier()
    >>> known.settings["n_bins"], round(float(known.frontier.reward_at(0.0)), 1)
    (16, 27.9)
    """
    settings = task or SlotFilling()
    if n_bins is None:
        kept = json.loads(resources.files(__package__).joinpath(KEPT).read_text())
        if kept["task"] == _rules(settings):
            found = Frontier(np.array(kept["costs"]), np.array(kept["rewards"]))
            how = {"n_bins": kept["n_bins"], "task": settings}
            return TrueFrontier(found, kept["reward_error"], how)
        n_bins = _COARSE
    below, above = frontier_bounds(settings, n_bins)
    how = {"n_bins": n_bins, "task": settings}
    return TrueFrontier(below, largest_gap(below, above), how)


def as_kept(task: SlotFilling, n_bins: int, bounds: tuple[Frontier, Frontier]) -> dict[str, Any]:
    """Returns plain data of a frontier that is kept with the package."""
    below, above = bounds
    return {
        "n_bins": n_bins,
        "task": _rules(task),
        "reward_error": largest_gap(below, above),
        "costs": below.costs.tolist(),
        "rewards": below.rewards.tolist(),
        "costs_above": above.costs.tolist(),
        "rewards_above": above.rewards.tolist(),
    }


def _rules(task: SlotFilling) -> dict[str, Any]:
    """All settings but what is shown, which makes no difference to the best."""
    return {name: value for name, value in asdict(task).items() if name != "features"}


class _TreeTracker(EpisodeTracker[TreePolicy]):
    """Dialogues, with the belief of each and the order in which the tree lists its slots."""

    def __init__(self, policy: TreePolicy, budgets: ArrayLike, streams: EpisodeStreams) -> None:
        super().__init__(policy, budgets, streams)
        n_slots = policy.tree.task.slots
        self._place: IntArray = np.zeros(len(streams), np.int64)  # among the beliefs of a level
        self._belief: FloatArray = np.eye(1, 2**n_slots).repeat(len(streams), axis=0)
        self._order: IntArray = np.tile(np.arange(n_slots), (len(streams), 1))

    def _decide(self, states: NDArray[Any]) -> Decisions:
        self._act = self._chosen()
        self._find_slots()
        action = np.where(self._act == 0, 0, self._act - self._listed + self._slot[:, 0])
        return idle_decisions(self._budgets)._replace(action=action)

    def _find_slots(self) -> None:
        """Finds which slots the acts are about: as the tree lists them, and by their numbers."""
        self._listed = (self._act - 1) % self._policy.tree.task.slots
        self._slot = np.take_along_axis(self._order, self._listed[:, None], axis=1)

    def _own_state(self) -> dict[str, Any]:
        return {
            "place": self._place.tolist(),
            "belief": plain_numbers(self._belief),
            "order": self._order.tolist(),
            "act": self._act.tolist() if self._has_decided else None,
        }

    def _take_over(self, kept: StateReader) -> None:
        n, n_slots, acts = len(self._streams), self._policy.tree.task.slots, self._policy.acts
        level = min(self._step - self._has_decided, len(acts) - 1)
        last = len(acts[level]) - 1 if acts else 0
        self._place = kept.whole_numbers("place", (n,), 0, last)
        self._belief = kept.numbers("belief", (n, 2**n_slots))
        self._order = kept.whole_numbers("order", (n, n_slots), 0, n_slots - 1)
        if (np.sort(self._order, axis=1) != np.arange(n_slots)).any():
            raise refusal('state["order"]', "permutations of slots", self._order.tolist())
        if self._has_decided:
            self._act = kept.whole_numbers("act", (n,), 0, 2 * n_slots)
            self._find_slots()
        elif kept.item("act") is not None:
            raise refusal('state["act"]', "null before a decision", kept.item("act"))

    def _chosen(self) -> IntArray:
        """The act of each dialogue, with slots as the tree lists them."""
        policy, task = self._policy, self._policy.tree.task
        if self._step < len(policy.acts):
            return policy.acts[self._step][self._place].astype(np.int64)
        if self._step == task.horizon - 2:
            how = task.slots, policy.tree.scores, policy.price
            return np.array([_two_turns(belief, *how)[0] for belief in self._belief], np.int64)
        return np.zeros(len(self._place), np.int64)

    def _observe(self, costs: FloatArray, next_states: NDArray[Any], ended: BoolArray) -> None:
        tree, n_slots = self._policy.tree, self._policy.tree.task.slots
        if self._step > len(tree.levels):
            return
        level, n_bins = tree.levels[self._step - 1], len(tree.scores.chance)
        scores = next_states[:, n_slots : 2 * n_slots]
        score = np.take_along_axis(scores, self._slot, axis=1)[:, 0].clip(1e-300, 1 - 1e-16)
        heard = np.searchsorted(tree.scores.edges, np.log(score) - np.log1p(-score))
        voice, pad = 1 + self._listed * n_bins + heard, 1 + n_slots * n_bins + self._listed
        which = np.where(self._act == 0, 0, np.where(self._act <= n_slots, voice, pad))
        if level is tree.levels[-1]:
            for n, (place, outcome) in enumerate(zip(self._place, which, strict=True)):
                belief = level.beliefs[place]
                _follow(belief, outcome, n_slots, tree.scores.right, self._belief[n])
            return
        orders = np.array(list(itertools.permutations(range(n_slots))))
        order = orders[level.order[self._place, which]]
        self._order = np.take_along_axis(self._order, order, axis=1)
        self._place = level.following[self._place, which].astype(np.int64)


def play(policy: TreePolicy, *, n_episodes: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Plays the policy of binned scores in the real task; returns rewards and costs `[N]`."""
    task = replace(policy.tree.task, features="paper")  # which shows the scores
    how: dict[str, Any] = {"n_episodes": n_episodes, "seed": seed}
    return play_task(policy, task, stream="slot-filling/tree", **how)
