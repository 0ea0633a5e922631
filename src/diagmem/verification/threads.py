"""Several cores as threads of the machine at hand: the thread sanitizer watches, and some go on late now and then."""

from __future__ import annotations

import tempfile
from pathlib import Path

from diagmem.backends.c import weights_bytes
from diagmem.backends.c.program import Program
from diagmem.model.errors import PlanError
from diagmem.verification import tools
from diagmem.verification.runs import Run
from diagmem.verification.stream import Inputs, encoded, first_difference, write_model

SANITIZED = ("-O1", "-g", "-fsanitize=thread")
PLAIN = ("-O2",)


def run_on_threads(program: Program, inputs: Inputs, cores: int, hooks: tuple[str, ...] = ()) -> Run:
    """Builds the model with all warnings as errors, runs it on so many threads, and compares every output. Where one is
    wrong, a second build tells which operation is. `hooks`: what else the compiler is told of the model."""
    most = 1 if program.multicore is None else program.multicore.cores
    if not 1 < cores <= most:
        raise PlanError(f"the plan is for up to {most} cores, not {cores}: plan again with cores {cores}")
    sent, complaint = sent_by_threads(program, inputs, cores, (*SANITIZED, *hooks), is_traced=False)
    difference = first_difference(program, inputs, sent, is_traced=False)
    if difference is not None:
        traced, _ = sent_by_threads(program, inputs, cores, (*PLAIN, *hooks), is_traced=True)
        difference = first_difference(program, inputs, traced, is_traced=True) or difference
    failure = "; ".join(reason for reason in (complaint, difference) if reason) or None
    return Run("host", len(inputs), failure, program.arena_bytes, weights_bytes=weights_bytes(program), cores=cores)


def sent_by_threads(
    program: Program, inputs: Inputs, cores: int, flags: tuple[str, ...] = SANITIZED, is_traced: bool = True
) -> tuple[bytes, str]:
    """What the program sends, with `is_traced` all that steps have made, and what the sanitizer says, in one line."""
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        directory = Path(place)
        compiler = tools.find("gcc", "gcc")
        weights = write_model(program, len(inputs), directory)
        tools.write_firmware(directory, "host.c", "threads.c", "threads.h", "together.h", "harness_team.h")
        traced = ["-DHARNESS_TRACE"] if is_traced else []
        common = [compiler, "-I.", "-pthread", f"-DHARNESS_CORES={cores}", *traced, *flags]
        strict = [*tools.STANDARD, *tools.WARNINGS, "-DMODEL_NO_STATIC_ARENA", "-DMODEL_DEBUG", "-include", "threads.h"]
        tools.build([*common, *strict, "-c", "model.c", "-o", "model.o"], directory)
        sources = ["harness.c", "host.c", "threads.c", "model.o", weights]
        tools.build([*common, *sources, "-lm", "-o", "harness"], directory)
        done = tools.call([str(directory / "harness")], directory, encoded(inputs))
    return done.stdout, tools.complaint(done)
