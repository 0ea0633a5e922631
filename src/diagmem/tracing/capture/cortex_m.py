"""The Cortex-M tracer: any function of an ELF file, called in an emulator (unicorn) with arguments of our choice.

Arguments are passed as the procedure call standard (AAPCS) says: registers, stack, and structs in memory. The emulated
memory holds the file's segments where they belong, and far from them the traced buffers, constants and structs, and a
stack.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagmem.model.errors import TraceError, install_command
from diagmem.tracing.capture import build
from diagmem.tracing.capture.calls import NUMBERS, Argument, Call, MemoryArgument, Null, Number, Struct
from diagmem.tracing.capture.cortex_m_hooks import Hooks, Scene, attach
from diagmem.tracing.capture.elf import Elf, Machine
from diagmem.tracing.capture.events import Kind, Recorder

if TYPE_CHECKING:
    from unicorn import Uc

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


PACKAGES = "gcc-arm-none-eabi libnewlib-arm-none-eabi"
TIMEOUT_SECONDS = 900

BUFFERS_AT = 0x60000000
MARKS_AT = 0x6FFFF000
"""A store to this word marks the start of an operation, one of n to the next word the end of operation n."""
CONSTANTS_AT = 0x70000000
STACK_AT, STACK_BYTES = 0x80000000, 1 << 20
RETURN_TO = 0x8FFFF000

PAGE = 0x1000
GAP_BYTES = 64
"""Between buffers. A kernel may read a little past the end of one, but not write."""
_GUARD = b"\xa5" * GAP_BYTES


@dataclass(frozen=True, slots=True)
class Core:
    """`model`: the emulator's name of it. `flags`: the compiler's."""

    name: str
    model: str
    flags: tuple[str, ...]
    float_flags: tuple[str, ...] = ()


CORES = {
    core.name: core
    for core in (
        Core("cortex-m0", "UC_CPU_ARM_CORTEX_M0", ("-mcpu=cortex-m0", "-mthumb")),
        Core("cortex-m3", "UC_CPU_ARM_CORTEX_M3", ("-mcpu=cortex-m3", "-mthumb")),
        Core(
            "cortex-m4",
            "UC_CPU_ARM_CORTEX_M4",
            ("-mcpu=cortex-m4", "-mthumb"),
            ("-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
        ),
        Core(
            "cortex-m7",
            "UC_CPU_ARM_CORTEX_M7",
            ("-mcpu=cortex-m7", "-mthumb"),
            ("-mfloat-abi=hard", "-mfpu=fpv5-d16"),
        ),
        Core(
            "cortex-m33",
            "UC_CPU_ARM_CORTEX_M33",
            ("-mcpu=cortex-m33", "-mthumb"),
            ("-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"),
        ),
    )
}


def linked(objects: Sequence[Path], function: str, core: Core, place: Path) -> Path:
    """An executable in the directory `place` from objects for the core, with `function` and what it needs."""
    executable = place / "kernel.elf"
    try:
        link(objects, function, core, core.float_flags, executable)
    except TraceError as refusal:
        # Only the linker knows how the objects pass floats; it refuses the wrong way.
        if "VFP register arguments" not in str(refusal):
            raise
        link(objects, function, core, (), executable)
    return executable


def link(parts: Sequence[str | Path], function: str, core: Core, float_flags: Sequence[str], executable: Path) -> None:
    """Compiles what is source, and links."""
    compiler = build.program("arm-none-eabi-gcc", PACKAGES)
    entry = f"-Wl,--entry={function}", f"-Wl,--require-defined={function}", "-Wl,--gc-sections"
    target = *core.flags, *float_flags, "-nostartfiles", "--specs=nosys.specs"
    build.run((compiler, *target, *entry, *parts, "-lm", "-o", executable), f"linking {function} for {core.name}")


@dataclass(frozen=True, slots=True)
class CortexMProgram:
    """A call of a function of a linked ELF file. `marks_ops`: the code marks where each of its operations ends with
    stores to MARKS_AT; else the whole call is operation 0. `in_python`: without the hooks in C."""

    elf: Elf
    call: Call
    core: Core
    marks_ops: bool = False
    in_python: bool = False

    @property
    def space_bytes(self) -> int:
        return self.call.space_bytes

    def run(self, contents: Sequence[bytes], recorder: Recorder) -> None:
        """Makes the call once. `contents`: what each of its buffers holds before."""
        if self.elf.machine is not Machine.ARM:
            raise TraceError(f"{self.elf.name}: built for {self.elf.machine.name}, not for ARM")
        entry = self.elf.function(self.call.function)
        addresses = tuple(_addresses(self.call))
        placed = place(self.call, addresses, _after_constants(self.call, addresses), self.elf.has_hard_floats)
        engine, code = _engine(self.core, self.elf)
        _map_call(engine, self.call, addresses, contents, placed)
        _enter(engine, placed)
        watched = tuple((addresses[n], addresses[n] + self.call.buffers[n].size_bytes) for n in self.call.watched)
        hooks = attach(engine, Scene(watched, MARKS_AT, tuple(code)), recorder, self.in_python)
        hooks.mark(Kind.START, 0)
        self._emulate(engine, entry, hooks)
        if not self.marks_ops:
            hooks.mark(Kind.END, 0)
        hooks.finish()
        recorder.close()
        for address, buffer in zip(addresses, self.call.buffers, strict=True):
            if engine.mem_read(address + buffer.size_bytes, GAP_BYTES) != _GUARD:
                raise TraceError(
                    f"{self.call.function} on {self.core.name}: it writes past the end of {buffer.role.value} "
                    f"{buffer.element}{list(buffer.shape)}; check the sizes in the call"
                )

    def _emulate(self, engine: Uc, entry: int, hooks: Hooks) -> None:
        import unicorn
        from unicorn import arm_const, unicorn_const

        bad: list[int] = []
        engine.hook_add(unicorn_const.UC_HOOK_MEM_INVALID, lambda _uc, _access, address, *_: bad.append(address))
        try:
            engine.emu_start(entry | 1, RETURN_TO, timeout=TIMEOUT_SECONDS * 1_000_000)
        except unicorn.UcError as error:
            at = engine.reg_read(arm_const.UC_ARM_REG_PC)
            reason = f"touched address {bad[-1]:#x}, which is none of its arguments" if bad else str(error)
            raise TraceError(
                f"{self.call.function} on {self.core.name}: {reason} (at instruction {at:#x}); "
                "check the arguments and their sizes"
            ) from None
        if hooks.error is None and engine.reg_read(arm_const.UC_ARM_REG_PC) & ~1 != RETURN_TO:
            raise TraceError(f"{self.call.function} on {self.core.name}: it did not return in {TIMEOUT_SECONDS} s")


def _addresses(call: Call) -> Iterator[int]:
    """Where each buffer lies in emulated memory."""
    watched, constant = BUFFERS_AT, CONSTANTS_AT
    for buffer in call.buffers:
        taken = -(-(buffer.size_bytes + GAP_BYTES) // GAP_BYTES) * GAP_BYTES
        if buffer.is_watched:
            yield watched
            watched += taken
        else:
            yield constant
            constant += taken
        if watched > MARKS_AT or constant > STACK_AT:
            raise TraceError(f"{call.function}: its buffers are larger than the emulated memory")


def _after_constants(call: Call, addresses: Sequence[int]) -> int:
    ends = [a + b.size_bytes + GAP_BYTES for a, b in zip(addresses, call.buffers, strict=True) if not b.is_watched]
    return -(-max([CONSTANTS_AT, *ends]) // GAP_BYTES) * GAP_BYTES


def _engine(core: Core, elf: Elf) -> tuple[Uc, list[tuple[int, Any]]]:
    """An emulated core with the file loaded; and what was loaded, as (address, bytes shared with the emulator)."""
    try:
        from unicorn import Uc, arm_const, unicorn_const
    except ImportError:
        raise TraceError(f"tracing on Cortex-M needs unicorn: {install_command('trace')}") from None
    engine = Uc(unicorn_const.UC_ARCH_ARM, unicorn_const.UC_MODE_THUMB | unicorn_const.UC_MODE_MCLASS)
    engine.ctl_set_cpu_model(getattr(arm_const, core.model))
    loaded = []
    for begin, content in _pages(elf):
        shared = (ctypes.c_uint8 * len(content)).from_buffer(content)
        engine.mem_map_ptr(begin, len(content), unicorn_const.UC_PROT_ALL, ctypes.addressof(shared))
        loaded.append((begin, shared))
    engine.mem_map(STACK_AT, STACK_BYTES)
    engine.mem_map(RETURN_TO, PAGE)
    engine.mem_map(MARKS_AT, PAGE)
    return engine, loaded


def _pages(elf: Elf) -> list[tuple[int, bytearray]]:
    """The file's segments as whole pages, those together that touch."""
    found: list[tuple[int, bytearray]] = []
    for segment in sorted(elf.segments, key=lambda s: s.address):
        begin = segment.address // PAGE * PAGE
        end = -(-(segment.address + segment.size_bytes) // PAGE) * PAGE
        if begin < BUFFERS_AT < end or begin >= BUFFERS_AT or end - begin > 1 << 28:
            raise TraceError(f"{elf.name}: a segment at {segment.address:#x} is beyond the code and RAM of a Cortex-M")
        if found and begin < found[-1][0] + len(found[-1][1]):
            begin = found[-1][0]
            found[-1][1].extend(bytes(max(0, end - begin - len(found[-1][1]))))
        else:
            found.append((begin, bytearray(end - begin)))
        at = segment.address - begin
        found[-1][1][at : at + len(segment.data)] = segment.data
    return found


def _map_call(engine: Uc, call: Call, addresses: Sequence[int], contents: Sequence[bytes], placed: Placed) -> None:
    writes = [*((a, data + _GUARD) for a, data in zip(addresses, contents, strict=True)), *placed.memory]
    for base, limit in ((BUFFERS_AT, MARKS_AT), (CONSTANTS_AT, STACK_AT)):
        ends = [address + len(data) for address, data in writes if base <= address < limit]
        if ends:
            engine.mem_map(base, -(-(max(ends) - base) // PAGE) * PAGE)
    for address, data in writes:
        engine.mem_write(address, data)


def _enter(engine: Uc, placed: Placed) -> None:
    """Sets the registers and the stack as a caller leaves them."""
    from unicorn import arm_const

    registers = placed.registers
    for number, value in enumerate(registers.core):
        engine.reg_write(arm_const.UC_ARM_REG_R0 + number, value)
    for number, value in registers.floats.items():
        engine.reg_write(arm_const.UC_ARM_REG_S0 + number, value)
    top = (STACK_AT + STACK_BYTES - 4 * len(registers.stack)) // 8 * 8
    engine.mem_write(top, struct.pack(f"<{len(registers.stack)}I", *registers.stack))
    engine.reg_write(arm_const.UC_ARM_REG_SP, top)
    engine.reg_write(arm_const.UC_ARM_REG_LR, RETURN_TO | 1)
