"""Subgraphs that operations call.

IF and WHILE: which branch is taken, and how often a loop runs, must be known before the model runs. The operations that
run are then written into the graph, one after the other; what a loop counts is computed here.

Resource variables: state that a file sets up once, in a subgraph of its own, and reads and assigns through handles. In
the graph a variable is a tensor, at the index of its first handle, which reads and assignments use directly. The
operations that hand out handles, and the one that calls the subgraph, disappear.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from diagmem.frontends.checks import inferred_shapes
from diagmem.frontends.tflite.lists import Lists, list_kind
from diagmem.model.errors import ModelError, damaged, one_line
from diagmem.model.graph import ABSENT, Graph, Node, Op, Tensor
from diagmem.ops.folding import Allowance, folded
from diagmem.ops.kind import Array

MOST_OPS = 10_000
"""Of an unrolled graph."""
MOST_LOOKED_AT = 40 * MOST_OPS
"""Operations with their inputs and outputs, and the tensors of subgraphs that are called: each time that they are
looked at, in conditions too."""
MOST_DEPTH = 16
"""Of subgraphs that call each other: beyond that, they call themselves."""


@dataclass(frozen=True, slots=True)
class Branches:
    """The subgraphs of IF."""

    then: int
    otherwise: int


@dataclass(frozen=True, slots=True)
class Loop:
    """The subgraphs of WHILE."""

    condition: int
    body: int


def called_subgraphs(graph: Graph) -> set[int]:
    """Those that IF and WHILE call, and those that set up variables."""
    found = [op.attributes for op in graph.ops]
    branches = {n for a in found if isinstance(a, Branches) for n in (a.then, a.otherwise)}
    loops = {n for a in found if isinstance(a, Loop) for n in (a.condition, a.body)}
    return branches | loops | called_once(graph)


def without_control_flow(graph: Graph, subgraphs: Mapping[int, Graph], dynamic: Collection[int] = ()) -> Graph:
    """The graph with what IF and WHILE run in their place, and without lists. `subgraphs`: the others of the file, by
    number. `dynamic`: tensors of the graph whose shapes in the file are unreliable; those in subgraphs are not relied
    on at all. Operations are renumbered if there is any control flow."""
    if not any(op.kind in ("IF", "WHILE") or list_kind(op.kind) for op in graph.ops):
        return graph
    return _Unrolled(graph, subgraphs, dynamic).graph()


def with_lists_joined(graph: Graph) -> Graph:
    """The graph without copies to and from tensors that are put together entry by entry."""
    return _Unrolled(graph, {}, ()).graph()


class _Unrolled:
    """The unrolled graph as far as it is built. `values`: of the tensors that are known beforehand."""

    def __init__(self, source: Graph, subgraphs: Mapping[int, Graph], dynamic: Collection[int]) -> None:
        self.source, self.subgraphs, self.dynamic = source, subgraphs, dynamic
        self.tensors, self.ops = list(source.tensors), list[Op]()
        self.values: dict[int, Array] = {t.index: t.data for t in source.tensors if t.data is not None}
        self.constants: dict[tuple[int, int], int] = {}
        self.depth, self.left = 0, MOST_LOOKED_AT
        self.lists = Lists(self)
        constants = (t for graph in (source, *subgraphs.values()) for t in graph.tensors)
        self.allowance = Allowance.for_constants(constants)

    def graph(self) -> Graph:
        place = {t.index: t.index for t in self.source.tensors}
        self._run(self.source, place)
        outputs = tuple(self.lists.whole(place[t]) for t in self.source.outputs)
        return replace(self.source, tensors=tuple(self.tensors), ops=tuple(self.ops), outputs=outputs)

    def _run(self, source: Graph, place: dict[int, int]) -> None:
        """Adds the operations of a graph whose tensors are known here by the numbers in `place`."""
        for node in source.nodes:
            self._look_at(1 + len(node.op.inputs) + len(node.op.outputs))
            missing = [t for t in node.op.inputs if t != ABSENT and t not in place]
            if missing:
                raise damaged(f"{node.label}: it reads tensor {missing[0]}, which nothing produces")
            given = [ABSENT if t == ABSENT else place[t] for t in node.op.inputs]
            if isinstance(node.attributes, Branches):
                taken = self._answer(node, given[0] if given else ABSENT, "which branch is taken")
                number = node.attributes.then if taken else node.attributes.otherwise
                found = self._call(node, number, given[1:])
            elif isinstance(node.attributes, Loop):
                found = self._loop(node, given)
            elif node.op.kind in ("IF", "WHILE"):
                raise damaged(f"{node.label}: it names no subgraphs to run")
            else:
                found = self._plain(node, given, place)
            if len(found) != len(node.op.outputs):
                raise ModelError(f"{node.label}: it has {len(node.op.outputs)} outputs, its subgraph {len(found)}")
            place.update(zip(node.op.outputs, found, strict=True))

    def _look_at(self, count: int) -> None:
        self.left -= count
        if len(self.ops) > MOST_OPS or self.left < 0:
            raise ModelError(f"unrolled, it has more than {MOST_OPS} operations; convert it without control flow")

    def _plain(self, node: Node, given: list[int], place: Mapping[int, int]) -> list[int]:
        """What is known beforehand needs no operation, except where the caller may look at it; nor do lists."""
        node = self._with_shapes(node, tuple(self._seen(t) for t in given))
        values = folded(node, self.allowance)
        if values is not None and self.depth:
            return [self.constant(t, value) for t, value in zip(node.outputs, values, strict=True)]
        listed = self.lists.made(node, given) if values is None else None
        if listed is not None:
            self._look_at(len(self.lists.rows.get(listed, ())))
            return [listed]
        made = [self._placed(t, place) for t in node.outputs]
        given = [self.lists.whole(t) for t in given]
        self.ops.append(replace(node.op, index=len(self.ops), inputs=tuple(given), outputs=tuple(made)))
        self.values.update(zip(made, values or (), strict=False))
        if node.op.kind == "EXPAND_DIMS" and node.output.shape == (1, *node.input(0).shape):
            self.lists.items[made[0]] = given[0]
        return made

    def _with_shapes(self, node: Node, inputs: tuple[Tensor | None, ...]) -> Node:
        """The operation with inputs as they are, and with outputs of the shapes that follow."""
        shapes_before = (None if t is None else t.shape for t in node.inputs)
        is_changed = any(t is not None and t.shape != s for t, s in zip(inputs, shapes_before, strict=True))
        found = Node(node.op, inputs, node.outputs)
        if list_kind(node.op.kind) or not (self.depth or is_changed or {*node.op.outputs} & {*self.dynamic}):
            return found
        shapes = inferred_shapes(found, is_changed)
        return replace(found, outputs=tuple(replace(t, shape=s) for t, s in zip(node.outputs, shapes, strict=True)))

    def _placed(self, tensor: Tensor, place: Mapping[int, int]) -> int:
        """A tensor that an operation makes: in the graph itself, where it stands already."""
        index = place.get(tensor.index)
        if index is None:
            return self.new(tensor)
        self.tensors[index] = replace(tensor, index=index)
        return index

    # What lists use.

    def new(self, tensor: Tensor) -> int:
        self.tensors.append(replace(tensor, index=len(self.tensors)))
        return len(self.tensors) - 1

    def constant(self, like: Tensor, values: Array) -> int:
        if not self.allowance.take(values.size):
            raise ModelError(
                "unrolled, its constants are too large, made from so small a file; convert it without loops"
            )
        index = self.new(replace(like, shape=values.shape, is_constant=True, data=values))
        self.values[index] = values
        return index

    def emit(self, kind: str, given: Sequence[int], attributes: object, like: Tensor) -> int:
        self._look_at(1 + len(given))
        made = self.new(like)
        self.ops.append(Op(len(self.ops), kind, tuple(given), (made,), attributes))
        return made

    def _seen(self, tensor: int) -> Tensor | None:
        """A tensor as folding sees it: constant, if its values are known."""
        if tensor == ABSENT:
            return None
        found = self.tensors[tensor]
        return replace(found, is_constant=True, data=self.values[tensor]) if tensor in self.values else found

    def _loop(self, node: Node, given: list[int]) -> list[int]:
        while True:
            ops, tensors = len(self.ops), len(self.tensors)
            added: tuple[dict[Any, Any], ...] = self.constants, self.lists.rows, self.lists.items, self.lists.wholes
            sizes = [len(entries) for entries in added]
            answers = self._call(node, node.attributes.condition, given)
            goes_on = self._answer(node, answers[0] if answers else ABSENT, "how often it is run")
            # The answer is known, so its operations need not run.
            for made in range(tensors, len(self.tensors)):
                self.values.pop(made, None)
                self.lists.handles.discard(made)
            for entries, size in zip(added, sizes, strict=True):
                while len(entries) > size:
                    entries.popitem()
            del self.ops[ops:], self.tensors[tensors:]
            if not goes_on:
                return given
            given = self._call(node, node.attributes.body, given)
            if not self.subgraphs[node.attributes.body].ops:
                raise damaged(f"{node.label}: it does nothing, and does not end")

    def _answer(self, node: Node, tensor: int, what: str) -> bool:
        if tensor not in self.values or self.values[tensor].size != 1:
            raise ModelError(
                f"{node.label}: {what} depends on the model's inputs, so it cannot be unrolled; "
                "convert the model without control flow"
            )
        return bool(self.values[tensor].reshape(-1)[0])

    def _call(self, node: Node, number: int, given: list[int]) -> list[int]:
        """Runs a subgraph on these tensors; its outputs."""
        source = self.subgraphs.get(number)
        if source is None or len(source.inputs) != len(given) or self.depth >= MOST_DEPTH:
            raise ModelError(f"{node.label}: it cannot call subgraph {number} with {len(given)} tensors")
        place = dict(zip(source.inputs, given, strict=True))
        self._look_at(1 + len(given) + len(source.tensors))
        for tensor in source.tensors:
            if tensor.is_constant and tensor.index not in place:
                place[tensor.index] = self._constant(number, tensor)
        self.depth += 1
        self._run(source, place)
        self.depth -= 1
        if any(t not in place for t in source.outputs):
            raise damaged(f"{node.label}: subgraph {number} does not make all of its outputs")
        return [place[t] for t in source.outputs]

    def _constant(self, number: int, tensor: Tensor) -> int:
        """One for all calls."""
        key = number, tensor.index
        if key not in self.constants:
            self.constants[key] = self.new(tensor)
            if tensor.data is not None:
                self.values[self.constants[key]] = tensor.data
        return self.constants[key]


CALL_ONCE, HANDLE, READ, ASSIGN = "CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"


@dataclass(frozen=True, slots=True)
class Name:
    """The variable of a handle, the same in all subgraphs."""

    container: str
    shared_name: str


@dataclass(frozen=True, slots=True)
class Called:
    """`subgraph`: what runs before anything else, in the first run only."""

    subgraph: int


def attributes_of(
    kind: str, options: Any, text: Callable[[bytes | None], str]
) -> Branches | Loop | Name | Called | None:
    """Those of operations that call subgraphs or hand out variables; None for all others."""
    if options is None:
        return None
    if kind == "IF":
        return Branches(int(options.ThenSubgraphIndex()), int(options.ElseSubgraphIndex()))
    if kind == "WHILE":
        return Loop(int(options.CondSubgraphIndex()), int(options.BodySubgraphIndex()))
    if kind == HANDLE:
        return Name(text(options.Container()), text(options.SharedName()))
    return Called(int(options.InitSubgraphIndex())) if kind == CALL_ONCE else None


def called_once(graph: Graph) -> set[int]:
    """The subgraphs that set up variables before the first run."""
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
    ops: list[Op] = []
    for op in (op for op in graph.ops if op.kind not in (CALL_ONCE, HANDLE)):
        if op.kind in (READ, ASSIGN):
            own = (variable[names[op.inputs[0]]],)
            op = replace(op, inputs=own) if op.kind == READ else replace(op, inputs=op.inputs[1:], outputs=own)
        ops.append(replace(op, index=len(ops), origin=op.number))
    return replace(graph, tensors=tuple(found.get(t.index, t) for t in graph.tensors), ops=tuple(ops))


def _names(graph: Graph) -> dict[int, Name]:
    """Handle -> its variable. Handles go to reads and assignments, and nowhere else."""
    names: dict[int, Name] = {}
    for node in graph.nodes:
        if node.op.kind == HANDLE:
            if not isinstance(node.attributes, Name) or len(node.outputs) != 1:
                raise damaged(f"{node.label}: it does not name one variable")
            names[node.output.index] = node.attributes
    for node in graph.nodes:
        is_access = node.op.kind in (READ, ASSIGN)
        for position, tensor in enumerate(node.op.inputs):
            if (tensor in names) != (is_access and position == 0):
                raise ModelError(f"{node.label}: input {position} must {'' if is_access else 'not '}be a handle")
        if node.op.kind == READ and (len(node.inputs), len(node.outputs)) != (1, 1):
            raise damaged(f"{node.label}: it must have a handle as input, and one output")
        if node.op.kind == ASSIGN and (len(node.inputs), len(node.outputs)) != (2, 0):
            raise damaged(f"{node.label}: it must have a handle and a value as inputs")
    if names.keys() & {*graph.inputs, *graph.outputs}:
        raise ModelError("a handle of a variable enters or leaves the graph, which is not supported")
    return names


def _check_first(graph: Graph) -> None:
    """Variables must be set up before they are used."""
    used = False
    for node in graph.nodes:
        used |= node.op.kind in (READ, ASSIGN)
        if node.op.kind == CALL_ONCE and (used or not isinstance(node.attributes, Called)):
            raise ModelError(f"{node.label}: it must name a subgraph, and come before all variables are used")


def _set_up(subgraph: Graph, number: int) -> Iterator[tuple[Name, Tensor]]:
    """The constants that a subgraph assigns; it may do nothing else."""
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
    """Index -> the variable there, with the type and shape of what is read from it and assigned to it."""
    for name, index in variable.items():
        seen = [value for node in graph.nodes if (value := _value(node, names, name)) is not None]
        if not seen:
            continue
        like, first = seen[0], initial.get(name)
        for other in (*seen[1:], *([first] if first is not None else [])):
            if (other.shape, other.dtype) != (like.shape, like.dtype):
                both = " and ".join(f"{t.dtype.value} {list(t.shape)}" for t in (like, other))
                raise damaged(f"variable '{one_line(name.shared_name)}': it is used as {both}")
        bare = Tensor(index, name.shared_name, like.shape, like.dtype, like.quantisation, is_variable=True)
        # The file's initial values, or the zero point.
        values = bare.first_values if first is None or first.data is None else np.asarray(first.data)
        yield index, replace(bare, initial=values)


def _value(node: Node, names: Mapping[int, Name], name: Name) -> Tensor | None:
    """What is read from a variable, or assigned to it."""
    if node.op.kind not in (READ, ASSIGN) or names[node.op.inputs[0]] != name:
        return None
    return node.output if node.op.kind == READ else node.input(1)
