"""`diagmem plan`: where everything goes, how much that saves, and whether it fits."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagmem.cli._commands import command_of
from diagmem.cli._limits import Fitting, Limits, Verdict, usual_core
from diagmem.cli._models import naming_model
from diagmem.cli._show import ANSWER_IS_NO, BAD_INPUT, show
from diagmem.cli._text import curve_lines, how, plan_lines, summary
from diagmem.cli._work import workers, working
from diagmem.model.errors import DiagmemError, PlanError
from diagmem.planning.options import Options

if TYPE_CHECKING:
    from diagmem.backends.tflm.planned_file import EmbeddedPlan
    from diagmem.costs import Layer
    from diagmem.frontends.source import Source
    from diagmem.pipeline.several import Together
    from diagmem.planning.plan import Plan
    from diagmem.planning.planner import Planned, Way
    from diagmem.reports.why import Chain


@command_of("plan")
def command(
    sources: list[Source],
    options: Options,
    budget: int | None,
    flash: int | None,
    output: Path | None,
    fit: bool,
    svg_path: str | None,
    pareto: bool,
    why: str | None,
    jobs: int,
    with_layers: bool,
    verbose: bool,
    json_path: str | None,
) -> None:
    # numpy's linear algebra would start threads that nothing here uses; they cost 30 ms.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    limits = Limits(budget, flash, options.chip)
    single = {"--fit": fit, "--why": why, "--layers": with_layers, "-o": output, "--svg": svg_path}
    if len(sources) > 1 and (name := next((name for name, value in single.items() if value), None)):
        raise PlanError(f"{name} is for one model: leave it out, or give models one by one")
    if pareto:
        _check_curve(sources, svg_path, options)
        _show_curve(sources[0], options, limits, json_path, output)
        return
    if len(sources) > 1:
        found = _many(sources, jobs, options, limits)
    else:
        one = _fitted(sources[0], options, limits) if fit else _one(sources[0], options, limits, json_path != "-")
        found = [replace(one, why=_chains(one.made.plan, why), layers=_layers(one) if with_layers else ())]
    found, together = _together(found, options, limits)
    results = [one for one in found if isinstance(one, Result)]
    verdict = _verdict_together(together, limits)
    files = {Path(svg_path): _drawn(results[0])} if svg_path else {}
    is_no = not (all(one.is_good for one in results) and (verdict is None or verdict.fits))
    status = BAD_INPUT if len(results) < len(found) else ANSWER_IS_NO if is_no else 0
    if len(found) > 1:
        more, parts = partial(_together_json, together, verdict), summary(found, together, verdict)
        show(json_path, lambda: {"plans": [one.to_json() for one in found], **more()}, parts, output, status)
    else:
        show(json_path, found[0].to_json, plan_lines(results[0], verbose), output, status, files)


@dataclass(frozen=True, slots=True)
class Result:
    """A model's plan, whether it fits, and the plan that the file carried."""

    source: Source
    made: Planned
    verdict: Verdict
    carried: EmbeddedPlan | None = None
    fitting: Fitting | None = None
    why: tuple[Chain, ...] = ()
    ways: tuple[Way, ...] = ()
    layers: tuple[Layer, ...] = ()
    error: None = None

    def missing(self, made: Planned | None = None) -> Mapping[str, int]:
        """What there is too little of for the plan, or for another way to run the model, and by how many bytes."""
        return (self.verdict if made is None else self.verdict.limits.verdict(self.source, made)).missing

    @property
    def is_good(self) -> bool:
        return self.verdict.fits and not (self.carried and self.carried.findings)

    def to_json(self) -> dict[str, Any]:
        from diagmem import pipeline

        cost = self.verdict.fit.cost if self.verdict.fit else None
        told = pipeline.costs_of(self.source, self.made, is_measured=False).plan_json(self.made, cost)
        carried = {"embedded": _embedded_json(self.carried)} if self.carried else {}
        tried = self.fitting.to_json() if self.fitting else {}
        why = {"why": [chain.to_json() for chain in self.why]} if self.why else {}
        layers = {"layers": [layer.to_json() for layer in self.layers]} if self.layers else {}
        return {**told, **self.verdict.to_json(), **carried, **tried, **why, **layers}


