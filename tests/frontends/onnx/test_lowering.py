"""Operators: the cases that the `onnx` package brings, and random ones against onnxruntime."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem.frontends.onnx.importer import Importer
from diagmem.frontends.onnx.lowering import LOWERINGS
from diagmem.frontends.onnx.proto import OnnxModel
from diagmem.frontends.onnx.reading import read_model
from diagmem.frontends.source import Source
from diagmem.model.errors import ModelError
from diagmem.ops.signature import check_signatures
from diagmem.transforms import transformed
from diagmem.verification import reference
from diagmem.verification.oracles import outputs_of
from tests.frontends.onnx import making

Array = npt.NDArray[Any]

TYPES = ("float32", "int8", "uint8", "int32", "int64", "bool")
NEWEST = 24

LEAST_PASSED = 500
"""Of the node cases in scope; the rest is refused, and says why."""


def computed(model: OnnxModel, values: dict[str, Array]) -> list[Array]:
    """What the imported graph makes of its inputs, in numpy."""
    graph = check_signatures(Importer(model, {}, False).graph("model", LOWERINGS))
    found = reference.run(graph, [values[graph.tensors[i].name] for i in graph.inputs])
    return [found[i] for i in graph.outputs]


def agrees(ours: Array, theirs: Array, relative: float) -> bool:
    if ours.shape != theirs.shape:
        return False
    if theirs.dtype.kind != "f":
        return bool(np.array_equal(ours, theirs))
    return bool(np.allclose(ours, theirs, rtol=relative, atol=1e-5, equal_nan=True))


def with_constants(model: OnnxModel, free: str, values: dict[str, Array]) -> OnnxModel:
    """The model with all inputs but one known, as in networks: there weights, shapes and axes are."""
    constants = {**model.constants, **{name: array for name, array in values.items() if name != free}}
    inputs = tuple(value for value in model.inputs if value.name == free)
    return replace(model, constants=constants, inputs=inputs, opset=min(model.opset, NEWEST))


def test_node_cases_of_onnx(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the single-node cases whose operator is in scope, none is computed wrongly, and most are not refused."""
    loader = pytest.importorskip("onnx.backend.test.loader", reason="needs the onnx package for its node cases")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = loader.load_model_tests(kind="node")
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    wrong = []
    for case in cases:
        if "_expanded" in case.name:
            continue
        try:
            model = read_model(case.model.SerializeToString(), None)
        except ModelError:
            counts["other element types"] += 1
            continue
        inputs, outputs = case.data_sets[0]
        if model.nodes[0].kind not in LOWERINGS:
            counts["operator out of scope"] += 1
            continue
        arrays = [*inputs, *outputs]
        is_plain = all(isinstance(a, np.ndarray) and a.dtype.name in TYPES and a.size for a in arrays)
        if not is_plain or not model.inputs:
            counts["other element types, or empty"] += 1
            continue
        values = {value.name: array for value, array in zip(model.inputs, inputs, strict=True)}
        free = model.inputs[1 if model.nodes[0].kind == "Where" else 0].name
        try:
            made = computed(with_constants(model, free, values), values)
        except ModelError as error:
            counts["refused"] += 1
            reasons[f"{model.nodes[0].kind}: {str(error).partition('): ')[2]}"] += 1
            continue
        good = all(agrees(ours, theirs, case.rtol) for ours, theirs in zip(made, outputs, strict=False))
        counts["passed" if good else "wrong"] += 1
        wrong += [] if good else [case.name]
    with capsys.disabled():
        print(f"\nonnx node cases: {dict(counts)}; refused: {dict(reasons)}")
    assert not wrong
    assert counts["passed"] >= LEAST_PASSED


CONVERTED = ("pytorch-converted", "pytorch-operator")
LEAST_CONVERTED = 95


