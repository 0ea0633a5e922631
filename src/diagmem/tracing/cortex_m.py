"""The Cortex-M tracer: any function of an ELF file, called in an emulator (unicorn) with arguments of our choice.

Arguments are passed as the procedure call standard (AAPCS) says: registers, stack, and structs in memory. The emulated
memory holds the file's segments where they belong, and far from them the traced buffers, constants and structs, and a
stack. Each block and memory access is recorded by hooks: in C where there is a compiler, else in Python.
"""

from __future__ import annotations

import ctypes
import shutil
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from diagmem.model.errors import TraceError, install_command
from diagmem.tracing import toolchain
from diagmem.tracing.calls import NUMBERS, Argument, Call, MemoryArgument, Null, Number, Struct
from diagmem.tracing.recording import EVENT, Kind, Recorder
from diagmem.tracing.toolchain import Elf, Machine
from diagmem.verification.tools import find

if TYPE_CHECKING:
    from unicorn import Uc

CAPACITY = 1 << 17
"""Events held before the recorder gets them."""

_SOURCE = toolchain.HERE / "cortex_m_hooks.c"
_FLAGS = ("-O2", "-std=c99", "-shared", "-fPIC")


@dataclass(frozen=True, slots=True)
class Scene:
    """`watched`: the [begin, end) that form the traced space, in this order. `marks_at`: a store there starts an
    operation, one of n to the next word ends operation n. `code`: what may run, as (address, bytes shared with the
    emulator)."""

    watched: tuple[tuple[int, int], ...]
    marks_at: int
    code: tuple[tuple[int, Any], ...]

    @property
    def with_offsets(self) -> list[tuple[int, int, int]]:
        """What is watched, and where it begins in the traced space."""
        sizes = (end - begin for begin, end in self.watched[:-1])
        return [(*place, at) for place, at in zip(self.watched, accumulate(sizes, initial=0), strict=True)]

    @property
    def reach(self) -> list[tuple[int, int]]:
        """Closed address ranges that hooks must see."""
        lowest, highest = min(b for b, _ in self.watched), max(e for _, e in self.watched)
        return [(lowest - 64, highest), (self.marks_at, self.marks_at + 7)]


class Hooks:
    """Fills records and passes them on. What a recorder raises stops the emulation, and is raised by `finish`."""

    def __init__(self, engine: Uc, scene: Scene, recorder: Recorder) -> None:
        self.engine, self.scene, self.recorder = engine, scene, recorder
        self.error: BaseException | None = None

    def finish(self) -> None:
        self.flush()
        if self.error is not None:
            raise self.error

    def flush(self) -> None:
        raise NotImplementedError

    def mark(self, kind: Kind, op: int) -> None:
        """Marks an operation from outside, before the code runs or after it has."""
        raise NotImplementedError

    def feed(self, events: np.ndarray[Any, Any]) -> None:
        """An exception must not pass through the emulator's frames."""
        try:
            if self.error is None:
                self.recorder.feed(events)
        except BaseException as error:
            self.error = error
            self.engine.emu_stop()


def attach(engine: Uc, scene: Scene, recorder: Recorder, in_python: bool = False) -> Hooks:
    """Hooks that record from now on, limited to the watched buffers and the marks."""
    if in_python or shutil.which("gcc") is None:
        return PythonHooks(engine, scene, recorder)
    return CHooks(engine, scene, recorder)


class _Watched(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_uint64), ("end", ctypes.c_uint64), ("offset", ctypes.c_uint64))


class _Code(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_uint64), ("end", ctypes.c_uint64), ("host", ctypes.c_void_p))


_FULL = ctypes.CFUNCTYPE(None)


