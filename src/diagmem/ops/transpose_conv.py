"""TRANSPOSE_CONV: the gradient of a convolution; every output pixel gathers the image pixels that reach it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagmem.accesses import Accesses, Runs
from diagmem.errors import ModelError
from diagmem.graph import IntArray, Nhwc, Node, Padding, Shape, Tensor, Window1D, Window2D
from diagmem.ops._base import (
    Activation,
    OpKind,
    activation_of,
    constant_ints,
    held_separation,
    input_at,
    padding_of,
    swept,
)
from diagmem.ops._pixels import PixelLoop

BUFFERED = "buffered"
"""The order of kernels that sum up the whole output in a buffer, and write it when all of the image is read."""

FILTER, IMAGE = 1, 2
"""Positions of the inputs."""


@dataclass(frozen=True, slots=True)
class TransposeConv:
    """Inputs: the output's shape, filter (output channels, height, width, input channels), image, bias (optional)."""

    padding: Padding = Padding.SAME
    stride_h: int = 1
    stride_w: int = 1
    activation: Activation = Activation.NONE


@dataclass(frozen=True, slots=True)
class GatheredAxis:
    """A window seen from its other end: `window` slides over the output, one place for each image row or column."""

    window: Window1D

    def taps(self) -> tuple[IntArray, IntArray]:
        image, outputs = self.window.taps()
        order = np.argsort(outputs, kind="stable")
        return outputs[order], image[order]

    def first_reads(self) -> tuple[IntArray, IntArray]:
        outputs, image = self.taps()
        kept, first = np.unique(outputs, return_index=True)
        return kept, image[first]


class TransposeConvKind(OpKind):
    names = ("TRANSPOSE_CONV",)
    orders = ("reference", BUFFERED)

    def decode(self, name: str, options: Any) -> TransposeConv:
        if options is None:
            return TransposeConv()
        return TransposeConv(
            padding_of(options.Padding()),
            options.StrideH(),
            options.StrideW(),
            activation_of(options.FusedActivationFunction()),
        )

    def output_shapes(
        self, name: str, attributes: TransposeConv, inputs: Sequence[Tensor | None]
    ) -> tuple[Shape, ...] | None:
        shape = constant_ints(inputs, 0)
        if shape is None:
            return None
        if len(shape) != 4:
            raise ModelError(f"the output's shape {list(shape)} needs 4 axes; the file is damaged")
        _window(attributes, inputs, Nhwc(*shape))
        return (shape,)

    def accesses(self, node: Node, order: str) -> Accesses:
        if order == BUFFERED:
            return swept(node, {IMAGE: Runs.of(0, node.input(IMAGE).elems, 0, stride=0)})
        return swept(node, {IMAGE: _loop(node).reads()})

    def closed_separation(self, node: Node, position: int, order: str, output: int) -> int | None:
        if position != IMAGE:
            return held_separation(node)
        return None if order == BUFFERED else _loop(node).separation()

    def macs(self, node: Node) -> int:
        filters = Nhwc.of(node.input(FILTER))
        return node.input(IMAGE).elems * filters.height * filters.width * filters.batch


def _window(attributes: TransposeConv, inputs: Sequence[Tensor | None], out: Nhwc) -> Window2D:
    """The window of the convolution that leads from the output back to the image."""
    filters, image = Nhwc.of(input_at(inputs, FILTER)), Nhwc.of(input_at(inputs, IMAGE))
    window = Window2D.resolve(
        out,
        (filters.height, filters.width),
        (attributes.stride_h, attributes.stride_w),
        padding=attributes.padding,
    )
    if image != (out.batch, window.rows.size_out, window.cols.size_out, filters.depth) or out.depth != filters.batch:
        raise ModelError(
            f"image {list(image)} and filter {list(filters)} do not make the output {list(out)}; the file is damaged"
        )
    return window


def _loop(node: Node) -> PixelLoop:
    out = Nhwc.of(node.output)
    window = _window(node.attributes, node.inputs, out)
    sizes = node.input(IMAGE).dtype.size_bytes, node.output.dtype.size_bytes
    rows, cols = GatheredAxis(window.rows), GatheredAxis(window.cols)
    return PixelLoop(Nhwc.of(node.input(IMAGE)), out, rows, cols, 1, *sizes)


KIND = TransposeConvKind()
