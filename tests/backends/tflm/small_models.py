"""Small models, each with one thing that a plan for TFLM must get right."""

from __future__ import annotations

from dataclasses import replace

import flatbuffers
import numpy as np
import tflite

from diagmem.frontends.tflite.writer import to_tflite
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.graph import DType, Op, Tensor
from diagmem.ops.elementwise.binary import Binary


def scratch() -> bytes:
    """MEAN, whose int8 kernel asks TFLM for scratch."""
    b = Builder("scratch", DType.INT8)
    x = b.depthwise(b.conv(b.input(1, 14, 14, 3), 16, 3), 3)
    return to_tflite(b.graph(b.softmax(b.fully_connected(b.mean(x, keep_dims=False), 10))))


def reshapes() -> bytes:
    """Two RESHAPEs in a row in the middle, and one at the end."""
    b = Builder("reshapes", DType.INT8)
    x = b.conv(b.input(1, 6, 6, 4), 8, 3)
    x = b.fully_connected(b.flatten(b.flatten(x)), 32)
    return to_tflite(b.graph(b.flatten(x)))


def several_outputs() -> bytes:
    """An output from the middle that later operations read too, and one from the end."""
    b = Builder("several_outputs", DType.INT8)
    early = b.conv(b.input(1, 12, 12, 4), 8, 3)
    late = b.average_pool(b.conv(early, 16, 1), 2, 2)
    graph = b.graph(late)
    return to_tflite(replace(graph, outputs=(*graph.outputs, graph.ops[0].outputs[0])))


def unused() -> bytes:
    """Tensors that no operation touches: TFLM gives them a place all the same."""
    b = Builder("unused")
    graph = b.graph(b.conv(b.conv(b.input(1, 10, 10, 3), 8, 3), 4, 3, 2))
    count = len(graph.tensors)
    extra = (Tensor(count, "large", (1, 40, 10), DType.FLOAT32), Tensor(count + 1, "small", (1, 3), DType.FLOAT32))
    return to_tflite(replace(graph, tensors=(*graph.tensors, *extra)))


def variable() -> bytes:
    """A running sum that lives from one run to the next, between two convolutions."""
    b = Builder("variable")
    graph = b.graph(b.conv(b.conv(b.input(1, 8, 8, 3), 6, 3), 6, 3))
    first, last = graph.ops
    mid, state = first.outputs[0], len(graph.tensors)
    ops = (
        first,
        Op(1, "ADD", (mid, state), (state,), Binary()),
        replace(last, index=2, inputs=(state, *last.inputs[1:])),
    )
    held = Tensor(state, "state", graph.tensors[mid].shape, DType.FLOAT32, is_variable=True)
    # The writer draws weights to suit what each tensor holds, which it knows of inputs: so the state begins as one.
    graph = replace(graph, tensors=(*graph.tensors, held), ops=ops, inputs=(*graph.inputs, state))
    data = bytearray(to_tflite(graph))
    subgraph = tflite.Model.GetRootAs(data, 0).Subgraphs(0)
    inputs_at = subgraph._tab.Indirect(subgraph._tab.Pos + subgraph._tab.Offset(6))
    data[inputs_at : inputs_at + 4] = (len(graph.inputs) - 1).to_bytes(4, "little")
    return bytes(data)


def branches() -> bytes:
    """Two branches of unlike size, written in the worse order."""
    b = Builder("branches", DType.INT8)
    x = b.input(1, 12, 12, 4)
    small = b.max_pool(x, 3, 3)
    large = b.conv(x, 32, 1)
    reduced = b.conv(b.average_pool(large, 3, 3), 4, 1)
    return to_tflite(b.graph(b.add(small, reduced)))


def vela() -> bytes:
    """What Arm's Vela leaves of a model: one operation that TFLite does not know, which takes the arena as inputs that
    nobody fills, and a plan with the model's input and output in one place of that arena."""
    b = flatbuffers.Builder()
    sizes = {"commands": 64, "weights": 256, "scratch": 512, "scratch_fast": 512, "input": 200, "output": 200}
    offsets = [-1, -1, 0, 0, 0, 0]
    plan = np.array([0, 1, len(offsets), *offsets], "<i4").tobytes()
    buffers = [_buffer(b, content) for content in (b"", bytes(64), bytes(256), plan)]
    tensors = [_tensor(b, name, size, n if n < 3 else 0) for n, (name, size) in enumerate(sizes.items(), 1)]
    operator = _table(b, "Operator", Inputs=_ints(b, [0, 1, 2, 3, 4]), Outputs=_ints(b, [5]))
    code = _table(b, "OperatorCode", DeprecatedBuiltinCode=32, BuiltinCode=32, CustomCode=b.CreateString("ethos-u"))
    vectors = {"Tensors": _tables(b, tensors), "Operators": _tables(b, [operator])}
    subgraph = _table(b, "SubGraph", Inputs=_ints(b, [4]), Outputs=_ints(b, [5]), **vectors)
    entry = _table(b, "Metadata", Name=b.CreateString("OfflineMemoryAllocation"), Buffer=3)
    parts = {"OperatorCodes": [code], "Subgraphs": [subgraph], "Buffers": buffers, "Metadata": [entry]}
    root = _table(b, "Model", Version=3, **{name: _tables(b, part) for name, part in parts.items()})
    b.Finish(root, file_identifier=b"TFL3")
    return bytes(b.Output())


def _buffer(b: flatbuffers.Builder, content: bytes) -> int:
    return _table(b, "Buffer", Data=b.CreateByteVector(content)) if content else _table(b, "Buffer")


def _tensor(b: flatbuffers.Builder, name: str, size: int, buffer: int) -> int:
    text, shape = b.CreateString(name), _ints(b, [size])
    return _table(b, "Tensor", Shape=shape, Type=tflite.TensorType.UINT8, Buffer=buffer, Name=text)


def _table(b: flatbuffers.Builder, name: str, **fields: int) -> int:
    getattr(tflite, f"{name}Start")(b)
    for field, value in fields.items():
        getattr(tflite, f"{name}Add{field}")(b, value)
    return int(getattr(tflite, f"{name}End")(b))


def _tables(b: flatbuffers.Builder, tables: list[int]) -> int:
    b.StartVector(4, len(tables), 4)
    for table in reversed(tables):
        b.PrependUOffsetTRelative(table)
    return int(b.EndVector())


def _ints(b: flatbuffers.Builder, values: list[int]) -> int:
    return int(b.CreateNumpyVector(np.array(values, np.int32)))


ALL = (scratch, reshapes, several_outputs, unused, variable, branches)
"""All but the last, which TFLM cannot run without the chip that it was made for."""
