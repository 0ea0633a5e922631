"""BATCH_MATMUL: products of matrices, the axes before the last two broadcast against each other."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, row_major_strides
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import SUFFIXES, CCall, CStruct, Fields, Unsupported, by_type, kernel_call, require_types
from diagmem.ops.kind import Array, Inputs, OpKind, Shapes, Values, held_separation, input_at, swept
from diagmem.ops.loops.broadcast import c_walk
from diagmem.ops.loops.chunks import outer_sum
from diagmem.ops.loops.pixels import AxisTerm, separation_of
from diagmem.ops.numerics.quantised import Requantisation, scale_of, stored_zero, zero_point_of
from diagmem.ops.numerics.single_precision import product_in_order
from diagmem.ops.numerics.weighted_sums import require_wide_shifts, rescale_wide, wide_mantissas
from diagmem.ops.options import Table
from diagmem.ops.orders import Order
from diagmem.ops.sampling import OPERAND_SIZE, Draw, Fitting, activation, node_of
from diagmem.ops.signature import Signature


@dataclass(frozen=True, slots=True)
class BatchMatMul:
    """Inputs: left and right matrices; `adj_x`, `adj_y`: that side is stored transposed."""

    adj_x: bool = False
    adj_y: bool = False


@dataclass(frozen=True, slots=True)
class Side:
    """One input as the loops see it: elements between neighbours along each loop, 0 where it does not move.

    `loops`: (count, stride) of the batch axes, then output row, then output column. `depth`: the summed axis.
    """

    loops: tuple[tuple[int, int], ...]
    depth: tuple[int, int]


class BatchMatMulKind(OpKind):
    names = ("BATCH_MATMUL",)
    tflm_agrees = True
    takes = Signature((2, 2), alike=(1,))
    table = Table(BatchMatMul, ("AdjX", "AdjY"), "BatchMatMulOptions")

    def output_shapes(self, name: str, attributes: BatchMatMul, inputs: Inputs) -> Shapes:
        left, _ = _sides(attributes, inputs)
        return (tuple(count for count, _ in left.loops),)

    def accesses(self, node: Node, order: Order) -> Accesses:
        left, right = _sides(node.attributes, node.inputs)
        return swept(node, {0: _row_reads(left), 1: _column_reads(right)})

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        if position > 1:
            return held_separation(node)
        side = _sides(node.attributes, node.inputs)[position]
        in_size, out_size = node.input(position).dtype.size_bytes, node.output.dtype.size_bytes
        pitches = row_major_strides([count for count, _ in side.loops])
        return separation_of(
            [
                AxisTerm.even(count, pitch * out_size - stride * in_size)
                for (count, stride), pitch in zip(side.loops, pitches, strict=True)
            ]
        )

    def macs(self, node: Node) -> int:
        left, _ = _sides(node.attributes, node.inputs)
        return node.output.elems * left.depth[0]

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        left, right = inputs[:2]
        left = np.swapaxes(left, -1, -2) if node.attributes.adj_x else left
        right = np.swapaxes(right, -1, -2) if node.attributes.adj_y else right
        if node.output.dtype is DType.FLOAT32:
            return (product_in_order(left, right),)
        centred = (x.astype(np.int64) - zero_point_of(node.input(i)) for i, x in enumerate((left, right)))
        sums, output = np.matmul(*centred), _requantisation(node)
        if node.output.dtype is DType.INT8:
            return (output.apply(sums).astype(np.int8),)
        require_wide_shifts(output.shifts)
        scaled = rescale_wide(sums, wide_mantissas(output.mantissas), output.shifts)
        return (np.clip(scaled, output.low, output.high).astype(np.int16),)

    def c_call(self, node: Node) -> CCall:
        require_types(node.output.dtype, (node.input(0), node.input(1)))
        return by_type(node, dict.fromkeys((DType.INT8, DType.INT16, DType.FLOAT32), _call))

    def sample(self, name: str, draw: Draw) -> Node:
        """Either side stored transposed; batch axes of either side broadcast or missing."""
        attributes = BatchMatMul(draw.boolean(), draw.boolean())
        rows, depth, columns = (draw.integer(1, 6) for _ in range(3))
        batch = draw.many(0, 3, draw.small)
        left, right = ([draw.choice((1, size)) for size in batch] for _ in range(2))
        left, right = left[draw.integer(0, len(left) + 1) :], right[draw.integer(0, len(right) + 1) :]
        x = (*left, depth, rows) if attributes.adj_x else (*left, rows, depth)
        y = (*right, columns, depth) if attributes.adj_y else (*right, depth, columns)
        return node_of(self, name, attributes, [activation(x, draw.dtype()), draw.operand(y)], (draw.dtype(),))

    def fitting(self, node: Node) -> Fitting:
        return Fitting(gain=OPERAND_SIZE * math.sqrt(self.macs(node) / max(1, node.output.elems)))


def _row_reads(left: Side) -> Runs:
    """A row of the left matrix is read anew for each column of the output."""
    *outer, (columns, _) = left.loops
    start = outer_sum(*(np.arange(count, dtype=np.int64) * stride for count, stride in outer)).reshape(-1)
    step = np.arange(len(start), dtype=np.int64) * columns
    length, pitch = left.depth
    return Runs.of(start, length, step, pitch=pitch, stride=0, hold=columns)


def _column_reads(right: Side) -> Runs:
    """Each output element reads a column of the right matrix."""
    start = outer_sum(*(np.arange(count, dtype=np.int64) * stride for count, stride in right.loops)).reshape(-1)
    length, pitch = right.depth
    return Runs.of(start, length, np.arange(len(start), dtype=np.int64), pitch=pitch, stride=0)


def _sides(attributes: BatchMatMul, inputs: Inputs) -> tuple[Side, Side]:
    x, y = input_at(inputs, 0).shape, input_at(inputs, 1).shape
    if min(len(x), len(y)) < 2:
        raise ModelError(f"matrices {list(x)} and {list(y)} need at least 2 axes; the file is damaged")
    row, depth = _last_two(x, attributes.adj_x)
    depth_y, column = _last_two(y, attributes.adj_y)
    batch = _broadcast(x[:-2], y[:-2])
    if depth[0] != depth_y[0] or batch is None:
        raise ModelError(f"matrices {list(x)} and {list(y)} do not fit each other; the file is damaged")
    rows, columns = row[0], column[0]
    return (
        Side((*_batch_loops(x, batch), row, (columns, 0)), depth),
        Side((*_batch_loops(y, batch), (rows, 0), column), depth_y),
    )


def _last_two(shape: Shape, transposed: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """(size, stride) of a matrix's rows and columns as they are meant."""
    stored = ((shape[-2], shape[-1]), (shape[-1], 1))
    return (stored[1], stored[0]) if transposed else stored


