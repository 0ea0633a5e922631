"""Operations that remember give what TFLite Micro gives, over many runs in a row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops import kinds
from diagmem.ops.signature import check_node
from tests.ops.drawing import CASES, drawn
from tests.ops.single_op import to_tflite

Array = npt.NDArray[Any]

RUNS = 12


def _initial(state: Tensor) -> Array:
    zero = 0 if state.quantisation is None else state.quantisation.zero_points[0]
    return np.full(state.shape, zero, state.dtype.numpy)


def _data(tensor: Tensor, rng: np.random.Generator) -> Array:
    if tensor.dtype is DType.FLOAT32:
        return rng.normal(0, 1, tensor.shape).astype(np.float32)
    info = np.iinfo(tensor.dtype.numpy)
    return rng.integers(info.min, info.max, tensor.shape, endpoint=True).astype(tensor.dtype.numpy)


def _runs(node: Node, inputs: list[Array]) -> list[list[Array]]:
    """What the reference gives for one input after the other, set back to its first state half-way."""
    kind = kinds()[node.op.kind]
    values = [None if t is None else t.data for t in node.inputs]
    found = []
    for run, data in enumerate(inputs):
        for position in kind.states(node) if run in (0, RUNS // 2) else ():
            values[position] = _initial(node.input(position))
        values[0] = data
        made = kind.reference(node, values)
        found.append(list(made[: len(node.outputs)]))
        for position, state in zip(kind.states(node), made[len(node.outputs) :], strict=True):
            values[position] = state
    return found


def _compared(node: Node, wanted: list[Array]) -> list[tuple[int, Array]]:
    """Outputs that others write: a frame or stack that is not there yet they leave as it was, and say so."""
    has_flag = node.outputs[-1].dtype is DType.BOOL
    is_there = not has_flag or bool(wanted[-1])
    return [(n, values) for n, values in enumerate(wanted) if is_there or n == len(wanted) - 1]


REMEMBERING = [case for case in CASES if any(kinds()[n].states(drawn(case, 1)[0]) for n in CASES[case].names)]


@pytest.mark.parametrize("case", REMEMBERING)
def test_runs_in_a_row(case: str) -> None:
    """Integers agree bit for bit, real numbers within rounding, from the first run to the last, with a new start
    half-way."""
    runtime = pytest.importorskip("tflite_micro.python.tflite_micro.runtime")
    compared = set()
    for seed, node in enumerate(drawn(case, 6)):
        if node.op.kind == "SVDF" and node.inputs[3] is None:
            continue  # TFLite Micro looks at the bias without asking whether there is one
        rng = np.random.default_rng(seed)
        inputs = [_data(node.input(0), rng) for _ in range(RUNS)]
        interpreter = runtime.Interpreter.from_bytes(to_tflite(node), arena_size=1 << 20)
        for step, (data, made) in enumerate(zip(inputs, _runs(node, inputs), strict=True)):
            if step == RUNS // 2:
                interpreter.reset()
            interpreter.set_input(data, 0)
            interpreter.invoke()
            for number, wanted in _compared(node, made):
                given = np.array(interpreter.get_output(number)).reshape(wanted.shape)
                if wanted.dtype.kind == "f":
                    np.testing.assert_allclose(given, wanted, rtol=1e-4, atol=1e-4)
                else:
                    np.testing.assert_array_equal(given, wanted, f"run {step} of {node}")
        compared.add(node.input(0).dtype)
    assert compared == {node.input(0).dtype for node in drawn(case, 20)}


@pytest.mark.parametrize("case", ["lstm", "svdf"])
def test_operands_of_other_sizes_are_refused(case: str) -> None:
    """Kernels read as many weights, biases and states as their sizes ask for: each must be there."""
    for node in drawn(case, 1)[:4]:
        kind = kinds()[node.op.kind]
        check_node(node, kind)
        for position, tensor in enumerate(node.inputs):
            if tensor is not None:
                longer = replace(tensor, shape=(*tensor.shape[:-1], tensor.shape[-1] + 1), data=None)
                inputs = (*node.inputs[:position], longer, *node.inputs[position + 1 :])
                with pytest.raises(ModelError):
                    check_node(replace(node, inputs=inputs), kind)
