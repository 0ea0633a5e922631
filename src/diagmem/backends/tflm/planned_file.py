"""Between plans and .tflite files: a plan put into a file, and a file's plan taken out and judged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from diagmem.backends.tflm import metadata
from diagmem.backends.tflm.greedy import ALIGN_BYTES, ONLINE, HeadLayout, layout
from diagmem.backends.tflm.metadata import Origin
from diagmem.frontends import tflite
from diagmem.frontends.tflite.writer import can_copy, copied, tensors_of_others
from diagmem.kernels import Library, library
from diagmem.model.errors import PlanError, UnsafePlanError, reading
from diagmem.model.graph import ABSENT, Graph, Op
from diagmem.model.schedule import Schedule
from diagmem.ops import kind_of
from diagmem.planning.bounds import tensor_buffers
from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import footprint
from diagmem.planning.needs.problem import Buffer
from diagmem.planning.options import Options
from diagmem.planning.place import optimal
from diagmem.planning.place.effort import NORMAL
from diagmem.planning.plan import Plan
from diagmem.transforms import transformed
from diagmem.validation import Fault, Finding, replay

if TYPE_CHECKING:
    from diagmem.frontends.source import Source

LIBRARIES = ("tflm", "tflm-reference", "cmsis-nn", "cmsis-nn-mve")
"""The kernels that TFLM may be built with. The first stands for those who do not know: it is safe for all of them."""
NO_SCRATCH = Library("", "kernels that take nothing from the arena", {})
EFFORT = NORMAL.times(0.2)
"""For the second placement, which need not be proven the best."""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file with a plan inside, as it was read back: its graph has the plan's order. `source_bytes`: the size of the
    file without it. `heads`: kernel library -> the head as TFLM alone plans the file that was given, and with this
    file. `given_bytes`: the size of the one that was given; more than `source_bytes` where channels were taken out."""

    data: bytes = field(repr=False)
    graph: Graph = field(repr=False)
    plan: Plan
    source_bytes: int
    heads: Mapping[str, tuple[int, int]]
    given_bytes: int

    @property
    def new_bytes(self) -> int:
        """What the plan adds to the file."""
        return len(self.data) - self.source_bytes

    def write(self, path: str | Path) -> Path:
        """Writes the file."""
        with reading():
            Path(path).write_bytes(self.data)
        return Path(path)


class Given(NamedTuple):
    """The file that a leaner one was made of, and its graph."""

    data: bytes
    graph: Graph


def file_of(source: Source) -> Given:
    """The file of a model, without a plan that it carries; refused if TFLM cannot run it."""
    if source.is_onnx:
        raise PlanError(
            "TensorFlow Lite Micro runs .tflite files only; convert the ONNX model to one first, for example with "
            "onnx2tf, or from PyTorch with litert-torch; or emit C, which needs no runtime"
        )
    graph, content = source.runnable, metadata.without_plan(source.content)
    if content is not source.content:
        graph = source.parsed(content)
    if not tflite.has_shapes_of_file(content, graph):
        raise PlanError(
            "the file leaves shapes open, and TensorFlow Lite Micro infers none; convert it with fixed shapes"
        )
    if tflite.has_uncalled_subgraphs(content):
        raise PlanError(
            "the file has subgraphs that the model does not run, and TensorFlow Lite Micro makes room for them too; "
            "convert the model into a file of its own"
        )
    return Given(content, graph)


def lean(data: bytes, graph: Graph, kernels: str) -> Given:
    """The file without channels that make no difference, for these kernels; itself if there are none, or if it has more
    subgraphs than the network. The graph is the file's."""
    if tensors_of_others(data) or any(op.number != op.index for op in graph.ops):
        return Given(data, graph)
    less, removals = transformed(graph, ["remove-channels"], block=library(kernels).channel_block)
    if not removals or not can_copy(data, graph):
        return Given(data, graph)
    content = copied(data, graph, less)
    return Given(content, tflite.parse(content, graph.name))


