"""CONCATENATION and PACK: those who make the parts write them where they will be wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from diagmem.model.graph import Graph, Node, Tensor, View, row_major_strides
from diagmem.ops import Activation
from diagmem.ops.kind import axis_of
from diagmem.transforms._editing import (
    Choice,
    Draft,
    NotExpressible,
    is_movable,
    moved_into,
    part_of,
)

KINDS = ("CONCATENATION", "PACK")


def remove_concat(graph: Graph, choice: Choice) -> Graph:
    """Inputs become views of the output, also through several of these ops.

    Each input must be whole in RAM, given once, unknown to the caller and quantised like the output; and all that touch
    it must have kernels that can address a view.

    Where one of them is a variable that is read where it lies, the output is a window over it and what is new: it lives
    for ever, so the caller may write what is new straight into it. What the variable is assigned must then not be
    overwritten while it is moved there, and the caller must not look at the window.
    """
    draft = Draft(graph)
    for op in graph.ops:
        if op.kind in KINDS and choice(op):
            _remove(draft, draft.node(op.index))
    return draft.graph()


def _remove(draft: Draft, node: Node) -> None:
    """Removes an op if nothing stands against it."""
    parts = [part for part in node.inputs if part is not None]
    has_state = any(draft.tensors[part.base].is_variable for part in parts)
    if not all(_may_move(draft, node, part, has_state) for part in parts):
        return
    if len({p.base for p in parts}) < len(node.inputs):
        return
    changed: list[Tensor] = []
    try:
        for part, place in zip(parts, _places(node), strict=True):
            root, *views = (draft.tensors[t] for t in draft.family(part.base))
            # The part may be a reshape of the root; that lies where the part does.
            inside = part_of(replace(part, view=place), root, 0, row_major_strides(root.shape))
            changed += moved_into(inside.view or place, root, views)
    except NotExpressible:
        return
    if not has_state or _is_sound_window(draft, node.output, changed):
        draft.replaced_by_views(node.op.index, changed)


def _is_sound_window(draft: Draft, whole: Tensor, parts: Sequence[Tensor]) -> bool:
    """Whether a window over variables, as it would be with these parts, keeps what they are assigned."""
    by_index = {part.index: part for part in parts}
    is_given = [part for part in parts if part.is_variable or part.index in draft.source.inputs]
    family = draft.family(whole.base)
    if not all(part.is_in_one_piece for part in is_given) or any(t in draft.source.outputs for t in family):
        return False
    for part in is_given:
        assign = draft.source.producer.get(part.index)
        if assign is not None:
            node = draft.node(assign)
            value = by_index.get(node.op.inputs[0], node.input(0))
            apart = value.offset_bytes - part.offset_bytes
            if value.base == part.base and not (value.is_in_one_piece and apart >= 0):
                return False
    return True


def _may_move(draft: Draft, node: Node, part: Tensor, has_state: bool) -> bool:
    root, whole = draft.tensors[part.base], node.output
    seen = draft.source.outputs if has_state else (*draft.source.inputs, *draft.source.outputs)
    return (
        (is_movable(root) or root.is_variable)
        and part.is_in_one_piece
        and part.elems == root.elems
        and root.base != whole.base
        and not any(member in seen for member in draft.family(root.index))
        and (part.dtype, part.quantisation) == (whole.dtype, whole.quantisation)
        and getattr(node.attributes, "activation", Activation.NONE) is Activation.NONE
    )


def _places(node: Node) -> Iterator[View]:
    """Where each input lies in the output."""
    whole, axis = node.output, axis_of(node.attributes.axis, len(node.output.shape))
    own = 0 if whole.view is None else whole.view.offset_elems
    if node.op.kind == "PACK":
        strides = (*whole.strides[:axis], *whole.strides[axis + 1 :])
        yield from (View(whole.base, own + i * whole.strides[axis], strides) for i in range(len(node.inputs)))
        return
    sizes = [node.input(position).shape[axis] for position in range(len(node.inputs))]
    for start in accumulate(sizes[:-1], initial=0):
        yield View(whole.base, own + start * whole.strides[axis], whole.strides)
