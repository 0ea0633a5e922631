"""SPLIT, SLICE, STRIDED_SLICE, UNPACK: those who want a part read it where it lies."""

from __future__ import annotations

import numpy as np

from diagmem.model.graph import Graph, Node, Tensor
from diagmem.model.views import IntArray
from diagmem.ops import kind_of
from diagmem.ops.loops.chunks import Chunks, RearrangeKind
from diagmem.transforms._editing import (
    Choice,
    Draft,
    NotExpressible,
    is_movable,
    is_seen_by_caller,
    moved_into,
    part_at,
)

KINDS = ("SPLIT", "SPLIT_V", "SLICE", "STRIDED_SLICE", "UNPACK")


def remove_slices(graph: Graph, choice: Choice) -> Graph:
    """Outputs become views of the input, which must lie in RAM. What is taken must be constant and expressible by
    strides, no output known to the caller, and all that read one must have kernels that can address a view. A slice of
    a slice goes first, so that it does not stand in the way."""
    draft = Draft(graph)
    for op in reversed(graph.ops):
        if op.kind in KINDS and choice(op):
            _remove(draft, draft.node(op.index))
    return draft.graph()


def _remove(draft: Draft, node: Node) -> None:
    """Removes an op if nothing stands against it."""
    kind = kind_of(node.op.kind)
    chunks = kind.chunks(node, kind.orders[0]) if isinstance(kind, RearrangeKind) else None
    if chunks is None or not len(chunks.position):
        return
    source = node.input(int(chunks.position[0]))
    if not is_movable(source) or not all(_may_move(draft, source, output) for output in node.outputs):
        return
    try:
        views = [part for number in range(len(node.outputs)) for part in _parts(draft, node, source, chunks, number)]
    except NotExpressible:
        return
    draft.replaced_by_views(node.op.index, views)


def _may_move(draft: Draft, source: Tensor, output: Tensor) -> bool:
    return (
        not is_seen_by_caller(draft.source, output.index)
        and output.view is None
        and (output.dtype, output.quantisation) == (source.dtype, source.quantisation)
    )


def _parts(draft: Draft, node: Node, source: Tensor, chunks: Chunks, number: int) -> list[Tensor]:
    """An output, and its own views, as views of the source."""
    output = node.outputs[number]
    part = part_at(source, output, elements_of(chunks, number))
    views = [draft.tensors[t] for t in draft.family(output.index)[1:]]
    return [part] if part.view is None else moved_into(part.view, output, views)


def elements_of(chunks: Chunks, output: int) -> IntArray:
    """The element of the input that each element of an output is."""
    own = chunks.output == output
    order = np.argsort(chunks.target[own], kind="stable")
    source, pitch, length = (a[own][order] for a in (chunks.source, chunks.pitch, chunks.length))
    k = np.arange(length.sum(), dtype=np.int64) - np.repeat(np.cumsum(length) - length, length)
    elements: IntArray = np.repeat(source, length) + k * np.repeat(pitch, length)
    return elements
