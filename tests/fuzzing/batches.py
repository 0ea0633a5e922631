"""Many programs in one executable: each as it is emitted, in an arena of its own with a fence on either side.

The Tiny C Compiler builds a program of fifty models in a tenth of the time that others take to read it. Few files are
written, and nothing is kept.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.backends import c
from diagmem.backends.c.program import Program
from diagmem.model.graph import Graph
from diagmem.verification import reference

Array = npt.NDArray[Any]

SECONDS = 120.0
"""For a compiler, or for all models of a batch to run: a hundred times what they take."""

QUICK = ("tcc", "-w")
PLAIN = ("gcc", "-w", "-O0", "-ffp-contract=off")
SANITIZED = ("gcc", "-w", "-O1", "-ffp-contract=off", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

_OWN_INCLUDE = re.compile(r'^#include "m\d+[^"]*"$', re.MULTILINE)

_HARNESS = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum {{ FENCE = 64, POISON = 0xA5, RUNS = {runs} }};
static int is_whole(const unsigned char *fence) {{
    for (int i = 0; i < FENCE; ++i) {{
        if (fence[i] != POISON) {{ return 0; }}
    }}
    return 1;
}}
void run_{name}(void) {{
    const size_t size = {macro}_ARENA_BYTES;
    unsigned char *const memory = malloc(size + 4 * FENCE);
    unsigned char *const arena = memory + 2 * FENCE - (size_t)memory % FENCE;
    unsigned char given[{most_bytes}];
    for (int run = 0; run < RUNS; ++run) {{
        memset(arena - FENCE, POISON, size + 2 * FENCE);
{body}
        fputc(is_whole(arena - FENCE) && is_whole(arena + size), stdout);
    }}
    free(memory);
}}
"""


@dataclass(frozen=True)
class Job:
    """A program in C, what its model's inputs hold in each run, and what its outputs should. `label`: how a failure
    names it."""

    label: str
    model: Graph
    inputs: Sequence[Sequence[Array]]
    outputs: Sequence[Sequence[Array]]
    name: str
    source: str

    @classmethod
    def of(cls, number: int, program: Program, inputs: Sequence[Sequence[Array]], label: str = "graph") -> Job:
        """`number`: no two of a batch have the same one."""
        name, model = f"m{number}", program.model
        source = _source(program, len(inputs), name)
        with np.errstate(all="ignore"):
            found = [reference.run(model, values) for values in inputs]
        outputs = [[run[t].reshape(-1) for t in model.outputs] for run in found]
        return cls(f"{label} {number}", model, inputs, outputs, name, source)


def compiler() -> tuple[str, ...]:
    """The quickest one that is there."""
    return QUICK if shutil.which(QUICK[0]) else PLAIN


def faults(jobs: Sequence[Job], command: Sequence[str]) -> Iterator[str]:
    """What is wrong with programs: they do not build, crash, touch what is not theirs, or compute something else than
    numpy."""
    if not jobs:
        return
    sent, complaint = _run(jobs, command)
    if complaint is not None and len(jobs) > 1:
        half = len(jobs) // 2
        yield from faults(jobs[:half], command)
        yield from faults(jobs[half:], command)
        return
    if complaint is not None:
        yield f"{jobs[0].label}: {complaint}"
        return
    at = 0
    for job in jobs:
        wrong, at = _difference(job, sent, at)
        if wrong is not None:
            yield f"{job.label}: {wrong}"


