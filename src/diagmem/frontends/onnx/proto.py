"""An ONNX file as values: its graph, nodes, attributes and tensors. Nothing is interpreted yet, but what cannot be told
from a damaged file is refused."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from diagmem.model.errors import ModelError, damaged, one_line
from diagmem.model.graph import Shape

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MOST_VARINT_BYTES = 10


class Field(NamedTuple):
    """One field of a message: the value of a varint, else where the bytes are."""

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
                raise self.damaged("it ends inside a field")
            yield Field(number, wire, 0, at, at + length)
            at += length

    def read(self, decoders: Decoders) -> dict[int, list[Any]]:
        """The values of all fields with a decoder, by number, in the order of the file."""
        found: dict[int, list[Any]] = {number: [] for number in decoders}
        for item in self.fields():
            if item.number in decoders:
                found[item.number].append(decoders[item.number](self, item))
        return found

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
        """A signed 64-bit number."""
        self._expect(field, VARINT)
        return signed(field.value)

    def float32(self, field: Field) -> float:
        self._expect(field, FIXED32)
        return self.floats(field)[0]

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

    def floats(self, field: Field, wire: int = FIXED32, code: str = "<f") -> list[float]:
        """One number, or several that are packed."""
        if field.wire != wire:
            self._expect(field, BYTES)
        if (field.end - field.start) % struct.calcsize(code):
            raise self.damaged("a packed list of floats is cut off")
        return [float(v) for (v,) in struct.iter_unpack(code, self.content[field.start : field.end])]

    def damaged(self, why: str) -> ModelError:
        return ModelError(f"the file is damaged or no ONNX model: {self.what}: {why}")

    def _expect(self, field: Field, wire: int) -> None:
        if field.wire != wire:
            raise self.damaged(f"field {field.number} has wire type {field.wire} instead of {wire}")

    def _varint(self, at: int, end: int | None = None) -> tuple[int, int]:
        value, limit = 0, self.end if end is None else end
        for place in range(MOST_VARINT_BYTES):
            if at >= limit:
                raise self.damaged("it ends inside a number")
            byte = self.content[at]
            at += 1
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at
        raise self.damaged("a number has more than ten bytes")


def signed(value: int) -> int:
    """64 bits as a signed number."""
    return value - (1 << 64) if value >> 63 else value


Decoder = Callable[[Message, Field], Any]
Decoders = Mapping[int, Decoder]


def within(what: str, read: Callable[[Message], Any]) -> Decoder:
    """A decoder for a field that is a message."""
    return lambda message, field: read(message.message(field, what))


def last(values: Sequence[Any], default: Any) -> Any:
    """For a field that should occur once; as in all protobuf files, the last one counts."""
    return values[-1] if values else default


KEYS = ("location", "offset", "length", "checksum")
MOST_READINGS = 4
"""Of external data, for tensors that share it."""


def _number(text: str | None, where: str) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise damaged(f"{where}: offset or length of its external data is not a number")
    return int(text)


def _bytes(path: Path, offset: int, size_bytes: int, where: str) -> tuple[bytes, int]:
    """These of a file, and how many there are."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not a file name"
        raise ModelError(f"{where}: external data '{one_line(path.name)}' cannot be opened: {why}") from None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise ModelError(f"{where}: external data '{one_line(path.name)}' is not a regular file of its own")
        if offset + size_bytes > found.st_size:
            raise ModelError(f"{where}: external data '{one_line(path.name)}' ends before it")
        file.seek(offset)
        return file.read(size_bytes), found.st_size


MOST_NODES = 100_000
MOST_DEPTH = 16
"""Of graphs nested in nodes."""

DEFAULT_DOMAINS = ("", "ai.onnx")
MICROSOFT = "com.microsoft"

# ONNX's element types by number.
TYPES = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool"}
TYPES |= {10: "float16", 11: "float64", 12: "uint32", 13: "uint64"}
BFLOAT16 = 16
"""The upper half of a float32, which values of this type become."""
IN_INT32 = ("uint8", "int8", "uint16", "int16", "int32", "bool", "float16")
"""Types whose values may be in the field of 32-bit integers."""


