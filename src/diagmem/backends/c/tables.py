"""Constant data of a program: each table once, as C text or, where it is much, as a file for the assembler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from diagmem.backends.c.literals import numbers
from diagmem.backends.c.program import Program
from diagmem.model.errors import ModelError
from diagmem.model.graph import Tensor
from diagmem.ops.c_call import CCall, CStruct, CTable, values_of

_TYPES = {
    "i1": "int8_t",
    "i2": "int16_t",
    "i4": "int32_t",
    "i8": "int64_t",
    "u1": "uint8_t",
    "u2": "uint16_t",
    "f4": "float",
    "b1": "uint8_t",
}


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A table as it is stored: its C name and type, and the data."""

    name: str
    type: str
    data: np.ndarray[Any, Any]

    @property
    def declaration(self) -> str:
        return f"const {self.type} {self.name}[{self.data.size}]"


@dataclass(frozen=True)
class Tables:
    """All tables of a program; those with the same bytes are one. `prefix` starts every name."""

    program: Program
    prefix: str

    @cached_property
    def _found(self) -> tuple[tuple[Stored, ...], Mapping[CTable, str], Mapping[int, str], Mapping[int, str]]:
        stored: dict[tuple[str, bytes], Stored] = {}
        named: dict[CTable, str] = {}
        constants: dict[int, str] = {}
        states: dict[int, str] = {}

        def keep(name: str, data: np.ndarray[Any, Any]) -> str:
            key = (_type(data), data.tobytes())
            return stored.setdefault(key, Stored(f"{self.prefix}_{name}", key[0], data)).name

        for index, call in self.program.calls.items():
            op = self.program.graph.ops[index].number
            for table in () if call is None else _tables(call.parameters):
                named[table] = keep(f"op{op}_{table.name}", table.data)
            for tensor in () if call is None else _constants(call):
                constants[tensor.index] = keep(f"tensor{tensor.index}", values_of(tensor))
        for tensor in self.program.states:
            if not is_one_byte(tensor.first_values):
                states[tensor.index] = keep(f"state{tensor.index}", tensor.first_values)
        return tuple(stored.values()), named, constants, states

    @property
    def stored(self) -> tuple[Stored, ...]:
        return self._found[0]

    @property
    def names(self) -> Mapping[CTable, str]:
        return self._found[1]

    @property
    def constants(self) -> Mapping[int, str]:
        """Constant tensors whose address is passed -> the name of their table."""
        return self._found[2]

    @property
    def states(self) -> Mapping[int, str]:
        """Variables -> the name of the table of their first values, where these are not one byte over and over."""
        return self._found[3]

    @property
    def size_bytes(self) -> int:
        return sum(table.data.nbytes for table in self.stored)

    @property
    def bytes_by_op(self) -> Mapping[int, int]:
        """Op -> bytes of the tables that it is the first to use."""
        sizes, found = {table.name: table.data.nbytes for table in self.stored}, dict[int, int]()
        for op, call in self.program.calls.items():
            used = [] if call is None else [self.names[table] for table in _tables(call.parameters)]
            used += [] if call is None else [self.constants[tensor.index] for tensor in _constants(call)]
            found[op] = sum(sizes.pop(name, 0) for name in used)
        return found

    def header(self) -> str:
        """NAME_weights.h after its first comment."""
        guard = f"{self.prefix.upper()}_WEIGHTS_H"
        lines = "".join(f"extern {self._attribute} {table.declaration};\n" for table in self.stored)
        return f'#ifndef {guard}\n#define {guard}\n\n#include "{self.prefix}.h"\n\n{lines}\n#endif\n'

    @property
    def _attribute(self) -> str:
        return f"{self.prefix.upper()}_WEIGHTS_ATTR"

    def text(self) -> str:
        """NAME_weights.c after its first comment."""
        lines = [f'#include "{self.prefix}_weights.h"']
        for table in self.stored:
            lines += ["", f"{self._attribute} {table.declaration} = {{", *numbers(table.data), "};"]
        return "".join(f"{line}\n" for line in lines)

    def binary(self) -> bytes:
        """NAME_weights.bin: the tables one after the other, each on a multiple of 8 bytes, little-endian."""
        return b"".join(_padded(t.data.astype(t.data.dtype.newbyteorder("<")).tobytes()) for t in self.stored)

    def assembly(self) -> dict[str, str]:
        """NAME_weights.S, which gives the bytes of `binary` their names."""
        from diagmem.backends.c.text import filled

        places, offset = [], 0
        for table in self.stored:
            places.append((table.name, offset, table.data.nbytes))
            offset += len(_padded(bytes(table.data.nbytes)))
        text = filled("weights.S.j2", prefix=self.prefix, macro=self.prefix.upper(), places=places)
        return {f"{self.prefix}_weights.S": text}


def is_one_byte(data: np.ndarray[Any, Any]) -> bool:
    """Whether all bytes are the same."""
    return len(set(data.tobytes())) == 1


def _type(data: np.ndarray[Any, Any]) -> str:
    kind = f"{data.dtype.kind}{data.dtype.itemsize}"
    if kind not in _TYPES:
        raise ModelError(f"constants of type {data.dtype} cannot be written as C")
    return _TYPES[kind]


def _tables(struct: CStruct) -> Iterator[CTable]:
    for value in struct.fields.values():
        if isinstance(value, CTable):
            yield value
        elif isinstance(value, CStruct):
            yield from _tables(value)


def _constants(call: CCall) -> Iterator[Tensor]:
    return (tensor for tensor in call.tensors if tensor.is_constant)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)
