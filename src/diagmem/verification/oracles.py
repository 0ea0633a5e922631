"""Other people's runtimes, where they are installed: a second opinion on what numpy computes."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.frontends.source import Source
from diagmem.frontends.tflite import has_shapes_of_file
from diagmem.model.graph import DType, Graph
from diagmem.ops.numerics.weighted_sums import is_hybrid
from diagmem.verification import reference
from diagmem.verification.stream import Inputs
from diagmem.verification.tflm import runtime
from diagmem.verification.tflm.runtime import TflmError

RELATIVE_TOLERANCE = 1e-4
"""Of the largest output, for real numbers: runtimes add up in different orders. Integers must be equal."""

Outputs = Sequence[Sequence[npt.NDArray[Any]]]


def second_opinion(source: Source, graph: Graph, inputs: Inputs) -> tuple[str | None, str | None]:
    """Whose opinion there is, and how it differs from numpy's; None for either where there is nothing to say."""
    if source.is_onnx:
        return _onnxruntime_opinion(source, graph, inputs)
    content = source.content
    for name, run in (("tflm", _tflm), ("litert", _litert)):
        if _is_judge(name, content, graph):
            try:
                theirs = run(content, graph, inputs)
            except (TflmError, ValueError, RuntimeError):
                # Not every model runs there, which says nothing against ours.
                continue
            return name, _difference(graph, inputs, theirs)
    return None, None


def _onnxruntime_opinion(source: Source, graph: Graph, inputs: Inputs) -> tuple[str | None, str | None]:
    if not importlib.util.find_spec("onnxruntime"):
        return None, None
    from diagmem.verification.onnx_runtime import Refused, outputs_of

    try:
        theirs = outputs_of(source, inputs)
    except Refused:
        # Not every model runs there, which says nothing against ours.
        return None, None
    return "onnxruntime", _difference(graph, inputs, theirs)


def _is_judge(name: str, content: bytes, graph: Graph) -> bool:
    """LiteRT rounds once where TFLM's kernels, and so ours, round twice: of signed integers it is no judge of single
    bits. Unsigned ones, which TFLM does not know, are computed as LiteRT does. Where weights have 8 bits and data are
    real, it rounds the data, which we do not. TFLM infers no shapes."""
    if name == "tflm":
        return runtime.is_installed() and has_shapes_of_file(content, graph)
    in_ram = {t.dtype for t in graph.tensors if not t.is_constant}
    is_exact = not in_ram & {DType.INT8, DType.INT16} and not any(is_hybrid(node) for node in graph.nodes)
    return importlib.util.find_spec("ai_edge_litert") is not None and is_exact


def _tflm(content: bytes, graph: Graph, inputs: Inputs) -> Outputs:
    tensors = [graph.tensors[t] for t in graph.outputs]
    return [
        [np.frombuffer(raw, t.dtype.numpy).reshape(t.shape) for raw, t in zip(run, tensors, strict=True)]
        for run in runtime.run(content, graph, inputs).outputs
    ]


def _litert(content: bytes, graph: Graph, inputs: Inputs) -> Outputs:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    for detail, values in zip(interpreter.get_input_details(), inputs[0] if inputs else (), strict=False):
        interpreter.resize_tensor_input(detail["index"], values.shape)
    interpreter.allocate_tensors()
    found = []
    for run in inputs:
        for detail, values in zip(interpreter.get_input_details(), run, strict=True):
            interpreter.set_tensor(detail["index"], values)
        interpreter.invoke()
        found.append([interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()])
    return found


def _difference(graph: Graph, inputs: Inputs, theirs: Outputs) -> str | None:
    for run, (values, found) in enumerate(zip(inputs, theirs, strict=True)):
        ours = reference.run(graph, values)
        for number, (t, their) in enumerate(zip(graph.outputs, found, strict=True)):
            if not _agrees(ours[t], their, graph.tensors[t].dtype):
                return f"input {run}: output {number} is not what numpy computes"
    return None


def _agrees(ours: npt.NDArray[Any], theirs: npt.NDArray[Any], dtype: DType) -> bool:
    if dtype is not DType.FLOAT32:
        return bool(np.array_equal(ours, theirs))
    largest = float(np.abs(theirs).max(initial=0))
    return bool(np.allclose(ours, theirs, rtol=0, atol=RELATIVE_TOLERANCE * max(largest, 1e-6)))
