"""How to call a kernel: its name and its arguments, in writing.

    conv(input int8[16, 16, 8], output int8[16, 16, 4], constant int8[4, 1, 1, 8], int32 16, struct(int32 1, float 0.5))

`input`, `output`, `scratch` and `constant` are pointers to so many elements; `struct` is a pointer to one whose fields
are arguments in turn, with a repeat such as `int32 0 * 8` for arrays; `null` is a null pointer. A buffer holds random
data, or what is given: `constant int32[8] = 1073741824`, `constant int32[3] = {1, 2, 3}`.
"""

from __future__ import annotations

import enum
import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from diagmem.model.errors import TraceError, one_line

NUMBERS: dict[str, np.dtype[Any]] = {
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float": np.dtype("float32"),
    "double": np.dtype("float64"),
}
"""C types by name."""

MAX_BUFFER_BYTES = 64 << 20
MAX_REPEAT = 1 << 16
MAX_DEPTH = 16
MAX_ARGUMENTS = 1 << 17
"""In all, those in structs too."""


class Role(enum.Enum):
    INPUT = "input"
    OUTPUT = "output"
    SCRATCH = "scratch"
    CONSTANT = "constant"


_SPACE = (Role.OUTPUT, Role.INPUT, Role.SCRATCH)


@dataclass(frozen=True, slots=True)
class MemoryArgument:
    """A pointer to `shape` elements. `values`: the content, repeated to fill it; None: random data."""

    role: Role
    element: str
    shape: tuple[int, ...]
    values: tuple[int | float, ...] | None = None

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * NUMBERS[self.element].itemsize

    @property
    def is_watched(self) -> bool:
        return self.role is not Role.CONSTANT


@dataclass(frozen=True, slots=True)
class Number:
    element: str
    value: int | float

    @property
    def data(self) -> bytes:
        return np.array(self.value).astype(NUMBERS[self.element]).tobytes()


@dataclass(frozen=True, slots=True)
class Struct:
    """A pointer to a struct."""

    fields: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Null:
    """A null pointer."""


Argument = MemoryArgument | Number | Struct | Null


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: tuple[Argument, ...]

    @property
    def buffers(self) -> tuple[MemoryArgument, ...]:
        """All buffers in the order of the text, those in structs too."""
        return tuple(_buffers(self.arguments))

    @property
    def watched(self) -> tuple[int, ...]:
        """Indices of the buffers that form the traced space: outputs lowest, as in a plan, then inputs, scratch."""
        buffers = self.buffers
        return tuple(n for role in _SPACE for n, buffer in enumerate(buffers) if buffer.role is role)

    @property
    def space_bytes(self) -> int:
        """Size of the traced space: all watched buffers, one behind the other."""
        return sum(self.buffers[n].size_bytes for n in self.watched)

    def places(self, role: Role) -> tuple[range, ...]:
        """Where the buffers of a role lie in the traced space."""
        buffers = [self.buffers[n] for n in self.watched]
        ends = list(itertools.accumulate(b.size_bytes for b in buffers))
        return tuple(range(end - b.size_bytes, end) for b, end in zip(buffers, ends, strict=True) if b.role is role)

    def contents(self, seed: int) -> tuple[bytes, ...]:
        """The content of each buffer before the call. Constants are the same for every seed, the rest differs."""
        return tuple(
            _content(b, np.random.default_rng([number, seed if b.is_watched else 0]))
            for number, b in enumerate(self.buffers)
        )


def _buffers(arguments: tuple[Argument, ...]) -> Iterator[MemoryArgument]:
    for argument in arguments:
        if isinstance(argument, MemoryArgument):
            yield argument
        elif isinstance(argument, Struct):
            yield from _buffers(argument.fields)


def _content(buffer: MemoryArgument, random: np.random.Generator) -> bytes:
    dtype, elems = NUMBERS[buffer.element], math.prod(buffer.shape)
    if buffer.values is not None:
        return np.resize(np.array(buffer.values), elems).astype(dtype).tobytes()
    if dtype.kind == "f":
        return random.uniform(-1, 1, elems).astype(dtype).tobytes()
    return random.bytes(buffer.size_bytes)


def _count(argument: Argument) -> int:
    """Itself and, if a struct, its fields."""
    return 1 + sum(map(_count, argument.fields)) if isinstance(argument, Struct) else 1


def parse_call(text: str) -> Call:
    """The call that `text` writes down."""
    return _Parser(text).call()


_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|[\d.]+(?:[eE][-+]?\d+)?))|(?P<sign>\S))",
    re.ASCII,
)

