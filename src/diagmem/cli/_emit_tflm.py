"""`diagmem emit tflm`: the same .tflite file with its arena plan inside, for stock TensorFlow Lite Micro."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._files import check_is_no_input
from diagmem.cli._shared import (
    Command,
    console,
    json_option,
    model_argument,
    naming_model,
    size_text,
    source_of,
    working,
    write_file,
    write_json,
)

if TYPE_CHECKING:
    from diagmem.backends.tflm.planned_file import PlannedFile
    from diagmem.cli._progress import Bar
    from diagmem.frontends.source import Source
    from diagmem.planning.plan import Plan
    from diagmem.verification.tflm.arena import Arena

SAFE_FOR_ALL = "tflm"
LIBRARIES = (SAFE_FOR_ALL, "tflm-reference", "cmsis-nn", "cmsis-nn-mve")

REFERENCE_WARNING = (
    "warning: --kernels tflm-reference: a firmware with CMSIS-NN kernels, as many builds for Arm have them, computes "
    "wrong results with this file and says nothing; leave --kernels out if you are not sure"
)


ONLY_IN_C = {
    "--pool": True,
    "--weights-pool": True,
    "--weights-ahead": False,
    "--external": True,
    "--external-io": False,
    "--keep": True,
    "--pin": True,
    "--double-buffer": True,
    "--input-align": True,
    "--schedule": True,
    "--input-rows": False,
    "--recompute": True,
    "--cores": True,
    "--cores-cost": True,
    "--together": True,
}
"""Options of a plan that a file for TFLM has no words for, and whether a value follows."""


def _refused(function: Command) -> Command:
    """Says why, in place of that there is no such option."""

    def refuse(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value:
            raise click.UsageError(
                f"{param.opts[0]}: a file for TensorFlow Lite Micro holds offsets in one arena, and no more can be "
                "said in it; `diagmem emit c` can."
            )

    for flag, has_value in ONLY_IN_C.items():
        given: dict[str, Any] = {"multiple": True} if has_value else {"is_flag": True}
        function = click.option(flag, hidden=True, expose_value=False, callback=refuse, **given)(function)
    return function


@click.command()
@model_argument
@_refused
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
@click.option("--no-remove-channels", is_flag=True, help="Leave channels in the file that make no difference.")
@json_option
def command(
    model: str,
    output: Path,
    kernels: str,
    align: int,
    keep_inputs: bool,
    no_remove_channels: bool,
    json_path: str | None,
) -> None:
    """Write MODEL with its arena plan inside, for stock TensorFlow Lite Micro (TFLM).

    TFLM obeys the plan without any change to its code. Nothing else in the file changes: what was there stands, byte
    for byte, behind a block of new metadata. Only where another order of operations needs less, they are reordered;
    and where channels are constant, or nobody reads them, they are left out: the file gets smaller and faster, and
    computes the same bytes.

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
    with naming_model(model), working("planning") as bar:
        asked = {"align": align, "keep_inputs": keep_inputs, "remove_channels": not no_remove_channels}
        made = _make(source_of(model), kernels, asked, bar)
    write_file(output, made.emitted.data)
    if json_path:
        write_json(json_path, _to_json(model, output, made))
    if json_path != "-":
        out = console()
        for line in _report(output, made):
            out.print(line, markup=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class _Made:
    """`arenas`: before and after; None where they were not measured, for the reason given. `best`: kernel library ->
    the head of a file that is planned for it alone."""

    emitted: PlannedFile
    best: dict[str, int]
    had_plan: bool
    arenas: tuple[Arena, Arena] | None
    reason: str

    @property
    def plan(self) -> Plan:
        return self.emitted.plan

    @property
    def heads(self) -> tuple[int, int]:
        """Before and after."""
        return self.emitted.heads[self.plan.options.kernels]

    @property
    def moved_ops(self) -> int:
        return sum(op != place for place, op in enumerate(self.plan.schedule.ops))


def _make(given: Source, kernels: str, asked: dict[str, Any], bar: Bar) -> _Made:
    from diagmem import pipeline
    from diagmem.backends.tflm import metadata
    from diagmem.frontends.tflite import rewriter as flatbuffer

    files = {}
    for done, name in enumerate(LIBRARIES):
        bar.tell(f"planning for {name}", done, len(LIBRARIES) + 1)
        files[name] = pipeline.emit_tflm(given, kernels=name, **asked)
    bar.tell("measuring in TFLM", len(LIBRARIES), len(LIBRARIES) + 1)
    emitted = files[kernels]
    arenas, reason = _measure(metadata.left_to_tflm(given.content), emitted)
    had_plan = flatbuffer.block(given.content, metadata.PLAN_ENTRY) is not None
    best = {name: files[name].heads[name][1] for name in LIBRARIES if name != SAFE_FOR_ALL}
    return _Made(emitted, best, had_plan, arenas, reason)


def _measure(alone: bytes, emitted: PlannedFile) -> tuple[tuple[Arena, Arena] | None, str]:
    from diagmem.verification.tflm import runtime
    from diagmem.verification.tflm.arena import Arena

    heads = emitted.heads[emitted.plan.options.kernels]
    try:
        before = runtime.run(alone, emitted.graph, ())
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
        _rest_line(made.emitted),
        "",
        *(_measured_lines(*made.arenas) if made.arenas else _unmeasured_lines(made)),
        "",
        *_library_lines(made),
    ]


