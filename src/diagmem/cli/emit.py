"""`diagmem emit`: hands a plan on, as C code (`c`), or inside a .tflite file for TensorFlow Lite Micro (`tflm`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._files import check_is_no_input
from diagmem.cli._models import by_c_name, model_argument, models_argument, naming_model
from diagmem.cli._options import (
    Command,
    check_none_given,
    json_option,
    output_option,
    plan_option,
    plan_options,
    plan_path_option,
)
from diagmem.cli._show import ANSWER_IS_NO, cost_lines, show, size_text
from diagmem.cli._text import answer, bars
from diagmem.cli._work import working
from diagmem.model.errors import PlanError, one_line

if TYPE_CHECKING:
    from diagmem.backends.tflm.planned_file import PlannedFile
    from diagmem.cli._work import Bar
    from diagmem.costs import Fit
    from diagmem.frontends.source import Source
    from diagmem.planning.options import Options
    from diagmem.planning.plan import Plan
    from diagmem.verification.tflm import Arena

LAYOUTS = ("plain", "cmake", "arduino", "platformio", "zephyr", "esp-idf")

SAFE_FOR_ALL = "tflm"
LIBRARIES = (SAFE_FOR_ALL, "tflm-reference", "cmsis-nn", "cmsis-nn-mve")

REFERENCE_WARNING = (
    "warning: --kernels tflm-reference: firmware with CMSIS-NN kernels, as in many builds for Arm, silently computes "
    "wrong results with this file; leave --kernels out if you are not sure"
)


@click.group(short_help="Write a plan as C code, or into a .tflite file.", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context, /) -> None:
    """Write a plan as C code, or into a .tflite file."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command.command("c", cls=Command, short_help="As C99 with a fixed arena.")
@models_argument
@output_option("DIR", "Directory to write to; created if missing.", is_folder=True)
@click.option("--name", help="Name of the files and functions.  [default: the model's name]")
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    default="plain",
    show_default=True,
    help="Plain files, or a library for CMake, Arduino, PlatformIO, Zephyr (a module) or ESP-IDF (a component).",
)
@click.option(
    "--selftest", is_flag=True, help="With a test of itself for the board; --inputs drawn inputs, or --input."
)
@click.option("--inputs", type=click.IntRange(1, 100), default=3, show_default=True, help="Of the self-test.")
@click.option("--input", "data", type=click.Path(path_type=Path), metavar="DATA", help="Of the self-test; see `run`.")
@plan_path_option("Use this plan, from `diagmem plan -o PLAN.json`.")
@plan_options("emit c")
@json_option
def emit_c(
    sources: list[Source],
    output: Path,
    name: str | None,
    layout: Any,
    selftest: bool,
    inputs: int,
    data: Path | None,
    plan_path: Path | None,
    json_path: str | None,
    options: Options,
) -> None:
    """Write MODEL as C99 with a fixed arena, ready to compile into firmware.

    Include NAME.h. NAME.c holds the model, NAME_weights.c its constants, NAME_kernels.h the kernels that it uses, and
    README.md says how to call it. No heap, no operating system, no libraries. A model of the zoo gets random weights.

    \b
    Examples:
      diagmem emit c model.tflite -o firmware/model
      diagmem emit c model.tflite -o firmware/model --target NUCLEO-L4R5ZI
      diagmem emit c model.tflite -o firmware/model --plan plan.json
      diagmem emit c model.tflite -o libraries/model --layout arduino
      diagmem emit c model.tflite -o firmware/model --selftest
      diagmem emit c ears.tflite eyes.tflite -o both --together keep-outputs
    """
    from diagmem import pipeline
    from diagmem.pipeline.several import emit_c_together

    if len(sources) > 1 and not options.together:
        raise PlanError("several models become one library with --together run-one-at-a-time or keep-outputs")
    if (len(sources) > 1 and selftest) or (data and not selftest):
        raise click.UsageError("--selftest is for one model, and --input for --selftest.")
    names = ", ".join(source.label for source in sources)
    with naming_model(names), working("planning"):
        if len(sources) > 1:
            several = by_c_name(sources)
            emitted = emit_c_together(several, name=name or "models", layout=layout, options=options)
        else:
            test: int | Path = (data or inputs) if selftest else 0
            how: dict[str, Any] = {"name": name, "layout": layout, "plan": plan_path, "options": options}
            emitted = pipeline.emit_c(sources[0], selftest=test, **how)
    for path in emitted.files:
        (output / path).parent.mkdir(parents=True, exist_ok=True)
    files = {output / path: data for path, data in emitted.files.items()}
    cost = emitted.cost
    told = {"model": names, "arena_bytes": emitted.arena_bytes, "cost": cost.to_json(), "files": sorted(emitted.files)}
    lines = [f"{size_text(len(data)):>25}  {output / path}" for path, data in emitted.files.items()]
    verdict = [f"{names} on {cost.target}: {answer(emitted.missing)}"] if emitted.missing else []
    show(json_path, lambda: told, (*verdict, *lines, *cost_lines(cost)), None, ANSWER_IS_NO if verdict else 0, files)


