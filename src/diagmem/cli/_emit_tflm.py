"""`diagmem emit tflm`: the same .tflite file with its arena plan inside, for stock TensorFlow Lite Micro."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._files import check_is_no_input
from diagmem.cli._shared import (
    console,
    json_option,
    model_argument,
    naming_model,
    size_text,
    source_of,
    write_file,
    write_json,
)

if TYPE_CHECKING:
    from diagmem.backends.tflm.planned_file import PlannedFile
    from diagmem.planning.plan import Plan
    from diagmem.verification.tflm.arena import Arena

SAFE_FOR_ALL = "tflm"
LIBRARIES = (SAFE_FOR_ALL, "tflm-reference", "cmsis-nn", "cmsis-nn-mve")

REFERENCE_WARNING = (
    "warning: --kernels tflm-reference: a firmware with CMSIS-NN kernels, as many builds for Arm have them, computes "
    "wrong results with this file and says nothing; leave --kernels out if you are not sure"
)


@click.command()
@model_argument
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT.tflite",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write.",
)
@click.option(
    "--kernels",
    type=click.Choice(LIBRARIES),
    default=SAFE_FOR_ALL,
    show_default=True,
    help="The kernels in your firmware; see above.",
)
@click.option("--align", type=click.IntRange(min=1), default=16, show_default=True, help="Alignment of every offset.")
@click.option("--keep-inputs", is_flag=True, help="Let the inputs survive a run; TFLM alone does not promise that.")
@json_option
def command(model: str, output: Path, kernels: str, align: int, keep_inputs: bool, json_path: str | None) -> None:
    """Write MODEL with its arena plan inside, for stock TensorFlow Lite Micro (TFLM).

    TFLM obeys the plan without any change to its code. Nothing else in the file changes: what was there stands, byte
    for byte, behind a block of new metadata. Only where another order of operations needs less, they are reordered.

    How far tensors may overlap depends on the loops of the kernels in your firmware. A plan for other kernels gives
    wrong results without any error, so the default is safe for all that TFLM is built with, and saves less:

    \b
      tflm            you do not know: safe for each of the following
      tflm-reference  TFLM's reference kernels only, no OPTIMIZED_KERNEL_DIR
      cmsis-nn        Arm's CMSIS-NN on cores without MVE: Cortex-M0 to M7, M23, M33
      cmsis-nn-mve    Arm's CMSIS-NN on cores with MVE (Helium): Cortex-M52, M55, M85

    Other optimised kernels (ESP-NN, Xtensa, ARC, Ceva) are not known: do not use a plan with them.

    \b
    Examples:
      diagmem emit tflm model.tflite -o planned.tflite
      diagmem emit tflm model.tflite -o planned.tflite --kernels cmsis-nn
      diagmem verify planned.tflite --on tflm
    """
    check_is_no_input(output)
    if kernels == "tflm-reference":
        click.echo(REFERENCE_WARNING, err=True)
    with naming_model(model):
        made = _make(model, kernels, align, keep_inputs)
    write_file(output, made.emitted.data)
    if json_path:
        write_json(json_path, _to_json(model, output, made))
    if json_path != "-":
        out = console()
        for line in _report(output, made):
            out.print(line, markup=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class _Made:
    """`arenas`: before and after; None where they were not measured, for the reason given."""

    emitted: PlannedFile
    had_plan: bool
    arenas: tuple[Arena, Arena] | None
    reason: str

    @property
    def plan(self) -> Plan:
        return self.emitted.plan

    @property
    def moved_ops(self) -> int:
        return sum(op != place for place, op in enumerate(self.plan.schedule.ops))


def _make(model: str, kernels: str, align: int, keep_inputs: bool) -> _Made:
    from diagmem import pipeline
    from diagmem.backends.tflm import metadata
    from diagmem.frontends.tflite import rewriter as flatbuffer

    given = source_of(model)
    emitted = pipeline.emit_tflm(given, kernels=kernels, align=align, keep_inputs=keep_inputs)
    arenas, reason = _measure(metadata.left_to_tflm(given.content), emitted)
    had_plan = flatbuffer.block(given.content, metadata.PLAN_ENTRY) is not None
    return _Made(emitted, had_plan, arenas, reason)


def _measure(alone: bytes, emitted: PlannedFile) -> tuple[tuple[Arena, Arena] | None, str]:
    from diagmem.verification.tflm import runtime
    from diagmem.verification.tflm.arena import Arena

    heads = emitted.heads[emitted.plan.options.kernels]
    try:
        before = runtime.run(alone, emitted.plan.graph, ())
        after = runtime.run(emitted.data, emitted.graph, ())
    except runtime.TflmError as error:
        return None, str(error)
    return (Arena.of(heads[0], before), Arena.of(heads[1], after)), ""


def _report(output: Path, made: _Made) -> list[str]:
    moved = f"{made.moved_ops} of {len(made.plan.schedule.ops)} moved" if made.moved_ops else "in their old order"
    return [
        f"wrote {output}: {size_text(len(made.emitted.data))}, of which {made.emitted.new_bytes} B are new",
        f"  plan       for kernels {made.plan.options.kernels}"
        + (", in place of an older one" if made.had_plan else ""),
        f"  operators  {moved}",
        "  all else   unchanged, byte for byte",
        "",
        *(_measured_lines(*made.arenas) if made.arenas else _unmeasured_lines(made)),
        *(_library_lines(made) if made.plan.options.kernels == SAFE_FOR_ALL else ()),
    ]


def _measured_lines(before: Arena, after: Arena) -> list[str]:
    rows = [
        ("head", before.head_bytes, after.head_bytes, "tensors and kernel scratch"),
        ("persistent", before.persistent_bytes, after.persistent_bytes, "TFLM's own; measured on this 64-bit host"),
        ("planning", before.planning_bytes, after.planning_bytes, "only while TFLM starts; measured as well"),
        ("alignment slack", before.slack_bytes, after.slack_bytes, "lost if the arena is not 16-byte aligned"),
        ("arena", before.total_bytes, after.total_bytes, ""),
    ]
    return [
        f"{'bytes':<17}{'before':>9}{'after':>9}",
        *(f"{name:<17}{old:>9}{new:>9}   {note}".rstrip() for name, old, new, note in rows if old or new),
        "",
        f"constexpr int kTensorArenaSize = {after.total_bytes};",
        "",
        "A 32-bit core keeps less: interpreter.arena_used_bytes() on the device tells how much.",
    ]


def _unmeasured_lines(made: _Made) -> list[str]:
    from diagmem.verification.tflm.arena import SLACK_BYTES

    before, after = made.emitted.heads[made.plan.options.kernels]
    return [
        f"{'bytes':<17}{'before':>9}{'after':>9}",
        f"{'head':<17}{before:>9}{after:>9}   tensors and kernel scratch",
        f"{'alignment slack':<17}{SLACK_BYTES:>9}{SLACK_BYTES:>9}   lost if the arena is not 16-byte aligned",
        "persistent        not measured: " + made.reason,
        "",
        "On the device, with the file as it was: kPersistent = interpreter.arena_used_bytes() - " + str(before),
        f"constexpr int kTensorArenaSize = {after} + {SLACK_BYTES} + kPersistent;",
    ]


def _library_lines(made: _Made) -> list[str]:
    """What the file means for each sort of firmware, for those who do not know theirs."""
    notes = {name: "  more than without a plan" if new > old else "" for name, (old, new) in made.emitted.heads.items()}
    rows = [(name, *heads) for name, heads in made.emitted.heads.items() if name != SAFE_FOR_ALL]
    return [
        "",
        f"{'head by kernels':<17}{'before':>9}{'after':>9}",
        *(f"{name:<17}{old:>9}{new:>9}{notes[name]}" for name, old, new in rows),
        "Name the kernels of your firmware with --kernels to save more.",
    ]


def _to_json(model: str, output: Path, made: _Made) -> dict[str, Any]:
    before, after = made.emitted.heads[made.plan.options.kernels]
    arenas = [asdict(arena) | {"total_bytes": arena.total_bytes} for arena in made.arenas or ()]
    return {
        "model": model,
        "output": str(output),
        "kernels": made.plan.options.kernels,
        "new_bytes": made.emitted.new_bytes,
        "moved_ops": made.moved_ops,
        "replaced_plan": made.had_plan,
        "head_bytes": after,
        "head_bytes_before": before,
        "arena": arenas[1] if arenas else None,
        "arena_before": arenas[0] if arenas else None,
        "not_measured": made.reason or None,
        "head_bytes_by_kernels": {
            name: {"before": old, "after": new} for name, (old, new) in made.emitted.heads.items()
        },
    }
