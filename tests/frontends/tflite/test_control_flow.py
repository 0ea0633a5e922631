"""IF and WHILE whose course is known beforehand are unrolled; others are refused with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import diagmem
from diagmem.frontends import tflite
from diagmem.frontends.tflite import subgraphs
from diagmem.frontends.tflite.subgraphs import Branches, Loop, without_control_flow
from diagmem.frontends.tflite.writer import FlatTables
from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Graph, Node, Op, Tensor
from diagmem.ops import BuiltinOptions, kinds
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.elementwise.unary import Unary
from diagmem.ops.options import CustomOptions
from diagmem.verification import reference, tflm

X = np.array([-2, -1, 1, 2], np.float32)


def real(index: int) -> Tensor:
    return Tensor(index, f"t{index}", (4,), DType.FLOAT32)


def whole(index: int, value: int | None = None) -> Tensor:
    data = None if value is None else np.array([value], np.int32)
    return Tensor(index, f"t{index}", (1,), DType.INT32, is_constant=value is not None, data=data)


def flag(index: int, value: bool | None = None) -> Tensor:
    data = None if value is None else np.array([value], np.bool_)
    return Tensor(index, f"t{index}", (1,), DType.BOOL, is_constant=value is not None, data=data)


def one_op(kind: str) -> Graph:
    return Graph("part", (real(0), real(1)), (Op(0, kind, (0,), (1,), Unary()),), (0,), (1,))


def branching(is_taken: bool | None) -> tuple[Graph, dict[int, Graph]]:
    """y = neg(x) or abs(x), and then relu. The condition is given by the caller where it is None."""
    ops = (Op(0, "IF", (1, 0), (2,), Branches(1, 2)), Op(1, "RELU", (2,), (3,), Unary()))
    inputs = (0,) if is_taken is not None else (0, 1)
    main = Graph("net", (real(0), flag(1, is_taken), real(2), real(3)), ops, inputs, (3,))
    return main, {1: one_op("NEG"), 2: one_op("ABS")}


def looping(turns: int) -> tuple[Graph, dict[int, Graph]]:
    """x is doubled so many times."""
    main = Graph(
        "net",
        (real(0), whole(1, 0), whole(2), real(3)),
        (Op(0, "WHILE", (1, 0), (2, 3), Loop(1, 2)),),
        (0,),
        (3,),
    )
    condition = Graph(
        "condition",
        (whole(0), real(1), whole(2, turns), flag(3)),
        (Op(0, "LESS", (0, 2), (3,)),),
        (0, 1),
        (3,),
    )
    body = Graph(
        "body",
        (whole(0), real(1), whole(2, 1), whole(3), real(4)),
        (Op(0, "ADD", (0, 2), (3,), Binary()), Op(1, "ADD", (1, 1), (4,), Binary())),
        (0, 1),
        (3, 4),
    )
    return main, {1: condition, 2: body}


def result(graph: Graph) -> np.ndarray:
    return reference.run(graph, [X])[graph.outputs[0]]


@pytest.mark.parametrize("is_taken", [True, False])
def test_the_branch_that_is_taken_stands_in_the_graph(is_taken: bool) -> None:
    graph = without_control_flow(*branching(is_taken))
    assert [op.kind for op in graph.ops] == ["NEG" if is_taken else "ABS", "RELU"]
    assert np.array_equal(result(graph), np.maximum(0, -X if is_taken else np.abs(X)))


@pytest.mark.parametrize("turns", [1, 3])
def test_a_loop_stands_in_the_graph_as_often_as_it_is_run(turns: int) -> None:
    """What only counts is computed beforehand."""
    graph = without_control_flow(*looping(turns))
    assert [op.number for op in graph.ops] == list(range(turns))
    assert np.array_equal(result(graph), X * 2**turns)
    assert len(diagmem.plan(graph).plan.graph.ops) == turns


def test_what_depends_on_the_input_is_refused() -> None:
    """The line says which operation, and what is not known."""
    with pytest.raises(ModelError, match=r"op 0 't2' \(IF\): which branch is taken depends on the model's inputs"):
        without_control_flow(*branching(None))
    main, parts = looping(2)
    unknown = replace(main, tensors=(real(0), whole(1), *main.tensors[2:]), inputs=(0, 1))
    with pytest.raises(ModelError, match="how often it is run"):
        without_control_flow(unknown, parts)


def test_loops_without_end_are_refused() -> None:
    """Those that are run very often, that do nothing, and subgraphs that call each other in a circle."""
    with pytest.raises(ModelError, match="more than"):
        without_control_flow(*looping(10**6))
    main, parts = looping(2)
    idle = Graph("body", (whole(0), real(1)), (), (0, 1), (0, 1))
    with pytest.raises(ModelError, match="does not end"):
        without_control_flow(main, {**parts, 2: idle})
    main, parts = branching(True)
    circle = Graph("part", (real(0), flag(1, True), real(2)), (Op(0, "IF", (1, 0), (2,), Branches(1, 1)),), (0,), (2,))
    with pytest.raises(ModelError, match="cannot call"):
        without_control_flow(main, {1: circle, 2: circle})


def ifs(to: int, count: int) -> Graph:
    """So many IFs that call one subgraph."""
    ops = tuple(Op(i, "IF", (1, 0), (2 + i,), Branches(to, to)) for i in range(count))
    return Graph("part", (real(0), flag(1, True), *(real(2 + i) for i in range(count))), ops, (0,), (2,))


def nested(depth: int, count: int, last: Graph) -> tuple[Graph, dict[int, Graph]]:
    """`count` IFs, in each as many again, and so on; `last` is called from the deepest."""
    return ifs(1, count), {**{n: ifs(n + 1, count) for n in range(1, depth)}, depth: last}


PASSED_ON = Graph("part", (real(0),), (), (0,), (0,))


def test_calls_are_counted_where_nothing_but_calls_is_run() -> None:
    """10 IFs in each of 10 IFs, and so on 15 times, have no operation to run, and no end either."""
    with pytest.raises(ModelError, match="more than 10000 operations"):
        without_control_flow(*nested(15, 10, PASSED_ON))


def test_calls_are_as_deep_as_is_allowed_and_no_deeper() -> None:
    assert len(without_control_flow(*nested(subgraphs.MOST_DEPTH, 1, one_op("NEG"))).ops) == 1
    with pytest.raises(ModelError, match="cannot call"):
        without_control_flow(*nested(subgraphs.MOST_DEPTH + 1, 1, one_op("NEG")))
    # Calls that have ended do not count.
    main, parts = nested(subgraphs.MOST_DEPTH + 1, 1, one_op("NEG"))
    first = Op(0, "IF", (1, 0), (3,), Branches(subgraphs.MOST_DEPTH + 1, subgraphs.MOST_DEPTH + 1))
    main = replace(main, tensors=(*main.tensors, real(3)), ops=(first, *main.ops))
    with pytest.raises(ModelError, match="cannot call"):
        without_control_flow(main, parts)


def test_a_graph_is_unrolled_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of operations that are left, and of what is looked at on the way: 1 for each operation and wire of the loop, for
    each call, what it is given, and each tensor of the subgraph."""
    monkeypatch.setattr(subgraphs, "MOST_OPS", 10)
    assert len(without_control_flow(*looping(10)).ops) == 10
    with pytest.raises(ModelError, match="more than 10 operations"):
        without_control_flow(*looping(11))
    loop = 1 + 4
    condition, body = (1 + 2 + 4) + 4, (1 + 2 + 5) + 2 * 4
    monkeypatch.setattr(subgraphs, "MOST_LOOKED_AT", loop + 3 * condition + 2 * body)
    assert len(without_control_flow(*looping(2)).ops) == 2
    monkeypatch.setattr(subgraphs, "MOST_LOOKED_AT", loop + 3 * condition + 2 * body - 1)
    with pytest.raises(ModelError, match="more than"):
        without_control_flow(*looping(2))


