"""Loop and Scan whose course is known are unrolled, as onnxruntime runs them; others are refused with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import diagmem
from diagmem.frontends import onnx
from diagmem.frontends.onnx.lowering import control_flow
from diagmem.model.errors import ModelError
from tests.frontends.onnx import making
from tests.frontends.onnx.test_composed import assert_agrees, graph_of, number

UNITS = 3
WEIGHTS = np.random.default_rng(1).normal(size=(UNITS, UNITS)).astype(np.float32)
STEP = [
    making.node("MatMul", ["h", "w"], ["hw"]),
    making.node("Add", ["hw", "x_now"], ["sum"]),
    making.node("Tanh", ["sum"], ["h_new"]),
]
"""A recurrent layer: h_new = tanh(h w + x_now)."""


def values(names: Sequence[str], dtype: str = "float32") -> list[bytes]:
    shapes = {"float32": (1, UNITS), "int64": (), "bool": ()}
    return [making.value(name, shapes[dtype], dtype) for name in names]


def looping(
    most: int | None, last: int | None, outputs: Sequence[str] = ("h_last", "all"), behind: Sequence[bytes] = ()
) -> bytes:
    """A Loop over the rows of x, `most` times at the most, and until it is at row `last`; and the nodes behind it."""
    body = [
        making.node("Gather", ["x", "i"], ["x_now"], axis=0),
        *STEP,
        making.node("Squeeze", ["h_new", "zero"], ["entry"]),
        making.node("Less", ["i", "last"], ["goes_on"]),
    ]
    given = [*values(["i"], "int64"), *values(["before"], "bool"), *values(["h"])]
    made = [*values(["goes_on"], "bool"), *values(["h_new"]), making.value("entry", (UNITS,))]
    constants = {"w": WEIGHTS, "zero": np.array([0]), "last": np.array(1 << 40 if last is None else last)}
    inner = making.graph(body, given, made, constants)
    names = ["" if most is None else "most", "", "h0"]
    nodes = [making.node("Loop", names, ["h_last", "all"], body=inner), *behind]
    more = {"h0": np.zeros((1, UNITS), np.float32), "first": np.array([0]), "minus": np.array([-1])}
    more |= {"far": np.array([1 << 40])} | ({} if most is None else {"most": np.array(most)})
    return making.model(nodes, {"x": (5, 1, UNITS)}, dict.fromkeys(outputs), more)


@pytest.mark.parametrize(("most", "last"), [(5, None), (1, None), (None, 3), (3, 4), (4, 1)])
def test_a_loop_runs_as_often_as_is_known(most: int | None, last: int | None) -> None:
    """A number of times, until a condition says so, or whatever comes first; all that runs have made is one tensor."""
    assert_agrees(looping(most, last), (5, 1, UNITS))


def test_a_loop_needs_its_weights_once() -> None:
    """However often it runs."""
    graph = diagmem.plan(looping(5, None)).plan.graph
    read = {t for op in graph.ops for t in op.inputs if t >= 0 and graph.tensors[t].shape == (UNITS, UNITS)}
    assert len(read) == 1


def scanning(inputs: int, **attributes: Any) -> bytes:
    """A Scan over one or two sequences, the second along another axis."""
    body = [making.node("Mul", ["a", "b"], ["x_now"])] if inputs == 2 else [making.node("Neg", ["a"], ["x_now"])]
    body += [*STEP, making.node("Exp", ["h_new"], ["entry"])]
    names = ["a", "b"][:inputs]
    inner = making.graph(body, values(["h", *names]), values(["h_new", "entry"]), {"w": WEIGHTS})
    nodes = [making.node("Transpose", ["x"], ["turned"], perm=[1, 2, 0])]
    given = ["h0", "x", "turned"][: 1 + inputs]
    nodes += [making.node("Scan", given, ["h", "all"], num_scan_inputs=inputs, body=inner, **attributes)]
    constants = {"h0": np.ones((1, UNITS), np.float32)}
    return making.model(nodes, {"x": (4, 1, UNITS)}, {"h": (1, UNITS), "all": None}, constants)


@pytest.mark.parametrize(
    "attributes",
    [
        {"scan_input_axes": [0]},
        {"scan_input_directions": [1]},
        {"scan_output_directions": [1], "scan_output_axes": [2]},
        {"scan_output_axes": [-1]},
        {"scan_input_axes": [0, 2]},
        {"scan_input_axes": [0, -1], "scan_input_directions": [0, 1]},
    ],
)
def test_a_scan_goes_along_any_axis_forward_and_backward(attributes: dict[str, list[int]]) -> None:
    """Of one and of two inputs, and of what it collects."""
    count = len(attributes.get("scan_input_axes", [0]))
    assert_agrees(scanning(count, **attributes), (4, 1, UNITS))


def test_what_nobody_reads_is_not_kept() -> None:
    """Of a layer whose last output alone is used, as tf2onnx writes it, the others need no room."""
    nodes = [making.node("Slice", ["all", "minus", "far", "first"], ["last"])]
    content = looping(5, None, ("y",), [*nodes, making.node("Exp", ["last"], ["y"])])
    kinds = [op.kind for op in onnx.parse(content, "net").ops]
    assert "CONCATENATION" in [op.kind for op in graph_of(content).ops]
    assert "CONCATENATION" not in kinds
    assert kinds.count("TANH") == 5
    assert_agrees(content, (5, 1, UNITS))


def refused(content: bytes) -> str:
    with pytest.raises(ModelError) as error:
        graph_of(content)
    return str(error.value)


def test_loops_that_are_not_known_are_refused() -> None:
    """The line says what is not known: how often it runs, or the shape of nothing at all."""
    given = [*values(["i"], "int64"), *values(["c"], "bool"), *values(["h"])]
    greater = [making.node("ReduceMax", ["h"], ["m"], keepdims=0), making.node("Greater", ["m", "zero"], ["goes_on"])]
    ends = [*values(["goes_on"], "bool"), *values(["h"])]
    on_data = making.node("Loop", ["", "", "x"], ["y"], body=making.graph(greater, given, ends, {"zero": number(0)}))
    assert "how often it runs depends on the model's inputs" in refused(
        making.model([on_data], {"x": (1, 3)}, {"y": None})
    )
    assert "it never runs" in refused(looping(0, None))
    assert "its inputs differ in length" in refused(scanning(2, scan_input_axes=[0, 0]))


def test_loops_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that takes or makes something else, and more runs than the limit."""
    wrong = making.graph([], values(["h"]), values(["h"]), {})
    for names, outputs, why in ((["", "", "x"], ["y"], "takes 1 inputs"), (["", ""], ["y"], "takes 1 inputs")):
        node = making.node("Loop", names, outputs, body=wrong)
        assert why in refused(making.model([node], {"x": (1, 3)}, {"y": None}))
    assert "is no graph" in refused(
        making.model([making.node("Loop", ["", ""], ["y"], body=1)], {"x": (1, 3)}, {"y": None})
    )
    assert "2 outputs, its graph makes 1" in refused(
        making.model(
            [making.node("Scan", ["x"], ["y", "z"], num_scan_inputs=1, body=wrong)], {"x": (4, 1, 3)}, {"y": None}
        )
    )
    monkeypatch.setattr(control_flow, "MOST_OPS", 10)
    assert "more than 10 operations" in refused(looping(5, None))


def test_sequences_are_reversed() -> None:
    """As many steps of each; another number for each is refused."""

    def content(lengths: list[int]) -> bytes:
        node = making.node("ReverseSequence", ["x", "n"], ["y"], time_axis=1, batch_axis=0)
        return making.model([node], {"x": (2, 5, 3)}, {"y": None}, {"n": np.array(lengths)})

    assert_agrees(content([4, 4]), (2, 5, 3))
    assert "different lengths" in refused(content([4, 5]))
