"""AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D: each channel is summed up over its window alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from diagmem.accesses import Accesses
from diagmem.graph import Nhwc, Node, Padding, Shape, Tensor, Window2D
from diagmem.ops._base import Activation, OpKind, activation_of, held_separation, input_at, padding_of, swept
from diagmem.ops._held import HeldPixels
from diagmem.ops._windowed import WindowedLoop

ACCUMULATE = "accumulate"
"""The order of kernels that copy a window's first pixel to the output and merge the others into it there."""


@dataclass(frozen=True, slots=True)
class Pool2D:
    """Input: image."""

    padding: Padding = Padding.SAME
    stride_h: int = 1
    stride_w: int = 1
    kernel_h: int = 1
    kernel_w: int = 1
    activation: Activation = Activation.NONE


class Pool2DKind(OpKind):
    names = ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
    orders = ("reference", ACCUMULATE)

    def decode(self, name: str, options: Any) -> Pool2D:
        if options is None:
            return Pool2D()
        return Pool2D(
            padding_of(options.Padding()),
            options.StrideH(),
            options.StrideW(),
            options.FilterHeight(),
            options.FilterWidth(),
            activation_of(options.FusedActivationFunction()),
        )

    def output_shapes(self, name: str, attributes: Pool2D, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        image = Nhwc.of(input_at(inputs, 0))
        window = _window(attributes, image)
        return ((image.batch, window.rows.size_out, window.cols.size_out, image.depth),)

    def accesses(self, node: Node, order: str) -> Accesses:
        loop = _ordered(_loop(node), order)
        return replace(swept(node, {0: loop.reads()}), steps=loop.steps)

    def closed_separation(self, node: Node, position: int, order: str, output: int) -> int | None:
        return _ordered(_loop(node), order).separation() if position == 0 else held_separation(node)

    def analytical(self, node: Node, position: int) -> int | None:
        return _loop(node).analytical_overlap()

    def paper(self, node: Node, position: int) -> Fraction | None:
        """Equations (14) and (15)."""
        loop = _loop(node)
        image, out, rows, cols = loop.image, loop.out, loop.rows, loop.cols
        p_h, p_w = loop.printed_padding()
        a = Fraction(rows.stride * image.width, out.width)
        pixels = out.width * cols.stride - p_h * image.width - rows.stride * image.width - cols.stride - p_w
        return loop.printed_overlap(a, pixels * image.depth + 1)


def _window(attributes: Pool2D, image: Nhwc) -> Window2D:
    return Window2D.resolve(
        image,
        (attributes.kernel_h, attributes.kernel_w),
        (attributes.stride_h, attributes.stride_w),
        padding=attributes.padding,
    )


def _loop(node: Node) -> WindowedLoop:
    image = Nhwc.of(node.input(0))
    window = _window(node.attributes, image)
    sizes = node.input(0).dtype.size_bytes, node.output.dtype.size_bytes
    return WindowedLoop(image, Nhwc.of(node.output), window.rows, window.cols, image.depth, *sizes)


def _ordered(loop: WindowedLoop, order: str) -> WindowedLoop | HeldPixels:
    return HeldPixels(loop, ahead=0, writes=loop.out.depth) if order == ACCUMULATE else loop


KIND = Pool2DKind()
