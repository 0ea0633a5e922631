"""Channels that are constant or never read: which are needed, and the graph without the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np

from diagmem.kernels import ONE_BY_ONE, ChannelBlock
from diagmem.model.graph import ABSENT, DType, Graph, Node, Op, Quantisation, Shape, Tensor
from diagmem.ops import kind_of
from diagmem.ops.moving.reshape import Reshape
from diagmem.ops.numerics.quantised import stored_zero
from diagmem.ops.numerics.weighted_sums import bias_of
from diagmem.transforms._editing import Choice, edited, makes_parts
from diagmem.transforms.channel_links import Array, Link, Sums, links_of, parts_of
from diagmem.transforms.channel_ranges import Range, ranges_of
from diagmem.transforms.cleanup import has_effect


def remove_channels(graph: Graph, choice: Choice, block: ChannelBlock = ONE_BY_ONE) -> Graph:
    """Tensors get narrower and layers smaller, and every channel that is left keeps its bytes: those of the model's
    tensor of the same index, at the `channels` of the one here. `block`: some channels stay where kernels compute that
    many together anyway. What the caller sees keeps its width."""
    if any(tensor.view is not None for tensor in graph.tensors):
        return graph
    keeping = keeping_of(graph, choice, block)
    if keeping.is_complete:
        return graph
    return narrowed(keeping)


MOST_BIAS = {DType.INT32: 2**31, DType.INT64: 2**53}
"""A bias below that fits its type, and is held exactly by a float64."""


def is_needed(node: Node, kept: dict[int, Array]) -> bool:
    """Whether an op stays. So does one with empty outputs, which have no channels that could be needed."""
    return has_effect(node) or any(kept[t].any() or not kept[t].size for t in node.op.outputs)


@dataclass(frozen=True)
class Keeping:
    """`kept`: tensor -> for each channel, whether it is needed. An op with no needed output channel goes as a whole.
    `ranges`: which values the channels can have."""

    graph: Graph
    kept: dict[int, Array]
    ranges: dict[int, Range]

    def is_live(self, node: Node) -> bool:
        return is_needed(node, self.kept)

    def is_whole(self, tensor: int) -> bool:
        return bool(self.kept[tensor].all())

    @cached_property
    def is_complete(self) -> bool:
        """Whether everything stays."""
        nodes = [node for node in self.graph.nodes if self.is_live(node)]
        touched = {t for node in nodes for t in (*node.op.inputs, *node.op.outputs) if t != ABSENT}
        return len(nodes) == len(self.graph.ops) and all(self.is_whole(t) for t in touched)


def keeping_of(graph: Graph, choice: Choice = lambda op: True, block: ChannelBlock = ONE_BY_ONE) -> Keeping:
    """The smallest closed sets of channels: a needed channel keeps all that it is computed from, and linked channels
    stay together. `choice`: ops whose outputs may get narrower. `block`: convolutions get some channels back to fill
    it."""
    closure = _Closure(graph, ranges_of(graph), choice)
    found = closure.result()
    return closure.filled(block) if block.size > 1 and not found.is_complete else found


class _Closure:
    def __init__(self, graph: Graph, ranges: dict[int, Range], choice: Choice) -> None:
        self.graph, self.ranges = graph, ranges
        self.kept = {t.index: np.zeros(t.shape[-1] if t.shape else 1, bool) for t in graph.tensors}
        found = {node.op.index: Sums.of(node) for node in graph.nodes}
        self.sums = {op: sums if sums is not None and sums.sources is None else None for op, sums in found.items()}
        self.reads = {op: sums.reads() for op, sums in self.sums.items() if sums is not None}
        self.links = {node.op.index: links_of(node) if self._may_change(node) else None for node in graph.nodes}
        for tensor in (*graph.inputs, *graph.outputs, *(t.index for t in graph.tensors if t.is_variable)):
            self.kept[tensor][:] = True
        for node in graph.nodes:
            if not choice(node.op) or has_effect(node):
                self._keep_all(node.op.outputs)

    def result(self) -> Keeping:
        count = -1
        while count != (count := sum(int(mask.sum()) for mask in self.kept.values())):
            for node in reversed(self.graph.nodes):
                if is_needed(node, self.kept):
                    self._close(node)
        return Keeping(self.graph, self.kept, self.ranges)

    def filled(self, block: ChannelBlock) -> Keeping:
        """With enough channels more to fill whole blocks: in each layer those that need the fewest inputs."""
        for node in self.graph.nodes:
            sums = self.sums[node.op.index]
            if sums is None or (sums.is_float32 and not block.of_float32):
                continue
            made = self.kept[node.output.index]
            needed = int(made.sum())
            missing = min(block.filled(needed), len(made)) - needed
            if not needed or not missing:
                continue
            known = foldable(sums, ~made, self.ranges[node.input(0).index]) | self.kept[node.input(0).index]
            asked = (self.reads[node.op.index] & ~known).sum(axis=1) + np.where(made, len(known) + 1, 0)
            made[np.argsort(asked, kind="stable")[:missing]] = True
            self.result()
        return self.result()

    def _may_change(self, node: Node) -> bool:
        is_plain = all(t is None or (t.view is None and not t.is_variable) for t in (*node.inputs, *node.outputs))
        return is_plain and kind_of(node.op.kind) is not None

    def _keep_all(self, tensors: tuple[int, ...]) -> None:
        for tensor in tensors:
            if tensor != ABSENT:
                self.kept[tensor][:] = True

    def _close(self, node: Node) -> None:
        sums, links = self.sums[node.op.index], self.links[node.op.index]
        if sums is not None and self._may_change(node):
            self._needed_by(node, sums)
        elif links is not None:
            self._tied(node, links)
        else:
            self._keep_all((*node.op.inputs, *node.op.outputs))

    def _tied(self, node: Node, links: tuple[Link, ...]) -> None:
        tied = set()
        if makes_parts(node.op):
            self._even_out(node)
        for link in links:
            given, made = self.kept[link.tensor.index], self.kept[link.made.index]
            np.logical_or.at(given, link.inputs, made[link.outputs])
            made[link.outputs] |= given[link.inputs]
            tied.add(link.tensor.index)
        self._keep_all(tuple(t for t in node.op.inputs if t not in tied))

    def _even_out(self, node: Node) -> None:
        """Every part has at least one channel; those of a SPLIT along channels have equally many."""
        made = [self.kept[t] for t in node.op.outputs]
        widths = {len(kept) for kept in made}
        is_even = node.op.kind == "SPLIT" and widths != {node.input(1).shape[-1]}
        most = max(1, *(int(kept.sum()) for kept in made)) if is_even else 1
        for kept in made:
            kept[np.flatnonzero(~kept)[: max(0, most - int(kept.sum()))]] = True

    def _needed_by(self, node: Node, sums: Sums) -> None:
        """Input channels that a needed, varying output reads, unless their part of the sum is known; at least one."""
        varying = self.kept[node.output.index] & ~self.ranges[node.output.index].is_constant
        given = self.kept[node.input(0).index]
        reads = self.reads[node.op.index][varying].any(axis=0)
        folded = reads & foldable(sums, varying, self.ranges[node.input(0).index])
        given |= reads & ~folded
        if not given.any():
            given[0] = True
        self._keep_all(node.op.inputs[1:])


def foldable(sums: Sums, made: Array, given: Range) -> Array:
    """Input channels that add one number to every sum of the outputs `made`, wherever the window lies: the bias can
    take it over. None of them, if a bias would not fit its type."""
    fixed = given.is_constant
    is_zero: Array = fixed & (given.low == sums.zero)
    if sums.is_float32:
        return is_zero
    adding = np.flatnonzero(fixed & (given.low != sums.zero))
    parts = sums.added(made, adding, given.low)
    is_same = (parts == parts[:1]).all(axis=(0, 1))
    found: Array = fixed.copy()
    found[adding[~is_same]] = False
    largest = np.abs(parts[0][:, is_same].sum(axis=1) + sums.bias[made]).max(initial=0)
    return found if largest < MOST_BIAS[sums.bias_dtype] else is_zero


def narrowed(keeping: Keeping) -> Graph:
    """The graph in which each tensor has its needed channels, in their order; weights lose the others, and biases take
    over what constant channels add. Ops that make nothing that is needed are gone."""
    draft = _Narrowing(keeping)
    live = [node for node in keeping.graph.nodes if keeping.is_live(node)]
    ops = {node.op.index: draft.op(node) for node in live}
    dead = [op.index for op in keeping.graph.ops if op.index not in ops]
    for index in {t for op in ops.values() for t in (*op.inputs, *op.outputs) if 0 <= t < draft.own_tensors}:
        draft.narrow(index)
    return edited(replace(keeping.graph, tensors=tuple(draft.tensors)), without=dead, ops=ops)


class _Narrowing:
    def __init__(self, keeping: Keeping) -> None:
        self.keeping = keeping
        self.source = keeping.graph
        self.tensors = list(keeping.graph.tensors)
        self.own_tensors = len(self.tensors)

    def op(self, node: Node) -> Op:
        sums = Sums.of(node)
        if sums is not None and sums.sources is None:
            return self._weighted(node, sums)
        if node.op.kind == "RESHAPE" and not self.keeping.is_whole(node.output.index):
            return self._reshape(node)
        if node.op.kind in ("SPLIT_V", "SLICE", "STRIDED_SLICE"):
            return self._cut(node)
        if node.op.kind == "CONCATENATION":
            return replace(node.op, inputs=tuple(t for t in node.op.inputs if self.keeping.kept[t].any()))
        return node.op

    def narrow(self, index: int) -> None:
        """A tensor whose channels are those of its op, or of the ops that share it."""
        tensor, kept = self.source.tensors[index], self.keeping.kept[index]
        if kept.all():
            return
        data = None if tensor.data is None else np.ascontiguousarray(tensor.data[..., kept])
        quantisation = _cut(tensor.quantisation, len(tensor.shape) - 1, len(kept), kept)
        shape = (*tensor.shape[:-1], int(kept.sum()))
        channels = None if tensor.is_constant else tuple(np.flatnonzero(kept).tolist())
        self.tensors[index] = replace(tensor, shape=shape, data=data, quantisation=quantisation, channels=channels)

    def _weighted(self, node: Node, sums: Sums) -> Op:
        made, given = self.keeping.kept[node.output.index], self.keeping.kept[node.input(0).index]
        bias, filters = bias_of(node), node.input(1)
        if made.all() and given.all():
            return node.op
        fixed = self._is_fixed(node, sums)[made]
        weights = np.where(fixed[:, None, None], 0, sums.weights[made][:, :, given])
        if filters.dtype is DType.UINT8:
            weights = weights + stored_zero(filters)
        shape = weights.reshape(len(weights), *filters.shape[1:-1], -1).shape
        scales = _cut(filters.quantisation, 0, len(made), made)
        inputs = [node.op.inputs[0], self._constant(node, 1, shape, weights, scales)]
        values = self._bias(node, sums)
        if bias is not None:
            cut = _cut(bias.quantisation, 0, len(made), made)
            inputs.append(self._constant(node, 2, values.shape, values, cut))
        elif values.any():
            inputs.append(self._new_bias(node, values, sums))
        else:
            inputs += node.op.inputs[2:]
        return replace(node.op, inputs=tuple(inputs))

    def _bias(self, node: Node, sums: Sums) -> Array:
        """With what removed input channels used to add."""
        made, given = self.keeping.kept[node.output.index], self.keeping.kept[node.input(0).index]
        values, fixed = self.keeping.ranges[node.input(0).index], self._is_fixed(node, sums)
        gone = np.flatnonzero(~given & sums.reads()[made & ~fixed].any(axis=0))
        whole: Array = sums.bias.astype(np.float32 if sums.is_float32 else np.int64)
        if not sums.is_float32:
            added = sums.added(made & ~fixed, gone, values.low)[0].sum(axis=1)
            whole[made & ~fixed] += np.rint(added).astype(np.int64)
            whole[fixed] += np.rint(sums.limits(values.low, values.high)[0][0][fixed]).astype(np.int64)
        cut: Array = whole[made].astype(sums.bias_dtype.numpy)
        return cut

    def _is_fixed(self, node: Node, sums: Sums) -> Array:
        """Output channels that never vary: any sum that they can have will do as their bias."""
        fixed = self.keeping.ranges[node.output.index].is_constant
        return np.zeros_like(fixed) if sums.is_float32 else fixed

    def _constant(self, node: Node, position: int, shape: Shape, data: Array, quantisation: Quantisation | None) -> int:
        """An op's constant with other values; other ops that share it keep theirs."""
        old = node.input(position)
        values = np.ascontiguousarray(data.reshape(shape).astype(old.dtype.numpy))
        new = replace(old, shape=tuple(shape), data=values, quantisation=quantisation)
        if self.source.consumers[old.index] == (node.op.index,) and node.op.inputs.count(old.index) == 1:
            self.tensors[old.index] = new
            return old.index
        return self._added(new)

    def _added(self, tensor: Tensor) -> int:
        index = len(self.tensors)
        self.tensors.append(replace(tensor, index=index))
        return index

    def _new_bias(self, node: Node, values: Array, sums: Sums) -> int:
        made, filters, data = self.keeping.kept[node.output.index], node.input(1), node.input(0)
        scales = None
        if filters.quantisation is not None and data.quantisation is not None:
            unit, cut = data.quantisation.scales[0], _cut(filters.quantisation, 0, len(made), made)
            found = tuple(unit * scale for scale in (cut or filters.quantisation).scales)
            scales = Quantisation(found, (0,) * len(found))
        name = f"{node.output.name}/bias"
        return self._added(Tensor(0, name, values.shape, sums.bias_dtype, scales, is_constant=True, data=values))

    def _cut(self, node: Node) -> Op:
        """Positions are counted among the channels that are left; a SPLIT has no positions."""
        parts = parts_of(node)
        if parts is None or self.keeping.is_whole(parts.source.index):
            return node.op
        before = np.concatenate([[0], np.cumsum(self.keeping.kept[parts.source.index])])
        starts = [int(before[channels[0]]) for channels in parts.channels]
        ends = [int(before[channels[-1] + 1]) for channels in parts.channels]
        if node.op.kind == "SPLIT_V":
            if not parts.cuts_channels:
                return node.op
            return self._with(node, {1: [end - start for start, end in zip(starts, ends, strict=True)]})
        second = ends[0] if node.op.kind == "STRIDED_SLICE" else ends[0] - starts[0]
        first, last = (node.input(place).ints for place in (1, 2))
        if len(first) < len(parts.source.shape):
            return node.op
        return self._with(node, {1: [*first[:-1], starts[0]], 2: [*last[:-1], second]})

    def _with(self, node: Node, numbers: dict[int, list[int]]) -> Op:
        """The op with other numbers at some inputs."""
        inputs = list(node.op.inputs)
        for place, values in numbers.items():
            old = node.input(place)
            inputs[place] = self._constant(node, place, old.shape, np.array(values), old.quantisation)
        return replace(node.op, inputs=tuple(inputs))

    def _reshape(self, node: Node) -> Op:
        """To the new shape of its output, which an input may say too."""
        shape = (*node.output.shape[:-1], int(self.keeping.kept[node.output.index].sum()))
        attributes: Any = replace(node.attributes or Reshape(), new_shape=shape)
        if len(node.op.inputs) < 2 or node.op.inputs[1] == ABSENT:
            return replace(node.op, attributes=attributes)
        new = self._constant(node, 1, (len(shape),), np.array(shape), node.input(1).quantisation)
        return replace(node.op, attributes=attributes, inputs=(node.op.inputs[0], new))


