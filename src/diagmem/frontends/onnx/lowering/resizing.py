"""Images of another size, where our kernels take the same pixels as the file asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from diagmem.frontends.onnx.importer import Importer, integers
from diagmem.frontends.onnx.layout import CHANNELS_LAST, Stored, stored_as
from diagmem.frontends.onnx.proto import OnnxNode
from diagmem.model.errors import one_line
from diagmem.model.graph import Shape
from diagmem.ops.resizing.resize import Resize


def resize(im: Importer, node: OnnxNode) -> None:
    """Resize and Upsample of images, where our kernels take the same pixels."""
    value = im.stored(node)
    if len(value.shape) != 4:
        raise im.refuse(node, "only images can be resized")
    size, scales = _new_size(im, node, value.shape)
    mode = im.attribute(node, "mode", "nearest")
    where = im.attribute(
        node,
        "coordinate_transformation_mode",
        "half_pixel" if im.model.opset >= 11 and node.kind == "Resize" else "asymmetric",
    )
    rounding = im.attribute(
        node, "nearest_mode", "round_prefer_floor" if im.model.opset >= 11 and node.kind == "Resize" else "floor"
    )
    for name in ("cubic_coeff_a", "exclude_outside", "extrapolation_value"):
        im.attribute(node, name, None)
    if im.attribute(node, "antialias", 0) or im.attribute(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
        raise im.refuse(node, "antialias and aspect ratios are not supported")
    if size[:2] != value.shape[:2]:
        raise im.refuse(node, "only height and width can be resized")
    axes = [_Axis(*axis) for axis in zip(value.shape[2:], size[2:], scales[2:], strict=True)]
    attributes = _resize_mode(im, node, (mode, where, rounding), axes)
    kind = "RESIZE_NEAREST_NEIGHBOR" if mode == "nearest" else "RESIZE_BILINEAR"
    tensor = im.build.form(value, CHANNELS_LAST)
    made = im.build.make(kind, [tensor, im.build.ints(size[2:], "size")], attributes, name=node.outputs[0])
    im.bind(node.outputs[0], Stored(made, stored_as(size, CHANNELS_LAST), size))


def _new_size(im: Importer, node: OnnxNode, shape: Shape) -> tuple[Shape, list[float]]:
    """The new shape, and by how much each axis grows."""
    newer = node.kind == "Resize" and im.model.opset >= 11
    axes = [im.axis(node, a, 4) for a in im.attribute(node, "axes", [])] or list(range(4))
    wanted = im.optional_array(node, 3) if newer else None
    size, factors = list(shape), [1.0] * 4
    if wanted is not None and wanted.size:
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

    def _place(self, i: int, where: str) -> float:
        if where == "align_corners":
            return i * (self.old - 1) / (self.new - 1) if self.new > 1 else 0.0
        if where in ("half_pixel", "pytorch_half_pixel"):
            return (i + 0.5) / self.scale - 0.5 if where == "half_pixel" or self.new > 1 else 0.0
        return i / self.scale


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


def _resize_mode(im: Importer, node: OnnxNode, modes: tuple[str, str, str], axes: Sequence[_Axis]) -> Resize:
    """The attributes with which our kernel reads the pixels that the file asks for."""
    mode, where, rounding = modes
    if mode == "nearest" and where in (*_LINEAR, "pytorch_half_pixel"):
        for align, half in ((False, False), (False, True), (True, False)):
            if all(axis.ours(align, half) == axis.theirs(where, rounding) for axis in axes):
                return Resize(align, half)
    if mode == "linear" and all(axis.is_even for axis in axes):
        same = "half_pixel" if where == "pytorch_half_pixel" and all(axis.new > 1 for axis in axes) else where
        if same in _LINEAR:
            return _LINEAR[same]
    raise im.refuse(node, f"mode {one_line(mode)}, {one_line(where)} takes other pixels than the kernels can")


LOWERINGS = {"Resize": resize, "Upsample": resize}
