"""Reductions: output element o is made of a fibre, all inputs that share its place on the axes that are kept. CUMSUM:
the sum of all elements up to each one along an axis."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from diagmem.model.graph import DType, IntArray, Node, Shape, Strides, row_major_strides
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import (
    SUFFIXES,
    CCall,
    CStruct,
    Fields,
    Unsupported,
    by_type,
    element_code,
    joined_axes,
    kernel_call,
    require_types,
    taking_call,
    values_of,
)
from diagmem.ops.kind import (
    SUM_BYTES,
    Array,
    ColumnsAsRows,
    Inputs,
    OpKind,
    Rewritten,
    Shapes,
    Values,
    Way,
    axis_of,
    held_separation,
    input_at,
    only_axis,
    swept,
)
from diagmem.ops.loops.chunks import outer_sum
from diagmem.ops.loops.pixels import AxisTerm, has_pitches, separation_of
from diagmem.ops.numerics.fixed_point import wrapped
from diagmem.ops.numerics.quantised import (
    Requantisation,
    dequantised,
    require_same_quantisation,
    rounds_to_even,
    scale_of,
    zero_point_of,
)
from diagmem.ops.numerics.single_precision import larger, smaller, sum_in_order
from diagmem.ops.options import AnyTable, CustomTable, Table
from diagmem.ops.orders import Order
from diagmem.ops.signature import Signature


def kept_shape(shape: Shape, axes: Collection[int], keep_dims: bool) -> Shape:
    """The output's shape: reduced axes are left out, or kept with size 1."""
    if keep_dims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def fibre_reads(shape: Shape, axes: Collection[int], first_step: int = 0) -> Runs:
    """One output after the other reads its whole fibre in one step; a run goes along the last reduced axis."""
    strides = row_major_strides(shape)
    last = max(axes, default=0)
    start = _offsets(shape, strides, [axis for axis in range(len(shape)) if axis not in axes])
    within = _offsets(shape, strides, [axis for axis in sorted(axes) if axis != last])
    return Runs.of(
        start[:, None] + within,
        shape[last] if axes else 1,
        first_step + np.arange(len(start), dtype=np.int64)[:, None],
        pitch=strides[last] if axes else 1,
        stride=0,
    )


def fibre_separation(node: Node, axes: Collection[int]) -> int | None:
    """The separation where one output after the other reads its fibre, then is written. A fibre's lowest element has
    index 0 on all reduced axes."""
    data, out_size = node.input(0), node.output.dtype.size_bytes
    out_strides = row_major_strides(kept_shape(data.shape, axes, keep_dims=True))
    reached = zip(data.shape, data.strides, out_strides, strict=True)
    in_size = data.dtype.size_bytes
    return separation_of(
        [
            AxisTerm.even(size, out_stride * out_size - in_stride * in_size)
            for axis, (size, in_stride, out_stride) in enumerate(reached)
            if axis not in axes
        ]
    )


def c_fibres(shape: Shape, strides: Strides, axes: Collection[int]) -> CStruct:
    """The `diagmem_fibres` of a reduction."""

    def struct(picked: Sequence[int]) -> CStruct:
        size, stride = joined_axes(3, [shape[axis] for axis in picked], [strides[axis] for axis in picked])
        return CStruct("diagmem_axes", {"size": size, "stride": stride})

    kept = [axis for axis in range(len(shape)) if axis not in axes]
    return CStruct("diagmem_fibres", {"kept": struct(kept), "reduced": struct(sorted(axes))})


def _offsets(shape: Shape, strides: Sequence[int], axes: Sequence[int]) -> IntArray:
    """Offsets of all index combinations along `axes`, in row-major order, the other indices being 0."""
    return outer_sum(*(np.arange(shape[axis], dtype=np.int64) * strides[axis] for axis in axes)).reshape(-1)


def reduced_axes(inputs: Inputs) -> frozenset[int]:
    """The axes that input 1 names, counted from the front."""
    data, axes = input_at(inputs, 0), input_at(inputs, 1)
    return frozenset(axis_of(axis, len(data.shape)) for axis in axes.ints)


@dataclass(frozen=True, slots=True)
class Reduce:
    """Inputs: data, axes (constant; negative ones count from the end)."""

    keep_dims: bool = False