def _cut(quantisation: Quantisation | None, axis: int, channels: int, kept: Array) -> Quantisation | None:
    """The scales that are left along an axis of which some channels are kept."""
    if quantisation is None or not quantisation.per_channel:
        return quantisation
    if (len(quantisation.scales), quantisation.axis) != (channels, axis):
        return quantisation
    scales, zero_points = tuple(compress(quantisation.scales, kept)), quantisation.zero_points
    left = tuple(compress(zero_points, kept)) if len(zero_points) == channels else zero_points
    return replace(quantisation, scales=scales, zero_points=left)


@dataclass(frozen=True, slots=True)
class ChannelCounts:
    """Of an operation's outputs. `of_constants`: those that depend on nothing that varies, as where all weights are 0.
    `one_value`: those with one value after rounding and clamping, though something varies. `unread`: others that change
    no output of the model. `removable`: those of all these that can go; some cannot, since an operation needs them."""

    channels: int = 0
    of_constants: int = 0
    one_value: int = 0
    unread: int = 0
    removable: int = 0

    @property
    def constant(self) -> int:
        return self.of_constants + self.one_value


def channel_counts(graph: Graph) -> tuple[ChannelCounts, ...]:
    """For each operation of a graph as its file has it."""
    if any(tensor.view is not None for tensor in graph.tensors):
        return (ChannelCounts(),) * len(graph.ops)
    keeping = keeping_of(graph)
    return tuple(_counts(node, keeping) for node in graph.nodes)


