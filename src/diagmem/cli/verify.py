"""`diagmem verify`: builds and runs what is handed out, and compares bit for bit."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._commands import PLACES, RUN_PLACES, PlacesParameter, command_of
from diagmem.cli._models import STANDARD_INPUT, by_c_name, naming_model
from diagmem.cli._show import ANSWER_IS_NO, Column, Table, count_text, number, show
from diagmem.cli._work import working
from diagmem.model.errors import PlanError, one_line
from diagmem.planning.options import MOST_CORES, Options

if TYPE_CHECKING:
    from diagmem.frontends.source import Source
    from diagmem.pipeline.running import Expected
    from diagmem.verification.places import CVerdict, Verdict
    from diagmem.verification.selftest import BoardReport
    from diagmem.verification.tflm import Comparison


ONLY_TOGETHER = "several models are verified together, on the host only: give --together, and leave out --on and --plan"
MOST_UNSEEN = 3
"""Ops that are named one by one."""


class _CoresParameter(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """Numbers of cores with commas between them."""

    name = "cores"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        found = list(value) if not isinstance(value, str) else value.split(",")
        if not all(str(one).isdecimal() and 1 <= int(one) <= MOST_CORES for one in found):
            self.fail(f"'{one_line(str(value))}' is no list of numbers from 1 to {MOST_CORES}.", param, ctx)
        return list(dict.fromkeys(int(one) for one in found))


@command_of("verify", places=PlacesParameter((*PLACES, *RUN_PLACES)), threads=_CoresParameter())
def command(
    sources: list[Source],
    places: list[str] | None,
    inputs: int,
    seed: int,
    plan_path: Path | None,
    no_check: bool,
    threads: list[int],
    json_path: str | None,
    options: Options,
    **outside: Any,
) -> None:
    from diagmem import pipeline
    from diagmem.pipeline.several import verify_together

    if any(outside.values()):
        _verify_outside(sources, places, **outside, plan_path=plan_path, json_path=json_path, options=options)
        return
    common: dict[str, Any] = {"inputs": inputs, "seed": seed, "options": options}
    is_together = len(sources) > 1 or bool(options.together)
    if is_together and (places not in (None, ["host"]) or plan_path is not None or not options.together):
        raise PlanError(ONLY_TOGETHER)
    with naming_model(", ".join(source.label for source in sources)), working("planning, building and running") as bar:
        if is_together:
            found: dict[str, Verdict] = {**verify_together(by_c_name(sources), **common)}
        else:
            plan = pipeline.read_plan(sources[0].runnable, plan_path) if plan_path and no_check else plan_path
            on = None if places is None and threads == [1] else _on_threads(places or ["host"], threads)
            verdicts = pipeline.verify(sources[0], on=on, plan=plan, tell=bar.tell, **common)
            found = {str(number): verdict for number, verdict in enumerate(verdicts)}
    ok = all(verdict.ok for verdict in found.values())
    runs = [{**({"model": name} if is_together else {}), **verdict.to_json()} for name, verdict in found.items()]
    show(json_path, lambda: {"ok": ok, "runs": runs}, _all_lines(found, is_together), status=0 if ok else ANSWER_IS_NO)


def _verify_outside(
    sources: list[Source],
    places: list[str] | None,
    log_path: str | None,
    data: Path | None,
    expect: Path | None,
    tolerance: float,
    calibration: Path | None,
    plan_path: Path | None,
    json_path: str | None,
    options: Options,
) -> None:
    """Beside what a board has said, or somebody's own outputs."""
    from diagmem.pipeline.running import board_report, compared_with_file, run_on_data

    if len(sources) > 1:
        raise click.UsageError("--board and --input take one MODEL.")
    if log_path is not None and (expect or tolerance or places):
        raise click.UsageError("--board judges what a board has said: leave out --on, --expect and --tolerance.")
    if log_path is None and calibration is not None:
        raise click.UsageError("--calibration is written from what a board has measured: give its --board.")
    if log_path is None and (data is None or expect is None):
        raise click.UsageError("--input and --expect go together; `diagmem run` shows what comes of an input.")
    files: dict[Path, bytes] = {}
    with naming_model(sources[0].label), working("planning and running") as bar:
        lines: Iterator[str | Table]
        if log_path is not None:
            report = board_report(sources[0], _log(log_path), options, plan=plan_path, inputs=data)
            told, lines = report.to_json(), _board_lines(report)
            if calibration is not None and report.ok:
                found = report.calibration
                files = {calibration: f"{json.dumps(found)}\n".encode()}
                off = f"{found['factor']:.3f} times the predicted cycles; ops are then {found['error_percent']} % off"
                lines = chain(lines, (f"measured: {off}", f"written: {calibration}; use it with --calibration"))
        elif data is not None and expect is not None:
            ran = (
                run_on_data(sources[0], data, options, on=on, plan=plan_path, tell=bar.tell)
                for on in places or ["host"]
            )
            runs = [compared_with_file(one, expect, tolerance) for one in ran]
            told = {"ok": all(one.ok for one in runs), "runs": [one.to_json() for one in runs]}
            lines = _expected_lines(runs)
    show(json_path, lambda: told, lines, status=0 if told["ok"] else ANSWER_IS_NO, files=files)