class ReducingKind(OpKind):
    """Inputs: data, axes. One output after the other reads its fibre, then is written."""

    table: ClassVar[AnyTable] = Table(Reduce, ("KeepDims",), "ReducerOptions")

    def output_shapes(self, name: str, attributes: Any, inputs: Inputs) -> Shapes:
        keep_dims = getattr(attributes, "keep_dims", False)
        return (kept_shape(input_at(inputs, 0).shape, reduced_axes(inputs), keep_dims),)

    def keeps_channels(self, node: Node) -> bool:
        return node.input(1).data is not None and len(node.input(0).shape) - 1 not in reduced_axes(node.inputs)

    def accesses(self, node: Node, order: Order) -> Accesses:
        return swept(node, {0: fibre_reads(node.input(0).shape, reduced_axes(node.inputs))})

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        return fibre_separation(node, reduced_axes(node.inputs)) if position == 0 else held_separation(node)


class ReduceKind(ReducingKind):
    names: ClassVar[tuple[str, ...]] = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")
    monotone = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")
    widened: ClassVar[Mapping[str, str]] = {"MEAN": "CUSTOM:DiagmemMean", "SUM": "CUSTOM:DiagmemSum"}
    orders = (Order.REFERENCE, Order.ZERO_FIRST)
    takes = Signature((2, 2), numbers=(1,))

    def accesses(self, node: Node, order: Order) -> Accesses:
        if order is not Order.ZERO_FIRST:
            return super().accesses(node, order)
        elems = node.output.elems
        reads = fibre_reads(node.input(0).shape, reduced_axes(node.inputs), first_step=1)
        writes = Runs.join(Runs.of(0, elems, 0, stride=0), Runs.of(0, elems, 1))
        return Accesses(elems + 1, (reads, *(None for _ in node.inputs[1:])), (writes,))

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        if order is Order.ZERO_FIRST:
            return node.output.size_bytes
        return super().closed_separation(node, position, order, output)

    def accumulator_bytes(self, node: Node) -> int | None:
        shape = node.input(0).shape
        adds_rows = (
            node.op.kind not in ("REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")
            and len(shape) == 4
            and 1 in reduced_axes(node.inputs)
        )
        adds_rows = adds_rows and not _is_wide(node)
        return node.output.elems * SUM_BYTES if adds_rows and shape[0] == 1 < shape[1] else None

    def columns_as_rows(self, node: Node, change: ColumnsAsRows) -> Rewritten | None:
        """All pixels become one. The axis of one pixel, and no other, is reduced as well."""
        data, axes = node.input(0), node.input(1)
        if axes.data is None or axes.index not in change.own or data.index not in change.shapes:
            return None
        found = {change.axes[axis] for axis in reduced_axes(node.inputs)} | {1, 2}
        if found != {1, 2} or node.output.elems != data.shape[-1]:
            return None
        is_kept = len(change.shapes.get(node.output.index, node.output.shape)) == 4
        both = replace(axes, shape=(2,), data=np.array([1, 2], np.int32))
        return Rewritten(replace(node.attributes, keep_dims=is_kept), {1: both})

    def can_address(self, node: Node) -> bool:
        return has_pitches(node.input(0)) and node.output.is_in_one_piece

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        return super().reference(node, [_fibres(inputs[0], reduced_axes(node.inputs))])

    def ways(self, name: str) -> dict[DType, Way]:
        return _WAYS[name]

    def c_row_call(self, node: Node) -> CCall:
        """The fibres are those of one row, all else is that of the whole."""
        whole, shape = self.c_call(node), node.input(0).shape
        row = (1, 1, *shape[2:])
        fibres = c_fibres(row, row_major_strides(row), reduced_axes(node.inputs))
        parameters = replace(whole.parameters, fields={**whole.parameters.fields, "fibres": fibres})
        return taking_call(replace(whole, parameters=parameters), node)

    def c_call(self, node: Node) -> CCall:
        require_types(node.output.dtype, (node.input(0),))
        values_of(node.input(1))
        return super().c_call(node)


def _fibres(data: Array, axes: frozenset[int]) -> Array:
    """A row for each output, of all that it is made of, in the order in which it is read."""
    kept = [axis for axis in range(data.ndim) if axis not in axes]
    ordered = data.transpose(*kept, *sorted(axes))
    fibres: Array = ordered.reshape(math.prod(data.shape[axis] for axis in kept), -1)
    return fibres


def _count(node: Node) -> int:
    """How many elements a fibre has."""
    return node.input(0).elems // max(1, node.output.elems)


