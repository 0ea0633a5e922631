"""Ops that need not run: their results are constant, unused, already there, or their input itself; or a neighbour does
their work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import ABSENT, DType, ExplicitPadding, Graph, Node, Op, Tensor
from diagmem.ops import Activation, Unsupported, kind_of
from diagmem.ops.elementwise.unary import CLAMPS, FUSED
from diagmem.ops.folding import Allowance, folded
from diagmem.ops.loops.windowed import WindowedKind
from diagmem.ops.moving.pad import PadKind, zero_paddings_of
from diagmem.ops.moving.reshape import Reshape
from diagmem.ops.numerics.quantised import real_range
from diagmem.transforms._editing import (
    Choice,
    Draft,
    NotExpressible,
    edited,
    is_among,
    is_movable,
    is_seen_by_caller,
    only_moves,
    part_at,
    taken_by,
)
from diagmem.transforms.channel_links import Array
from diagmem.transforms.channel_ranges import Range, ranges_of


def fold_constants(graph: Graph, choice: Choice) -> Graph:
    """One op after the other, so that whole chains are folded. What the caller sees is still computed, since it has to
    be in the arena; so is what would take too much flash."""
    tensors, gone, allowance = list(graph.tensors), [], Allowance.for_constants(graph.tensors)
    for op in graph.ops:
        if not choice(op) or any(is_seen_by_caller(graph, t) or graph.tensors[t].is_variable for t in op.outputs):
            continue
        inputs = tuple(None if t == ABSENT else tensors[t] for t in op.inputs)
        values = folded(Node(op, inputs, tuple(tensors[t] for t in op.outputs)), allowance)
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
    # Views of a merged tensor become views of the one that replaces it.
    views = ((t, t.view) for t in graph.tensors if t.view is not None and t.base in instead)
    moved = [replace(t, view=replace(view, base=instead[view.base])) for t, view in views]
    return edited(graph, without=merged, instead=instead, tensors=moved) if merged else graph


def drop_no_ops(graph: Graph, choice: Choice) -> Graph:
    """The output becomes a view of the input. One that the caller sees stays a tensor, and the op a reshape, which the
    plan leaves where it is."""
    draft, reshapes = Draft(graph), {}
    for op in graph.ops:
        node = draft.node(op.index)
        source = _source(node) if only_moves(op) and choice(op) else None
        if source is not None and not _remove(draft, node, source):
            whole = draft.tensors[source.base]
            if source.is_in_one_piece and source.elems == whole.elems and node.output.view is None:
                attributes = Reshape(new_shape=node.output.shape)
                reshapes[op.index] = replace(op, kind="RESHAPE", inputs=(whole.index,), attributes=attributes)
    if not draft.removed and not reshapes:
        return graph
    return edited(graph, without=draft.removed, ops=reshapes, tensors=draft.tensors)


def _source(node: Node) -> Tensor | None:
    """The input that the op's one output is; None if it is not one input as it stands."""
    taken = taken_by(node)
    if taken is None or len(node.outputs) != 1:
        return None
    source, target, elements = taken.source, node.output, taken.elements(0)
    is_same = (source.elems, source.dtype, source.quantisation) == (target.elems, target.dtype, target.quantisation)
    is_identity = is_same and np.array_equal(elements, np.arange(target.elems))
    return source if is_identity and is_movable(source) and is_movable(target) else None


def _remove(draft: Draft, node: Node, source: Tensor) -> bool:
    """Removes an op if that is allowed."""
    target = node.output
    if is_seen_by_caller(draft.source, target.index) or target.view is not None or target.index in draft.families:
        return False
    try:
        view = part_at(source, target, np.arange(target.elems, dtype=np.int64))
    except NotExpressible:
        return False
    return draft.replaced_by_views(node.op.index, [view])


STORED = (DType.INT8, DType.INT16)


