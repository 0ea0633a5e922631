"""Small files do not ask for much memory or time: what is computed from constants is bounded before it is made."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite as tflite_schema

from diagmem.frontends import onnx, tflite
from diagmem.frontends.checks import with_shapes
from diagmem.frontends.onnx import builder
from diagmem.frontends.onnx.proto import MOST_READINGS
from diagmem.frontends.tflite.reader import _Reader
from diagmem.frontends.tflite.subgraphs import Branches, without_control_flow
from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Graph, Node, Op, Tensor
from diagmem.model.sliding_window import Padding
from diagmem.ops import folding, kinds
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.folding import LARGEST_EXPANSION, LEAST_ALLOWANCE, Allowance, folded
from diagmem.ops.moving.concatenation import Concatenation
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.transforms.cleanup import fold_constants
from tests.frontends.onnx import making
from tests.frontends.tflite.flat import FlatModel, FlatOp, FlatTensor

MOST_BYTES = 1 << 29
"""Half of what any step may hold for a file below 1 MB."""


@pytest.fixture(autouse=True)
def _is_bounded() -> Iterator[None]:
    """No test below holds more."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST_BYTES


def doubled(kind: str, times: int = 40, **attributes: Any) -> list[bytes]:
    """Each constant is twice as long as the one before."""
    names = ["row", *(f"c{n}" for n in range(1, times)), "c"]
    return [making.node(kind, [a, a], [b], **attributes) for a, b in pairwise(names)]


def repeated(node: Any, times: int) -> list[bytes]:
    """The node so many times, from x to y."""
    names = ["x", *(f"x{n}" for n in range(1, times)), "y"]
    return [node(a, b) for a, b in pairwise(names)]


FAR = {
    "ConstantOfShape": [making.node("ConstantOfShape", ["far"], ["c"])],
    "Concat": doubled("Concat", axis=0),
    "Tile": [making.node("Tile", ["square", "far"], ["c"])],
    "Expand": [making.node("Expand", ["one", "far"], ["c"])],
    "Range": [making.node("Range", ["zero", "many", "one"], ["c"])],
    "Gather": [making.node("Gather", ["square", "places"], ["c"], axis=1)],
    **{kind: [making.node(kind, ["row", "column"], ["c"])] for kind in ("Add", "Div", "Max", "Min", "Equal", "And")},
    "Where": [making.node("Where", ["row", "column", "one"], ["c"])],
}
"""Nodes that make a constant `c` of more than 2^30 elements."""

