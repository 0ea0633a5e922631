"""Cortex-M and RISC-V cores, emulated: QEMU runs the firmware, counts its instructions, and the stack is measured."""

from __future__ import annotations

import re
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy.typing as npt

from diagmem.backends.c.program import Program
from diagmem.costs.cycles import Clock
from diagmem.model.errors import PlanError
from diagmem.model.tables import table, tuples
from diagmem.planning.cores.split import BARRIER_INSTRUCTIONS
from diagmem.verification import tools
from diagmem.verification.cycles import Counted, plugin_arguments
from diagmem.verification.harness import Inputs, Run, decoded, encoded, first_difference, spans, write_model

TRACE = "trace.h"
MULTICORE = ("two_cores.c", "two_cores.h", "together.h", "harness_team.h")
BOARD_BYTES = 4 * 2**20
"""Flash, and RAM, of the emulated boards."""
VECTORS_BYTES = 64
"""What a core reads when it starts."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Compilers and an emulator. `prefix`: of the compilers' names. `packages`, `emulator_package`: what to install
    where they are missing. `flags`: for all cores; `library`: what the linker is told of the C library; `options`: what
    the emulator is told."""

    prefix: str
    packages: str
    emulator: str
    emulator_package: str
    flags: tuple[str, ...]
    library: str
    options: tuple[str, ...] = ()

    def tool(self, name: str) -> str:
        return tools.find(f"{self.prefix}{name}", self.packages)


@dataclass(frozen=True, slots=True)
class Core:
    """`board`: a machine of QEMU's that has this core, or one that runs all of its instructions. `flash_at`, `ram_at`:
    where its memories begin; `slow_at`: its other RAM. `made_by`: what builds and runs its code. `vectors_at`: where it
    looks for its first instruction, if not where flash begins. `cores`: how many of them share the memories."""

    name: str
    board: str
    flags: tuple[str, ...]
    made_by: Toolchain
    flash_at: int = 0
    ram_at: int = 0x2000_0000
    vectors_at: int | None = None
    slow_at: int = 0x2100_0000
    cores: int = 1


_EMULATED = tuples(table(__package__, "emulators"))
_MADE_BY = {name: Toolchain(**about) for name, about in _EMULATED["toolchains"].items()}

CORES = {
    name: Core(name, **{**about, "made_by": _MADE_BY[about["made_by"]]}) for name, about in _EMULATED["cores"].items()
}


@dataclass(frozen=True, slots=True)
class Memory:
    """What the linker script may use. `linked`: what else the linker is told."""

    flash_bytes: int = BOARD_BYTES
    ram_bytes: int = BOARD_BYTES
    linked: tuple[str, ...] = ()


def run_on_core(program: Program, inputs: Inputs, core: Core, memory: Memory | None = None) -> Run:
    """Builds firmware with -O2 and runs it. Where an output is wrong, a second build tells which operation is."""
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        directory = Path(place)
        build(program, len(inputs), core, memory or Memory(), directory)
        said, status, sent = _emulate(core, directory, inputs)
        sections = _sections(core, directory)
        stack = (directory / "stack.bin").read_bytes()
    failure = first_difference(program, inputs, sent, is_traced=False)
    if failure is not None or status:
        failure = _traced_failure(program, inputs, core) or failure or f"the firmware stopped with status {status}"
    counts = [int(count) for count in re.findall(r"^instructions (\d+)$", said, re.MULTILINE)]
    waited = [(int(work), int(count)) for work, count in re.findall(r"^critical (\d+) (\d+)$", said, re.MULTILINE)]
    is_multicore = _is_multicore(program, core)
    stacks = struct.unpack(f"<{len(stack) // 4}I", stack)
    return Run(
        core.name,
        len(inputs),
        failure,
        program.arena_bytes,
        stack_bytes=max(stacks, default=None),
        static_bytes=sections.get(".data", 0) + sections.get(".bss", 0),
        code_bytes=sections.get(".text", 0),
        weights_bytes=sections.get(".weights", 0),
        instructions=max(counts, default=None),
        cores=core.cores if is_multicore else None,
        core_stacks_bytes=stacks if is_multicore else (),
        **_critical(waited),
    )


def outputs_on_core(program: Program, inputs: Inputs, core: Core, again: Sequence[int]) -> list[list[npt.NDArray[Any]]]:
    """What firmware makes of each run's inputs. `again`: before which runs state begins anew."""
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        directory = Path(place)
        build(program, len(inputs), core, Memory(), directory, again=again)
        _, status, sent = _emulate(core, directory, inputs)
    expected = spans(program, is_traced=False)
    size_bytes = sum(span.size_bytes for span in expected)
    if status or len(sent) != size_bytes * len(inputs):
        raise tools.ToolError(f"the firmware stopped with status {status} in run {len(sent) // max(1, size_bytes)}")
    runs = (sent[at : at + size_bytes] for at in range(0, len(sent), size_bytes))
    return [[values.reshape(span.tensor.shape) for span, values in decoded(expected, run)] for run in runs]