@command.command("tflm", short_help="Inside a .tflite file, for TensorFlow Lite Micro.", cls=Command)
@model_argument
@output_option("OUT.tflite", "File to write.")
@plan_path_option("Use this plan, from `diagmem plan --kernels tflm -o PLAN.json`.")
@plan_option("target")
@click.option(
    "--kernels",
    type=click.Choice(LIBRARIES),
    default=SAFE_FOR_ALL,
    show_default=True,
    help="Kernels in your firmware; see above.",
)
@click.option("--align", type=click.IntRange(min=1), default=16, show_default=True, help="Alignment of every offset.")
@click.option("--keep-inputs", is_flag=True, help="Do not overwrite inputs during a run, as TFLM alone may.")
@click.option("--skip", type=click.Choice(("remove-channels",)), help="Keep channels that change no output.")
@click.option("--force", is_flag=True, help="Write the file even if TFLM, where installed, does not run the model.")
@json_option
def emit_tflm(
    source: Source,
    output: Path,
    plan_path: Path | None,
    target: str | None,
    kernels: str,
    align: int,
    keep_inputs: bool,
    skip: str | None,
    force: bool,
    json_path: str | None,
) -> None:
    """Write MODEL with its arena plan inside, for stock TensorFlow Lite Micro (TFLM).

    TFLM follows the plan without any change to its code. The rest of the file stays the same, byte for byte, after a
    block of new metadata, with two exceptions: operators are reordered where that needs less memory, and channels that
    are constant or never read are left out, which makes the file smaller and faster and changes no output.

    How far tensors may overlap depends on the loops of the kernels in your firmware. A plan for other kernels gives
    wrong results without any error, so the default is safe for all that TFLM is built with, and saves less:

    \b
      tflm            unknown: safe for each of the following
      tflm-reference  TFLM's reference kernels only, no OPTIMIZED_KERNEL_DIR
      cmsis-nn        Arm's CMSIS-NN without MVE: Cortex-M0 to M7, M23, M33
      cmsis-nn-mve    Arm's CMSIS-NN with MVE (Helium): Cortex-M52, M55, M85

    A model that TFLM's own interpreter does not run, where that is installed, is refused, and nothing is written.
    Firmware with another TFLM, or with ops of its own, may run it: --force writes the file.

    Other optimised kernels (ESP-NN, Xtensa, ARC, Ceva) are not known: do not use a planned file with them.

    With --target the answer is whether arena and file fit that chip. TFLM's code takes flash too, and is not counted.

    \b
    Examples:
      diagmem emit tflm model.tflite -o planned.tflite
      diagmem emit tflm model.tflite -o planned.tflite --target NUCLEO-L4R5ZI
      diagmem emit tflm model.tflite -o planned.tflite --kernels cmsis-nn
      diagmem emit tflm model.tflite -o planned.tflite --plan plan.json
      diagmem verify planned.tflite --on tflm
    """
    check_is_no_input(output)
    if plan_path is not None:
        check_none_given("--plan already contains its options")
    with naming_model(source.label), working("planning") as bar:
        asked = {"align": align, "keep_inputs": keep_inputs, "remove_channels": skip is None, "target": target or ""}
        made = _make(source, kernels, asked, plan_path, bar, force)
    if made.plan.options.kernels == "tflm-reference":
        click.echo(REFERENCE_WARNING, err=True)
    files = {output: made.emitted.data}
    status = ANSWER_IS_NO if made.fit is not None and not made.fit.fits else 0
    told = (f"warning: {made.reason}",) * bool(force and made.reason)
    parts = (*told, *_report(output, made))
    show(json_path, lambda: _to_json(source.label, output, made), parts, None, status, files)


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
    def fit(self) -> Fit | None:
        """Whether arena and file fit the chip; None where none was named."""
        chip = self.plan.options.chip
        if chip is None:
            return None
        from diagmem.costs import Costs, Fit, Runtime, cost_together

        kept = self.arenas[1].kept_bytes if self.arenas else None
        runtime = Runtime.of_tflm(len(self.emitted.data), kept, self.reason)
        return Fit(chip, cost_together([Costs(self.plan, runtime=runtime)], self.heads[1], chip))

    @property
    def moved_ops(self) -> int:
        return sum(op != place for place, op in enumerate(self.plan.schedule.ops))


