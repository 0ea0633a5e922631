"""`diagmem verify --on tflm`: the file as it is and with its plan, both in TFLM's own interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagmem.cli._shared import PlanChoice
from diagmem.errors import PlanError

if TYPE_CHECKING:
    from diagmem.backends.tflm.compare import Comparison

PLACES = ("tflm",)
INTERPRETER_KERNELS = ("tflm", "tflm-reference")


def verify(place: str, model: str, inputs: int, seed: int, choice: PlanChoice) -> tuple[dict[str, Any], list[str]]:
    """Runs the model on so many inputs as TFLM alone plans it, and with a plan: the one that it carries, or a new one
    for TFLM's reference kernels. Returns the run as JSON has it, and lines for people."""
    from diagmem import models, pipeline
    from diagmem.backends.inputs import sample_inputs
    from diagmem.backends.tflm import metadata, planned_file
    from diagmem.backends.tflm.compare import compare
    from diagmem.frontends import tflite

    if choice != PlanChoice():
        raise PlanError(
            "--plan, --schedule and --input-rows are for C code; on tflm a plan is run inside its file: "
            "`diagmem emit tflm`"
        )
    data = models.content(model)
    graph = tflite.parse(data, Path(model).stem)
    if metadata.offsets_in(data, graph) is None:
        data = planned_file.emit(data, pipeline.plan(graph, kernels="tflm-reference"))
        graph = tflite.parse(data, graph.name)
    note = metadata.origin(data)
    if note is not None and note.kernels not in INTERPRETER_KERNELS:
        raise PlanError(
            f"the plan is for kernels {note.kernels}, but TFLM's Python interpreter has reference kernels, with which "
            f"it may fail; check it with `diagmem plan --kernels {note.kernels}` and on the device"
        )
    found = compare(metadata.left_to_tflm(data), data, graph, sample_inputs(graph, inputs, seed))
    weights_bytes = sum(t.size_bytes for t in graph.tensors if t.is_constant)
    return _row(found, weights_bytes), _lines(found)


def _row(found: Comparison, weights_bytes: int) -> dict[str, Any]:
    after = found.after
    return {
        "on": PLACES[0],
        "ok": found.ok,
        "inputs": found.inputs,
        "arena_bytes": after.arena_bytes if after else None,
        "arena_bytes_before": found.before.arena_bytes,
        "head_bytes": after.head_bytes if after else None,
        "head_bytes_before": found.before.head_bytes,
        "persistent_bytes": after.persistent_bytes if after else None,
        "stack_bytes": None,
        "static_bytes": None,
        "code_bytes": None,
        "weights_bytes": weights_bytes,
        "instructions": None,
        "failure": found.failure or None,
    }


def _lines(found: Comparison) -> list[str]:
    before, after = found.before, found.after
    verdict = f"all {found.inputs} runs give the same bytes" if found.ok else f"FAILED: {found.failure}"
    if after is None:
        return [f"tflm  {verdict}"]
    rows = (
        ("head", before.head_bytes, after.head_bytes),
        ("persistent", before.persistent_bytes, after.persistent_bytes),
        ("smallest arena", before.arena_bytes, after.arena_bytes),
    )
    return [
        f"tflm  {verdict}, each in the smallest arena that TFLM accepts",
        f"      {'bytes':<15}{'before':>9}{'after':>9}",
        *(f"      {name:<15}{old:>9}{new:>9}" for name, old, new in rows),
    ]
