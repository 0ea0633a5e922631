"""From a spectrum to features: SignalFftAutoScale, SignalEnergy, SignalFilterBank and its SquareRoot,
SpectralSubtraction and Log, SignalPCAN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.accesses import Accesses, Runs, node_reads
from diagmem.ops.c_call import CCall, CTable, Unsupported, kernel_call, require_operands, require_types, values_of
from diagmem.ops.kind import Array, Inputs, OpKind, Shapes, Values, input_at, swept
from diagmem.ops.numerics.fixed_point import Ints, bit_lengths
from diagmem.ops.options import CustomTable
from diagmem.ops.orders import Order
from diagmem.ops.signature import Signature

_TABLES = ("weights", "unweights", "frequency_starts", "weight_starts", "widths")
"""What the inputs behind the energies hold, all of them constants."""


@dataclass(frozen=True, slots=True)
class FilterBank:
    """Inputs: energies; for each frequency its weight in its own channel, and in the next; for each channel, and one
    before the first, its first frequency, where its weights start, how many frequencies it has."""

    channels: int = 0


class FilterBankKind(OpKind):
    names = ("CUSTOM:SignalFilterBank",)
    orders = (Order.REFERENCE, Order.BUFFERED)
    takes = Signature((6, 6), numbers=(1, 2, 3, 4, 5), made=None)
    table = CustomTable(FilterBank, ("num_channels",))

    def output_shapes(self, name: str, attributes: FilterBank, inputs: Inputs) -> Shapes:
        bands = _bands(attributes, inputs)
        if bands is not None:
            _check(bands, [input_at(inputs, position).elems for position in range(3)])
        return ((attributes.channels,),)

    def accesses(self, node: Node, order: Order) -> Accesses:
        """Band by band its frequencies are read; with each but the first a channel is written."""
        channels, elems = node.attributes.channels, node.input(0).elems
        bands, steps = _bands(node.attributes, node.inputs), channels + 1
        if order is Order.BUFFERED or bands is None:
            reads = Runs.of(0, elems, 0, stride=0, hold=1 if order is Order.BUFFERED else steps)
        else:
            reads = Runs.of(bands.frequency, bands.width, np.arange(steps), stride=0)
        return Accesses(steps, (reads, *(None for _ in node.inputs[1:])), (Runs.of(0, channels, 1),))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        energies, weights, unweights, *tables = (np.asarray(values).reshape(-1) for values in inputs)
        frequency, weight, width = (table.astype(int).tolist() for table in tables)
        own, next_own, found = 0, 0, []
        for f, w, n in zip(frequency, weight, width, strict=True):
            for j in range(n):
                own += int(weights[w + j]) * int(energies[f + j])
                next_own += int(unweights[w + j]) * int(energies[f + j])
            found.append(own % 2**64)
            own, next_own = next_own, 0
        return (np.array(found[1:], np.uint64),)

    def c_call(self, node: Node) -> CCall:
        require_operands(node, DType.UINT32, *[DType.INT16] * 5, DType.UINT64)
        tables = {
            name: CTable(name, values_of(node.input(position)).reshape(-1))
            for position, name in enumerate(_TABLES, start=1)
        }
        return kernel_call(
            "signal_filter_bank", {"channels": node.attributes.channels, **tables}, (node.input(0), node.output)
        )


class _Bands(NamedTuple):
    frequency: Array
    weight: Array
    width: Array


def _bands(attributes: FilterBank, inputs: Inputs) -> _Bands | None:
    """What is read for each channel, and for the one before the first; None where it is not known."""
    tables = [input_at(inputs, position).data for position in (3, 4, 5)]
    if any(table is None for table in tables):
        return None
    bands = _Bands(*(np.asarray(table).reshape(-1).astype(np.int64) for table in tables))
    if attributes.channels < 1 or any(len(table) != attributes.channels + 1 for table in bands):
        raise ModelError(f"its tables are not those of {attributes.channels} channels; the file is damaged")
    return bands


def _check(bands: _Bands, sizes: Sequence[int]) -> None:
    """Raises ModelError unless every band lies inside the energies, and its weights inside theirs."""
    frequencies, weights, unweights = sizes
    lowest = min(int(table.min()) for table in bands)
    is_inside = (bands.frequency + bands.width).max() <= frequencies
    has_weights = (bands.weight + bands.width).max() <= min(weights, unweights)
    if lowest < 0 or not is_inside or not has_weights:
        raise ModelError("a channel has frequencies or weights that do not exist; the file is damaged")


class AutoScaleKind(OpKind):
    """Input: samples. Outputs: samples, and how many bits they were shifted to the left by."""

    names = ("CUSTOM:SignalFftAutoScale",)
    tflm_agrees = True
    takes = Signature((1, 1), (2, 2), made=None)
    table = CustomTable()

    def output_shapes(self, name: str, attributes: None, inputs: Inputs) -> Shapes:
        return input_at(inputs, 0).shape, ()

    def accesses(self, node: Node, order: Order) -> Accesses:
        """All is read, then each element is read and written, then the number of bits is written."""
        elems = node.input(0).elems
        reads = Runs.join(Runs.of(0, elems, 0, stride=0), Runs.of(0, elems, 1))
        return Accesses(elems + 2, (reads,), (Runs.of(0, elems, 1), Runs.of(0, 1, elems + 1)))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        samples = inputs[0].astype(np.int64)
        bits = max(0, 15 - int(np.abs(samples).max()).bit_length())
        return (samples << bits).astype(np.int16), np.array(bits, np.int32)

    def c_call(self, node: Node) -> CCall:
        require_operands(node, DType.INT16, DType.INT16, DType.INT32)
        return kernel_call("signal_auto_scale", {"elems": node.input(0).elems}, (node.input(0), *node.outputs))


@dataclass(frozen=True, slots=True)
class Energy:
    """Input: real and imaginary part of each frequency in turn. Frequencies from `start` to before `end` are asked for;
    the others are 0 here, and are not written at all by TensorFlow Lite Micro."""

    start: int = 0
    end: int = 0


class EnergyKind(OpKind):
    names = ("CUSTOM:SignalEnergy",)
    takes = Signature(made=None)
    table = CustomTable(Energy, ("start_index", "end_index"))

    def output_shapes(self, name: str, attributes: Energy, inputs: Inputs) -> Shapes:
        *outer, size = input_at(inputs, 0).shape
        if outer or size % 2 or not 0 <= attributes.start <= attributes.end <= size // 2:
            raise ModelError(
                f"a spectrum of shape {[*outer, size]} has no frequencies {attributes.start} to {attributes.end}; "
                "the file is damaged"
            )
        return ((size // 2,),)

    def accesses(self, node: Node, order: Order) -> Accesses:
        elems, a = node.output.elems, node.attributes
        frequency = np.arange(a.start, a.end)
        return Accesses(elems, (Runs.of(2 * frequency, 2, frequency, stride=0),), (Runs.sweep(elems),))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        energy = (inputs[0].reshape(-1, 2).astype(np.int64) ** 2).sum(axis=1)
        frequency = np.arange(len(energy))
        inside = (frequency >= node.attributes.start) & (frequency < node.attributes.end)
        return (np.where(inside, energy, 0).astype(np.uint32),)

    def c_call(self, node: Node) -> CCall:
        require_operands(node, DType.INT16, DType.UINT32)
        fields = {"elems": node.output.elems, "start": node.attributes.start, "end": node.attributes.end}
        return kernel_call("signal_energy", fields, (node.input(0), node.output))


class _ChannelsKind(OpKind):
    """Each channel of the output is made of that of the first input. Values have any number of bits."""

    def accesses(self, node: Node, order: Order) -> Accesses:
        return swept(node, {0: Runs.sweep(node.output.elems)})


class SquareRootKind(_ChannelsKind):
    """Inputs: energies, by how many bits roots are made smaller."""

    names = ("CUSTOM:SignalFilterBankSquareRoot",)
    takes = Signature((2, 2), numbers=(1,), single=(1,), made=None)
    table = CustomTable()

    def accesses(self, node: Node, order: Order) -> Accesses:
        """How many bits there are is read once, at first."""
        return swept(node, {0: Runs.sweep(node.output.elems), 1: Runs.of(0, 1, 0)})

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        bits = int(np.asarray(inputs[1]).reshape(-1)[0])
        roots = [_root(int(x)) >> bits if 0 <= bits < 32 else 0 for x in inputs[0].reshape(-1)]
        return (np.array(roots, np.uint32).reshape(node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        require_operands(node, DType.UINT64, DType.INT32, DType.UINT32)
        tensors = node.input(0), node.input(1), node.output
        return kernel_call("signal_square_root", {"elems": node.output.elems}, tensors)


def _root(x: int) -> int:
    """Rounded to the nearest, unless that needs one bit more."""
    root = math.isqrt(x)
    largest = 2**16 - 1 if x < 2**32 else 2**32 - 1
    return root + 1 if x - root * root > root and root != largest else root


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


class SpectralSubtractionKind(_ChannelsKind):
    """Outputs: the channels, and their noise, which TFLite Micro keeps beside the tensors."""

    names = ("CUSTOM:SignalFilterBankSpectralSubtraction",)
    keeps_state = True
    table = CustomTable(SpectralSubtraction, _NAMES, flags=("clamping",))
    takes = Signature((1, 2), (2, 2))

    def own_states(self, node: Node) -> tuple[Tensor, ...]:
        return (Tensor(0, "noise", (node.attributes.num_channels,), DType.UINT32, is_variable=True),)

    def output_shapes(self, name: str, attributes: SpectralSubtraction, inputs: Inputs) -> Shapes:
        shape = input_at(inputs, 0).shape
        if shape != (attributes.num_channels,):
            raise ModelError(f"its input {list(shape)} has not {attributes.num_channels} channels; the file is damaged")
        return shape, shape

    def accesses(self, node: Node, order: Order) -> Accesses:
        each, steps = Runs.sweep(node.output.elems), node.output.elems + 1
        return Accesses(steps, node_reads(node, steps, {0: each}), (each, each))

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


GAINS = 125
"""A number for each of 0, 1, 2, and from there on three for each bit of a noise of 32 bits, and one between."""

_RATIO_BITS, _OUTPUT_BITS = 12, 6
"""Behind the point, of the ratio of signal and noise, and of what comes out."""


@dataclass(frozen=True, slots=True)
class Pcan:
    """Inputs: channels, their noise, a table of gains. `shift`: from channel times gain to a ratio."""

    shift: int = 0


class PcanKind(_ChannelsKind):
    names = ("CUSTOM:SignalPCAN",)
    takes = Signature((3, 3), alike=(1,))
    table = CustomTable(Pcan, ("snr_shift",))

    def output_shapes(self, name: str, attributes: Pcan, inputs: Inputs) -> Shapes:
        channels, noise = input_at(inputs, 0).shape, input_at(inputs, 1).shape
        if channels != noise:
            raise ModelError(f"channels {list(channels)} and noise {list(noise)} differ; the file is damaged")
        return (channels,)

    def accesses(self, node: Node, order: Order) -> Accesses:
        elems = node.output.elems
        return swept(node, {0: Runs.sweep(elems), 1: Runs.sweep(elems)})

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        channels, noise, gains = inputs
        gain = (_gain(noise.astype(np.int64), gains.astype(np.int64)) & 0xFFFFFFFF).astype(np.uint64)
        ratio = (channels.astype(np.uint64) * gain) >> np.uint64(node.attributes.shift) & np.uint64(0xFFFFFFFF)
        soft = (ratio * ratio & np.uint64(0xFFFFFFFF)) >> np.uint64(2 + 2 * _RATIO_BITS - _OUTPUT_BITS)
        loud = (ratio >> np.uint64(_RATIO_BITS - _OUTPUT_BITS)).astype(np.int64) - (1 << _OUTPUT_BITS)
        return (np.where(ratio < 2 << _RATIO_BITS, soft.astype(np.int64), loud).astype(np.uint32),)

    def c_call(self, node: Node) -> CCall:
        require_operands(node, DType.UINT32, DType.UINT32, DType.INT16, DType.UINT32)
        gains = values_of(node.input(2)).reshape(-1)
        if gains.size < GAINS or not 0 <= node.attributes.shift < 64:
            raise Unsupported(
                f"{gains.size} gains and a shift by {node.attributes.shift} bits; needed: {GAINS}, 0 to 63"
            )
        fields = {"elems": node.output.elems, "shift": node.attributes.shift, "gains": CTable("gains", gains)}
        return kernel_call("signal_pcan", fields, (node.input(0), node.input(1), node.output))


def _gain(noise: Ints, gains: Ints) -> Ints:
    """A parabola over each octave of the noise; 16 bits of it remain."""
    bits = bit_lengths(noise)
    at = np.maximum(4 * bits - 6, 0)
    place = np.where(bits < 11, noise << np.maximum(11 - bits, 0), noise >> np.maximum(bits - 11, 0)) & 0x3FF
    slope = ((gains[np.minimum(at + 2, gains.size - 1)] * place) >> 5) + (gains[at + 1] << 5)
    curve = ((slope * place + 2**14) >> 15) + gains[at]
    found = np.where(noise <= 2, gains[np.minimum(noise, 2)], curve)
    return found.astype(np.int16).astype(np.int64)


_SEGMENTS = 128
_LN_2 = 45426
"""With 16 bits behind the point."""


@dataclass(frozen=True, slots=True)
class Logarithm:
    """Input: numbers. `correction_bits`: they are shifted to the left by these; `scale`: of the logarithms."""

    correction_bits: int = 0
    scale: int = 1


class LogarithmKind(_ChannelsKind):
    names = ("CUSTOM:SignalFilterBankLog",)
    takes = Signature(made=None)
    table = CustomTable(Logarithm, ("input_correction_bits", "output_scale"))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        a = node.attributes
        numbers = (inputs[0].astype(np.int64) << a.correction_bits) & 0xFFFFFFFF
        found = np.minimum(_logarithms(np.maximum(numbers, 1), a.scale), 2**15 - 1)
        return (np.where(numbers > 1, found, 0).astype(np.int16),)

    def c_call(self, node: Node) -> CCall:
        require_operands(node, DType.UINT32, DType.INT16)
        a = node.attributes
        if not (0 <= a.correction_bits < 32 and 0 <= a.scale < 2**31):
            raise Unsupported(f"numbers shifted by {a.correction_bits} bits, and a scale of {a.scale}")
        fields = {
            "elems": node.output.elems,
            "correction_bits": a.correction_bits,
            "scale": a.scale,
            "table": CTable("logarithms", _logarithm_table().astype(np.uint16)),
        }
        return kernel_call("signal_log", fields, (node.input(0), node.output))


def _logarithm_table() -> Ints:
    """How far log2(1 + x) lies above x, with 16 bits behind the point, at the ends of segments of equal length."""
    x = np.arange(_SEGMENTS + 1) / _SEGMENTS
    return np.floor(65536 * (np.log2(1 + x) - x) + 0.5).astype(np.int64)


def _logarithms(x: Ints, scale: int) -> Ints:
    """scale * ln(x), by straight lines between the entries of the table."""
    table, whole = _logarithm_table(), bit_lengths(x) - 1
    over = x - (1 << whole)
    rest = np.where(whole < 16, over << np.maximum(16 - whole, 0), over >> np.maximum(whole - 16, 0))
    segment = rest >> 9
    line = ((table[segment + 1] - table[segment]) * (rest - (segment << 9))) >> 16
    base_2 = (whole << 16) + rest + table[segment] + line
    natural = (_LN_2 * base_2 + 2**15) >> 16
    scaled: Ints = ((scale * natural + 2**15) & 0xFFFFFFFF) >> 16
    return scaled


KINDS = (
    *(FilterBankKind(), AutoScaleKind(), EnergyKind()),
    *(SquareRootKind(), SpectralSubtractionKind(), PcanKind(), LogarithmKind()),
)