def test_cases_that_pytorch_exported(capsys: pytest.CaptureFixture[str]) -> None:
    """Files of opset 6 with weights, as PyTorch once wrote them: none is computed wrongly, and most are not refused."""
    loader = pytest.importorskip("onnx.backend.test.loader", reason="needs the onnx package for its cases")
    numpy_helper = pytest.importorskip("onnx.numpy_helper")
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    wrong = []
    for case in (case for kind in CONVERTED for case in loader.load_model_tests(kind=kind)):
        folder = Path(case.model_dir)
        given, wanted = (_kept(folder / "test_data_set_0", part, numpy_helper) for part in ("input", "output"))
        try:
            model = read_model((folder / "model.onnx").read_bytes(), folder)
            # Weights are inputs with a value in these files.
            made = computed(model, {value.name: a for value, a in zip(model.inputs, given, strict=False)})
        except ModelError as error:
            counts["refused"] += 1
            reasons[str(error).partition("): ")[2] or str(error)] += 1
            continue
        good = all(agrees(ours, theirs, case.rtol) for ours, theirs in zip(made, wanted, strict=True))
        counts["passed" if good else "wrong"] += 1
        wrong += [] if good else [case.name]
    with capsys.disabled():
        print(f"\nonnx cases from PyTorch: {dict(counts)}; refused: {dict(reasons)}")
    assert not wrong
    assert counts["passed"] >= LEAST_CONVERTED


def _kept(folder: Path, part: str, numpy_helper: Any) -> list[Array]:
    import onnx

    paths = sorted(folder.glob(f"{part}_*.pb"), key=lambda path: int(path.stem.rpartition("_")[2]))
    return [numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes())) for path in paths]


