"""What the Cortex-M tracer does at each block and memory access: in C where there is a compiler, else in Python."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from diagmem.tracing.capture import build
from diagmem.tracing.capture.events import EVENT, Kind, Recorder

if TYPE_CHECKING:
    from unicorn import Uc

CAPACITY = 1 << 17
"""Events held before the recorder gets them."""

_SOURCE = build.HERE / "cortex_m_hooks.c"
_FLAGS = ("-O2", "-std=c99", "-shared", "-fPIC")


@dataclass(frozen=True, slots=True)
class Scene:
    """`watched`: the [begin, end) that form the traced space, in this order. `marks_at`: a store there starts an
    operation, one of n to the next word ends operation n. `code`: what may run, as (address, bytes shared with the
    emulator)."""

    watched: tuple[tuple[int, int], ...]
    marks_at: int
    code: tuple[tuple[int, Any], ...]


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


def _reach(scene: Scene) -> list[tuple[int, int]]:
    """Closed address ranges that hooks must see."""
    lowest, highest = min(b for b, _ in scene.watched), max(e for _, e in scene.watched)
    return [(lowest - 64, highest), (scene.marks_at, scene.marks_at + 7)]


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
        self.watched = (_Watched * len(scene.watched))(*(_Watched(*w) for w in _with_offsets(scene.watched)))
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
            *((accesses, self.library.on_access, reach) for reach in _reach(scene)),
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
        build.run((build.program("gcc", "gcc"), *_FLAGS, _SOURCE, "-o", place / "hooks.so"), "building the tracer")

    return ctypes.CDLL(str(build.cached("hooks", (_SOURCE.read_text(), *_FLAGS), compile_hooks) / "hooks.so"))


def _with_offsets(watched: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    found, offset = [], 0
    for begin, end in watched:
        found.append((begin, end, offset))
        offset += end - begin
    return found


class PythonHooks(Hooks):
    def __init__(self, engine: Uc, scene: Scene, recorder: Recorder) -> None:
        from unicorn import arm_const, unicorn_const

        super().__init__(engine, scene, recorder)
        self.records: list[tuple[int, int, int, int]] = []
        self.now = self.block = self.in_block = 0
        self.counts: dict[tuple[int, int], int] = {}
        self.pc_number = arm_const.UC_ARM_REG_PC
        self.loads = unicorn_const.UC_MEM_READ
        self.watched = _with_offsets(scene.watched)
        engine.hook_add(unicorn_const.UC_HOOK_BLOCK, self.on_block)
        accesses = unicorn_const.UC_HOOK_MEM_READ | unicorn_const.UC_HOOK_MEM_WRITE
        for begin, end in _reach(scene):
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
