"""onnxruntime, set up so that it is a sound judge.

By default it saturates sums of 8-bit products on processors without dot-product instructions, and leaves parts of a
quantised network in real numbers. The settings here make it compute what the file says on all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.frontends.onnx.proto import read_model
from diagmem.frontends.source import Source
from diagmem.model.graph import Graph
from diagmem.verification.stream import Inputs

Outputs = Sequence[Sequence[npt.NDArray[Any]]]

TO_CHANNELS_FIRST, TO_CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


SETTINGS = {False: "session.qdqisint8allowed", True: "session.x64quantprecision"}
"""For 8-bit activations with a sign and without: the one keeps them as they are, the other does not saturate. Both at
once are refused."""


class Refused(Exception):
    """onnxruntime does not run the model."""


def outputs_of(source: Source, inputs: Inputs) -> Outputs:
    """What onnxruntime makes of each run's inputs, in the order of the graph's own."""
    session = _session(source)
    names = [value.name for value in session.get_inputs()]
    turned = source.channels_last
    found = []
    try:
        for run in inputs:
            given = [_turned(values, TO_CHANNELS_FIRST) if turned else values for values in run]
            made = session.run(None, dict(zip(names, given, strict=True)))
            found.append([_turned(values, TO_CHANNELS_LAST) if turned else np.asarray(values) for values in made])
    except Exception as error:
        # It has exceptions of its own for each way in which a model may fail.
        raise Refused(str(error)) from error
    return found


def _session(source: Source) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry(SETTINGS[is_unsigned(source)], "1")
    model = source.content if isinstance(source.model, bytes) else str(source.model)
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise Refused(str(error)) from error


def is_unsigned(source: Source) -> bool:
    """Whether activations are quantised to 8 bits without a sign."""
    directory = None if isinstance(source.model, bytes | Graph) else Path(source.model).parent
    model = read_model(source.content, directory)
    zeros = (node.inputs[2] for node in model.nodes if node.kind == "QuantizeLinear" and len(node.inputs) > 2)
    return any(name in model.constants and model.constants[name].dtype == np.uint8 for name in zeros)


def _turned(values: npt.NDArray[Any], axes: tuple[int, ...]) -> npt.NDArray[Any]:
    return values.transpose(axes) if values.ndim == 4 else values