def _make(given: Source, kernels: str, asked: dict[str, Any], plan_path: Path | None, bar: Bar, force: bool) -> _Made:
    from diagmem import pipeline
    from diagmem.backends.tflm import metadata
    from diagmem.frontends.tflite import writer as flatbuffer
    from diagmem.planning.options import Options

    files: dict[str, PlannedFile] = {}
    if plan_path is not None:
        own = pipeline.emit_tflm(given, plan=plan_path)
        options = own.plan.options
        files[kernels := options.kernels] = own
        asked |= {"align": options.align_bytes, "keep_inputs": options.keep_inputs, "target": options.target}
    core = Options(kernels, target=asked["target"]).core
    known = [name for name in LIBRARIES if core is None or core.has_mve or name != "cmsis-nn-mve"]
    for done, name in enumerate(name for name in known if name not in files):
        bar.tell(f"planning for {name}", done, len(known) + 1)
        files[name] = pipeline.emit_tflm(given, kernels=name, **asked)
    bar.tell("measuring in TFLM", len(known), len(known) + 1)
    emitted = files[kernels]
    arenas, reason = _measure(metadata.left_to_tflm(given.content), emitted, force)
    had_plan = flatbuffer.block(given.content, metadata.PLAN_ENTRY) is not None
    best = {name: files[name].heads[name][1] for name in known if name != SAFE_FOR_ALL}
    return _Made(emitted, best, had_plan, arenas, reason)


def _measure(alone: bytes, emitted: PlannedFile, force: bool) -> tuple[tuple[Arena, Arena] | None, str]:
    from diagmem.verification import tflm
    from diagmem.verification.tflm import Arena

    heads = emitted.heads[emitted.plan.options.kernels]
    try:
        before = tflm.run(alone, emitted.graph, ())
        after = tflm.run(emitted.data, emitted.graph, ())
    except tflm.RefusedModelError as error:
        if not force:
            raise PlanError(f"{error}; nothing is written (--force writes the file all the same)") from error
        return None, str(error)
    except tflm.TflmError as error:
        return None, str(error)
    return (Arena.of(heads[0], before), Arena.of(heads[1], after)), ""


