"""Avoids copies: parts are written or read where the whole lies, and state where it stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from diagmem.model.graph import Graph, Node, Op, Tensor, View, row_major_strides
from diagmem.ops import Activation
from diagmem.ops.kind import axis_of
from diagmem.transforms._editing import (
    Choice,
    Draft,
    NotExpressible,
    Taken,
    is_among,
    is_movable,
    is_seen_by_caller,
    makes_parts,
    moved_into,
    only_moves,
    part_at,
    part_of,
    taken_by,
)


def remove_concat(graph: Graph, choice: Choice) -> Graph:
    """Inputs become views of the output, also through several of these ops.

    Each input must be whole in RAM, used once, not seen by the caller and quantised like the output; and every op that
    touches it must have a kernel that can address a view.

    If one of them is a variable that is read in place, the output is a window over it and the new part. The window
    lives for ever, so the caller may write the new part straight into it. What the variable is assigned must then not
    be overwritten while it is moved there, and the caller must not see the window.
    """
    draft = Draft(graph)
    for op in graph.ops:
        if is_among(op, lambda kind: kind.joins) and choice(op):
            _remove_join(draft, draft.node(op.index))
    return draft.graph()


def _remove_join(draft: Draft, node: Node) -> None:
    """Removes an op if that is allowed."""
    parts = [part for part in node.inputs if part is not None]
    has_state = any(draft.tensors[part.base].is_variable for part in parts)
    if not all(_may_be_part(draft, node, part, has_state) for part in parts):
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


def _has_own_place(graph: Graph, tensor: int) -> bool:
    return is_seen_by_caller(graph, tensor) or tensor in graph.apart


def _may_be_part(draft: Draft, node: Node, part: Tensor, has_state: bool) -> bool:
    root, whole = draft.tensors[part.base], node.output
    seen = {*draft.source.outputs, *draft.source.apart, *(() if has_state else draft.source.inputs)}
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


def remove_slices(graph: Graph, choice: Choice) -> Graph:
    """Outputs become views of the input, which must lie in RAM. What is taken must be constant and expressible by
    strides, the caller may see no output, and every reader must have a kernel that can address a view. A slice of a
    slice is removed first, so that it does not block the other one."""
    draft = Draft(graph)
    for op in reversed(graph.ops):
        if makes_parts(op) and choice(op):
            _remove_cut(draft, draft.node(op.index))
    return draft.graph()


def _remove_cut(draft: Draft, node: Node) -> None:
    """Removes an op if that is allowed."""
    taken = taken_by(node)
    if taken is None or not is_movable(taken.source):
        return
    source = taken.source
    is_alike = all((t.dtype, t.quantisation) == (source.dtype, source.quantisation) for t in node.outputs)
    if not is_alike or any(_has_own_place(draft.source, t.index) or t.view is not None for t in node.outputs):
        return
    try:
        views = [part for number, output in enumerate(node.outputs) for part in _parts(draft, taken, number, output)]
    except NotExpressible:
        return
    draft.replaced_by_views(node.op.index, views)


def _parts(draft: Draft, taken: Taken, number: int, output: Tensor) -> list[Tensor]:
    """An output, and its own views, as views of the source."""
    part = part_at(taken.source, output, taken.elements(number))
    views = [draft.tensors[t] for t in draft.family(output.index)[1:]]
    return [part] if part.view is None else moved_into(part.view, output, views)


READ, ASSIGN = "READ_VARIABLE", "ASSIGN_VARIABLE"


def state_in_place(graph: Graph, choice: Choice) -> Graph:
    """What is read becomes a view of the variable, and the assignment comes last, when nothing reads it any more.

    The variable must be assigned at most once, after it is read. No later assignment may take its value from where the
    variable lies, which has changed by then.
    """
    draft = Draft(graph)
    moved: set[int] = set()
    for node in graph.nodes:
        if node.op.kind == READ and choice(node.op) and _stays_until_the_end(graph, node.op):
            variable = node.input(0)
            first = 0 if variable.view is None else variable.view.offset_elems
            place = View(variable.base, first, row_major_strides(node.output.shape))
            views = [draft.tensors[t] for t in draft.family(node.output.index)[1:]]
            if draft.replaced_by_views(node.op.index, moved_into(place, node.output, views)):
                moved.add(variable.index)
    return _assigned_last(draft.graph(), moved) if moved else graph


def _stays_until_the_end(graph: Graph, read: Op) -> bool:
    """Whether the variable can be assigned after everything else."""
    (variable,), (result,) = read.inputs, read.outputs
    touching = [op for op in graph.ops if variable in (*op.inputs, *op.outputs)]
    changes = [op for op in touching if op.kind != READ]
    if not graph.tensors[variable].is_variable:
        return False
    if _has_own_place(graph, result) or graph.tensors[result].view is not None:
        return False
    if len(changes) > 1 or any(op.kind != ASSIGN or variable not in op.outputs for op in changes):
        return False
    if not changes:
        return True
    assign = changes[0].index
    reached = _moved_from(graph, [t for op in touching if op.kind == READ for t in op.outputs])
    later = (op for op in graph.ops[assign + 1 :] if op.kind == ASSIGN)
    return all(op.index < assign for op in touching if op.kind == READ) and not any(
        reached & {*op.inputs} for op in later
    )


def _moved_from(graph: Graph, tensors: list[int]) -> set[int]:
    """The tensors that may come to lie where some tensors lie, or hold them."""
    reached = {member for t in tensors for member in graph.sharing.get(t, (t,))}
    for op in graph.ops:
        if only_moves(op) and reached & {*op.inputs}:
            reached |= {member for t in op.outputs for member in graph.sharing.get(t, (t,))}
    return reached


def _assigned_last(graph: Graph, variables: set[int]) -> Graph:
    """The graph with the assignments to some variables behind all other ops."""
    last = [op for op in graph.ops if op.kind == ASSIGN and variables & {*op.outputs}]
    first = [op for op in graph.ops if op not in last]
    return replace(graph, ops=tuple(replace(op, index=index) for index, op in enumerate((*first, *last))))
