"""The native tracer: programs of this machine (x86-64 Linux) under a valgrind tool of our own.

The tool is built at first use from the headers and libraries that valgrind's package brings along.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from diagmem.model.errors import TraceError
from diagmem.tracing.capture import build
from diagmem.tracing.capture.calls import Call
from diagmem.tracing.capture.events import EVENT, Recorder
from diagmem.tracing.capture.harness import harness

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
            _run_under_valgrind((str(self.executable), str(data)), recorder)


def build_call(call: Call, objects: Sequence[Path], place: Path) -> NativeProgram:
    """A program in the directory `place` that makes the call. `objects`: what the kernel is linked from."""
    source, executable = place / "harness.c", place / "harness"
    source.write_text(harness(call))
    compile_program((source, *objects), executable, f"call of {call.function}")
    return NativeProgram(executable, call.space_bytes)


def compile_program(parts: Sequence[str | Path], executable: Path, purpose: str) -> None:
    """Compiles and links, with the marks' header at hand."""
    compiler = build.program("gcc", PACKAGES)
    _headers()
    build.run((compiler, "-O1", "-w", f"-I{build.HERE}", *parts, "-lm", "-o", executable), purpose)


def _run_under_valgrind(command: Sequence[str], recorder: Recorder) -> None:
    tool = _tool()
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [build.program("valgrind", PACKAGES), "--tool=diagmem", "-q", f"--events-fd={writer}", *command],
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
        raise TraceError(f"{Path(command[0]).name} under valgrind: {errors[0] if errors else process.returncode}")
    recorder.close()


def _tool() -> Path:
    """The directory that valgrind takes as VALGRIND_LIB, with our tool in it."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise TraceError("the native tracer runs on x86-64 Linux only; trace with --on cortex-m4 instead")
    compiler, valgrind = build.program("gcc", PACKAGES), build.program("valgrind", PACKAGES)
    version = build.run((valgrind, "--version"), "valgrind")
    texts = [(build.HERE / name).read_text() for name in _SOURCES]
    return build.cached("valgrind", (version, *texts, *_TOOL_FLAGS), lambda place: _build_tool(compiler, place))


def _build_tool(compiler: str, place: Path) -> None:
    libraries = [_find(f"lib{name}-amd64-linux.a", _LIBRARY_PLACES) for name in ("coregrind", "vex", "gcc-sup")]
    parts: list[str | Path] = [f"-I{build.HERE}", f"-I{_headers()}", build.HERE / "valgrind_tool.c", *libraries]
    tool = place / "diagmem-amd64-linux"
    build.run((compiler, *_TOOL_FLAGS, *parts, "-lgcc", "-o", tool), "building the valgrind tool")
    for name in _BESIDE_THE_TOOL:
        shutil.copyfile(_find(name, _TOOL_PLACES), place / name)


_LIBRARY_PLACES = (
    "/usr/lib/x86_64-linux-gnu/valgrind",
    "/usr/lib64/valgrind",
    "/usr/lib/valgrind",
    "/usr/local/lib/valgrind",
)
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
