"""IF and WHILE: which branch is taken, and how often a loop is run, must be known before the model runs. Then what is
run stands in the graph, one operation after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from diagmem.model.errors import ModelError
from diagmem.model.graph import ABSENT, Graph, Node, Op, Tensor
from diagmem.ops.folding import folded
from diagmem.ops.kind import Array

MOST_OPS = 10_000
"""Of an unrolled graph."""
MOST_LOOKED_AT = 10 * MOST_OPS
"""Those of conditions included, each time that they are asked."""
MOST_DEPTH = 16
"""Of subgraphs that call each other: more are called in a circle."""


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


def control_flow_of(kind: str, options: Any) -> Branches | Loop | None:
    """What IF and WHILE call; None for all other operations."""
    if kind == "IF" and options is not None:
        return Branches(int(options.ThenSubgraphIndex()), int(options.ElseSubgraphIndex()))
    if kind == "WHILE" and options is not None:
        return Loop(int(options.CondSubgraphIndex()), int(options.BodySubgraphIndex()))
    return None


def called_subgraphs(graphs: Sequence[Graph]) -> set[int]:
    """Those that IF and WHILE call in any of these graphs."""
    found = [op.attributes for graph in graphs for op in graph.ops]
    branches = {n for a in found if isinstance(a, Branches) for n in (a.then, a.otherwise)}
    return branches | {n for a in found if isinstance(a, Loop) for n in (a.condition, a.body)}


def without_control_flow(graph: Graph, subgraphs: Mapping[int, Graph]) -> Graph:
    """The graph with what IF and WHILE run in their place. `subgraphs`: the others of the file, by number. Where there
    is any, operations are numbered anew."""
    if not any(op.kind in ("IF", "WHILE") for op in graph.ops):
        return graph
    return _Unrolled(graph, subgraphs).graph()


class _Unrolled:
    """A graph in the making. `values`: what is known of tensors beforehand."""

    def __init__(self, source: Graph, subgraphs: Mapping[int, Graph]) -> None:
        self.source, self.subgraphs = source, subgraphs
        self.tensors, self.ops = list(source.tensors), list[Op]()
        self.values: dict[int, Array] = {t.index: t.data for t in source.tensors if t.data is not None}
        self.constants: dict[tuple[int, int], int] = {}
        self.depth = self.looked_at = 0

    def graph(self) -> Graph:
        place = {t.index: t.index for t in self.source.tensors}
        self._run(self.source, place)
        outputs = tuple(place[t] for t in self.source.outputs)
        return replace(self.source, tensors=tuple(self.tensors), ops=tuple(self.ops), outputs=outputs)

    def _run(self, source: Graph, place: dict[int, int]) -> None:
        """Adds the operations of a graph whose tensors are known here by the numbers in `place`."""
        for node in source.nodes:
            given = [ABSENT if t == ABSENT else self._known_as(node, t, place) for t in node.op.inputs]
            if isinstance(node.attributes, Branches):
                found = self._branch(node, given)
            elif isinstance(node.attributes, Loop):
                found = self._loop(node, given)
            elif node.op.kind in ("IF", "WHILE"):
                raise ModelError(f"{node.label}: it names no subgraphs to run; the file is damaged")
            else:
                found = self._plain(node, given, place)
            if len(found) != len(node.op.outputs):
                raise ModelError(f"{node.label}: it has {len(node.op.outputs)} outputs, what it calls {len(found)}")
            place.update(zip(node.op.outputs, found, strict=True))

    def _known_as(self, node: Node, tensor: int, place: Mapping[int, int]) -> int:
        if tensor not in place:
            raise ModelError(f"{node.label}: it reads tensor {tensor}, which nothing produces; the file is damaged")
        return place[tensor]

    def _plain(self, node: Node, given: list[int], place: Mapping[int, int]) -> list[int]:
        self.looked_at += 1
        if len(self.ops) >= MOST_OPS or self.looked_at >= MOST_LOOKED_AT:
            raise ModelError(f"unrolled, its loops are more than {MOST_OPS} operations; convert the model without them")
        made = [place[t.index] if t.index in place else self._new(t) for t in node.outputs]
        op = replace(node.op, index=len(self.ops), inputs=tuple(given), outputs=tuple(made))
        self.ops.append(op)
        values = folded(Node(op, tuple(self._seen(t) for t in given), tuple(self.tensors[t] for t in made)))
        if values is not None:
            self.values.update(zip(made, values, strict=True))
        return made

    def _new(self, tensor: Tensor) -> int:
        self.tensors.append(replace(tensor, index=len(self.tensors)))
        return len(self.tensors) - 1

    def _seen(self, tensor: int) -> Tensor | None:
        """A tensor as folding sees it: constant, if its values are known."""
        if tensor == ABSENT:
            return None
        found = self.tensors[tensor]
        return replace(found, is_constant=True, data=self.values[tensor]) if tensor in self.values else found

    def _branch(self, node: Node, given: list[int]) -> list[int]:
        taken = self._answer(node, given[0] if given else ABSENT, "which branch is taken")
        return self._call(node, node.attributes.then if taken else node.attributes.otherwise, given[1:])

    def _loop(self, node: Node, given: list[int]) -> list[int]:
        while True:
            ops, tensors = len(self.ops), len(self.tensors)
            answers = self._call(node, node.attributes.condition, given)
            goes_on = self._answer(node, answers[0] if answers else ABSENT, "how often it is run")
            # What has been asked is known, and need not be run.
            del self.ops[ops:], self.tensors[tensors:]
            self.constants = {key: t for key, t in self.constants.items() if t < tensors}
            self.values = {t: value for t, value in self.values.items() if t < tensors}
            if not goes_on:
                return given
            before = len(self.ops)
            given = self._call(node, node.attributes.body, given)
            if len(self.ops) == before:
                raise ModelError(f"{node.label}: it does nothing, and does not end; the file is damaged")

    def _answer(self, node: Node, tensor: int, what: str) -> bool:
        if tensor not in self.values or self.values[tensor].size != 1:
            raise ModelError(
                f"{node.label}: {what} depends on what comes in, and cannot be unrolled; "
                "convert the model without control flow"
            )
        return bool(self.values[tensor].reshape(-1)[0])

    def _call(self, node: Node, number: int, given: list[int]) -> list[int]:
        """What a subgraph makes of some tensors."""
        source = self.subgraphs.get(number)
        if source is None or len(source.inputs) != len(given) or self.depth >= MOST_DEPTH:
            raise ModelError(f"{node.label}: it cannot call subgraph {number} with {len(given)} tensors")
        place = dict(zip(source.inputs, given, strict=True))
        for tensor in source.tensors:
            if tensor.is_constant and tensor.index not in place:
                place[tensor.index] = self._constant(number, tensor)
        self.depth += 1
        self._run(source, place)
        self.depth -= 1
        if any(t not in place for t in source.outputs):
            raise ModelError(f"{node.label}: subgraph {number} does not make all of its outputs; the file is damaged")
        return [place[t] for t in source.outputs]

    def _constant(self, number: int, tensor: Tensor) -> int:
        """One for all calls."""
        key = number, tensor.index
        if key not in self.constants:
            self.constants[key] = self._new(tensor)
            if tensor.data is not None:
                self.values[self.constants[key]] = tensor.data
        return self.constants[key]
