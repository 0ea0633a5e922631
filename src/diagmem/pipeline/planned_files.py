"""Files for stock TensorFlow Lite Micro, with their plans inside."""

from __future__ import annotations

from diagmem.backends.tflm import metadata, planned_file
from diagmem.backends.tflm.planned_file import PlannedFile
from diagmem.frontends import tflite
from diagmem.model.errors import PlanError
from diagmem.pipeline.given import Model, source_of
from diagmem.planning import planner
from diagmem.planning.options import Options


def emit_tflm(
    model: Model,
    *,
    kernels: str = "tflm",
    align: int = 16,
    keep_inputs: bool = False,
    remove_channels: bool = True,
) -> PlannedFile:
    """The .tflite file with its arena plan inside, for stock TensorFlow Lite Micro built with these kernels: `tflm` is
    safe for all of them. `.data` is the file. `remove_channels`: without channels that make no difference to any
    output; a file that has none stands in the new one as it was.

    >>> diagmem.emit_tflm("zoo:vww_96_int8", kernels="tflm-reference").plan.arena_bytes
    36880
    """
    given = source_of(model)
    if given.is_onnx:
        raise PlanError(
            "TensorFlow Lite Micro runs .tflite files only; convert the ONNX model to one first, for example with "
            "onnx2tf, or from PyTorch with litert-torch; or emit C, which needs no runtime"
        )
    graph, content = given.runnable, metadata.without_plan(given.content)
    if content is not given.content:
        graph = given.parsed(content)
    if not tflite.has_shapes_of_file(content, graph):
        raise PlanError(
            "the file leaves shapes open, and TensorFlow Lite Micro infers none; convert it with fixed shapes"
        )
    if tflite.has_uncalled_subgraphs(content):
        raise PlanError(
            "the file has subgraphs that the model does not run, and TensorFlow Lite Micro makes room for them too; "
            "convert the model into a file of its own"
        )
    options, before = Options(kernels, align, keep_inputs), planned_file.Given(content, graph)
    less = planned_file.lean(content, graph, kernels) if remove_channels else before
    return planned_file.emit(less.data, planner.planned(less.graph, options).plan, before)
