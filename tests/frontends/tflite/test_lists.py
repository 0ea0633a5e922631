"""Lists that loops fill are the tensors that they consist of: TensorLists, and tensors put together entry by entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import diagmem
from diagmem.frontends import tflite
from diagmem.frontends.tflite import lists
from diagmem.frontends.tflite.subgraphs import Loop, without_control_flow
from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Graph, Op, Quantisation, Tensor
from diagmem.ops import folding
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.elementwise.unary import Unary
from diagmem.ops.moving.concatenation import Concatenation
from diagmem.ops.moving.gather import Gather
from diagmem.ops.moving.reshape import Reshape
from diagmem.ops.moving.strided_slice import StridedSlice
from diagmem.verification import reference
from tests.frontends.tflite.test_control_flow import FileOfGraphs

COUNT, UNITS = 4, 3
X = np.random.default_rng(0).normal(size=(COUNT, 1, UNITS)).astype(np.float32)
H = np.cumsum(np.tanh(X), axis=0, dtype=np.float32)
"""What the loops below make: h becomes h + tanh(x[i])."""


@dataclass
class Part:
    """A graph as it is written."""

    tensors: list[Tensor] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)

    def tensor(self, shape: tuple[int, ...], dtype: DType = DType.FLOAT32, **more: Any) -> int:
        index = len(self.tensors)
        self.tensors.append(Tensor(index, f"t{index}", shape, dtype, **more))
        return index

    def ints(self, *values: int, shape: tuple[int, ...] | None = None) -> int:
        data = np.array(values, np.int32).reshape((len(values),) if shape is None else shape)
        return self.tensor(data.shape, DType.INT32, is_constant=True, data=data)

    def number(self, value: int) -> int:
        return self.ints(value, shape=())

    def op(
        self, kind: str, inputs: list[int], shape: tuple[int, ...], dtype: DType = DType.FLOAT32, given: Any = None
    ) -> int:
        made = self.tensor(shape, dtype)
        self.ops.append(Op(len(self.ops), kind, tuple(inputs), (made,), given))
        return made

    def graph(self, inputs: list[int], outputs: list[int]) -> Graph:
        return Graph("net", tuple(self.tensors), tuple(self.ops), tuple(inputs), tuple(outputs))


Kept = Callable[[Part, int, int, int, int], int]
"""Adds what sets entry i of a list: from the list, i, i + 1 and the entry to the new list."""


def joined(part: Part, made: int, i: int, after: int, entry: int) -> int:
    """As TensorFlow Lite's converter writes it; sizes that change from run to run are open."""

    def place(number: int, rest: int) -> int:
        one = part.op("RESHAPE", [number, part.ints(1)], (1,), DType.INT32, Reshape(new_shape=(1,)))
        return part.op("CONCATENATION", [one, part.ints(rest, rest)], (3,), DType.INT32, Concatenation())

    before = part.op("SLICE", [made, part.ints(0, 0, 0), place(i, -1)], (-1, 1, UNITS))
    behind = part.op("SLICE", [made, place(after, 0), part.ints(-1, -1, -1)], (-1, 1, UNITS))
    new = part.op("EXPAND_DIMS", [entry, part.number(0)], (1, 1, UNITS), given=Reshape())
    return part.op("CONCATENATION", [before, new, behind], (-1, 1, UNITS), given=Concatenation())


def updated(part: Part, made: int, i: int, after: int, entry: int) -> int:
    new = part.op("EXPAND_DIMS", [entry, part.number(0)], (1, 1, UNITS), given=Reshape())
    place = part.op("RESHAPE", [i, part.ints(1)], (1,), DType.INT32, Reshape(new_shape=(1,)))
    begin = part.op("CONCATENATION", [place, part.ints(0, 0)], (3,), DType.INT32, Concatenation())
    return part.op("DYNAMIC_UPDATE_SLICE", [made, new, begin], (COUNT, 1, UNITS))


def set_in(part: Part, made: int, i: int, after: int, entry: int) -> int:
    return part.op("CUSTOM:FlexTensorListSetItem", [made, i, entry], (), DType.INT32)


