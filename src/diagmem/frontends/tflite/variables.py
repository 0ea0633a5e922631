"""Resource variables: state that a file sets up once, in a subgraph of its own, and reads and assigns by handles.

In the graph a variable is a tensor, in the place of its first handle: a read is made from it, and an assignment writes
it. The operations that hand out handles, and the one that calls the subgraph, have nothing left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.errors import ModelError, one_line
from diagmem.model.graph import Graph, Node, Op, Tensor

CALL_ONCE, HANDLE, READ, ASSIGN = "CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"


@dataclass(frozen=True, slots=True)
class Name:
    """What a handle stands for: the same variable in all subgraphs."""

    container: str
    shared_name: str


@dataclass(frozen=True, slots=True)
class Called:
    """`subgraph`: the one that is run before anything else, in the first run only."""

    subgraph: int


def attributes_of(kind: str, options: Any, text: Callable[[bytes | None], str]) -> Name | Called | None:
    """Those of operations about variables; None for all others."""
    if kind == HANDLE and options is not None:
        return Name(text(options.Container()), text(options.SharedName()))
    if kind == CALL_ONCE and options is not None:
        return Called(int(options.InitSubgraphIndex()))
    return None


def called_once(graph: Graph) -> set[int]:
    """The subgraphs that are run before the first run."""
    return {op.attributes.subgraph for op in graph.ops if isinstance(op.attributes, Called)}


def with_variables(graph: Graph, subgraphs: Mapping[int, Graph]) -> Graph:
    """The graph with variables in place of handles. `subgraphs`: the others of the file, by number."""
    if not any(op.kind in (CALL_ONCE, HANDLE) for op in graph.ops):
        return graph
    initial: dict[Name, Tensor] = {}
    for number in sorted(called_once(graph)):
        initial.update(_set_up(subgraphs[number], number))
    _check_first(graph)
    names = _names(graph)
    variable: dict[Name, int] = {}
    for tensor, name in sorted(names.items()):
        variable.setdefault(name, tensor)
    found = dict(_variables(graph, names, variable, initial))
    ops = [_on_variables(op, names, variable) for op in graph.ops if op.kind not in (CALL_ONCE, HANDLE)]
    return replace(
        graph,
        tensors=tuple(found.get(t.index, t) for t in graph.tensors),
        ops=tuple(replace(op, index=index, origin=op.number) for index, op in enumerate(ops)),
    )


def _names(graph: Graph) -> dict[int, Name]:
    """Handle -> the variable that it stands for. Handles go to reads and assignments, and nowhere else."""
    names: dict[int, Name] = {}
    for node in graph.nodes:
        if node.op.kind == HANDLE:
            if not isinstance(node.attributes, Name) or len(node.outputs) != 1:
                raise ModelError(f"{node.label}: it does not name one variable; the file is damaged")
            names[node.output.index] = node.attributes
    for node in graph.nodes:
        is_access = node.op.kind in (READ, ASSIGN)
        for position, tensor in enumerate(node.op.inputs):
            if (tensor in names) != (is_access and position == 0):
                raise ModelError(f"{node.label}: input {position} must {'' if is_access else 'not '}be a handle")
        if node.op.kind == READ and (len(node.inputs), len(node.outputs)) != (1, 1):
            raise ModelError(f"{node.label}: it must have a handle as input, and one output; the file is damaged")
        if node.op.kind == ASSIGN and (len(node.inputs), len(node.outputs)) != (2, 0):
            raise ModelError(f"{node.label}: it must have a handle and a value as inputs; the file is damaged")
    if names.keys() & {*graph.inputs, *graph.outputs}:
        raise ModelError("a handle of a variable enters or leaves the graph, which is not supported")
    return names


def _check_first(graph: Graph) -> None:
    """What is set up once must be set up before it is used."""
    used = False
    for node in graph.nodes:
        used |= node.op.kind in (READ, ASSIGN)
        if node.op.kind == CALL_ONCE and (used or not isinstance(node.attributes, Called)):
            raise ModelError(f"{node.label}: it must name a subgraph, and come before all variables are used")


def _set_up(subgraph: Graph, number: int) -> Iterator[tuple[Name, Tensor]]:
    """The constants that a subgraph assigns, which must be all that it does."""
    names = _names(subgraph)
    for node in subgraph.nodes:
        if node.op.kind not in (HANDLE, ASSIGN):
            raise ModelError(
                f"subgraph {number}, which CALL_ONCE calls, {node.label}: it may only set variables to constants"
            )
        if node.op.kind == ASSIGN:
            value = node.input(1)
            if value.data is None:
                raise ModelError(f"subgraph {number}, {node.label}: the values of '{value.label}' are not in the file")
            yield names[node.op.inputs[0]], value


def _variables(
    graph: Graph, names: Mapping[int, Name], variable: Mapping[Name, int], initial: Mapping[Name, Tensor]
) -> Iterator[tuple[int, Tensor]]:
    """Index -> the variable that comes to stand there: of the type and shape of what is read from it, and written."""
    for name, index in variable.items():
        seen = [value for node in graph.nodes if (value := _value(node, names, name)) is not None]
        if not seen:
            continue
        like, first = seen[0], initial.get(name)
        for other in (*seen[1:], *([first] if first is not None else [])):
            if (other.shape, other.dtype) != (like.shape, like.dtype):
                raise ModelError(
                    f"variable '{one_line(name.shared_name)}': it is {_about(like)} here and {_about(other)} there; "
                    "the file is damaged"
                )
        bare = Tensor(index, name.shared_name, like.shape, like.dtype, like.quantisation, is_variable=True)
        yield index, replace(bare, initial=_first_values(bare, first))


def _first_values(variable: Tensor, given: Tensor | None) -> npt.NDArray[Any]:
    """What the file sets it to, or its zero point."""
    return variable.first_values if given is None or given.data is None else np.asarray(given.data)


def _value(node: Node, names: Mapping[int, Name], name: Name) -> Tensor | None:
    """What is read from a variable, or assigned to it."""
    if node.op.kind not in (READ, ASSIGN) or names[node.op.inputs[0]] != name:
        return None
    return node.output if node.op.kind == READ else node.input(1)


def _about(tensor: Tensor) -> str:
    return f"{tensor.dtype.value} {list(tensor.shape)}"


def _on_variables(op: Op, names: Mapping[int, Name], variable: Mapping[Name, int]) -> Op:
    if op.kind not in (READ, ASSIGN):
        return op
    own = (variable[names[op.inputs[0]]],)
    return replace(op, inputs=own) if op.kind == READ else replace(op, inputs=op.inputs[1:], outputs=own)
