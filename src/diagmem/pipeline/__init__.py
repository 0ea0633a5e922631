"""The Python API: the one place where the stages are chained.

Every function is one of values: a model goes in, a result comes out, nothing is printed. What a function does not need
is not loaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from diagmem.frontends.source import Source
from diagmem.model.errors import DiagmemError, PlanError
from diagmem.pipeline.given import GivenPlan, Model, check_no_options, for_cpu, read_plan, safe_plan, source_of
from diagmem.planning import planner
from diagmem.planning.bounds import METHODS, Overlap, all_overlaps
from diagmem.planning.options import ROWS, Options
from diagmem.planning.plan import Plan, findings_of
from diagmem.planning.planner import Tell, silently
from diagmem.validation import Finding

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from diagmem.backends.c import FileLayout
    from diagmem.pipeline.costs import diff, needs_of, profile
    from diagmem.pipeline.planned_files import emit_tflm
    from diagmem.pipeline.together import emit_c_together, verify_together, wired
    from diagmem.planning.bounds import Bounds, Inspection
    from diagmem.targets import Chip
    from diagmem.verification.places import Verdict

__all__ = [
    "MOST_RECOMPUTE",
    "EmittedC",
    "Failed",
    "GivenPlan",
    "Model",
    "Planned",
    "bound",
    "check",
    "diff",
    "emit_c",
    "emit_c_together",
    "emit_tflm",
    "inspect",
    "known_targets",
    "needs_of",
    "overlap",
    "pareto",
    "pareto_telling",
    "plan",
    "plan_many",
    "plan_telling",
    "profile",
    "read_plan",
    "report",
    "report_of",
    "safe_plan",
    "verdicts",
    "verify",
    "verify_together",
    "wired",
    "zoo_models",
]

MOST_RECOMPUTE = 4.0
"""Times the multiply-accumulates: as far as a curve of memory and work goes."""

_ELSEWHERE = {
    "costs": ("diff", "needs_of", "profile"),
    "planned_files": ("emit_tflm",),
    "together": ("emit_c_together", "verify_together", "wired"),
}
"""What is loaded when it is first asked for, by its module."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for module, names in _ELSEWHERE.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


class Planned(planner.Planned):
    """A plan, and what it is worth beside other plans of the same model. It shows itself as a picture in a notebook."""

    def _repr_html_(self) -> str:
        from diagmem.reports import plan_html

        return plan_html(self)

    def to_json(self) -> dict[str, Any]:
        """The plan as `diagmem plan --json` writes it."""
        from diagmem.planning import json as plan_json

        return plan_json.to_json(self)


@dataclass(frozen=True, slots=True)
class Failed:
    """A model that could not be planned, and why."""

    model: Model
    error: DiagmemError


@dataclass(frozen=True, slots=True)
class EmittedC:
    """C code: the contents of its files by path, and the arena that it runs in."""

    files: dict[str, bytes]
    arena_bytes: int


def inspect(model: Model) -> Inspection:
    """What a model needs if every tensor is kept whole: live bytes at each op, and the op that sets the peak.

    >>> found = diagmem.inspect("zoo:vww_96_int8")
    >>> found.peak_bytes, found.peak_op
    (55296, 2)
    """
    from diagmem.planning.bounds import inspect as inspect_graph

    return inspect_graph(source_of(model).graph)


def bound(model: Model, **options: Any) -> Bounds:
    """Bytes that no plan of a model with all its ops stays below, in a few milliseconds: for searches that look at many
    networks. The keyword arguments are those of `plan`.

    >>> diagmem.bound("zoo:vww_96_int8")
    Bounds(whole_bytes=55296, overlapped_bytes=36864, rows_bytes=27648, streamed_bytes=288)
    """
    from diagmem.planning.bounds import bounds

    return bounds(source_of(model).graph, Options.of(options))


