"""Models that share an arena, run by turns on the machine at hand: each must compute what it computes alone.

They run in a random order. Before each turn the shared memory is filled with something else, and what this model has
not asked for of it is poisoned: only what is said to live from run to run is there. Where outputs are kept, those of
all models are looked at after every turn.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from diagmem.backends.c import weights_bytes
from diagmem.backends.c.literals import identifier
from diagmem.backends.c.program import Program
from diagmem.backends.c.several import emit_several
from diagmem.model.errors import PlanError
from diagmem.planning.memory.caller import KEPT
from diagmem.verification import reference, tools
from diagmem.verification.host import SANITIZED
from diagmem.verification.inputs import restarts
from diagmem.verification.runs import Run
from diagmem.verification.stream import Inputs, differences, encoded, spans

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
    """Builds the library of all, and runs each model on its samples. `are_kept`: outputs outlive the others' runs."""
    if len(programs) > 255:
        raise PlanError(f"{len(programs)} models are too many to run by turns; 255 can be")
    order = turns(programs, samples, seed)
    sent, complaint = _sent(programs, samples, order, are_kept)
    failures = _failures(list(programs.values()), list(samples.values()), order, sent, are_kept)
    found: dict[str, Run] = {}
    for number, (name, program) in enumerate(programs.items()):
        failure = "; ".join(reason for reason in (complaint, failures.get(number)) if reason) or None
        weights = weights_bytes(program)
        found[name] = Run("host", len(samples[name]), failure, program.arena_bytes, weights_bytes=weights)
    return found


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


def _sent(
    programs: Mapping[str, Program], samples: Mapping[str, Inputs], order: Sequence[Turn], are_kept: bool
) -> tuple[bytes, str]:
    """What the models have handed back, and what the sanitizers have to say, in one line."""
    given = list(samples.values())
    asked = b"".join(bytes((t.model, t.is_reset)) + encoded([given[t.model][t.run]]) for t in order)
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        directory = Path(place)
        _build(programs, len(order), are_kept, directory)
        done = tools.call([str(directory / "by_turns")], directory, asked)
    return done.stdout, tools.complaint(done)


def _build(programs: Mapping[str, Program], count: int, are_kept: bool, directory: Path) -> None:
    compiler = tools.find("gcc", "gcc")
    files = emit_several(programs, LIBRARY)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    (directory / "by_turns_models.h").write_text(_header(programs, count, are_kept))
    tools.write_firmware(directory, "by_turns.c")
    own = [identifier(name).upper() for name in programs]
    checked = [f"-D{LIBRARY.upper()}_DEBUG", *(f"-D{macro}_NO_STATIC_ARENA" for macro in own)]
    sources = [name for name in files if name.endswith(".c")]
    strict = [*tools.STANDARD, *tools.WARNINGS, *checked]
    common = [compiler, "-I.", *SANITIZED]
    # What nothing uses without static arenas is no fault of the library's.
    tools.build([*common, *strict, "-Wno-unused-variable", "-c", *sources], directory)
    objects = [f"{Path(source).stem}.o" for source in sources]
    tools.build([*common, "-std=gnu99", "by_turns.c", *objects, "-lm", "-o", "by_turns"], directory)


def _header(programs: Mapping[str, Program], count: int, are_kept: bool) -> str:
    """What the harness knows of the models, as C."""
    shared: dict[str, int] = {}
    for use in (use for program in programs.values() for use in program.pools.uses):
        if use.pool.name != KEPT and not use.pool.is_external:
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

/* `shared`: for each memory of the model the number of the one that all share, or -1. */
static const struct model {{
    int pools;
    const int *shared;
    const size_t *pool_bytes;
    int inputs, outputs;
    const size_t *input_bytes, *output_bytes;
    void (*reset)(void *const *);
    void *(*input)(void *const *, int);
    void (*invoke)(void *const *);
    void (*start)(void *const *);
    int (*push_row)(void *const *, const void *);
    int rows;
    size_t row_bytes;
    const void *(*output)(void *const *, int);
}} models[] = {{
{rows},
}};
"""


def _model(name: str, program: Program, number: Mapping[str, int]) -> str:
    uses, graph = program.pools.uses, program.graph
    shared = ", ".join(str(-1 if use.pool.is_external else number.get(use.pool.name, -1)) for use in uses)
    pools = ", ".join(str(max(1, use.used_bytes)) for use in uses)
    sizes = [", ".join(str(graph.tensors[t].size_bytes) for t in tensors) or "0" for tensors in _ends(program)]
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


def _ends(program: Program) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return program.graph.inputs, program.graph.outputs


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
            wrong = next(_wrong(programs[model], now[model], received), None)
            if wrong is not None:
                when = f"input {turn.run}" if model == turn.model else "kept while another model ran"
                found.setdefault(model, f"{when}: {wrong}")
    return found


def _wrong(program: Program, values: Values, received: bytes) -> Iterator[str]:
    expected = spans(program, is_traced=False)
    if len(received) != sum(span.size_bytes for span in expected):
        yield "the program stopped early"
    else:
        yield from differences(expected, values, received)