def _log(path: str) -> str:
    """What a board has printed: all of a file, or of standard input what comes before a whole report ends, for a serial
    port has no end."""
    from diagmem.model.errors import content_of
    from diagmem.verification.selftest import LARGEST_LOG_BYTES, LogError, last_report

    if path != STANDARD_INPUT:
        return content_of(path, LARGEST_LOG_BYTES).decode(errors="replace")
    left, text, garbled = LARGEST_LOG_BYTES, "", ""
    while left > 0 and (line := sys.stdin.buffer.readline(left)):
        left, said = left - len(line), line.decode(errors="replace")
        text = said if "diagmem selftest" in said else text + said
        if "result" in said:
            try:
                last_report(text)
            except LogError:
                text, garbled = "", garbled or text
            else:
                return text
    return garbled or text


def _board_lines(found: BoardReport) -> Iterator[str | Table]:
    ops = count_text(len(found.ops), "op")
    verdict = f"OK, {ops} in {count_text(found.runs, 'run')} as they should be"
    yield f"board: {verdict if found.ok else f'FAILED, {found.failure}'}"
    yield ""
    cycles, predicted = found.cycles, found.predicted_cycles
    rows = [
        (
            str(op.node.op.number),
            op.node.op.kind,
            "" if op.cycles is None else f"{op.cycles:,}",
            "" if op.predicted_cycles is None else f"{op.predicted_cycles:,}",
            ""
            if op.cycles is None or not op.predicted_cycles
            else f"{100 * (op.cycles / op.predicted_cycles - 1):+.1f} %",
            "" if op.cycles is None or not cycles else f"{100 * op.cycles / cycles:.1f} %",
            "" if op.equal else "DIFFERS",
        )
        for op in found.ops
    ]
    numbers = (number("cycles", 1), number("predicted", 1), number("more", 2), number("share", 3))
    columns = (number("op"), Column("kind"), *numbers, Column("", 1))
    yield Table(columns, rows, [n for n, op in enumerate(found.ops) if not op.equal])
    yield ""
    ram = found.cost.ram
    yield f"arena {found.arena_bytes:,} B written to, of {ram.arena_bytes:,}"
    if found.stack_bytes is not None:
        bound = f", predicted at most {ram.stack_bytes:,}" if ram.stack_bytes else ""
        yield f"stack {'at least ' * found.is_stack_full}{found.stack_bytes:,} B{bound}"
    if cycles is not None:
        beside = f", predicted {predicted:,} ({100 * (cycles / predicted - 1):+.1f} %)" if predicted else ""
        yield f"cycles {cycles:,}{beside}"


def _expected_lines(found: Sequence[Expected]) -> Iterator[str | Table]:
    for one in found:
        count = count_text(one.runs, "run")
        yield f"{one.on:<10} {f'OK: {count} as expected' if one.ok else f'FAILED: {one.failure}'}"
        yield f"{'':<10} furthest off: {one.largest:.6g}, tolerance {one.tolerance:g}"


def _on_threads(places: list[str], threads: list[int]) -> list[str]:
    """The host once for each number of threads."""
    hosts = ["host" if count == 1 else f"host:{count}" for count in threads]
    return [one for place in places for one in (hosts if place == "host" else [place])]