@dataclass(frozen=True, slots=True)
class OnnxValue:
    """An input or output of the graph. A dimension without a number is its name, or empty."""

    name: str
    dtype: str | None
    shape: tuple[int | str, ...] | None


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """`number`: its place in the file. An omitted input has the empty name. `stands_for`: the label of the file's node
    that this one is a part of, if the file itself does not have it. `opset`: of a function, 0 for that of the model."""

    number: int
    kind: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any] = field(compare=False)
    stands_for: str = ""
    overload: str = ""
    opset: int = 0

    def reads(self) -> Iterator[str]:
        """Its inputs, and what graphs inside it take from outside."""
        yield from self.inputs
        for value in self.attributes.values():
            if isinstance(value, Subgraph):
                yield from value.names()

    @property
    def label(self) -> str:
        """`node 7 'block3/conv' (Conv)`, the way every message names it."""
        if self.stands_for:
            return self.stands_for
        name = f" '{one_line(self.name or (self.outputs[0] if self.outputs else ''))}'"
        domain = "" if self.domain in DEFAULT_DOMAINS else f"{one_line(self.domain)}."
        return f"node {self.number}{name} ({domain}{one_line(self.kind)})"


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """`constants`: the initialisers. `inputs`: those without an initialiser. `size_bytes`: of all files."""

    opset: int
    inputs: tuple[OnnxValue, ...]
    outputs: tuple[OnnxValue, ...]
    nodes: tuple[OnnxNode, ...]
    constants: dict[str, npt.NDArray[Any]]
    size_bytes: int


class Given(NamedTuple):
    """In a function, an attribute of the call."""

    name: str


class Function(NamedTuple):
    """Nodes that stand for a node of a kind that the file defines."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[OnnxNode, ...]
    defaults: dict[str, Any]
    opset: int


def read_parts(content: bytes, directory: Path | None) -> tuple[OnnxModel, dict[tuple[str, str, str], Function]]:
    """The graph in a file's bytes, and functions by domain, name and overload, as the file has them."""
    message = Message(memoryview(content), 0, len(content), "the model")
    opset, reader = within("the list of opsets", _opset), _Reader(directory, len(content))
    function = within("a function", reader.function)
    found = message.read(
        {1: Message.integer, 7: lambda _, field: message.message(field, "the graph"), 8: opset, 25: function}
    )
    if not found[7]:
        raise ModelError("not an ONNX model: it has no graph")
    # Before there were opsets, there was one.
    version = max(found[8], default=int(0 < last(found[1], 0) < 3))
    if not 1 <= version <= 1000:
        raise ModelError("not an ONNX model: it names no opset")
    return reader.graph(found[7][-1], version), dict(found[25])


def _opset(message: Message) -> int:
    found = message.read({1: Message.text, 2: Message.integer})
    return int(last(found[2], 0)) if last(found[1], "") in DEFAULT_DOMAINS else 0


