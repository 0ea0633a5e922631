"""Small ONNX files, written field by field, without the package that the reader does without."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9}


def varint(value: int) -> bytes:
    value %= 1 << 64
    found = b""
    while value > 0x7F:
        found, value = found + bytes([value & 0x7F | 0x80]), value >> 7
    return found + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def data(field: int, value: bytes | str) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(content)) + content


def real(field: int, value: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", value)


def tensor(name: str, values: npt.NDArray[Any]) -> bytes:
    dims = b"".join(number(1, size) for size in values.shape)
    return dims + number(2, TYPES[values.dtype.name]) + data(8, name) + data(9, values.tobytes())


def attribute(name: str, value: Any) -> bytes:
    head = data(1, name)
    if isinstance(value, bool | int):
        return head + number(3, int(value)) + number(20, 2)
    if isinstance(value, float):
        return head + real(2, value) + number(20, 1)
    if isinstance(value, str):
        return head + data(4, value) + number(20, 3)
    if isinstance(value, np.ndarray):
        return head + data(5, tensor("", value)) + number(20, 4)
    if isinstance(value, bytes):
        return head + data(6, value) + number(20, 5)
    return head + b"".join(number(8, entry) for entry in value) + number(20, 7)


def node(kind: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attributes: Any) -> bytes:
    names = b"".join(data(1, name) for name in inputs) + b"".join(data(2, name) for name in outputs)
    given = b"".join(data(5, attribute(name, value)) for name, value in attributes.items())
    return names + data(4, kind) + given + (data(7, domain) if domain else b"")


def value(name: str, shape: Sequence[int | str] | None, dtype: str = "float32") -> bytes:
    """Without a shape, its type is left out as well."""
    if shape is None:
        return data(1, name)
    dims = b"".join(data(1, number(1, d) if isinstance(d, int) else data(2, d)) for d in shape)
    return data(1, name) + data(2, data(1, number(1, TYPES[dtype]) + data(2, dims)))


def model(
    nodes: Sequence[bytes],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Mapping[str, Sequence[int | str] | None],
    constants: Mapping[str, npt.NDArray[Any]] | None = None,
    opset: int = 17,
    types: Mapping[str, str] | None = None,
) -> bytes:
    """A whole file; inputs and outputs are float32, unless `types` says otherwise."""
    of = {**dict.fromkeys([*inputs, *outputs], "float32"), **(types or {})}
    given = [value(name, shape, of[name]) for name, shape in inputs.items()]
    made = [value(name, shape, of[name]) for name, shape in outputs.items()]
    return number(1, 8) + data(7, graph(nodes, given, made, constants or {})) + data(8, number(2, opset))


def graph(
    nodes: Sequence[bytes], inputs: Sequence[bytes], outputs: Sequence[bytes], constants: Mapping[str, npt.NDArray[Any]]
) -> bytes:
    """That of a model, or one inside a node: an attribute's value."""
    named = b"".join(data(5, tensor(name, array)) for name, array in constants.items())
    wires = b"".join(data(11, one) for one in inputs) + b"".join(data(12, one) for one in outputs)
    return b"".join(data(1, each) for each in nodes) + data(2, "graph") + named + wires