def _all_lines(found: dict[str, Verdict], is_together: bool) -> Iterator[str]:
    """Of each model by its name, or of each place."""
    from diagmem.verification.places import TflmVerdict

    for name, verdict in found.items():
        yield from [name] if is_together else []
        yield from _tflm_lines(verdict.found) if isinstance(verdict, TflmVerdict) else _c_lines(verdict, is_together)


def _c_lines(found: CVerdict, by_turns: bool) -> list[str]:
    from diagmem.targets import core_named

    run, opinion = found.run, found.opinion
    what = "every operation" if run.on == "host" and run.cores is None and not by_turns else "every output"
    count = count_text(run.inputs, "input")
    shared = f"{run.cores} cores, " if run.cores else "interleaved with the other models, " if by_turns else ""
    standing = "OK" if not opinion.unseen else "PARTLY CONFIRMED" if opinion.seen else "UNCONFIRMED"
    verdict = f"{standing}: {shared}{count}, {what} matches numpy bit for bit"
    ram, flash = found.cost.ram, found.cost.flash
    code = (flash.code_bytes or 0) + (flash.tables_bytes or 0)
    excess_bytes = (run.stack_bytes or 0) - (ram.stack_bytes or 0)
    more = f", {excess_bytes:,} MORE THAN PREDICTED" if excess_bytes > 0 else ""
    of_inputs = f"at most, of {count}" if run.inputs > 1 else ""
    cores = [core_named(key) for key in [found.cost.core] if key]
    notes = [f"{core.name} is not emulated: this ran on the host only" for core in cores if not core.cpu]
    sizes = (
        ("arena", run.arena_bytes, "B"),
        ("stack", run.stack_bytes, f"B{more}, predicted at most {ram.stack_bytes or 0:,}"),
        (".data/.bss", run.static_bytes, "B"),
        ("code", run.code_bytes, f"B, predicted about {code:,} with row tables"),
        ("weights", run.weights_bytes, f"B, {found.cost.flash.weights_bytes or 0:,} without padding"),
        ("instructions", run.instructions, of_inputs),
        ("barriers", run.barriers, ""),
        ("critical path", run.critical_instructions, ""),
    )
    speedup = [] if run.speedup is None else [f"{'':<10} {'speed-up':<13}{run.speedup:>12.3f}"]
    return [
        f"{run.on:<10} {verdict if run.ok else f'FAILED: {run.failure}'}",
        *(f"{'':<10} {line}" for line in (*(_seen_lines(found) if run.ok else ()), *found.deviations, *notes)),
        *(f"{'':<10} {name:<13}{value:>12,} {unit}".rstrip() for name, value, unit in sizes if value is not None),
        *speedup,
    ]


NAMES = {"tflm": "TFLM", "litert": "LiteRT"}
NOBODY = ("no runtime that is installed runs this", "who runs this computes it in another way")


def _seen_lines(found: CVerdict) -> Iterator[str]:
    """What another runtime has seen, and what nobody has."""
    opinion, count = found.opinion, count_text(found.opinion.ops, "op")
    name = NAMES.get(opinion.oracle, opinion.oracle)
    if opinion.seen:
        which = f"{opinion.seen} of {count}" if opinion.unseen else f"all {count}" if opinion.ops > 1 else count
        same = f"agree within {found.within:g} of the largest with" if found.within else "equal"
        yield f"outputs of {which} {same} those of {name}{', but as follows' if found.deviations else ''}"
    if opinion.ill_conditioned:
        yield f"ill-conditioned on {count_text(opinion.ill_conditioned, 'input')}: rounding alone may change as much"
    if opinion.unseen:
        some = ", ".join(opinion.unseen[:MOST_UNSEEN])
        more = len(opinion.unseen) - MOST_UNSEEN
        told = f"{some}{f' and {more} more' if more > 0 else ''}" if opinion.seen else NOBODY[bool(opinion.oracle)]
        yield f"by our own arithmetic only: {told}"
        yield from opinion.silent


def _tflm_lines(found: Comparison) -> list[str]:
    before, after = found.before, found.after
    count = f"all {found.inputs} runs give" if found.inputs > 1 else "1 run gives"
    verdict = f"{count} the same bytes" if found.ok else f"FAILED: {found.failure}"
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
