"""One row of an operation in C: from its own kernel, or from the kernel for whole tensors cut down to one row."""

from __future__ import annotations

from dataclasses import replace

from diagmem.model.graph import Node, Tensor, Window1D
from diagmem.ops.c_call import CArgument, CCall, CPointers, CRow, CRows, CScratch, CTurn


def is_row_local(node: Node) -> bool:
    """Whether tensors have such shapes that row y of the output can be made of row y of each input, or of the only one
    that it has. What an operation does with them is another matter."""
    return len(node.outputs) == 1 and _has_rows(node.output) and all(_fits(t, node.output) for t in node.inputs if t)


def _has_rows(tensor: Tensor) -> bool:
    return len(tensor.shape) == 4 and tensor.shape[0] == 1


def _fits(tensor: Tensor, output: Tensor) -> bool:
    """A constant cannot be cut into rows."""
    if _has_rows(tensor):
        return tensor.shape[1] == 1 or (tensor.shape[1] == output.shape[1] and not tensor.is_constant)
    return len(tensor.shape) <= 2 or (len(tensor.shape) == 3 and tensor.shape[0] == 1)


def cut_to_row(node: Node) -> Node:
    """The node with tensors that are one row high."""
    return replace(
        node,
        inputs=tuple(None if t is None else _one_row(t) for t in node.inputs),
        outputs=tuple(_one_row(t) for t in node.outputs),
    )


def _one_row(tensor: Tensor) -> Tensor:
    if not _has_rows(tensor) or tensor.is_constant:
        return tensor
    return replace(tensor, shape=(1, 1, *tensor.shape[2:]))


def row_call(call: CCall, node: Node) -> CCall:
    """The call of a kernel for whole tensors, made for the node cut to a row, as that of one row of the node."""
    whole = {t.index: t for t in (*node.inputs, *node.outputs) if t is not None}

    def row(tensor: Tensor | CRow) -> Tensor | CRow:
        if isinstance(tensor, CRow) or tensor.is_constant:
            return tensor
        found = whole[tensor.index]
        return CRow(found, step=1 if _has_rows(found) and found.shape[1] > 1 else 0)

    def by_rows(argument: CArgument) -> CArgument:
        if isinstance(argument, CPointers):
            return replace(argument, tensors=tuple(row(t) for t in argument.tensors))
        return row(argument) if isinstance(argument, Tensor) else argument

    arguments = tuple(by_rows(a) for a in call.arguments)
    return replace(call, arguments=arguments, passes=call.passes * node.output.rows)


def window_row_call(call: CCall, node: Node, rows: Window1D) -> CCall:
    """The call of a windowed kernel's row function, from the call of the kernel."""
    further = (argument for argument in call.arguments if isinstance(argument, CScratch))
    arguments: tuple[CArgument, ...] = (CRows(node.input(0), rows), CRow(node.output), *further)
    return replace(call, function=f"{call.function}_row", arguments=arguments)


def taking_call(call: CCall, node: Node) -> CCall:
    """The call that takes one input row into sums, and makes the output of them when it has taken the last one."""
    arguments = (CTurn.NUMBER, CTurn.COUNT, CRow(node.input(0)), CTurn.SUMS, CRow(node.output, step=0))
    return replace(call, function=f"{call.function}_take", arguments=arguments, limits={})
