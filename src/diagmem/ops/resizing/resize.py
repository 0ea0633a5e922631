"""RESIZE_NEAREST_NEIGHBOR, RESIZE_BILINEAR: an output pixel reads the input rows and columns that TFLite rounds to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, IntArray, Nhwc, Node
from diagmem.ops.c_call import (
    QUANTISED_OR_FLOAT,
    SUFFIXES,
    CCall,
    CRow,
    CStretch,
    CStruct,
    CTable,
    CTurn,
    by_type,
    cut_to_row,
    kernel_call,
    require_types,
)
from diagmem.ops.kind import Array, Inputs, Shapes, Values, input_at, known_ints, unless_computed
from diagmem.ops.loops.chunks import gathered_call
from diagmem.ops.loops.pixels import HeldPixels, Pitches, PixelLoop
from diagmem.ops.loops.windowed import OrderedLoop, PixelKind, c_image
from diagmem.ops.numerics.quantised import require_same_quantisation
from diagmem.ops.options import Table
from diagmem.ops.orders import Order
from diagmem.ops.signature import Signature


@dataclass(frozen=True, slots=True)
class Resize:
    """Inputs: image, the new height and width. How output places map to input places."""

    align_corners: bool = False
    half_pixel_centers: bool = False


@dataclass(frozen=True, slots=True)
class SampledAxis:
    """Output i reads inputs `low[i]` and `high[i]`, which may be one and the same; low <= high."""

    low: IntArray
    high: IntArray

    def first_reads(self) -> tuple[IntArray, IntArray]:
        return np.arange(len(self.low), dtype=np.int64), self.low

    @property
    def pairs(self) -> int:
        return len(self.low) + int(np.count_nonzero(self.low < self.high))

    def last_taps(self) -> tuple[IntArray, IntArray]:
        outputs, inputs = self.taps()
        kept, behind = np.unique(inputs[::-1], return_index=True)
        return outputs[::-1][behind], kept

    def taps(self) -> tuple[IntArray, IntArray]:
        inputs = np.stack((self.low, self.high), axis=1)
        kept = np.stack((np.ones_like(self.low, dtype=bool), self.low < self.high), axis=1)
        return np.nonzero(kept)[0], inputs[kept]


class ResizeKind(PixelKind):
    """In order "memcpy" pixels are copied whole."""

    names = monotone = ("RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR")
    orders = (Order.REFERENCE, Order.MEMCPY)
    table = Table(Resize, ("AlignCorners", "HalfPixelCenters"))
    tflm_agrees = True
    takes = Signature((2, 2), numbers=(1,))

    def decode(self, name: str, options: Any) -> Resize:
        attributes: Resize = super().decode(name, options)
        if name == "RESIZE_BILINEAR" and attributes.align_corners and attributes.half_pixel_centers:
            raise ModelError(f"{name}: align_corners and half_pixel_centers exclude each other; the file is damaged")
        return attributes

    @unless_computed
    def output_shapes(self, name: str, attributes: Resize, inputs: Inputs) -> Shapes:
        image, size = Nhwc.of(input_at(inputs, 0)), known_ints(inputs, 1)
        if len(size) != 2 or min(size) < 1:
            raise ModelError(f"new size {list(size)} is not a height and a width; the file is damaged")
        return ((image.batch, *size, image.depth),)

    def keeps_channels(self, node: Node) -> bool:
        return True

    def can_make(self, node: Node) -> bool:
        image, made = node.input(0).shape, node.output.shape
        return len(made) == 4 and (made[0], made[3]) == (image[0], image[3]) and min(made) > 0

    def loop(self, node: Node) -> PixelLoop:
        source, out = node.input(0), node.output
        rows, cols = (
            sampled_axis(node.op.kind, node.attributes, source.dtype, source.shape[a], out.shape[a]) for a in (1, 2)
        )
        return PixelLoop.of(source, out, rows, cols, source.shape[3])

    def ordered(self, node: Node, order: Order) -> OrderedLoop:
        loop = self.loop(node)
        return HeldPixels(loop, writes=loop.out.depth) if order is Order.MEMCPY else loop

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        if node.op.kind == "RESIZE_BILINEAR":
            return (_blended(node, inputs[0]),)
        rows, cols = (_nearest(node.attributes, inputs[0].shape[a], node.output.shape[a]) for a in (1, 2))
        return (inputs[0][:, rows][:, :, cols],)

    def has_row_kernel(self, node: Node) -> bool:
        is_image = Nhwc.of(node.output).batch == 1 and node.input(1).data is not None
        return is_image and self.lists_all_reads(node)

    def c_row_call(self, node: Node) -> CCall:
        """Rows are sampled like columns: no rule tells which, so they are listed."""
        if node.op.kind == "RESIZE_BILINEAR":
            rows, call = _blend(node, 1), self.c_call(node)
            neighbours = (CRow(node.input(0), rows=tuple(side.tolist())) for side in (rows.low, rows.high))
            out, moves = Nhwc.of(node.output), {"shape.cols": 2, "col_shares": 1}
            return replace(
                call,
                function=f"{call.function}_row",
                arguments=(CTurn.NUMBER, *neighbours, CRow(node.output)),
                stretch=CStretch(out.width, "shape.out_width", (0, 0, out.depth), moves),
            )
        nearest = _nearest(node.attributes, node.input(0).shape[1], node.output.shape[1])
        sampled = CRow(node.input(0), rows=tuple(nearest.tolist()))
        return replace(self.c_call(cut_to_row(node)), arguments=(sampled, CRow(node.output)))

    def c_call(self, node: Node) -> CCall:
        require_types(node.output.dtype, (node.input(0),))
        require_same_quantisation((node.input(0), node.output))
        if node.op.kind == "RESIZE_BILINEAR":
            return by_type(node, dict.fromkeys(QUANTISED_OR_FLOAT, _bilinear_call))
        image, (image_in, row_in, pixel_in) = Nhwc.of(node.input(0)), Pitches.of(node.input(0))
        out = Nhwc.of(node.output)
        places = [
            np.arange(image.batch, dtype=np.int64) * image_in,
            _nearest(node.attributes, image.height, out.height) * row_in,
            _nearest(node.attributes, image.width, out.width) * pixel_in,
        ]
        return gathered_call(node, places, image.depth, Pitches.of(node.output))


def sampled_axis(name: str, attributes: Resize, dtype: DType, size_in: int, size_out: int) -> SampledAxis:
    """The inputs that each output along one axis reads."""
    if name == "RESIZE_NEAREST_NEIGHBOR":
        nearest = _nearest(attributes, size_in, size_out)
        return SampledAxis(nearest, nearest)
    is_float = dtype in _FLOAT_PLACES
    low, high = (_neighbours if is_float else _fixed_point_neighbours)(attributes, size_in, size_out)
    return SampledAxis(np.clip(low, 0, size_in - 1), np.clip(high, 0, size_in - 1))


def _scale(attributes: Resize, size_in: int, size_out: int) -> tuple[int, int]:
    """Input places for each output place, as a fraction."""
    return (size_in - 1, size_out - 1) if attributes.align_corners and size_out > 1 else (size_in, size_out)


def _single_precision(attributes: Resize, size_in: int, size_out: int) -> tuple[npt.NDArray[np.float32], np.float32]:
    """Output places and the scale, in the precision that TFLite's kernels compute with."""
    places, outputs = _scale(attributes, size_in, size_out)
    centre = np.float32(0.5 if attributes.half_pixel_centers else 0)
    return np.arange(size_out, dtype=np.float32) + centre, np.float32(places) / np.float32(outputs)


