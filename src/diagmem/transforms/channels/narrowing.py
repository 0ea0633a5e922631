"""The graph without the channels that are not needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from diagmem.model.graph import ABSENT, DType, Graph, Node, Op, Quantisation, Shape, Tensor
from diagmem.ops.moving.reshape import Reshape
from diagmem.ops.numerics.quantised import stored_zero
from diagmem.ops.numerics.weighted_sums import bias_of
from diagmem.transforms.channels.keeping import Keeping
from diagmem.transforms.channels.parts import parts_of
from diagmem.transforms.channels.sums import Array, Sums


class Narrowed(NamedTuple):
    """A graph with other tensors; `ops` are to stand in place of its own (by index), and `dead` ones are to go."""

    graph: Graph
    ops: dict[int, Op]
    dead: list[int]


def narrowed(keeping: Keeping) -> Narrowed:
    """Each tensor has its needed channels, in their order; weights lose the others, and biases take over what constant
    channels add. Ops that make nothing that is needed are dead."""
    draft = _Narrowing(keeping)
    live = [node for node in keeping.graph.nodes if keeping.is_live(node)]
    ops = {node.op.index: draft.op(node) for node in live}
    dead = [op.index for op in keeping.graph.ops if op.index not in ops]
    for index in {t for op in ops.values() for t in (*op.inputs, *op.outputs) if 0 <= t < draft.own_tensors}:
        draft.narrow(index)
    return Narrowed(replace(keeping.graph, tensors=tuple(draft.tensors)), ops, dead)


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
        shape = (len(weights), *filters.shape[1:3], weights.shape[2])
        if node.op.kind == "FULLY_CONNECTED":
            shape = (len(weights), weights.shape[1] * weights.shape[2])
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
        """With what input channels that are gone have added."""
        made, given = self.keeping.kept[node.output.index], self.keeping.kept[node.input(0).index]
        values, fixed = self.keeping.ranges[node.input(0).index], self._is_fixed(node, sums)
        gone = np.flatnonzero(~given & sums.reads()[made & ~fixed].any(axis=0))
        whole: Array = sums.bias.astype(np.float32 if sums.is_real else np.int64)
        if not sums.is_real:
            added = sums.added(made & ~fixed, gone, values.low)[0].sum(axis=1)
            whole[made & ~fixed] += np.rint(added).astype(np.int64)
            whole[fixed] += np.rint(sums.limits(values.low, values.high)[0][0][fixed]).astype(np.int64)
        cut: Array = whole[made].astype(sums.bias_dtype.numpy)
        return cut

    def _is_fixed(self, node: Node, sums: Sums) -> Array:
        """Output channels that always come out the same: any sum that they can have will do as their bias."""
        fixed = self.keeping.ranges[node.output.index].is_constant
        return np.zeros_like(fixed) if sums.is_real else fixed

    def _constant(self, node: Node, position: int, shape: Shape, data: Array, quantisation: Quantisation | None) -> int:
        """A constant of an op, changed; other ops that share it keep theirs."""
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
        """What is taken of channels is counted among those that are left; a SPLIT needs no numbers."""
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
        """To the shape that its output has by now, which an input may say too."""
        shape = (*node.output.shape[:-1], int(self.keeping.kept[node.output.index].sum()))
        attributes: Any = replace(node.attributes or Reshape(), new_shape=shape)
        if len(node.op.inputs) < 2 or node.op.inputs[1] == ABSENT:
            return replace(node.op, attributes=attributes)
        new = self._constant(node, 1, (len(shape),), np.array(shape), node.input(1).quantisation)
        return replace(node.op, attributes=attributes, inputs=(node.op.inputs[0], new))


def _cut(quantisation: Quantisation | None, axis: int, channels: int, kept: Array) -> Quantisation | None:
    """What is left of scales along an axis of which some channels are kept."""
    if quantisation is None or not quantisation.per_channel or len(quantisation.scales) != channels:
        return quantisation
    if quantisation.axis != axis:
        return quantisation
    places = np.flatnonzero(kept).tolist()
    zero_points = quantisation.zero_points
    return replace(
        quantisation,
        scales=tuple(quantisation.scales[c] for c in places),
        zero_points=tuple(zero_points[c] for c in places) if len(zero_points) == channels else zero_points,
    )
