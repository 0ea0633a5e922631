"""What CONV_2D and DEPTHWISE_CONV_2D have in common: a window with weights, its own for each output channel."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from diagmem.model.graph import DType, Nhwc, Node, Window2D
from diagmem.ops.c_call import QUANTISED_OR_FLOAT, CCall, by_type
from diagmem.ops.kind import Array, ColumnsAsRows, Inputs, Rewritten, Shapes, Values
from diagmem.ops.loops.windowed import WindowedKind, WindowedLoop
from diagmem.ops.numerics.quantised import centred_weights, float_weights, zero_point_of
from diagmem.ops.numerics.row_sums import RowSums, row_sum_bytes, row_sums_call
from diagmem.ops.numerics.weighted_sums import finished
from diagmem.ops.orders import Variant


class ConvolutionKind(WindowedKind):
    int8_version = 3

    axis: ClassVar[int]
    """That of the output channels in the filter."""

    @abstractmethod
    def image_and_filter(self, attributes: Any, inputs: Inputs) -> tuple[Nhwc, Nhwc]:
        """Their shapes, which fit each other."""

    @abstractmethod
    def sums(self, loop: WindowedLoop, image: Array, filters: Array, zero_point: int | None) -> Array:
        """Sums of products: of float32 one product after the other, where there is no zero point."""

    @abstractmethod
    def plain_call(self, node: Node) -> CCall:
        """The call of the kernel in plain C, for the types of data and weights."""

    def window_over(self, attributes: Any, inputs: Inputs) -> Window2D:
        image, filters = self.image_and_filter(attributes, inputs)
        return Window2D.resolve(
            image,
            (filters.height, filters.width),
            (attributes.stride_h, attributes.stride_w),
            (attributes.dilation_h, attributes.dilation_w),
            attributes.padding,
        )

    def output_shapes(self, name: str, attributes: Any, inputs: Inputs) -> Shapes:
        image, filters = self.image_and_filter(attributes, inputs)
        window = self.window_over(attributes, inputs)
        return ((image.batch, window.rows.size_out, window.cols.size_out, filters[self.axis]),)

    def columns_as_rows(self, node: Node, change: ColumnsAsRows) -> Rewritten | None:
        """Rows and columns of the filter change places too. It must not serve another operation as it is."""
        filters, window = node.input(1), super().columns_as_rows(node, change)
        if window is None or not filters.is_constant or filters.index not in change.own:
            return None
        shape = tuple(filters.shape[axis] for axis in change.axes)
        data = None if filters.data is None else np.ascontiguousarray(filters.data.transpose(change.axes))
        return Rewritten(window.attributes, {1: replace(filters, shape=shape, data=data)})

    @abstractmethod
    def row_sums(self, node: Node, sums: RowSums = row_sums_call) -> CCall:
        """The call that takes a row of the input into sums, if one row of windows covers it."""

    def accumulator_bytes(self, node: Node) -> int | None:
        is_mixed = self.axis == 0 and self.groups(node) > 1
        return None if is_mixed else row_sum_bytes(node, self.window(node).rows)

    def by_rows(self, node: Node, call: Callable[[Node], CCall]) -> CCall:
        return super().by_rows(node, call) if self.accumulator_bytes(node) is None else call(node)

    def c_row_call(self, node: Node) -> CCall:
        return self.by_rows(node, self.c_call if self.accumulator_bytes(node) is None else self.row_sums)

    def taking_rows(
        self, node: Node, variants: Iterable[Variant], sums: RowSums = row_sums_call
    ) -> tuple[Variant, ...]:
        """The variants with a row call that does so."""
        if self.accumulator_bytes(node) is None:
            return tuple(variants)
        return tuple(replace(v, row_call=partial(self.row_sums, sums=sums)) for v in variants)

    def macs(self, node: Node) -> int:
        filters = node.input(1)
        return node.output.elems * filters.elems // max(1, filters.shape[self.axis])

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        loop, (image, filters, *rest) = self.loop(node), inputs
        if node.input(0).dtype is DType.FLOAT32:
            sums = self.sums(loop, image, float_weights(node.input(1), filters, self.axis), None)
        else:
            sums = self.sums(loop, image, centred_weights(node.input(1), filters), zero_point_of(node.input(0)))
        return (finished(node, self.axis, sums, rest[0] if rest else None),)

    def c_call(self, node: Node) -> CCall:
        return by_type(node, dict.fromkeys(QUANTISED_OR_FLOAT, self.plain_call))
