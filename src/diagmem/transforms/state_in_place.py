"""READ_VARIABLE: those who want to look at a variable look at it where it lies."""

from __future__ import annotations

from dataclasses import replace

from diagmem.model.graph import Graph, Op, Tensor, View, row_major_strides
from diagmem.transforms._editing import Choice, Draft, is_seen_by_caller, moved_into

READ, ASSIGN = "READ_VARIABLE", "ASSIGN_VARIABLE"

_MOVES = (
    *("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "SPLIT", "SPLIT_V", "SLICE", "STRIDED_SLICE", "UNPACK", "PACK"),
    *("CONCATENATION", "TRANSPOSE", "CAST", "QUANTIZE", "PAD", "PADV2", "MIRROR_PAD", "GATHER"),
)
"""Kinds whose output other transforms may leave where the input lies."""


def state_in_place(graph: Graph, choice: Choice) -> Graph:
    """What is read becomes a view of the variable, and the assignment comes last, when nobody looks any more.

    The variable must be assigned once at the most, after it is read. No other assignment that comes later may take its
    value from where the variable lies, which has changed by then.
    """
    draft = Draft(graph)
    moved: set[int] = set()
    for node in graph.nodes:
        if node.op.kind == READ and choice(node.op) and _stays_until_the_end(graph, node.op):
            variable = node.input(0)
            place = View(variable.base, _first_element(variable), row_major_strides(node.output.shape))
            views = [draft.tensors[t] for t in draft.family(node.output.index)[1:]]
            if draft.replaced_by_views(node.op.index, moved_into(place, node.output, views)):
                moved.add(variable.index)
    return _assigned_last(draft.graph(), moved) if moved else graph


def _first_element(tensor: Tensor) -> int:
    return 0 if tensor.view is None else tensor.view.offset_elems


def _stays_until_the_end(graph: Graph, read: Op) -> bool:
    """Whether the variable can be assigned after all else is done."""
    (variable,), (result,) = read.inputs, read.outputs
    touching = [op for op in graph.ops if variable in (*op.inputs, *op.outputs)]
    changes = [op for op in touching if op.kind != READ]
    if not graph.tensors[variable].is_variable:
        return False
    if is_seen_by_caller(graph, result) or graph.tensors[result].view is not None:
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
        if op.kind in _MOVES and reached & {*op.inputs}:
            reached |= {member for t in op.outputs for member in graph.sharing.get(t, (t,))}
    return reached


def _assigned_last(graph: Graph, variables: set[int]) -> Graph:
    """The graph with the assignments to some variables behind all other ops."""
    last = [op for op in graph.ops if op.kind == ASSIGN and variables & {*op.outputs}]
    first = [op for op in graph.ops if op not in last]
    return replace(graph, ops=tuple(replace(op, index=index) for index, op in enumerate((*first, *last))))
