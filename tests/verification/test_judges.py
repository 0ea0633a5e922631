"""Who has seen what: the runtime that judges a model, what it leaves open, and where rounding alone decides."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diagmem.frontends.source import Source
from diagmem.model.graph import DType, Graph, Node, Quantisation
from diagmem.ops import kinds
from diagmem.ops.kind import Array, Values
from diagmem.verification.oracles import Opinion, second_opinion
from diagmem.verification.reference import sample_inputs
from tests.backends.c.models import compiler
from tests.cli.calling import call
from tests.frontends.onnx import making
from tests.ops.sampling import activation, constant_of, ints, node_of
from tests.ops.single_op import is_installed
from tests.tflite_files import file_of, graph_of

needs_litert = pytest.mark.skipif(not is_installed("litert"), reason="needs ai_edge_litert")
needs_both = pytest.mark.skipif(not (is_installed("litert") and is_installed("tflm")), reason="needs both runtimes")


def scaled(node: Node, scale: float, zero_point: int = 0) -> Node:
    made = replace(node.output, quantisation=Quantisation((float(np.float32(scale)),), (zero_point,)))
    return replace(node, outputs=(made,))


def joined(nodes: Sequence[Node], places: Sequence[int]) -> Graph:
    """Each node reads, as its first input, what the one at its place has made; -1: the graph's own input. What no node
    reads is an output."""
    first = graph_of(nodes[0])
    tensors, ops, made = list(first.tensors), [replace(first.ops[0], index=0)], [first.outputs[0]]
    for node, place in zip(nodes[1:], places[1:], strict=True):
        own, shift = graph_of(node), len(tensors)
        source = first.inputs[0] if place < 0 else made[place]
        moved = {t.index: t.index + shift for t in own.tensors} | {own.ops[0].inputs[0]: source}
        tensors += [replace(t, index=t.index + shift) for t in own.tensors]
        inputs, outputs = (tuple(moved[t] for t in side) for side in (own.ops[0].inputs, own.ops[0].outputs))
        ops.append(replace(own.ops[0], index=len(ops), inputs=inputs, outputs=outputs))
        made += outputs
    ends = tuple(t for t in made if not any(t in op.inputs for op in ops))
    return without_unused(Graph("joined", tuple(tensors), tuple(ops), first.inputs, ends))


def without_unused(graph: Graph) -> Graph:
    used = sorted({*graph.inputs, *(t for op in graph.ops for t in (*op.inputs, *op.outputs))})
    place = {old: new for new, old in enumerate(used)}

    def moved(tensors: Sequence[int]) -> tuple[int, ...]:
        return tuple(place[t] for t in tensors)

    ops = tuple(replace(op, inputs=moved(op.inputs), outputs=moved(op.outputs)) for op in graph.ops)
    tensors = tuple(replace(graph.tensors[old], index=new) for new, old in enumerate(used))
    return replace(graph, tensors=tensors, ops=ops, inputs=moved(graph.inputs), outputs=moved(graph.outputs))


def dense_behind_gelu() -> Graph:
    """8 bits: TensorFlow Lite Micro has no GELU of them, and LiteRT rounds the dense layer once."""
    rng = np.random.default_rng(5)
    data = replace(activation((900, 16)), quantisation=Quantisation((0.05,), (3,)))
    gelu = scaled(node_of(kinds()["GELU"], "GELU", kinds()["GELU"].decode("GELU", None), [data]), 0.04, -5)
    weights = replace(
        constant_of(rng.integers(-127, 128, (8, 16)).astype(np.int8)), quantisation=Quantisation((0.021,), (0,))
    )
    bias = constant_of(rng.integers(-900, 900, 8).astype(np.int32))
    kind = kinds()["FULLY_CONNECTED"]
    dense = node_of(kind, "FULLY_CONNECTED", kind.decode("FULLY_CONNECTED", None), [gelu.output, weights, bias])
    return joined([gelu, scaled(dense, 0.117, 4)], [-1, 0])


def opinion_on(graph: Graph, count: int = 6) -> Opinion:
    """Of the file of a graph."""
    source = Source(file_of(graph))
    return second_opinion(source, source.runnable, sample_inputs(source.runnable, count))


@needs_both
def test_litert_judges_integers_that_tflm_refuses() -> None:
    """And its one rounding is computed too, so that all is compared bit for bit."""
    found = opinion_on(dense_behind_gelu())
    assert (found.oracle, found.disagreement, found.unseen, found.ops) == ("litert", None, (), 2)
    assert "rounds once" in found.deviations[0]
    assert found.silent[0].startswith("tflm: TFLM does not run the model")


def gelu_behind_quantize() -> Graph:
    """Float32 numbers of which some lie so near a half that rounding decides."""
    data = activation((2500, 16), DType.FLOAT32)
    kind = kinds()["QUANTIZE"]
    stored = scaled(node_of(kind, "QUANTIZE", kind.decode("QUANTIZE", None), [data], (DType.INT8,)), 0.05, 3)
    gelu = node_of(kinds()["GELU"], "GELU", kinds()["GELU"].decode("GELU", None), [stored.output])
    return joined([stored, scaled(gelu, 0.04, -5)], [-1, 0])


@needs_litert
@pytest.mark.parametrize("graph", [dense_behind_gelu, gelu_behind_quantize])
@pytest.mark.parametrize("unit", [1, -1])
def test_a_fault_in_such_integers_is_found(
    unit: int, graph: Callable[[], Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One unit in one output of a layer, whatever rounding of float32 numbers may do."""
    exact = kinds()["GELU"].reference

    def off_by_one(node: Node, inputs: Values) -> tuple[Array, ...]:
        (made,) = exact(node, inputs)
        return (
            np.where(np.arange(made.size).reshape(made.shape) == 77, np.clip(made + unit, -128, 127), made).astype(
                np.int8
            ),
        )

    monkeypatch.setattr(type(kinds()["GELU"]), "reference", lambda kind, node, inputs: off_by_one(node, inputs))
    source = Source(file_of(graph()))
    random = sample_inputs(source.runnable, 7)[5:]
    assert second_opinion(source, source.runnable, random).disagreement is not None


