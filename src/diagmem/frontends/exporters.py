"""Networks as those who train them have them: modules of PyTorch and models of Keras, through their own exporters.

Neither is imported before such an object is at hand: what it is shows by where its class, or one that it is made of,
was defined.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from diagmem.model.errors import ModelError, one_line

KERAS = ("keras", "tf_keras", "tensorflow")


def exported(model: object, example_inputs: Any = None) -> bytes:
    """The file that its own exporter makes of it: of ONNX, or of TensorFlow Lite where Keras runs on TensorFlow.
    `example_inputs`: what a module of PyTorch is called with, a tensor or a tuple of them, as for one inference."""
    # On PyTorch, a model of Keras is a module too.
    if _is_keras(model):
        return _from_keras(model)
    if not _is_torch(model):
        raise ModelError(
            f"{one_line(type(model).__name__)} is no model; give a path, bytes, a Graph, a module of PyTorch or a "
            "model of Keras"
        )
    if example_inputs is None:
        raise ModelError(
            "a module of PyTorch does not know the shapes of its inputs; give an example: plan(module, example)"
        )
    return _from_torch(model, example_inputs)


def _is_torch(model: object) -> bool:
    return any(kind.__name__ == "Module" and _home(kind) == "torch" for kind in type(model).__mro__)


def _is_keras(model: object) -> bool:
    return any(kind.__name__ == "Model" and _home(kind) in KERAS for kind in type(model).__mro__)


def _home(kind: type) -> str:
    return kind.__module__.partition(".")[0]


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
    """By the exporter of today, where what it needs is installed; else by the older one."""
    from tempfile import TemporaryDirectory  # Slow to load, and seldom needed.

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
        # Its exporter wants to have seen it called.
        keras: Any = import_module("keras")
        zeros = [keras.ops.zeros([size or 1 for size in given.shape], given.dtype) for given in model.inputs]
        model(zeros if len(zeros) > 1 else zeros[0])
        model.export(str(path), format="onnx", verbose=False)
        return path.read_bytes()


def _runs_on_tensorflow(model: object) -> bool:
    """Keras of version 3 runs on several; those before, and that in TensorFlow, on TensorFlow alone."""
    if any(kind.__name__ == "Model" and _home(kind) == "keras" for kind in type(model).__mro__):
        keras: Any = import_module("keras")
        backend = getattr(keras, "backend", None)
        name = getattr(backend, "backend", lambda: "tensorflow")()
        return bool(name == "tensorflow")
    return True


@contextlib.contextmanager
def _quiet(who: str) -> Iterator[None]:
    """Exporters talk; and what they raise is theirs."""
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
