"""Where a model comes from: a .tflite or .onnx file, bytes, the zoo, a PyTorch module or a Keras model.

Modules and models go through the exporter of their own framework, which is not imported before: what an object is
shows by the module in which its class, or a base class, was defined.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from diagmem.frontends.checks import check_sizes, with_shapes
from diagmem.model.errors import ModelError, content_of, one_line
from diagmem.model.graph import Graph, Shape
from diagmem.ops.signature import check_signatures

ZOO_PREFIX = "zoo:"
TFLITE_SUFFIX, ONNX_SUFFIX = ".tflite", ".onnx"
TFLITE_MARK, ONNX_START = b"TFL3", b"\x08"


@dataclass(frozen=True)
class Source:
    """A model as it was named: a path to a .tflite or .onnx file, its bytes, `zoo:NAME`, or a graph without a file.
    It is opened and parsed once, when first needed.

    `shapes`: input shapes by name that replace the model's own; all others are inferred from them. `channels_last`:
    images go in and out with their channels last, whatever the order in an ONNX file. `title`: the name of a model
    that is given as bytes."""

    model: str | Path | bytes | Graph
    shapes: Mapping[str, Shape] = field(default_factory=dict, hash=False)
    channels_last: bool = False
    title: str = "model"

    @classmethod
    def exported(cls, model: object, example_inputs: Any = None, **rest: Any) -> Source:
        """A PyTorch module or a Keras model. `example_inputs`: what a module is called with, a tensor or a tuple of
        them. `rest`: the other fields."""
        return cls(exported(model, example_inputs), **{"title": type(model).__name__, **rest})

    @property
    def is_from_zoo(self) -> bool:
        return isinstance(self.model, str) and self.model.startswith(ZOO_PREFIX)

    @property
    def name(self) -> str:
        """Its file's name without the suffix, or its name in the zoo."""
        if isinstance(self.model, bytes | Graph):
            return self.title if isinstance(self.model, bytes) else self.model.name
        return str(self.model)[len(ZOO_PREFIX) :] if self.is_from_zoo else Path(self.model).stem

    @property
    def label(self) -> str:
        """As it was named, for messages."""
        return str(self.model) if isinstance(self.model, str | Path) else self.name

    @cached_property
    def content(self) -> bytes:
        """The file's bytes; a zoo model is written with random weights."""
        if isinstance(self.model, bytes):
            return self.model
        if isinstance(self.model, Graph):
            raise ModelError(f"{self.name}: the graph has no file")
        if self.is_from_zoo:
            from diagmem.frontends.tflite.writer import to_tflite

            return to_tflite(self.graph)
        return content_of(self.model)

    @cached_property
    def is_onnx(self) -> bool:
        """Whether it is an ONNX file: by its name, else by its first bytes."""
        if self.is_from_zoo or isinstance(self.model, Graph):
            return False
        if not isinstance(self.model, bytes) and Path(self.model).suffix in (TFLITE_SUFFIX, ONNX_SUFFIX):
            return Path(self.model).suffix == ONNX_SUFFIX
        return self.content[:1] == ONNX_START and self.content[4:8] != TFLITE_MARK

    @property
    def has_file(self) -> bool:
        return not isinstance(self.model, Graph)

    @cached_property
    def graph(self) -> Graph:
        """A zoo model has no weights here."""
        if self.is_from_zoo:
            from diagmem.frontends import zoo

            return with_shapes(zoo.build(self.name), self.shapes)
        return self.runnable

    @cached_property
    def runnable(self) -> Graph:
        """With weights; a zoo model gets random ones."""
        if isinstance(self.model, Graph):
            graph = with_shapes(self.model, self.shapes)
            check_sizes(graph)
            return check_signatures(graph)
        return self.parsed(self.content)

    def graph_for(self, *needs_weights: object) -> Graph:
        """The graph to plan, with weights if any of these is set. Drawing them for a zoo model takes time."""
        return self.runnable if any(needs_weights) else self.graph

    def parsed(self, content: bytes) -> Graph:
        """The graph in another file of the same model."""
        if self.is_onnx:
            from diagmem.frontends import onnx

            folder = None if isinstance(self.model, bytes | Graph) else Path(self.model).parent
            return onnx.parse(content, self.name, folder, self.shapes, self.channels_last)
        from diagmem.frontends import tflite

        return tflite.parse(content, self.name, None if self.is_from_zoo else self.shapes)