def looping(kept: Kept) -> list[Graph]:
    """The model, a loop's condition and its body."""
    is_list = kept is set_in
    main = Part()
    x, start = main.tensor((COUNT, 1, UNITS)), main.number(0)
    zero = np.zeros((COUNT, 1, UNITS), np.float32)
    h = main.tensor((1, UNITS), is_constant=True, data=zero[0])
    if is_list:
        made = main.op("CUSTOM:FlexTensorListReserve", [main.ints(-1, UNITS), main.number(COUNT)], (), DType.INT32)
        given = main.op("CUSTOM:FlexTensorListFromTensor", [x, main.ints(1, UNITS)], (), DType.INT32)
    else:
        made, given = main.tensor(zero.shape, is_constant=True, data=zero), x
    wires = [start, made, h, given]
    found = [main.tensor(main.tensors[t].shape if t != made else (1, 1, UNITS), main.tensors[t].dtype) for t in wires]
    main.ops.append(Op(len(main.ops), "WHILE", tuple(wires), tuple(found), Loop(1, 2)))
    if is_list:
        found[1] = main.op("CUSTOM:FlexTensorListStack", [found[1], main.ints(-1, UNITS)], (1, 1, 1))
    out = main.op("NEG", [found[1]], (1, 1, UNITS), given=Unary())
    last = [main.ints(-1, 0, 0), main.ints(0, 1, UNITS), main.ints(1, 1, 1)]
    end = main.op("STRIDED_SLICE", [found[1], *last], (1, UNITS), given=StridedSlice(6, 7, shrink_axis_mask=1))
    out_last = main.op("ABS", [end], (1, UNITS), given=Unary())
    outer = main.graph([x], [out, out_last])

    parts = [Part(), Part()]
    inputs = [[part.tensor(main.tensors[t].shape, main.tensors[t].dtype) for t in wires] for part in parts]
    condition, body = parts
    less = condition.op("LESS", [inputs[0][0], condition.number(COUNT)], (), DType.BOOL)
    i, made, h, given = inputs[1]
    after = body.op("ADD", [i, body.number(1)], (), DType.INT32, Binary())
    if is_list:
        now = body.op("CUSTOM:FlexTensorListGetItem", [given, i, body.ints(1, UNITS)], (1, 1))
    else:
        now = body.op("GATHER", [given, i], (1, UNITS), given=Gather(0, 0))
    entry = body.op("ADD", [h, body.op("TANH", [now], (1, UNITS), given=Unary())], (1, UNITS), given=Binary())
    kept_list = kept(body, made, i, after, entry)
    return [outer, condition.graph(inputs[0], [less]), body.graph(inputs[1], [after, kept_list, entry, given])]


def unrolled(graphs: list[Graph]) -> Graph:
    return without_control_flow(graphs[0], dict(enumerate(graphs[1:], 1)))


def check(graph: Graph, outputs: Any) -> None:
    for output, expected in zip(outputs, (-H, np.abs(H[-1])), strict=True):
        assert graph.tensors[graph.outputs[0]].shape == (COUNT, 1, UNITS)
        assert np.allclose(output, expected, rtol=1e-6)


@pytest.mark.parametrize("kept", [joined, updated, set_in])
def test_a_list_is_joined_once(kept: Kept) -> None:
    """However it is written, entries are computed where they are read from or written to, and nothing is moved as often
    as the loop runs."""
    graph = unrolled(looping(kept))
    found = reference.run(graph, [X])
    check(graph, [found[t] for t in graph.outputs])
    kinds = [op.kind for op in graph.ops]
    assert kinds.count("CONCATENATION") == 1
    assert kinds.count("TANH") == kinds.count("STRIDED_SLICE") == COUNT
    assert "SLICE" not in kinds
    assert {op.kind for op in diagmem.plan(graph).plan.graph.ops} == {"TANH", "ADD", "NEG", "ABS"}


@pytest.mark.parametrize("kept", [joined, updated])
def test_a_loop_in_a_file_runs_as_in_litert(kept: Kept) -> None:
    """Sizes that are open are what they become; TensorFlow Lite Micro, which infers none, is not asked."""
    data = FileOfGraphs().content(looping(kept))
    graph = tflite.parse(data, "net")
    found = reference.run(graph, [X])
    check(graph, [found[t] for t in graph.outputs])
    assert tflite.has_shapes_of_file(data, graph) == (kept is updated)
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="needs LiteRT")
    plain = litert.OpResolverType.BUILTIN_REF
    model = litert.Interpreter(model_content=data, experimental_op_resolver_type=plain)
    model.allocate_tensors()
    model.set_tensor(model.get_input_details()[0]["index"], X)
    model.invoke()
    check(graph, [model.get_tensor(detail["index"]) for detail in model.get_output_details()])


