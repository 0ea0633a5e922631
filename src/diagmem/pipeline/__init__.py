"""The Python API: the one place where the stages are chained.

Every function is one of values: a model goes in, a result comes out, nothing is printed. What a function does not need
is not loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagmem.frontends.source import Source
from diagmem.kernels.overlaps import METHODS, Overlap, all_overlaps
from diagmem.model.errors import DiagmemError, PlanError, UnreadableFileError, content_of, one_line, reading
from diagmem.model.graph import Graph
from diagmem.planning import planner
from diagmem.planning.options import ALL, LAYER_BY_LAYER, ROWS, Options
from diagmem.planning.plan import Plan, checked, findings_of
from diagmem.planning.planner import Rung, Tell, Way, silently
from diagmem.validation import Finding

if TYPE_CHECKING:
    from diagmem.backends.c import FileLayout
    from diagmem.backends.tflm.planned_file import PlannedFile
    from diagmem.costs import Cost, Costs
    from diagmem.planning.bounds import Bounds
    from diagmem.reports.difference import Difference, Side
    from diagmem.reports.inspection import Inspection
    from diagmem.reports.report import Counted
    from diagmem.targets import Chip
    from diagmem.verification.places import Verdict
    from diagmem.verification.profile import Profile

Model = str | Path | bytes | Graph | Source | object
"""A path to a .tflite or .onnx file, its bytes, `zoo:NAME` for a built-in model, a Graph, or a Source: any of these
with other shapes. Also a Keras model, or a PyTorch module with example inputs: see `Source.exported`."""

GivenPlan = str | Path | Mapping[str, Any]
"""A plan as JSON: the path of a file, or its values."""

MOST_RECOMPUTE = 4.0
"""Times the multiply-accumulates: as far as a curve of memory and work goes."""

CORE = "cortex-m4"
"""Where instructions are counted unless a core or a target is named."""


@dataclass(frozen=True, repr=False)
class Planned(planner.Planned):
    """A plan, and how it compares with other plans of the same model. A notebook shows it as a picture.
    `source`: where the model comes from."""

    source: Source | None = field(default=None, compare=False)

    @cached_property
    def costs(self) -> Costs:
        """What it takes: `costs.on(chip)` in sum, `costs.layers()` op by op."""
        return costs_of(self.source, self, is_measured=False)

    def _repr_html_(self) -> str:
        from diagmem.reports.arena import plan_html

        return plan_html(self)

    def to_json(self) -> dict[str, Any]:
        """The plan as `diagmem plan --json` writes it."""
        return self.costs.plan_json(self)


class Files(dict[str, bytes]):
    """The contents of files by path. They are shown by their names and sizes."""

    def write(self, folder: str | Path) -> Path:
        """Writes all of them below a folder, which is made if it is missing."""
        for path, content in self.items():
            target = Path(folder, path)
            with reading():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        return Path(folder)

    def __repr__(self) -> str:
        return f"<{len(self)} files, {sum(map(len, self.values()))} bytes: {', '.join(sorted(self))}>"


@dataclass(frozen=True, slots=True)
class EmittedC:
    """Files by path, the arena that they run in, and what they cost. `missing`: what the target has too little of, in
    bytes. `not_streamed`: why the input is whole, though it was to be streamed."""

    files: dict[str, bytes]
    arena_bytes: int
    cost: Cost
    missing: Mapping[str, int] = field(default_factory=dict)
    not_streamed: str = ""

    def write(self, folder: str | Path) -> Path:
        """Writes the files below a folder, which is made if it is missing."""
        return Files(self.files).write(folder)

    def __repr__(self) -> str:
        return f"EmittedC(files={Files(self.files)!r}, arena_bytes={self.arena_bytes})"


def source_of(model: Model, example_inputs: Any = None) -> Source:
    """`example_inputs`: what a PyTorch module is called with."""
    if isinstance(model, Source):
        return model
    if isinstance(model, str | Path | bytes | Graph):
        if example_inputs is not None:
            raise PlanError("example_inputs are for PyTorch modules; a file has its own inputs: see --shape")
        return Source(model)
    return Source.exported(model, example_inputs)


def asked_for(options: Options | None, changes: Mapping[str, Any], place: str | None = None) -> Options:
    """The options of a call: `options` with the keywords applied. `place`: where the code runs; it selects that core's
    kernels unless a core, a target or kernels are named."""
    if options is None:
        asked = Options.of(changes)
    else:
        # Kernels that nobody has named follow the core.
        is_usual = options.kernels == Options().kernels and changes.keys() & {"cpu", "target"}
        asked = replace(options, **{**({"kernels": ""} if is_usual else {}), **changes})
    if place is None or asked.core is not None or asked.cpu or asked.kernels != Options().kernels:
        return asked
    from diagmem.kernels import CPUS

    return replace(asked, kernels=CPUS.get(place, asked.kernels))


def emulated_core(options: Options, usual: str) -> str:
    """The core to count on: that of the options, where there is one."""
    if options.core is not None and not options.core.cpu:
        raise PlanError(f"{options.core.name} is not emulated; name another core, such as --on {usual}")
    return usual if options.core is None else options.core.cpu


def read_plan(model: Model, plan: GivenPlan) -> Plan:
    """The plan of a model that was written as JSON. It may be unsafe: see `check`."""
    from diagmem.backends import json as plan_json

    source = source_of(model)
    if not isinstance(plan, str | Path):
        return plan_json.from_json(plan, source.graph_for("weights" in plan))
    try:
        text = content_of(plan, plan_json.LARGEST_TEXT_BYTES)
        return plan_json.from_text(text, source.graph_for(b'"weights"' in text))
    except PlanError as error:
        raise PlanError(f"{one_line(str(plan))}: {error}") from error


def given_plan(source: Source, plan: GivenPlan | Plan, options: Options) -> Plan:
    """The plan that a call was given, which must be safe and leaves nothing to choose. One that is a Plan already is
    taken as it is."""
    usual = Options()
    chosen = [field.name for field in fields(Options) if getattr(options, field.name) != getattr(usual, field.name)]
    if chosen:
        # The core determines the kernels, and not the other way round.
        name = next((name for name in chosen if name != "kernels"), chosen[0])
        raise PlanError(f"a given plan already has its options: leave out {name}")
    return plan if isinstance(plan, Plan) else checked(read_plan(source.runnable, plan))


def in_chip(
    graph: Graph, options: Options, tell: Tell = silently, made: planner.Planned | None = None
) -> planner.Planned:
    """A plan of a graph. For a target with several memories, of which no single one holds it: in all of them. `made`:
    the plan for a single one, where it is there already."""
    made, chip = made or planner.planned(graph, options, tell), options.chip
    if chip is None or options.pools or options.together or len(chip.memories) < 2 or not options.library.is_own:
        return made
    if made.arena_bytes <= chip.arena_limit_bytes or options.pinned_at:
        return made
    split = planner.planned(graph, replace(options, all_memories=True), tell)
    return made if split.plan.pools.missing_bytes else split


def with_baseline(source: Source, plan: GivenPlan | Plan) -> Planned:
    """A plan that was given, beside the one that takes no overlap."""
    chosen = _with_lives(given_plan(source, plan, Options()))
    graph = source.runnable
    usual = replace(chosen.options, overlap=False, schedule="file", pools=(), cores=1, skip=ALL)
    apart = planner.planned(graph, usual).plan
    rungs = (Rung("whole tensors", apart.arena_bytes), Rung("the given plan", chosen.arena_bytes))
    return Planned(chosen, apart, last_rungs=rungs, source=source)


def _with_lives(plan: Plan) -> Plan:
    """The plan with lifetimes and pressure, which reports need and its JSON does not contain."""
    from diagmem.planning.needs.build_problem import build_problem
    from diagmem.planning.needs.footprint import footprint

    by_rows: dict[str, Any] = {"schedule": ROWS, "input_rows": plan.input_rows} if plan.runs_by_rows else {}
    problem = build_problem(footprint(plan.graph, replace(plan.options, **by_rows)), plan.schedule)
    offsets = []
    for buffer in problem.buffers:
        if buffer.scratch_of is not None:
            offsets.append(plan.scratch[buffer.scratch_of])
        else:
            held = next(plan.storage[tensor] for tensor in buffer.tensors if tensor in plan.storage)
            offsets.append(held.offsets[buffer.rows.start if buffer.rows is not None else 0])
    return replace(plan, buffers=problem.buffers, buffer_offsets=tuple(offsets), pressure=problem.pressure)


def inspect(model: Model) -> Inspection:
    """What a model needs if every tensor is kept whole: live bytes at each op, and the op that sets the peak.

    >>> found = diagmem.inspect("zoo:vww_96_int8")
    >>> found.peak_bytes, found.peak_op
    (55296, 2)
    """
    from diagmem.reports.inspection import inspect as inspect_graph

    return inspect_graph(source_of(model).graph)


def bound(model: Model, **options: Any) -> Bounds:
    """Bytes that no plan of a model with all its ops stays below, in a few milliseconds: for searches that look at many
    networks. The keyword arguments are those of `plan`.

    >>> diagmem.bound("zoo:vww_96_int8")
    Bounds(whole_bytes=55296, overlapped_bytes=36864, rows_bytes=27648, streamed_bytes=288)
    """
    from diagmem.planning.bounds import bounds

    return bounds(source_of(model).graph, Options.of(options))


def overlap(model: Model, *, kernels: str = "diagmem", methods: str | Sequence[str] = METHODS) -> list[Overlap]:
    """How far each op's input may lie over its output, in bytes (O_s), by each method.

    >>> rows = diagmem.overlap("zoo:vww_96_int8", methods=["exact"])
    >>> rows[0].exact
    18338
    """
    methods = [methods] if isinstance(methods, str) else methods
    unknown = [method for method in methods if method not in METHODS]
    if unknown:
        raise PlanError(f"method '{unknown[0]}' is not known; known: {', '.join(METHODS)}")
    return list(all_overlaps(source_of(model).graph, Options(kernels).library, tuple(methods)))


def plan(model: Model, example_inputs: Any = None, **options: Any) -> Planned:
    """The plan of a model: in what order it runs, and where each tensor lies in one arena.

    A Keras model, or a PyTorch module with `example_inputs` that it can be called with, is exported first. The keywords
    are the fields of `diagmem.Options`. The plan has passed the validator; one that does not is a bug, and raises
    UnsafePlanError.

    >>> made = diagmem.plan("zoo:vww_96_int8")
    >>> made.arena_bytes, made.baseline_bytes
    (27750, 55296)
    >>> diagmem.plan("zoo:vww_96_int8", schedule="best").arena_bytes
    36864
    >>> diagmem.plan("zoo:vww_96_int8", input_rows=True).arena_bytes
    9922
    """
    return planned(source_of(model, example_inputs), Options.of(options))


def planned(source: Source, options: Options, tell: Tell = silently, is_measured: bool = False) -> Planned:
    """As `plan`. `tell` is called as each stage begins. `is_measured`: what the plan takes on a chip will be asked, as
    it always may be with a target."""
    return _shown(in_chip(source.graph_for(is_measured, options.needs_weights), options, tell), source)


def ways(source: Source, options: Options, tell: Tell = silently, is_measured: bool = False) -> tuple[Way, ...]:
    """The plan that `planned` makes, beside those of the other ways to run the model: layer by layer, row by row, with
    the input streamed. A plan that needs all memories of the target stands alone."""
    graph = source.graph_for(is_measured, options.needs_weights)
    found = planner.ways(graph, options, tell)
    chosen = next(way.made for way in found if way.is_chosen and way.made is not None)
    split = in_chip(graph, options, tell, chosen)
    if split is not chosen:
        return (Way(LAYER_BY_LAYER, _shown(split, source), is_chosen=True),)
    return tuple(way if way.made is None else replace(way, made=_shown(way.made, source)) for way in found)


def pareto(model: Model, **options: Any) -> tuple[Planned, ...]:
    """What less memory costs in work: plans for our own kernels, each with less RAM than the one before and no fewer
    multiply-accumulates, up to `recompute` times those of the first (4, if it is not given). Where kernels take
    scratch, there are also slower plans without it at the peak; the name of their kernels says so.

    >>> [made.arena_bytes for made in diagmem.pareto("zoo:kws_dscnn_int8", recompute=1.1)]
    [9760, 3866]
    """
    return planned_front(source_of(model), Options.of({"schedule": ROWS, **options}))


def planned_front(
    source: Source, options: Options, tell: Tell = silently, is_measured: bool = False
) -> tuple[Planned, ...]:
    """As `pareto`; the other parameters are those of `planned`."""
    most = MOST_RECOMPUTE if options.recompute == 1 else options.recompute
    asked = replace(options, schedule=ROWS, recompute=most)
    graph = source.graph_for(is_measured, asked.needs_weights)
    return tuple(_shown(made, source) for made in planner.planned_front(graph, asked, tell))


def check(model: Model, plan: GivenPlan | Plan) -> list[Finding]:
    """What is wrong with a plan of a model, from wherever it comes: nothing, if it is safe.

    >>> made = diagmem.plan("zoo:vww_96_int8")
    >>> diagmem.check("zoo:vww_96_int8", made.to_json())
    []
    """
    return findings_of(plan if isinstance(plan, Plan) else read_plan(model, plan))


def emit_c(
    model: Model,
    *,
    name: str | None = None,
    layout: FileLayout = "plain",
    plan: GivenPlan | Plan | None = None,
    selftest: int | str | Path = 0,
    options: Options | None = None,
    **changes: Any,
) -> EmittedC:
    """The model as ANSI C, ready to compile into firmware. `plan`: the plan to use; else one is made with these
    options. It gets the kernels of the `target` or `cpu`; by default it runs on any. A built-in model gets random
    weights. `selftest`: with a test of itself for the board, on so many drawn inputs or on a file of your own.

    >>> sorted(diagmem.emit_c("zoo:kws_dscnn_int8", name="kws").files)
    ['CMakeLists.txt', 'README.md', 'kws.c', 'kws.h', 'kws_kernels.h', 'kws_values.c', 'kws_weights.c', 'kws_weights.h']
    """
    from diagmem.backends import c
    from diagmem.backends.c.program import Program
    from diagmem.costs import Costs, Fit

    source, asked = source_of(model), asked_for(options, changes)
    made = in_chip(source.runnable, asked) if plan is None else None
    chosen = given_plan(source, plan or {}, asked) if made is None else made.plan
    program = Program.running(chosen, source.runnable)
    costs = Costs(chosen, source.runnable, emitted=program)
    from hashlib import sha256 as digest  # Slow to load: only where a plan is written.

    sha256 = digest(source.content).hexdigest() if source.has_file else None
    if selftest:
        from diagmem.pipeline.running import selftest_for
    files = c.emit(program, name, layout, sha256, test=selftest_for(costs, selftest) if selftest else None)
    cost, chip = costs.on(), chosen.options.chip
    fit = chip and Fit(chip, cost, chosen.pools.missing_bytes if chosen.options.pools else None)
    missing, why = dict(fit.missing()) if fit else {}, made.not_streamed if made else ""
    return EmittedC(files, program.arena_bytes, cost, missing, why)


def emit_tflm(
    model: Model,
    *,
    kernels: str = "tflm",
    align: int | None = None,
    keep_inputs: bool = False,
    remove_channels: bool = True,
    target: str = "",
    plan: GivenPlan | None = None,
) -> PlannedFile:
    """The .tflite file with its arena plan inside, for stock TensorFlow Lite Micro built with these kernels: `tflm` is
    safe for all of them. `.data` is the file. `remove_channels`: without channels that make no difference to any
    output; a file that has none stands in the new one as it was. `target`: a chip, whose core must run the kernels.
    `plan`: the plan to use, made for TFLM's kernels.

    >>> diagmem.emit_tflm("zoo:vww_96_int8", kernels="tflm-reference").plan.arena_bytes
    36880
    """
    from diagmem.backends.tflm import planned_file

    before = planned_file.file_of(source_of(model))
    if plan is not None:
        asked = Options("" if kernels == "tflm" else kernels, align, keep_inputs, target=target)
        return planned_file.emit(before.data, given_plan(Source(before.graph), plan, asked))
    options = Options(kernels, align, keep_inputs, target=target)
    less = planned_file.lean(*before, kernels) if remove_channels else before
    return planned_file.emit(less.data, planner.planned(less.graph, options).plan, before)


def in_tflm(source: Source, options: Options) -> PlannedFile:
    """As `emit_tflm`, with those of the options that TensorFlow Lite Micro knows."""
    from diagmem.backends.tflm.planned_file import LIBRARIES

    return emit_tflm(
        source,
        kernels=options.kernels if options.kernels in LIBRARIES else LIBRARIES[0],
        align=options.align,
        keep_inputs=options.keep_inputs,
        remove_channels=not {"remove-channels", ALL} & {*options.skip},
    )


def verify(
    model: Model,
    *,
    on: str | Sequence[str] | None = None,
    inputs: int = 50,
    seed: int = 0,
    plan: GivenPlan | Plan | None = None,
    options: Options | None = None,
    tell: Tell = silently,
    **changes: Any,
) -> list[Verdict]:
    """Builds and runs the model as it is emitted, in each of the places `on`, and compares bit for bit: its C code on
    the host or an emulated core, or its planned file in TensorFlow Lite Micro's interpreter; by default on the host,
    and on the core of the target. An emulated core runs the kernels that `emit_c` gives it, the host those for any
    core, unless `target` or `cpu` says whose to run. `host:3` is the host with three threads for three cores, which
    share the run. `tell` is called as each place begins.

    >>> [verdict.ok for verdict in diagmem.verify("zoo:kws_dscnn_int8", inputs=3)]
    [True]
    """
    from diagmem.verification.places import TFLM, Verification, carries_plan, check_place, cores_of

    if inputs < 1:
        raise PlanError(f"inputs is {inputs}: it must be 1 or more")
    source, asked = source_of(model), asked_for(options, changes)
    given = None if plan is None else given_plan(source, plan, asked)
    core = (asked if given is None else given.options).core
    on = [on] if isinstance(on, str) else on or ["host", *([core.cpu] if core is not None and core.cpu else [])]
    for place in on:
        check_place(place)
    if TFLM in on and (plan is not None or asked != Options()):
        raise PlanError(
            "plan and options apply to C code; on tflm the plan inside the file runs: use `emit tflm` first"
        )
    cores = max((cores_of(place) for place in on), default=1)
    made: dict[tuple[str, int], planner.Planned] = {}
    found: list[Verdict] = []
    opinion = None
    for place in on:
        tell(f"{place}: planning, building and running", len(found), len(on))
        if place == TFLM:
            for_tflm = None if carries_plan(source) else emit_tflm(source, kernels="tflm-reference")
            found.append(Verification(source, inputs, seed, planned=for_tflm).on(place))
            continue
        its = asked_for(asked, {"cores": cores} if cores_of(place) > 1 and asked.cores == 1 else {}, place)
        key = its.kernels, its.cores
        if given is None and key not in made:
            made[key] = in_chip(source.runnable, its)
        verification = Verification(source, inputs, seed, made[key] if given is None else given, opinion=opinion)
        found.append(verification.on(place))
        opinion = verification.second_opinion
    return found


def costs_of(source: Source | None, made: planner.Planned, is_measured: bool = True) -> Costs:
    """What a plan of a model costs, wherever it runs: as C, or in TensorFlow Lite Micro, which keeps the file with its
    plan in flash and something of its own in RAM. `is_measured`: how much that is, is worth a run."""
    from diagmem.backends.tflm.planned_file import LIBRARIES
    from diagmem.costs import Costs, Runtime

    options = made.plan.options
    if options.kernels not in LIBRARIES or source is None or not source.has_file or source.is_onnx:
        return Costs.of(made)
    content, graph, head_bytes = source.content, source.runnable, made.arena_bytes
    with suppress(PlanError):
        emitted = in_tflm(source, options)
        content, graph, head_bytes = emitted.data, emitted.graph, emitted.heads[options.kernels][1]
    kept_bytes, reason = None, ""
    if is_measured:
        from diagmem.verification import tflm

        try:
            kept_bytes = tflm.Arena.of(head_bytes, tflm.run(content, graph, ())).kept_bytes
        except tflm.TflmError as error:
            reason = str(error)
    return Costs.of(made, Runtime.of_tflm(len(content), kept_bytes, reason))


def profile(
    model: Model,
    *,
    on: str | None = None,
    plan: GivenPlan | Plan | None = None,
    seed: int = 0,
    mhz: float | None = None,
    options: Options | None = None,
    **changes: Any,
) -> Profile:
    """What each op costs on an emulated core: its instructions, exactly, the bytes of the arena that it touches, and
    its cycles. By default that is the core of the target, at its highest clock, else a Cortex-M4; it runs its own
    kernels, unless `cpu` says whose.

    >>> found = diagmem.profile("zoo:kws_dscnn_int8")
    >>> sum(op.macs for op in found.ops)
    2656768
    """
    from diagmem.costs import Costs
    from diagmem.verification.profile import profiled

    source = source_of(model)
    if plan is not None:
        chosen = given_plan(source, plan, asked_for(options, changes))
        core = on or emulated_core(chosen.options, CORE)
    else:
        core = on or emulated_core(asked_for(options, changes), CORE)
        chosen = in_chip(source.runnable, asked_for(options, changes, core)).plan
    return profiled(Costs(chosen, source.runnable), core, seed, mhz)


def diff(
    before: Model, after: Model, *, on: str | None = None, options: Options | None = None, **changes: Any
) -> Difference:
    """What changed between two models, each planned with these options, or two plans that were written as JSON: paths
    that end in .json. `on`: a core on which instructions are counted, too.

    >>> found = diagmem.diff("zoo:kws_dscnn_int8", "zoo:vww_96_int8")
    >>> found.before.arena_bytes < found.after.arena_bytes
    True
    """
    from diagmem.reports.difference import difference

    asked = asked_for(options, changes, place=on)
    return difference(*(_side(model, on, asked) for model in (before, after)))


def _side(model: Model, on: str | None, options: Options) -> Side:
    """What is compared: a model planned, and run if there is a core, or a plan."""
    from diagmem.reports.difference import planned_side, read_side

    if isinstance(model, str | Path) and Path(model).suffix == ".json":
        if on is not None:
            raise PlanError(f"{one_line(str(model))}: a plan alone cannot be run; compare models, or name no core")
        return read_side(Path(model))
    source = source_of(model)
    try:
        costs = costs_of(source, in_chip(source.runnable, options), is_measured=False)
        if on is None:
            return planned_side(source.name, costs)
        from diagmem.verification.profile import profiled

        return planned_side(source.name, costs, profiled(costs, on))
    except UnreadableFileError:
        raise
    except DiagmemError as error:
        raise type(error)(f"{one_line(source.label, 4096)}: {error}") from error


def report(model: Model, *, plan: GivenPlan | Plan | None = None, **options: Any) -> Files:
    """A page about the model's plan, the plan, and the pictures: the files' contents by path, with a method to write
    them to a folder. `plan`: one that is there already.

    >>> sorted(diagmem.report("zoo:kws_dscnn_int8"))[:3]
    ['arena-dark.png', 'arena.png', 'arena.svg']
    """
    source = source_of(model)
    if plan is not None:
        return report_of(with_baseline(source, plan))
    return report_of(planned(source, Options.of(options), is_measured=True))


def report_of(made: Planned, counted: Counted | None = None) -> Files:
    """The report about a plan that is there already. `counted`: instructions of a run of it."""
    from diagmem.reports.arena import before_after_drawing
    from diagmem.reports.charts import cores_drawing, live_drawing
    from diagmem.reports.report import report_page

    costs = made.costs if made.plan.options.chip is None else costs_of(made.source, made)
    told = costs.plan_json(made, costs.on(instructions=counted and counted.instructions))
    files = Files(
        {
            "report.html": report_page(made, counted, costs).encode(),
            "plan.json": (json.dumps(told, indent=2) + "\n").encode(),
        }
    )
    for name, draw in (("arena", before_after_drawing), ("live", live_drawing)):
        files.update(draw(made.baseline, made.plan).files(name))
    if made.plan.multicore is not None:
        files.update(cores_drawing(made.plan, made.plan.multicore.cores).files("cores"))
    return files


def known_targets() -> tuple[Chip, ...]:
    """The micro-controllers that are known.

    >>> "STM32F103xF" in [chip.name for chip in diagmem.known_targets()]
    True
    """
    from diagmem.targets import chips

    return chips()


def zoo_models() -> tuple[str, ...]:
    """The names of the built-in models; `zoo:NAME` stands for one wherever a model is asked for.

    >>> "vww_96_int8" in diagmem.zoo_models()
    True
    """
    from diagmem.frontends import zoo

    return tuple(zoo.models())


def _shown(made: planner.Planned, source: Source) -> Planned:
    return Planned(**{field.name: getattr(made, field.name) for field in fields(made)}, source=source)