def overlap(model: Model, *, kernels: str = "diagmem", methods: Sequence[str] = METHODS) -> list[Overlap]:
    """How far each op's input may lie over its output, in bytes (O_s), by each method.

    >>> rows = diagmem.overlap("zoo:vww_96_int8", methods=["exact"])
    >>> rows[0].exact
    18338
    """
    unknown = [method for method in methods if method not in METHODS]
    if unknown:
        raise PlanError(f"method '{unknown[0]}' is not known; known: {', '.join(METHODS)}")
    return list(all_overlaps(source_of(model).graph, Options(kernels).library, tuple(methods)))


def plan(model: Model, example_inputs: Any = None, **options: Any) -> Planned:
    """The plan of a model: in what order it runs, and where each tensor lies in one arena.

    A model of Keras, or a module of PyTorch with `example_inputs` that it can be called with, is exported first. The
    keyword arguments are the fields of `diagmem.Options`. The plan has passed the validator; one that does not is a
    bug, and raises UnsafePlanError.

    >>> made = diagmem.plan("zoo:vww_96_int8")
    >>> made.arena_bytes, made.baseline_bytes, made.optimal
    (36864, 55296, True)
    >>> diagmem.plan("zoo:vww_96_int8", schedule="rows", input_rows=True).arena_bytes
    9922
    """
    return plan_telling(source_of(model, example_inputs), silently, options)


def plan_telling(model: Model, tell: Tell, options: Mapping[str, Any]) -> Planned:
    """As `plan`; `tell` is called as each stage begins."""
    asked, source = Options.of(options), source_of(model)
    return _shown(planner.planned(source.graph_for(asked.weights_pool), asked, tell))


def pareto(model: Model, **options: Any) -> tuple[Planned, ...]:
    """What less memory costs in work: plans for our own kernels of which each takes less RAM than the one before, and
    no fewer multiply-accumulates, up to `recompute` times those of the first (4, if it is not given). Where kernels
    take scratch, there are plans without it at the peak: slower ones, whose kernels say so by their name.

    >>> [made.arena_bytes for made in diagmem.pareto("zoo:kws_dscnn_int8", recompute=1.1)]
    [9760, 3866]
    """
    return pareto_telling(model, silently, options)


def pareto_telling(model: Model, tell: Tell, options: Mapping[str, Any]) -> tuple[Planned, ...]:
    """As `pareto`; `tell` is called as each stage begins."""
    asked = Options.of({**options, "schedule": ROWS})
    if asked.recompute == 1:
        asked = replace(asked, recompute=MOST_RECOMPUTE)
    return tuple(_shown(made) for made in planner.planned_front(source_of(model).graph, asked, tell))


def plan_many(models: Iterable[Model], executor: Executor | None = None, **options: Any) -> Iterator[Planned | Failed]:
    """Plans of many models, in their order, with the same options; on a process pool, or any executor that maps. A
    model that cannot be planned gives its error, and the others go on.

    >>> [made.arena_bytes for made in diagmem.plan_many(["zoo:vww_96_int8", "zoo:resnet8_int8"])]
    [36864, 33304]
    """
    Options.of(options)
    return (executor.map if executor else map)(partial(_planned_or_failed, options=options), models)


def _planned_or_failed(model: Model, options: dict[str, Any]) -> Planned | Failed:
    try:
        return plan(model, **options)
    except DiagmemError as error:
        return Failed(model, error)
    except OSError as error:
        return Failed(model, DiagmemError(error.strerror or str(error)))


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
    plan: GivenPlan | None = None,
    cpu: str | None = None,
    **options: Any,
) -> EmittedC:
    """The model as ANSI C, ready to compile into firmware. `plan`: the plan to use; else one is made with these
    options. `cpu`: the core whose kernels it gets; by default it runs on any. A model of the zoo gets random weights.

    >>> sorted(diagmem.emit_c("zoo:kws_dscnn_int8", name="kws").files)
    ['CMakeLists.txt', 'README.md', 'kws.c', 'kws.h', 'kws_kernels.h', 'kws_values.c', 'kws_weights.c', 'kws_weights.h']
    """
    from diagmem.backends import c
    from diagmem.backends.c.program import Program

    source = source_of(model)
    if plan is None:
        program = Program.of(planner.planned(source.runnable, Options.of(for_cpu(cpu, options))))
    else:
        check_no_options({**options, **({} if cpu is None else {"cpu": cpu})})
        program = Program.running(safe_plan(source.runnable, plan), source.runnable)
    from hashlib import sha256 as digest  # Slow to load: only where a plan is written.

    sha256 = digest(source.content).hexdigest() if source.has_file else None
    return EmittedC(c.emit(program, name, layout, sha256), program.arena_bytes)


