"""Sums and products that are rounded once are onnxruntime's, for every pair of inputs that there is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diagmem.model.graph import DType, Node, Quantisation, Rounding, Tensor
from diagmem.ops import InstructionSet, kinds
from diagmem.ops.elementwise.binary import Binary
from tests.ops.cases import activation, node_of
from tests.ops.compiled import COMPILER, compiled, disjoint

ALL = np.arange(-128, 128).astype(np.int8)
NETWORKS = 12


def quantised(tensor: Tensor, scale: float, zero_point: int, rounding: Rounding) -> Tensor:
    made = Quantisation((float(np.float32(scale)),), (zero_point,), rounding=rounding)
    return replace(tensor, dtype=DType.INT8, quantisation=made)


def drawn(kind: str, seed: int) -> Node:
    """Every pair of inputs; every third time all scales are powers of two, so that there are many halves."""
    rng = np.random.default_rng(seed)
    a, b = 2.0 ** rng.uniform(-8, -3, 2)
    out = a * b * 2.0 ** rng.uniform(5, 8) if kind == "MUL" else max(a, b) * 2.0 ** rng.uniform(-0.5, 1)
    if seed % 3 == 0:
        a, b, out = 2.0**-5, 2.0**-4, 2.0**-2 if kind == "MUL" else 2.0**-3
    rounding = Rounding.ONNX_UNSIGNED if seed % 2 else Rounding.ONNX
    zeros = rng.integers(-128, 128, 3).tolist()
    node = node_of(kind, Binary(), [activation((256, 1)), activation((1, 256))])
    first, second = node.input(0), node.input(1)
    inputs = quantised(first, a, zeros[0], rounding), quantised(second, b, zeros[1], rounding)
    return replace(node, inputs=inputs, outputs=(quantised(node.output, out, zeros[2], rounding),))


def nodes() -> list[Node]:
    return [drawn(kind, seed) for kind in ("ADD", "MUL") for seed in range(NETWORKS)]


def reference(node: Node) -> Any:
    return kinds()[node.op.kind].reference(node, [ALL[:, None], ALL[None, :]])[0]


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
@pytest.mark.parametrize("instructions", [None, InstructionSet.MVE])
def test_kernels_are_right_for_every_pair(instructions: InstructionSet | None, tmp_path: Path) -> None:
    """Also those close to a step, which are in a list."""
    all_nodes = nodes()
    kind = kinds()["ADD"]
    calls = [
        kind.c_call(node) if instructions is None else kind.variants(node, instructions)[0].call(node)
        for node in all_nodes
    ]
    counts = [call.parameters.fields["output"].fields["count"] for call in calls]
    assert max(counts) > 0
    program = compiled(all_nodes, tmp_path, calls=calls)
    places = [disjoint(node) for node in all_nodes]
    values = (ALL[:, None], ALL[None, :])
    jobs = [(i, place, place.filled(all_nodes[i], values)) for i, place in enumerate(places)]
    for node, place, after in zip(all_nodes, places, program.run(jobs), strict=True):
        assert np.array_equal(place.seen(after, node.output), reference(node)), node


def test_they_are_those_of_onnxruntime() -> None:
    """On processors that multiply and add in one instruction; signed and unsigned."""
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    for node in nodes():
        is_unsigned = node.output.quantisation is not None and node.output.quantisation.rounding is not Rounding.ONNX
        dtype, lower = (onnx.TensorProto.UINT8, 128) if is_unsigned else (onnx.TensorProto.INT8, 0)
        constants, names = [], []
        for name, tensor in zip("aby", (node.input(0), node.input(1), node.output), strict=True):
            assert tensor.quantisation is not None
            own = [f"{name}_scale", f"{name}_zero"]
            zero = tensor.quantisation.zero_points[0] + lower
            constants.append(onnx.helper.make_tensor(own[0], onnx.TensorProto.FLOAT, [], tensor.quantisation.scales))
            constants.append(onnx.helper.make_tensor(own[1], dtype, [], [zero]))
            names += [*([name] if name != "y" else []), *own]
        made = onnx.helper.make_node(f"QLinear{node.op.kind.capitalize()}", names, ["y"], domain="com.microsoft")
        values = [onnx.helper.make_tensor_value_info(name, dtype, [256, 256]) for name in "aby"]
        graph = onnx.helper.make_graph([made], "pairs", values[:2], values[2:], constants)
        opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
        session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        stored = (ALL.astype(np.int64) + lower).astype(np.uint8 if is_unsigned else np.int8)
        a, b = np.meshgrid(stored, stored, indexing="ij")
        found = session.run(None, {"a": a, "b": b})[0].astype(np.int64) - lower
        assert np.array_equal(found, reference(node)), node
