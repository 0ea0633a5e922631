"""A model that the zoo writes can be read back, and runs: its activations neither die out nor saturate."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem.frontends import tflite, zoo
from diagmem.frontends.tflite.writer import to_tflite
from diagmem.frontends.zoo.networks import VALID, Builder
from diagmem.frontends.zoo.weights import draw, quantise
from diagmem.model.graph import DType, Graph, Tensor
from diagmem.ops import Activation
from tests.frontends.zoo.canonical import canonical_text
from tests.frontends.zoo.small import SMALL

Array = npt.NDArray[Any]
RUNS = 4


@pytest.mark.parametrize("name", SMALL)
def test_what_is_written_is_read_back(name: str) -> None:
    """The file holds the graph: kinds, attributes, types, shapes and wiring; every constant is whole and has its 16
    bytes of alignment; and the quantisation is the one that was worked out."""
    graph = SMALL[name]()
    content = to_tflite(graph)
    found = tflite.parse(content, name)
    assert canonical_text(found) == canonical_text(graph)
    assert [t.name for t in found.tensors] == [t.name for t in graph.tensors]
    start = np.frombuffer(content, np.uint8).ctypes.data
    for tensor in found.tensors:
        if tensor.is_constant:
            assert tensor.data is not None
            assert (tensor.data.ctypes.data - start) % 16 == 0
    expected = quantise(graph, draw(graph, 0))
    assert {t.index: t.quantisation for t in found.tensors if t.quantisation} == expected


ODD_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "CONV_2D": {"dilation_h": 2, "dilation_w": 3, "activation": Activation.RELU6},
    "DEPTHWISE_CONV_2D": {"dilation_h": 3, "dilation_w": 2, "activation": Activation.RELU},
    "MAX_POOL_2D": {"kernel_h": 5, "kernel_w": 2, "activation": Activation.RELU_N1_TO_1},
    "AVERAGE_POOL_2D": {"kernel_h": 2, "kernel_w": 3},
    "ADD": {"activation": Activation.RELU},
    "MUL": {"activation": Activation.RELU6},
    "CONCATENATION": {"axis": -1, "activation": Activation.RELU},
    "STRIDED_SLICE": {"begin_mask": 9, "end_mask": 15},
    "FULLY_CONNECTED": {"keep_num_dims": True},
    "SOFTMAX": {"beta": 0.5},
}


def test_every_attribute_is_written() -> None:
    """Attributes that no model of the zoo uses are kept as well (those here leave the shapes as they are)."""
    b = Builder("odd")
    x = b.depthwise(b.conv(b.input(1, 12, 12, 3), 4, 3), 3)
    x = b.add(b.average_pool(x, 3), b.scale_and_shift(b.max_pool(x, 3)))
    x = b.crop_first(b.concat(x, b.relu(b.pad(b.crop_first(x), 1, 0))))
    plain = b.graph(b.softmax(b.fully_connected(b.mean(x, keep_dims=False), 5)))
    ops = tuple(replace(op, attributes=replace(op.attributes, **ODD_ATTRIBUTES.get(op.kind, {}))) for op in plain.ops)
    assert set(ODD_ATTRIBUTES) <= {op.kind for op in ops}
    odd = replace(plain, ops=ops)
    assert canonical_text(tflite.parse(to_tflite(odd), "odd")) == canonical_text(odd)


def test_same_seed_same_bytes() -> None:
    """The file depends on the seed and on nothing else."""
    graph = zoo.build("kws_dscnn_int8")
    assert to_tflite(graph, 5) == to_tflite(zoo.build("kws_dscnn_int8"), 5)
    assert to_tflite(graph, 5) != to_tflite(graph, 6)


def test_filters_differ_between_layers() -> None:
    """No two filters, and no two channels of a filter, are alike."""
    found = tflite.parse(to_tflite(zoo.build("kws_dscnn_int8")), "kws")
    filters = [t.data for t in found.tensors if t.data is not None and t.dtype is DType.INT8 and len(t.shape) == 4]
    assert len({f.tobytes() for f in filters}) == len(filters)
    channels = filters[0].reshape(64, -1)
    assert len(np.unique(channels, axis=0)) == 64


def test_writing_takes_little_more_memory_than_the_file() -> None:
    """Weights are drawn a layer at a time; besides them there is the file itself, once built and once as bytes."""
    graph = zoo.build("mobilenet_v1_1.0_224")
    tracemalloc.start()
    try:
        size = len(to_tflite(graph))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * size


class Runtime:
    """LiteRT without its optimised delegate, so that every tensor can be looked at."""

    def __init__(self, graph: Graph) -> None:
        litert = pytest.importorskip(
            "ai_edge_litert.interpreter", reason="needs ai-edge-litert (pip install '.[verify]')"
        )
        self.graph = graph
        self.interpreter = litert.Interpreter(
            model_content=to_tflite(graph),
            experimental_op_resolver_type=litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            experimental_preserve_all_tensors=True,
        )
        self.interpreter.allocate_tensors()

    def run(self, seed: int) -> None:
        data = self.graph.tensors[self.graph.inputs[0]]
        random = np.random.default_rng(seed)
        noise: Array = random.uniform(-1, 1, data.shape).astype(np.float32)
        if data.dtype is DType.INT8:
            noise = random.integers(-128, 128, data.shape, dtype=np.int8)
        self.interpreter.set_tensor(data.index, noise)
        self.interpreter.invoke()

    def value(self, index: int) -> Array:
        return np.array(self.interpreter.get_tensor(index))


@pytest.mark.parametrize("name", SMALL)
def test_outputs_neither_saturate_nor_vanish(name: str) -> None:
    """Over random inputs: the tensor before the softmax is spread over its range and less than 5 % of it lies at the
    rails; outputs differ from input to input; no class takes everything, and none of the values is lost."""
    graph = SMALL[name]()
    runtime = Runtime(graph)
    last = graph.nodes[-1]
    logits_index = last.op.inputs[0] if last.op.kind == "SOFTMAX" else last.op.outputs[0]
    logits, outputs = [], []
    for seed in range(RUNS):
        runtime.run(seed)
        logits.append(runtime.value(logits_index))
        outputs.append(runtime.value(graph.outputs[0]))
    spread = np.std(logits)
    if graph.tensors[0].dtype is DType.INT8:
        assert spread > 4
        assert np.isin(logits, (-128, 127)).mean() < 0.05
        assert np.max(outputs) > -128
    else:
        assert 0.3 < spread < 10
        assert np.isfinite(outputs).all()
        assert np.max(outputs) < 0.999
    assert len({output.tobytes() for output in outputs}) == RUNS


@pytest.mark.parametrize("name", ["vww_96_int8", "squeezenet_1.1_int8", "mobilenet_v2_0.35_224", "small nasnet int8"])
def test_every_layer_is_spread_as_predicted(name: str) -> None:
    """Layer by layer, however deep: the root mean square of an activation is within a factor 1.5 of the prediction
    (where there are enough values to tell)."""
    graph = SMALL[name]()
    weights = draw(graph, 0)
    quantisation = quantise(graph, weights)
    runtime = Runtime(graph)
    runtime.run(1)
    for node in (n for n in graph.nodes[:-1] if n.output.elems >= 100):
        values = runtime.value(node.output.index).astype(np.float64)
        if node.output.index in quantisation:
            q = quantisation[node.output.index]
            values = (values - q.zero_points[0]) * q.scales[0]
        mean, variance = weights.distributions[node.output.index].moments()
        ratio = np.sqrt((values**2).mean() / (mean**2 + variance).mean())
        assert 1 / 1.5 < ratio < 1.5, node.label


def _same_conv(b: Builder, x: Tensor) -> Tensor:
    return b.conv(x, 24, 3)


def _stacked(b: Builder, x: Tensor) -> Tensor:
    return b.depthwise(b.conv(x, 24, 3, activation=Activation.RELU), (3, 5), stride=2)


def _padded(b: Builder, x: Tensor) -> Tensor:
    return b.conv(b.pad(x, 1, 1), 24, 3, 1, VALID, Activation.RELU)


def _pooled(b: Builder, x: Tensor) -> Tensor:
    return b.concat(
        b.max_pool(b.conv(x, 24, 1), 2, 2), b.average_pool(b.conv(x, 24, 1, activation=Activation.RELU), 2, 2)
    )


def _normalised(b: Builder, x: Tensor) -> Tensor:
    return b.scale_and_shift(b.add(b.conv(x, 24, 1), b.relu(b.conv(x, 24, 1))))


@pytest.mark.parametrize(
    ("layers", "size"), [(_same_conv, 4), (_stacked, 4), (_padded, 24), (_pooled, 4), (_normalised, 4)]
)
def test_moments_are_those_of_many_runs(layers: Callable[[Builder, Tensor], Tensor], size: int) -> None:
    """Mean and standard deviation of the channels, over pixels and inputs, are predicted to a few per cent, also on a
    small image, where SAME padding weighs most."""
    b = Builder("few layers")
    graph = b.graph(layers(b, b.input(1, size, size, 8)))
    runtime = Runtime(graph)
    values = []
    for seed in range(400):
        runtime.run(seed)
        values.append(runtime.value(graph.outputs[0]).reshape(-1, graph.tensors[graph.outputs[0]].shape[-1]))
    mean, variance = draw(graph, 0).distributions[graph.outputs[0]].moments()
    sampled = np.concatenate(values)
    assert np.abs(sampled.mean(axis=0) - mean).mean() < 0.1
    assert np.sqrt(sampled.var(axis=0).mean()) == pytest.approx(np.sqrt(variance.mean()), rel=0.06)
