"""Graphs made from graphs: ops left out or changed, tensors that become parts of others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np

from diagmem.model.graph import (
    Graph,
    IntArray,
    Node,
    Op,
    Shape,
    Strides,
    Tensor,
    View,
    places,
    row_major_strides,
    strides_of,
)
from diagmem.ops import OpKind, kind_of
from diagmem.ops.loops.chunks import Chunks, RearrangeKind

Choice = Callable[[Op], bool]
"""Which ops a transform may remove."""

MOST_VIEWS = 128
"""Of one tensor: all pairs of them are compared."""


def is_among(op: Op, names: Callable[[OpKind], Collection[str]]) -> bool:
    """Whether the op is one of those names of its kind that have a trait."""
    kind = kind_of(op.kind)
    return kind is not None and op.kind in names(kind)


def makes_parts(op: Op) -> bool:
    """Whether its outputs are parts of an input."""
    return is_among(op, lambda kind: kind.parts)


def only_moves(op: Op) -> bool:
    """Whether its output may be the input itself, or come to lie where it does."""
    kind = kind_of(op.kind)
    return kind is not None and kind.only_moves(op.kind)


def edited(
    graph: Graph,
    *,
    without: Iterable[int] = (),
    ops: Mapping[int, Op] | None = None,
    tensors: Iterable[Tensor] = (),
    instead: Mapping[int, int] | None = None,
) -> Graph:
    """The graph without some ops (by index), with others in place of some, with some tensors changed, and with ops that
    read other tensors instead of some. Ops keep their number in the model's file."""
    dropped, changed, other = set(without), ops or {}, instead or {}
    kept = [changed.get(op.index, op) for op in graph.ops if op.index not in dropped]
    renumbered = (
        replace(op, index=index, origin=op.number, inputs=tuple(other.get(t, t) for t in op.inputs))
        for index, op in enumerate(kept)
    )
    by_index = {tensor.index: tensor for tensor in tensors}
    found = tuple(by_index.get(t.index, t) for t in graph.tensors) if by_index else graph.tensors
    return replace(graph, ops=tuple(renumbered), tensors=found)


def is_movable(tensor: Tensor) -> bool:
    """Whether a tensor's bytes may lie in, or hold, another tensor."""
    return not (tensor.is_constant or tensor.is_variable)


def is_seen_by_caller(graph: Graph, tensor: int) -> bool:
    """Whether it is a graph input or output, which the caller finds whole and in one piece."""
    return tensor in graph.inputs or tensor in graph.outputs


