"""Forests of extremely randomised trees (Geurts, Ernst and Wehenkel, 2006).

They are the usual model of fitted Q-iteration: what they say is a mean of targets, so that nothing
diverges.

Every action has a forest of its own, of (state, budget). With the action as one more input, a tree
would have to find out at random cuts what is known beforehand, that actions differ; and forests of
their own cost the same, since each is grown on the rows of its action alone.

scikit-learn grows the trees. What is kept of them are their nodes: see `bmdp.models.forests`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import FloatArray
from bmdp.checks import require_count
from bmdp.errors import ConfigError, MissingDependency
from bmdp.models.forests import Forests, Nodes, forest_values, on_grid
from bmdp.models.plain import PlainFitter, Rows, flat_states
from bmdp.models.problem import Fitter, Problem
from bmdp.policies.stored import storable
from bmdp.randomness import named_generator


@storable
@dataclass(frozen=True)
class TreesModel:
    """Forests of extremely randomised trees, one for each action.

    An action that never occurs has the mean target of all actions everywhere.

    Args:
        n_trees: of each forest.
        min_leaf: samples that a leaf has at least.
        max_features: share of the numbers of (state, budget) that are tried at a cut.

    >>> from bmdp import BFTQ, BFTQConfig, TransitionBatch
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> forest = TreesModel(n_trees=5, min_leaf=1)
    >>> config = BFTQConfig(gamma=0.9, model=forest, valuation="self", iterations=1)
    >>> frontier = BFTQ(config).fit(log, seed=0).frontier([0])
    >>> frontier.costs.round(6).tolist(), frontier.rewards.round(6).tolist()
    ([0.0, 1.0], [0.0, 10.0])
    """

    n_trees: int = 50
    min_leaf: int = 5
    max_features: float = 1.0

    covers_grid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Checks the settings."""
        for name in ("n_trees", "min_leaf"):
            require_count(name, getattr(self, name), 1)
        if not 0 < self.max_features <= 1:
            raise ConfigError(
                f"max_features must be above 0 and at most 1; got {self.max_features}."
            )

    def fitter(self, problem: Problem) -> Fitter:
        """Returns models that know nothing yet, one for each row of `problem.members`.

        Raises:
            MissingDependency: if scikit-learn is not installed.
        """
        _extra_trees()
        return TreesFitter(self, problem)