def random_window(rng: np.random.Generator, kind: str) -> tuple[bytes, dict[str, Array]]:
    """A convolution or pool over an image or a line of pixels, with all that its attributes allow."""
    rank = int(rng.integers(1, 3))
    groups = int(rng.choice([1, 1, 2, 4]))
    depth, channels = 4, 4 * int(rng.integers(1, 3))
    size = rng.integers(5, 10, rank)
    kernel = rng.integers(1, 4, rank).tolist()
    given: dict[str, Any] = {"kernel_shape": kernel, "strides": rng.integers(1, 4, rank).tolist()}
    if rng.random() < 0.3:
        given["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    else:
        given["pads"] = [int(rng.integers(0, k)) for k in kernel * 2]
    constants: dict[str, Array] = {}
    if kind == "Conv":
        given |= {"group": groups, "dilations": rng.integers(1, 3, rank).tolist()}
        constants["w"] = rng.normal(size=(channels, depth // groups, *kernel)).astype(np.float32)
    elif kind == "ConvTranspose":
        constants["w"] = rng.normal(size=(depth, channels, *kernel)).astype(np.float32)
        given["strides"] = [max(s, 1) for s in given["strides"]]
    elif kind == "AveragePool":
        given |= {"count_include_pad": int(rng.integers(2))}
    node = making.node(kind, ["x", *constants], ["y"], **given)
    shape = (1, depth, *size.tolist())
    content = making.model([node], {"x": shape}, {"y": ("a", "b", "c", "d")[: rank + 2]}, constants)
    return content, {"x": rng.normal(size=shape).astype(np.float32)}


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose", "MaxPool", "AveragePool"])
def test_windows_as_onnxruntime(kind: str) -> None:
    """Groups, strides, dilations and every sort of padding: as onnxruntime computes them."""
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    compared, refused = 0, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        content, values = random_window(rng, kind)
        try:
            theirs = runtime.InferenceSession(content, options).run(None, values)
        except Exception:
            # Some draws make no sense, such as a window larger than the image.
            continue
        try:
            ours = computed(read_model(content, None), values)
        except ModelError:
            refused += 1
            continue
        assert agrees(ours[0], theirs[0], 1e-4), seed
        compared += 1
    assert compared >= 30
    assert refused <= compared // 4


def random_recurrent(rng: np.random.Generator, kind: str) -> tuple[bytes, dict[str, Array]]:
    """A layer in one direction or both, with or without states to start from."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    steps, batch, features, units = (int(n) for n in rng.integers(1, 5, 4))
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    ways = 2 if direction == "bidirectional" else 1
    shapes = {"w": (gates * units, features), "r": (gates * units, units), "b": (2 * gates * units,)}
    inputs = ["x", "w", "r", "b", ""]
    if rng.random() < 0.5:
        shapes |= dict.fromkeys(("h", *(["c"] if kind == "LSTM" else [])), (batch, units))
        inputs += ["h", *(["c"] if kind == "LSTM" else [])]
    constants = {name: rng.normal(size=(ways, *shape)).astype(np.float32) for name, shape in shapes.items()}
    given: dict[str, Any] = {"direction": direction, "hidden_size": units}
    if kind == "GRU":
        given["linear_before_reset"] = int(rng.integers(2))
    states = {"h_last": (ways, batch, units), **({"c_last": (ways, batch, units)} if kind == "LSTM" else {})}
    outputs = {"y": (steps, ways, batch, units), **states}
    node = making.node(kind, inputs, list(outputs), **given)
    content = making.model([node], {"x": (steps, batch, features)}, outputs, constants)
    return content, {"x": rng.normal(size=(steps, batch, features)).astype(np.float32)}


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_as_onnxruntime(kind: str) -> None:
    """Directions, states to start from, and where the reset gate stands: as onnxruntime computes them."""
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    for seed in range(12):
        content, values = random_recurrent(np.random.default_rng(seed), kind)
        theirs = runtime.InferenceSession(content).run(None, values)
        ours = computed(read_model(content, None), values)
        assert all(agrees(one, other, 1e-4) for one, other in zip(ours, theirs, strict=True)), seed


def quantised_network(rng: np.random.Generator, dtype: str, per_channel: bool) -> bytes:
    """Layers between QuantizeLinear and DequantizeLinear: a convolution and a depthwise one with a residual, pools, a
    concatenation, a dense layer and a softmax."""
    constants: dict[str, Array] = {}
    nodes: list[bytes] = []
    kind = np.dtype(dtype)
    low = 0 if kind == np.uint8 else -128

    def scale(name: str, size: float) -> list[str]:
        constants[f"{name}_s"] = np.array(rng.uniform(0.5, 1) * size, np.float32)
        constants[f"{name}_z"] = np.array(low + rng.integers(96, 160), kind)
        return [f"{name}_s", f"{name}_z"]

    def stored(name: str, size: float) -> str:
        """What a node made, quantised and dequantised."""
        around = scale(name, size)
        nodes.append(making.node("QuantizeLinear", [name, *around], [f"{name}_q"]))
        nodes.append(making.node("DequantizeLinear", [f"{name}_q", *around], [f"{name}_d"]))
        return f"{name}_d"

    def weights(name: str, shape: tuple[int, ...]) -> str:
        count = shape[0] if per_channel else 1
        sizes = rng.uniform(0.5, 1, count).astype(np.float32) / 127
        constants[f"{name}_s"] = sizes if per_channel else sizes.reshape(())
        constants[f"{name}_z"] = np.zeros(count if per_channel else (), np.int8)
        constants[f"{name}_q"] = rng.integers(-127, 128, shape).astype(np.int8)
        nodes.append(making.node("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [name], axis=0))
        return name

    x = stored("x", 8 / 256)
    nodes.append(making.node("Conv", [x, weights("w1", (4, 3, 3, 3))], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]))
    nodes.append(making.node("Relu", ["a"], ["r"]))
    r = stored("r", 12 / 256)
    nodes.append(making.node("Conv", [r, weights("w2", (4, 1, 3, 3))], ["d"], pads=[1, 1, 1, 1], group=4))
    d = stored("d", 24 / 256)
    nodes.append(making.node("Sigmoid", [d], ["g"]))
    nodes.append(making.node("Concat", [stored("g", 1 / 256), d], ["c"], axis=1))
    nodes.append(making.node("MaxPool", [stored("c", 20 / 256)], ["m"], kernel_shape=[2, 2]))
    nodes.append(making.node("AveragePool", ["m"], ["p"], kernel_shape=[3, 3], strides=[2, 2]))
    nodes.append(making.node("Flatten", [stored("p", 8 / 256)], ["f"]))
    nodes.append(making.node("Gemm", ["f", weights("w3", (5, 72))], ["n"], transB=1))
    nodes.append(making.node("Softmax", [stored("n", 60 / 256)], ["s"], axis=1))
    nodes.append(making.node("Identity", [stored("s", 1 / 128)], ["y"]))
    return making.model(nodes, {"x": (1, 3, 16, 16)}, {"y": (1, 5)}, constants)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_quantised_networks_as_onnxruntime(dtype: str, per_channel: bool) -> None:
    """Bit for bit, with the settings that make it a judge; and on integers from the input to the output."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    for seed in range(6):
        rng = np.random.default_rng(seed)
        source = Source(quantised_network(rng, dtype, per_channel))
        inputs = [[rng.normal(size=(1, 3, 16, 16)).astype(np.float32) * 2] for _ in range(4)]
        kinds = Counter(op.kind for op in transformed(source.runnable, ["tabulate"])[0].ops)
        assert (kinds["DEQUANTIZE"], kinds["CONV_2D"], kinds["SOFTMAX"]) == (1, 1, 1)
        for values, theirs in zip(inputs, outputs_of(source, inputs), strict=True):
            found = reference.run(source.runnable, values)
            assert all(
                np.array_equal(found[i], their) for i, their in zip(source.runnable.outputs, theirs, strict=True)
            )


def test_layout_costs_no_transpose_between_layers() -> None:
    """A network of images keeps one transpose, at its input; none where channels come last already."""
    weights: dict[str, Array] = {f"w{n}": np.ones((4, 4 if n else 3, 3, 3), dtype=np.float32) for n in range(3)}
    weights["d"] = np.arange(4 * 36 * 5, dtype=np.float32).reshape(144, 5)
    nodes = [making.node("Conv", ["x", "w0"], ["a"]), making.node("Conv", ["a", "w1"], ["b"])]
    nodes += [making.node("Conv", ["b", "w2"], ["c"]), making.node("Flatten", ["c"], ["f"])]
    nodes += [making.node("MatMul", ["f", "d"], ["y"])]
    content = making.model(nodes, {"x": (1, 3, 12, 12)}, {"y": (1, 5)}, weights)
    for channels_last, transposes in ((False, 1), (True, 0)):
        graph = Importer(read_model(content, None), {}, channels_last).graph("model", LOWERINGS)
        assert [op.kind for op in graph.ops].count("TRANSPOSE") == transposes


def test_activations_and_normalisation_become_part_of_layers() -> None:
    """Conv, BatchNormalization, Relu: one operation, and the same numbers."""
    rng = np.random.default_rng(0)
    parts = {n: rng.uniform(0.5, 1, 4).astype(np.float32) for n in ("s", "b", "m", "v")}
    parts["w"] = rng.normal(size=(4, 3, 3, 3)).astype(np.float32)
    nodes = [
        making.node("Conv", ["x", "w"], ["a"]),
        making.node("BatchNormalization", ["a", "s", "b", "m", "v"], ["n"]),
    ]
    whole = making.model([*nodes, making.node("Relu", ["n"], ["y"])], {"x": (1, 3, 6, 6)}, {"y": (1, 4, 4, 4)}, parts)
    apart = making.model(
        [*nodes, making.node("Relu", ["n"], ["y"])], {"x": (1, 3, 6, 6)}, {"y": (1, 4, 4, 4), "a": (1, 4, 4, 4)}, parts
    )
    values = {"x": rng.normal(size=(1, 3, 6, 6)).astype(np.float32)}
    kinds = [op.kind for op in Importer(read_model(whole, None), {}, True).graph("model", LOWERINGS).ops]
    assert kinds == ["CONV_2D"]
    assert agrees(computed(read_model(whole, None), values)[0], computed(read_model(apart, None), values)[0], 1e-4)
