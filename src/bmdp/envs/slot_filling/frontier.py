"""The true frontier of slot-filling, from below, by dynamic programming over beliefs.

Scores are put into bins of equal probability, and the system is told the bin only. Then there are
finitely many beliefs (probabilities of each combination of right and wrong slots), up to the order
of the slots. A system that sees bins can be played in the real task, so its frontier is a true
lower bound, which rises as bins are halved. The last turn is a summary: nothing else can pay.

Each level of beliefs is listed once, forwards; then every price on hang-ups is solved backwards,
and the frontier found by search over the price.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

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
from bmdp.randomness import EpisodeStreams

_DIGITS = 12  # beliefs that agree to so many are the same
_TINY_PRICE, _HUGE_PRICE = 1e-7, 1e9  # stand for the ends of the frontier


@dataclass(frozen=True, eq=False)
class Level:
    """All beliefs that can be held at one turn, and where each act leads."""

    beliefs: FloatArray  # [n, 2**slots]
    following: IntArray  # [n, outcomes], among the beliefs of the next turn
    order: IntArray  # [n, outcomes], which order of slots the next belief is listed in


@dataclass(frozen=True, eq=False)
class BeliefTree:
    """The task as seen through bins of scores."""

    task: SlotFilling
    edges: FloatArray  # [bins - 1], of the normal number behind a score
    bin_chance: FloatArray  # [bins]
    levels: tuple[Level, ...]  # one for each turn but the last
    last: FloatArray  # [n], P(all right) of the beliefs of the last turn

    @property
    def n_beliefs(self) -> int:
        """Number of beliefs at all turns."""
        return sum(len(level.beliefs) for level in self.levels) + len(self.last)


def belief_tree(task: SlotFilling, n_bins: int) -> BeliefTree:
    """Lists the beliefs of a task, turn by turn.

    Args:
        task: its settings; what it shows does not matter.
        n_bins: number of bins of scores, from 1 on.
    """
    if n_bins < 1:
        raise ConfigError(f"n_bins must be from 1 on; got {n_bins}.")
    edges, chance, right = score_bins(task, n_bins)
    beliefs: FloatArray = np.eye(1, 2**task.slots)
    levels: list[Level] = []
    for turn in range(task.horizon - 1):
        if turn == task.horizon - 2:
            last = _all_right(beliefs, task.slots, right)
            places = np.arange(last.size).reshape(last.shape)
            levels.append(Level(beliefs, places, np.zeros_like(places)))
            return BeliefTree(task, edges, chance, tuple(levels), last.ravel())
        after = _outcomes(beliefs, task.slots, right)  # [n, outcomes, 2**slots]
        n, _, size = after.shape
        listed, order = _in_order(after.reshape(-1, size), task.slots)
        kept, following = np.unique(listed.round(_DIGITS), axis=0, return_inverse=True)
        levels.append(Level(beliefs, following.reshape(n, -1), order.reshape(n, -1)))
        beliefs = kept
    return BeliefTree(task, edges, chance, (), beliefs[:, -1])


def score_bins(task: SlotFilling, n_bins: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Edges `[bins - 1]` of bins of equal chance, their chance, and P(right | bin).

    Bins are equally likely, so that twice as many are the same bins halved.
    """
    spread = 12 * task.std
    low, high = (
        f(task.mean_wrong, task.mean_right) + s for f, s in ((min, -spread), (max, spread))
    )

    def mass(x: Any) -> tuple[Any, Any]:
        wrong = task.error_rate * ndtr((x - task.mean_wrong) / task.std)
        return wrong, (1 - task.error_rate) * ndtr((x - task.mean_right) / task.std)

    wanted = np.arange(1, n_bins) / n_bins
    left, right = np.full(n_bins - 1, low), np.full(n_bins - 1, high)
    for _ in range(100):
        middle = (left + right) / 2
        below = sum(mass(middle)) < wanted
        left, right = np.where(below, middle, left), np.where(below, right, middle)
    edges = (left + right) / 2
    borders = np.concatenate(([-np.inf], edges, [np.inf]))
    wrong_mass, right_mass = (np.diff(m) for m in mass(borders))
    chance = wrong_mass + right_mass
    return edges, chance, right_mass / np.where(chance > 0, chance, 1)


