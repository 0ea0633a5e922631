"""Where a model can be run to see that it computes the same bytes, and what each place has to say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from diagmem.backends.c.program import Program
from diagmem.backends.tflm import metadata, planned_file
from diagmem.backends.tflm.planned_file import PlannedFile
from diagmem.costs import Cost, Costs
from diagmem.frontends.model_chain import Wired
from diagmem.frontends.source import Source
from diagmem.model.errors import PlanError, UnsafePlanError, one_line, shell_word
from diagmem.model.graph import DType, Graph, Node, Padding, Tensor
from diagmem.ops import Unsupported, kind_of
from diagmem.planning.plan import Plan
from diagmem.planning.planner import Planned
from diagmem.transforms.channel_links import Array, Sums
from diagmem.transforms.channel_ranges import Range, ranges_of
from diagmem.verification.cortex_m import CORES, run_on_core, run_on_cores
from diagmem.verification.harness import Inputs, Run
from diagmem.verification.host import run_on_host, run_on_threads
from diagmem.verification.one_by_one import opinion_of_parts
from diagmem.verification.oracles import RELATIVE_TOLERANCE, Opinion, second_opinion
from diagmem.verification.profile import check_runs_on, profiled
from diagmem.verification.reference import sample_inputs
from diagmem.verification.tflm import Comparison, compare

HOST, TFLM = "host", "tflm"
PLACES = (HOST, *CORES, TFLM)

ON_THREADS = re.compile(rf"{HOST}:([2-9]|1[0-6])")
"""`host:3`: the host, with three threads for three cores."""


def check_place(place: str) -> None:
    if place not in PLACES and not ON_THREADS.fullmatch(place):
        raise PlanError(f"place '{one_line(place)}' is not known; known: {', '.join(PLACES)}")


def cores_of(place: str) -> int:
    """How many cores share the run."""
    found = ON_THREADS.fullmatch(place)
    return int(found[1]) if found else CORES[place].cores if place in CORES else 1


INTERPRETER_KERNELS = ("tflm-reference", "tflm")
"""A plan for these is right in TFLM's Python interpreter, which has reference kernels."""


@dataclass(frozen=True, slots=True)
class CVerdict:
    """What running the C code has shown. `compared_with`: who computed what the outputs should be. `deviations`: where
    one of them computes something else, as documented. `within`: how near numpy's outputs are to the other's, as a
    part of the largest; 0 where they are the same bit for bit. `cost`: what was predicted. `opinion`: what another
    runtime has seen."""

    run: Run
    cost: Cost
    compared_with: tuple[str, ...]
    deviations: tuple[str, ...] = ()
    within: float = 0.0
    opinion: Opinion = field(default_factory=Opinion)

    @property
    def on(self) -> str:
        return self.run.on

    @property
    def ok(self) -> bool:
        return self.run.ok

    @property
    def failure(self) -> str | None:
        return self.run.failure

    def to_json(self) -> dict[str, Any]:
        told = {"compared_with": list(self.compared_with), "deviations": list(self.deviations), "within": self.within}
        seen = {
            "oracle": self.opinion.oracle or None,
            "ops": self.opinion.ops,
            "unseen_ops": list(self.opinion.unseen),
            "silent": list(self.opinion.silent),
            "ill_conditioned_inputs": self.opinion.ill_conditioned,
        }
        return {**self.run.to_json(), **told, **seen, "cost": self.cost.to_json()}


@dataclass(frozen=True, slots=True)
class TflmVerdict:
    """What running the planned file in TensorFlow Lite Micro has shown, beside the file without a plan."""

    found: Comparison
    weights_bytes: int
    on: ClassVar[str] = TFLM

    @property
    def ok(self) -> bool:
        return self.found.ok

    @property
    def failure(self) -> str | None:
        return self.found.failure or None

    def to_json(self) -> dict[str, Any]:
        before, after = self.found.before, self.found.after
        return {
            "on": self.on,
            "ok": self.ok,
            "inputs": self.found.inputs,
            "arena_bytes": after.arena_bytes if after else None,
            "arena_bytes_before": before.arena_bytes,
            "head_bytes": after.head_bytes if after else None,
            "head_bytes_before": before.head_bytes,
            "persistent_bytes": after.persistent_bytes if after else None,
            "stack_bytes": None,
            "static_bytes": None,
            "code_bytes": None,
            "weights_bytes": self.weights_bytes,
            "instructions": None,
            "failure": self.failure,
        }


Verdict = CVerdict | TflmVerdict


