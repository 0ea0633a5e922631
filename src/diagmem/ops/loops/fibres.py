"""Reductions: output element o is made of a fibre, all inputs that share its place on the axes that are kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from diagmem.model.graph import IntArray, Node, Shape, Strides, row_major_strides
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import CStruct, joined_axes
from diagmem.ops.kind import Inputs, OpKind, Shapes, axis_of, held_separation, input_at, swept
from diagmem.ops.loops.chunks import outer_sum
from diagmem.ops.loops.pixels import AxisTerm, separation_of
from diagmem.ops.orders import Order


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


class ReducingKind(OpKind):
    """Inputs: data, axes. One output after the other reads its fibre, then is written."""

    def output_shapes(self, name: str, attributes: Any, inputs: Inputs) -> Shapes:
        keep_dims = getattr(attributes, "keep_dims", False)
        return (kept_shape(input_at(inputs, 0).shape, reduced_axes(inputs), keep_dims),)

    def accesses(self, node: Node, order: Order) -> Accesses:
        return swept(node, {0: fibre_reads(node.input(0).shape, reduced_axes(node.inputs))})

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        return fibre_separation(node, reduced_axes(node.inputs)) if position == 0 else held_separation(node)
