"""The native tracer: programs of this machine (x86-64 Linux) under a valgrind tool of our own.

A C program calls the kernel: buffers filled from a file, watched, marked. The tool is built at first use from the
headers and libraries that valgrind's package brings along.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from diagmem.model.errors import TraceError
from diagmem.tracing import toolchain
from diagmem.tracing.calls import Argument, Call, MemoryArgument, Null, Number, Struct
from diagmem.tracing.recording import EVENT, Recorder
from diagmem.verification.tools import find

AFTER_OP = "diagmem_after_op"
"""What traced code calls after each of its operations, with the operation's number."""

_END = "    DIAGMEM_MARK(DIAGMEM_END, 0, 0);\n"


def harness(call: Call, ops: int | None = None) -> str:
    """The program's text. It reads the buffers' contents, in order, from the file that is its one argument.

    `ops`: the function runs so many operations and calls `AFTER_OP` after each; None: it is one operation."""
    names = _Names()
    arguments = [names.of(argument) for argument in call.arguments]
    main = toolchain.filled(
        "harness.c.in",
        function=call.function,
        declarations="".join(names.declarations),
        setup="".join((*_fill(call), *names.assignments)),
        types=", ".join(c_type for c_type, _ in arguments) or "void",
        values=", ".join(value for _, value in arguments),
        end=_END if ops is None else "",
    )
    return main if ops is None else main + toolchain.filled("after_op.c.in", name=AFTER_OP, ops=ops)


class _Names:
    """Gives each buffer and struct a static variable, in the order of `Call.buffers`."""

    def __init__(self) -> None:
        self.declarations: list[str] = []
        self.assignments: list[str] = []
        self.buffers = self.structs = 0

    def of(self, argument: Argument) -> tuple[str, str]:
        """The argument's C type and the expression that passes it."""
        if isinstance(argument, Number):
            c_type = argument.element if argument.element in ("float", "double") else f"{argument.element}_t"
            suffix = "" if c_type in ("float", "double") else "LL" if argument.value < 2**63 else "ULL"
            # The least 64-bit number has no literal of its own.
            return c_type, f"(-{2**63 - 1}LL - 1)" if argument.value == -(2**63) else f"{argument.value!r}{suffix}"
        if isinstance(argument, Null):
            return "void *", "0"
        return "void *", self._buffer(argument) if isinstance(argument, MemoryArgument) else self._struct(argument)

    def _buffer(self, buffer: MemoryArgument) -> str:
        name = f"buffer{self.buffers}"
        self.buffers += 1
        self.declarations.append(f"static unsigned char {name}[{buffer.size_bytes}] __attribute__((aligned(64)));\n")
        return name

    def _struct(self, struct: Struct) -> str:
        name = f"struct{self.structs}"
        self.structs += 1
        fields = [self.of(field) for field in struct.fields]
        members = "".join(f" {c_type} f{i};" for i, (c_type, _) in enumerate(fields))
        self.declarations.append(f"static struct {{{members} }} {name};\n")
        self.assignments += [f"    {name}.f{i} = {value};\n" for i, (_, value) in enumerate(fields)]
        return f"&{name}"


def _fill(call: Call) -> Iterator[str]:
    for number, buffer in enumerate(call.buffers):
        yield f"    if (fread(buffer{number}, {buffer.size_bytes}, 1, data) != 1) return 1;\n"
    for number in call.watched:
        yield f"    DIAGMEM_MARK(DIAGMEM_WATCH, buffer{number}, {call.buffers[number].size_bytes});\n"


CHUNK_EVENTS = 1 << 17
PACKAGES = "valgrind gcc libc6-dev"

_TOOL_FLAGS = (
    *("-O2", "-std=gnu99", "-fno-stack-protector", "-fno-builtin", "-fno-pie", "-fno-strict-aliasing"),
    *("-DVGA_amd64=1", "-DVGO_linux=1", "-DVGP_amd64_linux=1", "-DVGPV_amd64_linux_vanilla=1"),
    *("-no-pie", "-static", "-nodefaultlibs", "-nostartfiles", "-u", "_start"),
    *("-Wl,-Ttext-segment=0x58000000", "-Wl,--build-id=none"),
)
_SOURCES = ("valgrind_tool.c", "valgrind_marks.h")
_BESIDE_THE_TOOL = ("vgpreload_core-amd64-linux.so", "default.supp")