class _Reader:
    """`files`: with external data, and their sizes."""

    def __init__(self, directory: Path | None, size_bytes: int) -> None:
        self._directory, self.size_bytes, self.files = directory, size_bytes, dict[str, int]()
        self._depth = self._external_bytes = 0

    def graph(self, message: Message, opset: int) -> OnnxModel:
        nodes: list[OnnxNode] = []
        values: dict[int, list[OnnxValue]] = {11: [], 12: []}
        constants: dict[str, npt.NDArray[Any]] = {}
        for item in message.fields():
            if item.number == 1:
                if len(nodes) >= MOST_NODES:
                    raise ModelError(f"the graph has more than {MOST_NODES} nodes")
                nodes.append(self._node(message.message(item, f"node {len(nodes)}"), len(nodes)))
            elif item.number == 5:
                name, data = self._tensor(message.message(item, "an initializer"))
                if name in constants:
                    raise damaged(f"initializer '{one_line(name)}' is there twice")
                constants[name] = data
            elif item.number in values:
                values[item.number].append(_value(message.message(item, "an input or output")))
            elif item.number == 15:
                raise ModelError("the model has sparse initializers; export it with dense ones")
        inputs = tuple(value for value in values[11] if value.name not in constants)
        size_bytes = self.size_bytes + sum(self.files.values())
        return OnnxModel(opset, inputs, tuple(values[12]), tuple(nodes), constants, size_bytes)

    def function(self, message: Message) -> tuple[tuple[str, str, str], Function]:
        """Its domain, name and overload, and what it consists of."""
        node = within("a node of a function", lambda inner: self._node(inner, 0))
        default = within("an attribute of a function", self._attribute)
        opset = within("the list of opsets", _opset)
        found = message.read({**dict.fromkeys((1, 4, 5, 10, 13), Message.text), 7: node, 9: opset, 11: default})
        name, domain, overload = (last(found[place], "") for place in (1, 10, 13))
        inputs, outputs, nodes = (tuple(found[place]) for place in (4, 5, 7))
        function = Function(inputs, outputs, nodes, dict(found[11]), max(found[9], default=0))
        return (domain, name, overload), function

    def _node(self, message: Message, number: int) -> OnnxNode:
        attribute = within(f"an attribute of node {number}", self._attribute)
        found = message.read({**dict.fromkeys((1, 2, 3, 4, 7, 8), Message.text), 5: attribute})
        kind, domain, name, overload = (last(found[place], "") for place in (4, 7, 3, 8))
        inputs, outputs = tuple(found[1]), tuple(found[2])
        return OnnxNode(number, kind, domain, name, inputs, outputs, dict(found[5]), overload=overload)

    def _attribute(self, message: Message) -> tuple[str, Any]:
        values: Decoders = {
            2: Message.float32,
            3: Message.integer,
            4: Message.data,
            5: within("a tensor", lambda inner: self._tensor(inner)[1]),
            6: within("a graph inside a node", self._subgraph),
            11: lambda *_: Subgraph(),
        }
        lists: Decoders = {7: Message.floats, 8: Message.integers, 9: lambda inner, field: [inner.data(field)]}
        found = message.read({1: Message.text, 20: Message.integer, 21: Message.text, **values, **lists})
        name, kind = last(found[1], ""), last(found[20], 0)
        if found[21]:
            return name, Given(found[21][-1])
        # The type says whether it is a list; an empty list, and a zero, leave no other trace.
        is_list = {6: 7, 7: 8, 8: 9}.get(kind) or next((number for number in lists if any(found[number])), None)
        if is_list is not None:
            return name, [value for part in found[is_list] for value in part]
        zeros: dict[int, Any] = {1: 0.0, 2: 0, 3: b""}
        return name, last([value for number in values for value in found[number]], zeros.get(kind))

    def _subgraph(self, message: Message) -> Subgraph:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise ModelError(f"graphs are nested in nodes more than {MOST_DEPTH} deep")
        found = self.graph(message, 0)
        self._depth -= 1
        return Subgraph(found)

    def _tensor(self, message: Message) -> tuple[str, npt.NDArray[Any]]:
        doubles = partial(Message.floats, wire=FIXED64, code="<d")
        typed: Decoders = {4: Message.floats, **dict.fromkeys((5, 7, 11), Message.integers), 10: doubles}
        texts = {8: Message.text, 9: Message.data, 13: within("external data", _entry)}
        found = message.read({1: Message.integers, 2: Message.integer, 14: Message.integer, **typed, **texts})
        name, kind, raw = last(found[8], ""), last(found[2], 0), last(found[9], None)
        dims = [size for part in found[1] for size in part]
        values = {number: [v for part in found[number] for v in part] for number in typed if found[number]}
        where = f"tensor '{one_line(name)}'"
        if kind not in TYPES and kind != BFLOAT16:
            raise ModelError(f"{where}: element type {kind} is not supported; export it with other weights")
        dtype = np.dtype(TYPES.get(kind, "uint16"))
        shape = checked_shape(dims, where)
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if last(found[14], 0) == 1:
            raw = self._external(dict(found[13]), size, where)
        if raw is not None and not values:
            if len(raw) != size:
                raise damaged(f"{where}: {len(raw)} bytes for a shape that takes {size}")
            made = np.frombuffer(raw, dtype=dtype.newbyteorder("<")).astype(dtype).reshape(shape)
        elif raw is not None:
            raise damaged(f"{where}: its values are there twice")
        else:
            made = _typed(values, dtype, shape, where)
        return name, (made.astype(np.uint32) << 16).view(np.float32) if kind == BFLOAT16 else made

    def _external(self, places: Mapping[str, str], size_bytes: int, where: str) -> bytes:
        """The bytes of a tensor that takes `size_bytes`, in a file beside the model."""
        location = places.get("location", "")
        if not set(places) <= set(KEYS) or not location:
            raise ModelError(f"{where}: its external data has other keys than {', '.join(KEYS)}")
        shown = one_line(location)
        if self._directory is None:
            raise ModelError(f"{where}: its values are in '{shown}' beside the model; give the model's path")
        if Path(location).name != location or location in (".", "..") or "\\" in location or "\0" in location:
            raise ModelError(f"{where}: external data in '{shown}' is not in the model's own folder")
        offset, length = (_number(places.get(key), where) for key in ("offset", "length"))
        if length is not None and length != size_bytes:
            raise ModelError(f"{where}: {length} bytes of external data for a shape that takes {size_bytes}")
        raw, self.files[location] = _bytes(self._directory / location, offset or 0, size_bytes, where)
        self._external_bytes += size_bytes
        if self._external_bytes > MOST_READINGS * sum(self.files.values()):
            raise ModelError(f"{where}: the same external data is used over and over")
        return raw