def emit(data: bytes, plan: Plan, given: Given | None = None) -> PlannedFile:
    """The file with the plan inside, its operators in the plan's order. The plan must be that of the file's graph.
    `given`: what the file was made of, if it is not itself what was given.

    What was written is read back and replayed once more, since TFLM checks nothing.
    """
    kernels = plan.options.kernels
    if kernels not in LIBRARIES:
        raise PlanError(f"the plan is for kernels {kernels}; plan with --kernels {' or '.join(LIBRARIES)}")
    if plan.pools or plan.options.external_io:
        raise PlanError("a file for TFLM holds offsets in one arena only: plan without pools and external buffers")
    order = [plan.graph.ops[op].number for op in plan.schedule.ops]
    planned = metadata.with_plan(data, plan.graph, offsets_for_tflm(plan), kernels, order)
    graph = tflite.parse(planned, plan.graph.name)
    found = embedded_plan(planned, graph, kernels)
    if found is not None:
        _check_scratch_alignment(found.plan, plan.options.align_bytes)
    if found is None or found.findings or found.doubts:
        reason = "it cannot be read back" if found is None else (*found.findings, *found.doubts)[0]
        raise UnsafePlanError(f"{plan.graph.name}: the file is not safe: {reason}; this is a bug, please report it")
    before = given or Given(data, plan.graph)
    heads = heads_by_kernels(before.graph, graph, metadata.offsets_in(planned, graph) or ())
    return PlannedFile(planned, graph, plan, len(data), heads, len(before.data))


def _check_scratch_alignment(found: Plan, align_bytes: int) -> None:
    """TFLM puts scratch right behind tensors, and kernels count on its alignment. Unknown operations may have some."""
    is_off = any(offset % ALIGN_BYTES for offset in found.scratch.values())
    may_be_off = any(kind_of(op.kind) is None for op in found.graph.ops) and align_bytes < ALIGN_BYTES
    if is_off or may_be_off:
        raise PlanError(
            f"alignment of {align_bytes}: TFLM would put the scratch of kernels where it is not aligned to "
            f"{ALIGN_BYTES} bytes; use --align {ALIGN_BYTES}"
        )


def offsets_for_tflm(plan: Plan) -> tuple[int, ...]:
    """An offset for each tensor: ONLINE for constants, variables, and what no operation uses.

    TFLM places scratch itself, wherever there is room. So tensors are also placed as if there were none, and the better
    is taken: the one that is nowhere worse than no plan at all; then the smaller head with scratch, then without.
    """
    runs, own = _as_it_runs(plan), plan.options.library
    choices = [plan.offsets, _without_scratch(plan)] if plan.scratch else [plan.offsets]

    def cost(choice: tuple[int, ...]) -> tuple[int, int, int]:
        meant = (own.name,) if own.name != LIBRARIES[0] else LIBRARIES[1:]
        heads = [head for name, head in heads_by_kernels(plan.graph, runs, choice).items() if name in meant]
        with_scratch, without = (layout(runs, choice, known).head_bytes for known in (own, NO_SCRATCH))
        return sum(max(0, after - before) for before, after in heads), with_scratch, without

    return min((_by_tensor(runs, choice) for choice in choices), key=cost)


def heads_by_kernels(before: Graph, after: Graph, offsets: Sequence[int]) -> dict[str, tuple[int, int]]:
    """Kernel library -> the head as TFLM alone plans it, and with these offsets. The graphs: in file order, as it was
    and as it becomes."""
    alone = [ONLINE] * len(before.tensors)
    return {
        name: (layout(before, alone, library(name)).head_bytes, layout(after, offsets, library(name)).head_bytes)
        for name in LIBRARIES
    }


