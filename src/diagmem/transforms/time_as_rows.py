"""1-D layers with their columns as rows, so that each step in time is a row.

Converters write a 1-D convolution as a 2-D one over an image of one row, with reshapes around it. The same bytes are an
image of one column, with every pixel a row of its own. Such networks can then run row by row, and a caller can push one
sample at a time. No data moves, only shapes change; reshapes that have become superfluous are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from diagmem.model.errors import ModelError
from diagmem.model.graph import ABSENT, Graph, Node, Op, Shape, Tensor
from diagmem.ops import kind_of
from diagmem.ops.kind import ColumnsAsRows
from diagmem.ops.moving.reshape import Reshape
from diagmem.transforms._editing import Choice, edited, is_among, is_movable, is_seen_by_caller

AXES: Mapping[int, tuple[int, ...]] = {3: (0, 1, 3), 4: (0, 2, 1, 3)}
"""Rank -> where each axis goes."""


def time_as_rows(graph: Graph, choice: Choice) -> Graph:
    """Changes all tensors that can be changed together with their neighbours."""
    turned = _Turned(graph)
    if turned.shapes:
        graph = turned.graph()
    return _without_reshapes(graph, choice)


def drop_flatten(graph: Graph, choice: Choice) -> Graph:
    """What takes the elements of an image into sums in their order reads the image, whose rows may then come and go,
    and not a reshape of it."""
    changed: dict[int, Op] = {}
    gone: list[int] = []
    for node in graph.nodes:
        path = list(_flattening(graph, node, choice)) if is_among(node.op, lambda kind: kind.flattens) else []
        if path:
            image = graph.nodes[path[-1]].input(0)
            attributes = replace(node.attributes, keep_num_dims=False)
            op = replace(node.op, inputs=(image.index, *node.op.inputs[1:]), attributes=attributes)
            if _takes_rows(Node(op, (image, *node.inputs[1:]), node.outputs)):
                changed[op.index] = op
                gone += path
    return edited(graph, without=gone, ops=changed) if changed else graph


def _flattening(graph: Graph, node: Node, choice: Choice) -> Iterator[int]:
    """The reshapes before an op, the last first, that nothing else reads."""
    while node.op.inputs[0] in graph.producer and len(graph.readers(node.op.inputs[0])) == 1:
        data, node = node.input(0), graph.nodes[graph.producer[node.op.inputs[0]]]
        kind = kind_of(node.op.kind)
        if kind is None or not kind.is_alias or not choice(node.op) or is_seen_by_caller(graph, data.index):
            return
        source = node.input(0)
        is_same = (source.dtype, source.quantisation) == (data.dtype, data.quantisation)
        if not is_same or not all(is_movable(t) and t.view is None for t in (source, data)):
            return
        yield node.op.index


def _takes_rows(node: Node) -> bool:
    kind = kind_of(node.op.kind)
    assert kind is not None
    has_shape = kind.output_shapes(node.op.kind, node.attributes, node.inputs) == (node.output.shape,)
    return has_shape and kind.accumulator_bytes(node) is not None


def as_rows(tensor: Tensor) -> Shape | None:
    """The shape with columns as rows; None if the tensor is not a single row of pixels."""
    shape = tensor.shape
    if len(shape) == 3 and shape[0] == 1:
        return (1, shape[1], 1, shape[2])
    if len(shape) == 4 and shape[:2] == (1, 1) and shape[2] > 1:
        return (1, shape[2], 1, shape[3])
    return None


def _without_reshapes(graph: Graph, choice: Choice) -> Graph:
    """Of two tensors with the same bytes and shape one is left: the source, or the one that the caller sees."""
    other: dict[int, int] = {}

    def left(tensor: int) -> int:
        while tensor in other:
            tensor = other[tensor]
        return tensor

    dropped: list[int] = []
    for node in graph.nodes:
        if not choice(node.op) or not _changes_nothing(graph, node):
            continue
        source, target = left(node.op.inputs[0]), node.output.index
        if target not in graph.outputs:
            other[target] = source
        elif is_seen_by_caller(graph, source):
            continue
        else:
            other[source] = target
        dropped.append(node.op.index)
    if not dropped:
        return graph
    made = {op.index: replace(op, outputs=tuple(map(left, op.outputs))) for op in graph.ops if op.index not in dropped}
    return edited(graph, without=dropped, ops=made, instead={tensor: left(tensor) for tensor in other})


def _changes_nothing(graph: Graph, node: Node) -> bool:
    """Whether it is a reshape to the shape that its input has."""
    kind = kind_of(node.op.kind)
    if kind is None or not kind.is_alias:
        return False
    source, target = node.input(0), node.output
    is_same = (source.shape, source.dtype, source.quantisation) == (target.shape, target.dtype, target.quantisation)
    return is_same and all(is_movable(t) and t.view is None and t.index not in graph.families for t in (source, target))


class _Turned:
    """`shapes`: tensors that change -> their new shapes. `ops`: the ops that touch them, changed."""

    def __init__(self, graph: Graph) -> None:
        self.source = graph
        found = {t.index: as_rows(t) for t in graph.tensors if is_movable(t) and t.view is None}
        self.shapes = {index: shape for index, shape in found.items() if shape and index not in graph.families}
        self.ops: dict[int, Op] = {}
        self.constants: dict[int, Tensor] = {}
        left = {op.index for op in graph.ops if self._touched(op)}
        while left:
            # An op that cannot change keeps its tensors, and these keep the ops beside it.
            node = graph.nodes[left.pop()]
            op = self._turned(node) if self._touched(node.op) else node.op
            if op is not None:
                self.ops[node.op.index] = op
                continue
            kept = self._touched(node.op)
            for tensor in kept:
                del self.shapes[tensor]
            for tensor in kept:
                left.update(self._ops_at(tensor))

    def graph(self) -> Graph:
        tensors = [replace(self.source.tensors[index], shape=shape) for index, shape in self.shapes.items()]
        kept = {index: op for index, op in self.ops.items() if self._touched(self.source.ops[index])}
        used = {t for op in kept.values() for t in op.inputs}
        return edited(self.source, ops=kept, tensors=[*tensors, *(t for i, t in self.constants.items() if i in used)])

    def _touched(self, op: Op) -> list[int]:
        return [t for t in dict.fromkeys((*op.inputs, *op.outputs)) if t in self.shapes]

    def _ops_at(self, tensor: int) -> Iterator[int]:
        yield from self.source.consumers.get(tensor, ())
        if tensor in self.source.producer:
            yield self.source.producer[tensor]

    def _turned(self, node: Node) -> Op | None:
        """The op on the changed tensors; None if there is no such op."""
        kind = kind_of(node.op.kind)
        if kind is None:
            return None
        if kind.is_alias:
            return self._reshape(node)
        ranks = {len(t.shape) for t in (*(t for _, t in node.activations()), *node.outputs) if t.index in self.shapes}
        if len(ranks) != 1:
            return None
        constants = {t.index for t in node.inputs if t is not None and t.is_constant}
        own = {index for index in constants if set(self.source.consumers[index]) == {node.op.index}}
        found = kind.columns_as_rows(node, ColumnsAsRows(self.shapes, AXES[ranks.pop()], own))
        if found is None:
            return None
        self.constants.update({tensor.index: tensor for tensor in found.constants.values()})
        turned = replace(node.op, attributes=found.attributes)
        return turned if self._gives_the_right_shapes(node, turned) else None

    def _gives_the_right_shapes(self, node: Node, op: Op) -> bool:
        """Whether the changed op gives its outputs the changed shapes; elements and their order stay the same."""
        kind = kind_of(op.kind)
        inputs = [None if t == ABSENT else self._now(t) for t in op.inputs]
        try:
            shapes = kind.output_shapes(op.kind, op.attributes, inputs) if kind else None
        except ModelError:
            return False
        return shapes == tuple(self._now(t.index).shape for t in node.outputs)

    def _now(self, index: int) -> Tensor:
        tensor = self.constants.get(index, self.source.tensors[index])
        return replace(tensor, shape=self.shapes[index]) if index in self.shapes else tensor

    def _reshape(self, node: Node) -> Op | None:
        """To the new shape, by attribute: an input that says another shape is dropped."""
        if node.input(0).is_constant:
            return None
        shape = self.shapes.get(node.output.index, node.output.shape)
        return replace(node.op, kind="RESHAPE", inputs=node.op.inputs[:1], attributes=Reshape(new_shape=shape))