def _critical(waited: Sequence[tuple[int, int]]) -> dict[str, int]:
    """Barriers and critical path from those of each run, work and count. All runs come to as many barriers; a count
    that differs from the others is the emulator's, which begins a block again now and then."""
    if not waited:
        return {}
    ((barriers, _),) = Counter(count for _, count in waited).most_common(1)
    most = max(work for work, count in waited if count == barriers)
    return {"barriers": barriers, "critical_instructions": most + BARRIER_INSTRUCTIONS * barriers}


def run_on_cores(program: Program, inputs: Inputs, core: Core) -> Run:
    """The same on all of its cores at once, and on one of them what runs without others."""
    if program.multicore is None:
        raise PlanError(f"{core.name} has {core.cores} cores: plan with as many")
    alone = run_on_core(replace(program, multicore=None), inputs, core)
    run = run_on_core(program, inputs, core)
    run = run if alone.ok else run.failed(f"on one core: {alone.failure}")
    return replace(run, instructions=alone.instructions)


def _traced_failure(program: Program, inputs: Inputs, core: Core) -> str | None:
    """The first operation whose output is wrong."""
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        directory = Path(place)
        build(program, len(inputs), core, Memory(), directory, hook=TRACE)
        _, _, sent = _emulate(core, directory, inputs)
        return first_difference(program, inputs, sent, is_traced=True)


@dataclass(frozen=True, slots=True)
class Mark:
    """What a run has done when one of its steps ends: instructions, and bytes of the arena read and written."""

    instructions: int
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True, slots=True)
class Marks:
    """What was done at the end of each step of a run, the instructions of all of it, and the cycles of each step, where
    they are known; those behind the last step belong to none."""

    marks: tuple[Mark, ...]
    instructions: int
    counted: Counted | None


def count_marks(program: Program, inputs: Inputs, core: Core, clock: Clock | None = None) -> Marks:
    """Of a run with one input."""
    found, failure = next(count_all(program, inputs, core, [clock]))
    if failure is not None:
        raise tools.ToolError(failure)
    return found


def count_all(
    program: Program, inputs: Inputs, core: Core, clocks: Sequence[Clock | None]
) -> Iterator[tuple[Marks, str | None]]:
    """The same of one firmware for each of several clocks, and what was wrong with its outputs."""
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        directory = Path(place)
        build(program, 1, core, Memory(), directory, hook="profile.h")
        copy, objdump = core.made_by.tool("objcopy"), core.made_by.tool("objdump")
        tools.build([copy, "-O", "binary", "-j", ".marks", "firmware.elf", "marks.bin"], directory)
        for clock in clocks:
            said, status, sent = _emulate(core, directory, inputs, program.arena_bytes, clock)
            counted = None if clock is None else Counted.read(directory, objdump, clock.timing)
            marks = [Mark(*map(int, found)) for found in re.findall(r"^mark (\d+) (\d+) (\d+)$", said, re.MULTILINE)]
            total = re.search(r"^instructions (\d+)$", said, re.MULTILINE)
            if status or total is None:
                raise tools.ToolError(f"nothing was counted (status {status}): does this QEMU load plugins?")
            failure = first_difference(program, inputs, sent, is_traced=False)
            yield Marks(tuple(marks), int(total[1]), counted), failure


def build(
    program: Program,
    runs: int,
    core: Core,
    memory: Memory,
    directory: Path,
    hook: str | None = None,
    again: Sequence[int] | None = None,
) -> None:
    """Makes firmware.elf. `hook`: a header that is included before the model's own code. `again`: before which runs
    state begins anew; by default half-way."""
    made_by = core.made_by
    weights = write_model(program, runs, directory, again)
    others = ["two_cores"] if _is_multicore(program, core) else []
    tools.write_firmware(
        directory, "cortex_m.c", "cortex_m.ld", *([hook] if hook else []), *(MULTICORE if others else ())
    )
    common = [made_by.tool("gcc"), *made_by.flags, *core.flags, "-O2", "-I.", "-ffunction-sections", "-fdata-sections"]
    strict = [*tools.STANDARD, *tools.WARNINGS, "-DMODEL_NO_STATIC_ARENA"]
    traced = [*(["-DHARNESS_TRACE"] if hook == TRACE else []), *([f"-DHARNESS_CORES={core.cores}"] if others else [])]
    hooked = [*traced, "-include", "two_cores.h"] if others else ["-include", hook] if hook else []
    tools.build([*common, *strict, *hooked, "-c", "model.c", "-o", "model.o"], directory)
    tools.build([*common, "-c", weights, "-o", "model_weights.o"], directory)
    for name in ("harness", "cortex_m", *others):
        tools.build([*common, *traced, *_memories(program), "-c", f"{name}.c", "-o", f"{name}.o"], directory)
    first = VECTORS_BYTES if core.vectors_at is None else 0
    numbers = {
        "VECTORS_AT": core.flash_at if core.vectors_at is None else core.vectors_at,
        "VECTORS_BYTES": VECTORS_BYTES,
        "FLASH_AT": core.flash_at + first,
        "FLASH_BYTES": memory.flash_bytes - first,
        "RAM_AT": core.ram_at,
        "RAM_BYTES": memory.ram_bytes,
        "SLOW_AT": core.slow_at,
        "SLOW_BYTES": BOARD_BYTES,
    }
    sizes = [f"-Wl,--defsym={name}={number}" for name, number in numbers.items()]
    objects = ["model.o", "model_weights.o", "harness.o", "cortex_m.o", *(f"{name}.o" for name in others)]
    link = ["-nostartfiles", made_by.library, "-T", "cortex_m.ld", "-Wl,--gc-sections", *sizes]
    tools.build([*common, *link, *objects, *memory.linked, "-lm", "-o", "firmware.elf"], directory)


