"""Resource variables: handles in the file, tensors in the graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from diagmem.frontends import tflite
from diagmem.frontends.tflite.subgraphs import Called, Name, with_variables
from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Graph, Op, Tensor
from diagmem.verification import reference, tflm
from tests.execution import random_inputs
from tests.state_files import to_tflite
from tests.streams import stream

SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_written_is_read(seed: int) -> None:
    """Variables with their names, shapes and first values, and runs that give the same."""
    graph = stream(seed)
    found = tflite.parse(to_tflite(graph), "net")
    assert [(t.name, t.shape, t.dtype) for t in found.variables] == [
        (t.name, t.shape, t.dtype) for t in graph.variables
    ]
    inputs = [random_inputs(graph, n) for n in range(3)]
    for ours, theirs in zip(reference.runs(graph, inputs), reference.runs(found, inputs), strict=True):
        assert all(np.array_equal(ours[t], theirs[t]) for t in (*graph.outputs, *(v.index for v in graph.variables)))


def test_ops_keep_the_numbers_of_their_file() -> None:
    """Handles, and the call that sets variables up, are operations of the file and not of the graph."""
    graph = stream(3)
    found = tflite.parse(to_tflite(graph), "net")
    first = 1 + len(graph.variables)
    assert [op.number for op in found.ops] == list(range(first, first + len(graph.ops)))


@pytest.mark.skipif(not tflm.is_installed(), reason="needs tflite_micro")
@pytest.mark.parametrize("seed", SEEDS[:4])
def test_tflm_runs_alike(seed: int) -> None:
    """What TensorFlow Lite Micro makes of several runs in a row, and of the first values."""
    graph = stream(seed)
    inputs = [random_inputs(graph, n) for n in range(4)]
    theirs = tflm.run(to_tflite(graph), graph, inputs).outputs
    for ours, found in zip(reference.runs(graph, inputs, (2,)), theirs, strict=True):
        for t, raw in zip(graph.outputs, found, strict=True):
            assert np.allclose(ours[t].reshape(-1), np.frombuffer(raw, np.float32), rtol=1e-5, atol=1e-5)


def tensors() -> tuple[Tensor, ...]:
    data = np.zeros(4, np.float32)
    return (
        Tensor(0, "x", (4,), DType.FLOAT32),
        Tensor(1, "handle", (), DType.INT32),
        Tensor(2, "was", (4,), DType.FLOAT32),
        Tensor(3, "y", (4,), DType.FLOAT32),
        Tensor(4, "first", (4,), DType.FLOAT32, is_constant=True, data=data),
    )


NAME = Name("", "v")


def network(*ops: Op) -> Graph:
    usual = (
        Op(0, "CALL_ONCE", (), (), Called(1)),
        Op(1, "VAR_HANDLE", (), (1,), NAME),
        Op(2, "READ_VARIABLE", (1,), (2,)),
        Op(3, "ADD", (0, 2), (3,)),
        Op(4, "ASSIGN_VARIABLE", (1, 3), ()),
    )
    return Graph("net", tensors(), tuple(replace(op, index=n) for n, op in enumerate(ops or usual)), (0,), (3,))


def set_up(*more: Op) -> Graph:
    ops = (Op(0, "VAR_HANDLE", (), (1,), NAME), Op(1, "ASSIGN_VARIABLE", (1, 4), ()), *more)
    return Graph("net", tensors(), ops, (), ())


def test_the_sound_one_is_read() -> None:
    """What the refusals below are variations of."""
    found = with_variables(network(), {1: set_up()})
    assert [(op.kind, op.inputs, op.outputs) for op in found.ops] == [
        ("READ_VARIABLE", (1,), (2,)),
        ("ADD", (0, 2), (3,)),
        ("ASSIGN_VARIABLE", (3,), (1,)),
    ]
    assert found.tensors[1].is_variable
    assert found.tensors[1].shape == (4,)


def changed(change: Callable[[list[Op]], None]) -> Graph:
    ops = list(network().ops)
    change(ops)
    return network(*ops)


REFUSED = {
    "a handle goes elsewhere": (changed(lambda ops: ops.insert(3, Op(0, "RELU", (1,), (2,)))), set_up(), "handle"),
    "what is read is no handle": (
        changed(lambda ops: ops.__setitem__(2, Op(0, "READ_VARIABLE", (0,), (2,)))),
        set_up(),
        "must be a handle",
    ),
    "set up too late": (changed(lambda ops: ops.append(ops.pop(0))), set_up(), "before"),
    "set up by computing": (network(), set_up(Op(2, "RELU", (4,), (3,))), "constants"),
    "a value that is not there": (
        network(),
        replace(set_up(), tensors=tuple(replace(t, data=None) for t in tensors())),
        "not in the file",
    ),
    "of another shape": (
        network(),
        replace(set_up(), tensors=tuple(replace(t, shape=(2, 2)) if t.index == 4 else t for t in tensors())),
        "is used as",
    ),
    "a handle that leaves": (replace(network(), outputs=(1,)), set_up(), "leaves"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_why(case: str) -> None:
    graph, once, says = REFUSED[case]
    with pytest.raises(ModelError, match=says) as caught:
        with_variables(graph, {1: once})
    assert "\n" not in str(caught.value)