def test_calls_that_do_not_fit_are_refused() -> None:
    """A subgraph that is not there, takes or gives another number of tensors, or reads and gives what nothing makes."""
    main, parts = branching(True)
    two = Graph("part", (real(0), real(1)), (), (0, 1), (0,))
    for wrong, why in (
        ({}, "cannot call subgraph 1 with 1 tensors"),
        ({1: two}, "cannot call subgraph 1 with 1 tensors"),
        ({1: replace(PASSED_ON, outputs=(0, 0))}, "1 outputs, its subgraph 2"),
        ({1: replace(one_op("NEG"), ops=())}, "subgraph 1 does not make all of its outputs"),
        ({1: replace(one_op("NEG"), ops=(Op(0, "NEG", (1,), (1,), Unary()),))}, "reads tensor 1, which nothing"),
        ({1: replace(one_op("NEG"), ops=(Op(0, "IF", (0,), (1,)),))}, "names no subgraphs"),
        ({1: replace(one_op("NEG"), ops=(Op(0, "IF", (), (1,), Branches(2, 2)),))}, "which branch is taken depends"),
    ):
        with pytest.raises(ModelError, match=why):
            without_control_flow(main, wrong)
    main, parts = looping(1)
    for condition in (replace(parts[1], outputs=()), replace(parts[1], outputs=(1,))):
        with pytest.raises(ModelError, match="how often it is run"):
            without_control_flow(main, {**parts, 1: condition})