def clamp_of_16_bits() -> bytes:
    """TensorFlow Lite Micro has no such operation, and LiteRT none of 16 bits."""
    kind = kinds()["RELU_N1_TO_1"]
    data = replace(activation((1, 50), DType.INT16), quantisation=Quantisation((0.001,), (0,)))
    node = node_of(kind, "RELU_N1_TO_1", kind.decode("RELU_N1_TO_1", None), [data], (DType.INT16,))
    return file_of(graph_of(scaled(node, 0.0007)))


def test_what_nobody_has_seen_is_not_ok(tmp_path: Path) -> None:
    compiler("gcc")
    path = tmp_path / "alone.tflite"
    path.write_bytes(clamp_of_16_bits())
    done = call("verify", str(path), "--inputs", "2")
    assert done.returncode == 0, done.stderr
    assert "OK" not in done.stdout
    assert "UNCONFIRMED: 2 inputs, every operation matches numpy bit for bit" in done.stdout
    assert "by our own arithmetic only: no runtime that is installed runs this" in done.stdout
    (run,) = json.loads(call("verify", str(path), "--inputs", "2", "--json", "-").stdout)["runs"]
    assert (run["ok"], run["oracle"], run["ops"], len(run["unseen_ops"]), len(run["silent"])) == (True, None, 1, 1, 2)


def test_it_is_told_that_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    opinion = second_opinion(Source("zoo:kws_dscnn_int8"), Source("zoo:kws_dscnn_int8").runnable, [])
    assert (opinion.oracle, opinion.seen) == ("", 0)
    assert all("not installed" in why for why in opinion.silent)


