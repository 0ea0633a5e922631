"""MEAN, SUM, REDUCE_MAX, REDUCE_MIN: each output is made of all inputs along the reduced axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diagmem.accesses import Accesses, Runs
from diagmem.graph import Node, Shape, Tensor
from diagmem.ops._base import OpKind, axis_of, held_separation, input_at, swept
from diagmem.ops._fibres import fibre_reads, fibre_separation, kept_shape

ZERO_FIRST = "zero_first"
"""The order of kernels that set the whole output to its neutral value before they read anything."""


@dataclass(frozen=True, slots=True)
class Reduce:
    """Inputs: data, axes (constant; negative ones count from the end)."""

    keep_dims: bool = False


class ReduceKind(OpKind):
    names = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")
    orders = ("reference", ZERO_FIRST)

    def decode(self, name: str, options: Any) -> Reduce:
        return Reduce() if options is None else Reduce(bool(options.KeepDims()))

    def output_shapes(self, name: str, attributes: Reduce, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        return (kept_shape(input_at(inputs, 0).shape, _axes(inputs), attributes.keep_dims),)

    def accesses(self, node: Node, order: str) -> Accesses:
        shape, axes = node.input(0).shape, _axes(node.inputs)
        if order != ZERO_FIRST:
            return swept(node, {0: fibre_reads(shape, axes)})
        elems = node.output.elems
        writes = Runs.join(Runs.of(0, elems, 0, stride=0), Runs.of(0, elems, 1))
        return Accesses(
            elems + 1, (fibre_reads(shape, axes, first_step=1), *(None for _ in node.inputs[1:])), (writes,)
        )

    def closed_separation(self, node: Node, position: int, order: str, output: int) -> int | None:
        if order == ZERO_FIRST:
            return node.output.size_bytes
        return fibre_separation(node, _axes(node.inputs)) if position == 0 else held_separation(node)


def _axes(inputs: Sequence[Tensor | None]) -> frozenset[int]:
    data, axes = input_at(inputs, 0), input_at(inputs, 1)
    return frozenset(axis_of(axis, len(data.shape)) for axis in axes.ints)


KIND = ReduceKind()
