"""What each transform removes, and what it must leave alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from diagmem.model.graph import DType, ExplicitPadding, Graph, Node, Padding, Quantisation
from diagmem.ops import Activation, kinds
from diagmem.ops.c_call import values_of
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.transpose_conv import TransposeConv
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.elementwise.unary import Unary
from diagmem.ops.moving.concatenation import Concatenation
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.transforms import TRANSFORMS, Removal, transformed
from tests.networks import Net
from tests.ops.drawing import is_supported
from tests.ops.fitting import SeededDraw
from tests.ops.sampling import samples_of
from tests.transforms.removable_ops import Tangle


def left(graph: Graph, *names: str) -> list[str]:
    """The kinds of the ops that are left."""
    return [op.kind for op in transformed(graph, names)[0].ops]


def view(graph: Graph, tensor: int, *names: str) -> tuple[int, int, tuple[int, ...]] | None:
    """Base, offset, and the strides of the axes that have a second element."""
    found = transformed(graph, names)[0].tensors[tensor]
    if found.view is None:
        return None
    strides = tuple(s for s, size in zip(found.strides, found.shape, strict=True) if size > 1)
    return found.view.base, found.view.offset_elems, strides


def branches(axis: int = 3) -> tuple[Tangle, list[int], int]:
    """Two convolutions, and their results side by side."""
    net = Tangle()
    x = net.input(1, 4, 4, 2)
    parts = [net.conv(x, 3), net.conv(x, 3)]
    return net, parts, net.joined(axis, *parts)


def test_concatenated_parts_lie_side_by_side() -> None:
    """Along channels: a part starts behind those before it, and pixels are as far apart as in the whole."""
    net, (a, b), whole = branches()
    graph = net.graph(net.relu(whole))
    assert view(graph, a, "remove-concat") == (whole, 0, (24, 6, 1))
    assert view(graph, b, "remove-concat") == (whole, 3, (24, 6, 1))
    assert left(graph, "remove-concat") == ["CONV_2D", "CONV_2D", "RELU"]


def test_concatenated_rows_stay_in_one_piece() -> None:
    net, (_, b), whole = branches(axis=1)
    assert view(net.graph(net.relu(whole)), b, "remove-concat") == (whole, 48, (12, 3, 1))


def test_chains_of_constants_become_one() -> None:
    """With the values that the ops would compute, and only if all of them are known."""
    net = Tangle()
    x, two = net.input(1, 2, 2, 3), net.tensor((3,), is_constant=True, data=np.array([-2, 0, 2], np.float32))
    offset = net.relu(net.op("NEG", Unary(), two))
    graph = net.graph(net.add(x, offset))
    less = transformed(graph, ["fold-constants"])[0]
    assert [op.kind for op in less.ops] == ["ADD"]
    assert np.array_equal(values_of(less.tensors[offset]), [2, 0, 0])
    assert left(net.graph(offset), "fold-constants") == ["RELU", "ADD"], "the caller sees what RELU makes"
    unknown = replace(graph, tensors=tuple(replace(t, data=None) for t in graph.tensors))
    assert left(unknown, "fold-constants") == ["NEG", "RELU", "ADD"]


def test_halves_become_single_precision() -> None:
    net, halves = Tangle(), np.array([[0.5, -2, 3]], np.float16)
    x, stored = net.input(1, 3), net.tensor((1, 3), DType.FLOAT16, is_constant=True, data=halves)
    weights = net.op("DEQUANTIZE", Unary(), stored, dtype=DType.FLOAT32)
    less = transformed(net.graph(net.op("MUL", Binary(), x, weights)), ["fold-constants"])[0]
    assert [op.kind for op in less.ops] == ["MUL"]
    assert values_of(less.tensors[weights]).dtype == np.float32


@pytest.mark.parametrize(("elems", "stays"), [(1024, []), (1025, ["FILL"])])
def test_what_would_take_more_flash_than_it_saves_stays(elems: int, stays: list[str]) -> None:
    net = Tangle()
    x, value = net.input(1), net.tensor((), is_constant=True, data=np.array(1, np.float32))
    filled = net.op("FILL", None, net.ints(1, values=[elems]), value, shapes=[(elems,)], dtype=DType.FLOAT32)
    assert left(net.graph(net.add(filled, x)), "fold-constants") == [*stays, "ADD"]


def test_chains_end_in_the_outermost_whole() -> None:
    """As in DenseNet: what was concatenated before is a view of what is concatenated last."""
    net, (a, b), inner = branches()
    c = net.conv(inner, 2)
    outer = net.joined(3, c, inner)
    graph = net.graph(net.relu(outer))
    less, _ = transformed(graph, ["remove-concat"])
    assert {less.tensors[t].base for t in (a, b, c, inner)} == {outer}
    assert view(graph, b, "remove-concat") == (outer, 5, (32, 8, 1))


def test_a_reshaped_part_is_moved_with_its_source() -> None:
    net = Tangle()
    x = net.conv(net.input(1, 4, 4, 2), 3)
    flat = net.reshape(x, 1, 1, 16, 3)
    whole = net.joined(3, flat, net.reshape(net.conv(0, 2), 1, 1, 16, 2))
    graph = net.graph(net.relu(whole))
    assert left(graph, "drop-no-ops", "remove-concat") == ["CONV_2D", "CONV_2D", "RELU"]
    assert view(graph, x, "drop-no-ops", "remove-concat") == (whole, 0, (20, 5, 1))


def _input() -> Graph:
    net = Tangle()
    x = net.input(1, 2, 2, 1)
    return net.graph(net.joined(3, x, net.relu(x)))


def _output() -> Graph:
    net, (a, _), whole = branches()
    return net.graph(net.relu(whole), a)


def _twice_the_same() -> Graph:
    net = Tangle()
    x = net.relu(net.input(1, 2, 2, 1))
    return net.graph(net.joined(3, x, x))


def _in_two_places() -> Graph:
    net, (a, b), whole = branches()
    return net.graph(net.joined(3, whole, net.joined(3, b, a)))


def _activated() -> Graph:
    net = Tangle()
    x = net.relu(net.input(1, 2, 2, 1))
    return net.graph(net.op("CONCATENATION", Concatenation(3, Activation.RELU), x, net.relu(x)))


def _unknown_writer() -> Graph:
    net = Tangle()
    x = net.opaque(net.input(1, 2, 2, 1))
    return net.graph(net.joined(3, x, net.relu(x)))


def _other_scale() -> Graph:
    net = Net()
    x = net.relu(net.input(1, 2, 2, 1))
    graph = net.graph(net.concat(x, net.relu(x)))
    scaled = replace(graph.tensors[x], quantisation=Quantisation((0.5,), (0,)))
    return replace(graph, tensors=tuple(scaled if t.index == x else t for t in graph.tensors))


def _softmax_reads_it() -> Graph:
    net, (a, _), whole = branches()
    return net.graph(net.op("SOFTMAX", None, a), whole)


@pytest.mark.parametrize(
    "make", [_input, _output, _twice_the_same, _activated, _unknown_writer, _other_scale, _softmax_reads_it]
)
def test_concatenations_that_must_stay(make: object) -> None:
    """A part that the caller sees, that stands there twice, that has another scale, whose writer or reader cannot
    address a view; an activation on the way."""
    assert "CONCATENATION" in left(make(), "remove-concat")  # type: ignore[operator]


def test_a_part_can_lie_in_one_whole_only() -> None:
    """The second copies it; what it makes can still be written into a larger whole."""
    assert left(_in_two_places(), "remove-concat").count("CONCATENATION") == 1


def test_very_many_parts_are_copied() -> None:
    """All parts of a whole are compared with each other, so there is a limit to them."""
    net = Tangle()
    x = net.input(1, 1, 1, 1)
    few, many = (net.joined(3, *(net.relu(x) for _ in range(count))) for count in (100, 200))
    assert left(net.graph(few, many), "remove-concat").count("CONCATENATION") == 1


def test_packed_tensors_lie_one_behind_another() -> None:
    net = Tangle()
    x = net.relu(net.input(2, 3))
    y = net.relu(x)
    whole = net.stack(x, y)
    assert view(net.graph(net.relu(whole)), y, "remove-concat") == (whole, 6, (3, 1))


def test_slices_are_read_where_they_lie() -> None:
    """Channels, rows and columns, every other one; and a slice of a slice."""
    net = Tangle()
    x = net.relu(net.input(1, 4, 4, 6))
    halves = net.split(x, 2)
    window = net.cut(halves[1], [0, 1, 1, 0], [1, 2, 2, 2])
    sparse = net.every_other(x)
    graph = net.graph(*(net.relu(t) for t in (halves[0], window, sparse)))
    assert "SPLIT" not in left(graph, "remove-slices")
    assert view(graph, halves[1], "remove-slices") == (x, 3, (24, 6, 1))
    assert view(graph, window, "remove-slices") == (x, 33, (24, 6, 1))
    assert view(graph, sparse, "remove-slices") == (x, 0, (48, 12, 1))


def test_slices_that_must_stay() -> None:
    """One that the caller sees, one that goes backwards, and one that a kernel reads which cannot."""
    net = Tangle()
    x = net.relu(net.input(1, 4, 4, 6))
    seen = net.cut(x, [0, 0, 0, 0], [1, 4, 4, 2])
    rows = net.op("SOFTMAX", None, net.cut(x, [0, 0, 0, 2], [1, 4, 4, 2]))
    assert left(net.graph(seen, rows), "remove-slices").count("SLICE") == 2


@pytest.mark.parametrize("padding", [Padding.VALID, Padding.SAME])
def test_padding_is_added_to_that_of_a_convolution(padding: Padding) -> None:
    net = Tangle()
    padded = net.pad(net.input(1, 5, 5, 2), 1, 2, 0, 3)
    weights = net.constant(4, 3, 3, 2)
    graph = net.graph(net.op("CONV_2D", Conv2D(padding), padded, weights))
    less, _ = transformed(graph, ["fold-pad"])
    own = 1 if padding is Padding.SAME else 0
    assert [op.kind for op in less.ops] == ["CONV_2D"]
    assert less.ops[0].attributes.padding == ExplicitPadding(1 + own, 2 + own, own, 3 + own)


def _averaged() -> Tangle:
    net = Tangle()
    net.average(net.pad(net.relu(net.input(1, 4, 4, 2)), 1, 1, 1, 1))
    return net


def _negative() -> Tangle:
    net = Tangle()
    net.pool(net.pad(net.conv(net.input(1, 4, 4, 2), 2), 1, 1, 1, 1))
    return net


def _far_out() -> Tangle:
    net = Tangle()
    net.pool(net.pad(net.relu(net.input(1, 4, 4, 2)), 3, 0, 0, 0))
    return net


def _batch() -> Tangle:
    net = Tangle()
    x = net.op("PAD", None, net.input(1, 4, 4, 2), net.ints(4, 2, values=[1, 0, 0, 0, 0, 0, 0, 0]))
    net.conv(x, 2)
    return net


@pytest.mark.parametrize("make", [_averaged, _negative, _far_out, _batch])
def test_padding_that_must_stay(make: object) -> None:
    """Before an average; before a maximum of what may be negative, or with windows in the padding alone; of a batch."""
    net = make()  # type: ignore[operator]
    assert "PAD" in left(net.graph(net.ops[-1].outputs[0]), "fold-pad")


def test_padding_before_a_maximum_of_what_is_never_negative() -> None:
    net = Tangle()
    padded = net.pad(net.relu(net.input(1, 4, 4, 2)), 1, 1, 1, 1)
    graph = net.graph(net.op("MAX_POOL_2D", Pool2D(Padding.VALID, 1, 1, 3, 3), padded))
    assert left(graph, "fold-pad") == ["RELU", "MAX_POOL_2D"]


def _pointwise_of_one() -> Iterator[Node]:
    """Functions of one number: drawn nodes, of which kind and attributes matter."""
    for name, kind in kinds().items():
        node = (
            samples_of(kind).sample(name, SeededDraw(name))
            if kind.is_pointwise and name not in kind.without_kernel
            else None
        )
        if node is not None and len(node.inputs) == len(node.outputs) == 1:
            yield node


def test_padding_stays_behind_what_makes_negative_numbers() -> None:
    """Of every function of one number it is tried whether it can make any."""
    tried, values = 0, np.linspace(-8, 8, 32, dtype=np.float32).reshape(1, 4, 4, 2)
    for drawn in _pointwise_of_one():
        net = Tangle()
        made = net.op(drawn.op.kind, drawn.attributes, net.input(1, 4, 4, 2))
        pooled = net.op("MAX_POOL_2D", Pool2D(Padding.VALID, 1, 1, 3, 3), net.pad(made, 1, 1, 1, 1))
        graph = net.graph(pooled)
        if not is_supported(graph.nodes[0]):
            continue
        with np.errstate(all="ignore"):
            (numbers,) = kinds()[drawn.op.kind].reference(graph.nodes[0], (values,))
        tried += bool(numbers.min() < 0)
        assert "PAD" in left(graph, "fold-pad") or numbers.min() >= 0, drawn.op.kind
    assert tried > 10


@pytest.mark.parametrize(("value", "is_folded"), [(7, True), (0, False)])
def test_a_given_padding_must_stand_for_zero(value: int, is_folded: bool) -> None:
    """PADV2 of quantised integers: the value that is added must be their zero point."""
    net = Net()
    x = net.input(1, 4, 4, 2)
    pads = net.constant(4, 2, values=[0, 0, 1, 1, 1, 1, 0, 0])
    shaped = np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)
    net.tensors[pads] = replace(net.tensors[pads], data=shaped)
    added = net.tensor((), DType.INT8, is_constant=True, data=np.array(value, np.int8))
    padded = net.op("PADV2", None, x, pads, added, shapes=[(1, 6, 6, 2)])
    graph = net.graph(net.conv(padded, 3))
    scale = Quantisation((0.5,), (7,))
    graph = replace(
        graph,
        tensors=tuple(replace(t, quantisation=scale) if t.index in (x, padded) else t for t in graph.tensors),
    )
    assert ("PADV2" not in left(graph, "fold-pad")) == is_folded


def test_moves_that_move_nothing() -> None:
    """Reshapes, casts to the same type, transposes of axes of size 1, slices of all: no bytes at all."""
    net = Tangle()
    x = net.relu(net.input(1, 1, 4, 3))
    y = net.turned(net.cast(net.cut(x, [0] * 4, [1, 1, 4, 3]), DType.FLOAT32))
    assert left(net.graph(net.relu(net.reshape(y, 12))), "drop-no-ops") == ["RELU", "RELU"]


def test_any_kind_of_move_may_move_nothing() -> None:
    """Tiles of one, and axes of size 1 in reverse order: no table lists the kinds, each says that it only moves."""
    net = Tangle()
    x = net.relu(net.input(1, 1, 4, 3))
    tiled = net.op("TILE", None, x, net.ints(4, values=[1, 1, 1, 1]))
    graph = net.graph(net.relu(net.op("REVERSE_V2", None, tiled, net.ints(1, values=[1]))))
    assert left(graph, "drop-no-ops") == ["RELU", "RELU"]


def test_a_move_to_the_caller_becomes_a_reshape() -> None:
    """Which the plan leaves where it is."""
    net = Tangle()
    graph = net.graph(net.turned(net.relu(net.input(1, 1, 4, 3))))
    assert left(graph, "drop-no-ops") == ["RELU", "RESHAPE"]


def test_conversions_that_are_none() -> None:
    """QUANTIZE to the same scale goes, to another stays; so does a cast to another type."""
    net = Net()
    x = net.relu(net.input(4))
    same, other = net.op("QUANTIZE", Unary(), x), net.op("QUANTIZE", Unary(), x)
    graph = net.graph(net.relu(same), net.relu(other), net.relu(net.cast(x, DType.INT16)))
    scaled = replace(graph.tensors[other], quantisation=Quantisation((2.0,), (0,)))
    graph = replace(graph, tensors=tuple(scaled if t.index == other else t for t in graph.tensors))
    assert [k for k in left(graph, "drop-no-ops") if k != "RELU"] == ["QUANTIZE", "CAST"]


def test_duplicates_are_computed_once() -> None:
    """Equal kind, attributes and inputs, also where the inputs only became equal; what the caller sees stays."""
    net = Tangle()
    x = net.input(1, 2, 2, 3)
    a, b = net.relu(net.relu(x)), net.relu(net.relu(x))
    graph = net.graph(net.add(a, b), net.relu(x))
    assert left(graph, "merge-duplicates") == ["RELU", "RELU", "ADD", "RELU"]


def test_what_differs_is_no_duplicate() -> None:
    net = Tangle()
    x = net.input(1, 4, 4, 2)
    graph = net.graph(net.add(net.pool(x), net.pool(x, 3)), net.add(net.opaque(x), net.opaque(x)))
    assert len(left(graph, "merge-duplicates")) == len(graph.ops)


@pytest.mark.parametrize("change", ["scale", "zero point", "type"])
def test_results_that_are_stored_otherwise_are_no_duplicates(change: str) -> None:
    """Equal kind, attributes and inputs, but another scale, zero point or type of the output."""
    net = Net()
    x = net.relu(net.input(4))
    first = net.op("QUANTIZE", Unary(), x)
    second = net.op("QUANTIZE", Unary(), x, dtype=DType.INT16 if change == "type" else None)
    graph = net.graph(net.relu(first), net.relu(second))
    plain = Quantisation((0.5,), (0,))
    other = {"scale": Quantisation((0.25,), (0,)), "zero point": Quantisation((0.5,), (3,)), "type": plain}[change]
    stored = {first: plain, second: other}
    tensors = tuple(replace(t, quantisation=stored.get(t.index, t.quantisation)) for t in graph.tensors)
    assert left(replace(graph, tensors=tensors), "merge-duplicates").count("QUANTIZE") == 2
    alike = tuple(replace(t, quantisation=plain) if t.index in stored else t for t in graph.tensors)
    assert left(replace(graph, tensors=alike), "merge-duplicates").count("QUANTIZE") == (1 + (change == "type"))


def test_dead_ops_go() -> None:
    """Also those that only dead ones read. What touches a variable stays."""
    net = Tangle()
    x = net.input(1, 2, 2, 3)
    net.relu(net.relu(x))
    state = net.variable(4)
    net.op("RELU", Unary(), state)
    assert left(net.graph(net.relu(x)), "drop-dead") == ["RELU", "RELU"]


def test_activations_are_fused() -> None:
    net = Tangle()
    graph = net.graph(net.relu(net.conv(net.input(1, 4, 4, 2), 3)))
    less, _ = transformed(graph, ["fuse-activation"])
    assert [op.kind for op in less.ops] == ["CONV_2D"]
    assert less.ops[0].attributes.activation is Activation.RELU
    assert less.ops[0].outputs == graph.outputs


def test_a_transposed_convolution_takes_an_activation_too() -> None:
    net = Tangle()
    shape, weights = net.ints(4, values=[1, 8, 8, 3]), net.constant(3, 2, 2, 2)
    made = net.op("TRANSPOSE_CONV", TransposeConv(Padding.SAME, 2, 2), shape, weights, net.input(1, 4, 4, 2))
    net.tensors[made] = replace(net.tensors[made], dtype=DType.FLOAT32)
    less, _ = transformed(net.graph(net.relu(made)), ["fuse-activation"])
    assert [(op.kind, op.attributes.activation) for op in less.ops] == [("TRANSPOSE_CONV", Activation.RELU)]


def test_activations_that_must_stay() -> None:
    """Their input is read elsewhere, or seen by the caller; nothing before them ends with a clamp; another scale."""
    net = Tangle()
    x = net.input(1, 4, 4, 2)
    read, seen, moved = net.conv(x, 3), net.conv(x, 3), net.turned(x)
    graph = net.graph(net.relu(read), net.pool(read), net.relu(seen), seen, net.relu(moved))
    assert left(graph, "fuse-activation").count("RELU") == 3

    whole = Net()
    y = whole.conv(whole.input(1, 4, 4, 2), 3)
    graph = whole.graph(whole.relu(y))
    scaled = replace(graph.tensors[y], quantisation=Quantisation((0.5,), (0,)))
    graph = replace(graph, tensors=tuple(scaled if t.index == y else t for t in graph.tensors))
    assert left(graph, "fuse-activation") == ["CONV_2D", "RELU"]


def test_what_is_reported() -> None:
    """Ops by their number in the file; bytes of tensors, and multiply-accumulates, that are gone."""
    net, parts, whole = branches()
    graph = net.graph(net.relu(whole), net.relu(net.conv(0, 3)))
    graph = replace(graph, ops=graph.ops, tensors=graph.tensors)
    removals = transformed(graph, TRANSFORMS)[1]
    sizes = sum(graph.tensors[t].size_bytes for t in parts)
    assert Removal("remove-concat", (2,), -sizes, 0) in removals
    assert next(r for r in removals if r.transform == "fuse-activation").ops == (5,)
    twins = Tangle()
    x = twins.input(1, 4, 4, 2)
    weights = twins.constant(3, 1, 1, 2)
    same = [twins.op("CONV_2D", Conv2D(), x, weights) for _ in range(2)]
    (removal,) = transformed(twins.graph(twins.add(*same)), ["merge-duplicates"])[1]
    assert removal == Removal("merge-duplicates", (1,), -4 * 48, -96)


def test_ops_keep_their_numbers() -> None:
    """After removals an op is still named as in the file."""
    net, _, whole = branches()
    less, _ = transformed(net.graph(net.relu(whole)), ["remove-concat"])
    assert [(op.index, op.number) for op in less.ops] == [(0, 0), (1, 1), (2, 3)]
    assert less.nodes[2].label.startswith("op 3 ")
