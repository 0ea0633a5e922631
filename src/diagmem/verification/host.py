"""The machine at hand: the address and undefined-behaviour sanitizers watch, and every operation is compared."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from diagmem.backends.c import weights_bytes
from diagmem.backends.c.program import Program
from diagmem.ops import kind_of
from diagmem.verification import tools
from diagmem.verification.runs import Run
from diagmem.verification.stream import ByteOrder, Inputs, encoded, first_difference, write_model

SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
WORTH_OPTIMISING_MACS = 200_000_000
"""In all runs together: fewer take less time than the optimiser does."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A compiler with its flags, and what runs the programs that it makes: nothing for the machine at hand."""

    compiler: str = "gcc"
    flags: tuple[str, ...] = SANITIZED
    runner: tuple[str, ...] = ()
    order: ByteOrder = "<"


HOST = Machine()


def run_on_host(program: Program, inputs: Inputs, machine: Machine = HOST) -> Run:
    """Builds the model with all warnings as errors, runs it in an arena of exactly its size, and compares."""
    sent, complaint = trace_on_host(program, inputs, machine)
    difference = first_difference(program, inputs, sent, is_traced=True, order=machine.order)
    failure = "; ".join(reason for reason in (complaint, difference) if reason) or None
    return Run("host", len(inputs), failure, program.arena_bytes, weights_bytes=weights_bytes(program))


def trace_on_host(program: Program, inputs: Inputs, machine: Machine = HOST) -> tuple[bytes, str]:
    """What every operation writes, for all inputs, and what the sanitizers have to say, in one line."""
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        directory = Path(place)
        _build(program, len(inputs), machine, directory)
        done = tools.call([*machine.runner, str(directory / "harness")], directory, encoded(inputs, machine.order))
    return done.stdout, tools.complaint(done)


def _build(program: Program, runs: int, machine: Machine, directory: Path) -> None:
    compiler = tools.find(machine.compiler, machine.compiler)
    weights = write_model(program, runs, directory)
    tools.write_firmware(directory, "host.c", "trace.h")
    macs = runs * sum(kind.macs(node) for node in program.graph.nodes if (kind := kind_of(node.op.kind)))
    common = [compiler, "-I.", "-O1" if macs > WORTH_OPTIMISING_MACS else "-O0", *machine.flags]
    strict = [*tools.STANDARD, *tools.WARNINGS, "-DMODEL_NO_STATIC_ARENA", "-DMODEL_DEBUG", "-include", "trace.h"]
    tools.build([*common, *strict, "-c", "model.c", "-o", "model.o"], directory)
    sources = ["harness.c", "host.c", "model.o", weights]
    tools.build([*common, "-DHARNESS_TRACE", *sources, "-lm", "-o", "harness"], directory)