@dataclass(frozen=True)
class Verification:
    """A model to be run. `made`: the plan to run it with, in C. `planned`: its file with a plan for TFLM's reference
    kernels, where it carries none itself. `opinion`: another runtime's, if it has been asked already. What several
    places share is worked out once."""

    source: Source
    inputs: int
    seed: int
    made: Planned | Plan | None = None
    planned: PlannedFile | None = None
    opinion: Opinion | None = None

    def on(self, place: str) -> Verdict:
        check_place(place)
        return self._in_tflm() if place == TFLM else self.judged(self._run(place))

    @cached_property
    def program(self) -> Program:
        return self.costs.firmware

    @cached_property
    def costs(self) -> Costs:
        if self.made is None:
            raise PlanError("C code needs a plan")
        if isinstance(self.made, Plan):
            return Costs(self.made, self.source.runnable)
        return Costs.of(self.made)

    @cached_property
    def second_opinion(self) -> Opinion:
        """Another runtime's view of what the model computes."""
        if self.opinion is not None:
            return self.opinion
        # As its file has it: values that are kept are no outputs there.
        model = self.source.runnable
        samples = sample_inputs(model, self.inputs, self.seed)
        if isinstance(self.source, Wired):
            return opinion_of_parts(self.source, model, samples)
        return second_opinion(self.source, model, samples)

    @cached_property
    def range_fault(self) -> str | None:
        """What is wrong with the ranges by which channels were taken out, if any were."""
        if all(tensor.channels is None for tensor in self.program.graph.tensors):
            return None
        model = self.program.model
        return next(range_faults(model, ranges_of(model), self.seed), None)

    @property
    def samples(self) -> Inputs:
        return sample_inputs(self.program.graph, self.inputs, self.seed)

    def judged(self, run: Run) -> CVerdict:
        """What a run of the C code has shown, with what others make of the model."""
        opinion = self.second_opinion
        cost = self.costs.emulated_on(run.on) if run.on in CORES else self.costs.on()
        if run.ok and run.instructions is not None and CORES[run.on].cores == 1:
            cost = profiled(self.costs, run.on).cost
        if self.range_fault is not None:
            run = run.failed(f"a channel was taken for what it is not: {self.range_fault}")
        if opinion.disagreement is not None:
            run = run.failed(f"{opinion.oracle} disagrees: {opinion.disagreement}")
        notes = tuple(f"{opinion.oracle} differs as documented: {found}" for found in opinion.deviations)
        is_real = not opinion.is_exact and any(
            self.program.model.tensors[t].dtype is DType.FLOAT32 for t in self.program.model.outputs
        )
        is_judge = opinion.oracle and not notes and (opinion.is_exact or not opinion.unseen)
        judges = ("numpy", opinion.oracle) if is_judge else ("numpy",)
        return CVerdict(run, cost, judges, notes, RELATIVE_TOLERANCE if is_real and opinion.oracle else 0.0, opinion)

    def _run(self, place: str) -> Run:
        cores, samples = cores_of(place), self.samples
        if place in CORES:
            check_runs_on(self.costs.plan, place)
            return (run_on_core if cores == 1 else run_on_cores)(self.program, samples, CORES[place])
        return run_on_host(self.program, samples) if cores == 1 else run_on_threads(self.program, samples, cores)

    def _in_tflm(self) -> TflmVerdict:
        if self.source.is_onnx:
            raise PlanError("TensorFlow Lite Micro runs .tflite files only; verify the C code of an ONNX model")
        data, graph = self.source.content, self.source.runnable
        if not carries_plan(self.source):
            if self.planned is None:
                raise PlanError("the file carries no plan; write one into it with `emit tflm`")
            data, graph = self.planned.data, self.planned.graph
        note = metadata.origin(data)
        if note is not None and note.kernels not in INTERPRETER_KERNELS:
            raise PlanError(
                f"the plan is for kernels {one_line(note.kernels)}, but TFLM's Python interpreter has reference "
                "kernels, with which it may fail; check it on the device, and with "
                f"`diagmem plan --kernels {shell_word(note.kernels)}`"
            )
        self._judge(data, graph, note.kernels if note is not None else INTERPRETER_KERNELS[0])
        # The file as it was given is the judge, not what has been made of it.
        given = metadata.left_to_tflm(self.source.content)
        found = compare(given, data, graph, sample_inputs(graph, self.inputs, self.seed))
        return TflmVerdict(found, sum(t.size_bytes for t in graph.tensors if t.is_constant))

    def _judge(self, data: bytes, graph: Graph, kernels: str) -> None:
        """Raises UnsafePlanError where the plan inside a file is not safe: that it runs well on some inputs would show
        nothing. What cannot be judged, at operations that nobody knows, is run."""
        found = planned_file.embedded_plan(data, graph, kernels)
        if found is not None and found.findings:
            more = f" (and {len(found.findings) - 1} more)" if len(found.findings) > 1 else ""
            raise UnsafePlanError(f"{graph.name}: the plan in the file is not safe: {found.findings[0]}{more}")


def carries_plan(source: Source) -> bool:
    """Whether the model's file has a plan for TFLM inside."""
    return not source.is_onnx and metadata.offsets_in(source.content, source.runnable) is not None


MOST_ELEMS = 2**22
"""Of images that are tried together."""

MOST_PLACES = 25
"""Where a window lies partly outside the image: five times five ways and more are tried in part."""

STORED = (DType.INT8, DType.INT16)

