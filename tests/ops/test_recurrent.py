"""Operations that remember give what TFLite Micro gives, over many runs in a row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops import Unsupported, kinds
from diagmem.ops.numerics.weighted_sums import LARGEST_WIDE_BIAS
from diagmem.ops.signature import check_node
from tests.ops.compiled import COMPILER, compiled, disjoint
from tests.ops.drawing import CASES, drawn
from tests.ops.fitting import input_values
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
    """Integers agree bit for bit, floats within rounding, from the first run to the last, with a new start
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


def _with_biases(node: Node, largest: int) -> Node:
    """Biases are as far from zero as that, on either side."""
    kind, inputs = kinds()[node.op.kind], list(node.inputs)
    for position in {"UNIDIRECTIONAL_SEQUENCE_LSTM": range(12, 16), "SVDF": (3,)}[node.op.kind]:
        tensor = node.input(position)
        signs = np.where(np.arange(tensor.elems) % 2, 1, -1).reshape(tensor.shape)
        inputs[position] = replace(tensor, data=np.asarray(signs * largest, tensor.dtype.numpy))
    found = replace(node, inputs=tuple(inputs))
    check_node(found, kind)
    return found


def _whole_nodes(case: str, dtype: DType) -> list[Node]:
    return [node for node in drawn(case, 8) if node.input(0).dtype is dtype][:4]


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
@pytest.mark.parametrize(
    ("case", "dtype", "largest"),
    [("lstm", DType.INT8, 2**31 - 1), ("lstm", DType.INT16, int(LARGEST_WIDE_BIAS)), ("svdf", DType.INT8, 2**31 - 1)],
)
def test_biases_at_the_ends(case: str, dtype: DType, largest: int, tmp_path: Path) -> None:
    """Sums that leave 32 bits wrap around in C as in numpy, and the language leaves no step of it open."""
    nodes = [_with_biases(node, largest) for node in _whole_nodes(case, dtype)]
    program, places = compiled(nodes, tmp_path), [disjoint(node) for node in nodes]
    values = [input_values(node, np.random.default_rng(n)) for n, node in enumerate(nodes)]
    jobs = [(n, places[n], places[n].filled(nodes[n], values[n])) for n in range(len(nodes))]
    for node, (n, place, _), found in zip(nodes, jobs, program.run(jobs), strict=True):
        wanted = kinds()[node.op.kind].reference(node, values[n])[0]
        np.testing.assert_array_equal(place.seen(found, node.output), wanted)


@pytest.mark.parametrize("bias", [-(2**63), 2**63 - 1, 2 * int(LARGEST_WIDE_BIAS)])
def test_biases_that_64_bits_cannot_scale_are_refused(bias: int) -> None:
    """Beside 16-bit data: their product with a mantissa has no place."""
    node = _whole_nodes("lstm", DType.INT16)[0]
    tensor = node.input(12)
    far = replace(tensor, data=np.full(tensor.shape, bias, np.int64))
    with pytest.raises(Unsupported, match="64 bits cannot scale"):
        kinds()[node.op.kind].c_call(replace(node, inputs=(*node.inputs[:12], far, *node.inputs[13:])))


@pytest.mark.parametrize("case", ["lstm", "svdf"])
def test_axes_of_one_change_nothing(case: str) -> None:
    """Weights and biases with an axis of 1 more are the same weights: kernels see their elements only."""
    for node in drawn(case, 6):
        kind = kinds()[node.op.kind]
        values = input_values(node, np.random.default_rng(0))
        first = 5 if case == "lstm" else 2
        inputs, changed = list(node.inputs), list(values)
        for position in range(first, len(inputs)):
            tensor, given = inputs[position], values[position]
            if tensor is not None and tensor.is_constant and given is not None:
                changed[position] = given.reshape(*tensor.shape, 1)
                inputs[position] = replace(tensor, shape=(*tensor.shape, 1), data=changed[position])
        odd = replace(node, inputs=tuple(inputs))
        check_node(odd, kind)
        for found, wanted in zip(kind.reference(odd, changed), kind.reference(node, values), strict=True):
            np.testing.assert_array_equal(found, wanted)
