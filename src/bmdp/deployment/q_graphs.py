"""Q-functions as graphs of ONNX: tables, linear models, kernels, forests, networks.

Each kind of model is computed in the precision of the library, in the order of its sums where ONNX
lets one choose it: values of tables and forests are the same to the last bit, those of others up to
rounding. Importing this module imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bmdp.deployment.frontiers import of_step
from bmdp.deployment.graph import TREES, Value
from bmdp.errors import PolicyError
from bmdp.models.actor import ActorQ
from bmdp.models.forest import ForestQ
from bmdp.models.kernel import _FARTHEST, KernelQ
from bmdp.models.linear import LinearQ
from bmdp.models.networks import EncoderStack, FrontierStack, LinearStack, NetworkQ
from bmdp.models.regressor import Bounded, LearnedQ, MeanQ, QModel
from bmdp.models.support import _RATIO, Support
from bmdp.models.table import _FIRST, _SECOND, _STEP, _WHOLE, TableQ
from bmdp.policies.hull import TabularQ

Values = list[Value]
"""Of each member of an ensemble, `[n, 2, A, H]`, float32."""

_FAR = 10.0  # as of `bmdp.models.actor`
_MOST_LEAVES = 2**24  # whole numbers that single precision has


def state_shape(q_function: Any) -> tuple[str, ...] | tuple[str, int]:
    """Returns ("N",) for states that are numbered, else ("N", D).

    Raises:
        PolicyError: if there is no graph of the Q-function.
    """
    if isinstance(q_function, TabularQ):
        return ("N",)
    if isinstance(q_function, LearnedQ):
        return "N", len(q_function.shown) - bool(q_function.clock)
    if isinstance(q_function, MeanQ):
        shapes = {state_shape(part) for part in q_function.parts}
        if len(shapes) == 1:
            return shapes.pop()
    raise PolicyError(
        f"{_name(q_function)} cannot be written as ONNX: there is a graph of TabularQ, and of what "
        "BFTQ, FTQ, LagrangianFTQ and bmdp.fit learn. Play it with bmdp instead."
    )


def q_graph(q_function: Any, states: Value, step: Value | int) -> tuple[Value, Value]:
    """Returns (q_r, q_c) of states at a step, each `[n, A, H]`, as the Q-function does.

    Args:
        q_function: a `TabularQ`, a `LearnedQ` or a `MeanQ`.
        states: `[n, D]` float64, or numbers of states `[n]`.
        step: its number, as a value of the graph, or a fixed one.

    Raises:
        PolicyError: if there is no graph of it.
    """
    graph = states.graph
    if isinstance(q_function, TabularQ):
        found = []
        for table in (q_function.q_r, q_function.q_c):
            steps = table if table.ndim == 4 else table[None]
            found.append(of_step(graph, steps, step).take(states))
        return found[0], found[1]
    if isinstance(q_function, MeanQ):
        parts = [q_graph(part, states, step) for part in q_function.parts]
        return _mean([q_r for q_r, _ in parts]), _mean([q_c for _, q_c in parts])
    return _learned(q_function, states, step)


def _learned(q: LearnedQ, states: Value, step: Value | int) -> tuple[Value, Value]:
    graph, model = states.graph, q.model
    rows = states
    if q.clock:
        shares = np.minimum(np.arange(q.clock + 1), q.clock) / q.clock
        clock = of_step(graph, shares, step).reshape(1, 1).rows_like(states)
        rows = graph.concat((states, clock), 1)
    if not q.shown.all():
        rows = rows.take(np.flatnonzero(q.shown), 1)
    embedded = _embedded(model, rows)
    values = _combined(_read(model, embedded, step), q.caution)
    q_r = values.take(0, 1) * q.reward_unit
    q_c = values.take(1, 1) * q.cost_unit
    mask = _mask(q, rows, embedded)
    if mask is None:
        return q_r, q_c
    return graph.where(mask, q_r, -np.inf), graph.where(mask, q_c, np.inf)


def _mask(q: LearnedQ, rows: Value, embedded: Value) -> Value | None:
    """Actions that may be played, `[n, A, 1]`, or for all states alike; None if all may."""
    graph = rows.graph
    known = _known(q.model, embedded)
    if q.support is not None:
        if not isinstance(q.support, Support):
            raise _no_graph(q.support)
        known = _supported(q.support, rows)
    taken = graph.constant(q.taken[None])
    if known is None:
        return None if q.taken.all() else taken.reshape(1, -1, 1)
    both = known & taken
    return (both | (taken & ~both.any(1))).with_axis(2)


def _known(model: QModel, embedded: Value) -> Value | None:
    """Actions that occur in the data, `[n, A]`, as `QModel.known` says."""
    if isinstance(model, Bounded):
        return _known(model.inner, embedded)
    if isinstance(model, TableQ):
        return embedded.graph.constant(_array(model.seen)).take(embedded)
    return None


def _supported(support: Support, rows: Value) -> Value:
    """Actions that a log knows, `[n, A]`, as `Support.known` says."""
    graph = rows.graph
    groups = _embedded(support.model, rows)
    n_trees = 1 if isinstance(support.model, TableQ) else support.model.settings.trees
    counts = graph.constant(support.counts).take(groups.reshape(-1, n_trees))  # [n, T, A]
    if n_trees > 1:
        place = n_trees // 4
        counts = counts.least(place + 1, 1).take([place], 1)
    found = counts.reshape(-1, support.counts.shape[1])
    return found >= (found.reduce("Max", 1) * _RATIO).at_most(support.least)


# What models compute of states


def _embedded(model: QModel, rows: Value) -> Value:
    """States `[n, D]` as the model reads them, which may be numbers of leaves or of a cell."""
    if type(model) not in _EMBEDDED:
        raise _no_graph(model)
    return _EMBEDDED[type(model)](model, rows)


def _read(model: QModel, embedded: Value, step: Value | int) -> Values:
    return _READ[type(model)](model, embedded, step)


def _scaled(model: Any, rows: Value) -> Value:
    return (rows - _array(model.centre)) / _array(model.scale)


def _scaled_single(model: Any, rows: Value) -> Value:
    return _scaled(model, rows).cast(np.float32)


def _embed_linear(model: LinearQ, rows: Value) -> Value:
    scaled = _scaled(model, rows)
    if model.settings.state_features == "linear":
        return scaled
    n_numbers = model.sizes.n_numbers
    first, second = np.triu_indices(n_numbers)
    return rows.graph.concat((scaled, scaled.take(first, 1) * scaled.take(second, 1)), 1)


def _read_linear(model: LinearQ, embedded: Value, step: Value | int) -> Values:
    graph, found = embedded.graph, []
    _, n_steps, n_actions, _, heads = model.sizes
    for own in _array(model.coefficients):  # [S, A, P, 2, H]
        flat = own.transpose(0, 2, 3, 1, 4).reshape(n_steps, own.shape[2], -1)
        values = of_step(graph, flat[:, :1], step).rows_like(embedded)
        if flat.shape[1] > 1:
            values = embedded @ of_step(graph, flat[:, 1:], step) + of_step(graph, flat[:, 0], step)
        found.append(values.cast(np.float32).reshape(-1, 2, n_actions, len(heads)))
    return found


def _read_kernel(model: KernelQ, embedded: Value, step: Value | int) -> Values:
    graph, found = embedded.graph, []
    n_actions, n_heads = model.sizes.n_actions, len(model.sizes.heads)
    group, centres = _array(model.group), _array(model.centres)
    groups = group[:1] if (group == group[0]).all() else group
    own_size = (embedded * embedded).reduce("Sum", 1)
    for e in range(model.sizes.n_members):
        each = []
        for a in range(n_actions):
            places = centres[e, groups, a]  # [S, C, D], or of one step
            about = of_step(graph, np.square(places).sum(2)[:, None], step)
            squares = about - embedded @ of_step(graph, 2 * places.transpose(0, 2, 1), step)
            lengths = _array(model.lengths)[e, :, a]
            exponents = (squares + own_size) * of_step(graph, -0.5 / lengths**2, step)
            single = exponents.cast(np.float32).at_least(_FARTHEST).at_most(0.0)
            weights = _array(model.weights)[e, :, a]
            flat = weights.reshape(*weights.shape[:2], 2 * n_heads)
            each.append((single.one("Exp") @ of_step(graph, flat, step)).reshape(-1, 2, 1, n_heads))
        means = _array(model.means).astype(np.float32)[e].transpose(0, 2, 1, 3)
        found.append(graph.concat(each, 2) + of_step(graph, means[:, None], step))
    return found


def _embed_forest(model: ForestQ, rows: Value) -> Value:
    """Leaves of states in all trees, `[n, E, A, T]`: a tree's value is the number of its leaf."""
    graph = rows.graph
    nodes = [_array(getattr(model, n)) for n in ("feature", "threshold", "child", "leaf_of")]
    feature, threshold, child, leaf_of = (a.reshape(-1, *a.shape[3:]) for a in nodes)  # of M trees
    if leaf_of.max() >= _MOST_LEAVES:
        raise PolicyError("ForestQ cannot be written as ONNX: its trees have too many leaves.")
    tree, node = _reachable(child)
    left, right = child[tree, node].T
    is_leaf = left == node
    modes = np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist()
    scaled = _scaled_single(model, rows)
    if model.sizes.n_numbers == 0:
        scaled = graph.constant([[0.0]], np.float32).rows_like(rows)
    leaves = graph.op(
        "TreeEnsembleRegressor",
        scaled,
        dtype=np.float32,
        domain=TREES,
        n_targets=len(feature),
        nodes_treeids=tree.tolist(),
        nodes_nodeids=node.tolist(),
        nodes_featureids=feature[tree, node].tolist(),
        nodes_values=threshold[tree, node].tolist(),
        nodes_modes=modes,
        nodes_truenodeids=np.where(is_leaf, 0, left).tolist(),
        nodes_falsenodeids=np.where(is_leaf, 0, right).tolist(),
        target_treeids=tree[is_leaf].tolist(),
        target_nodeids=node[is_leaf].tolist(),
        target_ids=tree[is_leaf].tolist(),
        target_weights=leaf_of[tree, node][is_leaf].astype(np.float32).tolist(),
    )
    return leaves.cast(np.int64).reshape(-1, *nodes[0].shape[:3])


