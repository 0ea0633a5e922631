"""Graphs as .tflite files, just as they are: with their own constants and scales."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from diagmem.frontends.tflite.writer import FlatTables
from diagmem.model.graph import ABSENT, DType, Graph, Node, Tensor
from diagmem.ops import kind_of
from diagmem.ops.kind import Array
from diagmem.ops.numerics.weighted_sums import halves
from diagmem.ops.options import Options
from diagmem.ops.state import keeps_state, tensors_in_file


def file_of(graph: Graph) -> bytes:
    """The file's bytes."""
    return GraphFile(_without_own_states(graph)).content()


def own_states_last(graph: Graph) -> Graph:
    """The graph with what operations remember beside a file's tensors behind all others, as it is once a file has been
    read."""
    own = [t for op in graph.ops if keeps_state(op) for t in op.inputs[1:]]
    order = [t.index for t in graph.tensors if t.index not in own] + own
    place = {ABSENT: ABSENT, **{old: new for new, old in enumerate(order)}}

    def moved(tensors: Iterable[int]) -> tuple[int, ...]:
        return tuple(place[t] for t in tensors)

    return replace(
        graph,
        tensors=tuple(replace(graph.tensors[old], index=new) for new, old in enumerate(order)),
        ops=tuple(replace(op, inputs=moved(op.inputs), outputs=moved(op.outputs)) for op in graph.ops),
        inputs=moved(graph.inputs),
        outputs=moved(graph.outputs),
    )


def _without_own_states(graph: Graph) -> Graph:
    """What operations remember beside the tensors of a file is in no file; here it stands behind all other tensors."""
    ops = (replace(op, inputs=op.inputs[:1]) if keeps_state(op) else op for op in graph.ops)
    return replace(graph, tensors=graph.tensors[: tensors_in_file(graph)], ops=tuple(ops))


def graph_of(node: Node) -> Graph:
    """The node as a whole model."""
    tensors: list[Tensor] = []

    def number(tensor: Tensor | None) -> int:
        if tensor is None:
            return ABSENT
        tensors.append(replace(tensor, index=len(tensors)))
        return len(tensors) - 1

    # What is in no file stands behind all that is.
    seen = node.inputs[:1] if keeps_state(node.op) else node.inputs
    ins = tuple(number(t) for t in seen)
    outs = tuple(number(replace(t, is_constant=False, data=None)) for t in node.outputs)
    ins += tuple(number(t) for t in node.inputs[len(seen) :])
    given = tuple(i for i in ins if i != ABSENT and not tensors[i].is_constant and not tensors[i].is_variable)
    return Graph("model", tuple(tensors), (replace(node.op, inputs=ins, outputs=outs),), given, outs)


def _options(node: Node) -> Options:
    """None too for an operation that nobody knows."""
    kind = kind_of(node.op.kind)
    return None if kind is None else kind.encode(node)


def _stored(tensor: Tensor, data: Array) -> Array:
    """As a file holds them: numbers of 4 bits by twos."""
    return halves(data.reshape(1, -1)) if tensor.dtype is DType.INT4 else data


class GraphFile(FlatTables):
    """Writes one graph."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph

    def content(self) -> bytes:
        graph = self.graph
        constants = [(t.index, _stored(t, t.data)) for t in graph.tensors if t.data is not None]
        buffers = [self.table("Buffer"), *(self.table("Buffer", Data=self.data(data)) for _, data in constants)]
        place = {index: number for number, (index, _) in enumerate(constants, 1)}
        tensors = self.offsets([self.tensor_at(t, place.get(t.index, 0)) for t in graph.tensors])
        codes = sorted({op.kind for op in graph.ops})
        operators = [
            self.operator(codes.index(node.op.kind), node.op.inputs, node.op.outputs, _options(node))
            for node in graph.nodes
        ]
        subgraph = self.table(
            "SubGraph",
            Tensors=tensors,
            Inputs=self.ints(graph.inputs),
            Outputs=self.ints(graph.outputs),
            Operators=self.offsets(operators),
        )
        model = self.table(
            "Model",
            Version=3,
            OperatorCodes=self.offsets([self.operator_code(kind, version=1) for kind in codes]),
            Subgraphs=self.offsets([subgraph]),
            Buffers=self.offsets(buffers),
        )
        self.flat.Finish(model, file_identifier=b"TFL3")
        return bytes(self.flat.Output())

    def tensor_at(self, tensor: Tensor, buffer: int) -> int:
        more = {"IsVariable": True} if tensor.is_variable else {}
        return self.tensor(
            f"{tensor.name}{tensor.index}", tensor.shape, tensor.dtype, buffer, tensor.quantisation, **more
        )
