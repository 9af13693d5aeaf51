"""Forests of extremely randomised trees (Geurts, Ernst and Wehenkel, 2006).

They are the usual model of fitted Q-iteration: what they say is a mean of targets, so that nothing
diverges.

Every action has a forest of its own, of (state, budget). With the action as one more input, a tree
would have to find out at random cuts what is known beforehand, that actions differ; and forests of
their own cost the same, since each is grown on the rows of its action alone.

scikit-learn grows the trees. What is kept of them are their nodes, in flat arrays, end to end. The
values of a state at all budgets of the grid are found in one descent of each tree: budgets go down
together, and part only at cuts of the budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from bmdp.arrays import FloatArray, IntArray
from bmdp.checks import require_count
from bmdp.errors import ConfigError, MissingDependency
from bmdp.models.plain import PlainFitter, Rows, flat_states
from bmdp.models.problem import Fitter, Problem
from bmdp.policies.stored import storable
from bmdp.randomness import named_generator

_CHUNK = 256  # states


@storable
@dataclass(frozen=True)
class TreesModel:
    """Forests of extremely randomised trees, one for each action.

    An action that never occurs has the mean target of all actions everywhere.

    Args:
        n_trees: of each forest.
        min_leaf: samples that a leaf has at least.
        max_features: share of the numbers of (state, budget) that are tried at a cut.
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


class Nodes(NamedTuple):
    """The nodes of many trees, end to end."""

    children: NDArray[np.int32]  # [M, 2], up to the threshold and above it; -1 at leaves
    feature: NDArray[np.int32]  # [M], number of the state, or D for the budget
    threshold: NDArray[np.float64]  # [M]
    value: NDArray[np.float64]  # [M, 2], of (Q_r, Q_c)


class Forests(NamedTuple):
    """A forest for each action."""

    roots: NDArray[np.int32]  # [A, T]
    nodes: Nodes


@storable
@dataclass(frozen=True, eq=False)
class TreesQ:
    """Q-values of a forest for each action, in the units of the data."""

    roots: NDArray[np.int32]  # [A, T]
    children: NDArray[np.int32]  # [M, 2]
    feature: NDArray[np.int32]  # [M]
    threshold: NDArray[np.float64]  # [M]
    value: NDArray[np.float64]  # [M, 2], of scaled rewards
    beta_grid: FloatArray  # [B]
    reward_scale: float

    def __call__(self, states: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c) of the states `[N, D]`, each `[N, A, B]`."""
        nodes = Nodes(self.children, self.feature, self.threshold, self.value)
        values = _on_grid(Forests(self.roots, nodes), flat_states(states), self.beta_grid)
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
        return _on_grid(self.forests[model], states, self.problem.beta_grid)


def forest_values(
    roots: NDArray[np.int32], nodes: Nodes, states: FloatArray, budgets: FloatArray
) -> FloatArray:
    """Returns what a forest says, the mean of its trees, `[n, L, 2]`.

    Args:
        roots: of its trees, `[T]`.
        nodes: of all trees.
        states: `[n, D]`.
        budgets: `[n, L]`, rising in each row.
    """
    values = np.zeros((*budgets.shape, 2))
    sealed = Nodes(*(_sealed(array) for array in nodes))
    rows, held = (_sealed(array.astype(np.float32)) for array in (states, budgets))
    _add_trees(_sealed(roots), sealed, rows, held, values)
    return values / len(roots)


def _sealed(array: NDArray[Any]) -> NDArray[Any]:
    """A contiguous read-only view: one type, so that the kernel is compiled once."""
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view


@njit(cache=True, parallel=True)
def _add_trees(
    roots: IntArray, nodes: Nodes, states: FloatArray, budgets: FloatArray, values: FloatArray
) -> None:
    """Adds what the trees say to `values`; a tree is at many states while it is in the cache."""
    n, n_budgets = budgets.shape
    for chunk in prange((n + _CHUNK - 1) // _CHUNK):
        waiting = np.empty((n_budgets, 3), np.int64)
        for root in roots:
            for i in range(chunk * _CHUNK, min((chunk + 1) * _CHUNK, n)):
                waiting[0, 0], waiting[0, 1], waiting[0, 2] = root, 0, n_budgets
                _descend(nodes, states[i], budgets[i], waiting, values[i])


@njit(cache=True)
def _descend(
    nodes: Nodes, state: FloatArray, budgets: FloatArray, waiting: IntArray, values: FloatArray
) -> None:
    """Adds what one tree says of one state.

    Ranges of budgets, each at its node, wait on a stack, where the root and all budgets are at
    first. They are apart and not empty, so there is room for them.
    """
    n_waiting = 1
    while n_waiting > 0:
        n_waiting -= 1
        node, first, end = waiting[n_waiting, 0], waiting[n_waiting, 1], waiting[n_waiting, 2]
        while nodes.children[node, 0] >= 0:
            feature, limit = nodes.feature[node], nodes.threshold[node]
            if feature < len(state):
                node = np.int64(nodes.children[node, 0 if state[feature] <= limit else 1])
                continue
            cut = first
            while cut < end and budgets[cut] <= limit:
                cut += 1
            if first < cut < end:
                waiting[n_waiting, 0] = nodes.children[node, 1]
                waiting[n_waiting, 1], waiting[n_waiting, 2] = cut, end
                n_waiting += 1
                end = cut
            node = np.int64(nodes.children[node, 0 if cut > first else 1])
        for i in range(first, end):
            values[i, 0] += nodes.value[node, 0]
            values[i, 1] += nodes.value[node, 1]


def _on_grid(forests: Forests, states: FloatArray, beta_grid: FloatArray) -> FloatArray:
    """Values of all actions at states `[n, D]` on the grid, `[n, 2, A, B]`."""
    budgets = np.broadcast_to(beta_grid, (len(states), len(beta_grid)))
    values = [forest_values(roots, forests.nodes, states, budgets) for roots in forests.roots]
    return np.stack(values, axis=1).transpose(0, 3, 1, 2)


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