RANDOM_RUNS = 2


def range_faults(graph: Graph, ranges: Mapping[int, Range], seed: int = 0) -> Iterator[str]:
    """Channels that leave the range by which they were removed, one line each. Random inputs of a
    whole model seldom come near the ends of ranges: a channel that varies once in a million would be taken for a
    constant. So each operation is run by itself, on inputs that lead each of its channels to both ends. What ranges say
    of an operation's inputs is taken for granted, for they are outputs of others, or anything."""
    rng = np.random.default_rng(seed)
    for node in graph.nodes:
        if len(node.outputs) != 1 or not node.output.elems or not node.output.shape:
            continue
        claimed = ranges[node.output.index]
        for values in _outputs(node, ranges, rng):
            found = values.reshape(-1, node.output.shape[-1]).astype(np.float64)
            outside = (found < claimed.low) | (found > claimed.high)
            if outside.any():
                row, channel = (int(i) for i in np.argwhere(outside)[0])
                limits = f"[{claimed.low[channel]:g}, {claimed.high[channel]:g}]"
                yield f"{node.label}: channel {channel} is {found[row, channel]:g}, and not within {limits}"
                break


def _outputs(node: Node, ranges: Mapping[int, Range], rng: np.random.Generator) -> Iterator[Array]:
    kind, sums = kind_of(node.op.kind), Sums.of(node)
    if kind is None or any(t is not None and t.is_variable for t in node.inputs):
        return
    try:
        if sums is not None and node.input(0).dtype in STORED:
            yield from _at_the_ends(node, sums, ranges[node.input(0).index])
        for _ in range(RANDOM_RUNS):
            given = [None if t is None else _drawn(t, ranges[t.index], rng) for t in node.inputs]
            if any(t is not None and values is None for t, values in zip(node.inputs, given, strict=True)):
                return
            with np.errstate(all="ignore"):
                yield kind.reference(node, given)[0]
    except Unsupported:
        return


def _drawn(tensor: Tensor, found: Range, rng: np.random.Generator) -> Array | None:
    """Values within a range: its ends, and some between."""
    shape, dtype = tensor.shape, tensor.dtype
    if tensor.data is not None:
        return tensor.data
    if dtype is DType.FLOAT32:
        return np.where(found.is_constant, found.low, rng.normal(0, 2, shape)).astype(np.float32)
    if dtype not in STORED:
        return None
    ends = (limit.astype(np.int64) for limit in (found.low, found.high))
    low, high = (np.broadcast_to(end if shape else end[0], shape) for end in ends)
    between: npt.NDArray[np.int64] = rng.integers(low, high, endpoint=True)
    drawn: Array = np.choose(rng.integers(0, 4, shape), (low, high, between, between))
    return drawn.astype(dtype.numpy)


def _at_the_ends(node: Node, sums: Sums, found: Range) -> Iterator[Array]:
    """A window for each output channel and end of its range, at each place: inputs of positive weight are largest, or
    least, and those of negative weight the other; what lies outside the image is 0."""
    outputs, taps, _ = sums.weights.shape
    low, high = (limit.astype(np.int64) for limit in (found.low, found.high))
    together = max(1, MOST_ELEMS // max(1, taps * len(low)))
    for first in range(0, outputs, together):
        rows = sums.weights[first : first + together]
        if sums.sources is not None:
            every = np.zeros((len(rows), taps, len(low)), np.int8)
            every[np.arange(len(rows)), :, sums.sources[first : first + together]] = rows[:, :, 0]
            rows = every
        for ends in ((low, high), (high, low)):
            full = np.where(rows > 0, ends[1], ends[0])
            for inside in sums.inside[:: -(-len(sums.inside) // MOST_PLACES)]:
                windows = np.where(inside[:, None], full, sums.zero)
                yield _run(node, windows)


def _run(node: Node, windows: Array) -> Array:
    """What an operation makes of windows [window, tap, channel] that lie inside the image as they are."""
    data, kind = node.input(0), kind_of(node.op.kind)
    assert kind is not None
    if node.op.kind == "FULLY_CONNECTED":
        shape: tuple[int, ...] = (len(windows), windows.shape[1] * windows.shape[2])
        op = replace(node.op, attributes=replace(node.attributes, keep_num_dims=False))
        made: tuple[int, ...] = (len(windows), node.output.shape[-1])
    else:
        height, width = node.input(1).shape[1:3]
        shape = (len(windows), height, width, windows.shape[2])
        plain = replace(node.attributes, padding=Padding.VALID, dilation_h=1, dilation_w=1)
        op = replace(node.op, attributes=plain)
        made = (len(windows), 1, 1, node.output.shape[-1])
    alone = Node(op, (replace(data, shape=shape), *node.inputs[1:]), (replace(node.output, shape=made),))
    values = [
        windows.reshape(shape).astype(data.dtype.numpy),
        *(None if t is None else t.data for t in node.inputs[1:]),
    ]
    return kind.reference(alone, values)[0]
