"""Ops whose output is their input: reshapes, casts to the same type, moves that move nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from diagmem.model.graph import Graph, Node, Tensor
from diagmem.ops import kind_of
from diagmem.ops.loops.chunks import Chunks, RearrangeKind
from diagmem.ops.moving.reshape import Reshape
from diagmem.transforms._editing import (
    RESHAPES,
    Choice,
    Draft,
    NotExpressible,
    edited,
    is_movable,
    is_seen_by_caller,
    part_at,
)

MOVES = (
    *RESHAPES,
    *("CAST", "QUANTIZE", "TRANSPOSE", "PAD", "PADV2", "MIRROR_PAD", "SLICE", "STRIDED_SLICE", "GATHER"),
    *("CONCATENATION", "SPLIT", "SPLIT_V", "PACK", "UNPACK", "SPACE_TO_DEPTH", "DEPTH_TO_SPACE"),
)
"""Kinds that do nothing where every element goes from its place to the same place."""


def drop_no_ops(graph: Graph, choice: Choice) -> Graph:
    """The output becomes a view of the input. One that the caller sees stays a tensor, and the op a reshape, which the
    plan leaves where it is."""
    draft, reshapes = Draft(graph), {}
    for op in graph.ops:
        node = draft.node(op.index)
        source = _source(node) if op.kind in MOVES and choice(op) else None
        if source is not None and not _remove(draft, node, source):
            whole = draft.tensors[source.base]
            if source.is_in_one_piece and source.elems == whole.elems and node.output.view is None:
                attributes = Reshape(new_shape=node.output.shape)
                reshapes[op.index] = replace(op, kind="RESHAPE", inputs=(whole.index,), attributes=attributes)
    return (
        edited(graph, without=draft.removed, ops=reshapes, tensors=draft.tensors)
        if draft.removed or reshapes
        else graph
    )


def _source(node: Node) -> Tensor | None:
    """The input that the op's one output is, None if it is more."""
    kind = kind_of(node.op.kind)
    if not isinstance(kind, RearrangeKind) or len(node.outputs) != 1:
        return None
    chunks = kind.chunks(node, kind.orders[0])
    if chunks is None or not len(chunks.position) or not _is_identity(chunks):
        return None
    source, target = node.input(int(chunks.position[0])), node.output
    is_same = (source.elems, source.dtype, source.quantisation) == (target.elems, target.dtype, target.quantisation)
    return source if is_same and is_movable(source) and is_movable(target) else None


def _is_identity(chunks: Chunks) -> bool:
    is_one_input = (chunks.position == chunks.position[0]).all()
    stays = (chunks.source == chunks.target) & ((chunks.pitch == 1) | (chunks.length == 1))
    return bool(is_one_input and stays.all())


def _remove(draft: Draft, node: Node, source: Tensor) -> bool:
    """Removes an op if nothing stands against it."""
    target = node.output
    if is_seen_by_caller(draft.source, target.index) or target.view is not None or target.index in draft.families:
        return False
    try:
        view = part_at(source, target, np.arange(target.elems, dtype=np.int64))
    except NotExpressible:
        return False
    return draft.replaced_by_views(node.op.index, [view])
