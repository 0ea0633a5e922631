"""PAD, PADV2, MIRROR_PAD: the input with elements added around it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, IntArray, Node, Shape, row_major_strides
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import CCall, CRow, CTable, Unsupported, cut_to_row, kernel_call, require_types, values_of
from diagmem.ops.kind import Array, Inputs, Shapes, Values, input_at, known_ints, unless_computed
from diagmem.ops.loops.chunks import FILL, Chunks, RearrangeKind, gathered, gathered_call
from diagmem.ops.numerics.quantised import zero_point_of
from diagmem.ops.options import BuiltinOptions
from diagmem.ops.orders import Order
from diagmem.ops.signature import Signature

Mirror = Literal["reflect", "symmetric"]


@dataclass(frozen=True, slots=True)
class Pad:
    """PAD fills with zero, PADV2 with a value given as an input."""


@dataclass(frozen=True, slots=True)
class MirrorPad:
    """ "symmetric" repeats the edge, "reflect" does not."""

    mirror: Mirror = "reflect"


class PadKind(RearrangeKind):
    """Inputs: data, paddings (before, after) for each axis, for PADV2 the value, which is read before all else.
    In order "memcpy" no copy is longer than a row, which the last two axes make."""

    names = ("PAD", "PADV2", "MIRROR_PAD")
    orders = (Order.REFERENCE, Order.MEMCPY)
    tflm_agrees = True

    def decode(self, name: str, options: Any) -> Pad | MirrorPad:
        if name != "MIRROR_PAD":
            return Pad()
        return MirrorPad("reflect" if options is None or options.Mode() == 0 else "symmetric")

    def encode(self, node: Node) -> BuiltinOptions | None:
        if not isinstance(node.attributes, MirrorPad):
            return None
        return BuiltinOptions("MirrorPadOptions", {"Mode": int(node.attributes.mirror == "symmetric")})

    def signature(self, name: str) -> Signature:
        plain = Signature((2, 2), numbers=(1,))
        return replace(plain, inputs=(3, 3), alike=(2,), single=(2,)) if name == "PADV2" else plain

    @unless_computed
    def output_shapes(self, name: str, attributes: Pad | MirrorPad, inputs: Inputs) -> Shapes:
        sizes = zip(input_at(inputs, 0).shape, _paddings(attributes, inputs), strict=True)
        return (tuple(before + size + after for size, (before, after) in sizes),)

    def keeps_channels(self, node: Node) -> bool:
        paddings = node.input(1).data
        return paddings is not None and not paddings.reshape(-1, 2)[-1].any()

    def accesses(self, node: Node, order: Order) -> Accesses:
        found = super().accesses(node, order)
        if len(node.inputs) < 3 or node.input(2).is_constant or self.chunks(node, order) is None:
            return found
        value = Runs.of(0, node.input(2).elems, 0, stride=0)
        return replace(found, reads=(*found.reads[:2], value))

    def moves(self, node: Node, order: Order) -> Chunks:
        shape, indices = node.input(0).shape, _indices(node)
        if order is Order.MEMCPY:
            return gathered(shape, indices, len(shape) - 2).moved_at_once()
        return gathered(shape, indices)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        if isinstance(node.attributes, MirrorPad):
            return super().reference(node, inputs)
        return (np.pad(inputs[0], _paddings(node.attributes, node.inputs), constant_values=_value(node)),)

    def has_row_kernel(self, node: Node) -> bool:
        is_image = len(node.output.shape) == 4 and node.output.shape[0] == 1
        return is_image and node.input(1).data is not None and not isinstance(node.attributes, MirrorPad)

    def c_row_call(self, node: Node) -> CCall:
        """Rows are added by taking one that the input does not have."""
        given = node.input(1).ints
        pads = replace(node.input(1), data=np.array([*given[:2], 0, 0, *given[4:]], np.int32))
        inside = cut_to_row(replace(node, inputs=(node.inputs[0], pads, *node.inputs[2:])))
        return replace(self.c_call(inside), arguments=(CRow(node.input(0), first=-given[2]), CRow(node.output)))

    def c_call(self, node: Node) -> CCall:
        require_types(node.output.dtype, (node.input(0),))
        values_of(node.input(1))
        if isinstance(node.attributes, MirrorPad):
            strides = row_major_strides(node.input(0).shape)
            return gathered_call(node, [i * stride for i, stride in zip(_indices(node), strides, strict=True)])
        size, before, after = _joined(node)
        fields = {
            "element": node.output.dtype.size_bytes,
            "size": size,
            "before": before,
            "after": after,
            "value": CTable("value", np.array([_value(node)])),
        }
        return kernel_call("pad", fields, (node.input(0), node.output))


def _value(node: Node) -> Any:
    """What is added: a given value, or that which stands for 0."""
    if len(node.inputs) > 2:
        return values_of(node.input(2)).reshape(-1)[0]
    dtype = node.output.dtype
    return dtype.numpy.type(zero_point_of(node.output) if dtype is DType.INT8 else 0)


def zero_paddings_of(node: Node) -> list[tuple[int, int]] | None:
    """(before, after) for each axis, where only what stands for 0 is added, as every op with a border of its own does;
    None elsewhere."""
    source, target = node.input(0), node.output
    if isinstance(node.attributes, MirrorPad) or source.quantisation != target.quantisation:
        return None
    if len(node.inputs) > 2:
        zero = 0 if source.quantisation is None else zero_point_of(source)
        value = node.input(2).data
        if value is None or (value != zero).any():
            return None
    return unless_computed(_paddings)(node.attributes, node.inputs)


def _joined(node: Node) -> tuple[tuple[int, ...], ...]:
    """Sizes and paddings, before and after, of exactly four axes: one that is not padded is part of its neighbour in
    front."""
    axes: list[tuple[int, int, int]] = []
    for size, pad in zip(node.input(0).shape, _paddings(node.attributes, node.inputs), strict=True):
        if axes and not any(pad):
            axes[-1] = (axes[-1][0] * size, axes[-1][1] * size, axes[-1][2] * size)
        else:
            axes.append((size, *pad))
    if len(axes) > 4:
        raise Unsupported(f"{len(axes)} padded axes; at most 4 are supported")
    return tuple(zip(*([(1, 0, 0)] * (4 - len(axes)) + axes), strict=True))


def _mirror(attributes: Pad | MirrorPad) -> Mirror | None:
    return attributes.mirror if isinstance(attributes, MirrorPad) else None


def _paddings(attributes: Pad | MirrorPad, inputs: Inputs) -> list[tuple[int, int]]:
    """(before, after) for each axis."""
    shape, flat = input_at(inputs, 0).shape, known_ints(inputs, 1)
    pads = list(zip(flat[::2], flat[1::2], strict=False))
    if len(flat) != 2 * len(shape) or min(flat, default=0) < 0 or not _can_mirror(shape, pads, _mirror(attributes)):
        raise ModelError(f"paddings {list(flat)} do not suit shape {list(shape)}; the file is damaged")
    return pads


def _can_mirror(shape: Shape, pads: list[tuple[int, int]], mirror: Mirror | None) -> bool:
    """No padding is wider than what there is to mirror."""
    edge = 1 if mirror == "reflect" else 0
    return mirror is None or all(max(pad) <= size - edge for size, pad in zip(shape, pads, strict=True))


def _indices(node: Node) -> list[IntArray]:
    """For each axis and each output index along it, the input index that it copies."""
    pads = _paddings(node.attributes, node.inputs)
    return [_index(s, *p, _mirror(node.attributes)) for s, p in zip(node.input(0).shape, pads, strict=True)]


def _index(size: int, before: int, after: int, mirror: Mirror | None) -> IntArray:
    """For each output index along an axis, the input index that it copies."""
    whole = np.arange(size, dtype=np.int64)
    if mirror is None:
        return np.pad(whole, (before, after), constant_values=FILL)
    return np.pad(whole, (before, after), mode=mirror)


KIND = PadKind()