@dataclass(frozen=True, slots=True)
class Bad:
    """A model of several that could not be planned."""

    name: str
    error: DiagmemError

    def to_json(self) -> dict[str, Any]:
        return {"model": self.name, "error": str(self.error)}


def _chains(plan: Plan, what: str | None) -> tuple[Chain, ...]:
    if what is None:
        return ()
    from diagmem.reports.why import Reasons

    return Reasons(plan).asked(what)


def _layers(result: Result) -> tuple[Layer, ...]:
    from diagmem import pipeline

    return pipeline.costs_of(result.source, result.made).layers()


def _one(source: Source, options: Options, limits: Limits, is_shown: bool) -> Result:
    """The plan, beside the other ways to run the model where people see it."""
    from diagmem import pipeline

    with naming_model(source.label), working("planning") as bar:
        if not is_shown or not options.library.is_own or options.pools or options.cores > 1 or options.together:
            return _judged(source, _planned(source, options, limits, bar.tell), options, limits)
        ways = pipeline.ways(source, options, bar.tell, is_measured=limits.are_set)
        made = next(way.made for way in ways if way.is_chosen and way.made is not None)
        return replace(_judged(source, made, options, limits), ways=ways)


def _planned(
    source: Source,
    options: Options,
    limits: Limits,
    tell: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Planned:
    from diagmem import pipeline

    return pipeline.planned(source, options, tell, is_measured=limits.are_set)


def _fitted(source: Source, options: Options, limits: Limits) -> Result:
    fitting = Fitting.of(source, options, limits, sys.argv[1:])
    _, made = fitting.best
    return Result(source, made, limits.verdict(source, made), fitting=fitting)


def _judged(source: Source, made: Planned, options: Options, limits: Limits) -> Result:
    return Result(source, made, limits.verdict(source, made), _embedded_in(source, options.kernels))


def _many(sources: list[Source], jobs: int, options: Options, limits: Limits) -> list[Result | Bad]:
    """One bad model does not keep the others from being planned."""
    job = partial(_planned_or_error, options=options, limits=limits)
    found: list[Result | Bad] = []
    with nullcontext() if jobs == 1 else workers(jobs) as pool, working("planning") as bar:
        for source, made in zip(sources, (pool.map if pool else map)(job, sources), strict=True):
            if isinstance(made, DiagmemError):
                found.append(Bad(source.label, made))
            else:
                found.append(_judged(source, made, options, limits))
            bar.tell("planning", len(found), len(sources))
    return found


def _planned_or_error(source: Source, options: Options, limits: Limits) -> Planned | DiagmemError:
    try:
        with naming_model(source.label):
            return _planned(source, options, limits)
    except DiagmemError as error:
        return error
    except OSError as error:
        return DiagmemError(f"{source.label}: {error.strerror or error}")


def _embedded_in(source: Source, kernels: str) -> EmbeddedPlan | None:
    """The plan inside a file, if there is one, checked for the kernels asked for; by default for those that the plan
    names, else for all of TFLM's."""
    if source.is_from_zoo or source.is_onnx or not source.has_file:
        return None
    from diagmem.backends.tflm import PLAN_ENTRY

    if PLAN_ENTRY.encode() not in source.content:
        return None
    from diagmem.backends.tflm import metadata
    from diagmem.backends.tflm.planned_file import LIBRARIES, embedded_plan

    with naming_model(str(source.model)):
        origin = metadata.origin(source.content)
        named = origin.kernels if origin is not None and origin.kernels in LIBRARIES else LIBRARIES[0]
        asked = named if kernels == Options().kernels else kernels
        return embedded_plan(source.content, source.graph, asked)


def _embedded_json(found: EmbeddedPlan) -> dict[str, Any]:
    from diagmem.backends import json as plan_json

    return {
        "kernels": found.plan.options.kernels,
        "maker": found.origin.tool if found.origin else None,
        "arena_bytes": found.plan.arena_bytes,
        "safe": not found.findings and not found.doubts,
        "findings": [str(finding) for finding in (*found.findings, *found.doubts)],
        "overlaps": plan_json.overlaps_json(found.plan),
        "tensors": plan_json.tensors_json(found.plan),
    }


def _together(
    found: Sequence[Result | Bad], options: Options, limits: Limits
) -> tuple[list[Result | Bad], Together | None]:
    """Models that share an arena, where that is asked for, each with its part of it or one of its own."""
    results = [one for one in found if isinstance(one, Result)]
    if not results or not options.together:
        return list(found), None
    from diagmem.pipeline.several import Together, alone

    with working("planning each alone") as bar:
        apart = []
        for number, one in enumerate(results):
            bar.tell("planning each alone", number, len(results))
            with naming_model(one.source.label):
                apart.append(alone(one.made, partial(_planned, one.source, limits=limits), options))
    together = Together.of([one.made for one in results], apart)
    again = (
        replace(one, made=made, verdict=limits.verdict(one.source, made))
        for one, made in zip(results, together.plans, strict=True)
    )
    return [next(again) if isinstance(one, Result) else one for one in found], together


def _verdict_together(found: Together | None, limits: Limits) -> Verdict | None:
    """Whether what all models take fits. Each memory for itself is judged plan by plan."""
    if found is None:
        return None
    if not limits.are_set:
        return Verdict(limits, found.total_bytes, found.missing_bytes)
    from diagmem.costs import Fit

    cost = found.cost(core=usual_core(found.plans[0].plan.options.library))
    has_pools = any(made.plan.options.pools for made in found.plans)
    fit = None if limits.chip is None else Fit(limits.chip, cost, found.missing_bytes if has_pools else None)
    return Verdict(limits, found.total_bytes, found.missing_bytes, cost.flash.total_bytes, fit)


def _together_json(found: Together | None, verdict: Verdict | None) -> dict[str, Any]:
    if found is None or verdict is None:
        return {}
    return {
        "together": {
            "mode": found.mode,
            "shared_bytes": found.shared_bytes,
            **({"pools_bytes": dict(found.pools_bytes)} if len(found.pools_bytes) > 1 else {}),
            "kept_bytes": found.kept_bytes,
            **({"own_arenas": [made.model.name for made in found.own_arenas]} if found.own_arenas else {}),
            "total_bytes": found.total_bytes,
            "apart_bytes": found.apart_bytes,
            "cost": found.cost().to_json(),
            **({"missing_bytes": verdict.missing.get("RAM", 0), **verdict.to_json()} if verdict.limits.are_set else {}),
        }
    }


def _check_curve(sources: list[Source], svg_path: str | None, options: Options) -> None:
    if len(sources) != 1:
        raise PlanError("--pareto lists plans of one MODEL: give a single one")
    if svg_path:
        raise PlanError("--pareto lists several plans, and --svg draws one: leave out either")
    if options.pools:
        raise PlanError("--pareto lists arenas in one memory: leave out --pool and --all-memories, or --pareto")


def _show_curve(source: Source, options: Options, limits: Limits, json_path: str | None, output: Path | None) -> None:
    """Lists plans that take less and less memory for more and more work. The exit status is 1 if a limit is given and
    none stays within it."""
    from diagmem import pipeline

    with naming_model(source.label), working("planning") as bar:
        front = pipeline.planned_front(source, options, bar.tell, is_measured=limits.are_set)
        verdicts = [limits.verdict(source, made) for made in front]
    rows = [
        {
            "how": how(made.plan),
            "arena_bytes": made.arena_bytes,
            "recompute": round(made.plan.recompute, 4),
            "cost": (
                verdict.fit.cost if verdict.fit else pipeline.costs_of(source, made, is_measured=False).on()
            ).to_json(),
            **verdict.to_json(),
        }
        for made, verdict in zip(front, verdicts, strict=True)
    ]
    limited = {} if limits.ram_bytes is None else {"limit_bytes": limits.ram_bytes}
    most = pipeline.MOST_RECOMPUTE if options.recompute == 1 else options.recompute
    found = {"model": front[0].model.name, "most_recompute": most, **limited, "pareto": rows}
    status = 0 if any(verdict.fits for verdict in verdicts) else ANSWER_IS_NO
    show(json_path, lambda: found, curve_lines(front, verdicts), output, status)


def _drawn(result: Result) -> bytes:
    from diagmem.reports.arena import arena_drawing

    return arena_drawing(result.made.plan).svg().encode()