@dataclass(frozen=True, slots=True)
class Subgraph:
    """An attribute that is a graph: a branch or a loop's body. None: a list of graphs, which is not read."""

    graph: OnnxModel | None = None

    def names(self) -> Iterator[str]:
        """What it takes from outside: its nodes read it, those of nested graphs included, or it is an output."""
        if self.graph is not None:
            graph = self.graph
            own = {
                *graph.constants,
                *(value.name for value in graph.inputs),
                *(n for x in graph.nodes for n in x.outputs),
            }
            read = (*(value.name for value in graph.outputs), *(name for node in graph.nodes for name in node.reads()))
            yield from (name for name in read if name not in own)


def _entry(message: Message) -> tuple[str, str]:
    found = message.read({1: Message.text, 2: Message.text})
    return last(found[1], ""), last(found[2], "")


def checked_shape(dims: list[int], where: str) -> Shape:
    """A shape that a tensor could have."""
    if any(dim < 0 for dim in dims) or len(dims) > 16 or int(np.prod(dims, dtype=object)) > 1 << 31:
        raise damaged(f"{where}: shape {dims[:16]} is not that of a tensor")
    return tuple(dims)


def _typed(typed: dict[int, list[Any]], dtype: np.dtype[Any], shape: Shape, where: str) -> npt.NDArray[Any]:
    """Values from the field for their type."""
    numbers = {"float32": 4, "float64": 10, **dict.fromkeys(IN_INT32, 5), "uint32": 11, "uint64": 11}
    values = typed.pop(numbers.get(dtype.name, 7), [])
    if typed:
        raise damaged(f"{where}: its values are in a field of another type")
    if len(values) != int(np.prod(shape, dtype=object)):
        raise damaged(f"{where}: {len(values)} values for shape {list(shape)}")
    if dtype == np.float16:
        values = [_in_range(value, np.dtype(np.uint16), where) for value in values]
        return np.array(values, dtype=np.uint16).view(np.float16).reshape(shape)
    if dtype.kind in "iub":
        values = [_in_range(value, dtype, where) for value in values]
    return np.array(values, dtype=dtype).reshape(shape)


def _in_range(value: int, dtype: np.dtype[Any], where: str) -> int:
    low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    if dtype == np.uint64:
        value %= 1 << 64
    if not low <= value <= high:
        raise damaged(f"{where}: {value} is out of the range of {dtype.name}")
    return value


def _value(message: Message) -> OnnxValue:
    kind = within("a type", lambda inner: inner.read({1: within("a tensor's type", _tensor_type)})[1])
    found = message.read({1: Message.text, 2: kind})
    dtype, shape = last([each for part in found[2] for each in part], (None, None))
    return OnnxValue(last(found[1], ""), dtype, shape)


def _tensor_type(message: Message) -> tuple[str | None, tuple[int | str, ...] | None]:
    dims = within("a shape", lambda inner: tuple(inner.read({1: within("a dimension", _dim)})[1]))
    found = message.read({1: Message.integer, 2: dims})
    return TYPES.get(found[1][-1], "unknown") if found[1] else None, last(found[2], None)


def _dim(message: Message) -> int | str:
    found = message.read({1: Message.integer, 2: Message.text})
    size: int | str = last([*found[2], *found[1]], "")
    return size
