"""Channels that were of no use in training have tiny scales and the largest biases: sums of TensorFlow Lite wrap around
there, and so do ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem.model.graph import DType, Node, Quantisation, Shape, Tensor
from diagmem.ops import InstructionSet, kinds
from tests.ops.cases import node_of
from tests.ops.compiled import COMPILER, compiled, disjoint, with_scratch
from tests.ops.sampling import activation, constant_of, ints
from tests.ops.single_op import ask, is_installed

Array = npt.NDArray[Any]

SCALES = (1e-21, 1e-12, 3e-10, 1e-9, 1e-8, 1e-7, 1e-3, 0.02, 1e-21, 2e-9)
"""Of channels. Those below about 2**-32 make the same of every sum; from there on one sees where sums wrap around."""

COUNT = len(SCALES)
ENDS = np.array([2**31 - 1, -(2**31) + 1] * (COUNT // 2), np.int32)

WEIGHTS = {
    "CONV_2D": (0, (COUNT, 3, 3, 4), (2, 5, 5, 4)),
    "DEPTHWISE_CONV_2D": (3, (1, 3, 3, COUNT), (2, 5, 5, COUNT)),
    "TRANSPOSE_CONV": (0, (COUNT, 3, 3, 4), (2, 5, 5, 4)),
    "FULLY_CONNECTED": (0, (COUNT, 16), (9, 16)),
}
"""Kind -> the axis of the output channels, the shapes of the filter and of the data."""


def scaled(tensor: Tensor, scales: tuple[float, ...], zero_point: int, axis: int = 0) -> Tensor:
    held = tuple(float(np.float32(scale)) for scale in scales)
    return replace(tensor, quantisation=Quantisation(held, (zero_point,) * len(held), axis))


def layer(
    kind: str, dtype: DType, weights_type: DType, scales: tuple[float, ...] = SCALES, zero_point: int = -10
) -> Node:
    axis, shape, data_shape = WEIGHTS[kind]
    lowest, highest = {DType.INT4: (-8, 8), DType.UINT8: (0, 256)}.get(weights_type, (-127, 128))
    rng, offset = np.random.default_rng(len(kind)), 128 if dtype is DType.UINT8 else 0
    values = rng.integers(lowest, highest, shape).astype(np.uint8 if weights_type is DType.UINT8 else np.int8)
    filters = replace(constant_of(values), dtype=weights_type)
    filters = scaled(filters, scales, offset and 120, axis if len(scales) > 1 else 0)
    data = scaled(activation(data_shape, dtype), (0.02,), -128 + offset)
    operands = [data, filters, constant_of(ENDS)]
    if kind == "TRANSPOSE_CONV":
        made: Shape = (2, 5, 5, COUNT)
        operands = [ints(made), filters, data, constant_of(ENDS)]
    attributes = kinds()[kind].decode(kind, None)
    node = node_of(kind, attributes, operands, (dtype,))
    return replace(node, outputs=(scaled(node.output, (0.02,), zero_point + offset),))


def cases() -> list[Node]:
    """Weights of 8 and 4 bits, also without a sign: then all channels have one scale. The fastest kernels take layers
    of which all multipliers are small, and outputs that a ReLU has made."""
    found = [layer(kind, DType.INT8, DType.INT8) for kind in WEIGHTS]
    small = [(scale,) * COUNT for scale in (4e-10, 1e-9, 1e-8)]
    found += [layer(kind, DType.INT8, DType.INT8, s, zero) for kind in WEIGHTS for s in small for zero in (-128, 3)]
    found += [layer(kind, DType.INT8, DType.INT4) for kind in WEIGHTS if kind != "TRANSPOSE_CONV"]
    return found + [layer(kind, DType.UINT8, DType.UINT8, (s,)) for kind in WEIGHTS for s in (1e-21, 1e-9)]


def values_of(node: Node) -> list[Array | None]:
    def some(tensor: Tensor) -> Array:
        info = np.iinfo(tensor.dtype.numpy)
        return np.random.default_rng(1).integers(info.min, info.max, tensor.shape, dtype=info.dtype, endpoint=True)

    return [None if t is None else some(t) if t.data is None else t.data for t in node.inputs]


@pytest.mark.parametrize("oracle", ["tflm", "litert"])
def test_references_agree_with_others(oracle: str) -> None:
    """Wherever it runs them."""
    if not is_installed(oracle):
        pytest.skip(f"{oracle} is not installed")
    nodes = cases()
    inputs = [values_of(node) for node in nodes]
    answered = set()
    for node, values, answer in zip(nodes, inputs, ask(oracle, nodes, inputs), strict=True):
        if not isinstance(answer, str):
            answered.add((node.op.kind, node.output.dtype))
            (wanted,) = kinds()[node.op.kind].reference(node, values)
            assert np.array_equal(answer[0], wanted), (node, np.argwhere(answer[0] != wanted)[:4])
    assert answered >= {(kind, DType.INT8) for kind in WEIGHTS}


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_every_kernel_wraps_around(tmp_path: Path) -> None:
    """In plain C and with vectors, under the sanitizer that finds what C does not define."""
    made = [(node, kinds()[node.op.kind].c_call(node), 0) for node in cases()]
    for node in cases():
        for instructions in InstructionSet:
            variants = kinds()[node.op.kind].variants(node, instructions)
            made += [(node, variant.call(node), variant.scratch_bytes) for variant in variants]
    program = compiled([node for node, _, _ in made], tmp_path, calls=[call for _, call, _ in made])
    places = [with_scratch(disjoint(node), scratch_bytes) for node, _, scratch_bytes in made]
    inputs = [values_of(node) for node, _, _ in made]
    jobs = [(n, place, place.filled(made[n][0], inputs[n])) for n, place in enumerate(places)]
    for (n, place, _), found in zip(jobs, program.run(jobs), strict=True):
        node, call, _ = made[n]
        (wanted,) = kinds()[node.op.kind].reference(node, inputs[n])
        assert np.array_equal(place.seen(found, node.output), wanted), (node, call.function)
