"""What must hold of any graph from a file: sizes, and a source for every tensor.

Shapes are inferred where a file leaves them open, or the caller wants others. A file may say that a size is known only
when the model runs; its shapes then hold a 1 there, or -1. As in runtimes that infer shapes, this goes from the inputs'
shapes on, op by op. Shapes that a model computes (the shape of a tensor, a part of it, several concatenated) are
computed here, as far as they follow from constants and other shapes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from diagmem.model.errors import ModelError, damaged, one_line
from diagmem.model.graph import ABSENT, DType, Graph, Node, Shape, Tensor
from diagmem.ops import kind_of
from diagmem.ops.folding import DAMAGE, Allowance, folded
from diagmem.ops.options import CUSTOM

LARGEST_TENSOR_BYTES = 2**28
"""No micro-controller comes near 256 MiB of RAM; larger sizes are a sign of a damaged file."""

LARGEST_CONSTANT_BYTES = 2**31
"""No .tflite file is larger. A model may be published without its weights, but they were in a file once."""


def check_sizes(graph: Graph) -> None:
    """Of all tensors in use, in RAM or constant."""
    used = {*graph.inputs, *graph.outputs, *(t for op in graph.ops for t in (*op.inputs, *op.outputs))}
    for tensor in graph.tensors:
        where = f"tensor {tensor.index} '{tensor.label}'"
        if tensor.index in used and not tensor.is_constant:
            _check_activation(where, tensor)
        elif tensor.index in used and (any(n < 0 for n in tensor.shape) or tensor.size_bytes > LARGEST_CONSTANT_BYTES):
            raise damaged(f"{where}: a constant of shape {list(tensor.shape)}")


def _check_activation(where: str, tensor: Tensor) -> None:
    shape = list(tensor.shape)
    if any(size < 0 for size in shape):
        raise ModelError(
            f"{where}: shape {shape} is dynamic or damaged; give the shapes of inputs, such as --shape NAME=1x49x10x1, "
            "or convert the model with fixed shapes"
        )
    if tensor.dtype is DType.INT4:
        raise ModelError(f"{where}: 4-bit elements are supported in constants only")
    if tensor.elems == 0:
        raise ModelError(f"{where}: shape {shape} holds no elements; such tensors are not supported")
    if tensor.size_bytes > LARGEST_TENSOR_BYTES:
        raise ModelError(f"{where}: shape {shape} takes {tensor.size_bytes} bytes; the limit is 256 MiB")


def check_wiring(graph: Graph) -> None:
    """Every tensor has one source, and every read comes after it in the file's order (so there are no cycles)."""
    known = {t.index for t in graph.tensors if t.is_constant or t.is_variable} | set(graph.inputs)
    if len({*graph.inputs}) < len(graph.inputs):
        raise ModelError("an input of the model is named twice; such models are not supported")
    for tensor in (graph.tensors[i] for i in graph.inputs):
        if tensor.is_variable:
            raise ModelError(f"tensor {tensor.index} '{tensor.label}': a graph input cannot be a variable")
    for node in graph.nodes:
        # An unknown custom operation may have scratch memory as an input that nothing writes, as Arm's Ethos-U does.
        is_custom = node.op.kind.startswith(CUSTOM) and kind_of(node.op.kind) is None
        for missing in _unknown(node.inputs, known):
            if is_custom and missing.index not in graph.producer:
                continue
            reason = "only a later operation" if missing.index in graph.producer else "nothing"
            raise damaged(f"{node.label}: it reads tensor {missing.index} '{missing.label}', which {reason} produces")
        for tensor in node.outputs:
            if tensor.index in known and not tensor.is_variable:
                where = f"tensor {tensor.index} '{tensor.label}'"
                raise damaged(f"{node.label}: it writes {where}, which has its value from elsewhere already")
            known.add(tensor.index)
    for missing in _unknown([graph.tensors[i] for i in graph.outputs], known):
        raise ModelError(f"tensor {missing.index} '{missing.label}': nothing produces this graph output")


def _unknown(tensors: Sequence[Tensor | None], known: set[int]) -> Iterator[Tensor]:
    return (t for t in tensors if t is not None and t.index not in known)


def with_shapes(graph: Graph, given: Mapping[str, Shape], dynamic: Collection[int] = ()) -> Graph:
    """The graph with other shapes of some inputs, by name, and all shapes that follow from them. `dynamic`: tensors
    whose shapes in the file are unreliable."""
    if not given and not dynamic:
        return graph
    tensors = list(with_inputs(graph, given).tensors)
    known, allowance = list(tensors), Allowance.for_constants(tensors)
    for op in graph.ops:
        inputs = tuple(None if t == ABSENT else known[t] for t in op.inputs)
        node = Node(op, inputs, tuple(known[t] for t in op.outputs))
        is_open = any(t in dynamic for t in op.outputs)
        is_changed = any(t is not None and t.shape != graph.tensors[t.index].shape for t in inputs)
        if is_open or is_changed:
            shapes = inferred_shapes(node, is_changed)
            for tensor, shape in zip(node.outputs, shapes, strict=True):
                tensors[tensor.index] = known[tensor.index] = replace(tensor, shape=shape)
            node = replace(node, outputs=tuple(known[t] for t in op.outputs))
        # What is computed here stays an activation of the graph; its values serve only to infer shapes.
        for tensor, values in zip(node.outputs, folded(node, allowance) or (), strict=False):
            known[tensor.index] = replace(tensor, is_constant=True, data=values)
    return replace(graph, tensors=tuple(tensors))


def with_inputs(graph: Graph, given: Mapping[str, Shape]) -> Graph:
    """The graph with other shapes of some inputs, by name, and of nothing else."""
    wanted = {_input_named(graph, name): shape for name, shape in given.items()}
    changed = (replace(t, shape=_checked(t, wanted[t.index])) if t.index in wanted else t for t in graph.tensors)
    return replace(graph, tensors=tuple(changed)) if wanted else graph


def inferred_shapes(node: Node, is_changed: bool) -> Sequence[Shape]:
    """Of an operation's outputs; those that the file gives where only it knows them, unless inputs are not what it says
    (`is_changed`). Damage is left for later checks to report."""
    kind = kind_of(node.op.kind)
    before = tuple(t.shape for t in node.outputs)
    try:
        shapes = None if kind is None else kind.output_shapes(node.op.kind, node.attributes, node.inputs)
    except (ModelError, *DAMAGE):
        return before
    if shapes is not None:
        return shapes if len(shapes) == len(before) else before
    if is_changed or any(size < 0 for shape in before for size in shape):
        what = "its operation is not known" if kind is None else "it depends on values that only a run computes"
        raise ModelError(f"{node.label}: the shape of its output cannot be inferred: {what}")
    return before


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