def _rest_line(emitted: PlannedFile) -> str:
    less = emitted.given_bytes - emitted.source_bytes
    if emitted.given_bytes == emitted.source_bytes:
        return "  all else   unchanged, byte for byte"
    return f"  channels   those that make no difference are left out: {less} B of {emitted.given_bytes} B"


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
    """What this file, and one for each sort of firmware, gives there."""
    kernels = made.plan.options.kernels
    lines = [f"{'head by kernels':<17}{'no plan':>9}{'this file':>11}{'its own plan':>14}"]
    for name, best in made.best.items():
        before, after = made.emitted.heads[name]
        is_safe = kernels in (SAFE_FOR_ALL, name)
        note = "  more than without a plan" if is_safe and after > before else ""
        lines.append(f"{name:<17}{before:>9}{after if is_safe else 'unsafe':>11}{best:>14}{note}")
    before, after = made.heads
    if after >= before:
        lines.append(f"Nothing is gained: for kernels {kernels} TFLM alone takes no more. Use the file as it was.")
    if kernels == SAFE_FOR_ALL:
        saved = [name for name, best in made.best.items() if best < made.emitted.heads[name][1]]
        lines.append(
            f"Naming the kernels of your firmware with --kernels saves more if they are {' or '.join(saved)}."
            if saved
            else "Naming the kernels of your firmware would not save more."
        )
    return lines


def _to_json(model: str, output: Path, made: _Made) -> dict[str, Any]:
    before, after = made.heads
    arenas = [asdict(arena) | {"total_bytes": arena.total_bytes} for arena in made.arenas or ()]
    return {
        "model": model,
        "output": str(output),
        "kernels": made.plan.options.kernels,
        "new_bytes": made.emitted.new_bytes,
        "file_bytes": len(made.emitted.data),
        "file_bytes_before": made.emitted.given_bytes,
        "moved_ops": made.moved_ops,
        "replaced_plan": made.had_plan,
        "head_bytes": after,
        "head_bytes_before": before,
        "arena": arenas[1] if arenas else None,
        "arena_before": arenas[0] if arenas else None,
        "not_measured": made.reason or None,
        "head_bytes_by_kernels": {
            name: {"before": old, "after": new, "own_plan": made.best.get(name, new)}
            for name, (old, new) in made.emitted.heads.items()
        },
    }