_INTEGER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|\d+)", re.ASCII)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [(m.lastgroup or "", m.group(m.lastgroup or 0)) for m in _TOKEN.finditer(text.rstrip())]
        self.next = 0
        self.depth = 0

    def fail(self, expected: str) -> NoReturn:
        found = f"'{one_line(self.tokens[self.next][1])}'" if self.next < len(self.tokens) else "the end"
        example = "relu(input int8[64], output int8[64], int32 64)"
        raise self.refused(f"{expected} expected, {found} found; an example: {example}")

    def take(self, group: str, value: str | None = None) -> str | None:
        """The next token, if it is of this group, and has this text if one is given."""
        if self.next < len(self.tokens) and self.tokens[self.next][0] == group:
            token = self.tokens[self.next][1]
            if value is None or token == value:
                self.next += 1
                return token
        return None

    def need(self, group: str, expected: str, value: str | None = None) -> str:
        token = self.take(group, value)
        return self.fail(expected) if token is None else token

    def refused(self, why: str) -> TraceError:
        return TraceError(f"call '{one_line(self.text)}': {why}")

    def call(self) -> Call:
        function = self.need("name", "a function's name")
        arguments = self.arguments()
        if self.next < len(self.tokens):
            self.fail("nothing more")
        return Call(function, arguments)

    def arguments(self) -> tuple[Argument, ...]:
        self.need("sign", "'('", "(")
        self.depth += 1
        found: list[Argument] = []
        count = 0
        while not self.take("sign", ")"):
            if found:
                self.need("sign", "',' or ')'", ",")
            argument = self.argument()
            times = self.integer("a count", MAX_REPEAT) if self.take("sign", "*") else 1
            count += times * _count(argument)
            if count > MAX_ARGUMENTS:
                raise self.refused(f"{count} arguments; up to {MAX_ARGUMENTS} can be traced")
            found += [argument] * times
        self.depth -= 1
        return tuple(found)

    def argument(self) -> Argument:
        word = self.need("name", "an argument (input, output, scratch, constant, struct, null, or a type and a number)")
        if word == "null":
            return Null()
        if word == "struct":
            if self.depth >= MAX_DEPTH:
                self.fail(f"no struct in {MAX_DEPTH} others")
            return Struct(self.arguments())
        if word in NUMBERS:
            return Number(word, self.value(word, "a number"))
        if word in (role.value for role in Role):
            return self.buffer(Role(word))
        self.next -= 1
        return self.fail("input, output, scratch, constant, struct, null or a type")

    def value(self, element: str, expected: str) -> int | float:
        """A number that the type can hold."""
        found = self.number(expected)
        if NUMBERS[element].kind != "f":
            limits = np.iinfo(NUMBERS[element])
            if not isinstance(found, int) or not limits.min <= found <= limits.max:
                raise self.refused(f"{found} is no {element}")
        return found

    def buffer(self, role: Role) -> MemoryArgument:
        element = self.need("name", f"the type of {role.value}'s elements")
        if element not in NUMBERS:
            self.next -= 1
            self.fail("one of " + ", ".join(NUMBERS))
        self.need("sign", "'['", "[")
        shape = [self.integer("a size")]
        while not self.take("sign", "]"):
            if not self.take("sign", "*"):
                self.need("sign", "',' or ']'", ",")
            shape.append(self.integer("a size"))
        found = MemoryArgument(role, element, tuple(shape), self.values(element) if self.take("sign", "=") else None)
        if not 0 < found.size_bytes <= MAX_BUFFER_BYTES:
            raise self.refused(f"a buffer of {found.size_bytes} bytes; 1 to {MAX_BUFFER_BYTES} can be traced")
        return found

    def values(self, element: str) -> tuple[int | float, ...]:
        if not self.take("sign", "{"):
            return (self.value(element, "a number or '{'"),)
        found = [self.value(element, "a number")]
        while not self.take("sign", "}"):
            self.need("sign", "',' or '}'", ",")
            found.append(self.value(element, "a number"))
        return tuple(found)

    def number(self, expected: str) -> int | float:
        token = self.need("number", expected)
        try:
            return int(token, 0) if _INTEGER.fullmatch(token) else float(token)
        except ValueError:
            self.next -= 1
            return self.fail(expected)

    def integer(self, expected: str, limit: int = MAX_BUFFER_BYTES) -> int:
        value = self.number(expected)
        if not isinstance(value, int) or not 0 <= value <= limit:
            self.next -= 1
            self.fail(expected)
        return value
