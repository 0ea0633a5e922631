"""`diagmem emit`: hands a plan on, as C code (`c`), or inside a .tflite file for TensorFlow Lite Micro (`tflm`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._commands import command_of
from diagmem.cli._files import check_is_no_input
from diagmem.cli._models import by_c_name, naming_model
from diagmem.cli._options import check_none_given
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


@command_of("emit")
@click.pass_context
def command(ctx: click.Context, /) -> None:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command_of("emit c", of=command, layout=LAYOUTS)
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
    verdict += [f"streaming the input {emitted.not_streamed}"] if emitted.not_streamed else []
    show(
        json_path,
        lambda: told,
        (*verdict, *lines, *cost_lines(cost)),
        None,
        ANSWER_IS_NO if emitted.missing else 0,
        files,
    )


@command_of("emit tflm", of=command, kernels=LIBRARIES)
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