def drop_identities(graph: Graph, choice: Choice) -> Graph:
    """Every value that each channel can have is tried, so it is exact; of integers only. The op's readers read its
    input, or, of two in a row, that of the first, if that has the same scale. What the caller sees stays."""
    candidates = [node for node in graph.nodes if _may_be_identity(node) and choice(node.op)]
    if not candidates or any(tensor.view is not None for tensor in graph.tensors):
        return graph
    ranges, instead = ranges_of(graph), dict[int, int]()
    for node in candidates:
        source = next((s for s, made in _sources(graph, node, ranges) if _is_same(s, node.output, *made)), None)
        if source is not None and not is_seen_by_caller(graph, node.output.index) and is_movable(node.output):
            instead[node.output.index] = instead.get(source.index, source.index)
    gone = [graph.producer[tensor] for tensor in instead]
    return edited(graph, without=gone, instead=instead) if gone else graph


def _may_be_identity(node: Node) -> bool:
    """A function of one tensor, alike to its output; two functions in a row may be alike only together."""
    kind, given = kind_of(node.op.kind), {t.index: t for _, t in node.activations()}
    if kind is None or not kind.is_pointwise or not kind.keeps_channels(node) or len(given) != 1:
        return False
    (data,) = given.values()
    is_stored = data.dtype in STORED and bool(data.shape) and is_movable(data)
    return is_stored and (node.op.kind == "QUANTIZE" or _is_alike(data, node.output))


Values = tuple[Array, Array, Array]
"""[value, channel]: what goes in, what comes out, and whether that can happen."""


def _sources(graph: Graph, node: Node, ranges: dict[int, Range]) -> Iterator[tuple[Tensor, Values]]:
    """The op's input, with what becomes of its values; then, of an op behind another, that one's input."""
    data = next(t for _, t in node.activations())
    info, found = np.iinfo(data.dtype.numpy), ranges[data.index]
    ends = np.stack([found.low, found.high])
    if node.op.kind != "QUANTIZE" and ((made := _applied(node, data, ends)) is None or (made != ends).any()):
        return
    values = np.repeat(np.arange(info.min, info.max + 1)[:, None], data.shape[-1], axis=1)
    made = _applied(node, data, values)
    if made is None:
        return
    yield data, (values, made, (found.low <= values) & (values <= found.high))
    before = graph.nodes[graph.producer[data.index]] if data.index in graph.producer else None
    if before is None or before.op.kind != "QUANTIZE" or node.op.kind != "QUANTIZE" or not _may_be_identity(before):
        return
    for source, (given, between, can_be) in _sources(graph, before, ranges):
        if source.index == before.input(0).index:
            at = between.astype(np.int64) - info.min
            yield source, (given, np.take_along_axis(made, at, axis=0), can_be)


def _applied(node: Node, data: Tensor, values: Array) -> Array | None:
    """What a pointwise op makes of values [value, channel] of its one input in RAM; None if it is not such an op."""
    others = [t for t in node.inputs if t is not None and t.index != data.index]
    rows = [
        t
        for t in others
        if t.data is not None and t.elems in (1, data.shape[-1]) and t.shape[-1:] in ((), (1,), data.shape[-1:])
    ]
    kind = kind_of(node.op.kind)
    if kind is None or len(node.outputs) != 1 or len(rows) < len(others) or node.output.shape != data.shape:
        return None
    given = [values.astype(data.dtype.numpy) if t.index == data.index else t.data for t in node.inputs if t is not None]
    inputs = tuple(
        t if t is None else replace(t, shape=values.shape if t.index == data.index else (t.elems,)) for t in node.inputs
    )
    flat = [v if v is None or v.shape == values.shape else v.reshape(-1) for v in given]
    try:
        return kind.reference(Node(node.op, inputs, (replace(node.output, shape=values.shape),)), flat)[0]
    except (Unsupported, ModelError):
        return None


def _is_alike(source: Tensor, target: Tensor) -> bool:
    return (source.shape, source.dtype, source.quantisation) == (target.shape, target.dtype, target.quantisation)


def _is_same(source: Tensor, target: Tensor, given: Array, made: Array, can_be: Array) -> bool:
    return _is_alike(source, target) and bool((given == made)[can_be].all())


