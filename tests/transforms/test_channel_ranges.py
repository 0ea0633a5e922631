"""Ranges hold every value that a channel can have, and layers' ranges hold no other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from diagmem.model.graph import DType, Graph, Padding, Quantisation
from diagmem.ops import kinds
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.matrix.products import FullyConnected
from diagmem.transforms.channel_links import STORED, Sums
from diagmem.transforms.channel_ranges import Range, ranges_of
from diagmem.verification import reference
from diagmem.verification.places import range_faults
from diagmem.verification.reference import sample_inputs
from tests.ops.fitting import SeededDraw, fitted
from tests.ops.sampling import samples_of
from tests.transforms.layers import UNIT, IdleNet, idle_net

LAYERS = [name for name, kind in kinds().items() if kind.takes.weights is not None and kind.takes.data == 0]
EVERY_BYTE = np.arange(-128, 128, dtype=np.int8)


def two_inputs(seed: int) -> Graph:
    """A layer with so few inputs that all of them can be tried, as rows of one tensor."""
    net = IdleNet(seed)
    x = net.image(65536, 2)
    return net.graph(net.layer("FULLY_CONNECTED", FullyConnected(net.drawn_activation()), x, net.weights((9, 2), 0), 9))


@pytest.mark.parametrize("seed", range(6))
def test_a_layer_reaches_both_ends_of_its_range(seed: int) -> None:
    """Of all 65536 inputs, the least and the largest output of each channel are those of its range."""
    graph = two_inputs(seed)
    every = np.stack(np.meshgrid(EVERY_BYTE, EVERY_BYTE), axis=-1).reshape(-1, 2)
    made = reference.run(graph, [every])[graph.outputs[0]]
    found = ranges_of(graph)[graph.outputs[0]]
    assert np.array_equal(made.min(axis=0), found.low)
    assert np.array_equal(made.max(axis=0), found.high)


@pytest.mark.parametrize("dtype", STORED, ids=str)
@pytest.mark.parametrize("kind", LAYERS)
def test_sums_are_finished_as_the_layer_does(kind: str, dtype: DType) -> None:
    """Of images with one value for each channel, the least and the largest output are those that its sums become: types
    and kinds round in different ways."""
    tried = 0
    for seed in range(400):
        node = fitted(samples_of(kind).sample(kind, SeededDraw(f"{kind} {seed}")), seed)
        sums = Sums.of(node) if node.input(0).dtype is dtype and node.output.elems else None
        if sums is None:
            continue
        data, rng = node.input(0), np.random.default_rng(seed)
        for _ in range(8):
            row = rng.integers(*range_of(dtype), data.shape[-1], endpoint=True)
            lowest, highest = sums.limits(row, row)
            assert np.array_equal(lowest, highest)
            if not sums.is_safe(lowest, highest):
                continue
            values = [None if t is None else t.data for t in node.inputs]
            values[0] = np.broadcast_to(row.astype(dtype.numpy), data.shape)
            made = kinds()[kind].reference(node, values)[0].reshape(-1, node.output.shape[-1])
            found = sums.outputs(lowest)
            assert made.min(axis=0).tolist() == found.min(axis=0).tolist()
            assert made.max(axis=0).tolist() == found.max(axis=0).tolist()
            tried += 1
    assert tried > 40


def range_of(dtype: DType) -> tuple[int, int]:
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


@pytest.mark.parametrize("seed", range(6))
def test_borders_count(seed: int) -> None:
    """Of all images of two by two pixels with the outermost values, the ends are those of the range, for a window that
    lies partly outside at every place."""
    net = IdleNet(seed)
    x = net.image(256, 2, 2, 1)
    graph = net.graph(net.layer("CONV_2D", Conv2D(Padding.SAME), x, net.weights((5, 3, 3, 1), 0), 5))
    ends = np.array([-128, -1, 0, 127], np.int8)
    every = np.stack(np.meshgrid(*[ends] * 4), axis=-1).reshape(256, 2, 2, 1)
    made = reference.run(graph, [every])[graph.outputs[0]].reshape(-1, 5)
    found = ranges_of(graph)[graph.outputs[0]]
    assert np.array_equal(made.min(axis=0), found.low)
    assert np.array_equal(made.max(axis=0), found.high)


@pytest.mark.parametrize("seed", range(25))
def test_no_value_lies_outside(seed: int) -> None:
    """Whatever goes into a network, every channel of every tensor stays within its range; nor does any operation leave
    it when it is led to the ends."""
    graph = idle_net(seed)
    ranges = ranges_of(graph)
    assert not list(range_faults(graph, ranges))
    for inputs in sample_inputs(graph, 3, seed):
        for index, values in reference.run(graph, inputs).items():
            rows = values.reshape(-1, max(1, graph.tensors[index].shape[-1]))
            assert (rows >= ranges[index].low).all(), index
            assert (rows <= ranges[index].high).all(), index


def test_channels_of_every_sort_are_found() -> None:
    """The networks drawn here have constant channels of every type."""
    found: dict[DType, int] = {}
    for seed in range(40):
        graph = idle_net(seed)
        made = {t for op in graph.ops for t in op.outputs}
        count = sum(int(r.is_constant.sum()) for t, r in ranges_of(graph).items() if t in made)
        dtype = graph.tensors[graph.inputs[0]].dtype
        found[dtype] = found.get(dtype, 0) + count
    assert all(found[dtype] > 5 for dtype in (DType.INT8, DType.INT16, DType.FLOAT32)), found


def rarely_varying() -> Graph:
    """A layer whose output is above -128 for one input in 16 million: only if all three bytes are the largest."""
    net = IdleNet(0)
    x = net.scaled(net.input(1, 3), zero_point=-128)
    found = Quantisation((1.0,), (0,), 0)
    weights = net.tensor((1, 3), DType.INT8, is_constant=True, data=np.ones((1, 3), np.int8), quantisation=found)
    bias = net.tensor((1,), DType.INT32, is_constant=True, data=np.array([-764], np.int32))
    made = net.op("FULLY_CONNECTED", FullyConnected(), x, weights, bias)
    net.tensors[made] = replace(net.tensors[made], quantisation=Quantisation((UNIT,), (-128,)))
    return net.graph(made)


def test_a_channel_that_varies_once_in_millions_is_no_constant() -> None:
    """The range knows of the one input that gives another value."""
    graph = rarely_varying()
    found = ranges_of(graph)[graph.outputs[0]]
    assert (int(found.low[0]), int(found.high[0])) == (-128, -127)


def test_a_planted_error_is_found() -> None:
    """Were it called constant, ten thousand random inputs would not contradict; running the layer at its ends does."""
    graph = rarely_varying()
    (output,) = graph.outputs
    planted = {**ranges_of(graph), output: Range(np.array([-128.0]), np.array([-128.0]))}
    rng = np.random.default_rng(0)
    drawn = rng.integers(-128, 128, (10_000, 3)).astype(np.int8)
    batch = replace(
        graph,
        tensors=tuple(replace(t, shape=(10_000, *t.shape[1:])) if not t.is_constant else t for t in graph.tensors),
    )
    assert (reference.run(batch, [drawn])[output] == -128).all()
    assert any("channel 0 is -127" in fault for fault in range_faults(graph, planted))
