"""Without channels that do nothing, a graph computes the same bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import diagmem
from diagmem.kernels import ChannelBlock
from diagmem.model.graph import DType, Graph, Padding
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from diagmem.ops.elementwise.unary import Unary
from diagmem.ops.moving.concatenation import Split
from diagmem.ops.moving.reshape import Reshape
from diagmem.ops.moving.strided_slice import StridedSlice
from diagmem.ops.resizing.resize import Resize
from diagmem.transforms import macs_of, transformed, weights_of
from diagmem.transforms.remove_channels import channel_counts
from diagmem.verification import reference
from diagmem.verification.reference import sample_inputs
from tests.transforms.layers import IdleNet, idle_net

NAME = "remove-channels"


def without(graph: Graph, block: ChannelBlock | None = None) -> Graph:
    return transformed(graph, [NAME], block=block or ChannelBlock())[0]


def check_the_same(model: Graph, less: Graph, runs: int = 3) -> None:
    """Every tensor that is left has those channels of the model's that it says, bit for bit."""
    for inputs in sample_inputs(model, runs, 7):
        whole, found = reference.run(model, inputs), reference.run(less, inputs)
        for node in less.nodes:
            for tensor in node.outputs:
                want = whole[tensor.index]
                want = want if tensor.channels is None else want[..., list(tensor.channels)]
                assert want.tobytes() == found[tensor.index].tobytes(), node.label
                assert found[tensor.index].shape == tensor.shape


@pytest.mark.parametrize("block", [ChannelBlock(), ChannelBlock(4), ChannelBlock(8, 3)], ids=str)
@pytest.mark.parametrize("seed", range(25))
def test_what_is_left_has_its_bytes(seed: int, block: ChannelBlock) -> None:
    """On integers of 8 and 16 bits and on float32, with borders, joins and reshapes; outputs keep their shape."""
    graph = idle_net(seed)
    less = without(graph, block)
    check_the_same(graph, less)
    assert [less.tensors[t].shape for t in less.outputs] == [graph.tensors[t].shape for t in graph.outputs]
    assert macs_of(less) <= macs_of(graph)


def test_much_goes() -> None:
    """The networks drawn here lose a good part of their weights and of their work."""
    graphs = [idle_net(seed) for seed in range(40)]
    less = [without(graph) for graph in graphs]
    assert sum(map(macs_of, less)) < 0.6 * sum(map(macs_of, graphs))
    assert sum(map(weights_of, less)) < 0.8 * sum(map(weights_of, graphs))
    assert any(len(a.ops) < len(b.ops) for a, b in zip(less, graphs, strict=True))


def two_layers(value: int, kernel: int, padding: Padding, zero_point: int = -128) -> Graph:
    """A convolution of which one channel is `value` (a stored number), read by a second one with such a window."""
    net = IdleNet(3)
    x = net.image(1, 6, 6, 2)
    first = net.weights((3, 1, 1, 2), 0, idle=0)
    weights = net.tensors[first].data
    assert weights is not None
    weights[:] = np.abs(weights)
    weights[1] = 0
    scale = net.tensors[first].quantisation
    assert scale is not None
    bias = np.zeros(3, np.int32)
    bias[1] = round((value - zero_point) / scale.scales[1])
    own = net.tensor((3,), DType.INT32, is_constant=True, data=bias)
    middle = net.scaled(net.op("CONV_2D", Conv2D(Padding.SAME), x, first, own), zero_point)
    second = net.weights((4, kernel, kernel, 3), 0, idle=0)
    return net.graph(net.layer("CONV_2D", Conv2D(padding), middle, second, 4))


@pytest.mark.parametrize(
    ("value", "kernel", "padding", "goes"),
    [
        (-128, 3, Padding.SAME, True),
        (-100, 1, Padding.SAME, True),
        (-100, 3, Padding.VALID, True),
        (-100, 3, Padding.SAME, False),
    ],
)
def test_a_border_keeps_what_it_does_not_read(value: int, kernel: int, padding: Padding, goes: bool) -> None:
    """A constant other than the zero point adds less where a window lies partly outside: then the channel stays, else
    its part of the sum goes into the bias."""
    graph = two_layers(value, kernel, padding)
    less = without(graph)
    check_the_same(graph, less)
    left = less.tensors[graph.ops[0].outputs[0]].channels or (0, 1, 2)
    assert (1 not in left) is goes