class FileOfGraphs(FlatTables):
    """A graph and the subgraphs that it calls."""

    def content(self, graphs: list[Graph]) -> bytes:
        codes = sorted({op.kind for graph in graphs for op in graph.ops})
        values = [t.data for graph in graphs for t in graph.tensors if t.data is not None]
        filled = [self.table("Buffer", Data=self.data(v)) for v in values]
        buffers = iter(range(1, len(values) + 1))
        subgraphs = [self.subgraph(graph, codes, buffers) for graph in graphs]
        model = self.table(
            "Model",
            Version=3,
            OperatorCodes=self.offsets([self.operator_code(kind, 1) for kind in codes]),
            Subgraphs=self.offsets(subgraphs),
            Buffers=self.offsets([self.table("Buffer"), *filled]),
        )
        self.flat.Finish(model, file_identifier=b"TFL3")
        return bytes(self.flat.Output())

    def subgraph(self, graph: Graph, codes: list[str], buffers: Iterator[int]) -> int:
        tensors = [
            self.tensor(
                t.name, tuple(map(abs, t.shape)), t.dtype, next(buffers) if t.data is not None else 0, None, **m
            )
            for t, m in zip(graph.tensors, map(self.open_sizes, graph.tensors), strict=True)
        ]
        operators = [
            self.operator(codes.index(node.op.kind), node.op.inputs, node.op.outputs, self.options(node))
            for node in graph.nodes
        ]
        wires = {"Inputs": self.ints(graph.inputs), "Outputs": self.ints(graph.outputs)}
        return self.table("SubGraph", Tensors=self.offsets(tensors), Operators=self.offsets(operators), **wires)

    def open_sizes(self, tensor: Tensor) -> dict[str, int]:
        """Those known only when the model runs are -1 here; the shape in the file holds a 1."""
        return {"ShapeSignature": self.ints(tensor.shape)} if min(tensor.shape, default=0) < 0 else {}

    @staticmethod
    def options(node: Node) -> BuiltinOptions | CustomOptions | None:
        called = node.attributes
        if isinstance(called, Branches):
            fields = {"ThenSubgraphIndex": called.then, "ElseSubgraphIndex": called.otherwise}
            return BuiltinOptions("IfOptions", fields)
        if isinstance(called, Loop):
            fields = {"CondSubgraphIndex": called.condition, "BodySubgraphIndex": called.body}
            return BuiltinOptions("WhileOptions", fields)
        return kinds()[node.op.kind].encode(node)


@pytest.mark.parametrize("case", [branching(True), branching(False), looping(3)])
def test_files_are_unrolled(case: tuple[Graph, dict[int, Graph]]) -> None:
    """Read from a file, and as TensorFlow Lite Micro runs it, where it is installed."""
    main, parts = case
    data = FileOfGraphs().content([main, *(parts[n] for n in sorted(parts))])
    graph = tflite.parse(data, "net")
    assert np.array_equal(result(graph), result(without_control_flow(main, parts)))
    with pytest.raises(ModelError, match="unrolled"):
        diagmem.emit_tflm(data)
    if tflm.is_installed():
        (outputs,) = tflm.run(data, graph, [[X]]).outputs
        assert np.array_equal(np.frombuffer(outputs[0], np.float32), result(graph))