def _nearest(attributes: Resize, size_in: int, size_out: int) -> IntArray:
    output, scale = _single_precision(attributes, size_in, size_out)
    # Halves round up; added in float64, else the sum itself could round up.
    half = 0.5 if attributes.align_corners else 0.0
    return np.clip(np.floor((output * scale).astype(np.float64) + half).astype(np.int64), 0, size_in - 1)


def _neighbours(attributes: Resize, size_in: int, size_out: int) -> tuple[IntArray, IntArray]:
    """Compilers may fuse the product with the subtraction, which rounds once less: the reads of both ways count."""
    output, scale = _single_precision(attributes, size_in, size_out)
    half = np.float32(0.5 if attributes.half_pixel_centers else 0)
    plain = _real_places(attributes, size_in, size_out)
    fused = (output.astype(np.float64) * np.float64(scale) - np.float64(half)).astype(np.float32)
    low, high = np.floor(np.minimum(plain, fused)), np.ceil(np.maximum(plain, fused))
    return low.astype(np.int64), high.astype(np.int64)


def _real_places(attributes: Resize, size_in: int, size_out: int) -> npt.NDArray[np.float32]:
    """The places in the input, the product rounded before the subtraction."""
    output, scale = _single_precision(attributes, size_in, size_out)
    places: npt.NDArray[np.float32] = output * scale - np.float32(0.5 if attributes.half_pixel_centers else 0)
    return places


