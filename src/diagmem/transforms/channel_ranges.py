"""Which values each channel of each tensor can have, by exact interval arithmetic on stored integers.

A range may be too wide, never too narrow. In float32 only constants are known, since rounding depends on the order of
additions, which is up to the runtime. Values come from an operation's numpy reference, at the ends of ranges or at all
values within: there is no second arithmetic that might differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import ABSENT, DType, Graph, Node, Tensor
from diagmem.ops import Activation, OpKind, Unsupported, kind_of
from diagmem.ops.kind import axis_of
from diagmem.ops.moving.pad import zero_paddings_of
from diagmem.ops.numerics.quantised import integer_range, real_range, scale_of, stored_zero
from diagmem.ops.numerics.weighted_sums import finished_f32
from diagmem.transforms._editing import is_among, makes_parts
from diagmem.transforms.channel_links import STORED, Array, Sums, parts_of

MOST_EXACT = 2.0**53
"""Integers below that are held exactly by float64."""


@dataclass(frozen=True, slots=True, eq=False)
class Range:
    """Of each channel the least and the largest value, both included."""

    low: Array
    high: Array

    @classmethod
    def whole(cls, tensor: Tensor) -> Range:
        """Every value that the type has."""
        channels = tensor.shape[-1] if tensor.shape else 1
        try:
            info = np.iinfo(tensor.dtype.numpy)
            low, high = float(info.min), float(info.max)
        except (TypeError, ValueError):
            low, high = -np.inf, np.inf
        # A file may claim more channels than memory holds: a broadcast number takes none.
        return cls(np.broadcast_to(low, channels), np.broadcast_to(high, channels))

    @classmethod
    def of_constant(cls, tensor: Tensor) -> Range:
        values = tensor.data
        if values is None or not values.size or values.dtype.kind not in "iuf" or not np.isfinite(values).all():
            return cls.whole(tensor)
        if np.abs(values.astype(np.float64)).max() >= MOST_EXACT:
            return cls.whole(tensor)
        rows = values.reshape(-1, tensor.shape[-1] if tensor.shape else 1).astype(np.float64)
        return cls(rows.min(axis=0), rows.max(axis=0))

    @property
    def is_constant(self) -> Array:
        """Of each channel."""
        found: Array = self.low == self.high
        return found

    def over(self, sources: Array, channels: int) -> Range:
        """Of a tensor whose channel c has the values of the channels here that `sources` has at c, c + channels, ..."""
        low, high = (limit[sources].reshape(-1, channels) for limit in (self.low, self.high))
        return Range(low.min(axis=0), high.max(axis=0))

    def hull(self, other: Range) -> Range:
        return Range(np.minimum(self.low, other.low), np.maximum(self.high, other.high))


Given = Sequence[Range | None]
"""The range of each input, None for one that is absent."""


def outputs_of(node: Node, given: Given) -> Range | None:
    """The range of the one output; None if nothing is known."""
    kind = kind_of(node.op.kind)
    if kind is None or len(node.outputs) != 1 or not node.output.elems or not node.output.shape:
        return None
    rule = RULES.get(node.op.kind) or _rule_of(kind, node)
    return None if rule is None else rule(node, given)


def _first(given: Given) -> Range:
    assert given[0] is not None
    return given[0]


def _weighted(node: Node, given: Given) -> Range | None:
    sums = Sums.of(node)
    if sums is None:
        return None
    if sums.is_float32:
        return _weighted_f32(sums, _first(given))
    lowest, highest = sums.limits(_first(given).low, _first(given).high)
    if not sums.is_safe(lowest, highest):
        return None
    low, high = (sums.outputs(ends).astype(np.float64) for ends in (lowest, highest))
    return Range(low.min(axis=0), high.max(axis=0))


def _weighted_f32(sums: Sums, given: Range) -> Range:
    """An output is constant if it reads only zeros."""
    is_zero = given.is_constant & (given.low == 0)
    if sums.sources is not None:
        is_fixed = is_zero[sums.sources] | ~sums.reads()[:, 0]
    else:
        is_fixed = ~(sums.reads() & ~is_zero).any(axis=1)
    zeros = np.zeros(len(sums.weights), np.float32)
    value = finished_f32(sums.node, zeros, sums.bias.astype(np.float32)).astype(np.float64)
    return Range(np.where(is_fixed, value, -np.inf), np.where(is_fixed, value, np.inf))


def _pointwise(node: Node, given: Given) -> Range | None:
    """Of one input every value within its range is tried. Else what is constant is computed, and so are the ends, where
    they give the ends."""
    dtype, spread = node.output.dtype, []
    for found in (found for found in given if found is not None):
        if len(found.low) not in (1, node.output.shape[-1]):
            return None
        spread.append(Range(*(np.broadcast_to(limit, node.output.shape[-1:]) for limit in (found.low, found.high))))
    if len(given) == 1 and node.input(0).dtype in STORED:
        return _tried(node, spread[0])
    if dtype not in STORED or not is_among(node.op, lambda kind: kind.monotone) or _may_overflow(node):
        return _at_constants(node, spread)
    ends = product(*((found.low.astype(dtype.numpy), found.high.astype(dtype.numpy)) for found in spread))
    corners = [_applied(node, values, len(spread[0].low)).astype(np.float64) for values in ends]
    return Range(np.minimum.reduce(corners), np.maximum.reduce(corners))


def _may_overflow(node: Node) -> bool:
    """Products must be scaled down."""
    return node.op.kind == "MUL" and scale_of(node.input(0)) * scale_of(node.input(1)) >= scale_of(node.output)


def _tried(node: Node, found: Range) -> Range:
    info = np.iinfo(node.input(0).dtype.numpy)
    values = np.arange(info.min, info.max + 1).astype(info.dtype)
    table = _applied(node, [values], len(values)).astype(np.float64)
    pairs, which = np.unique(np.stack([found.low, found.high], axis=1), axis=0, return_inverse=True)
    parts = [table[int(low) - info.min : int(high) - info.min + 1] for low, high in pairs]
    ends = np.array([(part.min(), part.max()) for part in parts])[which.reshape(-1)]
    return Range(ends[:, 0], ends[:, 1])


def _at_constants(node: Node, ranges: Sequence[Range]) -> Range:
    """The result where all operands are constant; elsewhere any value."""
    is_fixed, whole = np.logical_and.reduce([found.is_constant for found in ranges]), Range.whole(node.output)
    if not is_fixed.any():
        return whole
    sources = [t for t in node.inputs if t is not None]
    values = [np.where(is_fixed, found.low, 0).astype(t.dtype.numpy) for found, t in zip(ranges, sources, strict=True)]
    made = _applied(node, values, len(is_fixed)).astype(np.float64)
    return Range(np.where(is_fixed, made, whole.low), np.where(is_fixed, made, whole.high))


def _applied(node: Node, values: Sequence[Array], count: int) -> Array:
    """The results of a pointwise operation on `count` elements."""
    kind = kind_of(node.op.kind)
    assert kind is not None
    inputs = tuple(None if t is None else replace(t, shape=(count,)) for t in node.inputs)
    row = Node(node.op, inputs, (replace(node.output, shape=(count,)),))
    with np.errstate(all="ignore"):
        return kind.reference(row, values)[0]


def _pooled(node: Node, given: Given) -> Range | None:
    """A window's maximum, or its mean, lies between the ends; then it is clamped."""
    found, activation = _first(given), node.attributes.activation
    is_float32 = node.output.dtype is DType.FLOAT32
    if is_float32 and node.op.kind != "MAX_POOL_2D":
        found = Range(*(np.where(found.is_constant & (found.low == 0), 0.0, end) for end in (-np.inf, np.inf)))
    if not (is_float32 or node.output.dtype in STORED):
        return None
    low, high = real_range(activation) if is_float32 else integer_range(activation, node.output)
    return Range(np.clip(found.low, low, high), np.clip(found.high, low, high))


