"""Functions that a file defines, nodes in any order, numbers of half a float32."""

from __future__ import annotations

import numpy as np
import pytest

from diagmem.frontends.onnx.reading import read_model
from diagmem.frontends.source import Source
from diagmem.model.errors import ModelError
from diagmem.verification import reference
from tests.frontends.onnx import making
from tests.frontends.onnx.test_composed import assert_agrees, kinds_of

SHAPE = (2, 3, 4)


def function(name: str, inputs: str, outputs: str, nodes: list[bytes], more: bytes = b"", opset: int = 17) -> bytes:
    """A function of the domain `my`."""
    names = b"".join(making.data(4, i) for i in inputs) + b"".join(making.data(5, o) for o in outputs)
    opsets = making.data(9, making.number(2, opset)) + making.data(9, making.data(1, "my") + making.number(2, 1))
    return (
        making.data(1, name)
        + names
        + b"".join(making.data(7, n) for n in nodes)
        + opsets
        + making.data(10, "my")
        + more
    )


def with_functions(nodes: list[bytes], functions: list[bytes]) -> bytes:
    content = making.model(nodes, {"x": SHAPE}, {"y": SHAPE})
    own = making.data(8, making.data(1, "my") + making.number(2, 1))
    return content + own + b"".join(making.data(25, each) for each in functions)


def leaky(slope: bytes) -> bytes:
    """A node whose slope is that of the call."""
    node = making.node("LeakyRelu", ["a"], ["t"])
    return node + making.data(5, making.data(1, "alpha") + slope + making.number(20, 1))


GIVEN = leaky(making.data(21, "slope"))


def test_functions_become_their_nodes() -> None:
    """Called twice, from each other, with and without what they have a default for."""
    default = making.data(11, making.attribute("slope", 0.25))
    inner = function(
        "Inner", "a", "bc", [GIVEN, making.node("Exp", ["t"], ["b"]), making.node("Neg", ["t"], ["c"])], default
    )
    outer = function(
        "Outer",
        "ak",
        "b",
        [making.node("Inner", ["a"], ["u", "v"], "my", slope=0.5), making.node("Add", ["u", "k"], ["b"])],
    )
    nodes = [making.node("Outer", ["x", "x"], ["p"], "my"), making.node("Inner", ["p"], ["q", "y"], "my")]
    content = with_functions(nodes, [inner, outer])
    assert kinds_of(content)["LEAKY_RELU"] == 2
    assert_agrees(content, SHAPE)


def test_a_function_has_an_opset_of_its_own() -> None:
    """Up to opset 12, a softmax is over all axes from its first one on."""
    content = with_functions(
        [making.node("Old", ["x"], ["y"], "my")],
        [function("Old", "a", "b", [making.node("Softmax", ["a"], ["b"], axis=1)], opset=11)],
    )
    assert kinds_of(content) == {"RESHAPE": 2, "SOFTMAX": 1}


def test_functions_that_call_themselves_end() -> None:
    """In a message."""
    twice = [making.node("G", ["a"], ["t"], "my"), making.node("G", ["t"], ["b"], "my")]
    with pytest.raises(ModelError, match="more than 16 deep"):
        read_model(with_functions([making.node("G", ["x"], ["y"], "my")], [function("G", "a", "b", twice)]), None)


def test_functions_do_not_grow_without_bound() -> None:
    """Each calls the next one a few times."""
    functions = [
        function(f"F{n}", "a", "b", [making.node(f"F{n + 1}", ["a"], [c], "my") for c in "bcdefghi"]) for n in range(9)
    ]
    with pytest.raises(ModelError, match="more than 100000"):
        read_model(with_functions([making.node("F0", ["x"], ["y"], "my")], functions), None)


def test_nodes_in_any_order() -> None:
    """Each waits for what it reads, also inside a branch; one that waits for itself is refused by name."""
    nodes = [making.node("Add", ["a", "b"], ["y"]), making.node("Neg", ["a"], ["b"]), making.node("Exp", ["x"], ["a"])]
    content = making.model(nodes, {"x": SHAPE}, {"y": SHAPE})
    assert [node.kind for node in read_model(content, None).nodes] == ["Exp", "Neg", "Add"]
    assert_agrees(content, SHAPE)
    nodes = [
        making.node("Add", ["b", "x"], ["y"]),
        making.node("Exp", ["x"], ["a"]),
        making.node("Neg", ["x"], ["b"]),
        making.node("Abs", ["a"], ["c"]),
    ]
    found = read_model(making.model(nodes, {"x": SHAPE}, {"y": SHAPE}), None).nodes
    assert [node.kind for node in found] == ["Exp", "Neg", "Add", "Abs"]
    in_cycle = [
        making.node("Add", ["x", "b"], ["a"]),
        making.node("Neg", ["a"], ["b"]),
        making.node("Exp", ["b"], ["y"]),
    ]
    with pytest.raises(ModelError, match=r"node 0 'a' \(Add\): it is in a cycle"):
        read_model(making.model(in_cycle, {"x": SHAPE}, {"y": SHAPE}), None)


def test_half_of_the_precision() -> None:
    """float16 constants too, raw or as whole numbers; a layer behind a Cast takes them as they are worth."""
    values = np.array([[1.5, -3.25], [65504.0, 6e-8]], np.float16)
    head = making.number(1, 2) + making.number(1, 2) + making.number(2, 10) + making.data(8, "w")
    whole = b"".join(making.number(5, int(half)) for half in values.view(np.uint16).reshape(-1))
    nodes = [making.node("Cast", ["w"], ["v"], to=1), making.node("MatMul", ["x", "v"], ["y"])]
    for field in (making.data(9, values.tobytes()), whole):
        parts = b"".join(making.data(1, node) for node in nodes) + making.data(5, head + field)
        parts += making.data(11, making.value("x", (1, 2))) + making.data(12, making.value("y", (1, 2)))
        content = making.number(1, 8) + making.data(7, parts) + making.data(8, making.number(2, 17))
        assert np.array_equal(read_model(content, None).constants["w"], values)
        graph = Source(content).runnable
        found = reference.run(graph, [np.ones((1, 2), np.float32)])[graph.outputs[0]]
        assert np.array_equal(found, values.astype(np.float32).sum(axis=0, keepdims=True))


def test_the_upper_half_of_a_float32() -> None:
    """bfloat16 constants have the values that they stand for, raw or as whole numbers."""
    values = np.array([1.5, -3.25, 1e30], np.float32)
    halves = (values.view(np.uint32) >> 16).astype(np.uint16)
    head = making.number(1, 3) + making.number(2, 16) + making.data(8, "w")
    for field in (making.data(9, halves.tobytes()), b"".join(making.number(5, int(half)) for half in halves)):
        graph = making.data(7, making.data(5, head + field))
        found = read_model(making.number(1, 8) + graph + making.data(8, making.number(2, 17)), None)
        assert np.allclose(found.constants["w"], values, rtol=0.01)
        assert found.constants["w"].dtype == np.float32
