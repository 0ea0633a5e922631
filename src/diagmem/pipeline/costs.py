"""What a model costs: instructions op by op, flash and RAM on a chip, and what a change does to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagmem.frontends.source import Source
from diagmem.model.errors import DiagmemError, PlanError, UnreadableFileError, one_line
from diagmem.pipeline import GivenPlan, Model, asked_for, emulated_core, given_plan, in_chip, source_of
from diagmem.planning import planner
from diagmem.planning.options import Options

if TYPE_CHECKING:
    from diagmem.costs import Costs
    from diagmem.planning.plan import Plan
    from diagmem.reports.difference import Difference, Side
    from diagmem.verification.profile import Profile


CORE = "cortex-m4"
"""Where instructions are counted unless a core or a target is named."""


def profile(
    model: Model,
    *,
    on: str | None = None,
    plan: GivenPlan | Plan | None = None,
    seed: int = 0,
    options: Options | None = None,
    **changes: Any,
) -> Profile:
    """What each op costs on an emulated core: its instructions, exactly, and the bytes of the arena that it touches. By
    default that is the core of the target, else a Cortex-M4; it runs its own kernels, unless `cpu` says whose.

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
    return profiled(Costs(chosen, source.runnable), core, seed)


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
            raise PlanError(
                f"{one_line(str(model))}: a plan alone cannot be run; compare models, or leave out the core"
            )
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
        raise type(error)(f"{one_line(source.name)}: {error}") from error


def costs_of(source: Source | None, made: planner.Planned, is_measured: bool = True) -> Costs:
    """What a plan of a model costs, wherever it runs: as C, or in TensorFlow Lite Micro, which keeps the file in flash
    and something of its own in RAM. `is_measured`: how much that is, is worth a run."""
    from diagmem.backends.tflm.planned_file import LIBRARIES
    from diagmem.costs import Costs, Runtime

    if made.plan.options.kernels not in LIBRARIES or source is None or not source.has_file or source.is_onnx:
        return Costs.of(made)
    runtime = Runtime(len(source.content), notes=("TFLM's code, which depends on its build",))
    if is_measured:
        from diagmem.verification import tflm

        try:
            kept = tflm.run(source.content, source.runnable, ()).persistent_bytes
            runtime = replace(runtime, kept_bytes=kept)
        except tflm.TflmError as error:
            unknown = f"what TFLM keeps in RAM, which was not measured: {error}"
            runtime = replace(runtime, notes=(*runtime.notes, unknown))
    return Costs.of(made, runtime)
