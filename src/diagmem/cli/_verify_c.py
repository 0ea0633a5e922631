"""`diagmem verify --on host,cortex-m…`: the emitted C, built and run, against numpy and another runtime."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagmem.cli._shared import PlanChoice, working
from diagmem.errors import PlanError, one_line

if TYPE_CHECKING:
    from diagmem.backends.c.program import Program
    from diagmem.verification.runs import Run

HOST = "host"
PLACES = (HOST, "cortex-m3", "cortex-m4", "cortex-m7")


def verify(place: str, model: str, inputs: int, seed: int, choice: PlanChoice) -> tuple[dict[str, Any], list[str]]:
    """Builds and runs the model's C in one place. Returns the run as JSON has it, and lines for people."""
    from diagmem.backends.inputs import sample_inputs
    from diagmem.verification.cortex_m import CORES, run_on_core
    from diagmem.verification.host import run_on_host

    program, _ = _program(model, choice)
    samples = sample_inputs(program.graph, inputs, seed)
    oracle, disagreement = _second_opinion(model, choice, inputs, seed)
    with working(f"{place}: building and running"):
        run = run_on_host(program, samples) if place == HOST else run_on_core(program, samples, CORES[place])
    if disagreement is not None:
        run = run.failed(f"{oracle} disagrees: {disagreement}")
    oracles = ["numpy", *([oracle] if oracle else [])]
    return {**run.to_json(), "compared_with": oracles}, _lines(run, oracles)


@cache
def _program(model: str, choice: PlanChoice) -> tuple[Program, bytes]:
    """What is to be built, and the model's file."""
    from diagmem import models, pipeline
    from diagmem.backends.c.program import Program
    from diagmem.frontends import tflite

    content = models.content(model)
    graph = tflite.parse(content, models.name_of(model))
    with working("planning"):
        if choice.path is None:
            return Program.of(pipeline.plan(graph, **choice.options)), content
    return Program.from_json(graph, _read_json(choice.path)), content


def _read_json(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise PlanError(f"{one_line(path)}: not JSON; write a plan with `diagmem plan --json`") from error


@cache
def _second_opinion(model: str, choice: PlanChoice, inputs: int, seed: int) -> tuple[str | None, str | None]:
    from diagmem.backends.inputs import sample_inputs
    from diagmem.backends.tflm.runtime import TflmError
    from diagmem.verification.oracles import second_opinion

    program, content = _program(model, choice)
    with working("asking another runtime"):
        try:
            return second_opinion(content, program.model, sample_inputs(program.model, inputs, seed))
        except TflmError:
            # Not every model runs there, which says nothing against the C code.
            return None, None


def _lines(run: Run, oracles: Sequence[str]) -> list[str]:
    what = "every operation" if run.on == HOST else "every output"
    verdict = f"OK: {run.inputs} inputs, {what} bit for bit as {' and '.join(oracles)} have it"
    sizes = (
        ("arena", run.arena_bytes, "B"),
        ("stack", run.stack_bytes, "B"),
        (".data/.bss", run.static_bytes, "B"),
        ("code", run.code_bytes, "B"),
        ("weights", run.weights_bytes, "B"),
        ("instructions", run.instructions, ""),
    )
    return [
        f"{run.on:<10} {verdict if run.ok else f'FAILED: {run.failure}'}",
        *(f"{'':<10} {name:<13}{value:>12,} {unit}".rstrip() for name, value, unit in sizes if value is not None),
    ]
