"""Ops that need not run: their results are constant, unused, already there, or their input itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from diagmem.model.graph import ABSENT, Graph, Node, Tensor
from diagmem.ops import kind_of
from diagmem.ops.folding import folded
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


def fold_constants(graph: Graph, choice: Choice) -> Graph:
    """One op after the other, so that chains of them go as a whole. What the caller sees stays computed, for he looks
    for it in the arena; what would take too much flash stays too."""
    tensors, gone = list(graph.tensors), []
    for op in graph.ops:
        if not choice(op) or any(is_seen_by_caller(graph, t) or graph.tensors[t].is_variable for t in op.outputs):
            continue
        inputs = tuple(None if t == ABSENT else tensors[t] for t in op.inputs)
        values = folded(Node(op, inputs, tuple(tensors[t] for t in op.outputs)))
        if values is not None:
            gone.append(op.index)
            for t, found in zip(op.outputs, values, strict=True):
                tensors[t] = replace(tensors[t], is_constant=True, data=found)
    return edited(graph, without=gone, tensors=tensors) if gone else graph


def drop_dead(graph: Graph, choice: Choice) -> Graph:
    """An op stays if an output of it is wanted by the caller or by an op that stays, or if it does something else: it
    has no outputs, or touches a variable."""
    wanted = set(graph.outputs)
    dead = []
    for node in reversed(graph.nodes):
        outputs = {member for t in node.op.outputs for member in graph.sharing.get(t, (t,))}
        if has_effect(node) or wanted & outputs or not choice(node.op):
            wanted.update(node.op.inputs)
        else:
            dead.append(node.op.index)
    return edited(graph, without=dead) if dead else graph


def has_effect(node: Node) -> bool:
    """Whether it does more than to make its outputs from its inputs."""
    return not node.outputs or any(t is not None and t.is_variable for t in (*node.inputs, *node.outputs))


def merge_duplicates(graph: Graph, choice: Choice) -> Graph:
    """Of ops of one known kind with equal attributes and inputs, and outputs of equal shape and quantisation, only the
    first stays. What the caller wants to see stays too, and what is written into another tensor."""
    first: dict[Any, Node] = {}
    instead: dict[int, int] = {}
    merged = []
    for node in graph.nodes:
        if kind_of(node.op.kind) is None or has_effect(node):
            continue
        inputs = tuple(instead.get(t, t) for t in node.op.inputs)
        if any(t.view is not None for t in node.outputs):
            continue
        results = tuple((t.shape, t.dtype, t.quantisation) for t in node.outputs)
        twin = first.setdefault((node.op.kind, node.attributes, inputs, results), node)
        if twin is node or not choice(node.op) or any(is_seen_by_caller(graph, t) for t in node.op.outputs):
            continue
        merged.append(node.op.index)
        instead.update(zip(node.op.outputs, twin.op.outputs, strict=True))
    return edited(graph, without=merged, instead=instead, tensors=_views(graph, instead)) if merged else graph


def _views(graph: Graph, instead: Mapping[int, int]) -> Iterator[Tensor]:
    """Views of what is gone, as views of what stands in for it."""
    for tensor in graph.tensors:
        if tensor.view is not None and tensor.base in instead:
            yield replace(tensor, view=replace(tensor.view, base=instead[tensor.base]))


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
    if not draft.removed and not reshapes:
        return graph
    return edited(graph, without=draft.removed, ops=reshapes, tensors=draft.tensors)


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
