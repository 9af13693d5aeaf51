"""A forest with kept structure: extremely randomised trees whose leaves hold all heads.

The trees of each member and action are grown once, on what followed the rows: reward, cost and next
state (Geurts, Ernst and Wehenkel, 2006). Splits are then kept, and a fit is a mean of targets over
leaves. Trees jump where rewards and costs do, at borders that a smooth kernel blurs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from bmdp.arrays import FloatArray
from bmdp.checks import require_count
from bmdp.errors import StoreError
from bmdp.models.regressor import Averager, Problem, Scaling, Sizes, cover, register_regressor

_LEAVES = 2**22  # leaves that are looked up at a time


@register_regressor
@dataclass(frozen=True)
class ForestModel:
    """Extremely randomised trees with kept structure.

    Args:
        trees: for each action.
        leaf: rows of a leaf, at least.

    >>> from bmdp import BFTQ, BFTQConfig, TransitionBatch
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> config = BFTQConfig(gamma=0.9, model=ForestModel(), ensemble=1)
    >>> frontier = BFTQ(config).fit(log, seed=0).frontier([0])
    >>> frontier.costs.round(6).tolist(), frontier.rewards.round(6).tolist()
    ([0.0, 1.0], [0.0, 10.0])
    """

    trees: int = 25
    leaf: int = 5

    def __post_init__(self) -> None:
        require_count("trees", self.trees, 1)
        require_count("leaf", self.leaf, 1)

    def empty(self, sizes: Sizes) -> ForestQ:
        """Returns forests of a single leaf, whose value is 0."""
        return ForestQ(self, sizes)


class ForestQ(Averager):
    """Means of targets over the leaves of trees. A leaf is its own child."""

    constant = frozenset({"feature", "threshold", "child", "leaf_of"})

    settings: ForestModel
    feature: Tensor  # [E, A, T, K], number of the state that a node splits by
    threshold: Tensor  # [E, A, T, K], at most this goes left
    child: Tensor  # [E, A, T, K, 2], left and right
    leaf_of: Tensor  # [E, A, T, K], number of a leaf among the rows of `values`; 0 of other nodes
    values: Tensor  # [E, S, R, 2, H], float32; rows are the leaves of all trees of all actions

    def __init__(self, settings: ForestModel, sizes: Sizes) -> None:
        """Makes trees of a single leaf."""
        super().__init__(settings, sizes)
        shape = (sizes.n_members, sizes.n_actions, settings.trees, 1)
        self.register_buffer("feature", torch.zeros(shape, dtype=torch.int64))
        self.register_buffer("threshold", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("child", torch.zeros((*shape, 2), dtype=torch.int64))
        self.register_buffer("leaf_of", torch.zeros(shape, dtype=torch.int64))
        self._set_values(1)

    def _set_values(self, n_leaves: int) -> None:
        n_members, n_steps, _, _, heads = self.sizes
        shape = (n_members, n_steps, n_leaves, 2, len(heads))
        self.register_buffer("values", torch.zeros(shape, device=self.feature.device))

    def build(self, problem: Problem) -> None:
        """Grows the trees."""
        by = Scaling.of(problem.outcomes)
        outcomes = (problem.outcomes - by.centre) / by.scale
        # Reward and cost together count as much as the next state, however many numbers it has.
        outcomes[:, 2:] *= (2 / max(1, outcomes.shape[1] - 2)) ** 0.5
        grown = [
            [self._grown(problem, outcomes, e, a) for a in range(self.sizes.n_actions)]
            for e in range(self.sizes.n_members)
        ]
        size = max(len(tree.feature) for own in grown for trees in own for tree in trees)
        shape = (self.sizes.n_members, self.sizes.n_actions, self.settings.trees, size)
        feature, leaf_of = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        threshold = np.zeros(shape)
        child = np.zeros((*shape, 2), np.int64) + np.arange(size)[:, None]  # all leaves at first
        most = 0
        for e, own in enumerate(grown):
            n_leaves = 0
            for a, trees in enumerate(own):
                for t, tree in enumerate(trees):
                    nodes, is_leaf = np.arange(len(tree.feature)), tree.children_left < 0
                    place = (e, a, t, nodes)
                    feature[place] = np.where(is_leaf, 0, tree.feature)
                    threshold[place] = np.where(is_leaf, 0, tree.threshold)
                    for side, to in enumerate((tree.children_left, tree.children_right)):
                        child[(*place, side)] = np.where(is_leaf, nodes, to)
                    leaf_of[e, a, t, nodes[is_leaf]] = n_leaves + np.arange(is_leaf.sum())
                    n_leaves += int(is_leaf.sum())
            most = max(most, n_leaves)
        for name, array in (
            ("feature", feature),
            ("threshold", threshold),
            ("child", child),
            ("leaf_of", leaf_of),
        ):
            self.register_buffer(name, torch.from_numpy(array).to(self.feature.device))
        self._set_values(most)

    def _grown(self, problem: Problem, outcomes: FloatArray, member: int, action: int) -> list[Any]:
        """Trees of one member and action; of a single leaf, if there is nothing to split."""
        from sklearn.ensemble import ExtraTreesRegressor

        rows = problem.members[member] & (problem.actions == action)
        if not rows.any() or problem.states.shape[1] == 0:
            return [_Stump] * self.settings.trees
        seed = int(problem.generator(f"trees/{member}/{action}").integers(2**31))
        forest = ExtraTreesRegressor(
            self.settings.trees, min_samples_leaf=self.settings.leaf, random_state=seed
        )
        # Thresholds are compared in single precision there, and so they are here.
        forest.fit(problem.states[rows].astype(np.float32), outcomes[rows])
        return [tree.tree_ for tree in forest.estimators_]

    def embed(self, states: Tensor) -> Tensor:
        """Leaves of states in all trees, `[n, E, A, T]`."""
        shape = self.feature.shape[:3]
        rows = states.to(torch.float32).double()
        n_trees = int(np.prod(shape))
        feature, threshold = (b.flatten(0, 2) for b in (self.feature, self.threshold))
        child, leaf_of = self.child.flatten(0, 2), self.leaf_of.flatten(0, 2)
        tree = torch.arange(n_trees, device=rows.device)
        found = torch.empty((len(rows), n_trees), dtype=torch.int64, device=rows.device)
        for part in cover(len(rows), max(1, _LEAVES // n_trees)):
            own = rows[part]
            node = torch.zeros((len(own), n_trees), dtype=torch.int64, device=rows.device)
            while True:
                number = own.gather(1, feature[tree, node]) if own.shape[1] else node * 0.0
                side = (number > threshold[tree, node]).long()
                after = child[tree, node, side]
                if torch.equal(after, node):
                    break
                node = after
            found[part] = leaf_of[tree, node]
        return found.view(-1, *shape)

    def grams(self, member: int, rows: Tensor, actions: Tensor) -> Tensor:
        """Number of rows of each leaf."""
        leaves = self._leaves(member, rows, actions)
        return torch.bincount(leaves.flatten(), minlength=self.values.shape[2]).double()

    def moments(self, member: int, rows: Tensor, actions: Tensor, targets: Tensor) -> Tensor:
        """Sums of targets of each leaf."""
        leaves = self._leaves(member, rows, actions)
        total = targets.new_zeros((self.values.shape[2], *targets.shape[1:]))
        for tree in leaves.T:
            total.index_add_(0, tree, targets)
        return total

    def _leaves(self, member: int, rows: Tensor, actions: Tensor) -> Tensor:
        """Leaves of the trees of the actions that were taken, `[n, T]`."""
        which = actions[:, None, None].expand(-1, 1, rows.shape[3])
        return rows[:, member].gather(1, which)[:, 0]

    def solve(self, step: int, sums: list[tuple[Tensor, Tensor]]) -> None:
        """Takes means; a leaf without rows has the mean of all."""
        for member, (count, moment) in enumerate(sums):
            overall = moment.sum(0) / count.sum().clamp(min=1)
            means = moment / count.clamp(min=1)[:, None, None]
            filled = torch.where((count > 0)[:, None, None], means, overall)
            self.values[member, step] = filled.float()

    def read_member(self, member: int, embedded: Tensor, step: int) -> Tensor:
        """Values of one forest, `[n, 2, A, H]`."""
        leaves = embedded[:, member]  # [n, A, T]
        table = self.values[member, step].flatten(1)
        found = embedding_bag(leaves.flatten(0, 1), table, mode="mean")
        return found.view(*leaves.shape[:2], *self.values.shape[3:]).transpose(1, 2)

    def check(self) -> None:
        """Checks that every path ends in a leaf that has a value.

        Raises:
            StoreError: if not.
        """
        if not (self._has_shapes() and self._has_trees()):
            raise StoreError("ForestQ: its nodes do not make trees.")

    def _has_shapes(self) -> bool:
        n_members, n_steps, n_actions, _, heads = self.sizes
        shape, (n_leaves, *_) = self.feature.shape, (*self.values.shape[2:], 0)
        return (
            shape[:-1] == (n_members, n_actions, self.settings.trees)
            and self.threshold.shape == self.leaf_of.shape == shape
            and self.child.shape == (*shape, 2)
            and self.values.shape == (n_members, n_steps, n_leaves, 2, len(heads))
        )

    def _has_trees(self) -> bool:
        size = self.feature.shape[-1]
        nodes = torch.arange(size, device=self.child.device)[:, None]
        goes_on, feature, leaf_of = self.child != nodes, self.feature, self.leaf_of
        rules = (
            goes_on.all(-1) | ~goes_on.any(-1),
            (self.child > nodes) | ~goes_on,
            self.child < size,
            (feature >= 0) & (feature < max(1, self.sizes.n_numbers)),
            (leaf_of >= 0) & (leaf_of < self.values.shape[2]),
        )
        return all(bool(rule.all()) for rule in rules)


class _Stump:
    """A tree of a single leaf."""

    feature = np.array([-2])
    threshold = np.zeros(1)
    children_left = children_right = np.array([-1])