def _reachable(child: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Trees and nodes on a way from a root, of children `[M, K, 2]`, which follow their parents."""
    is_there = np.zeros(child.shape[:2], np.bool_)
    is_there[:, 0] = True
    trees = np.arange(len(child))
    for node in range(child.shape[1]):
        for side in range(2):
            after = child[:, node, side]
            own = is_there[:, node]
            is_there[trees[own], after[own]] = True
    found = np.nonzero(is_there)
    return found[0], found[1]


def _read_forest(model: ForestQ, embedded: Value, step: Value | int) -> Values:
    """Means over trees, added up one by one, as `embedding_bag` does."""
    graph, found = embedded.graph, []
    _, n_steps, n_actions, _, heads = model.sizes
    n_trees, n_leaves = model.settings.trees, model.values.shape[2]
    table = _array(model.values).reshape(len(model.values), n_steps * n_leaves, -1)
    places = _stepped(embedded, n_leaves, n_steps, step)
    for e, values in enumerate(table):
        own, kept = places.take(e, 1), graph.constant(values)
        total = kept.take(own.take(0, 2))
        for tree in range(1, n_trees):
            total = total + kept.take(own.take(tree, 2))
        mean = total / n_trees
        found.append(mean.reshape(-1, n_actions, 2, len(heads)).transpose(0, 2, 1, 3))
    return found


def _stepped(places: Value, n_rows: int, n_steps: int, step: Value | int) -> Value:
    """Places in a table of `n_rows`, as places in one of all steps."""
    first = of_step(places.graph, n_rows * np.arange(n_steps), step)
    return places if n_steps == 1 else places + first


def _embed_table(model: TableQ, rows: Value) -> Value:
    """Number of the cell of each state, by a search in halves; the last one if it never occurs."""
    graph, cells = rows.graph, _array(model.cells)
    keys = _keys(rows, model.sizes.n_numbers)
    n_halves = max(1, int(np.ceil(np.log2(len(cells) + 1))))
    padded = np.append(cells, np.full(2**n_halves - len(cells), np.iinfo(np.int64).max))
    kept = graph.constant(padded)
    place = graph.constant([0]).rows_like(keys.reshape(-1, 1)).reshape(-1)  # the last one up to it
    for half in 2 ** np.arange(n_halves)[::-1]:
        after = place + half
        place = graph.where(kept.take(after) <= keys, after, place)
    place = place.at_most(max(len(cells) - 1, 0))
    is_cell = kept.take(place).equals(keys)
    return graph.where(is_cell, place, len(cells)) if len(cells) else place


def _keys(rows: Value, n_numbers: int) -> Value:
    """Keys `[n]` of states, as `bmdp.models.table.keys_of`.

    The bits of a number are put together from its sign, its exponent and its mantissa. All are
    exact: the numbers are whole, or in single precision.
    """
    graph = rows.graph
    size = rows.one("Abs")
    is_whole = rows.equals(rows.one("Round")) & (size < _WHOLE)
    same = graph.where(is_whole, rows, rows.cast(np.float32).cast(np.float64))
    size = same.one("Abs")
    is_zero = size.equals(0.0)
    least, most = -150, 129
    powers = graph.constant(2.0 ** np.arange(least, most + 2))
    known = graph.where(is_zero, 1.0, size).at_least(2.0**least).at_most(2.0**most)
    exponent = known.one("Log") / np.log(2.0)
    place = (exponent.one("Floor") - least).cast(np.int64).at_least(0).at_most(most - least)
    place = place - (known < powers.take(place)).cast(np.int64)
    place = place + (known >= powers.take(place + 1)).cast(np.int64)
    mantissa = ((known / powers.take(place) - 1.0) * 2.0**52).cast(np.int64)
    positive = mantissa + (place + (1023 + least)) * 2**52
    is_negative = same < 0.0
    bits = positive + is_negative.cast(np.int64) * np.iinfo(np.int64).min
    bits = graph.where(is_zero, 0, bits)
    bits = bits + np.arange(1, n_numbers + 1) * np.int64(_STEP)  # which wraps around
    bits = (bits ^ _shifted(bits, 30)) * _FIRST
    bits = (bits ^ _shifted(bits, 27)) * _SECOND
    mixed = bits ^ _shifted(bits, 31)
    total = mixed.take(0, 1)
    for column in range(1, n_numbers):  # not `ReduceSum`, which may add up in floating point
        total = total + mixed.take(column, 1)
    return total


def _shifted(bits: Value, by: int) -> Value:
    """Bits shifted to the right, the sign being copied."""
    sign = (bits < 0).cast(np.int64) * -1
    found: Value = ((bits ^ sign) // 2**by) ^ sign
    return found


def _read_table(model: TableQ, embedded: Value, step: Value | int) -> Values:
    _, n_steps, n_actions, _, heads = model.sizes
    n_cells = model.table.shape[2]
    places = _stepped(embedded, n_cells, n_steps, step)
    shape = n_steps * n_cells, 2, n_actions, len(heads)
    tables = _array(model.table).astype(np.float32)
    return [embedded.graph.constant(own.reshape(shape)).take(places) for own in tables]


def _read_network(model: NetworkQ, embedded: Value, step: Value | int) -> Values:
    is_encoder = isinstance(model.stacks[0], EncoderStack)
    read = _read_encoder if is_encoder else _read_frontier_net
    return [read(model, e, embedded, step) for e in range(model.sizes.n_members)]


def _read_encoder(model: NetworkQ, member: int, embedded: Value, step: Value | int) -> Value:
    """The budgets of the grid are encoded once and for all."""
    graph, maps = embedded.graph, []
    _, _, n_actions, _, heads = model.sizes
    stacks = [cast(EncoderStack, stack) for stack in model.stacks]
    for stack in stacks:
        with torch.no_grad():
            weight, joining, bias = stack._first_map()
            encoded = stack._encoded(model.budgets.expand(len(weight), -1)[..., None])
            maps.append((weight[member], (encoded @ joining + bias)[member]))
    weights, joined = (np.stack([_array(m) for m in column]) for column in zip(*maps, strict=True))
    rows = (embedded @ of_step(graph, weights, step)).with_axis(1)
    rows = rows + of_step(graph, joined[:, None], step)  # [n, H, units]
    first = 0 if stacks[0].is_literal else 1
    layers = [list(stack.others)[first:] for stack in stacks]
    for column in zip(*layers, strict=True):
        rows = _layer(rows.one("Relu"), column, member, step)
    return rows.reshape(0, len(heads), 2, n_actions).transpose(0, 2, 3, 1)


def _read_frontier_net(model: NetworkQ, member: int, embedded: Value, step: Value | int) -> Value:
    graph, rows = embedded.graph, embedded
    _, _, n_actions, _, heads = model.sizes
    stacks = [cast(FrontierStack, stack) for stack in model.stacks]
    for number, column in enumerate(zip(*(stack.layers for stack in stacks), strict=True)):
        rows = _layer(rows.one("Relu") if number else rows, column, member, step)
    values = rows.reshape(0, 2, n_actions, len(heads))
    if not stacks[0].is_monotone or len(heads) == 1:
        return values
    first, others = values.take([0], 3), values.take(np.arange(1, len(heads)), 3)
    gaps = np.diff(np.array(heads, np.float32))
    rises = (others.take([0], 1) - 3.0).one("Softplus")
    costs = (others.take([1], 1) + 1.0).one("Sigmoid") * gaps
    steps = graph.concat((first, graph.concat((rises, costs), 1)), 3).cast(np.float64)
    axis = graph.constant(3)
    return graph.op("CumSum", steps, axis, dtype=np.float64).cast(np.float32)


def _layer(rows: Value, layers: Sequence[Any], member: int, step: Value | int) -> Value:
    """One layer of a network, which may differ from step to step."""
    stacks = cast(Sequence[LinearStack], layers)
    weights = np.stack([_array(layer.weight)[member] for layer in stacks])
    biases = np.stack([_array(layer.bias)[member, 0] for layer in stacks])
    return rows @ of_step(rows.graph, weights, step) + of_step(rows.graph, biases, step)


def _embed_actor(model: ActorQ, rows: Value) -> Value:
    return _scaled(model, rows).at_least(-_FAR).at_most(_FAR).cast(np.float32)


def _read_actor(model: ActorQ, embedded: Value, step: Value | int) -> Values:
    graph = embedded.graph
    with torch.no_grad():
        knots = torch.arange(model.settings.knots)
        at = (model.places[:, None] + 1) / 2 * (model.settings.knots - 1)
        shares = _array((1 - (at - knots).abs()).clamp(0))  # [H, K]
    chances, worth = (
        _actor_outputs(network, embedded) @ np.ascontiguousarray(shares.T)
        for network in (model.actor, model.critic)
    )
    logs = chances.one("LogSoftmax", axis=1)
    q_r = worth.take([0], 1) + (logs - logs.reduce("Max", 1))
    q_c = worth.take([1], 1) + q_r * 0.0
    shape = 0, 1, model.sizes.n_actions, len(model.sizes.heads)
    return [graph.concat((q_r.reshape(*shape), q_c.reshape(*shape)), 1)]


def _actor_outputs(network: Any, embedded: Value) -> Value:
    """Outputs at knots, `[n, outputs, K]`."""
    hidden = embedded
    for layer in (network.first, network.second):
        weight = np.ascontiguousarray(_array(layer.weight).T)
        hidden = (hidden @ weight + _array(layer.bias)).one("Tanh")
    last = _array(network.last)
    outputs = hidden @ last.reshape(len(last), -1)
    return outputs.reshape(0, *last.shape[1:]) + _array(network.bias)


def _embed_bounded(model: Bounded, rows: Value) -> Value:
    return _embedded(model.inner, rows)


def _read_bounded(model: Bounded, embedded: Value, step: Value | int) -> Values:
    least, most = (
        of_step(embedded.graph, _array(model.get_buffer(name)), step) for name in ("least", "most")
    )
    return [v.at_least(least).at_most(most) for v in _read(model.inner, embedded, step)]


_EMBEDDED: dict[type[Any], Callable[[Any, Value], Value]] = {
    ActorQ: _embed_actor,
    Bounded: _embed_bounded,
    ForestQ: _embed_forest,
    KernelQ: _scaled,
    LinearQ: _embed_linear,
    NetworkQ: _scaled_single,
    TableQ: _embed_table,
}
_READ: dict[type[Any], Callable[[Any, Value, Value | int], Values]] = {
    ActorQ: _read_actor,
    Bounded: _read_bounded,
    ForestQ: _read_forest,
    KernelQ: _read_kernel,
    LinearQ: _read_linear,
    NetworkQ: _read_network,
    TableQ: _read_table,
}


def _combined(values: Values, caution: float) -> Value:
    """Mean over an ensemble, less a caution, as `bmdp.models.regressor.combined`."""
    if len(values) == 1:
        return values[0]
    mean = _mean(values)
    if caution == 0:
        return mean
    squares = (values[0] - mean) * (values[0] - mean)
    for own in values[1:]:
        squares = squares + (own - mean) * (own - mean)
    signs = np.array([-caution, caution], np.float32)[:, None, None]
    return mean + (squares / len(values)).one("Sqrt") * signs


def _mean(values: Values) -> Value:
    total = values[0]
    for own in values[1:]:
        total = total + own
    return total if len(values) == 1 else total / len(values)


def _array(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().cpu().numpy()


def _name(value: Any) -> str:
    return getattr(value, "__name__", type(value).__name__)


def _no_graph(value: Any) -> PolicyError:
    return PolicyError(
        f"{_name(value)} cannot be written as ONNX: there is a graph of tables, linear models, "
        "kernels, forests and networks of this library alone. Play it with bmdp instead."
    )