def test_a_runtime_that_ends_is_no_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some models end the process that they run in."""

    def killed(command: list[str], text: bool = False, **_: Any) -> subprocess.CompletedProcess[Any]:
        said: Any = "" if text else b""
        return subprocess.CompletedProcess(command, -11, said, said)

    monkeypatch.setattr(subprocess, "run", killed)
    found = opinion_on(dense_behind_gelu())
    assert found.oracle == ""
    assert len(found.silent) == 2


@needs_both
def test_what_lies_behind_an_open_question_is_named() -> None:
    """LiteRT's multipliers for 16 bits are another's, so one of two outputs is compared."""
    data = replace(
        activation((2, 30_000), DType.INT16), quantisation=Quantisation((float(np.float32(0.000742)),), (0,))
    )
    kind = kinds()["MIRROR_PAD"]
    pad = node_of(kind, "MIRROR_PAD", kind.decode("MIRROR_PAD", None), [data, ints([[1, 0], [0, 0]])], (DType.INT16,))
    pad = replace(pad, outputs=(replace(pad.output, quantisation=data.quantisation),))
    kind = kinds()["ABS"]
    size = node_of(kind, "ABS", kind.decode("ABS", None), [data], (DType.INT16,))
    found = opinion_on(joined([pad, scaled(size, 0.000252)], [-1, -1]))
    assert (found.oracle, found.disagreement, found.seen) == ("litert", None, 1)
    (open_one,) = found.unseen
    assert open_one.endswith("(ABS)")


def normalisation(epsilon: float) -> bytes:
    """Of what a convolution makes: where its input is the same everywhere, rounding errors are divided by nearly 0."""
    rng = np.random.default_rng(0)
    constants: dict[str, Array] = {
        "w": rng.normal(size=(6, 3, 1, 1)).astype(np.float32),
        "b": rng.normal(size=6).astype(np.float32),
        "s": np.ones(6, np.float32),
        "t": np.zeros(6, np.float32),
    }
    nodes = [
        making.node("Conv", ["x", "w", "b"], ["h"]),
        making.node("InstanceNormalization", ["h", "s", "t"], ["y"], epsilon=epsilon),
    ]
    return making.model(nodes, {"x": (1, 3, 7, 9)}, {"y": None}, constants)


@pytest.mark.parametrize("epsilon", [1e-5, 1e-12])
def test_rounding_errors_of_equal_numbers_are_no_failure(epsilon: float) -> None:
    pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    source = Source(normalisation(epsilon))
    opinion = second_opinion(source, source.runnable, sample_inputs(source.runnable, 12))
    assert (opinion.disagreement, opinion.unseen) == (None, ())
    assert 0 < opinion.ill_conditioned < 6


@pytest.mark.parametrize("kind", ["MEAN", "SUB", "SQUARE", "RSQRT", "MUL"])
def test_faults_of_kernels_are_found_all_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth in one place of what one kind makes."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    exact = kinds()[kind].reference

    def faulty(_: Any, node: Node, inputs: Values) -> tuple[Array, ...]:
        (made,) = exact(node, inputs)
        changed = made.copy()
        changed[..., -1, 1] *= np.float32(1.01) if node.op.kind == kind else 1
        return (changed,)

    monkeypatch.setattr(type(kinds()[kind]), "reference", faulty)
    source = Source(normalisation(1e-12))
    opinion = second_opinion(source, source.runnable, sample_inputs(source.runnable, 12))
    assert opinion.disagreement is not None


def test_where_rounding_decides_everything_nobody_has_seen_anything() -> None:
    """Inputs that are the same everywhere alone show nothing."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    source = Source(normalisation(1e-12))
    opinion = second_opinion(source, source.runnable, sample_inputs(source.runnable, 2))
    assert (opinion.disagreement, opinion.seen, opinion.ill_conditioned) == (None, 0, 2)
