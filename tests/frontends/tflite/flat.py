"""Builds small .tflite files by hand, sound or not: what no converter would write can be written here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
import tflite


@dataclass(frozen=True)
class FlatTensor:
    shape: Sequence[int]
    name: str = "t"
    type: int = tflite.TensorType.INT8
    data: bytes = b""
    signature: Sequence[int] = ()
    is_variable: bool = False
    outside: bool = False
    """The data stand behind the flatbuffer, as in files beyond 2 GB."""
    scales: Sequence[float] = ()
    axis: int = 0


@dataclass(frozen=True)
class FlatOp:
    kind: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    custom: str | None = None
    has_old_code: bool = True
    """The field of the operator code that newer files may leave out."""


@dataclass(frozen=True)
class FlatModel:
    tensors: Sequence[FlatTensor]
    ops: Sequence[FlatOp]
    inputs: Sequence[int] = (0,)
    outputs: Sequence[int] = (1,)
    subgraphs: int = 1
    version: int = 3

    def content(self) -> bytes:
        """The file; data outside the flatbuffer come last, at offsets that a second pass fills in."""
        first = self._build({})
        places, tail = {}, b""
        for index, tensor in enumerate(self.tensors):
            if tensor.outside:
                places[index] = len(first) + len(tail)
                tail += tensor.data
        return self._build(places) + tail

    def _build(self, places: dict[int, int]) -> bytes:
        b = flatbuffers.Builder(1024)
        buffers = [self._table(b, "Buffer")]
        for index, tensor in enumerate(self.tensors):
            inside = {"Data": b.CreateByteVector(tensor.data)} if tensor.data and not tensor.outside else {}
            # A stand-in above 1 keeps the table's size the same in both passes.
            outside = {"Offset": places.get(index, 2), "Size": len(tensor.data)} if tensor.outside else {}
            buffers.append(self._table(b, "Buffer", **inside, **outside))
        codes = [self._code(b, op) for op in self.ops]
        subgraph = self._subgraph(b)
        model = self._table(
            b,
            "Model",
            Version=self.version,
            OperatorCodes=self._offsets(b, codes),
            Subgraphs=self._offsets(b, [subgraph] * self.subgraphs),
            Buffers=self._offsets(b, buffers),
        )
        b.Finish(model, file_identifier=b"TFL3")
        return bytes(b.Output())

    def _code(self, b: Any, op: FlatOp) -> int:
        number = getattr(tflite.BuiltinOperator, op.kind)
        custom = {"CustomCode": b.CreateString(op.custom)} if op.custom is not None else {}
        old = {"DeprecatedBuiltinCode": min(number, 127)} if op.has_old_code else {}
        return self._table(b, "OperatorCode", BuiltinCode=number, **old, **custom)

    def _subgraph(self, b: Any) -> int:
        tensors = []
        for index, t in enumerate(self.tensors):
            fields: dict[str, Any] = {"Name": b.CreateString(t.name), "Shape": self._ints(b, t.shape)}
            if t.signature:
                fields["ShapeSignature"] = self._ints(b, t.signature)
            if t.scales:
                stored = b.CreateNumpyVector(np.array(t.scales, np.float32))
                zeros = b.CreateNumpyVector(np.zeros(len(t.scales), np.int64))
                found = {"Scale": stored, "ZeroPoint": zeros, "QuantizedDimension": t.axis}
                fields["Quantization"] = self._table(b, "QuantizationParameters", **found)
            tensors.append(self._table(b, "Tensor", Type=t.type, Buffer=index + 1, IsVariable=t.is_variable, **fields))
        ops = [
            self._table(
                b, "Operator", OpcodeIndex=i, Inputs=self._ints(b, op.inputs), Outputs=self._ints(b, op.outputs)
            )
            for i, op in enumerate(self.ops)
        ]
        return self._table(
            b,
            "SubGraph",
            Tensors=self._offsets(b, tensors),
            Inputs=self._ints(b, self.inputs),
            Outputs=self._ints(b, self.outputs),
            Operators=self._offsets(b, ops),
        )

    @staticmethod
    def _table(b: Any, name: str, **fields: Any) -> int:
        getattr(tflite, f"{name}Start")(b)
        for key, value in fields.items():
            getattr(tflite, f"{name}Add{key}")(b, value)
        end: int = getattr(tflite, f"{name}End")(b)
        return end

    @staticmethod
    def _ints(b: Any, values: Sequence[int]) -> int:
        b.StartVector(4, len(values), 4)
        for value in reversed(values):
            b.PrependInt32(value)
        end: int = b.EndVector()
        return end

    @staticmethod
    def _offsets(b: Any, offsets: Sequence[int]) -> int:
        b.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            b.PrependUOffsetTRelative(offset)
        end: int = b.EndVector()
        return end