class Draft:
    """A graph in which tensors become views, one op after the other."""

    def __init__(self, graph: Graph) -> None:
        self.source = graph
        self.tensors = list(graph.tensors)
        self.families = {base: list(members) for base, members in graph.families.items()}
        self.removed: list[int] = []

    def graph(self) -> Graph:
        if not self.removed:
            return self.source
        return edited(self.source, without=self.removed, tensors=self.tensors)

    def node(self, op: int) -> Node:
        """An op with its tensors as they are by now."""
        node = self.source.nodes[op]
        inputs = tuple(None if t is None else self.tensors[t.index] for t in node.inputs)
        return Node(node.op, inputs, tuple(self.tensors[t.index] for t in node.outputs))

    def family(self, base: int) -> Sequence[int]:
        """A tensor and its views."""
        return self.families.get(base, (base,))

    def replaced_by_views(self, op: int, views: Sequence[Tensor]) -> bool:
        """Leaves an op out because tensors are views from now on, unless kernels cannot address these, or there are too
        many in one tensor."""
        if any(len(self.family(view.base)) + len(views) > MOST_VIEWS for view in views[:1]):
            return False
        before = [self.tensors[view.index] for view in views]
        self._set(views)
        touched = {t for view in views for t in self._ops_at(view.index)} - {op, *self.removed}
        if not all(_can_address(self.node(index)) for index in touched):
            self._set(before)
            return False
        self.removed.append(op)
        for tensor in before:
            self.families.pop(tensor.index, None)
        for view in views:
            members = self.families.setdefault(view.base, [view.base])
            if view.index not in members:
                members.append(view.index)
        return True

    def _set(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            self.tensors[tensor.index] = tensor

    def _ops_at(self, tensor: int) -> Iterable[int]:
        producer = self.source.producer.get(tensor)
        return (*self.source.consumers.get(tensor, ()), *(() if producer is None else (producer,)))


def _can_address(node: Node) -> bool:
    kind = kind_of(node.op.kind)
    return kind is not None and kind.can_address(node)


class Taken(NamedTuple):
    """What an op takes out of an input. `chunks`: how its kernel moves it to the outputs."""

    source: Tensor
    chunks: Chunks

    def elements(self, output: int) -> IntArray:
        """The element of the source that each element of an output is."""
        own = self.chunks.output == output
        order = np.argsort(self.chunks.target[own], kind="stable")
        source, pitch, length = (a[own][order] for a in (self.chunks.source, self.chunks.pitch, self.chunks.length))
        k = np.arange(length.sum(), dtype=np.int64) - np.repeat(np.cumsum(length) - length, length)
        elements: IntArray = np.repeat(source, length) + k * np.repeat(pitch, length)
        return elements


def taken_by(node: Node) -> Taken | None:
    """None where outputs are made of several inputs, of very many elements, or by values unknown here."""
    kind = kind_of(node.op.kind)
    chunks = None
    if isinstance(kind, RearrangeKind) and not node.is_huge:
        chunks = kind.chunks(node, kind.orders[0])
    if chunks is None or not len(chunks.position) or (chunks.position != chunks.position[0]).any():
        return None
    return Taken(node.input(int(chunks.position[0])), chunks)


class NotExpressible(Exception):
    """No strides say where the elements of a tensor would lie."""


def part_of(whole: Tensor, tensor: Tensor, offset_elems: int, strides: Strides) -> Tensor:
    """The tensor as a part of `whole`: first element and strides are counted in elements of the latter."""
    inside = _composed(tensor.shape, offset_elems, strides, whole.shape, whole.strides)
    own = 0 if whole.view is None else whole.view.offset_elems
    return replace(tensor, view=View(whole.base, own + inside[0], inside[1]))


def part_at(whole: Tensor, tensor: Tensor, elements: IntArray) -> Tensor:
    """The tensor as a part of `whole`, of which it holds these elements, in its own order."""
    strides = strides_of(tensor.shape, elements)
    if strides is None or min(strides, default=1) < 1:
        raise NotExpressible
    return part_of(whole, tensor, int(elements[0]) if len(elements) else 0, strides)


def moved_into(place: View, root: Tensor, views: Iterable[Tensor]) -> list[Tensor]:
    """A tensor that comes to lie at `place`, and its views."""
    moved = replace(root, view=place)
    return [moved, *(part_of(moved, v, v.view.offset_elems, v.view.strides) for v in views if v.view is not None)]


def _composed(
    shape: Shape, offset: int, strides: Strides, whole_shape: Shape, whole_strides: Strides
) -> tuple[int, Strides]:
    """Where a part of a tensor lies when the tensor itself has strides."""
    if whole_strides == row_major_strides(whole_shape):
        return offset, strides
    found = _by_axes(shape, offset, strides, whole_shape, whole_strides)
    if found is not None:
        return found
    at = places(whole_shape, whole_strides)[offset + places(shape, strides)]
    composed = strides_of(shape, at)
    if composed is None:
        raise NotExpressible
    return int(at[0]), composed


def _by_axes(
    shape: Shape, offset: int, strides: Strides, whole_shape: Shape, whole_strides: Strides
) -> tuple[int, Strides] | None:
    """The common case: each axis of the part goes along one axis of the whole, and not beyond its end; else None."""
    if not prod(shape):
        return offset, strides
    dense = row_major_strides(whole_shape)
    reach = [int(i) for i in np.unravel_index(offset, whole_shape)]
    first = sum(i * stride for i, stride in zip(reach, whole_strides, strict=True))
    composed = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            composed.append(stride)
            continue
        along = (a for a, step in enumerate(dense) if whole_shape[a] > 1 and step <= stride and stride % step == 0)
        axis = next(along, None)
        if axis is None:
            return None
        reach[axis] += (size - 1) * (stride // dense[axis])
        composed.append(stride // dense[axis] * whole_strides[axis])
        if reach[axis] >= whole_shape[axis]:
            return None
    return first, tuple(composed)
