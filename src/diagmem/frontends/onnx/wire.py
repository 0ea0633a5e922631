"""Protocol buffers as they lie in a file: fields of a message, with every length and wire type distrusted.

ONNX needs few of their features, so reading them takes no generated code: a message is a run of fields, each a number,
a wire type and a value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from diagmem.model.errors import ModelError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MOST_VARINT_BYTES = 10


class Field(NamedTuple):
    """One field of a message: a number if it is a varint, else where its bytes lie."""

    number: int
    wire: int
    value: int
    start: int
    end: int


class Message:
    """A message inside a file: bytes [start, end)."""

    def __init__(self, content: memoryview, start: int, end: int, what: str) -> None:
        self.content, self.start, self.end, self.what = content, start, end, what

    def fields(self) -> Iterator[Field]:
        """All fields in the order of the file."""
        at = self.start
        while at < self.end:
            key, at = self._varint(at)
            number, wire = key >> 3, key & 7
            if number == 0:
                raise self.damaged("a field has the number 0")
            if wire == VARINT:
                value, at = self._varint(at)
                yield Field(number, wire, value, 0, 0)
                continue
            length = 8 if wire == FIXED64 else 4
            if wire == BYTES:
                length, at = self._varint(at)
            elif wire not in (FIXED64, FIXED32):
                raise self.damaged(f"wire type {wire} is not one that ONNX uses")
            if length > self.end - at:
                raise self.damaged("it ends in the midst of a field")
            yield Field(number, wire, 0, at, at + length)
            at += length

    def message(self, field: Field, what: str) -> Message:
        self._expect(field, BYTES)
        return Message(self.content, field.start, field.end, what)

    def text(self, field: Field) -> str:
        try:
            return self.data(field).decode("utf-8")
        except UnicodeDecodeError:
            raise self.damaged("a name is not UTF-8") from None

    def data(self, field: Field) -> bytes:
        self._expect(field, BYTES)
        return bytes(self.content[field.start : field.end])

    def integer(self, field: Field) -> int:
        """A signed number of 64 bits."""
        self._expect(field, VARINT)
        return signed(field.value)

    def real(self, field: Field) -> float:
        self._expect(field, FIXED32)
        return float(struct.unpack_from("<f", self.content, field.start)[0])

    def integers(self, field: Field) -> list[int]:
        """One number, or several that are packed."""
        if field.wire == VARINT:
            return [signed(field.value)]
        self._expect(field, BYTES)
        found, at = [], field.start
        while at < field.end:
            value, at = self._varint(at, field.end)
            found.append(signed(value))
        return found

    def reals(self, field: Field) -> list[float]:
        """One number, or several that are packed."""
        if field.wire == FIXED32:
            return [self.real(field)]
        self._expect(field, BYTES)
        if (field.end - field.start) % 4:
            raise self.damaged("a list of real numbers has a part of one")
        return [float(v) for (v,) in struct.iter_unpack("<f", self.content[field.start : field.end])]

    def doubles(self, field: Field) -> list[float]:
        """The same of 64 bits."""
        if field.wire == FIXED64:
            return [float(struct.unpack_from("<d", self.content, field.start)[0])]
        self._expect(field, BYTES)
        if (field.end - field.start) % 8:
            raise self.damaged("a list of real numbers has a part of one")
        return [float(v) for (v,) in struct.iter_unpack("<d", self.content[field.start : field.end])]

    def damaged(self, why: str) -> ModelError:
        return ModelError(f"the file is damaged or no ONNX model: {self.what}: {why}")

    def _expect(self, field: Field, wire: int) -> None:
        if field.wire != wire:
            raise self.damaged(f"field {field.number} has wire type {field.wire} instead of {wire}")

    def _varint(self, at: int, end: int | None = None) -> tuple[int, int]:
        value, limit = 0, self.end if end is None else end
        for place in range(MOST_VARINT_BYTES):
            if at >= limit:
                raise self.damaged("it ends in the midst of a number")
            byte = self.content[at]
            at += 1
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at
        raise self.damaged("a number has more than ten bytes")


def signed(value: int) -> int:
    """64 bits as a signed number."""
    return value - (1 << 64) if value >> 63 else value
