"""ONNX files: read as they are, and distrusted to the last bit."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from diagmem.frontends import onnx
from diagmem.frontends.onnx.reading import read_model
from diagmem.frontends.source import Source
from diagmem.model.errors import ModelError
from tests.frontends.onnx import making

RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(4, 3, 3, 3)).astype(np.float32)


def small() -> bytes:
    """A convolution and an activation."""
    nodes = [
        making.node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        making.node("Relu", ["y"], ["z"]),
    ]
    return making.model(nodes, {"x": (1, 3, 8, 8)}, {"z": (1, 4, 8, 8)}, {"w": WEIGHTS})


def test_what_is_written_is_read() -> None:
    """Nodes, attributes and tensors come back."""
    found = read_model(small(), None)
    assert [node.kind for node in found.nodes] == ["Conv", "Relu"]
    assert found.nodes[0].attributes == {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    assert np.array_equal(found.constants["w"], WEIGHTS)
    assert [(v.name, v.shape) for v in found.inputs] == [("x", (1, 3, 8, 8))]
    assert found.opset == 17


def test_every_cut_is_refused() -> None:
    """A file that ends early is damaged, and never anything else."""
    content = small()
    for end in range(len(content)):
        with pytest.raises(ModelError):
            onnx.parse(content[:end], "cut")


@pytest.mark.parametrize("seed", range(8))
def test_mutants_are_read_or_refused(seed: int) -> None:
    """Whatever bytes are changed: a graph, or one line that says what is wrong."""
    rng = np.random.default_rng(seed)
    for _ in range(150):
        content = bytearray(small())
        for _ in range(int(rng.integers(1, 4))):
            content[int(rng.integers(len(content)))] = int(rng.integers(256))
        words = ""
        try:
            onnx.parse(bytes(content), "mutant")
        except ModelError as error:
            words = str(error)
        assert "\n" not in words


def test_a_tensor_fits_its_shape() -> None:
    """Bytes beyond the shape, too few, or a shape below zero are refused."""
    for dims, size in (((4,), 20), ((4,), 12), ((-1, 4), 16), ((1 << 40, 1 << 40), 16)):
        broken = b"".join(making.number(1, d) for d in dims) + making.number(2, 1)
        broken += making.data(8, "w") + making.data(9, bytes(size))
        graph = making.data(1, making.node("Add", ["x", "w"], ["y"])) + making.data(5, broken)
        content = making.number(1, 8) + making.data(7, graph) + making.data(8, making.number(2, 17))
        with pytest.raises(ModelError, match=r"damaged"):
            read_model(content, None)


def external(location: str, **more: str) -> bytes:
    """A model that adds four numbers which lie in another file."""
    entries = {"location": location, "length": "16", **more}
    places = b"".join(making.data(13, making.data(1, key) + making.data(2, text)) for key, text in entries.items())
    weights = making.number(1, 4) + making.number(2, 1) + making.data(8, "w") + places + making.number(14, 1)
    graph = making.data(1, making.node("Add", ["x", "w"], ["y"])) + making.data(5, weights)
    graph += making.data(11, making.value("x", (1, 4))) + making.data(12, making.value("y", (1, 4)))
    return making.number(1, 8) + making.data(7, graph) + making.data(8, making.number(2, 17))


def test_weights_beside_the_model(tmp_path: Path) -> None:
    """PyTorch writes weights to a file of their own; it must be a plain one in the model's folder."""
    values = np.arange(4, dtype=np.float32)
    (tmp_path / "w.data").write_bytes(values.tobytes())
    assert np.array_equal(read_model(external("w.data"), tmp_path).constants["w"], values)
    path = tmp_path / "model.onnx"
    path.write_bytes(external("w.data"))
    assert len(Source(path).graph.ops) == 1
    with pytest.raises(ModelError, match="give the model's path"):
        read_model(external("w.data"), None)


