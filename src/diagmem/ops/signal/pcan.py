"""SignalPCAN: automatic gain control of each channel by an estimate of its noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import CCall, CTable, Unsupported, kernel_call, require_types, values_of
from diagmem.ops.kind import Array, OpKind, Values, held_separation, input_at, swept
from diagmem.ops.loops.pixels import AxisTerm, separation_of
from diagmem.ops.numerics.fixed_point import Ints, bit_lengths
from diagmem.ops.options import CustomTable
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, constant_of, node_of
from diagmem.ops.signature import Signature

GAINS = 125
"""A number for each of 0, 1, 2, and from there on three for each bit of a noise of 32 bits, and one between."""

_RATIO_BITS, _OUTPUT_BITS = 12, 6
"""Behind the point, of the ratio of signal and noise, and of what comes out."""


@dataclass(frozen=True, slots=True)
class Pcan:
    """Inputs: channels, their noise, a table of gains. `shift`: from channel times gain to a ratio."""

    shift: int = 0


class PcanKind(OpKind):
    names = ("CUSTOM:SignalPCAN",)
    takes = Signature((3, 3), alike=(1,))
    needs = Fitting(is_drawn_whole=True)
    table = CustomTable(Pcan, ("snr_shift",))

    def output_shapes(self, name: str, attributes: Pcan, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        channels, noise = input_at(inputs, 0).shape, input_at(inputs, 1).shape
        if channels != noise:
            raise ModelError(f"channels {list(channels)} and noise {list(noise)} differ; the file is damaged")
        return (channels,)

    def accesses(self, node: Node, order: Order) -> Accesses:
        elems = node.output.elems
        return swept(node, {0: Runs.sweep(elems), 1: Runs.sweep(elems)})

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        return separation_of((AxisTerm.even(node.output.elems, 0),)) if position < 2 else held_separation(node)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        channels, noise, gains = inputs
        gain = (_gain(noise.astype(np.int64), gains.astype(np.int64)) & 0xFFFFFFFF).astype(np.uint64)
        ratio = (channels.astype(np.uint64) * gain) >> np.uint64(node.attributes.shift) & np.uint64(0xFFFFFFFF)
        soft = (ratio * ratio & np.uint64(0xFFFFFFFF)) >> np.uint64(2 + 2 * _RATIO_BITS - _OUTPUT_BITS)
        loud = (ratio >> np.uint64(_RATIO_BITS - _OUTPUT_BITS)).astype(np.int64) - (1 << _OUTPUT_BITS)
        return (np.where(ratio < 2 << _RATIO_BITS, soft.astype(np.int64), loud).astype(np.uint32),)

    def c_call(self, node: Node) -> CCall:
        require_types(DType.UINT32, (node.input(0), node.input(1), node.output))
        require_types(DType.INT16, (node.input(2),))
        gains = values_of(node.input(2)).reshape(-1)
        if gains.size < GAINS or not 0 <= node.attributes.shift < 64:
            raise Unsupported(
                f"{gains.size} gains and a shift by {node.attributes.shift} bits; needed: {GAINS}, 0 to 63"
            )
        fields = {"elems": node.output.elems, "shift": node.attributes.shift, "gains": CTable("gains", gains)}
        return kernel_call("signal_pcan", fields, (node.input(0), node.input(1), node.output))

    def sample(self, name: str, draw: Draw) -> Node:
        """Any gains."""
        shape = (draw.integer(1, 40),)
        gains = constant_of(draw.numbers(np.int16, (GAINS,)))
        inputs = [activation(shape, DType.UINT32), activation(shape, DType.UINT32), gains]
        return node_of(self, name, Pcan(draw.integer(0, 12)), inputs, (DType.UINT32,))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        found: Array = rng.integers(0, 2**32, tensor.shape) >> rng.integers(0, 33, tensor.shape)
        return found


def _gain(noise: Ints, gains: Ints) -> Ints:
    """A parabola over each octave of the noise; 16 bits of it remain."""
    bits = bit_lengths(noise)
    at = np.maximum(4 * bits - 6, 0)
    place = np.where(bits < 11, noise << np.maximum(11 - bits, 0), noise >> np.maximum(bits - 11, 0)) & 0x3FF
    slope = ((gains[np.minimum(at + 2, gains.size - 1)] * place) >> 5) + (gains[at + 1] << 5)
    curve = ((slope * place + 2**14) >> 15) + gains[at]
    found = np.where(noise <= 2, gains[np.minimum(noise, 2)], curve)
    return found.astype(np.int16).astype(np.int64)


KIND = PcanKind()
