"""Tables of TFLite's schema, written into a flatbuffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
import tflite

from diagmem.frontends.tflite import options as options_table
from diagmem.model.graph import DType, Quantisation, Shape
from diagmem.ops.options import CUSTOM, CustomOptions, Options

ALIGNMENT = 16
"""Bytes; runtimes that map the file use the weights where they lie."""

Fields = dict[str, Any]


class FlatTables:
    """One flatbuffer, written back to front as flatbuffers are: what is referred to comes first."""

    def __init__(self, size_bytes: int = 1024) -> None:
        self.flat = flatbuffers.Builder(size_bytes)

    def table(self, name: str, /, **fields: Any) -> int:
        """A table of the schema; its vectors, strings and tables are given by their offsets."""
        getattr(tflite, f"{name}Start")(self.flat)
        for field, value in fields.items():
            getattr(tflite, f"{name}Add{field}")(self.flat, value)
        return int(getattr(tflite, f"{name}End")(self.flat))

    def ints(self, values: Sequence[int]) -> int:
        return int(self.flat.CreateNumpyVector(np.array(values, np.int32)))

    def numbers(self, values: Sequence[float]) -> int:
        """A vector of integers, or of real numbers if one of them is."""
        if any(isinstance(value, float) for value in values):
            return int(self.flat.CreateNumpyVector(np.array(values, np.float32)))
        return self.ints([int(value) for value in values])

    def offsets(self, tables: Sequence[int]) -> int:
        self.flat.StartVector(4, len(tables), 4)
        for table in reversed(tables):
            self.flat.PrependUOffsetTRelative(table)
        return int(self.flat.EndVector())

    def data(self, values: npt.NDArray[Any]) -> int:
        """A vector of bytes, aligned; otherwise as the builder's own CreateByteVector does it."""
        raw = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
        self.flat.StartVector(1, len(raw), ALIGNMENT)
        self.flat.head -= len(raw)
        self.flat.Bytes[self.flat.head : self.flat.head + len(raw)] = raw
        return int(self.flat.EndVector())

    def tensor(
        self, name: str, shape: Shape, dtype: DType, buffer: int, quantisation: Quantisation | None, **more: Any
    ) -> int:
        fields: Fields = {
            "Shape": self.ints(shape),
            "Type": getattr(tflite.TensorType, dtype.name),
            "Buffer": buffer,
            "Name": self.flat.CreateString(name),
            **more,
        }
        if quantisation is not None:
            fields["Quantization"] = self.table(
                "QuantizationParameters",
                Scale=self.flat.CreateNumpyVector(np.array(quantisation.scales, np.float32)),
                ZeroPoint=self.flat.CreateNumpyVector(np.array(quantisation.zero_points, np.int64)),
                QuantizedDimension=quantisation.axis,
            )
        return self.table("Tensor", **fields)

    def operator(self, code: int, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> int:
        """`code`: its place in the list of operator codes."""
        fields: Fields = {"OpcodeIndex": code, "Inputs": self.ints(inputs), "Outputs": self.ints(outputs)}
        if isinstance(options, CustomOptions):
            fields["CustomOptions"] = self.flat.CreateByteVector(options_table.write(options.fields))
        elif options is not None:
            name, values = options
            vectors = {key: self.numbers(v) if isinstance(v, tuple) else v for key, v in values.items()}
            fields["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, name)
            fields["BuiltinOptions"] = self.table(name, **vectors)
        return self.table("Operator", **fields)

    def operator_code(self, kind: str, version: int) -> int:
        if kind.startswith(CUSTOM):
            custom, code = self.flat.CreateString(kind[len(CUSTOM) :]), tflite.BuiltinOperator.CUSTOM
            return self.table("OperatorCode", DeprecatedBuiltinCode=code, BuiltinCode=code, CustomCode=custom)
        number = getattr(tflite.BuiltinOperator, kind)
        return self.table("OperatorCode", DeprecatedBuiltinCode=min(number, 127), BuiltinCode=number, Version=version)
