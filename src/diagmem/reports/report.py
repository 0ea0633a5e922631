"""The report: one HTML page about a model's plan that needs nothing but a browser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from diagmem.costs import Costs, Fit, Layer, cost_together
from diagmem.kernels import Library, kernels_on
from diagmem.kernels.overlaps import METHODS, overlaps
from diagmem.model.errors import PlanError
from diagmem.model.graph import Node
from diagmem.model.schedule import PUSH
from diagmem.ops import kind_of
from diagmem.planning.cores.multicore import running_steps
from diagmem.planning.plan import Plan
from diagmem.planning.planner import Planned
from diagmem.reports.arena import legend_entries, page_map
from diagmem.reports.blocks import Fronts, Picture, sort_of
from diagmem.reports.charts import cores_drawing, live_drawing
from diagmem.reports.pages import render
from diagmem.reports.why import Reasons
from diagmem.targets import RESERVE_BYTES, Chip, Core, chips
from diagmem.transforms import weights_of

MOST_CHAINS = 500
"""Buffers: for more than these the page does not tell why each lies where it does."""

LAYER_HEADINGS = ("step", "op", "kind", "output", "shape", "MACs", "weights", "live RAM", "shared")

MOST_TOUCHES = 1_000_000
"""Loops that touch more are not replayed for the page, which is to be there in seconds."""


class Counted(NamedTuple):
    """Instructions of a run on a core: in total, and of each op by its index in the file."""

    on: str
    instructions: int
    ops: Mapping[int, int]


def steps_data(pictures: tuple[Picture, Picture]) -> dict[str, Any]:
    """For the plans before and after. Operations that are alike share their fronts and figures (`sorts`)."""
    before, after = (picture.plan for picture in pictures)
    step_before = {before.graph.ops[op].number: step for step, op in enumerate(before.schedule.ops)}
    # The caller hands over rows of the input before the first op of the file needs them whole.
    steps = [0 if op == PUSH else step_before[after.graph.ops[op].number] for op in after.schedule.ops]
    sorts: dict[Hashable, int] = {}
    figures: list[dict[str, Any]] = []
    for node in after.graph.nodes:
        if sort_of(node) not in sorts:
            sorts[sort_of(node)] = len(figures)
            figures.append(_figures(node, after.options.library, pictures[1].fronts[node.op.index]))
    turns = Counter(step.op for step in after.schedule.steps if step.turn is not None)
    return {
        "schedule": list(after.schedule.ops),
        "needed": list(after.pressure),
        "words": [[picture.step_words(step) for step in range(picture.rows)] for picture in pictures],
        "whole": [pictures[0].live[step] for step in steps],
        "before": steps,
        "tensors": {
            t.index: [t.label, "×".join(map(str, t.shape)), t.dtype.value, t.size_bytes, after.offsets.get(t.index)]
            for t in after.graph.tensors
            if not t.is_constant
        },
        "ops": [
            [
                node.op.kind,
                [t.index for _, t in node.activations()],
                list(node.op.outputs),
                sorts[sort_of(node)],
                node.op.number,
                turns.get(node.op.index, 0),
            ]
            for node in after.graph.nodes
        ],
        "sorts": figures,
        "spans": [[[b.first_step, b.end_step] for b in picture.plan.buffers] for picture in pictures],
        "names": [b.name for b in after.buffers],
        "why": _why(after),
    }


def _why(plan: Plan) -> list[list[list[int | None]]]:
    """For each buffer the chain that holds it where it is: (buffer, offset, distance to the next one, step, bytes free
    below) each. Nothing where there are very many buffers."""
    if len(plan.buffers) > MOST_CHAINS:
        return []
    reasons, number = Reasons(plan), {buffer: n for n, buffer in enumerate(plan.buffers)}
    found = {reasons.problem.buffers[n]: reasons.of_buffer(n).links for n in range(len(reasons.problem.buffers))}
    return [
        [[number[k.buffer], k.offset, k.distance_bytes, k.step, k.free_bytes] for k in found[buffer]]
        for buffer in plan.buffers
    ]


def _figures(node: Node, library: Library, found: Fronts | None) -> dict[str, Any]:
    """O_s in bytes by method for each input in RAM and each output, in that order, and the fronts of each."""
    methods = METHODS if _touches(node, library) <= MOST_TOUCHES else tuple(m for m in METHODS if m != "algorithmic")
    return {
        "pairs": [
            {key: row[key] for key in (*METHODS, "paper_unsafe")}
            for row in (overlap.to_json() for overlap in overlaps(node, library, methods))
        ],
        "written": [_rounded(front) for front in found.written] if found else [],
        "needed": [_rounded(found.needed[position] or ()) for position, _ in node.activations()] if found else [],
    }


def _rounded(front: tuple[tuple[float, int], ...]) -> list[tuple[float, int]]:
    return [(round(done, 4), at) for done, at in front]


def _touches(node: Node, library: Library) -> int:
    kind, order = kind_of(node.op.kind), library.order(node)
    if kind is None or order is None:
        return 0
    return sum(int(runs.length.sum()) for runs in kind.accesses(node, order).reads if runs is not None)


def fit_on(chip: Chip, costs: Costs) -> Fit:
    """How a plan stands to a chip. One that is split over memories was split for its own target; on other chips it
    counts as it would be in a single memory."""
    plan = costs.plan
    if chip == plan.options.chip:
        return Fit(chip, costs.on(chip), plan.pools.missing_bytes if plan.options.pools else None)
    return Fit(chip, cost_together([costs], plan.pools.single_bytes or plan.arena_bytes, chip))


def fits_of(costs: Costs) -> list[Fit]:
    """How a plan stands to each of the chips whose core can run its kernels."""
    able = {chip.core for chip in chips() if _runs(chip.core, costs.plan.options.kernels)}
    return [fit_on(chip, costs) for chip in chips() if chip.core in able]


def _runs(core: Core, kernels: str) -> bool:
    with suppress(PlanError):
        return core.refusal is None and bool(kernels_on(core.name, core.cpu, kernels))
    return False


def report_page(made: Planned, counted: Counted | None = None, costs: Costs | None = None) -> str:
    """The page about a plan, beside the best one without overlap in the file's order. `costs`: the plan's, if they are
    there already."""
    before, after, shared = made.baseline, made.plan, made.plan.multicore
    pictures = Picture(before), Picture(after)
    largest = max(1, before.end_bytes, after.end_bytes)
    costs, target = costs or Costs.of(made), after.options.chip
    costs_before = Costs(before, made.model, costs.runtime)
    fits = [(fit_on(fit.chip, costs_before), fit) for fit in fits_of(costs)]
    cost = costs.on(instructions=counted and counted.instructions)
    further = {"instructions": counted is not None, "cycles": cost.cycles is not None}
    headings = [*LAYER_HEADINGS, *(name for name, is_known in further.items() if is_known), "share"]
    return render(
        "report",
        ("plan", "theme", "report"),
        before=before,
        after=after,
        graph=after.graph,
        rungs=made.ladder,
        removals=made.removals,
        not_streamed=made.not_streamed,
        largest=largest,
        # Row by row so little is left that it would hardly be seen beside the whole: each map has a scale of its own.
        maps=[page_map(p, p.plan.end_bytes if after.runs_by_rows else largest).inline() for p in pictures],
        legend=list(legend_entries(pictures)),
        live=live_drawing(before, after).inline(),
        cores=cores_drawing(after, shared.cores).inline() if shared else "",
        barriers=shared.barriers(running_steps(after)) if shared else 0,
        fit=target and fit_on(target, costs),
        fits=fits,
        others=sum(chip.core.refusal is None for chip in chips()) - len(fits),
        headings=[(name, "number" if name not in ("kind", "output", "shape") else "") for name in headings],
        ops=list(_op_rows(pictures[1], costs.layers(counted and counted.ops), [*headings])),
        counted=counted,
        cost=cost,
        file_bytes=weights_of(made.model),
        parts=list(_parts(after)),
        data=steps_data(pictures),
        plan=costs.plan_json(made, cost),
        reserve=RESERVE_BYTES,
    )


def _op_rows(picture: Picture, layers: Sequence[Layer], headings: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A row of the page's table for each op, in the order of their first steps; the caller's rows of input are one."""
    plan, shared = picture.plan, dict.fromkeys(range(picture.rows), 0)
    for piece in picture.shared:
        shared[piece.step] += piece.end - piece.start
    steps: dict[int, list[int]] = {}
    for step, op in enumerate(plan.schedule.ops):
        steps.setdefault(op, []).append(step)
    by_op = {layer.index: layer for layer in layers}
    for op, taken in steps.items():
        if op == PUSH:
            held = max(plan.pressure[step] for step in taken)
            layer = Layer(PUSH, "rows of the input", "", (), 0, None, held, None, 0)
        else:
            layer = by_op[plan.graph.ops[op].number]
        kind = layer.kind.lower().replace("_", " ")
        yield {
            "step": taken[0],
            "index": op,
            "op": "" if op == PUSH else layer.index,
            "kind": kind if len(taken) == 1 else f"{kind}, {len(taken)} steps",
            "name": "" if op == PUSH else plan.graph.nodes[op].outputs[0].label,
            "cells": _cells(layer, max(shared[step] for step in taken), headings),
        }


def _cells(layer: Layer, shared_bytes: int, headings: Sequence[str]) -> list[str]:
    """What stands under the headings after the output."""
    counted = [getattr(layer, name) or 0 for name in ("instructions", "cycles") if name in headings]
    numbers = [layer.macs, layer.weights_bytes, layer.live_bytes, shared_bytes, *counted]
    words = ["" if number is None else f"{number:,}" for number in numbers]
    return ["×".join(map(str, layer.shape)), *words, f"{100 * layer.share:.1f} %"]


def _parts(plan: Plan) -> Iterator[tuple[str, int]]:
    """What the arena holds at some time or other; the parts share addresses."""
    graph = plan.graph
    yield "graph inputs", sum(graph.tensors[t].size_bytes for t in graph.inputs if t in plan.offsets)
    yield "graph outputs", sum(graph.tensors[t].size_bytes for t in graph.outputs if t in plan.offsets)
    if plan.state_bytes:
        yield "state, kept from run to run", plan.state_bytes
    yield "largest kernel scratch", max((b.size_bytes for b in plan.buffers if b.scratch_of is not None), default=0)
