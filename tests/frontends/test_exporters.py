"""Modules of PyTorch and models of Keras: known by where they come from, and planned through their own exporters."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import diagmem
from diagmem.frontends.source import Source, exported
from diagmem.model.errors import ModelError, PlanError
from diagmem.verification import reference
from tests.frontends.onnx import making

ONNX = making.model([making.node("Relu", ["x"], ["y"])], {"x": (1, 8)}, {"y": (1, 8)})


def stand_in(name: str, home: str) -> type:
    """A class as a package would define it."""
    return type(name, (), {"__module__": home})


class Module(stand_in("Module", "torch.nn.modules.module")):  # type: ignore[misc]
    """What a user writes: a class of theirs, made of PyTorch's."""

    training = True

    def eval(self) -> None:
        self.training = False

    def train(self, mode: bool) -> None:
        self.training = mode


def fake_torch(monkeypatch: pytest.MonkeyPatch, export: Any) -> None:
    torch: Any = ModuleType("torch")
    torch.onnx = SimpleNamespace(export=export)
    torch.no_grad = contextlib.nullcontext
    monkeypatch.setitem(sys.modules, "torch", torch)


def test_they_are_known_by_their_home() -> None:
    """A class of the same name from elsewhere is something else; nothing is imported to tell."""
    with pytest.raises(ModelError, match="shapes of its inputs"):
        exported(Module())
    for stranger in (stand_in("Module", "somewhere.torch")(), stand_in("Tensor", "torch")(), object()):
        with pytest.raises(ModelError, match="is not a model"):
            exported(stranger)


def test_a_module_is_exported_for_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the mode for inference, which it leaves afterwards; where today's exporter lacks something, by the older one.
    What exporters say stays unsaid."""
    module, calls = Module(), []

    def export(given: Any, inputs: Any, path: str, **options: Any) -> None:
        calls.append((given.training, inputs, options["dynamo"]))
        print("[torch.onnx] so much to tell")
        if options["dynamo"]:
            raise ImportError("onnxscript")
        Path(path).write_bytes(ONNX)

    fake_torch(monkeypatch, export)
    assert diagmem.plan(module, "example").arena_bytes == 32
    assert module.training
    assert calls == [(False, ("example",), True), (False, ("example",), False)]
    assert Source.exported(module, ("example",)).name == "Module"


def test_what_an_exporter_raises_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def export(*given: Any, **options: Any) -> None:
        raise RuntimeError("\n\nno such \x1b[31moperator\nand pages more")

    fake_torch(monkeypatch, export)
    with pytest.raises(ModelError) as caught:
        diagmem.plan(Module(), "example")
    assert str(caught.value).startswith("PyTorch cannot export it: no such ")
    assert str(caught.value).isprintable()


def test_what_is_missing_or_too_much_is_said() -> None:
    """A module without an example, an example for a file, and what is no model at all."""
    with pytest.raises(ModelError, match="give an example"):
        diagmem.plan(Module())
    with pytest.raises(PlanError, match="example_inputs"):
        diagmem.plan("zoo:vww_96_int8", "example")
    with pytest.raises(ModelError, match="int is not a model"):
        diagmem.plan(17)


def test_keras_by_its_own_exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ONNX; or on TensorFlow, its converter's file."""
    keras, tensorflow = ModuleType("keras"), ModuleType("tensorflow")
    backend = SimpleNamespace(backend=lambda: "torch")
    keras.backend = backend  # type: ignore[attr-defined]

    keras.ops = SimpleNamespace(zeros=lambda shape, dtype: np.zeros(shape, dtype))  # type: ignore[attr-defined]
    called: list[Any] = []

    class Model(stand_in("Model", "keras.src.models.model")):  # type: ignore[misc]
        inputs = (SimpleNamespace(shape=(None, 8), dtype="float32"),)

        def __call__(self, values: Any) -> None:
            called.append(values.shape)

        def export(self, path: str, **given: Any) -> None:
            assert given == {"format": "onnx", "verbose": False}
            Path(path).write_bytes(ONNX)

    converter = SimpleNamespace(from_keras_model=lambda model: SimpleNamespace(convert=lambda: b"a file of its own"))
    tensorflow.lite = SimpleNamespace(TFLiteConverter=converter)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keras", keras)
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    assert exported(Model()) == ONNX
    assert called == [(1, 8)]
    monkeypatch.setattr(backend, "backend", lambda: "tensorflow")
    assert exported(Model()) == b"a file of its own"


def test_neither_is_imported_for_files() -> None:
    code = "import sys, diagmem; diagmem.plan('zoo:kws_dscnn_int8'); print({'torch', 'keras'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


@pytest.mark.filterwarnings("ignore")
def test_a_real_module() -> None:
    """Planned, and its graph computes what PyTorch does."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: an optional job")
    torch.manual_seed(0)
    nn = torch.nn
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 5))
    example = torch.randn(1, 3, 8, 8)
    assert diagmem.plan(net, example).arena_bytes < 4 * (3 * 64 + 4 * 64 + 5)
    assert net.training
    graph = Source.exported(net, example).runnable
    ours = reference.run(graph, [example.numpy()])[graph.outputs[0]]
    assert np.allclose(ours, net.eval()(example).detach().numpy(), atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_a_real_model_of_keras() -> None:
    """Whatever it runs on."""
    keras = pytest.importorskip("keras", reason="needs Keras: an optional job")
    layers = keras.layers
    net = keras.Sequential(
        [keras.Input((8, 8, 3)), layers.Conv2D(4, 3, activation="relu"), layers.Flatten(), layers.Dense(5)]
    )
    values = np.random.default_rng(0).normal(size=(1, 8, 8, 3)).astype(np.float32)
    graph = Source.exported(net).runnable
    ours = reference.run(graph, [values])[graph.outputs[0]]
    assert np.allclose(ours, np.asarray(net.predict(values, verbose=0)), atol=1e-5)
    assert diagmem.plan(net).arena_bytes > 0
