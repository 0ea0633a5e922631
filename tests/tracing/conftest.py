"""Kernels compiled for each tracer. What a tracer needs and is not there skips its tests, with the reason."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from diagmem.planning.plan import Plan
from diagmem.tracing import cortex_m, native
from diagmem.tracing.calls import Call, parse_call
from diagmem.tracing.recording import CallTrace, Executable, trace_call
from diagmem.tracing.toolchain import Elf

KERNELS = Path(__file__).with_name("kernels.c")
FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-ffunction-sections", "-c")

ProgramOf = Callable[[str, Call], Executable]


def require_native() -> None:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        pytest.skip("the native tracer runs on x86-64 Linux")
    for program in ("gcc", "valgrind"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")


def require_cortex_m() -> None:
    if importlib.util.find_spec("unicorn") is None:
        pytest.skip("needs unicorn (pip install '.[trace]')")
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("needs arm-none-eabi-gcc")


def placed_at(plan: Plan, offsets: tuple[int, ...], arena_bytes: int) -> Plan:
    """The plan with its buffers elsewhere."""
    return plan.with_buffers(plan.buffers, offsets, arena_bytes=arena_bytes)


def compiled(on: str, place: Path) -> Path:
    """The kernels as an object for x86 or a core."""
    if on == "x86":
        require_native()
        command = ["gcc", *FLAGS]
    else:
        require_cortex_m()
        command = ["arm-none-eabi-gcc", *cortex_m.CORES[on].flags, *cortex_m.CORES[on].float_flags, *FLAGS]
    target = place / f"{on}.o"
    if not target.exists():
        subprocess.run([*command, str(KERNELS), "-o", str(target)], check=True)
    return target


@pytest.fixture(scope="session")
def program_of(tmp_path_factory: pytest.TempPathFactory) -> ProgramOf:
    """(x86 or a core, call) -> the program that makes the call."""
    objects = tmp_path_factory.mktemp("objects")

    def make(on: str, call: Call) -> Executable:
        kernels, place = compiled(on, objects), tmp_path_factory.mktemp(call.function)
        if on == "x86":
            return native.build_call(call, [kernels], place)
        core = cortex_m.CORES[on]
        return cortex_m.CortexMProgram(Elf.read(cortex_m.linked([kernels], call.function, core, place)), call, core)

    return make


@pytest.fixture(scope="session")
def traced(program_of: ProgramOf) -> Callable[[str, str], CallTrace]:
    """(x86 or a core, call in writing) -> its trace."""

    def make(on: str, text: str) -> CallTrace:
        call = parse_call(text)
        return trace_call(program_of(on, call), call)

    return make
