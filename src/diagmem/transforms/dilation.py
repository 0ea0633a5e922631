"""Dilated convolutions that converters write as a convolution of every n-th pixel: SPACE_TO_BATCH_ND puts these into
images of their own, and BATCH_TO_SPACE_ND puts the results back. Taps that are neighbours there lie n apart in the
image.

Exact: every output is made of the same products in the same order, and what is padded is the same zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from diagmem.model.errors import ModelError
from diagmem.model.graph import ExplicitPadding, Graph, Node, Op, Shape, Tensor
from diagmem.model.sliding_window import Window1D
from diagmem.ops import OpKind, kind_of
from diagmem.ops.kind import Computed
from diagmem.ops.loops.windowed import WindowedKind
from diagmem.ops.moving.reshape import Reshape
from diagmem.ops.moving.space_batch import Blocks, blocks_of
from diagmem.transforms._editing import Choice, edited, is_movable, is_seen_by_caller

APART, TOGETHER = "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"

LONGEST = 8
"""Ops from one to the other."""


def fold_dilation(graph: Graph, choice: Choice) -> Graph:
    """One after the other, where nothing else reads what lies between."""
    for number in [op.number for op in graph.ops if op.kind == APART and choice(op)]:
        node = next(node for node in graph.nodes if node.op.number == number)
        chain = _chain(graph, node)
        if chain and choice(chain[-1].op):
            graph = _folded(graph, chain) or graph
    return graph


def _chain(graph: Graph, node: Node) -> list[Node]:
    """The ops from one to the other, each the only reader of the one before it; none, where there are no such."""
    found = [node]
    while found[-1].op.kind != TOGETHER:
        made = found[-1].output
        readers = graph.readers(made.index)
        if len(readers) != 1 or len(found) > LONGEST or is_seen_by_caller(graph, made.index):
            return []
        found.append(graph.nodes[readers[0]])
        given = [t.index for _, t in found[-1].activations()]
        if given != [made.index] or found[-1].op.inputs[0] != made.index or len(found[-1].outputs) != 1:
            return []
    tensors = [node.input(0), *(n.output for n in found)]
    return found if all(is_movable(t) and t.view is None and t.index not in graph.families for t in tensors) else []


@dataclass(frozen=True)
class _Unfolded:
    """`image`: what a convolution reads in the place of every n-th pixel; `blocks`: n along its rows and columns, with
    what is padded, less what is cropped."""

    image: Shape
    blocks: tuple[tuple[int, int, int], tuple[int, int, int]]


def _folded(graph: Graph, chain: Sequence[Node]) -> Graph | None:
    """The graph without the first and the last of these ops; None where they are no dilated convolution."""
    first, *inside, last = chain
    at = next((n for n, node in enumerate(inside) if _is_convolution(node)), None)
    unfolded = None if at is None else _unfolded(first, last, inside[at])
    if at is None or unfolded is None or not all(_is_alias(node) for node in inside[:at]):
        return None
    tensors: dict[int, Tensor] = {}
    ops: dict[int, Op] = {}
    now, image = first.input(0), unfolded.image
    for n, node in enumerate(inside):
        made = last.output if n == len(inside) - 1 else node.output
        op, spatial = node.op, image[:-1]
        if n == at:
            found = _dilated(node, unfolded)
            if found is None:
                return None
            op, image = found
        elif _is_alias(node):
            flat = len(node.output.shape) != 4
            shape = (*(last.output.shape[:-1] if flat else spatial), node.output.shape[-1])
            op = replace(op, kind="RESHAPE", inputs=op.inputs[:1], attributes=Reshape(new_shape=shape))
        elif not _is_pointwise(node):
            return None
        op = replace(op, inputs=(now.index, *op.inputs[1:]), outputs=(made.index,))
        shapes = _shapes(op, [now, *node.inputs[1 : len(op.inputs)]])
        if shapes is None or (made is last.output and shapes != (made.shape,)):
            return None
        now = replace(made, shape=shapes[0])
        tensors[made.index], ops[op.index] = now, op
    return edited(graph, without=[first.op.index, last.op.index], ops=ops, tensors=tensors.values())


def _is_convolution(node: Node) -> bool:
    """One that can be dilated."""
    kind = kind_of(node.op.kind)
    return isinstance(kind, WindowedKind) and hasattr(node.attributes, "dilation_h")


def _is_alias(node: Node) -> bool:
    kind = kind_of(node.op.kind)
    return kind is not None and kind.is_alias and _is_alike(node.input(0), node.output)


def _is_alike(source: Tensor, target: Tensor) -> bool:
    return (source.dtype, source.quantisation) == (target.dtype, target.quantisation)


def _is_pointwise(node: Node) -> bool:
    """Alike for all pixels."""
    kind, others = kind_of(node.op.kind), [t for t in node.inputs[1:] if t is not None]
    is_same = all(t.elems == (t.shape[-1] if t.shape else 1) for t in others)
    return kind is not None and kind.is_pointwise and is_same and node.output.shape[:-1] == node.input(0).shape[:-1]


def _shapes(op: Op, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...] | None:
    kind: OpKind | None = kind_of(op.kind)
    try:
        return None if kind is None else kind.output_shapes(op.kind, op.attributes, inputs)
    except ModelError:
        return None


def _unfolded(first: Node, last: Node, conv: Node) -> _Unfolded | None:
    """None where the blocks are not the same, or other axes than those of the convolution are cut."""
    try:
        apart, together = blocks_of(first.inputs), blocks_of(last.inputs)
    except (Computed, ModelError):
        return None
    source, image = first.input(0).shape, conv.input(0).shape
    is_same = apart.sizes == together.sizes and _is_alike(first.input(0), first.output)
    if not is_same or not _is_alike(last.input(0), last.output) or len(image) != 4 or image[-1] != source[-1]:
        return None
    axes = [(size, *_margin(apart, together, n)) for n, size in enumerate(apart.sizes)]
    if len(source) == 4 and len(axes) <= 2 and first.output.shape == image:
        rows, columns = (*axes, (1, 0, 0), (1, 0, 0))[:2]
        return _Unfolded(source, (rows, columns))
    if len(source) != 3 or len(axes) != 1 or first.output.shape[0] != image[0]:
        return None
    batch, length, depth = source
    if image[1] == 1:
        return _Unfolded((batch, 1, length, depth), ((1, 0, 0), axes[0]))
    return _Unfolded((batch, length, 1, depth), (axes[0], (1, 0, 0))) if image[2] == 1 else None


def _margin(apart: Blocks, together: Blocks, axis: int) -> tuple[int, int]:
    """What is padded before and behind, less what is cropped."""
    (before, behind), (first, last) = apart.margins[axis], together.margins[axis]
    return before - first, behind - last


def _dilated(node: Node, unfolded: _Unfolded) -> tuple[Op, Shape] | None:
    """The convolution of all pixels, and the shape of what it makes; None where it takes steps, or more is cropped than
    is padded."""
    kind, a = kind_of(node.op.kind), node.attributes
    assert isinstance(kind, WindowedKind)
    window = kind.window(node)
    pads = [_padding(axis, *block) for axis, block in zip((window.rows, window.cols), unfolded.blocks, strict=True)]
    if max(a.stride_h, a.stride_w) > 1 or min(map(min, pads)) < 0:
        return None
    (by_row, *_), (by_column, *_) = unfolded.blocks
    dilation = {"dilation_h": a.dilation_h * by_row, "dilation_w": a.dilation_w * by_column}
    op = replace(node.op, attributes=replace(a, padding=ExplicitPadding(*pads[0], *pads[1]), **dilation))
    shapes = _shapes(op, [replace(node.input(0), shape=unfolded.image), *node.inputs[1:]])
    return None if shapes is None else (op, shapes[0])


def _padding(axis: Window1D, block: int, before: int, behind: int) -> tuple[int, int]:
    return before + axis.pad_before * block, behind + axis.pad_after * block
