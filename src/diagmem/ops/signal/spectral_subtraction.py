"""SignalFilterBankSpectralSubtraction: channels less what is taken for noise, an average over all runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import CCall, Unsupported, kernel_call, require_types
from diagmem.ops.kind import Array, OpKind, Values, input_at
from diagmem.ops.loops.pixels import AxisTerm, separation_of
from diagmem.ops.options import CustomTable
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, node_of
from diagmem.ops.signal._own_state import remembering, state
from diagmem.ops.signature import Signature

_WORD = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class SpectralSubtraction:
    """The noise of a channel is the sum of its signal and of the noise before, by the weights `smoothing` and
    `one_minus_smoothing`, with `spectral_subtraction_bits` behind the point; odd channels have the alternate ones.
    Signals have `smoothing_bits` more here. At least `min_signal_remaining` of a signal remains. `clamping`: noise is
    held below the signal. Field by field the options of the file."""

    alternate_one_minus_smoothing: int = 0
    alternate_smoothing: int = 0
    clamping: int = 0
    min_signal_remaining: int = 0
    num_channels: int = 0
    one_minus_smoothing: int = 0
    smoothing: int = 0
    smoothing_bits: int = 0
    spectral_subtraction_bits: int = 0


_NAMES = tuple(field.name for field in fields(SpectralSubtraction))


class SpectralSubtractionKind(OpKind):
    """Outputs: the channels, and their noise, which TFLite Micro keeps beside the tensors."""

    names = ("CUSTOM:SignalFilterBankSpectralSubtraction",)
    keeps_state = True
    table = CustomTable(SpectralSubtraction, _NAMES, flags=("clamping",))
    takes = Signature((1, 2), (2, 2))
    needs = Fitting(is_drawn_whole=True)

    def own_states(self, node: Node) -> tuple[Tensor, ...]:
        return (state("noise", (node.attributes.num_channels,), DType.UINT32),)

    def output_shapes(
        self, name: str, attributes: SpectralSubtraction, inputs: Sequence[Tensor | None]
    ) -> tuple[Shape, ...]:
        shape = input_at(inputs, 0).shape
        if shape != (attributes.num_channels,):
            raise ModelError(f"its input {list(shape)} has not {attributes.num_channels} channels; the file is damaged")
        return shape, shape

    def accesses(self, node: Node, order: Order) -> Accesses:
        elems = node.output.elems
        reads = Runs.sweep(elems), Runs.of(0, elems, 0, stride=0, hold=elems + 1)
        return Accesses(elems + 1, reads[: len(node.inputs)], (Runs.sweep(elems), Runs.sweep(elems)))

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        if position == 0:
            return separation_of((AxisTerm.even(node.output.elems, 0),))
        return node.output.size_bytes

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        a, signals = node.attributes, [int(v) for v in inputs[0]]
        bits, noises, found = a.spectral_subtraction_bits, [], []
        for i, (signal, before) in enumerate(zip(signals, inputs[1].tolist(), strict=True)):
            own, old = (a.smoothing, a.one_minus_smoothing)
            if i % 2:
                own, old = (a.alternate_smoothing, a.alternate_one_minus_smoothing)
            scaled = signal << a.smoothing_bits & _WORD
            noise = (scaled * (own & _WORD) + before * (old & _WORD)) % 2**64 >> bits & _WORD
            below = min(noise, scaled)
            noises.append(below if a.clamping else noise)
            least = signal * a.min_signal_remaining % 2**64 >> bits & _WORD
            found.append(max(scaled - below >> a.smoothing_bits, least))
        made = np.array(noises, np.uint32)
        return np.array(found, np.uint32), made, made

    def c_call(self, node: Node) -> CCall:
        require_types(DType.UINT32, (node.input(0), *node.outputs))
        values = {name: getattr(node.attributes, name) for name in _NAMES}
        for name, value in values.items():
            most = {"smoothing_bits": 31, "spectral_subtraction_bits": 63}.get(name, 2**31 - 1)
            if not 0 <= value <= most:
                raise Unsupported(f"the option {name} is {value}; supported: 0 to {most}")
        return kernel_call("signal_spectral_subtraction", values, (node.input(0), node.input(1), *node.outputs))

    def sample(self, name: str, draw: Draw) -> Node:
        """Weights that add up to 1, as a rule."""
        channels, bits = draw.integer(1, 40), draw.integer(8, 16)
        own, other = (draw.integer(0, (1 << bits) + 1) for _ in range(2))
        attributes = SpectralSubtraction(
            (1 << bits) - other,
            other,
            int(draw.boolean()),
            draw.integer(0, 1 << bits),
            channels,
            (1 << bits) - own,
            own,
            draw.integer(0, 12),
            bits,
        )
        return remembering(
            self, node_of(self, name, attributes, [activation((channels,), DType.UINT32)], (DType.UINT32,))
        )

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        found: Array = rng.integers(0, 2**32, tensor.shape) >> rng.integers(0, 33, tensor.shape)
        return found


KIND = SpectralSubtractionKind()