def _by_tensor(graph: Graph, offsets: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(ONLINE if t.is_variable else offsets.get(t.index, ONLINE) for t in graph.tensors)


def _as_it_runs(plan: Plan) -> Graph:
    """The graph with its operations in the plan's order."""
    ops = (replace(plan.graph.ops[op], index=place) for place, op in enumerate(plan.schedule.ops))
    return replace(plan.graph, ops=tuple(ops))


def _without_scratch(plan: Plan) -> Mapping[int, int]:
    """Offsets of the tensors, in the plan's order, as if kernels needed no scratch."""
    whole = build_problem(footprint(plan.graph, plan.options), plan.schedule)
    tensors = whole.part(n for n, buffer in enumerate(whole.buffers) if buffer.scratch_of is None)
    placed = optimal(replace(tensors, lower_bound_bytes=0), EFFORT)
    return {t: at for buffer, at in zip(tensors.buffers, placed.offsets, strict=True) for t in buffer.tensors}


@dataclass(frozen=True, slots=True)
class EmbeddedPlan:
    """A plan found in a file, completed as TFLM's planner would: `online` are the tensors that it left to TFLM.
    `baseline_bytes`: what TFLM takes without it.

    `findings`: what is wrong with it for the plan's kernel library. `doubts`: overlaps at operations that diagmem does
    not know (such as Arm's Ethos-U), so that nobody but their maker can tell.
    """

    plan: Plan
    baseline_bytes: int
    origin: Origin | None
    online: tuple[int, ...]
    findings: tuple[Finding, ...]
    doubts: tuple[Finding, ...]


def embedded_plan(data: bytes, graph: Graph, kernels: str) -> EmbeddedPlan | None:
    """The plan that a file carries, judged for a kernel library; None if it carries none. The graph is the file's."""
    offsets = metadata.offsets_in(data, graph)
    if offsets is None:
        return None
    made = layout(graph, offsets, library(kernels))
    plan = _plan(_without_work_space(graph), made, kernels)
    places = plan.schedule, plan.row_offsets, plan.scratch, plan.arena_bytes
    findings = replay(plan.graph, plan.options.library, *places)
    return EmbeddedPlan(
        plan,
        layout(graph, [ONLINE] * len(graph.tensors), plan.options.library).head_bytes,
        metadata.origin(data),
        tuple(t for t in made.tensors if offsets[t] == ONLINE),
        tuple(f for f in findings if not _is_doubt(f, graph)),
        tuple(f for f in findings if _is_doubt(f, graph)),
    )


def _is_doubt(finding: Finding, graph: Graph) -> bool:
    within_one_op = finding.fault is Fault.OVERWRITTEN and finding.step == finding.writer_step
    return within_one_op and finding.op is not None and kind_of(graph.ops[finding.op].kind) is None


def _plan(graph: Graph, made: HeadLayout, kernels: str) -> Plan:
    """The layout as a plan in the file's order. Each tensor has a buffer of its own, since the file may give a reshape
    and its source different places."""
    schedule = Schedule.whole(range(len(graph.ops)), "file")
    # The alignment that all offsets have, as far as TFLM cares.
    options = Options(kernels, math.gcd(ALIGN_BYTES, *made.tensors.values()))
    known = build_problem(footprint(graph, options), schedule)
    buffers = [buffer for t, buffer in tensor_buffers(graph, schedule.ops).items() if t in made.tensors]
    offsets = [made.tensors[b.tensors[0]] for b in buffers]
    for op, offset in made.scratch.items():
        node = graph.nodes[op]
        size_bytes = options.library.scratch_bytes(node)
        buffers.append(Buffer(f"scratch of {node.label}", size_bytes, op, op + 1, ALIGN_BYTES, scratch_of=op))
        offsets.append(offset)
    placed = replace(known, buffers=tuple(buffers))
    return Plan.of(graph, options, schedule, placed, offsets, arena_bytes=made.head_bytes)


def _without_work_space(graph: Graph) -> Graph:
    """The graph without the inputs that nobody fills: room for a custom operation to work in, over all of the arena in
    the case of Arm's Vela. They hold no value that could be lost."""
    filled = {*graph.inputs, *graph.producer, ABSENT}
    filled |= {t.index for t in graph.tensors if t.is_constant or t.is_variable}

    def bare(op: Op) -> Op:
        return replace(op, inputs=tuple(t if t in filled else ABSENT for t in op.inputs))

    return replace(graph, ops=tuple(bare(op) for op in graph.ops))