def clamps(op: Op) -> bool:
    """Whether it can have an activation."""
    return is_among(op, lambda kind: kind.clamps)


def fuse_activation(graph: Graph, choice: Choice) -> Graph:
    """Exact, because no computation lies between producer and clamp: the activation is all that reads its input, which
    the caller does not see, has the scale of that input, and its producer has no activation yet, or the same one."""
    for number in [op.number for op in graph.ops if op.kind in FUSED and choice(op)]:
        node = next(node for node in graph.nodes if node.op.number == number)
        graph = _fused(graph, node) or graph
    return graph


def _fused(graph: Graph, node: Node) -> Graph | None:
    source, target = node.input(0), node.output
    index = graph.producer.get(source.index)
    if index is None or graph.readers(source.index) != (node.op.index,) or is_seen_by_caller(graph, source.index):
        return None
    producer, activation = graph.ops[index], FUSED[node.op.kind]
    if not clamps(producer):
        return None
    activation = activation if producer.attributes.activation.value >= 0 else activation.unlimited
    if producer.attributes.activation not in (Activation.NONE, Activation.UNLIMITED, activation):
        return None
    if (source.dtype, source.quantisation) != (target.dtype, target.quantisation):
        return None
    attributes = replace(producer.attributes, activation=activation)
    fused = replace(producer, outputs=(target.index,), attributes=attributes)
    return edited(graph, without=[node.op.index], ops={index: fused})


def fold_pad(graph: Graph, choice: Choice) -> Graph:
    """Height and width alone are padded, with 0, and every reader can take that over. A convolution reads 0 beyond its
    borders. Max pooling reads nothing there, so its image must hold nothing below 0, and every window a part of it."""
    for number in [op.number for op in graph.ops if isinstance(kind_of(op.kind), PadKind) and choice(op)]:
        node = next(node for node in graph.nodes if node.op.number == number)
        graph = _folded(graph, node) or graph
    return graph


def _folded(graph: Graph, node: Node) -> Graph | None:
    """The graph without this op; None where it must stay."""
    source, target = node.input(0), node.output
    pads = zero_paddings_of(node)
    is_image = pads is not None and len(pads) == 4 and not any((*pads[0], *pads[3]))
    if not is_image or pads is None or source.is_constant or is_seen_by_caller(graph, target.index):
        return None
    if target.view is not None or target.index in graph.families:
        return None
    readers: dict[int, Op] = {}
    for index in graph.consumers.get(target.index, ()):
        reader = _with_border(graph, graph.nodes[index], source.index, pads)
        if reader is None:
            return None
        readers[index] = reader
    return edited(graph, without=[node.op.index], ops=readers)


def _with_border(graph: Graph, node: Node, source: int, pads: list[tuple[int, int]]) -> Op | None:
    """The op, reading what is padded; None if its results would change."""
    kind = kind_of(node.op.kind)
    if not isinstance(kind, WindowedKind) or node.op.kind not in kind.takes_padding:
        return None
    if node.op.inputs[0] in node.op.inputs[1:]:
        return None
    window = kind.window(node)
    (top, bottom), (left, right) = pads[1], pads[2]
    rows, cols = window.rows, window.cols
    padding = ExplicitPadding(
        top + rows.pad_before, bottom + rows.pad_after, left + cols.pad_before, right + cols.pad_after
    )
    op = replace(node.op, inputs=(source, *node.op.inputs[1:]), attributes=replace(node.attributes, padding=padding))
    if kind.takes.weights is not None:
        return op
    folded = kind.window(Node(op, (graph.tensors[source], *node.inputs[1:]), node.outputs))
    has_image = all(len(axis.first_reads()[0]) == axis.size_out for axis in (folded.rows, folded.cols))
    return op if has_image and _is_never_negative(graph, source) else None


def _is_never_negative(graph: Graph, tensor: int) -> bool:
    producer = graph.producer.get(tensor)
    if producer is None:
        return False
    op = graph.ops[producer]
    bounds = real_range(op.attributes.activation) if clamps(op) else CLAMPS.get(op.kind, (-1.0, 1.0))
    return bounds[0] >= 0
