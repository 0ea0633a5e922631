"""Passing arguments on 32-bit ARM (the procedure call standard, AAPCS): registers, stack, and structs in memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from diagmem.tracing.capture.calls import NUMBERS, Argument, Call, MemoryArgument, Null, Number, Struct

CORE_REGISTERS = 4
FLOAT_REGISTERS = 16
WORD = 4


@dataclass
class Registers:
    """What a function finds when it is entered: r0 to r3, s0 to s15, and the words above its stack pointer."""

    core: list[int] = field(default_factory=list)
    floats: dict[int, int] = field(default_factory=dict)
    stack: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Placed:
    """`memory`: what to write where, before the call."""

    registers: Registers
    memory: tuple[tuple[int, bytes], ...]


def place(call: Call, buffers: Sequence[int], structs_at: int, hard_floats: bool) -> Placed:
    """Puts the call's arguments in place. `buffers`: the address of each; structs are laid out from `structs_at`."""
    layout = _Layout(iter(buffers), structs_at)
    registers = Registers()
    for argument in call.arguments:
        _pass(registers, layout.data(argument), hard_floats and _is_float(argument))
    return Placed(registers, tuple(layout.memory))


def _is_float(argument: Argument) -> bool:
    return isinstance(argument, Number) and NUMBERS[argument.element].kind == "f"


class _Layout:
    def __init__(self, buffers: Iterator[int], structs_at: int) -> None:
        self.buffers, self.next = buffers, structs_at
        self.memory: list[tuple[int, bytes]] = []

    def data(self, argument: Argument) -> bytes:
        """The argument's bytes; a pointer's are its address."""
        if isinstance(argument, Number):
            return argument.data
        address = 0 if isinstance(argument, Null) else self._address(argument)
        return struct.pack("<I", address)

    def _address(self, argument: MemoryArgument | Struct) -> int:
        if isinstance(argument, MemoryArgument):
            return next(self.buffers)
        content = bytearray()
        for member in argument.fields:
            data = self.data(member)
            content += bytes(-len(content) % len(data)) + data
        address = self.next
        self.next += -(-len(content) // 8) * 8
        self.memory.append((address, bytes(content)))
        return address


def _pass(registers: Registers, data: bytes, in_float_register: bool) -> None:
    words = [int.from_bytes(data[i : i + WORD], "little") for i in range(0, len(data), WORD)]
    if in_float_register and (first := _free_floats(registers, len(words))) is not None:
        registers.floats.update({first + i: word for i, word in enumerate(words)})
        return
    if not in_float_register:
        if len(words) == 2 and len(registers.core) % 2:
            registers.core.append(0)
        if len(registers.core) + len(words) <= CORE_REGISTERS:
            registers.core += words
            return
        # From here on everything goes to the stack.
        registers.core += [0] * (CORE_REGISTERS - len(registers.core))
    if len(words) == 2 and len(registers.stack) % 2:
        registers.stack.append(0)
    registers.stack += words


def _free_floats(registers: Registers, count: int) -> int | None:
    """The lowest free s register, or aligned pair of them."""
    for first in range(0, FLOAT_REGISTERS, count):
        if not any(first + i in registers.floats for i in range(count)):
            return first
    return None