def _broadcast(x: Shape, y: Shape) -> Shape | None:
    try:
        return np.broadcast_shapes(x, y)
    except ValueError:
        return None


def _batch_loops(shape: Shape, batch: Shape) -> list[tuple[int, int]]:
    """(count, stride) of the batch axes; a broadcast axis does not move."""
    padded = (1,) * (len(batch) + 2 - len(shape)) + shape
    strides = row_major_strides(padded)
    return [(count, 0 if padded[axis] == 1 else strides[axis]) for axis, count in enumerate(batch)]


def _requantisation(node: Node) -> Requantisation:
    """TFLite multiplies the scales in float32 here."""
    unit = float(np.float32(scale_of(node.input(0))) * np.float32(scale_of(node.input(1))))
    return Requantisation.of([unit / scale_of(node.output)], node.output)


def _c_output(node: Node) -> CStruct | None:
    """None for float32."""
    if node.output.dtype is DType.FLOAT32:
        return None
    output = _requantisation(node)
    if node.output.dtype is DType.INT8:
        return output.c_struct()
    if any(stored_zero(tensor) for tensor in (node.input(0), node.input(1), node.output)):
        raise Unsupported("16-bit numbers with a zero point other than 0; TensorFlow Lite refuses it too")
    require_wide_shifts(output.shifts)
    return replace(output, mantissas=wide_mantissas(output.mantissas)).c_struct()


def _call(node: Node) -> CCall:
    left, right = _sides(node.attributes, node.inputs)
    first, second = ([stride for _, stride in side.loops] for side in (left, right))
    output = _c_output(node)
    fields: Fields = {
        "shape": c_walk(node.output.shape, first, second, row_major_strides(node.output.shape)),
        "depth": left.depth[0],
        "left_step": left.depth[1],
        "right_step": right.depth[1],
        "left_zero_point": stored_zero(node.input(0)) if output else 0,
        "right_zero_point": stored_zero(node.input(1)) if output else 0,
        **({} if output is None else {"output": output}),
    }
    function = f"batch_matmul_{SUFFIXES[node.output.dtype]}"
    arguments = (node.input(0), node.input(1), node.output)
    constant = next((t for t in arguments[:2] if t.is_constant), node.output)
    passes = node.output.elems * left.depth[0] // max(1, constant.elems)
    return kernel_call("batch_matmul", fields, arguments, passes=passes, function=function)


KIND = BatchMatMulKind()
