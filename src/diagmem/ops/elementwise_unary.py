"""Activations and other operations on single elements; input and output elements may differ in size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diagmem.graph import Node, Shape, Tensor
from diagmem.ops._base import input_at
from diagmem.ops._rearrange import Chunks, RearrangeKind


@dataclass(frozen=True, slots=True)
class Unary:
    """`alpha` is LEAKY_RELU's slope; `approximate` chooses GELU's tanh form."""

    alpha: float = 0.0
    approximate: bool = False


class UnaryKind(RearrangeKind):
    names = (
        *("RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU", "ELU", "HARD_SWISH", "LOGISTIC", "TANH", "GELU"),
        *("SQRT", "RSQRT", "SQUARE", "EXP", "LOG", "SIN", "COS", "ABS", "NEG", "FLOOR", "CEIL", "ROUND"),
        *("LOGICAL_NOT", "CAST", "QUANTIZE", "DEQUANTIZE"),
    )

    def decode(self, name: str, options: Any) -> Unary:
        if options is None:
            return Unary()
        if name == "LEAKY_RELU":
            return Unary(alpha=float(options.Alpha()))
        if name == "GELU":
            return Unary(approximate=bool(options.Approximate()))
        return Unary()

    def output_shapes(self, name: str, attributes: Unary, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        return (input_at(inputs, 0).shape,)

    def chunks(self, node: Node, order: str) -> Chunks:
        return Chunks.of(0, node.output.elems)


KIND = UnaryKind()
