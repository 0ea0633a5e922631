"""Compilers, with a cache of what they build, and as much of an ELF file as it takes to call its functions."""

from __future__ import annotations

import enum
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import Template
from typing import Any

from diagmem.model.errors import TraceError, content_of

HERE = Path(__file__).parent
_BAD_NEWS = ("error", "undefined", "not defined", "cannot find")


def run(command: Sequence[str | Path], purpose: str) -> str:
    """Runs a compiler or the like; returns what it printed."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if any(word in line for word in _BAD_NEWS)]
        reason = (errors or done.stderr.strip().splitlines() or ["no message"])[0]
        raise TraceError(f"{purpose}: {Path(str(command[0])).name} failed: {reason}")
    return done.stdout


def filled(file: str, **values: Any) -> str:
    """C from a file that stands beside this one, with values for its $names."""
    return Template((HERE / file).read_text(encoding="utf-8")).substitute(values)


def cached(name: str, ingredients: Sequence[str], build: Callable[[Path], None]) -> Path:
    """A directory in the user's cache, filled by `build` the first time that these ingredients are asked for."""
    key = hashlib.blake2b("\0".join(ingredients).encode(), digest_size=8).hexdigest()
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "diagmem" / f"{name}-{key}"
    if place.is_dir():
        return place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=place.parent))
    except OSError as error:
        raise TraceError(
            f"{place.parent}: tracing tools cannot be kept there ({error.strerror}); set XDG_CACHE_HOME to a directory "
            "that can be written"
        ) from error
    try:
        build(fresh)
        fresh.rename(place)
    except OSError:
        # Another process was faster: what it built is the same.
        if not place.is_dir():
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return place


_LOAD, _SYMBOLS, _FUNCTION = 1, 2, 2
_HARD_FLOAT = 0x400
_TOO_HIGH = 1 << 32


class Machine(enum.IntEnum):
    ARM = 40
    X86_64 = 62


@dataclass(frozen=True, slots=True)
class Segment:
    """Bytes to load at `address`; those beyond `data` are zero."""

    address: int
    data: bytes
    size_bytes: int


@dataclass(frozen=True)
class Elf:
    name: str
    content: bytes

    @classmethod
    def read(cls, path: Path) -> Elf:
        elf = cls(path.name, content_of(path))
        if elf.content[:4] != b"\x7fELF" or len(elf.content) < 52 or elf.content[5] != 1:
            raise TraceError(
                f"{path.name}: not a little-endian ELF file; compile the kernel to an object or executable"
            )
        return elf

    @property
    def machine(self) -> Machine:
        (number,) = self._unpack("<H", 18)
        try:
            return Machine(number)
        except ValueError:
            raise TraceError(
                f"{self.name}: built for ELF machine {number}; ARM (Cortex-M) and x86-64 can be traced"
            ) from None

    @property
    def is_object(self) -> bool:
        """Whether it has yet to be linked."""
        return self._unpack("<H", 16) == (1,)

    @property
    def has_hard_floats(self) -> bool:
        """Whether functions take floats in the FPU's registers (32-bit ARM)."""
        return bool(self._unpack("<I", 36)[0] & _HARD_FLOAT)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """What a 32-bit file loads before it runs."""
        (table,) = self._unpack("<I", 28)
        size, count = self._unpack("<HH", 42)
        found = []
        for i in range(count):
            kind, offset, address, _, in_file, in_memory = self._unpack("<6I", table + i * size)
            if kind == _LOAD and in_memory:
                if offset + in_file > len(self.content) or in_file > in_memory or address + in_memory > _TOO_HIGH:
                    raise self._damaged()
                found.append(Segment(address, self.content[offset : offset + in_file], in_memory))
        return tuple(found)

    def function(self, name: str) -> int:
        """The address of a function of a 32-bit file."""
        functions = dict(self._functions())
        if name not in functions:
            known = ", ".join(sorted(functions)[:8]) or "none"
            raise TraceError(f"{self.name}: no function '{name}'; it has: {known}")
        return functions[name]

    def _functions(self) -> Iterator[tuple[str, int]]:
        (table,) = self._unpack("<I", 32)
        size, count = self._unpack("<HH", 46)
        sections = [self._unpack("<10I", table + i * size) for i in range(count)]
        for _, kind, _, _, offset, length, link, _, _, entry in sections:
            if kind != _SYMBOLS or not entry or link >= count:
                continue
            names = sections[link][4]
            for symbol in range(offset, offset + length, entry):
                name, value, _, info, _, section = self._unpack("<IIIBBH", symbol)
                if info & 15 == _FUNCTION and section:
                    yield self._text(names + name), value

    def _text(self, offset: int) -> str:
        return self.content[offset : self.content.find(b"\0", offset)].decode(errors="replace")

    def _unpack(self, form: str, offset: int) -> tuple[int, ...]:
        try:
            return struct.unpack_from(form, self.content, offset)
        except struct.error:
            raise self._damaged() from None

    def _damaged(self) -> TraceError:
        return TraceError(f"{self.name}: the ELF file is damaged or cut short")
