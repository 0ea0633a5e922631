"""The machine at hand: sanitizers watch, and all is compared with numpy. Threads stand for cores, and models that share
an arena run by turns."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from diagmem.backends.c import weights_bytes
from diagmem.backends.c.literals import identifier
from diagmem.backends.c.program import Program
from diagmem.backends.c.several import emit_several
from diagmem.model.errors import PlanError
from diagmem.ops import node_macs
from diagmem.verification import reference, tools
from diagmem.verification.harness import (
    ByteOrder,
    Inputs,
    Run,
    differences,
    encoded,
    first_difference,
    spans,
    write_model,
)
from diagmem.verification.reference import restarts

SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
TRAPPING = "-fsanitize-undefined-trap-on-error"
"""Undefined behaviour ends the program without a word, which takes a compiler two thirds of the time."""
WATCHED_THREADS = ("-O1", "-g", "-fsanitize=thread")
PLAIN = ("-O2",)

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
    return _shown(program, len(inputs), complaint, difference)


def trace_on_host(program: Program, inputs: Inputs, machine: Machine = HOST) -> tuple[bytes, str]:
    """What every operation writes, for all inputs, and what the sanitizers have to say, in one line."""
    if machine.flags == SANITIZED:
        sent, complaint = _traced(program, inputs, replace(machine, flags=(*SANITIZED, TRAPPING)))
        if not complaint:
            return sent, complaint
    return _traced(program, inputs, machine)


def _traced(program: Program, inputs: Inputs, machine: Machine) -> tuple[bytes, str]:
    macs = len(inputs) * sum(map(node_macs, program.graph.nodes))
    optimised = "-O1" if macs > WORTH_OPTIMISING_MACS else "-O0"
    common = [tools.find(machine.compiler, machine.compiler), "-I.", optimised, "-DHARNESS_TRACE", *machine.flags]
    return _sent_by_harness(program, inputs, common, "trace.h", machine=machine)


def _sent_by_harness(
    program: Program, inputs: Inputs, common: list[str], hooks: str, more: Sequence[str] = (), machine: Machine = HOST
) -> tuple[bytes, str]:
    """Builds and runs the harness. `hooks`: a header that is included before the model's own code. `more`: files of the
    harness that it needs besides."""
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        directory = Path(place)
        weights = write_model(program, len(inputs), directory)
        tools.write_firmware(directory, hooks, "host.c", *more)
        strict = [*tools.STANDARD, *tools.WARNINGS, "-DMODEL_NO_STATIC_ARENA", "-DMODEL_DEBUG", "-include", hooks]
        tools.build([*common, *strict, "-c", "model.c", "-o", "model.o"], directory)
        sources = ["harness.c", "host.c", *(name for name in more if name.endswith(".c"))]
        tools.build([*common, *sources, "model.o", weights, "-lm", "-o", "harness"], directory)
        return _sent([*machine.runner, str(directory / "harness")], encoded(inputs, machine.order))


def _sent(command: list[str], asked: bytes) -> tuple[bytes, str]:
    """What a program sends, and what is wrong with how it ended, in one line."""
    done = tools.call(command, Path(command[-1]).parent, asked)
    return done.stdout, tools.complaint(done)


def _shown(program: Program, inputs: int, *reasons: str | None, cores: int | None = None) -> Run:
    """`reasons`: why the answer is no, if there are any."""
    failure = "; ".join(reason for reason in reasons if reason) or None
    return Run("host", inputs, failure, program.arena_bytes, weights_bytes=weights_bytes(program), cores=cores)


def run_on_threads(program: Program, inputs: Inputs, cores: int, hooks: tuple[str, ...] = ()) -> Run:
    """Builds the model with all warnings as errors, runs it on so many threads, and compares every output; the thread
    sanitizer watches, and some threads go on late now and then. Where an output is wrong, a second build tells which
    operation is. `hooks`: what else the compiler is told of the model."""
    most = 1 if program.multicore is None else program.multicore.cores
    if not 1 < cores <= most:
        raise PlanError(f"the plan is for up to {most} cores, not {cores}: plan again with cores {cores}")
    sent, complaint = sent_by_threads(program, inputs, cores, (*WATCHED_THREADS, *hooks), is_traced=False)
    difference = first_difference(program, inputs, sent, is_traced=False)
    if difference is not None:
        traced, _ = sent_by_threads(program, inputs, cores, (*PLAIN, *hooks), is_traced=True)
        difference = first_difference(program, inputs, traced, is_traced=True) or difference
    return _shown(program, len(inputs), complaint, difference, cores=cores)


def sent_by_threads(
    program: Program, inputs: Inputs, cores: int, flags: tuple[str, ...] = WATCHED_THREADS, is_traced: bool = True
) -> tuple[bytes, str]:
    """What the program sends, with `is_traced` all that steps have made, and what the sanitizer says, in one line."""
    traced = ["-DHARNESS_TRACE"] if is_traced else []
    common = [tools.find("gcc", "gcc"), "-I.", "-pthread", f"-DHARNESS_CORES={cores}", *traced, *flags]
    return _sent_by_harness(program, inputs, common, "threads.h", ("threads.c", "together.h", "harness_team.h"))


LIBRARY = "by_turns_library"

Values = Mapping[int, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Turn:
    """Model number `model` has its run number `run`. `is_reset`: its state is set to its first value before."""

    model: int
    run: int
    is_reset: bool


def run_by_turns(
    programs: Mapping[str, Program], samples: Mapping[str, Inputs], are_kept: bool, seed: int = 0
) -> dict[str, Run]:
    """Builds the library of models that share an arena, and runs each on its samples, in a random order: each must
    compute what it computes alone. Before each turn the shared memory is filled with something else, and what this
    model has not asked for of it is poisoned. `are_kept`: outputs outlive the others' runs, and are looked at after
    every turn."""
    if len(programs) > 255:
        raise PlanError(f"{len(programs)} models are too many to run by turns; 255 can be")
    order = turns(programs, samples, seed)
    sent, complaint = _sent_by_turns(programs, samples, order, are_kept)
    failures = _failures(list(programs.values()), list(samples.values()), order, sent, are_kept)
    return {
        name: _shown(program, len(samples[name]), complaint, failures.get(number))
        for number, (name, program) in enumerate(programs.items())
    }


def turns(programs: Mapping[str, Program], samples: Mapping[str, Inputs], seed: int) -> list[Turn]:
    """All runs of all models, each model's in their order, in a random one between them."""
    left = [number for number, name in enumerate(programs) for _ in samples[name]]
    random.Random(seed).shuffle(left)
    resets = [
        {0, *restarts(program.graph, len(samples[name]))} if program.states else set[int]()
        for name, program in programs.items()
    ]
    found: list[Turn] = []
    for model in left:
        run = sum(turn.model == model for turn in found)
        found.append(Turn(model, run, run in resets[model]))
    return found