class _Tracer(ctypes.Structure):
    """As in cortex_m_hooks.c."""

    _fields_ = (
        ("events", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("capacity", ctypes.c_uint64),
        ("full", _FULL),
        ("watched", ctypes.POINTER(_Watched)),
        ("watched_count", ctypes.c_uint64),
        ("code", ctypes.POINTER(_Code)),
        ("code_count", ctypes.c_uint64),
        ("read_register", ctypes.c_void_p),
        ("pc_number", ctypes.c_uint64),
        ("marks_at", ctypes.c_uint64),
        ("now", ctypes.c_uint64),
        ("in_block", ctypes.c_uint64),
        ("block", ctypes.c_uint64),
        ("block_host", ctypes.c_void_p),
    )


class CHooks(Hooks):
    def __init__(self, engine: Uc, scene: Scene, recorder: Recorder) -> None:
        from unicorn import arm_const, unicorn_const
        from unicorn.unicorn_py3.unicorn import uclib

        super().__init__(engine, scene, recorder)
        self.events = np.zeros(CAPACITY, dtype=EVENT)
        self.full = _FULL(self.flush)
        self.watched = (_Watched * len(scene.watched))(*(_Watched(*w) for w in scene.with_offsets))
        self.code = (_Code * len(scene.code))(
            *(_Code(begin, begin + len(host), ctypes.addressof(host)) for begin, host in scene.code)
        )
        self.tracer = _Tracer(
            events=self.events.ctypes.data,
            capacity=CAPACITY,
            full=self.full,
            watched=self.watched,
            watched_count=len(self.watched),
            code=self.code,
            code_count=len(self.code),
            read_register=ctypes.cast(uclib.uc_reg_read, ctypes.c_void_p),
            pc_number=arm_const.UC_ARM_REG_PC,
            marks_at=scene.marks_at,
        )
        self.library = _library()
        handle, everywhere = ctypes.c_size_t(), (1, 0)
        accesses = unicorn_const.UC_HOOK_MEM_READ | unicorn_const.UC_HOOK_MEM_WRITE
        for hook, function, (begin, end) in (
            (unicorn_const.UC_HOOK_BLOCK, self.library.on_block, everywhere),
            *((accesses, self.library.on_access, reach) for reach in scene.reach),
        ):
            pointers = ctypes.cast(function, ctypes.c_void_p), ctypes.addressof(self.tracer)
            uclib.uc_hook_add(engine._uch, ctypes.byref(handle), hook, *pointers, begin, end)

    def mark(self, kind: Kind, op: int) -> None:
        tracer = self.tracer
        self.flush()
        self.events[0] = (tracer.now + tracer.in_block, op, 0, kind)
        tracer.count = 1

    def flush(self) -> None:
        count, self.tracer.count = self.tracer.count, 0
        self.feed(self.events[:count])


def _library() -> ctypes.CDLL:
    def compile_hooks(place: Path) -> None:
        toolchain.run((find("gcc", "gcc"), *_FLAGS, _SOURCE, "-o", place / "hooks.so"), "building the tracer")

    return ctypes.CDLL(str(toolchain.cached("hooks", (_SOURCE.read_text(), *_FLAGS), compile_hooks) / "hooks.so"))


class PythonHooks(Hooks):
    def __init__(self, engine: Uc, scene: Scene, recorder: Recorder) -> None:
        from unicorn import arm_const, unicorn_const

        super().__init__(engine, scene, recorder)
        self.records: list[tuple[int, int, int, int]] = []
        self.now = self.block = self.in_block = 0
        self.counts: dict[tuple[int, int], int] = {}
        self.pc_number = arm_const.UC_ARM_REG_PC
        self.loads = unicorn_const.UC_MEM_READ
        self.watched = scene.with_offsets
        engine.hook_add(unicorn_const.UC_HOOK_BLOCK, self.on_block)
        accesses = unicorn_const.UC_HOOK_MEM_READ | unicorn_const.UC_HOOK_MEM_WRITE
        for begin, end in scene.reach:
            engine.hook_add(accesses, self.on_access, begin=begin, end=end)

    def on_block(self, _engine: Uc, address: int, size: int, _user: Any) -> None:
        self.now += self.in_block
        self.block, self.in_block = address, self.instructions(address, address + size)

    def on_access(self, engine: Uc, access: int, address: int, size: int, value: int, _user: Any) -> None:
        time = self.now + self.instructions(self.block, engine.reg_read(self.pc_number))
        if address >= self.scene.marks_at:
            self.records.append((time, value, 0, Kind.START if address == self.scene.marks_at else Kind.END))
            return
        kind = Kind.LOAD if access == self.loads else Kind.STORE
        for begin, end, offset in self.watched:
            low, high = max(address, begin), min(address + size, end)
            if low < high:
                self.records.append((time, offset + low - begin, high - low, kind))
        if len(self.records) >= CAPACITY:
            self.flush()

    def instructions(self, begin: int, end: int) -> int:
        """Instructions in [begin, end): Thumb's are two or four bytes long."""
        found = self.counts.get((begin, end))
        if found is None:
            found, at = 0, begin
            for base, host in self.scene.code:
                while base <= at < min(end, base + len(host) - 1):
                    at += 4 if host[at + 1 - base] >= 0xE8 else 2
                    found += 1
            self.counts[begin, end] = found
        return found

    def mark(self, kind: Kind, op: int) -> None:
        self.records.append((self.now + self.in_block, op, 0, kind))

    def flush(self) -> None:
        records, self.records = self.records, []
        self.feed(np.array(records, dtype=EVENT))


CORE_REGISTERS = 4
FLOAT_REGISTERS = 16
WORD = 4


@dataclass
class CallFrame:
    """What a function finds when it is entered: r0 to r3, s0 to s15, the words above its stack pointer, and structs in
    memory by address."""

    memory: list[tuple[int, bytes]]
    core: list[int] = field(default_factory=list)
    floats: dict[int, int] = field(default_factory=dict)
    stack: list[int] = field(default_factory=list)


def place(call: Call, buffers: Sequence[int], structs_at: int, hard_floats: bool) -> CallFrame:
    """Puts the call's arguments in place. `buffers`: the address of each; structs are laid out from `structs_at`."""
    layout = _Layout(iter(buffers), structs_at)
    frame = CallFrame(layout.memory)
    for argument in call.arguments:
        is_float = isinstance(argument, Number) and NUMBERS[argument.element].kind == "f"
        _pass(frame, layout.data(argument), hard_floats and is_float)
    return frame


class _Layout:
    def __init__(self, buffers: Iterator[int], structs_at: int) -> None:
        self.buffers, self.next = buffers, structs_at
        self.memory: list[tuple[int, bytes]] = []

    def data(self, argument: Argument) -> bytes:
        """The argument's bytes; a pointer's are its address."""
        if isinstance(argument, Number):
            return argument.data
        return struct.pack("<I", 0 if isinstance(argument, Null) else self._address(argument))

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


def _pass(frame: CallFrame, data: bytes, in_float_register: bool) -> None:
    words = [int.from_bytes(data[i : i + WORD], "little") for i in range(0, len(data), WORD)]
    if in_float_register and (first := _free_floats(frame, len(words))) is not None:
        frame.floats.update({first + i: word for i, word in enumerate(words)})
        return
    if not in_float_register:
        if len(words) == 2 and len(frame.core) % 2:
            frame.core.append(0)
        if len(frame.core) + len(words) <= CORE_REGISTERS:
            frame.core += words
            return
        # From here on everything goes to the stack.
        frame.core += [0] * (CORE_REGISTERS - len(frame.core))
    if len(words) == 2 and len(frame.stack) % 2:
        frame.stack.append(0)
    frame.stack += words


def _free_floats(frame: CallFrame, count: int) -> int | None:
    """The lowest free s register, or aligned pair of them."""
    places = (range(first, first + count) for first in range(0, FLOAT_REGISTERS, count))
    return next((place.start for place in places if frame.floats.keys().isdisjoint(place)), None)


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
    """`fpu`: the compiler's name of it; empty where there is none."""

    name: str
    fpu: str = ""

    @property
    def flags(self) -> tuple[str, ...]:
        return f"-mcpu={self.name}", "-mthumb"

    @property
    def float_flags(self) -> tuple[str, ...]:
        return ("-mfloat-abi=hard", f"-mfpu={self.fpu}") if self.fpu else ()


_FPUS = {"m0": "", "m3": "", "m4": "fpv4-sp-d16", "m7": "fpv5-d16", "m33": "fpv5-sp-d16"}

CORES = {core.name: core for core in (Core(f"cortex-{name}", fpu) for name, fpu in _FPUS.items())}


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
    compiler = find("arm-none-eabi-gcc", PACKAGES)
    entry = f"-Wl,--entry={function}", f"-Wl,--require-defined={function}", "-Wl,--gc-sections"
    target = *core.flags, *float_flags, "-nostartfiles", "--specs=nosys.specs"
    toolchain.run((compiler, *target, *entry, *parts, "-lm", "-o", executable), f"linking {function} for {core.name}")


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
        *addresses, structs_at = _addresses(self.call)
        frame = place(self.call, addresses, structs_at, self.elf.has_hard_floats)
        engine, code = _engine(self.core, self.elf)
        _map_call(engine, self.call, addresses, contents, frame)
        _enter(engine, frame)
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
    """Where each buffer lies in emulated memory; last, the first address behind the constants."""
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
    yield constant


def _engine(core: Core, elf: Elf) -> tuple[Uc, list[tuple[int, Any]]]:
    """An emulated core with the file loaded; and what was loaded, as (address, bytes shared with the emulator)."""
    try:
        from unicorn import Uc, arm_const, unicorn_const
    except ImportError:
        raise TraceError(f"tracing on Cortex-M needs unicorn: {install_command('trace')}") from None
    engine = Uc(unicorn_const.UC_ARCH_ARM, unicorn_const.UC_MODE_THUMB | unicorn_const.UC_MODE_MCLASS)
    engine.ctl_set_cpu_model(getattr(arm_const, f"UC_CPU_ARM_{core.name.replace('-', '_').upper()}"))
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


def _map_call(engine: Uc, call: Call, addresses: Sequence[int], contents: Sequence[bytes], frame: CallFrame) -> None:
    writes = [*((a, data + _GUARD) for a, data in zip(addresses, contents, strict=True)), *frame.memory]
    for base, limit in ((BUFFERS_AT, MARKS_AT), (CONSTANTS_AT, STACK_AT)):
        ends = [address + len(data) for address, data in writes if base <= address < limit]
        if ends:
            engine.mem_map(base, -(-(max(ends) - base) // PAGE) * PAGE)
    for address, data in writes:
        engine.mem_write(address, data)


def _enter(engine: Uc, frame: CallFrame) -> None:
    """Sets the registers and the stack as a caller leaves them."""
    from unicorn import arm_const

    for number, value in enumerate(frame.core):
        engine.reg_write(arm_const.UC_ARM_REG_R0 + number, value)
    for number, value in frame.floats.items():
        engine.reg_write(arm_const.UC_ARM_REG_S0 + number, value)
    top = (STACK_AT + STACK_BYTES - 4 * len(frame.stack)) // 8 * 8
    engine.mem_write(top, struct.pack(f"<{len(frame.stack)}I", *frame.stack))
    engine.reg_write(arm_const.UC_ARM_REG_SP, top)
    engine.reg_write(arm_const.UC_ARM_REG_LR, RETURN_TO | 1)
