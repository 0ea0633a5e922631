"""Images of another size: by our kernels where these take the pixels that the file asks for, else axis by axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from diagmem.frontends.onnx.builder import CHANNELS_LAST, Constant, Stored, stored_as
from diagmem.frontends.onnx.importer import Importer, integers
from diagmem.frontends.onnx.lowering.elementwise import binary_of
from diagmem.frontends.onnx.lowering.moving import taken
from diagmem.frontends.onnx.proto import OnnxNode
from diagmem.model.errors import one_line
from diagmem.model.graph import Shape
from diagmem.ops.resizing.resize import Resize


def resize(im: Importer, node: OnnxNode) -> None:
    """Resize and Upsample: by our kernels where these take the same pixels, else axis by axis."""
    shape = im.input(node).shape
    size, scales = _new_size(im, node, shape)
    newer = im.model.opset >= 11 and node.kind == "Resize"
    mode = im.attribute(node, "mode", "nearest")
    where = im.attribute(node, "coordinate_transformation_mode", "half_pixel" if newer else "asymmetric")
    rounding = im.attribute(node, "nearest_mode", "round_prefer_floor" if newer else "floor")
    cubic = _Cubic(float(im.attribute(node, "cubic_coeff_a", -0.75)), bool(im.attribute(node, "exclude_outside", 0)))
    im.attribute(node, "extrapolation_value", None)
    if im.attribute(node, "antialias", 0) or im.attribute(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
        raise im.refuse(node, "antialias and aspect ratios are not supported")
    axes = [_Axis(*axis) for axis in zip(shape, size, scales, strict=True)]
    value = im.stored(node, as_stored=mode == "nearest")
    attributes = None
    if len(shape) == 4 and size[:2] == shape[:2]:
        attributes = _resize_mode((mode, where, rounding), axes[2:])
    if attributes is None:
        im.bind(node.outputs[0], _by_axes(im, node, value, axes, (mode, where, rounding), cubic))
        return
    kind = "RESIZE_NEAREST_NEIGHBOR" if mode == "nearest" else "RESIZE_BILINEAR"
    tensor = im.build.form(value, CHANNELS_LAST, as_stored=True)
    rest = {"name": node.outputs[0], "quantisation": tensor.quantisation}
    made = im.build.make(kind, [tensor, im.build.ints(size[2:], "size")], attributes, **rest)
    im.bind(node.outputs[0], Stored(made, stored_as(size, CHANNELS_LAST), size, value.is_dequantised))


class _Cubic(NamedTuple):
    """`slope`: the coefficient a of Keys' kernel. `inside_only`: pixels outside the image do not count."""

    slope: float
    inside_only: bool

    def weight(self, apart: float) -> float:
        x, a = abs(apart), self.slope
        if x <= 1:
            return ((a + 2) * x - (a + 3)) * x * x + 1
        return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0


def _by_axes(
    im: Importer, node: OnnxNode, value: Stored, axes: Sequence[_Axis], modes: tuple[str, str, str], cubic: _Cubic
) -> Stored:
    """One axis after the other: pixels that are taken, or weighed sums of them."""
    mode, where, rounding = modes
    if mode not in ("nearest", "linear", "cubic") or where not in PLACES:
        raise im.refuse(node, f"mode {one_line(mode)}, {one_line(where)} is not supported")
    if where == "align_corners" and not all(axis.is_even for axis in axes):
        raise im.refuse(node, "align_corners with scales that make no whole sizes: runtimes differ there; give sizes")
    for axis, sizes in enumerate(axes):
        if sizes.new == sizes.old and (sizes.scale == 1.0 or (mode == "nearest" and sizes.is_even)):
            continue
        if mode == "nearest":
            value = taken(im, value, axis, np.array(sizes.theirs(where, rounding)))
        else:
            value = _weighed(im, value, axis, sizes.taps(where, cubic if mode == "cubic" else None))
    return value


def _weighed(im: Importer, value: Stored, axis: int, taps: Sequence[Sequence[tuple[int, float]]]) -> Stored:
    """The sum of as many products as a pixel has taps."""
    shape = [-1, *[1] * (len(value.shape) - 1 - axis)]
    made: Stored | None = None
    for column in zip(*taps, strict=True):
        weights = np.array([weight for _, weight in column], np.float32)
        if not weights.any():
            continue
        part = taken(im, value, axis, np.array([place for place, _ in column]))
        product = binary_of(im, "MUL", part, Constant(weights.reshape(shape)))
        made = product if made is None else binary_of(im, "ADD", made, product)
    return value if made is None else made


