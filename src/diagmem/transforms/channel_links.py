"""Which channels of an input make which channels of an output. A channel is one index of a tensor's last axis.

`Sums`: layers that add up products with constant weights, wherever the window lies. `Parts`: outputs that are parts of
one tensor. `Link`: output channels that are input channels, unchanged or each changed by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import DType, Node, Tensor, Window1D
from diagmem.ops import OpKind, kind_of
from diagmem.ops.kind import axis_of
from diagmem.ops.loops.windowed import WindowedKind
from diagmem.ops.moving.strided_slice import StridedSlice
from diagmem.ops.numerics.quantised import stored_zero
from diagmem.ops.numerics.weighted_sums import ChannelsS16, bias_of, finished, requantisation_of
from diagmem.transforms._editing import makes_parts, taken_by

Array = npt.NDArray[Any]

STORED = (DType.INT8, DType.INT16, DType.UINT8)
"""Integers for which sums are computed."""

MOST_SUM = 2**31
"""Sums below that do not overflow 32 bits."""

MOST_WIDE_SUM = 2**46
"""The same where they are kept in 64 bits, and multiplied by 15."""

MOST_WEIGHTS = 2**22
"""Handled at a time, so that large layers do not take much memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """`weights`: [output channel, tap, input channel], less their zero point; in a depthwise layer the last axis has
    one index, and `sources` says which input channel it is. `inside`: [place, tap], the sets of taps that lie inside
    the image together. `zero`: the zero point of the data, which taps outside read. `bias`: for each output channel."""

    node: Node
    weights: Array
    inside: Array
    zero: int
    bias: Array
    sources: Array | None

    @classmethod
    def of(cls, node: Node) -> Sums | None:
        """None without known constant weights, and for other arithmetic. TRANSPOSE_CONV gathers: its data is behind its
        filter."""
        kind = kind_of(node.op.kind)
        layer = None if kind is None or kind.takes.data else kind.takes.weights
        if kind is None or layer is None or len(node.inputs) < 2 or not _is_known(node):
            return None
        data, filters = node.input(0), node.input(1)
        values, channels = filters.data, data.shape[-1] if data.shape else 0
        if values is None or not channels or not values.size:
            return None
        if filters.dtype is DType.UINT8:
            values = values.astype(np.int32) - stored_zero(filters)
        sources = None
        if layer.axis:
            weights = values[0].reshape(-1, values.shape[3]).T[:, :, None]
            sources = np.arange(values.shape[3]) // node.attributes.multiplier
        elif values.shape[-1] % channels == 0:
            weights = values.reshape(len(values), -1, channels)
        else:
            return None
        inside = _inside(node, kind, weights.shape[1])
        if inside is None:
            return None
        bias = bias_of(node)
        added = np.zeros(len(weights)) if bias is None or bias.data is None else bias.data.reshape(-1)
        zero = 0 if data.dtype is DType.FLOAT32 else stored_zero(data)
        return cls(node, weights, inside, zero, added, sources)

    @property
    def is_float32(self) -> bool:
        return self.node.input(0).dtype is DType.FLOAT32

    @property
    def axis(self) -> int:
        """Of the filter's output channels."""
        return 0 if self.sources is None else 3

    @property
    def bias_dtype(self) -> DType:
        """The type of its bias, or of one that may be added."""
        bias, dtype = bias_of(self.node), self.node.input(0).dtype
        if bias is not None:
            return bias.dtype
        return {DType.INT16: DType.INT64, DType.FLOAT32: DType.FLOAT32}.get(dtype, DType.INT32)

    def limits(self, low: Array, high: Array) -> tuple[Array, Array]:
        """The least and the largest sum of products, [place, output channel], of integers within these limits."""
        least, most = (np.asarray(limit, np.float64) - self.zero for limit in (low, high))
        found: list[tuple[Array, Array]] = []
        together = max(1, MOST_WEIGHTS // max(1, self.weights[0].size))
        for first in range(0, len(self.weights), together):
            some = slice(first, first + together)
            rows = self.weights[some].astype(np.float64)
            above, below = np.maximum(rows, 0), np.minimum(rows, 0)
            if self.sources is None:
                found.append((above @ least + below @ most, above @ most + below @ least))
            else:
                low, high = least[self.sources[some], None], most[self.sources[some], None]
                above, below = above[:, :, 0], below[:, :, 0]
                found.append((above * low + below * high, above * high + below * low))
        lowest, highest = (np.concatenate(ends) for ends in zip(*found, strict=True))
        taps = self.inside.T.astype(np.float64)
        return (lowest @ taps).T, (highest @ taps).T

    def outputs(self, sums: Array) -> Array:
        """The stored outputs for sums of products, [place, output channel]."""
        return finished(self.node, self.axis, sums, self.bias)

    def is_safe(self, lowest: Array, highest: Array) -> bool:
        """Whether no sum between these overflows, so that a larger sum never gives a smaller output."""
        output = requantisation_of(self.node, self.axis)
        largest = np.maximum(np.abs(lowest), np.abs(highest)) + np.abs(self.bias.astype(np.float64))
        if self.node.input(0).dtype is DType.INT16 and ChannelsS16.of(self.node, output, bias_of(self.node)).is_wide:
            return bool(largest.max(initial=0) < MOST_WIDE_SUM)
        return bool((largest * 2.0 ** np.maximum(output.shifts, 0)).max(initial=0) < MOST_SUM)

    def reads(self) -> Array:
        """[output channel, input channel]: whether one depends on the other."""
        found: Array = (self.weights != 0).any(axis=1)
        return found

    def added(self, outputs: Array, inputs: Array, values: Array) -> Array:
        """What these input channels add to the sums of these outputs at these values: [place, output, input]."""
        by_tap = self.weights[outputs][:, :, inputs] * (np.asarray(values, np.float64)[inputs] - self.zero)
        found: Array = np.tensordot(self.inside.astype(np.float64), by_tap, axes=(1, 1))
        return found


def _is_known(node: Node) -> bool:
    """Whether the arithmetic here is right for these types and zero points."""
    data, filters, bias = node.input(0), node.input(1), bias_of(node)
    if not filters.is_constant or (bias is not None and bias.data is None):
        return False
    if data.dtype is DType.FLOAT32:
        return filters.dtype is DType.FLOAT32 and (bias is None or bias.dtype is DType.FLOAT32)
    if filters.quantisation is None or (bias is not None and bias.dtype not in (DType.INT32, DType.INT64)):
        return False
    if data.dtype is DType.UINT8:
        is_plain = filters.dtype is DType.UINT8 and len(filters.quantisation.zero_points) == 1
    else:
        is_plain = filters.dtype is DType.INT8 and not any(filters.quantisation.zero_points)
    return is_plain and data.dtype in STORED and node.output.dtype is data.dtype


def _inside(node: Node, kind: OpKind, taps: int) -> Array | None:
    """[place, tap]: the different sets of taps that lie inside the image together; None if there are too many."""
    if not isinstance(kind, WindowedKind):
        return np.ones((1, taps), bool)
    window = kind.window(node)
    rows, cols = (_sets(axis) for axis in (window.rows, window.cols))
    if rows.size * cols.size > MOST_WEIGHTS:
        return None
    both = rows[:, None, :, None] & cols[None, :, None, :]
    return both.reshape(len(rows) * len(cols), -1)


def _sets(axis: Window1D) -> Array:
    ends = np.array(sorted({*zip(axis.first_taps().tolist(), axis.end_taps().tolist(), strict=True)}))
    taps = np.arange(axis.kernel)
    return (ends[:, :1] <= taps) & (taps < ends[:, 1:])


MOST_ELEMS = 2**22
"""Of an output; larger ones are not analysed."""


class Parts(NamedTuple):
    """`source`: the tensor that is cut. `channels`: for each output, the channel of the source that each of its own is;
    they are neighbours there too."""

    source: Tensor
    channels: tuple[Array, ...]

    @property
    def cuts_channels(self) -> bool:
        return any(len(found) != self.source.shape[-1] for found in self.channels)


def parts_of(node: Node) -> Parts | None:
    """None where that depends on unknown values, or channels do not stay apart."""
    a, is_small = node.attributes, all(output.shape and 0 < output.elems <= MOST_ELEMS for output in node.outputs)
    if isinstance(a, StridedSlice):
        # Its numbers must stand for an axis each. `remove_channels` rewrites them for steps forward only.
        steps = node.input(3).ints if node.input(3).data is not None else ()
        if a.ellipsis_mask or a.new_axis_mask or a.shrink_axis_mask or a.offset or (0, *steps)[-1] < 0:
            return None
    taken = taken_by(node) if makes_parts(node.op) and is_small else None
    if taken is None:
        return None
    source, found = taken.source, []
    for number, output in enumerate(node.outputs):
        elements = taken.elements(number)
        if len(source.shape) != len(output.shape) or len(elements) != output.elems:
            return None
        channels = (elements % source.shape[-1]).reshape(-1, output.shape[-1])
        if (channels != channels[:1]).any() or (np.diff(channels[0]) != 1).any():
            return None
        found.append(channels[0])
    return Parts(source, tuple(found))


class Link(NamedTuple):
    """Channels `inputs` of an input are channels `outputs` of the output `made`, one by one: neither can be removed
    without the other."""

    tensor: Tensor
    inputs: Array
    outputs: Array
    made: Tensor


def links_of(node: Node) -> tuple[Link, ...] | None:
    """The links between an operation's inputs, weights of a depthwise layer included, and its outputs; None if they are
    not known. An input without a link keeps all of its channels."""
    if makes_parts(node.op):
        return _parts(node)
    kind, data = kind_of(node.op.kind), node.inputs[0] if node.inputs else None
    if kind is None or len(node.outputs) != 1 or not node.output.shape or data is None or not data.shape:
        return None
    if kind.takes.weights is not None:
        return _depthwise(node) if kind.takes.weights.axis else None
    if node.op.kind == "CONCATENATION":
        return tuple(_joined(node))
    if kind.is_alias:
        return _reshaped(node)
    if not kind.keeps_channels(node):
        return None
    linked = node.inputs if kind.is_pointwise else node.inputs[:1]
    return tuple(_same(t, node.output) for t in linked if t is not None and _is_alike(t, node.output))


def _parts(node: Node) -> tuple[Link, ...] | None:
    parts = parts_of(node)
    if parts is None or not all(t is None or t is parts.source or t.data is not None for t in node.inputs):
        return None
    cut = zip(node.outputs, parts.channels, strict=True)
    return tuple(Link(parts.source, channels, np.arange(len(channels)), output) for output, channels in cut)


def _is_alike(tensor: Tensor, output: Tensor) -> bool:
    return len(tensor.shape) > 0 and tensor.shape[-1] == output.shape[-1]


def _same(tensor: Tensor, output: Tensor) -> Link:
    channels = np.arange(output.shape[-1])
    return Link(tensor, channels, channels, output)


def _depthwise(node: Node) -> tuple[Link, ...] | None:
    """Weights must be known, since they are cut too, along their last axis; so is the bias, unless it is written as a
    column."""
    filters, sums = node.input(1), Sums.of(node)
    if sums is None or sums.sources is None or filters.dtype not in (DType.INT8, DType.UINT8, DType.FLOAT32):
        return None
    others = [tensor for tensor in node.inputs[1:] if tensor is not None]
    if not all(_is_alike(tensor, node.output) for tensor in others):
        return None
    of_data = Link(node.input(0), sums.sources, np.arange(len(sums.sources)), node.output)
    return (of_data, *(_same(tensor, node.output) for tensor in others))


def _joined(node: Node) -> Iterator[Link]:
    is_last = axis_of(node.attributes.axis, len(node.output.shape)) == len(node.output.shape) - 1
    first = 0
    for tensor in node.inputs:
        if tensor is not None:
            channels = np.arange(tensor.shape[-1])
            yield Link(tensor, channels, channels + first, node.output)
            first += len(channels) if is_last else 0


def _reshaped(node: Node) -> tuple[Link, ...] | None:
    """Channels stay, or pixels become channels side by side."""
    before, after = node.input(0).shape[-1], node.output.shape[-1]
    shape = node.inputs[1] if len(node.inputs) > 1 else None
    if after % before or (shape is not None and shape.data is None):
        return None
    return (Link(node.input(0), np.arange(after) % before, np.arange(after), node.output),)
