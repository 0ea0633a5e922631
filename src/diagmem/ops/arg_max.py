"""ARG_MAX, ARG_MIN: where along an axis the largest or smallest element stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diagmem.accesses import Accesses
from diagmem.errors import ModelError
from diagmem.graph import DType, Node, Shape, Tensor
from diagmem.ops._base import OpKind, axis_of, held_separation, input_at, swept
from diagmem.ops._fibres import fibre_reads, fibre_separation, kept_shape

_OUTPUT_TYPES = {2: DType.INT32, 4: DType.INT64}
"""By TFLite's code."""


@dataclass(frozen=True, slots=True)
class ArgMax:
    """Inputs: data, axis (constant, one number)."""

    output_type: DType = DType.INT64


class ArgMaxKind(OpKind):
    names = ("ARG_MAX", "ARG_MIN")

    def decode(self, name: str, options: Any) -> ArgMax:
        if options is None:
            return ArgMax()
        code = options.OutputType()
        if code not in _OUTPUT_TYPES:
            raise ModelError(f"{name}: output type code {code} is neither int32 nor int64; the file is damaged")
        return ArgMax(_OUTPUT_TYPES[code])

    def output_shapes(self, name: str, attributes: ArgMax, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        return (kept_shape(input_at(inputs, 0).shape, _axes(inputs), keep_dims=False),)

    def accesses(self, node: Node, order: str) -> Accesses:
        return swept(node, {0: fibre_reads(node.input(0).shape, _axes(node.inputs))})

    def closed_separation(self, node: Node, position: int, order: str, output: int) -> int | None:
        return fibre_separation(node, _axes(node.inputs)) if position == 0 else held_separation(node)


def _axes(inputs: Sequence[Tensor | None]) -> tuple[int]:
    axes = input_at(inputs, 1).ints
    if len(axes) != 1:
        raise ModelError(f"one axis is needed, {len(axes)} are given; the file is damaged")
    return (axis_of(axes[0], len(input_at(inputs, 0).shape)),)


KIND = ArgMaxKind()