def _outcomes(beliefs: FloatArray, n_slots: int, bin_right: FloatArray) -> FloatArray:
    """Beliefs after a denial, after each slot in each bin, and after each slot by key pad."""
    denied = beliefs.copy()
    denied[:, -1] = 0
    total = denied.sum(axis=1, keepdims=True)
    # Nothing is left where a denial cannot be.
    found: list[FloatArray] = [denied / np.where(total > 0, total, 1)]
    for slot in range(n_slots):
        found += [_replaced(beliefs, slot, chance) for chance in bin_right]
    found += [_replaced(beliefs, slot, 1.0) for slot in range(n_slots)]
    return np.stack(found, axis=1)


def _all_right(beliefs: FloatArray, n_slots: int, bin_right: FloatArray) -> FloatArray:
    """P(all right) after each outcome, `[n, outcomes]`: the last column of `_outcomes`."""
    last = beliefs.shape[1] - 1
    both = np.stack(
        [beliefs[:, last] + beliefs[:, last ^ (1 << slot)] for slot in range(n_slots)], axis=1
    )
    voice = (both[:, :, None] * bin_right).reshape(len(beliefs), -1)
    return np.concatenate((np.zeros((len(beliefs), 1)), voice, both), axis=1)


def _replaced(beliefs: FloatArray, slot: int, chance: float) -> FloatArray:
    """Beliefs with a new value in one slot, which is right with some probability."""
    combinations = np.arange(beliefs.shape[1])
    both = beliefs + beliefs[:, combinations ^ (1 << slot)]
    return both * np.where(combinations >> slot & 1, chance, 1 - chance)


def _orders(n_slots: int) -> list[IntArray]:
    """For each order of the slots, where each combination stands when they are listed so."""
    combinations = np.arange(2**n_slots)
    bits = combinations[:, None] >> np.arange(n_slots) & 1
    return [
        (bits[:, list(order)] << np.arange(n_slots)).sum(axis=1)
        for order in itertools.permutations(range(n_slots))
    ]


def _in_order(beliefs: FloatArray, n_slots: int) -> tuple[FloatArray, IntArray]:
    """Each belief with its slots sorted by their chance to be right, and which order that is."""
    combinations = np.arange(beliefs.shape[1])
    marginal = np.stack(
        [beliefs[:, combinations >> slot & 1 == 1].sum(axis=1) for slot in range(n_slots)], axis=1
    )
    ranked = np.argsort(-marginal.round(_DIGITS), axis=1, kind="stable")
    permutations = np.array(list(itertools.permutations(range(n_slots))))
    order = (ranked[:, None, :] == permutations[None]).all(axis=2).argmax(axis=1)
    sources = np.stack([np.argsort(places) for places in _orders(n_slots)])
    return np.take_along_axis(beliefs, sources[order], axis=1), order


def best_acts(tree: BeliefTree, price: float) -> tuple[Point, list[IntArray]]:
    """Maximises reward - price * cost; returns (cost, reward) at the start, and acts by level."""
    v_r, v_c = 100 * tree.last, np.zeros(len(tree.last))
    acts: list[IntArray] = []
    for level in reversed(tree.levels):
        q_r, q_c = _act_values(tree, level, v_r, v_c)
        act = (q_r - price * q_c).argmax(axis=1)
        rows = np.arange(len(act))
        v_r, v_c = q_r[rows, act], q_c[rows, act]
        acts.insert(0, act)
    return (float(v_c[0]), float(v_r[0])), acts