def _sent_by_turns(
    programs: Mapping[str, Program], samples: Mapping[str, Inputs], order: Sequence[Turn], are_kept: bool
) -> tuple[bytes, str]:
    """What the models have handed back, and what the sanitizers have to say, in one line."""
    given = list(samples.values())
    asked = b"".join(bytes((t.model, t.is_reset)) + encoded([given[t.model][t.run]]) for t in order)
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        directory = Path(place)
        _build_library(programs, len(order), are_kept, directory)
        return _sent([str(directory / "by_turns")], asked)


def _build_library(programs: Mapping[str, Program], count: int, are_kept: bool, directory: Path) -> None:
    files = emit_several(programs, LIBRARY)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    (directory / "by_turns_models.h").write_text(_header(programs, count, are_kept))
    tools.write_firmware(directory, "by_turns.c")
    checked = [f"-D{LIBRARY.upper()}_DEBUG", *(f"-D{identifier(name).upper()}_NO_STATIC_ARENA" for name in programs)]
    sources = [name for name in files if name.endswith(".c")]
    strict = [*tools.STANDARD, *tools.WARNINGS, *checked]
    common = [tools.find("gcc", "gcc"), "-I.", *SANITIZED]
    # What nothing uses without static arenas is no fault of the library's.
    tools.build([*common, *strict, "-Wno-unused-variable", "-c", *sources], directory)
    objects = [f"{Path(source).stem}.o" for source in sources]
    tools.build([*common, "-std=gnu99", "by_turns.c", *objects, "-lm", "-o", "by_turns"], directory)