def verify(
    model: Model,
    *,
    on: Sequence[str] = ("host",),
    inputs: int = 50,
    seed: int = 0,
    plan: GivenPlan | None = None,
    cpu: str | None = None,
    **options: Any,
) -> list[Verdict]:
    """Builds and runs the model as it is handed out, in each of the places `on`, and compares bit for bit: its C code
    on the host or an emulated core, or its planned file in TensorFlow Lite Micro's interpreter. An emulated core runs
    the kernels that `emit_c` gives it, the host those for any core, unless `cpu` says whose to run. `host:3` is the
    host with three threads for three cores, which share the run.

    >>> [verdict.ok for verdict in diagmem.verify("zoo:kws_dscnn_int8", inputs=3)]
    [True]
    """
    return list(verdicts(source_of(model), on, inputs, seed, plan, options, cpu))


def verdicts(
    source: Source,
    on: Sequence[str],
    inputs: int,
    seed: int,
    plan: GivenPlan | Plan | None,
    options: Mapping[str, Any],
    cpu: str | None = None,
) -> Iterator[Verdict]:
    """One for each place, as they come. A plan that is a Plan already is run as it is."""
    from diagmem.kernels import GENERIC
    from diagmem.pipeline.planned_files import emit_tflm
    from diagmem.verification.places import TFLM, Verification, carries_plan, check_place, cores_of

    for place in on:
        check_place(place)
    cores = max((cores_of(place) for place in on), default=1)
    if TFLM in on and (plan is not None or options or cpu):
        raise PlanError("a plan, and options of one, are for C code; on tflm a plan is run inside its file: emit it")
    if plan is not None:
        check_no_options({**options, **({} if cpu is None else {"cpu": cpu})})
    made: dict[str, planner.Planned | Plan] = {}
    opinion = None
    for place in on:
        if place == TFLM:
            for_tflm = None if carries_plan(source) else emit_tflm(source, kernels="tflm-reference")
            yield Verification(source, inputs, seed, planned=for_tflm).on(place)
            continue
        is_team = cores_of(place) > 1
        core = GENERIC if plan is not None else f"{cpu or place.partition(':')[0]}{cores if is_team else ''}"
        if core not in made and plan is not None:
            made[core] = plan if isinstance(plan, Plan) else safe_plan(source.runnable, plan)
        elif core not in made:
            asked = {"cores": cores, **options} if is_team else options
            made[core] = planner.planned(source.runnable, Options.of(for_cpu(cpu, asked, place)))
        verification = Verification(source, inputs, seed, made[core], opinion=opinion)
        yield verification.on(place)
        opinion = verification.second_opinion


def report(model: Model, **options: Any) -> dict[str, bytes]:
    """A page about the model's plan, the plan, and the pictures: the files' contents by path.

    >>> sorted(diagmem.report("zoo:kws_dscnn_int8"))[:3]
    ['arena-dark.png', 'arena.png', 'arena.svg']
    """
    return report_of(plan(model, **options))


def report_of(made: planner.Planned, instructions: Mapping[int, int] | None = None) -> dict[str, bytes]:
    """The report about a plan that is there already. `instructions`: those of each op, by its index in the file."""
    from diagmem.planning import json as plan_json
    from diagmem.reports.arena import before_after_drawing
    from diagmem.reports.charts import live_drawing
    from diagmem.reports.cores import cores_drawing
    from diagmem.reports.report import report_page
    from diagmem.targets import chips

    files = {
        "report.html": report_page(
            made, [chip for chip in chips() if chip.core.refusal is None], instructions
        ).encode(),
        "plan.json": (json.dumps(plan_json.to_json(made), indent=2) + "\n").encode(),
    }
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


def _shown(made: planner.Planned) -> Planned:
    return Planned(made.plan, made.baseline, made.ladder, made.removals)