def test_a_border_that_makes_no_difference_is_none() -> None:
    """Where the taps that may lie outside have no weight, the rest is the same everywhere."""
    graph = two_layers(-100, 3, Padding.SAME)
    weights = graph.nodes[1].input(1)
    assert weights.data is not None
    inner = weights.data.copy()
    inner[:, [0, 0, 0, 1, 1, 2, 2, 2], [0, 1, 2, 0, 2, 0, 1, 2], 1] = 0
    tensors = tuple(replace(t, data=inner) if t is weights else t for t in graph.tensors)
    graph = replace(graph, tensors=tensors)
    less = without(graph)
    check_the_same(graph, less)
    assert 1 not in (less.tensors[graph.ops[0].outputs[0]].channels or (0, 1, 2))


def test_what_a_depthwise_layer_makes_constant_is_not_computed_before_it() -> None:
    """A channel is unread where the layer behind has no weights for it."""
    net = IdleNet(5)
    middle = net.dense(net.image(1, 4, 4, 3), 6, kernel=1)
    filters = net.weights((1, 3, 3, 6), 3, idle=0)
    weights = net.tensors[filters].data
    assert weights is not None
    weights[..., 2] = 0
    spread = net.layer("DEPTHWISE_CONV_2D", DepthwiseConv2D(Padding.SAME), middle, filters, 6)
    graph = net.graph(net.dense(spread, 4, kernel=1))
    less = without(graph)
    check_the_same(graph, less)
    assert 2 not in (less.tensors[middle].channels or range(6))
    assert channel_counts(graph)[1].of_constants >= 1


def test_shared_weights_are_cut_for_each_reader() -> None:
    """Two layers with the same filter, of which one has a constant input channel: each has what it needs."""
    net = IdleNet(2)
    x = net.image(1, 4, 4, 3)
    filters = net.weights((5, 1, 1, 3), 0, idle=0)
    zeroed = net.weights((3, 1, 1, 3), 0, idle=0)
    weights = net.tensors[zeroed].data
    assert weights is not None
    weights[0] = 0
    narrow = net.scaled(net.op("CONV_2D", Conv2D(), x, zeroed))
    sides = [net.scaled(net.op("CONV_2D", Conv2D(), source, filters)) for source in (x, narrow)]
    graph = net.graph(*sides)
    less = without(graph)
    check_the_same(graph, less)
    assert [node.input(1).shape[-1] for node in less.nodes[1:]] == [3, 2]


def test_an_image_of_two_channels_is_resized() -> None:
    """What says how large it becomes has two numbers too, and keeps them."""
    net = IdleNet(6)
    filters = net.weights((2, 1, 1, 3), 0, idle=0)
    weights = net.tensors[filters].data
    assert weights is not None
    weights[:] = np.abs(weights)
    weights[1] = 0
    middle = net.scaled(net.op("CONV_2D", Conv2D(), net.image(1, 4, 4, 3), filters), zero_point=-128)
    size = net.constant(2, values=[8, 8])
    large = net.alike("RESIZE_NEAREST_NEIGHBOR", Resize(), middle, size)
    graph = net.graph(net.dense(large, 4, kernel=1))
    less = without(graph)
    check_the_same(graph, less)
    assert less.tensors[middle].channels == less.tensors[large].channels == (0,)


def test_an_output_without_elements_is_still_made() -> None:
    """None of its channels is needed, for there is none; what makes it stays where others lose channels."""
    net = IdleNet(1)
    empty = net.op("NEG", Unary(), net.input(0, dtype=DType.FLOAT32))
    whole = idle_net(1)
    shift = len(net.tensors)
    tensors = [replace(t, index=t.index + shift) for t in whole.tensors]
    ops = [
        replace(op, index=op.index + 1, inputs=tuple(t + shift for t in op.inputs), outputs=(op.outputs[0] + shift,))
        for op in whole.ops
    ]
    graph = Graph("both", (*net.tensors, *tensors), (*net.ops, *ops), (0, shift), (empty, whole.outputs[0] + shift))
    less = without(graph)
    assert less is not graph
    assert less.ops[0].kind == "NEG"


def test_without_weights_nothing_is_known() -> None:
    """A model of the zoo has none until it runs."""
    graph = diagmem.plan("zoo:kws_dscnn_int8").model
    assert without(graph) is graph


def test_a_plan_says_what_went() -> None:
    """Channels, weights and multiply-accumulates; read back, the plan is that of the same graph."""
    graph = idle_net(1)
    made = diagmem.plan(graph)
    (removal,) = (r for r in made.removals if r.transform == NAME)
    assert removal.channels > 0 > removal.weights_changed
    assert removal.macs_changed < 0
    assert not diagmem.check(graph, made.to_json())