def _run(jobs: Sequence[Job], command: Sequence[str]) -> tuple[bytes, str | None]:
    """What the programs write, and what went wrong before anything could be compared."""
    shared_memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="diagmem-", dir=shared_memory if shared_memory.is_dir() else None) as place:
        directory = Path(place)
        sources = []
        for job in jobs:
            sources.append(f"{job.name}.c")
            (directory / sources[-1]).write_text(job.source)
        calls = "".join(f"    run_{job.name}();\n" for job in jobs)
        declared = "".join(f"void run_{job.name}(void);\n" for job in jobs)
        (directory / "main.c").write_text(f"{declared}int main(void) {{\n{calls}    return 0;\n}}\n")
        try:
            built = _called([*command, "-o", "all", "main.c", *sources, "-lm"], directory)
            if built.returncode:
                return b"", f"it does not build: {built.stderr.decode(errors='replace')[:400]}"
            sent = b"".join(np.ascontiguousarray(v).tobytes() for job in jobs for run in job.inputs for v in run)
            # The sanitizer reserves far more addresses than a fuzzer may have.
            done = _called(["sh", "-c", "ulimit -S -v unlimited; exec ./all"], directory, sent)
        except subprocess.TimeoutExpired:
            return b"", f"it did not end within {SECONDS:.0f} s"
    if done.returncode:
        return b"", f"it ended with status {done.returncode}: {done.stderr.decode(errors='replace')[:400]}"
    return done.stdout, None


def _called(command: Sequence[str], directory: Path, sent: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, cwd=directory, input=sent, capture_output=True, timeout=SECONDS, check=False)


def _source(program: Program, runs: int, name: str) -> str:
    """A model and its harness in one file."""
    files = c.emit(program, name, "plain", None)
    parts = [files[f"{name}{end}"].decode() for end in (".h", "_kernels.h", "_weights.h", "_weights.c", ".c")]
    # Its own headers are there already; two of them have no guard against a second time.
    text = _OWN_INCLUDE.sub("", "\n".join(parts))
    harness = _harness(program, runs, name, f"{name}_reset_in(" in parts[0])
    return f"#define {name.upper()}_NO_STATIC_ARENA\n{text}{harness}"


def _harness(program: Program, runs: int, name: str, remembers: bool) -> str:
    """What is remembered from run to run is reset before each."""
    graph = program.graph
    sizes = [graph.tensors[t].size_bytes for t in graph.inputs]
    body = [f"{name}_reset_in(arena);"] if remembers else []
    if program.input_rows:
        rows, row_bytes = graph.tensors[graph.inputs[0]].rows, graph.tensors[graph.inputs[0]].row_bytes
        body += [f"fread(given, 1, {sizes[0]}, stdin);", f"{name}_start_in(arena);"]
        body += [f"for (int row = 0; row < {rows}; ++row) {{"]
        body += [f"if ({name}_push_row_in(arena, given + row * {row_bytes}) != (row == {rows - 1})) {{ exit(9); }} }}"]
    else:
        body += [f"fread({name}_input_in(arena, {n}), 1, {size}, stdin);" for n, size in enumerate(sizes)]
        body += [f"{name}_invoke_in(arena);"]
    outputs = enumerate(graph.tensors[t].size_bytes for t in graph.outputs)
    body += [f"fwrite({name}_output_in(arena, {n}), 1, {size}, stdout);" for n, size in outputs]
    return _HARNESS.format(name=name, macro=name.upper(), runs=runs, most_bytes=max([1, *sizes]), body="\n".join(body))


def _difference(job: Job, sent: bytes, at: int) -> tuple[str | None, int]:
    """What is wrong with what a program has written from that byte on; and where the next one's begins."""
    model = job.model
    found: str | None = None
    for number, run in enumerate(job.outputs):
        for output, (t, wanted) in enumerate(zip(model.outputs, run, strict=True)):
            tensor = model.tensors[t]
            got = np.frombuffer(sent, tensor.dtype.numpy, tensor.elems, at)
            at += tensor.size_bytes
            if found is None and not is_same(got, wanted):
                made_by = model.nodes[model.producer[t]].label if t in model.producer else "an input"
                found = f"run {number}: output {output} ({made_by}) is not what it should be"
        if found is None and sent[at] != 1:
            found = f"run {number}: it has written outside its arena"
        at += 1
    return found, at


def is_same(got: Array, wanted: Array) -> bool:
    """To the last bit, but that any two values that are no numbers are the same."""
    if got.tobytes() == np.ascontiguousarray(wanted, got.dtype).tobytes():
        return True
    if got.dtype.kind != "f" or got.shape != wanted.shape:
        return False
    is_alike = got.view(np.uint32) == np.ascontiguousarray(wanted, got.dtype).view(np.uint32)
    return bool(np.all(is_alike | (np.isnan(got) & np.isnan(wanted))))
