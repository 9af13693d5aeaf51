"""A forest with kept structure: extremely randomised trees whose leaves hold all heads.

The trees of each member and action are grown on what followed the rows: reward, cost, whether it
was the end, and the change of the state (Geurts, Ernst and Wehenkel, 2006). Splits are then kept,
and a fit is a mean of targets over leaves. Trees jump where rewards and costs do, at borders that a
smooth kernel blurs.

Each tree is grown on a sample of the rows, so that borders differ from tree to tree and their mean
is smoother; its leaves then hold the means of all rows. Where rows repeat, states are few, and all
rows are shown, as a rare one may be the only one of its state.

What follows at once does not tell of all that follows: whether an overtaking ends well shows some
steps later. Trees may be grown anew on what the first ones expect, reward and cost with the value
of the next state (`ForestModel.regrown`). Splits are then made where values jump, too.

How many rows a leaf has at least is chosen by rows that trees were not grown on: the error of what
is forecast for them by nodes of so many rows.

The leaves of a row are a list of numbers. A look at values is a mean over rows of a table, and a
fit adds targets to them.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.checks import require_count
from bmdp.errors import StoreError
from bmdp.kinds import checked
from bmdp.models.descent import descended, has_kernel
from bmdp.models.regressor import (
    Averager,
    Part,
    Problem,
    Scaling,
    Sizes,
    Sum,
    cover,
    register_regressor,
    weighed,
    whole,
)
from bmdp.workers import in_threads, n_threads

LEAVES = (1, 3, 10, 30, 100)
"""Numbers of rows of a leaf to choose from; the first one only where rows repeat."""

_SHARE = 0.7  # rows that are drawn for a tree, with replacement, as a share of all
_TRIES = 4  # splits that are tried at a node, at least
_MOST_BYTES = 2**29  # of the values of a member, about
_ROWS_OF_LEAF = 4  # rows that a leaf has, about, for each that it has at least
_LOOKED_UP = 2**22  # leaves that are looked up at a time, on a GPU
_LEVELS = 6  # that are gone down before it is looked who is in a leaf, on a GPU
_BLOCK = 256  # states that go down a tree at a time
_N_JUDGING = 8  # trees by which the size of leaves is chosen
_MOST_JUDGING = 3000  # rows of an action by which it is chosen, at most
_ALONE = 2000  # rows that are grown on by one thread
_OF_CHANGES, _OF_EXPECTED = 2.0, 4.0  # weights of outcomes; a reward has 1
_NODES = ("feature", "threshold", "child", "leaf_of")


@checked
@register_regressor
@dataclass(frozen=True)
class ForestModel:
    """Extremely randomised trees with kept structure.

    Args:
        trees: for each action.
        leaf: rows of a leaf, at least, of those that its tree is grown on; chosen by held-out error
            if not given.
        regrown: whether trees are grown anew on what the first ones expect to follow. It takes
            twice as long.

    >>> from bmdp import BFTQ, BFTQConfig, TransitionBatch
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> config = BFTQConfig(gamma=0.9, model=ForestModel(), ensemble=1)
    >>> frontier = BFTQ(config).fit(log, seed=0).frontier([0])
    >>> frontier.costs.round(6).tolist(), frontier.rewards.round(6).tolist()
    ([0.0, 1.0], [0.0, 10.0])
    """

    trees: int = 25
    leaf: int | None = None
    regrown: bool = False

    def __post_init__(self) -> None:
        require_count("trees", self.trees, 1)
        if self.leaf is not None:
            require_count("leaf", self.leaf, 1)

    def empty(self, sizes: Sizes) -> ForestQ:
        """Returns forests of a single leaf, whose value is 0."""
        return ForestQ(self, sizes)


class ForestQ(Averager):
    """Means of targets over the leaves of trees. A leaf is its own child."""

    common = frozenset({"centre", "scale"})
    constant = frozenset(_NODES)
    weighs_rows = True

    settings: ForestModel
    centre: Tensor  # [D], of states
    scale: Tensor  # [D], of states
    feature: Tensor  # [E, A, T, K], number of the state that a node splits by
    threshold: Tensor  # [E, A, T, K], of scaled states: at most this goes left
    child: Tensor  # [E, A, T, K, 2], left and right
    leaf_of: Tensor  # [E, A, T, K], number of a leaf among the rows of `values`; 0 of other nodes
    values: Tensor  # [E, S, R, 2, H], float32; rows are the leaves of all trees of all actions

    def __init__(self, settings: ForestModel, sizes: Sizes) -> None:
        """Makes trees of a single leaf."""
        super().__init__(settings, sizes)
        self._depth: tuple[Tensor, int] | None = None
        self._compiled: tuple[Tensor, tuple[NDArray[Any], ...]] | None = None
        for name, value in {"centre": 0.0, "scale": 1.0}.items():
            self.register_buffer(name, torch.full((sizes.n_numbers,), value, dtype=torch.float64))
        shape = (sizes.n_members, sizes.n_actions, settings.trees, 1)
        self.register_buffer("feature", torch.zeros(shape, dtype=torch.int32))
        self.register_buffer("threshold", torch.zeros(shape, dtype=torch.float32))
        self.register_buffer("child", torch.zeros((*shape, 2), dtype=torch.int32))
        self.register_buffer("leaf_of", torch.zeros(shape, dtype=torch.int32))
        self._set_values(1)

    def _set_values(self, n_leaves: int) -> None:
        n_members, n_steps, _, _, heads = self.sizes
        shape = (n_members, n_steps, n_leaves, 2, len(heads))
        self.register_buffer("values", torch.zeros(shape, device=self.feature.device))

    def build(self, problem: Problem) -> None:
        """Grows the trees."""
        by = Scaling.of(problem.states, problem.weights)
        self.centre[:], self.scale[:] = torch.from_numpy(by.centre), torch.from_numpy(by.scale)
        rows = ((problem.states - by.centre) / by.scale).astype(np.float32)
        outcomes = scaled_outcomes(problem.outcomes, problem.weights, problem.expected)
        self.leaf = self.settings.leaf or max(
            chosen_leaf(problem, rows, outcomes), self._least_leaf(len(rows))
        )
        self._grow(problem, rows, outcomes)

    def _least_leaf(self, n_rows: int) -> int:
        """The least size of leaves whose values are not too large for memory and files."""
        n_trees, n_values = self.settings.trees, 2 * len(self.sizes.heads) * self.sizes.n_steps
        leaves = _MOST_BYTES / (4 * n_values)
        return math.ceil(n_trees * n_rows / (_ROWS_OF_LEAF * leaves))

    def _grow(self, problem: Problem, rows: NDArray[Any], outcomes: FloatArray) -> None:
        grown = [
            [
                trees_of(
                    rows[own],
                    outcomes[own],
                    None if problem.weights is None else problem.weights[own],
                    n_trees=self.settings.trees,
                    leaf=self.leaf,
                    seed=int(problem.generator(f"trees/{e}").integers(2**31)),
                )
                for a in range(self.sizes.n_actions)
                for own in [np.flatnonzero(members & (problem.actions == a))]
            ]
            for e, members in enumerate(problem.members)
        ]
        size = max(len(tree.feature) for own in grown for trees in own for tree in trees)
        shape = (self.sizes.n_members, self.sizes.n_actions, self.settings.trees, size)
        feature, leaf_of = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        threshold = np.zeros(shape, np.float32)
        child = np.zeros((*shape, 2), np.int32)
        child += np.arange(size, dtype=np.int32)[:, None]  # all leaves at first
        first = np.zeros(shape[:3], np.int32)
        most = 0
        for e, own in enumerate(grown):
            n_leaves = 0
            for a, trees in enumerate(own):
                for t, tree in enumerate(trees):
                    nodes, is_leaf = np.arange(len(tree.feature)), tree.children_left < 0
                    place = (e, a, t, nodes)
                    feature[place] = np.where(is_leaf, 0, tree.feature)
                    threshold[place] = np.where(is_leaf, 0, _rounded_down(tree.threshold))
                    for side, to in enumerate((tree.children_left, tree.children_right)):
                        child[(*place, side)] = np.where(is_leaf, nodes, to)
                    first[e, a, t] = n_leaves
                    leaf_of[e, a, t, nodes[is_leaf]] = n_leaves + np.arange(is_leaf.sum())
                    n_leaves += int(is_leaf.sum())
            most = max(most, n_leaves)
        for name, array in zip(_NODES, (feature, threshold, child, leaf_of), strict=True):
            self.register_buffer(name, torch.from_numpy(array).to(self.feature.device))
        self._first = torch.from_numpy(first).to(self.feature.device)  # leaf of each tree
        self._set_values(most)

    def embed(self, states: Tensor) -> Tensor:
        """Leaves of states in all trees, `[n, E, A, T]`, int32."""
        rows = self._scaled(states)
        if has_kernel(rows):
            trees = torch.arange(self._n_trees, dtype=torch.int32, device=rows.device)
            found = descended(rows, trees.new_zeros(len(rows)), trees, self._nodes(), self.depth)
        else:
            found = _leaves(rows, self._nodes())
        return found.view(-1, *self.feature.shape[:3])

    def embed_own(self, states: Tensor, actions: Tensor) -> Tensor:
        """Leaves of the trees of the actions that were taken, `[n, E, T]`."""
        n_members, n_actions, n_trees, _ = self.feature.shape
        rows = self._scaled(states)
        if has_kernel(rows):
            trees = torch.arange(self._n_trees, dtype=torch.int32, device=rows.device)
            first = trees.view(n_members, n_actions, n_trees)[:, 0].flatten()
            shift = (actions * n_trees).int()
            found = descended(rows, shift, first, self._nodes(), self.depth)
            return found.view(-1, n_members, n_trees)
        shape = (len(rows), n_members, n_trees)
        found = torch.empty(shape, dtype=torch.int32, device=rows.device)
        for action in range(n_actions):
            own = torch.nonzero(actions == action)[:, 0]
            leaves = _leaves(rows[own], self._nodes(slice(action, action + 1)))
            found[own] = leaves.view(-1, n_members, n_trees)
        return found

    def _scaled(self, states: Tensor) -> Tensor:
        """States as trees are shown them, float32."""
        rows = ((states - self.centre) / self.scale).float()
        return rows if rows.shape[1] else rows.new_zeros((len(rows), 1))  # nothing to split by

    def _nodes(self, actions: slice = slice(None)) -> tuple[Tensor, ...]:
        """Nodes of the trees of some actions; their first axes are one."""
        return tuple(getattr(self, name)[:, actions].flatten(0, 2) for name in _NODES)

    @property
    def _n_trees(self) -> int:
        return self.feature[..., 0].numel()

    @property
    def depth(self) -> int:
        """Levels of the deepest tree, found once for the nodes that there are."""
        known, child = self._depth, self.child
        if known is None or known[0] is not child:
            known = self._depth = child, _depth_of(child.flatten(0, 2).cpu().numpy())
        return known[1]

    def leaf_rows(self, rows: FloatArray) -> IntArray | None:
        """Leaves of few rows in the trees of the only forest, `[n, A, T]`: those of `embed`.

        (torch takes longer to be called than one row takes. At many rows it is faster.)
        """
        n_members, _, n_actions, n_numbers, _ = self.sizes
        is_few = len(rows) <= _BLOCK and n_members == 1 and n_numbers > 0
        if not is_few or self.child.device.type != "cpu":
            return None
        known = self._compiled
        if known is None or known[0] is not self.child:
            known = self._compiled = self.child, tuple(part.numpy() for part in self._nodes())
        with np.errstate(over="ignore"):  # far beyond the data all numbers are alike
            scaled = ((rows - self.centre.numpy()) / self.scale.numpy()).astype(np.float32)
        leaves = np.empty((len(rows), n_actions, self.settings.trees), np.int32)
        feature, threshold, child, leaf_of = known[1]
        found_in = leaves.reshape(len(rows), n_actions * self.settings.trees)
        _find_leaves(scaled, feature, threshold, child, leaf_of, found_in)
        return leaves

    def read_rows(self, rows: FloatArray, step: int) -> NDArray[Any] | None:
        """Values of the only forest at few rows, by one compiled loop: those of `read`, to the bit.

        None if the rows are many.
        """
        leaves = self.leaf_rows(rows)
        if leaves is None:
            return None
        n_heads = len(self.sizes.heads)
        table = self.values[0, step].numpy().reshape(-1, 2 * n_heads)
        found = np.empty((*leaves.shape[:2], 2 * n_heads), np.float32)
        _add_up(leaves, table, found)
        return found.reshape(*leaves.shape[:2], 2, n_heads).swapaxes(1, 2)

    def own(self, embedded: Tensor, actions: Tensor) -> Tensor:
        """Leaves of the trees of the actions that were taken, `[n, E, T]`."""
        which = actions[:, None, None, None].expand(-1, embedded.shape[1], 1, embedded.shape[3])
        return embedded.gather(2, which)[:, :, 0]

    def packed(self, embedded: Tensor) -> Tensor:
        """Numbers of leaves within their trees, in two bytes if these have so few."""
        return _small(embedded - self._first)

    def unpacked(self, kept: Tensor) -> Tensor:
        """Numbers of leaves among all, `[n, E, A, T]`."""
        return _large(kept) + self._first

    def packed_own(self, rows: Tensor, actions: Tensor) -> Tensor:
        """The same for leaves of the trees of some actions, `[n, E, T]`."""
        return _small(rows - self._first[:, actions].transpose(0, 1))

    def unpacked_own(self, kept: Tensor, actions: Tensor) -> Tensor:
        """Numbers of leaves of the trees of some actions among all, `[n, E, T]`."""
        return _large(kept) + self._first[:, actions].transpose(0, 1)

    def grams(self, found: Sum, step: int, member: int, part: Part, scale: float) -> Tensor:
        """Weight of each leaf, `[R, 1]`."""
        return self._added(
            found, member, part, whole(torch.ones_like(part.actions), scale)[:, None]
        )

    def moments(
        self, found: Sum, step: int, member: int, part: Part, values: Tensor, scale: float
    ) -> Tensor:
        """Sums of targets of each leaf, `[R, 2 * H]`."""
        return self._added(found, member, part, whole(values.flatten(1), scale))

    def _added(self, found: Sum, member: int, part: Part, values: Tensor) -> Tensor:
        """Sums of whole numbers `[n, K]` of each leaf, `[R, K]`."""
        if found is None:
            found = values.new_zeros((self.values.shape[2], values.shape[1]))
        values, leaves = weighed(values, part.weights), part.rows[:, member]
        if values.device.type == "cpu":
            added_to_leaves(leaves.T.contiguous().numpy(), values.numpy(), found.numpy())
        else:
            for tree in leaves.T:
                found.index_add_(0, tree.long(), values)
        return found

    def solve(self, step: int, sums: list[tuple[Tensor, Tensor]]) -> None:
        """Takes means over leaves; a leaf without rows has the mean of all."""
        for member, (weight, total) in enumerate(sums):
            means = total / weight.clamp(min=1)
            mean = total.sum(0) / weight.sum().clamp(min=1)  # each row is in a leaf of every tree
            means[weight[:, 0] == 0] = mean
            self.values[member, step] = means.view(-1, *self.values.shape[3:]).float()

    def read_member(self, member: int, embedded: Tensor, step: int) -> Tensor:
        """Values of one forest, `[n, 2, A, H]`."""
        leaves = embedded[:, member]  # [n, A, T]
        found = self._means(leaves.flatten(0, 1), member, step)
        return found.view(*leaves.shape[:2], *self.values.shape[3:]).transpose(1, 2)

    def read_own(self, member: int, rows: Tensor, actions: Tensor, step: int) -> Tensor:
        """Values of one forest for the action of each row, `[n, 2, H]`."""
        return self._means(rows[:, member], member, step).view(-1, *self.values.shape[3:])

    def _means(self, leaves: Tensor, member: int, step: int) -> Tensor:
        """Means of the values of leaves `[n, T]`, `[n, 2 * H]`."""
        table = self.values[member, step].flatten(1)
        return embedding_bag(leaves.contiguous(), table, mode="mean")

    def check(self) -> None:
        """Checks that every path ends in a leaf that has a value.

        Raises:
            StoreError: if not.
        """
        n_members, n_steps, n_actions, n_numbers, heads = self.sizes
        if self.feature.ndim != 4 or self.values.ndim != 5 or not self.values.numel():
            raise StoreError("ForestQ: its nodes do not make trees.")
        size, n_leaves = self.feature.shape[3], self.values.shape[2]
        shape = n_members, n_actions, self.settings.trees, size
        self.require_scaling()
        self.require("feature", shape, 0, max(1, n_numbers) - 1)
        self.require("threshold", shape)
        self.require("child", (*shape, 2), 0, size - 1)
        self.require("leaf_of", shape, 0, n_leaves - 1)
        self.require("values", (n_members, n_steps, n_leaves, 2, len(heads)))
        nodes = torch.arange(size, device=self.child.device)[:, None]
        goes_on = self.child != nodes
        is_one = goes_on.all(-1) | ~goes_on.any(-1)  # a node or a leaf
        if not (is_one.all() and ((self.child > nodes) | ~goes_on).all()):
            raise StoreError("ForestQ: its nodes do not make trees: children must follow parents.")


def scaled_outcomes(
    outcomes: FloatArray, weights: FloatArray | None, expected: FloatArray | None = None
) -> FloatArray:
    """Outcomes `[N, K]`, whatever their units; those that are always the same are left out.

    Reward, cost and end count once each. All changes of the state together count twice, however
    many numbers it has, and all that is expected to follow counts four times.
    """
    every = outcomes if expected is None else np.column_stack((outcomes, expected))
    by = Scaling.of(every, weights)
    varies = np.ptp(every, axis=0) > 1e-12 * np.abs(every).max(axis=0, initial=0)
    # Rounded, so that trees do not change with the last digits, which change with the unit.
    scaled: FloatArray = np.round((every - by.centre) / by.scale, 6)
    n = outcomes.shape[1]
    for part, share in ((slice(3, n), _OF_CHANGES), (slice(n, None), _OF_EXPECTED)):
        scaled[:, part] *= (share / max(1, int(np.count_nonzero(varies[part])))) ** 0.5
    return scaled[:, varies]


def chosen_leaf(problem: Problem, rows: NDArray[Any], outcomes: FloatArray) -> int:
    """The size of leaves that forecasts held-out outcomes well, for all actions together.

    Trees with the smallest leaves are grown on two thirds of some rows of each action. A larger
    leaf is the last node on the way to one that has so many rows. Of the sizes that are not clearly
    worse than the best one it is the smallest: what is averaged cannot be told apart any more.
    """
    errors, counts = [np.zeros((len(LEAVES), 0))], [np.zeros(0)]
    for action in range(problem.sizes.n_actions):
        rng = problem.generator("leaf")
        own = rng.permutation(np.flatnonzero(problem.actions == action))
        some = np.sort(own[:_MOST_JUDGING])
        count = np.ones(len(some)) if problem.weights is None else problem.weights[some]
        shown = rng.binomial(count.astype(np.int64), 2 / 3)
        hidden = count - shown
        grown_on, judged = some[shown > 0], some[hidden > 0]
        if len(grown_on) and len(judged):
            trees = trees_of(
                rows[grown_on],
                outcomes[grown_on],
                None if problem.weights is None else shown[shown > 0].astype(np.float64),
                n_trees=_N_JUDGING,
                leaf=LEAVES[0],
                seed=int(rng.integers(2**31)),
            )
            found = np.mean([_forecasts(tree, rows[judged]) for tree in trees], axis=0)
            errors.append(np.square(found - outcomes[judged]).sum(axis=2))  # [sizes, n]
            counts.append(hidden[hidden > 0] * len(own) / len(some))
    first = 1 if problem.weights is None else 0
    good = _are_good(np.concatenate(errors, axis=1)[first:], np.concatenate(counts))
    return LEAVES[first + int(good.argmax())]


def _are_good(errors: FloatArray, counts: FloatArray) -> BoolArray:
    """Which sizes are not clearly worse than the best, given errors `[sizes, n]`.

    Clearly: by two standard errors of the difference, and by a hundredth.
    """
    if len(counts) == 0:
        return np.ones(len(errors), np.bool_)
    means = errors @ counts / counts.sum()
    best = int(means.argmin())
    worse = means - means[best]
    spread = (errors - errors[best] - worse[:, None]) * counts
    noise = np.sqrt(np.square(spread).sum(axis=1)) / counts.sum()
    good: BoolArray = worse <= np.maximum(2 * noise, 0.01 * means[best])
    return good


def _forecasts(tree: Any, rows: NDArray[Any]) -> FloatArray:
    """Means of the last nodes that have so many rows, on the ways of rows `[n, D]`: `[L, n, K]`."""
    values = tree.value[:, :, 0]
    found = np.empty((len(LEAVES), len(rows), values.shape[1]))
    node = np.zeros(len(rows), np.int64)
    held = np.zeros((len(LEAVES), len(rows)), np.int64)
    going = np.arange(len(rows))
    while len(going):
        here = node[going]
        for number, leaf in enumerate(LEAVES):
            enough = tree.weighted_n_node_samples[here] >= leaf
            held[number, going[enough]] = here[enough]
        inner = tree.children_left[here] >= 0
        going, here = going[inner], here[inner]
        left = rows[going, tree.feature[here]] <= tree.threshold[here]
        node[going] = np.where(left, tree.children_left[here], tree.children_right[here])
    for number in range(len(LEAVES)):
        found[number] = values[held[number]]
    return found


def trees_of(
    rows: NDArray[Any],
    outcomes: FloatArray,
    weights: FloatArray | None,
    *,
    n_trees: int,
    leaf: int,
    seed: int,
) -> list[Any]:
    """Grows trees on rows `[n, D]`, float32; of a single leaf, where there is nothing to split."""
    from sklearn.ensemble import ExtraTreesRegressor

    varying = np.flatnonzero(np.ptp(rows, axis=0) > 0) if len(rows) else np.zeros(0, np.int64)
    total = float(len(rows) if weights is None else weights.sum())
    if total < 2 * leaf or len(varying) == 0 or outcomes.shape[1] == 0:
        return [_Stump(outcomes, weights)] * n_trees
    # A node tries one random split of each number, so a few numbers are shown several times.
    varying = np.tile(varying, -(-_TRIES // len(varying)))
    n_drawn = int(_SHARE * len(rows))  # a whole number: scikit-learn warns of small shares
    how: dict[str, Any] = {"bootstrap": True, "max_samples": n_drawn, "min_samples_leaf": leaf}
    if weights is not None:  # a share, and a little less than it, as it is rounded
        how = {"min_weight_fraction_leaf": (leaf - 0.01) / total}
    n_jobs = n_threads() if len(rows) > _ALONE else None  # which changes nothing
    forest = ExtraTreesRegressor(n_trees, random_state=seed, n_jobs=n_jobs, **how)
    targets = outcomes[:, 0] if outcomes.shape[1] == 1 else outcomes
    with warnings.catch_warnings():  # whose filters threads of scikit-learn may leave behind
        forest.fit(rows[:, varying], targets, sample_weight=weights)
    return [_Tree(tree.tree_, varying) for tree in forest.estimators_]


class _Tree:
    """A tree of scikit-learn that was shown some numbers of the state alone."""

    def __init__(self, tree: Any, varying: IntArray) -> None:
        self.feature = np.where(tree.feature < 0, 0, varying[tree.feature.clip(0)])
        self.threshold = tree.threshold
        self.children_left, self.children_right = tree.children_left, tree.children_right
        self.weighted_n_node_samples, self.value = tree.weighted_n_node_samples, tree.value


class _Stump:
    """A tree of a single leaf."""

    feature, threshold = np.zeros(1, np.int64), np.zeros(1)
    children_left = children_right = np.array([-1])
    weighted_n_node_samples = np.array([np.inf])

    def __init__(self, outcomes: FloatArray, weights: FloatArray | None) -> None:
        mean = outcomes.sum(axis=0)  # of nothing, if there is nothing
        if outcomes.size:
            mean = np.average(outcomes, axis=0, weights=weights)
        self.value = mean[None, :, None]


_HALF = 2**15


def _small(numbers: Tensor) -> Tensor:
    """Numbers from 0 on in two bytes, or as they are if one is too large."""
    is_small = len(numbers) == 0 or int(numbers.max()) < 2 * _HALF
    return (numbers - _HALF).short() if is_small else numbers


def _large(kept: Tensor) -> Tensor:
    """Numbers from 0 on that `_small` made small, int32."""
    return kept.int() + _HALF if kept.dtype == torch.int16 else kept


def _rounded_down(thresholds: FloatArray) -> NDArray[Any]:
    """Thresholds in single precision: a number in it is at most one if it was at most the other."""
    near = thresholds.astype(np.float32)
    return np.where(near > thresholds, np.nextafter(near, np.float32(-np.inf)), near)


def found_leaves(rows: NDArray[Any], nodes: tuple[NDArray[Any], ...]) -> NDArray[np.int32]:
    """Leaves `[n, M]` of rows `[n, D]` in M trees, by all threads."""
    found = np.empty((len(rows), len(nodes[0])), np.int32)

    def find(part: slice) -> None:
        feature, threshold, child, leaf_of = nodes
        _find_leaves(rows[part], feature, threshold, child, leaf_of, found[part])

    in_threads(find, len(rows), found.size)
    return found


def added_to_leaves(leaves: NDArray[Any], values: IntArray, found: IntArray) -> None:
    """Adds whole numbers `[n, K]` to sums `[R, K]` of their leaves `[T, n]`, by all threads.

    A thread has some of the trees, and no two trees share a leaf.
    """
    n_numbers = values.size * len(leaves)
    in_threads(lambda part: _add_to_leaves(leaves[part], values, found), len(leaves), n_numbers)


@njit(cache=True, nogil=True)
def _add_to_leaves(leaves, values, found):  # type: ignore[no-untyped-def]
    n_values = values.shape[1]
    for tree in range(leaves.shape[0]):
        for i in range(leaves.shape[1]):
            leaf = leaves[tree, i]
            for k in range(n_values):
                found[leaf, k] += values[i, k]


@njit(cache=True, nogil=True)
def _find_leaves(rows, feature, threshold, child, leaf_of, found):  # type: ignore[no-untyped-def]
    """Fills in the leaves `[n, M]` of rows `[n, D]` in M trees of K nodes.

    Rows take a step each in turn, as the next one of a row has to wait for its last one.
    """
    node = np.empty(_BLOCK, np.int64)
    for first in range(0, rows.shape[0], _BLOCK):
        size = min(_BLOCK, rows.shape[0] - first)
        for tree in range(feature.shape[0]):
            node[:] = 0
            goes_on = True
            while goes_on:
                goes_on = False
                for i in range(size):
                    at = np.uint64(node[i])
                    number = rows[first + i, np.uint64(feature[tree, at])]
                    side = np.uint64(number > threshold[tree, at])
                    after = np.int64(child[tree, at, side])
                    goes_on |= after != node[i]
                    node[i] = after
            for i in range(size):
                found[first + i, tree] = leaf_of[tree, node[i]]


@njit(cache=True, nogil=True)
def _add_up(leaves, table, found):  # type: ignore[no-untyped-def]
    """Fills in means `[n, A, K]` over leaves `[n, A, T]`, tree by tree, as `embedding_bag` does."""
    n_trees = leaves.shape[2]
    for i in range(leaves.shape[0]):
        for action in range(leaves.shape[1]):
            own = found[i, action]
            own[:] = 0
            for leaf in leaves[i, action]:
                values = table[leaf]
                for k in range(len(own)):
                    own[k] += values[k]
            own /= np.float32(n_trees)


def _leaves(rows: Tensor, nodes: tuple[Tensor, ...]) -> Tensor:
    """Leaves `[n, M]` of rows in M trees, without a kernel of a GPU."""
    if rows.device.type == "cpu":
        arrays = tuple(tensor.numpy() for tensor in nodes)
        return torch.from_numpy(found_leaves(rows.contiguous().numpy(), arrays))
    return _leaves_on_device(rows, *nodes)


@njit(cache=True)
def _depth_of(child):  # type: ignore[no-untyped-def]
    """Levels of the deepest of trees `[M, K, 2]`, in which children come after their parents."""
    most = 0
    level = np.zeros(child.shape[1], np.int64)
    for tree in range(child.shape[0]):
        level[:] = 0
        for node in range(child.shape[1]):
            for side in range(2):
                after = child[tree, node, side]
                if after != node:
                    level[after] = level[node] + 1
                    most = max(most, level[after])
    return most + 1


def _leaves_on_device(
    rows: Tensor, feature: Tensor, threshold: Tensor, child: Tensor, leaf_of: Tensor
) -> Tensor:
    """Leaves `[n, M]` of rows in M trees, by torch.

    Nodes of all trees are numbered through. Those that are not in a leaf yet go on, some levels at
    a time, so that the GPU is seldom waited for.
    """
    n_trees, size = feature.shape
    roots = torch.arange(n_trees, device=rows.device, dtype=torch.int32) * size
    feature, threshold, leaf_of = feature.flatten(), threshold.flatten(), leaf_of.flatten()
    child = (child + roots[:, None, None]).flatten()
    found = torch.empty((len(rows), n_trees), dtype=torch.int32, device=rows.device)
    for part in cover(len(rows), max(1, _LOOKED_UP // n_trees)):
        own = rows[part].contiguous()
        numbers, n = own.flatten(), len(own)
        first = torch.arange(n, device=rows.device, dtype=torch.int32) * own.shape[1]
        first = first[:, None].expand(-1, n_trees).flatten()  # number of each row
        node = roots.expand(n, -1).flatten()
        ends, going = node, None  # where all are, and which of them go on
        while len(node):
            for _ in range(_LEVELS):
                number = numbers.index_select(0, first + feature.index_select(0, node))
                side = number > threshold.index_select(0, node)
                node = child.index_select(0, 2 * node + side)
            ends = node if going is None else ends.index_copy_(0, going, node)
            more = torch.nonzero(child.index_select(0, 2 * node) != node)[:, 0]
            going = more if going is None else going[more]
            first, node = first[more], node[more]
        found[part] = leaf_of.index_select(0, ends).view(n, n_trees)
    return found
