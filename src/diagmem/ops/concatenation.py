"""CONCATENATION: inputs one behind another along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagmem.errors import ModelError
from diagmem.graph import Node, Shape, Tensor
from diagmem.ops._base import Activation, activation_of, axis_of, input_at
from diagmem.ops._rearrange import MEMCPY, REFERENCE, Chunks, RearrangeKind


@dataclass(frozen=True, slots=True)
class Concatenation:
    axis: int = 0
    activation: Activation = Activation.NONE


class ConcatenationKind(RearrangeKind):
    names = ("CONCATENATION",)
    orders = (REFERENCE, MEMCPY)

    def decode(self, name: str, options: Any) -> Concatenation:
        if options is None:
            return Concatenation()
        return Concatenation(options.Axis(), activation_of(options.FusedActivationFunction()))

    def output_shapes(self, name: str, attributes: Concatenation, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        shapes = [input_at(inputs, position).shape for position in range(max(1, len(inputs)))]
        axis = axis_of(attributes.axis, len(shapes[0]))
        rests = {(shape[:axis], shape[axis + 1 :]) for shape in shapes}
        if len(rests) > 1 or len({len(shape) for shape in shapes}) > 1:
            raise ModelError(f"shapes {[list(s) for s in shapes]} differ in more than axis {axis}; the file is damaged")
        return ((*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :]),)

    def chunks(self, node: Node, order: str) -> Chunks:
        axis = axis_of(node.attributes.axis, len(node.output.shape))
        lengths = np.array([math.prod(node.input(p).shape[axis:]) for p in range(len(node.inputs))])
        outer = np.arange(math.prod(node.output.shape[:axis]))[:, None]
        chunks = Chunks.of(outer * lengths, lengths, position=np.arange(len(lengths)))
        return chunks.moved_at_once() if order == MEMCPY else chunks


KIND = ConcatenationKind()
