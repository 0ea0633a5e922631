"""What an operation may be given: how many operands, of which types and sizes, with which scales.

Each kind declares its `Signature`; `check_signatures` holds every operation of a graph against it where the graph comes
in, before anything is planned. What passes here may still have no kernel of ours; what does not runs nowhere. The file
is called damaged only where it contradicts itself: a type that no kernel takes may be a mistake of its exporter.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Graph, Node, Quantisation, Tensor

if TYPE_CHECKING:
    from diagmem.ops.kind import OpKind

MANY = 1024
"""As many operands as a file may give to one operation."""

WHOLE_NUMBERS = (DType.INT8, DType.INT16, DType.INT32, DType.INT64)
"""Types of axes, sizes, paddings, indices."""

_WEIGHTS = {
    DType.FLOAT32: (DType.FLOAT32, DType.FLOAT16, DType.INT8, DType.INT4),
    DType.INT8: (DType.INT8, DType.INT4),
    DType.UINT8: (DType.UINT8, DType.INT8),
    DType.INT16: (DType.INT8, DType.INT4, DType.INT16),
}
_BIASES = {
    DType.FLOAT32: (DType.FLOAT32, DType.FLOAT16),
    DType.INT8: (DType.INT32,),
    DType.UINT8: (DType.INT32,),
    DType.INT16: (DType.INT32, DType.INT64),
}
"""Type of the data -> types that weights, and biases, may have beside them."""

_DAMAGE = (IndexError, ValueError, TypeError, OverflowError, AttributeError, KeyError)
"""What numbers that make no sense can raise where shapes are worked out from them."""

DAMAGED = "; the file is damaged"

_SCALED = (DType.INT4, DType.INT8, DType.UINT8, DType.INT16, DType.INT32)


@dataclass(frozen=True, slots=True)
class Weights:
    """A filter, and a bias with an element for each output channel. `axis`: that of the channels in the filter."""

    axis: int
    filter: int = 1
    bias: int = 2


@dataclass(frozen=True, slots=True)
class Signature:
    """`inputs`, `outputs`: the least and the largest number of operands; inputs below the least are there.
    `data`: the position of the data among the inputs.
    `alike`: further inputs of the data's type; `all_alike`: all inputs are of one type.
    `numbers`: inputs that hold whole numbers: axes, sizes, indices.
    `single`: inputs of one element.
    `made`: type of the data -> types that outputs may have; a type that is not in it stays what it is. None: any."""

    inputs: tuple[int, int] = (1, 1)
    outputs: tuple[int, int] = (1, 1)
    data: int = 0
    alike: tuple[int, ...] = ()
    all_alike: bool = False
    numbers: tuple[int, ...] = ()
    single: tuple[int, ...] = ()
    made: Mapping[DType, tuple[DType, ...]] | None = field(default_factory=dict)
    weights: Weights | None = None


def require_elems(inputs: Sequence[Tensor | None], elems: Mapping[int, int]) -> None:
    """Raises ModelError unless the inputs at these positions, where they are given, have so many elements: kernels
    read that many, whatever the file holds."""
    for position, expected in elems.items():
        tensor = inputs[position] if position < len(inputs) else None
        if tensor is not None and tensor.elems != expected:
            raise ModelError(
                f"input {position} '{tensor.label}' has {tensor.elems} elements; expected: {expected}{DAMAGED}"
            )


def check_signatures(graph: Graph) -> Graph:
    """The graph, if every operation in it is given what its kind asks for; else ModelError."""
    from diagmem.ops import kind_of

    for node in graph.nodes:
        kind = kind_of(node.op.kind)
        if kind is not None:
            check_node(node, kind)
    return graph


def check_node(node: Node, kind: OpKind) -> None:
    """Raises ModelError, in one line that says which operand, what was found and what was expected."""
    for problem in _problems(node, kind.signature(node.op.kind)):
        raise ModelError(f"{node.label}: {problem}")
    try:
        shapes = kind.output_shapes(node.op.kind, node.attributes, node.inputs)
    except ModelError as error:
        raise ModelError(f"{node.label}: {error}") from error
    except _DAMAGE as error:
        raise ModelError(f"{node.label}: its inputs and options do not fit each other") from error
    if (not kind.can_make(node)) if shapes is None else shapes != tuple(t.shape for t in node.outputs):
        given = "cannot give them" if shapes is None else f"give {[list(s) for s in shapes]}"
        raise ModelError(
            f"{node.label}: the file says its outputs have shapes {[list(t.shape) for t in node.outputs]}, "
            f"but its inputs and options {given}; the file is damaged"
        )


def _problems(node: Node, signature: Signature) -> Iterator[str]:
    """One rule after the other; each may rely on those before it."""
    yield from _counts(node, signature)
    yield from _types(node, signature)
    for position in signature.single:
        if node.input(position).elems != 1:
            yield f"input {position} has {node.input(position).elems} elements; expected: 1{DAMAGED}"
    if signature.weights is not None:
        yield from _weights(node, signature, signature.weights)
    bias = None if signature.weights is None else signature.weights.bias
    for where, tensor in _operands(node):
        # A bias counts in units of the data and the weights: nobody reads its own scale.
        if bias is None or where != f"input {bias}":
            yield from _scales(where, tensor)
    yield from _attributes(node)


def _counts(node: Node, signature: Signature) -> Iterator[str]:
    for what, found, (least, most) in (
        ("inputs", len(node.inputs), signature.inputs),
        ("outputs", len(node.outputs), signature.outputs),
    ):
        if not least <= found <= most:
            lacks = most == MANY and found < least
            expected = f"{least}" if least == most else f"at least {least}" if lacks else f"{least} to {most}"
            yield f"it has {found} {what}; expected: {expected}{'' if most == MANY < found else DAMAGED}"
    for position in range(signature.inputs[0]):
        if node.inputs[position] is None:
            yield f"input {position} is missing{DAMAGED}"


def _types(node: Node, signature: Signature) -> Iterator[str]:
    dtype = node.input(signature.data).dtype
    alike = range(len(node.inputs)) if signature.all_alike else signature.alike
    for position in alike:
        yield from _type(f"input {position}", node.input(position), (dtype,))
    for position in signature.numbers:
        tensor = node.inputs[position] if position < len(node.inputs) else None
        if tensor is not None:
            yield from _type(f"input {position}", tensor, WHOLE_NUMBERS)
    if signature.made is not None:
        for position, tensor in enumerate(node.outputs):
            yield from _type(f"output {position}", tensor, signature.made.get(dtype, (dtype,)))


def _type(where: str, tensor: Tensor, expected: tuple[DType, ...]) -> Iterator[str]:
    if tensor.dtype not in expected:
        names = " or ".join(dtype.value for dtype in expected)
        yield f"{where} '{tensor.label}' has {tensor.dtype.value} elements; expected: {names}"


def _weights(node: Node, signature: Signature, weights: Weights) -> Iterator[str]:
    dtype, filters = node.input(signature.data).dtype, node.input(weights.filter)
    if dtype not in _WEIGHTS:
        yield from _type(f"input {signature.data}", node.input(signature.data), tuple(_WEIGHTS))
    yield from _type(f"input {weights.filter}", filters, _WEIGHTS[dtype])
    bias = node.inputs[weights.bias] if weights.bias < len(node.inputs) else None
    if bias is None:
        return
    yield from _type(f"input {weights.bias}", bias, _BIASES[dtype])
    if not weights.axis < len(filters.shape):
        yield f"input {weights.filter} '{filters.label}' has {len(filters.shape)} axes; expected: 4{DAMAGED}"
    channels = filters.shape[weights.axis]
    if bias.elems != channels:
        yield (
            f"input {weights.bias} '{bias.label}' has {bias.elems} elements; "
            f"expected: {channels}, one for each output channel{DAMAGED}"
        )


def _operands(node: Node) -> Iterator[tuple[str, Tensor]]:
    yield from ((f"input {p}", tensor) for p, tensor in enumerate(node.inputs) if tensor is not None)
    yield from ((f"output {p}", tensor) for p, tensor in enumerate(node.outputs))


def _scales(where: str, tensor: Tensor) -> Iterator[str]:
    found = tensor.quantisation
    if found is None or tensor.dtype not in _SCALED:
        return
    named = f"{where} '{tensor.label}'"
    if not found.scales or len(found.scales) != len(found.zero_points):
        yield f"{named} has {len(found.scales)} scales and {len(found.zero_points)} zero points{DAMAGED}"
    if found.per_channel and not _fits(found, tensor):
        shape = list(tensor.shape)
        yield f"{named} has {len(found.scales)} scales; axis {found.axis} of shape {shape} does not{DAMAGED}"
    for scale in found.scales:
        # A tensor that held nothing but zeros when the model was converted may have the scale 0.
        if not (math.isfinite(scale) and scale >= 0):
            yield f"{named} has the scale {scale}; expected: a finite number, 0 or above"
    least, most = -(2 ** (tensor.dtype.bits - 1)), 2 ** (tensor.dtype.bits - 1) - 1
    if tensor.dtype is not DType.INT4:
        least, most = int(np.iinfo(tensor.dtype.numpy).min), int(np.iinfo(tensor.dtype.numpy).max)
    for zero_point in found.zero_points:
        if not least <= zero_point <= most:
            yield f"{named} has the zero point {zero_point}; expected: {least} to {most}{DAMAGED}"


def _fits(found: Quantisation, tensor: Tensor) -> bool:
    return 0 <= found.axis < len(tensor.shape) and tensor.shape[found.axis] == len(found.scales)


def _attributes(node: Node) -> Iterator[str]:
    """Floats among the options: slopes, factors."""
    if not dataclasses.is_dataclass(node.attributes):
        return
    for one in dataclasses.fields(node.attributes):
        value = getattr(node.attributes, one.name)
        if isinstance(value, float) and not math.isfinite(value):
            yield f"its option {one.name} is {value}; expected: a finite number"