def _header(programs: Mapping[str, Program], count: int, are_kept: bool) -> str:
    """What the harness knows of the models, as C."""
    shared: dict[str, int] = {}
    for use in (use for program in programs.values() for use in program.pools.uses):
        if not (use.pool.is_kept or use.pool.is_external):
            shared[use.pool.name] = max(1, use.used_bytes, shared.get(use.pool.name, 0))
    number = {pool: n for n, pool in enumerate(shared)}
    align = max(8, *(program.align_bytes for program in programs.values()))
    rows = ",\n".join(_model(identifier(name), program, number) for name, program in programs.items())
    return f"""\
#include <stddef.h>

#include "{LIBRARY}.h"

#define MODELS {len(programs)}
#define TURNS {count}
#define ARE_KEPT {int(are_kept)}
#define MOST_POOLS {max(len(program.pools.uses) for program in programs.values())}
#define SHARED_POOLS {len(shared)}
#define SHARED_ALIGN {align}

static const size_t shared_bytes[] = {{{", ".join(map(str, shared.values()))}}};

static const struct model models[] = {{
{rows},
}};
"""


def _model(name: str, program: Program, number: Mapping[str, int]) -> str:
    uses, graph = program.pools.uses, program.graph
    is_own = [use.pool.is_kept or use.pool.is_external for use in uses]
    shared = ", ".join(str(-1 if own else number[use.pool.name]) for own, use in zip(is_own, uses, strict=True))
    pools = ", ".join(str(max(1, use.used_bytes)) for use in uses)
    sizes = [
        ", ".join(str(graph.tensors[t].size_bytes) for t in tensors) or "0" for tensors in (graph.inputs, graph.outputs)
    ]
    by_rows, whole = f"{name}_start_in, {name}_push_row_in", f"{name}_input_in, {name}_invoke_in"
    tensor = graph.tensors[graph.inputs[0]] if program.input_rows else None
    how = f"NULL, NULL, {by_rows}" if tensor else f"{whole}, NULL, NULL"
    frame = f"{tensor.rows}, {tensor.row_bytes}" if tensor else "0, 0"
    reset = f"{name}_reset_in" if program.states else "NULL"
    return (
        f"    {{{len(uses)}, (const int[]){{{shared}}}, (const size_t[]){{{pools}}}, "
        f"{len(graph.inputs)}, {len(graph.outputs)}, (const size_t[]){{{sizes[0]}}}, (const size_t[]){{{sizes[1]}}},\n"
        f"     {reset}, {how}, {frame}, {name}_output_in}}"
    )


def _failures(
    programs: Sequence[Program], samples: Sequence[Inputs], order: Sequence[Turn], sent: bytes, are_kept: bool
) -> dict[int, str]:
    """For each model that gave anything else than it gives alone, the first time."""
    wanted = [
        reference.runs(p.model, given, restarts(p.model, len(given)))
        for p, given in zip(programs, samples, strict=True)
    ]
    now: dict[int, Values] = {}
    found: dict[int, str] = {}
    at = 0
    for turn in order:
        now[turn.model] = next(wanted[turn.model])
        others = [model for model in sorted(now) if model != turn.model] if are_kept else []
        for model in (turn.model, *others):
            expected = spans(programs[model], is_traced=False)
            size = sum(span.size_bytes for span in expected)
            received, at = sent[at : at + size], at + size
            wrong = next(differences(expected, now[model], received), None)
            if wrong is not None:
                when = f"input {turn.run}" if model == turn.model else "kept while another model ran"
                found.setdefault(model, f"{when}: {wrong}")
    return found
