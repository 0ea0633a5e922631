"""A plan in words: sections of labelled lines, in the order in which `diagmem plan` shows them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from diagmem.cli._show import Column, Table, count_text, layer_table, number, op_text, size_text, terminal_width
from diagmem.model.errors import one_line, shell_word
from diagmem.model.schedule import PUSH

if TYPE_CHECKING:
    from diagmem.backends.tflm.planned_file import EmbeddedPlan
    from diagmem.cli._limits import Fitting, Verdict
    from diagmem.cli.plan import Bad, Result
    from diagmem.costs import Fit
    from diagmem.pipeline.several import Together
    from diagmem.planning.plan import Form, Plan
    from diagmem.planning.planner import Planned, Way

Entry = tuple[str | None, str]
"""A line: its label, "" where it goes on with the line before, None for a line that has no label."""

LABEL_WIDTH, SCREEN_LABEL_WIDTH = 13, 18
BAR_WIDTH, SCREEN_WIDTH = 8, 80
WAY_FLAGS = ("--schedule best", "--schedule rows", "--input-rows")
"""Of the ways to run a model, in their order."""

MOST_LINES = 5
"""Of a list of ops."""

MOST_HELD = 4
"""Tensors that a line lists."""

MOST_KINDS = 6
"""Kinds of ops that a line lists."""

_FORMS: dict[Form, str] = {"linear": "in one piece", "ring": "in a ring", "table": "with each row placed freely"}


def plan_lines(result: Result, is_verbose: bool) -> Iterator[str | Table]:
    """One screen, within 80 columns: the verdict, how the model runs, what sets the arena, what to type next; or all
    that is known of the plan between the verdict and the next command."""
    yield from _wrapped(_embedded(result))
    verdict = _verdict_line(result).replace(" B", "\N{NO-BREAK SPACE}B")
    yield from (line.replace("\N{NO-BREAK SPACE}", " ") for line in wrap(verdict, SCREEN_WIDTH, break_on_hyphens=False))
    yield ""
    if result.verdict.fit is not None:
        yield from bars(result.verdict.fit)
        yield ""
    yield from _ways(result)
    refused = list(_as_c(result))
    if is_verbose:
        yield from _lines(entry for section in SECTIONS for entry in section(result))
    else:
        asides = (_float32, _state, _next_frame, _cores, _pools, _tried, _larger)
        entries = (*_figures(result), *refused, *(entry for section in asides for entry in section(result)))
        yield from (f"  {line}" if line else line for line in _wrapped(iter(entries)))
    yield from _tables(result)
    yield ""
    yield f"next: {_next(result, is_refused=bool(refused))}"


def _lines(entries: Iterator[Entry], width: int = LABEL_WIDTH) -> Iterator[str]:
    for label, text in entries:
        yield text if label is None else f"{label:<{width}}{text}"


def _headline(result: Result) -> Iterator[Entry]:
    made, plan = result.made, result.made.plan
    saved = 100 * (1 - plan.arena_bytes / made.baseline_bytes) if made.baseline_bytes else 0.0
    alone = f"; {size_text(plan.pools.single_bytes)} in one memory" if plan.pools else ""
    name, align = one_line(plan.graph.name), plan.options.align_bytes
    yield None, f"{name} for kernels {plan.options.kernels}, offsets aligned to {align} B, order: {plan.schedule.name}"
    yield None, ""
    yield "before", f"{size_text(made.baseline_bytes)}: best plan without overlap, in the file's order"
    yield "after", f"{size_text(plan.arena_bytes)}: {saved:.1f} % less{alone}"
    yield "lower bound", f"{size_text(plan.lower_bound_bytes)}; the plan is {plan.proof_text}"


def _effort(result: Result) -> Iterator[Entry]:
    """Nothing for a plan that is proven, and would be found again."""
    plan, options = result.made.plan, result.made.plan.options
    if plan.is_bounded:
        more = "" if options.effort == "thorough" else "; --effort thorough searches further"
        yield "effort", f"{options.effort}: the search stopped before it could prove the plan optimal{more}"
    if options.time_limit is not None:
        yield "", f"time limit {options.time_limit:g} s: another run may find a different plan"


def _state(result: Result) -> Iterator[Entry]:
    plan = result.made.plan
    if plan.graph.variables:
        where = "of the arena survives between runs" if plan.state_bytes else "outside the arena, held by the runtime"
        size = plan.state_bytes or sum(t.size_bytes for t in plan.graph.variables)
        yield "state", f"{size_text(size)} {where}"


def _next_frame(result: Result) -> Iterator[Entry]:
    """What it costs to write the next frame while this one runs."""
    plan, names = result.made.plan, result.made.plan.options.double_buffer
    if names:
        size, of = size_text(plan.next_frames_bytes), ", ".join(f"'{one_line(n, 40)}'" for n in dict.fromkeys(names))
        yield "next frame", f"{size} of the arena hold the next frame of {of}"
        yield "", f"each run copies {size} to the input"


def _cores(result: Result) -> Iterator[Entry]:
    """How several cores share the run."""
    plan, shared = result.made.plan, result.made.plan.multicore
    if shared is None:
        return
    from diagmem.planning.cores.multicore import estimated_speedup, most_held_bytes, running_steps

    steps = running_steps(plan)
    together = sum(step in shared.by_step for step in steps)
    what = "steps" if plan.runs_by_rows else "ops"
    faster = f"about {estimated_speedup(plan, shared, shared.cores):.2f} times as fast"
    alone = f"{together} {what} are split, {len(steps) - together} run on one core"
    yield "cores", f"up to {shared.cores}: {shared.barriers(steps)} barriers, {faster}; {alone}"
    deferred = most_held_bytes(plan.graph, shared) // 2
    if deferred:
        yield "", f"with two cores, each defers up to {deferred:,} B of writes on its stack"


def _ladder(result: Result) -> Iterator[Entry]:
    """The arena after each step from whole tensors to the plan, and what was removed."""
    made = result.made
    first, *others = made.ladder
    yield "ladder", f"{first.step + ', file order':<27}{first.arena_bytes:>10,} B"
    for rung in others:
        change = 100 * (rung.arena_bytes / max(1, first.arena_bytes) - 1)
        share = f"{'+' if change > 0 else ''}{change:.1f}".rjust(6) + " %" if first.arena_bytes else ""
        yield "", f"{'+ ' + rung.step:<27}{rung.arena_bytes:>10,} B  {share}".rstrip()
    for removal in made.removals:
        less = f", {size_text(-removal.bytes_changed)} of tensors less" if removal.bytes_changed < 0 else ""
        channels = f" and {removal.channels} channels" if removal.channels else ""
        yield "removed", f"{count_text(len(removal.ops), 'op')}{channels} by {removal.transform}{less}"
        if removal.channels:
            from diagmem.transforms import macs_of, weights_of

            yield _change("flash", "B of constants", weights_of(made.model), removal.weights_changed)
            yield _change("work", "multiply-accumulates", macs_of(made.model), removal.macs_changed)


def _change(name: str, unit: str, before: int, change: int) -> Entry:
    part = f" ({100 * change / before:.1f} %)" if before else ""
    return "", f"{name}: {before} {unit} become {before + change}{part}"


def _pools(result: Result) -> Iterator[Entry]:
    """What lies in each memory, what is read and written there, what is missing."""
    plan = result.made.plan
    starts = {plan.offsets[t] for t in plan.graph.outputs if t in plan.offsets}
    for use in plan.pools.uses:
        if use.pool.is_external:
            twice = "" if use.start in starts else f"; {size_text(2 * use.used_bytes)} for double buffering"
            yield "with caller", f"{use.pool.name}: {size_text(use.used_bytes)} beside the arena{twice}"
    if not plan.options.pools:
        return
    own = [use for use in plan.pools.uses if not use.pool.is_external]
    width = max(len(use.pool.name) for use in own)
    for place, use in enumerate(own):
        part = 100 * use.used_bytes / use.pool.capacity_bytes
        used = f"{use.used_bytes:>9,} of {use.pool.capacity_bytes:>9,} B ({part:>5.1f} %)"
        traffic = f"{use.traffic_bytes:>11,} B read and written x {use.pool.cost:g}"
        yield "" if place else "pools", f"{use.pool.name:<{width}}  {used}, {traffic}"
    bound = "" if plan.pools.is_optimal else f" than {plan.pools.lower_bound:.0f}"
    yield "traffic", f"costs {plan.pools.cost:.0f}; no plan for this order costs less{bound}"
    yield from _weight_copies(plan)
    for use in plan.pools.uses:
        if use.missing_bytes:
            yield "too large", f"for the pools: {use.pool.name} is short by {size_text(use.missing_bytes)}"
            yield "", f"it fits with --pool {use.enlarged}"
            yield "", "--fit first tries options that need no more memory"


def _weight_copies(plan: Plan) -> Iterator[Entry]:
    """Which weights are copied to a pool, what that saves, and why the others stay in flash."""
    found = plan.weights
    if found is None:
        return
    cost = next(use.pool.cost for use in plan.pools.uses if use.pool.name == found.pool)
    copied = sorted((w for w in found.ops if w.op in plan.weight_copies), key=lambda w: -w.read_bytes)
    size = size_text(sum(w.size_bytes for w in copied))
    read = f"flash is read {plan.pools.flash_bytes:,} B x {found.flash_cost:g}, not {found.read_bytes:,} B"
    yield (
        "weights",
        f"{len(copied)} of {len(found.ops)} ops have their weights copied to {found.pool}, {size} per run: {read}",
    )
    yield "", f"without copies the traffic costs {found.plain_cost:.0f}"
    for weights in copied[:MOST_LINES]:
        saved = weights.flash_cost(found.flash_cost) - weights.copied_cost(cost, found.flash_cost)
        where = op_text(plan.graph, weights.op)
        yield "", f"{weights.size_bytes:>9,} B, each read {weights.times:.0f} times, saves {saved:.0f} at {where}"
    stay = [w for w in found.ops if w.op not in plan.weight_copies]
    seldom = sum(not w.pays(cost, found.flash_cost) for w in stay)
    reasons = {"too rarely for a copy to pay off": seldom, f"from flash: no room in {found.pool}": len(stay) - seldom}
    for why, count in reasons.items():
        if count:
            yield "", f"{count} op{' reads' if count == 1 else 's read'} weights {why}"


def _peak(result: Result) -> Iterator[Entry]:
    plan = result.made.plan
    if plan.peak_op is not None:
        yield "peak", f"at {'a row of the input' if plan.peak_op == PUSH else op_text(plan.graph, plan.peak_op)}"
        from diagmem.reports.why import short_name

        held = (f"{short_name(plan.graph, b)} {b.size_bytes:,} B" for b in plan.peak_buffers[:MOST_HELD])
        yield "", ", ".join(held)
        yield from _chain(plan)


def _chain(plan: Plan) -> Iterator[Entry]:
    """Where no single op needs the whole arena: the chain of buffers that does. Row by row there are many: it takes
    longer to find."""
    if plan.runs_by_rows or plan.pools or max(plan.pressure) >= plan.arena_bytes:
        return
    from diagmem.reports.why import Reasons

    for chain in Reasons(plan).of_arena():
        where = f"{count_text(len(chain.links), 'buffer')} sets the arena, from {chain.ends}"
        yield "", f"that op alone needs {max(plan.pressure):,} B; a chain of {where} (--why)"


def _rows(result: Result) -> Iterator[Entry]:
    """Steps, work, and how rows lie."""
    plan = result.made.plan
    if not plan.runs_by_rows:
        return
    forms = Counter(storage.form for storage in plan.storage.values() if storage.height > 1)
    again = f"{plan.recompute:.2f} times the multiply-accumulates" if plan.recompute > 1 else "nothing recomputed"
    pushed = "; the caller pushes the input row by row" if plan.input_rows else ""
    yield "rows", f"{len(plan.schedule.steps)} steps, {again}{pushed}"
    kept = ", ".join(f"{forms[form]} {name}" for form, name in _FORMS.items() if forms[form])
    yield "", f"tensors with several rows: {kept}"


def _overlaps(result: Result) -> Iterator[Entry]:
    if not result.made.plan.runs_by_rows:
        yield from _overlaps_of(result.made.plan)


def _overlaps_of(plan: Plan) -> Iterator[Entry]:
    nodes, shared = plan.graph.nodes, sorted(plan.overlaps, key=lambda o: -o.size_bytes)
    ends = ":" if shared else ""
    yield "overlaps", f"{len(shared)} of {len(nodes)} ops share bytes of an input and an output{ends}"
    yield from (("", f"{o.size_bytes:>9,} B at {op_text(plan.graph, o.op)}") for o in shared[:MOST_LINES])


def _embedded(result: Result) -> Iterator[Entry]:
    """The plan that the file carries already: ours, Vela's, or anybody's."""
    if result.carried is None:
        return
    found: EmbeddedPlan = result.carried
    origin = "from an unknown tool"
    if found.origin:
        tool, version, kernels = (one_line(v) for v in (found.origin.tool, found.origin.version, found.origin.kernels))
        origin = f"made by {tool} {version} for kernels {kernels}"
    verdict = "NOT SAFE" if found.findings else "safe"
    if found.doubts and not found.findings:
        verdict = "unknown: diagmem does not know all of its operations"
    yield None, f"The file carries a plan, {origin}; for kernels {found.plan.options.kernels} it is {verdict}."
    yield "its head", f"{size_text(found.plan.arena_bytes)}; without it TFLM takes {size_text(found.baseline_bytes)}"
    yield from _overlaps_of(found.plan)
    yield from (("unsafe", str(finding)) for finding in found.findings[:MOST_LINES])
    yield from (("unknown", str(finding)) for finding in found.doubts[:MOST_LINES])
    yield None, ""


def _map(result: Result) -> Iterator[Entry]:
    """The arena as a picture, on a terminal."""
    if sys.stdout.isatty():
        from diagmem.reports.arena import arena_lines

        width = terminal_width()
        yield None, ""
        yield from ((None, line[:width]) for line in arena_lines(result.made.plan, width))


def _as_c(result: Result) -> Iterator[Entry]:
    """Why the model cannot be emitted as C, if it cannot."""
    plan = result.made.plan
    is_asked = plan.options.library.is_own and not plan.options.external_io and not result.source.is_from_zoo
    if not is_asked or plan.pools.missing_bytes:
        return
    from diagmem.backends.c.program import Program

    program = Program.of(result.made)
    if program.refused_ops:
        refused = Counter(program.graph.ops[op].kind for op in program.refused_ops).most_common()
        names = [f"{kind} ({count})" if count > 1 else kind for kind, count in refused]
        more = f" and {len(names) - MOST_KINDS} more kinds" if len(names) > MOST_KINDS else ""
        ops = f"{len(program.refused_ops)} of {len(program.nodes)} ops"
        yield "C", f"{ops} have no kernel: {', '.join(names[:MOST_KINDS])}{more}"
    elif program.refused_tensors:
        yield "C", f"cannot be emitted: {program.refused_tensors[0]}"


def _float32(result: Result) -> Iterator[Entry]:
    """What of a quantised network is not."""
    from diagmem.kernels.work import float_text

    yield from (("float32", text) for text in (float_text(result.made.plan.graph),) if text)


def _budget(result: Result) -> Iterator[Entry]:
    limit = result.verdict.limits.budget
    if limit is not None and limit >= result.verdict.arena_bytes:
        yield "fits", f"the budget: {size_text(limit - result.verdict.arena_bytes)} left"
    elif limit is not None:
        yield "too large", f"for the budget: short by {size_text(result.verdict.arena_bytes - limit)}"


def _tried(result: Result) -> Iterator[Entry]:
    """What --fit has tried."""
    fitting: Fitting | None = result.fitting
    if fitting is None:
        return
    named = [" ".join(fitting.flags(attempt.changes)) or "as asked" for attempt in fitting.tried]
    width = max(map(len, named))
    for place, (what, attempt) in enumerate(zip(named, fitting.tried, strict=True)):
        how = attempt.reason
        if attempt.made is not None:
            short = f"short by {attempt.missing_bytes:,} B" if attempt.missing_bytes else "fits"
            how = f"{attempt.made.arena_bytes:>7,} B: {short}"
        yield "" if place else "tried", f"{what:<{width}} {how}"


def _larger(result: Result) -> Iterator[Entry]:
    """A chip that holds the plan, where the one that was named does not."""
    chip = result.verdict.larger_chip
    if chip is not None:
        flash = f"{chip.flash_bytes // 1024:,} KB of flash" if chip.flash_bytes else "external flash"
        yield "fits on", f"{chip.name}: {chip.sram_bytes // 1024:,} KB of RAM, {flash}  (--target)"


def _wrapped(entries: Iterator[Entry]) -> Iterator[str]:
    for label, text in entries:
        lines = wrap(text, SCREEN_WIDTH - 2 - (0 if label is None else SCREEN_LABEL_WIDTH)) or [""]
        yield from _lines(
            ((None if label is None else "" if n else label, line) for n, line in enumerate(lines)), SCREEN_LABEL_WIDTH
        )


def _verdict_line(result: Result) -> str:
    verdict, made, plan = result.verdict, result.made, result.made.plan
    name, chip = one_line(plan.graph.name), verdict.limits.chip
    missing = result.missing()
    if chip is not None:
        clock = f", {chip.mhz:g} MHz" if chip.mhz else ""
        name += f" on {chip.name}" + ("" if missing else f" ({chip.core.name}{clock})")
    limits = (("of RAM", verdict.limits.budget), ("of flash", verdict.limits.flash))
    if given := [f"{limit:,} B {what}" for what, limit in limits if limit is not None]:
        name += f" in {' and '.join(given)}"
    if not verdict.limits.are_set and not plan.options.pools:
        saved = 100 * made.saved_bytes / made.baseline_bytes if made.baseline_bytes else 0
        less = f", {saved:.0f} % less than without overlap" if saved >= 1 else ""
        return f"{name}: {_kb(plan.arena_bytes)} of RAM{less} (kernels: {plan.options.kernels})"
    return f"{name}: {answer(missing)}"


def answer(missing: Mapping[str, int]) -> str:
    """`missing`: what there is too little of, and by how many bytes."""
    short = ", ".join(f"{what} short by {size:,} B" for what, size in missing.items())
    return f"does not fit, {short}" if short else "fits"


def bars(fit: Fit) -> Iterator[str]:
    """RAM and flash, each as a part of what the chip has, and the time of a run."""
    chip, ram, flash = fit.chip, fit.cost.ram, fit.cost.flash
    region, size = fit.region
    if fit.pools_missing is not None:
        region, size = "all memories", chip.sram_bytes
    for what, used, has, parts, note in (
        ("RAM", ram.total_bytes, size, ram.parts, f"; {region}"),
        ("flash", flash.total_bytes, chip.flash_bytes, flash.parts, ""),
    ):
        of = "not known" if used is None else f"{_kb(used)} of {has // 1024:,} KB" if has else f"{_kb(used)}, external"
        eighths = min(8 * BAR_WIDTH, max(1, round(8 * BAR_WIDTH * used / has))) if used and has else 0
        bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
        head = f"  {what:<6}{of:<21} {bar:<{BAR_WIDTH}}  "
        sizes = ", ".join(f"{name} {part / 1024:,.1f}" for name, part in parts.items() if part)
        yield from wrap(head + sizes + note, SCREEN_WIDTH, subsequent_indent=" " * len(head), drop_whitespace=True)
    if (cost := fit.cost).cycles is not None:
        yield f"  {'time':<6}{cost.time_text:<{24 + BAR_WIDTH}}{cost.cycles_text}"
    notes = [f"not counted: {note}" for note in fit.cost.notes]
    if fit.pools_missing is None and fit.ram_left_bytes < 0 <= size - ram.total_bytes:
        notes.insert(0, f"{_kb(fit.ram_kept_bytes)} of the RAM must stay free for stack and data")
    for note in notes:
        yield from wrap(f"  {note}", SCREEN_WIDTH, subsequent_indent="  ")


def _kb(size_bytes: int) -> str:
    return f"{size_bytes / 1024:,.1f} KB"


def _ways(result: Result) -> Iterator[str]:
    """Each way to run the model, with its arena and what it asks of the firmware."""
    if not result.ways:
        return
    times = [_time_of(result, way) for way in result.ways]
    width = 9 if any(times) else 0
    yield f"  {'how it runs':<15}{'arena':>11}{'time' if width else '':>{width}}  what your firmware does"
    for way, time in zip(result.ways, times, strict=True):
        mark = ">" if way.is_chosen else " "
        if way.made is None:
            first, *rest = wrap(way.reason, SCREEN_WIDTH - 30 - width) or [""]
            yield f"{mark} {way.name:<15}{'-':>11}{'':>{width}}  {first}"
            yield from (" " * (30 + width) + line for line in rest)
        else:
            yield f"{mark} {way.name:<15}{way.made.arena_bytes:>9,} B{time:>{width}}  {_asked_of_firmware(way)}"
    yield ""


def _time_of(result: Result, way: Way) -> str:
    """Of one run, where it is known."""
    from diagmem import pipeline
    from diagmem.costs import ms_text

    is_asked = way.made and result.verdict.limits.chip
    ms = pipeline.costs_of(result.source, way.made, is_measured=False).on().ms if way.made and is_asked else None
    return "" if ms is None else f"{ms_text(ms)} ms"


def _asked_of_firmware(way: Way) -> str:
    made: Any = way.made
    if not made.plan.input_rows:
        return "fills the input, calls NAME_invoke()"
    (data,) = (made.model.tensors[t] for t in made.model.inputs[:1])
    option = "" if way.is_chosen else " (--input-rows)"
    return f"pushes {data.rows} rows of {data.size_bytes // data.rows:,} B{option}"


def _figures(result: Result) -> Iterator[Entry]:
    made, plan, verdict = result.made, result.made.plan, result.verdict
    if verdict.flash_bytes is not None and verdict.fit is None:
        yield "flash", f"about {verdict.flash_bytes:,} B, with the code for {verdict.core_name}"
    if not result.ways:
        alone = f"   in one memory {plan.pools.single_bytes:,} B" if plan.pools else ""
        yield "arena", f"{plan.arena_bytes:>9,} B{alone}"
    yield "without overlap", f"{made.baseline_bytes:>9,} B"
    more = "; --effort thorough" if plan.is_bounded and plan.options.effort != "thorough" else ""
    proven = "reached: no plan of this kind is smaller" if made.optimal else f"not proven reachable{more}"
    yield "lower bound", f"{plan.lower_bound_bytes:>9,} B   {proven}"
    if plan.peak_op is not None:
        peak = "a row of the input" if plan.peak_op == PUSH else op_text(plan.graph, plan.peak_op)
        hint = "" if result.why else "  (--why)"
        yield "set by", f"{one_line(peak, SCREEN_WIDTH - 2 - SCREEN_LABEL_WIDTH - len(hint))}{hint}"
    yield from _slowest(result)
    if made.untried and not result.ways:
        yield "row by row", made.untried
    if made.not_streamed and not result.ways:
        yield "input streamed", made.not_streamed


def _slowest(result: Result) -> Iterator[Entry]:
    """The layers that take most of the time or, where that is not known, most of the work."""
    from diagmem.costs import Costs

    costs, nodes = result.verdict.costs or Costs.of(result.made), result.made.plan.graph.nodes
    work, spent = costs.work
    most, whole = sorted(work, key=lambda op: -work[op])[:2], sum(work.values(), 0.0)
    shares = (f"op {nodes[op].op.number} {nodes[op].op.kind} {100 * work[op] / whole:.0f} %" for op in most)
    if whole:
        yield ("slowest" if spent else "most work"), f"{', '.join(shares)}{'' if result.layers else '  (--layers)'}"


def _tables(result: Result) -> Iterator[str | Table]:
    """The layers, and what holds a buffer where it is, from the buffer down to the start of its memory."""
    if result.layers:
        yield ""
        yield layer_table(result.layers)
    for chain in result.why:
        yield ""
        yield chain.title
        headings = number("at"), number("bytes"), Column("buffer"), number("above next"), Column("set by")
        yield Table(headings, [*chain.rows()])


def _next(result: Result, is_refused: bool) -> str:
    """The command to type next: the one that makes it fit, or the one that makes firmware of it."""
    if result.fitting is not None:
        return result.fitting.command or "nothing that was tried fits: a smaller model or more memory is needed"
    if result.is_good:
        return _emit(result, is_refused)
    for way in result.ways:
        if way.made is not None and not way.is_chosen and not result.missing(way.made):
            return _emit(result, is_refused, way)
    if "RAM" in result.missing() or result.made.plan.options.pools:
        return f"{_typed('plan')} --fit"
    chip = result.verdict.larger_chip
    return "diagmem targets" if chip is None else f"{_typed('plan', ['target'])} --target {shell_word(chip.name)}"


def _emit(result: Result, is_refused: bool, way: Way | None = None) -> str:
    """The command that makes firmware of the plan, or of another way to run the model."""
    from diagmem.cli.emit import LIBRARIES
    from diagmem.planning.options import WAYS

    options = result.made.plan.options
    if options.library.is_own and not options.external_io and not is_refused:
        more = [dict(zip(WAYS, WAY_FLAGS, strict=True))[way.name]] if way is not None else []
        left_out = ("schedule", "input_rows") if way is not None else ()
        return " ".join([_typed("emit c", left_out), *more, "-o firmware"])
    if result.source.is_onnx or not (options.library.is_own or options.kernels in LIBRARIES):
        return f"{_typed('report')} -o report"
    return f"{_typed('emit tflm')} -o planned.tflite"


def _typed(command: str, left_out: Collection[str] = ()) -> str:
    """What was typed, as far as another command takes it."""
    from diagmem.cli._options import words_for

    return " ".join(["diagmem", command, *map(shell_word, words_for(command, left_out))])


SECTIONS: tuple[Callable[[Result], Iterator[Entry]], ...] = (
    *(_headline, _effort, _state, _next_frame, _cores, _ladder, _pools, _peak, _rows, _overlaps),
    *(_float32, _map, _as_c, _budget, _tried, _larger),
)


def summary(found: Sequence[Result | Bad], together: Together | None, verdict: Verdict | None) -> Iterator[str | Table]:
    """Several models: a line for each, and what they take in one arena where that is asked for."""
    columns = Column("model"), *map(number, ("before", "after", "saved", "lower bound")), Column("")
    failed = [n for n, one in enumerate(found) if one.error is not None]
    yield Table(columns, [_summary_row(one) for one in found], failed)
    if together is not None:
        yield from _lines(_together(together))
    if verdict is not None and verdict.limits.are_set:
        yield from ("", f"all together: {answer(verdict.missing)}", "", *(bars(verdict.fit) if verdict.fit else ()))
    if together is not None and verdict is not None and verdict.fits and not failed:
        yield from ("", f"next: {_typed('emit c')} -o firmware")


def _summary_row(one: Result | Bad) -> tuple[str, ...]:
    if one.error is not None:
        return one_line(one.name), "-", "-", "-", "-", str(one.error).removeprefix(f"{one.name}: ")
    from diagmem.planning.memory.caller import kept_bytes

    made: Planned = one.made
    notes = ["proven" if made.optimal else "", answer(one.verdict.missing) if one.verdict.limits.are_set else ""]
    # What lies beside a shared arena lies there with overlap or without.
    beside = kept_bytes(made.plan) if made.plan.options.together else 0
    before, bound = made.baseline_bytes + beside, made.lower_bound_bytes + beside
    saved = f"{100 * (1 - made.arena_bytes / before):.1f} %" if before else "-"
    figures = f"{before:,}", f"{made.arena_bytes:,}", saved, f"{bound:,}"
    return one_line(made.model.name), *figures, ", ".join(note for note in notes if note)


def _together(found: Together) -> Iterator[Entry]:
    own = {one_line(made.model.name): made.arena_bytes for made in found.own_arenas}
    kept = found.kept_bytes - sum(own.values())
    beside = f", and {size_text(kept)} beside it live from run to run" if kept else ""
    parts = ", ".join(f"{name} {used:,} B" for name, used in found.pools_bytes.items())
    sharing = [one_line(made.model.name) for made in found.plans if made not in found.own_arenas]
    size, whom = size_text(found.shared_bytes), sharing[0] if len(sharing) == 1 else "the others" if own else "all"
    said = [f"one arena of {size} serves {whom}, one at a time{beside}"] if parts else []
    if len(found.pools_bytes) > 1:
        said = [f"{size} are shared by {whom}, one at a time: {parts}{beside}"]
    said += [f"{model} has an arena of its own, {size_text(used)}" for model, used in own.items()]
    apart = "not fit the memories" if found.apart_bytes is None else f"take {size_text(found.apart_bytes)}"
    said.append(f"{size_text(found.total_bytes)} in all; separately they would {apart}")
    yield from zip(("together", *[""] * len(said)), said, strict=False)


def curve_lines(front: Sequence[Planned], verdicts: Sequence[Verdict]) -> Iterator[str]:
    """What less memory costs: a line for each plan, the largest first."""
    from diagmem.costs import ms_text

    for made, verdict in zip(front, verdicts, strict=True):
        fits = "" if not verdict.limits.are_set else "fits      " if verdict.fits else "too large "
        ms = verdict.fit.cost.ms if verdict.fit else None
        price = f"{made.plan.recompute:>5.2f} x MACs" if ms is None else f"{ms_text(ms):>7} ms"
        yield f"{size_text(made.arena_bytes):>22}  {price}  {fits}{how(made.plan)}"


def how(plan: Plan) -> str:
    """How a plan runs, in a few words."""
    lean = plan.options.library.lean
    without = f", {count_text(len(lean), 'op')} without scratch" if lean else ""
    if not plan.runs_by_rows:
        return f"layer by layer{without}"
    times = Counter((step.op, step.turn) for step in plan.schedule.steps if step.turn is not None)
    repeated = len({op for (op, _), count in times.items() if count > 1})
    streamed = ", input streamed" if plan.input_rows else ""
    again = f", rows of {count_text(repeated, 'tensor')} recomputed" if repeated else ""
    return f"row by row{streamed}{again}{without}"
