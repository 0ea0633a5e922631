"""FULLY_CONNECTED and BATCH_MATMUL: products of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Nhwc, Node, Shape, Window1D, row_major_strides
from diagmem.model.schedule import Along, Cut
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import (
    QUANTISED_OR_FLOAT,
    SUFFIXES,
    CCall,
    CChannels,
    CStruct,
    CTable,
    Fields,
    Unsupported,
    by_type,
    kernel_call,
    require_types,
    values_of,
)
from diagmem.ops.kind import Array, Inputs, OpKind, Shapes, Values, held_separation, input_at, swept
from diagmem.ops.loops.broadcast import c_walk
from diagmem.ops.loops.chunks import outer_sum
from diagmem.ops.loops.pixels import AxisTerm, separation_of
from diagmem.ops.loops.windowed import WindowedLoop
from diagmem.ops.numerics.packed import Channels, c_eights, c_packed, is_8_bit, packed_channels, vectors_of
from diagmem.ops.numerics.quantised import (
    Requantisation,
    centred_weights,
    channel_scales,
    float_weights,
    scale_of,
    stored_zero,
    zero_point_of,
)
from diagmem.ops.numerics.row_sums import (
    RowSums,
    packed_row_sums_call,
    row_sum_bytes,
    row_sums_call,
    vfp_row_sums_call,
)
from diagmem.ops.numerics.single_precision import product_in_order
from diagmem.ops.numerics.weighted_sums import (
    BIAS_TYPE,
    BY_CHANNEL,
    CHANNELS_OF_A_BLOCK,
    bias_of,
    block_start,
    filter_fields,
    finished,
    interleaved,
    is_rounded_once,
    kernel_suffix,
    requantisation_of,
    require_wide_shifts,
    rescale_wide,
    wide_mantissas,
)
from diagmem.ops.options import Activation, Table
from diagmem.ops.orders import InstructionSet, Order, Variant
from diagmem.ops.signature import Signature, Weights


@dataclass(frozen=True, slots=True)
class FullyConnected:
    """Inputs: rows (any shape), weights (outputs, inputs), bias (optional). `bias_type`: see `has_narrow_sums`."""

    activation: Activation = Activation.NONE
    keep_num_dims: bool = False
    bias_type: int = 0


class FullyConnectedKind(OpKind):
    names = clamps = flattens = ("FULLY_CONNECTED",)
    table = Table(FullyConnected, ("FusedActivationFunction", "KeepNumDims", BIAS_TYPE))
    orders = (Order.BLOCKS, Order.REFERENCE)
    int8_version = 4
    takes = Signature((2, 3), weights=Weights(axis=0))

    def decode(self, name: str, options: Any) -> Any:
        if options is not None and options.WeightsFormat() != 0:
            raise ModelError(
                f"FULLY_CONNECTED: weights format {options.WeightsFormat()} (shuffled) is not supported; "
                "convert the model again with the default weights format"
            )
        return super().decode(name, options)

    def output_shapes(self, name: str, attributes: FullyConnected, inputs: Inputs) -> Shapes:
        rows, outputs, size = _sizes(inputs)
        if not attributes.keep_num_dims:
            return ((rows, outputs),)
        *outer, last = input_at(inputs, 0).shape or (0,)
        if last != size:
            raise ModelError(f"rows of {last} elements meet weights for {size}; the file is damaged")
        return ((*outer, outputs),)

    def accesses(self, node: Node, order: Order) -> Accesses:
        rows, outputs, size = _sizes(node.inputs)
        row = np.arange(rows, dtype=np.int64)
        hold = 1 + _written_before_the_last_read(node, order)
        return swept(node, {0: Runs.of(row * size, size, row * outputs, stride=0, hold=hold)})

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        if position:
            return held_separation(node)
        rows, outputs, size = _sizes(node.inputs)
        in_size, out_size = node.input(0).dtype.size_bytes, node.output.dtype.size_bytes
        row_gain = outputs * out_size - size * in_size
        own = _written_before_the_last_read(node, order) * out_size
        return separation_of((AxisTerm.even(rows, row_gain), AxisTerm(None, own) if own else AxisTerm(0, None)))

    def accumulator_bytes(self, node: Node) -> int | None:
        """Each row of an image whose elements are all inputs of each output is added up as it comes."""
        is_one = _sizes(node.inputs)[0] == 1 and node.input(1).is_constant
        return row_sum_bytes(node, _over_image(node).rows) if is_one else None

    def by_rows(self, node: Node, call: Callable[[Node], CCall]) -> CCall:
        return call(node)

    def c_row_call(self, node: Node) -> CCall:
        return _row_sums(node, row_sums_call)

    def macs(self, node: Node) -> int:
        return math.prod(_sizes(node.inputs))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        sums, bias = dense_sums(node, *inputs[:2]), inputs[2] if len(inputs) > 2 else None
        if not node.input(1).is_constant:
            attributes = replace(node.attributes, activation=node.attributes.activation.unlimited)
            node = replace(node, op=replace(node.op, attributes=attributes))
        return (finished(node, 0, sums, bias).reshape(node.output.shape),)

    def variants(self, node: Node, instructions: InstructionSet) -> tuple[Variant, ...]:
        """All outputs of a block together: the order is that of the kernel in plain C. Without vectors, bytes must come
        in fours."""
        if not node.input(1).is_constant:
            return ()
        is_mve = instructions is InstructionSet.MVE
        is_packed = is_8_bit(node) and (is_mve or _sizes(node.inputs)[2] % 4 == 0)
        packed = {DType.INT8: _mve_call if is_mve else _packed_call} if is_packed else {}
        real = {DType.FLOAT32: _vfp_call} if node.input(1).dtype is DType.FLOAT32 else {}
        call = {**real, **packed}.get(node.input(0).dtype)
        block = 0 if call is _mve_call else CHANNELS_OF_A_BLOCK
        if call is None:
            return ()
        by_rows = {_packed_call: packed_row_sums_call, _vfp_call: vfp_row_sums_call}.get(call, row_sums_call)
        return (Variant(Order.BLOCKS, Order.BLOCKS, call, partial(_row_sums, sums=by_rows), block=block),)

    def cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        """Rows, or the blocks of outputs of an only one, where weights are stored so."""
        if not node.input(1).is_constant:
            return ()
        rows, outputs, _ = _sizes(node.inputs)
        if rows > 1:
            return (Cut(Along.PIXELS, rows, can_hold=True),)
        has_blocks = not kernel_suffix(node).startswith("s4") if variant is None else variant.block > 0
        return (Cut(Along.CHANNELS, outputs, CHANNELS_OF_A_BLOCK, can_hold=True),) if has_blocks else ()

    def c_call(self, node: Node) -> CCall:
        if not node.input(1).is_constant:
            return by_type(node, dict.fromkeys((DType.INT8, DType.FLOAT32), _computed_call))
        return by_type(node, dict.fromkeys(QUANTISED_OR_FLOAT, _call))


def _computed_call(node: Node) -> CCall:
    """With weights that another operation makes: a product of matrices, which scales as dense layers do."""
    require_types(node.input(0).dtype, (node.input(1), node.output))
    rows, outputs, size = _sizes(node.inputs)
    is_real = node.output.dtype is DType.FLOAT32
    clamps = is_real and node.attributes.activation.unlimited is not Activation.UNLIMITED
    if bias_of(node) is not None or clamps or len(set(() if is_real else channel_scales(node.input(1), 0))) > 1:
        raise Unsupported("computed weights beside a bias, with several scales, or an activation in float32")
    inputs = replace(node.input(0), shape=(rows, size)), node.input(1)
    product = replace(node, op=replace(node.op, attributes=BatchMatMul(adj_y=True)), inputs=inputs)
    product = replace(product, outputs=(replace(node.output, shape=(rows, outputs)),))
    output = None if is_real else requantisation_of(node, 0)
    first = output and replace(output, mantissas=output.mantissas[:1], shifts=output.shifts[:1])
    return _batch_matmul_call(product, None if first is None else first.c_struct())


def dense_sums(node: Node, data: Any, weights: Any) -> Array:
    """The sums of products of a fully connected layer, a row of them for each row of data."""
    rows = data.reshape(-1, weights.shape[1])
    if node.input(0).dtype is DType.FLOAT32:
        return product_in_order(rows, float_weights(node.input(1), weights, 0).T)
    centred = rows.astype(np.float64) - zero_point_of(node.input(0))
    sums: Array = centred @ centred_weights(node.input(1), weights).T.astype(np.float64)
    return sums


def _sizes(inputs: Inputs) -> tuple[int, int, int]:
    """Rows, outputs for each row, inputs of each row."""
    data, weights = input_at(inputs, 0), input_at(inputs, 1)
    if len(weights.shape) != 2 or weights.shape[1] < 1 or data.elems % weights.shape[1]:
        raise ModelError(
            f"weights {list(weights.shape)} do not divide data {list(data.shape)} into rows; the file is damaged"
        )
    outputs, size = weights.shape
    return data.elems // size, outputs, size


def _over_image(node: Node) -> WindowedLoop:
    """A window as large as the image whose elements are all inputs, its rows taken as one pixel each."""
    data, outputs = node.input(0), _sizes(node.inputs)[1]
    image, out = Nhwc(1, data.rows, 1, data.elems // data.rows), Nhwc(1, 1, 1, outputs)
    rows, sizes = Window1D.resolve(data.rows, data.rows, 1), (data.dtype.size_bytes, node.output.dtype.size_bytes)
    return WindowedLoop(image, out, rows, Window1D.resolve(1, 1, 1), 1, *sizes)


def _row_sums(node: Node, sums: RowSums) -> CCall:
    loop, weights = _over_image(node), values_of(node.input(1))
    by_row = weights.reshape(len(weights), loop.image.height, -1)
    return sums(node, 0, loop, by_row, _c_scales(node))


def _written_before_the_last_read(node: Node, order: Order) -> int:
    """How many of a row's outputs are written before the row is read for the last time. Computed weights lie as the
    file has them, and outputs are made one by one."""
    outputs = _sizes(node.inputs)[1]
    return block_start(outputs) if order is Order.BLOCKS and node.input(1).is_constant else outputs - 1


def _c_sizes(node: Node) -> dict[str, int]:
    return dict(zip(("rows", "outputs", "inputs"), _sizes(node.inputs), strict=True))


def _call(node: Node) -> CCall:
    weights = values_of(node.input(1))
    fields = {**_c_sizes(node), **filter_fields(node, 0, weights, interleaved(node, weights)), **_c_scales(node)}
    arguments, rows = (node.input(0), node.output), _sizes(node.inputs)[0]
    call = kernel_call(f"fully_connected_{kernel_suffix(node)}", fields, arguments, passes=rows)
    return replace(call, channels=CChannels(("outputs",), BY_CHANNEL))


def _c_scales(node: Node) -> Fields:
    """What a kernel scales sums with that rounds them once."""
    if not is_rounded_once(node):
        return {}
    ends = {"in_scale": scale_of(node.input(0)), "out_scale": scale_of(node.output)}
    if node.output.dtype is DType.UINT8:
        return {**ends, "filter_scale": scale_of(node.input(1))}
    return {**ends, "scales": CTable("scales", np.array(channel_scales(node.input(1), 0), np.float32))}


def _packed_call(node: Node) -> CCall:
    """Weights that cannot be packed go to the kernel in plain C."""
    output = c_packed(Channels.of(node))
    if output is None:
        return _call(node)
    sizes = _c_sizes(node)
    fields = {"rows": sizes["rows"], "inputs": sizes["inputs"], "output": output}
    arguments = node.input(0), node.output
    call = kernel_call("fully_connected_packed_s8", fields, arguments, passes=sizes["rows"])
    return replace(call, channels=packed_channels(sizes["inputs"]))


def _mve_call(node: Node) -> CCall:
    channels, sizes = Channels.of(node), _c_sizes(node)
    own = {"filter": vectors_of(channels.weights), "output": c_eights(channels)}
    fields = {"rows": sizes["rows"], "inputs": sizes["inputs"], **own}
    return kernel_call("fully_connected_mve_s8", fields, (node.input(0), node.output), passes=sizes["rows"])


def _vfp_call(node: Node) -> CCall:
    """The same weights for floating-point units that multiply and add in one instruction."""
    call = _call(node)
    fitted = kernel_call("fully_connected_vfp_f32", call.parameters.fields, call.arguments, passes=call.passes)
    return replace(fitted, channels=call.channels)


@dataclass(frozen=True, slots=True)
class BatchMatMul:
    """Inputs: left and right matrices; `adj_x`, `adj_y`: that side is stored transposed."""

    adj_x: bool = False
    adj_y: bool = False


_PLAIN = (DType.INT32, DType.INT64)
"""Without scales; what does not fit wraps around."""

_BATCH_TYPES = (DType.INT8, DType.INT16, DType.FLOAT32, *_PLAIN)


@dataclass(frozen=True, slots=True)
class Side:
    """One input as the loops see it: elements between neighbours along each loop, 0 where it does not move.

    `loops`: (count, stride) of the batch axes, then output row, then output column. `depth`: the summed axis.
    """

    loops: tuple[tuple[int, int], ...]
    depth: tuple[int, int]


class BatchMatmulKind(OpKind):
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
        if node.output.dtype in _PLAIN:
            with np.errstate(over="ignore"):
                return (np.matmul(left.astype(np.int64), right.astype(np.int64)).astype(left.dtype),)
        centred = (x.astype(np.int64) - zero_point_of(node.input(i)) for i, x in enumerate((left, right)))
        sums, output = np.matmul(*centred), _requantisation(node)
        if node.output.dtype is DType.INT8:
            return (output.apply(sums).astype(np.int8),)
        require_wide_shifts(output.shifts)
        scaled = rescale_wide(sums, wide_mantissas(output.mantissas), output.shifts)
        return (np.clip(scaled, output.low, output.high).astype(np.int16),)

    def c_call(self, node: Node) -> CCall:
        require_types(node.output.dtype, (node.input(0), node.input(1)))
        return by_type(node, dict.fromkeys(_BATCH_TYPES, lambda node: _batch_matmul_call(node, _c_output(node))))


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
    """None for numbers without scales."""
    if node.output.dtype in (DType.FLOAT32, *_PLAIN):
        return None
    output = _requantisation(node)
    if node.output.dtype is DType.INT8:
        return output.c_struct()
    if any(stored_zero(tensor) for tensor in (node.input(0), node.input(1), node.output)):
        raise Unsupported("16-bit numbers with a zero point other than 0; TensorFlow Lite refuses it too")
    require_wide_shifts(output.shifts)
    return replace(output, mantissas=wide_mantissas(output.mantissas)).c_struct()


def _batch_matmul_call(node: Node, output: CStruct | None) -> CCall:
    left, right = _sides(node.attributes, node.inputs)
    first, second = ([stride for _, stride in side.loops] for side in (left, right))
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


KINDS = (FullyConnectedKind(), BatchMatmulKind())
