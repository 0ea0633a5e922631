"""Shapes that are worked out anew: where a file leaves them open, or the caller wants others.

A file may say that a size is known only when the model runs; its shapes then hold a 1 in that place, or -1. Runtimes
that infer shapes start from those of the inputs, op by op; so does this. Shapes that a model computes (the shape of a
tensor, a part of it, several put together) are computed here, as far as they follow from constants and other shapes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from diagmem.model.errors import ModelError, one_line
from diagmem.model.graph import ABSENT, Graph, Node, Shape, Tensor
from diagmem.ops import OpKind, kind_of
from diagmem.ops.folding import DAMAGE, folded


def with_shapes(graph: Graph, given: Mapping[str, Shape], dynamic: Collection[int] = ()) -> Graph:
    """The graph with other shapes of some inputs, by name, and with what follows from them. `dynamic`: tensors whose
    shapes in the file are not to be relied on."""
    wanted = {_input_named(graph, name): shape for name, shape in given.items()}
    if not wanted and not dynamic:
        return graph
    tensors = list(graph.tensors)
    for index, shape in wanted.items():
        tensors[index] = replace(tensors[index], shape=_checked(tensors[index], shape))
    known = list(tensors)
    for op in graph.ops:
        inputs = tuple(None if t == ABSENT else known[t] for t in op.inputs)
        node = Node(op, inputs, tuple(known[t] for t in op.outputs))
        is_open = any(t in dynamic for t in op.outputs)
        is_changed = any(t is not None and t.shape != graph.tensors[t.index].shape for t in inputs)
        if is_open or is_changed:
            shapes = _output_shapes(node, is_changed)
            for tensor, shape in zip(node.outputs, shapes, strict=True):
                tensors[tensor.index] = known[tensor.index] = replace(tensor, shape=shape)
            node = replace(node, outputs=tuple(known[t] for t in op.outputs))
        # What is computed here stays an activation of the graph; it is only known while shapes are worked out.
        for tensor, values in zip(node.outputs, folded(node) or (), strict=False):
            known[tensor.index] = replace(tensor, is_constant=True, data=values)
    return replace(graph, tensors=tuple(tensors))


def _output_shapes(node: Node, is_changed: bool) -> Sequence[Shape]:
    """What a damaged file gives is left as it is, for the checks that follow to name."""
    kind = kind_of(node.op.kind)
    before = tuple(t.shape for t in node.outputs)
    try:
        shapes = None if kind is None else _inferred(kind, node)
    except (ModelError, *DAMAGE):
        return before
    if shapes is not None:
        return shapes if len(shapes) == len(before) else before
    if is_changed or any(size < 0 for shape in before for size in shape):
        what = "its operation is not known" if kind is None else "it depends on values that only a run computes"
        raise ModelError(f"{node.label}: the shape of its output cannot be worked out: {what}")
    return before


def _inferred(kind: OpKind, node: Node) -> tuple[Shape, ...] | None:
    return kind.output_shapes(node.op.kind, node.attributes, node.inputs)


def _input_named(graph: Graph, name: str) -> int:
    found = [t for t in graph.inputs if graph.tensors[t].name == name]
    if len(found) != 1:
        names = ", ".join(f"'{graph.tensors[t].label}'" for t in graph.inputs)
        what = "no input" if not found else "more than one input"
        raise ModelError(f"{what} is called '{one_line(name)}'; the model's inputs: {names}")
    return found[0]


def _checked(tensor: Tensor, shape: Shape) -> Shape:
    if len(shape) != len(tensor.shape) or any(size < 1 for size in shape):
        raise ModelError(
            f"input '{tensor.label}' cannot have the shape {list(shape)}; expected: {len(tensor.shape)} sizes above 0, "
            f"in the file it is {list(tensor.shape)}"
        )
    return shape
