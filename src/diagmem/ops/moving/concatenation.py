"""CONCATENATION: inputs one behind another along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Rounding, Shape, Tensor
from diagmem.model.multicore import Cut
from diagmem.model.views import in_one_piece
from diagmem.ops.c_call import (
    QUANTISED_OR_REAL,
    CCall,
    CPointers,
    CStretch,
    CTable,
    Unsupported,
    is_row_local,
    joined_axes,
    kernel_call,
    outermost,
    require_types,
)
from diagmem.ops.kind import Array, ColumnsAsRows, Rewritten, Values, axis_of, input_at, stretch_cuts
from diagmem.ops.loops.chunks import Chunks, RearrangeKind
from diagmem.ops.loops.pixels import all_have_pitches
from diagmem.ops.numerics.quantised import require_same_quantisation, scale_of, zero_point_of
from diagmem.ops.options import Activation, Table
from diagmem.ops.orders import Order, Variant
from diagmem.ops.sampling import Draw, Fitting, activation, constant, node_of
from diagmem.ops.signature import MANY, Signature


@dataclass(frozen=True, slots=True)
class Concatenation:
    axis: int = 0
    activation: Activation = Activation.NONE


class ConcatenationKind(RearrangeKind):
    names = ("CONCATENATION",)
    orders = (Order.REFERENCE, Order.MEMCPY)
    takes = Signature((1, MANY), all_alike=True)
    table = Table(Concatenation, ("Axis", "FusedActivationFunction"))

    def output_shapes(self, name: str, attributes: Concatenation, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        shapes = [input_at(inputs, position).shape for position in range(max(1, len(inputs)))]
        axis = axis_of(attributes.axis, len(shapes[0]))
        rests = {(shape[:axis], shape[axis + 1 :]) for shape in shapes}
        if len(rests) > 1 or len({len(shape) for shape in shapes}) > 1:
            raise ModelError(f"shapes {[list(s) for s in shapes]} differ in more than axis {axis}; the file is damaged")
        return ((*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :]),)

    def chunks(self, node: Node, order: Order) -> Chunks:
        axis = axis_of(node.attributes.axis, len(node.output.shape))
        lengths = np.array([math.prod(node.input(p).shape[axis:]) for p in range(len(node.inputs))])
        outer = np.arange(math.prod(node.output.shape[:axis]))[:, None]
        chunks = Chunks.of(outer * lengths, lengths, position=np.arange(len(lengths)))
        return chunks.moved_at_once() if order is Order.MEMCPY else chunks

    def columns_as_rows(self, node: Node, change: ColumnsAsRows) -> Rewritten | None:
        """All of its tensors change; none is constant."""
        if any(t is None or t.index not in change.shapes for t in (*node.inputs, *node.outputs)):
            return None
        axis = change.axes[axis_of(node.attributes.axis, len(node.output.shape))]
        return Rewritten(replace(node.attributes, axis=axis))

    def can_address(self, node: Node) -> bool:
        """What a tensor gives or takes at once must be in one piece."""
        axis = axis_of(node.attributes.axis, len(node.output.shape))
        tensors = (*(t for _, t in node.activations()), *node.outputs)
        return all_have_pitches(node) and all(in_one_piece(t.shape[axis:], t.strides[axis:]) for t in tensors)

    def has_row_kernel(self, node: Node) -> bool:
        return is_row_local(node) and axis_of(node.attributes.axis, 4) > 1

    def cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        return stretch_cuts(self.c_call, node)

    def row_cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        return stretch_cuts(self.c_row_call, node)

    def c_call(self, node: Node) -> CCall:
        inputs = tuple(node.input(position) for position in range(len(node.inputs)))
        if node.attributes.activation is not Activation.NONE:
            raise Unsupported(f"a fused {node.attributes.activation.name}; TensorFlow Lite Micro refuses it too")
        axis = axis_of(node.attributes.axis, len(node.output.shape))
        call = concatenation_call(node, axis, [t.shape[axis:] for t in inputs], [t.strides[:axis] for t in inputs])
        if not _is_rescaled(node):
            require_same_quantisation((node.output, *inputs))
            return call
        tables = CTable("tables", np.stack([_rescaled(t, node.output) for t in inputs]))
        rescaled = kernel_call("concatenation_u8", {**call.parameters.fields, "tables": tables}, call.arguments)
        return replace(rescaled, stretch=call.stretch)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        if _is_rescaled(node):
            pairs = zip(inputs, node.inputs, strict=True)
            inputs = [_rescaled(t, node.output)[values] for values, t in pairs if t is not None]
        return super().reference(node, inputs)

    def sample(self, name: str, draw: Draw) -> Node:
        """One to four inputs along any axis, counted from either end; some are constant."""
        shape, dtype = draw.shape(least_axes=1), draw.choice(QUANTISED_OR_REAL)
        axis = draw.axis(len(shape))
        parts = [
            [size if a == axis % len(shape) else s for a, s in enumerate(shape)] for size in draw.many(1, 5, draw.small)
        ]
        inputs = [draw.choice((activation, activation, constant))(part, dtype) for part in parts]
        return node_of(self, name, Concatenation(axis), inputs, (dtype,))

    def fitting(self, node: Node) -> Fitting:
        """Unsigned inputs have scales of their own."""
        return Fitting(None, gain=1 if node.output.dtype is DType.UINT8 else None)


def _is_rescaled(node: Node) -> bool:
    """Whether inputs get another scale as they are joined, which only unsigned numbers do."""
    found = node.output.quantisation
    if node.output.dtype is not DType.UINT8 or found is None or found.rounding is Rounding.ONNX:
        return False
    return any(t is not None and t.quantisation != node.output.quantisation for t in node.inputs)


def _rescaled(source: Tensor, target: Tensor) -> Array:
    """What each of the 256 numbers of an input becomes, in the single precision in which LiteRT computes it."""
    numbers = np.arange(256, dtype=np.float32)
    if source.quantisation == target.quantisation:
        return numbers.astype(np.uint8)
    scale = np.float32(scale_of(source)) * (np.float32(1) / np.float32(scale_of(target)))
    real = numbers * scale + np.float32(-zero_point_of(source)) * scale
    nearest = np.sign(real) * np.floor(np.abs(real.astype(np.float64)) + 0.5)
    stored: Array = np.clip(nearest + zero_point_of(target), 0, 255).astype(np.uint8)
    return stored


def concatenation_call(node: Node, axis: int, rows: Sequence[Shape], strides: Sequence[Sequence[int]]) -> CCall:
    """For every index of the output's axes before `axis`, one input after the other gives a row, of the shape `rows`.
    `strides`: elements between the neighbours of each input along those axes."""
    inputs = tuple(node.input(position) for position in range(len(node.inputs)))
    require_types(node.output.dtype, inputs)
    element = node.output.dtype.size_bytes
    sizes, out, *ins = joined_axes(3, node.output.shape[:axis], node.output.strides[:axis], *strides)
    fields = {
        "element": element,
        "size": sizes,
        "pitch": tuple(pitch * element for pitch in out),
        "count": len(inputs),
        "width": CTable("width", np.array([math.prod(row) for row in rows], np.int32)),
        "pitches": CTable("pitches", np.array(ins, np.int32) * element),
    }
    outer = outermost(sizes)
    stretch = CStretch(sizes[outer], f"size[{outer}]", (*(pitches[outer] for pitches in ins), out[outer]))
    return replace(kernel_call("concatenation", fields, (CPointers(inputs), node.output)), stretch=stretch)


KIND = ConcatenationKind()