def _requantisation(node: Node) -> Requantisation:
    """For a mean, the division by the count goes into the multiplier, as TFLite does it, and onnxruntime."""
    if rounds_to_even(node.output):
        count = np.float32(_count(node) if node.op.kind == "MEAN" else 1)
        unit = np.float32(scale_of(node.input(0))) / (np.float32(scale_of(node.output)) * count)
        return Requantisation.of([float(unit)], node.output)
    plain = Requantisation.of([scale_of(node.input(0)) / scale_of(node.output)], node.output)
    if node.op.kind == "SUM":
        return plain
    (mantissa,), (shift,) = plain.mantissas.tolist(), plain.shifts.tolist()
    extra = min(_count(node).bit_length() - 1, 32, 31 + shift)
    divided = np.array([(mantissa << extra) // _count(node)])
    return replace(plain, mantissas=divided, shifts=np.array([shift - extra]))


def _sum_int(node: Node, fibres: Array) -> Array:
    total = fibres.astype(np.int64).sum(axis=1) - zero_point_of(node.input(0)) * _count(node)
    return _requantisation(node).apply(total).astype(fibres.dtype)


def _sum_int_call(node: Node) -> CCall:
    offset = -zero_point_of(node.input(0)) * _count(node)
    return _call(node, "sum", "sum_int", {"offset": offset, "output": _requantisation(node).c_struct()})


def _sum_f32(node: Node, fibres: Array) -> Array:
    divided: Array = sum_in_order(fibres)[:, 0] / np.float32(_divisor(node))
    return divided


def _sum_f32_call(node: Node) -> CCall:
    return _call(node, "sum", "reduce", {"divisor": _divisor(node)})


def _folded(node: Node, fibres: Array) -> Array:
    """Sums of integers, products of integers or float32; what does not fit wraps around."""
    is_sum = node.op.kind == "SUM"
    found = np.full(len(fibres), 0 if is_sum else 1, fibres.dtype)
    for column in fibres.T:
        with np.errstate(all="ignore"):
            found = found + column if is_sum else found * column
    return found


def _folded_call(node: Node) -> CCall:
    return _call(node, "sum" if node.op.kind == "SUM" else "reduce_prod", "reduce", {"divisor": 1.0})


def _is_wide(node: Node) -> bool:
    """Whether sums have 64 bits."""
    dtype = node.output.dtype
    return dtype is DType.INT64 or (dtype is DType.INT32 and node.op.kind == "MEAN")


def _mean_of_plain(node: Node, fibres: Array) -> Array:
    """Divided towards 0; sums that do not fit into 64 bits wrap around."""
    count, total = _count(node), fibres.astype(np.int64).sum(axis=1)
    quotient: Array = total // count
    quotient += (quotient < 0) & (quotient * count != total)
    return quotient.astype(fibres.dtype)


def _mean_of_plain_call(node: Node) -> CCall:
    return _call(node, "mean", "mean", {"count": _count(node)})


def _divisor(node: Node) -> float:
    return float(_count(node)) if node.op.kind.endswith(("MEAN", "Mean")) else 1.0


def _extreme(node: Node, fibres: Array) -> Array:
    further = larger if node.op.kind == "REDUCE_MAX" else smaller
    found: Array = fibres[:, 0]
    for column in fibres.T[1:]:
        found = further(column, found)
    return found


def _extreme_call(node: Node) -> CCall:
    require_same_quantisation((node.input(0), node.output))
    return _call(node, node.op.kind.lower(), "reduce", {"divisor": 1.0})


def _call(node: Node, name: str, parameters: str, fields: Fields) -> CCall:
    data = node.input(0)
    fibres = c_fibres(data.shape, data.strides, reduced_axes(node.inputs))
    function, tensors = f"{name}_{SUFFIXES[node.output.dtype]}", (node.input(0), node.output)
    return kernel_call("reduce", {"fibres": fibres, **fields}, tensors, function=function, struct=parameters)


_INT = (DType.INT8, DType.UINT8, DType.INT16)
_PLAIN = (DType.INT32, DType.INT64)
_SUM = {**dict.fromkeys(_INT, Way(_sum_int, _sum_int_call)), DType.FLOAT32: Way(_sum_f32, _sum_f32_call)}
_EXTREME = dict.fromkeys((*_INT, DType.FLOAT32, *_PLAIN), Way(_extreme, _extreme_call))
_FOLDED = Way(_folded, _folded_call)

_WAYS = {
    "MEAN": {**_SUM, **dict.fromkeys(_PLAIN, Way(_mean_of_plain, _mean_of_plain_call))},
    "SUM": {**_SUM, **dict.fromkeys(_PLAIN, _FOLDED)},
    "REDUCE_MAX": _EXTREME,
    "REDUCE_MIN": _EXTREME,
    "REDUCE_PROD": dict.fromkeys((DType.FLOAT32, *_PLAIN), _FOLDED),
}


class WidenedSumKind(ReduceKind):
    """MEAN and SUM in float32 of integers that are dequantised as they are read."""

    names = ("CUSTOM:DiagmemMean", "CUSTOM:DiagmemSum")
    table = CustomTable(Reduce, ("keep_dims",), ("keep_dims",))
    takes = Signature((2, 2), numbers=(1,), made=dict.fromkeys(DType, (DType.FLOAT32,)))

    def ways(self, name: str) -> dict[DType, Way]:
        return dict.fromkeys((DType.INT8, DType.UINT8), Way(_widened_sum, _widened_sum_call))

    def c_call(self, node: Node) -> CCall:
        require_types(DType.FLOAT32, node.outputs)
        values_of(node.input(1))
        return OpKind.c_call(self, node)


def _widened_sum(node: Node, fibres: Array) -> Array:
    return _sum_f32(node, dequantised(node.input(0), fibres))


def _widened_sum_call(node: Node) -> CCall:
    data = node.input(0)
    own = {"divisor": _divisor(node), "scale": scale_of(data), "zero_point": zero_point_of(data)}
    fields = {"fibres": c_fibres(data.shape, data.strides, reduced_axes(node.inputs)), **own}
    function = f"widened_sum_{SUFFIXES[data.dtype]}"
    return kernel_call("reduce", fields, (data, node.output), function=function, struct="widened_sum")


_FUNCTIONS = {"REDUCE_ALL": np.all, "REDUCE_ANY": np.any}


class ReduceAllKind(ReducingKind):
    names = tuple(_FUNCTIONS)
    takes = Signature((2, 2), numbers=(1,), made=dict.fromkeys(DType, (DType.BOOL,)))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        found = _FUNCTIONS[node.op.kind](inputs[0], axis=tuple(sorted(reduced_axes(node.inputs))))
        return (np.reshape(found, node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        data = node.input(0)
        require_types(DType.BOOL, (data, node.output))
        values_of(node.input(1))
        fibres = c_fibres(data.shape, data.strides, reduced_axes(node.inputs))
        return kernel_call("reduce_all", {"fibres": fibres}, (data, node.output), function=node.op.kind.lower())


@dataclass(frozen=True, slots=True)
class ArgMax:
    """Inputs: data, axis (constant, one number)."""

    output_type: DType = DType.INT64


class ArgMaxKind(ReducingKind):
    names = ("ARG_MAX", "ARG_MIN")
    table = Table(ArgMax, ("OutputType",))
    takes = Signature((2, 2), numbers=(1,), single=(1,), made=dict.fromkeys(DType, (DType.INT32, DType.INT64)))

    def output_shapes(self, name: str, attributes: ArgMax, inputs: Inputs) -> Shapes:
        only_axis(input_at(inputs, 1).ints, len(input_at(inputs, 0).shape))
        return super().output_shapes(name, attributes, inputs)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        (axis,) = reduced_axes(node.inputs)
        found: Array = (np.argmax if node.op.kind == "ARG_MAX" else np.argmin)(inputs[0], axis=axis)
        return (np.reshape(found, node.output.shape).astype(node.output.dtype.numpy),)

    def c_call(self, node: Node) -> CCall:
        values_of(node.input(1))
        shape, (axis,) = node.input(0).shape, reduced_axes(node.inputs)
        fields = {
            "outer": math.prod(shape[:axis]),
            "size": shape[axis],
            "inner": math.prod(shape[axis + 1 :]),
            "type": element_code(node.input(0).dtype),
            "is_max": int(node.op.kind == "ARG_MAX"),
            "index_type": element_code(node.output.dtype),
        }
        return kernel_call("arg_max", fields, (node.input(0), node.output))


_FRACTION_BITS = 19
"""Bits behind the point that 8-bit numbers get before they are added up; sums of 16 of the largest wrap around."""


_CUMSUM_TYPES = (DType.INT8, DType.FLOAT32, DType.INT32, DType.INT64)


@dataclass(frozen=True, slots=True)
class CumSum:
    """Inputs: data, axis (constant, one number). `exclusive`: an element does not count for its own sum. `reverse`:
    sums begin at the end of the axis."""

    exclusive: bool = False
    reverse: bool = False


class CumsumKind(OpKind):
    names = ("CUMSUM",)
    tflm_agrees = True
    takes = Signature((2, 2), numbers=(1,), single=(1,))
    table = Table(CumSum, ("Exclusive", "Reverse"))

    def output_shapes(self, name: str, attributes: CumSum, inputs: Inputs) -> Shapes:
        _cumsum_axis(inputs)
        return (input_at(inputs, 0).shape,)

    def accesses(self, node: Node, order: Order) -> Accesses:
        """Fibre by fibre, in the order of their first elements; along a fibre each element is read, then written."""
        outer, size, inner = walk_of(node)
        first = (np.arange(outer)[:, None] * size * inner + np.arange(inner)).reshape(-1)
        pitch = inner
        if node.attributes.reverse:
            first, pitch = first + (size - 1) * inner, -inner
        each = Runs.of(first, size, np.arange(outer * inner) * size, pitch=pitch)
        return Accesses(node.output.elems, (each, *(None for _ in node.inputs[1:])), (each,))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        data, dtype = inputs[0], node.output.dtype
        if dtype is DType.INT8:
            zero = zero_point_of(node.input(0))
            # TFLite Micro starts from a stored 0, which stands for minus the zero point.
            sums = wrapped(_sums(node, (data.astype(np.int64) - zero) << _FRACTION_BITS, -zero << _FRACTION_BITS))
            return (_rescaling(node).apply(sums).astype(np.int8),)
        wide = data if dtype is DType.FLOAT32 else data.astype(np.int64)
        return (_sums(node, wide, 0).astype(dtype.numpy),)

    def c_call(self, node: Node) -> CCall:
        require_types(node.input(0).dtype, (node.output,))
        values_of(node.input(1))
        return by_type(node, dict.fromkeys(_CUMSUM_TYPES, _cumsum_call))


def _cumsum_axis(inputs: Inputs) -> int:
    return only_axis(input_at(inputs, 1).ints, len(input_at(inputs, 0).shape))


def walk_of(node: Node) -> tuple[int, int, int]:
    """Elements of the axes before that which is summed, along it, and of those behind it."""
    shape, axis = node.input(0).shape, _cumsum_axis(node.inputs)
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _sums(node: Node, data: Array, start: int) -> Array:
    """One element after the other, for a float32 sum depends on the order."""
    moved = np.moveaxis(data, _cumsum_axis(node.inputs), 0)
    moved = moved[::-1] if node.attributes.reverse else moved
    total: Array = np.full(moved.shape[1:], start, data.dtype)
    sums = np.empty_like(moved)
    for number, values in enumerate(moved):
        after = total + values
        sums[number] = total if node.attributes.exclusive else after
        total = after
    sums = sums[::-1] if node.attributes.reverse else sums
    return np.moveaxis(sums, 0, _cumsum_axis(node.inputs))


def _rescaling(node: Node) -> Requantisation:
    real = scale_of(node.input(0)) / (2**_FRACTION_BITS * scale_of(node.output))
    if real >= 1:
        raise Unsupported("an output scale that is far smaller than the input's; TensorFlow Lite refuses it too")
    return Requantisation.of([real], node.output)


def _cumsum_call(node: Node) -> CCall:
    outer, size, inner = walk_of(node)
    is_scaled = node.output.dtype is DType.INT8
    fields = {"zero_point": zero_point_of(node.input(0)), "output": _rescaling(node).c_struct()} if is_scaled else {}
    a, suffix = node.attributes, SUFFIXES[node.output.dtype]
    walk = {"outer": outer, "size": size, "inner": inner, "is_exclusive": int(a.exclusive)}
    struct = "cumsum_s8" if is_scaled else "cumsum"
    own, tensors = {**walk, "is_reverse": int(a.reverse), **fields}, (node.input(0), node.output)
    return kernel_call("cumsum", own, tensors, function=f"cumsum_{suffix}", struct=struct)


KINDS = (ReduceKind(), WidenedSumKind(), ReduceAllKind(), ArgMaxKind(), CumsumKind())
