"""What operations do to the state of a network."""

from __future__ import annotations

from dataclasses import replace

from diagmem.model.errors import ModelError
from diagmem.model.graph import Graph, Node, Op, Tensor
from diagmem.ops import kind_of


def changed_variables(node: Node) -> tuple[int, ...]:
    """The variables that an operation writes. One that nobody knows may write all that it is given."""
    kind = kind_of(node.op.kind)
    inputs = [t for t in node.inputs if t is not None] if kind is None else [node.input(p) for p in kind.states(node)]
    return tuple(dict.fromkeys(t.index for t in (*inputs, *node.outputs) if t.is_variable))


def with_own_states(graph: Graph) -> Graph:
    """The graph with variables for what operations remember in no tensor of the file, behind all other tensors."""
    tensors, ops = list(graph.tensors), list[Op]()
    for node in graph.nodes:
        added = _own_states(node)
        places = range(len(tensors), len(tensors) + len(added))
        tensors += [
            replace(tensor, index=place, name=f"{node.output.name}/{tensor.name}", is_variable=True)
            for tensor, place in zip(added, places, strict=True)
        ]
        ops.append(replace(node.op, inputs=(*node.op.inputs, *places)))
    return graph if len(tensors) == len(graph.tensors) else replace(graph, tensors=tuple(tensors), ops=tuple(ops))


def keeps_state(op: Op) -> bool:
    """Whether the operation remembers what is in no tensor of the file."""
    kind = kind_of(op.kind)
    return kind is not None and kind.keeps_state


def tensors_in_file(graph: Graph) -> int:
    """How many tensors of a graph its file holds: what `with_own_states` has added stands behind them."""
    return len(graph.tensors) - len({t for op in graph.ops if keeps_state(op) for t in op.inputs[1:]})


def _own_states(node: Node) -> tuple[Tensor, ...]:
    kind = kind_of(node.op.kind)
    if kind is None or not kind.keeps_state:
        return ()
    if len(node.inputs) != 1:
        raise ModelError(f"{node.label}: it has {len(node.inputs)} inputs; expected: 1; the file is damaged")
    return kind.own_states(node)