@storable
@dataclass(frozen=True, eq=False)
class TreesQ:
    """Q-values of a forest for each action, in the units of the data.

    >>> children = np.array([[1, 2], [-1, -1], [-1, -1]], np.int32)  # one tree, cut at budget 0.5
    >>> feature, threshold = np.array([1, -2, -2], np.int32), np.array([0.5, 0.0, 0.0])
    >>> cut = {"children": children, "feature": feature, "threshold": threshold}
    >>> values = {"value": np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.5]]), "reward_scale": 10.0}
    >>> q = TreesQ(np.zeros((1, 1), np.int32), **cut, **values, beta_grid=np.array([0.0, 0.5, 1.0]))
    >>> q(np.array([[0.0]]))[0].tolist()
    [[[0.0, 0.0, 10.0]]]
    """

    roots: NDArray[np.int32]  # [A, T], numbers of nodes
    children: NDArray[np.int32]  # [M, 2], as in `Nodes`
    feature: NDArray[np.int32]  # [M], number of the state, or D for the budget
    threshold: NDArray[np.float64]  # [M], up to which one goes to the first child
    value: NDArray[np.float64]  # [M, 2], of scaled rewards
    beta_grid: FloatArray  # [B], budgets that can be handed on
    reward_scale: float  # that rewards were divided by

    def __call__(self, states: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c) of the states `[N, D]`, each `[N, A, B]`."""
        nodes = Nodes(self.children, self.feature, self.threshold, self.value)
        values = on_grid(Forests(self.roots, nodes), flat_states(states), self.beta_grid)
        return values[:, 0] * self.reward_scale, values[:, 1]


class TreesFitter(PlainFitter):
    """Forests in training."""

    def __init__(self, model: TreesModel, problem: Problem) -> None:
        """Makes forests of trees that have one node, of value 0."""
        super().__init__(problem)
        self.model = model
        roots = np.zeros((problem.n_actions, model.n_trees), np.int32)
        self.forests = [Forests(roots, _leaf()) for _ in problem.members]

    def result(self, model: int) -> TreesQ:
        """The forests of a model as they are."""
        roots, nodes = self.forests[model]
        return TreesQ(roots, *nodes, self.problem.beta_grid, self.problem.reward_scale)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The nodes, and where trees begin."""
        found: dict[str, NDArray[Any]] = {}
        for e, (roots, nodes) in enumerate(self.forests):
            found[f"{e}/roots"] = roots
            found |= {f"{e}/{name}": array for name, array in nodes._asdict().items()}
        return found

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Goes on from there."""
        self.forests = [
            Forests(arrays[f"{e}/roots"], Nodes(*(arrays[f"{e}/{name}"] for name in Nodes._fields)))
            for e in range(len(self.forests))
        ]

    def _learn(self, name: str, model: int, rows: Rows) -> None:
        """Grows the forests of one model."""
        if len(rows.states) == 0:
            return
        everywhere = rows.targets.mean(axis=(0, 1), dtype=np.float64)
        trees: list[Any] = []
        for action, (_, own) in enumerate(rows.by_action(self.problem.n_actions)):
            inputs, outputs = _samples(own)
            if len(inputs) == 0:  # leaves with the mean
                inputs, outputs = np.zeros((1, inputs.shape[1]), np.float32), everywhere[None]
            rng = named_generator(self.problem.seed, f"{name}/action-{action}")
            forest = _extra_trees()(
                n_estimators=self.model.n_trees,
                min_samples_leaf=self.model.min_leaf,
                max_features=float(self.model.max_features),
                random_state=int(rng.integers(2**31)),
                n_jobs=-1,
            ).fit(inputs, outputs)
            trees += [tree.tree_ for tree in forest.estimators_]
        self.forests[model] = _end_to_end(trees, self.problem.n_actions)

    def _taken(self, model: int, rows: Rows) -> FloatArray:
        """Values of the actions of rows at their budgets, `[n, L, 2]`."""
        values = np.empty((*rows.budgets.shape, 2))
        roots, nodes = self.forests[model]
        for action, (mask, own) in enumerate(rows.by_action(self.problem.n_actions)):
            order = np.argsort(own.budgets, axis=1)
            rising = np.take_along_axis(own.budgets, order, axis=1)
            found = forest_values(roots[action], nodes, own.states, rising)
            part = np.empty_like(found)
            np.put_along_axis(part, order[..., None], found, axis=1)
            values[mask] = part
        return values

    def _values(self, model: int, states: FloatArray) -> FloatArray:
        """Values at states `[n, D]` on the grid, `[n, 2, A, B]`."""
        return on_grid(self.forests[model], states, self.problem.beta_grid)


def _samples(rows: Rows) -> tuple[NDArray[np.float32], FloatArray]:
    """Inputs `[n * L, D + 1]` of (state, budget), and outputs `[n * L, 2]`."""
    n, n_labels = rows.budgets.shape
    states = np.repeat(rows.states, n_labels, axis=0)
    inputs = np.concatenate((states, rows.budgets.reshape(-1, 1)), axis=1)
    return inputs.astype(np.float32), rows.targets.reshape(n * n_labels, 2)


def _end_to_end(trees: list[Any], n_actions: int) -> Forests:
    """The nodes of scikit-learn's trees, those of the first action first."""
    sizes = np.array([tree.node_count for tree in trees])
    roots = np.cumsum(sizes) - sizes
    children = np.concatenate([np.stack((t.children_left, t.children_right), 1) for t in trees])
    nodes = Nodes(
        np.where(children < 0, -1, children + np.repeat(roots, sizes)[:, None]).astype(np.int32),
        np.concatenate([tree.feature for tree in trees]).astype(np.int32),
        np.concatenate([tree.threshold for tree in trees]).astype(np.float64),
        np.concatenate([tree.value[:, :, 0] for tree in trees]).astype(np.float64),
    )
    return Forests(roots.astype(np.int32).reshape(n_actions, -1), nodes)


def _leaf() -> Nodes:
    """One node, of value 0."""
    return Nodes(
        np.full((1, 2), -1, np.int32), np.full(1, -2, np.int32), np.zeros(1), np.zeros((1, 2))
    )


def _extra_trees() -> Any:
    """The class of scikit-learn that grows forests.

    Raises:
        MissingDependency: if it is not installed.
    """
    try:
        from sklearn.ensemble import ExtraTreesRegressor
    except ImportError as error:
        raise MissingDependency(
            "scikit-learn must be installed to grow trees: pip install 'bmdp[trees]'"
        ) from error
    return ExtraTreesRegressor
