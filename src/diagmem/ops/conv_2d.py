"""CONV_2D: every output channel looks at the whole window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from diagmem.accesses import Accesses, Runs
from diagmem.errors import ModelError
from diagmem.graph import Nhwc, Node, Padding, Shape, Tensor, Window2D
from diagmem.ops._base import Activation, OpKind, activation_of, padding_of
from diagmem.ops._windowed import WindowedLoop, printed_overlap, unclamped_padding


@dataclass(frozen=True, slots=True)
class Conv2D:
    """Inputs: image, filter (output channels, height, width, input channels of one group), bias (optional)."""

    padding: Padding = Padding.SAME
    stride_h: int = 1
    stride_w: int = 1
    dilation_h: int = 1
    dilation_w: int = 1
    activation: Activation = Activation.NONE


class Conv2DKind(OpKind):
    names = ("CONV_2D",)

    def decode(self, name: str, options: Any) -> Conv2D:
        if options is None:
            return Conv2D()
        return Conv2D(
            padding_of(options.Padding()),
            options.StrideH(),
            options.StrideW(),
            options.DilationHFactor(),
            options.DilationWFactor(),
            activation_of(options.FusedActivationFunction()),
        )

    def output_shapes(self, name: str, attributes: Conv2D, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        image, filters = _image_and_filter(inputs)
        window = _window(attributes, image, filters)
        return ((image.batch, window.rows.size_out, window.cols.size_out, filters.batch),)

    def accesses(self, node: Node, order: str) -> Accesses:
        loop, groups = _loop(node)
        reads = loop.held_windows()
        if groups > 1:
            step, start = loop.pixels()
            depth_in, depth_out = loop.image.depth // groups, loop.out.depth // groups
            reads = Runs.join(
                *(
                    Runs.of(start + g * depth_in, depth_in, step + g * depth_out, stride=0, hold=depth_out)
                    for g in range(groups)
                )
            )
        return Accesses(loop.steps, (reads, *(None for _ in node.inputs[1:])), (Runs.sweep(loop.steps),))

    def closed_separation(self, node: Node, position: int, order: str, output: int) -> int | None:
        return _loop(node)[0].separation()

    def analytical(self, node: Node, position: int) -> int | None:
        return max(0, node.output.size_bytes - _loop(node)[0].line_separation())

    def paper(self, node: Node, position: int) -> Fraction | None:
        loop, groups = _loop(node)
        if groups > 1:
            return None
        image, out, rows, cols = loop.image, loop.out, loop.window.rows, loop.window.cols
        p_h = unclamped_padding(image.height, out.height, rows.kernel, rows.stride, rows.dilation)
        p_w = unclamped_padding(image.width, out.width, cols.kernel, cols.stride, cols.dilation)
        a = Fraction(rows.stride * image.width * image.depth, out.width * out.depth)
        b = (
            out.width * cols.stride - p_h * image.width - rows.stride * image.width - cols.stride - p_w
        ) * image.depth + 1
        return printed_overlap(loop, a, b)

    def macs(self, node: Node) -> int:
        _, filters = _image_and_filter(node.inputs)
        return node.output.elems * filters.height * filters.width * filters.depth


def _image_and_filter(inputs: Sequence[Tensor | None]) -> tuple[Nhwc, Nhwc]:
    if len(inputs) < 2 or inputs[0] is None or inputs[1] is None:
        raise ModelError("a convolution needs an image and a filter; the file is damaged")
    image, filters = Nhwc.of(inputs[0]), Nhwc.of(inputs[1])
    if filters.depth < 1 or image.depth % filters.depth or filters.batch % (image.depth // filters.depth):
        raise ModelError(
            f"filter {list(filters)} does not divide the {image.depth} input channels into groups; the file is damaged"
        )
    return image, filters


def _window(attributes: Conv2D, image: Nhwc, filters: Nhwc) -> Window2D:
    return Window2D.resolve(
        image,
        (filters.height, filters.width),
        (attributes.stride_h, attributes.stride_w),
        (attributes.dilation_h, attributes.dilation_w),
        attributes.padding,
    )


def _loop(node: Node) -> tuple[WindowedLoop, int]:
    """The loops and the number of groups (1 but for grouped convolutions)."""
    image, filters = _image_and_filter(node.inputs)
    groups = image.depth // filters.depth
    per_group = filters.batch // groups
    corners = ((0, per_group - 1), (image.depth - filters.depth, filters.batch - 1))
    loop = WindowedLoop(
        image,
        Nhwc.of(node.output),
        _window(node.attributes, image, filters),
        corners,
        node.input(0).dtype.size_bytes,
        node.output.dtype.size_bytes,
    )
    return loop, groups


KIND = Conv2DKind()