def cut_net(seed: int) -> Graph:
    """Layers whose channels, rows or columns are taken apart, and joined again."""
    chance, net = np.random.default_rng(seed), IdleNet(seed)
    x = net.dense(net.image(1, 5, 6, 3), 12)
    match seed % 4:
        case 0:
            parts = net.several("SPLIT", Split(3), (net.constant(1, values=[3]), x), 3)
        case 1:
            sizes, axis = net.constant(2, values=[5, 7]), net.constant(1, values=[3])
            parts = net.several("SPLIT_V", Split(2), (x, sizes, axis), 2)
        case 2:
            begin, size = net.constant(4, values=[0, 1, 0, 4]), net.constant(4, values=[1, 3, 6, 6])
            parts = net.several("SLICE", None, (x, begin, size), 1)
        case _:
            numbers = ([0, 0, 1, 2], [1, 5, 6, -1], [1, 1, 2, 1])
            bounds = [net.constant(4, values=values) for values in numbers]
            parts = net.several("STRIDED_SLICE", StridedSlice(), (x, *bounds), 1)
    made = [net.separate(part) if chance.random() < 0.5 else part for part in parts]
    return net.graph(*(net.connected(_flattened(net, part), 3) for part in made))


def _flattened(net: IdleNet, x: int) -> int:
    return net.alike("RESHAPE", Reshape(new_shape=(1, net.tensors[x].elems)), x)


@pytest.mark.parametrize("way", range(4), ids=("SPLIT", "SPLIT_V", "SLICE", "STRIDED_SLICE"))
def test_parts_lose_channels_too(way: int) -> None:
    """Constants travel into parts of a tensor, and what nobody reads of a part goes from the whole. Parts of a SPLIT
    stay alike, so that not all can go there."""
    gone = 0
    for seed in range(way, way + 16, 4):
        graph = cut_net(seed)
        less = without(graph)
        check_the_same(graph, less)
        cut = next(op for op in graph.ops if op.kind in ("SPLIT", "SPLIT_V", "SLICE", "STRIDED_SLICE"))
        source = cut.inputs[1 if cut.kind == "SPLIT" else 0]
        gone += graph.tensors[source].shape[-1] - less.tensors[source].shape[-1]
    assert gone > 0


def test_channels_go_through_whatever_keeps_them() -> None:
    """A sum of several tensors, a clamp, a choice between two: no table lists the kinds."""
    gone = 0
    for seed in range(8):
        net = IdleNet(seed)
        image = net.image(1, 5, 5, 3)
        sides = [net.scaled(net.dense(image, 8, kernel=1), zero_point=-100) for _ in range(3)]
        x = net.scaled(net.op("ADD_N", None, *sides), zero_point=-100)
        is_less = net.op("LESS", None, x, sides[0], dtype=DType.BOOL)
        x = net.op("SELECT_V2", None, is_less, x, net.alike("RELU_0_TO_1", Unary(), x), dtype=DType.INT8)
        net.tensors[x] = replace(net.tensors[x], quantisation=net.tensors[sides[0]].quantisation)
        graph = net.graph(net.connected(_flattened(net, x), 3))
        less = without(graph)
        check_the_same(graph, less)
        gone += sum(8 - less.tensors[t].shape[-1] for t in sides)
    assert gone > 8


@pytest.mark.parametrize("seed", range(6))
def test_channels_without_a_sign(seed: int) -> None:
    """Networks of unsigned bytes: their weights have a zero point, which is not 0."""
    net = IdleNet(seed, DType.UINT8)
    x = net.dense(net.image(1, 5, 5, 3), 9)
    x = net.dense(net.separate(x), 6, kernel=1)
    graph = net.graph(net.connected(_flattened(net, x), 3))
    less = without(graph)
    check_the_same(graph, less)
    assert sum(t.elems for t in less.tensors if t.channels) < sum(t.elems for t in graph.tensors if not t.is_constant)


def test_blocks_of_real_numbers_are_filled_only_where_that_is_faster() -> None:
    """With and without."""
    net = IdleNet(3, DType.FLOAT32)
    x = net.dense(net.dense(net.image(1, 5, 5, 3), 12), 6, kernel=1)
    graph = net.graph(net.connected(_flattened(net, x), 3))
    alone, filled = (without(graph, ChannelBlock(8, 1, of_float32)) for of_float32 in (False, True))
    assert macs_of(alone) == macs_of(without(graph)) < macs_of(filled)
    check_the_same(graph, filled)
