"""A graph of ONNX, written as one writes arrays.

A `Value` is an array that the graph will compute: it is added, compared and indexed as an array of
numpy is, and what it is combined with becomes a constant of its own type, so that single precision
stays single. Nothing is computed here. Operators are those of ONNX opset 18.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

OPSET, TREES_OPSET, IR = 18, 3, 9
TREES = "ai.onnx.ml"
"""Domain of trees."""

Operand: TypeAlias = Any
"""A `Value`, or an array or a number, which becomes a constant."""


class Graph:
    """Nodes, in the order in which they are computed, and constants."""

    def __init__(self, outer: Graph | None = None) -> None:
        """Starts an empty graph; one of a loop sees all that the outer one has."""
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = [] if outer is None else outer.constants
        self._known: dict[tuple[Any, ...], Value] = {} if outer is None else outer._known
        self._count: list[int] = [0] if outer is None else outer._count

    def constant(self, array: Any, dtype: Any = None) -> Value:
        """Gives an array that does not change; the same one is kept once."""
        values = np.asarray(array, dtype)
        key = values.dtype.str, values.shape, values.tobytes()
        if key not in self._known:
            name = self.name()
            kept = np.ascontiguousarray(values).reshape(values.shape)
            self.constants.append(numpy_helper.from_array(kept, name))
            self._known[key] = Value(self, name, values.dtype)
        return Value(self, self._known[key].name, values.dtype)

    def name(self) -> str:
        """Gives a name that is not taken."""
        self._count[0] += 1
        return f"v{self._count[0]}"

    def input(self, name: str, dtype: Any) -> Value:
        """Gives an array that is handed to the graph."""
        return Value(self, name, np.dtype(dtype))

    def op(self, kind: str, *given: Value, dtype: Any, **attributes: Any) -> Value:
        """Adds a node with one output."""
        name = self.name()
        self.nodes.append(helper.make_node(kind, [v.name for v in given], [name], **attributes))
        return Value(self, name, np.dtype(dtype))

    def loop(
        self,
        state: Sequence[Value],
        goes_on: Callable[[Graph, Sequence[Value]], Value],
        turn: Callable[[Graph, Sequence[Value]], Sequence[Value]],
    ) -> list[Value]:
        """Repeats a turn while a condition holds.

        Args:
            state: what changes from turn to turn.
            goes_on: from a state to whether there is a next turn, one truth value.
            turn: from a state to the next one.
        """
        body = Graph(self)
        number, before = body.input(body.name(), np.int64), body.input(body.name(), np.bool_)
        own = [body.input(body.name(), value.dtype) for value in state]
        after = turn(body, own)
        condition = goes_on(body, after)
        inputs = [info(v.name, v.dtype, []) for v in (number, before)]
        inputs += [info(v.name, v.dtype, None) for v in own]
        outputs = [info(condition.name, condition.dtype, [])]
        outputs += [info(v.name, v.dtype, None) for v in after]
        names = [self.name() for _ in state]
        most = self.constant(np.iinfo(np.int64).max, np.int64)
        first = goes_on(self, state)
        self.nodes.append(
            helper.make_node(
                "Loop",
                [most.name, first.name, *(v.name for v in state)],
                names,
                body=helper.make_graph(body.nodes, "turn", inputs, outputs),
            )
        )
        return [Value(self, name, v.dtype) for name, v in zip(names, state, strict=True)]

    def where(self, mask: Value, one: Operand, other: Operand) -> Value:
        """One where a mask says so, else the other; at least one of them is no plain number."""
        kind = next(v for v in (one, other) if isinstance(v, Value)).dtype
        found = [v if isinstance(v, Value) else self.constant(v, kind) for v in (one, other)]
        return self.op("Where", mask, *(v.within(self) for v in found), dtype=kind)

    def concat(self, parts: Sequence[Value], axis: int) -> Value:
        """Puts arrays one after the other along an axis."""
        if len(parts) == 1:
            return parts[0]
        return self.op("Concat", *parts, dtype=parts[0].dtype, axis=axis)

    def renamed(self, value: Value, name: str) -> str:
        """Gives an array a name that is seen from outside."""
        self.nodes.append(helper.make_node("Identity", [value.name], [name]))
        return name

    def whole(
        self, name: str, inputs: list[ValueInfoProto], outputs: list[ValueInfoProto]
    ) -> GraphProto:
        """The graph as ONNX has it, without constants that nothing is computed from."""
        used = {one for node in self.nodes for one in node.input}
        for node in self.nodes:
            for attribute in node.attribute:
                used.update(one for inner in attribute.g.node for one in inner.input)
        constants = [constant for constant in self.constants if constant.name in used]
        return helper.make_graph(self.nodes, name, inputs, outputs, constants)


class Value:
    """An array that a graph computes, of a known type."""

    def __init__(self, graph: Graph, name: str, dtype: Any) -> None:
        """Names it."""
        self.graph, self.name, self.dtype = graph, name, np.dtype(dtype)

    def within(self, graph: Graph) -> Value:
        """The same, as a graph of a loop sees it."""
        return Value(graph, self.name, self.dtype)

    def _with(self, other: Operand) -> Value:
        if not isinstance(other, Value):
            return self.graph.constant(other, self.dtype)
        if other.dtype != self.dtype:
            raise TypeError(f"{self.dtype} and {other.dtype} cannot be combined.")
        return other

    def _two(self, kind: str, other: Operand, dtype: Any = None) -> Value:
        return self.graph.op(kind, self, self._with(other), dtype=dtype or self.dtype)

    def __add__(self, other: Operand) -> Value:
        return self._two("Add", other)

    def __sub__(self, other: Operand) -> Value:
        return self._two("Sub", other)

    def __mul__(self, other: Operand) -> Value:
        return self._two("Mul", other)

    def __truediv__(self, other: Operand) -> Value:
        return self._two("Div", other)

    def __floordiv__(self, other: Operand) -> Value:
        """Whole numbers from 0 on."""
        return self._two("Div", other)

    def __mod__(self, other: Operand) -> Value:
        """Whole numbers from 0 on."""
        return self._two("Mod", other)

    def __matmul__(self, other: Operand) -> Value:
        return self._two("MatMul", other)

    def __xor__(self, other: Operand) -> Value:
        return self._two("BitwiseXor", other)

    def __gt__(self, other: Operand) -> Value:
        return self._two("Greater", other, np.bool_)

    def __ge__(self, other: Operand) -> Value:
        return self._two("GreaterOrEqual", other, np.bool_)

    def __lt__(self, other: Operand) -> Value:
        return self._two("Less", other, np.bool_)

    def __le__(self, other: Operand) -> Value:
        return self._two("LessOrEqual", other, np.bool_)

    def equals(self, other: Operand) -> Value:
        """Where two arrays are equal."""
        return self._two("Equal", other, np.bool_)

    def __and__(self, other: Operand) -> Value:
        return self._two("And", other)

    def __or__(self, other: Operand) -> Value:
        return self._two("Or", other)

    def __invert__(self) -> Value:
        return self.one("Not")

    def one(self, kind: str, dtype: Any = None, **attributes: Any) -> Value:
        """A function of this array alone."""
        return self.graph.op(kind, self, dtype=dtype or self.dtype, **attributes)

    def cast(self, dtype: Any) -> Value:
        """The same in another type."""
        kind = np.dtype(dtype)
        return self if kind == self.dtype else self.one("Cast", kind, to=onnx_type(kind))

    def at_least(self, bound: Operand) -> Value:
        """The larger of two."""
        return self._two("Max", bound)

    def at_most(self, bound: Operand) -> Value:
        """The smaller of two."""
        return self._two("Min", bound)

    def reduce(self, kind: str, axis: int) -> Value:
        """Sum, least or most along an axis, which stays, of length 1."""
        axes = self.graph.constant([axis], np.int64)
        return self.graph.op(f"Reduce{kind}", self, axes, dtype=self.dtype, keepdims=1)

    def any(self, axis: int) -> Value:
        """Whether any is true along an axis, which stays."""
        return self.cast(np.int32).reduce("Max", axis).cast(np.bool_)

    def place(self, kind: str, axis: int) -> Value:
        """Place of the most ("ArgMax") or the least ("ArgMin") along an axis, the first one."""
        return self.one(kind, np.int64, axis=axis, keepdims=1)

    def at(self, places: Value, axis: int = 1) -> Value:
        """Values at places of the same rank, as `np.take_along_axis`."""
        return self.graph.op("GatherElements", self, places, dtype=self.dtype, axis=axis)

    def take(self, places: Operand, axis: int = 0) -> Value:
        """Parts along an axis, as `np.take`."""
        where = places if isinstance(places, Value) else self.graph.constant(places, np.int64)
        return self.graph.op("Gather", self, where, dtype=self.dtype, axis=axis)

    def least(self, n: int, axis: int) -> Value:
        """The n least values along an axis, rising."""
        names, count = [self.graph.name(), self.graph.name()], self.graph.constant([n], np.int64)
        node = helper.make_node("TopK", [self.name, count.name], names, axis=axis, largest=0)
        self.graph.nodes.append(node)
        return Value(self.graph, names[0], self.dtype)

    def reshape(self, *shape: int) -> Value:
        """Another shape; 0 keeps a length, one -1 is the rest."""
        return self.graph.op(
            "Reshape", self, self.graph.constant(shape, np.int64), dtype=self.dtype
        )

    def flat(self) -> Value:
        """All axes but the first as one."""
        return self.one("Flatten", axis=1)

    def with_axis(self, axis: int) -> Value:
        """One more axis, of length 1."""
        axes = self.graph.constant([axis], np.int64)
        return self.graph.op("Unsqueeze", self, axes, dtype=self.dtype)

    def transpose(self, *axes: int) -> Value:
        """Axes in another order."""
        return self.one("Transpose", perm=axes)

    def rows_like(self, other: Value) -> Value:
        """A single row `[1, ...]`, as often as another array `[n, ...]` has rows."""
        n = other.one("Shape", np.int64, start=0, end=1)
        ones = self.graph.constant([1], np.int64)
        shape = self.graph.op("Concat", n, ones, dtype=np.int64, axis=0)
        return self.graph.op("Expand", self, shape, dtype=self.dtype)


def onnx_type(dtype: Any) -> int:
    """The number of a type."""
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def info(name: str, dtype: Any, shape: Sequence[int | str] | None) -> ValueInfoProto:
    """Name, type and shape of an input or output."""
    return helper.make_tensor_value_info(name, onnx_type(dtype), shape)