@dataclass(frozen=True, slots=True)
class NativeProgram:
    """A program that watches `space_bytes` of buffers. Its one argument is a file with the contents of all buffers."""

    executable: Path
    space_bytes: int

    def run(self, contents: Sequence[bytes], recorder: Recorder) -> None:
        with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
            data = Path(place) / "data"
            data.write_bytes(b"".join(contents))
            _run_under_valgrind(self.executable, data, recorder)


def build_call(call: Call, objects: Sequence[Path], place: Path) -> NativeProgram:
    """A program in the directory `place` that makes the call. `objects`: what the kernel is linked from."""
    source, executable = place / "harness.c", place / "harness"
    source.write_text(harness(call))
    compile_program((source, *objects), executable, f"call of {call.function}")
    return NativeProgram(executable, call.space_bytes)


def compile_program(parts: Sequence[str | Path], executable: Path, purpose: str) -> None:
    """Compiles and links, with the marks' header at hand."""
    compiler = find("gcc", PACKAGES)
    _headers()
    toolchain.run((compiler, "-O1", "-w", f"-I{toolchain.HERE}", *parts, "-lm", "-o", executable), purpose)


def _run_under_valgrind(executable: Path, data: Path, recorder: Recorder) -> None:
    tool = _tool()
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [find("valgrind", PACKAGES), "--tool=diagmem", "-q", f"--events-fd={writer}", executable, data],
        env={**os.environ, "VALGRIND_LIB": str(tool)},
        pass_fds=(writer,),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    try:
        with os.fdopen(reader, "rb", buffering=CHUNK_EVENTS * EVENT.itemsize) as stream:
            while chunk := stream.read(CHUNK_EVENTS * EVENT.itemsize):
                recorder.feed(np.frombuffer(chunk[: len(chunk) // EVENT.itemsize * EVENT.itemsize], dtype=EVENT))
    except BaseException:
        process.kill()
        raise
    finally:
        errors = process.communicate()[1].decode(errors="replace").strip().splitlines()
    if process.returncode:
        raise TraceError(f"{executable.name} under valgrind: {errors[0] if errors else process.returncode}")
    recorder.close()


def _tool() -> Path:
    """The directory that valgrind takes as VALGRIND_LIB, with our tool in it."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise TraceError("the native tracer runs on x86-64 Linux only; trace with --on cortex-m4 instead")
    compiler, valgrind = find("gcc", PACKAGES), find("valgrind", PACKAGES)
    version = toolchain.run((valgrind, "--version"), "valgrind")
    texts = [(toolchain.HERE / name).read_text() for name in _SOURCES]
    return toolchain.cached("valgrind", (version, *texts, *_TOOL_FLAGS), lambda place: _build_tool(compiler, place))


def _build_tool(compiler: str, place: Path) -> None:
    libraries = [_find(f"lib{name}-amd64-linux.a", _LIBRARY_PLACES) for name in ("coregrind", "vex", "gcc-sup")]
    parts: list[str | Path] = [f"-I{toolchain.HERE}", f"-I{_headers()}", toolchain.HERE / "valgrind_tool.c", *libraries]
    tool = place / "diagmem-amd64-linux"
    toolchain.run((compiler, *_TOOL_FLAGS, *parts, "-lgcc", "-o", tool), "building the valgrind tool")
    for name in _BESIDE_THE_TOOL:
        shutil.copyfile(_find(name, _TOOL_PLACES), place / name)


_LIBRARY_PLACES = tuple(f"/usr/{lib}/valgrind" for lib in ("lib/x86_64-linux-gnu", "lib64", "lib", "local/lib"))
_TOOL_PLACES = ("/usr/libexec/valgrind", *_LIBRARY_PLACES, "/usr/local/libexec/valgrind")


def _headers() -> Path:
    return _find("pub_tool_basics.h", ("/usr/include/valgrind", "/usr/local/include/valgrind")).parent


def _find(name: str, places: Sequence[str]) -> Path:
    for place in places:
        if (Path(place) / name).is_file():
            return Path(place) / name
    raise TraceError(
        f"{name} of valgrind is not in {', '.join(places)}; the native tracer is built from it; "
        "on Debian: apt-get install valgrind"
    )
