"""SignalFilterBank: energies of frequencies gathered into channels that overlap their neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import CCall, CTable, kernel_call, require_types, values_of
from diagmem.ops.kind import Array, OpKind, Values, input_at
from diagmem.ops.options import CustomTable
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, constant_of, node_of
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
    needs = Fitting(is_drawn_whole=True)
    table = CustomTable(FilterBank, ("num_channels",))

    def output_shapes(self, name: str, attributes: FilterBank, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        bands = _bands(attributes, inputs)
        if bands is not None:
            _check(bands, [input_at(inputs, position).elems for position in range(3)])
        return ((attributes.channels,),)

    def accesses(self, node: Node, order: Order) -> Accesses:
        """Band by band its frequencies are read; with each but the first a channel is written."""
        channels, elems = node.attributes.channels, node.input(0).elems
        bands = _bands(node.attributes, node.inputs)
        if order is Order.BUFFERED or bands is None:
            steps = channels + 1
            reads = Runs.of(0, elems, 0, stride=0, hold=1 if order is Order.BUFFERED else steps)
        else:
            reads = Runs.of(bands.frequency, bands.width, np.arange(channels + 1), stride=0)
        return Accesses(channels + 1, (reads, *(None for _ in node.inputs[1:])), (Runs.of(0, channels, 1),))

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
        require_types(DType.UINT32, (node.input(0),))
        require_types(DType.INT16, (node.input(position) for position in range(1, 6)))
        require_types(DType.UINT64, (node.output,))
        tables = {
            name: CTable(name, values_of(node.input(position)).reshape(-1))
            for position, name in enumerate(_TABLES, start=1)
        }
        return kernel_call(
            "signal_filter_bank", {"channels": node.attributes.channels, **tables}, (node.input(0), node.output)
        )

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
        return node_of(self, name, FilterBank(channels), inputs, (DType.UINT64,))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        found: Array = rng.integers(0, 2**32, tensor.shape)
        return found


class _Bands(NamedTuple):
    frequency: Array
    weight: Array
    width: Array


def _bands(attributes: FilterBank, inputs: Sequence[Tensor | None]) -> _Bands | None:
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


KIND = FilterBankKind()