LARGE = {
    "padded": repeated(lambda a, b: making.node("Pad", [a, "wide"], [b], mode="reflect"), 9),
    "resized": [making.node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear")],
    "tiled": [making.node("Tile", ["x", "far"], ["y"])],
    "expanded": [making.node("Expand", ["x", "far"], ["y"])],
    "split": [making.node("Split", ["x"], ["y"], num_outputs=1 << 40)],
    "dilated": [making.node("ConvTranspose", ["x", "kernel"], ["y"], dilations=[1 << 12, 1 << 12])],
    "shared": repeated(lambda a, b: making.node("Conv", [a, "pointwise"], [b]), 1000),
}


@pytest.mark.parametrize("case", [*FAR, *LARGE])
def test_few_bytes_do_not_become_many_in_onnx(case: str) -> None:
    """Constants are refused before they are made: each by itself, and in sum."""
    nodes = LARGE.get(case) or [*FAR[case], making.node("Add", ["x", "c"], ["y"])]
    constants: dict[str, Any] = {
        "far": np.array([1 << 20, 1 << 20, 1, 1], np.int64),
        "wide": np.array([0, 0, 0, 0, 0, 0, 0, 1 << 19], np.int64),
        "sizes": np.array([1, 16, 4, 1 << 24], np.int64),
        "square": np.ones((256, 256), np.float32),
        "places": np.zeros(1 << 17, np.int32),
        "row": np.ones(1 << 17, np.bool_),
        "column": np.ones((1 << 17, 1), np.bool_),
        "kernel": np.ones((16, 1, 2, 2), np.float32),
        "pointwise": np.ones((256, 256, 1, 1), np.float32),
        **{name: np.array(n, np.int64) for name, n in (("zero", 0), ("one", 1), ("many", 1 << 40))},
    }
    used = {name: values for name, values in constants.items() if any(name.encode() in node for node in nodes)}
    shape = (1, 256 if case == "shared" else 16, 4, 4)
    content = making.model(nodes, {"x": shape}, {"y": None}, used, opset=18)
    assert len(content) < 1 << 20
    with pytest.raises(ModelError, match=r"too large|the limit is|do not fit"):
        onnx.parse(content, "model")


def test_recurrent_layers_are_unrolled_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the operations of the whole model."""
    weights = {name: np.ones((1, 1, 1), np.float32) for name in ("w", "r")}
    rnn = making.node("RNN", ["x", "w", "r"], ["y"], hidden_size=1)
    content = making.model([rnn], {"x": (9, 1, 1)}, {"y": None}, weights)
    made = len(onnx.parse(content, "model").ops)
    monkeypatch.setattr(builder, "MOST_OPS", made)
    assert len(onnx.parse(content, "model").ops) == made
    monkeypatch.setattr(builder, "MOST_OPS", made - 1)
    with pytest.raises(ModelError, match=f"more than {made - 1} operations"):
        onnx.parse(content, "model")


def test_external_data_is_read_a_few_times_only(tmp_path: Path) -> None:
    """Tensors may share it, but a small model cannot take a large one many times."""
    values = np.ones(64, np.float32)
    (tmp_path / "data").write_bytes(values.tobytes())

    def model(count: int) -> bytes:
        """Sums of x and so many constants from one place."""
        entries = [(b"location", b"data"), (b"offset", b"0"), (b"length", b"256")]
        places = b"".join(making.data(13, making.data(1, key) + making.data(2, text)) for key, text in entries)
        tensors = [
            making.number(1, 64) + making.number(2, 1) + making.data(8, f"c{n}") + places + making.number(14, 1)
            for n in range(count)
        ]
        nodes = [making.node("Add", [f"x{n}", f"c{n}"], [f"x{n + 1}"]) for n in range(count)]
        graph = b"".join(making.data(1, node) for node in nodes) + b"".join(making.data(5, each) for each in tensors)
        graph += making.data(11, making.value("x0", (64,))) + making.data(12, making.value(f"x{count}", (64,)))
        return making.number(1, 8) + making.data(7, graph) + making.data(8, making.number(2, 17))

    assert len(onnx.parse(model(MOST_READINGS), "model", tmp_path).ops) == MOST_READINGS
    with pytest.raises(ModelError, match="over and over"):
        onnx.parse(model(MOST_READINGS + 1), "model", tmp_path)


def growing(count: int, first: int = 1 << 10) -> Graph:
    """Each tensor is four of the one before, side by side; x is added to the first element of the last."""
    sizes = [first * 4**n for n in range(count + 1)]
    tensors = [Tensor(n, f"t{n}", (size,), DType.INT8) for n, size in enumerate(sizes)]
    tensors[0] = replace(tensors[0], is_constant=True, data=np.ones(first, np.int8))
    last = Tensor(count + 1, "x", (1,), DType.INT8), Tensor(count + 2, "y", (sizes[-1],), DType.INT8)
    ops = [Op(n, "CONCATENATION", (n,) * 4, (n + 1,), Concatenation(0)) for n in range(count)]
    end = Op(count, "MAXIMUM", (count, count + 1), (count + 2,), Binary())
    return Graph("growing", (*tensors, *last), (*ops, end), (count + 1,), (count + 2,))


def test_chains_of_constants_are_folded_as_far_as_is_allowed() -> None:
    """Four times as much with each op. What is not folded stays an op."""
    graph = growing(9)
    kept = fold_constants(graph, lambda _: True)
    sizes = [t.elems for t in kept.tensors if t.data is not None]
    assert sum(sizes) <= LEAST_ALLOWANCE
    assert [op.kind for op in kept.ops][-2:] == ["CONCATENATION", "MAXIMUM"]
    with_shapes(growing(12), {}, range(1, 12))


def test_an_allowance_is_spent_once_and_grows_with_the_file() -> None:
    """Not by constants that share memory."""
    allowance = Allowance(10)
    assert [allowance.take(n) for n in (4, 7, -1, 6, 1, 0)] == [True, False, False, True, False, True]
    one = np.ones(LEAST_ALLOWANCE, np.int8)
    tensors = [Tensor(n, "", one.shape, DType.INT8, is_constant=True, data=one) for n in range(3)]
    assert Allowance.for_constants(tensors).elems == LARGEST_EXPANSION * one.size
    assert Allowance.for_constants([]).elems == Allowance.of(1).elems == LEAST_ALLOWANCE


def test_what_an_operation_multiplies_counts() -> None:
    """A dense layer of constants takes its multiplications, a pool its taps, anything else what it reads or makes."""
    constants = [
        Tensor(0, "x", (8, 32), DType.FLOAT32, is_constant=True, data=np.ones((8, 32), np.float32)),
        Tensor(1, "w", (16, 32), DType.FLOAT32, is_constant=True, data=np.ones((16, 32), np.float32)),
    ]
    kind = kinds()["FULLY_CONNECTED"]
    op = Op(0, "FULLY_CONNECTED", (0, 1), (2,), kind.decode("FULLY_CONNECTED", None))
    dense = Node(op, tuple(constants), (Tensor(2, "y", (8, 16), DType.FLOAT32),))
    image = Tensor(0, "x", (1, 8, 8, 2), DType.INT8, is_constant=True, data=np.ones((1, 8, 8, 2), np.int8))
    pool = Node(
        Op(0, "MAX_POOL_2D", (0,), (1,), Pool2D(Padding.VALID, 1, 1, 3, 5)),
        (image,),
        (Tensor(1, "y", (1, 6, 4, 2), DType.INT8),),
    )
    for node, work in ((dense, 8 * 16 * 32), (pool, 6 * 4 * 2 * 15)):
        assert folded(node, Allowance(work - 1)) is None
        assert folded(node, Allowance(work)) is not None


def test_a_result_is_of_the_shape_that_its_inputs_ask_for_before_it_is_computed() -> None:
    """A file can say that a tensor is small that its operation makes large."""
    far = np.array([1 << 15, 1 << 15], np.int32)
    tensors = (
        Tensor(0, "dims", (2,), DType.INT32, is_constant=True, data=far),
        Tensor(1, "one", (1, 1), DType.INT8, is_constant=True, data=np.ones((1, 1), np.int8)),
    )
    for kind, inputs in (("FILL", (0, 1)), ("BROADCAST_TO", (1, 0)), ("TILE", (1, 0))):
        op = Op(0, kind, inputs, (2,), kinds()[kind].decode(kind, None))
        node = Node(op, tuple(tensors[n] for n in inputs), (Tensor(2, "y", (4,), DType.INT8),))
        assert folded(node, Allowance()) is None


def test_what_branches_compute_is_bounded_too() -> None:
    """In all subgraphs together."""
    part = growing(9)
    main = Graph(
        "net",
        (
            Tensor(0, "x", (1,), DType.INT8),
            Tensor(1, "flag", (1,), DType.BOOL, is_constant=True, data=np.ones(1, np.bool_)),
            Tensor(2, "y", part.tensors[-1].shape, DType.INT8),
        ),
        (Op(0, "IF", (1, 0), (2,), Branches(1, 1)),),
        (0,),
        (2,),
    )
    graph = without_control_flow(main, {1: part})
    known = sum(t.elems for t in graph.tensors if t.data is not None)
    assert LEAST_ALLOWANCE / 4 < known <= LEAST_ALLOWANCE
    assert [op.kind for op in graph.ops][-2:] == ["CONCATENATION", "MAXIMUM"]


def test_unpacked_constants_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """4-bit values take a byte each, and tensors may share them in the file."""
    four_bits = FlatTensor((4, 8), type=tflite_schema.TensorType.INT4, data=bytes(16))
    tensors = [FlatTensor((1, 8)), FlatTensor((1, 4)), four_bits]
    content = FlatModel(tensors, [FlatOp("FULLY_CONNECTED", (0, 2), (1,))]).content()
    monkeypatch.setattr(folding, "LARGEST_EXPANSION", 0)
    monkeypatch.setattr(folding, "LEAST_ALLOWANCE", 32)
    assert tflite.parse(content, "model").tensors[2].data is not None
    monkeypatch.setattr(folding, "LEAST_ALLOWANCE", 31)
    with pytest.raises(ModelError, match=r"shape \[4, 8\] is too large"):
        tflite.parse(content, "model")


def test_buffers_that_share_bytes_are_counted_each() -> None:
    """As many buffers as a file has bytes, all of nearly the whole file, are refused."""
    data = bytearray(FlatModel([FlatTensor((1, 8)), FlatTensor((1, 8))], [FlatOp("RELU", (0,), (1,))]).content())
    reader = _Reader(bytes(data))
    whole = reader.allowance
    reader.buffer(0, "t")
    reader.buffer(0, "t")
    assert reader.allowance == whole
    tensor = FlatTensor((1, 1 << 20), data=bytes(1 << 20))
    content = FlatModel([FlatTensor((1, 1 << 20)), *[tensor] * 2], [FlatOp("ADD", (0, 2), (1,))]).content()
    reader = _Reader(content)
    whole = reader.allowance
    for _ in range(3):
        assert reader.buffer(2, "t") is not None
    assert reader.allowance == whole - (1 << 20)