@pytest.mark.parametrize(
    ("location", "more"),
    [
        ("../w.data", {}),
        ("/etc/passwd", {}),
        ("sub/w.data", {}),
        ("..", {}),
        ("link", {}),
        ("hard", {}),
        ("missing", {}),
        ("pipe", {}),
        ("short", {}),
        ("w.data", {"offset": "-4"}),
        ("w.data", {"offset": "4"}),
        ("w.data", {"offset": "9" * 20}),
        ("w.data", {"basepath": "x"}),
        ("w.data", {"length": "12"}),
    ],
)
def test_no_other_file_is_read(tmp_path: Path, location: str, more: dict[str, str]) -> None:
    """Neither outside the folder, nor through links, nor beyond a file's end."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in (tmp_path / "w.data", folder / "w.data", folder / "other"):
        path.write_bytes(bytes(16))
    (folder / "short").write_bytes(bytes(15))
    (folder / "link").symlink_to(folder / "w.data")
    os.link(folder / "other", folder / "hard")
    os.mkfifo(folder / "pipe")
    with pytest.raises(ModelError):
        read_model(external(location, **more), folder)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([making.node("Loop", ["x"], ["y"])], "Loop"),
        ([making.node("Conv", ["x", "y"], ["y"])], "in a cycle"),
        ([making.node("Relu", ["x"], ["y"], alpha=1.0)], "attribute alpha is unknown"),
        ([making.node("Relu", ["x"], ["y"], "my.domain")], "custom"),
        ([making.node("Relu", ["x"], ["x"])], "computed twice"),
        ([making.node("MaxPool", ["x"], ["y"], kernel_shape=[0, 2])], "damaged"),
        ([making.node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[0, 1])], "damaged"),
        ([making.node("Transpose", ["x"], ["y"], perm=[0, 0, 1, 2])], "not an order"),
        ([making.node("Softmax", ["x"], ["y"], axis=9)], "axis 9 does not exist"),
        ([making.node("Relu", ["x"], ["z"])], "is not made by any node"),
    ],
)
def test_refusals_name_the_node(nodes: list[bytes], words: str) -> None:
    """What cannot be taken is said in one line, with the node."""
    content = making.model(nodes, {"x": (1, 3, 8, 8)}, {"y": (1, 3, 8, 8)})
    with pytest.raises(ModelError, match=words):
        onnx.parse(content, "model")


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (
            [making.node("Conv", ["x", "w"], ["a"]), making.node("BatchNormalization", ["a", *"vvvv"], ["y"])],
            "4 channels",
        ),
        ([making.node("Slice", ["x", "one", "one", "none"], ["y"])], "not of one length"),
        ([making.node("Gemm", ["x", "v"], ["y"])], "not both matrices"),
        ([making.node("DepthToSpace", ["x"], ["y"], blocksize=-2, mode="CRD")], "in blocks"),
        ([making.node("Resize", ["x", "", "", "three"], ["y"])], "sizes have a wrong length"),
        ([making.node("Resize", ["x", "", "", "five"], ["y"])], "sizes have a wrong length"),
        ([making.node("Resize", ["x", "", "odd"], ["y"])], "scales are no numbers"),
        ([making.node("Tile", ["x", "three"], ["y"])], "do not fit it"),
        ([making.node("Expand", ["x", "five"], ["y"])], "do not fit it"),
    ],
)
def test_operands_that_do_not_fit_are_refused(nodes: list[bytes], words: str) -> None:
    """Each once ended in a traceback."""
    weights = {"w": np.ones((4, 3, 1, 1), np.float32), "v": np.ones(3, np.float32)}
    weights |= {"one": np.ones(1, np.int64), "none": np.ones(0, np.int64), "three": np.array([1, 3, 16])}
    weights |= {"five": np.array([2, 1, 7, 8, 8]), "odd": np.array([1, 1, np.nan, np.inf], np.float32)}
    content = making.model(nodes, {"x": (1, 3, 8, 8)}, {"y": (1, 3, 8, 8)}, weights)
    with pytest.raises(ModelError, match=words):
        onnx.parse(content, "model")


def test_what_a_softmax_over_one_value_makes_can_be_reshaped() -> None:
    nodes = [making.node("Softmax", ["x"], ["a"], axis=1), making.node("Reshape", ["a", "n"], ["y"])]
    shape = {"n": np.array([1, 64], np.int64)}
    assert onnx.parse(making.model(nodes, {"x": (1, 1, 8, 8)}, {"y": (1, 64)}, shape), "model").ops


def test_few_bytes_do_not_fold_into_many() -> None:
    """A constant of 2^40 elements is refused before it is made."""
    nodes = [making.node("ConstantOfShape", ["n"], ["c"]), making.node("Add", ["x", "c"], ["y"])]
    huge = {"n": np.array([1 << 20, 1 << 20], dtype=np.int64)}
    with pytest.raises(ModelError, match="too large"):
        onnx.parse(making.model(nodes, {"x": (1, 4)}, {"y": (1, 4)}, huge), "bomb")


def test_an_open_batch_is_one_and_other_sizes_are_asked_for() -> None:
    """The first axis may be left open; any other one needs --shape."""
    nodes = [making.node("Relu", ["x"], ["y"])]
    open_batch = making.model(nodes, {"x": ("batch", 4)}, {"y": ("batch", 4)})
    assert onnx.parse(open_batch, "model").tensors[0].shape == (1, 4)
    open_time = making.model(nodes, {"x": (1, "time", 4)}, {"y": (1, "time", 4)})
    with pytest.raises(ModelError, match="--shape"):
        onnx.parse(open_time, "model")
    assert onnx.parse(open_time, "model", shapes={"x": (1, 7, 4)}).tensors[0].shape == (1, 7, 4)
    with pytest.raises(ModelError, match="does not fit"):
        onnx.parse(open_time, "model", shapes={"x": (1, 7, 5)})


def test_the_kind_of_file_is_seen() -> None:
    """Bytes tell what they are; a .tflite file is none of ONNX's."""
    assert Source(small()).is_onnx
    assert not Source(b"\x1c\x00\x00\x00TFL3" + bytes(64)).is_onnx
    assert not Source("zoo:kws_dscnn_int8").is_onnx