def _act_values(
    tree: BeliefTree, level: Level, v_r: FloatArray, v_c: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Rewards and costs of all acts at all beliefs of a level, each `[n, acts]`."""
    task, n_bins = tree.task, len(tree.bin_chance)
    n, all_right = len(level.beliefs), level.beliefs[:, -1]
    values = []
    for v, success, hang_up in ((v_r, 100.0, 0.0), (v_c, 0.0, 1.0)):
        after = v[level.following]
        summary = success * all_right + (1 - all_right) * after[:, 0]
        voice = after[:, 1 : 1 + task.slots * n_bins].reshape(n, task.slots, n_bins)
        pad = (1 - task.hang_up) * after[:, 1 + task.slots * n_bins :] + task.hang_up * hang_up
        values.append(np.concatenate((summary[:, None], voice @ tree.bin_chance, pad), axis=1))
    return values[0], values[1]


def tree_frontier(tree: BeliefTree, *, tol: float = 1e-9) -> Frontier:
    """Returns the frontier of all systems that see bins of scores."""
    ends = best_acts(tree, _HUGE_PRICE)[0], best_acts(tree, _TINY_PRICE)[0]
    return search_frontier(lambda price: best_acts(tree, price)[0], ends, tol=tol)


def true_frontier(task: SlotFilling | None = None, *, n_bins: int = 4) -> TrueFrontier:
    """Returns a frontier of slot-filling, from below.

    Args:
        task: its settings; the paper's if not given.
        n_bins: bins of scores, an even number so that it can be compared with half as many.

    Returns:
        TrueFrontier. `reward_error` is the largest gain in reward from half as many bins to these:
        the next halving gains less.

    >>> found = true_frontier(SlotFilling(slots=1, horizon=2), n_bins=2)  # one turn, then summary
    >>> found.frontier.costs.tolist(), found.frontier.rewards.round(9).tolist()
    ([0.0, 0.25], [40.0, 75.0])
    """
    settings = task or SlotFilling()
    if n_bins < 2 or n_bins % 2:
        raise ConfigError(f"n_bins must be even, from 2 on; got {n_bins}.")
    half, full = (tree_frontier(belief_tree(settings, n)) for n in (n_bins // 2, n_bins))
    costs = np.linspace(full.costs[0], full.costs[-1], 101)
    inside = np.clip(costs, half.costs[0], None)
    gain = float((full.reward_at(np.maximum(costs, full.costs[0])) - half.reward_at(inside)).max())
    return TrueFrontier(full, gain, {"n_bins": n_bins, "task": settings})


@dataclass(frozen=True, eq=False)
class TreePolicy(Policy):
    """Plays acts of a tree at the belief that the scores seen so far make, at any budget."""

    tree: BeliefTree
    acts: list[IntArray]  # of `best_acts`

    budget_range = (0.0, 1.0)
    why_no_one_step_form = "keeps a belief"

    def start(self, states: ArrayLike, budgets: ArrayLike, rng: Randomness) -> _TreeTracker:
        """Starts `N` dialogues."""
        return _TreeTracker(self, budgets, episode_streams(rng, states))


class _TreeTracker(EpisodeTracker[TreePolicy]):
    """Dialogues, with the belief of each and the order in which the tree lists its slots."""

    def __init__(self, policy: TreePolicy, budgets: ArrayLike, streams: EpisodeStreams) -> None:
        super().__init__(policy, budgets, streams)
        self._belief: IntArray = np.zeros(len(streams), np.int64)
        self._order = np.tile(np.arange(policy.tree.task.slots), (len(streams), 1))

    def _decide(self, states: NDArray[Any]) -> Decisions:
        tree, acts = self._policy.tree, self._policy.acts
        is_last = self._step >= len(tree.levels)
        self._act = np.zeros_like(self._belief) if is_last else acts[self._step][self._belief]
        self._listed = (self._act - 1) % tree.task.slots
        self._slot = np.take_along_axis(self._order, self._listed[:, None], axis=1)
        action = np.where(self._act == 0, 0, self._act - self._listed + self._slot[:, 0])
        return idle_decisions(self._budgets)._replace(action=action)

    def _observe(self, costs: FloatArray, next_states: NDArray[Any], ended: BoolArray) -> None:
        tree, n_slots = self._policy.tree, self._policy.tree.task.slots
        if self._step > len(tree.levels):
            return
        level, n_bins = tree.levels[self._step - 1], len(tree.bin_chance)
        scores = next_states[:, n_slots : 2 * n_slots]
        score = np.take_along_axis(scores, self._slot, axis=1)[:, 0].clip(1e-300, 1 - 1e-16)
        heard = np.searchsorted(tree.edges, np.log(score) - np.log1p(-score))
        voice, pad = 1 + self._listed * n_bins + heard, 1 + n_slots * n_bins + self._listed
        which = np.where(self._act == 0, 0, np.where(self._act <= n_slots, voice, pad))
        orders = np.array(list(itertools.permutations(range(n_slots))))
        order = orders[level.order[self._belief, which]]
        self._order = np.take_along_axis(self._order, order, axis=1)
        self._belief = level.following[self._belief, which]


def play(
    tree: BeliefTree, acts: list[IntArray], *, n_episodes: int, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Plays acts of a tree in the real task; returns rewards and costs `[N]` of dialogues."""
    task = replace(tree.task, features="paper")  # which shows the scores
    how: dict[str, Any] = {"n_episodes": n_episodes, "seed": seed}
    return play_task(TreePolicy(tree, acts), task, stream="slot-filling/tree", **how)