def _counts(node: Node, keeping: Keeping) -> ChannelCounts:
    if not node.outputs:
        return ChannelCounts()
    if len(node.outputs) != 1:
        kept = np.concatenate([keeping.kept[t] for t in node.op.outputs])
        return ChannelCounts(len(kept), removable=int((~kept).sum()))
    fixed, kept = keeping.ranges[node.output.index].is_constant, keeping.kept[node.output.index]
    moved = _varying(node, keeping) if fixed.any() else fixed
    return ChannelCounts(
        len(kept),
        int((fixed & ~moved).sum()),
        int((fixed & moved).sum()),
        int((~fixed & ~kept).sum()),
        int((~kept).sum()),
    )


def _varying(node: Node, keeping: Keeping) -> Array:
    """Output channels that depend on something that varies."""
    sums, data = Sums.of(node), keeping.ranges[node.input(0).index]
    if sums is not None:
        reads = sums.reads()
        sources = np.arange(reads.shape[1])[None] if sums.sources is None else sums.sources[:, None]
        found: Array = np.any(reads & ~data.is_constant[sources], axis=1)
        return found
    varying = np.zeros(len(keeping.kept[node.output.index]), bool)
    for link in links_of(node) or ():
        np.logical_or.at(varying, link.outputs, ~keeping.ranges[link.tensor.index].is_constant[link.inputs])
    return varying