def _monotone(node: Node, given: Given) -> Range | None:
    """Monotonic, and each channel computed from that channel alone: the ends of ranges give the ends."""
    found, kind, data = _first(given), kind_of(node.op.kind), node.input(0)
    if kind is None or data.dtype not in STORED or not found.is_constant.any():
        return None
    others = [None if t is None else t.data for t in node.inputs[1:]]
    if any(values is None for values in others):
        return None
    ends = []
    for limit in (found.low, found.high):
        filled = np.broadcast_to(limit.astype(data.dtype.numpy), data.shape)
        made = kind.reference(node, [filled, *others])[0].reshape(-1, node.output.shape[-1])
        ends.append(made.astype(np.float64))
    return Range(ends[0].min(axis=0), ends[1].max(axis=0))


def _padded(node: Node, given: Given) -> Range | None:
    pads = zero_paddings_of(node)
    if pads is None:
        return None
    zero, found = float(stored_zero(node.input(0))), _first(given)
    if any(before or after for before, after in pads[:-1]):
        edge = np.full(len(found.low), zero)
        found = found.hull(Range(edge, edge))
    return Range(*(np.pad(limit, pads[-1], constant_values=zero) for limit in (found.low, found.high)))


def _joined(node: Node, given: Given) -> Range | None:
    parts = [found for found in given if found is not None]
    formats = {(t.dtype, t.quantisation) for t in (*node.inputs, *node.outputs) if t is not None}
    if node.attributes.activation is not Activation.NONE or len(formats) != 1:
        return None
    if axis_of(node.attributes.axis, len(node.output.shape)) == len(node.output.shape) - 1:
        return Range(np.concatenate([p.low for p in parts]), np.concatenate([p.high for p in parts]))
    return Range(np.minimum.reduce([p.low for p in parts]), np.maximum.reduce([p.high for p in parts]))


