"""How the tests draw the operations of `signal/filter_bank.py`."""

from __future__ import annotations

import numpy as np

from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.kind import Array
from diagmem.ops.signal.filter_bank import (
    GAINS,
    AutoScaleKind,
    Energy,
    EnergyKind,
    FilterBank,
    FilterBankKind,
    Logarithm,
    LogarithmKind,
    Pcan,
    PcanKind,
    SpectralSubtraction,
    SpectralSubtractionKind,
    SquareRootKind,
    _ChannelsKind,
)
from tests.ops.sampling import Draw, Fitting, Samples, activation, constant_of, node_of, remembering


class FilterBankSamples(Samples, of=FilterBankKind):
    needs = Fitting(is_drawn_whole=True)

    def sample(self, name: str, draw: Draw) -> Node:
        """Bands that follow each other, with gaps or without."""
        channels = draw.integer(1, 8)
        widths = [draw.integer(0, 6) for _ in range(channels + 1)]
        gaps = [draw.integer(0, 3) for _ in range(channels + 1)]
        weight_starts = np.concatenate([[0], np.cumsum(widths)[:-1]])
        frequency_starts = weight_starts + np.cumsum(gaps)
        used = max(1, int(sum(widths)))
        tables = [draw.numbers(np.int16, (used,)) & 0xFFF for _ in range(2)]
        tables += [np.asarray(values, np.int16) for values in (frequency_starts, weight_starts, widths)]
        energies = activation((int(frequency_starts[-1]) + widths[-1] + draw.integer(1, 4),), DType.UINT32)
        inputs = [energies, *(constant_of(table) for table in tables)]
        return node_of(self.kind, name, FilterBank(channels), inputs, (DType.UINT64,))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        found: Array = rng.integers(0, 2**32, tensor.shape)
        return found


class AutoScaleSamples(Samples, of=AutoScaleKind):
    needs = Fitting(is_drawn_whole=True)

    def sample(self, name: str, draw: Draw) -> Node:
        """Samples of any size."""
        samples = activation((draw.integer(1, 60),), DType.INT16)
        return node_of(self.kind, name, None, [samples], (DType.INT16, DType.INT32))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Loud ones and soft ones."""
        largest = 1 << int(rng.integers(1, 16))
        found: Array = rng.integers(-largest, largest, tensor.shape)
        return found


class EnergySamples(Samples, of=EnergyKind):
    needs = Fitting(is_drawn_whole=True)

    def sample(self, name: str, draw: Draw) -> Node:
        """All frequencies, or some of them."""
        size = draw.integer(1, 40)
        start = draw.choice((0, draw.integer(0, size)))
        end = size if start == 0 else draw.integer(start, size + 1)
        return node_of(self.kind, name, Energy(start, end), [activation((2 * size,), DType.INT16)], (DType.UINT32,))


class ChannelsSamples(Samples, of=_ChannelsKind):
    needs = Fitting(is_drawn_whole=True)

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        found: Array = rng.integers(0, 2**32, tensor.shape) >> rng.integers(0, 33, tensor.shape)
        return found


class SquareRootSamples(ChannelsSamples, of=SquareRootKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Energies of any size."""
        inputs = [activation((draw.integer(1, 40),), DType.UINT64), activation((), DType.INT32)]
        return node_of(self.kind, name, None, inputs, (DType.UINT32,))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Small numbers and large ones, also those around which a root changes its width."""
        if position == 1:
            return np.array(rng.integers(0, 16))
        sizes = rng.integers(0, 64, tensor.shape).astype(np.uint64)
        found: Array = rng.integers(0, 2**64, tensor.shape, dtype=np.uint64) >> sizes
        return np.where(rng.integers(0, 8, tensor.shape) == 0, np.uint64(2**32 - 1), found)


class SpectralSubtractionSamples(ChannelsSamples, of=SpectralSubtractionKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Weights that add up to 1, as a rule."""
        channels, bits = draw.integer(1, 40), draw.integer(8, 16)
        own, other = (draw.integer(0, (1 << bits) + 1) for _ in range(2))
        kept = int(draw.boolean()), draw.integer(0, 1 << bits), channels
        weights = (1 << bits) - own, own
        attributes = SpectralSubtraction((1 << bits) - other, other, *kept, *weights, draw.integer(0, 12), bits)
        data = activation((channels,), DType.UINT32)
        return remembering(self.kind, node_of(self.kind, name, attributes, [data], (DType.UINT32,)))


class PcanSamples(ChannelsSamples, of=PcanKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Any gains."""
        shape = (draw.integer(1, 40),)
        gains = constant_of(draw.numbers(np.int16, (GAINS,)))
        inputs = [activation(shape, DType.UINT32), activation(shape, DType.UINT32), gains]
        return node_of(self.kind, name, Pcan(draw.integer(0, 12)), inputs, (DType.UINT32,))


class LogarithmSamples(ChannelsSamples, of=LogarithmKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Numbers of any size."""
        data = activation((draw.integer(1, 40),), DType.UINT32)
        attributes = Logarithm(draw.integer(0, 5), draw.choice((1, 64, 1600)))
        return node_of(self.kind, name, attributes, [data], (DType.INT16,))
