"""PRELU: a leaky rectifier with a slope for each channel, or for each element."""

from __future__ import annotations

from collections.abc import Sequence

from diagmem.errors import ModelError
from diagmem.graph import Shape, Tensor
from diagmem.ops._base import input_at
from diagmem.ops._broadcast import BroadcastKind, broadcast_shape


class PreluKind(BroadcastKind):
    """Inputs: data, slopes, which are repeated to match the data."""

    names = ("PRELU",)

    def output_shapes(self, name: str, attributes: None, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        data, slopes = input_at(inputs, 0).shape, input_at(inputs, 1).shape
        if broadcast_shape(data, slopes) != data:
            raise ModelError(f"slopes {list(slopes)} cannot be repeated to match {list(data)}; the file is damaged")
        return (data,)


KIND = PreluKind()