def _reshaped(node: Node, given: Given) -> Range | None:
    found, before, after = _first(given), node.input(0).shape, node.output.shape
    if not before or node.input(0).elems != node.output.elems:
        return None
    period = int(np.lcm(before[-1], after[-1]))
    return found.over(np.arange(period) % before[-1], after[-1])


RULES: Mapping[str, Callable[[Node, Given], Range | None]] = {
    **dict.fromkeys(("MAX_POOL_2D", "AVERAGE_POOL_2D"), _pooled),
    **dict.fromkeys(("PAD", "PADV2"), _padded),
    "CONCATENATION": _joined,
}
"""Kinds of which more is known than their traits say."""


def _rule_of(kind: OpKind, node: Node) -> Callable[[Node, Given], Range | None] | None:
    if kind.takes.weights is not None:
        return _weighted
    if kind.is_alias:
        return _reshaped
    if not kind.keeps_channels(node):
        return None
    return _pointwise if kind.is_pointwise else _monotone if node.op.kind in kind.monotone else None


def ranges_of(graph: Graph) -> dict[int, Range]:
    """Tensor -> the range of its channels."""
    is_known = {t.index: t.is_constant and not t.is_variable for t in graph.tensors}
    found = {t.index: Range.of_constant(t) if is_known[t.index] else Range.whole(t) for t in graph.tensors}
    for node in graph.nodes:
        if kind_of(node.op.kind) is None or any(t.is_variable or t.view is not None for t in node.outputs):
            continue
        if makes_parts(node.op):
            found.update(_parts(node, found))
            continue
        given = [None if t == ABSENT else found[t] for t in node.op.inputs]
        try:
            made = outputs_of(node, given)
        except (Unsupported, ModelError):
            continue
        if made is not None:
            found[node.output.index] = _checked(node, made)
    return found


def _parts(node: Node, found: Mapping[int, Range]) -> Iterator[tuple[int, Range]]:
    """Parts of a tensor have its range there."""
    parts = parts_of(node)
    if parts is None:
        return
    whole = found[parts.source.index]
    for output, channels in zip(node.outputs, parts.channels, strict=True):
        if (output.dtype, output.quantisation) == (parts.source.dtype, parts.source.quantisation):
            yield output.index, Range(whole.low[channels], whole.high[channels])


def _checked(node: Node, made: Range) -> Range:
    """Of a channel whose range is not finite, nothing is known."""
    whole = Range.whole(node.output)
    is_sound = np.isfinite(made.low) & np.isfinite(made.high) & (made.low <= made.high)
    return Range(np.where(is_sound, made.low, whole.low), np.where(is_sound, made.high, whole.high))