def _new_size(im: Importer, node: OnnxNode, shape: Shape) -> tuple[Shape, list[float]]:
    """The new shape, and by how much each axis grows."""
    newer = node.kind == "Resize" and im.model.opset >= 11
    rank = len(shape)
    axes = [im.axis(node, a, rank) for a in im.attribute(node, "axes", [])] or list(range(rank))
    wanted = im.optional_array(node, 3) if newer else None
    size, factors = list(shape), [1.0] * rank
    if wanted is not None and wanted.size:
        if wanted.size != len(axes):
            raise im.refuse(node, "its sizes have a wrong length; the file is damaged")
        for axis, n in zip(axes, integers(wanted), strict=True):
            size[axis], factors[axis] = n, n / shape[axis]
    else:
        given = (
            im.optional_array(node, 2 if newer else 1)
            if len(node.inputs) > 1
            else np.array(im.attribute(node, "scales"))
        )
        scales = np.asarray(given if given is not None else []).reshape(-1)
        if len(scales) != len(axes):
            raise im.refuse(node, "its scales have a wrong length; the file is damaged")
        if not np.all(np.isfinite(scales)):
            raise im.refuse(node, "its scales are no numbers; the file is damaged")
        for axis, scale in zip(axes, scales, strict=True):
            size[axis], factors[axis] = math.floor(shape[axis] * float(scale)), float(scale)
    if min(size) < 1 or max(size) > 1 << 20:
        raise im.refuse(node, f"size {size} is not possible; the file is damaged")
    return tuple(size), factors


class _Axis(NamedTuple):
    """One axis of an image before and after."""

    old: int
    new: int
    scale: float

    @property
    def is_even(self) -> bool:
        """Whether the size has grown by just as much as pixels move apart."""
        return self.old * self.scale == self.new

    def ours(self, align: bool, half: bool) -> list[int]:
        """The pixels that our kernel takes."""
        step = np.float32((self.old - 1) / (self.new - 1) if align and self.new > 1 else self.old / self.new)
        places = [(np.float32(i) + np.float32(0.5 if half else 0)) * step for i in range(self.new)]
        found = [math.floor(float(p) + 0.5) if align else math.floor(p) for p in places]
        return [min(i, self.old - 1) for i in found]

    def theirs(self, where: str, rounding: str) -> list[int]:
        """The pixels that the file asks for."""
        pick = _ROUNDINGS.get(rounding, math.floor)
        return [min(max(pick(self._place(i, where)), 0), self.old - 1) for i in range(self.new)]

    def taps(self, where: str, cubic: _Cubic | None) -> list[list[tuple[int, float]]]:
        """Of each new pixel the old ones that it is a sum of, and their weights: two, or four of a cubic one."""
        return [self._taps(self._place(i, where), cubic) for i in range(self.new)]

    def _taps(self, place: float, cubic: _Cubic | None) -> list[tuple[int, float]]:
        last = self.old - 1
        if cubic is None:
            held = min(max(place, 0.0), float(last))
            first = min(math.floor(held), last)
            return [(first, 1 - (held - first)), (min(first + 1, last), held - first)]
        first = math.floor(place)
        found = [(n, cubic.weight(place - n)) for n in range(first - 1, first + 3)]
        if cubic.inside_only:
            found = [(n, weight if 0 <= n <= last else 0.0) for n, weight in found]
            total = sum(weight for _, weight in found)
            found = [(n, weight / total) for n, weight in found]
        return [(min(max(n, 0), last), weight) for n, weight in found]

    def _place(self, i: int, where: str) -> float:
        if where == "align_corners":
            return i * (self.old - 1) / (self.new - 1) if self.new > 1 else 0.0
        if where == "pytorch_half_pixel" and self.new == 1:
            return 0.0
        if where == "half_pixel_symmetric":
            exact = self.old * self.scale
            return self.old / 2 * (1 - self.new / exact) + (i + 0.5) / self.scale - 0.5
        if where in ("half_pixel", "pytorch_half_pixel"):
            return (i + 0.5) / self.scale - 0.5
        return (i + 0.5 if where == "tf_half_pixel_for_nn" else i) / self.scale


PLACES = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    "tf_half_pixel_for_nn",
)
"""How the place of a pixel in the old image is found, where that needs no other input."""

_ROUNDINGS: dict[str, Callable[[float], int]] = {
    "round_prefer_floor": lambda x: math.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: math.floor(x + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}
_LINEAR = {
    "asymmetric": Resize(),
    "align_corners": Resize(align_corners=True),
    "half_pixel": Resize(half_pixel_centers=True),
}


def _resize_mode(modes: tuple[str, str, str], axes: Sequence[_Axis]) -> Resize | None:
    """The attributes with which our kernel reads the pixels that the file asks for, if there are such."""
    mode, where, rounding = modes
    if mode == "nearest" and where in PLACES:
        for align, half in ((False, False), (False, True), (True, False)):
            if all(axis.ours(align, half) == axis.theirs(where, rounding) for axis in axes):
                return Resize(align, half)
    if mode == "linear" and all(axis.is_even for axis in axes):
        same = "half_pixel" if where == "pytorch_half_pixel" and all(axis.new > 1 for axis in axes) else where
        return _LINEAR.get(same)
    return None


LOWERINGS = {"Resize": resize, "Upsample": resize}
