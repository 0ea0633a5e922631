"""Operations on pairs of elements, with broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diagmem.graph import Shape, Tensor
from diagmem.ops._base import Activation, activation_of, input_at
from diagmem.ops._broadcast import BroadcastKind, broadcast_shape


@dataclass(frozen=True, slots=True)
class Binary:
    """MAXIMUM, MINIMUM and SQUARED_DIFFERENCE have no activation."""

    activation: Activation = Activation.NONE


class BinaryKind(BroadcastKind):
    names = ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE")

    def decode(self, name: str, options: Any) -> Binary:
        if options is None or name not in ("ADD", "SUB", "MUL", "DIV"):
            return Binary()
        return Binary(activation_of(options.FusedActivationFunction()))

    def output_shapes(self, name: str, attributes: Binary, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        return (broadcast_shape(input_at(inputs, 0).shape, input_at(inputs, 1).shape),)


KIND = BinaryKind()