def exported(model: object, example_inputs: Any = None) -> bytes:
    """The file that its own exporter writes: ONNX, or TensorFlow Lite where Keras runs on TensorFlow.
    `example_inputs`: what a PyTorch module is called with for one inference, a tensor or a tuple of them."""
    # On PyTorch, a Keras model is a module too.
    if _is_a(model, "Model", "keras", "tf_keras", "tensorflow"):
        return _from_keras(model)
    if not _is_a(model, "Module", "torch"):
        raise ModelError(
            f"{one_line(type(model).__name__)} is not a model; give a path, bytes, a Graph, a PyTorch module or a "
            "Keras model"
        )
    if example_inputs is None:
        raise ModelError(
            "a PyTorch module does not know the shapes of its inputs; give an example: plan(module, example)"
        )
    return _from_torch(model, example_inputs)


def _is_a(model: object, base: str, *packages: str) -> bool:
    """Whether a class of that name, from one of these packages, is among its bases."""
    bases = [kind for kind in type(model).__mro__ if kind.__name__ == base]
    return any(kind.__module__.partition(".")[0] in packages for kind in bases)


def _from_torch(module: Any, example_inputs: Any) -> bytes:
    torch: Any = import_module("torch")
    inputs = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    was_training = module.training
    module.eval()
    try:
        with _quiet("PyTorch"), torch.no_grad():
            return _traced(torch, module, inputs)
    finally:
        module.train(was_training)


def _traced(torch: Any, module: Any, inputs: tuple[Any, ...]) -> bytes:
    """By today's exporter where its dependencies are installed, else by the older one."""
    from tempfile import TemporaryDirectory  # Slow to load, and rarely needed.

    with TemporaryDirectory() as folder:
        path = Path(folder) / "module.onnx"
        try:
            torch.onnx.export(module, inputs, str(path), dynamo=True, external_data=False, verbose=False)
        except (ImportError, TypeError):
            torch.onnx.export(module, inputs, str(path), dynamo=False)
        return path.read_bytes()


def _from_keras(model: Any) -> bytes:
    from tempfile import TemporaryDirectory

    with _quiet("Keras"), TemporaryDirectory() as folder:
        if _runs_on_tensorflow(model):
            tensorflow: Any = import_module("tensorflow")
            return bytes(tensorflow.lite.TFLiteConverter.from_keras_model(model).convert())
        path = Path(folder) / "model.onnx"
        # The exporter needs a model that has been called once.
        keras: Any = import_module("keras")
        zeros = [keras.ops.zeros([size or 1 for size in given.shape], given.dtype) for given in model.inputs]
        model(zeros if len(zeros) > 1 else zeros[0])
        model.export(str(path), format="onnx", verbose=False)
        return path.read_bytes()


def _runs_on_tensorflow(model: object) -> bool:
    """Keras 3 runs on several backends; earlier versions, and the one inside TensorFlow, on TensorFlow alone."""
    if not _is_a(model, "Model", "keras"):
        return True
    backend = getattr(import_module("keras"), "backend", None)
    return bool(getattr(backend, "backend", lambda: "tensorflow")() == "tensorflow")


@contextlib.contextmanager
def _quiet(who: str) -> Iterator[None]:
    """Hides what an exporter prints, and turns what it raises into one of our errors."""
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        why = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ModelError(
            f"{who} cannot export it: {one_line(why)[:300]}; export it to a file yourself, and give its path"
        ) from error