def test_without_a_loop_lists_are_tensors_too() -> None:
    """Entries that were never set are zeros; what is pushed comes last; a list knows its length."""
    part = Part()
    x = part.tensor((1, UNITS))
    made = part.op("CUSTOM:TensorListReserve", [part.ints(1, UNITS), part.number(2)], (), DType.INT32)
    made = part.op("CUSTOM:TensorListPushBack", [made, x], (), DType.INT32)
    whole = part.op("CUSTOM:TensorListStack", [made, part.ints(1, UNITS)], (3, 1, UNITS))
    graph = unrolled([part.graph([x], [part.op("NEG", [whole], (3, 1, UNITS), given=Unary())])])
    (out,) = graph.outputs
    expected = np.concatenate([np.zeros((2, 1, UNITS), np.float32), -X[:1]])
    assert np.array_equal(reference.run(graph, [X[0]])[out], expected)


def listed(kind: str, *more: Any) -> str:
    """Why an operation on a list of two entries, of which the second is set, is refused."""
    part = Part()
    x, n = part.tensor((1, UNITS)), part.tensor((), DType.INT32)
    made = part.op("CUSTOM:TensorListReserve", [part.ints(1, UNITS), part.number(2)], (), DType.INT32)
    made = part.op("CUSTOM:TensorListSetItem", [made, part.number(1), x], (), DType.INT32)
    names = {"x": x, "n": n, "list": made}
    inputs = [part.number(given) if isinstance(given, int) else names[given] for given in more]
    out = part.op(kind, inputs, (1, UNITS), given=Unary() if kind == "NEG" else None)
    with pytest.raises(ModelError) as error:
        unrolled([part.graph([x, n], [part.op("ABS", [out], (1, UNITS), given=Unary())])])
    return str(error.value)


def test_what_lists_cannot_do_is_refused() -> None:
    """In one line that says what to do, or that the file is damaged."""
    assert "its place in the list depends on the model's inputs" in listed("CUSTOM:TensorListGetItem", "list", "n", "x")
    assert "convert with a fixed batch size" in listed("CUSTOM:TensorListConcatV2", "list")
    assert "is a TensorList" in listed("NEG", "list")
    assert "entry 2 of a list of 2; the file is damaged" in listed("CUSTOM:TensorListGetItem", "list", 2, "x")
    assert "no TensorList; the file is damaged" in listed("CUSTOM:TensorListGetItem", "x", 1, "x")
    assert "at most" in listed("CUSTOM:TensorListReserve", "x", lists.MOST_ENTRIES + 1)


def test_lists_of_other_scales_or_axes_stay_operations() -> None:
    """A join that rescales, and one along another axis, compute or move what they say."""
    part = Part()
    a, b = (part.tensor((1, 4), DType.INT8, quantisation=Quantisation((s,), (0,))) for s in (0.5, 0.25))
    for axis, other in ((0, b), (1, a)):
        made = part.tensor((2, 4) if not axis else (1, 8), DType.INT8, quantisation=Quantisation((0.5,), (0,)))
        part.ops.append(Op(len(part.ops), "CONCATENATION", (a, other), (made,), Concatenation(axis)))
    part.op("CUSTOM:EmptyTensorList", [a, b], (), DType.INT32)
    graph = unrolled([part.graph([a, b], [2, 3])])
    assert [op.kind for op in graph.ops] == ["CONCATENATION"] * 2


def test_what_loops_compute_beforehand_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """So are entries that were never set."""
    monkeypatch.setattr(folding, "LEAST_ALLOWANCE", 2999)
    part = Part()
    x = part.tensor((1, UNITS))
    made = part.op("CUSTOM:TensorListReserve", [part.ints(1, UNITS), part.number(1000)], (), DType.INT32)
    whole = part.op("CUSTOM:TensorListStack", [made, part.ints(1, UNITS)], (1000, 1, UNITS))
    with pytest.raises(ModelError, match="its constants are too large"):
        unrolled([part.graph([x], [part.op("NEG", [whole], (1000, 1, UNITS), given=Unary())])])