def _fixed_point_neighbours(attributes: Resize, size_in: int, size_out: int) -> tuple[IntArray, IntArray]:
    place = _fixed_point_places(attributes, size_in, size_out)
    return place // _ONE, -(-place // _ONE)


_FLOAT_PLACES = (DType.FLOAT32, DType.FLOAT16, DType.UINT8)
"""Types whose kernels compute places in float32."""

_ONE = 1 << 10
"""Quantised kernels compute in integers, with 10 bits behind the point."""


def _fixed_point_places(attributes: Resize, size_in: int, size_out: int) -> IntArray:
    places, outputs = _scale(attributes, size_in, size_out)
    scale = (_ONE * places + outputs // 2) // outputs
    place = np.arange(size_out, dtype=np.int64) * scale
    return place + scale // 2 - _ONE // 2 if attributes.half_pixel_centers else place


class _Blend(NamedTuple):
    """For each output along an axis: its neighbours in the input, and the share of the second one: float32, or an
    integer with 10 bits behind the point."""

    low: IntArray
    high: IntArray
    share: Array


def _blend(node: Node, axis: int) -> _Blend:
    size_in, size_out = node.input(0).shape[axis], node.output.shape[axis]
    is_real = node.input(0).dtype in _FLOAT_PLACES
    place: Array = (_real_places if is_real else _fixed_point_places)(node.attributes, size_in, size_out)
    one = np.float32(1) if is_real else _ONE
    low = np.clip(np.floor(place / one).astype(np.int64), 0, size_in - 1)
    high = np.clip(np.ceil(place / one).astype(np.int64), 0, size_in - 1)
    return _Blend(low, high, place - low.astype(place.dtype) * one)


def _blended(node: Node, data: Array) -> Array:
    rows, cols = _blend(node, 1), _blend(node, 2)
    is_real = node.input(0).dtype in _FLOAT_PLACES
    values, one = (data.astype(np.float32), np.float32(1)) if is_real else (data.astype(np.int64), _ONE)
    y, x = rows.share[:, None, None], cols.share[:, None]
    above, below = values[:, rows.low], values[:, rows.high]
    total: Array = above[:, :, cols.low] * (one - y) * (one - x) + below[:, :, cols.low] * y * (one - x)
    total = total + above[:, :, cols.high] * (one - y) * x + below[:, :, cols.high] * y * x
    if data.dtype == np.float32:
        return total
    if is_real:
        upwards: Array = (total + np.float32(0.5)).astype(data.dtype)
        return upwards
    nearest: Array = (np.sign(total) * ((np.abs(total) + _ONE**2 // 2) // _ONE**2)).astype(data.dtype)
    return nearest


def _bilinear_call(node: Node) -> CCall:
    image, out = Nhwc.of(node.input(0)), Nhwc.of(node.output)
    pitches, rows, cols = Pitches.of(node.output), _blend(node, 1), _blend(node, 2)
    sizes = {**c_image("in", image, Pitches.of(node.input(0))), **c_image("out", out, pitches)}
    del sizes["in_depth"], sizes["out_depth"]
    tables = {
        "depth": out.depth,
        "rows": CTable("rows", np.stack([rows.low, rows.high], axis=1).astype(np.int32)),
        "cols": CTable("cols", np.stack([cols.low, cols.high], axis=1).astype(np.int32)),
    }
    fields = {
        "shape": CStruct("diagmem_resize", {"batches": image.batch, **sizes, **tables}),
        "row_shares": CTable("row_shares", _stored_shares(rows)),
        "col_shares": CTable("col_shares", _stored_shares(cols)),
    }
    function = f"resize_bilinear_{SUFFIXES[node.output.dtype]}"
    struct = f"resize_bilinear_{'f32' if node.output.dtype in _FLOAT_PLACES else 'int'}"
    call = kernel_call("resize_bilinear", fields, (node.input(0), node.output), function=function, struct=struct)
    stretch = CStretch(out.height, "shape.out_height", (0, pitches.row), {"shape.rows": 2, "row_shares": 1})
    return replace(call, stretch=stretch if out.batch == 1 else None)


def _stored_shares(axis: _Blend) -> Array:
    return axis.share if axis.share.dtype == np.float32 else axis.share.astype(np.int32)


KIND = ResizeKind()
