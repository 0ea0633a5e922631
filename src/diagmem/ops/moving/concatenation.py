"""CONCATENATION, PACK, UNPACK, SPLIT, SPLIT_V: tensors joined along an axis, or cut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Rounding, Shape, Tensor, in_one_piece, row_major_strides
from diagmem.ops.c_call import (
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
from diagmem.ops.kind import (
    Array,
    ColumnsAsRows,
    Inputs,
    Rewritten,
    Shapes,
    Values,
    axis_of,
    input_at,
    known_ints,
    only_axis,
    unless_computed,
)
from diagmem.ops.loops.chunks import Chunks, RearrangeKind
from diagmem.ops.loops.pixels import all_have_pitches
from diagmem.ops.numerics.quantised import require_same_quantisation, scale_of, zero_point_of
from diagmem.ops.options import Activation, Table
from diagmem.ops.orders import Order
from diagmem.ops.signature import MANY, Signature


@dataclass(frozen=True, slots=True)
class Concatenation:
    axis: int = 0
    activation: Activation = Activation.NONE


class ConcatenationKind(RearrangeKind):
    names = joins = ("CONCATENATION",)
    orders = (Order.REFERENCE, Order.MEMCPY)
    takes = Signature((1, MANY), all_alike=True)
    table = Table(Concatenation, ("Axis", "FusedActivationFunction"))

    def output_shapes(self, name: str, attributes: Concatenation, inputs: Inputs) -> Shapes:
        shapes = [input_at(inputs, position).shape for position in range(max(1, len(inputs)))]
        axis = axis_of(attributes.axis, len(shapes[0]))
        rests = {(shape[:axis], shape[axis + 1 :]) for shape in shapes}
        if len(rests) > 1 or len({len(shape) for shape in shapes}) > 1:
            raise ModelError(f"shapes {[list(s) for s in shapes]} differ in more than axis {axis}; the file is damaged")
        return ((*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :]),)

    def moves(self, node: Node, order: Order) -> Chunks:
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


def _is_rescaled(node: Node) -> bool:
    """Whether inputs get another scale as they are joined, which only unsigned numbers do."""
    found = node.output.quantisation
    if node.output.dtype is not DType.UINT8 or found is None or found.rounding is Rounding.ONNX:
        return False
    return any(t is not None and t.quantisation != node.output.quantisation for t in node.inputs)


def _rescaled(source: Tensor, target: Tensor) -> Array:
    """What each of the 256 numbers of an input becomes, in float32, as LiteRT computes it."""
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


@dataclass(frozen=True, slots=True)
class Pack:
    """`count` tensors lie along `axis` of the stack."""

    axis: int = 0
    count: int = 0


class PackKind(RearrangeKind):
    """In order "reference" the stack is walked forward; in "tensor_major" one tensor is finished before the next."""

    names = ("PACK", "UNPACK")
    joins, parts = ("PACK",), ("UNPACK",)
    table = {"PACK": Table(Pack, ("Axis", "ValuesCount")), "UNPACK": Table(Pack, ("Axis", "Num"))}
    orders = (Order.REFERENCE, Order.TENSOR_MAJOR)

    def signature(self, name: str) -> Signature:
        return Signature((1, MANY), all_alike=True) if name == "PACK" else Signature(outputs=(1, MANY))

    def output_shapes(self, name: str, attributes: Pack, inputs: Inputs) -> Shapes:
        return (_stacked if name == "PACK" else _unstacked)(attributes, inputs)

    def moves(self, node: Node, order: Order) -> Chunks:
        stack = node.output.shape if node.op.kind == "PACK" else node.input(0).shape
        axis = axis_of(node.attributes.axis, len(stack))
        tensors = np.arange(stack[axis], dtype=np.int64)
        rows = np.arange(math.prod(stack[:axis]), dtype=np.int64)[:, None]
        length = math.prod(stack[axis + 1 :])
        if node.op.kind == "PACK":
            chunks = Chunks.of(rows * length, length, position=tensors)
            return chunks if order is Order.REFERENCE else chunks.sorted_by(chunks.position)
        chunks = Chunks.of((rows * len(tensors) + tensors) * length, length, output=tensors)
        return chunks if order is Order.REFERENCE else chunks.sorted_by(chunks.output)

    def c_call(self, node: Node) -> CCall:
        if node.op.kind == "PACK":
            axis, shape = axis_of(node.attributes.axis, len(node.output.shape)), node.input(0).shape
            strides = row_major_strides(shape)[:axis]
            return concatenation_call(node, axis, [shape[axis:]] * len(node.inputs), [strides] * len(node.inputs))
        data = node.input(0)
        axis = axis_of(node.attributes.axis, len(data.shape))
        return split_call(node, data, [math.prod(data.shape[axis + 1 :])] * len(node.outputs))


def _stacked(attributes: Pack, inputs: Inputs) -> Shapes:
    shapes = {input_at(inputs, position).shape for position in range(max(1, len(inputs)))}
    if len(shapes) > 1 or attributes.count != len(inputs):
        raise ModelError(
            f"{attributes.count} tensors of one shape are to be stacked, {len(inputs)} of {len(shapes)} shapes are "
            "given; the file is damaged"
        )
    shape = shapes.pop()
    axis = axis_of(attributes.axis, len(shape) + 1)
    return ((*shape[:axis], len(inputs), *shape[axis:]),)


def _unstacked(attributes: Pack, inputs: Inputs) -> Shapes:
    shape, count = input_at(inputs, 0).shape, attributes.count
    axis = axis_of(attributes.axis, len(shape))
    if shape[axis] != count or count > MOST_OUTPUTS:
        raise ModelError(f"axis {axis} of {list(shape)} cannot be taken apart into {count}; the file is damaged")
    return ((*shape[:axis], *shape[axis + 1 :]),) * count


MOST_OUTPUTS = 1 << 16


@dataclass(frozen=True, slots=True)
class Split:
    """Inputs of SPLIT: axis, data. Inputs of SPLIT_V: data, sizes along the axis (one may be -1: the rest), axis."""

    num_splits: int = 0


class SplitKind(RearrangeKind):
    """The input is walked forward, and one output after the other gets its share of a row."""

    names = parts = ("SPLIT", "SPLIT_V")
    tflm_agrees = True
    table = Table(Split, ("NumSplits",))

    def signature(self, name: str) -> Signature:
        if name == "SPLIT":
            return Signature((2, 2), (1, MANY), data=1, numbers=(0,), single=(0,))
        return Signature((3, 3), (1, MANY), numbers=(1, 2), single=(2,))

    @unless_computed
    def output_shapes(self, name: str, attributes: Split, inputs: Inputs) -> Shapes:
        shape, (axis, sizes) = input_at(inputs, _data(name)).shape, _cut(name, attributes, inputs)
        return tuple((*shape[:axis], size, *shape[axis + 1 :]) for size in sizes)

    def moves(self, node: Node, order: Order) -> Chunks:
        position, (axis, sizes) = _data(node.op.kind), _cut(node.op.kind, node.attributes, node.inputs)
        shape = node.input(position).shape
        lengths = np.array(sizes, dtype=np.int64) * math.prod(shape[axis + 1 :])
        rows = np.arange(math.prod(shape[:axis]), dtype=np.int64)[:, None]
        starts = rows * math.prod(shape[axis:]) + np.cumsum(lengths) - lengths
        return Chunks.of(starts, lengths, position=position, output=np.arange(len(lengths)))

    def c_call(self, node: Node) -> CCall:
        data = node.input(_data(node.op.kind))
        axis, sizes = _cut(node.op.kind, node.attributes, node.inputs)
        return split_call(node, data, [size * math.prod(data.shape[axis + 1 :]) for size in sizes])


def split_call(node: Node, data: Tensor, widths: Sequence[int]) -> CCall:
    """`widths`: elements that each output gets of a row."""
    require_types(data.dtype, node.outputs)
    fields = {
        "element": data.dtype.size_bytes,
        "rows": data.elems // max(1, sum(widths)),
        "count": len(widths),
        "width": CTable("width", np.array(widths, np.int32)),
    }
    return kernel_call("split", fields, (data, CPointers(node.outputs, is_written=True)))


def _data(name: str) -> int:
    return 1 if name == "SPLIT" else 0


def _cut(name: str, attributes: Split, inputs: Inputs) -> tuple[int, tuple[int, ...]]:
    """The axis, and the outputs' sizes along it."""
    axes = known_ints(inputs, 0 if name == "SPLIT" else 2)
    sizes = known_ints(inputs, 1) if name == "SPLIT_V" else ()
    shape = input_at(inputs, _data(name)).shape
    axis = only_axis(axes, len(shape))
    return axis, _equal(shape[axis], attributes.num_splits) if name == "SPLIT" else _given(shape[axis], sizes)


def _equal(whole: int, parts: int) -> tuple[int, ...]:
    if not 1 <= parts <= MOST_OUTPUTS or whole % parts:
        raise ModelError(f"an axis of {whole} cannot be split into {parts} equal parts; the file is damaged")
    return (whole // parts,) * parts


def _given(whole: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    rest = whole - sum(size for size in sizes if size != -1)
    found = tuple(rest if size == -1 else size for size in sizes)
    if sizes.count(-1) > 1 or min(found, default=0) < 0 or sum(found) != whole:
        raise ModelError(f"an axis of {whole} cannot be split into sizes {list(sizes)[:8]}; the file is damaged")
    return found


KINDS = (ConcatenationKind(), PackKind(), SplitKind())