def _memories(program: Program) -> list[str]:
    """How much of each of the board's memories the arenas take, where there are several."""
    uses, align = program.pools.uses, program.align_bytes
    if not uses:
        return []
    slow = sum(-(-use.used_bytes // align) * align for use in uses[1:])
    return [f"-DHARNESS_FAST_BYTES={uses[0].used_bytes}", *([f"-DHARNESS_SLOW_BYTES={slow}"] if slow else [])]


def _emulate(
    core: Core, directory: Path, inputs: Inputs, arena_bytes: int | None = None, clock: Clock | None = None
) -> tuple[str, int, bytes]:
    """What the emulator says on standard error, how the firmware ends, and what it sends."""
    (directory / "inputs.bin").write_bytes(encoded(inputs))
    for name in ("outputs.bin", "stack.bin"):
        (directory / name).write_bytes(b"")
    said, status = emulate(core, directory, arena_bytes, clock)
    return said, status, (directory / "outputs.bin").read_bytes()


def emulate(core: Core, directory: Path, arena_bytes: int | None = None, clock: Clock | None = None) -> tuple[str, int]:
    """Runs firmware.elf; what the emulator says on standard error, and how the firmware ends."""
    made_by = core.made_by
    emulator = tools.find(made_by.emulator, made_by.emulator_package)
    command = [emulator, "-M", core.board, *made_by.options, "-nographic", "-monitor", "none", "-serial", "none"]
    command += ["-semihosting-config", "enable=on,target=native", "-kernel", "firmware.elf"]
    done = tools.call([*command, *_counter(core, emulator, directory, arena_bytes, clock)], directory)
    said = done.stderr.decode(errors="replace")
    if done.returncode and "plugin" in said:
        # An emulator that is built without plugins runs the firmware all the same, it only does not count.
        done = tools.call(command, directory)
    return said, done.returncode


def _counter(
    core: Core, emulator: str, directory: Path, arena_bytes: int | None, clock: Clock | None = None
) -> list[str]:
    """The option that makes the emulator count instructions of each run; with `arena_bytes` also step by step, and with
    `clock` how often each block runs."""
    marks = _symbols(core, directory)
    at = {name: address for name, (address, _) in marks.items()}
    places = f"begin={at['harness_begin']},end={at['harness_end']}"
    waits = next((name for name in marks if name.startswith("wait_for_all")), None)
    if waits is not None and "harness_together" in marks:
        places += f",wait={at[waits]},waits={marks[waits][1]}"
    if arena_bytes is not None:
        places += f",marks=marks.bin,arena={at['arena_memory']},bytes={arena_bytes}"
    if clock is not None:
        places = ",".join([places, *plugin_arguments(clock, core.flash_at, BOARD_BYTES)])
    (directory / "count.so").write_bytes(_plugin(emulator))
    return ["-plugin", f"./count.so,{places}"]


@cache
def _plugin(emulator: str) -> bytes:
    """What counts, as this emulator loads it: built once for all runs."""
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        directory = Path(place)
        tools.write_firmware(directory, "count_instructions.c")
        version = tools.call([emulator, "--version"], directory).stdout.decode(errors="replace")
        major = re.search(r"version (\d+)", version)
        # QEMU 9 asks for a newer number, though the functions that the plugin uses have not changed.
        number = 2 if major and int(major[1]) >= 9 else 1
        flags = ["-shared", "-fPIC", "-O2", f"-DPLUGIN_VERSION={number}"]
        tools.build([tools.find("gcc", "gcc"), *flags, "count_instructions.c", "-o", "count.so"], directory)
        return (directory / "count.so").read_bytes()


def _symbols(core: Core, directory: Path) -> Mapping[str, tuple[str, int]]:
    """Symbol of the firmware -> its address, and its bytes, 0 where they are not told."""
    listed = tools.call([core.made_by.tool("nm"), "-S", "firmware.elf"], directory).stdout
    found = (line.split() for line in listed.decode().splitlines())
    return {row[-1]: (f"0x{row[0]}", int(row[1], 16) if len(row) == 4 else 0) for row in found}


def _is_multicore(program: Program, core: Core) -> bool:
    """Whether several cores run it."""
    return core.cores > 1 and program.multicore is not None


def _sections(core: Core, directory: Path) -> Mapping[str, int]:
    """Section of the firmware -> its bytes."""
    size = core.made_by.tool("size")
    listed = tools.call([size, "-A", "-d", "firmware.elf"], directory).stdout.decode()
    return {name: int(count) for name, count in re.findall(r"^(\.\S+)\s+(\d+)", listed, re.MULTILINE)}