def _report(output: Path, made: _Made) -> Iterator[str]:
    emitted = made.emitted
    if made.fit is not None:
        name, chip = one_line(made.plan.graph.name), made.fit.chip.name
        yield from (f"{name} on {chip}: {answer(dict(made.fit.missing()))}", "", *bars(made.fit), "")
    replaced = ", in place of an older one" if made.had_plan else ""
    less = emitted.given_bytes - emitted.source_bytes
    yield f"wrote {output}: {size_text(len(emitted.data))}, of which {emitted.new_bytes:,} B are new"
    yield f"  plan       for kernels {made.plan.options.kernels}{replaced}"
    moved = f"{made.moved_ops} of {len(made.plan.schedule.ops)} moved" if made.moved_ops else "in their old order"
    yield f"  operators  {moved}"
    if less:
        yield f"  channels   that change no output are left out: {less:,} B of {emitted.given_bytes:,} B"
    else:
        yield "  the rest   unchanged, byte for byte"
    yield from ("", *_arena_lines(made), "")
    yield from _library_lines(made)


def _arena_lines(made: _Made) -> Iterator[str]:
    """What the arena consists of, and how large it must be. The head for the safe library has room for all others."""
    from diagmem.verification.tflm import SLACK_BYTES

    kernels, (before, after) = made.plan.options.kernels, made.heads
    meant = "any library below" if kernels == SAFE_FOR_ALL else kernels
    rows = [("head", before, after, f"tensors and scratch, for {meant}")]
    if made.arenas:
        old, new = made.arenas
        rows += [
            ("persistent", old.persistent_bytes, new.persistent_bytes, "TFLM's own; measured on this 64-bit host"),
            ("planning", old.planning_bytes, new.planning_bytes, "only while TFLM starts; measured as well"),
        ]
    rows.append(("alignment slack", SLACK_BYTES, SLACK_BYTES, "lost if the arena is not 16-byte aligned"))
    yield f"{'bytes':<17}{'before':>9}{'after':>9}"
    yield from (f"{name:<17}{old:>9}{new:>9}   {note}" for name, old, new, note in rows if old or new)
    if made.arenas:
        old, new = made.arenas
        yield from (f"{'arena':<17}{old.total_bytes:>9}{new.total_bytes:>9}", "")
        yield from (f"constexpr int kTensorArenaSize = {new.total_bytes};", "")
        yield "A 32-bit core keeps less: interpreter.arena_used_bytes() on the device tells how much."
    else:
        yield from (f"persistent        not measured: {made.reason}", "")
        yield f"On the device, with the file as it was: kPersistent = interpreter.arena_used_bytes() - {before}"
        yield f"constexpr int kTensorArenaSize = {after} + {SLACK_BYTES} + kPersistent;"


def _library_lines(made: _Made) -> Iterator[str]:
    """What this file gives with each library of kernels, and what one planned for that library alone would."""
    kernels = made.plan.options.kernels
    yield f"{'head by kernels':<17}{'no plan':>9}{'this file':>11}{'its own plan':>14}"
    for name, best in made.best.items():
        before, after = made.emitted.heads[name]
        is_safe = kernels in (SAFE_FOR_ALL, name)
        note = "  more than without a plan" if is_safe and after > before else ""
        yield f"{name:<17}{before:>9}{after if is_safe else 'unsafe':>11}{best:>14}{note}"
    before, after = made.heads
    if after >= before:
        yield f"Nothing is gained: for kernels {kernels} TFLM alone takes no more. Use the file as it was."
    if kernels == SAFE_FOR_ALL:
        better = " or ".join(name for name, best in made.best.items() if best < made.emitted.heads[name][1])
        named = f"saves more if they are {better}" if better else "would not save more"
        yield f"Naming the kernels of your firmware with --kernels {named}."


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
        **({} if made.fit is None else {"cost": made.fit.cost.to_json(), "fits": made.fit.fits}),
        "head_bytes_by_kernels": {
            name: {"before": old, "after": new, "own_plan": made.best.get(name, new)}
            for name, (old, new) in made.emitted.heads.items()
        },
    }
